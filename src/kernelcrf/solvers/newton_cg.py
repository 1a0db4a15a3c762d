"""Newton's method (19) with exact curvature: H d = -g by preconditioned conjugate gradients, only as exact as needed.

The residual of the linear system is the gradient at the next point if the model is right, and the certified gap is
proportional to its square. Each system is therefore solved to a fixed share of the gradient, and the last one just far
enough for the gap to end below the tolerance.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from kernelcrf.arrays import Floats
from kernelcrf.objective import Evaluation, Objective
from kernelcrf.solvers.conjugate_gradients import solve_cg
from kernelcrf.solvers.loop import Progress, descend
from kernelcrf.solvers.preconditioners import Preconditioning
from kernelcrf.validation import COUNT, SHARE, check_parameters


@dataclass(frozen=True)
class NewtonCG:
    """Newton-CG with at most `cg_iter` products per direction; each system is solved to a `share` of its right side.

    Examples
    --------
    >>> from kernelcrf import ChainCRF
    >>> from kernelcrf.datasets import make_sequences
    >>> from kernelcrf.solvers import NewtonCG
    >>> data = make_sequences(20, random_state=0)
    >>> crf = ChainCRF("linear", solver=NewtonCG()).fit(data.X, data.y)
    >>> crf.certificate_.status
    'optimal'
    """

    share: float = 0.5
    cg_iter: int = 250

    def __post_init__(self) -> None:
        check_parameters(vars(self), {"share": SHARE, "cg_iter": COUNT})

    def check(self, objective: Objective) -> None:
        """Accept any objective."""

    def solve(self, start: Floats, progress: Progress) -> str:
        """Run with directions by conjugate gradients and steps by the common search."""
        rule = _Directions(self, Preconditioning.of(progress.objective), progress)
        return descend(rule, start, progress, curvature=True, wolfe=0.9)


@dataclass(frozen=True, eq=False)
class _Directions:
    solver: NewtonCG
    preconditioning: Preconditioning
    progress: Progress

    def direction(self, objective: Objective, at: Evaluation) -> tuple[Floats, float]:
        gap = self.progress.history[-1].relative_gap
        enough = np.sqrt(0.25 * self.progress.tol / gap)
        rtol = float(max(min(self.solver.share, np.sqrt(gap)), enough))
        inverse = self.preconditioning.at(at).inverse
        d, products = solve_cg(
            lambda v: objective.hessian_product(at, v), at.gradient, inverse, min(rtol, 0.9), self.solver.cg_iter
        )
        return d, float(products)
