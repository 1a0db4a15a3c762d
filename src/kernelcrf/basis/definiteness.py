"""Proofs that a function is not a kernel: residuals of Gram matrices that are negative by more than rounding."""

from __future__ import annotations

import numpy as np
from scipy.linalg import solve_triangular

from kernelcrf.arrays import Array, Floats, Places
from kernelcrf.kernels.inputs import InputKernel

INDEFINITE = {np.dtype(np.float64): 1e-6, np.dtype(np.float32): 1e-2}
"""How far below zero residuals of a user's kernel may be, relative to the largest k(x, x), by input precision."""


def not_a_kernel(kernel: InputKernel, proof: str) -> ValueError:
    """Return the error that names a kernel which is not positive semi-definite."""
    return ValueError(
        f"{kernel.described} is not positive semi-definite: {proof}. Expected a kernel, whose Gram matrices have "
        "no negative eigenvalues; exp(-gamma * distance**2) makes one of a Euclidean distance"
    )


def check_diagonal(kernel: InputKernel, diagonal: Floats) -> None:
    """Raise if values k(x, x) are not finite or negative."""
    wrong = np.flatnonzero(~np.isfinite(diagonal))
    if len(wrong):
        raise ValueError(
            f"{kernel.described} has k(x, x) = {diagonal[wrong[0]]} at distinct input {wrong[0]}: expected "
            "finite numbers; scale the inputs, as sklearn.preprocessing.StandardScaler does"
        )
    if diagonal.min(initial=0.0) < 0:
        raise not_a_kernel(kernel, f"k(x, x) = {diagonal.min():.3g} at distinct input {int(diagonal.argmin())}")


def check_symmetric(kernel: InputKernel, K: Array, tolerance: float) -> None:
    """Raise if a Gram matrix is not symmetric to a tolerance relative to its largest entry."""
    gap = float(np.abs(K - K.T).max(initial=0.0))
    if gap > tolerance * float(np.abs(K).max(initial=0.0)):
        raise not_a_kernel(kernel, f"k(x, y) and k(y, x) differ by {gap:.3g}")


def left_over(H: Array, L: Array, order: Places) -> Array:
    """Return minus the magnitude of what L L' leaves of H: zero to rounding if H is positive semi-definite."""
    others = np.setdiff1d(np.arange(len(H)), order)
    if not len(others) or not len(order):
        return -np.abs(H[np.ix_(others, others)])
    columns = solve_triangular(L, H[np.ix_(order, others)], lower=True)
    return -np.abs(H[np.ix_(others, others)] - columns.T @ columns)
