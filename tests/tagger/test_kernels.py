"""Kernel values at landmarks, and weights of them, equal those of the library."""

import numpy as np
import pytest
import scipy.sparse as sp
from scipy.linalg import solve_triangular

from kernelcrf.kernels.inputs import InputKernel
from kernelcrf.kernels.polynomial import Polynomial
from kernelcrf.persistence.checks import StoredMap
from kernelcrf.tagger.kernels import KERNELS, Gram
from kernelcrf.tagger.rows import SparseRows
from kernelcrf.tagger.weights import weights_at_landmarks

RNG = np.random.default_rng(0)
X, B = RNG.random((7, 5)), RNG.random((9, 5))
X[X < 0.3] = 0.0
B[B < 0.3] = 0.0
X[2] = B[3] = 0.0


def stored(kernel, landmarks):
    parts = (landmarks.data, landmarks.indices, landmarks.indptr) if sp.issparse(landmarks) else landmarks
    return StoredMap(len(B), 5, kernel.to_config(), np.eye(len(B)), parts)


@pytest.mark.parametrize("name", KERNELS)
@pytest.mark.parametrize("gamma", [None, 0.7])
@pytest.mark.parametrize("sparse", [False, True])
def test_kernel_values_equal_those_of_the_library(name, gamma, sparse):
    if sparse and name == "chi2":
        pytest.skip("chi2 needs dense inputs")
    kernel = InputKernel(Polynomial(4, 0.5) if name == "poly" else name, gamma)
    expected = kernel.gram(X, B)
    if sparse:
        rows = sp.csr_array(X)
        given = SparseRows(rows.indices, rows.data, np.diff(rows.indptr))
        np.testing.assert_allclose(Gram(stored(kernel, sp.csr_array(B)))(given), expected, rtol=1e-13, atol=1e-15)
    else:
        np.testing.assert_allclose(Gram(stored(kernel, B))(X), expected, rtol=1e-13, atol=1e-15)


@pytest.mark.parametrize("sparse", [False, True])
def test_large_exponents_are_exact_or_an_error(sparse):
    kernel, far = InputKernel("rbf", 1.0), X + 1e8
    if sparse:
        rows = SparseRows(np.zeros(1, int), np.array([1e8]), np.array([1]))
        with pytest.raises(ValueError, match="is not accurate: expected inputs on the scale"):
            Gram(stored(kernel, sp.csr_array(B)))(rows)
    else:
        np.testing.assert_allclose(Gram(stored(kernel, far[:3]))(far), kernel.gram(far, far[:3]), rtol=1e-12)


def test_chi2_refuses_negative_values():
    with pytest.raises(ValueError, match="defined only for values >= 0"):
        Gram(stored(InputKernel("chi2"), B))(-X - 1)


@pytest.mark.parametrize("n", [1, 5, 64, 65, 200])
def test_weights_at_landmarks_solve_the_triangular_system(n):
    R, W = np.tril(RNG.normal(size=(n, n))) + 3 * np.sqrt(n) * np.eye(n), RNG.normal(size=(n, 3))
    expected = solve_triangular(R, W, trans="T", lower=True)
    np.testing.assert_allclose(weights_at_landmarks(R, W), expected, rtol=1e-10, atol=1e-12)
