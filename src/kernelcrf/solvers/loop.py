"""What all solvers share: the record of a run, its stopping rule, and the loop of those that go by directions.

A run ends as soon as the certified gap, P minus the greatest lower bound of all points evaluated, is at most `tol` |P|.
If labels are missing, P is not convex and has no such bound. The same expression of the gradient,
sum_k |g_k|^2 / (2 lam_k), then measures how stationary a point is, and a run that makes it small enough ends
"stationary", never "optimal".
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Protocol

import numpy as np
import numpy.typing as npt

from kernelcrf.certificate import ROUNDING, Certificate
from kernelcrf.engines.local import single_threaded_blas
from kernelcrf.objective import Evaluation, Objective
from kernelcrf.solvers.line_search import search
from kernelcrf.validation import POSITIVE, either, validated, whole

Floats = npt.NDArray[np.float64]

OPTIMAL, STATIONARY = "optimal", "stationary"
OUT_OF_ITERATIONS, OUT_OF_COMPONENTS = "max_iter", "max_components"
STALLED, INTERRUPTED = "stalled", "interrupted"


@dataclass(frozen=True)
class Record:
    """One point of a run: P, its gap as known then, the step taken to it, and passes and seconds since the start.

    The step is nan where a solver does not tell it (L-BFGS).

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
        """gap / |P|."""
        return self.gap / max(abs(self.value), np.finfo(np.float64).tiny)


@dataclass(frozen=True, eq=False)
class Solution:
    """The best point of a run, what is certified of it, and how it was reached.

    Examples
    --------
    >>> import numpy as np
    >>> from kernelcrf.corpora.sequences import LabelledSequences
    >>> from kernelcrf.datasets import make_sequences
    >>> from kernelcrf.engines.local import LocalEngine
    >>> from kernelcrf.fitting import Settings, fit
    >>> from kernelcrf.graphs.structure import Chains
    >>> from kernelcrf.kernels.inputs import InputKernel
    >>> data = make_sequences(10, random_state=0)
    >>> chains = Chains.from_lengths([len(labels) for labels in data.y])
    >>> sequences = LabelledSequences(np.vstack(data.X), chains, np.hstack(data.y), n_labels=3)
    >>> solution = fit(sequences, Settings(InputKernel("linear")), LocalEngine()).solution
    >>> solution.status, solution.theta.shape, solution.n_iter == len(solution.history) - 1
    ('optimal', (15,), True)
    """

    evaluation: Evaluation
    certificate: Certificate
    history: tuple[Record, ...]

    @property
    def theta(self) -> Floats:
        """The parameters."""
        return self.evaluation.theta

    @property
    def status(self) -> str:
        """How the run ended: optimal, stationary, max_iter, stalled or interrupted."""
        return self.certificate.status

    @property
    def n_iter(self) -> int:
        """Steps taken."""
        return len(self.history) - 1


@dataclass(eq=False)
class Progress:
    """A run as it goes: its history, its best point and the greatest lower bound so far.

    Examples
    --------
    >>> import numpy as np
    >>> from kernelcrf.corpora.sequences import LabelledSequences
    >>> from kernelcrf.datasets import make_sequences
    >>> from kernelcrf.engines.local import LocalEngine
    >>> from kernelcrf.fitting import Settings, fit
    >>> from kernelcrf.graphs.structure import Chains
    >>> from kernelcrf.kernels.inputs import InputKernel
    >>> from kernelcrf.solvers import Progress
    >>> data = make_sequences(10, random_state=0)
    >>> chains = Chains.from_lengths([len(labels) for labels in data.y])
    >>> sequences = LabelledSequences(np.vstack(data.X), chains, np.hstack(data.y), n_labels=3)
    >>> fitted = fit(sequences, Settings(InputKernel("linear")), LocalEngine())
    >>> progress = Progress(fitted.objective, tol=1e-4, max_iter=100)
    >>> progress.observe(fitted.solution.evaluation, step=0.0)  # the certified point of the fit
    >>> progress.solved, progress.out_of_iterations, progress.solution("optimal").status
    (True, False, 'optimal')
    """

    objective: Objective
    tol: float
    max_iter: int
    callback: Callable[[Record], None] | None = None
    keep: Callable[[Floats, list[Record]], None] | None = None
    history: list[Record] = field(default_factory=list)
    best: Evaluation | None = None
    lower_bound: float = -np.inf
    passes: float = 0.0
    started: float = field(default_factory=time.perf_counter)

    def observe(self, at: Evaluation, step: float) -> None:
        """Take a point into the record."""
        self._check(at)
        self.lower_bound = max(self.lower_bound, at.lower_bound)
        norms = self.objective.layout.squared_dual_norms(at.gradient)
        gap = at.value - self.lower_bound if np.isfinite(self.lower_bound) else 0.5 * sum(norms.values())
        record = Record(at.value, self.lower_bound, gap, step, self.passes, time.perf_counter() - self.started)
        # In this order: an interruption in between leaves no best point without a record.
        self.history.append(record)
        if self.best is None or at.value <= self.best.value:
            self.best = at
        if self.callback is not None:
            self.callback(record)
        if self.keep is not None:
            self.keep(at.theta, self.history)

    def _check(self, at: Evaluation) -> None:
        """Numbers that overflow have no optimum, and no bound."""
        relative = (at.value - at.lower_bound) / max(abs(at.value), np.finfo(np.float64).tiny)
        finite = np.isfinite(at.value) and np.isfinite(self.objective.layout.squared_norm(at.gradient))
        if not finite or (self.objective.is_convex and not np.isfinite(relative)):
            raise ValueError(
                f"the objective is {at.value:.3g}, within a bound of {at.lower_bound:.3g} and with a gradient of up to "
                f"{np.abs(at.gradient).max(initial=0.0):.3g}: numbers of this size overflow. Scale the inputs, as "
                "sklearn.preprocessing.StandardScaler does, lower C, or use a kernel of smaller values"
            )

    @property
    def solved(self) -> bool:
        """Whether the last point is certified to `tol`."""
        return self.history[-1].relative_gap <= self.tol

    @property
    def out_of_iterations(self) -> bool:
        """Whether `max_iter` steps were taken."""
        return len(self.history) > self.max_iter

    def solution(self, status: str) -> Solution:
        """Return what the run found.

        A solver's word for "optimal" is checked: it is "stalled" if the gap is above `tol`, and "stationary" if the
        objective is not convex.
        """
        if self.best is None:
            raise KeyboardInterrupt
        if status == OPTIMAL and not self.solved:
            status = STALLED
        if status == OPTIMAL and not self.objective.is_convex:
            status = STATIONARY
        rounding = ROUNDING[self.objective.dtype]
        certificate = Certificate(self.best.value, self.lower_bound, status, rounding=rounding)
        return Solution(self.best, certificate, tuple(self.history))


class Solver(Protocol):
    """A way to minimise P. It states what it needs, and refuses what does not fit before it starts.

    Examples
    --------
    >>> import numpy as np
    >>> from kernelcrf.corpora.sequences import LabelledSequences
    >>> from kernelcrf.datasets import make_sequences
    >>> from kernelcrf.engines.local import LocalEngine
    >>> from kernelcrf.fitting import Settings, fit
    >>> from kernelcrf.graphs.structure import Chains
    >>> from kernelcrf.kernels.inputs import InputKernel
    >>> from kernelcrf.solvers import NewtonCG, Solver, minimise
    >>> data = make_sequences(10, random_state=0)
    >>> chains = Chains.from_lengths([len(labels) for labels in data.y])
    >>> sequences = LabelledSequences(np.vstack(data.X), chains, np.hstack(data.y), n_labels=3)
    >>> objective = fit(sequences, Settings(InputKernel("linear")), LocalEngine()).objective
    >>> solver: Solver = NewtonCG()
    >>> minimise(objective, solver, np.zeros(objective.layout.size), tol=1e-6).status
    'optimal'
    """

    def check(self, objective: Objective) -> None:
        """Raise where the objective is none for this solver."""
        ...

    def solve(self, start: Floats, progress: Progress) -> str:
        """Run from `start`, reporting each point to `progress`; returns the status."""
        ...


@validated(tol=POSITIVE, max_iter=either(whole(least=0)))
def minimise(
    objective: Objective,
    solver: Solver,
    start: Floats,
    *,
    tol: float = 1e-4,
    max_iter: int = 100,
    callback: Callable[[Record], None] | None = None,
    keep: Callable[[Floats, list[Record]], None] | None = None,
    earlier: Sequence[Record] = (),
) -> Solution:
    """Minimise P from `start` until its relative certified gap is at most `tol`. Ctrl-C keeps the best point.

    callback, keep : are told of every point, the latter of its theta and of the history up to it.
    earlier : the history of a run that ended at `start`, which this one continues. Its lower bounds are not used.

    Examples
    --------
    >>> import numpy as np
    >>> from kernelcrf.corpora.sequences import LabelledSequences
    >>> from kernelcrf.datasets import make_sequences
    >>> from kernelcrf.engines.local import LocalEngine
    >>> from kernelcrf.fitting import Settings, fit
    >>> from kernelcrf.graphs.structure import Chains
    >>> from kernelcrf.kernels.inputs import InputKernel
    >>> from kernelcrf.solvers import Newton, minimise
    >>> data = make_sequences(10, random_state=0)
    >>> chains = Chains.from_lengths([len(labels) for labels in data.y])
    >>> sequences = LabelledSequences(np.vstack(data.X), chains, np.hstack(data.y), n_labels=3)
    >>> objective = fit(sequences, Settings(InputKernel("linear")), LocalEngine()).objective
    >>> solution = minimise(objective, Newton(), np.zeros(objective.layout.size), tol=1e-10)
    >>> solution.status, bool(solution.certificate.relative_gap <= 1e-10)
    ('optimal', True)
    """
    solver.check(objective)
    progress = Progress(objective, tol, max_iter, callback, keep)
    if earlier:
        # Bounds are not taken up: a certificate rests on what was computed on these data alone.
        progress.history = list(earlier[:-1])
        progress.passes, progress.started = earlier[-1].passes, progress.started - earlier[-1].seconds
    # What overflows on the way to a point is found in the point itself.
    with single_threaded_blas(), np.errstate(over="ignore", under="ignore", invalid="ignore"):
        try:
            status = solver.solve(np.asarray(start, np.float64), progress)
        except KeyboardInterrupt:
            status = INTERRUPTED
    return progress.solution(status)


class Directions(Protocol):
    """A rule for the next direction."""

    def direction(self, objective: Objective, at: Evaluation) -> tuple[Floats, float]:
        """A descent direction at a point, and the passes it took."""
        ...


def descend(rule: Directions, start: Floats, progress: Progress, *, curvature: bool, wolfe: float) -> str:
    """Direction, line search, next point, until certified; `curvature` is what points are evaluated with."""
    objective = progress.objective
    at = objective.evaluate(start, curvature=curvature)
    progress.passes += 1
    progress.observe(at, 0.0)
    while not progress.solved:
        if progress.out_of_iterations:
            return OUT_OF_ITERATIONS
        direction, passes = rule.direction(objective, at)
        progress.passes += passes + 0.5
        found = search(objective.ray(at, direction), curvature=curvature, wolfe=wolfe)
        progress.passes += 0.5 * found.evaluations
        if found.at is None:
            return STALLED
        at = found.at
        progress.observe(at, found.step)
    return OPTIMAL
