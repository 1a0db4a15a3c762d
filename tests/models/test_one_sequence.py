"""One sequence at a time has the answers of many sequences, also where the short way cannot be taken."""

import numpy as np
import pytest

from kernelcrf import ChainCRF

LABELS = ["B-A", "I-A", "B-B", "I-B", "O"]


def tokens_of(kind, rng, n):
    words = [f"w{k}" for k in rng.integers(30, size=n)]
    if kind == "lists":
        return [[f"word={word}", f"digit={word[-1]}"] for word in words]
    if kind == "strings":
        return [{"word": word, "digit": word[-1]} for word in words]
    if kind == "numbers":
        return [{"word": word, "digit": int(word[-1]) / 4, "even": word[-1] in "02468"} for word in words]
    return [{"self": {"word": word, "long": len(word) > 2}, "weight": 0.5, "seen": ["a", word[-1]]} for word in words]


def tags(rng, n):
    y = []
    for _ in range(n):
        allowed = [label for label in LABELS if label[0] != "I" or (y and y[-1][1:] == label[1:])]
        y.append(str(rng.choice(allowed)))
    return y


KINDS = ["lists", "strings", "numbers", "nested"]
OPTIONS = {
    "defaults": {},
    "constraints": {"constraints": "BIO"},
    "boundaries": {"fit_intercept": "boundaries"},
    "every weight": {"weights": "all"},
    "hashed": {"hash_features": 64},
}


@pytest.fixture(scope="module")
def data():
    rng = np.random.default_rng(0)
    lengths = rng.integers(1, 9, size=60)
    X = {kind: [tokens_of(kind, np.random.default_rng(i), n) for i, n in enumerate(lengths)] for kind in KINDS}
    return X, [tags(rng, n) for n in lengths]


@pytest.fixture(scope="module", params=OPTIONS)
def options(request):
    return OPTIONS[request.param]


@pytest.mark.parametrize("kind", KINDS)
def test_one_sequence_has_the_answers_of_many(data, kind, options):
    X, y = data
    if kind == "lists" and "hash_features" in options:
        options = {"hash_features": 128}
    crf = ChainCRF("linear", C=10.0, tol=1e-2, **options).fit(X[kind][:40], y[:40])
    assert (crf.model_.one_sequence is None) == (bool({"weights", "hash_features"} & set(options)))
    many, p = crf.distribution(X[kind]).decode(), crf.distribution(X[kind]).marginals()
    for i, x in enumerate(X[kind]):
        (labels,), (marginals,) = crf.predict([x]), crf.predict_proba([x])
        assert labels.tolist() == many[i].tolist()
        assert labels.dtype == many[i].dtype
        np.testing.assert_allclose(marginals, p[i], rtol=1e-13, atol=1e-300)


@pytest.fixture(scope="module")
def fitted(data):
    X, y = data
    return ChainCRF("linear", C=10.0, tol=1e-2, constraints="BIO").fit(X["strings"], y)


def test_unknown_and_missing_features_are_no_error(fitted):
    x = [{"word": "never"}, {}, {"new": "name"}, {"word": "w1", "digit": "1"}]
    assert fitted.predict([x])[0].tolist() == fitted.predict([x, x])[1].tolist()
    np.testing.assert_allclose(fitted.predict_proba([x])[0], fitted.predict_proba([x, x])[1], rtol=1e-13)


def test_an_empty_sequence_has_no_labels(fitted):
    assert fitted.predict([[]])[0].shape == (0,)
    assert fitted.predict_proba([[]])[0].shape == (0, 5)


@pytest.mark.parametrize("answer", ["predict", "predict_proba"])
@pytest.mark.parametrize(
    ("x", "error"),
    [
        ([{"word": 1.0, 3: "a"}], TypeError),
        ([{"word": float("nan")}], ValueError),
        ([{"word": object()}], TypeError),
        (["text"], TypeError),
        ([[1.0, 2.0]], TypeError),
        ({"word": "w1"}, TypeError),
    ],
    ids=["name", "NaN", "object", "string", "numbers", "dict"],
)
def test_errors_are_those_of_many_sequences(fitted, answer, x, error):
    with pytest.raises(error) as one:
        getattr(fitted, answer)([x])
    with pytest.raises(error) as many:
        fitted.distribution([x, x])
    assert str(one.value) == str(many.value)


def test_scores_that_overflow_are_the_error_of_many_sequences(data):
    X, y = data
    crf = ChainCRF("linear", C=10.0, tol=1e-2).fit(X["numbers"], y)
    with pytest.raises(ValueError, match="so large that computations overflow"):
        crf.predict([[{"digit": 1e300}]])
    with pytest.raises(ValueError, match="so large that computations overflow"):
        crf.predict_proba([[{"digit": 1e300}]])


def test_scores_that_underflow_have_the_probabilities_of_many_sequences(data):
    X, y = data
    crf = ChainCRF("linear", C=10.0, tol=1e-2).fit(X["numbers"], y)
    x = [{"digit": 1e5}, {"digit": -1e5}, {"word": "w1"}]
    np.testing.assert_allclose(crf.predict_proba([x])[0], crf.predict_proba([x, x])[1], rtol=1e-12, atol=1e-300)
    assert crf.predict([x])[0].tolist() == crf.predict([x, x])[1].tolist()


def test_a_model_that_is_fitted_again_answers_anew(data):
    X, y = data
    crf = ChainCRF("linear", C=10.0, tol=1e-2).fit(X["strings"], y)
    before = crf.predict_proba(X["strings"][:1])[0]
    crf.set_params(C=0.01).fit(X["strings"], y)
    assert abs(crf.predict_proba(X["strings"][:1])[0] - before).max() > 0.1
