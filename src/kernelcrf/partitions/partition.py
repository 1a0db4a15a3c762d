"""The protocols of a part of the data, as the objective sees it, for any kind of graph.

`Partition` has what every engine can compute: sums over the samples, wherever they are. `RowPartition` adds what needs
the rows at hand, one per clique. Workers have the latter, and `Partition.total` sums any function of them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol, TypeVar

from kernelcrf.arrays import Array, DType, Floats, Places
from kernelcrf.partitions.features import TokenFeatures
from kernelcrf.terms import Layout, Term

Total = TypeVar("Total")


@dataclass(frozen=True, eq=False)
class LinearBound:
    """A loss is at least `constant` + <slope, theta>, at all theta."""

    constant: float
    slope: Floats

    def __add__(self, other: LinearBound) -> LinearBound:
        return LinearBound(self.constant + other.constant, self.slope + other.slope)


@dataclass(frozen=True, eq=False)
class Sums:
    """A loss and its gradient.

    bound : a lower bound of the loss; None if the tangent is one, as for a convex loss.
    """

    loss: float
    gradient: Floats
    bound: LinearBound | None = None

    def __add__(self, other: Sums) -> Sums:
        bound = None if self.bound is None or other.bound is None else self.bound + other.bound
        return Sums(self.loss + other.loss, self.gradient + other.gradient, bound)


class Scores(Protocol):
    """The scores of a partition's cliques."""

    def moved(self, direction: Any, step: float) -> Any:
        """Return these scores plus step times those of a direction."""


@dataclass(frozen=True, eq=False)
class PartitionState:
    """A partition at a point: its scores, and the results of inference, which only the partition itself reads."""

    scores: Any
    residuals: Any


class FeatureKind(Protocol):
    """The facts about features that are known even if the features are on another machine."""

    @property
    def is_sparse(self) -> bool:
        """Return whether the features are CSR."""


class Partition(Protocol):
    """Some samples with their features and labels: loss, gradient and curvature in theta, summed over the samples."""

    @property
    def features(self) -> Mapping[str, FeatureKind]:
        """Return the features of each term that has inputs, by its name."""

    @property
    def dtype(self) -> DType:
        """Return the precision of scores."""

    @property
    def n_nodes(self) -> int:
        """Return the number of label nodes, to which the cost of a pass is proportional."""

    @property
    def is_convex(self) -> bool:
        """Return whether all labels are observed."""

    def evaluate(self, layout: Layout, theta: Floats, n_jobs: int, *, curvature: bool) -> tuple[Sums, PartitionState]:
        """Return loss and gradient at theta; the state has what Hessian products need if `curvature` is asked for."""

    def sums(self, layout: Layout, theta: Floats, n_jobs: int) -> Sums:
        """Return loss and gradient at theta without a state."""

    def evaluate_at(self, layout: Layout, scores: Any, n_jobs: int, *, curvature: bool) -> tuple[Sums, PartitionState]:
        """Return loss and gradient at a point whose scores are known."""

    def direction(self, layout: Layout, v: Floats, n_jobs: int) -> Any:
        """Return the scores along a direction of theta."""

    def along(self, scores: Any, direction: Any, n_jobs: int) -> tuple[float, float]:
        """Return the loss at some scores, and its derivative along a direction of them."""

    def hessian_product(self, layout: Layout, at: PartitionState, v: Floats, n_jobs: int) -> Floats:
        """Return the derivative of the gradient along v; `at` was evaluated with curvature."""

    def block_product(self, layout: Layout, at: PartitionState, v: Floats, n_jobs: int) -> Floats:
        """Return the paper's blocks (30) times v."""

    def entropy(self, at: PartitionState, n_jobs: int) -> float:
        """Return sum_i omega_i H(p_i)."""

    def knows_spread(self, term: Term) -> bool:
        """Return whether `spread` is available for a term."""

    def mass(self, term: Term) -> float:
        """Return the sum of the weights of a term's cliques."""

    def total(self, function: Callable[[Any, Any], Total], at: PartitionState | None) -> Total:
        """Return the sum of function(rows, state) over the `RowPartition`s that this partition consists of."""

    def with_columns(self, term: Term, columns: Places) -> Partition:
        """Return the same samples with some columns of a term's features."""


class RowPartition(Partition, Protocol):
    """A partition whose rows are in this process: one per clique of a term."""

    @property
    def features(self) -> Mapping[str, TokenFeatures]:
        """Return the features of each term that has inputs, by its name."""

    def residual(self, term: Term, at: PartitionState) -> Array:
        """Return what the scores of each clique contribute to the gradient, before F'; (rows, r)."""

    def spread(self, term: Term, at: PartitionState) -> Array:
        """Return omega p (1 - p) of the labelings of each clique; (rows, S)."""

    def score_sizes(self, layout: Layout, at: PartitionState) -> Floats:
        """Return omega times the largest finite |score| of each clique, for all cliques."""

    def clique_weights(self, term: Term) -> Floats:
        """Return omega of each clique, (rows,)."""
