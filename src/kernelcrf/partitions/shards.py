"""A partition whose parts are held by the workers of a cluster: every sum of it is a broadcast and a reduction.

Weights go out, sums come back; scores and marginals stay where they are made. A point evaluated without curvature keeps
nothing but its weights, and what a rare question asks of it (the spread of marginals, residuals) is computed from them
when it is asked; with curvature, what Hessian products need is kept on the workers.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any

import numpy as np
import numpy.typing as npt

from kernelcrf.engines.cluster import Cluster, Handle, first, second
from kernelcrf.parameters import Layout, TemplateBlock
from kernelcrf.partitions.partition import Local, Partition, Sums, Total

Array = npt.NDArray[Any]
Floats = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Facts:
    """What is known of a part without asking its worker again: tokens, precision, labels, and which features it has."""

    n_nodes: int
    dtype: np.dtype[Any]
    is_convex: bool
    sparse: tuple[tuple[str, bool], ...]

    @classmethod
    def of(cls, partition: Partition) -> Facts:
        """The facts of a partition."""
        sparse = tuple((name, features.is_sparse) for name, features in partition.features.items())
        return cls(partition.n_nodes, partition.dtype, partition.is_convex, sparse)


@dataclass(frozen=True)
class RemoteFeatures:
    """Features that workers hold, as far as they need be known elsewhere."""

    is_sparse: bool


@dataclass(frozen=True, eq=False)
class ShardScores:
    """Scores of all parts: those at a point, or at a step from it along a direction."""

    start: list[Handle]
    direction: list[Handle] | None = None
    step: float = 0.0

    def moved(self, direction: ShardScores, step: float) -> ShardScores:
        """These plus step times those of a direction; the parts add them up when they are used."""
        return ShardScores(self.start, direction.start, step)


@dataclass(eq=False)
class Kept:
    """What parts keep of a point; made when it is first asked for, unless it was kept at once."""

    make: Callable[[], list[Handle]]
    made: list[Handle] | None = None

    @property
    def handles(self) -> list[Handle]:
        """Of a `Local` for each part."""
        if self.made is None:
            self.made = self.make()
        return self.made


@dataclass(frozen=True, eq=False)
class Shards:
    """Parts of one kind, held by workers."""

    cluster: Cluster
    parts: Sequence[Handle]

    @cached_property
    def facts(self) -> list[Facts]:
        """Of each part."""
        return self.cluster.fetch(self.cluster.each(Facts.of, self.parts))

    @property
    def features(self) -> Mapping[str, Any]:
        """Whether the features of each template with inputs are sparse."""
        return self._features

    @cached_property
    def _features(self) -> dict[str, RemoteFeatures]:
        return {name: RemoteFeatures(sparse) for name, sparse in self.facts[0].sparse}

    @property
    def dtype(self) -> np.dtype[Any]:
        """The least precision of scores."""
        return min((facts.dtype for facts in self.facts), key=lambda dtype: dtype.itemsize)

    @property
    def n_nodes(self) -> int:
        """Label nodes of all parts."""
        return sum(facts.n_nodes for facts in self.facts)

    @property
    def is_convex(self) -> bool:
        """Whether all labels are observed."""
        return all(facts.is_convex for facts in self.facts)

    def with_features(self, features: Mapping[str, Any]) -> Shards:
        """Features stay with the workers."""
        raise TypeError("features of parts on workers are not exchanged: make the parts anew")

    def evaluate(self, layout: Layout, theta: Floats, n_jobs: int, *, curvature: bool) -> tuple[Sums, Local]:
        """Loss and gradient at theta."""
        if curvature:
            return self._evaluated(partial(_evaluate_and_keep, True), layout, theta)
        kept = Kept(lambda: self._kept(partial(_evaluate_and_keep, False), layout, theta)[1])
        return self.sums(layout, theta, n_jobs), _local(self.cluster, kept)

    def sums(self, layout: Layout, theta: Floats, n_jobs: int) -> Sums:
        """The same alone."""
        total: Sums = self.cluster.sum(self.cluster.each(_sums, self.parts, shared=(layout, theta)))
        return total

    def evaluate_at(self, layout: Layout, scores: ShardScores, n_jobs: int, *, curvature: bool) -> tuple[Sums, Local]:
        """The same where scores are known already."""
        function = partial(_evaluate_at, curvature)
        return self._evaluated(function, layout, scores.step, scores.start, scores.direction)

    def direction(self, layout: Layout, v: Floats, n_jobs: int) -> ShardScores:
        """Scores along a direction of theta."""
        return ShardScores(self.cluster.each(_direction, self.parts, shared=(layout, v)))

    def along(self, scores: ShardScores, direction: ShardScores, n_jobs: int) -> tuple[float, float]:
        """Loss at some scores, and its derivative along a direction of them."""
        handles = self.cluster.each(_along, self.parts, scores.start, direction.start, shared=(scores.step,))
        loss, slope = self.cluster.sum(handles)
        return float(loss), float(slope)

    def hessian_product(self, layout: Layout, at: Local, v: Floats, n_jobs: int) -> Floats:
        """The derivative of the gradient along v."""
        return np.asarray(self._sum(_hessian_product, at, layout, v))

    def block_product(self, layout: Layout, at: Local, v: Floats, n_jobs: int) -> Floats:
        """The paper's blocks (30) times v."""
        return np.asarray(self._sum(_block_product, at, layout, v))

    def entropy(self, at: Local, n_jobs: int) -> float:
        """sum_i omega_i H(p_i)."""
        return float(self._sum(_entropy, at))

    def residual(self, block: TemplateBlock, at: Local) -> Array:
        """Residuals stay with the workers."""
        raise TypeError("residuals of parts on workers are not gathered: sum them by `total`")

    def residuals(self, block: TemplateBlock, at: Local) -> list[Handle]:
        """Handles of the residual of each part, (rows, ...)."""
        return self.cluster.each(_residual, self.parts, at.residuals.handles, shared=(block,))

    def knows_spread(self, block: TemplateBlock) -> bool:
        """As the parts of chains do."""
        return block.clique.nodes == 1

    def spread(self, block: TemplateBlock, at: Local) -> Array:
        """Marginals stay with the workers."""
        raise TypeError("marginals of parts on workers are not gathered: sum them by `total`")

    def total(self, term: Callable[[Any, Any], Total], at: Local | None) -> Total:
        """The sum of term(part, local) over the parts."""
        local: Sequence[Any] = [None] * len(self.parts) if at is None else at.residuals.handles
        found: Total = self.cluster.sum(self.cluster.each(term, self.parts, local))
        return found

    def mass(self, block: TemplateBlock) -> float:
        """What the cliques of a template weigh together."""
        return float(self.total(partial(_mass, block), None))

    def clique_weights(self, block: TemplateBlock) -> Floats:
        """Weights stay with the workers."""
        raise TypeError("weights of parts on workers are not gathered: sum them by `total`")

    def _sum(self, function: Callable[..., Any], at: Local, *shared: Any) -> Any:
        return self.cluster.sum(self.cluster.each(function, self.parts, at.residuals.handles, shared=shared))

    def _kept(self, function: Callable[..., Any], *shared: Any, parts: Sequence[Any] = ()) -> tuple[Any, list[Handle]]:
        """Handles of the sums, and of what is kept."""
        pairs = self.cluster.each(function, self.parts, *parts, shared=shared)
        return self.cluster.each(first, pairs), self.cluster.each(second, pairs)

    def _evaluated(self, function: Callable[..., Any], layout: Layout, at: Any, *scores: Any) -> tuple[Sums, Local]:
        parts = [[None] * len(self.parts) if one is None else one for one in scores]
        sums, kept = self._kept(function, layout, at, parts=parts)
        return self.cluster.sum(sums), _local(self.cluster, Kept(lambda: kept, kept))


def _local(cluster: Cluster, kept: Kept) -> Local:
    return Local(_LazyScores(cluster, kept), kept)


@dataclass(frozen=True, eq=False)
class _LazyScores:
    """The scores at a point; its handles are made when a line leaves from it."""

    cluster: Cluster
    kept: Kept

    def moved(self, direction: ShardScores, step: float) -> ShardScores:
        return ShardScores(self._start, direction.start, step)

    @cached_property
    def _start(self) -> list[Handle]:
        return self.cluster.each(_scores_of, self.kept.handles)


# What workers do with a part.


def _sums(part: Partition, layout: Layout, theta: Floats) -> Sums:
    return part.sums(layout, theta, 1)


def _evaluate_and_keep(curvature: bool, part: Partition, layout: Layout, theta: Floats) -> tuple[Sums, Local]:
    return part.evaluate(layout, theta, 1, curvature=curvature)


def _evaluate_at(
    curvature: bool, part: Partition, start: Any, direction: Any, layout: Layout, step: float
) -> tuple[Sums, Local]:
    scores = start if direction is None else start.moved(direction, step)
    return part.evaluate_at(layout, scores, 1, curvature=curvature)


def _scores_of(local: Local) -> Any:
    return local.scores


def _direction(part: Partition, layout: Layout, v: Floats) -> Any:
    return part.direction(layout, v, 1)


def _along(part: Partition, start: Any, direction: Any, step: float) -> Floats:
    return np.array(part.along(start.moved(direction, step), direction, 1))


def _hessian_product(part: Partition, local: Local, layout: Layout, v: Floats) -> Floats:
    return part.hessian_product(layout, local, v, 1)


def _block_product(part: Partition, local: Local, layout: Layout, v: Floats) -> Floats:
    return part.block_product(layout, local, v, 1)


def _entropy(part: Partition, local: Local) -> float:
    return part.entropy(local, 1)


def _residual(part: Partition, local: Local, block: TemplateBlock) -> Array:
    return part.residual(block, local)


def _mass(block: TemplateBlock, part: Partition, local: None) -> float:
    return part.mass(block)
