"""Where landmarks come from: the sequence and token of a training input for each of them.

A landmark that is an input has the place of its first token. A centre has that of the input nearest to it in the
kernel's own metric,

    |k_b - k_x|^2 = k(b, b) - 2 k(b, x) + k(x, x),

which for rbf and other kernels with k(x, x) = 1 is the input of the largest k(b, x).
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from kernelcrf.basis.factor import row_blocks
from kernelcrf.engines.local import LocalEngine
from kernelcrf.fitting import Fit
from kernelcrf.graphs.structure import Chains
from kernelcrf.kernels.inputs import InputKernel, Inputs

Places = npt.NDArray[np.intp]


def landmark_positions(fitted: Fit, kernel: InputKernel, chains: Chains, engine: LocalEngine) -> Places | None:
    """(n, 2), sequence and token of each landmark among the chains of the fit; None where there are no landmarks."""
    basis = fitted.features.basis
    if basis is None:
        return None
    indices = basis.indices
    if indices is None:
        indices = _nearest(kernel, basis.landmarks, fitted.found.inputs, engine)
    nodes = fitted.found.first[indices]
    sequences = np.searchsorted(chains.offsets, nodes, side="right") - 1
    return np.column_stack((sequences, nodes - chains.offsets[sequences])).astype(np.intp)


def _nearest(kernel: InputKernel, landmarks: Inputs, X: Inputs, engine: LocalEngine) -> Places:
    """(n,) rows of X; the first of several that are equally near."""

    def nearest_of(rows: slice) -> tuple[Places, npt.NDArray[np.floating]]:
        D = kernel.gram(X[rows], landmarks)
        D *= -2
        D += kernel.diagonal(X[rows])[:, None]
        own = D.argmin(axis=0)
        return rows.start + own, D[own, np.arange(D.shape[1])]

    found = engine.map(nearest_of, row_blocks(X.shape[0]))
    block = np.stack([distances for _, distances in found]).argmin(axis=0)
    nearest: Places = np.stack([rows for rows, _ in found])[block, np.arange(len(block))]
    return nearest
