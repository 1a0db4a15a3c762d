"""The incomplete Cholesky factor F of `K_x` (section 5.3): `K ~ F F'`, `F = K_xB R^-T`, `K_BB = R R'`.

F gains one column per atom. Adding atoms A to a basis B of size n does not change the existing columns:

    H = K_AA - F_A F_A' = L L'                    residual Gram matrix of the new atoms
    R <- [[R, 0], [F_A, L]]
    F <- [F, (K_xA - F F_A') L^-T]                computed in panels of columns
    d <- d - rowsum(F_new^2)                      the residual diagonal: d_x = k(x, x) - |F_x|^2

L comes from LAPACK's pivoted Cholesky, which drops atoms that depend on others up to rounding: their residual is below
`FLOOR` times the largest `k(x, x)`. If a user's function has residuals that are negative by more than rounding, it is
not a kernel, and an error is raised. No jitter is added anywhere, so that `F_B = R` and `F_B F' = K_Bx` hold.
`FLOOR` is also the least tolerance, relative to the trace.

`K - F F'` is a Schur complement and has no negative eigenvalue, so norms under F are never below the kernel norms.
To keep this, everything is computed in float64. Rounding may let `|F_x|^2` exceed `k(x, x)` by at most `EXCESS` times
the largest `k(x, x)`; the first column that exceeds it is dropped, with all columns after it. For float32 inputs F is
stored in float32, as F + D with `|D| <= u |F|` and u = 2^-24. Since `|D' v|^2 <= u^2 tr(K) |v|^2`, for every t > 0

    (F + D) (F + D)' <= (1 + t) F F' + (1 + 1/t) u^2 tr(K) I.

While a float32 basis grows, new columns are computed from stored ones, and dividing by pivots amplifies the rounding of
these. That is exact enough to choose atoms. Once all atoms are chosen, all columns are computed again.

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
"""How negative residuals of a user's kernel may be, relative to the largest k(x, x), for each input precision."""


@dataclass(frozen=True, eq=False)
class Basis:
    """The chosen atoms, and the features F of the inputs that they were chosen for.

    landmarks, F : the atoms (n, d) and the features (U, n), in the precision of the inputs.
    R : (n, n), the lower triangular factor of K_BB = R R', in float64.
    residual : (U,), the diagonal of K - F F'.
    indices : (n,), the row of each atom among the inputs; None if some atom is not an input.
    trace : tr K, the sum of k(x, x) over the inputs.
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
        """Return tr(K - F F') / tr K, the share of the trace that the basis does not explain."""
        return float(self.residual.sum() / self.trace) if self.trace > 0 else 0.0


def row_blocks(rows: int) -> list[slice]:
    """Return slices of `ROWS` rows each; they depend only on the number of rows, never on the number of threads."""
    return [slice(start, min(start + ROWS, rows)) for start in range(0, rows, ROWS)]


def stack(parts: list[Inputs]) -> Inputs:
    """Stack the rows of several inputs; the result is CSR if any of them is."""
    if len(parts) == 1:
        return parts[0]
    return sp.vstack(parts, format="csr") if any(map(is_sparse, parts)) else np.vstack(parts)


def pivoted_cholesky(H: Array, least: float) -> tuple[Array, Places]:
    """Return L and `order`, `H[order][:, order] = L L'`, without rows whose residual diagonal is at most `least`."""
    if not np.diagonal(H).max(initial=0.0) > least:
        return np.zeros((0, 0), H.dtype), np.zeros(0, np.intp)
    C, pivots, rank, _ = lapack.dpstrf(H, tol=least, lower=1)
    return np.ascontiguousarray(np.tril(C)[:rank, :rank]), (pivots[:rank] - 1).astype(np.intp)


def not_a_kernel(kernel: InputKernel, proof: str) -> ValueError:
    """Return the error to raise if a kernel is not positive semi-definite; `proof` says how that was found."""
    return ValueError(
        f"{kernel.described} is not positive semi-definite: {proof}. Expected a kernel whose Gram matrices have "
        "no negative eigenvalues; to make one from a Euclidean distance, use exp(-gamma * distance**2)"
    )


def check_diagonal(kernel: InputKernel, diagonal: Floats) -> None:
    """Raise if any value k(x, x) is negative, infinite or NaN."""
    wrong = np.flatnonzero(~np.isfinite(diagonal))
    if len(wrong):
        raise ValueError(
            f"{kernel.described} returned k(x, x) = {diagonal[wrong[0]]} for distinct input {wrong[0]}: expected "
            "finite numbers; scale the inputs, for example with sklearn.preprocessing.StandardScaler"
        )
    if diagonal.min(initial=0.0) < 0:
        raise not_a_kernel(kernel, f"k(x, x) = {diagonal.min():.3g} for distinct input {int(diagonal.argmin())}")


def check_symmetric(kernel: InputKernel, K: Array, tolerance: float) -> None:
    """Raise if the Gram matrix K is not symmetric within a tolerance relative to its largest entry."""
    gap = float(np.abs(K - K.T).max(initial=0.0))
    if gap > tolerance * float(np.abs(K).max(initial=0.0)):
        raise not_a_kernel(kernel, f"k(x, y) and k(y, x) differ by {gap:.3g}")


def left_over(H: Array, L: Array, order: Places) -> Array:
    """Return -|H - L L'| at the rows not in `order`: zero up to rounding if H is positive semi-definite."""
    others = np.setdiff1d(np.arange(len(H)), order)
    if not len(others) or not len(order):
        return -np.abs(H[np.ix_(others, others)])
    columns = solve_triangular(L, H[np.ix_(order, others)], lower=True)
    return -np.abs(H[np.ix_(others, others)] - columns.T @ columns)
