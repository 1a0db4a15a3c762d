"""Newton's method (19) with the Hessian as a matrix: for small problems, quadratically convergent."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.linalg import cho_solve

from kernelcrf.arrays import Floats
from kernelcrf.objective import Evaluation, Objective
from kernelcrf.solvers.cholesky import lower_factor
from kernelcrf.solvers.loop import Progress, descend
from kernelcrf.validation import COUNT


@dataclass(frozen=True)
class Newton:
    """Newton's method for at most `most` parameters: the Hessian takes one product for each.

    Examples
    --------
    >>> from kernelcrf import ChainCRF
    >>> from kernelcrf.datasets import make_sequences
    >>> from kernelcrf.solvers import Newton
    >>> data = make_sequences(20, random_state=0)
    >>> crf = ChainCRF("linear", solver=Newton()).fit(data.X, data.y)
    >>> crf.certificate_.status
    'optimal'
    """

    most: int = 2000

    def __post_init__(self) -> None:
        COUNT.check("most", self.most)

    def check(self, objective: Objective) -> None:
        """Raise if the Hessian would be too large."""
        if objective.layout.size > self.most:
            raise ValueError(
                f"solver='newton' forms the Hessian of {objective.layout.size} parameters: expected at most "
                f"{self.most}; use 'newton-cg', which needs only its products"
            )

    def solve(self, start: Floats, progress: Progress) -> str:
        """Run with directions by Cholesky and steps by the common search."""
        return descend(self, start, progress, curvature=True, wolfe=0.9)

    def direction(self, objective: Objective, at: Evaluation) -> tuple[Floats, float]:
        """Return -H^-1 g, and one pass for each column of H."""
        n = objective.layout.size
        H = np.column_stack([objective.hessian_product(at, e) for e in np.eye(n)])
        return np.asarray(-cho_solve((lower_factor((H + H.T) / 2), True), at.gradient)), float(n)
