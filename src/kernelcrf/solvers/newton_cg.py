"""Newton's method (19) with exact curvature: H d = -g by preconditioned conjugate gradients, as exact as it pays.

The residual of the linear system is the gradient that the next point will have if the model is right, and the certified
gap goes with its square: so a system is solved to a fixed share of the gradient, and the last one just so far that
the gap ends below the tolerance.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from kernelcrf.objective import Evaluation, Objective
from kernelcrf.solvers.conjugate_gradients import solve_cg
from kernelcrf.solvers.loop import Progress, descend
from kernelcrf.solvers.preconditioners import Preconditioning
from kernelcrf.validation import COUNT, SHARE, check_parameters

Floats = npt.NDArray[np.float64]


@dataclass(frozen=True)
class NewtonCG:
    """At most `cg_iter` products a direction, each system solved to at most `share` of its right side.

    Examples
    --------
    >>> from kernelcrf import ChainCRF
    >>> from kernelcrf.datasets import make_sequences
    >>> from kernelcrf.solvers import SOLVERS, NewtonCG
    >>> data = make_sequences(20, random_state=0)
    >>> crf = ChainCRF("linear", solver="newton-cg").fit(data.X, data.y)
    >>> SOLVERS["newton-cg"] is NewtonCG, crf.certificate_.status
    (True, 'optimal')
    """

    share: float = 0.5
    cg_iter: int = 250

    def __post_init__(self) -> None:
        check_parameters(vars(self), {"share": SHARE, "cg_iter": COUNT})

    def check(self, objective: Objective) -> None:
        """Any objective will do."""

    def solve(self, start: Floats, progress: Progress) -> str:
        """Directions by conjugate gradients, steps by the common search."""
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
