"""Minimise an objective whose penalty is not differentiable, by proximal gradient steps and by L-BFGS.

The objective is P = f + R, where f is smooth and R is a function such as the norms of groups of weights. A metric d has
one number per term of the score. A proximal gradient step from the point z is

    theta = argmin <g, theta> + sum_k d_k/2 |theta_k - z_k|^2 + R(theta),     g = gradient of f at z.

`Penalty.shrink` computes it, and makes weights exactly zero. Points z are extrapolated (Nesterov), and d is raised
until the quadratic model of f at z, with the curvature d, is not below f at the new point. After a few steps, L-BFGS
minimises over the weights that are not zero, with respect to which R is differentiable. Both kinds of steps alternate
until the certified gap is within the tolerance.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.optimize import minimize

from kernelcrf.arrays import Array, Floats
from kernelcrf.objective import Evaluation, Objective
from kernelcrf.score.layout import Layout
from kernelcrf.solvers.loop import OPTIMAL, STALLED, Progress, Solver
from kernelcrf.solvers.preconditioners import Preconditioning
from kernelcrf.validation import COUNT, check_parameters

# The metric is raised by the first factor until a step is a majorisation, and lowered by the second after each step.
RAISE, LOWER, MOST_RAISES = 2.0, 0.9, 60
SHARE = 0.25


@dataclass(frozen=True)
class Proximal(Solver):
    """Solver for penalties that are not differentiable, such as kernelcrf.penalties.GroupLasso.

    steps : the number of proximal gradient steps between two runs of L-BFGS.
    polish : the largest number of steps of such a run.

    Examples
    --------
    >>> from kernelcrf import ChainCRF
    >>> from kernelcrf.penalties import GroupLasso
    >>> from kernelcrf.solvers import Proximal
    >>> X, y = [[[0.0], [1.0]], [[1.0]]], [["a", "b"], ["b"]]
    >>> crf = ChainCRF("linear", C=1.0, penalty=GroupLasso(l1=0.1), solver=Proximal()).fit(X, y)
    >>> crf.certificate_.status
    'optimal'
    """

    steps: int = 10
    polish: int = 50

    def __post_init__(self) -> None:
        check_parameters(vars(self), {"steps": COUNT, "polish": COUNT})

    def check(self, objective: Objective) -> None:
        """Accept every objective."""

    def solve(self, start: Floats, progress: Progress) -> str:
        """Alternate proximal gradient steps and L-BFGS until the gap is within the tolerance; return the status."""
        objective = progress.objective
        at = objective.evaluate(start)
        progress.passes += 1
        progress.observe(at, 0.0)
        diagonal = Preconditioning(objective, {}).diagonal(at, SHARE)
        metric = _Metric(objective.layout, diagonal)
        while not progress.solved and not progress.is_stopped:
            before = at.value
            at = self._descend(at, metric, progress)
            if not progress.solved and not progress.is_stopped:
                at = self._polish(at, diagonal, progress)
            if before - at.value <= objective.noise(at) and not progress.solved:
                return STALLED
        return OPTIMAL if progress.solved else progress.stop.name

    def _descend(self, at: Evaluation, metric: _Metric, progress: Progress) -> Evaluation:
        """Take accelerated proximal gradient steps; if the objective rises, restart the acceleration."""
        objective, z, speed = progress.objective, at, 1.0
        for _ in range(self.steps):
            new = metric.step(z, progress)
            if new.value > at.value and z is not at:
                z, speed = at, 1.0
                continue
            faster = 0.5 * (1 + np.sqrt(1 + 4 * speed**2))
            ahead = new.theta + (speed - 1) / faster * (new.theta - at.theta)
            moved = speed > 1
            at, speed = new, faster
            progress.observe(at, 1.0 / metric.scale)
            if progress.solved or progress.is_stopped:
                break
            z = objective.evaluate(ahead) if moved else at
            progress.passes += moved
        return at

    def _polish(self, at: Evaluation, diagonal: Floats, progress: Progress) -> Evaluation:
        """Minimise over the weights that are not zero, by L-BFGS."""
        objective, layout = progress.objective, progress.objective.layout
        free = np.flatnonzero(at.theta)
        if not len(free):
            return at
        scale, latest, best = 1.0 / np.sqrt(diagonal[free]), at, at

        def evaluate(phi: Array) -> tuple[float, Floats]:
            nonlocal latest
            theta = np.zeros_like(at.theta)
            theta[free] = scale * phi
            latest = objective.evaluate(theta)
            progress.passes += 1
            return latest.value, scale * (latest.gradient + layout.slope(theta))[free]

        def report(intermediate_result: Any) -> None:
            nonlocal best
            if latest.value < best.value:
                best = latest
                progress.observe(best, np.nan)
            if progress.solved or progress.is_stopped:
                raise StopIteration

        options: Any = {"maxiter": self.polish, "maxfun": 10**9, "ftol": 0, "gtol": 0, "maxcor": 20}
        minimize(evaluate, at.theta[free] / scale, jac=True, method="L-BFGS-B", callback=report, options=options)
        return best


class _Metric:
    """The metric d of proximal steps: one number per term, times a scale that the steps adapt."""

    def __init__(self, layout: Layout, diagonal: Floats) -> None:
        self.layout, self.scale = layout, 1.0
        self.of_terms = {name: float(diagonal[part].max(initial=0.0)) or 1.0 for name, part in layout.slices.items()}
        self.of_weights = np.concatenate([np.full(term.size, self.of_terms[term.name]) for term in layout.terms])

    def step(self, z: Evaluation, progress: Progress) -> Evaluation:
        """Take a proximal gradient step from z, and increase the scale of the metric until the step is safe.

        It is safe if the quadratic model at the new point is not below the smooth part of the objective there.
        """
        objective, layout, rough = progress.objective, self.layout, z
        smooth = z.value - layout.extra(z.theta)
        for _ in range(MOST_RAISES):
            d = self.scale * self.of_weights
            factors = {name: 1.0 / (self.scale * curvature) for name, curvature in self.of_terms.items()}
            new = objective.evaluate(layout.project(layout.shrink(z.theta - z.gradient / d, factors)))
            progress.passes += 1
            change = new.theta - z.theta
            bound = smooth + float(np.dot(z.gradient, change)) + 0.5 * float(np.dot(d * change, change))
            if new.value - layout.extra(new.theta) <= bound + objective.noise(new):
                self.scale *= LOWER
                return new
            self.scale *= RAISE
            rough = new
        return rough
