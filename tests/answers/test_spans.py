"""Probabilities of spans, labels of the best expected F1, and accepted labellings, against enumeration."""

import itertools
from collections import Counter

import numpy as np
import pytest

from kernelcrf import ChainCRF
from kernelcrf.answers.f1_spans import f1_labels, f1_runs
from kernelcrf.answers.span_probabilities import probable_spans, span_probabilities
from kernelcrf.answers.spans import PredictedSpan, right_spans
from kernelcrf.datasets import make_sequences
from kernelcrf.graphs.structure import Chains
from kernelcrf.metrics import Span, spans
from kernelcrf.models.chain_field import ChainField
from kernelcrf.readers.constraints import legal_labelings
from kernelcrf.readers.spans import span_rules

LABELS = {
    "lenient": ["O", "B-X", "I-X", "E-Y", "S-Y", "I-Y", "B-Y"],
    "IOB2": ["O", "B-X", "I-X", "B-Y", "I-Y"],
    "IOB1": ["O", "B-X", "I-X", "B-Y", "I-Y"],
    "IOBES": ["O", "B-X", "I-X", "E-X", "S-X", "S-Y", "B-Y"],
    "BMES": ["B", "M", "E", "S"],
    "BIOUL": ["O", "B-X", "I-X", "L-X", "U-X"],
    "runs": [3, 1, 7],
}
LENGTHS = (4, 0, 1, 3)


def draw(scheme, seed=0, tied=False, constraints=False, lengths=LENGTHS):
    rng, chains, L = np.random.default_rng(seed), Chains.from_lengths(lengths), len(LABELS[scheme])
    s = rng.normal(scale=2.0, size=(chains.n_nodes, L))
    w = rng.normal(scale=1.5, size=(L, L) if tied else (chains.n_nodes, L, L))
    if constraints:
        s, w = legal_labelings(scheme, LABELS[scheme]).impose(chains, s, w)
    return ChainField(s, w, chains)


def labellings(found, i, classes):
    """Yield each labelling of sequence i, as names of labels, and its probability."""
    low, high = found.chains.offsets[i : i + 2]
    every = list(itertools.product(range(len(classes)), repeat=high - low))
    part = found.part(i, i + 1)
    for y in every:
        yield [classes[j] for j in y], float(np.exp(part.log_prob(np.array(y, np.int32))[0]))


def enumerated(found, scheme):
    result = Counter()
    for i in range(found.chains.n_samples):
        for tags, p in labellings(found, i, LABELS[scheme]):
            for span in spans(tags, scheme):
                result[i, *span] += p
    return {span: p for span, p in result.items() if p > 0}


def as_dict(rules, table, p):
    return {(i, s, e, rules.types[k]): value for i, s, e, k, value in zip(*table, p, strict=True)}


@pytest.mark.few
@pytest.mark.parametrize("tied", [True, False])
@pytest.mark.parametrize("scheme", LABELS)
def test_probabilities_of_all_spans_equal_enumeration(scheme, tied):
    found, rules = draw(scheme, tied=tied), span_rules(LABELS[scheme], scheme)
    expected = enumerated(found, scheme)
    table, p = probable_spans(found, rules, 0.0, None)
    assert as_dict(rules, table, p) == pytest.approx(expected, rel=0, abs=1e-12)
    np.testing.assert_allclose(span_probabilities(found, rules, table), p, rtol=0, atol=1e-14)


@pytest.mark.parametrize("scheme", ["IOB2", "IOB1", "BIOUL", "BMES"])
def test_probabilities_with_constraints_equal_enumeration(scheme):
    found, rules = draw(scheme, constraints=True, lengths=(4, 3)), span_rules(LABELS[scheme], scheme)
    table, p = probable_spans(found, rules, 0.0, None)
    assert as_dict(rules, table, p) == pytest.approx(enumerated(found, scheme), rel=0, abs=1e-12)


@pytest.mark.parametrize("scheme", ["IOB2", "runs"])
def test_thresholds_and_n_best_select_the_most_probable_spans(scheme):
    found, rules = draw(scheme, seed=1), span_rules(LABELS[scheme], scheme)
    expected = enumerated(found, scheme)
    for threshold, n_best in ((0.1, None), (0.3, None), (0.0, 1), (0.0, 3), (0.1, 2)):
        got = as_dict(rules, *probable_spans(found, rules, threshold, n_best))
        for i in range(len(LENGTHS)):
            own = sorted((p for span, p in expected.items() if span[0] == i and p >= threshold), reverse=True)
            assert sorted((p for span, p in got.items() if span[0] == i), reverse=True) == pytest.approx(own[:n_best])
        assert got.items() <= as_dict(rules, *probable_spans(found, rules, 0.0, None)).items()


def test_probabilities_of_spans_sum_to_the_marginals_of_their_tokens():
    classes = LABELS["lenient"]
    found, rules = draw("lenient", lengths=(30, 12)), span_rules(classes, "lenient")
    table, p = probable_spans(found, rules, 0.0, None)
    sums = np.zeros((42, len(rules.types)))
    for i, s, e, k, value in zip(*table, p, strict=True):
        sums[found.chains.offsets[i] + s : found.chains.offsets[i] + e, k] += value
    marginals = found.marginals()
    for k, members in enumerate(rules.members):
        np.testing.assert_allclose(sums[:, k], marginals[:, members[members >= 0]].sum(axis=1), atol=1e-12)
    rules = span_rules(range(7), "runs")
    table, p = probable_spans(found, rules, 0.0, None)
    covered = np.zeros(42)
    for i, s, e, value in zip(*table[:3], p, strict=True):
        covered[found.chains.offsets[i] + s : found.chains.offsets[i] + e] += value
    np.testing.assert_allclose(covered, 1.0, atol=1e-12)


def expected_f1(chosen, probabilities):
    total = sum(probabilities.get(span, 0.0) for span in chosen)
    return 2 * total / (sum(probabilities.values()) + len(chosen))


@pytest.mark.parametrize("seed", range(8))
def test_f1_decoding_maximises_the_expected_f1(seed):
    scheme, constraints = ("IOB2", seed % 2 == 1)
    found = draw(scheme, seed, tied=True, constraints=constraints, lengths=(3, 2))
    classes, rules = np.array(LABELS[scheme], object), span_rules(LABELS[scheme], "lenient")
    probabilities = as_dict(rules, *probable_spans(found, rules, 0.0, None))
    sets = [
        {frozenset((i, *span) for span in spans(tags)) for tags, p in labellings(found, i, LABELS[scheme]) if p > 0}
        for i in range(2)
    ]
    best = max(expected_f1(a | b, probabilities) for a, b in itertools.product(*sets))
    cut = np.split(classes[f1_labels(found, rules)], [3])
    chosen = {(i, *span) for i, tags in enumerate(cut) for span in spans(tags)}
    assert expected_f1(chosen, probabilities) == pytest.approx(best, abs=1e-9)


def test_f1_decoding_falls_back_to_the_likeliest_labelling_if_constraints_forbid_its_spans():
    found = draw("IOB2", lengths=(3,))
    w = np.where(np.eye(5, dtype=bool), 0.0, -np.inf)  # all labels of a sequence are equal
    stuck = ChainField(found.s, w, found.chains)
    rules = span_rules(LABELS["IOB2"], "lenient")
    np.testing.assert_array_equal(f1_labels(stuck, rules), stuck.best())


@pytest.mark.parametrize("seed", range(8))
def test_f1_decoding_of_runs_maximises_the_expected_f1(seed):
    found = draw("IOB2", seed, tied=True, constraints=False, lengths=(4, 0, 2))
    classes, rules = LABELS["IOB2"], span_rules(LABELS["IOB2"], "runs")
    probabilities = as_dict(rules, *probable_spans(found, rules, 0.0, None))
    sets = [
        {frozenset((i, *run) for run in spans(labels, "runs")) for labels, p in labellings(found, i, classes) if p > 0}
        for i in (0, 2)
    ]
    best = max(expected_f1(a | b, probabilities) for a, b in itertools.product(*sets))
    first, second = np.split(np.array(classes, object)[f1_runs(found, rules)], [4])
    chosen = {(i, *run) for i, labels in ((0, first), (2, second)) for run in spans(labels, "runs")}
    assert expected_f1(chosen, probabilities) == pytest.approx(best, abs=0.02)
    assert expected_f1(chosen, probabilities) <= best + 1e-9


def test_f1_decoding_of_runs_falls_back_to_the_likeliest_labelling_if_constraints_forbid_its_runs():
    found = draw("IOB2", 1, tied=True, constraints=False, lengths=(4,))
    rules = span_rules(LABELS["IOB2"], "runs")
    free = f1_runs(found, rules)
    assert len(set(free.tolist())) > 1
    stuck = ChainField(found.s, np.where(np.eye(5, dtype=bool), 0.0, -np.inf), found.chains)
    assert len(set(f1_runs(stuck, rules).tolist())) == 1


@pytest.fixture(scope="module")
def tagger():
    data = make_sequences(40, random_state=0)
    names = np.array(["O", "B-A", "I-A"])
    return ChainCRF(C=1.0, n_components=50, random_state=0).fit(data.X, [names[y] for y in data.y]), data


def test_predict_spans_returns_the_spans_of_the_predicted_labels(tagger):
    crf, data = tagger
    found = crf.distribution(data.X).spans()
    labels = crf.predict(data.X)
    assert [[span[:3] for span in own] for own in found] == [[tuple(span) for span in spans(y)] for y in labels]
    given = [[span[:3] for span in own] for own in found]
    for own, p in zip(found, crf.distribution(data.X).span_marginals(given), strict=True):
        np.testing.assert_allclose([span.probability for span in own], p, atol=1e-14)
    strict = crf.distribution(data.X).spans(scheme="IOB2")
    assert [[span[:3] for span in own] for own in strict] == [list(spans(y, "IOB2")) for y in labels]
    flat = np.concatenate(data.X)
    assert crf.distribution(flat, [len(x) for x in data.X]).spans() == found
    table = crf.distribution(data.X).span_table(threshold=0.5)
    assert list(table) == ["sequence", "start", "end", "label", "probability", "certified"]
    assert (table.probability >= 0.5).all()
    assert all(own == sorted(own) for own in crf.distribution(data.X).spans(threshold=0.1))
    for own in crf.distribution(data.X).spans(n_best=3):
        p = [span.probability for span in own]
        assert len(p) == 3
        assert p == sorted(p, reverse=True)


def test_single_precision_gives_the_same_probabilities(tagger):
    crf, data = tagger
    own, single = crf.distribution(data.X).spans(), crf.distribution([x.astype(np.float32) for x in data.X]).spans()
    assert [[span[:3] for span in spans] for spans in own] == [[span[:3] for span in spans] for spans in single]
    p, q = ([span.probability for spans in both for span in spans] for both in (own, single))
    np.testing.assert_allclose(p, q, atol=1e-4)


def test_labels_that_are_not_tags_are_read_as_runs():
    data = make_sequences(20, random_state=0)
    crf = ChainCRF(C=1.0, n_components=20, random_state=0).fit(data.X, data.y)
    found = crf.distribution(data.X).spans()
    assert [[span[:3] for span in own] for own in found] == [spans(y.tolist(), "runs") for y in crf.predict(data.X)]
    assert spans([2, 2, 1], "runs") == [Span(0, 2, 2), Span(2, 3, 1)]
    assert spans([], "runs") == []


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda crf, X: crf.distribution(X).spans(scheme="IOE"), "scheme='IOE': expected .*BMES"),
        (lambda crf, X: crf.distribution(X).spans(scheme="BMES"), "classes_ has the tag 'I-A'.*scheme='BMES'"),
        (lambda crf, X: crf.distribution(X).spans(threshold=2), "threshold=2: expected a finite number >= 0 and <= 1"),
        (lambda crf, X: crf.distribution(X).spans(n_best=0), "n_best=0: expected an integer >= 1"),
        (
            lambda crf, X: crf.distribution(X).span_marginals([]),
            "spans has 0 lists: expected one list of spans per sequence, 2",
        ),
        (
            lambda crf, X: crf.distribution(X).span_marginals([[(0, 1)], []]),
            r"spans\[0\] has \(0, 1\): expected tuples",
        ),
        (
            lambda crf, X: crf.distribution(X).span_marginals([[], [(1, 1, "A")]]),
            r"spans\[1\] has the span .*0 <= start < end",
        ),
        (
            lambda crf, X: crf.distribution(X).span_marginals([[(0.5, 1, "A")], []]),
            r"spans\[0\] has the span .*expected integers",
        ),
        (
            lambda crf, X: crf.distribution(X).span_marginals([[(0, 1, "B-A")], []]),
            r"spans\[0\] has the label 'B-A'.*without the",
        ),
        (lambda crf, X: crf.distribution(X).k_best(where="x"), "where='x': expected None or a function"),
    ],
)
def test_errors_about_spans(tagger, call, message):
    crf, data = tagger
    with pytest.raises(ValueError, match=message):
        call(crf, data.X[:2])


def test_f1_decoding_is_for_tags_only(tagger):
    crf, data = tagger
    other = ChainCRF(C=1.0, n_components=20, decoding="f1", random_state=0).fit(data.X, data.y)
    with pytest.raises(ValueError, match=r"decoding='f1' with the labels .*expected tags of spans"):
        other.predict(data.X)
    crf = ChainCRF(C=10.0, n_components=50, decoding="f1", random_state=0).fit(data.X, crf.predict(data.X))
    labels = crf.predict(data.X)
    assert [list(y) for y in labels] != [["O"] * len(y) for y in labels]
    assert crf.score(data.X, labels) == 1.0
    assert [[s[:3] for s in own] for own in crf.distribution(data.X).spans()] == [spans(y) for y in labels]
    assert crf.explain(data.X[0], 0).label == crf.predict(data.X[:1])[0][0]


def test_accepted_labellings_are_the_likeliest_that_the_function_accepts(tagger):
    crf, data = tagger
    X = [x[:5] for x in data.X[:6]]

    def one_segment(labels):
        runs = spans(labels.tolist(), "runs")
        return len({run.label for run in runs}) == len(runs)

    every = crf.distribution(X).k_best(3**5)
    expected = [[(y.tolist(), p) for y, p in own if one_segment(y)][:4] for own in every]
    found = [[(y.tolist(), p) for y, p in own] for own in crf.distribution(X).k_best(4, where=one_segment)]
    assert found == expected
    assert crf.distribution(X).k_best(where=lambda y: False) == [[]] * 6
    calls = []
    crf.distribution(X[:1]).k_best(where=calls.append, max_tried=20)
    assert len(calls) == 20


@pytest.mark.parametrize("missing", [None, -1])
def test_sequences_with_missing_labels_say_nothing_about_spans(missing):
    found = [[PredictedSpan(0, 2, "PER", 0.9)], [PredictedSpan(0, 1, "PER", 0.2)]]
    p, right = right_spans([["B-PER", "I-PER", "O"], ["B-PER", missing]], found)
    assert (p.tolist(), right.tolist()) == ([0.9], [True])
