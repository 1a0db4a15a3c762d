"""Features that are computed for each product equal stored features, also if landmarks depend on each other."""

import numpy as np
import pytest
import scipy.sparse as sp

from bases import KERNELS, MEANS, RULES, SPARSE, inputs, rules
from kernelcrf.basis import recomputed_features
from kernelcrf.basis.choice import choose_basis
from kernelcrf.basis.distinct_inputs import Distinct
from kernelcrf.basis.features import make_features
from kernelcrf.engines.local import LocalEngine
from kernelcrf.kernels.inputs import InputKernel
from kernelcrf.score.features import TokenFeatures

LANDMARKS = [name for name in KERNELS if name != "linear"]


@pytest.fixture(autouse=True)
def small_blocks(monkeypatch):
    monkeypatch.setattr(recomputed_features, "LEAST_ROWS", 7)
    monkeypatch.setattr(recomputed_features, "BLOCK_BYTES", 0)


def both(kernel, X, n=20, rule="random"):
    return (make_features(kernel, X, n, rule, random_state=0, stored=stored) for stored in (True, False))


@pytest.mark.few
@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize("name", LANDMARKS)
@pytest.mark.parametrize("rule", RULES)
def test_every_rule_chooses_the_same_landmarks(name, rule, dtype):
    if rule in MEANS and name == "callable":
        pytest.skip("a callable may not accept means")
    X, n = inputs(90).astype(dtype), 90 if rule == "exact" else 25
    stored, computed = (
        choose_basis(KERNELS[name], X, n, rules(90)[rule], random_state=0, stored=one) for one in (True, False)
    )
    atol = 1e-9 if dtype == np.float64 else 1e-3
    assert computed.n == stored.n
    np.testing.assert_allclose(computed.R, stored.R, atol=atol)
    np.testing.assert_allclose(computed.residual, stored.residual, atol=atol)
    np.testing.assert_allclose(computed.F.compute(), stored.F, atol=atol)
    assert computed.F.shape == stored.F.shape


@pytest.mark.parametrize("name", LANDMARKS)
def test_products_are_those_of_stored_features(name):
    X, index = inputs(60), np.random.default_rng(1).integers(60, size=100)
    stored, computed = both(KERNELS[name], X)
    W, r, weights = (np.random.default_rng(2).normal(size=shape) for shape in ((stored.map.n, 3), (100, 3), 100))
    tokens = Distinct(X, index, np.arange(60))
    here, there = (TokenFeatures.of(tokens, one.F) for one in (stored, computed))
    assert (here.is_stored, there.is_stored, there.is_sparse) == (True, False, False)
    for method, arguments in (
        ("times", (W, 1)),
        ("transposed_times", (r, 1)),
        ("gram", (weights,)),
        ("squares_transposed_times", (r,)),
        ("squared_norms", ()),
    ):
        result, expected = (getattr(one, method)(*arguments) for one in (there, here))
        np.testing.assert_allclose(result, expected, atol=1e-9, err_msg=method)
        result, expected = (getattr(one.part(slice(20, 50)), method) for one in (there, here))
        arguments = [one[20:50] if len(one) == 100 else one for one in arguments if np.ndim(one)] + [
            one for one in arguments if not np.ndim(one)
        ]
        np.testing.assert_allclose(result(*arguments), expected(*arguments), atol=1e-9, err_msg=method)
    np.testing.assert_array_equal(there.times(W, 3), there.times(W, 1))
    np.testing.assert_array_equal(there.transposed_times(r, 3), there.transposed_times(r, 1))
    np.testing.assert_allclose(there.columns(np.array([2, 0])).F, stored.F[:, [2, 0]], atol=1e-9)


@pytest.mark.parametrize("name", [name for name in SPARSE if name != "linear"])
def test_sparse_inputs(name):
    X = inputs(60)
    stored, computed = both(KERNELS[name], sp.csr_array(X))
    np.testing.assert_allclose(computed.F.compute(), stored.F, atol=1e-9)
    W = np.random.default_rng(2).normal(size=(stored.map.n, 2))
    np.testing.assert_allclose(computed.F.times(W), stored.F @ W, atol=1e-9)
    np.testing.assert_allclose(computed.F.transposed_times(X[:, :2]), stored.F.T @ X[:, :2], atol=1e-9)


@pytest.mark.parametrize("first", [True, False])
def test_a_basis_grows_from_one_that_is_stored_or_not(first):
    X, kernel = inputs(200), KERNELS["rbf"]
    start = make_features(kernel, X, 20, "random", random_state=0, stored=first).basis
    stored, computed = (
        choose_basis(kernel, X, 45, "random", random_state=1, start=start, stored=one) for one in (True, False)
    )
    np.testing.assert_array_equal(computed.indices, stored.indices)
    np.testing.assert_allclose(computed.F.compute(), stored.F, atol=1e-9)
    np.testing.assert_allclose(computed.residual, stored.residual, atol=1e-9)


def exact_features(features, X):
    """Return F = K_xB R^-T by substitution in extended precision, from the kernel values and R in double precision."""
    K = features.map.kernel.gram(X, features.map.landmarks)
    R, F = features.map.R.astype(np.longdouble), np.empty(K.shape, np.longdouble)
    for j in range(len(R)):
        F[:, j] = (K[:, j] - F[:, :j] @ R[j, :j]) / R[j, j]
    return F


@pytest.mark.parametrize(("gamma", "folded"), [(1.0, True), (1e-1, True), (1e-2, False), (1e-6, False)])
def test_ill_conditioned_landmarks_amplify_rounding_as_much_as_in_stored_features(gamma, folded):
    """With random weights, which are the worst ones."""
    X = np.random.default_rng(0).normal(size=(400, 4))
    stored, computed = both(InputKernel("rbf", gamma=gamma), X, 150)
    condition = np.linalg.cond(stored.map.R)
    W, r = np.random.default_rng(1).normal(size=(stored.map.n, 3)), np.random.default_rng(2).normal(size=(400, 3))
    exact = exact_features(stored, X)
    for product, expected in ((computed.F.times(W), exact @ W), (computed.F.transposed_times(r), exact.T @ r)):
        error = float(np.abs(product - expected).max() / np.abs(expected).max())
        assert error <= np.finfo(np.float64).eps * condition * 10
    assert computed.F.is_folded == folded


def test_rows_are_selected_without_computing():
    X = inputs(30)
    features = make_features(KERNELS["rbf"], X, 5, random_state=0, stored=False)
    part = features.F[10:20]
    np.testing.assert_array_equal(part.X, X[10:20])
    np.testing.assert_array_equal(part.compute(), features.map.transform(X[10:20], LocalEngine(1)))
