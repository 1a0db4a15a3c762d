"""A partition whose parts are on the workers of a cluster: each sum is a broadcast of the weights and a reduction.

Scores and marginals stay on the workers. With curvature, the workers keep what Hessian products need. A point that was
evaluated without curvature keeps only its weights; its state is computed from them if it is asked for.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from operator import attrgetter

import numpy as np

from kernelcrf.arrays import Array, DType, Floats, Places
from kernelcrf.distributed.cluster import Cluster, Function, Handle, Value, first, second
from kernelcrf.partitions.partition import Partition, PartitionState, RowPartition, Sums, Total
from kernelcrf.terms import TOKENS, Layout, Term


@dataclass(frozen=True)
class RemoteFeatures:
    """Facts about features that workers hold."""

    is_sparse: bool


@dataclass(frozen=True)
class PartFacts:
    """Facts about a part that a worker holds."""

    n_nodes: int
    dtype: DType
    is_convex: bool
    features: Mapping[str, RemoteFeatures]

    @classmethod
    def of(cls, part: Partition) -> PartFacts:
        """Return the facts of a part."""
        features = {name: RemoteFeatures(features.is_sparse) for name, features in part.features.items()}
        return cls(part.n_nodes, part.dtype, part.is_convex, features)


@dataclass(frozen=True, eq=False)
class LazyHandles:
    """One handle per part, made when they are first used."""

    make: Callable[[], list[Handle]]

    @cached_property
    def handles(self) -> list[Handle]:
        """The handles, in the order of the parts."""
        return self.make()


@dataclass(frozen=True, eq=False)
class DistributedScores:
    """Scores of all parts at a point, or at a step from it along a direction."""

    start: LazyHandles
    direction: LazyHandles | None = None
    step: float = 0.0

    def moved(self, direction: DistributedScores, step: float) -> DistributedScores:
        """Return these scores plus step times those of a direction; the workers add them when they are used."""
        return DistributedScores(self.start, direction.start, step)


@dataclass(frozen=True, eq=False)
class DistributedPartition:
    """Samples in parts that workers hold."""

    cluster: Cluster
    parts: Sequence[Handle]

    @cached_property
    def facts(self) -> list[PartFacts]:
        """The facts about each part."""
        return self.cluster.fetch(self.cluster.each(PartFacts.of, self.parts))

    @property
    def features(self) -> Mapping[str, RemoteFeatures]:
        """The features of each term that has inputs, by its name."""
        return self.facts[0].features

    @property
    def dtype(self) -> DType:
        """The lowest precision of scores."""
        return min((facts.dtype for facts in self.facts), key=lambda dtype: dtype.itemsize)

    @property
    def n_nodes(self) -> int:
        """The number of label nodes of all parts."""
        return sum(facts.n_nodes for facts in self.facts)

    @property
    def is_convex(self) -> bool:
        """Return whether all labels are observed."""
        return all(facts.is_convex for facts in self.facts)

    def with_columns(self, term: Term, columns: Places) -> DistributedPartition:
        """Return the same samples with some columns of a term's features."""
        return DistributedPartition(self.cluster, self.cluster.each(_with_columns, self.parts, shared=(term, columns)))

    def evaluate(self, layout: Layout, theta: Floats, n_jobs: int, *, curvature: bool) -> tuple[Sums, PartitionState]:
        """Return loss and gradient at theta, and a state on the workers."""
        evaluate = partial(self.cluster.each, partial(_evaluate, curvature), self.parts, shared=(layout, theta))
        if curvature:
            return self._split(evaluate())
        return self.sums(layout, theta, n_jobs), self._state(LazyHandles(lambda: self.cluster.each(second, evaluate())))

    def sums(self, layout: Layout, theta: Floats, n_jobs: int) -> Sums:
        """Return loss and gradient at theta without a state."""
        total: Sums = self.cluster.sum(self.cluster.each(_sums, self.parts, shared=(layout, theta)))
        return total

    def evaluate_at(
        self, layout: Layout, scores: DistributedScores, n_jobs: int, *, curvature: bool
    ) -> tuple[Sums, PartitionState]:
        """Return loss and gradient at a point whose scores are known, and a state on the workers."""
        direction = [None] * len(self.parts) if scores.direction is None else scores.direction.handles
        own = self.parts, scores.start.handles, direction
        return self._split(self.cluster.each(partial(_evaluate_at, curvature), *own, shared=(layout, scores.step)))

    def direction(self, layout: Layout, v: Floats, n_jobs: int) -> DistributedScores:
        """Return the scores along a direction of theta."""
        handles = self.cluster.each(_direction, self.parts, shared=(layout, v))
        return DistributedScores(LazyHandles(lambda: handles))

    def along(self, scores: DistributedScores, direction: DistributedScores, n_jobs: int) -> tuple[float, float]:
        """Return the loss at some scores, and its derivative along a direction of them."""
        own = scores.start.handles, direction.start.handles
        loss, slope = self.cluster.sum(self.cluster.each(_along, self.parts, *own, shared=(scores.step,)))
        return float(loss), float(slope)

    def hessian_product(self, layout: Layout, at: PartitionState, v: Floats, n_jobs: int) -> Floats:
        """Return the derivative of the gradient along v; `at` was evaluated with curvature."""
        return np.asarray(self._sum(_hessian_product, at, layout, v))

    def block_product(self, layout: Layout, at: PartitionState, v: Floats, n_jobs: int) -> Floats:
        """Return the paper's blocks (30) times v."""
        return np.asarray(self._sum(_block_product, at, layout, v))

    def entropy(self, at: PartitionState, n_jobs: int) -> float:
        """Return sum_i omega_i H(p_i)."""
        return float(self._sum(_entropy, at))

    def residuals(self, term: Term, at: PartitionState) -> list[Handle]:
        """Return a handle of the residual (rows, ...) of each part."""
        return self.cluster.each(_residual, self.parts, at.residuals.handles, shared=(term,))

    def knows_spread(self, term: Term) -> bool:
        """Return whether the parts know the spread of a term, as those of chains do for tokens."""
        return term.cliques == TOKENS

    def total(
        self, function: Callable[[RowPartition, PartitionState | None], Total], at: PartitionState | None
    ) -> Total:
        """Return the sum of function(part, state) over the parts."""
        states: Sequence[Handle] = [None] * len(self.parts) if at is None else at.residuals.handles
        found: Total = self.cluster.sum(self.cluster.each(function, self.parts, states))
        return found

    def mass(self, term: Term) -> float:
        """Return the sum of the weights of a term's cliques."""
        return float(self.total(partial(_mass, term), None))

    def _sum(self, function: Function, at: PartitionState, *shared: Value) -> Value:
        return self.cluster.sum(self.cluster.each(function, self.parts, at.residuals.handles, shared=shared))

    def _split(self, pairs: Sequence[Handle]) -> tuple[Sums, PartitionState]:
        sums, states = self.cluster.each(first, pairs), self.cluster.each(second, pairs)
        return self.cluster.sum(sums), self._state(LazyHandles(lambda: states))

    def _state(self, states: LazyHandles) -> PartitionState:
        scores = LazyHandles(lambda: self.cluster.each(attrgetter("scores"), states.handles))
        return PartitionState(DistributedScores(scores), states)


# Workers call the functions below with one part.


def _sums(part: RowPartition, layout: Layout, theta: Floats) -> Sums:
    return part.sums(layout, theta, 1)


def _evaluate(curvature: bool, part: RowPartition, layout: Layout, theta: Floats) -> tuple[Sums, PartitionState]:
    return part.evaluate(layout, theta, 1, curvature=curvature)


def _evaluate_at(
    curvature: bool, part: RowPartition, start: Value, direction: Value, layout: Layout, step: float
) -> tuple[Sums, PartitionState]:
    scores = start if direction is None else start.moved(direction, step)
    return part.evaluate_at(layout, scores, 1, curvature=curvature)


def _direction(part: RowPartition, layout: Layout, v: Floats) -> Value:
    return part.direction(layout, v, 1)


def _along(part: RowPartition, start: Value, direction: Value, step: float) -> Floats:
    return np.array(part.along(start.moved(direction, step), direction, 1))


def _hessian_product(part: RowPartition, state: PartitionState, layout: Layout, v: Floats) -> Floats:
    return part.hessian_product(layout, state, v, 1)


def _block_product(part: RowPartition, state: PartitionState, layout: Layout, v: Floats) -> Floats:
    return part.block_product(layout, state, v, 1)


def _entropy(part: RowPartition, state: PartitionState) -> float:
    return part.entropy(state, 1)


def _residual(part: RowPartition, state: PartitionState, term: Term) -> Array:
    return part.residual(term, state)


def _with_columns(part: RowPartition, term: Term, columns: Places) -> Partition:
    return part.with_columns(term, columns)


def _mass(term: Term, part: RowPartition, state: None) -> float:
    return part.mass(term)
