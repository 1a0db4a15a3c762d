"""Compute the features `F = K_xB R^-T` of any inputs x, where B are the landmarks and `K_BB = R R'`.

The columns of F are computed in panels of `PANEL` columns, because matrix products are faster than single columns.
Everything is computed in float64, also for float32 inputs. Rounding errors of earlier columns grow when later columns
are divided by pivots: with float32, `|F_x|^2` would exceed `k(x, x)`. If F is stored in float32, each number is rounded
once, at the end.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.linalg import lapack

from kernelcrf.arrays import Array, Inputs
from kernelcrf.kernels.inputs import InputKernel

PANEL = 64
WIDE = 4


@dataclass(frozen=True, eq=False)
class Panels:
    """An object that computes features for new landmarks, from the features for earlier landmarks.

    atoms : the new landmarks, in float64.
    R : the lower triangular Cholesky factor of the kernel matrix of all landmarks, both earlier and new.
    start : the number of earlier landmarks.
    inverses : the inverses of the diagonal blocks of R, each with at most PANEL rows.
    """

    kernel: InputKernel
    atoms: Inputs
    R: Array
    start: int
    inverses: tuple[Array, ...]

    @classmethod
    def of(cls, kernel: InputKernel, atoms: Inputs, R: Array, start: int) -> Panels:
        """Return an object that computes features for new landmarks `atoms`, which follow `start` earlier landmarks.

        R : the lower triangular Cholesky factor of the kernel matrix of all landmarks, both earlier and new.
        """
        edges, R = range(start, len(R), PANEL), R.astype(np.float64, copy=False)
        inverses = tuple(_inverse(R[s : s + PANEL, s : s + PANEL]) for s in edges)
        return cls(kernel, in_double(atoms), R, start, inverses)

    def fill(self, X: Inputs, F: Array) -> Array:
        """Write the features of X for the new landmarks into F, and return them in float64.

        The new features are the columns of F from `self.start` on. The columns before these must have the features
        for the earlier landmarks. If F is float32, the rounding errors of the earlier columns are amplified in the new
        columns.
        """
        n = len(self.R)
        work = F
        if F.dtype != np.float64:
            work = np.empty((len(F), n))
            work[:, : self.start] = F[:, : self.start]
        with np.errstate(over="ignore", under="ignore", invalid="ignore"):
            self._fill(in_double(X), work)
            if work is not F:
                F[:, self.start : n] = work[:, self.start :]
        return work[:, self.start : n]

    def _fill(self, X: Inputs, F: Array) -> None:
        n = len(self.R)
        self.kernel.gram(X, self.atoms, out=F[:, self.start : n])
        inverses = iter(self.inverses)
        # Two levels of panels: a matrix product with 256 columns at a time is faster than with 64.
        for o in range(self.start, n, WIDE * PANEL):
            end = min(o + WIDE * PANEL, n)
            if o > 0:
                F[:, o:end] -= (self.R[o:end, :o] @ F[:, :o].T).T
            for s in range(o, end, PANEL):
                panel = F[:, s : min(s + PANEL, end)]
                if s > o:
                    panel -= F[:, o:s] @ self.R[s : min(s + PANEL, end), o:s].T
                panel[...] = panel @ next(inverses).T


def in_double(X: Inputs) -> Inputs:
    """Return X in float64, without a copy if it is float64 already."""
    return X.astype(np.float64, copy=False)


def _inverse(L: Array) -> Array:
    inverse, _ = lapack.dtrtri(L, lower=1)
    return np.ascontiguousarray(np.tril(inverse))
