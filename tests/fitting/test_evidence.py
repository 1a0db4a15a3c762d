import numpy as np
import pytest
import scipy.sparse as sp
from scipy.optimize import minimize_scalar
from sklearn.exceptions import ConvergenceWarning
from sklearn.gaussian_process import GaussianProcessClassifier
from sklearn.gaussian_process.kernels import RBF, ConstantKernel
from sklearn.model_selection import GridSearchCV

from kernelcrf import ChainCRF, KernelClassifier
from kernelcrf.datasets import make_sequences
from kernelcrf.fitting import evidence
from kernelcrf.kernels.inputs import InputKernel
from kernelcrf.rules import Evidence


def rings(n_rows, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n_rows, 2))
    return X, (np.abs(np.linalg.norm(X, axis=1) - 1.2) < 0.45 + 0.1 * rng.normal(size=n_rows)).astype(int)


@pytest.fixture(scope="module")
def sequences():
    return make_sequences(24, random_state=0)


def best_on_a_line(fit):
    """log C of the greatest evidence, by fits at given C."""
    found = minimize_scalar(
        lambda x: -fit(np.exp(x)).log_marginal_likelihood(), bounds=(-5, 7), method="bounded", options={"xatol": 1e-2}
    )
    return found.x, -found.fun


def test_the_fixed_point_is_near_the_greatest_evidence_of_rows():
    X, y = rings(100)
    kwargs = {"gamma": 0.8, "n_components": None, "tol": 1e-7}
    model = KernelClassifier(C="evidence", **kwargs).fit(X, y)
    log_C, greatest = best_on_a_line(lambda C: KernelClassifier(C=C, laplace=True, **kwargs).fit(X, y))
    assert abs(np.log(model.C_) - log_C) < 0.05
    assert greatest - 0.01 < model.log_marginal_likelihood() <= greatest + 1e-2
    again = KernelClassifier(C=model.C_, laplace=True, **kwargs).fit(X, y)
    assert again.log_marginal_likelihood() == pytest.approx(model.log_marginal_likelihood(), abs=1e-3)
    np.testing.assert_allclose(again.predict_proba(X), model.predict_proba(X), atol=1e-3)


def test_with_the_curvature_held_the_fixed_point_is_too_small(monkeypatch):
    X, y = rings(100)
    model = KernelClassifier(C="evidence", gamma=0.8, n_components=None).fit(X, y)
    monkeypatch.setattr(evidence, "_curvature_changes", lambda *_: 0.0)
    held = KernelClassifier(C="evidence", gamma=0.8, n_components=None).fit(X, y)
    assert held.C_ < 0.5 * model.C_
    assert held.log_marginal_likelihood() < model.log_marginal_likelihood()


def test_the_fixed_point_is_near_the_greatest_evidence_of_sequences(sequences):
    kwargs = {"gamma": 0.5, "n_components": 30, "tol": 1e-6, "random_state": 0}
    X, y = sequences.X, sequences.y
    model = ChainCRF(C="evidence", **kwargs).fit(X, y)
    _, greatest = best_on_a_line(lambda C: ChainCRF(C=C, laplace=True, **kwargs).fit(X, y))
    assert greatest - 0.01 < model.log_marginal_likelihood() <= greatest + 1e-2
    assert model.certificate_.status == "optimal"


def test_the_fixed_point_of_many_weights_is_that_of_exact_determinants(sequences, monkeypatch):
    kwargs = {"gamma": 0.5, "n_components": 30, "random_state": 0, "C": "evidence", "laplace": True}
    exact = ChainCRF(**kwargs).fit(sequences.X, sequences.y)
    monkeypatch.setattr(evidence, "EXACT_IN_SEARCH", 0)
    sampled = ChainCRF(**kwargs).fit(sequences.X, sequences.y)
    assert abs(np.log(sampled.C_ / exact.C_)) < 0.5
    assert sampled.log_marginal_likelihood() == pytest.approx(exact.log_marginal_likelihood(), abs=0.5)


def test_the_kernel_of_the_greatest_evidence_is_that_of_scikit_learn():
    X, y = rings(60)
    reference = GaussianProcessClassifier(ConstantKernel(2.0) * RBF(1.0)).fit(X, y)
    for kernel, C in ((RBF(1.0), "evidence"), (ConstantKernel(2.0) * RBF(1.0), 0.5)):
        ours = KernelClassifier(
            kernel, C=Evidence(C, optimize_kernel=True), n_components=None, fit_intercept=False
        ).fit(X, y)
        assert ours.log_marginal_likelihood() == pytest.approx(reference.log_marginal_likelihood_value_, abs=0.05)
        k = ours.kernel_.kernel
        length = k.length_scale if C == "evidence" else k.k2.length_scale
        amplitude = 2 * ours.C_ * (1.0 if C == "evidence" else k.k1.constant_value)
        assert length == pytest.approx(reference.kernel_.k2.length_scale, rel=0.05)
        # Along a ridge of length and amplitude the evidence hardly changes.
        assert abs(np.log(amplitude / reference.kernel_.k1.constant_value)) < 0.7


def test_gamma_by_evidence_on_few_landmarks_beats_a_bad_guess():
    sequences, test = make_sequences(40, random_state=0), make_sequences(60, random_state=1)
    kwargs = {"gamma": 20.0, "n_components": 25, "random_state": 0}
    guessed = ChainCRF(C=10.0, laplace=True, **kwargs).fit(sequences.X, sequences.y)
    found = ChainCRF(C=Evidence(optimize_kernel=True), **kwargs).fit(sequences.X, sequences.y)
    assert found.log_marginal_likelihood() > guessed.log_marginal_likelihood() + 50
    assert found.kernel_.gamma < 5
    assert found.score(test.X, test.y) > guessed.score(test.X, test.y)
    assert found.landmark_positions_.shape == (len(found.landmarks_), 2)


def test_restarts_leave_a_poor_start():
    X, y = rings(60)
    kernel = RBF(80.0, (1e-2, 1e2))
    stuck = KernelClassifier(kernel, C=Evidence(5.0, optimize_kernel=True), n_components=None).fit(X, y)
    found = KernelClassifier(
        kernel, C=Evidence(5.0, optimize_kernel=True, n_restarts=3), n_components=None, random_state=0
    ).fit(X, y)
    assert found.log_marginal_likelihood() >= stuck.log_marginal_likelihood() - 1e-3
    assert 0.1 < found.kernel_.kernel.length_scale < 3


def test_a_grown_basis_is_grown_at_the_chosen_C():
    X, y = rings(200)
    model = KernelClassifier(C="evidence", gamma=0.8, n_components="auto", tol=1e-3, random_state=0).fit(X, y)
    assert model.certificate_.gap_full <= 1e-3 * model.certificate_.objective
    assert model.log_marginal_likelihood() < 0


def test_a_search_out_of_steps_warns(monkeypatch):
    monkeypatch.setattr(evidence, "MOST_STEPS", 1)
    with pytest.warns(ConvergenceWarning, match="did not converge: it ended at C="):
        KernelClassifier(C="evidence", gamma=0.8).fit(*rings(60))


def test_of_noise_nothing_is_learnt():
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(40, 3)), rng.permutation(np.arange(40) % 2)
    model = KernelClassifier(C="evidence", gamma=10.0, n_components=None).fit(X, y)
    assert model.C_ < 1e-2
    np.testing.assert_allclose(model.predict_proba(X), 0.5, atol=0.05)


def test_it_stands_beside_a_grid_search():
    X, y = rings(60)
    model = KernelClassifier(C="evidence", n_components=10, tol=1e-3, random_state=0)
    search = GridSearchCV(model, {"gamma": [0.01, 1.0]}, cv=3).fit(X, y)
    assert search.best_params_ == {"gamma": 1.0}
    with pytest.raises(ValueError, match="C='best': expected a finite number >= 1e-300, 'auto', 'evidence' or a rule"):
        KernelClassifier(C="best").fit(X, y)
    with pytest.raises(ValueError, match="kernel='linear' has no hyperparameters to choose"):
        KernelClassifier("linear", C=Evidence(1.0, optimize_kernel=True)).fit(X, y)


def test_hyperparameters_of_kernels():
    theta, bounds = InputKernel("rbf", gamma=0.5).hyperparameters()
    assert np.exp(theta) == pytest.approx([0.5])
    np.testing.assert_allclose(np.exp(bounds), [[0.5e-3, 0.5e3]])
    assert InputKernel("rbf", gamma=0.5).with_hyperparameters(np.log([2.0])).gamma == pytest.approx(2.0)
    fixed = InputKernel(ConstantKernel(3.0, "fixed") * RBF([1.0, 2.0], (0.1, 10.0)))
    theta, bounds = fixed.hyperparameters()
    assert np.exp(theta) == pytest.approx([1.0, 2.0])
    assert bounds.shape == (2, 2)
    moved = fixed.with_hyperparameters(np.log([0.5, 4.0]))
    np.testing.assert_allclose(moved.kernel.k2.length_scale, [0.5, 4.0])
    assert len(InputKernel("linear").hyperparameters()[0]) == 0


def test_a_search_does_not_lose_landmarks():
    """A smooth kernel needs few landmarks; later kernels of the search, and the last one, need all of them."""
    rng = np.random.default_rng(0)
    X, y = np.sort(rng.uniform(0, 1, (20, 1)), axis=0), (np.arange(20) // 3) % 2
    parameters = {"n_components": None, "laplace": True, "random_state": 0}
    for gamma in (50.0, 1e-3):
        rule = Evidence(10.0, optimize_kernel=True, n_restarts=2)
        found = KernelClassifier("rbf", gamma=gamma, C=rule, **parameters).fit(X, y)
        direct = KernelClassifier("rbf", gamma=found.kernel_.gamma, C=10.0, **parameters).fit(X, y)
        assert len(found.landmarks_) == len(direct.landmarks_)
        assert found.certificate_.objective == pytest.approx(direct.certificate_.objective, rel=1e-3)
        assert found.log_marginal_likelihood() == pytest.approx(direct.log_marginal_likelihood(), rel=1e-3)


def test_features_that_never_occur_do_not_change_C():
    rng = np.random.default_rng(0)
    X = [rng.normal(size=(6, 4)) for _ in range(25)]
    y = [(x[:, 0] + 0.5 * rng.normal(size=len(x)) > 0).astype(int) for x in X]
    found = []
    for n_zeros in (0, 3):
        Z = [sp.csr_array(np.hstack([x, np.zeros((len(x), n_zeros))])) for x in X]
        crf = ChainCRF("linear", C="evidence", tol=1e-8, weights="all")
        found.append(crf.fit(Z, y).C_)
    assert found[0] == pytest.approx(found[1], rel=1e-3)
