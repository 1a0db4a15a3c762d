"""The negative log posterior (15) of a conditional random field with tied templates, spelt once.

    P(theta) = sum_i omega_i [log Z_i - log Z_i(allowed)] + sum_k lam_k/2 |theta_k|^2
    g        = sum_i omega_i [E_p Phi - E_p(. | allowed) Phi] + lam theta                      (21), (28)
    H v      = sum_i omega_i Cov_p[Phi, <Phi, v>] + lam v                                       (22)

omega are the weights of the samples. log Z(allowed) sums over the labelings that the labels allow. If all labels are
observed, it is the score of the one labelling, and P is convex. If some are missing, H leaves out the covariance under
p(. | allowed): this Gauss-Newton part is positive definite, so that it can minimise P, but it certifies nothing.

Scores have the precision of the features, and P is a difference of sums of scores. Its rounding is estimated as

    noise = eps (sum_c omega_c |s_c| + 8 [sum_c (omega_c s_c)^2]^1/2)

over the cliques c, with s_c the largest score of a clique: the errors of single scores, of 8 eps, are taken as
independent, and a share of one eps as common to all.

A pass computes F W and F' R once. Partitions know their graphs and do the inference; an engine sums over them in a
fixed order.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property, partial

import numpy as np

from kernelcrf.arrays import DType, Floats
from kernelcrf.engines.local import LocalEngine, Total
from kernelcrf.partitions.partition import LinearBound, Partition, PartitionState, RowPartition, Scores, Sums
from kernelcrf.terms import Layout


@dataclass(frozen=True, eq=False)
class Evaluation:
    """P at theta: its value, gradient, lower bound, and the state of each partition."""

    theta: Floats
    value: float
    gradient: Floats
    lower_bound: float
    parts: tuple[PartitionState, ...]


@dataclass(frozen=True, eq=False)
class Ray:
    """P(theta + step direction) from cached scores, without a product with F for each step."""

    objective: Objective
    start: Evaluation
    direction: Floats
    scores: tuple[Scores, ...]

    def along(self, step: float) -> tuple[float, float]:
        """Return the value and its derivative in `step`."""
        objective, layout = self.objective, self.objective.layout

        def one(k: int) -> Floats:
            moved = self.start.parts[k].scores.moved(self.scores[k], step)
            return np.array(objective.partitions[k].along(moved, self.scores[k], objective.engine.n_jobs))

        loss, slope = objective.summed(one)
        theta = self.start.theta + step * self.direction
        return (
            float(loss) + 0.5 * layout.squared_norm(theta),
            float(slope) + float(np.dot(layout.times_lam(theta), self.direction)),
        )

    def point(self, step: float, *, curvature: bool) -> Evaluation:
        """Return the evaluation at a step: half a pass, since the scores are known."""
        scores = [part.scores.moved(ds, step) for part, ds in zip(self.start.parts, self.scores, strict=True)]
        return self.objective.evaluate(self.start.theta + step * self.direction, curvature=curvature, scores=scores)


@dataclass(frozen=True, eq=False)
class Objective:
    """P as a sum over partitions."""

    layout: Layout
    partitions: Sequence[Partition]
    engine: LocalEngine

    @cached_property
    def costs(self) -> list[float]:
        """Return the number of label nodes of each partition."""
        return [float(partition.n_nodes) for partition in self.partitions]

    @property
    def dtype(self) -> DType:
        """Return the least precision that scores have in any partition."""
        return min((partition.dtype for partition in self.partitions), key=lambda dtype: dtype.itemsize)

    @property
    def is_convex(self) -> bool:
        """Return whether all labels are observed."""
        return all(partition.is_convex for partition in self.partitions)

    def evaluate(self, theta: Floats, *, curvature: bool = False, scores: Sequence[Scores] | None = None) -> Evaluation:
        """Return P and its gradient at theta: one pass, or half a pass if the scores of theta are given."""
        theta, n_jobs = np.asarray(theta, np.float64), self.engine.n_jobs

        def one(k: int) -> tuple[Sums, PartitionState]:
            if scores is None:
                return self.partitions[k].evaluate(self.layout, theta, n_jobs, curvature=curvature)
            return self.partitions[k].evaluate_at(self.layout, scores[k], n_jobs, curvature=curvature)

        sums, parts = self.engine.reduce(one, range(len(self.partitions)), self.costs)
        value = sums.loss + 0.5 * self.layout.squared_norm(theta)
        gradient = sums.gradient + self.layout.times_lam(theta)
        return Evaluation(theta, value, gradient, self._lower_bound(value, gradient, sums.bound), tuple(parts))

    def _lower_bound(self, value: float, gradient: Floats, bound: LinearBound | None) -> float:
        """Return a number that P is nowhere below: by Lemma 9, or by the bound that the partitions give."""
        if not self.is_convex:
            return -np.inf
        if bound is None:
            return value - 0.5 * sum(self.layout.squared_dual_norms(gradient).values())
        return bound.constant - 0.5 * sum(self.layout.squared_dual_norms(bound.slope).values())

    def gap(self, at: Evaluation) -> float:
        """Return P minus its bound at a point; if P is not convex, the same expression of the gradient."""
        if self.is_convex:
            return at.value - at.lower_bound
        return 0.5 * sum(self.layout.squared_dual_norms(at.gradient).values())

    def noise(self, at: Evaluation) -> float:
        """Return how far P may be off at a point by the rounding of its scores, as the head of this module says."""
        sizes = partial(_score_sizes, self.layout)
        total, squares = self.summed(lambda k: self.partitions[k].total(sizes, at.parts[k]))
        return float(np.finfo(self.dtype).eps * (total + 8 * np.sqrt(squares)))

    def ray(self, start: Evaluation, direction: Floats) -> Ray:
        """Return the line from an evaluation along a direction: half a pass."""
        n_jobs = self.engine.n_jobs
        scores = self.engine.map(
            lambda partition: partition.direction(self.layout, direction, n_jobs), self.partitions, self.costs
        )
        return Ray(self, start, direction, tuple(scores))

    def hessian_product(self, at: Evaluation, v: Floats) -> Floats:
        """Return H v at an evaluation made with curvature: one pass."""
        n_jobs = self.engine.n_jobs
        total = self.summed(lambda k: self.partitions[k].hessian_product(self.layout, at.parts[k], v, n_jobs))
        return total + self.layout.times_lam(v)

    def block_product(self, at: Evaluation, v: Floats) -> Floats:
        """Return the paper's blocks (30) times v: covariances within each clique, none between cliques."""
        n_jobs = self.engine.n_jobs
        total = self.summed(lambda k: self.partitions[k].block_product(self.layout, at.parts[k], v, n_jobs))
        return total + self.layout.times_lam(v)

    def entropy(self, at: Evaluation) -> float:
        """Return sum_i omega_i H(p_i)."""
        return float(self.summed(lambda k: np.float64(self.partitions[k].entropy(at.parts[k], self.engine.n_jobs))))

    def summed(self, function: Callable[[int], Total]) -> Total:
        """Return the sum of function(k) over the partitions k, in a fixed order."""
        return self.engine.reduce(lambda k: (function(k), None), range(len(self.partitions)), self.costs)[0]


def _score_sizes(layout: Layout, rows: RowPartition, at: PartitionState) -> Floats:
    """Return sum_c omega_c |s_c| and sum_c (omega_c s_c)^2."""
    sizes = rows.score_sizes(layout, at)
    return np.array([sizes.sum(), np.dot(sizes, sizes)])
