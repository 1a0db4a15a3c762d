"""Newton's method (19), d = -H^-1 g, and the paper's two methods that solve only a part of this system.

    Newton        forms the Hessian H, one product for each column: for small problems, quadratically convergent
    NewtonCG      solves H d = -g by preconditioned conjugate gradients, only as accurately as needed
    BlockJacobi   replaces H by the blocks (30), without covariances between cliques
    Subspace      uses the rows and columns of one term, the term with the greatest bound (Corollary 10)

NewtonCG: if P were quadratic, the residual of the linear system would be the gradient at the next point, and the
certified gap is proportional to its square. Each system is therefore solved to a fixed share of the gradient, and the
last one only so far that the gap falls below the tolerance.

BlockJacobi: full steps can diverge. With strong transitions the labels of neighbours depend on each other, and the
blocks can be less than half of the curvature, which a full step does not tolerate. An exact line search prevents this.

Subspace: by Lemma 9 a term with gradient g_k can lower P by at most |g_k|^2 / (2 lam_k). If all these bounds are below
the tolerance, the run is certified. A term whose bound is never the greatest never changes.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.linalg import cho_solve

from kernelcrf.arrays import Floats
from kernelcrf.objective import Evaluation, Objective
from kernelcrf.solvers.linear_systems import lower_factor, solve_cg
from kernelcrf.solvers.loop import Progress, Solver, descend
from kernelcrf.solvers.preconditioners import Preconditioning
from kernelcrf.validation import COUNT, SHARE, check_parameters


@dataclass(frozen=True)
class Newton(Solver):
    """Newton's method for at most `most` parameters, since forming the Hessian takes one product per parameter.

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
        """Raise if the Hessian would be too large."""
        if objective.layout.size > self.most:
            raise ValueError(
                f"solver='newton' would form the Hessian of {objective.layout.size} parameters: expected at most "
                f"{self.most}; use solver='newton-cg', which does not form the Hessian"
            )

    def solve(self, start: Floats, progress: Progress) -> str:
        """Run from `start`: solve each system with a Cholesky factor of the Hessian, then search along the line."""
        return descend(self, start, progress, curvature=True, wolfe=0.9)

    def direction(self, objective: Objective, at: Evaluation) -> tuple[Floats, float]:
        """Return -H^-1 g, and the number of passes: one for each column of H."""
        n = objective.layout.size
        H = np.column_stack([objective.hessian_product(at, e) for e in np.eye(n)])
        return np.asarray(-cho_solve((lower_factor((H + H.T) / 2), True), at.gradient)), float(n)


@dataclass(frozen=True)
class NewtonCG(Solver):
    """Newton-CG: solve each system until the residual is `share` of the gradient, in at most `cg_iter` products.

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
        """Run from `start`: find each direction by conjugate gradients, then search along the line."""
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
    """Newton steps with the blocks (30): conjugate gradients to `rtol`, at most `cg_iter` products of one pass each.

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
        """Run from `start` with directions from the blocks and an almost exact line search."""
        return descend(self, start, progress, curvature=False, wolfe=0.1)

    def direction(self, objective: Objective, at: Evaluation) -> tuple[Floats, float]:
        """Return the Newton direction in which the blocks replace H, and the number of passes."""
        return solve_cg(lambda v: objective.block_product(at, v), at.gradient, None, self.rtol, self.cg_iter)


@dataclass(frozen=True)
class Subspace(Solver):
    """The paper's subspace descent: Newton directions within one term, by conjugate gradients to `rtol`.

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
        """Run from `start`; each step changes one term."""
        return descend(self, start, progress, curvature=True, wolfe=0.5)

    def direction(self, objective: Objective, at: Evaluation) -> tuple[Floats, float]:
        """Return the Newton direction of the term with the greatest bound, zero for other terms, and the passes."""
        bounds = objective.layout.squared_dual_norms(at.gradient)
        part = objective.layout.slices[max(bounds, key=lambda name: bounds[name])]

        def product(v: Floats) -> Floats:
            whole = np.zeros(objective.layout.size)
            whole[part] = v
            return objective.hessian_product(at, whole)[part]

        d = np.zeros(objective.layout.size)
        d[part], products = solve_cg(product, at.gradient[part], None, self.rtol, self.cg_iter)
        return d, products
