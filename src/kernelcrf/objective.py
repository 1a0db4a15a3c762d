"""The objective P: the negative log posterior (15) of a conditional random field with tied templates.

    P(theta) = sum_i omega_i [log Z_i - log Z_i(allowed)] + sum_k lam_k/2 |theta_k|^2
    g        = sum_i omega_i [E_p Phi - E_p(. | allowed) Phi] + lam theta                      (21), (28)
    H v      = sum_i omega_i Cov_p[Phi, <Phi, v>] + lam v                                       (22)

omega are the weights of the samples. log Z(allowed) sums over the labelings that agree with the observed labels. If all
labels are observed, it is the score of one labelling, and P is convex. If some are missing, H omits the covariance
under p(. | allowed). This Gauss-Newton part is positive definite, so that it can minimise P, but certifies nothing.

Scores have the precision of the features, and P is a difference of sums of scores. Its rounding error is estimated as

    noise = eps (sum_c omega_c |s_c| + 8 [sum_c (omega_c s_c)^2]^1/2)

over the cliques c, with s_c the largest score of a clique. It is assumed that all scores share an error of one eps,
and that each has an independent error of 8 eps.

A pass computes the scores F W and the products F' R of the residuals R once. Partitions do the inference; an engine
sums over the partitions in a fixed order.
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
    """The objective at theta: its value, gradient and lower bound, and the state of each partition (`parts`)."""

    theta: Floats
    value: float
    gradient: Floats
    lower_bound: float
    parts: tuple[PartitionState, ...]


@dataclass(frozen=True, eq=False)
class Ray:
    """The objective P along theta + step direction; scores are cached, so that no step needs a product with F."""

    objective: Objective
    start: Evaluation
    direction: Floats
    scores: tuple[Scores, ...]

    def along(self, step: float) -> tuple[float, float]:
        """Return the value of P at this step, and its derivative with respect to `step`."""
        objective, layout = self.objective, self.objective.layout

        def one(k: int) -> Floats:
            moved = self.start.parts[k].scores.move(self.scores[k], step)
            return np.array(objective.partitions[k].along(moved, self.scores[k], objective.engine.n_jobs))

        loss, slope = objective.sum(one)
        theta = self.start.theta + step * self.direction
        return (
            float(loss) + 0.5 * layout.squared_norm(theta),
            float(slope) + float(np.dot(layout.times_lam(theta), self.direction)),
        )

    def point(self, step: float, *, curvature: bool) -> Evaluation:
        """Evaluate P at this step. It costs half a pass, because the scores are known."""
        scores = [part.scores.move(ds, step) for part, ds in zip(self.start.parts, self.scores, strict=True)]
        return self.objective.evaluate(self.start.theta + step * self.direction, curvature=curvature, scores=scores)


@dataclass(frozen=True, eq=False)
class Objective:
    """The objective P, a sum over partitions of the data."""

    layout: Layout
    partitions: Sequence[Partition]
    engine: LocalEngine

    @cached_property
    def costs(self) -> list[float]:
        """Return the number of label nodes of each partition."""
        return [float(partition.n_nodes) for partition in self.partitions]

    @property
    def dtype(self) -> DType:
        """Return the lowest precision of the scores of any partition."""
        return min((partition.dtype for partition in self.partitions), key=lambda dtype: dtype.itemsize)

    @property
    def is_convex(self) -> bool:
        """Return whether P is convex, that is, whether all labels are observed."""
        return all(partition.is_convex for partition in self.partitions)

    def evaluate(self, theta: Floats, *, curvature: bool = False, scores: Sequence[Scores] | None = None) -> Evaluation:
        """Evaluate P and its gradient in one pass, or half a pass if the scores of theta are given.

        With `curvature`, what products with the Hessian need is kept.
        """
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
        """Return a lower bound of min P: from the partitions if they give one, otherwise by Lemma 9."""
        if not self.is_convex:
            return -np.inf
        if bound is None:
            return value - 0.5 * sum(self.layout.squared_dual_norms(gradient).values())
        return bound.constant - 0.5 * sum(self.layout.squared_dual_norms(bound.slope).values())

    def gap(self, at: Evaluation) -> float:
        """Return P minus its lower bound at a point; if P is not convex, sum_k |g_k|^2 / (2 lam_k) of the gradient."""
        if self.is_convex:
            return at.value - at.lower_bound
        return 0.5 * sum(self.layout.squared_dual_norms(at.gradient).values())

    def noise(self, at: Evaluation) -> float:
        """Estimate the error of P at a point from the rounding of scores; the module docstring has the formula."""
        size = max(abs(at.value), np.finfo(np.float64).tiny)
        sizes = partial(_score_sizes, self.layout, size)
        total, squares = self.sum(lambda k: self.partitions[k].total(sizes, at.parts[k]))
        return float(np.finfo(self.dtype).eps * size * (total + 8 * np.sqrt(squares)))

    def ray(self, start: Evaluation, direction: Floats) -> Ray:
        """Return the line that starts at an evaluated point along a direction. It costs half a pass."""
        n_jobs = self.engine.n_jobs
        scores = self.engine.map(
            lambda partition: partition.direction(self.layout, direction, n_jobs), self.partitions, self.costs
        )
        return Ray(self, start, direction, tuple(scores))

    def hessian_product(self, at: Evaluation, v: Floats) -> Floats:
        """Return the Hessian product H v at a point that was evaluated with curvature=True. It costs one pass."""
        n_jobs = self.engine.n_jobs
        total = self.sum(lambda k: self.partitions[k].hessian_product(self.layout, at.parts[k], v, n_jobs))
        return total + self.layout.times_lam(v)

    def block_product(self, at: Evaluation, v: Floats) -> Floats:
        """Return the product of v with the paper's blocks (30): covariances within cliques only, not between them."""
        n_jobs = self.engine.n_jobs
        total = self.sum(lambda k: self.partitions[k].block_product(self.layout, at.parts[k], v, n_jobs))
        return total + self.layout.times_lam(v)

    def entropy(self, at: Evaluation) -> float:
        """Return the weighted sum of the samples' entropies, sum_i omega_i H(p_i)."""
        return float(self.sum(lambda k: np.float64(self.partitions[k].entropy(at.parts[k], self.engine.n_jobs))))

    def sum(self, function: Callable[[int], Total]) -> Total:
        """Return the sum of function(k) over the partitions k, in a fixed order."""
        return self.engine.reduce(lambda k: (function(k), None), range(len(self.partitions)), self.costs)[0]


def _score_sizes(layout: Layout, size: float, rows: RowPartition, at: PartitionState) -> Floats:
    """Return sum_c a_c and sum_c a_c^2 with a_c = omega_c |s_c| / size over the cliques c of a partition, for `noise`.

    Relative to the size of P their squares neither overflow nor vanish. Scores that exceed P by a factor of 1e150 count
    as this factor: they leave P no correct digit in any case.
    """
    with np.errstate(over="ignore"):
        relative = np.minimum(rows.score_sizes(layout, at) / size, 1e150)
    return np.array([relative.sum(), np.dot(relative, relative)])
