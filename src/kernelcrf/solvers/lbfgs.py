"""Minimise the objective with SciPy's L-BFGS in preconditioned variables, until the gap is within the tolerance.

The preconditioner M = E E' with a factor E (see `preconditioners`) approximates the Hessian. L-BFGS minimises over new
variables phi, which determine the parameters theta = E^-T phi. The Hessian with respect to phi is close to the
identity, which is what L-BFGS assumes at the start.

M is computed from the variances p (1 - p) of labels at theta = 0, where p are the probabilities of the labels. They are
divided by four, because in a fitted model the probabilities are closer to 0 and 1. M is not computed at the weights of
an earlier fit: most variances are tiny there, and would hide which weights the data determine. If labels are missing,
M is computed at the starting point.

With an L1 penalty l1 |theta|_1, the objective is not differentiable. L-BFGS then minimises over theta = theta+ - theta-
with theta+, theta- >= 0, and the penalty is l1 times the sum of all theta+ and theta-. At the minimum, one of each pair
is zero. M is diagonal in this case, so that each variable of L-BFGS has the bound 0.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from scipy.optimize import Bounds, minimize

from kernelcrf.arrays import Floats
from kernelcrf.objective import Evaluation, Objective
from kernelcrf.solvers.loop import OPTIMAL, STALLED, Progress, Solver
from kernelcrf.solvers.preconditioners import Preconditioner, Preconditioning
from kernelcrf.validation import COUNT, FLAG, check_parameters

SHARE = 0.25
PAIRS_BYTES, LEAST_PAIRS = 2**29, 5


@dataclass(frozen=True)
class LBFGS(Solver):
    """L-BFGS, a quasi-Newton method that needs only gradients.

    memory : the number of past steps from which the curvature is estimated. Fewer steps are stored if there are very
        many parameters.
    precondition : whether to transform the parameters first, so that fewer steps are needed.

    Examples
    --------
    >>> from kernelcrf import ChainCRF
    >>> from kernelcrf.solvers import LBFGS
    >>> X, y = [[[0.0], [1.0]], [[1.0]]], [["a", "b"], ["b"]]
    >>> ChainCRF("linear", solver=LBFGS()).fit(X, y).certificate_.status
    'optimal'
    """

    memory: int = 20
    precondition: bool = True

    def __post_init__(self) -> None:
        check_parameters(vars(self), {"memory": COUNT, "precondition": FLAG})

    def check(self, objective: Objective) -> None:
        if objective.layout.absolute is None:
            raise ValueError(
                "solver='lbfgs' expects a differentiable penalty or an ElasticNet, and the model has another "
                "penalty: use solver='proximal' or 'auto'"
            )

    def solve(self, start: Floats, progress: Progress) -> str:
        objective = progress.objective
        latest = objective.evaluate(start)
        progress.passes += 1
        progress.observe(latest, 0.0)
        if progress.solved:
            return OPTIMAL
        variables = self._variables(latest, progress)
        first = variables.first

        def evaluate(phi: Floats) -> tuple[float, Floats]:
            nonlocal latest
            if np.any(phi != first):
                progress.passes += 1
                latest = objective.evaluate(objective.layout.project(variables.theta(phi)))
            return variables.derivative(phi, latest)

        status = progress.stop.name if progress.is_stopped else STALLED

        def report(intermediate_result: Any) -> None:
            nonlocal status
            progress.observe(latest, np.nan)
            if progress.solved or progress.is_stopped:
                status = OPTIMAL if progress.solved else progress.stop.name
                raise StopIteration

        pairs = min(self.memory, max(PAIRS_BYTES // (16 * len(start)), LEAST_PAIRS))
        bounds = variables.bounds
        options: Any = {"maxcor": pairs, "maxiter": 10**9, "maxfun": 10**9, "ftol": 0, "gtol": 0}
        minimize(evaluate, first, jac=True, method="L-BFGS-B", bounds=bounds, callback=report, options=options)
        return status

    def _variables(self, start: Evaluation, progress: Progress) -> _Whole | _Halves:
        """Return the variables over which L-BFGS minimises, given the starting point.

        The preconditioner is computed at theta = 0 if the objective is convex, otherwise at the starting point.
        """
        objective, at = progress.objective, start
        layout = objective.layout
        if self.precondition and objective.is_convex and np.any(start.theta):
            at = objective.evaluate(np.zeros_like(start.theta))
            progress.passes += 1
        if layout.is_smooth:
            return _Whole(start.theta, Preconditioning.of(objective).at(at, SHARE) if self.precondition else None)
        diagonal = Preconditioning(objective, {}).diagonal(at, SHARE) if self.precondition else np.ones(layout.size)
        assert layout.absolute is not None
        return _Halves(start.theta, 1 / np.sqrt(diagonal), layout.absolute)


@dataclass(frozen=True, eq=False)
class _Whole:
    """Variables phi that determine theta = start + E^-T phi, with the preconditioner M = E E'."""

    start: Floats
    M: Preconditioner | None
    bounds: ClassVar[Bounds | None] = None

    @property
    def first(self) -> Floats:
        return np.zeros(len(self.start))

    def theta(self, phi: Floats) -> Floats:
        return np.asarray(self.start + (phi if self.M is None else self.M.back(phi)))

    def derivative(self, phi: Floats, at: Evaluation) -> tuple[float, Floats]:
        return at.value, at.gradient if self.M is None else self.M.forward(at.gradient)


@dataclass(frozen=True, eq=False)
class _Halves:
    """Variables phi = (phi+, phi-) >= 0 that determine theta = scale * (phi+ - phi-), for an L1 penalty.

    l1 : the factor of the L1 penalty of each weight.
    """

    start: Floats
    scale: Floats
    l1: Floats

    @property
    def bounds(self) -> Bounds:
        # SciPy changes the shape of this object, so that it cannot be used twice.
        return Bounds(0.0, np.inf)

    @property
    def first(self) -> Floats:
        return np.concatenate([np.maximum(self.start, 0.0), np.maximum(-self.start, 0.0)]) / np.tile(self.scale, 2)

    def theta(self, phi: Floats) -> Floats:
        positive, negative = np.split(phi, 2)
        return np.asarray(self.scale * (positive - negative))

    def derivative(self, phi: Floats, at: Evaluation) -> tuple[float, Floats]:
        positive, negative = np.split(phi, 2)
        # at.value has |theta|_1 instead of the sum of both halves.
        value = at.value + 2 * float(np.dot(self.l1 * self.scale, np.minimum(positive, negative)))
        return value, np.concatenate([self.scale * (self.l1 + at.gradient), self.scale * (self.l1 - at.gradient)])
