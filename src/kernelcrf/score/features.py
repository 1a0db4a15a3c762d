"""The features of tokens (or other cliques), and the matrix products that a pass over the data needs.

Features are stored once for each distinct input (Lemma 6 of the paper), and an index maps tokens to distinct inputs.
Products with weights are computed once per distinct input. Before a product with the transposed features, the rows of
tokens with equal inputs are added up.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import cached_property

import numpy as np

from kernelcrf.arrays import Array, DType, Floats, Inputs, Places, is_sparse
from kernelcrf.basis.distinct_inputs import Distinct, add_rows
from kernelcrf.basis.factor import row_blocks
from kernelcrf.basis.pairs import Pairs
from kernelcrf.basis.panels import in_double
from kernelcrf.basis.recomputed_features import FeatureRows, RecomputedFeatures
from kernelcrf.engines.local import LocalEngine

ROWS = 4096
INDEX_BELOW = 0.8


@dataclass(frozen=True, eq=False)
class TokenFeatures:
    """The features of tokens (or other cliques), stored once per distinct input.

    F : a dense array or CSR matrix, with one row per distinct input and one column per feature.
    index : for each token, the row of F with its features; None if F has one row per token.
    views : the number of rows of features per token; those of a token follow each other. Scores, and gradients with
        respect to them, have one row per token, in which the columns for these rows are side by side.
    """

    F: Inputs
    index: Places | None = None
    views: int = 1

    @classmethod
    def of(cls, inputs: Distinct, F: FeatureRows) -> TokenFeatures:
        """Return the features of tokens, given the features F of the distinct inputs.

        If many tokens have equal inputs, F is stored with an index. Otherwise, F is expanded to one row per token.
        """
        if cls is TokenFeatures and isinstance(F, RecomputedFeatures):
            return RecomputedTokenFeatures.of(inputs, F)
        rows: Inputs = F
        return cls(rows, inputs.index) if inputs.U < INDEX_BELOW * inputs.N else cls(inputs.expand(rows))

    @property
    def is_sparse(self) -> bool:
        """Return whether the features are a sparse CSR matrix."""
        return is_sparse(self.F)

    @property
    def is_stored(self) -> bool:
        """Return whether the features are in memory, and not computed each time they are needed."""
        return True

    @property
    def precision(self) -> DType:
        """Return the floating-point type that determines the rounding of scores."""
        dtype: DType = self.F.dtype
        return dtype

    @cached_property
    def transposed(self) -> Inputs:
        """Return the transpose of sparse features as a CSR matrix."""
        return self.F.T.tocsr()

    def with_pairs(self, pairs: Pairs | None) -> TokenFeatures:
        """Return the features for a term in which only `pairs` have weights; None means that all pairs have weights."""
        return self if pairs is None else PairFeatures(self.F, self.index, pairs=pairs)

    def with_views(self, views: int) -> TokenFeatures:
        """Return the features for tokens that have several rows, which follow each other."""
        return self if views == 1 else replace(self, views=views)

    def times(self, W: Array, n_jobs: int) -> Array:
        """Multiply the features by W, and return one row per token."""
        W = np.asarray(W, self.F.dtype)
        Z = np.empty((self.F.shape[0], W.shape[1]), self.F.dtype)

        def fill(rows: slice) -> None:
            # If k is small, the transposed product is up to twice as fast.
            Z[rows] = self.F[rows] @ W if self.is_sparse else (W.T @ self.F[rows].T).T

        LocalEngine(n_jobs).map(fill, row_blocks(len(Z), ROWS))
        return self._of_tokens(Z)

    def transposed_times(self, R: Array, n_jobs: int) -> Floats:
        """Multiply the transposed features by an array R with one row per token."""
        R = self._of_rows(R)
        if self.is_sparse and n_jobs == 1:
            return np.asarray(self.F.T @ R, np.float64)
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

    def _of_tokens(self, Z: Array) -> Array:
        """Return the scores of tokens, given those of the rows of F."""
        Z = Z if self.index is None else Z[self.index]
        return Z if self.views == 1 else Z.reshape(-1, self.views * Z.shape[1])

    def _of_rows(self, R: Array) -> Array:
        """Return the gradient with respect to the scores of the rows of F, given that for the scores of tokens."""
        return self._sum_equal(R if self.views == 1 else R.reshape(-1, R.shape[1] // self.views))

    def _sum_equal(self, R: Array) -> Array:
        """Add up the rows of R that belong to tokens with equal inputs; return one row per row of F."""
        if self.index is None:
            return R
        summed = np.zeros((self.F.shape[0], R.shape[1]), R.dtype)
        add_rows(np.ascontiguousarray(R), self.index, summed)
        return summed

    def gram(self, weights: Array) -> Floats:
        """Return the matrix F' diag(weights) F for dense features F; both F and `weights` have one row per token."""
        d = self._weights_of_rows(weights)
        return np.asarray((self.F * d[:, None].astype(self.F.dtype)).T @ self.F, np.float64)

    def _weights_of_rows(self, weights: Array) -> Array:
        """Return the sum of the weights of all tokens with the same row of F, one number per row."""
        weights = np.repeat(weights, self.views)
        return weights if self.index is None else np.bincount(self.index, weights, minlength=self.F.shape[0])

    def squares_transposed_times(self, R: Array) -> Floats:
        """Multiply the transposed squares of the features by an array R with one row per token."""
        squares = self.F.power(2) if self.is_sparse else np.square(self.F)
        return replace(self, F=squares).transposed_times(R, 1)

    def squared_norms(self) -> Array:
        """Return the squared norm of the features of each token."""
        squares = self.F.power(2) if self.is_sparse else np.square(self.F)
        norms = np.asarray(squares.sum(axis=1)).ravel()
        return norms if self.index is None else norms[self.index]

    def in_double(self) -> TokenFeatures:
        """Return the features in float64."""
        return replace(self, F=in_double(self.F))

    def columns(self, columns: Places) -> TokenFeatures:
        """Return the features with only the given columns."""
        return replace(self, F=self.F[:, columns])

    def part(self, nodes: slice) -> TokenFeatures:
        """Return the features of the tokens in the slice `nodes`."""
        nodes = slice(nodes.start * self.views, nodes.stop * self.views) if self.views > 1 else nodes
        if self.index is None:
            return replace(self, F=self.F[nodes])
        return replace(self, index=self.index[nodes])


@dataclass(frozen=True, eq=False)
class PairFeatures(TokenFeatures):
    """Sparse features of tokens, for a term in which only some pairs of a feature and a label have weights.

    Weights and gradients are vectors with one entry per pair.
    """

    pairs: Pairs = field(kw_only=True)

    def times(self, W: Array, n_jobs: int) -> Array:
        """Return the scores of the labels for the weights W, one row per token."""
        F, weights = self.F, np.asarray(W, self.F.dtype)
        s = np.zeros((F.shape[0], self.pairs.n_labels), F.dtype)

        def fill(rows: slice) -> None:
            self.pairs.scores(F.indices, F.data, F.indptr[rows.start : rows.stop + 1], weights, s[rows])

        LocalEngine(n_jobs).map(fill, row_blocks(len(s), ROWS))
        return s if self.index is None else s[self.index]

    def transposed_times(self, R: Array, n_jobs: int) -> Floats:
        """Return the gradient with respect to the weights, given an array R with one row per token."""
        R, g = self._sum_equal(R), np.zeros(self.pairs.size)
        if n_jobs == 1:
            # Threads need the transposed features, because each of them writes the gradient for other features.
            self.pairs.add_gradient(self.F.indices, self.F.data, self.F.indptr, R, g)
            return g
        F = self.transposed

        def fill(rows: slice) -> None:
            offsets = F.indptr[rows.start : rows.stop + 1]
            self.pairs.gradient(F.indices, F.data, offsets, R, rows.start, g)

        LocalEngine(n_jobs).map(fill, row_blocks(F.shape[0], ROWS))
        return g


@dataclass(frozen=True, eq=False)
class RecomputedTokenFeatures(TokenFeatures):
    """Features of tokens that are not stored, but computed for each product."""

    F: RecomputedFeatures

    @property
    def is_stored(self) -> bool:
        return False

    @property
    def precision(self) -> DType:
        # The fitted model computes scores of float32 inputs in float32.
        dtype: DType = self.F.landmarks.dtype
        return dtype

    def computed(self, nodes: slice, fill: Callable[[slice, Floats], Floats], memory: Floats) -> TokenFeatures:
        """Return rows Z for the tokens in the slice `nodes`, such that F W = Z fold(W); see `RecomputedFeatures`.

        Each token must have rows of its own.

        fill : the result of `RecomputedFeatures.computed_rows`.
        memory : the memory for the rows.
        """
        rows = slice(nodes.start * self.views, nodes.stop * self.views)
        return TokenFeatures(fill(rows, memory), views=self.views)

    def times(self, W: Array, n_jobs: int) -> Array:
        return self._of_tokens(self.F.times(W, n_jobs))

    def transposed_times(self, R: Array, n_jobs: int) -> Floats:
        return self.F.transposed_times(self._of_rows(R), n_jobs)

    def gram(self, weights: Array) -> Floats:
        d = self._weights_of_rows(weights)
        total = np.zeros((self.F.shape[1], self.F.shape[1]))
        for rows, _ in self.F.blocks():
            F = self.F[rows].compute()
            total += (F * d[rows, None]).T @ F
        return total

    def squares_transposed_times(self, R: Array) -> Floats:
        R = self._of_rows(R)
        total = np.zeros((self.F.shape[1], R.shape[1]))
        for rows, _ in self.F.blocks():
            total += np.square(self.F[rows].compute()).T @ R[rows]
        return total

    def squared_norms(self) -> Array:
        blocks = [np.square(self.F[rows].compute()).sum(axis=1) for rows, _ in self.F.blocks()]
        norms = np.concatenate([np.empty(0), *blocks])
        return norms if self.index is None else norms[self.index]

    def in_double(self) -> TokenFeatures:
        return self

    def columns(self, columns: Places) -> TokenFeatures:
        return TokenFeatures(self.F.compute()[:, columns], self.index)
