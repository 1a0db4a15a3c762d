"""Weights of some pairs give the scores and gradients of a matrix in which all other entries are zero."""

import numpy as np
import pytest
import scipy.sparse as sp

from kernelcrf.basis.kernel_weights import PairWeights
from kernelcrf.basis.pairs import Pairs, frequencies
from kernelcrf.basis.sparse_entries import Entries
from kernelcrf.score.features import TokenFeatures


@pytest.fixture(params=range(3))
def rng(request):
    return np.random.default_rng(request.param)


def random_matrix(rng, n_tokens=30, n=12):
    return sp.csr_array(np.where(rng.random((n_tokens, n)) < 0.3, rng.normal(size=(n_tokens, n)), 0.0))


def test_weights_are_sorted_by_feature_and_label(rng):
    flags = rng.random((7, 5)) < 0.4
    pairs = Pairs.of(flags)
    W = rng.normal(size=(7, 5)) * flags
    assert pairs.size == flags.sum()
    assert pairs.n == 7
    np.testing.assert_array_equal(pairs.flags, flags)
    np.testing.assert_array_equal(pairs.pack(W), W[flags])
    np.testing.assert_array_equal(pairs.unpack(W[flags]), W)
    np.testing.assert_array_equal(pairs.unpack(np.stack([W[flags], 2 * W[flags]])), [W, 2 * W])


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize("shared", [False, True])
def test_products_are_those_of_the_matrix(rng, dtype, shared):
    F, flags = random_matrix(rng).astype(dtype), rng.random((12, 4)) < 0.5
    pairs = Pairs.of(flags)
    index = rng.integers(30, size=50) if shared else None
    features = TokenFeatures(F, index).with_pairs(pairs)
    dense = F.toarray() if index is None else F.toarray()[index]
    weights, R = rng.normal(size=pairs.size), rng.normal(size=(len(dense), 4)).astype(dtype)
    rtol = 1e-12 if dtype == np.float64 else 1e-4
    for n_jobs in (1, 2):
        s = features.times(weights, n_jobs)
        assert s.dtype == dtype
        np.testing.assert_allclose(s, dense @ pairs.unpack(weights), rtol=rtol, atol=rtol)
        np.testing.assert_allclose(features.transposed_times(R, n_jobs), (dense.T @ R)[flags], rtol=rtol, atol=rtol)
    squares = features.squares_transposed_times(R)
    np.testing.assert_allclose(squares, (np.square(dense).T @ R)[flags], rtol=rtol, atol=rtol)


def test_new_inputs_have_the_scores_of_the_matrix(rng):
    X, pairs = random_matrix(rng), Pairs.of(rng.random((12, 4)) < 0.5)
    weights = PairWeights(pairs, rng.normal(size=pairs.size))
    expected = X.toarray() @ pairs.unpack(weights.weights)
    np.testing.assert_allclose(weights.scores(X), expected, rtol=1e-12, atol=1e-12)
    unknown = Entries(np.append(X.indices, -1), np.append(X.data, 5.0), X.indptr.astype(np.int64), 12)
    unknown.offsets[-1] += 1
    np.testing.assert_allclose(weights.scores(unknown), expected, rtol=1e-12, atol=1e-12)


def test_a_pair_occurs_if_a_token_with_the_feature_may_have_the_label(rng):
    X, allowed = random_matrix(rng), rng.random((30, 4)) < 0.4
    X.data[:5] = 0.0
    found = frequencies(X, allowed)
    np.testing.assert_allclose(found, np.abs(X.toarray()).T @ allowed, rtol=1e-6, atol=1e-20)
    stored = sp.csr_array((np.ones(X.nnz), X.indices, X.indptr), X.shape).toarray()
    np.testing.assert_array_equal(found > 0, stored.T @ allowed > 0)
