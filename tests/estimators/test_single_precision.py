"""Certificates of float32 fits hold for the kernel's own problem."""

import numpy as np
import pytest
from scipy.optimize import minimize
from scipy.special import logsumexp
from sklearn.exceptions import ConvergenceWarning

from kernelcrf import ChainCRF, Input, KernelClassifier, load
from kernelcrf.basis import Landmarks
from kernelcrf.datasets import make_sequences

ROUNDING = 1e-5


@pytest.fixture(scope="module")
def sequences():
    data = make_sequences(60, random_state=0)
    return [np.asarray(X, np.float32) for X in data.X], data.y


@pytest.fixture(scope="module")
def truth(sequences):
    """The kernel's own optimum between two numbers: all inputs as landmarks, everything in float64."""
    X, y = sequences
    crf = ChainCRF("rbf", gamma=5.0, C=100.0, tol=1e-8).fit([x.astype(np.float64) for x in X], y)
    return crf.certificate_


@pytest.mark.parametrize(
    "settings",
    [
        {"n_components": "auto", "tol": 1e-2},
        {"n_components": Landmarks("auto", "uniform"), "tol": 1e-2},
        {"n_components": Landmarks("auto", "random"), "tol": 1e-2},
        {"n_components": Landmarks(256, "uniform"), "tol": 1e-4},
        {"n_components": Landmarks(128, "greedy"), "tol": 1e-3},
        {"n_components": None, "tol": 1e-4},
    ],
    ids=str,
)
def test_no_objective_is_below_the_kernels_own_minimum(sequences, truth, settings):
    found = ChainCRF("rbf", gamma=5.0, C=100.0, random_state=0, **settings).fit(*sequences).certificate_
    assert found.status == "optimal"
    assert found.objective >= truth.lower_bound * (1 - ROUNDING)
    if found.gap_full is not None:
        assert found.objective - found.gap_full <= truth.objective * (1 + ROUNDING)


# In float32 a fit to 7e-5 may end stalled, and says so; what it claims must hold all the same.
@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
def test_a_loaded_model_goes_on_within_the_kernels_own_problem(sequences, truth, tmp_path):
    crf = ChainCRF("rbf", gamma=5.0, C=100.0, n_components=Landmarks(200, "uniform"), random_state=0).fit(*sequences)
    crf.save(tmp_path / "model.kcrf")
    loaded = load(tmp_path / "model.kcrf").set_params(warm_start=True, tol=7e-5).fit(*sequences)
    assert loaded.certificate_.objective >= truth.lower_bound * (1 - ROUNDING)
    assert loaded.certificate_.objective <= crf.certificate_.objective * (1 + ROUNDING)


def dense_minimum(F, y, C):
    """The minimum of the objective of single tokens with two labels and a linear kernel."""
    E = np.eye(2)[y]

    def objective(w):
        S = F @ w.reshape(-1, 2)
        p = np.exp(S - logsumexp(S, axis=1)[:, None])
        value = (logsumexp(S, axis=1) - S[np.arange(len(y)), y]).sum() + np.dot(w, w) / (2 * C)
        return value, (F.T @ (p - E)).ravel() + w / C

    return minimize(objective, np.zeros(2 * F.shape[1]), jac=True, method="BFGS", options={"gtol": 1e-10}).fun


@pytest.mark.parametrize("scale", [2.0**10, 2.0**20])
@pytest.mark.parametrize("solver", ["newton", "newton-cg", "block-jacobi"])
def test_scores_that_were_moved_along_many_lines_are_computed_again(solver, scale):
    """A warm start in other units begins with huge scores, and moved scores keep their rounding errors."""
    rng = np.random.default_rng(0)
    F = (np.round(rng.normal(size=(30, 3)) * 256) / 256).astype(np.float32)
    y = (F[:, 0] + rng.normal(size=30) > 0).astype(int)
    crf = ChainCRF("linear", C=1.0, solver=solver, warm_start=True, max_iter=300).fit(
        list(F[:, None]), list(y[:, None])
    )
    crf.set_params(C=scale**-2).fit(list(F[:, None] * np.float32(scale)), list(y[:, None]))
    found, minimum = crf.certificate_, dense_minimum(F.astype(float), y, 1.0)
    assert found.lower_bound <= minimum + found.rounding * minimum
    assert found.objective >= minimum - found.rounding * minimum
    assert found.status == "optimal"
    assert found.objective - minimum <= (crf.tol + found.rounding) * minimum


def test_tiny_weights_do_not_hide_the_gradient():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(30, 2)).astype(np.float32)
    y = (X[:, 0] > 0).astype(int)
    tiny = {"sample_weight": np.full(30, 1e-50)}
    with pytest.warns(ConvergenceWarning):
        found = KernelClassifier("linear", C=1e52).fit(X, y, **tiny).certificate_
    assert found.status == "stalled"
    assert found.rounding == np.inf
    found = KernelClassifier("linear", C=1e52).fit(X.astype(float), y, **tiny).certificate_
    assert found.status == "optimal"
    assert found.objective == pytest.approx(1e-50 * dense_minimum(X.astype(float), y, 100.0), rel=1e-3)


def test_of_several_inputs_the_least_precise_one_counts():
    rng = np.random.default_rng(0)
    A, B = rng.normal(size=(25, 2)).astype(np.float32), rng.normal(size=(25, 2))
    y = (A[:, 0] + B[:, 0] + rng.normal(size=25) > 0).astype(int)
    X = [{"a": a[None], "b": b[None]} for a, b in zip(A, B, strict=True)]
    inputs = {"a": Input("linear"), "b": Input("linear")}
    with pytest.warns(ConvergenceWarning):
        crf = ChainCRF(inputs=inputs, C=100.0, tol=1e-9, fit_intercept=False).fit(X, list(y[:, None]))
    assert crf.certificate_.status == "stalled"
    assert crf.certificate_.rounding >= ROUNDING
    minimum = dense_minimum(np.hstack([A, B]), y, 100.0)
    assert crf.certificate_.objective == pytest.approx(minimum, abs=crf.certificate_.rounding * max(1.0, minimum))
