"""Compute the training objective P: the negative log posterior of the parameters of a conditional random field.

The objective (equation 15 of the paper), its gradient g (equations 21 and 28) and the product of its Hessian H with a
vector v (equation 22) are

    P(theta) = sum_i omega_i [log Z_i - log Z_i(allowed)] + sum_k lam_k/2 |theta_k - mu_k|^2
    g        = sum_i omega_i [E_p Phi - E_p(. | allowed) Phi] + lam (theta - mu)
    H v      = sum_i omega_i Cov_p[Phi, <Phi, v>] + lam v

Sample i has the weight omega_i and the joint features Phi, so that a labelling has the score <Phi, theta>. Term k of
the model has the parameters theta_k, the regularisation lam_k and the prior mean mu_k, which is 0 unless an earlier
model determines the prior. In that case, lam differs from weight to weight (see `penalties`). log Z is the log-sum-exp
of the scores of all labelings, and log Z(allowed) is the log-sum-exp over the labelings that agree with the observed
labels. If all labels are observed, log Z(allowed) is the score of one labelling, and P is convex. If some labels are
missing, P is not convex, and H omits the covariance under p(. | allowed). What remains is positive definite
(Gauss-Newton). Solvers can use it, but it gives no bound on the distance to the minimum. If the penalty of a term has a
part R (see `penalties`), P also contains R(theta_k), which g and H leave out.

Scores have the precision of the features, and P is a difference of sums of scores. Its rounding error is estimated as

    noise = eps (sum_c omega_c |s_c| + 8 [sum_c (omega_c s_c)^2]^1/2)

over the cliques c, where s_c is the largest score of a clique and eps is the precision. This assumes that all scores
share a relative error of eps, and that each score has an independent relative error of 8 eps. Residuals of single
precision underflow if they are multiplied by tiny sample weights; noise is then infinite.

One pass over the data computes all scores, runs inference, and multiplies the residuals by the features. Partitions of
the data do this work, and an engine sums over the partitions in a fixed order.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, partial

import numpy as np
from scipy.linalg import eigh

from kernelcrf.arrays import DType, Floats
from kernelcrf.engines.local import LocalEngine, Total
from kernelcrf.partitions.partition import LinearBound, Partition, PartitionState, RowPartition, Scores, Sums
from kernelcrf.score.layout import Layout

ROUNDING = 16
LEAST_SINGLE_WEIGHT = 1e-20


@dataclass(frozen=True, eq=False)
class Evaluation:
    """The objective at one point theta.

    value, gradient : the objective, and its gradient without the part R of penalties.
    lower_bound : a lower bound on the minimum of the objective; -inf if the objective is not convex.
    parts : the state of each partition of the data, with its scores and results of inference.
    is_moved : whether the scores were computed by adding a change to the scores of another point, and not from the
        features. The rounding errors of such changes add up, until scores are computed from the features again.
    """

    theta: Floats
    value: float
    gradient: Floats
    lower_bound: float
    parts: tuple[PartitionState, ...]
    is_moved: bool = False


@dataclass(frozen=True, eq=False)
class Ray:
    """The objective at the points start + step * direction, for line searches.

    scores : the change of the scores along the direction, so that no step needs products with features.
    """

    objective: Objective
    start: Evaluation
    direction: Floats
    scores: tuple[Scores, ...]

    def along(self, step: float) -> tuple[float, float]:
        """Return the value of the objective at start + step * direction, and its derivative with respect to `step`."""
        objective, layout = self.objective, self.objective.layout

        def one(k: int) -> Floats:
            moved = self.start.parts[k].scores.move(self.scores[k], step)
            return np.array(objective.partitions[k].along(moved, self.scores[k], objective.engine.n_jobs))

        loss, slope = objective.sum(one)
        theta = self.start.theta + step * self.direction
        return (
            float(loss) + layout.penalty(theta),
            float(slope) + float(np.dot(layout.penalty_gradient(theta), self.direction)),
        )

    def point(self, step: float, *, curvature: bool) -> Evaluation:
        """Evaluate the objective and its gradient at start + step * direction.

        This costs half a pass over the data, because the scores need not be computed from the features.
        """
        scores = [part.scores.move(ds, step) for part, ds in zip(self.start.parts, self.scores, strict=True)]
        return self.objective.evaluate(self.start.theta + step * self.direction, curvature=curvature, scores=scores)


@dataclass(frozen=True, eq=False)
class Gram:
    """A matrix F' diag(omega) F, with the features F and the sample weights omega of a term."""

    matrix: Floats

    @cached_property
    def spectrum(self) -> tuple[Floats, Floats]:
        """Return the eigenvalues and the eigenvectors of the matrix."""
        values, vectors = eigh(self.matrix)
        return np.maximum(values, 0), vectors


@dataclass(frozen=True, eq=False)
class Objective:
    """The negative log posterior of the parameters theta, which training minimises.

    layout : the terms of the model, and the positions of their weights in theta.
    partitions : the parts of the training data.
    engine : computes sums over the partitions in parallel.
    grams : a dict of the matrices F' diag(omega) F that preconditioners have computed. Its keys identify the features F
        of all partitions. Its values depend on the data alone, so that objectives with other layouts share them.
    """

    layout: Layout
    partitions: Sequence[Partition]
    engine: LocalEngine
    grams: dict[tuple[int, ...], Gram] = field(default_factory=dict)

    @cached_property
    def costs(self) -> list[float]:
        """Return the number of labelled nodes of each partition, which measures the cost of a pass."""
        return [float(partition.n_nodes) for partition in self.partitions]

    @property
    def precision(self) -> DType:
        """Return the least precise floating-point type of the features of all partitions."""
        return min((partition.precision for partition in self.partitions), key=lambda dtype: dtype.itemsize)

    @property
    def is_convex(self) -> bool:
        """Return whether the objective is convex, which is the case if all labels are observed."""
        return all(partition.is_convex for partition in self.partitions)

    def evaluate(self, theta: Floats, *, curvature: bool = False, scores: Sequence[Scores] | None = None) -> Evaluation:
        """Evaluate the objective and its gradient at theta in one pass over the data.

        curvature : whether to keep the intermediate results that `hessian_product` needs.
        scores : the scores of each partition at theta, if they are already known; this saves half of the pass.
        """
        theta, n_jobs = np.asarray(theta, np.float64), self.engine.n_jobs

        def one(k: int) -> tuple[Sums, PartitionState]:
            if scores is None:
                return self.partitions[k].evaluate(self.layout, theta, n_jobs, curvature=curvature)
            return self.partitions[k].evaluate_at(self.layout, scores[k], n_jobs, curvature=curvature)

        sums, parts = self.engine.reduce(one, range(len(self.partitions)), self.costs)
        return self._evaluation(theta, sums, parts, is_moved=scores is not None)

    def measure(self, theta: Floats) -> Evaluation:
        """Evaluate the objective and its gradient at theta in one pass over the data, in little memory.

        The result does not contain what methods that use `Evaluation.parts` need, apart from `noise`; `complete` adds
        it.
        """
        theta, n_jobs = np.asarray(theta, np.float64), self.engine.n_jobs

        def one(k: int) -> tuple[Sums, PartitionState]:
            return self.partitions[k].measure(self.layout, theta, n_jobs)

        sums, parts = self.engine.reduce(one, range(len(self.partitions)), self.costs)
        return self._evaluation(theta, sums, parts)

    def complete(self, at: Evaluation) -> Evaluation:
        """Return the evaluation with the scores and the results of inference that `measure` does not keep."""
        if all(part.sizes is None for part in at.parts):
            return at
        return replace(self.evaluate(at.theta), lower_bound=at.lower_bound)

    def _evaluation(
        self, theta: Floats, sums: Sums, parts: Sequence[PartitionState], *, is_moved: bool = False
    ) -> Evaluation:
        value = sums.loss + self.layout.penalty(theta)
        gradient = sums.gradient + self.layout.penalty_gradient(theta)
        bound = self._lower_bound(theta, value, gradient, sums.bound)
        return Evaluation(theta, value, gradient, bound, tuple(parts), is_moved)

    def _lower_bound(self, theta: Floats, value: float, gradient: Floats, bound: LinearBound | None) -> float:
        """Return a lower bound on the minimum of the objective, or -inf if the objective is not convex.

        The result is computed from `bound`, a linear lower bound on the loss. Without `bound`, the result is computed
        from the value and the gradient of the objective (Lemma 9 of the paper).
        """
        if not self.is_convex:
            return -np.inf
        constant, slope = (value, gradient) if bound is None else (bound.constant, bound.slope)
        if bound is not None and self.layout.mean is not None:
            constant += float(np.dot(slope, self.layout.mean))
        # Far from the optimum both numbers are huge, and the rounding of their difference may exceed the optimum.
        gap = self.layout.gap(theta, slope)
        return constant - gap * (1 + ROUNDING * float(np.finfo(self.precision).eps))

    def gap(self, at: Evaluation) -> float:
        """Return the objective minus its lower bound at an evaluated point.

        An objective that is not convex has no such bound. Then the result is the sum over terms k of
        |g_k|^2 / (2 lam_k), where g_k is the gradient with respect to the weights of term k, and lam_k is their prior
        precision. This sum is zero at a stationary point. If terms have other penalties, the result is the sum of
        their `Penalty.gap`.
        """
        if self.is_convex:
            return at.value - at.lower_bound
        return self.layout.gap(at.theta, at.gradient)

    def noise(self, at: Evaluation) -> float:
        """Estimate the rounding error of the objective at an evaluated point by the formula in the module docstring."""
        size = max(abs(at.value), np.finfo(np.float64).tiny)
        sizes = partial(_score_sizes, self.layout, size)
        total, squares = self.sum(lambda k: self.partitions[k].total(sizes, at.parts[k]))
        return float(np.finfo(self.precision).eps) * size * float(total + 8 * np.sqrt(squares))

    def ray(self, start: Evaluation, direction: Floats) -> Ray:
        """Return the objective along a direction from an evaluated point, for a line search.

        This costs half a pass over the data, because only the change of the scores is computed.
        """
        layout, n_jobs = self.layout, self.engine.n_jobs
        scores = self.engine.map(
            lambda partition: partition.direction(layout, direction, n_jobs), self.partitions, self.costs
        )
        return Ray(self, start, direction, tuple(scores))

    def hessian_product(self, at: Evaluation, v: Floats) -> Floats:
        """Return the product of the Hessian with v, which costs one pass over the data.

        at : the result of `evaluate` with curvature=True.
        """
        total = self.sum(lambda k: self.partitions[k].hessian_product(self.layout, at.parts[k], v, self.engine.n_jobs))
        return total + self.layout.times_lam(v)

    def block_product(self, at: Evaluation, v: Floats) -> Floats:
        """Return the product of v with a block-diagonal approximation of the Hessian (equation 30 of the paper).

        The approximation keeps covariances within cliques and omits covariances between cliques.
        """
        total = self.sum(lambda k: self.partitions[k].block_product(self.layout, at.parts[k], v, self.engine.n_jobs))
        return total + self.layout.times_lam(v)

    def entropy(self, at: Evaluation) -> float:
        """Return the sum of the entropies of p(y|x) over all samples, each multiplied by the weight of the sample."""
        return float(self.sum(lambda k: np.float64(self.partitions[k].entropy(at.parts[k], self.engine.n_jobs))))

    def sum(self, function: Callable[[int], Total]) -> Total:
        """Return the sum of function(k) over the indices k of all partitions, in a fixed order."""
        return self.engine.reduce(lambda k: (function(k), None), range(len(self.partitions)), self.costs)[0]


def _score_sizes(layout: Layout, size: float, rows: RowPartition, at: PartitionState) -> Floats:
    """Return the sums of a_c and of a_c^2 over the cliques c of a partition, where a_c = omega_c |s_c| / size.

    omega_c is the weight and s_c the largest score of a clique; `size` is the absolute value of the objective. Because
    of the division, squares neither overflow nor vanish. Each a_c is limited to 1e150, since larger scores leave no
    correct digit of the objective anyway. If weighted residuals may underflow, the sums are infinite.
    """
    weights = rows.weights
    if rows.precision != np.float64 and weights is not None and ((weights > 0) & (weights < LEAST_SINGLE_WEIGHT)).any():
        return np.full(2, np.inf)
    with np.errstate(over="ignore"):
        relative = np.minimum(rows.score_sizes(layout, at) / size, 1e150)
    return np.array([relative.sum(), np.dot(relative, relative)])
