"""Define `Entries`, a sparse matrix whose rows are not sorted by column, and may have several entries per column.

The product with a matrix W does not depend on the order: row t of the product is the sum of `value * W[column]` over
the entries of row t. For a single sentence, sorting and checking a CSR matrix would take longer than this product.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import scipy.sparse as sp

from kernelcrf.arrays import Array, Floats, Ints, Labels
from kernelcrf.engines.compiled import compiled
from kernelcrf.engines.local import LocalEngine

ROWS = 4096


@dataclass(frozen=True, eq=False)
class Entries:
    """A sparse matrix, stored by rows, with the entries of each row in any order.

    columns, values : the column (int32) and the value (float64) of each entry; entries in column -1 are ignored.
    offsets : row t has the entries `offsets[t]:offsets[t+1]` (int64).
    d : the number of columns of the matrix.
    """

    columns: Labels
    values: Floats
    offsets: Ints
    d: int

    @property
    def shape(self) -> tuple[int, int]:
        """Return the number of rows and the number of columns."""
        return len(self.offsets) - 1, self.d

    def times(self, W: Array, engine: LocalEngine = LocalEngine()) -> Floats:  # noqa: B008  -- a frozen value
        """Return the product of this sparse matrix and the dense matrix W."""
        N = self.shape[0]
        out = np.zeros((N, W.shape[1]))

        def fill(low: int) -> None:
            row_offsets = self.offsets[low : low + ROWS + 1]
            _add_products(self.columns, self.values, row_offsets, W, out[low : low + ROWS])

        if engine.n_threads == 1 or N <= ROWS:
            _add_products(self.columns, self.values, self.offsets, W, out)
        else:
            engine.map(fill, range(0, N, ROWS))
        return out

    def to_csr(self, *, reuse: bool = False) -> sp.csr_array:
        """Return the rows as a CSR matrix with sorted columns; entries in the same place are added up.

        reuse : whether the matrix may take over the arrays of the columns and the values, which then change.
        """
        columns, values, offsets, known = self.columns, self.values, self.offsets, self.columns >= 0
        if not known.all():
            columns, values, offsets = columns[known], values[known], np.append(0, np.cumsum(known))[offsets]
        # Adding up sorts the arrays in place, and a model may read the same entries again.
        # If the offsets had 64 bits, SciPy would copy the columns to 64 bits.
        offsets = offsets.astype(np.int32 if len(columns) <= np.iinfo(np.int32).max else np.int64)
        X = sp.csr_array((values, columns, offsets), shape=self.shape, copy=not reuse)
        X.sum_duplicates()
        return X


@compiled
def _add_products(columns: Array, values: Floats, offsets: Array, W: Array, out: Floats) -> None:
    for t in range(len(out)):
        for e in range(offsets[t], offsets[t + 1]):
            c, value = columns[e], values[e]
            if c >= 0:
                for j in range(W.shape[1]):
                    out[t, j] += value * W[c, j]
