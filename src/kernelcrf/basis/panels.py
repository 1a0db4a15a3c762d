"""Columns of `F = K_xB R^-T` for any inputs, one panel of columns after another.

The Gram matrix, R and the triangular solve are float64 whatever the precision of the inputs: each pivot divides the
rounding errors of all columns before it, and float32 would let `|F_x|^2` exceed `k(x, x)`. F may be stored in float32,
which rounds each number once, at the end.
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
    """The columns `start` to n of F for any inputs, from the atoms of those columns and the rows of R, in float64."""

    kernel: InputKernel
    atoms: Inputs
    R: Array
    start: int
    inverses: tuple[Array, ...]

    @classmethod
    def of(cls, kernel: InputKernel, atoms: Inputs, R: Array, start: int) -> Panels:
        """Prepare the diagonal panels of R; `atoms` are those of the columns from `start` on."""
        edges, R = range(start, len(R), PANEL), R.astype(np.float64, copy=False)
        inverses = tuple(_inverse(R[s : s + PANEL, s : s + PANEL]) for s in edges)
        return cls(kernel, in_double(atoms), R, start, inverses)

    def fill(self, X: Inputs, F: Array) -> Array:
        """Write the columns from `start` on into F, (rows, n), whose earlier columns are there; return them in float64.

        Where F is float32 and earlier columns are there, their rounding enters the new ones, over the pivots of these.
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
        # Two levels, since a product of 64 columns with many is slower than one of 256.
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
    """Return X as float64."""
    return X.astype(np.float64, copy=False)


def _inverse(L: Array) -> Array:
    inverse, _ = lapack.dtrtri(L, lower=1)
    return np.ascontiguousarray(np.tril(inverse))
