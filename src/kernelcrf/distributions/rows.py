"""The distribution p(y|x) = exp(f_y(x)) / sum_l exp(f_l(x)) of the class y of each row x."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from scipy.special import entr, log_softmax, softmax

from kernelcrf.arrays import Array, Floats, Labels, UserData
from kernelcrf.distributions.base import Distribution, read_only
from kernelcrf.models.base import rng_of
from kernelcrf.models.rows import RowModel
from kernelcrf.readers.missing_labels import UNKNOWN
from kernelcrf.readers.rows import read_classes
from kernelcrf.validation import SEED, SIZE, either, validated


@dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class RowDistribution(Distribution):
    """The distribution p(y|x) of the classes of rows, as `KernelClassifier.distribution` returns it.

    Rows are independent, so that there are no probabilities of pairs.

    model : the fitted model.
    scores : the values of the latent functions, with one row per row x and one column per class.

    Examples
    --------
    >>> from sklearn.datasets import make_moons
    >>> from kernelcrf import KernelClassifier
    >>> X, y = make_moons(200, noise=0.2, random_state=0)
    >>> distribution = KernelClassifier(n_components=50, random_state=0).fit(X, y).distribution(X[:2])
    >>> distribution.marginals().shape, distribution.entropy().shape, distribution.log_prob(y[:2]).shape
    ((2, 2), (2,), (2,))
    >>> [label.item() for label, log_p in distribution.k_best(2)[0]], distribution.decode()
    ([0, 1], array([0, 1]))
    >>> distribution.sample(3, random_state=0).shape
    (3, 2)
    """

    model: RowModel
    scores: Array

    @property
    def n_samples(self) -> int:
        return len(self.scores)

    @property
    def classes(self) -> Array:
        return self.model.classes

    @property
    def shape(self) -> tuple[int, ...]:
        return self.scores.shape

    @cached_property
    def probabilities(self) -> Array:
        return read_only(np.asarray(softmax(self.scores, axis=1)))

    @cached_property
    def best(self) -> Labels:
        return read_only(self.scores.argmax(axis=1))

    def marginals(self) -> Array:
        """Return the probability of each class for each row; column j belongs to classes[j]."""
        return self.probabilities.copy()

    def log_prob(self, y: UserData) -> Floats:
        """Return log p(y|x) of each row; it is 0 if the label is missing."""
        labels = read_classes(y, self.classes, self.n_samples)
        log_p = np.asarray(log_softmax(np.asarray(self.scores, np.float64), axis=1))
        return np.where(labels == UNKNOWN, 0.0, log_p[np.arange(len(labels)), labels])

    def entropy(self) -> Floats:
        return np.asarray(entr(np.asarray(self.probabilities, np.float64)).sum(axis=1))

    @validated(n_samples=either(SIZE), random_state=SEED)
    def sample(self, n_samples: int = 1, random_state: UserData = None) -> Array:
        """Return labels drawn from p(y|x): one row per draw, and one column per row of X."""
        uniform = rng_of(random_state).random((n_samples, self.n_samples, 1))
        ends = np.cumsum(np.asarray(self.probabilities, np.float64), axis=1)
        # The last end may be below 1 because of rounding.
        return np.asarray(self.classes[(uniform >= ends[:, :-1]).sum(axis=2)])

    @validated(k=either(SIZE))
    def k_best(self, k: int = 1) -> list[list[tuple[UserData, float]]]:
        """Return the k likeliest classes of each row with their log-probabilities, best first."""
        log_p = log_softmax(np.asarray(self.scores, np.float64), axis=1)
        order = np.argsort(-log_p, axis=1, kind="stable")[:, :k]
        return [[(self.classes[j], float(row[j])) for j in ranked] for row, ranked in zip(log_p, order, strict=True)]

    def _name_labels(self, indices: Labels) -> Array:
        return np.asarray(self.classes[indices])
