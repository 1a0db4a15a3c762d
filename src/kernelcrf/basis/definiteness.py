"""Proofs that a function is no kernel: residuals of Gram matrices that come out negative by more than rounding."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import solve_triangular

from kernelcrf.kernels.inputs import Array, InputKernel

INDEFINITE = {np.dtype(np.float64): 1e-6, np.dtype(np.float32): 1e-2}
"""How far below zero residuals of a user's kernel may be, relative to the largest k(x, x), by precision of inputs."""


def not_a_kernel(kernel: InputKernel, proof: str) -> ValueError:
    """Return the error that names a kernel which is not positive semi-definite."""
    return ValueError(
        f"{kernel.described} is not positive semi-definite: {proof}. Expected a kernel, whose Gram matrices have "
        "no negative eigenvalues; exp(-gamma * distance**2) makes one of a Euclidean distance"
    )


def check_diagonal(kernel: InputKernel, diagonal: NDArray[np.float64]) -> None:
    """Refuse values k(x, x) that a kernel does not have."""
    wrong = np.flatnonzero(~np.isfinite(diagonal))
    if len(wrong):
        raise ValueError(
            f"{kernel.described} has k(x, x) = {diagonal[wrong[0]]} at distinct input {wrong[0]}: expected "
            "finite numbers; scale the inputs, as sklearn.preprocessing.StandardScaler does"
        )
    if diagonal.min(initial=0.0) < 0:
        raise not_a_kernel(kernel, f"k(x, x) = {diagonal.min():.3g} at distinct input {int(diagonal.argmin())}")


def check_symmetric(kernel: InputKernel, K: Array, tolerance: float) -> None:
    """Refuse a Gram matrix that is not symmetric to a tolerance relative to its largest entry."""
    gap = float(np.abs(K - K.T).max(initial=0.0))
    if gap > tolerance * float(np.abs(K).max(initial=0.0)):
        raise not_a_kernel(kernel, f"k(x, y) and k(y, x) differ by {gap:.3g}")


def left_over(H: Array, L: Array, order: NDArray[np.intp]) -> Array:
    """Return minus the magnitude of what L L' leaves of H: zero to rounding where H is positive semi-definite."""
    others = np.setdiff1d(np.arange(len(H)), order)
    if not len(others) or not len(order):
        return -np.abs(H[np.ix_(others, others)])
    columns = solve_triangular(L, H[np.ix_(order, others)], lower=True)
    return -np.abs(H[np.ix_(others, others)] - columns.T @ columns)
