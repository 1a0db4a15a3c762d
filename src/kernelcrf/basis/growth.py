"""A growing basis, as pivot rules see it: the algebra of `factor`, wherever the inputs are, and the protocol of rules.

`LocalGrowth` has the inputs in this process, `DistributedGrowth` of `kernelcrf.distributed` has them on workers of a
cluster. A rule works on both. On a cluster, `inputs`, `residuals` and `residual_gram` fetch the rows that they are
asked for, so a rule should ask for few of them at a time.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from typing import Protocol

import numpy as np

from kernelcrf.arrays import Array, DType, Floats, Inputs, Places
from kernelcrf.basis import factor
from kernelcrf.basis.factor import EXCESS, FLOOR, INDEFINITE, Basis, stack
from kernelcrf.basis.panels import Panels, in_double
from kernelcrf.engines.local import LocalEngine, single_threaded_blas
from kernelcrf.kernels.inputs import InputKernel


class Growth(ABC):
    """A basis of n atoms for U distinct inputs, with the residuals `d_x = k(x, x) - |F_x|^2`, while it grows.

    Subclasses keep the inputs, d and F, which has room for `capacity` columns.

    kernel : k_x.
    engine : the threads of this process, for the work of the rule itself.
    capacity, n : how many atoms there may be, and how many there are.
    least : a residual that is at most this counts as zero.
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
        """Return tr(K - F F'), the sum of all residuals."""

    @abstractmethod
    def inputs(self, indices: Places | None = None) -> Inputs:
        """Return some of the distinct inputs, or all of them."""

    @abstractmethod
    def residuals(self, indices: Places | None = None) -> Floats:
        """Return the residuals of some inputs, or of all of them."""

    @abstractmethod
    def draw(self, shares: Floats) -> Places:
        """Return the inputs at which the running sum of residuals passes shares, 0 <= share < 1, of its total."""

    @abstractmethod
    def largest(self, count: int) -> tuple[Places, float]:
        """Return the `count` inputs of the largest residuals, and the largest residual of all other inputs.

        Of inputs with equal residuals the first ones are taken.
        """

    @abstractmethod
    def exhaust(self, indices: Places) -> None:
        """Set the residuals of inputs that depend on the atoms to zero."""

    @abstractmethod
    def features(self, indices: Places, n: int) -> Array:
        """Return F of some inputs, (., n)."""

    @abstractmethod
    def extend(self, panels: Panels) -> Floats:
        """Fill new columns of F and subtract their squares from d; return what each column explains of the trace."""

    @abstractmethod
    def refine(self, panels: Panels, kept: int) -> None:
        """Compute all columns of F but the first `kept`, and d, from all atoms."""

    @abstractmethod
    def sound_columns(self, n: int, kept: int, excess: float) -> tuple[float, int]:
        """Return the least k(x, x) - |F_x|^2, and the number of columns (at least `kept`) with none below -excess."""

    @abstractmethod
    def recompute(self, n: int) -> None:
        """Compute d from F: the errors of running differences add up while the differences shrink."""

    @abstractmethod
    def release(self) -> tuple[Array, Floats]:
        """Return F with n columns, and d; the growth cannot be used afterwards."""

    @property
    def finished(self) -> bool:
        """Return whether there are enough atoms, or the trace is explained to the tolerance."""
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
        return Basis(self.landmarks, R, self.features(indices, self.n), self.residuals(indices), None, self.trace)

    def residual_gram(self, indices: Places) -> Array:
        """Return K_AA - F_A F_A' for some inputs A."""
        X_A, F_A = in_double(self.inputs(indices)), in_double(self.features(indices, self.n))
        with single_threaded_blas():
            return np.asarray(self.kernel.gram(X_A) - F_A @ F_A.T)

    def append_inputs(self, indices: Places) -> int:
        """Take inputs as atoms; return how many were independent of the basis and of each other."""
        atoms = self.inputs(indices)
        F_A = self.features(indices, self.n) if self.dtype == np.float64 else self._compute_features(atoms)
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

    def finish(self) -> Basis:
        """Return the basis; the growth cannot be used afterwards."""
        if self._is_rough:
            self.refine(self._panels(), self._kept)
            self._exhaust_atoms()
        self._drop_unsound()
        R = self._R[: self.n, : self.n].copy()
        return Basis(self.landmarks, R, *self.release(), self.indices, self.trace)

    def _panels(self) -> Panels:
        return Panels.of(self.kernel, self.landmarks, self._R[: self.n, : self.n], 0)

    def _compute_features(self, points: Inputs) -> Array:
        """Return F of some points in float64, (., n)."""
        F = np.empty((points.shape[0], self.n))
        if self.n:
            with single_threaded_blas():
                self._panels().fill(points, F)
        return F

    def _drop_unsound(self) -> None:
        """Refuse a function that is not a kernel, and drop columns that exceed K by rounding."""
        least, sound = self.sound_columns(self.n, self._kept, EXCESS[self.dtype] * self.largest_diagonal)
        if not self.kernel.is_definite:
            self._check_definite(np.array([least]))
        if sound < self.n:
            self.n = sound
            self._landmarks = [self.landmarks[:sound]]
            self._indices = None if self.indices is None else [self.indices[:sound]]
            self._recompute_residual()

    def _recompute_residual(self) -> None:
        self.recompute(self.n)
        self._exhaust_atoms()

    def _exhaust_atoms(self) -> None:
        if self.indices is not None:
            self.exhaust(self.indices)

    def _append(self, atoms: Inputs, F_A: Array) -> Places:
        with single_threaded_blas():
            H = self.kernel.gram(in_double(atoms))
            if not self.kernel.is_definite:
                factor.check_symmetric(self.kernel, H, INDEFINITE[self.dtype])
            H -= F_A @ F_A.T
            L, order = factor.pivoted_cholesky(H, self.least)
        if not self.kernel.is_definite:
            self._check_definite(factor.left_over(H, L, order))
        order = order[: self.capacity - self.n]
        s, e = self.n, self.n + len(order)
        if s == e:
            return order
        self._R[s:e, :s] = F_A[order]
        self._R[s:e, s:e] = L[: e - s, : e - s]
        before = self.remaining
        explained = np.cumsum(self.extend(Panels.of(self.kernel, atoms[order], self._R[:e, :e], s)))
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
            raise factor.not_a_kernel(self.kernel, f"k(x, x) less its part in the span of the landmarks is {least:.3g}")


class Rule(Protocol):
    """A way to choose atoms."""

    def grow(self, growth: Growth, rng: np.random.Generator) -> Iterator[int]:
        """Append atoms to `growth`, batch by batch; yield how many atoms of each batch were independent."""
        ...
