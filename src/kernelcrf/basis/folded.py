"""Compute scores `F(x) W` of any inputs without their features F: the factor R is folded into the weights once.

    F(x) W = k(x, B) R^-T W = k(x, B) A,      A = R^-T W

A block of the Gram matrix is multiplied by A while it is in the cache, and no triangular system is solved per input. A
is computed in float64 and stored in the precision of B. If atoms are close under the kernel, A is large and its terms
cancel: the error is at most about `eps |k(x, B)| |A|`, as large as the rounding of k alone would make it. For float32
inputs, eps is the precision of float32, while `WhitenedMap.transform` computes F in float64. Predicted scores are then
less exact than scores in training, but within this bound (`tests/basis/test_folded.py`).
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from scipy.linalg import solve_triangular

from kernelcrf.arrays import Array, Inputs, is_sparse
from kernelcrf.basis.entries import Entries
from kernelcrf.basis.factor import row_blocks
from kernelcrf.basis.features import FeatureMap, PrimalMap, check_columns
from kernelcrf.engines.local import LocalEngine
from kernelcrf.kernels.inputs import InputKernel

BLOCK_BYTES = 2**21
LEAST_ROWS = 256


@dataclass(frozen=True, eq=False)
class PrimalWeights:
    """Weights W (d, k) that apply to the inputs themselves, as with the linear kernel."""

    W: Array

    @cached_property
    def _single(self) -> Array:
        return self.W.astype(np.float32)

    def scores(self, X: Inputs | Entries, engine: LocalEngine = LocalEngine()) -> Array:  # noqa: B008  -- a frozen value
        """Return X W, (rows, k), in the precision of X."""
        if isinstance(X, Entries):
            return check_scores(X.times(self.W, engine))
        X = check_columns(X, len(self.W))
        W = self._single if X.dtype == np.float32 else self.W.astype(X.dtype, copy=False)
        s, blocks = np.empty((X.shape[0], W.shape[1]), X.dtype), row_blocks(X.shape[0])

        def fill(rows: slice) -> None:
            s[rows] = X[rows] @ W

        with np.errstate(over="ignore", under="ignore", invalid="ignore"):
            if is_sparse(X) and (engine.n_threads == 1 or len(blocks) == 1):
                return check_scores(np.asarray(X @ W))
            engine.map(fill, blocks)
        return check_scores(s)


@dataclass(frozen=True, eq=False)
class DualWeights:
    """Weights A (n, k) that apply to the kernel values k(x, B) with the landmarks B (n, d)."""

    kernel: InputKernel
    landmarks: Inputs
    A: Array

    def scores(self, X: Inputs | Entries, engine: LocalEngine = LocalEngine()) -> Array:  # noqa: B008  -- a frozen value
        """Return k(X, B) A, (rows, k), in the precision of A."""
        X = check_columns(X.to_csr() if isinstance(X, Entries) else X, self.landmarks.shape[1])
        s, n = np.empty((X.shape[0], self.A.shape[1]), self.A.dtype), len(self.A)
        against = self.kernel.against(self.landmarks, X.dtype)
        size = max(BLOCK_BYTES // (n * s.itemsize), LEAST_ROWS)

        def fill(rows: slice) -> None:
            K = np.empty((min(size, rows.stop - rows.start), n), s.dtype)
            for start in range(rows.start, rows.stop, size):
                own = slice(start, min(start + size, rows.stop))
                block = K[: own.stop - own.start]
                against(X[own], block)
                np.matmul(block, self.A, out=s[own])

        with np.errstate(over="ignore", under="ignore", invalid="ignore"):
            engine.map(fill, row_blocks(X.shape[0]))
        return check_scores(s)


Weights = PrimalWeights | DualWeights


def check_scores(s: Array) -> Array:
    """Return the scores s (rows, k); raise if sums or products of them could overflow."""
    most = np.sqrt(np.finfo(s.dtype).max)
    if s.size and not (s.max() <= most and s.min() >= -most):
        row = int(np.argmin((np.abs(s) <= most).all(axis=1)))
        score = s[row, np.argmin(np.abs(s[row]) <= most)]
        raise ValueError(
            f"row {row} of the inputs has the score {score:.3g}, and numbers of this size overflow: expected inputs on "
            "the scale of the training data; scale both with the same sklearn.preprocessing.StandardScaler"
        )
    return s


def fold(features: FeatureMap, W: Array) -> Weights:
    """Return the weights that compute the scores F(x) W from inputs x directly, for W (n, k)."""
    if isinstance(features, PrimalMap):
        return PrimalWeights(np.ascontiguousarray(W))
    A = solve_triangular(features.R.astype(np.float64), W.astype(np.float64), trans="T", lower=True)
    return DualWeights(features.kernel, features.landmarks, np.ascontiguousarray(A, features.landmarks.dtype))
