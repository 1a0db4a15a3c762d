"""Biases of labels, and scores of first and last labels: they equal the weights of columns that users add by hand."""

import numpy as np
import pytest
import scipy.sparse as sp

from kernelcrf import ChainCRF, KernelClassifier, SegmentCRF, load
from kernelcrf.datasets import make_sequences
from kernelcrf.penalties import ElasticNet

DATA = make_sequences(16, random_state=0)
BOTH = {"fit_intercept": "boundaries"}


def with_columns(x):
    """Append a column of ones, and columns that mark the first and the last token."""
    marks = np.zeros((len(x), 3))
    marks[:, 0] = marks[0, 1] = marks[-1, 2] = 1
    return np.column_stack([x, marks])


WIDER = [with_columns(x) for x in DATA.X]


def same_probabilities(ours, X, theirs, Z, atol=1e-5):
    for p, q in zip(ours.predict_proba(X), theirs.predict_proba(Z), strict=True):
        np.testing.assert_allclose(p, q, atol=atol)


@pytest.mark.parametrize("solver", ["lbfgs", "newton-cg"])
@pytest.mark.parametrize("label_kernel", ["delta", "centred"])
def test_scores_without_inputs_equal_the_weights_of_constant_columns(solver, label_kernel):
    options = {"C": 3.0, "tol": 1e-10, "solver": solver, "label_kernel": label_kernel}
    ours = ChainCRF("linear", fit_intercept=True, **options).fit(DATA.X, DATA.y)
    theirs = ChainCRF("linear", **options, fit_intercept=False).fit([x[:, :3] for x in WIDER], DATA.y)
    assert ours.certificate_.objective == pytest.approx(theirs.certificate_.objective, rel=1e-9)
    np.testing.assert_allclose(ours.intercept_, theirs.coef_[2], atol=1e-4)
    same_probabilities(ours, DATA.X, theirs, [x[:, :3] for x in WIDER])


@pytest.mark.parametrize("l1", [0.0, 0.5])
@pytest.mark.parametrize("solver", ["dual", "lbfgs"])
def test_both_ends_have_weights_as_columns_that_mark_them(solver, l1):
    options = {"C": 3.0, "tol": 1e-9, "solver": solver, "weights": "all", "penalty": ElasticNet(l1)}
    ours = ChainCRF("linear", **BOTH, **options).fit([sp.csr_array(x) for x in DATA.X], DATA.y)
    theirs = ChainCRF("linear", **options).fit([sp.csr_array(x) for x in WIDER], DATA.y)
    assert ours.certificate_.status == "optimal"
    assert ours.certificate_.objective == pytest.approx(theirs.certificate_.objective, rel=1e-8)
    for scores, weights in zip((ours.start_scores_, ours.end_scores_), theirs.coef_[3:], strict=True):
        np.testing.assert_allclose(scores, weights, atol=1e-3)


def test_the_posterior_of_a_classifier_is_that_of_a_constant_column():
    X, y = np.concatenate(DATA.X), np.concatenate(DATA.y)
    wider = np.column_stack([X, np.ones(len(X))])
    ours = KernelClassifier("linear", fit_intercept=True, laplace=True, C=2.0, tol=1e-10).fit(X, y)
    theirs = KernelClassifier("linear", laplace=True, C=2.0, tol=1e-10, fit_intercept=False).fit(wider, y)
    for own, other in zip(ours.latent_mean_and_variance(X), theirs.latent_mean_and_variance(wider), strict=True):
        np.testing.assert_allclose(own, other, atol=1e-5)
    assert ours.log_marginal_likelihood() == pytest.approx(theirs.log_marginal_likelihood(), rel=1e-7)
    np.testing.assert_allclose(ours.predict_proba(X, posterior="laplace"), ours.predict_proba(X), atol=0.05)


def test_the_posterior_of_sequences_is_that_of_marked_columns():
    options = {"C": 2.0, "tol": 1e-9, "laplace": True}
    ours = ChainCRF("linear", **BOTH, **options).fit(DATA.X, DATA.y)
    theirs = ChainCRF("linear", **options, fit_intercept=False).fit(WIDER, DATA.y)
    assert ours.log_marginal_likelihood() == pytest.approx(theirs.log_marginal_likelihood(), rel=1e-6)
    draws = {"posterior": "laplace", "n_samples": 500}
    found = ours.predict_proba(DATA.X[:5], **draws), theirs.predict_proba(WIDER[:5], **draws)
    for p, q in zip(*found, strict=True):
        np.testing.assert_allclose(p, q, atol=0.02)


@pytest.mark.parametrize("kernel", ["rbf", "linear"])
def test_files_explanations_and_warm_starts_have_all_scores(kernel, tmp_path):
    crf = ChainCRF(kernel, C=2.0, **BOTH, n_components=20, random_state=0).fit(DATA.X, DATA.y)
    crf.save(tmp_path / "model.kcrf")
    again = load(tmp_path / "model.kcrf")
    for name in ("intercept_", "start_scores_", "end_scores_"):
        assert np.ptp(getattr(crf, name)) > 0
        np.testing.assert_array_equal(getattr(again, name), getattr(crf, name))
    same_probabilities(again, DATA.X, crf, DATA.X, atol=0)
    first, inner = (crf.explain(DATA.X[0], t, n_terms=100) for t in (0, 1))
    assert {"intercept", "first token"} <= set(first.terms)
    assert "first token" not in inner.terms
    distribution = crf.model_.field([DATA.X[0]], None, crf._engine)
    j = crf.classes_.tolist().index(first.label)
    assert first.contributions.sum() == pytest.approx(distribution.s[0, j] - distribution.s[0].mean())
    warm = again.set_params(warm_start=True, fit_intercept=False).fit(DATA.X, DATA.y)
    cold = ChainCRF(kernel, C=2.0, n_components=20, random_state=0, fit_intercept=False).fit(DATA.X, DATA.y)
    assert not warm.intercept_.any()
    assert warm.certificate_.objective == pytest.approx(cold.certificate_.objective, rel=2e-4)


def test_crfsuite_has_no_such_models(tmp_path):
    X = [[{"word": "a"}, {"word": "b"}], [{"word": "b"}]]
    crf = ChainCRF(**BOTH, C=1.0).fit(X, [["x", "y"], ["y"]])
    with pytest.raises(ValueError, match="it has an intercept, or scores of boundaries: expected neither"):
        crf.save(tmp_path / "model.crfsuite")


@pytest.mark.parametrize("estimator", [ChainCRF, SegmentCRF])
def test_an_automatic_intercept_is_that_of_the_linear_kernel_on_arrays(estimator):
    short = {"C": 1.0, "tol": 1e-2, "random_state": 0}

    def has_intercept(X, *arguments, **options):
        return bool(estimator(*arguments, **short | options).fit(X, DATA.y).intercept_.any())

    assert has_intercept(DATA.X, "linear")
    assert not has_intercept(DATA.X, "rbf")
    assert not has_intercept(DATA.X)
    assert not has_intercept([sp.csr_array(x) for x in DATA.X], "linear")
    assert has_intercept(DATA.X, inputs={"a": "rbf", "b": "linear"})
    assert has_intercept(DATA.X, "rbf", fit_intercept=True)


def test_a_search_for_the_kernel_gives_an_intercept_to_the_linear_kernel_alone():
    short = {"tol": 1e-2, "n_components": 50, "random_state": 0}
    rng = np.random.default_rng(0)
    X = [rng.normal(size=(8, 2)) for _ in range(60)]
    for labels, kernel in (([x[:, 0] > 0.5 for x in X], "linear"), ([x[:, 0] * x[:, 1] > 0 for x in X], "rbf")):
        y = [one.astype(int) for one in labels]
        crf = ChainCRF(**short).fit(X, y)
        assert crf.kernel_.kernel == kernel
        assert crf.intercept_.any() == (kernel == "linear")
        again = ChainCRF(kernel, **short).fit(X, y)
        own = [score for score, name in zip(crf.search_["score"], crf.search_["kernel"], strict=True) if name == kernel]
        assert max(own) >= max(again.search_["score"]) - 0.02
        warm = crf.set_params(warm_start=True).fit(X, y)
        assert warm.intercept_.any() == (kernel == "linear")


def test_a_classifier_has_an_automatic_intercept_with_every_kernel():
    X, y = np.concatenate(DATA.X), np.concatenate(DATA.y)
    for kernel in ("linear", "rbf"):
        assert KernelClassifier(kernel, n_components=10).fit(X, y).intercept_.any()
    assert not KernelClassifier("linear").fit(sp.csr_array(X), y).intercept_.any()
