"""The clique kernel against its definition (10), Lemmas 12 and 13, and Remark 7."""

import json

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kernelcrf.kernels.inputs import InputKernel
from kernelcrf.kernels.labels import LabelKernel

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


def test_a_projection_keeps_what_changes_scores_and_nothing_else(k_y):
    Z = np.random.default_rng(0).normal(size=(5, k_y.rank))
    A = k_y.factor
    np.testing.assert_allclose(k_y.project(Z), Z @ (np.linalg.pinv(A) @ A).T, atol=1e-14)


def test_the_identity_is_recognised_and_costs_nothing():
    k_y, Z = LabelKernel.of(np.eye(L), L), np.ones((5, L))
    assert k_y.is_identity
    assert k_y.expand(Z) is Z
    assert k_y.adjoint(Z) is Z


@pytest.mark.parametrize("k_x", [None, InputKernel("rbf", gamma=0.3)], ids=["constant", "rbf"])
def test_scores_of_random_weights_have_the_product_of_kernels_as_covariance(k_y, k_x):
    """Remark 7: with F F' = K_x, the linear map W -> scores has the Gram matrix of k_x k_y."""
    X = np.random.default_rng(0).normal(size=(3, 2))
    K = np.ones((3, 3)) if k_x is None else k_x.gram(X)
    F = np.ones((3, 1)) if k_x is None else np.linalg.cholesky(K)
    basis = np.eye(F.shape[1] * k_y.rank).reshape(-1, F.shape[1], k_y.rank)
    scores = np.stack([k_y.expand(F @ W).ravel() for W in basis], axis=1)
    np.testing.assert_allclose(scores @ scores.T, np.kron(K, k_y.gram), atol=1e-13)


def test_adjoint_is_the_transpose(k_y):
    rng = np.random.default_rng(1)
    Z, R = rng.normal(size=(7, k_y.rank)), rng.normal(size=(7, L))
    assert np.sum(k_y.expand(Z) * R) == pytest.approx(np.sum(Z * k_y.adjoint(R)), rel=1e-12)


def test_float32_scores_stay_float32(k_y):
    assert k_y.expand(np.ones((3, k_y.rank), np.float32)).dtype == np.float32


@given(st.integers(2, 36), st.integers(0, 2**31))
def test_centring_leaves_conditional_probabilities(labels, seed):
    """Lemma 13."""
    scores = np.random.default_rng(seed).normal(size=(3, labels))
    centred = LabelKernel.of("centred", labels).expand(scores)

    def probabilities(s):
        p = np.exp(s)
        return p / p.sum(axis=1, keepdims=True)

    np.testing.assert_allclose(probabilities(centred), probabilities(scores), rtol=1e-12)
    np.testing.assert_allclose(centred.sum(axis=1), 0.0, atol=1e-12)


def test_two_centred_labels_are_the_binary_kernel():
    """After Lemma 13: y y' with y = +-1, up to the factor 1/2 of the two-label parametrisation."""
    sign = np.array([-1, 1])
    np.testing.assert_allclose(LabelKernel.of("centred", 2).gram, 0.5 * np.outer(sign, sign), atol=1e-12)


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
        (np.array([[1.0, 2.0], [2.0, 1.0]]), r"smallest eigenvalue is -1: .* Add 1 to the diagonal"),
        (np.array([[1.0, 0.5], [0.0, 1.0]]), r"not symmetric, .* differ by up to 0.5: expected a symmetric matrix"),
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
    with pytest.raises(ValueError, match="pass a matrix if and only if kind='matrix'"):
        LabelKernel("delta", 2, np.eye(2))
    with pytest.raises(ValueError, match="L=0: expected an integer >= 1"):
        LabelKernel("delta", 0)
