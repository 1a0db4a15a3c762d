"""The paper's subspace descent: one clique template at a time, the one whose bound is the greatest (Corollary 10).

By Lemma 9 a template with gradient g_k can lower P by at most |g_k|^2 / (2 lam_k); where all these are below the
tolerance the run is certified, and those that are never the greatest are never touched.
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
class Subspace:
    """Newton directions within a template, by conjugate gradients to `rtol`.

    Examples
    --------
    >>> from kernelcrf import ChainCRF
    >>> from kernelcrf.datasets import make_sequences
    >>> from kernelcrf.solvers import SOLVERS, Subspace
    >>> data = make_sequences(20, random_state=0)
    >>> crf = ChainCRF("linear", solver="subspace").fit(data.X, data.y)
    >>> SOLVERS["subspace"] is Subspace, crf.certificate_.status
    (True, 'optimal')
    """

    rtol: float = 0.1
    cg_iter: int = 100

    def __post_init__(self) -> None:
        check_parameters(vars(self), {"rtol": SHARE, "cg_iter": COUNT})

    def check(self, objective: Objective) -> None:
        """Any objective will do."""

    def solve(self, start: Floats, progress: Progress) -> str:
        """One template a step."""
        return descend(self, start, progress, curvature=True, wolfe=0.5)

    def direction(self, objective: Objective, at: Evaluation) -> tuple[Floats, float]:
        """The Newton direction of the template with the greatest bound; zero for all others."""
        bounds = objective.layout.squared_dual_norms(at.gradient)
        part = objective.layout.slices[max(bounds, key=lambda name: bounds[name])]

        def product(v: Floats) -> Floats:
            whole = np.zeros(objective.layout.size)
            whole[part] = v
            return objective.hessian_product(at, whole)[part]

        d = np.zeros(objective.layout.size)
        d[part], products = solve_cg(product, at.gradient[part], None, self.rtol, self.cg_iter)
        return d, float(products)
