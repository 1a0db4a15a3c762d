"""SegmentCRF on parts of the data is SegmentCRF on all data, whatever the cluster."""

from functools import partial
from itertools import pairwise

import numpy as np
import pytest
from sklearn.base import clone

from clusters import Inline
from kernelcrf import Input, SegmentCRF
from kernelcrf.distributed.sources import RawSequences, SequenceSources

SETTINGS = {"kernel": "linear", "C": 2.0, "tol": 1e-8, "random_state": 0}


@pytest.fixture(scope="module")
def data():
    rng = np.random.default_rng(0)
    y = [np.repeat(np.arange(rng.integers(2, 6)) % 3, rng.integers(1, 5)) for _ in range(20)]
    return [rng.normal(size=(len(row), 2)) + row[:, None] for row in y], [row.tolist() for row in y]


def tags(y):
    """The same segments as tags of spans, with the label 0 outside."""
    return [
        ["O" if one == 0 else f"{'I' if t and row[t - 1] == one else 'B'}-{one}" for t, one in enumerate(row)]
        for row in y
    ]


def runs(y):
    """The same segments as tuples (start, end, label)."""
    cuts = [[t for t in range(len(row) + 1) if t in (0, len(row)) or row[t] != row[t - 1]] for row in y]
    return [[(a, b, row[a]) for a, b in pairwise(cut)] for row, cut in zip(y, cuts, strict=True)]


def agree(model, X, y, **fit):
    here = clone(model).fit(X, y, **fit)
    there = clone(model).set_params(engine=Inline(forgetful=False)).fit(X, y, **fit)
    rel = 1e-9 if here.certificate_.status == "optimal" else 1e-6
    assert there.certificate_.objective == pytest.approx(here.certificate_.objective, rel=rel)
    assert there.certificate_.status == here.certificate_.status
    assert there.classes_.tolist() == here.classes_.tolist()
    np.testing.assert_allclose(there.duration_scores_, here.duration_scores_, atol=1e-2)
    for own, theirs in zip(here.predict(X), there.predict(X), strict=True):
        np.testing.assert_array_equal(theirs, own)
    return here, there


@pytest.mark.parametrize(
    "settings",
    [
        {},
        {"kernel": "rbf", "n_components": 15, "certify_full": True},
        {"kernel": "auto", "inputs": {"a": Input("rbf", n_components=8), "b": Input("linear", scores="starts")}},
        {"max_duration": 2, "laplace": True, "solver": "newton-cg"},
        {"segment_kernel": "rbf", "n_components": 10, "certify_full": True},
        {
            "kernel": "auto",
            "segment_kernel": "linear",
            "pooling": "ends",
            "inputs": {"a": Input("linear", columns=[0])},
        },
        {"constraints": [(a, b) for a in range(3) for b in range(3) if a != b], "class_weight": "balanced"},
    ],
    ids=str,
)
def test_labels_of_tokens(data, settings):
    here, there = agree(SegmentCRF(**SETTINGS | settings), *data)
    if settings.get("certify_full"):
        assert there.certificate_.gap_full == pytest.approx(here.certificate_.gap_full, rel=1e-5)
    if settings.get("laplace"):
        assert there.log_marginal_likelihood() == pytest.approx(here.log_marginal_likelihood(), rel=1e-7)


@pytest.mark.parametrize("form", [tags, runs])
def test_other_forms_of_segments(data, form):
    agree(SegmentCRF(**SETTINGS), data[0], form(data[1]))


def test_segments_are_read_alike_in_all_parts(data):
    """One part of the data leaves out tokens, so that segments are tags in all parts."""
    X, y = data[0], [[(a, b, f"L{label}") for a, b, label in row] for row in runs(data[1])]
    y[-1] = y[-1][1:]
    here, _ = agree(SegmentCRF(**SETTINGS), X, y)
    assert here.classes_[0] == "B-L0"


def test_missing_labels_and_weights(data):
    X, y = data[0], [list(row) for row in data[1]]
    y[3][:2] = [None, None]
    agree(SegmentCRF(**SETTINGS | {"tol": 1e-6}), X, y, sample_weight=np.linspace(0.5, 2, len(X)))


def test_words_and_the_search_for_C(data):
    X = [[{f"w{value:.0f}": 1.0 for value in token} for token in x] for x in data[0]]
    for settings in ({"C": "auto"}, {"C": 1.0, "segment_kernel": "linear", "pooling": "max"}):
        here, there = agree(SegmentCRF(tol=1e-6, **settings), X, data[1])
        assert there.C_ == here.C_


def test_a_prior_and_a_warm_start(data):
    X, y = data
    first = SegmentCRF(**SETTINGS | {"laplace": True}).fit(X[:10], y[:10])
    agree(SegmentCRF(kernel="linear", prior=first, tol=1e-8), X[10:], y[10:])
    model = SegmentCRF(**SETTINGS, warm_start=True, engine=Inline(forgetful=False)).fit(X, y)
    assert model.set_params(tol=1e-6).fit(X, y).n_iter_ <= 1


def test_segments_that_break_a_rule_are_named_by_their_place_in_all_data(data):
    X, y = data[0], [[k % 2 for k in range(len(row))] for row in data[1]]
    y[13] = [1] * len(y[13])
    parts = SequenceSources([partial(RawSequences, X[k : k + 1], y[k : k + 1]) for k in range(len(X))])
    model = SegmentCRF(**SETTINGS, max_duration=1, tail=False, engine=Inline())
    with pytest.raises(ValueError, match="in sequence 13: expected at most max_duration=1"):
        model.fit(parts)


@pytest.mark.parametrize(
    ("settings", "fit", "message"),
    [
        ({"segment_kernel": "linear", "pooling": len}, {}, "pooling is a function of whole sequences, which cannot be"),
        ({}, {"base_scores": [1]}, "base_scores cannot be combined with data on a cluster"),
        ({}, {"groups": [1]}, "groups cannot be combined with data on a cluster"),
    ],
)
def test_what_is_refused(data, settings, fit, message):
    with pytest.raises(ValueError, match=message):
        SegmentCRF(**SETTINGS | settings, engine=Inline()).fit(*data, **fit)
