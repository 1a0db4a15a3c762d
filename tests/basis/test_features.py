"""The feature map: new inputs, growth, the primal map, plain arrays."""

import json

import numpy as np
import pytest
import scipy.sparse as sp

from bases import KERNELS, VECTORIAL, inputs
from kernelcrf.basis.features import PrimalMap, WhitenedMap, features_of, from_arrays, make_features
from kernelcrf.engines.local import LocalEngine


def through_files(feature_map):
    """What a file keeps: JSON and plain arrays."""
    config, arrays = feature_map.to_arrays()
    return from_arrays(json.loads(json.dumps(config)), {name: array.copy() for name, array in arrays.items()})


@pytest.mark.parametrize("n_jobs", [1, 3])
def test_new_inputs_by_the_formula(n_jobs):
    """F = K_xB R^-T, over more rows than a block has and more atoms than a panel."""
    X, new, kernel = inputs(400), inputs(4500, 1), KERNELS["laplacian"]
    features = make_features(kernel, X, 300, "random", random_state=0)
    expected = np.linalg.solve(features.map.R, kernel.gram(features.map.landmarks, new)).T
    F = features.map.transform(new, LocalEngine(n_jobs))
    np.testing.assert_allclose(F, expected, atol=1e-11)
    np.testing.assert_array_equal(F, features.map.transform(new))
    np.testing.assert_allclose(features.map.transform(X), features.F, atol=1e-11)
    np.testing.assert_allclose(features.map.transform(sp.csr_array(new)), F, atol=1e-11)


@pytest.mark.parametrize("name", [name for name in VECTORIAL if name != "linear"])
def test_a_map_from_its_arrays_is_the_map(name):
    X = inputs(60)
    features = make_features(KERNELS[name], X, 12, random_state=0)
    np.testing.assert_array_equal(through_files(features.map).transform(X), features.map.transform(X))


def test_a_sparse_map_from_its_arrays_is_the_map():
    X = sp.csr_array(inputs(60))
    features = make_features(KERNELS["rbf"], X, 12, random_state=0)
    assert sp.issparse(features.map.landmarks)
    again = through_files(features.map)
    assert sp.issparse(again.landmarks)
    np.testing.assert_array_equal(again.transform(X), features.map.transform(X))


def test_a_larger_basis_has_the_features_of_the_smaller_one_for_new_inputs_too():
    X, new, kernel = inputs(200), inputs(50, 1), KERNELS["rbf"]
    small = make_features(kernel, X, 20, random_state=0)
    large = make_features(kernel, X, 45, random_state=1, start=small.basis)
    np.testing.assert_allclose(large.map.transform(new)[:, :20], small.map.transform(new), atol=1e-9)


@pytest.mark.parametrize("container", [np.asarray, sp.csr_array, sp.csr_matrix])
def test_the_linear_kernel_is_its_own_map(container):
    X = container(inputs(30))
    features = make_features(KERNELS["linear"], X)
    assert features.map == PrimalMap(5)
    assert features.basis is None
    assert features.F is X
    again = through_files(features.map)
    assert again.transform(X) is X


@pytest.mark.parametrize(("train", "new"), [(np.float32, np.float64), (np.float64, np.float32)])
@pytest.mark.parametrize("name", [name for name in VECTORIAL if name != "linear"])
def test_new_inputs_may_come_in_the_other_precision(name, train, new):
    X = inputs(60)
    features = make_features(KERNELS[name], X.astype(train), 12, "random", random_state=0)
    F = features.map.transform(X.astype(new))
    assert F.dtype == train
    np.testing.assert_allclose(F, features.F, atol=2e-3)


def test_whitened_norms_are_those_of_functions():
    """|W|^2 is the norm of f = F W in the space of k: alpha' K_BB alpha with alpha = R^-T W."""
    X, kernel = inputs(80), KERNELS["rbf"]
    features = make_features(kernel, X, 20, random_state=0)
    W = np.random.default_rng(0).normal(size=20)
    alpha = np.linalg.solve(features.map.R.T, W)
    np.testing.assert_allclose(kernel.gram(X, features.map.landmarks) @ alpha, features.F @ W, atol=1e-9)
    assert alpha @ kernel.gram(features.map.landmarks) @ alpha == pytest.approx(W @ W, rel=1e-9)


def test_other_columns_than_in_training_are_named():
    features = make_features(KERNELS["rbf"], inputs(30), 5, random_state=0)
    with pytest.raises(ValueError, match="X has 3 columns: expected 5, as in the training data"):
        features.map.transform(np.zeros((2, 3)))
    with pytest.raises(ValueError, match="X has 3 columns: expected 5, as in the training data"):
        PrimalMap(5).transform(np.zeros((2, 3)))


def test_a_callable_has_no_file():
    features = make_features(KERNELS["callable"], inputs(30), 5, random_state=0)
    assert isinstance(features.map, WhitenedMap)
    with pytest.raises(TypeError, match="a callable cannot be written"):
        features.map.to_arrays()


@pytest.mark.parametrize(("n_components", "expected"), [(10, 10), (39, 39), (40, 40), (100, 40), (None, 40)])
def test_features_have_as_many_atoms_as_asked_for_or_all(n_components, expected):
    found = features_of(KERNELS["rbf"], inputs(40), n_components, "random", 0, LocalEngine())
    assert found.map.n == expected
    assert found.F.shape == (40, expected)
