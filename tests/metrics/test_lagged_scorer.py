"""The scorer at a lag scores the labels of prefixes, and the search for C can use the same labels."""

import numpy as np
import pytest
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from kernelcrf import ChainCRF, SegmentCRF
from kernelcrf.datasets import make_sequences
from kernelcrf.metrics import LaggedScorer, flat_accuracy, flat_f1
from kernelcrf.preprocessing import PerToken
from kernelcrf.rules import HeldOut
from kernelcrf.streams.compiled_loops import labels_at_lag

DATA = make_sequences(40, random_state=0)
X, Y = DATA.X[:10], DATA.y[:10]


@pytest.fixture(scope="module")
def crf():
    return ChainCRF("linear", C=1.0, random_state=0).fit(DATA.X, DATA.y)


def of_prefixes(crf, x, lag):
    """The label of each token, given the tokens up to `lag` tokens later; this model has no scores of last labels."""
    return np.array([crf.predict([x[: t + lag + 1]])[0][t] for t in range(len(x))])


@pytest.mark.parametrize("lag", [0, 2])
def test_the_score_is_that_of_the_labels_of_prefixes(crf, lag):
    expected = [of_prefixes(crf, x, lag) for x in X]
    weights = np.arange(1.0, 11.0)
    assert LaggedScorer(lag)(crf, X, Y) == flat_accuracy(Y, expected)
    assert LaggedScorer(lag)(crf, X, Y, weights) == pytest.approx(flat_accuracy(Y, expected, sample_weight=weights))
    assert LaggedScorer(lag, "flat_f1")(crf, X, Y) == pytest.approx(flat_f1(Y, expected, zero_division=0))
    assert LaggedScorer(lag, lambda true, found: float(len(found)))(crf, X, Y) == 10.0


def test_a_long_lag_scores_whole_sequences(crf):
    assert LaggedScorer(100)(crf, X, Y) == crf.score(X, Y)
    segments = SegmentCRF("linear", C=1.0, decoding="marginal").fit(X, Y)
    assert LaggedScorer(100)(segments, X, Y) == segments.score(X, Y)


def test_pipelines_and_searches_take_the_scorer():
    pipe = make_pipeline(PerToken(StandardScaler()), ChainCRF("linear", random_state=0))
    search = GridSearchCV(pipe, {"chaincrf__C": [1e-3, 1.0]}, scoring=LaggedScorer(1), cv=2).fit(DATA.X, DATA.y)
    assert search.best_params_ == {"chaincrf__C": 1.0}
    assert search.best_score_ > 0.4


def test_wrong_parameters_are_named():
    with pytest.raises(ValueError, match="lag=-1: expected an integer"):
        LaggedScorer(-1)
    with pytest.raises(ValueError, match="scoring='neg_log_loss': expected 'flat_accuracy'"):
        LaggedScorer(1, "neg_log_loss")
    with pytest.raises(ValueError, match="has no score of labels"):
        HeldOut(lag=2)
    with pytest.raises(ValueError, match="lag='all': expected"):
        HeldOut("flat_f1", lag="all")


def test_C_is_chosen_by_labels_at_a_lag(crf):
    now, later = (ChainCRF("linear", C=HeldOut("flat_accuracy", lag=lag)).fit(DATA.X, DATA.y) for lag in (0, 50))
    whole = ChainCRF("linear", C=HeldOut("flat_accuracy"), decoding="marginal").fit(DATA.X, DATA.y)
    assert later.search_["score"] == whole.search_["score"]
    assert max(now.search_["score"]) < max(later.search_["score"])
    field = crf.distribution(X).field
    found = np.split(labels_at_lag(field.s, field.w, field.chains, 2), field.chains.offsets[1:-1])
    for x, labels in zip(X, found, strict=True):
        np.testing.assert_array_equal(crf.classes_[labels], of_prefixes(crf, x, 2))
