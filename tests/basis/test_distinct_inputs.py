"""Distinct rows against numpy.unique, and Lemma 6."""

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import array_shapes, arrays

from kernelcrf.basis.distinct_inputs import distinct, each

tables = arrays(
    st.sampled_from([np.float64, np.float32]),
    array_shapes(min_dims=2, max_dims=2, min_side=0, max_side=12),
    elements=st.sampled_from([0.0, -0.0, 1.0, -1.0, 0.125]),
)


def by_sorting(X):
    """First rows in order of appearance, and the index, by numpy.unique."""
    _, first, inverse = np.unique(X + 0.0, axis=0, return_index=True, return_inverse=True)
    order = np.argsort(first)
    rank = np.empty(len(order), int)
    rank[order] = np.arange(len(order))
    return first[order], rank[inverse.ravel()]


@given(tables)
def test_dense_and_sparse_rows_are_those_of_sorting(X):
    expected = by_sorting(X) if X.shape[1] else (np.arange(min(1, len(X))), np.zeros(len(X), int))
    for inputs in (X, np.asfortranarray(X), sp.csr_array(X), sp.csr_matrix(X)):
        found = distinct(inputs)
        np.testing.assert_array_equal(found.first, expected[0])
        np.testing.assert_array_equal(found.index, expected[1])
        rows = found.inputs.toarray() if sp.issparse(found.inputs) else found.inputs
        assert rows.dtype == X.dtype
        np.testing.assert_array_equal(rows[found.index], X)


def test_many_rows_and_full_tables():
    X = np.random.default_rng(0).integers(0, 2, (5000, 10)).astype(np.float32)
    found = distinct(X)
    np.testing.assert_array_equal(found.first, by_sorting(X)[0])
    assert found.N == 5000
    assert found.U == len(found.first) <= 1024
    np.testing.assert_array_equal(found.index, by_sorting(X)[1])


def test_rows_that_are_all_distinct_are_not_copied():
    X = np.random.default_rng(0).normal(size=(50, 3))
    found = distinct(X)
    assert found.inputs is X
    rows = np.ones((50, 2))
    assert found.sum(rows) is rows
    assert found.expand(rows) is rows


def test_sparse_rows_in_any_order_with_stored_zeros_are_equal_and_the_users_matrix_stays():
    data = np.array([1.0, 2.0, 2.0, 1.0, 0.0, 0.5, 1.0, 1.5, -0.0])
    indices = np.array([0, 3, 3, 0, 1, 3, 0, 3, 2])
    X = sp.csr_matrix((data, indices, [0, 2, 5, 9]), shape=(3, 5))
    found = distinct(X)
    assert found.index.tolist() == [0, 0, 0]
    assert X.nnz == 9
    np.testing.assert_array_equal(found.inputs.toarray(), X[:1].toarray())


@given(st.integers(0, 2**31), st.integers(1, 40), st.sampled_from([np.float32, np.float64]))
def test_sums_over_tokens_are_lemma_6(seed, N, dtype):
    rng = np.random.default_rng(seed)
    X = rng.integers(0, 2, (N, 2)).astype(float)
    r = rng.normal(size=(N, 3)).astype(dtype)
    found = distinct(X)
    indicator = (found.index == np.arange(found.U)[:, None]).astype(float)
    assert found.sum(r).dtype == dtype
    np.testing.assert_allclose(found.sum(r), indicator @ r, atol=1e-5 if dtype == np.float32 else 1e-13)
    K = X @ X.T
    np.testing.assert_allclose(K[:, found.first] @ found.sum(r.astype(float)), K @ r.astype(float), atol=1e-12)
    rows = rng.normal(size=(found.U, 3))
    np.testing.assert_array_equal(found.expand(rows), rows[found.index])
    assert np.sum(found.expand(rows) * r) == pytest.approx(np.sum(rows * found.sum(r.astype(float))), abs=1e-5)


def test_sums_of_vectors_and_of_edge_matrices():
    found = distinct(np.array([[1.0], [2.0], [1.0]]))
    np.testing.assert_array_equal(found.sum(np.array([1.0, 2.0, 4.0])), [5.0, 2.0])
    cubes = np.arange(12.0).reshape(3, 2, 2)
    np.testing.assert_array_equal(found.sum(cubes), [cubes[0] + cubes[2], cubes[1]])


@pytest.mark.parametrize("bad", [np.nan, np.inf])
@pytest.mark.parametrize("container", [np.asarray, sp.csr_array])
def test_what_is_not_finite_is_named(bad, container):
    with pytest.raises(ValueError, match=r"X contains NaN or infinity.*impute"):
        distinct(container(np.array([[1.0, bad]])))


def test_large_finite_values_pass():
    assert distinct(np.full((3, 2), 1e308)).U == 1


def test_wrong_numbers_of_rows_are_named():
    found = distinct(np.array([[1.0], [2.0], [1.0]]))
    with pytest.raises(ValueError, match=r"shape \(2, 4\): expected 3 rows, one for each token"):
        found.sum(np.zeros((2, 4)))
    with pytest.raises(ValueError, match=r"shape \(3, 4\): expected 2 rows, one for each distinct input"):
        found.expand(np.zeros((3, 4)))


def test_each_row_may_stand_for_itself():
    X = sp.csr_array(np.array([[1.0, 0.0], [1.0, 0.0], [0.0, 2.0]]))
    found = each(X)
    assert found.U == found.N == 3
    np.testing.assert_array_equal(found.expand(np.arange(3)), np.arange(3))
    with pytest.raises(ValueError, match="X contains NaN or infinity"):
        each(np.array([[np.nan]]))
