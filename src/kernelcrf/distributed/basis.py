"""A basis for inputs on the workers of a cluster: the same rules as on one machine, drawn over all parts.

An input that occurs in several parts belongs to the first of them. So rules see every distinct input once, in the order
of first appearance, as on one machine. Inputs are numbered over the own inputs of the parts, part after part.

A round of random pivots sends the sum of d from each part, the numbers of the drawn inputs back to the parts, their
rows of X and F to this process, and the accepted atoms with their rows of R to all parts. F (U, n) grows where X is.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from hashlib import blake2b
from itertools import pairwise
from operator import attrgetter

import numpy as np

from kernelcrf.arrays import Array, DType, Floats, Inputs, Places, is_sparse
from kernelcrf.basis.definiteness import check_diagonal
from kernelcrf.basis.factor import Basis, GrowingFactor, row_blocks, stack
from kernelcrf.basis.panels import Panels, in_double
from kernelcrf.basis.residuals import extend_rows, fresh_residual, passed, refine_rows, sound_columns
from kernelcrf.distributed.cluster import Cluster, Function, Handle, Value, first, second
from kernelcrf.engines.local import LocalEngine
from kernelcrf.kernels.inputs import InputKernel

MOST_BUCKETS = 16


@dataclass(frozen=True, eq=False)
class BasisPart:
    """The distinct inputs X (u, d) of a part while a basis grows.

    own : which of them no earlier part has.
    F : (u, capacity), features.
    diagonal, residual : k(x, x) and d of the own inputs.
    """

    X: Inputs
    own: Places
    F: Array
    diagonal: Floats
    residual: Floats

    @classmethod
    def of(cls, X: Inputs, own: Places, kernel: InputKernel, capacity: int) -> BasisPart:
        """Return a part without atoms."""
        diagonal = np.asarray(kernel.diagonal(in_double(X)), np.float64)[own]
        check_diagonal(kernel, diagonal)
        return cls(X, own, np.empty((X.shape[0], capacity), X.dtype), diagonal, diagonal)

    def extend(self, panels: Panels) -> tuple[Floats, BasisPart]:
        """Add the columns of panels; return what each explains of the trace of the own inputs, and the new part.

        The new columns overwrite none that an earlier state reads, so the call can be repeated.
        """
        F = self.F if self.F.flags.writeable else self.F.copy()
        every = np.zeros(self.X.shape[0])
        every[self.own] = self.residual
        mine = np.zeros(self.X.shape[0], bool)
        mine[self.own] = True
        explained = np.zeros(len(panels.R) - panels.start)
        for rows in row_blocks(self.X.shape[0]):
            extend_rows(panels, self.X[rows], F[rows], every[rows])
            new = F[rows, panels.start : len(panels.R)][mine[rows]]
            explained += np.einsum("ij,ij->j", new, new, dtype=np.float64)
        return explained, replace(self, F=F, residual=every[self.own])

    def refine(self, panels: Panels, kept: int) -> BasisPart:
        """Return the part with the columns from `kept` on, and d, computed from all atoms.

        No earlier state is read any more, so its columns may be overwritten.
        """
        F = self.F if self.F.flags.writeable else self.F.copy()
        residual, diagonal = np.zeros(self.X.shape[0]), np.zeros(self.X.shape[0])
        diagonal[self.own] = self.diagonal
        for rows in row_blocks(self.X.shape[0]):
            refine_rows(panels, self.X[rows], F[rows], diagonal[rows], residual[rows], kept)
        return replace(self, F=F, residual=residual[self.own])

    def sound_columns(self, n: int, kept: int, excess: float) -> tuple[float, int]:
        """Return the least d by its definition, and how many columns keep all d above -excess."""
        return sound_columns(self.diagonal, self.F[self.own, :n], kept, excess)

    def recompute_residual(self, n: int, places: Places) -> BasisPart:
        """Return the part with d by its definition, and d = 0 at some own inputs."""
        residual = fresh_residual(self.diagonal, self.F[self.own, :n])
        residual[places] = 0.0
        return replace(self, residual=residual)

    def exhaust(self, places: Places) -> BasisPart:
        """Return the part with d = 0 at some own inputs."""
        residual = self.residual.copy()
        residual[places] = 0.0
        return replace(self, residual=residual)

    def facts(self) -> tuple[int, float, float, DType, bool]:
        """Return the number of own inputs, the sum and the largest of their k(x, x), dtype, and whether X is CSR."""
        largest = float(self.diagonal.max(initial=0.0))
        return len(self.own), float(self.diagonal.sum()), largest, self.X.dtype, is_sparse(self.X)

    def remaining(self) -> float:
        """Return the sum of d."""
        return float(self.residual.sum())

    def rows(self, places: Places, n: int) -> tuple[Inputs, Array, Floats]:
        """Return inputs, features and d at places among the own inputs."""
        return self.X[self.own[places]], self.F[self.own[places], :n], self.residual[places]

    def passed(self, levels: Floats) -> Places:
        """Return the places at which the running sum of d passes levels."""
        return passed(np.cumsum(self.residual), levels)

    def largest(self, count: int) -> tuple[Places, Floats]:
        """Return places and values of the `count` largest d; among equals, the first ones."""
        order = np.argsort(-self.residual, kind="stable")[:count]
        return order, self.residual[order]

    def features(self, n: int) -> Array:
        """Return F with its n columns."""
        return self.F if self.F.shape[1] == n else np.ascontiguousarray(self.F[:, :n])


class DistributedGrowth(GrowingFactor):
    """A growing basis for the inputs of several parts; X and own have one handle per part."""

    def __init__(
        self,
        kernel: InputKernel,
        X: Sequence[Handle],
        own: Sequence[Handle],
        capacity: int,
        tol: float,
        cluster: Cluster,
        start: Basis | None = None,
    ) -> None:
        self.cluster = cluster
        self.parts = cluster.each(BasisPart.of, X, own, shared=(kernel, capacity))
        facts = cluster.fetch(cluster.each(BasisPart.facts, self.parts))
        self.offsets = np.concatenate([[0], np.cumsum([count for count, *_ in facts])]).astype(np.intp)
        self._sparse = any(sparse for *_, sparse in facts)
        self._left = [trace for _, trace, *_ in facts]
        dtype = np.result_type(*(dtype for _, _, _, dtype, _ in facts))
        diagonal = float(sum(self._left)), max(largest for _, _, largest, *_ in facts)
        super().__init__(kernel, capacity, tol, LocalEngine(1), dtype, diagonal)
        if start is not None:
            self._take_up(start)
            self._extend(Panels.of(kernel, start.landmarks, start.R, 0))
            self._recompute_residual()
        self._accurate_from = self.remaining

    @property
    def n_inputs(self) -> int:
        """The number of distinct inputs of all parts."""
        return int(self.offsets[-1])

    @property
    def is_sparse(self) -> bool:
        """Return whether the inputs are CSR."""
        return self._sparse

    @property
    def remaining(self) -> float:
        """tr(K - F F')."""
        return float(sum(self._left))

    def inputs(self, indices: Places | None = None) -> Inputs:
        """Fetch some of the inputs, or all of them."""
        return self._rows(indices)[0]

    def features(self, indices: Places) -> Array:
        """Fetch F of some inputs."""
        return self._rows(indices)[1]

    def residuals(self, indices: Places | None = None) -> Floats:
        """Fetch d of some inputs, or of all of them."""
        return self._rows(indices)[2]

    def draw(self, shares: Floats) -> Places:
        """Draw parts by their sums of d, then inputs within the parts."""
        sums = np.cumsum(self._left)
        levels = shares * sums[-1]
        part = passed(sums, levels)
        levels = levels - np.concatenate([[0.0], sums])[part]
        return self._place(part, lambda own: levels[own], BasisPart.passed)

    def largest(self, count: int) -> tuple[Places, float]:
        """Return the `count` inputs of the largest d, and the largest d of all others."""
        found = self.cluster.fetch(self.cluster.each(BasisPart.largest, self.parts, shared=(count + 1,)))
        places = np.concatenate([self.offsets[k] + own for k, (own, _) in enumerate(found)])
        values = np.concatenate([values for _, values in found])
        order = np.lexsort((places, -values))
        others = 0.0 if len(order) <= count else float(values[order[count]])
        return places[order[:count]], others

    def exhaust(self, indices: Places) -> None:
        """Set d = 0 at inputs that depend on the atoms."""
        if len(indices):
            self._set_parts(self.cluster.each(BasisPart.exhaust, self.parts, self._by_part(indices)))

    def finish(self) -> Basis:
        """Return the basis; F and the residuals of own inputs are lists of handles."""
        self._check_columns()
        F: Value = self.cluster.each(BasisPart.features, self.parts, shared=(self.n,))
        residual: Value = self.cluster.each(attrgetter("residual"), self.parts)
        R = self._R[: self.n, : self.n].copy()
        return Basis(self.landmarks, R, F, residual, self.indices, self.trace)

    def _extend(self, panels: Panels) -> Floats:
        pairs = self.cluster.each(BasisPart.extend, self.parts, shared=(panels,))
        explained: Floats = self.cluster.sum(self.cluster.each(first, pairs))
        self._set_parts(self.cluster.each(second, pairs))
        return explained

    def _refine(self, panels: Panels) -> None:
        self._set_parts(self.cluster.each(BasisPart.refine, self.parts, shared=(panels, self._kept)))
        if self.indices is not None:
            self.exhaust(self.indices)

    def _measure_columns(self, excess: float) -> tuple[float, int]:
        found = self.cluster.fetch(
            self.cluster.each(BasisPart.sound_columns, self.parts, shared=(self.n, self._kept, excess))
        )
        return min(least for least, _ in found), min(n for _, n in found)

    def _recompute_residual(self) -> None:
        taken = np.empty(0, np.intp) if self.indices is None else self.indices
        own = [self.n] * len(self.parts), self._by_part(taken)
        self._set_parts(self.cluster.each(BasisPart.recompute_residual, self.parts, *own))

    def _set_parts(self, parts: list[Handle]) -> None:
        self.parts, self._left = parts, self.cluster.fetch(self.cluster.each(BasisPart.remaining, parts))

    def _by_part(self, indices: Places) -> list[Places]:
        """Return the places among the own inputs of each part."""
        part = np.searchsorted(self.offsets, indices, side="right") - 1
        return [indices[part == k] - self.offsets[k] for k in range(len(self.parts))]

    def _place(self, part: Places, own: Function, function: Function) -> Places:
        """Return the places among all inputs that a function finds in the parts that are named."""
        found = np.empty(len(part), np.intp)
        asked = [k for k in range(len(self.parts)) if np.any(part == k)]
        handles = self.cluster.each(function, [self.parts[k] for k in asked], [own(part == k) for k in asked])
        for k, places in zip(asked, self.cluster.fetch(handles), strict=True):
            found[part == k] = self.offsets[k] + places
        return found

    def _rows(self, indices: Places | None) -> tuple[Inputs, Array, Floats]:
        """Fetch inputs, features and d from the parts that have them."""
        places = np.arange(self.n_inputs) if indices is None else indices
        part = np.searchsorted(self.offsets, places, side="right") - 1
        asked = [k for k in range(len(self.parts)) if np.any(part == k)]
        own = [places[part == k] - self.offsets[k] for k in asked]
        if not asked:
            asked, own = [0], [places]
        handles = self.cluster.each(BasisPart.rows, [self.parts[k] for k in asked], own, shared=(self.n,))
        X, F, d = zip(*self.cluster.fetch(handles), strict=True)
        back = np.argsort(np.concatenate([np.flatnonzero(part == k) for k in asked]), kind="stable")
        return stack(list(X))[back], np.concatenate(F)[back], np.concatenate(d)[back]


def own_inputs(inputs: Sequence[Handle], cluster: Cluster) -> list[Handle]:
    """Return for each part a handle of the places of its distinct inputs that no earlier part has.

    Digests of rows, 128 bits each, are compared bucket by bucket.
    """
    if len(inputs) == 1:
        return cluster.each(_all_places, inputs)
    n_buckets = min(len(inputs), MOST_BUCKETS)
    dealt = cluster.each(_deal, inputs, shared=(n_buckets,))
    kept = [
        cluster.call(_first_owners, cluster.each(_entry, dealt, [bucket] * len(dealt))) for bucket in range(n_buckets)
    ]
    return [cluster.call(_gather, [cluster.call(_entry, bucket, k) for bucket in kept]) for k in range(len(inputs))]


def _all_places(X: Inputs) -> Places:
    return np.arange(X.shape[0])


def _entry(values: Sequence[Value], k: int) -> Value:
    return values[k]


def _deal(X: Inputs, n_buckets: int) -> list[tuple[Places, Array]]:
    """Return places and digests of the rows of each bucket."""
    found = digests(X)
    bucket = found["low"] % np.uint64(n_buckets)
    return [(np.flatnonzero(bucket == k), found[bucket == k]) for k in range(n_buckets)]


def _first_owners(parts: list[tuple[Places, Array]]) -> list[Places]:
    """Return the places of the rows of a bucket in each part that no earlier part has."""
    every = np.concatenate([found for _, found in parts])
    _, firsts = np.unique(every, return_index=True)
    mine = np.zeros(len(every), bool)
    mine[firsts] = True
    ends = np.cumsum([len(found) for _, found in parts])[:-1]
    return [places[own] for (places, _), own in zip(parts, np.split(mine, ends), strict=True)]


def _gather(parts: list[Places]) -> Places:
    return np.sort(np.concatenate(parts))


def digests(X: Inputs) -> Array:
    """Return 128 bits for each row, equal for equal rows."""
    found = np.empty(X.shape[0], np.dtype([("low", np.uint64), ("high", np.uint64)]))
    if is_sparse(X):
        columns, values, at = X.indices.astype(np.int64), X.data + X.dtype.type(0), X.indptr
        rows = (columns[a:b].tobytes() + values[a:b].tobytes() for a, b in pairwise(at.tolist()))
    else:
        rows = (row.tobytes() for row in np.ascontiguousarray(X) + X.dtype.type(0))
    for k, row in enumerate(rows):
        found[k] = tuple(np.frombuffer(blake2b(row, digest_size=16).digest(), np.uint64))
    return found
