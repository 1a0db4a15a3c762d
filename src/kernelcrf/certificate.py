"""Certificates: bounds on the distance of a fit from the optimum (Lemma 9 and Corollary 10 of the paper).

The objective P is the negative log posterior of the weights theta. Its gradient is g, and weight k has the prior
variance 1 / lam_k. P is strongly convex, so that every theta gives a lower bound on the minimum,

    min P >= P(theta) - sum_k |g_k|^2 / (2 lam_k)                                               (17)
           = sum_i omega_i H(p_i) - sum_k [|h_k|^2 / (2 lam_k) - <h_k, mu_k>],    h_k = g_k - lam_k (theta_k - mu_k).

The second line is the dual objective: H(p_i) is the entropy of the labels of sample i, and omega_i is the weight of the
sample. The prior mean mu_k of a weight is 0, unless an earlier model determines it. `penalties` has the formulas of
other penalties. As the bound is valid at every theta, a fit uses the greatest bound that it finds.

`gap_in_span` is P minus the greatest bound. It is zero if the solver has found the minimum in the span of the basis.
The whole function space of the kernel (the RKHS) is larger than this span. In the RKHS the gradient has another part,
which is orthogonal to the span and has the squared norm sum_l R_l' (K - F F') R_l. Here K is the kernel matrix of the
distinct inputs, F are their features in the basis, and R_l are the residuals of label l, summed for each distinct
input. A bound on P(theta) - min P over the whole RKHS is therefore

    gap_full = P(theta) - (bound (17) at theta) + 1/(2 lam) |sum_l R_l' (K - F F') R_l|.

Computing gap_full takes one pass over the blocks of K, in float64. The bound is valid for every F: at the same
marginals, the dual objective in the RKHS is the dual objective in the span, minus the last term without its absolute
value. This term can be negative only if rounding lets F F' exceed K. P(theta) may then be below the minimum in the
RKHS. The absolute value covers this case: to first order in K - F F', the minimum is above P(theta) by at most the size
of the term.

Negative gaps are not set to zero. If a gap is negative by more than rounding errors explain, this is a bug, and
`Certificate` raises an ArithmeticError.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from kernelcrf.arrays import Array, Floats, Inputs
from kernelcrf.basis.recomputed_features import FeatureRows, compute_rows
from kernelcrf.engines.local import LocalEngine
from kernelcrf.kernels.inputs import InputKernel

GRAM_ROWS = 1024
TEMPERED, IMPORTED, ROUNDED = "tempered", "imported", "rounded"
# Statuses of weights that are not the result of a fit by this library, so that they have no objective.
NOT_FITTED = (TEMPERED, IMPORTED, ROUNDED)
ROUNDING = {np.dtype(np.float64): 1e-9, np.dtype(np.float32): 1e-5}


@dataclass(frozen=True)
class Certificate:
    """The certified distance of a fitted model from the optimum.

    The fit searches the functions that its basis spans. They are a part of the kernel's whole function space.

    objective : the negative log posterior of the fitted weights; NaN if the weights were changed later, by
        `TemperatureScaling` or by rounding in a file, or if another library fitted them.
    lower_bound : a lower bound on the objective of all functions in the span of the basis; -inf if labels are missing,
        because no bound is known then.
    gap_full : a bound on how far `objective` is above the minimum over the kernel's whole function space; None if it
        was not computed.
    status : how the fit ended. "optimal" means that the certified gap is at most `tol`. If labels are missing, there is
        no certified gap, and "stationary" means that the gradient is small enough. "tempered" means that
        `TemperatureScaling` changed the weights, "imported" that they were read from a file of another library, and
        "rounded" that they were saved in single precision.
    rounding : the possible rounding error of `objective` and of the bounds, divided by max(1, |objective|); inf if
        inputs have single precision and sample weights are tiny.

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
                raise ArithmeticError(f"{name} is {gap:.3g}: expected at least 0; please report this bug")

    @property
    def is_certified(self) -> bool:
        """Return whether the certificate has a bound on the distance to the optimum."""
        return bool(np.isfinite(self.objective) and np.isfinite(self.lower_bound))

    @property
    def measure(self) -> str:
        """Return the name of the quantity that a fit must bring below `tol`, for messages.

        It is the certified gap or, if labels are missing, the size of the gradient.
        """
        missing = self.lower_bound == -np.inf and self.status not in NOT_FITTED
        return "size of the gradient" if missing else "certified gap"

    @property
    def gap_in_span(self) -> float:
        """Return the objective minus its lower bound.

        The optimum among all functions in the span of the basis is at most this much below the objective.
        """
        return self.objective - self.lower_bound

    @property
    def relative_gap(self) -> float:
        """Return `gap_in_span` divided by the absolute value of the objective."""
        return self.gap_in_span / max(abs(self.objective), np.finfo(np.float64).tiny)


def residual_products(kernel: InputKernel, X: Inputs, F: FeatureRows, R: Array, engine: LocalEngine) -> Floats:
    """Return (K - F F') R in float64, where K is the kernel matrix of the inputs X, and F are their features.

    If R contains the residuals of each input, this is the part of the gradient outside the span of the features, with
    one row per input. K is computed in blocks of GRAM_ROWS x GRAM_ROWS and never stored as a whole.
    """
    blocks = [slice(low, low + GRAM_ROWS) for low in range(0, len(R), GRAM_ROWS)]
    R = R.astype(np.float64, copy=False)
    weights = feature_products(F, R)

    def rows(block: slice) -> Floats:
        product, inputs = (
            -np.asarray(compute_rows(F, block) @ weights, np.float64),
            X[block].astype(np.float64, copy=False),
        )
        for other in blocks:
            product += kernel.gram(inputs, X[other].astype(np.float64, copy=False)) @ R[other]
        return product

    products: Floats = np.concatenate(engine.map(rows, blocks))
    return products


def feature_products(F: FeatureRows, R: Floats) -> Floats:
    """Return the product F' R in float64; F contains the features and R the residuals, one row per input.

    The product is computed in blocks of rows, so that float32 features are never copied as a whole.
    """
    total = np.zeros((F.shape[1], R.shape[1]))
    for low in range(0, len(R), GRAM_ROWS):
        block = slice(low, low + GRAM_ROWS)
        total += compute_rows(F, block).T @ R[block]
    return total
