"""ChainCRF in scikit-learn's cross-validation, searches, pipelines and routing of metadata."""

import pickle

import numpy as np
import pytest
from sklearn import config_context
from sklearn.base import clone
from sklearn.exceptions import UnsetMetadataPassedError
from sklearn.model_selection import GridSearchCV, KFold, cross_val_predict, cross_val_score
from sklearn.pipeline import Pipeline, make_pipeline
from sklearn.preprocessing import StandardScaler

from kernelcrf import ChainCRF
from kernelcrf.datasets import make_sequences
from kernelcrf.metrics import flat_accuracy, get_scorer
from kernelcrf.preprocessing import PerToken
from kernelcrf.readers.containers import Ragged

LETTERS_LATER = ["synthetic", pytest.param("letters", marks=pytest.mark.slow)]
both = pytest.mark.parametrize("data", LETTERS_LATER, indirect=True)


@pytest.fixture(scope="module")
def data(request):
    """Sequences and labels: of a known law, or 150 handwritten words."""
    if getattr(request, "param", "synthetic") == "synthetic":
        made = make_sequences(60, random_state=0)
        return made.X, made.y
    letters = np.load(request.getfixturevalue("data_folder") / "letters_ocr" / "letters.npz")
    inside = letters["fold"] == 0
    starts = np.flatnonzero(np.diff(letters["word_id"][inside])) + 1
    pixels = np.unpackbits(letters["pixels_packed"][inside], axis=1).astype(np.float64)
    labels = np.array(list("abcdefghijklmnopqrstuvwxyz"))[letters["label"][inside]]
    # Words come sorted: drawn at random, so that each fold has nearly all letters.
    drawn = np.random.default_rng(0).permutation(len(starts) + 1)[:150]
    return _take(np.split(pixels, starts), drawn), _take(np.split(labels, starts), drawn)


@pytest.fixture
def crf():
    return ChainCRF(C=10.0, n_components=60, tol=1e-3, random_state=0)


@pytest.fixture
def weights(data):
    return np.random.default_rng(0).integers(0, 4, size=len(data[0])).astype(np.float64)


@pytest.fixture
def routing():
    with config_context(enable_metadata_routing=True):
        yield


def _take(values, index):
    return [values[i] for i in index]


def _by_fold(crf, X, y, weights=None):
    """Models of the folds of cv=3, with the indices that they leave out."""
    for train, test in KFold(3).split(X):
        own = None if weights is None else weights[train]
        yield clone(crf).fit(_take(X, train), _take(y, train), sample_weight=own), test


@pytest.mark.parametrize("data", ["synthetic", "letters"], indirect=True)
def test_folds_by_number_are_folds_of_sequences(data, crf):
    X, y = data
    scores = cross_val_score(crf, X, y, cv=3)
    by_hand = [model.score(_take(X, test), _take(y, test)) for model, test in _by_fold(crf, X, y)]
    np.testing.assert_array_equal(scores, by_hand)
    assert scores.min() > 0.6


def test_a_search_finds_the_better_parameter(data, crf):
    X, y = data
    search = GridSearchCV(crf, {"C": [1e-3, 10.0]}, cv=3, scoring=get_scorer("neg_log_loss")).fit(X, y)
    assert search.best_params_ == {"C": 10.0}
    np.testing.assert_array_equal(search.best_estimator_.coef_, clone(crf).fit(X, y).coef_)
    assert type(search.predict(X)) is Ragged


@both
def test_predictions_of_folds_are_joined(data, crf):
    X, y = data
    predicted = cross_val_predict(crf, X, y, cv=3)
    assert predicted.shape == (len(X),)
    for model, test in _by_fold(crf, X, y):
        for i, labels in zip(test, model.predict(_take(X, test)), strict=True):
            np.testing.assert_array_equal(predicted[i], labels)
    assert flat_accuracy(y, predicted) > 0.6


@pytest.mark.parametrize("lengths", ["equal", "different"])
def test_probabilities_of_folds_are_never_joined_wrongly(crf, lengths):
    """For predict_proba, scikit-learn encodes y as one label a sample or output: it raises, never mixes them."""
    rng = np.random.default_rng(0)
    X = [rng.normal(size=(4 if lengths == "equal" else 3 + i % 3, 2)) for i in range(12)]
    y = [(x[:, 0] > 0).astype(int) for x in X]
    with pytest.raises((TypeError, ValueError, IndexError)):
        cross_val_predict(crf, X, y, cv=3, method="predict_proba")


@both
def test_what_is_predicted_is_a_list(data, crf):
    X, y = data
    model = crf.fit(X[:40], y[:40])
    for result in (
        model.predict(X[:5]),
        model.predict_proba(X[:5]),
        model.predict_marginals(X[:5]),
        model.distribution(X[:5]).edge_marginals(),
        model.distribution(X[:5]).k_best(2),
        model.distribution(X[:5]).sample(2, random_state=0),
    ):
        assert isinstance(result, list)
        assert repr(result) == repr(list(result))
        array = np.asarray(result)
        assert array.shape == (5,)
        assert array.dtype == object
        assert all(a is b for a, b in zip(array, result, strict=True))


def test_a_ragged_list_equals_and_pickles_as_a_list():
    values = Ragged([[1, 2], [3, 4]])
    assert values == [[1, 2], [3, 4]]
    again = pickle.loads(pickle.dumps(values))
    assert again == values
    # Folds that other processes predict come back pickled, and are joined then.
    assert np.concatenate([again, Ragged([[5]])]).tolist() == [[1, 2], [3, 4], [5]]
    assert np.asarray(Ragged()).shape == (0,)
    with pytest.raises(ValueError, match="copy=False"):
        np.asarray(values, copy=False)


@both
@pytest.mark.usefixtures("routing")
def test_sample_weights_are_routed_to_fit_and_score(data, crf, weights):
    X, y = data
    asked = crf.set_fit_request(sample_weight=True).set_score_request(sample_weight=True)
    scores = cross_val_score(asked, X, y, cv=3, params={"sample_weight": weights})
    by_hand = [
        model.score(_take(X, test), _take(y, test), sample_weight=weights[test])
        for model, test in _by_fold(crf, X, y, weights)
    ]
    np.testing.assert_array_equal(scores, by_hand)
    assert not np.array_equal(scores, cross_val_score(asked, X, y, cv=3))


@pytest.mark.usefixtures("routing")
@pytest.mark.parametrize("scoring", [None, "flat_accuracy", "neg_log_loss"])
def test_sample_weights_are_routed_through_a_search(data, crf, weights, scoring):
    X, y = data
    asked = crf.set_fit_request(sample_weight=True).set_score_request(sample_weight=True)
    scorer = scoring and get_scorer(scoring).set_score_request(sample_weight=True)
    search = GridSearchCV(asked, {"C": [1.0]}, cv=3, scoring=scorer).fit(X, y, sample_weight=weights)
    weighted = clone(crf).set_params(C=1.0).fit(X, y, sample_weight=weights)
    np.testing.assert_array_equal(search.best_estimator_.coef_, weighted.coef_)
    score = scorer or ChainCRF.score
    by_hand = [
        score(model, _take(X, test), _take(y, test), sample_weight=weights[test])
        for model, test in _by_fold(clone(crf).set_params(C=1.0), X, y, weights)
    ]
    assert search.best_score_ == pytest.approx(np.mean(by_hand), rel=1e-12)


@pytest.mark.usefixtures("routing")
def test_metadata_that_nobody_asked_for_are_refused(data, crf, weights):
    X, y = data
    with pytest.raises(UnsetMetadataPassedError, match="sample_weight"):
        cross_val_score(crf, X, y, cv=3, params={"sample_weight": weights})


@pytest.mark.usefixtures("routing")
def test_lengths_are_routed_through_a_pipeline_of_flat_tokens(data, crf):
    X, y = data
    flat, labels, lengths = np.concatenate(X), np.concatenate(y), [len(x) for x in X]
    asked = crf
    for method in ("fit", "predict", "predict_proba", "score"):
        asked = getattr(asked, f"set_{method}_request")(lengths=True)
    pipe = make_pipeline(StandardScaler(), asked).fit(flat, labels, lengths=lengths)
    scaled = PerToken(StandardScaler()).fit(X).transform(X)
    model = clone(crf).fit(scaled, y)
    np.testing.assert_array_equal(pipe[-1].coef_, model.coef_)
    for a, b in zip(pipe.predict(flat, lengths=lengths), model.predict(scaled), strict=True):
        np.testing.assert_array_equal(a, b)
    assert [len(p) for p in pipe.predict_proba(flat, lengths=lengths)] == lengths
    assert pipe.score(flat, labels, lengths=lengths) == model.score(scaled, y)


def test_a_pipeline_of_sequences_is_searched_and_cloned(data, crf):
    """Transformers before the model map lists of sequences; set_output is of transformers, and a CRF is none."""
    X, y = data
    pipe = Pipeline([("scale", PerToken(StandardScaler())), ("crf", crf)])
    search = GridSearchCV(pipe, {"crf__C": [1e-3, 10.0]}, cv=3).fit(X, y)
    assert search.best_params_ == {"crf__C": 10.0}
    best = clone(search.best_estimator_).fit(X, y)
    scaled = PerToken(StandardScaler()).fit(X).transform(X)
    np.testing.assert_array_equal(best[-1].coef_, clone(crf).fit(scaled, y).coef_)
    assert best.score(X, y) == search.score(X, y)
    assert len(cross_val_predict(pipe, X, y, cv=3)) == len(X)
    assert not hasattr(crf, "set_output")
