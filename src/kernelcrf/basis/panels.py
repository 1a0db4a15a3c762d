"""Compute columns of the features `F = K_xB R^-T` for any inputs, one panel of columns after another.

The Gram matrix, R and the triangular solve are float64 for inputs of any precision. Dividing by a pivot amplifies the
rounding errors of all earlier columns, and in float32 `|F_x|^2` would exceed `k(x, x)`. F may be stored in float32:
then each number is rounded once, at the end.
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
    """Computes the columns `start` to n of F for any inputs, from the atoms of these columns and from R, in float64."""

    kernel: InputKernel
    atoms: Inputs
    R: Array
    start: int
    inverses: tuple[Array, ...]

    @classmethod
    def of(cls, kernel: InputKernel, atoms: Inputs, R: Array, start: int) -> Panels:
        """Invert the diagonal panels of R; `atoms` belong to the columns from `start` on."""
        edges, R = range(start, len(R), PANEL), R.astype(np.float64, copy=False)
        inverses = tuple(_inverse(R[s : s + PANEL, s : s + PANEL]) for s in edges)
        return cls(kernel, in_double(atoms), R, start, inverses)

    def fill(self, X: Inputs, F: Array) -> Array:
        """Write the columns from `start` on into F, (rows, n), and return them in float64.

        The columns before `start` must be filled. If F is float32, their rounding errors, divided by the new pivots,
        enter the new columns.
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
