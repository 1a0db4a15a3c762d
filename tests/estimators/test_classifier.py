import tracemalloc

import numpy as np
import pytest
import scipy.sparse as sp
from scipy.optimize import minimize
from scipy.special import logsumexp, softmax
from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from sklearn.gaussian_process import GaussianProcessClassifier
from sklearn.gaussian_process.kernels import RBF, ConstantKernel, Matern
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import GridSearchCV
from sklearn.utils.estimator_checks import parametrize_with_checks

from estimator_checks import leave_sparse_checks_to_the_slow_command
from kernelcrf import KernelClassifier
from kernelcrf.engines.local import LocalEngine
from kernelcrf.graphs.structure import Chains
from kernelcrf.kernels import Polynomial
from kernelcrf.models.base import rng_of

DEFAULT = KernelClassifier(random_state=0)
SPARSE = {
    "check_sample_weight_equivalence_on_sparse_data": "the dual solver stops anywhere within tol; a smaller tol passes"
}


CHECKS = parametrize_with_checks(
    [
        DEFAULT,
        KernelClassifier(solver="newton-cg", tol=1e-11, random_state=0),
        KernelClassifier(Polynomial(degree=2), laplace=True),
    ],
    expected_failed_checks=lambda estimator: SPARSE if estimator is DEFAULT else {},
)


@leave_sparse_checks_to_the_slow_command(CHECKS, DEFAULT)
def test_the_checks_of_scikit_learn(estimator, check):
    check(estimator)


@pytest.mark.parametrize("form", ["csc", "coo", "lil", "dok", "dia", "bsr"])
def test_rows_of_any_sparse_format_are_those_of_csr(form):
    X, y = problem(40, 3)
    rows = sp.csr_array(np.where(X > 0, X, 0.0))
    expected, found = (clone(DEFAULT).fit(own, y) for own in (rows, rows.asformat(form)))
    np.testing.assert_array_equal(found.predict_proba(rows.asformat(form)), expected.predict_proba(rows))
    np.testing.assert_array_equal(found.predict(rows.asformat(form)), expected.predict(rows))


def problem(n_rows, n_classes, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n_rows, 2))
    angle = np.arctan2(X[:, 1], X[:, 0]) + 0.4 * rng.normal(size=n_rows)
    return X, (np.floor((angle + np.pi) * n_classes / (2 * np.pi)).astype(int)) % n_classes


@pytest.mark.few
@pytest.mark.parametrize("kernel", [RBF(0.8), Matern(1.2, nu=1.5)])
@pytest.mark.parametrize("variance", [0.4, 7.0])
def test_two_classes_are_gaussian_process_classification(kernel, variance):
    (X, y), (new, _) = problem(90, 2), problem(40, 2, seed=1)
    far = np.array([[30.0, -20.0]])
    reference = GaussianProcessClassifier(ConstantKernel(variance) * kernel, optimizer=None, max_iter_predict=500)
    reference.fit(X, y)
    ours = KernelClassifier(
        kernel, C=variance / 2, n_components=None, laplace=True, tol=1e-12, fit_intercept=False
    ).fit(X, y)
    for rows in (X, new, far):
        mean, deviation = ours.latent_mean_and_variance(rows)
        expected_mean, expected_variance = latent(reference.base_estimator_, rows)
        np.testing.assert_allclose(mean, expected_mean, atol=1e-4)
        np.testing.assert_allclose(deviation, expected_variance, atol=1e-4)
        np.testing.assert_allclose(ours.decision_function(rows), mean, atol=1e-12)
        averaged = ours.predict_proba(rows, posterior="laplace", n_samples=4000)
        np.testing.assert_allclose(averaged, reference.predict_proba(rows), atol=0.03)
    assert ours.log_marginal_likelihood() == pytest.approx(reference.log_marginal_likelihood(), abs=1e-4)


def latent(reference, rows):
    """Mean and variance of scikit-learn's latent function, which it tells by itself from 1.7 on."""
    K = reference.kernel_(rows, reference.X_train_)
    v = np.linalg.solve(reference.L_, reference.W_sr_[:, None] * K.T)
    return K @ (reference.y_train_ - reference.pi_), reference.kernel_.diag(rows) - np.einsum("ij,ij->j", v, v)


def dense_laplace(K, K_new, k_new, y, n_classes):
    """Multinomial Laplace on the latent values themselves, by Newton: mode, evidence, means and covariances."""
    n_rows = len(y)
    prior = np.kron(np.eye(n_classes), K)
    onehot = (y == np.arange(n_classes)[:, None]).ravel()
    f = np.zeros(n_classes * n_rows)
    for _ in range(20):
        p = softmax(f.reshape(n_classes, -1), axis=0)
        W = np.diag(p.ravel()) - np.vstack([np.diag(row) for row in p]) @ np.hstack([np.diag(row) for row in p])
        b = W @ f + onehot - p.ravel()
        f = prior @ np.linalg.solve(np.eye(len(f)) + W @ prior, b)
    alpha = onehot - softmax(f.reshape(n_classes, -1), axis=0).ravel()
    loss = logsumexp(f.reshape(n_classes, -1), axis=0).sum() - onehot @ f
    evidence = -0.5 * alpha @ f - loss - 0.5 * np.linalg.slogdet(np.eye(len(f)) + W @ prior)[1]
    cross = np.kron(np.eye(n_classes), K_new)
    means = (cross @ alpha).reshape(n_classes, -1).T
    whole = np.kron(np.eye(n_classes), k_new) - cross @ np.linalg.solve(np.eye(len(f)) + W @ prior, W @ cross.T)
    n_new = len(k_new)
    covariances = whole.reshape(n_classes, n_new, n_classes, n_new)
    return evidence, means, np.einsum("itjt->tij", covariances)


@pytest.mark.parametrize("n_classes", [3, 4])
def test_more_classes_are_the_dense_multinomial_laplace(n_classes):
    (X, y), (new, _) = problem(40, n_classes), problem(10, n_classes, seed=1)
    kernel, C = RBF(0.7), 3.0
    evidence, means, covariances = dense_laplace(C * kernel(X), C * kernel(new, X), C * kernel(new), y, n_classes)
    ours = KernelClassifier(kernel, C=C, n_components=None, laplace=True, tol=1e-13, fit_intercept=False).fit(X, y)
    assert ours.log_marginal_likelihood() == pytest.approx(evidence, abs=1e-4)
    mean, variance = ours.latent_mean_and_variance(new)
    np.testing.assert_allclose(mean, means, atol=1e-4)
    np.testing.assert_allclose(variance, np.einsum("tii->ti", covariances), atol=1e-4)
    rng = np.random.default_rng(0)
    draws = np.stack([rng.multivariate_normal(m, c, size=4000) for m, c in zip(means, covariances, strict=True)])
    averaged = ours.predict_proba(new, posterior="laplace", n_samples=4000)
    np.testing.assert_allclose(averaged, softmax(draws, axis=2).mean(axis=1), atol=0.03)
    np.testing.assert_allclose(ours.predict_proba(new), softmax(means, axis=1), atol=1e-5)
    single = ours.predict_proba(new, posterior="laplace", n_samples=3, variance_temperature=0.0)
    np.testing.assert_allclose(single, ours.predict_proba(new), atol=1e-12)


def test_a_label_kernel_is_a_prior_over_classes():
    """Scores s = f A' of independent f: the mode by minimising over the latent values directly."""
    X, y = problem(40, 3)
    k_y = np.array([[1.0, 0.8, 0.0], [0.8, 1.0, 0.0], [0.0, 0.0, 1.0]])
    root = np.kron(np.linalg.cholesky(k_y), np.linalg.cholesky(RBF(0.7)(X) + 1e-10 * np.eye(40)))

    def posterior(z):
        F = (root @ z).reshape(3, -1)
        value = logsumexp(F, axis=0).sum() - F[y, np.arange(40)].sum() + 0.5 * z @ z
        return value, root.T @ (softmax(F, axis=0) - (y == np.arange(3)[:, None])).ravel() + z

    best = minimize(posterior, np.zeros(120), jac=True, method="L-BFGS-B", options={"ftol": 1e-15, "gtol": 1e-8})
    ours = KernelClassifier(
        RBF(0.7), label_kernel=k_y, n_components=None, tol=1e-10, laplace=True, fit_intercept=False
    ).fit(X, y)
    assert ours.certificate_.objective == pytest.approx(best.fun, abs=1e-5)
    far = ours.latent_mean_and_variance([[40.0, 40.0]])
    np.testing.assert_allclose(far[1], [[1.0, 1.0, 1.0]], atol=1e-10)


def test_the_linear_kernel_is_logistic_regression():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(200, 6))
    y = (X @ rng.normal(size=6) + rng.normal(size=200) > 0).astype(int)
    weights = rng.uniform(0.2, 3.0, size=200)
    reference = LogisticRegression(C=2 * 0.7, fit_intercept=False, tol=1e-10).fit(X, y, weights)
    for rows in (X, sp.csr_array(X)):
        ours = KernelClassifier("linear", C=0.7, tol=1e-12, fit_intercept=False).fit(rows, y, weights)
        np.testing.assert_allclose(ours.coef_[:, 1] - ours.coef_[:, 0], reference.coef_[0], atol=1e-5)
        np.testing.assert_allclose(ours.predict_proba(rows), reference.predict_proba(X), atol=1e-5)


def test_few_landmarks_come_close_and_are_certified():
    X, y = problem(600, 3)
    full = KernelClassifier(gamma=0.5, n_components=None, laplace=True, tol=1e-6).fit(X, y)
    few = KernelClassifier(gamma=0.5, n_components=60, random_state=0, laplace=True, tol=1e-6).fit(X, y)
    assert full.certificate_.objective <= few.certificate_.objective * (1 + 1e-6)
    assert few.log_marginal_likelihood() == pytest.approx(full.log_marginal_likelihood(), rel=0.01)
    mean, variance = few.latent_mean_and_variance(X)
    expected_mean, expected_variance = full.latent_mean_and_variance(X)
    np.testing.assert_allclose(mean, expected_mean, atol=0.1)
    np.testing.assert_allclose(variance, expected_variance, atol=0.1)
    grown = KernelClassifier(gamma=0.5, n_components="auto", random_state=0, tol=1e-3).fit(X, y)
    assert 0 <= grown.certificate_.gap_full <= 1e-3 * grown.certificate_.objective


def test_many_weights_have_their_variances_from_draws(monkeypatch):
    parameters = {"gamma": 0.5, "n_components": 30, "random_state": 0, "laplace": True}
    problems = [problem(150, 3, seed) for seed in range(4)]
    exact = [
        KernelClassifier(**parameters, fit_intercept=False).fit(X, y).latent_mean_and_variance(X)[1]
        for X, y in problems
    ]
    monkeypatch.setattr("kernelcrf.fitting.laplace.MOST_EXACT", 0)
    sampled = [
        KernelClassifier(**parameters, fit_intercept=False).fit(X, y).latent_mean_and_variance(X)[1]
        for X, y in problems
    ]
    np.testing.assert_allclose(sampled, exact, rtol=1.0)
    # The variances of one fit share 32 draws: their mean is within a tenth of the truth over some fits.
    assert abs((np.array(sampled) / np.array(exact)).mean() - 1) < 0.1


def test_it_composes_and_says_what_is_wrong():
    X, y = problem(120, 2)
    names = np.array(["no", "yes"])[y]
    search = GridSearchCV(KernelClassifier(random_state=0), {"C": [0.1, 10.0]}, cv=3, scoring="neg_log_loss")
    assert search.fit(X, names).best_score_ > -0.6
    model = search.best_estimator_
    with pytest.raises(AttributeError, match="fit with laplace=True"):
        model.log_marginal_likelihood()
    with pytest.raises(AttributeError, match="fit with laplace=True"):
        model.latent_mean_and_variance(X)
    with pytest.raises(ValueError, match="posterior='full': expected 'map' or 'laplace'"):
        model.predict_proba(X, posterior="full")
    with pytest.raises(NotFittedError):
        KernelClassifier().log_marginal_likelihood()
    with pytest.raises(ValueError, match=r"variance_temperature=-1: expected a finite number >= 0"):
        KernelClassifier(laplace=True).fit(X, y).predict_proba(X, posterior="laplace", variance_temperature=-1)
    warm = KernelClassifier(warm_start=True, random_state=0).fit(X, y)
    assert warm.fit(X, y).n_iter_ <= 1
    with pytest.raises(ValueError, match="expected the same classes for a warm start"):
        warm.fit(X, names)


@pytest.mark.parametrize(("n_classes", "sparse"), [(1000, False), (200, True)], ids=["dense", "sparse"])
def test_memory_is_that_of_scores_not_of_pairs_of_classes(n_classes, sparse):
    """With two rows for each class, the scores of all rows are twice as many numbers as there are pairs of classes."""
    X = np.random.default_rng(0).normal(size=(2 * n_classes, 4))
    X = sp.csr_array(np.maximum(X, 0)) if sparse else X
    y = np.arange(2 * n_classes) % n_classes
    model = KernelClassifier("linear", tol=0.5)
    model.fit(X[:6], y[:6] % 3)  # compiling takes memory too
    tracemalloc.start()
    try:
        model.fit(X, y)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < 6 * 8 * (2 * n_classes**2)
    assert sum(array.size for array in model.model_.to_arrays()[1].values()) < 20 * n_classes


def test_a_warm_start_takes_up_the_weights():
    X, y = problem(60, 3)
    model = KernelClassifier("linear", warm_start=True, tol=1e-9).fit(X, y)
    assert model.n_iter_ > 0
    assert model.fit(X, y).n_iter_ == 0


@pytest.mark.parametrize("fit_intercept", [False, True])
@pytest.mark.parametrize("label_kernel", ["delta", "centred", [[2.0, 1.0, 0.0], [1.0, 2.0, 0.5], [0.0, 0.5, 1.0]]])
def test_variances_are_those_of_draws(label_kernel, fit_intercept):
    X, y = problem(80, 3)
    model = KernelClassifier(gamma=0.5, n_components=10, label_kernel=label_kernel, laplace=True, random_state=0)
    posterior = model.set_params(fit_intercept=fit_intercept).fit(X, y).model_.score_posterior
    rows = Chains.from_lengths(np.ones(5, int))
    draws = np.stack([s for s, _ in posterior.draws(X[:5], rows, 4000, rng_of(0), 1.0, LocalEngine())])
    mean, variance = model.latent_mean_and_variance(X[:5])
    np.testing.assert_allclose(draws.mean(axis=0), mean, atol=0.1)
    np.testing.assert_allclose(draws.var(axis=0), variance, rtol=0.15)


def test_variances_take_the_memory_of_scores(monkeypatch):
    n_classes = 30
    X, y = np.random.default_rng(0).normal(size=(2000, 3)), np.arange(2000) % n_classes
    monkeypatch.setattr("kernelcrf.fitting.laplace.MOST_EXACT", 0)
    model = KernelClassifier("linear", laplace=True, tol=1e-2).fit(X, y)
    tracemalloc.start()
    try:
        model.latent_mean_and_variance(X)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < 8 * 8 * 2000 * n_classes


@pytest.mark.parametrize("n_classes", [2, 3])
def test_columns_that_never_occur_have_their_prior_variance(n_classes):
    X, y = problem(40, n_classes)
    X, new = np.hstack([X, np.zeros((40, 1))]), np.random.default_rng(1).normal(size=(5, 3))
    found = [
        KernelClassifier("linear", C=2.0, laplace=True, tol=1e-12, fit_intercept=False)
        .fit(kind(X), y)
        .latent_mean_and_variance(kind(new))[1]
        for kind in (np.asarray, sp.csr_array)
    ]
    np.testing.assert_allclose(found[1], found[0], rtol=1e-5)


def test_variances_of_independent_weights_add_up():
    X, y = problem(40, 3)
    model = KernelClassifier("linear", fit_intercept=True, laplace="diagonal").fit(X, y)
    variances = [model.latent_mean_and_variance(rows)[1] for rows in (X, X * [1, 0], X * [0, 1], 0 * X)]
    np.testing.assert_allclose(variances[0] + variances[3], variances[1] + variances[2], rtol=1e-9)
    drawn = [np.log(p) for p in model.model_.draw_probabilities(X[:4], 4000, 1.0, 0, LocalEngine(1))]
    contrasts = variances[0][:4, 0] + variances[0][:4, 1]
    np.testing.assert_allclose(np.var([p[:, 0] - p[:, 1] for p in drawn], axis=0), contrasts, rtol=0.1)


@pytest.mark.parametrize("prior", [False, True])
def test_classes_that_cannot_be_sorted_are_named(prior):
    X, y = [[0.0], [1.0]], ["a", "b"]
    model = KernelClassifier("linear", C=1.0, classes=["c", 1, "a", "b"])
    if prior:
        model.set_params(prior=KernelClassifier("linear", C=1.0).fit(X, y))
    with pytest.raises(TypeError, match=r"^classes has labels that cannot be sorted \('\w'\): expected"):
        model.fit(X, y)
