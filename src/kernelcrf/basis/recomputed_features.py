"""Features that are not stored, but computed again from the inputs each time they are needed.

With the landmarks B and the Cholesky factor R of their kernel matrix, the features of the inputs X are `F = K R^-T`,
where K = k(X, B). Products with F do not need F itself:

    F W = K (R^-T W),        F' r = R^-1 (K' r).

The triangular systems are solved once per product, and not once per input, so that a pass over the data costs the
kernel values and two products. One block of kernel values is in memory at a time. Everything is computed in float64,
also for float32 inputs, because the rounding errors of kernel values are multiplied by up to the condition number of R.
Those of stored features are as large. If landmarks are so close to each other that this number exceeds
MOST_CONDITION, terms of K (R^-T W) may cancel. Each block is then multiplied by R^-T itself, which takes n^2 operations
per input for n landmarks, but makes the objective depend on theta as smoothly as with stored features.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
from scipy.linalg import lapack, solve_triangular

from kernelcrf.arrays import Array, DType, Floats, Inputs
from kernelcrf.basis.factor import row_blocks
from kernelcrf.basis.panels import Panels, in_double
from kernelcrf.engines.local import LocalEngine
from kernelcrf.kernels.inputs import InputKernel

BLOCK_BYTES = 2**21
LEAST_ROWS = 256
# The largest condition number of R, in the 1-norm, at which rounding errors of scores stay near 1e-10.
MOST_CONDITION = 1e7


@dataclass(frozen=True, eq=False)
class RecomputedFeatures:
    """The features of the inputs X, one row per input, which take no memory besides the inputs.

    Indexing selects rows, and computes nothing.

    landmarks : the landmarks B, one per row.
    R : the Cholesky factor of the kernel matrix of the landmarks, K_BB = R R', a lower triangular matrix.
    """

    kernel: InputKernel
    landmarks: Inputs
    R: Array
    X: Inputs

    @property
    def shape(self) -> tuple[int, int]:
        """Return the number of inputs and the number of landmarks."""
        return int(self.X.shape[0]), len(self.R)

    @property
    def dtype(self) -> DType:
        """Return the floating-point type of the features, which is always float64."""
        return np.dtype(np.float64)

    def __len__(self) -> int:
        return self.shape[0]

    def __getitem__(self, rows: Any) -> RecomputedFeatures:
        return replace(self, X=self.X[rows])

    def compute(self) -> Floats:
        """Return the features as an array."""
        F, panels = np.empty(self.shape), Panels.of(self.kernel, self.landmarks, self.R, 0)
        for rows in row_blocks(len(F)):
            panels.fill(self.X[rows], F[rows])
        return F

    @cached_property
    def is_folded(self) -> bool:
        """Return whether products are computed from kernel values, because R is conditioned well enough."""
        reciprocal, _ = lapack.dtrcon(self._R, norm="1", uplo="L", diag="N")
        return len(self.R) == 0 or float(reciprocal) * MOST_CONDITION >= 1.0

    def computed_rows(self) -> Callable[[slice, Floats], Floats]:
        """Return a function that takes a slice of the inputs and memory, and returns rows Z such that F W = Z fold(W).

        Z has the kernel values of the inputs with the landmarks or, if `is_folded` is False, the features themselves.
        It is in the given memory, an array with as many columns as there are landmarks, and at least as many rows as
        the slice. If memory were new for each slice, the system would need long to provide it.
        """
        panels = None if self.is_folded else Panels.of(self.kernel, self.landmarks, self.R, 0)
        against = self.kernel.against(in_double(self.landmarks), self.dtype)

        def fill(rows: slice, memory: Floats) -> Floats:
            X = in_double(self.X[rows])
            Z = memory[: X.shape[0]]
            with np.errstate(over="ignore", under="ignore", invalid="ignore"):
                against(X, Z) if panels is None else panels.fill(X, Z)
            return Z

        return fill

    def fold(self, W: Floats) -> Floats:
        """Return R^-T W, which gives kernel values the scores that the weights W give features.

        If `is_folded` is False, return W itself.
        """
        if not self.is_folded:
            return W
        return np.ascontiguousarray(solve_triangular(self._R, W, trans="T", lower=True, check_finite=False))

    def unfold(self, G: Floats) -> Floats:
        """Return R^-1 G: the gradient with respect to weights of features, given that for weights of kernel values.

        If `is_folded` is False, return G itself.
        """
        if not self.is_folded:
            return G
        return np.asarray(solve_triangular(self._R, G, lower=True, check_finite=False))

    def times(self, W: Array, n_jobs: int = 1) -> Floats:
        """Return the product of the features and W."""
        A, Z, computed = self.fold(np.asarray(W, np.float64)), np.empty((len(self), W.shape[1])), self.computed_rows()

        def fill(rows: slice) -> None:
            for part, memory in self.blocks(rows):
                np.matmul(computed(part, memory), A, out=Z[part])

        LocalEngine(n_jobs).map(fill, row_blocks(len(self)))
        return Z

    def transposed_times(self, r: Array, n_jobs: int = 1) -> Floats:
        """Return the product of the transposed features and r."""
        r, computed = np.asarray(r, np.float64), self.computed_rows()

        def product(rows: slice) -> Floats:
            total = np.zeros((r.shape[1], len(self.R)))
            for part, memory in self.blocks(rows):
                total += r[part].T @ computed(part, memory)
            return total

        total = np.zeros((r.shape[1], len(self.R)))
        for one in LocalEngine(n_jobs).map(product, row_blocks(len(self))):
            total += one
        return self.unfold(np.ascontiguousarray(total.T))

    def blocks(self, rows: slice | None = None) -> Iterator[tuple[slice, Floats]]:
        """Divide a slice of the inputs, or all inputs, into blocks whose kernel values fit into the CPU cache.

        Yield pairs of a block and memory for its rows, which is the same for all blocks.
        """
        low, high = (0, len(self)) if rows is None else (rows.start, rows.stop)
        size = rows_of_block(len(self.R))
        memory = np.empty((min(size, high - low), len(self.R)))
        for start in range(low, high, size):
            yield slice(start, min(start + size, high)), memory

    @property
    def _R(self) -> Floats:
        return self.R.astype(np.float64, copy=False)


def rows_of_block(n: int) -> int:
    """Return the number of inputs whose kernel values with n landmarks fit into the CPU cache."""
    return max(BLOCK_BYTES // (8 * max(n, 1)), LEAST_ROWS)


FeatureRows = Inputs | RecomputedFeatures
"""The features of inputs, one row per input: an array, a CSR matrix, or features that are computed when needed."""


def compute_rows(F: FeatureRows, rows: slice) -> Inputs:
    """Return some rows of features as an array or CSR matrix."""
    return F[rows].compute() if isinstance(F, RecomputedFeatures) else F[rows]
