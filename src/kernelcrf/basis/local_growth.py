"""A basis that grows over inputs in this process."""

from __future__ import annotations

import numpy as np

from kernelcrf.arrays import Array, Floats, Inputs, Places, is_sparse
from kernelcrf.basis.definiteness import check_diagonal
from kernelcrf.basis.factor import Basis, GrowingFactor, row_blocks
from kernelcrf.basis.panels import Panels, in_double
from kernelcrf.basis.residuals import extend_rows, fresh_residual, passed, refine_rows, sound_columns
from kernelcrf.engines.local import LocalEngine
from kernelcrf.kernels.inputs import InputKernel


class LocalGrowth(GrowingFactor):
    """A basis that grows over the distinct inputs X (U, d), from no atoms or from an earlier basis `start`."""

    def __init__(
        self,
        kernel: InputKernel,
        X: Inputs,
        capacity: int,
        tol: float,
        engine: LocalEngine,
        start: Basis | None = None,
    ) -> None:
        self._X, self._blocks = X, row_blocks(X.shape[0])
        diagonals = engine.map(lambda rows: kernel.diagonal(in_double(X[rows])), self._blocks)
        self._diagonal = np.concatenate([np.empty(0), *diagonals])
        check_diagonal(kernel, self._diagonal)
        diagonal = float(self._diagonal.sum()), float(self._diagonal.max(initial=0.0))
        super().__init__(kernel, capacity, tol, engine, X.dtype, diagonal)
        self._F = np.empty((X.shape[0], capacity), X.dtype)
        self.residual = self._diagonal.copy()
        if start is not None:
            self._take_up(start)
            self._F[:, : self.n] = start.F
            self.residual = start.residual.copy()
        self._accurate_from = self.remaining

    @property
    def n_inputs(self) -> int:
        """Return U, the number of distinct inputs."""
        return int(self._X.shape[0])

    @property
    def is_sparse(self) -> bool:
        """Return whether the inputs are CSR."""
        return is_sparse(self._X)

    @property
    def remaining(self) -> float:
        """Return tr(K - F F')."""
        return float(self.residual.sum())

    def inputs(self, indices: Places | None = None) -> Inputs:
        """Return some of the distinct inputs, or all of them."""
        return self._X if indices is None else self._X[indices]

    def features(self, indices: Places) -> Array:
        """Return F of some inputs, (., n)."""
        return self._F[indices, : self.n]

    def residuals(self, indices: Places | None = None) -> Floats:
        """Return d of some inputs, or of all of them."""
        return self.residual.copy() if indices is None else self.residual[indices]

    def draw(self, shares: Floats) -> Places:
        """Return the inputs at which the running sum of d passes shares, 0 <= share < 1, of its total."""
        cumulated = np.cumsum(self.residual)
        return passed(cumulated, shares * cumulated[-1])

    def largest(self, count: int) -> tuple[Places, float]:
        """Return the `count` inputs of the largest d, the first ones among equals, and the largest d of the others."""
        if self.n_inputs <= count:
            return np.arange(self.n_inputs), 0.0
        others = -float(np.partition(-self.residual, count)[count])
        above = np.flatnonzero(self.residual > others)
        ties = np.flatnonzero(self.residual == others)[: count - len(above)]
        return np.concatenate([above, ties]), others

    def exhaust(self, indices: Places) -> None:
        """Set d = 0 at inputs that depend on the atoms."""
        self.residual[indices] = 0.0

    def finish(self) -> Basis:
        """Return the basis; the growth cannot be used afterwards."""
        self._check_columns()
        n, R = self.n, self._R[: self.n, : self.n].copy()
        if n < self.capacity:
            _compact(self._F, n)
        return Basis(self.landmarks, R, self._F, self.residual, self.indices, self.trace)

    def _extend(self, panels: Panels) -> Floats:
        def fill(rows: slice) -> Floats:
            return extend_rows(panels, self._X[rows], self._F[rows], self.residual[rows])

        return np.asarray(np.sum(self.engine.map(fill, self._blocks), axis=0))

    def _refine(self, panels: Panels) -> None:
        def refine(rows: slice) -> None:
            refine_rows(panels, self._X[rows], self._F[rows], self._diagonal[rows], self.residual[rows], self._kept)

        self.engine.map(refine, self._blocks)
        self._exhaust_atoms()

    def _measure_columns(self, excess: float) -> tuple[float, int]:
        found = self.engine.map(
            lambda rows: sound_columns(self._diagonal[rows], self._F[rows, : self.n], self._kept, excess), self._blocks
        )
        return min((least for least, _ in found), default=0.0), min((n for _, n in found), default=self.n)

    def _recompute_residual(self) -> None:
        def recompute(rows: slice) -> None:
            self.residual[rows] = fresh_residual(self._diagonal[rows], self._F[rows, : self.n])

        self.engine.map(recompute, self._blocks)
        self._exhaust_atoms()

    def _exhaust_atoms(self) -> None:
        if self.indices is not None:
            self.exhaust(self.indices)


def _compact(F: Array, n: int) -> None:
    """Keep the first n columns in F's own memory and give the rest back."""
    flat = F.reshape(-1)
    for rows in row_blocks(len(F)):
        flat[rows.start * n : rows.stop * n] = F[rows, :n].ravel()
    del flat
    F.resize((len(F), n), refcheck=False)
