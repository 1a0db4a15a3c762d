"""The features of a term's cliques, and the matrix products that a pass over the data needs.

Features are stored once for each distinct input (Lemma 6), and an index maps cliques to these inputs. Products with
weights are computed once per distinct input. In products with the transpose, rows of equal inputs are added first.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from kernelcrf.arrays import Array, Floats, Inputs, Places, is_sparse
from kernelcrf.basis.distinct import Distinct, add_rows
from kernelcrf.basis.factor import row_blocks
from kernelcrf.engines.local import LocalEngine

ROWS = 4096
INDEX_BELOW = 0.8


@dataclass(frozen=True, eq=False)
class TokenFeatures:
    """The features of tokens (or other cliques), stored once per distinct input.

    F : dense or CSR, one row per distinct input and one column per feature.
    index : the row of F for each token; None if token t has the row t.
    """

    F: Inputs
    index: Places | None = None

    @classmethod
    def of(cls, found: Distinct, F: Inputs) -> TokenFeatures:
        """Return features of tokens, given the features F of their distinct inputs.

        An index is kept if many tokens have equal inputs. Otherwise, F is expanded to one row per token.
        """
        return cls(F, found.index) if found.U < INDEX_BELOW * found.N else cls(found.expand(F))

    @property
    def is_sparse(self) -> bool:
        """Return whether the features are a sparse CSR matrix."""
        return is_sparse(self.F)

    @cached_property
    def transposed(self) -> Inputs:
        """Return the transpose of sparse features as a CSR matrix."""
        return self.F.T.tocsr()

    def times(self, W: Array, n_jobs: int) -> Array:
        """Return the product of the features with W, one row per token."""
        W = np.asarray(W, self.F.dtype)
        Z = np.empty((self.F.shape[0], W.shape[1]), self.F.dtype)

        def fill(rows: slice) -> None:
            # If k is small, the transposed product is up to twice as fast.
            Z[rows] = self.F[rows] @ W if self.is_sparse else (W.T @ self.F[rows].T).T

        LocalEngine(n_jobs).map(fill, row_blocks(len(Z), ROWS))
        return Z if self.index is None else Z[self.index]

    def transposed_times(self, R: Array, n_jobs: int) -> Floats:
        """Return the product of the transposed features with R, which has one row per token."""
        if self.index is not None:
            summed = np.zeros((self.F.shape[0], R.shape[1]), R.dtype)
            add_rows(np.ascontiguousarray(R), self.index, summed)
            R = summed
        if self.is_sparse:
            out = np.empty((self.F.shape[1], R.shape[1]))

            def fill(rows: slice) -> None:
                out[rows] = self.transposed[rows] @ R

            LocalEngine(n_jobs).map(fill, row_blocks(len(out), ROWS))
            return out
        blocks = row_blocks(len(R), ROWS)
        total = np.zeros((R.shape[1], self.F.shape[1]))
        for part in LocalEngine(n_jobs).map(lambda rows: R[rows].T @ self.F[rows], blocks):
            total += part
        return total.T

    def gram(self, weights: Array) -> Floats:
        """Return F' diag(weights) F for dense features F with one row per token, and one weight per token."""
        d = weights if self.index is None else np.bincount(self.index, weights, minlength=self.F.shape[0])
        return np.asarray((self.F * d[:, None].astype(self.F.dtype)).T @ self.F, np.float64)

    def squares_transposed_times(self, R: Array) -> Floats:
        """Return the product of the transposed squares of the features with R, which has one row per token."""
        squares = self.F.power(2) if self.is_sparse else np.square(self.F)
        return TokenFeatures(squares, self.index).transposed_times(R, 1)

    def columns(self, columns: Places) -> TokenFeatures:
        """Return the features with only the given columns."""
        return TokenFeatures(self.F[:, columns], self.index)

    def part(self, nodes: slice) -> TokenFeatures:
        """Return the features of a range of tokens."""
        if self.index is None:
            return TokenFeatures(self.F[nodes])
        return TokenFeatures(self.F, self.index[nodes])
