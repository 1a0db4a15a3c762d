"""Newton's method, equation (19) of the paper, and two methods of the paper that solve part of Newton's linear system.

With the gradient g and the Hessian H of the objective P, Newton's direction d solves H d = -g.

    Newton        computes H, one product per column: converges quadratically, for small problems
    NewtonCG      solves H d = -g by preconditioned conjugate gradients, only as accurately as needed
    BlockJacobi   replaces H by a block-diagonal matrix, equation (30), without covariances between cliques
    Subspace      solves for the parameters of a single term, the term with the largest bound (Corollary 10)

NewtonCG: if P were quadratic, the residual of the linear system would be the gradient at the next point, and the
certified gap would be proportional to its square. Each system is therefore solved until the residual is a certain
fraction of the gradient; this fraction is smaller near the optimum. The last system is only solved until the gap would
fall below the tolerance.

BlockJacobi: with strong transitions, the labels of neighbours depend on each other. The blocks can then have less than
half of the true curvature, and full steps would diverge. A nearly exact line search prevents this.

Subspace: by Lemma 9, changing the parameters of a term with gradient g_k and regularisation lam_k lowers P by at most
|g_k|^2 / (2 lam_k). If the sum of these bounds over all terms is small enough, the gap is within the tolerance. A term
whose bound is never the largest never changes.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.linalg import cho_solve

from kernelcrf.arrays import Floats
from kernelcrf.objective import Evaluation, Objective
from kernelcrf.solvers.linear_systems import lower_factor, solve_cg
from kernelcrf.solvers.loop import Progress, Solver, descend, refuse_corners
from kernelcrf.solvers.preconditioners import Preconditioning
from kernelcrf.validation import COUNT, SHARE, check_parameters


@dataclass(frozen=True)
class Newton(Solver):
    """Newton's method for small problems.

    most : the largest number of parameters that is accepted. Computing the Hessian takes one pass over the data per
        parameter.

    Examples
    --------
    >>> from kernelcrf import ChainCRF
    >>> from kernelcrf.solvers import Newton
    >>> X, y = [[[0.0], [1.0]], [[1.0]]], [["a", "b"], ["b"]]
    >>> ChainCRF("linear", solver=Newton()).fit(X, y).certificate_.status
    'optimal'
    """

    most: int = 2000

    def __post_init__(self) -> None:
        COUNT.check("most", self.most)

    def check(self, objective: Objective) -> None:
        refuse_corners(objective)
        if objective.layout.size > self.most:
            raise ValueError(
                f"solver='newton' would form the Hessian of {objective.layout.size} parameters: expected at most "
                f"{self.most}. Use solver='newton-cg', which does not form the Hessian"
            )

    def solve(self, start: Floats, progress: Progress) -> str:
        return descend(self, start, progress, curvature=True, wolfe=0.9)

    def direction(self, objective: Objective, at: Evaluation) -> tuple[Floats, float]:
        """Return the Newton direction -H^-1 g, with the Hessian H and the gradient g, and the number of passes.

        Computing H takes one pass over the data per parameter.
        """
        n = objective.layout.size
        H = np.column_stack([objective.hessian_product(at, e) for e in np.eye(n)])
        return np.asarray(-cho_solve((lower_factor((H + H.T) / 2, objective.precision), True), at.gradient)), float(n)


@dataclass(frozen=True)
class NewtonCG(Solver):
    """Newton's method with conjugate gradients, which needs products with the Hessian but does not form it.

    Each step solves a linear system until its residual is a small enough fraction of the gradient.

    share : the fraction in steps far from the optimum. Nearer to the optimum, the fraction is smaller; in the last
        steps, it is only as small as the tolerance requires.
    cg_iter : the largest number of products with the Hessian per system.

    Examples
    --------
    >>> from kernelcrf import ChainCRF
    >>> from kernelcrf.solvers import NewtonCG
    >>> X, y = [[[0.0], [1.0]], [[1.0]]], [["a", "b"], ["b"]]
    >>> ChainCRF("linear", solver=NewtonCG()).fit(X, y).certificate_.status
    'optimal'
    """

    share: float = 0.5
    cg_iter: int = 250

    def __post_init__(self) -> None:
        check_parameters(vars(self), {"share": SHARE, "cg_iter": COUNT})

    def solve(self, start: Floats, progress: Progress) -> str:
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
        return solve_cg(
            lambda v: objective.hessian_product(at, v), at.gradient, inverse, min(rtol, 0.9), self.solver.cg_iter
        )


@dataclass(frozen=True)
class BlockJacobi(Solver):
    """Newton's method with a block-diagonal approximation of the Hessian, equation (30) of the paper.

    Each step solves a linear system by conjugate gradients.

    rtol : the largest allowed residual of a system, as a fraction of the gradient.
    cg_iter : the largest number of products with the approximation per system; each takes one pass over the data.

    Examples
    --------
    >>> from kernelcrf import ChainCRF
    >>> from kernelcrf.solvers import BlockJacobi
    >>> X, y = [[[0.0], [1.0]], [[1.0]]], [["a", "b"], ["b"]]
    >>> ChainCRF("linear", solver=BlockJacobi()).fit(X, y).certificate_.status
    'optimal'
    """

    rtol: float = 0.05
    cg_iter: int = 100

    def __post_init__(self) -> None:
        check_parameters(vars(self), {"rtol": SHARE, "cg_iter": COUNT})

    def solve(self, start: Floats, progress: Progress) -> str:
        return descend(self, start, progress, curvature=False, wolfe=0.1)

    def direction(self, objective: Objective, at: Evaluation) -> tuple[Floats, float]:
        """Return the Newton direction for the block-diagonal approximation of the Hessian, and the number of passes."""
        return solve_cg(lambda v: objective.block_product(at, v), at.gradient, None, self.rtol, self.cg_iter)


@dataclass(frozen=True)
class Subspace(Solver):
    """Subspace descent: each step is a Newton step for the parameters of one term of the score.

    Each step solves a linear system by conjugate gradients.

    rtol : the largest allowed residual of a system, as a fraction of the gradient.
    cg_iter : the largest number of products with the Hessian per system.

    Examples
    --------
    >>> from kernelcrf import ChainCRF
    >>> from kernelcrf.solvers import Subspace
    >>> X, y = [[[0.0], [1.0]], [[1.0]]], [["a", "b"], ["b"]]
    >>> ChainCRF("linear", solver=Subspace()).fit(X, y).certificate_.status
    'optimal'
    """

    rtol: float = 0.1
    cg_iter: int = 100

    def __post_init__(self) -> None:
        check_parameters(vars(self), {"rtol": SHARE, "cg_iter": COUNT})

    def solve(self, start: Floats, progress: Progress) -> str:
        return descend(self, start, progress, curvature=True, wolfe=0.5)

    def direction(self, objective: Objective, at: Evaluation) -> tuple[Floats, float]:
        """Return a Newton direction that changes only the parameters of one term, and the number of passes.

        There is an upper bound on how much a change of each term can lower the objective. The term with the largest
        bound is changed.
        """
        bounds = objective.layout.squared_dual_norms(at.gradient)
        part = objective.layout.slices[max(bounds, key=lambda name: bounds[name])]

        def product(v: Floats) -> Floats:
            whole = np.zeros(objective.layout.size)
            whole[part] = v
            return objective.hessian_product(at, whole)[part]

        d = np.zeros(objective.layout.size)
        d[part], products = solve_cg(product, at.gradient[part], None, self.rtol, self.cg_iter)
        return d, products
