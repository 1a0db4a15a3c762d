"""Split the uncertainty about a label in two parts: not knowing the weights, and randomness of the label itself.

Let p_s be the probabilities of the labels of a token or row under draw s of the weights, and p = mean_s p_s. Then

    H(p) = mean_s H(p_s) + [H(p) - mean_s H(p_s)]
           aleatoric       epistemic

The aleatoric part is the entropy that would remain if the weights were known. The epistemic part is the information,
in nats, that the label would give about the weights (Houlsby et al. 2011); more training data make it go to zero.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.special import entr

from kernelcrf.arrays import Array, Floats


@dataclass(frozen=True, eq=False)
class Uncertainty:
    """Epistemic and aleatoric uncertainty in nats; each is (N,) for rows, or a list of (T_i,) for sequences.

    Examples
    --------
    >>> from sklearn.datasets import make_moons
    >>> from kernelcrf import KernelClassifier
    >>> X, y = make_moons(200, noise=0.2, random_state=0)
    >>> model = KernelClassifier(n_components=50, laplace=True, random_state=0).fit(X, y)
    >>> parts = model.uncertainty([[0.5, 0.25], [8.0, 8.0]])  # between the moons, and far from both
    >>> bool(parts.aleatoric[0] > parts.epistemic[0]), bool(parts.epistemic[1] > parts.epistemic[0])
    (True, True)
    """

    epistemic: Any
    aleatoric: Any


def average_draws(draws: Iterable[Array]) -> tuple[Floats, Floats, Floats]:
    """Return the mean (N, L) of drawn probabilities, and the epistemic and aleatoric parts (N,) of its entropy."""
    p, within, count = np.zeros(1), np.zeros(1), 0
    for one in draws:
        p, within, count = p + one, within + entr(one).sum(axis=1), count + 1
    p, within = p / count, within / count
    return p, np.maximum(entr(p).sum(axis=1) - within, 0.0), within
