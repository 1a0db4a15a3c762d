"""Draw random sequences from a known distribution, so that the best possible predictions are known.

Labels are a Markov chain. The first label y_1 is uniform, and p(y_t = j | y_{t-1} = i) = transitions[i, j]. Given the
labels, the inputs x_t are independent. The inputs of label j are normal around a centre c_j. If `nonlinear`, half of
these inputs are normal around -c_j instead, so that the mean is 0 for all labels and no linear function of x separates
the labels:

    p(x | y = j) = N(x; c_j, noise^2 I)                                      if linear,
    p(x | y = j) = (N(x; c_j, noise^2 I) + N(x; -c_j, noise^2 I)) / 2        if nonlinear.

The centres are on the unit circle of the first two features, or evenly spaced if there is only one feature.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
from sklearn.utils import check_random_state

from kernelcrf.arrays import Floats
from kernelcrf.graphs.structure import Chains
from kernelcrf.inference import chain
from kernelcrf.validation import FLAG, SEED, SIZE, either, real, validated, whole


@dataclass(frozen=True)
class SequenceData:
    """Random sequences, and the distribution from which they were drawn.

    X : one array per sequence, with one row of features per token.
    y : one array of labels per sequence; the labels are the integers 0, 1, 2 and so on.
    transitions : transitions[i, j] is the probability that label j follows label i.
    posterior : one array per sequence, with the exact probability of each label (column) at each token (row).
    bayes_error : the mean over all tokens t of 1 - max_j p(y_t = j | x), with p from `posterior`. No model has a
        smaller expected error on these inputs.

    Examples
    --------
    >>> from kernelcrf.datasets import make_sequences
    >>> data = make_sequences(5, n_classes=2, random_state=0)
    >>> type(data).__name__, data.transitions.round(1), data.posterior[0].shape
    ('SequenceData', array([[0.7, 0.3],
           [0.3, 0.7]]), (14, 2))
    """

    X: list[Floats]
    y: list[npt.NDArray[np.int64]]
    transitions: Floats
    posterior: list[Floats]
    bayes_error: float


@validated(
    n_sequences=either(SIZE),
    mean_length=either(real(least=1, most=1e6)),
    n_classes=either(whole(least=2, most=10_000)),
    n_features=either(whole(least=1, most=10**6)),
    noise=either(real(least=1e-100, most=1e100), advice="it is the standard deviation about the centres"),
    stickiness=either(real(least=0, below=1), advice="it is the probability to keep the label"),
    nonlinear=FLAG,
    random_state=SEED,
)
def make_sequences(
    n_sequences: int = 100,
    mean_length: float = 10,
    n_classes: int = 3,
    n_features: int = 2,
    noise: float = 0.3,
    stickiness: float = 0.7,
    nonlinear: bool = True,
    random_state: Any = None,
) -> SequenceData:
    """Draw random sequences of labels and inputs; by default, no linear function of the inputs separates the labels.

    n_sequences : the number of sequences.
    mean_length : the mean number of tokens per sequence; a length is 1 plus a Poisson variable.
    n_classes, n_features : the number of labels, and the number of features per token.
    noise : the standard deviation of the inputs around the centre of their label. With two or more features, the
        centres have the distance 1 from the origin.
    stickiness : the probability that a label is equal to the previous label. The remaining probability is divided among
        the other labels at random, so that each `random_state` has its own transitions. For training and test data of
        the same distribution, split the sequences of one call.
    nonlinear : whether each label has two opposite centres instead of one.
    random_state : an integer, a `numpy.random.RandomState` or None, as in scikit-learn.

    Examples
    --------
    >>> from kernelcrf.datasets import make_sequences
    >>> data = make_sequences(100, random_state=0)
    >>> len(data.X), data.X[0].shape, data.y[0].shape
    (100, (11, 2), (11,))
    >>> round(data.bayes_error, 2)
    0.06
    """
    rng = check_random_state(random_state)
    transitions = np.zeros((n_classes, n_classes))
    transitions[~np.eye(n_classes, dtype=bool)] = rng.dirichlet(np.ones(n_classes - 1), size=n_classes).ravel()
    transitions = stickiness * np.eye(n_classes) + (1 - stickiness) * transitions
    chains = Chains.from_lengths(1 + rng.poisson(mean_length - 1, size=n_sequences))
    centres = _centres(n_classes, n_features, nonlinear)

    y = _markov(chains, transitions, rng)
    signs = rng.choice([-1.0, 1.0], size=len(y)) if nonlinear else np.ones(len(y))
    X = signs[:, None] * centres[y] + noise * rng.standard_normal((len(y), n_features))

    with np.errstate(divide="ignore"):
        log_transitions = np.log(transitions)
    marginals = chain.moments(_log_densities(X, centres, noise, nonlinear), log_transitions, chains).nodes
    cuts = chains.offsets[1:-1]
    return SequenceData(
        np.split(X, cuts),
        np.split(y, cuts),
        transitions,
        np.split(marginals, cuts),
        float(1 - marginals.max(axis=1).mean()),
    )


def _centres(n_classes: int, n_features: int, nonlinear: bool) -> Floats:
    """Return the centres of the inputs, one row per class and one column per feature."""
    centres = np.zeros((n_classes, n_features))
    if n_features == 1:
        low = 1 / n_classes if nonlinear else -1.0
        centres[:, 0] = np.linspace(low, 1.0, n_classes)
        return centres
    # A nonlinear class also has the opposite of its centre, so that centres on half of the circle fill the circle.
    angles = np.arange(n_classes) * (np.pi if nonlinear else 2 * np.pi) / n_classes
    centres[:, :2] = np.column_stack((np.cos(angles), np.sin(angles)))
    return centres


def _markov(chains: Chains, transitions: Floats, rng: np.random.RandomState) -> npt.NDArray[np.int64]:
    """Draw one label per token from a Markov chain, with a uniform first label in each sequence."""
    n_classes = len(transitions)
    cumulative = transitions.cumsum(axis=1)
    y = np.empty(chains.n_nodes, np.int64)
    y[chains.first_nodes] = rng.randint(n_classes, size=chains.first_nodes.size)
    for step in range(1, int(chains.lengths.max())):
        nodes = chains.offsets[:-1][chains.lengths > step] + step
        draws = rng.random_sample(nodes.size)
        # Because of rounding, the last sum of a row may be below 1.
        y[nodes] = np.minimum((cumulative[y[nodes - 1]] < draws[:, None]).sum(axis=1), n_classes - 1)
    return y


def _log_densities(X: Floats, centres: Floats, noise: float, nonlinear: bool) -> Floats:
    """Return the log density of each input (row) given each label (column), up to a constant per row."""
    inner = X @ centres.T / noise**2
    norms = (centres**2).sum(axis=1) / (2 * noise**2)
    return np.asarray((np.logaddexp(inner, -inner) if nonlinear else inner) - norms)
