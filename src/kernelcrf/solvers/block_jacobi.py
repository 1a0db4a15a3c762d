"""The paper's method: Newton steps with the blocks (30), which leave out covariances between cliques.

Full steps can diverge: with strong transitions labels move together, and the blocks underestimate the curvature by more
than the factor of two that a full step survives. An exact line search makes every step a descent.
"""

from __future__ import annotations

from dataclasses import dataclass

from kernelcrf.arrays import Floats
from kernelcrf.objective import Evaluation, Objective
from kernelcrf.solvers.conjugate_gradients import solve_cg
from kernelcrf.solvers.loop import Progress, descend
from kernelcrf.validation import COUNT, SHARE, check_parameters


@dataclass(frozen=True)
class BlockJacobi:
    """Newton steps with the blocks, solved by conjugate gradients to `rtol` within `cg_iter` products of one pass each.

    Examples
    --------
    >>> from kernelcrf import ChainCRF
    >>> from kernelcrf.datasets import make_sequences
    >>> from kernelcrf.solvers import BlockJacobi
    >>> data = make_sequences(20, random_state=0)
    >>> crf = ChainCRF("linear", solver=BlockJacobi()).fit(data.X, data.y)
    >>> crf.certificate_.status
    'optimal'
    """

    rtol: float = 0.05
    cg_iter: int = 100

    def __post_init__(self) -> None:
        check_parameters(vars(self), {"rtol": SHARE, "cg_iter": COUNT})

    def check(self, objective: Objective) -> None:
        """Accept any objective."""

    def solve(self, start: Floats, progress: Progress) -> str:
        """Run with directions by the blocks and steps by an exact search."""
        return descend(self, start, progress, curvature=False, wolfe=0.1)

    def direction(self, objective: Objective, at: Evaluation) -> tuple[Floats, float]:
        """Return the blocks' Newton direction."""
        d, products = solve_cg(lambda v: objective.block_product(at, v), at.gradient, None, self.rtol, self.cg_iter)
        return d, float(products)
