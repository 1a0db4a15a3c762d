"""Polynomial sets the degree and the constant of the polynomial kernel, as scikit-learn's function does."""

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.metrics.pairwise import polynomial_kernel
from sklearn.model_selection import GridSearchCV

from kernelcrf import ChainCRF, KernelClassifier, load
from kernelcrf.kernels import Polynomial
from kernelcrf.kernels.inputs import InputKernel

X = np.random.default_rng(0).normal(size=(20, 3))
Y = (X[:, 0] * X[:, 1] > 0).astype(int)


@pytest.mark.parametrize(("degree", "coef0"), [(1, 0.0), (2, 1.0), (3, 0.5), (7, 2.0), (np.int64(4), 1)])
def test_the_kernel_is_that_of_scikit_learn(degree, coef0):
    kernel = InputKernel(Polynomial(degree, coef0), gamma=0.7)
    expected = polynomial_kernel(X, X[:5], degree=degree, gamma=0.7, coef0=coef0)
    np.testing.assert_allclose(kernel.gram(X, X[:5]), expected, rtol=1e-12)
    np.testing.assert_allclose(kernel.diagonal(X[:5]), np.diagonal(expected[:5]), rtol=1e-12)
    assert InputKernel.from_config(kernel.to_config()) == kernel
    assert (kernel.is_smooth, kernel.is_definite, kernel.reads_gamma, kernel.is_linear) == (True, True, True, False)


def test_poly_is_the_default_of_polynomial():
    np.testing.assert_array_equal(InputKernel("poly").gram(X), InputKernel(Polynomial()).gram(X))
    assert Polynomial() == Polynomial(3, 1.0)


def test_files_of_0_1_have_the_degree_beside_the_name():
    config = {"kernel": "poly", "gamma": 0.5, "degree": 2, "coef0": 0.5}
    assert InputKernel.from_config(config) == InputKernel(Polynomial(2, 0.5), gamma=0.5)
    assert InputKernel.from_config({**config, "degree": 3, "coef0": 1.0}) == InputKernel("poly", gamma=0.5)
    assert InputKernel.from_config({**config, "kernel": "rbf"}) == InputKernel("rbf", gamma=0.5)


@pytest.mark.parametrize(
    ("parameters", "said"),
    [
        ({"degree": 2.5}, "degree=2.5: expected an integer"),
        ({"degree": 0}, "degree=0: expected an integer"),
        ({"coef0": -1.0}, "coef0=-1.0: expected a finite number >= 0"),
    ],
)
def test_wrong_parameters_are_refused(parameters, said):
    with pytest.raises(ValueError, match=said):
        Polynomial(**parameters)


def test_a_search_compares_degrees_and_a_file_keeps_the_best(tmp_path):
    search = GridSearchCV(
        KernelClassifier(C=100.0, n_components=None), {"kernel": ["linear", Polynomial(degree=2)]}, cv=2
    ).fit(X, Y)
    assert search.best_params_ == {"kernel": Polynomial(degree=2)}
    best = search.best_estimator_
    assert clone(best).get_params()["kernel"] == Polynomial(degree=2)
    best.save(tmp_path / "model")
    again = load(tmp_path / "model")
    assert again.kernel == Polynomial(degree=2)
    np.testing.assert_array_equal(again.predict_proba(X), best.predict_proba(X))


def test_a_warm_start_refuses_another_degree_and_takes_an_equal_object():
    sequences, labels = np.split(X, 4), np.split(Y, 4)
    crf = ChainCRF(Polynomial(2), C=1.0, warm_start=True, random_state=0).fit(sequences, labels)
    assert crf.set_params(kernel=Polynomial(2)).fit(sequences, labels).n_iter_ <= 1
    with pytest.raises(ValueError, match="kernel="):
        crf.set_params(kernel=Polynomial(4)).fit(sequences, labels)
