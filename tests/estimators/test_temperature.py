from copy import copy

import numpy as np
import pytest
from scipy.optimize import minimize_scalar
from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from sklearn.linear_model import LogisticRegression

from kernelcrf import ChainCRF, KernelClassifier, TemperatureScaling, load
from kernelcrf.answers.summary import summarise
from kernelcrf.datasets import make_sequences
from kernelcrf.engines.local import LocalEngine
from kernelcrf.metrics import log_loss, spans
from kernelcrf.report import make_report


@pytest.fixture(scope="module")
def data():
    return [make_sequences(n, random_state=seed) for seed, n in enumerate((40, 60, 100))]


@pytest.fixture(scope="module")
def sharp(data):
    """A model that is far too sure."""
    return ChainCRF(C=1e4, decoding="viterbi", gamma=2.0, n_components=80, random_state=0, laplace=True).fit(
        data[0].X, data[0].y
    )


def test_a_temperature_is_that_of_the_greatest_likelihood_and_keeps_the_structure(sharp, data):
    _, held, test = data
    scaled = TemperatureScaling(sharp).fit(held.X, held.y)
    assert scaled.temperature_ > 1.2
    found = sharp.model_.field(held.X, None, LocalEngine())
    s, w, chains = found.s, found.w, found.chains
    labels = np.concatenate(held.y)

    def loss(T):
        from kernelcrf.inference import chain

        return -chain.log_prob(s / T, w / T, chains, labels).mean()

    assert scaled.temperature_ == pytest.approx(minimize_scalar(loss, bounds=(0.1, 20), method="bounded").x, rel=0.03)
    assert scaled.estimator_.log_prob(test.X, test.y).mean() > sharp.log_prob(test.X, test.y).mean()
    assert log_loss(test.y, scaled.predict_proba(test.X), scaled.classes_) < log_loss(
        test.y, sharp.predict_proba(test.X), sharp.classes_
    )
    for a, b in zip(scaled.predict(test.X), sharp.predict(test.X), strict=True):
        np.testing.assert_array_equal(a, b)
    assert scaled.score(test.X, test.y) == sharp.score(test.X, test.y)
    # p(y|x) of the scaled model sums to one over all labelings of a sequence.
    short = [x[:3] for x in test.X[:4]]
    total = [sum(np.exp(log_p) for _, log_p in best) for best in scaled.estimator_.distribution(short).k_best(27)]
    np.testing.assert_allclose(total, 1.0)


@pytest.mark.parametrize("likelihood", ["token", "span"])
def test_a_temperature_may_be_chosen_by_tokens_or_by_spans(sharp, data, likelihood):
    X, y = data[1].X, data[1].y
    scaled = TemperatureScaling(sharp, likelihood=likelihood).fit(X, y)

    def loss(T):
        model = copy(sharp)
        model.model_ = sharp.model_.divide_weights(T)
        if likelihood == "token":
            return log_loss(y, model.predict_proba(X), model.classes_.tolist())
        true = [set(spans(own.tolist(), "runs")) for own in y]
        found = [
            (s.probability, s[:3] in own)
            for own, row in zip(true, model.distribution(X).spans(), strict=True)
            for s in row
        ]
        return -np.mean([np.log(p if right else 1 - p) for p, right in found])

    T = scaled.temperature_
    assert loss(T) <= min(loss(T * 1.05), loss(T / 1.05), loss(1.0))
    for own, other in zip(scaled.predict(X), sharp.predict(X), strict=True):
        np.testing.assert_array_equal(own, other)


def test_divided_weights_have_no_certificate(sharp, data, tmp_path):
    _, held, _ = data
    before = sharp.certificate_
    model = TemperatureScaling(sharp).fit(held.X, held.y).estimator_
    model.save(tmp_path / "model")
    for tempered in (model, load(tmp_path / "model")):
        found = tempered.certificate_
        assert (found.status, found.lower_bound, found.is_certified) == ("tempered", -np.inf, False)
        assert np.isnan([found.objective, found.gap_in_span, found.relative_gap]).all()
        assert not {"objective", "certified gap", "full gap"} & set(summarise(tempered))
    assert "have no certificate" in make_report(model, held.X, held.y)
    assert sharp.certificate_ == before
    assert TemperatureScaling(sharp, posterior="laplace").fit(held.X, held.y).estimator_.certificate_ == before


def test_a_variance_temperature_is_never_worse_on_held_out_data(sharp, data):
    _, held, _ = data
    averaged = TemperatureScaling(sharp, posterior="laplace", n_samples=50).fit(held.X, held.y)

    def loss(proba):
        return log_loss(held.y, proba, sharp.classes_)

    found = loss(averaged.predict_proba(held.X))
    assert found < loss(sharp.predict_proba(held.X))
    for tau in (0.01, 0.1, 1.0, 5.0):
        given = sharp.predict_proba(held.X, posterior="laplace", n_samples=50, variance_temperature=tau)
        assert found <= loss(given) + 1e-3
    shy = ChainCRF(C=1e-3, decoding="viterbi", n_components=20, random_state=0, laplace=True).fit(data[0].X, data[0].y)
    none = TemperatureScaling(shy, posterior="laplace", n_samples=20).fit(held.X, held.y)
    assert loss(none.predict_proba(held.X)) <= log_loss(held.y, shy.predict_proba(held.X), shy.classes_)


def test_rows_are_scaled_too():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(300, 3))
    y = np.where(X[:, 0] + 1.5 * rng.normal(size=300) > 0, "yes", "no")
    model = KernelClassifier(C=1e3, gamma=1.0, random_state=0, laplace=True).fit(X[:100], y[:100])
    scaled = TemperatureScaling(model).fit(X[100:], y[100:])
    f = model.decision_function(X[100:])[:, None]
    slope = LogisticRegression(C=1e8, fit_intercept=False).fit(f, y[100:]).coef_[0, 0]
    assert scaled.temperature_ == pytest.approx(1 / slope, rel=0.03) or slope < 0.05
    np.testing.assert_allclose(scaled.estimator_.decision_function(X[100:]), f[:, 0] / scaled.temperature_, atol=1e-8)
    assert scaled.predict_proba(X).shape == (300, 2)
    averaged = TemperatureScaling(model, posterior="laplace").fit(X[100:], y[100:])
    assert averaged.temperature_ > 0
    with pytest.raises(ValueError, match="not among the classes"):
        TemperatureScaling(model).fit(X[:2], ["maybe", "yes"])


@pytest.mark.parametrize("likelihood", ["labelling", "token"])
def test_data_without_labels_have_no_temperature(sharp, data, likelihood):
    held = data[1]
    with pytest.raises(ValueError, match="label"):
        TemperatureScaling(sharp, likelihood=likelihood).fit(held.X, [[None] * len(y) for y in held.y])
    with pytest.raises(ValueError, match=r"empty|at least one"):
        TemperatureScaling(sharp, likelihood=likelihood).fit([], [])


def test_what_does_not_fit_is_refused(sharp, data):
    held = data[1]
    with pytest.raises(NotFittedError):
        TemperatureScaling(sharp).predict(held.X)
    with pytest.raises(NotFittedError):
        TemperatureScaling(ChainCRF(C=1.0)).fit(held.X, held.y)
    with pytest.raises(TypeError, match="expected a fitted ChainCRF or KernelClassifier"):
        TemperatureScaling(LogisticRegression()).fit(held.X, held.y)
    with pytest.raises(ValueError, match="posterior='bayes': expected 'map' or 'laplace'"):
        TemperatureScaling(sharp, posterior="bayes").fit(held.X, held.y)
    rows = KernelClassifier(n_components=20, random_state=0).fit(np.concatenate(held.X), np.concatenate(held.y))
    with pytest.raises(ValueError, match="likelihood='span' with a KernelClassifier: expected a ChainCRF"):
        TemperatureScaling(rows, likelihood="span").fit(np.concatenate(held.X), np.concatenate(held.y))
    plain = ChainCRF(decoding="viterbi", n_components=20, random_state=0, C=1.0).fit(held.X, held.y)
    with pytest.raises(AttributeError, match="fit with laplace=True"):
        TemperatureScaling(plain, posterior="laplace").fit(held.X, held.y)
    assert clone(TemperatureScaling(plain, n_samples=7)).n_samples == 7


def test_parameters_and_estimators_that_change_after_the_fit_change_no_answer():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(60, 1))
    y = (X[:, 0] + 1.5 * rng.normal(size=60) > 0).astype(int)
    model = KernelClassifier("rbf", laplace=True, C=1e4, n_components=40, random_state=0).fit(X[:30], y[:30])
    scaling = TemperatureScaling(model, posterior="laplace", n_samples=30).fit(X[30:], y[30:])
    before = scaling.predict_proba(X[:5])
    np.testing.assert_array_equal(scaling.set_params(posterior="map").predict_proba(X[:5]), before)
    scaling = TemperatureScaling(model).fit(X[30:], y[30:])
    model.fit(X, np.arange(60) % 3)
    assert scaling.classes_.tolist() == [0, 1]
