"""The residual diagonal `d_x = k(x, x) - |F_x|^2` of some rows of F, and the columns of F that it is computed with."""

from __future__ import annotations

import numpy as np

from kernelcrf.arrays import Array, Floats, Inputs, Places
from kernelcrf.basis.panels import Panels


def extend_rows(panels: Panels, X: Inputs, F: Array, residual: Floats) -> Floats:
    """Fill new columns of F for inputs X and subtract their squares from `residual`; return the sums of squares."""
    new = panels.fill(X, F)
    residual -= np.einsum("ij,ij->i", new, new)
    np.maximum(residual, 0.0, out=residual)
    return np.asarray(np.einsum("ij,ij->j", new, new))


def refine_rows(panels: Panels, X: Inputs, F: Array, diagonal: Floats, residual: Floats, kept: int) -> None:
    """Compute the columns of panels in rows F of inputs X, all but the first `kept`, and `residual` again."""
    columns = np.empty((len(F), len(panels.R)))
    panels.fill(X, columns)
    F[:, kept : len(panels.R)] = columns[:, kept:]
    residual[:] = fresh_residual(diagonal, columns)


def sound_columns(diagonal: Floats, F: Array, kept: int, excess: float) -> tuple[float, int]:
    """Return the least k(x, x) - |F_x|^2, and the number of columns (at least `kept`) with none below -excess."""
    left = diagonal - np.einsum("ij,ij->i", F, F, dtype=np.float64)
    least, n = float(left.min(initial=0.0)), F.shape[1]
    if least < -excess:
        rows = np.flatnonzero(left < -excess)
        sums = np.cumsum(np.square(F[rows], dtype=np.float64), axis=1)
        n = int((sums <= diagonal[rows, None] + excess).sum(axis=1).min())
    return least, max(n, kept)


def fresh_residual(diagonal: Floats, F: Array) -> Floats:
    """Return d from its definition."""
    return np.asarray(np.maximum(diagonal - np.einsum("ij,ij->i", F, F, dtype=np.float64), 0.0))


def passed(cumulated: Floats, levels: Floats) -> Places:
    """Return the place where running sums first pass each level, or the last place if rounding lets none pass."""
    return np.asarray(np.minimum(np.searchsorted(cumulated, levels, side="right"), len(cumulated) - 1))
