"""The residual diagonal `d_x = k(x, x) - |F_x|^2` of some rows of F, and the columns of F that it is computed with."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from kernelcrf.basis.panels import Panels
from kernelcrf.kernels.inputs import Array, Inputs


def extend_rows(panels: Panels, X: Inputs, F: Array, residual: NDArray[np.float64]) -> NDArray[np.float64]:
    """Fill the columns of panels in rows F of inputs X, take their squares out of `residual`; returns their sums."""
    new = panels.fill(X, F)
    residual -= np.einsum("ij,ij->i", new, new)
    np.maximum(residual, 0.0, out=residual)
    return np.asarray(np.einsum("ij,ij->j", new, new))


def refine_rows(
    panels: Panels, X: Inputs, F: Array, diagonal: NDArray[np.float64], residual: NDArray[np.float64], kept: int
) -> None:
    """Compute the columns of panels in rows F of inputs X, all but the first `kept` of them, and `residual`, anew."""
    columns = np.empty((len(F), len(panels.R)))
    panels.fill(X, columns)
    F[:, kept : len(panels.R)] = columns[:, kept:]
    residual[:] = fresh_residual(diagonal, columns)


def sound_columns(diagonal: NDArray[np.float64], F: Array, kept: int, excess: float) -> tuple[float, int]:
    """The least k(x, x) - |F_x|^2, and the number of columns, `kept` or more, up to which none is below -excess."""
    left = diagonal - np.einsum("ij,ij->i", F, F, dtype=np.float64)
    least, n = float(left.min(initial=0.0)), F.shape[1]
    if least < -excess:
        rows = np.flatnonzero(left < -excess)
        sums = np.cumsum(np.square(F[rows], dtype=np.float64), axis=1)
        n = int((sums <= diagonal[rows, None] + excess).sum(axis=1).min())
    return least, max(n, kept)


def fresh_residual(diagonal: NDArray[np.float64], F: Array) -> NDArray[np.float64]:
    """d from its definition."""
    return np.asarray(np.maximum(diagonal - np.einsum("ij,ij->i", F, F, dtype=np.float64), 0.0))


def passed(cumulated: NDArray[np.float64], levels: NDArray[np.float64]) -> NDArray[np.intp]:
    """Where running sums first pass each level; the last place where rounding lets none of them."""
    return np.asarray(np.minimum(np.searchsorted(cumulated, levels, side="right"), len(cumulated) - 1))
