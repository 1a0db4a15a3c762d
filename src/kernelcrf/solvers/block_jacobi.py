"""The paper's method: Newton steps with the blocks (30), which leave out covariances between cliques.

Alone they can overshoot without end: where transitions are strong, labels move together, and the blocks underestimate
the curvature by more than the factor of two that a full step survives. Steps come from an exact line search, which
makes every one a descent.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from kernelcrf.objective import Evaluation, Objective
from kernelcrf.solvers.conjugate_gradients import solve_cg
from kernelcrf.solvers.loop import Progress, descend
from kernelcrf.validation import COUNT, SHARE, check_parameters

Floats = npt.NDArray[np.float64]


@dataclass(frozen=True)
class BlockJacobi:
    """The blocks are solved by conjugate gradients to `rtol`, within `cg_iter` products of one pass each.

    Examples
    --------
    >>> from kernelcrf import ChainCRF
    >>> from kernelcrf.datasets import make_sequences
    >>> from kernelcrf.solvers import SOLVERS, BlockJacobi
    >>> data = make_sequences(20, random_state=0)
    >>> crf = ChainCRF("linear", solver="block-jacobi").fit(data.X, data.y)
    >>> SOLVERS["block-jacobi"] is BlockJacobi, crf.certificate_.status
    (True, 'optimal')
    """

    rtol: float = 0.05
    cg_iter: int = 100

    def __post_init__(self) -> None:
        check_parameters(vars(self), {"rtol": SHARE, "cg_iter": COUNT})

    def check(self, objective: Objective) -> None:
        """Any objective will do."""

    def solve(self, start: Floats, progress: Progress) -> str:
        """Directions by the blocks, steps by an exact search."""
        return descend(self, start, progress, curvature=False, wolfe=0.1)

    def direction(self, objective: Objective, at: Evaluation) -> tuple[Floats, float]:
        """The blocks' Newton direction."""
        d, products = solve_cg(lambda v: objective.block_product(at, v), at.gradient, None, self.rtol, self.cg_iter)
        return d, float(products)
