"""Minimise the objective with SciPy's L-BFGS in preconditioned variables, until the gap is within the tolerance.

The preconditioner M = E E' with a factor E (see `preconditioners`) approximates the Hessian. L-BFGS minimises over new
variables phi, which determine the parameters theta = E^-T phi. The Hessian with respect to phi is close to the
identity, which is what L-BFGS assumes at the start.

M is computed from the variances p (1 - p) of labels at theta = 0, where p are the probabilities of the labels. They are
divided by four, because in a fitted model the probabilities are closer to 0 and 1. M is not computed at the weights of
an earlier fit: most variances are tiny there, and would hide which weights the data determine. If labels are missing,
M is computed at the starting point.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.optimize import minimize

from kernelcrf.arrays import Floats
from kernelcrf.objective import Evaluation
from kernelcrf.solvers.loop import OPTIMAL, OUT_OF_ITERATIONS, STALLED, Progress, Solver
from kernelcrf.solvers.preconditioners import Preconditioner, Preconditioning
from kernelcrf.validation import COUNT, FLAG, check_parameters

SHARE = 0.25
PAIRS_BYTES, LEAST_PAIRS = 2**29, 5


@dataclass(frozen=True)
class LBFGS(Solver):
    """L-BFGS, a quasi-Newton method that needs only gradients.

    memory : from how many past steps the curvature is estimated. Fewer steps are stored if there are very many
        parameters.
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

    def solve(self, start: Floats, progress: Progress) -> str:
        objective = progress.objective
        latest = objective.evaluate(start)
        progress.passes += 1
        progress.observe(latest, 0.0)
        if progress.solved:
            return OPTIMAL
        M = self._preconditioner(latest, progress) if self.precondition else None

        def evaluate(phi: Floats) -> tuple[float, Floats]:
            nonlocal latest
            theta = objective.layout.project(start + (phi if M is None else M.back(phi)))
            if np.any(phi):
                progress.passes += 1
                latest = objective.evaluate(theta)
            return latest.value, latest.gradient if M is None else M.forward(latest.gradient)

        status = OUT_OF_ITERATIONS if progress.out_of_iterations else STALLED

        def report(intermediate_result: Any) -> None:
            nonlocal status
            progress.observe(latest, np.nan)
            if progress.solved or progress.out_of_iterations:
                status = OPTIMAL if progress.solved else OUT_OF_ITERATIONS
                raise StopIteration

        pairs = min(self.memory, max(PAIRS_BYTES // (16 * len(start)), LEAST_PAIRS))
        options: Any = {"maxcor": pairs, "maxiter": progress.max_iter + 1, "maxfun": 10**9, "ftol": 0, "gtol": 0}
        minimize(evaluate, np.zeros(len(start)), jac=True, method="L-BFGS-B", callback=report, options=options)
        return status

    @staticmethod
    def _preconditioner(start: Evaluation, progress: Progress) -> Preconditioner:
        """Return the preconditioner for theta = 0 if the objective is convex, otherwise for the starting point."""
        objective, at = progress.objective, start
        if objective.is_convex and np.any(start.theta):
            at = objective.evaluate(np.zeros_like(start.theta))
            progress.passes += 1
        return Preconditioning.of(objective).at(at, SHARE)
