"""The clique kernel against its definition (10), Lemmas 12 and 13, and Remark 7."""

import json
from itertools import product

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kernelcrf.kernels.cliques import CliqueKernel, LabelKernel, relevant
from kernelcrf.kernels.inputs import InputKernel

L = 4
SIMILAR = np.array([[1.0, 0.6, 0.0, 0.1], [0.6, 1.0, 0.0, 0.0], [0.0, 0.0, 2.0, 0.3], [0.1, 0.0, 0.3, 1.0]])
LOW_RANK = np.outer([1.0, 1.0, -1.0, 2.0], [1.0, 1.0, -1.0, 2.0])
LABEL_KERNELS = {"delta": "delta", "centred": "centred", "similar": SIMILAR, "low rank": LOW_RANK}


@pytest.fixture(params=LABEL_KERNELS, ids=str)
def k_y(request):
    return LabelKernel.of(LABEL_KERNELS[request.param], L)


def test_the_factor_gives_the_matrix(k_y):
    A = k_y.factor
    assert A.shape == (L, k_y.rank)
    np.testing.assert_allclose(A @ A.T, k_y.gram, atol=1e-14)


def test_ranks():
    assert [LabelKernel.of(k, L).rank for k in LABEL_KERNELS.values()] == [4, 4, 4, 1]


def test_the_identity_is_recognised_and_costs_nothing():
    assert LabelKernel.of(np.eye(L), L).is_identity
    clique = CliqueKernel("node", 1, LabelKernel.of("delta", L), InputKernel("rbf"))
    Z = np.ones((5, L))
    assert clique.expand(Z) is Z
    assert clique.adjoint(Z) is Z


@pytest.mark.parametrize("nodes", [1, 2])
@pytest.mark.parametrize("k_x", [None, InputKernel("rbf", gamma=0.3)], ids=["constant", "rbf"])
def test_scores_of_random_weights_have_the_clique_kernel_as_covariance(k_y, nodes, k_x):
    """Remark 7: with F F' = K_x, the linear map W -> scores has the Gram matrix of k_C."""
    X = np.random.default_rng(0).normal(size=(3, 2))
    clique = CliqueKernel("clique", nodes, k_y, k_x)
    F = np.ones((3, 1)) if k_x is None else np.linalg.cholesky(k_x.gram(X))
    weights = F.shape[1] * k_y.rank**nodes
    basis = np.eye(weights).reshape(weights, F.shape[1], *clique.shape)
    scores = np.stack([clique.expand(np.tensordot(F, W, axes=1)).ravel() for W in basis], axis=1)
    configurations = list(product(range(3), *[range(L)] * nodes))
    inputs = X[[row for row, *_ in configurations]]
    labels = [y for _, *y in configurations]
    np.testing.assert_allclose(scores @ scores.T, clique.gram(inputs, labels, inputs, labels), atol=1e-13)


@pytest.mark.parametrize("nodes", [1, 2])
def test_adjoint_is_the_transpose(k_y, nodes):
    rng = np.random.default_rng(1)
    clique = CliqueKernel("clique", nodes, k_y, None)
    Z, R = rng.normal(size=(7, *clique.shape)), rng.normal(size=(7, *(L,) * nodes))
    assert np.sum(clique.expand(Z) * R) == pytest.approx(np.sum(Z * clique.adjoint(R)), rel=1e-12)


def test_float32_scores_stay_float32(k_y):
    clique = CliqueKernel("node", 1, k_y, None)
    assert clique.expand(np.ones((3, k_y.rank), np.float32)).dtype == np.float32


@given(st.integers(2, 6), st.integers(1, 2), st.integers(0, 2**31))
def test_centring_leaves_conditional_probabilities(labels, nodes, seed):
    """Lemma 13."""
    scores = np.random.default_rng(seed).normal(size=(3, *(labels,) * nodes))
    centred = CliqueKernel("clique", nodes, LabelKernel.of("centred", labels), None).expand(scores)

    def probabilities(s):
        p = np.exp(s).reshape(3, -1)
        return p / p.sum(axis=1, keepdims=True)

    np.testing.assert_allclose(probabilities(centred), probabilities(scores), rtol=1e-12)
    np.testing.assert_allclose(centred.reshape(3, -1).sum(axis=1), 0.0, atol=1e-12)


def test_two_centred_labels_are_the_binary_kernel():
    """After Lemma 13: y y' k(x, x') with y = +-1, up to the factor 1/2 of the two-label parametrisation."""
    X = np.random.default_rng(2).normal(size=(6, 3))
    y = np.array([0, 1, 1, 0, 1, 0])
    k_x = InputKernel("poly", degree=2)
    clique = CliqueKernel("node", 1, LabelKernel.of("centred", 2), k_x)
    sign = 2 * y - 1
    np.testing.assert_allclose(clique.gram(X, y, X, y), 0.5 * np.outer(sign, sign) * k_x.gram(X), atol=1e-12)


def test_delta_is_the_multiclass_kernel_of_williams_and_barber():
    X, y = np.random.default_rng(2).normal(size=(6, 3)), np.array([0, 1, 2, 0, 1, 0])
    clique = CliqueKernel("node", 1, LabelKernel.of("delta", 3), InputKernel("rbf"))
    expected = (y[:, None] == y) * InputKernel("rbf").gram(X)
    np.testing.assert_array_equal(clique.gram(X, y, X, y), expected)


def test_cliques_of_x_alone_drop_out():
    """Lemma 12: their kernel does not see labels, and they are dropped."""
    delta = LabelKernel.of("delta", L)
    alone = CliqueKernel("context", 0, delta, InputKernel("rbf"))
    node = CliqueKernel("node", 1, delta, InputKernel("rbf"))
    edge = CliqueKernel("edge", 2, delta, None)
    assert relevant([alone, node, edge]) == [node, edge]
    X = np.random.default_rng(0).normal(size=(4, 2))
    no_labels = np.empty((4, 0))
    np.testing.assert_array_equal(alone.gram(X, no_labels, X, no_labels), InputKernel("rbf").gram(X))


def test_config_goes_through_json(k_y):
    again = LabelKernel.from_config(json.loads(json.dumps(k_y.to_config())))
    assert again.kind == k_y.kind
    np.testing.assert_array_equal(again.gram, k_y.gram)
    np.testing.assert_array_equal(again.factor, k_y.factor)


def test_a_label_matrix_is_the_users_no_longer():
    matrix = SIMILAR.copy()
    k_y = LabelKernel.of(matrix, L)
    matrix[0, 0] = -1.0
    np.testing.assert_array_equal(k_y.gram, SIMILAR)


@pytest.mark.parametrize(
    ("matrix", "message"),
    [
        (np.array([[1.0, 2.0], [2.0, 1.0]]), r"least eigenvalue is -1: adding 1 to the diagonal"),
        (np.array([[1.0, 0.5], [0.0, 1.0]]), r"not symmetric \(largest difference 0.5\): use"),
        (np.eye(3), r"label_kernel has shape \(3, 3\): expected \(2, 2\)"),
        (np.array([[1.0, np.nan], [np.nan, 1.0]]), "NaN or infinity"),
        (np.zeros((2, 2)), "label_kernel is zero"),
        ("kronecker", "label_kernel='kronecker': expected 'delta', 'centred' or"),
    ],
)
def test_wrong_label_kernels_are_named(matrix, message):
    with pytest.raises(ValueError, match=message):
        LabelKernel.of(matrix, 2)


def test_wrong_fields_are_named():
    with pytest.raises(ValueError, match="kind='identity': expected 'delta'"):
        LabelKernel("identity", 3)
    with pytest.raises(ValueError, match="a matrix goes with 'matrix'"):
        LabelKernel("delta", 2, np.eye(2))
    with pytest.raises(ValueError, match="L=0: expected an integer >= 1"):
        LabelKernel("delta", 0)
    with pytest.raises(ValueError, match="nodes=3: expected"):
        CliqueKernel("triple", 3, LabelKernel("delta", 2), None)
