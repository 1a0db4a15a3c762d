"""Define `BasisBuilder`, which adds landmarks to a basis, and `Rule`, the protocol of rules that choose landmarks.

The module `factor` explains the formulas. `BasisBuilder` has two subclasses, and every rule works with both:
`LocalBasisBuilder` for inputs in the memory of this process, and `DistributedBasisBuilder` in `kernelcrf.distributed`
for inputs on the workers of a cluster. On a cluster, the methods `inputs`, `residuals` and `residual_gram` fetch rows
from workers. A rule should therefore request few rows at a time.
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
from kernelcrf.basis.recomputed_features import FeatureRows
from kernelcrf.engines.local import LocalEngine, single_threaded_blas
from kernelcrf.kernels.inputs import InputKernel


class Rows(ABC):
    """The distinct inputs x, their features F_x, and their residuals `k(x, x) - |F_x|^2`.

    The features are those for the landmarks that have been chosen so far.
    """

    @property
    @abstractmethod
    def n_inputs(self) -> int:
        """Return the number of distinct inputs."""

    @property
    @abstractmethod
    def remaining(self) -> float:
        """Return the sum of the residuals k(x, x) - |F_x|^2 of all inputs x, where F_x are the features of x."""

    @abstractmethod
    def inputs(self, indices: Places | None = None) -> Inputs:
        """Return the inputs with the given indices, one per row; return all inputs if `indices` is None."""

    @abstractmethod
    def residuals(self, indices: Places | None = None) -> Floats:
        """Return the residuals of the inputs with the given indices; return all residuals if `indices` is None."""

    @abstractmethod
    def draw(self, shares: Floats) -> Places:
        """Draw one input for each share in `shares`, and return the indices of the drawn inputs.

        A share is at least 0 and below 1. Its input is the first one at which the cumulative sum of residuals exceeds
        share * (sum of all residuals). With uniform random shares, the probability of an input is therefore
        proportional to its residual.
        """

    @abstractmethod
    def largest(self, count: int) -> tuple[Places, float]:
        """Return the indices of the inputs with the `count` largest residuals, and the largest residual of the others.

        If residuals are equal, inputs with smaller indices come first.
        """

    @abstractmethod
    def exhaust(self, indices: Places) -> None:
        """Set the residuals of the given inputs to 0, so that none of them is chosen as a landmark."""

    @abstractmethod
    def features(self, indices: Places, n: int) -> Array:
        """Return the first n features of the inputs with the given indices, one row per input."""

    @abstractmethod
    def extend(self, panels: Panels) -> Floats:
        """Compute the features for the new landmarks of `panels`, and subtract their squares from the residuals.

        Each input has one new feature per new landmark. Return, for each new feature, the sum of its squares over all
        inputs.
        """

    @abstractmethod
    def refine(self, panels: Panels, kept: int) -> None:
        """Recompute the features and the residuals of all inputs, but do not change the first `kept` features."""

    @abstractmethod
    def sound_columns(self, n: int, kept: int, excess: float) -> tuple[float, int]:
        """Return a pair: the smallest residual for the first n features, and how many of these features are accurate.

        The residual of an input x for j features is k(x, x) - |F_x|^2, where F_x are the first j features of x.
        Rounding errors can make it negative. The first j features are accurate if no input has a residual below
        -excess for j features, or if j is at most `kept`.
        """

    @abstractmethod
    def recompute(self, n: int) -> None:
        """Recompute the residuals from the first n features, because each update has added rounding errors."""


class BasisBuilder(Rows):
    """A basis to which landmarks are added, and the distinct inputs that it represents.

    kernel : the kernel of the inputs.
    engine : the object that runs functions in the threads of this process; rules may use it.
    capacity, n : the largest allowed number of landmarks, and the current number.
    least : residuals up to this value count as zero.
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
        """Start without landmarks; `diagonal` has the sum and the maximum of k(x, x) over all inputs x."""
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

    def _continue_from(self, start: Basis) -> None:
        """Start with the landmarks of an earlier basis."""
        self.n = self._kept = start.n
        self._R[: self.n, : self.n] = start.R
        self._landmarks = [start.landmarks]
        self._indices = None if start.indices is None else [start.indices]

    @abstractmethod
    def release(self) -> tuple[FeatureRows, Floats]:
        """Return the features and the residuals of all inputs. This object cannot be used afterwards."""

    @property
    def finished(self) -> bool:
        """Return whether there are `capacity` landmarks, or the sum of the residuals is small enough for `tol`."""
        return self.n >= self.capacity or self.remaining <= self._enough

    @property
    def landmarks(self) -> Inputs:
        """Return the landmarks that have been added so far, one per row."""
        return stack(self._landmarks) if self._landmarks else self.inputs(np.empty(0, np.intp))

    @property
    def indices(self) -> Places | None:
        """Return, for each landmark, its index among the inputs; None if some landmark is not an input."""
        return None if self._indices is None else np.concatenate([np.empty(0, np.intp), *self._indices])

    def unchosen(self) -> Places:
        """Return the indices of the inputs that are not landmarks."""
        free = np.ones(self.n_inputs, bool)
        for indices in self._indices or []:
            free[indices] = False
        return np.flatnonzero(free)

    def basis_for(self, indices: Places) -> Basis:
        """Return the current landmarks as a basis, with the features of the inputs with the given indices."""
        R = self._R[: self.n, : self.n]
        return Basis(self.landmarks, R, self.features(indices, self.n), self.residuals(indices), None, self.trace)

    def residual_gram(self, indices: Places) -> Array:
        """Return K_AA - F_A F_A', with the kernel matrix K_AA and the features F_A of the inputs with these indices."""
        X_A, F_A = in_double(self.inputs(indices)), in_double(self.features(indices, self.n))
        with single_threaded_blas():
            return np.asarray(self.kernel.gram(X_A) - F_A @ F_A.T)

    def append_inputs(self, indices: Places) -> int:
        """Append the inputs with the given indices as landmarks; return the number of new landmarks.

        Inputs that depend linearly (in feature space) on the landmarks or on each other are left out.
        """
        atoms = self.inputs(indices)
        F_A = self.features(indices, self.n) if self.dtype == np.float64 else self._compute_features(atoms)
        taken = indices[self._append(atoms, F_A)]
        self.exhaust(taken)
        if self._indices is not None:
            self._indices.append(taken)
        return len(taken)

    def append_points(self, points: Array) -> int:
        """Append points, which need not be inputs, as landmarks; return the number of new landmarks.

        Points that depend linearly (in feature space) on the landmarks or on each other are left out.
        """
        order = self._append(points, self._compute_features(points))
        self._indices = None
        return len(order)

    def finish(self) -> Basis:
        """Return the finished basis. This object cannot be used afterwards."""
        if self._is_rough:
            self.refine(self._panels(), self._kept)
            self._exhaust_atoms()
        self._drop_unsound()
        R = self._R[: self.n, : self.n].copy()
        return Basis(self.landmarks, R, *self.release(), self.indices, self.trace)

    def _panels(self) -> Panels:
        return Panels.of(self.kernel, self.landmarks, self._R[: self.n, : self.n], 0)

    def _compute_features(self, points: Inputs) -> Array:
        """Return the features of any points in float64, one row per point."""
        F = np.empty((points.shape[0], self.n))
        if self.n:
            with single_threaded_blas():
                self._panels().fill(points, F)
        return F

    def _drop_unsound(self) -> None:
        """Drop the last landmarks if rounding errors make residuals negative.

        Raise if the residuals show that the kernel is not positive semi-definite.
        """
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
            raise factor.not_a_kernel(
                self.kernel, f"the Cholesky factorisation of a Gram matrix leaves a residual of {least:.3g}"
            )


class Rule(Protocol):
    """An object that chooses landmarks; pass it to an estimator in `n_components=Landmarks(n, rule)`."""

    def grow(self, builder: BasisBuilder, rng: np.random.Generator) -> Iterator[int]:
        """Append landmarks to `builder` in batches, and yield the number of new landmarks after each batch."""
        ...
