"""A resident part of the data, and the linear map between theta and its scores.

    s_t = sum over node templates of A (W' F_t),     w_t = sum over edge templates of A (F_t W) A',

with A the factor of the label kernel and F_t = 1 for a template without inputs. `scores` applies the map, `pull_back`
its transpose: from residuals of scores to a gradient. Features are those of the U distinct inputs (Lemma 6): products
run over them, an index leads to the tokens, and residuals are summed onto them first.

Dense features without duplicates are cut into as many partitions as threads may share.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp

from kernelcrf.basis.distinct import add_rows
from kernelcrf.engines.local import LocalEngine
from kernelcrf.graphs.structure import EDGE, Chains, Legal
from kernelcrf.parameters import Layout, TemplateBlock

Array = npt.NDArray[Any]
Floats = npt.NDArray[np.float64]

MOST_PARTITIONS, LEAST_NODES = 64, 512
BLOCK_BYTES, LEAST_BLOCK_NODES = 2**19, 64
ROWS = 4096


@dataclass(frozen=True, eq=False)
class TokenFeatures:
    """F (U, n), dense or CSR, of a template's distinct inputs; `index` (N,) says which one a token has.

    index=None: token t has row t.
    """

    F: Any
    index: npt.NDArray[np.intp] | None = None

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


@dataclass(frozen=True, eq=False)
class Partition:
    """Some sequences with their features and labels.

    features : of each template that has inputs, by its name.
    labels : (N,), an index a token; not read where `allowed` is given.
    allowed : (N, L) booleans, the labels that a token may have, or None where all are observed.
    weights : (m,), what each sequence counts for, or None for one each.
    legal : what labelings may be, or None for any.
    first : the place of the first sequence among all of the data, for messages.
    """

    chains: Chains
    n_labels: int
    labels: npt.NDArray[np.int32]
    features: Mapping[str, TokenFeatures] = field(default_factory=dict)
    allowed: npt.NDArray[np.bool_] | None = None
    weights: Floats | None = None
    legal: Legal | None = None
    first: int = 0

    @property
    def dtype(self) -> np.dtype[Any]:
        """The precision of scores: float32 where all features are."""
        dtypes = [features.F.dtype for features in self.features.values()]
        return np.result_type(*dtypes) if dtypes else np.dtype(np.float64)

    def weighted(self, rows: Array) -> Array:
        """Rows of tokens, each times the weight of its sequence."""
        if self.weights is None:
            return rows
        weights = np.repeat(self.weights, self.chains.lengths)
        return np.asarray(rows * weights.reshape(-1, *(1,) * (rows.ndim - 1)), rows.dtype)

    def scores(self, layout: Layout, theta: Floats, n_jobs: int = 1) -> tuple[Array, Array]:
        """Node scores (N, L), and edge scores (L, L) where no edge template has inputs, else (N, L, L)."""
        n_nodes, L = self.chains.n_nodes, self.n_labels
        s, w = np.zeros((n_nodes, L), self.dtype), np.zeros((L, L), self.dtype)
        for block, W in zip(layout.blocks, layout.split(theta).values(), strict=True):
            Z = W[0].astype(self.dtype)
            if block.clique.name in self.features:
                Z = self.features[block.clique.name].times(W.reshape(block.n, -1), n_jobs)
                Z = Z.reshape(n_nodes, *block.clique.shape)
            if block.clique.nodes == 1:
                s += block.clique.expand(Z)
            else:
                w = w + block.clique.expand(Z)
        return s, w

    def pull_back(self, layout: Layout, r: Array, q: Array, n_jobs: int = 1) -> Floats:
        """The gradient in theta of <r, s> + <q, w>; q has the shape of the edge scores."""

        def gradient(block: TemplateBlock) -> Array:
            residual = r if block.clique.nodes == 1 else q
            if block.clique.name in self.features:
                R = np.ascontiguousarray(block.clique.adjoint(residual)).reshape(len(r), -1)
                return self.features[block.clique.name].transposed_times(R, n_jobs)
            if block.clique.nodes == 1 or q.ndim == 3:
                residual = residual.sum(axis=0, dtype=np.float64)
            return block.clique.adjoint(residual[None])

        return layout.join({block.clique.name: gradient(block) for block in layout.blocks})

    @cached_property
    def observed_steps(self) -> Floats:
        """(L, L): how often the labels step from one to another, by weight."""
        before, into = self.chains.cliques(EDGE).T
        steps = np.zeros((self.n_labels, self.n_labels))
        weights = 1.0 if self.weights is None else np.repeat(self.weights, self.chains.lengths)[into]
        np.add.at(steps, (self.labels[before], self.labels[into]), weights)
        return steps

    @cached_property
    def block_cuts(self) -> npt.NDArray[np.int64]:
        """The sequences at which blocks begin whose dense features a cache holds, and the number of sequences."""
        row_bytes = sum(features.F.shape[1] * features.F.itemsize for features in self.features.values())
        runs = self.chains.runs(max(BLOCK_BYTES // max(row_bytes, 1), LEAST_BLOCK_NODES))
        return np.array([low for low, _ in runs] + [self.chains.n_samples])

    def part(self, low: int, high: int) -> Partition:
        """Sequences low to high."""
        offsets = self.chains.offsets
        nodes = slice(int(offsets[low]), int(offsets[high]))
        return replace(
            self,
            chains=Chains(offsets[low : high + 1] - offsets[low]),
            labels=self.labels[nodes],
            features={name: features.part(nodes) for name, features in self.features.items()},
            allowed=None if self.allowed is None else self.allowed[nodes],
            weights=None if self.weights is None else self.weights[low:high],
            first=self.first + low,
        )

    def cut(self) -> list[Partition]:
        """Partitions that threads may take; one where features are sparse or shared between tokens."""
        if not self.features or any(f.index is not None or f.is_sparse for f in self.features.values()):
            return [self]
        n_nodes = max(-(-self.chains.n_nodes // MOST_PARTITIONS), LEAST_NODES)
        return [self.part(low, high) for low, high in self.chains.runs(n_nodes)]


def _row_blocks(n_rows: int) -> list[slice]:
    return [slice(low, min(low + ROWS, n_rows)) for low in range(0, n_rows, ROWS)]
