"""gamma="scale" and gamma="auto" are the numbers that sklearn.svm.SVC uses."""

import numpy as np
import pytest
import scipy.sparse as sp
from sklearn.svm import SVC

from kernelcrf.kernels.gamma import gamma_by_scale, gamma_of_variance, make_kernel

X = np.random.default_rng(0).normal(size=(30, 4)) * (np.arange(4) < 3)


@pytest.mark.parametrize("gamma", ["scale", "auto"])
@pytest.mark.parametrize("form", [np.asarray, sp.csr_array])
def test_gamma_is_that_of_svc(gamma, form):
    svc = SVC(gamma=gamma).fit(X, np.arange(30) % 2)
    kernel = make_kernel(X.shape[1], lambda: gamma_by_scale(form(X)), "rbf", gamma, 3, 1.0)
    np.testing.assert_allclose(kernel.gamma, svc._gamma, rtol=1e-12)


@pytest.mark.parametrize("form", [np.asarray, sp.csr_array])
def test_a_weight_of_2_is_a_row_twice(form):
    weights = 1.0 + (np.arange(30) < 7)
    np.testing.assert_allclose(
        gamma_by_scale(form(X), weights), gamma_by_scale(form(np.vstack((X, X[:7])))), rtol=1e-12
    )


@pytest.mark.parametrize("power", [2.0**-300, 2.0**300])
def test_numbers_whose_squares_overflow_or_vanish_have_a_gamma(power):
    np.testing.assert_allclose(gamma_by_scale(X * power) * power * power, gamma_by_scale(X), rtol=1e-12)


@pytest.mark.parametrize("variance", [np.nan, np.inf, 1e308])
def test_a_gamma_that_no_float_holds_is_refused(variance):
    with pytest.raises(ValueError, match=r"gamma='scale' would be .*: scale X"):
        gamma_of_variance(variance, 3)


def test_inputs_that_do_not_vary_have_gamma_1():
    assert gamma_by_scale(np.ones((3, 2))) == gamma_by_scale(np.zeros((3, 2))) == gamma_by_scale(X[:0]) == 1.0
