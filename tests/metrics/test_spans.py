"""Spans and their scores against seqeval: all short tag sequences, random long ones, and cases by hand."""

import gzip
import itertools
from collections import Counter, defaultdict

import numpy as np
import pytest
import seqeval.metrics
import seqeval.scheme
from hypothesis import given, settings
from hypothesis import strategies as st
from seqeval.metrics import sequence_labeling, v1
from seqeval.metrics.sequence_labeling import get_entities
from sklearn.exceptions import UndefinedMetricWarning

from kernelcrf import metrics as km
from kernelcrf.answers.spans import PredictedSpan
from kernelcrf.readers.schemes import SCHEMES

STRICT = {
    "IOB1": seqeval.scheme.IOB1,
    "IOB2": seqeval.scheme.IOB2,
    "IOBES": seqeval.scheme.IOBES,
    "BIOUL": seqeval.scheme.BILOU,
}
LETTERS = {"IOB1": "BI", "IOB2": "BI", "BIOUL": "BILU"}


def tags_of(scheme, types=("-X", "-Y")):
    return ["O"] + [letter + type_ for letter in LETTERS.get(scheme, "BIES") for type_ in types]


def seqeval_spans(tags, scheme):
    if scheme == "lenient":
        return [(start, end + 1, type_) for type_, start, end in get_entities(list(tags))]
    found = seqeval.scheme.Tokens(list(tags), STRICT[scheme]).entities
    return [(entity.start, entity.end, entity.tag) for entity in found]


def labelings(scheme, m=4):
    """m pairs of a true and a predicted tag sequence of one length."""
    tag = st.sampled_from(tags_of(scheme))
    pairs = st.lists(st.lists(st.tuples(tag, tag), min_size=1, max_size=9), min_size=1, max_size=m)
    return pairs.map(lambda rows: tuple([[pair[side] for pair in row] for row in rows] for side in (0, 1)))


@pytest.mark.parametrize("scheme", ["lenient", *STRICT])
def test_spans_of_all_short_sequences_are_seqevals(scheme):
    for T in range(5):
        for tags in itertools.product(tags_of(scheme), repeat=T):
            assert km.spans(tags, scheme) == seqeval_spans(tags, scheme), tags


@pytest.mark.parametrize("scheme", ["lenient", *STRICT])
@given(data=st.data())
def test_spans_of_long_sequences_are_seqevals(scheme, data):
    tag = st.sampled_from(tags_of(scheme, ("-X", "-Y", "-a-b", "")))
    tags = data.draw(st.lists(tag, max_size=40))
    assert km.spans(tags, scheme) == seqeval_spans(tags, scheme)


@given(st.lists(st.sampled_from(tags_of("IOBES")), max_size=30))
def test_letters_of_bmes_and_bioul_are_those_of_iobes(tags):
    def rewritten(letters):
        return [letters.get(tag[0], tag[0]) + tag[1:] for tag in tags]

    bmes, bioul = rewritten({"I": "M"}), rewritten({"E": "L", "S": "U"})
    assert km.spans(bmes, "BMES") == km.spans(bioul, "BIOUL") == km.spans(tags, "IOBES")
    assert km.spans(bmes) == km.spans(bioul) == km.spans(tags)


def test_spans_by_hand():
    tags = np.array(["O", "B-MISC", "I-MISC", "I-PER", "O", "B", "I"])
    assert km.spans(tags) == [(1, 3, "MISC"), (3, 4, "PER"), (5, 7, "_")]
    assert km.spans(tags, "IOB2") == [(1, 3, "MISC"), (5, 7, "_")]
    assert km.spans(["B-A", "M-A", "E-A", "S-A", "B-A"], "BMES") == [(0, 3, "A"), (3, 4, "A")]
    assert km.spans([]) == []
    for name, alias in (("IOB2", "BIO"), ("IOBES", "BIOES"), ("BIOUL", "BILOU")):
        assert SCHEMES[alias] is SCHEMES[name]


@pytest.mark.parametrize("scheme", ["lenient", *STRICT])
@settings(max_examples=8)
@given(data=st.data())
def test_span_scores_are_seqevals(scheme, data):
    check_scores_of_seqeval(scheme, *data.draw(labelings(scheme)))


@pytest.mark.slow
@pytest.mark.parametrize("scheme", ["lenient", *STRICT])
@settings(max_examples=40)
@given(data=st.data())
def test_span_scores_of_many_labelings_are_seqevals(scheme, data):
    check_scores_of_seqeval(scheme, *data.draw(labelings(scheme)))


def check_scores_of_seqeval(scheme, y_true, y_pred):
    options = {} if scheme == "lenient" else {"scheme": STRICT[scheme]}
    some = any(km.spans(tags, scheme) for tags in y_true + y_pred)
    for average in ("micro", "weighted", None, *["macro"] * some):  # seqeval's macro of no spans is the mean of nothing
        theirs = sequence_labeling if scheme == "lenient" else v1
        expected = theirs.precision_recall_fscore_support(y_true, y_pred, average=average, zero_division=0, **options)
        scores = {"precision": expected[0], "recall": expected[1], "f1": expected[2]}
        for name in scores if average in ("micro", None) else ("f1",):
            ours = getattr(km, f"span_{name}")
            found = ours(y_true, y_pred, scheme=scheme, average=average, zero_division=0)
            np.testing.assert_allclose(found, scores[name], rtol=1e-12)


def test_span_scores_and_report_by_hand():
    y_true = [["B-A", "B-B", "O", "B-A"]]
    y_pred = [["O", "B-B", "B-C", "B-A"]]
    assert km.span_f1(y_true, y_pred) == pytest.approx(2 / 3)
    np.testing.assert_allclose(km.span_recall(y_true, y_pred, average=None, zero_division=0), [1 / 2, 1, 0])
    assert km.span_precision(y_true, y_pred, average="macro") == pytest.approx(2 / 3)
    for y in (y_pred, y_true):
        report = km.span_classification_report(y_true, y, zero_division=0)
        expected = seqeval.metrics.classification_report(y_true, y, zero_division=0)
        assert report.split() == expected.split()
        found = km.span_classification_report(y_true, y, output_dict=True, zero_division=0)
        expected = seqeval.metrics.classification_report(y_true, y, output_dict=True, zero_division=0)
        assert found == {name: pytest.approx(row) for name, row in expected.items()}


def test_cases_of_seqeval():
    y_true = [["O", "O", "O", "B-MISC", "I-MISC", "I-MISC", "O"], ["B-PER", "I-PER", "O"]]
    y_pred = [["O", "O", "B-MISC", "I-MISC", "I-MISC", "I-MISC", "O"], ["B-PER", "I-PER", "O"]]
    assert km.span_f1(y_true, y_pred) == km.span_precision(y_true, y_pred) == km.span_recall(y_true, y_pred) == 0.5
    np.testing.assert_array_equal(km.span_f1(y_true, y_pred, average=None), [0.0, 1.0])
    assert km.spans(list("OOOBIIO")) == [(3, 6, "_")]


@pytest.mark.parametrize("compared", [300, pytest.param(None, marks=pytest.mark.slow)])
def test_conll_2000_baseline_is_the_published_one(data_folder, compared):
    """The number of sentences that are compared with seqeval too is `compared`, or None for all."""

    def read(part):
        with gzip.open(data_folder / "conll2000_chunking" / f"{part}.txt.gz", "rt") as file:
            blocks = file.read().strip().split("\n\n")
        return [[line.split()[1:] for line in block.splitlines()] for block in blocks]

    counts = defaultdict(Counter)
    for pos, tag in itertools.chain.from_iterable(read("train")):
        counts[pos][tag] += 1
    test = read("test")
    y_true = [[tag for _, tag in sentence] for sentence in test]
    y_pred = [[counts[pos].most_common(1)[0][0] for pos, _ in sentence] for sentence in test]
    assert sum(len(km.spans(tags)) for tags in y_true) == 23_852
    assert km.span_f1(y_true, y_pred) == pytest.approx(0.7707, abs=5e-5)
    y_true, y_pred = y_true[:compared], y_pred[:compared]
    for scheme, options in (("lenient", {}), ("IOB2", {"mode": "strict", "scheme": STRICT["IOB2"]})):
        found = km.span_f1(y_true, y_pred, scheme=scheme, average="macro", zero_division=0)
        assert found == pytest.approx(
            seqeval.metrics.f1_score(y_true, y_pred, average="macro", zero_division=0, **options)
        )


def test_without_spans_scores_are_undefined():
    y = [["O", "O"]]
    with pytest.warns(UndefinedMetricWarning):
        assert km.span_f1(y, y) == 0.0
    assert km.span_f1(y, y, zero_division=1.0) == 1.0
    assert km.span_f1(y, y, average=None, zero_division=0).shape == (0,)
    with pytest.raises(ValueError, match="neither y_true nor y_pred has a span"):
        km.span_classification_report(y, y)


@given(labelings("lenient", m=3), st.lists(st.integers(0, 3), min_size=3, max_size=3))
def test_weights_are_repetitions(labels, counts):
    y_true, y_pred = labels
    counts = [1 + counts[0], *counts[1:]][: len(y_true)]
    repeated = [[row for row, count in zip(y, counts, strict=True) for _ in range(count)] for y in labels]
    for metric in (km.flat_accuracy, km.sequence_accuracy, km.span_precision, km.span_recall, km.span_f1):
        options = {"zero_division": 0} if "span" in metric.__name__ else {}
        weighted = metric(y_true, y_pred, sample_weight=counts, **options)
        assert weighted == pytest.approx(metric(*repeated, **options))


def test_reliability_of_spans_by_hand():
    y = [["B-A", "I-A", "O"], ["B-B", "O", "B-A"]]
    found = [
        [PredictedSpan(0, 2, "A", 0.9), PredictedSpan(2, 3, "B", 0.2)],
        [PredictedSpan(0, 1, "A", 0.6), PredictedSpan(2, 3, "A", 0.7)],
    ]
    bins = km.span_reliability(y, found, n_bins=2)
    np.testing.assert_array_equal(bins.weight, [1, 3])
    np.testing.assert_allclose(bins.confidence, [0.2, 2.2 / 3])
    np.testing.assert_allclose(bins.accuracy, [0, 2 / 3])
    assert bins.error == pytest.approx((0.2 + 0.2) / 4)
    assert km.span_reliability([[1, 1, 2]], [[PredictedSpan(0, 2, 1, 0.5)]], n_bins=1).accuracy.tolist() == [1.0]
    with pytest.raises(ValueError, match="y_true has 2 sequences, and y_spans has 1"):
        km.span_reliability(y, found[:1])


@pytest.mark.parametrize("average", ["micro", "macro", None])
def test_runs_of_numbers_are_scored_like_those_of_names(average):
    y_true, y_pred, names = [[0, 0, 1, 1, 2]], [[0, 0, 2, 2, 2]], ["a", "b", "c"]
    named = [[[names[label] for label in own] for own in y] for y in (y_true, y_pred)]
    for metric in (km.span_precision, km.span_recall, km.span_f1):
        settings = {"scheme": "runs", "average": average, "zero_division": 0}
        np.testing.assert_array_equal(metric(y_true, y_pred, **settings), metric(*named, **settings))
    assert km.span_f1(y_true, y_pred, scheme="runs") == pytest.approx(0.4)
    report = km.span_classification_report(y_true, y_pred, scheme="runs", output_dict=True, zero_division=0)
    assert report["0"]["f1-score"] == 1.0


def test_an_empty_label_is_a_run_like_any_other():
    assert km.span_f1([["", "a"]], [["", "b"]], scheme="runs") == pytest.approx(0.5)
