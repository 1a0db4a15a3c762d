"""The incomplete Cholesky factor of `K_x`, grown by atoms (section 5.3): `K ~ F F'`, `F = K_xB R^-T`, `K_BB =
R R'`.

Adding atoms A to a basis B of size n leaves the columns that exist as they are:

    H = K_AA - F_A F_A' = L L'                    residual Gram matrix of the new atoms
    R <- [[R, 0], [F_A, L]]
    F <- [F, (K_xA - F F_A') L^-T]                one panel of columns after another, by rows
    d <- d - rowsum(F_new^2)                      the residual diagonal: d_x = k(x, x) - |F_x|^2

L comes from LAPACK's pivoted Cholesky, which leaves out the atoms that depend on others to rounding: their
residual is below `FLOOR` times the largest `k(x, x)`. A user's kernel whose residuals come out negative by more
than rounding is none, and is refused. No jitter is added anywhere, so that `F_B = R` and `F_B F' = K_Bx` hold.
The same floor, of the trace, is the least relative tolerance there is.

`K - F F'` is a Schur complement, and so has no negative eigenvalue: a norm by F is never smaller than the kernel's own.
Everything is computed in float64 to keep that, and `EXCESS` is the most by which rounding may let `|F_x|^2` exceed
`k(x, x)`, relative to the largest; columns from the first that goes beyond are dropped. For float32 inputs F is stored
in float32, as F + D with `|D| <= u |F|` and u = 2^-24. Since `|D' v|^2 <= u^2 tr(K) |v|^2`, for every t > 0

    (F + D) (F + D)' <= (1 + t) F F' + (1 + 1/t) u^2 tr(K) I.

While a float32 basis grows, new columns are computed from stored ones, whose rounding they divide by their pivots. That
is enough to choose atoms; the columns are computed once more, from all atoms, when the choice is made.

Work goes over blocks of `ROWS` rows whatever the number of threads, each with BLAS on one thread, and sums over
blocks run in their order: results do not depend on `n_jobs`. Memory beside X, F (U, n) and R (n, n): 40 U bytes for
diagonals and draws, and in each thread `ROWS (2 d + WIDE PANEL) + n d` numbers of float64 (for CSR inputs and for
float32 `ROWS n` more).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray
from scipy.linalg import lapack

from kernelcrf.basis.definiteness import INDEFINITE, check_diagonal, check_symmetric, left_over, not_a_kernel
from kernelcrf.basis.panels import Panels, in_double
from kernelcrf.basis.residuals import extend_rows, fresh_residual, passed, refine_rows, sound_columns
from kernelcrf.engines.local import LocalEngine
from kernelcrf.kernels.inputs import Array, InputKernel, Inputs, is_sparse

ROWS = 2048
FLOOR = {np.dtype(np.float64): 1e-12, np.dtype(np.float32): 1e-5}
EXCESS = {np.dtype(np.float64): 1e-9, np.dtype(np.float32): 1e-6}


@dataclass(frozen=True, eq=False)
class Basis:
    """The chosen atoms: `landmarks` (n, d), `R` (n, n) lower, `F` (U, n), `residual` (U,) the diagonal of K -
    F F'; R is float64, landmarks and F have the precision of the inputs.

    `indices` (n,) are the atoms' places among the inputs, None where some atom is no input; `trace` is that
    of K.
    """

    landmarks: Inputs
    R: Array
    F: Array
    residual: NDArray[np.float64]
    indices: NDArray[np.intp] | None
    trace: float

    @property
    def n(self) -> int:
        """The number of atoms."""
        return len(self.R)

    @property
    def relative_residual(self) -> float:
        """tr(K - F F') / tr K."""
        return float(self.residual.sum() / self.trace) if self.trace > 0 else 0.0


def row_blocks(rows: int) -> list[slice]:
    """Slices of `ROWS` rows; they depend on nothing but the number of rows."""
    return [slice(start, min(start + ROWS, rows)) for start in range(0, rows, ROWS)]


def stack(parts: list[Inputs]) -> Inputs:
    """Inputs one below the other."""
    if len(parts) == 1:
        return parts[0]
    return sp.vstack(parts, format="csr") if any(map(is_sparse, parts)) else np.vstack(parts)


class Growth:
    """A basis while it grows: `F` with room for `capacity` columns of which the first `n` are there."""

    landmarks: list[Inputs]
    indices: list[NDArray[np.intp]] | None

    def __init__(
        self,
        kernel: InputKernel,
        X: Inputs,
        capacity: int,
        tol: float,
        engine: LocalEngine,
        start: Basis | None = None,
    ) -> None:
        self.kernel, self.X, self.capacity, self.engine = kernel, X, capacity, engine
        self.blocks = row_blocks(X.shape[0])
        diagonals = engine.map(lambda rows: kernel.diagonal(in_double(X[rows])), self.blocks)
        self.diagonal = np.concatenate([np.empty(0), *diagonals])
        check_diagonal(kernel, self.diagonal)
        self.trace = float(self.diagonal.sum())
        self._begin(X.dtype, float(self.diagonal.max(initial=0.0)), tol)
        self.F = np.empty((X.shape[0], capacity), X.dtype)
        self.residual = self.diagonal.copy()
        if start is not None:
            self.n = self.kept = start.n
            self.F[:, : self.n] = start.F
            self.R[: self.n, : self.n] = start.R
            self.residual = start.residual.copy()
            self.landmarks = [start.landmarks]
            self.indices = None if start.indices is None else [start.indices]
        self._accurate_from = self.remaining

    def _begin(self, dtype: np.dtype[Any], largest: float, tol: float) -> None:
        """No atoms yet; the trace is known."""
        floor = FLOOR[dtype]
        self.dtype = dtype
        self.enough = max(tol, floor) * self.trace
        self.least = floor * largest
        self.largest_diagonal = largest
        self.R = np.zeros((self.capacity, self.capacity))
        self.n = self.kept = 0
        self.is_rough = False
        self.landmarks, self.indices = [], []

    @property
    def n_inputs(self) -> int:
        """U, the number of inputs."""
        return int(self.X.shape[0])

    @property
    def is_sparse(self) -> bool:
        """Whether inputs are CSR."""
        return is_sparse(self.X)

    @property
    def remaining(self) -> float:
        """tr(K - F F')."""
        return float(self.residual.sum())

    def inputs(self, indices: NDArray[np.intp] | slice) -> Inputs:
        """Some of the inputs."""
        return self.X[indices]

    def features(self, indices: NDArray[np.intp]) -> Array:
        """F of some inputs, (., n)."""
        return self.F[indices, : self.n]

    def residuals(self, indices: NDArray[np.intp]) -> NDArray[np.float64]:
        """d of some inputs."""
        return self.residual[indices]

    def drawn(self, shares: NDArray[np.float64]) -> NDArray[np.intp]:
        """The inputs at which the running sum of d passes shares, 0 <= share < 1, of its total."""
        cumulated = np.cumsum(self.residual)
        return passed(cumulated, shares * cumulated[-1])

    def largest(self, count: int) -> tuple[NDArray[np.intp], float]:
        """The `count` inputs of the largest d, first ones first among equals; and the largest d of the others."""
        if self.n_inputs <= count:
            return np.arange(self.n_inputs), 0.0
        others = -float(np.partition(-self.residual, count)[count])
        above = np.flatnonzero(self.residual > others)
        ties = np.flatnonzero(self.residual == others)[: count - len(above)]
        return np.concatenate([above, ties]), others

    def exhaust(self, indices: NDArray[np.intp]) -> None:
        """Have d = 0 at inputs that were found dependent."""
        self.residual[indices] = 0.0

    @property
    def finished(self) -> bool:
        """Whether there are as many atoms as asked for, or the trace is explained to the tolerance."""
        return self.n >= self.capacity or self.remaining <= self.enough

    def residual_gram(self, indices: NDArray[np.intp]) -> Array:
        """K_AA - F_A F_A' of some inputs."""
        X_A, F_A = in_double(self.inputs(indices)), in_double(self.features(indices))
        H: Array = self._alone(lambda: self.kernel.gram(X_A) - F_A @ F_A.T)
        return H

    def append_inputs(self, indices: NDArray[np.intp]) -> int:
        """Take inputs as atoms; returns how many were independent of the basis and of each other."""
        atoms = self.inputs(indices)
        taken = indices[self._append(atoms, self.features(indices) if self._is_double else self._exactly(atoms))]
        self.exhaust(taken)
        if self.indices is not None:
            self.indices.append(taken)
        return len(taken)

    def append_points(self, points: Array) -> int:
        """Take any points of input space as atoms; returns how many were independent."""
        order = self._append(points, self._exactly(points))
        self.indices = None
        return len(order)

    def finish(self) -> Basis:
        """The basis as it is; this object is of no use afterwards."""
        self._check_columns()
        n, R = self.n, self.R[: self.n, : self.n].copy()
        if n < self.capacity:
            _compact(self.F, n)
        landmarks = stack(self.landmarks) if self.landmarks else self.X[:0]
        indices = None if self.indices is None else np.concatenate([np.empty(0, np.intp), *self.indices])
        return Basis(landmarks, R, self.F, self.residual, indices, self.trace)

    def _alone(self, task: Any) -> Any:
        return self.engine.map(lambda _: task(), [None])[0]

    @property
    def _is_double(self) -> bool:
        """Whether stored features are what was computed."""
        return self.dtype == np.float64

    def _panels(self) -> Panels:
        """The columns that are there, for any inputs."""
        return Panels.of(self.kernel, stack(self.landmarks), self.R[: self.n, : self.n], 0)

    def _exactly(self, points: Inputs) -> Array:
        """F of some points in float64, (., n)."""
        F = np.empty((points.shape[0], self.n))
        if self.n:
            panels = self._panels()
            self._alone(lambda: panels.fill(points, F))
        return F

    def _check_columns(self) -> None:
        """Compute rough columns anew; then refuse a user's kernel that is none, and drop what exceeds K by rounding."""
        if self.is_rough:
            self._refine(self._panels())
        least, sound = self._measured_columns(EXCESS[self.dtype] * self.largest_diagonal)
        if self._needs_proof:
            self._check_definite(np.array([least]))
        if sound < self.n:
            self._truncate(sound)

    def _refine(self, panels: Panels) -> None:
        """Compute the columns of F that were not there at the start, and d, from all atoms."""

        def refine(rows: slice) -> None:
            refine_rows(panels, self.X[rows], self.F[rows], self.diagonal[rows], self.residual[rows], self.kept)

        self.engine.map(refine, self.blocks)
        self._exhaust_taken()

    def _measured_columns(self, excess: float) -> tuple[float, int]:
        """The least k(x, x) - |F_x|^2, and how many columns have none below -excess."""
        found = self.engine.map(
            lambda rows: sound_columns(self.diagonal[rows], self.F[rows, : self.n], self.kept, excess), self.blocks
        )
        return min((least for least, _ in found), default=0.0), min((n for _, n in found), default=self.n)

    def _truncate(self, n: int) -> None:
        """Keep the first n atoms."""
        self.n = n
        self.landmarks = [stack(self.landmarks)[:n]]
        if self.indices is not None:
            self.indices = [np.concatenate(self.indices)[:n]]
        self._recompute_residual()

    def _exhaust_taken(self) -> None:
        for indices in self.indices or []:
            self.residual[indices] = 0.0

    def _append(self, atoms: Inputs, F_A: Array) -> NDArray[np.intp]:
        H = self._alone(lambda: self.kernel.gram(in_double(atoms)))
        if self._needs_proof:
            check_symmetric(self.kernel, H, INDEFINITE[self.dtype])
        H -= self._alone(lambda: F_A @ F_A.T)
        order: NDArray[np.intp]
        L, order = self._alone(lambda: pivoted_cholesky(H, self.least))
        if self._needs_proof:
            self._check_definite(left_over(H, L, order))
        order = order[: self.capacity - self.n]
        s, e = self.n, self.n + len(order)
        if s == e:
            return order
        self.R[s:e, :s] = F_A[order]
        self.R[s:e, s:e] = L[: e - s, : e - s]
        before = self.remaining
        explained = np.cumsum(self._extended(Panels.of(self.kernel, atoms[order], self.R[:e, :e], s)))
        needed = 1 + int(np.searchsorted(explained, before - self.enough))
        order = order[:needed]
        self.n = s + len(order)
        self.is_rough = self.is_rough or (s > 0 and not self._is_double)
        self.landmarks.append(atoms[order])
        if self.n < e or self.remaining < np.sqrt(np.finfo(self.dtype).eps) * self._accurate_from:
            self._recompute_residual()
            self._accurate_from = self.remaining
        return order

    def _extended(self, panels: Panels) -> NDArray[np.float64]:
        """Fill new columns of F and take them out of d; returns what each of them explains of the trace."""

        def fill(rows: slice) -> NDArray[np.float64]:
            return extend_rows(panels, self.X[rows], self.F[rows], self.residual[rows])

        return np.asarray(np.sum(self.engine.map(fill, self.blocks), axis=0))

    @property
    def _needs_proof(self) -> bool:
        """Whether the kernel is a user's, which may be none."""
        return self.kernel.name in ("callable", "gaussian_process")

    def _check_definite(self, residuals: Array) -> None:
        """Residuals of a positive semi-definite matrix are not negative."""
        least = float(residuals.min(initial=0.0))
        if least < -INDEFINITE[self.dtype] * self.largest_diagonal:
            raise not_a_kernel(self.kernel, f"k(x, x) less its part in the span of the landmarks is {least:.3g}")

    def _recompute_residual(self) -> None:
        """Start the running differences afresh: their errors add up while what they measure shrinks."""

        def fresh(rows: slice) -> None:
            self.residual[rows] = fresh_residual(self.diagonal[rows], self.F[rows, : self.n])

        self.engine.map(fresh, self.blocks)
        self._exhaust_taken()


def pivoted_cholesky(H: Array, least: float) -> tuple[Array, NDArray[np.intp]]:
    """L and order with `H[order][:, order] = L L'`, up to rows whose residual diagonal is at most `least`."""
    if not np.diagonal(H).max(initial=0.0) > least:
        return np.zeros((0, 0), H.dtype), np.zeros(0, np.intp)
    C, pivots, rank, _ = lapack.dpstrf(H, tol=least, lower=1)
    return np.ascontiguousarray(np.tril(C)[:rank, :rank]), (pivots[:rank] - 1).astype(np.intp)


def _compact(F: Array, n: int) -> None:
    """Keep the first n columns in F's own memory and give the rest back."""
    flat = F.reshape(-1)
    for rows in row_blocks(len(F)):
        flat[rows.start * n : rows.stop * n] = F[rows, :n].ravel()
    del flat
    F.resize((len(F), n), refcheck=False)
