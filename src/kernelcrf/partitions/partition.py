"""Protocols of partitions: subsets of the samples, over which the objective is summed.

A `Partition` computes sums over its samples, which may be on other machines. A `RowPartition` has its samples in this
process and can also return arrays with one row per clique. `Partition.total` sums a function over all `RowPartition`s
that a partition consists of, on the machines where they are.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol, TypeVar

import numpy as np

from kernelcrf.arrays import Array, DType, Floats, Places
from kernelcrf.partitions.features import TokenFeatures
from kernelcrf.terms import Layout, Term

Total = TypeVar("Total")


@dataclass(frozen=True, eq=False)
class LinearBound:
    """A lower bound on a loss that is linear in theta: loss(theta) >= constant + <slope, theta> for all theta."""

    constant: float
    slope: Floats

    def __add__(self, other: LinearBound) -> LinearBound:
        return LinearBound(self.constant + other.constant, self.slope + other.slope)


@dataclass(frozen=True, eq=False)
class Sums:
    """A loss and its gradient, summed over samples.

    bound : a linear lower bound on the loss; None if the loss is convex, since its tangent is such a bound.
    """

    loss: float
    gradient: Floats
    bound: LinearBound | None = None

    def __add__(self, other: Sums) -> Sums:
        bound = None if self.bound is None or other.bound is None else self.bound + other.bound
        return Sums(self.loss + other.loss, self.gradient + other.gradient, bound)


class Scores(Protocol):
    """Protocol of the scores of all cliques of a partition."""

    def move(self, direction: Any, step: float) -> Any:
        """Return these scores plus `step` times the scores `direction`."""


@dataclass(frozen=True, eq=False)
class PartitionState:
    """The scores of a partition at one theta, and results of inference in a form that only the partition uses."""

    scores: Any
    residuals: Any


class Partition(Protocol):
    """Samples with features and labels: computes loss, gradient and curvature, summed over the samples.

    features : the features of each term that has inputs, by the name of the term. If they are on another machine, only
        `is_sparse` of each is known.
    """

    features: Mapping[str, Any]

    @property
    def dtype(self) -> DType:
        """Return the dtype of the scores."""

    @property
    def n_nodes(self) -> int:
        """Return the number of labelled nodes, to which the cost of a pass is proportional."""

    @property
    def is_convex(self) -> bool:
        """Return whether the loss is convex, which is the case if all labels are observed."""

    def evaluate(self, layout: Layout, theta: Floats, n_jobs: int, *, curvature: bool) -> tuple[Sums, PartitionState]:
        """Return loss and gradient at theta, and a state that holds the scores and the results of inference.

        curvature : whether the state must contain what Hessian products need.
        """

    def evaluate_at(self, layout: Layout, scores: Any, n_jobs: int, *, curvature: bool) -> tuple[Sums, PartitionState]:
        """Return loss, gradient and state, as `evaluate` does, from scores that are already computed."""

    def direction(self, layout: Layout, v: Floats, n_jobs: int) -> Any:
        """Return the change of the scores if theta changes by v."""

    def along(self, scores: Any, direction: Any, n_jobs: int) -> tuple[float, float]:
        """Return the loss at the given scores, and its derivative along a direction of the scores."""

    def hessian_product(self, layout: Layout, at: PartitionState, v: Floats, n_jobs: int) -> Floats:
        """Return the derivative of the gradient along v; the state `at` must have been evaluated with curvature."""

    def block_product(self, layout: Layout, at: PartitionState, v: Floats, n_jobs: int) -> Floats:
        """Return the product of v with a block-diagonal approximation of the Hessian, equation (30) of the paper."""

    def entropy(self, at: PartitionState, n_jobs: int) -> float:
        """Return the sum of the entropies of p(y|x) over all samples, each times its weight."""

    def mass(self, term: Term) -> float:
        """Return the sum of the sample weights over all cliques of a term."""

    def total(self, function: Callable[[Any, Any], Total], at: PartitionState | None) -> Total:
        """Return the sum of function(partition, state) over all `RowPartition`s that this partition consists of.

        at : the state of this partition, or None.
        """

    def with_columns(self, term: Term, columns: Places) -> Partition:
        """Return the same samples with only the given columns of a term's features."""


class RowPartition(Partition, Protocol):
    """A partition in this process, whose arrays for a term have one row per clique.

    weights : the weight of each sample, or None if all weights are 1.
    """

    features: Mapping[str, TokenFeatures]
    weights: Floats | None

    @property
    def dtype(self) -> DType:
        """Return the dtype of the scores: float32 if all features are float32, otherwise float64."""
        dtypes = [features.F.dtype for features in self.features.values()]
        return np.result_type(*dtypes) if dtypes else np.dtype(np.float64)

    def total(self, function: Callable[[Any, Any], Total], at: PartitionState | None) -> Total:
        return function(self, at)

    def curvature(self, at: PartitionState) -> Any:
        """Return what Hessian products need; raise if the state was evaluated without it."""
        if at.residuals.curvature is None:
            raise ValueError(
                "`at` was evaluated without curvature: expected a state from evaluate(..., curvature=True)"
            )
        return at.residuals.curvature

    def weighted_sum(self, numbers: Array) -> float:
        """Return the sum of numbers, one per sample, each times the weight of the sample."""
        return float(numbers.sum() if self.weights is None else np.dot(self.weights, numbers))

    def residual(self, term: Term, at: PartitionState) -> Array:
        """Return the gradient with respect to a term's scores, times the factor of its label kernel.

        The result has one row per clique. The product of the transposed features with this array is the gradient with
        respect to the term's weights.
        """

    def spread(self, term: Term, at: PartitionState) -> Array:
        """Return the variance p (1 - p) of each joint labelling of each clique, times the weight of the sample.

        It is not available for the steps of chains, whose marginals are not kept.
        """

    def score_sizes(self, layout: Layout, at: PartitionState) -> Floats:
        """Return the largest finite |score| of each clique, times the weight of its sample."""

    def clique_weights(self, term: Term) -> Floats:
        """Return the weight of each clique's sample, one number per clique of the term."""
