"""Choose landmarks from inputs that are on the workers of a cluster, by the same rules as on one machine.

The data are divided into parts, and each worker stores one or more parts. If an input occurs in several parts, only the
first of these parts counts it, so that the rules see every distinct input once. Inputs are numbered in the order of the
parts.

The residual of an input x is k(x, x) - |F_x|^2, with the kernel k and the features F_x for the current landmarks. If
landmarks are drawn at random, the sum of the residuals of each part is sent to this process, which draws candidates.
The workers then send the candidates with their features, and receive the accepted landmarks. All other features stay
on the workers. If an input also occurs in an earlier part, its features are computed after all landmarks are chosen.
"""

from __future__ import annotations

from collections.abc import Sequence
from copy import copy
from functools import partial
from hashlib import blake2b
from itertools import pairwise
from operator import attrgetter

import numpy as np

from kernelcrf.arrays import Array, DType, Floats, Inputs, Places, is_sparse
from kernelcrf.basis.builder import BasisBuilder
from kernelcrf.basis.factor import Basis, stack
from kernelcrf.basis.features import WhitenedMap
from kernelcrf.basis.local_builder import InputRows, passed
from kernelcrf.basis.panels import Panels
from kernelcrf.basis.recomputed_features import FeatureRows
from kernelcrf.distributed.cluster import Cluster, Function, Handle, Value, first, second
from kernelcrf.engines.local import LocalEngine
from kernelcrf.kernels.inputs import InputKernel


class DistributedBasisBuilder(BasisBuilder):
    """A basis to which landmarks are added, for inputs that are on the workers of a cluster.

    A handle refers to a value on a worker.

    X : for each part of the data, a handle to its distinct inputs.
    new_inputs : for each part, a handle to the indices of those inputs that do not occur in an earlier part.
    stored : whether the workers store features; if not, they compute them each time they are needed.
    """

    def __init__(
        self,
        kernel: InputKernel,
        X: Sequence[Handle],
        new_inputs: Sequence[Handle],
        capacity: int,
        cluster: Cluster,
        start: Basis | None = None,
        *,
        stored: bool = True,
    ) -> None:
        self.cluster, self._X, self._new_inputs = cluster, X, new_inputs
        self._parts = cluster.each(_new_rows, X, new_inputs, shared=(kernel, capacity, stored))
        facts = cluster.fetch(cluster.each(_facts, self._parts))
        self._offsets = np.concatenate([[0], np.cumsum([count for count, *_ in facts])]).astype(np.intp)
        self._left = [trace for _, trace, *_ in facts]
        dtype = np.result_type(*(dtype for *_, dtype in facts))
        diagonal = float(sum(self._left)), max(largest for _, _, largest, _ in facts)
        super().__init__(kernel, capacity, 0.0, LocalEngine(1), dtype, diagonal)
        if start is not None:
            self._continue_from(start)
            self.extend(Panels.of(kernel, start.landmarks, start.R, 0))
            self._recompute_residual()
        self._accurate_from = self.remaining

    @property
    def n_inputs(self) -> int:
        return int(self._offsets[-1])

    @property
    def remaining(self) -> float:
        return float(sum(self._left))

    def inputs(self, indices: Places | None = None) -> Inputs:
        return self._fetch(InputRows.inputs, indices)

    def features(self, indices: Places, n: int) -> Array:
        return np.asarray(self._fetch(InputRows.features, indices, n))

    def residuals(self, indices: Places | None = None) -> Floats:
        return np.asarray(self._fetch(InputRows.residuals, indices))

    def draw(self, shares: Floats) -> Places:
        sums = np.cumsum(self._left)
        levels = shares * sums[-1]
        part = passed(sums, levels)
        places = self._ask(_passed, part, levels - np.concatenate([[0.0], sums])[part])
        return np.asarray(self._offsets[part] + places)

    def largest(self, count: int) -> tuple[Places, float]:
        results = self.cluster.fetch(self.cluster.each(_largest, self._parts, shared=(count,)))
        places = np.concatenate([self._offsets[k] + rows for k, (rows, *_) in enumerate(results)])
        values = np.concatenate([values for _, values, _ in results])
        order = np.lexsort((places, -values))
        others = max(values[order[count:]].max(initial=0.0), *(others for *_, others in results))
        return places[order[:count]], float(others)

    def exhaust(self, indices: Places) -> None:
        if len(indices):
            part = self._part_of(indices)
            indices_by_part = [indices[part == k] - self._offsets[k] for k in range(len(self._parts))]
            self._change(InputRows.exhaust, indices_by_part)

    def extend(self, panels: Panels) -> Floats:
        return np.asarray(sum(self._change(InputRows.extend, shared=(panels,))))

    def refine(self, panels: Panels, kept: int) -> None:
        self._change(InputRows.refine, shared=(panels, kept))

    def sound_columns(self, n: int, kept: int, excess: float) -> tuple[float, int]:
        results = self.cluster.fetch(self.cluster.each(InputRows.sound_columns, self._parts, shared=(n, kept, excess)))
        return min(least for least, _ in results), min(sound for _, sound in results)

    def recompute(self, n: int) -> None:
        self._change(InputRows.recompute, shared=(n,))

    def release(self) -> tuple[Value, Value]:
        """Return handles to the features and to the residuals, as two lists with one handle per part of the data.

        A part has features for all its inputs, but residuals only for inputs that do not occur in an earlier part.
        """
        basis = WhitenedMap(self.kernel, self.landmarks, self._R[: self.n, : self.n].copy())
        F = self.cluster.each(_all_features, self._parts, self._X, self._new_inputs, shared=(basis,))
        return F, self.cluster.each(attrgetter("residual"), self._parts)

    def _change(self, method: Function, *arguments: Sequence[Value], shared: tuple[Value, ...] = ()) -> list[Value]:
        """Call a method of `InputRows` that changes features or residuals; return one result per part of the data.

        arguments : lists with one argument of the method for each part.
        shared : the arguments that are the same for all parts.
        """
        pairs = self.cluster.each(partial(_change, method), self._parts, *arguments, shared=shared)
        self._parts = self.cluster.each(second, pairs)
        results = self.cluster.fetch(self.cluster.each(first, pairs))
        self._left = [left for _, left in results]
        return [result for result, _ in results]

    def _fetch(self, method: Function, indices: Places | None, *shared: Value) -> Inputs:
        """Call a method of `InputRows` on the workers; return one row for each input in `indices`.

        If `indices` is None, return one row for each input of all parts.
        """
        places = np.arange(self.n_inputs) if indices is None else indices
        part = self._part_of(places)
        return self._ask(method, part, places - self._offsets[part], *shared)

    def _ask(self, function: Function, part: Places, values: Array, *shared: Value) -> Inputs:
        """Send each value to one part of the data, and return one row per value, in the order of `values`.

        function : called on the workers as function(inputs of a part, values for this part, *shared).
        part : for each value, the number of the part to which it is sent.
        """
        asked = np.unique(part).tolist() or [0]
        values_by_part = [values[part == k] for k in asked]
        results = self.cluster.fetch(
            self.cluster.each(function, [self._parts[k] for k in asked], values_by_part, shared=shared)
        )
        rows = np.concatenate(results) if results[0].ndim == 1 else stack(results)
        return rows[np.argsort(np.argsort(part, kind="stable"))]

    def _part_of(self, indices: Places) -> Places:
        return np.searchsorted(self._offsets, indices, side="right") - 1


# A worker calls the functions below with one part.


def _new_rows(X: Inputs, indices: Places, kernel: InputKernel, capacity: int, stored: bool) -> InputRows:
    new = X if len(indices) == X.shape[0] else X[indices]
    return InputRows(kernel, new, capacity, LocalEngine(1), stored=stored)


def _facts(rows: InputRows) -> tuple[int, float, float, DType]:
    """Return the number of inputs x, the sum and the maximum of k(x, x) with the kernel k, and the dtype of inputs."""
    return rows.n_inputs, rows.remaining, float(rows.diagonal.max(initial=0.0)), rows.X.dtype


def _change(method: Function, rows: InputRows, *arguments: Value) -> tuple[tuple[Value, float], InputRows]:
    """Call `method` on a copy of `rows`; return (result, new sum of residuals) as a pair, and the changed copy.

    `rows` itself does not change, so that the cluster can repeat the call if a worker is lost.
    """
    rows = copy(rows)
    rows.residual = rows.residual.copy()
    if rows.F is not None and not rows.F.flags.writeable:
        rows.F = rows.F.copy()
    result = method(rows, *arguments)
    return (result, rows.remaining), rows


def _passed(rows: InputRows, levels: Floats) -> Places:
    return passed(np.cumsum(rows.residual), levels)


def _largest(rows: InputRows, count: int) -> tuple[Places, Floats, float]:
    places, others = rows.largest(count)
    return places, rows.residual[places], others


def _all_features(rows: InputRows, X: Inputs, indices: Places, basis: WhitenedMap) -> FeatureRows:
    """Return the features of all inputs X of one part of the data.

    `rows` has the features of the inputs X[indices], if they are stored. The other inputs occur in an earlier part, and
    their features are computed with the feature map `basis`.
    """
    if rows.F is None:
        return basis.recompute(X)
    if len(indices) == X.shape[0]:
        return rows.F if rows.F.shape[1] == basis.n else np.ascontiguousarray(rows.F[:, : basis.n])
    F = np.empty((X.shape[0], basis.n), rows.F.dtype)
    others = np.delete(np.arange(len(F)), indices)
    F[indices], F[others] = rows.F[:, : basis.n], basis.transform(X[others])
    return F


def find_new_inputs(inputs: Sequence[Handle], cluster: Cluster) -> Sequence[Handle]:
    """Find, for each part of the data, the inputs that do not occur in an earlier part.

    `inputs` has one handle per part, which refers to the distinct inputs on a worker. Return one handle per part to the
    indices of the inputs that are new in this part. Two inputs count as equal if their digests are equal.
    """
    digests_by_part = cluster.fetch(cluster.each(digests, inputs))
    is_new = np.zeros(sum(map(len, digests_by_part)), bool)
    is_new[np.unique(np.concatenate(digests_by_part), return_index=True)[1]] = True
    ends = np.cumsum([len(part_digests) for part_digests in digests_by_part])
    return cluster.each(np.flatnonzero, np.split(is_new, ends[:-1]))


def digests(X: Inputs) -> Array:
    """Return a 128-bit digest of each row of X; equal rows have equal digests."""
    if is_sparse(X):
        columns, values, at = X.indices.astype(np.int64), X.data + X.dtype.type(0), X.indptr
        rows = (columns[a:b].tobytes() + values[a:b].tobytes() for a, b in pairwise(at.tolist()))
    else:
        rows = (row.tobytes() for row in np.ascontiguousarray(X) + X.dtype.type(0))
    return np.array([blake2b(row, digest_size=16).digest() for row in rows], "S16")
