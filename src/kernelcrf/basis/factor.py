"""Approximate the kernel matrix K of all inputs by an incomplete Cholesky factor F (section 5.3 of the paper).

F has one row per input x, called the features of x, and one column per landmark. Let B be the landmarks, K_xB the
kernel matrix of inputs and landmarks, and R the Cholesky factor of the kernel matrix of the landmarks, `K_BB = R R'`.
Then `F = K_xB R^-T`, so that `K ~ F F'`. The residual of an input x is `d_x = k(x, x) - |F_x|^2`, where F_x is row x of
F. New landmarks A add columns to F, and do not change its old columns:

    H = K_AA - F_A F_A' = L L'                    the part of K_AA that F does not explain; L is its Cholesky factor
    R <- [[R, 0], [F_A, L]]
    F <- [F, F_new],  F_new = (K_xA - F F_A') L^-T
    d <- d - rowsum(F_new^2)

LAPACK's pivoted Cholesky factorisation computes L. A landmark is dropped if its residual is below `FLOOR` times the
largest `k(x, x)`, because the landmark then depends linearly on others, up to rounding. No jitter is added to the
diagonal, so that `F_B = R` and `F_B F' = K_Bx` hold. A kernel that the user defined may fail to be positive
semi-definite. If its residuals are negative by more than rounding errors, an error is raised.

In exact arithmetic, `K - F F'` has no negative eigenvalue, so that norms computed from F are never below the norms of
the kernel. To keep this property, everything is computed in float64. Because of rounding, `|F_x|^2` may still exceed
`k(x, x)`. The first column that makes the excess larger than `EXCESS` times the largest `k(x, x)` is dropped, with all
columns after it. For float32 inputs, F is stored in float32. The stored matrix is F + D with a rounding error D of size
`|D| <= u |F|`, u = 2^-24. Then for every t > 0

    (F + D) (F + D)' <= (1 + t) F F' + (1 + 1/t) u^2 tr(K) I.

While landmarks are added to a float32 basis, new columns are computed from stored columns, which amplifies their
rounding errors. This is accurate enough to choose landmarks. When all landmarks are chosen, all columns are recomputed.

Rows are processed in blocks of `ROWS` rows, each by one thread. Sums over blocks are added in a fixed order, so that
results do not depend on `n_jobs`. U inputs with d columns and n landmarks need the following memory, apart from the
inputs, F and R: 40 U bytes in total, and `ROWS (2 d + WIDE PANEL) + n d` numbers in float64 per thread. CSR inputs and
float32 inputs need `ROWS n` more numbers per thread. `WIDE` and `PANEL` are constants of the module `panels`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.sparse as sp
from scipy.linalg import lapack, solve_triangular

from kernelcrf.arrays import Array, Floats, Inputs, Places, is_sparse
from kernelcrf.kernels.inputs import InputKernel

ROWS = 2048
FLOOR = {np.dtype(np.float64): 1e-12, np.dtype(np.float32): 1e-5}
EXCESS = {np.dtype(np.float64): 1e-9, np.dtype(np.float32): 1e-6}
INDEFINITE = {np.dtype(np.float64): 1e-6, np.dtype(np.float32): 1e-2}
"""How negative the residuals of a user-defined kernel may be, relative to the largest k(x, x), for each dtype."""


@dataclass(frozen=True, eq=False)
class Basis:
    """The chosen landmarks B, and the features F of the inputs from which they were chosen.

    landmarks : the landmarks, one per row.
    R : the lower triangular Cholesky factor of the kernel matrix of the landmarks, K_BB = R R'.
    F : the features, with one row per input and one column per landmark: an array or `RecomputedFeatures`.
    residual : for each input x, k(x, x) - |F_x|^2.
    indices : for each landmark, its row among the inputs; None if some landmark is not an input.
    trace : the sum of k(x, x) over the inputs.
    """

    landmarks: Inputs
    R: Array
    F: Any
    residual: Floats
    indices: Places | None
    trace: float

    @property
    def n(self) -> int:
        """Return the number of landmarks."""
        return len(self.R)

    @property
    def relative_residual(self) -> float:
        """Return tr(K - F F') / tr K, the error of the approximation of the kernel matrix K, between 0 and 1."""
        return float(self.residual.sum() / self.trace) if self.trace > 0 else 0.0


def row_blocks(rows: int, size: int | None = None) -> list[slice]:
    """Return slices that divide the rows into blocks of `size` rows, by default ROWS."""
    size = size or ROWS
    return [slice(start, min(start + size, rows)) for start in range(0, rows, size)]


def stack(parts: list[Inputs]) -> Inputs:
    """Stack matrices vertically; the result is a CSR matrix if any of the matrices is sparse."""
    if len(parts) == 1:
        return parts[0]
    return sp.vstack(parts, format="csr") if any(map(is_sparse, parts)) else np.vstack(parts)


def pivoted_cholesky(H: Array, least: float) -> tuple[Array, Places]:
    """Return a lower triangular L and indices `order` such that `H[order][:, order] = L L'`.

    The factorisation stops when no residual on the diagonal is above `least`; the rows that remain are not in `order`.
    """
    if not np.diagonal(H).max(initial=0.0) > least:
        return np.zeros((0, 0), H.dtype), np.zeros(0, np.intp)
    C, pivots, rank, _ = lapack.dpstrf(H, tol=least, lower=1)
    return np.ascontiguousarray(np.tril(C)[:rank, :rank]), (pivots[:rank] - 1).astype(np.intp)


def not_a_kernel(kernel: InputKernel, proof: str) -> ValueError:
    """Return the error to raise if a kernel is not positive semi-definite; `proof` is the reason in the message."""
    return ValueError(
        f"{kernel.described} is not positive semi-definite: {proof}. Expected a kernel whose Gram matrices have "
        "no negative eigenvalues; to make one from a Euclidean distance, use exp(-gamma * distance**2)"
    )


def check_diagonal(kernel: InputKernel, diagonal: Floats) -> None:
    """Raise if any value k(x, x) is negative, infinite or NaN."""
    wrong = np.flatnonzero(~np.isfinite(diagonal))
    if len(wrong):
        raise ValueError(
            f"{kernel.described} returned k(x, x) = {diagonal[wrong[0]]} for the distinct input with index "
            f"{wrong[0]}: expected a finite number. Scale the inputs, for example with "
            "sklearn.preprocessing.StandardScaler"
        )
    if diagonal.min(initial=0.0) < 0:
        raise not_a_kernel(
            kernel, f"k(x, x) = {diagonal.min():.3g} for the distinct input with index {int(diagonal.argmin())}"
        )


def check_symmetric(kernel: InputKernel, K: Array, tolerance: float) -> None:
    """Raise if the Gram matrix K is not symmetric; `tolerance` is relative to the largest entry of K."""
    gap = float(np.abs(K - K.T).max(initial=0.0))
    if gap > tolerance * float(np.abs(K).max(initial=0.0)):
        raise not_a_kernel(kernel, f"k(x, y) and k(y, x) differ by {gap:.3g}")


def left_over(H: Array, L: Array, order: Places) -> Array:
    """Return -|E| entry by entry, where E is the Schur complement of the rows and columns `order` in H.

    L is the Cholesky factor of these rows and columns. E has the other rows and columns of H. If H is positive
    semi-definite, and L and `order` come from `pivoted_cholesky`, E is zero up to rounding. The minus sign makes any
    other entry count as a negative residual, which no positive semi-definite matrix has.
    """
    others = np.setdiff1d(np.arange(len(H)), order)
    if not len(others) or not len(order):
        return -np.abs(H[np.ix_(others, others)])
    columns = solve_triangular(L, H[np.ix_(order, others)], lower=True)
    return -np.abs(H[np.ix_(others, others)] - columns.T @ columns)
