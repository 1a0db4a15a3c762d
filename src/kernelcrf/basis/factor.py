"""The incomplete Cholesky factor F of the kernel matrix K of the inputs x, given landmarks B (section 5.3).

The factor is `F = K_xB R^-T` with `K_BB = R R'`, so that `K ~ F F'`. It has one row per input, the features of the
input, and one column per landmark. The residual of an input is `d_x = k(x, x) - |F_x|^2`. New landmarks A do not change
the columns that F has already:

    H = K_AA - F_A F_A' = L L'                    the residual Gram matrix of the new landmarks
    R <- [[R, 0], [F_A, L]]
    F <- [F, (K_xA - F F_A') L^-T]                computed in panels of columns
    d <- d - rowsum(F_new^2)

L comes from LAPACK's pivoted Cholesky. It drops landmarks that depend on others up to rounding, because their residual
is below `FLOOR` times the largest `k(x, x)`. If the kernel is a function of the user and has residuals that are
negative by more than rounding, it is not positive semi-definite, and an error is raised. No jitter is added to the
diagonal, so that `F_B = R` and `F_B F' = K_Bx` hold.

`K - F F'` is a Schur complement and has no negative eigenvalue, so norms under F are never below the kernel norms. To
ensure this, everything is computed in float64. By rounding, `|F_x|^2` may exceed `k(x, x)`. The first column that makes
the excess larger than `EXCESS` times the largest `k(x, x)` is dropped, with all columns after it. For float32 inputs, F
is stored in float32, that is, with an error D of size `|D| <= u |F|`, u = 2^-24. Then for every t > 0

    (F + D) (F + D)' <= (1 + t) F F' + (1 + 1/t) u^2 tr(K) I.

While a float32 basis grows, new columns are computed from stored columns, whose rounding errors are amplified. This is
exact enough to choose landmarks. When all landmarks are chosen, all columns are computed again.

Rows are processed in blocks of `ROWS` rows, each by one thread, and sums over blocks are added in order, so that
results do not depend on `n_jobs`. For U inputs of d columns and n landmarks, the memory beside the inputs, F and R is
40 U bytes, and `ROWS (2 d + WIDE PANEL) + n d` numbers of float64 per thread (`ROWS n` more for CSR inputs and for
float32).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import scipy.sparse as sp
from scipy.linalg import lapack, solve_triangular

from kernelcrf.arrays import Array, Floats, Inputs, Places, is_sparse
from kernelcrf.kernels.inputs import InputKernel

ROWS = 2048
FLOOR = {np.dtype(np.float64): 1e-12, np.dtype(np.float32): 1e-5}
EXCESS = {np.dtype(np.float64): 1e-9, np.dtype(np.float32): 1e-6}
INDEFINITE = {np.dtype(np.float64): 1e-6, np.dtype(np.float32): 1e-2}
"""How negative residuals of a user's kernel may be, relative to the largest k(x, x), for each input precision."""


@dataclass(frozen=True, eq=False)
class Basis:
    """The chosen landmarks B, and the features F of the inputs from which they were chosen.

    landmarks : the landmarks, one per row.
    R : the lower triangular factor of their kernel matrix, K_BB = R R'.
    F : the features, with one row per input and one column per landmark.
    residual : for each input x, k(x, x) - |F_x|^2.
    indices : for each landmark, its row among the inputs; None if some landmark is not an input.
    trace : the sum of k(x, x) over the inputs.
    """

    landmarks: Inputs
    R: Array
    F: Array
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

    The factorisation stops when the largest residual on the diagonal is at most `least`: `order` lacks these rows.
    """
    if not np.diagonal(H).max(initial=0.0) > least:
        return np.zeros((0, 0), H.dtype), np.zeros(0, np.intp)
    C, pivots, rank, _ = lapack.dpstrf(H, tol=least, lower=1)
    return np.ascontiguousarray(np.tril(C)[:rank, :rank]), (pivots[:rank] - 1).astype(np.intp)


def not_a_kernel(kernel: InputKernel, proof: str) -> ValueError:
    """Return the error for a kernel that is not positive semi-definite; `proof` is a text that shows it."""
    return ValueError(
        f"{kernel.described} is not positive semi-definite: {proof}. Expected a kernel whose Gram matrices have "
        "no negative eigenvalues; to make one from a Euclidean distance, use exp(-gamma * distance**2)"
    )


def check_diagonal(kernel: InputKernel, diagonal: Floats) -> None:
    """Raise if any value k(x, x) is negative, infinite or NaN."""
    wrong = np.flatnonzero(~np.isfinite(diagonal))
    if len(wrong):
        raise ValueError(
            f"{kernel.described} returned k(x, x) = {diagonal[wrong[0]]} for distinct input {wrong[0]}: expected a "
            "finite number. Scale the inputs, for example with sklearn.preprocessing.StandardScaler"
        )
    if diagonal.min(initial=0.0) < 0:
        raise not_a_kernel(kernel, f"k(x, x) = {diagonal.min():.3g} for distinct input {int(diagonal.argmin())}")


def check_symmetric(kernel: InputKernel, K: Array, tolerance: float) -> None:
    """Raise if the Gram matrix K is not symmetric; `tolerance` is relative to its largest entry."""
    gap = float(np.abs(K - K.T).max(initial=0.0))
    if gap > tolerance * float(np.abs(K).max(initial=0.0)):
        raise not_a_kernel(kernel, f"k(x, y) and k(y, x) differ by {gap:.3g}")


def left_over(H: Array, L: Array, order: Places) -> Array:
    """Return -|E|, where E is what the factor L leaves of H in the rows and columns that are not in `order`.

    If H is positive semi-definite, E is zero up to rounding.
    """
    others = np.setdiff1d(np.arange(len(H)), order)
    if not len(others) or not len(order):
        return -np.abs(H[np.ix_(others, others)])
    columns = solve_triangular(L, H[np.ix_(order, others)], lower=True)
    return -np.abs(H[np.ix_(others, others)] - columns.T @ columns)
