"""Protocols of partitions: subsets of the training samples, over which the loss is summed.

A `Partition` computes sums over its samples, which may be on other machines. A `RowPartition` has its samples in this
process, and can also return arrays with one row per clique. A partition on other machines consists of one or more
`RowPartition` objects there. `Partition.total` calls a function for each of them, and adds up the results.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol, TypeVar

import numpy as np

from kernelcrf.arrays import Array, DType, Floats, Places
from kernelcrf.score.features import TokenFeatures
from kernelcrf.score.layout import Layout
from kernelcrf.score.terms import Term

Total = TypeVar("Total")


@dataclass(frozen=True, eq=False)
class LinearBound:
    """A lower bound on the loss that is linear in the parameters: loss(theta) >= constant + <slope, theta>.

    The inequality holds for all theta.
    """

    constant: float
    slope: Floats

    def __add__(self, other: LinearBound) -> LinearBound:
        return LinearBound(self.constant + other.constant, self.slope + other.slope)


@dataclass(frozen=True, eq=False)
class Sums:
    """A loss and its gradient, summed over samples.

    bound : a linear lower bound on the loss. If it is None, inference returned no bound; the tangent of a convex loss
        can take its place.
    """

    loss: float
    gradient: Floats
    bound: LinearBound | None = None

    def __add__(self, other: Sums) -> Sums:
        bound = None if self.bound is None or other.bound is None else self.bound + other.bound
        return Sums(self.loss + other.loss, self.gradient + other.gradient, bound)


class Scores(Protocol):
    """Protocol of objects that hold the scores of all cliques of a partition."""

    def move(self, direction: Any, step: float) -> Any:
        """Return these scores plus `step` times the scores `direction`."""


@dataclass(frozen=True, eq=False)
class PartitionState:
    """The scores and the results of inference of a partition for one vector of parameters.

    residuals : the results of inference; only the partition itself knows their type.
    sizes : the result of `RowPartition.score_sizes`, if scores and residuals were not kept; otherwise None.
    """

    scores: Any
    residuals: Any
    sizes: Floats | None = None


class Partition(Protocol):
    """Protocol of partitions. A partition holds samples, with their features and labels, and computes sums over them.

    The sums are the loss, its gradient, and products with its Hessian. The parameters theta are the weights of all
    terms of the score; the layout says where the weights of each term are in this vector.

    features : a dict from names of terms to their features, for terms that have inputs. If features are on other
        machines, this process only knows whether they are sparse.
    """

    features: Mapping[str, Any]

    @property
    def precision(self) -> DType:
        """Return the least precise floating-point type of the features; it determines the rounding of scores."""

    @property
    def n_nodes(self) -> int:
        """Return the number of nodes with labels; the cost of a pass over the data is proportional to it."""

    @property
    def is_convex(self) -> bool:
        """Return whether the loss is convex; this is so if all labels are observed."""

    def evaluate(self, layout: Layout, theta: Floats, n_jobs: int, *, curvature: bool) -> tuple[Sums, PartitionState]:
        """Return the loss and its gradient for the parameters theta, and a state with the results of inference.

        curvature : whether the state must also store the arrays that products with the Hessian need.
        """

    def measure(self, layout: Layout, theta: Floats, n_jobs: int) -> tuple[Sums, PartitionState]:
        """Return the loss and its gradient for the parameters theta, and a state from which `score_sizes` is known."""
        return self.evaluate(layout, theta, n_jobs, curvature=False)

    def evaluate_at(self, layout: Layout, scores: Any, n_jobs: int, *, curvature: bool) -> tuple[Sums, PartitionState]:
        """Return the loss, its gradient with respect to theta, and a state with the results of inference, given scores.

        curvature : whether the state must also store the arrays that products with the Hessian need.
        """

    def direction(self, layout: Layout, v: Floats, n_jobs: int) -> Any:
        """Return the change of the scores if v is added to the parameters theta."""

    def along(self, scores: Any, direction: Any, n_jobs: int) -> tuple[float, float]:
        """Return the loss for the given scores, and its derivative along the direction `direction` of the scores."""

    def hessian_product(self, layout: Layout, at: PartitionState, v: Floats, n_jobs: int) -> Floats:
        """Return the product of the Hessian of the loss and v.

        at : a state that `evaluate` returned for curvature=True.
        """

    def block_product(self, layout: Layout, at: PartitionState, v: Floats, n_jobs: int) -> Floats:
        """Return the product of a block-diagonal approximation of the Hessian and v, equation (30) of the paper."""

    def entropy(self, at: PartitionState, n_jobs: int) -> float:
        """Return the entropies of p(y|x) of all samples, multiplied by the sample weights and added up."""

    def mass(self, term: Term) -> float:
        """Return the number of cliques of a term; each clique counts with the weight of its sample.

        For sequences, this is the weighted number of tokens, also for terms that score transitions.
        """

    def total(self, function: Callable[[Any, Any], Total], at: PartitionState | None) -> Total:
        """Return the sum of function(part, state) over the `RowPartition` objects of which this partition consists.

        at : the state of this partition, from which each part gets its state. If it is None, all states are None.
        """

    def with_columns(self, term: Term, columns: Places) -> Partition:
        """Return the same samples with only the given columns of a term's features."""


class RowPartition(Partition, Protocol):
    """Protocol of partitions whose samples are in this process.

    Such a partition can also return arrays for a single term of the score, with one row per clique.

    weights : the weight of each sample, or None if all weights are 1.
    """

    features: Mapping[str, TokenFeatures]
    weights: Floats | None

    @property
    def dtype(self) -> DType:
        """Return the floating-point type of the scores: float32 if all features are float32, otherwise float64."""
        dtypes = [features.F.dtype for features in self.features.values()]
        return np.result_type(*dtypes) if dtypes else np.dtype(np.float64)

    @property
    def precision(self) -> DType:
        dtypes = [features.precision for features in self.features.values()]
        return min(dtypes, key=lambda dtype: dtype.itemsize, default=np.dtype(np.float64))

    def total(self, function: Callable[[Any, Any], Total], at: PartitionState | None) -> Total:
        return function(self, at)

    def sums(self, layout: Layout, theta: Floats, n_jobs: int) -> Sums:
        """Return the loss and its gradient for the parameters theta; scores and results of inference are not kept."""
        return self.evaluate(layout, theta, n_jobs, curvature=False)[0]

    def curvature(self, at: PartitionState) -> Any:
        """Return the part of a state that products with the Hessian need.

        Raise ValueError if the state was evaluated with curvature=False.
        """
        if at.residuals.curvature is None:
            raise ValueError(
                "the state `at` was evaluated with curvature=False: pass a state from evaluate(..., curvature=True)"
            )
        return at.residuals.curvature

    def weighted(self, numbers: Array) -> Array:
        """Multiply each number by the weight of its sample; there is one number per sample."""
        return numbers if self.weights is None else self.weights * numbers

    def weighted_sum(self, numbers: Array) -> float:
        """Multiply each number by the weight of its sample, and return the sum; there is one number per sample."""
        return float(numbers.sum() if self.weights is None else np.dot(self.weights, numbers))

    def losses(self, scores: Any, n_jobs: int = 1) -> Floats:
        """Return the loss of each sample for the given scores, times the weight of the sample."""

    def residual(self, term: Term, at: PartitionState) -> Array:
        """Return the gradient with respect to the scores of a term, times the factor of its label kernel.

        The result has one row per clique. The product of the transposed features and this array is the gradient with
        respect to the term's weights. If inference returned a linear lower bound on the loss, the slope of this bound
        is used instead of the gradient.
        """

    def spread(self, term: Term, at: PartitionState) -> Array:
        """Return p (1 - p) for each clique and each joint labelling, times the weight of the sample.

        p is the probability of the labelling. The transitions of sequences are not supported, because their
        probabilities are not stored.
        """

    def score_sizes(self, layout: Layout, at: PartitionState) -> Floats:
        """Return, for each clique, its largest finite score in absolute value, times the weight of its sample."""

    def clique_weights(self, term: Term) -> Floats:
        """Return, for each clique of a term, the weight of its sample."""
