"""Random sequences from a known distribution, so that the best possible predictions are known.

Labels are a Markov chain: y_1 is uniform, then p(y_t = j | y_{t-1} = i) = transitions[i, j]. Inputs are independent
given the labels,

    p(x | y = j) = (N(x; c_j, noise^2 I) + N(x; -c_j, noise^2 I)) / 2        nonlinear
    p(x | y = j) = N(x; c_j, noise^2 I)                                      linear

with centres c_j on the unit circle of the first two features, or evenly spaced if there is only one feature. All
non-linear classes have the mean 0, so that no linear function of x separates them.
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

    X : m arrays (T_i, d).
    y : m arrays (T_i,) of integers below L.
    transitions : (L, L), p(to | from).
    posterior : m arrays (T_i, L), the true p(y_t = j | x), computed exactly.
    bayes_error : the mean over all tokens of 1 - max_j p(y_t = j | x). On these inputs, no model has a smaller expected
        share of wrong tokens.

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
    """Draw random sequences of labels and inputs; by default, no linear function of the inputs gives the labels.

    mean_length : the mean of the lengths, which are 1 plus a Poisson variable.
    noise : the standard deviation of inputs around the centres, which have a distance of 1 from the origin.
    stickiness : p(y_t = y_{t-1}), below 1; the other labels share the rest at random.
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
    """Return the centres c_j, (L, d); on half of the circle if nonlinear, since -c_j is a centre, too."""
    centres = np.zeros((n_classes, n_features))
    if n_features == 1:
        low = 1 / n_classes if nonlinear else -1.0
        centres[:, 0] = np.linspace(low, 1.0, n_classes)
        return centres
    angles = np.arange(n_classes) * (np.pi if nonlinear else 2 * np.pi) / n_classes
    centres[:, :2] = np.column_stack((np.cos(angles), np.sin(angles)))
    return centres


def _markov(chains: Chains, transitions: Floats, rng: np.random.RandomState) -> npt.NDArray[np.int64]:
    """Draw the labels (N,) of Markov chains, for all sequences together, position by position."""
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
    """Return log p(x_t | y_t = j), (N, L), up to a term that depends on x_t only."""
    inner = X @ centres.T / noise**2
    norms = (centres**2).sum(axis=1) / (2 * noise**2)
    return np.asarray((np.logaddexp(inner, -inner) if nonlinear else inner) - norms)
