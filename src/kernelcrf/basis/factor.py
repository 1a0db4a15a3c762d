"""The incomplete Cholesky factor of `K_x`, grown by atoms (section 5.3): `K ~ F F'`, `F = K_xB R^-T`, `K_BB = R R'`.

Adding atoms A to a basis B of size n leaves the columns that exist as they are:

    H = K_AA - F_A F_A' = L L'                    residual Gram matrix of the new atoms
    R <- [[R, 0], [F_A, L]]
    F <- [F, (K_xA - F F_A') L^-T]                one panel of columns after another, by rows
    d <- d - rowsum(F_new^2)                      the residual diagonal: d_x = k(x, x) - |F_x|^2

L comes from LAPACK's pivoted Cholesky, which leaves out the atoms that depend on others to rounding: their
residual is below `FLOOR` times the largest `k(x, x)`. A user's function whose residuals are negative by more than
rounding is not a kernel, and is refused. No jitter is added anywhere, so that `F_B = R` and `F_B F' = K_Bx` hold.
`FLOOR` is also the least tolerance, relative to the trace.

`K - F F'` is a Schur complement and has no negative eigenvalue, so a norm by F is never smaller than the kernel's own.
To keep this, everything is computed in float64. Rounding may let `|F_x|^2` exceed `k(x, x)` by at most `EXCESS` times
the largest `k(x, x)`; the first column that exceeds it is dropped, with all columns after it. For float32 inputs F is
stored in float32, as F + D with `|D| <= u |F|` and u = 2^-24. Since `|D' v|^2 <= u^2 tr(K) |v|^2`, for every t > 0

    (F + D) (F + D)' <= (1 + t) F F' + (1 + 1/t) u^2 tr(K) I.

While a float32 basis grows, new columns are computed from stored ones, whose rounding they divide by their pivots. That
is exact enough to choose atoms; once they are chosen, all columns are computed again.

Rows are processed in blocks of `ROWS` for any number of threads, each with BLAS on one thread, and blocks are summed in
order, so that results do not depend on `n_jobs`. Memory beside X, F (U, n) and R (n, n): 40 U bytes for diagonals and
draws, and in each thread `ROWS (2 d + WIDE PANEL) + n d` numbers of float64 (`ROWS n` more for CSR inputs and float32).
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
"""How far below zero residuals of a user's kernel may be, relative to the largest k(x, x), by input precision."""


@dataclass(frozen=True, eq=False)
class Basis:
    """The chosen atoms, and the features of the inputs they were chosen for.

    landmarks, F : (n, d) and (U, n), in the precision of the inputs.
    R : (n, n) lower triangular, float64.
    residual : (U,), the diagonal of K - F F'.
    indices : (n,), the places of the atoms among the inputs; None if some atom is not an input.
    trace : tr K.
    """

    landmarks: Inputs
    R: Array
    F: Array
    residual: Floats
    indices: Places | None
    trace: float

    @property
    def n(self) -> int:
        """Return the number of atoms."""
        return len(self.R)

    @property
    def relative_residual(self) -> float:
        """Return tr(K - F F') / tr K."""
        return float(self.residual.sum() / self.trace) if self.trace > 0 else 0.0


def row_blocks(rows: int) -> list[slice]:
    """Return slices of `ROWS` rows each, which depend on the number of rows alone."""
    return [slice(start, min(start + ROWS, rows)) for start in range(0, rows, ROWS)]


def stack(parts: list[Inputs]) -> Inputs:
    """Stack inputs, dense or CSR, one below the other."""
    if len(parts) == 1:
        return parts[0]
    return sp.vstack(parts, format="csr") if any(map(is_sparse, parts)) else np.vstack(parts)


def pivoted_cholesky(H: Array, least: float) -> tuple[Array, Places]:
    """Return L and order with `H[order][:, order] = L L'`, up to rows whose residual diagonal is at most `least`."""
    if not np.diagonal(H).max(initial=0.0) > least:
        return np.zeros((0, 0), H.dtype), np.zeros(0, np.intp)
    C, pivots, rank, _ = lapack.dpstrf(H, tol=least, lower=1)
    return np.ascontiguousarray(np.tril(C)[:rank, :rank]), (pivots[:rank] - 1).astype(np.intp)


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
