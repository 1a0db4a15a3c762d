"""Preconditioned conjugate gradients for A d = -g, A positive definite, ended early."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import numpy.typing as npt
from scipy.sparse.linalg import LinearOperator, cg

Floats = npt.NDArray[np.float64]
Product = Callable[[Floats], Floats]


def solve_cg(
    product: Product, g: Floats, precondition: Product | None, rtol: float, max_iter: int
) -> tuple[Floats, int]:
    """d with |A d + g| <= rtol |g|, or after `max_iter` products; and how many there were."""
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
