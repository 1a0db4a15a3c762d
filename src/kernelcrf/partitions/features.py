"""Features of a template's cliques, and the products with them that a pass is made of.

Features are those of the U distinct inputs (Lemma 6): products run over them, an index leads to the cliques, and
residuals are summed onto them first.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp

from kernelcrf.basis.distinct import Distinct, add_rows
from kernelcrf.engines.cluster import Resident
from kernelcrf.engines.local import LocalEngine

Array = npt.NDArray[Any]
Floats = npt.NDArray[np.float64]

ROWS = 4096
INDEX_BELOW = 0.8


@dataclass(frozen=True, eq=False)
class TokenFeatures(Resident):
    """F (U, n), dense or CSR, of a template's distinct inputs; `index` (N,) says which one a token has.

    index=None: token t has row t.
    """

    F: Any
    index: npt.NDArray[np.intp] | None = None

    @classmethod
    def of(cls, found: Distinct, F: Any) -> TokenFeatures:
        """Features F (U, n) of distinct inputs: shared where many are equal, else a row for each."""
        return cls(F, found.index) if found.U < INDEX_BELOW * found.N else cls(found.expand(F))

    @property
    def is_sparse(self) -> bool:
        """Whether F is CSR."""
        return bool(sp.issparse(self.F))

    @cached_property
    def transposed(self) -> Any:
        """F' by rows, for CSR features."""
        return self.F.T.tocsr()

    def times(self, W: Array, n_jobs: int) -> Array:
        """F W at each token: (n, k) -> (N, k)."""
        W = np.asarray(W, self.F.dtype)
        Z = np.empty((self.F.shape[0], W.shape[1]), self.F.dtype)

        def fill(rows: slice) -> None:
            # The transposed product runs at up to twice the speed where k is small.
            Z[rows] = self.F[rows] @ W if self.is_sparse else (W.T @ self.F[rows].T).T

        LocalEngine(n_jobs).map(fill, _row_blocks(len(Z)))
        return Z if self.index is None else Z[self.index]

    def transposed_times(self, R: Array, n_jobs: int) -> Floats:
        """F' R, R at tokens: (N, k) -> (n, k)."""
        if self.index is not None:
            summed = np.zeros((self.F.shape[0], R.shape[1]), R.dtype)
            add_rows(np.ascontiguousarray(R), self.index, summed)
            R = summed
        if self.is_sparse:
            out = np.empty((self.F.shape[1], R.shape[1]))

            def fill(rows: slice) -> None:
                out[rows] = self.transposed[rows] @ R

            LocalEngine(n_jobs).map(fill, _row_blocks(len(out)))
            return out
        blocks = _row_blocks(len(R))
        total = np.zeros((R.shape[1], self.F.shape[1]))
        for part in LocalEngine(n_jobs).map(lambda rows: R[rows].T @ self.F[rows], blocks):
            total += part
        return total.T

    def gram(self, weights: Array) -> Floats:
        """F' diag(weights) F of dense features, (n, n); weights (N,) at tokens."""
        d = weights if self.index is None else np.bincount(self.index, weights, minlength=self.F.shape[0])
        return np.asarray((self.F * d[:, None].astype(self.F.dtype)).T @ self.F, np.float64)

    def squares_transposed_times(self, R: Array) -> Floats:
        """(F o F)' R, R at tokens: (N, k) -> (n, k)."""
        squares = self.F.power(2) if self.is_sparse else np.square(self.F)
        return TokenFeatures(squares, self.index).transposed_times(R, 1)

    def part(self, nodes: slice) -> TokenFeatures:
        """The features of a run of tokens."""
        if self.index is None:
            return TokenFeatures(self.F[nodes])
        return TokenFeatures(self.F, self.index[nodes])


def _row_blocks(n_rows: int) -> list[slice]:
    return [slice(low, min(low + ROWS, n_rows)) for low in range(0, n_rows, ROWS)]
