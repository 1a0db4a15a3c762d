"""Solve linear systems with matrices that are positive definite up to rounding.

    conjugate gradients     solve A d = -g by products with A, only as accurately as needed
    Cholesky factors        E E' = M + tau I, tau the least of 0, eps tr M, 100 eps tr M, ... for which E exists

If features have a large common offset, rounding of the large eigenvalues of M hides the small ones. For a direction or
a preconditioner, any positive definite matrix near M is good enough.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from scipy.linalg import LinAlgError, cholesky
from scipy.sparse.linalg import LinearOperator, cg

from kernelcrf.arrays import Floats

Product = Callable[[Floats], Floats]
GROWTH, MOST_TRIALS = 100.0, 8


def solve_cg(
    product: Product, g: Floats, precondition: Product | None, rtol: float, max_iter: int
) -> tuple[Floats, int]:
    """Solve A d = -g to |A d + g| <= rtol |g| with at most `max_iter` calls of `product` (A v); return d, calls."""
    count = 0

    def count_product(v: Floats) -> Floats:
        nonlocal count
        count += 1
        return product(v)

    shape = (len(g), len(g))
    A = LinearOperator(shape, matvec=count_product, dtype=np.float64)
    M = None if precondition is None else LinearOperator(shape, matvec=precondition, dtype=np.float64)
    d, _ = cg(A, -g, rtol=rtol, maxiter=max_iter, M=M)
    return d, count


def lower_factor(M: Floats) -> Floats:
    """Return the Cholesky factor E of a symmetric matrix M, or of the nearest M + tau I that has one."""
    tau = 0.0
    for _ in range(MOST_TRIALS if np.isfinite(M).all() else 0):
        try:
            return np.asarray(cholesky(M + tau * np.eye(len(M)) if tau else M, lower=True))
        except LinAlgError:
            tau = max(GROWTH * tau, float(np.finfo(np.float64).eps * np.trace(M)))
    raise ValueError(
        f"a block of the Hessian has entries up to {np.abs(M).max():.3g} and is far from positive definite: scale the "
        "inputs, for example with sklearn.preprocessing.StandardScaler"
    )
