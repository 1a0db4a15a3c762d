"""Certificates: bounds on the distance to the optimum, from Lemma 9, Corollary 10 and Remark 11.

At any theta, with g the gradient of the strongly convex P,

    min P >= P(theta) - sum_k |g_k|^2 / (2 lam_k)                                               (17), gradient side
           = sum_i omega_i H(p_i) - sum_k |g_k - lam_k theta_k|^2 / (2 lam_k)                    entropy side

where the second is the dual objective at the marginals of the model: the two sides are equal. The bounds at all points
are valid, so the greatest is used; one Newton step ahead, the bound is close to the optimum itself.

`gap_in_span` is P minus the greatest bound: it shows whether the solver is done. The whole space of the kernel (RKHS)
is larger than the span of the basis. There the gradient has a part orthogonal to the span, with squared norm
sum_l R_l' (K - F F') R_l for residuals R that are summed for each distinct input, so that

    gap_full = gap by Lemma 9 at theta + 1/(2 lam) |sum_l R_l' (K - F F') R_l|

bounds P(theta) - min P over the whole RKHS: one streaming pass over blocks of K, in float64. The bound holds for any F:
at the same marginals, the dual objective in the RKHS is the dual objective in the span minus this term with its sign.
The term is negative only if rounding lets F F' exceed K, by at most some delta in any direction. P(theta) may then be
below the minimum in the RKHS, by at most delta |R*|^2 / (2 lam) for the residuals R* at that minimum. The absolute
value covers this case: min P over the RKHS - P(theta) is at most |the negative term|, to first order in K - F F'.

Gaps keep their signs. A gap that is negative by more than rounding is an error in the mathematics, and raises.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.sparse.linalg import LinearOperator, cg

from kernelcrf.arrays import Array, Floats, Inputs
from kernelcrf.engines.local import LocalEngine
from kernelcrf.kernels.inputs import InputKernel
from kernelcrf.objective import Evaluation, Objective

GRAM_ROWS = 1024
TEMPERED = "tempered"
ROUNDING = {np.dtype(np.float64): 1e-9, np.dtype(np.float32): 1e-5}


@dataclass(frozen=True)
class Certificate:
    """The certified distance of a fitted model from the optimum.

    objective : P at the solution; NaN if it is unknown, for example after `TemperatureScaling` changed the weights.
    lower_bound : a lower bound of P within the span of the basis; -inf if P is not convex (missing labels).
    gap_full : a bound on the distance to the optimum in the kernel's whole space; None if it was not computed.
    status : how the fit ended. "optimal" is certified; a fit with missing labels ends "stationary" instead.
    rounding : the possible error of the objective and its bounds by rounding of scores, relative to max(1, |P|).

    Examples
    --------
    >>> from kernelcrf.certificate import Certificate
    >>> certificate = Certificate(objective=100.0, lower_bound=99.0, status="optimal")
    >>> certificate.gap_in_span, certificate.relative_gap
    (1.0, 0.01)
    """

    objective: float
    lower_bound: float
    status: str
    gap_full: float | None = None
    rounding: float = ROUNDING[np.dtype(np.float64)]

    def __post_init__(self) -> None:
        for name, gap in (("gap_in_span", self.gap_in_span), ("gap_full", self.gap_full)):
            if gap is not None and gap < -self.rounding * max(1.0, abs(self.objective)):
                raise ArithmeticError(f"{name} is {gap:.3g}: expected at least 0; the bound is wrong, please report it")

    @classmethod
    def of_tempered(cls) -> Certificate:
        """Return the certificate of a model whose weights were divided by a temperature: it has no bound."""
        return cls(np.nan, -np.inf, TEMPERED)

    @property
    def is_certified(self) -> bool:
        """Return whether there is a bound on the distance to the optimum."""
        return bool(np.isfinite(self.objective) and np.isfinite(self.lower_bound))

    @property
    def gap_in_span(self) -> float:
        """Return P minus its lower bound in the span of the basis."""
        return self.objective - self.lower_bound

    @property
    def relative_gap(self) -> float:
        """Return gap_in_span divided by |P|."""
        return self.gap_in_span / max(abs(self.objective), np.finfo(np.float64).tiny)


def gradient_side(objective: Objective, at: Evaluation) -> float:
    """Return the lower bound of Lemma 9 at a point, from its gradient."""
    return at.value - 0.5 * sum(objective.layout.squared_dual_norms(at.gradient).values())


def entropy_side(objective: Objective, at: Evaluation) -> float:
    """Return the lower bound of Lemma 9 at a point, computed as the dual objective at its marginals."""
    data = at.gradient - objective.layout.times_lam(at.theta)
    return objective.entropy(at) - 0.5 * sum(objective.layout.squared_dual_norms(data).values())


def look_ahead(objective: Objective, at: Evaluation, tol: float = 1e-3) -> float:
    """Return the greater of two lower bounds of P: at a point, and one Newton step ahead of it.

    If `at` is near the optimum, the second is close to min P; far away it may be lower than the first.
    """
    n = objective.layout.size
    H = LinearOperator((n, n), matvec=lambda v: objective.hessian_product(at, v), dtype=np.float64)
    step, _ = cg(H, -at.gradient, rtol=tol, maxiter=n)
    return max(at.lower_bound, objective.evaluate(at.theta + step).lower_bound)


def residual_products(kernel: InputKernel, X: Inputs, F: Inputs, R: Array, engine: LocalEngine) -> Floats:
    """Return (K - F F') R, (U, k), in float64: the part of the gradient outside the span, at each distinct input.

    K is formed in blocks of GRAM_ROWS x GRAM_ROWS, never as a whole (U, U) matrix: O(U^2 (d + k)) work.
    """
    blocks = [slice(low, low + GRAM_ROWS) for low in range(0, len(R), GRAM_ROWS)]
    R = R.astype(np.float64, copy=False)
    weights = feature_products(F, R)

    def rows(block: slice) -> Floats:
        product, own = -np.asarray(F[block] @ weights, np.float64), X[block].astype(np.float64, copy=False)
        for other in blocks:
            product += kernel.gram(own, X[other].astype(np.float64, copy=False)) @ R[other]
        return product

    products: Floats = np.concatenate(engine.map(rows, blocks))
    return products


def feature_products(F: Array, R: Floats) -> Floats:
    """Return F' R, (n, k), in float64, in blocks of rows, so that float32 features are never copied as a whole."""
    total = np.zeros((F.shape[1], R.shape[1]))
    for low in range(0, len(R), GRAM_ROWS):
        total += F[low : low + GRAM_ROWS].T @ R[low : low + GRAM_ROWS]
    return total


def out_of_span_at_most(residual: Array, R: Array) -> float:
    """Return a cheap upper bound on sum_l R_l' E R_l, E = K - F F' with diagonal d: sum_l (sum_u |R_ul| d_u^1/2)^2.

    It holds because |E_uv| <= (d_u d_v)^1/2 for a positive semi-definite E.
    """
    return float(((np.sqrt(np.maximum(residual, 0)) @ np.abs(R)) ** 2).sum())


def template_bound(kernel: InputKernel | None, X: Inputs, R: Array, C: float, engine: LocalEngine) -> float:
    """Return the most that a new template with prior variance C can lower P (Remark 11): C/2 sum_l R_l' K R_l.

    R (U, k) are the residuals of its cliques, summed for each distinct input; kernel=None is the constant 1.
    """
    if kernel is None:
        return 0.5 * C * float((R.sum(axis=0) ** 2).sum())
    nothing = np.zeros((len(R), 1))
    return 0.5 * C * float(np.vdot(R, residual_products(kernel, X, nothing, R, engine)))
