"""Find the distinct inputs among all tokens, so that features are computed only once for equal inputs.

The model stays the same (Lemma 6 and equation 11 of the paper): in a kernel expansion `sum_i alpha_i k(x_i, .)`, the
coefficients alpha_i of equal inputs x_i can be added up. `distinct` finds the distinct rows of a matrix, in the order
of their first appearance, and an index that maps each row to its distinct row.

The search is one pass over the rows with a hash table; rows with equal hashes are compared. Its time is proportional to
the number of stored entries, and its memory is 8 to 40 bytes per row. 0.0 and -0.0 are equal. CSR rows that differ only
in the order of their entries, or in stored zeros, are equal as well.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from kernelcrf.arrays import Array, Inputs, Places, as_inputs, is_sparse
from kernelcrf.engines.compiled import compiled


@dataclass(frozen=True, eq=False)
class Distinct:
    """The distinct inputs of all tokens.

    inputs : the distinct inputs, one per row.
    index : for each token, the row of its input in `inputs`.
    first : for each distinct input, the index of the first token with this input.
    """

    inputs: Inputs
    index: Places
    first: Places

    @property
    def U(self) -> int:
        """Return the number of distinct inputs."""
        return len(self.first)

    @property
    def N(self) -> int:
        """Return the number of tokens."""
        return len(self.index)

    def expand(self, rows: Array) -> Array:
        """Convert one row per distinct input to one row per token, by repeating rows.

        If all inputs are distinct, return `rows` itself.
        """
        _check_rows(rows, self.U, "distinct input")
        return rows if self.U == self.N else rows[self.index]

    def sum(self, rows: Array) -> Array:
        """Convert one row per token to one row per distinct input, by adding up the rows of equal inputs.

        If all inputs are distinct, return `rows` itself.
        """
        _check_rows(rows, self.N, "token")
        if self.U == self.N:
            return rows
        total = np.zeros((self.U, *rows.shape[1:]), rows.dtype)
        add_rows(np.ascontiguousarray(rows).reshape(self.N, -1), self.index, total.reshape(self.U, -1))
        return total


def distinct(X: Inputs) -> Distinct:
    """Find the distinct rows of a dense or CSR matrix X; if all rows are distinct, they are not copied."""
    X = _check_finite(X)
    if is_sparse(X):
        X = _make_canonical(X)
        values, columns, offsets = X.data, X.indices, X.indptr
    else:
        X = np.ascontiguousarray(X)
        values, columns, offsets = X.ravel(), np.empty(0, np.int32), np.arange(X.shape[0] + 1) * X.shape[1]
    index, first = _match(values, values.view(np.uint32 if X.dtype == np.float32 else np.uint64), columns, offsets)
    return Distinct(X if len(first) == X.shape[0] else X[first], index, first)


def each(X: Inputs) -> Distinct:
    """Return all rows of X as distinct inputs, without a search for equal rows; use this if equal rows are rare."""
    X = _check_finite(X)
    rows = np.arange(X.shape[0])
    return Distinct(X, rows, rows)


def _check_finite(X: Inputs) -> Inputs:
    X = as_inputs(X)
    values = X.data if is_sparse(X) else X
    if not np.isfinite([values.min(initial=0.0), values.max(initial=0.0)]).all():
        raise ValueError(
            "X contains NaN or infinity: expected finite numbers. Fill NaN with sklearn.impute, and replace infinity "
            "by the largest value that makes sense"
        )
    return X


def _make_canonical(X: Inputs) -> Inputs:
    if X.has_canonical_format and X.data.all():
        return X
    X = X.copy()
    X.sum_duplicates()
    X.eliminate_zeros()
    return X


def _check_rows(rows: Array, expected: int, noun: str) -> None:
    if rows.shape[:1] != (expected,):
        raise ValueError(f"rows has shape {rows.shape}: expected {expected} rows, one for each {noun}")


@compiled
def add_rows(rows: Array, index: Places, total: Array) -> None:
    """Add rows[t] to total[index[t]] for each t, in the order of t."""
    for t in range(rows.shape[0]):
        u = index[t]
        for j in range(rows.shape[1]):
            total[u, j] += rows[t, j]


@compiled
def _mix(h: np.uint64, word: np.uint64) -> np.uint64:
    h = (h ^ word) * np.uint64(0x9E3779B97F4A7C15)
    return h ^ (h >> np.uint64(29))


@compiled
def _slot(h: np.uint64, mask: np.uint64) -> np.uint64:
    # Round floats differ mostly in their high bits, and a slot of the table is made of low bits: mix them.
    h = (h ^ (h >> np.uint64(33))) * np.uint64(0xFF51AFD7ED558CCD)
    h = (h ^ (h >> np.uint64(33))) * np.uint64(0xC4CEB9FE1A85EC53)
    return (h ^ (h >> np.uint64(33))) & mask


@compiled
def _match(values: Array, bits: Array, columns: Array, offsets: Array) -> tuple[Places, Places]:
    """Return the index of the distinct row of each row, and the index of the first row of each distinct row.

    Row t has the entries offsets[t] to offsets[t + 1] - 1 of `values` and `columns`; `columns` is empty if the matrix
    is dense. `bits` are the bits of `values` as integers; hashes are computed from `bits`.
    """
    N, has_columns = len(offsets) - 1, len(columns) > 0
    size, U = 1, 0
    while size < 2 * N:
        size *= 2
    table, mask = np.full(size, -1, np.int64), np.uint64(size - 1)
    index, first = np.empty(N, np.int64), np.empty(N, np.int64)
    for t in range(N):
        start, length = offsets[t], offsets[t + 1] - offsets[t]
        h = np.uint64(length)
        for j in range(start, start + length):
            if has_columns:
                h = _mix(h, np.uint64(columns[j]))
            h = _mix(h, np.uint64(bits[j]) if values[j] != 0 else np.uint64(0))
        slot = _slot(h, mask)
        while True:
            u = table[slot]
            if u < 0:
                table[slot] = index[t] = U
                first[U] = t
                U += 1
                break
            s = offsets[first[u]]
            same = offsets[first[u] + 1] - s == length
            j = 0
            while same and j < length:
                same = values[s + j] == values[start + j] and (not has_columns or columns[s + j] == columns[start + j])
                j += 1
            if same:
                index[t] = u
                break
            slot = (slot + np.uint64(1)) & mask
    return index, first[:U].copy()
