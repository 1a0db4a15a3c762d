"""The paper's subspace descent: one term at a time, the one with the greatest bound (Corollary 10).

By Lemma 9 a term with gradient g_k can lower P by at most |g_k|^2 / (2 lam_k). If all these bounds are below the
tolerance, the run is certified; terms whose bound is never the greatest are never changed.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from kernelcrf.arrays import Floats
from kernelcrf.objective import Evaluation, Objective
from kernelcrf.solvers.conjugate_gradients import solve_cg
from kernelcrf.solvers.loop import Progress, descend
from kernelcrf.validation import COUNT, SHARE, check_parameters


@dataclass(frozen=True)
class Subspace:
    """Newton directions within one term, by conjugate gradients to `rtol`.

    Examples
    --------
    >>> from kernelcrf import ChainCRF
    >>> from kernelcrf.datasets import make_sequences
    >>> from kernelcrf.solvers import Subspace
    >>> data = make_sequences(20, random_state=0)
    >>> crf = ChainCRF("linear", solver=Subspace()).fit(data.X, data.y)
    >>> crf.certificate_.status
    'optimal'
    """

    rtol: float = 0.1
    cg_iter: int = 100

    def __post_init__(self) -> None:
        check_parameters(vars(self), {"rtol": SHARE, "cg_iter": COUNT})

    def check(self, objective: Objective) -> None:
        """Accept any objective."""

    def solve(self, start: Floats, progress: Progress) -> str:
        """Run with one term per step."""
        return descend(self, start, progress, curvature=True, wolfe=0.5)

    def direction(self, objective: Objective, at: Evaluation) -> tuple[Floats, float]:
        """Return the Newton direction of the term with the greatest bound; zero for all others."""
        bounds = objective.layout.squared_dual_norms(at.gradient)
        part = objective.layout.slices[max(bounds, key=lambda name: bounds[name])]

        def product(v: Floats) -> Floats:
            whole = np.zeros(objective.layout.size)
            whole[part] = v
            return objective.hessian_product(at, whole)[part]

        d = np.zeros(objective.layout.size)
        d[part], products = solve_cg(product, at.gradient[part], None, self.rtol, self.cg_iter)
        return d, float(products)
