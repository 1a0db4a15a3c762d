"""Sparse rows as they come: their product and their matrix equal the dense sum."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kernelcrf.basis.sparse_entries import ROWS, Entries
from kernelcrf.engines.local import LocalEngine

D = 5
ROW = st.lists(st.tuples(st.integers(-1, D - 1), st.floats(-3, 3)), max_size=6)


def entries(rows):
    flat = [entry for row in rows for entry in row]
    columns, values = [c for c, _ in flat], [v for _, v in flat]
    offsets = np.cumsum([0, *map(len, rows)])
    return Entries(np.array(columns, np.int32), np.array(values, np.float64), offsets.astype(np.int64), D)


def dense(rows):
    X = np.zeros((len(rows), D))
    for t, row in enumerate(rows):
        for column, value in row:
            if column >= 0:
                X[t, column] += value
    return X


@given(st.lists(ROW, max_size=6))
def test_entries_are_a_matrix(rows):
    X, W = entries(rows), np.random.default_rng(0).normal(size=(D, 3))
    assert X.shape == (len(rows), D)
    np.testing.assert_allclose(X.times(W), dense(rows) @ W, atol=1e-12)
    matrix = X.to_csr()
    np.testing.assert_allclose(matrix.toarray(), dense(rows), atol=1e-12)
    assert matrix.has_canonical_format


@pytest.mark.parametrize("N", [ROWS, ROWS + 1, 3 * ROWS - 5])
def test_threads_give_the_same_bits(N):
    rng = np.random.default_rng(1)
    offsets = np.arange(N + 1) * 3
    X = Entries(rng.integers(-1, D, 3 * N).astype(np.int32), rng.normal(size=3 * N), offsets, D)
    W = rng.normal(size=(D, 4))
    np.testing.assert_array_equal(X.times(W, LocalEngine(3)), X.times(W))
    np.testing.assert_allclose(X.times(W), X.to_csr() @ W, atol=1e-12)


def test_a_csr_matrix_does_not_change_the_entries_it_is_made_of():
    X = entries([[(3, 2.0), (1, 1.0)], [(2, 5.0), (0, 4.0)]])
    X.to_csr()
    assert X.columns.tolist() == [3, 1, 2, 0]
    assert X.values.tolist() == [2.0, 1.0, 5.0, 4.0]
