"""A basis for inputs that the workers of a cluster hold: the same rules, with proposals drawn over all parts.

Each part has its distinct inputs X and, of those, which are its own: an input that occurs in several parts belongs to
the first of them, so that all rules see every distinct input once, in the order of first appearance, as on one machine.
Places are counted over own inputs, part after part.

A round of random pivots moves figures and the few rows that were drawn: sums of d from each part, proposals to the
parts by these sums, their inputs and features back, the accepted atoms with their rows of R out. Nothing else is
gathered. F (U, n) grows where X is.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from hashlib import blake2b
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kernelcrf.basis.definiteness import check_diagonal
from kernelcrf.basis.factor import Basis, Growth, row_blocks, stack
from kernelcrf.basis.panels import Panels, in_double
from kernelcrf.basis.residuals import extend_rows, fresh_residual, passed, refine_rows, sound_columns
from kernelcrf.engines.cluster import Cluster, Handle, Resident, first, second
from kernelcrf.engines.local import LocalEngine
from kernelcrf.kernels.inputs import Array, InputKernel, Inputs, is_sparse

Floats = NDArray[np.float64]
Places = NDArray[np.intp]

MOST_BUCKETS = 16


@dataclass(frozen=True, eq=False)
class Site(Resident):
    """Distinct inputs of a part while a basis grows: F (u, capacity), and d (own,) of its own inputs."""

    X: Inputs
    own: Places
    F: Array
    diagonal: Floats
    residual: Floats

    @classmethod
    def of(cls, X: Inputs, own: Places, kernel: InputKernel, capacity: int) -> Site:
        """A site without atoms."""
        diagonal = np.asarray(kernel.diagonal(in_double(X)), np.float64)[own]
        check_diagonal(kernel, diagonal)
        return cls(X, own, np.empty((X.shape[0], capacity), X.dtype), diagonal, diagonal)

    def extended(self, panels: Panels) -> tuple[Floats, Site]:
        """With the columns of panels; and what these explain of the trace of own inputs.

        Columns are written into room that earlier states of the site do not read, so that doing it again does no harm.
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

    def refined(self, panels: Panels, kept: int) -> Site:
        """With the columns of panels from `kept` on, and d, computed from all atoms.

        No earlier state of the site is read any more, so that its columns may be overwritten.
        """
        F = self.F if self.F.flags.writeable else self.F.copy()
        residual, diagonal = np.zeros(self.X.shape[0]), np.zeros(self.X.shape[0])
        diagonal[self.own] = self.diagonal
        for rows in row_blocks(self.X.shape[0]):
            refine_rows(panels, self.X[rows], F[rows], diagonal[rows], residual[rows], kept)
        return replace(self, F=F, residual=residual[self.own])

    def sound(self, n: int, kept: int, excess: float) -> tuple[float, int]:
        """The least of d by its definition, and how many columns have none below -excess."""
        return sound_columns(self.diagonal, self.F[self.own, :n], kept, excess)

    def refreshed(self, n: int, exhausted: Places) -> Site:
        """d from its definition, 0 at some of the own inputs."""
        residual = fresh_residual(self.diagonal, self.F[self.own, :n])
        residual[exhausted] = 0.0
        return replace(self, residual=residual)

    def exhausted(self, places: Places) -> Site:
        """With d = 0 at some of the own inputs."""
        residual = self.residual.copy()
        residual[places] = 0.0
        return replace(self, residual=residual)

    def facts(self) -> tuple[int, float, float, np.dtype[Any], bool]:
        """Own inputs, the sum and the largest of their k(x, x), precision, and whether they are CSR."""
        largest = float(self.diagonal.max(initial=0.0))
        return len(self.own), float(self.diagonal.sum()), largest, self.X.dtype, is_sparse(self.X)

    def remaining(self) -> float:
        """The sum of d."""
        return float(self.residual.sum())

    def rows(self, places: Places, n: int) -> tuple[Inputs, Array, Floats]:
        """Inputs, features and d at places among own inputs."""
        return self.X[self.own[places]], self.F[self.own[places], :n], self.residual[places]

    def passed(self, levels: Floats) -> Places:
        """The places where the running sum of d passes levels."""
        return passed(np.cumsum(self.residual), levels)

    def largest(self, count: int) -> tuple[Places, Floats]:
        """Places and values of the `count` largest d, first ones first among equals."""
        order = np.argsort(-self.residual, kind="stable")[:count]
        return order, self.residual[order]

    def cut(self, n: int) -> Array:
        """F, as wide as it has become."""
        return self.F if self.F.shape[1] == n else np.ascontiguousarray(self.F[:, :n])


class SharedGrowth(Growth):
    """A basis that grows over the inputs of several parts: `X` and `own` are handles, one each a part."""

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
        self.kernel, self.capacity, self.cluster = kernel, capacity, cluster
        self.engine = LocalEngine(1)
        self.sites = cluster.each(Site.of, X, own, shared=(kernel, capacity))
        facts = cluster.fetch(cluster.each(Site.facts, self.sites))
        self.offsets = np.concatenate([[0], np.cumsum([count for count, *_ in facts])]).astype(np.intp)
        self.trace = float(sum(trace for _, trace, *_ in facts))
        self._sparse = any(sparse for *_, sparse in facts)
        self._left = [trace for _, trace, *_ in facts]
        dtype = np.result_type(*(dtype for _, _, _, dtype, _ in facts))
        self._begin(dtype, max(largest for _, _, largest, *_ in facts), tol)
        if start is not None:
            self.R[: start.n, : start.n] = start.R
            self.landmarks = [start.landmarks]
            self.indices = None if start.indices is None else [start.indices]
            self._extended(Panels.of(kernel, start.landmarks, self.R[: start.n, : start.n], 0))
            self.n = self.kept = start.n
            self._recompute_residual()
        self._accurate_from = self.remaining

    @property
    def n_inputs(self) -> int:
        """Distinct inputs of all parts."""
        return int(self.offsets[-1])

    @property
    def is_sparse(self) -> bool:
        """Whether inputs are CSR."""
        return self._sparse

    @property
    def remaining(self) -> float:
        """tr(K - F F')."""
        return float(sum(self._left))

    def inputs(self, indices: Places | slice) -> Inputs:
        """Some of the inputs, fetched."""
        return self._rows(indices)[0]

    def features(self, indices: Places) -> Array:
        """F of some inputs, fetched."""
        found: Array = self._rows(indices)[1]
        return found

    def residuals(self, indices: Places) -> Floats:
        """d of some inputs, fetched."""
        found: Floats = self._rows(indices)[2]
        return found

    def drawn(self, shares: Floats) -> Places:
        """Parts by their sums of d, then places within parts by theirs."""
        sums = np.cumsum(self._left)
        levels = shares * sums[-1]
        part = passed(sums, levels)
        levels = levels - np.concatenate([[0.0], sums])[part]
        return self._placed(part, lambda own: levels[own], Site.passed)

    def largest(self, count: int) -> tuple[Places, float]:
        """The largest of the largest of the parts."""
        found = self.cluster.fetch(self.cluster.each(Site.largest, self.sites, shared=(count + 1,)))
        places = np.concatenate([self.offsets[k] + own for k, (own, _) in enumerate(found)])
        values = np.concatenate([values for _, values in found])
        order = np.lexsort((places, -values))
        others = 0.0 if len(order) <= count else float(values[order[count]])
        return places[order[:count]], others

    def exhaust(self, indices: Places) -> None:
        """Have d = 0 at inputs that were found dependent."""
        if len(indices):
            self.sites = self.cluster.each(Site.exhausted, self.sites, self._by_part(indices))
            self._measure()

    def finish(self) -> Basis:
        """The basis; F and d are lists of handles, d that of own inputs."""
        self._check_columns()
        indices = None if self.indices is None else np.concatenate([np.empty(0, np.intp), *self.indices])
        F: Any = self.cluster.each(Site.cut, self.sites, shared=(self.n,))
        residual: Any = self.cluster.each(_residual_of, self.sites)
        R = self.R[: self.n, : self.n].copy()
        return Basis(stack(self.landmarks), R, F, residual, indices, self.trace)

    def _extended(self, panels: Panels) -> Floats:
        pairs = self.cluster.each(Site.extended, self.sites, shared=(panels,))
        explained: Floats = self.cluster.sum(self.cluster.each(first, pairs))
        self.sites = self.cluster.each(second, pairs)
        self._measure()
        return explained

    def _refine(self, panels: Panels) -> None:
        self.sites = self.cluster.each(Site.refined, self.sites, shared=(panels, self.kept))
        self._exhaust_taken()
        self._measure()

    def _measured_columns(self, excess: float) -> tuple[float, int]:
        found = self.cluster.fetch(self.cluster.each(Site.sound, self.sites, shared=(self.n, self.kept, excess)))
        return min(least for least, _ in found), min(n for _, n in found)

    def _exhaust_taken(self) -> None:
        self.exhaust(np.concatenate([np.empty(0, np.intp), *(self.indices or [])]))

    def _recompute_residual(self) -> None:
        taken = np.concatenate([np.empty(0, np.intp), *(self.indices or [])])
        self.sites = self.cluster.each(Site.refreshed, self.sites, [self.n] * len(self.sites), self._by_part(taken))
        self._measure()

    def _measure(self) -> None:
        self._left = self.cluster.fetch(self.cluster.each(Site.remaining, self.sites))

    def _by_part(self, indices: Places) -> list[Places]:
        """Places among the own inputs of each part."""
        part = np.searchsorted(self.offsets, indices, side="right") - 1
        return [indices[part == k] - self.offsets[k] for k in range(len(self.sites))]

    def _placed(self, part: Places, own: Any, function: Any) -> Places:
        """What a function finds in each part that has something to find, as places among all inputs."""
        found = np.empty(len(part), np.intp)
        asked = [k for k in range(len(self.sites)) if np.any(part == k)]
        handles = self.cluster.each(function, [self.sites[k] for k in asked], [own(part == k) for k in asked])
        for k, places in zip(asked, self.cluster.fetch(handles), strict=True):
            found[part == k] = self.offsets[k] + places
        return found

    def _rows(self, indices: Places | slice) -> tuple[Inputs, Array, Floats]:
        """Inputs, features and d, fetched from the parts that have them."""
        places = np.arange(self.n_inputs)[indices]
        part = np.searchsorted(self.offsets, places, side="right") - 1
        asked = [k for k in range(len(self.sites)) if np.any(part == k)]
        own = [places[part == k] - self.offsets[k] for k in asked]
        if not asked:
            asked, own = [0], [places]
        handles = self.cluster.each(Site.rows, [self.sites[k] for k in asked], own, shared=(self.n,))
        X, F, d = zip(*self.cluster.fetch(handles), strict=True)
        back = np.argsort(np.concatenate([np.flatnonzero(part == k) for k in asked]), kind="stable")
        return stack(list(X))[back], np.concatenate(F)[back], np.concatenate(d)[back]


def _residual_of(site: Site) -> Floats:
    return site.residual


def own_inputs(inputs: Sequence[Handle], cluster: Cluster) -> list[Handle]:
    """For each part, the places (own,) of those of its distinct inputs that no earlier part has.

    Rows are compared by digests of 128 bits, dealt into buckets that are searched apart.
    """
    if len(inputs) == 1:
        return cluster.each(_all_places, inputs)
    n_buckets = min(len(inputs), MOST_BUCKETS)
    dealt = cluster.each(_dealt, inputs, shared=(n_buckets,))
    kept = [
        cluster.call(_first_owners, cluster.each(_entry, dealt, [bucket] * len(dealt))) for bucket in range(n_buckets)
    ]
    return [cluster.call(_gathered, [cluster.call(_entry, bucket, k) for bucket in kept]) for k in range(len(inputs))]


def _all_places(X: Inputs) -> Places:
    return np.arange(X.shape[0])


def _entry(values: Sequence[Any], k: int) -> Any:
    return values[k]


def _dealt(X: Inputs, n_buckets: int) -> list[tuple[Places, NDArray[Any]]]:
    """Places and digests of the rows of each bucket."""
    found = digests(X)
    bucket = found["low"] % np.uint64(n_buckets)
    return [(np.flatnonzero(bucket == k), found[bucket == k]) for k in range(n_buckets)]


def _first_owners(parts: list[tuple[Places, NDArray[Any]]]) -> list[Places]:
    """Of the rows of a bucket in each part, the places of those that no earlier part has."""
    every = np.concatenate([found for _, found in parts])
    _, firsts = np.unique(every, return_index=True)
    mine = np.zeros(len(every), bool)
    mine[firsts] = True
    ends = np.cumsum([len(found) for _, found in parts])[:-1]
    return [places[own] for (places, _), own in zip(parts, np.split(mine, ends), strict=True)]


def _gathered(parts: list[Places]) -> Places:
    return np.sort(np.concatenate(parts))


def digests(X: Inputs) -> NDArray[Any]:
    """128 bits of each row, equal where rows are."""
    found = np.empty(X.shape[0], np.dtype([("low", np.uint64), ("high", np.uint64)]))
    if is_sparse(X):
        columns, values, at = X.indices.astype(np.int64), X.data + X.dtype.type(0), X.indptr
        rows = (columns[a:b].tobytes() + values[a:b].tobytes() for a, b in pairwise(at.tolist()))
    else:
        rows = (row.tobytes() for row in np.ascontiguousarray(X) + X.dtype.type(0))
    for k, row in enumerate(rows):
        found[k] = tuple(np.frombuffer(blake2b(row, digest_size=16).digest(), np.uint64))
    return found
