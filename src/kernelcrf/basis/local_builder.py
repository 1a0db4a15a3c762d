"""Define `LocalBasisBuilder`, a basis to which landmarks can be added, for inputs in the memory of this process."""

from __future__ import annotations

import numpy as np

from kernelcrf.arrays import Array, Floats, Inputs, Places
from kernelcrf.basis.builder import BasisBuilder, Rows
from kernelcrf.basis.factor import Basis, check_diagonal, row_blocks, stack
from kernelcrf.basis.panels import Panels, in_double
from kernelcrf.basis.recomputed_features import FeatureRows, RecomputedFeatures, compute_rows
from kernelcrf.engines.local import LocalEngine
from kernelcrf.kernels.inputs import InputKernel


class InputRows(Rows):
    """Inputs X in the memory of this process, one per row.

    diagonal : k(x, x) of each input x.
    F : the features F_x for the landmarks chosen so far, one row per input, with memory for `capacity` columns. None if
        features are not stored: they are then computed again, block by block, for each new batch of landmarks.
    residual : k(x, x) - |F_x|^2 of each input x.
    """

    def __init__(
        self, kernel: InputKernel, X: Inputs, capacity: int, engine: LocalEngine, *, stored: bool = True
    ) -> None:
        self.X, self.engine, self._blocks = X, engine, row_blocks(X.shape[0])
        diagonals = engine.map(lambda rows: kernel.diagonal(in_double(X[rows])), self._blocks)
        self.diagonal = np.concatenate([np.empty(0), *diagonals])
        check_diagonal(kernel, self.diagonal)
        self.F = np.empty((X.shape[0], capacity), X.dtype) if stored else None
        # The panels of all landmarks, if features are not stored.
        self._panels_of_all: Panels | None = None
        self.residual = self.diagonal.copy()

    @property
    def n_inputs(self) -> int:
        return int(self.X.shape[0])

    @property
    def remaining(self) -> float:
        return float(self.residual.sum())

    def inputs(self, indices: Places | None = None) -> Inputs:
        return self.X if indices is None else self.X[indices]

    def features(self, indices: Places | slice, n: int) -> Array:
        if self.F is not None:
            return self.F[indices, :n]
        X, panels = self.X[indices], self._panels_of_all
        F = np.empty((X.shape[0], 0 if panels is None else len(panels.R)))
        if panels is not None:
            panels.fill(X, F)
        return F[:, :n]

    def residuals(self, indices: Places | None = None) -> Floats:
        return self.residual.copy() if indices is None else self.residual[indices]

    def draw(self, shares: Floats) -> Places:
        cumulated = np.cumsum(self.residual)
        return passed(cumulated, shares * cumulated[-1])

    def largest(self, count: int) -> tuple[Places, float]:
        if self.n_inputs <= count:
            return np.arange(self.n_inputs), 0.0
        others = -float(np.partition(-self.residual, count)[count])
        above = np.flatnonzero(self.residual > others)
        ties = np.flatnonzero(self.residual == others)[: count - len(above)]
        return np.concatenate([above, ties]), others

    def exhaust(self, indices: Places) -> None:
        self.residual[indices] = 0.0

    def extend(self, panels: Panels) -> Floats:
        if self.F is None:
            earlier = self._panels_of_all
            if earlier is not None:
                atoms = stack([earlier.atoms[: panels.start], panels.atoms])
                self._panels_of_all = Panels.of(panels.kernel, atoms, panels.R, 0)
            else:
                self._panels_of_all = panels

        def fill(rows: slice) -> Floats:
            if self.F is None:
                new = self.features(rows, len(panels.R))[:, panels.start :]
            else:
                new = panels.fill(self.X[rows], self.F[rows])
            residual = self.residual[rows]
            residual -= np.einsum("ij,ij->i", new, new)
            np.maximum(residual, 0.0, out=residual)
            return np.asarray(np.einsum("ij,ij->j", new, new))

        return np.asarray(np.sum(self.engine.map(fill, self._blocks), axis=0))

    def refine(self, panels: Panels, kept: int) -> None:
        self._panels_of_all = None if self.F is not None else panels

        def refine(rows: slice) -> None:
            X = self.X[rows]
            columns = np.empty((X.shape[0], len(panels.R)))
            panels.fill(X, columns)
            if self.F is not None:
                self.F[rows, kept : len(panels.R)] = columns[:, kept:]
            self.residual[rows] = _residual(self.diagonal[rows], columns)

        self.engine.map(refine, self._blocks)

    def sound_columns(self, n: int, kept: int, excess: float) -> tuple[float, int]:
        def measure(rows: slice) -> tuple[float, int]:
            F, diagonal = self.features(rows, n), self.diagonal[rows]
            left = diagonal - np.einsum("ij,ij->i", F, F, dtype=np.float64)
            low = np.flatnonzero(left < -excess)
            sums = np.cumsum(np.square(F[low], dtype=np.float64), axis=1)
            sound = (sums <= diagonal[low, None] + excess).sum(axis=1)
            return float(left.min(initial=0.0)), max(int(sound.min(initial=n)), kept)

        measures = self.engine.map(measure, self._blocks)
        return min((least for least, _ in measures), default=0.0), min((sound for _, sound in measures), default=n)

    def recompute(self, n: int) -> None:
        def recompute(rows: slice) -> None:
            self.residual[rows] = _residual(self.diagonal[rows], self.features(rows, n))

        self.engine.map(recompute, self._blocks)


class LocalBasisBuilder(InputRows, BasisBuilder):
    """A basis to which landmarks are added, for the distinct inputs X; it may start from an earlier basis `start`.

    stored : whether features are stored; if not, they are computed each time they are needed.
    """

    def __init__(
        self,
        kernel: InputKernel,
        X: Inputs,
        capacity: int,
        tol: float,
        engine: LocalEngine,
        start: Basis | None = None,
        *,
        stored: bool = True,
    ) -> None:
        InputRows.__init__(self, kernel, X, capacity, engine, stored=stored)
        diagonal = float(self.diagonal.sum()), float(self.diagonal.max(initial=0.0))
        BasisBuilder.__init__(self, kernel, capacity, tol, engine, X.dtype, diagonal)
        if start is not None:
            self._continue_from(start)
            if self.F is None:
                self._panels_of_all = Panels.of(kernel, start.landmarks, start.R, 0)
            else:
                for rows in self._blocks:
                    self.F[rows, : self.n] = compute_rows(start.F, rows)
            self.residual = start.residual.copy()
        self._accurate_from = self.remaining

    def release(self) -> tuple[FeatureRows, Floats]:
        """Return the features and the residuals of all inputs, and free the memory of unused columns."""
        if self.F is None:
            R = self._R[: self.n, : self.n].copy()
            return RecomputedFeatures(self.kernel, self.landmarks, R, self.X), self.residual
        if self.n < self.capacity:
            flat = self.F.reshape(-1)
            for rows in row_blocks(len(self.F)):
                flat[rows.start * self.n : rows.stop * self.n] = self.F[rows, : self.n].ravel()
            del flat
            self.F.resize((len(self.F), self.n), refcheck=False)
        return self.F, self.residual


def passed(cumulated: Floats, levels: Floats) -> Places:
    """Return, for each level, the index of the first cumulative sum above this level, or the last index if none is."""
    return np.asarray(np.minimum(np.searchsorted(cumulated, levels, side="right"), len(cumulated) - 1))


def _residual(diagonal: Floats, F: Array) -> Floats:
    return np.asarray(np.maximum(diagonal - np.einsum("ij,ij->i", F, F, dtype=np.float64), 0.0))
