"""The protocols of partitions, the parts of the data that the objective sums over, for any kind of graph.

`Partition` computes sums over its samples, which may be on other machines. `RowPartition` adds methods that need the
rows in this process, one per clique. `Partition.total` sums any function of the `RowPartition`s that workers hold.
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
    """A linear lower bound of a loss: at all theta, the loss is at least `constant` + <slope, theta>."""

    constant: float
    slope: Floats

    def __add__(self, other: LinearBound) -> LinearBound:
        return LinearBound(self.constant + other.constant, self.slope + other.slope)


@dataclass(frozen=True, eq=False)
class Sums:
    """A loss and its gradient, summed over samples.

    bound : a linear lower bound of the loss; None if the tangent is one, as for a convex loss.
    """

    loss: float
    gradient: Floats
    bound: LinearBound | None = None

    def __add__(self, other: Sums) -> Sums:
        bound = None if self.bound is None or other.bound is None else self.bound + other.bound
        return Sums(self.loss + other.loss, self.gradient + other.gradient, bound)


class Scores(Protocol):
    """Protocol of the scores of a partition's cliques."""

    def moved(self, direction: Any, step: float) -> Any:
        """Return these scores plus `step` times the scores `direction`."""


@dataclass(frozen=True, eq=False)
class PartitionState:
    """The state of a partition at a point: its scores, and results of inference that only the partition reads."""

    scores: Any
    residuals: Any


class FeatureKind(Protocol):
    """Protocol of what is known about features even if they are on another machine: whether they are sparse."""

    @property
    def is_sparse(self) -> bool:
        """Return whether the features are CSR."""


class Partition(Protocol):
    """Protocol of samples with features and labels: computes loss, gradient and curvature, summed over the samples."""

    @property
    def features(self) -> Mapping[str, FeatureKind]:
        """Return the features of each term that has inputs, by its name."""

    @property
    def dtype(self) -> DType:
        """Return the dtype of the scores."""

    @property
    def n_nodes(self) -> int:
        """Return the number of label nodes, to which the cost of a pass is proportional."""

    @property
    def is_convex(self) -> bool:
        """Return whether all labels are observed."""

    def evaluate(self, layout: Layout, theta: Floats, n_jobs: int, *, curvature: bool) -> tuple[Sums, PartitionState]:
        """Return loss and gradient at theta; with `curvature`, the state keeps what Hessian products need."""

    def sums(self, layout: Layout, theta: Floats, n_jobs: int) -> Sums:
        """Return loss and gradient at theta, without a state."""

    def evaluate_at(self, layout: Layout, scores: Any, n_jobs: int, *, curvature: bool) -> tuple[Sums, PartitionState]:
        """Return loss and gradient at a point whose scores are known."""

    def direction(self, layout: Layout, v: Floats, n_jobs: int) -> Any:
        """Return the derivative of the scores along a direction v of theta."""

    def along(self, scores: Any, direction: Any, n_jobs: int) -> tuple[float, float]:
        """Return the loss at these scores, and its derivative along a direction of the scores."""

    def hessian_product(self, layout: Layout, at: PartitionState, v: Floats, n_jobs: int) -> Floats:
        """Return the derivative of the gradient along v; `at` was evaluated with curvature."""

    def block_product(self, layout: Layout, at: PartitionState, v: Floats, n_jobs: int) -> Floats:
        """Return the product of the paper's blocks (30) with v."""

    def entropy(self, at: PartitionState, n_jobs: int) -> float:
        """Return the weighted sum of the samples' entropies, sum_i omega_i H(p_i)."""

    def knows_spread(self, term: Term) -> bool:
        """Return whether `spread` is available for a term."""

    def mass(self, term: Term) -> float:
        """Return the sum of the weights of a term's cliques."""

    def total(self, function: Callable[[Any, Any], Total], at: PartitionState | None) -> Total:
        """Return the sum of function(rows, state) over the `RowPartition`s that this partition consists of."""

    def with_columns(self, term: Term, columns: Places) -> Partition:
        """Return the same samples, with only these columns of a term's features."""


class RowPartition(Partition, Protocol):
    """Protocol of a partition whose rows are in this process; a term has one row per clique."""

    @property
    def features(self) -> Mapping[str, TokenFeatures]:
        """Return the features of each term that has inputs, by its name."""

    def residual(self, term: Term, at: PartitionState) -> Array:
        """Return the residual of each clique, (rows, r); the product of F' with it is the gradient of the term."""

    def spread(self, term: Term, at: PartitionState) -> Array:
        """Return the weighted variances omega p (1 - p) of each clique's S joint labels, (rows, S)."""

    def score_sizes(self, layout: Layout, at: PartitionState) -> Floats:
        """Return omega times the largest finite |score| of each clique, for all cliques."""

    def clique_weights(self, term: Term) -> Floats:
        """Return the weight omega of each clique, (rows,)."""
