"""The weights of a term, stored such that the scores of one sequence are computed fast.

With features F of the rows of a sequence, weights W and the factor A of the label kernel, the scores are F W A'.
"""

from __future__ import annotations

from typing import Protocol

import numpy as np

from ..arrays import Array, Floats, Ints, Labels
from ..kernels.labels import LabelMap
from .kernels import Gram, add_at
from .rows import SparseRows, spread

PANEL = 64
# Up to this number of entries, a dense matrix replaces the weights of pairs, because its rows are summed faster.
DENSE_ENTRIES = 2**20


class Weights(Protocol):
    """Protocol of objects that score the rows of a sequence."""

    def scores(self, X: Floats | SparseRows) -> Floats:
        """Return the scores of labels, or of pairs of labels, with one row per row of X."""


class PairWeights:
    """The weights of a term with the linear kernel in which only some pairs of a feature and a label have weights.

    pointers, labels : the pairs, as in `basis.pairs.Pairs`; weights : the weight of each pair.
    """

    def __init__(self, pointers: Ints, labels: Labels, weights: Array, n_labels: int) -> None:
        self.pointers, self.labels, self.n_labels = pointers, labels, n_labels
        self.weights = weights.astype(np.float64, copy=False)

    def scores(self, X: Floats | SparseRows) -> Floats:
        """Return the scores of labels, with one row per row of X."""
        assert isinstance(X, SparseRows)
        starts = self.pointers.take(X.columns)
        # The column of unknown names, after those of the model, has no pairs: it ends where it starts.
        counts = self.pointers.take(X.columns + 1, mode="clip")
        counts -= starts
        pairs = spread(starts, counts)
        flat = np.arange(0, X.n_rows * self.n_labels, self.n_labels).repeat(X.counts).repeat(counts)
        flat += self.labels.take(pairs)
        weights = self.weights.take(pairs)
        if X.values is not None:
            weights *= X.values.repeat(counts)
        return add_at(flat, weights, (X.n_rows, self.n_labels))


def pair_weights(pointers: Ints, labels: Labels, weights: Array, k_y: LabelMap) -> Weights:
    """Return the weights of a term in which only some pairs have weights, as a dense matrix if it is small."""
    n, L = len(pointers) - 1, k_y.L
    if n * L > DENSE_ENTRIES:
        return PairWeights(pointers, labels, weights, L)
    W = np.zeros((n, L))
    W[np.repeat(np.arange(n), np.diff(pointers)), labels] = weights
    return DenseWeights(W, k_y)


class DenseWeights:
    """The weights W of a term with the linear kernel, or the weights R^-T W of kernel values at landmarks.

    gram : the kernel values at landmarks, or None for the linear kernel.
    """

    def __init__(self, W: Array, k_y: LabelMap, gram: Gram | None = None) -> None:
        # Unknown names have a column after those of the model, whose weights are 0.
        self.W = np.pad(W.astype(np.float64, copy=False), ((0, gram is None), (0, 0)))
        self.k_y, self.gram = k_y, gram

    def scores(self, X: Floats | SparseRows) -> Floats:
        """Return the scores of labels, or of pairs of labels, with one row per row of X."""
        features = X if self.gram is None else self.gram(X)
        Z = sum_rows(features, self.W) if isinstance(features, SparseRows) else features @ self.W[: features.shape[1]]
        return np.asarray(self.k_y.expand(Z))


def sum_rows(X: SparseRows, W: Floats) -> Floats:
    """Return the product of sparse rows and W."""
    taken = W.take(X.columns, axis=0)
    if X.values is not None:
        taken *= X.values[:, None]
    starts = X.counts.cumsum()
    starts -= X.counts
    if X.counts.all():
        return np.add.reduceat(taken, starts, axis=0)
    filled, Z = np.flatnonzero(X.counts), np.zeros((X.n_rows, W.shape[1]))
    if len(filled):
        Z[filled] = np.add.reduceat(taken, starts[filled], axis=0)
    return Z


def weights_at_landmarks(R: Array, W: Array) -> Floats:
    """Return A = R^-T W for a lower triangular R: with the features F = k(x, B) R^-T, the scores F W are k(x, B) A.

    A is computed in blocks of rows (panels), from the last to the first: for panel p, the equation is
    R_pp' A_p = W_p - sum over later panels q of R_qp' A_q.
    """
    R, A = R.astype(np.float64, copy=False), W.astype(np.float64)
    for start in range((len(R) - 1) // PANEL * PANEL, -1, -PANEL):
        panel, after = slice(start, start + PANEL), slice(start + PANEL, None)
        A[panel] -= R[after, panel].T @ A[after]
        for row in range(min(start + PANEL, len(R)) - 1, start - 1, -1):
            A[row] = (A[row] - R[row + 1 : start + PANEL, row] @ A[row + 1 : start + PANEL]) / R[row, row]
    return A
