"""Preconditioned conjugate gradients for A d = -g, A positive definite, ended early."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from scipy.sparse.linalg import LinearOperator, cg

from kernelcrf.arrays import Floats

Product = Callable[[Floats], Floats]


def solve_cg(
    product: Product, g: Floats, precondition: Product | None, rtol: float, max_iter: int
) -> tuple[Floats, int]:
    """Return d with |A d + g| <= rtol |g|, or after `max_iter` products, and the number of products."""
    count = 0

    def counted(v: Floats) -> Floats:
        nonlocal count
        count += 1
        return product(v)

    shape = (len(g), len(g))
    A = LinearOperator(shape, matvec=counted, dtype=np.float64)
    M = None if precondition is None else LinearOperator(shape, matvec=precondition, dtype=np.float64)
    d, _ = cg(A, -g, rtol=rtol, maxiter=max_iter, M=M)
    return d, count
