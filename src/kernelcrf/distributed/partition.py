"""Loss and gradient of data on the workers of a cluster: the weights are sent to all workers, and results are added up.

Scores and marginals stay on the workers. If the loss is evaluated with curvature=True, the workers store the arrays
that products with the Hessian need. Otherwise they store nothing, and compute such arrays from the weights when needed.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, cached_property, partial
from operator import attrgetter
from typing import Any, TypeAlias

import numpy as np

from kernelcrf.arrays import DType, Floats, Places
from kernelcrf.distributed.cluster import Cluster, Function, Handle, Value, method
from kernelcrf.partitions.partition import Partition, PartitionState, RowPartition, Sums, Total
from kernelcrf.score.layout import Layout
from kernelcrf.score.terms import Term

LazyHandles: TypeAlias = Callable[[], Sequence[Handle]]
"""A function that returns handles of values on the workers, one per part, and computes them at its first call."""


@dataclass(frozen=True)
class RemoteFeatures:
    """A placeholder for features that are on the workers; it only says whether they are sparse."""

    is_sparse: bool


@dataclass(frozen=True, eq=False)
class DistributedScores:
    """Scores of all parts of the data, which stay on the workers: the sum of `start` and `step` times `direction`.

    start : a function that returns one handle per part; each handle refers to scores on a worker.
    direction : a function like `start`, or None to add nothing.
    """

    start: LazyHandles
    direction: LazyHandles | None = None
    step: float = 0.0

    def move(self, direction: DistributedScores, step: float) -> DistributedScores:
        """Return these scores plus `step` times `direction`; the workers compute the sum only when it is needed."""
        return DistributedScores(self.start, direction.start, step)


@dataclass(frozen=True, eq=False)
class DistributedPartition(Partition):
    """Samples with their features and labels, divided among the workers of a cluster.

    parts : for each part of the data, a handle that refers to a `RowPartition` on a worker.
    """

    cluster: Cluster
    parts: Sequence[Handle]

    @cached_property
    def _facts(self) -> list[tuple[int, DType, bool, dict[str, RemoteFeatures]]]:
        return self.cluster.fetch(self.cluster.each(_facts, self.parts))

    @cached_property
    def features(self) -> Mapping[str, RemoteFeatures]:  # type: ignore[override]
        """Return a dict from names of terms to placeholders, which say whether the features of the term are sparse."""
        return self._facts[0][3]

    @property
    def precision(self) -> DType:
        return min((dtype for _, dtype, *_ in self._facts), key=lambda dtype: dtype.itemsize)

    @property
    def n_nodes(self) -> int:
        return sum(n_nodes for n_nodes, *_ in self._facts)

    @property
    def is_convex(self) -> bool:
        return all(is_convex for _, _, is_convex, _ in self._facts)

    def with_columns(self, term: Term, columns: Places) -> DistributedPartition:
        parts = self.cluster.each(method("with_columns"), self.parts, shared=(term, columns))
        return DistributedPartition(self.cluster, parts)

    def evaluate(self, layout: Layout, theta: Floats, n_jobs: int, *, curvature: bool) -> tuple[Sums, PartitionState]:
        if curvature:
            evaluate = method("evaluate", curvature=True)
            total, states = self.cluster.reduce(evaluate, self.parts, shared=(layout, theta, 1))
            return total, self._state(lambda: states)
        total = self._sum(method("sums"), shared=(layout, theta, 1))
        return total, self._state(lambda: self.cluster.each(_state, self.parts, shared=(layout, theta)))

    def evaluate_at(
        self, layout: Layout, scores: DistributedScores, n_jobs: int, *, curvature: bool
    ) -> tuple[Sums, PartitionState]:
        direction = [None] * len(self.parts) if scores.direction is None else scores.direction()
        arguments = self.parts, scores.start(), direction
        total, states = self.cluster.reduce(partial(_evaluate_at, curvature), *arguments, shared=(layout, scores.step))
        return total, self._state(lambda: states)

    def direction(self, layout: Layout, v: Floats, n_jobs: int) -> DistributedScores:
        handles = self.cluster.each(method("direction"), self.parts, shared=(layout, v, 1))
        return DistributedScores(lambda: handles)

    def along(self, scores: DistributedScores, direction: DistributedScores, n_jobs: int) -> tuple[float, float]:
        loss, slope = self._sum(_along, scores.start(), direction.start(), shared=(scores.step,))
        return float(loss), float(slope)

    def hessian_product(self, layout: Layout, at: PartitionState, v: Floats, n_jobs: int) -> Floats:
        return self._product("hessian_product", layout, at, v)

    def block_product(self, layout: Layout, at: PartitionState, v: Floats, n_jobs: int) -> Floats:
        return self._product("block_product", layout, at, v)

    def entropy(self, at: PartitionState, n_jobs: int) -> float:
        return float(self._sum(method("entropy"), at.residuals(), shared=(1,)))

    def total(self, function: Callable[[Any, Any], Total], at: PartitionState | None) -> Total:
        total: Total = self._sum(function, [None] * len(self.parts) if at is None else at.residuals())
        return total

    def mass(self, term: Term) -> float:
        return float(self._sum(method("mass"), shared=(term,)))

    def _sum(self, function: Function, *arguments: Sequence[Value], shared: tuple[Value, ...] = ()) -> Value:
        return self.cluster.sum(function, self.parts, *arguments, shared=shared)

    def _product(self, name: str, layout: Layout, at: PartitionState, v: Floats) -> Floats:
        return np.asarray(self._sum(partial(_product, name), at.residuals(), shared=(layout, v)))

    def _state(self, make: LazyHandles) -> PartitionState:
        states = cache(make)
        scores = cache(lambda: self.cluster.each(attrgetter("scores"), states()))
        return PartitionState(DistributedScores(scores), states)


# A worker calls the functions below, and methods of `RowPartition`, with one part.


def _facts(part: RowPartition) -> tuple[int, DType, bool, dict[str, RemoteFeatures]]:
    features = {name: RemoteFeatures(features.is_sparse) for name, features in part.features.items()}
    return part.n_nodes, part.precision, part.is_convex, features


def _state(part: RowPartition, layout: Layout, theta: Floats) -> PartitionState:
    return part.evaluate(layout, theta, 1, curvature=False)[1]


def _evaluate_at(
    curvature: bool, part: RowPartition, start: Value, direction: Value, layout: Layout, step: float
) -> tuple[Sums, PartitionState]:
    scores = start if direction is None else start.move(direction, step)
    return part.evaluate_at(layout, scores, 1, curvature=curvature)


def _along(part: RowPartition, start: Value, direction: Value, step: float) -> Floats:
    return np.array(part.along(start.move(direction, step), direction, 1))


def _product(name: str, part: RowPartition, state: PartitionState, layout: Layout, v: Floats) -> Value:
    return getattr(part, name)(layout, state, v, 1)
