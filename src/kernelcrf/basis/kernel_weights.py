"""Compute the scores of inputs directly from kernel values, without computing features.

The features of an input x are `F(x) = k(x, B) R^-T`, where B are the landmarks and R is the Cholesky factor of their
kernel matrix. With weights W, one row per landmark, the scores of x are

    F(x) W = k(x, B) A,      where A = R^-T W is computed once.

No triangular system is solved per input, and a block of kernel values is multiplied by A while it is in the cache. A is
computed in float64 and stored in the precision of the landmarks. If some landmarks are close to each other, A is large,
and terms of the sum cancel. The error of a score is then up to about `eps |k(x, B)| |A|`, where eps is the precision of
the inputs. Rounding the kernel values alone can cause such an error. In training, features are computed in float64. If
the inputs are float32, predicted scores are therefore less accurate than scores in training.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
import scipy.sparse as sp
from scipy.linalg import solve_triangular

from kernelcrf.arrays import Array, Floats, Inputs, is_sparse
from kernelcrf.basis.factor import row_blocks
from kernelcrf.basis.features import FeatureMap, PrimalMap, check_columns
from kernelcrf.basis.pairs import Pairs, add_record_scores
from kernelcrf.basis.sparse_entries import Entries
from kernelcrf.engines.bounds import all_within
from kernelcrf.engines.local import LocalEngine
from kernelcrf.kernels.inputs import InputKernel

BLOCK_BYTES = 2**21
LEAST_ROWS = 256
# BLAS uses one thread for products with fewer multiplications than this, so that its threads need no limit.
SMALL_PRODUCT = 8192
LARGEST_SCORE = {np.dtype(one): float(np.sqrt(np.finfo(one).max)) for one in (np.float32, np.float64)}


@dataclass(frozen=True, eq=False)
class PrimalWeights:
    """The weights W of a model with the linear kernel; inputs X have the scores X W."""

    W: Array

    @cached_property
    def _single(self) -> Array:
        return self.W.astype(np.float32)

    def scores(self, X: Inputs | Entries, engine: LocalEngine = LocalEngine()) -> Array:  # noqa: B008  -- a frozen value
        """Return the scores X W, with one row per row of X, in the precision of X."""
        if isinstance(X, Entries):
            return check_scores(X.times(self.W, engine))
        X = check_columns(X, len(self.W))
        W = self._single if X.dtype == np.float32 else self.W.astype(X.dtype, copy=False)
        s, blocks = np.empty((X.shape[0], W.shape[1]), X.dtype), row_blocks(X.shape[0])

        def fill(rows: slice) -> None:
            s[rows] = X[rows] @ W

        with np.errstate(over="ignore", under="ignore", invalid="ignore"):
            is_small = X.shape[0] * W.size <= SMALL_PRODUCT
            if is_small or (is_sparse(X) and (engine.n_threads == 1 or len(blocks) == 1)):
                return check_scores(np.asarray(X @ W))
            engine.map(fill, blocks)
        return check_scores(s)


@dataclass(frozen=True, eq=False)
class PairWeights:
    """The weights of a model with the linear kernel in which only some pairs of a feature and a label have a weight.

    pairs, weights : these pairs, and their weights in the same order.

    For predictions, the labels and weights of each feature are stored side by side, because a sentence has features
    from all over the vocabulary, and each jump in memory takes longer than the arithmetic.
    """

    pairs: Pairs
    weights: Array

    @cached_property
    def records(self) -> Floats:
        """Return an array in which the labels and the weights of each feature are side by side."""
        return self.pairs.records(self.weights)

    def scores(self, X: Inputs | Entries, engine: LocalEngine = LocalEngine()) -> Array:  # noqa: B008  -- a frozen value
        """Return the scores of the labels, with one row per row of X, in the precision of X."""
        columns: Array
        offsets: Array
        if isinstance(X, Entries):
            columns, values, offsets = X.columns, X.values, X.offsets
        else:
            X = sp.csr_array(check_columns(X, self.pairs.n))
            columns, values, offsets = X.indices, X.data, X.indptr
        s = np.zeros((len(offsets) - 1, self.pairs.n_labels), values.dtype)

        def fill(rows: slice) -> None:
            row_offsets = offsets[rows.start : rows.stop + 1]
            add_record_scores(columns, values, row_offsets, self.pairs.pointers, self.records, s[rows])

        if engine.n_threads == 1 or len(blocks := row_blocks(len(s))) <= 1:
            # For a single sentence, `map` would take longer than the product.
            add_record_scores(columns, values, offsets, self.pairs.pointers, self.records, s)
        else:
            engine.map(fill, blocks)
        return check_scores(s)


@dataclass(frozen=True, eq=False)
class DualWeights:
    """The weights A of a model with the scores k(X, B) A for inputs X, where B are the landmarks."""

    kernel: InputKernel
    landmarks: Inputs
    A: Array

    def scores(self, X: Inputs | Entries, engine: LocalEngine = LocalEngine()) -> Array:  # noqa: B008  -- a frozen value
        """Return the scores k(X, B) A for the landmarks B, with one row per row of X, in the precision of A."""
        X = check_columns(X.to_csr() if isinstance(X, Entries) else X, self.landmarks.shape[1])
        s, n = np.empty((X.shape[0], self.A.shape[1]), self.A.dtype), len(self.A)
        against = self.kernel.against(self.landmarks, X.dtype)
        size = max(BLOCK_BYTES // (n * s.itemsize), LEAST_ROWS)

        def fill(rows: slice) -> None:
            K = np.empty((min(size, rows.stop - rows.start), n), s.dtype)
            for start in range(rows.start, rows.stop, size):
                part = slice(start, min(start + size, rows.stop))
                block = K[: part.stop - part.start]
                against(X[part], block)
                np.matmul(block, self.A, out=s[part])

        with np.errstate(over="ignore", under="ignore", invalid="ignore"):
            engine.map(fill, row_blocks(X.shape[0]))
        return check_scores(s)


Weights = PrimalWeights | PairWeights | DualWeights


def check_scores(s: Array) -> Array:
    """Return the scores s; raise if some score is so large that sums or products of scores could overflow."""
    most = LARGEST_SCORE[s.dtype]
    if not all_within(s, -most, most):
        row = int(np.argmin((np.abs(s) <= most).all(axis=1)))
        score = s[row, np.argmin(np.abs(s[row]) <= most)]
        raise ValueError(
            f"row {row} of the inputs has the score {score:.3g}, so large that computations overflow: expected inputs "
            "on the scale of the training data. Scale both with the same sklearn.preprocessing.StandardScaler"
        )
    return s


def fold(features: FeatureMap, W: Array) -> Weights:
    """Convert the weights W of features to weights A of kernel values, which give the same scores.

    For the linear kernel, the features are the inputs, and the weights do not change.
    """
    if isinstance(features, PrimalMap):
        return PrimalWeights(np.ascontiguousarray(W))
    A = solve_triangular(features.R.astype(np.float64), W.astype(np.float64), trans="T", lower=True)
    return DualWeights(features.kernel, features.landmarks, np.ascontiguousarray(A, features.landmarks.dtype))
