"""Sparse rows as they come: entries of a row in any order, several to a column that a row repeats.

That is enough for a product, `(X W)_t = sum over the entries e of row t of value_e W[column_e]`, and spares one the
sorting and the checks of a CSR matrix, which would take longer than the product of a single sentence.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp

from kernelcrf.engines.compiled import compiled
from kernelcrf.engines.local import LocalEngine

Integers = npt.NDArray[np.integer[Any]]
Floats = npt.NDArray[np.float64]
Array = npt.NDArray[np.floating[Any]]

ROWS = 4096


@dataclass(frozen=True, eq=False)
class Entries:
    """Row t of (N, d) has the entries `offsets[t]:offsets[t+1]`; one of column -1 is left out.

    columns, values : (E,) int32 and float64.
    offsets : (N + 1,) int64.
    """

    columns: npt.NDArray[np.int32]
    values: Floats
    offsets: npt.NDArray[np.int64]
    d: int

    @property
    def shape(self) -> tuple[int, int]:
        """(N, d)."""
        return len(self.offsets) - 1, self.d

    def times(self, W: Array, engine: LocalEngine = LocalEngine()) -> Floats:  # noqa: B008  -- a frozen value
        """The product with W (d, k), (N, k)."""
        N = self.shape[0]
        out = np.zeros((N, W.shape[1]))
        if engine.n_threads == 1 or N <= ROWS:
            _add_products(self.columns, self.values, self.offsets, W, out)
        else:
            blocks = [slice(low, min(low + ROWS, N)) for low in range(0, N, ROWS)]

            def fill(rows: slice) -> None:
                own = self.offsets[rows.start : rows.stop + 1]
                _add_products(self.columns, self.values, own, W, out[rows])

            engine.map(fill, blocks)
        return out

    def to_csr(self) -> sp.csr_array:
        """The same as a CSR matrix in canonical form."""
        columns, values, offsets, known = self.columns, self.values, self.offsets, self.columns >= 0
        if not known.all():
            columns, values, offsets = columns[known], values[known], np.append(0, np.cumsum(known))[offsets]
        X = sp.csr_array((values, columns, offsets), shape=self.shape)
        X.sum_duplicates()
        return X


@compiled
def _add_products(columns: Integers, values: Floats, offsets: Integers, W: Array, out: Floats) -> None:
    for t in range(len(out)):
        for e in range(offsets[t], offsets[t + 1]):
            c, value = columns[e], values[e]
            if c >= 0:
                for j in range(W.shape[1]):
                    out[t, j] += value * W[c, j]
