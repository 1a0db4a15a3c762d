"""Split the uncertainty about a label: epistemic, from unknown weights, and aleatoric, from randomness of the label.

Let p_s be the probabilities of the labels of a token or row under draw s of the weights. Let p be the mean of p_s over
all draws, and H the entropy. Then

    H(p) = mean_s H(p_s) + [H(p) - mean_s H(p_s)]
           aleatoric       epistemic

The aleatoric part is the entropy that would remain if the weights were known. The epistemic part is the information,
in nats, that the label would give about the weights (Houlsby et al. 2011); it decreases with more training data.
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
    """Epistemic and aleatoric uncertainty in nats.

    Both are arrays with one number per row or, for sequences, lists of arrays with one number per token.

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
    """Return the mean of the probabilities over all draws, and the epistemic and aleatoric uncertainty of each row.

    draws : one array of probabilities per draw of the weights; its rows are tokens or samples, its columns labels.
    """
    p, within, count = np.zeros(1), np.zeros(1), 0
    for one in draws:
        p, within, count = p + one, within + entr(one).sum(axis=1), count + 1
    p, within = p / count, within / count
    return p, np.maximum(entr(p).sum(axis=1) - within, 0.0), within
