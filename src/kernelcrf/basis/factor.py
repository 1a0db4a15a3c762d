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

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar

import numpy as np
import scipy.sparse as sp
from scipy.linalg import lapack

from kernelcrf.arrays import Array, DType, Floats, Inputs, Places, is_sparse
from kernelcrf.basis.definiteness import INDEFINITE, check_symmetric, left_over, not_a_kernel
from kernelcrf.basis.panels import Panels, in_double
from kernelcrf.engines.local import LocalEngine
from kernelcrf.kernels.inputs import InputKernel

T = TypeVar("T")
ROWS = 2048
FLOOR = {np.dtype(np.float64): 1e-12, np.dtype(np.float32): 1e-5}
EXCESS = {np.dtype(np.float64): 1e-9, np.dtype(np.float32): 1e-6}


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


class GrowingFactor(ABC):
    """The algebra of a growing basis, for any place where the inputs, F and the residuals d are kept.

    Subclasses keep them: `F` has room for `capacity` columns, of which the first `n` are filled. The class implements
    `kernelcrf.basis.growth.Growth`.
    """

    def __init__(
        self,
        kernel: InputKernel,
        capacity: int,
        tol: float,
        engine: LocalEngine,
        dtype: DType,
        diagonal: tuple[float, float],
    ) -> None:
        """Begin without atoms; `diagonal` has the sum and the largest of all k(x, x)."""
        self.kernel, self.capacity, self.engine, self.dtype = kernel, capacity, engine, dtype
        self.trace, self.largest_diagonal = diagonal
        self.least = FLOOR[dtype] * self.largest_diagonal
        self.n = self._kept = 0
        self._enough = max(tol, FLOOR[dtype]) * self.trace
        self._R = np.zeros((capacity, capacity))
        self._landmarks: list[Inputs] = []
        self._indices: list[Places] | None = []
        self._is_rough = False
        self._accurate_from = self.trace

    def _take_up(self, start: Basis) -> None:
        """Begin with the atoms of an earlier basis."""
        self.n = self._kept = start.n
        self._R[: self.n, : self.n] = start.R
        self._landmarks = [start.landmarks]
        self._indices = None if start.indices is None else [start.indices]

    @property
    @abstractmethod
    def n_inputs(self) -> int:
        """Return U, the number of distinct inputs."""

    @property
    @abstractmethod
    def remaining(self) -> float:
        """Return tr(K - F F')."""

    @abstractmethod
    def inputs(self, indices: Places | None = None) -> Inputs:
        """Return some of the distinct inputs, or all of them."""

    @abstractmethod
    def features(self, indices: Places) -> Array:
        """Return F of some inputs, (., n)."""

    @abstractmethod
    def residuals(self, indices: Places | None = None) -> Floats:
        """Return d of some inputs, or of all of them."""

    @abstractmethod
    def exhaust(self, indices: Places) -> None:
        """Set d = 0 at inputs that depend on the atoms."""

    @abstractmethod
    def _extend(self, panels: Panels) -> Floats:
        """Fill new columns of F and subtract their squares from d; return what each column explains of the trace."""

    @abstractmethod
    def _refine(self, panels: Panels) -> None:
        """Compute the columns of F that were not there at the start, and d, from all atoms."""

    @abstractmethod
    def _measure_columns(self, excess: float) -> tuple[float, int]:
        """Return the least k(x, x) - |F_x|^2, and how many columns have none below -excess."""

    @abstractmethod
    def _recompute_residual(self) -> None:
        """Compute d from F: the errors of running differences add up while the differences shrink."""

    @property
    def finished(self) -> bool:
        """Return whether there are as many atoms as asked for, or the trace is explained to the tolerance."""
        return self.n >= self.capacity or self.remaining <= self._enough

    @property
    def landmarks(self) -> Inputs:
        """Return the atoms so far, (n, d)."""
        return stack(self._landmarks) if self._landmarks else self.inputs(np.empty(0, np.intp))

    @property
    def indices(self) -> Places | None:
        """Return the places of the atoms among the inputs; None if some atom is not an input."""
        return None if self._indices is None else np.concatenate([np.empty(0, np.intp), *self._indices])

    def unchosen(self) -> Places:
        """Return the inputs that are not atoms."""
        free = np.ones(self.n_inputs, bool)
        for indices in self._indices or []:
            free[indices] = False
        return np.flatnonzero(free)

    def basis_for(self, indices: Places) -> Basis:
        """Return the basis so far with the features and residuals of some inputs."""
        R = self._R[: self.n, : self.n]
        return Basis(self.landmarks, R, self.features(indices), self.residuals(indices), None, self.trace)

    def residual_gram(self, indices: Places) -> Array:
        """Return K_AA - F_A F_A' for some inputs A."""
        X_A, F_A = in_double(self.inputs(indices)), in_double(self.features(indices))
        return self._run_alone(lambda: self.kernel.gram(X_A) - F_A @ F_A.T)

    def append_inputs(self, indices: Places) -> int:
        """Take inputs as atoms; return how many were independent of the basis and of each other."""
        atoms = self.inputs(indices)
        F_A = self.features(indices) if self.dtype == np.float64 else self._compute_features(atoms)
        taken = indices[self._append(atoms, F_A)]
        self.exhaust(taken)
        if self._indices is not None:
            self._indices.append(taken)
        return len(taken)

    def append_points(self, points: Array) -> int:
        """Take any points of input space as atoms; return how many were independent."""
        order = self._append(points, self._compute_features(points))
        self._indices = None
        return len(order)

    def _run_alone(self, task: Callable[[], T]) -> T:
        """Run a task with BLAS on one thread."""
        return self.engine.map(lambda _: task(), [None])[0]

    def _panels(self) -> Panels:
        return Panels.of(self.kernel, self.landmarks, self._R[: self.n, : self.n], 0)

    def _compute_features(self, points: Inputs) -> Array:
        """Return F of some points in float64, (., n)."""
        F = np.empty((points.shape[0], self.n))
        if self.n:
            panels = self._panels()
            self._run_alone(lambda: panels.fill(points, F))
        return F

    def _check_columns(self) -> None:
        """Refine rough columns, refuse a function that is not a kernel, and drop columns that exceed K by rounding."""
        if self._is_rough:
            self._refine(self._panels())
        least, sound = self._measure_columns(EXCESS[self.dtype] * self.largest_diagonal)
        if not self.kernel.is_definite:
            self._check_definite(np.array([least]))
        if sound < self.n:
            self.n = sound
            self._landmarks = [self.landmarks[:sound]]
            self._indices = None if self.indices is None else [self.indices[:sound]]
            self._recompute_residual()

    def _append(self, atoms: Inputs, F_A: Array) -> Places:
        H = self._run_alone(lambda: self.kernel.gram(in_double(atoms)))
        if not self.kernel.is_definite:
            check_symmetric(self.kernel, H, INDEFINITE[self.dtype])
        H -= self._run_alone(lambda: F_A @ F_A.T)
        L, order = self._run_alone(lambda: pivoted_cholesky(H, self.least))
        if not self.kernel.is_definite:
            self._check_definite(left_over(H, L, order))
        order = order[: self.capacity - self.n]
        s, e = self.n, self.n + len(order)
        if s == e:
            return order
        self._R[s:e, :s] = F_A[order]
        self._R[s:e, s:e] = L[: e - s, : e - s]
        before = self.remaining
        explained = np.cumsum(self._extend(Panels.of(self.kernel, atoms[order], self._R[:e, :e], s)))
        needed = 1 + int(np.searchsorted(explained, before - self._enough))
        order = order[:needed]
        self.n = s + len(order)
        self._is_rough = self._is_rough or (s > 0 and self.dtype != np.float64)
        self._landmarks.append(atoms[order])
        if self.n < e or self.remaining < np.sqrt(np.finfo(self.dtype).eps) * self._accurate_from:
            self._recompute_residual()
            self._accurate_from = self.remaining
        return order

    def _check_definite(self, residuals: Array) -> None:
        least = float(residuals.min(initial=0.0))
        if least < -INDEFINITE[self.dtype] * self.largest_diagonal:
            raise not_a_kernel(self.kernel, f"k(x, x) less its part in the span of the landmarks is {least:.3g}")


def pivoted_cholesky(H: Array, least: float) -> tuple[Array, Places]:
    """Return L and order with `H[order][:, order] = L L'`, up to rows whose residual diagonal is at most `least`."""
    if not np.diagonal(H).max(initial=0.0) > least:
        return np.zeros((0, 0), H.dtype), np.zeros(0, np.intp)
    C, pivots, rank, _ = lapack.dpstrf(H, tol=least, lower=1)
    return np.ascontiguousarray(np.tril(C)[:rank, :rank]), (pivots[:rank] - 1).astype(np.intp)
