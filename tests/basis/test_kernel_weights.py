"""Folded weights make the scores that features make."""

import numpy as np
import pytest
import scipy.sparse as sp

from bases import KERNELS, SPARSE, inputs
from kernelcrf.basis.features import WhitenedMap, make_features
from kernelcrf.basis.kernel_weights import fold
from kernelcrf.basis.sparse_entries import Entries
from kernelcrf.engines.local import LocalEngine
from kernelcrf.kernels.inputs import InputKernel


def weights(n, k=3):
    return np.random.default_rng(7).normal(size=(n, k))


@pytest.mark.parametrize("rows", [0, 1, 3000])
@pytest.mark.parametrize("name", list(KERNELS))
def test_scores_are_those_of_features(name, rows):
    features, X = make_features(KERNELS[name], inputs(60), 20, random_state=0), inputs(rows, 1)
    W = weights(features.map.n)
    folded = fold(features.map, W)
    expected = features.map.transform(X) @ W
    s = folded.scores(X)
    assert s.shape == (rows, 3)
    np.testing.assert_allclose(s, expected, atol=1e-8)
    np.testing.assert_array_equal(folded.scores(X, LocalEngine(3)), s)
    if name in SPARSE:
        np.testing.assert_allclose(folded.scores(sp.csr_array(X)), expected, atol=1e-8)
        np.testing.assert_array_equal(folded.scores(sp.csr_array(X), LocalEngine(3)), folded.scores(sp.csr_array(X)))


@pytest.mark.parametrize("name", ["linear", "rbf"])
def test_entries_are_scored_as_their_matrix(name):
    train, X = sp.csr_array(inputs(60)), sp.csr_array(inputs(30, 1))
    features = make_features(KERNELS[name], train, 20, random_state=0)
    folded = fold(features.map, weights(features.map.n))
    entries = Entries(X.indices.astype(np.int32), X.data, X.indptr.astype(np.int64), X.shape[1])
    np.testing.assert_allclose(folded.scores(entries), folded.scores(X), atol=1e-12)


@pytest.mark.parametrize(("train", "new"), [(np.float32, np.float64), (np.float64, np.float32)])
@pytest.mark.parametrize("name", ["rbf", "poly", "laplacian"])
def test_inputs_may_come_in_the_other_precision(name, train, new):
    features = make_features(KERNELS[name], inputs(60).astype(train), 12, "random", random_state=0)
    W, X = weights(features.map.n), inputs(40, 1)
    s = fold(features.map, W).scores(X.astype(new))
    assert s.dtype == train
    np.testing.assert_allclose(s, features.map.transform(X) @ W, atol=2e-3)


def test_single_precision_weights_of_the_linear_kernel():
    X, W = inputs(30), weights(5)
    folded = fold(make_features(KERNELS["linear"], X).map, W)
    s = folded.scores(X.astype(np.float32))
    assert s.dtype == np.float32
    np.testing.assert_allclose(s, X @ W, atol=1e-5)


def double(feature_map):
    """The same map with everything in float64."""
    return WhitenedMap(feature_map.kernel, feature_map.landmarks.astype(np.float64), feature_map.R)


def errors(features, new, targets, C):
    """Largest error of folded scores in float32 beside float64, and eps |k(x, B)| |A|.

    Weights are those of a ridge regression with the prior variance C: fitted ones, whose terms cancel.
    """
    F = features.F.astype(np.float64)
    W = np.linalg.solve(F.T @ F + np.eye(F.shape[1]) / C, F.T @ targets)
    truth = double(features.map).transform(new.astype(np.float64)) @ W
    folded = fold(features.map, W)
    bound = np.finfo(np.float32).eps * np.abs(features.map.kernel.gram(new, features.map.landmarks)) @ np.abs(folded.A)
    return np.abs(folded.scores(new) - truth).max(), bound.max()


@pytest.mark.parametrize("gamma", [2.0, 0.2, 0.02])
@pytest.mark.parametrize("C", [1.0, 100.0])
def test_folding_in_single_precision_is_as_exact_as_the_kernel(gamma, C):
    """Down to bases that fall short of n because all that is left is rounding."""
    X, new = inputs(600).astype(np.float32), inputs(500, 1).astype(np.float32)
    features = make_features(InputKernel("rbf", gamma=gamma), X, 150, random_state=0)
    folded, bound = errors(features, new, np.sin(5 * X[:, :3].astype(np.float64)), C)
    assert folded <= bound


def test_folding_in_single_precision_on_letters(data_folder):
    with np.load(next(data_folder.glob("*/letters.npz"))) as file:
        X = np.unpackbits(file["pixels_packed"], axis=1).astype(np.float32)
        y = np.unique(file["label"], return_inverse=True)[1]
    train, new = X[:4000], X[40000:42000]
    features = make_features(InputKernel("rbf", gamma=1 / (128 * X.var())), train, 1000, random_state=0)
    folded, bound = errors(features, new, np.eye(26)[y[:4000]], 1.0)
    assert features.map.n == 1000
    assert folded <= min(bound, 1e-4)
