"""gamma="scale" and gamma="auto" are the numbers that sklearn.svm.SVC uses; a warning names columns that they hide."""

import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp
from sklearn.svm import SVC

from kernelcrf import ChainCRF, KernelClassifier
from kernelcrf.kernels.gamma import gamma_by_scale, gamma_of_variance, make_kernel

X = np.random.default_rng(0).normal(size=(30, 4)) * (np.arange(4) < 3)


@pytest.mark.parametrize("gamma", ["scale", "auto"])
@pytest.mark.parametrize("form", [np.asarray, sp.csr_array])
def test_gamma_is_that_of_svc(gamma, form):
    svc = SVC(gamma=gamma).fit(X, np.arange(30) % 2)
    kernel = make_kernel(X.shape[1], lambda: gamma_by_scale(form(X)), "rbf", gamma)
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


def rows_of_scales(*scales):
    return np.random.default_rng(0).uniform(size=(50, len(scales))) * scales


@pytest.mark.parametrize(
    ("rows", "hidden"),
    [
        (rows_of_scales(1, 1e3), "1 of the 2 columns of X: 0"),
        (rows_of_scales(1e3, 1, 1e-2, 0), "2 of the 4 columns of X: 1, 2"),
        (rows_of_scales(1e-50, 1e100, 1e-50), "2 of the 3 columns of X: 0, 2"),
        (rows_of_scales(1, 2) + np.array([0, 1e3]), "2 of the 2 columns of X: 0, 1"),  # a large mean hides both
    ],
)
def test_columns_that_others_hide_are_named_in_a_warning(rows, hidden):
    with pytest.warns(UserWarning, match=f"the kernel hardly depends on {hidden}\\..*, or pass gamma as a number$"):
        gamma_by_scale(rows)


@pytest.mark.parametrize("factor", [1e200, 1e-200])
def test_gamma_that_is_not_a_number_is_an_error_with_advice_for_sequences(factor):
    advice = r"scale X with .*PerToken\(StandardScaler\(\)\) for sequences, or pass gamma as a number$"
    with pytest.raises(ValueError, match=f"gamma='scale' would be (0|inf): {advice}"):
        gamma_by_scale(rows_of_scales(factor, factor))


@pytest.mark.parametrize(
    "rows",
    [
        rows_of_scales(1, 10, 20),
        rows_of_scales(1e-3, 1, 2),  # less than half of the columns
        rows_of_scales(0, 0, 1),
        np.hstack((rows_of_scales(1, 1), np.eye(50))),
        sp.csr_array(rows_of_scales(1, 1e3)),
    ],
)
def test_columns_of_like_scales_give_no_warning(rows):
    assert gamma_by_scale(rows) > 0


def test_the_warning_has_the_names_of_columns_and_comes_only_where_gamma_is_found_by_scale():
    frame = pd.DataFrame(rows_of_scales(1e3, 1), columns=["CO2", "light"])
    y = (frame["light"] > 0.5).to_numpy()
    for model, data in (
        (KernelClassifier(n_components=5), (frame, y)),
        (ChainCRF(n_components=5, C=1.0), ([frame], [y])),
    ):
        with pytest.warns(UserWarning, match="1 of the 2 columns of X: 'light'"):
            model.fit(*data)
        model.set_params(gamma=0.1).fit(*data)
        model.set_params(gamma="scale", kernel="linear").fit(*data)
