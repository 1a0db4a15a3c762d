"""The run of a solver: its history, when it stops, and a loop that several solvers share.

Let P be the objective. If P is convex, each evaluated point gives a lower bound on the minimum of P. The certified gap
is P minus the largest of these bounds, and a run ends as soon as the gap is at most `tol` |P|. Every starting point
leads to the same optimum.

If labels are missing, P is not convex and has no such bound. A run then ends if sum_k |g_k|^2 / (2 lam_k) is small
enough, where g_k is the gradient and lam_k the regularisation of term k. Its status is "stationary", never "optimal".
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Protocol

import numpy as np

from kernelcrf.arrays import Floats
from kernelcrf.certificate import ROUNDING, Certificate
from kernelcrf.engines.local import single_threaded_blas
from kernelcrf.objective import Evaluation, Objective
from kernelcrf.solvers.line_search import search
from kernelcrf.solvers.stopping import ITERATIONS, STOP, StoppingRule, find_stop
from kernelcrf.validation import POSITIVE, either, validated

OPTIMAL, STATIONARY = "optimal", "stationary"
STALLED, INTERRUPTED = "stalled", "interrupted"


@dataclass(frozen=True)
class Record:
    """One point in the history of a solver's run.

    value : the objective P.
    lower_bound : the largest lower bound on the minimum of P so far.
    gap : P minus this bound. If P is not convex, a measure of the distance from a stationary point instead.
    step : the step length; NaN if the solver does not report it (L-BFGS).
    passes, seconds : the cost so far, as the number of passes over the data and as time.

    Examples
    --------
    >>> from kernelcrf.solvers import Record
    >>> record = Record(value=100.0, lower_bound=99.0, gap=1.0, step=1.0, passes=4.0, seconds=0.1)
    >>> record.relative_gap
    0.01
    """

    value: float
    lower_bound: float
    gap: float
    step: float
    passes: float
    seconds: float

    @property
    def relative_gap(self) -> float:
        """Return the gap divided by the absolute value of the objective."""
        return self.gap / max(abs(self.value), np.finfo(np.float64).tiny)


@dataclass(frozen=True, eq=False)
class Solution:
    """The result of a solver's run.

    evaluation : the point with the smallest objective.
    certificate : the objective at this point, a lower bound on its minimum, and how the run ended.
    history : one record for each point.

    Examples
    --------
    >>> from kernelcrf import ChainCRF
    >>> from kernelcrf.solvers import LBFGS, Newton, minimise
    >>> class Polished(Newton):
    ...     def solve(self, start, progress):
    ...         rough = minimise(progress.objective, LBFGS(), start, tol=0.1)
    ...         print(rough.status, rough.theta.shape, rough.n_iter == len(rough.history) - 1)
    ...         return super().solve(rough.theta, progress)
    >>> X, y = [[[0.0], [1.0]], [[1.0]]], [["a", "b"], ["b"]]
    >>> crf = ChainCRF("linear", solver=Polished()).fit(X, y)
    optimal (8,) True
    """

    evaluation: Evaluation
    certificate: Certificate
    history: tuple[Record, ...]

    @property
    def theta(self) -> Floats:
        """Return the parameters theta of the best point."""
        return self.evaluation.theta

    @property
    def status(self) -> str:
        """Return how the run ended: "optimal", "stationary", "stalled", "interrupted", or a stopping rule's name."""
        return self.certificate.status

    @property
    def n_iter(self) -> int:
        """Return the number of steps of the solver."""
        return len(self.history) - 1


@dataclass(eq=False)
class Progress:
    """The state of a solver's run. Solvers report points by calling `observe`.

    history : one record for each reported point.
    best : the point with the smallest objective so far.
    lower_bound : the largest lower bound so far on the minimum of the objective.
    sure_bound : the largest such bound from scores that were computed from the features, not updated along a line.
    passes : the number of passes over the data so far, which solvers update.

    Examples
    --------
    >>> from kernelcrf import ChainCRF
    >>> from kernelcrf.solvers import NewtonCG
    >>> class Reporting(NewtonCG):
    ...     def solve(self, start, progress):
    ...         status = super().solve(start, progress)
    ...         print(progress.solved, progress.is_stopped, progress.best.value == progress.history[-1].value)
    ...         return status
    >>> X, y = [[[0.0], [1.0]], [[1.0]]], [["a", "b"], ["b"]]
    >>> crf = ChainCRF("linear", solver=Reporting()).fit(X, y)
    True False True
    """

    objective: Objective
    tol: float
    stop: StoppingRule
    callback: Callable[[Sequence[Record]], None] | None = None
    keep: Callable[[Floats, list[Record]], None] | None = None
    history: list[Record] = field(default_factory=list)
    best: Evaluation | None = None
    lower_bound: float = -np.inf
    sure_bound: float = -np.inf
    passes: float = 0.0
    started: float = field(default_factory=time.perf_counter)

    def observe(self, at: Evaluation, step: float) -> None:
        """Add an evaluated point to the history, update the best point and the lower bound, and call the callbacks.

        step : the step length that led to this point, or NaN if it is not known.
        """
        self._check(at)
        self.lower_bound = max(self.lower_bound, at.lower_bound)
        if not at.is_moved:
            self.sure_bound = max(self.sure_bound, at.lower_bound)
        # The history comes first: if Ctrl-C interrupts in between, there is no best point without a record.
        self.history.append(self._record(at, step))
        if self.best is None or at.value <= self.best.value:
            self.best = at
        if self.callback is not None:
            self.callback(self.history)
        if self.keep is not None:
            self.keep(at.theta, self.history)

    def confirm(self, *, curvature: bool = False) -> Evaluation:
        """Return the best point; if its scores were updated along lines, first compute them from the features.

        Each update adds rounding errors. Objective values and bounds from updated scores are therefore replaced, and
        the last record of the history then describes the best point.

        curvature : whether the point must support products with the Hessian.
        """
        assert self.best is not None
        if self.best.is_moved:
            self.best = self.objective.evaluate(self.best.theta, curvature=curvature)
            self._check(self.best)
            self.passes += 1
            self.sure_bound = max(self.sure_bound, self.best.lower_bound)
        elif self.lower_bound == self.sure_bound:
            return self.best
        self.lower_bound = self.sure_bound
        self.history[-1] = self._record(self.best, self.history[-1].step)
        return self.best

    def _record(self, at: Evaluation, step: float) -> Record:
        gap = at.value - self.lower_bound if np.isfinite(self.lower_bound) else self.objective.gap(at)
        return Record(at.value, self.lower_bound, gap, step, self.passes, self.seconds)

    def _check(self, at: Evaluation) -> None:
        """Raise ValueError if the objective, its gradient or its lower bound overflows at the point `at`."""
        relative = (at.value - at.lower_bound) / max(abs(at.value), np.finfo(np.float64).tiny)
        finite = np.isfinite(at.value) and np.isfinite(self.objective.layout.squared_norm(at.gradient))
        if not finite or (self.objective.is_convex and not np.isfinite(relative)):
            raise ValueError(
                f"the objective is {at.value:.3g}, its lower bound {at.lower_bound:.3g} and its largest derivative "
                f"{np.abs(at.gradient).max(initial=0.0):.3g}, which overflow: expected smaller numbers; scale the "
                "inputs, for example with sklearn.preprocessing.StandardScaler, lower C and C_label, or use another "
                "kernel"
            )

    @property
    def solved(self) -> bool:
        """Return whether the run can end because the gap is within the tolerance.

        If the objective is convex, the gap plus the rounding error of the objective must be within the tolerance. If
        the rounding error alone exceeds the tolerance, more steps cannot help: the run ends as soon as the gap is
        within the tolerance, and `solution` reports "stalled".
        """
        if self.best is None or not self.objective.is_convex or self.history[-1].relative_gap > self.tol:
            return self.history[-1].relative_gap <= self.tol
        allowed, noise = self.tol * abs(self.best.value), self.objective.noise(self.best)
        return noise > allowed or max(self.best.value - self.lower_bound, 0.0) + noise <= allowed

    @property
    def is_stopped(self) -> bool:
        """Return whether the stopping rule ends the run."""
        return self.stop.is_reached(len(self.history) - 1, self.seconds)

    @property
    def seconds(self) -> float:
        """Return the time of the run so far."""
        return time.perf_counter() - self.started

    def solution(self, status: str) -> Solution:
        """Return the best point with its certificate, given the status that the solver returned.

        The status "optimal" is checked. If the objective is convex, the status becomes "stalled" if the gap plus the
        rounding error exceeds the tolerance. If the objective is not convex, the status becomes "stationary", or
        "stalled" if the gap exceeds the tolerance.
        """
        if self.best is None:
            raise KeyboardInterrupt
        self.confirm()
        noise, size = self.objective.noise(self.best), abs(self.best.value)
        if status == OPTIMAL and self.objective.is_convex:
            status = OPTIMAL if max(self.best.value - self.lower_bound, 0.0) + noise <= self.tol * size else STALLED
        elif status == OPTIMAL:
            status = STATIONARY if self.history[-1].relative_gap <= self.tol else STALLED
        rounding = max(ROUNDING[self.objective.precision], noise / max(1.0, size))
        certificate = Certificate(self.best.value, self.lower_bound, status, rounding=rounding)
        return Solution(self.best, certificate, tuple(self.history))


class Solver(Protocol):
    """Protocol of solvers. `solve` minimises an objective; `check` raises an error if the solver cannot minimise it.

    Examples
    --------
    >>> from kernelcrf import ChainCRF
    >>> from kernelcrf.solvers import NewtonCG, Solver
    >>> X, y = [[[0.0], [1.0]], [[1.0]]], [["a", "b"], ["b"]]
    >>> solver: Solver = NewtonCG()
    >>> ChainCRF("linear", solver=solver, tol=1e-6).fit(X, y).certificate_.status
    'optimal'
    """

    def check(self, objective: Objective) -> None:
        """Raise an error if this solver cannot minimise the objective. By default, the penalty must be smooth."""
        refuse_corners(objective)

    def solve(self, start: Floats, progress: Progress) -> str:
        """Minimise the objective from the parameters `start`, and return the status.

        Each point is reported to `progress`, which also has the objective.
        """
        ...


def refuse_corners(objective: Objective) -> None:
    """Raise ValueError if the penalty is not differentiable."""
    if not objective.layout.is_smooth:
        raise ValueError(
            "the solver needs a differentiable penalty, but the penalty of the objective is not differentiable: use "
            "solver='auto', or set penalty=None"
        )


@validated(tol=POSITIVE, max_iter=either(*ITERATIONS.constraints, *STOP.constraints))
def minimise(
    objective: Objective,
    solver: Solver,
    start: Floats,
    *,
    tol: float = 1e-4,
    max_iter: int | StoppingRule = 100,
    callback: Callable[[Sequence[Record]], None] | None = None,
    keep: Callable[[Floats, list[Record]], None] | None = None,
    earlier: Sequence[Record] = (),
) -> Solution:
    """Minimise the objective from the parameters `start`, until the certified gap is small enough.

    After Ctrl-C, the best point so far is returned.

    tol : the largest allowed gap, divided by the absolute value of the objective.
    max_iter : the largest number of steps, or a stopping rule.
    callback : a function that is called at every point with the history so far.
    keep : a function that is called at every point with the parameters of the point and the history so far.
    earlier : the history of an earlier run that ended at `start`; this run continues it. The lower bounds of the
        earlier run are not used.

    Examples
    --------
    >>> from kernelcrf import ChainCRF
    >>> from kernelcrf.solvers import LBFGS, Newton, minimise
    >>> class Polished(Newton):
    ...     def solve(self, start, progress):
    ...         rough = minimise(progress.objective, LBFGS(), start, tol=0.1)
    ...         return super().solve(rough.theta, progress)
    >>> X, y = [[[0.0], [1.0]], [[1.0]]], [["a", "b"], ["b"]]
    >>> ChainCRF("linear", solver=Polished(), tol=1e-10).fit(X, y).certificate_.status
    'optimal'
    """
    solver.check(objective)
    progress = Progress(objective, tol, find_stop(max_iter), callback, keep)
    if earlier:
        # Earlier lower bounds are not used: a certificate must depend only on the data of this run.
        progress.history = list(earlier[:-1])
        progress.passes, progress.started = earlier[-1].passes, progress.started - earlier[-1].seconds
    # Progress checks each point for overflow.
    with single_threaded_blas(), np.errstate(over="ignore", under="ignore", invalid="ignore"):
        try:
            status = solver.solve(objective.layout.project(np.asarray(start, np.float64)), progress)
        except KeyboardInterrupt:
            status = INTERRUPTED
        return progress.solution(status)


class Directions(Protocol):
    """Protocol of objects that compute descent directions for `descend`."""

    def direction(self, objective: Objective, at: Evaluation) -> tuple[Floats, float]:
        """Return a descent direction at the point `at`, and the number of passes over the data that this took."""
        ...


def descend(rule: Directions, start: Floats, progress: Progress, *, curvature: bool, wolfe: float) -> str:
    """Compute directions and search along them until the gap is within the tolerance; return the status.

    rule : computes the directions.
    curvature : whether the directions need products with the Hessian.
    wolfe : the largest allowed |slope| at the end of a line search, as a fraction of |slope| at its start.
    """
    objective = progress.objective
    at = objective.evaluate(start, curvature=curvature)
    progress.passes += 1
    progress.observe(at, 0.0)
    while True:
        if progress.solved:
            at = progress.confirm(curvature=curvature)
            if progress.solved:
                return OPTIMAL
        if progress.is_stopped:
            return progress.stop.name
        direction, passes = rule.direction(objective, at)
        progress.passes += passes + 0.5
        result = search(objective.ray(at, objective.layout.project_change(direction)), curvature=curvature, wolfe=wolfe)
        progress.passes += 0.5 * result.evaluations
        if result.at is None:
            return STALLED
        at = result.at
        progress.observe(at, result.step)
