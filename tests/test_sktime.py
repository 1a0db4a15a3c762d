"""A segmenter for sktime: its checks, fits with events beside the model itself, and errors."""

import doctest

import numpy as np
import pandas as pd
import pytest
from sklearn.frozen import FrozenEstimator
from sklearn.linear_model import LogisticRegression

from kernelcrf import ChainCRF, SegmentCRF
from kernelcrf.datasets import make_sequences

pytest.importorskip("sktime", reason="sktime is not installed")
segmenters = pytest.importorskip("kernelcrf.sktime")
pytestmark = pytest.mark.filterwarnings("ignore")  # those of sktime


def a_series(random_state):
    """One series of two columns, the label of each time point, and its events: all segments whose label is not 0."""
    data = make_sequences(10, random_state=random_state)
    X, labels = pd.DataFrame(np.concatenate(data.X), columns=["a", "b"]), np.concatenate(data.y)
    starts = np.flatnonzero(np.append(True, labels[1:] != labels[:-1]))
    intervals = pd.IntervalIndex.from_arrays(starts, np.append(starts[1:], len(labels)), closed="left")
    events = pd.DataFrame({"ilocs": intervals, "labels": labels[starts]})
    return X, labels, events[events["labels"] != 0].reset_index(drop=True)


def test_the_checks_of_sktime_pass():
    from sktime.utils.estimator_checks import check_estimator

    results = check_estimator(segmenters.CRFSegmenter, raise_exceptions=True, verbose=False)
    assert len(results) > 50
    assert set(results.values()) == {"PASSED"}


def test_the_example_prints_what_it_says():
    assert doctest.testmod(segmenters) == (0, 8)


@pytest.mark.parametrize(
    "estimator", [ChainCRF("linear", C=1.0), SegmentCRF("linear", C=1.0)], ids=["chain", "segments"]
)
def test_a_fit_with_events_is_that_of_the_model(estimator):
    (X, labels, events), (new, _, _) = a_series(0), a_series(1)
    segmenter = segmenters.CRFSegmenter(estimator).fit(X, events)
    assert segmenter.estimator is estimator
    assert not hasattr(estimator, "classes_")
    model = estimator.fit([X], [np.where(labels == 0, 7, labels)])  # the background has a number of its own
    np.testing.assert_array_equal(segmenter.estimator_.classes_, [-1, 1, 2])
    np.testing.assert_array_equal(model.classes_, [1, 2, 7])
    predicted = model.predict([new])[0]
    np.testing.assert_array_equal(segmenter.transform(new)["labels"], np.where(predicted == 7, -1, predicted))
    spans = model.distribution([new]).spans()[0]
    segments = segmenter.predict(new)
    assert [(one.left, one.right) for one in segments["ilocs"]] == [(span.start, span.end) for span in spans]
    np.testing.assert_allclose(
        segmenter.predict_scores(new)["probability"], [span.probability for span in spans], atol=1e-3
    )
    np.testing.assert_allclose(
        segmenter.transform_scores(new)[[1, 2, -1]].to_numpy(), model.predict_proba([new])[0], atol=1e-3
    )


def test_labels_may_be_strings_and_events_may_have_none():
    X, labels, events = a_series(0)
    named = events.assign(labels=events["labels"].map({1: "walk", 2: "run"}))
    segmenter = segmenters.CRFSegmenter(ChainCRF("linear", C=1.0), background="rest").fit(X, named)
    assert set(segmenter.predict(X)["labels"]) <= {"walk", "run", "rest"}
    segmenter = segmenters.CRFSegmenter(ChainCRF("linear", C=1.0)).fit(X, events[["ilocs"]])
    assert segmenter.estimator_.classes_.tolist() == [-1, 1]
    assert (segmenter.transform(X)["labels"] == np.where(labels == 0, -1, 1)).mean() > 0.7


def test_a_frozen_model_stays_as_it_is():
    (X, labels, events), (new, _, _) = a_series(0), a_series(1)
    model = ChainCRF("linear", C=1.0).fit([X], [labels])
    for y in (None, events):
        segmenter = segmenters.CRFSegmenter(FrozenEstimator(model)).fit(new, y)
        np.testing.assert_array_equal(segmenter.transform(X)["labels"], model.predict([X])[0])


def test_a_pipeline_of_sktime_can_end_with_it():
    from sktime.transformations.series.difference import Differencer

    X, _, events = a_series(0)
    changes = Differencer(na_handling="fill_zero")
    pipeline = (changes * segmenters.CRFSegmenter(ChainCRF("linear", C=1.0))).fit(X, events)
    alone = segmenters.CRFSegmenter(ChainCRF("linear", C=1.0)).fit(changes.fit_transform(X), events)
    pd.testing.assert_frame_equal(pipeline.predict(X), alone.predict(changes.fit_transform(X)))


def intervals(*pairs, closed="left"):
    return pd.DataFrame({"ilocs": pd.IntervalIndex.from_tuples(pairs, closed=closed), "labels": 1})


@pytest.mark.parametrize(
    ("events", "kind", "message"),
    [
        (None, ValueError, "FrozenEstimator"),
        (np.ones(4), TypeError, "column 'ilocs' has left-closed intervals"),
        (pd.DataFrame({"ilocs": [1, 2], "labels": 1}), TypeError, "left-closed"),
        (intervals((0, 2), closed="right"), TypeError, "left-closed"),
        (intervals((0, 2), (1, 3)), ValueError, "overlap"),
        (intervals((-1, 2)), ValueError, "outside of the 5 time points"),
        (intervals((3, 6)), ValueError, "outside of the 5 time points"),
        (intervals((0, 2)).assign(labels="walk"), TypeError, "background='none'"),
    ],
)
def test_events_that_cannot_be_read_are_named(events, kind, message):
    X = pd.DataFrame({"a": np.arange(5.0)})
    with pytest.raises(kind, match=message):
        segmenters.CRFSegmenter(ChainCRF("linear", C=1.0)).fit(X, events)


def test_other_estimators_are_refused():
    X, _, events = a_series(0)
    with pytest.raises(TypeError, match="expected a ChainCRF, a SegmentCRF, or FrozenEstimator"):
        segmenters.CRFSegmenter(LogisticRegression()).fit(X, events)


def test_there_is_no_update():
    X, _, events = a_series(0)
    segmenter = segmenters.CRFSegmenter(ChainCRF("linear", C=1.0)).fit(X, events)
    with pytest.raises(NotImplementedError, match="fit again"):
        segmenter.update(X, events)
