"""Solve linear systems whose matrix is positive definite, except for rounding errors.

`solve_cg` solves A d = -g by conjugate gradients, only as accurately as needed. It needs only products with A.

`lower_factor` returns the Cholesky factor E of a matrix M, with E E' = M + tau I. Here tau is the first of the numbers
0, eps trace(M), 100 eps trace(M), ... for which the factor exists, and eps is the precision of the scores. A positive
tau is needed if features have a large common offset, or if float32 scores have large weights: rounding errors of the
large eigenvalues of M are then larger than its small eigenvalues. For a search direction or a preconditioner, any
positive definite matrix near M is good enough.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import numpy.typing as npt
from scipy.linalg import LinAlgError, cholesky
from scipy.sparse.linalg import LinearOperator, cg

from kernelcrf.arrays import Floats

Product = Callable[[Floats], Floats]
GROWTH, MOST_TRIALS = 100.0, 8


def solve_cg(
    product: Product, g: Floats, precondition: Product | None, rtol: float, max_iter: int
) -> tuple[Floats, int]:
    """Solve A d = -g by conjugate gradients; return d and the number of products with A.

    product : a function that returns A v for a vector v.
    precondition : a function that returns an approximation of A^-1 v, or None.
    rtol : stop if |A d + g| <= rtol |g|.
    max_iter : stop after this number of iterations.
    """
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


def lower_factor(M: Floats, dtype: npt.DTypeLike = np.float64) -> Floats:
    """Return the lower Cholesky factor of a symmetric matrix M.

    If M is not positive definite because of rounding errors, a small multiple of the identity is added first.

    dtype : the type of the numbers from which M was computed. The less precise it is, the larger is the multiple.
    """
    tau = 0.0
    for _ in range(MOST_TRIALS if np.isfinite(M).all() else 0):
        try:
            return np.asarray(cholesky(M + tau * np.eye(len(M)) if tau else M, lower=True))
        except LinAlgError:
            tau = max(GROWTH * tau, float(np.finfo(dtype).eps * np.trace(M)))
    raise ValueError(
        f"the Hessian has entries up to {np.abs(M).max():.3g} and is not positive definite, because rounding errors "
        "are too large: scale the inputs, for example with sklearn.preprocessing.StandardScaler, or lower C"
    )
