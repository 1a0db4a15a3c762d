"""Conformal prediction: thresholds against plain loops, coverage over many splits, and every edge of the formulas."""

import itertools
import math
import pickle
from fractions import Fraction

import numpy as np
import pytest
from scipy.stats import betabinom, binom
from sklearn.base import BaseEstimator, ClassifierMixin, clone
from sklearn.exceptions import NotFittedError
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from kernelcrf import (
    ChainCRF,
    ChainOver,
    ConformalLabellings,
    ConformalLabels,
    ConformalSpans,
    GraphCRF,
    Input,
    KernelClassifier,
    MultiLabelCRF,
    SegmentCRF,
    TemperatureScaling,
)
from kernelcrf.answers.conformal_thresholds import quantile_threshold, risk_threshold
from kernelcrf.datasets import make_sequences
from kernelcrf.metrics import spans
from kernelcrf.preprocessing import PerToken

LEVELS = (0.5, 0.7, 0.8, 0.9, 0.95)
TRAIN, HELD, NEW = (make_sequences(n, mean_length=5, random_state=seed) for seed, n in enumerate((40, 60, 60)))


class Given(ClassifierMixin, BaseEstimator):
    """An estimator whose inputs are its probabilities."""

    def __init__(self, classes=("a", "b", "c")):
        self.classes = classes
        self.classes_ = np.array(classes)

    def fit(self, X, y):
        return self

    def predict_proba(self, X):
        return X


@pytest.fixture(scope="module")
def crf():
    return ChainCRF(C=1.0, n_components=60, random_state=0).fit(TRAIN.X, TRAIN.y)


def drawn(n, rng, sizes=(1, 2, 3, 5), L=3, values=None):
    """Draw probabilities and labels of n sequences; with `values`, probabilities have many ties."""
    lengths = rng.choice(sizes, n)
    p = [rng.dirichlet(np.ones(L), T) if values is None else rng.choice(values, (T, L)) for T in lengths]
    return p, [rng.choice(list("abc")[:L], T) for T in lengths]


def risk(threshold, shares):
    """The mean share of missed labels, from lists with the scores of each unit."""
    return sum(np.mean([u > threshold for u in own]) if len(own) else 0.0 for own in shares) / len(shares)


@pytest.mark.parametrize("n", [1, 4, 9, 10, 19, 20, 57])
@pytest.mark.parametrize("level", LEVELS)
def test_the_quantile_is_the_score_of_its_rank(n, level):
    scores = np.random.default_rng(n).random(n)
    rank = math.ceil((n + 1) * Fraction(str(level)))
    assert quantile_threshold(scores, level) == (sorted(scores)[rank - 1] if rank <= n else math.inf)


@pytest.mark.few
@pytest.mark.parametrize("seed", range(20))
@pytest.mark.parametrize("level", LEVELS)
def test_risk_control_finds_the_smallest_threshold_of_all(level, seed):
    rng = np.random.default_rng(seed)
    n = int(rng.integers(1, 40))
    units = rng.integers(n, size=int(rng.integers(1, 100)))
    scores = rng.random(len(units)) if seed % 2 else rng.choice([0.0, 0.1, 0.5, 0.9, 1.0], len(units))
    shares = [scores[units == i] for i in range(n)]
    bound = Fraction(1) - Fraction(str(level))
    candidates = [t for t in (0.0, *sorted(scores)) if n * risk(t, shares) + 1 <= float(bound * (n + 1)) + 1e-12]
    assert risk_threshold(scores, units, n, level) == (candidates[0] if candidates else math.inf)


@pytest.mark.parametrize("control", ["all", "share"])
@pytest.mark.parametrize("values", [None, (0.0, 0.2, 0.5, 1.0)])
def test_thresholds_and_sets_are_those_of_a_plain_loop(control, values):
    rng = np.random.default_rng(0)
    (p, y), (new, _) = drawn(50, rng, values=values), drawn(20, rng, values=values)
    sets = ConformalLabels(Given(), confidence_level=0.8, control=control).conformalize(p, y)
    own = [[1 - row["abc".index(label)] for row, label in zip(*one, strict=True)] for one in zip(p, y, strict=True)]
    if control == "all":
        expected = sorted(map(max, own))[math.ceil(51 * Fraction(8, 10)) - 1]
    else:
        expected = min(u for u in {0.0, *itertools.chain(*own)} if 50 / 51 * risk(u, own) + 1 / 51 <= 0.2)
    assert (sets.threshold_, sets.n_calibration_) == (expected, 50)
    for found, one in zip(sets.predict_set(new), new, strict=True):
        np.testing.assert_array_equal(found, 1 - one <= expected)


def test_single_tokens_have_the_threshold_and_the_sets_of_mapie():
    # The quantile of `_compute_classification_quantile` in MAPIE 1.6 (method LAC), of the scores 1 - p(y).
    rng = np.random.default_rng(1)
    p, y = rng.dirichlet(np.ones(3), 83), rng.choice(list("abc"), 83)
    new = rng.dirichlet(np.ones(3), 30)
    scores = 1 - p[np.arange(83), np.searchsorted(list("abc"), y)]
    for level in LEVELS:
        q = np.quantile(scores, np.ceil(84 * level) / 83, method="lower")
        sets = ConformalLabels(Given(), confidence_level=level).conformalize(p, y)
        assert sets.threshold_ == q
        np.testing.assert_array_equal(sets.predict_set(new), 1 - new <= q)
        # A row is a sequence of one token, and the share of one token is whether it is missed.
        assert ConformalLabels(Given(), confidence_level=level, control="share").conformalize(p, y).threshold_ == q


@pytest.mark.parametrize("level", [0.7, 0.9])
def test_coverage_over_many_splits_is_within_its_band(level):
    rng, n, m, n_splits = np.random.default_rng(2), 39, 40, 200
    p, y = drawn(2000, rng)
    index = [np.searchsorted(list("abc"), one) for one in y]
    covered, missed = [], []
    for _ in range(n_splits):
        chosen = rng.choice(2000, n + m, replace=False)
        held, new = chosen[:n], chosen[n:]
        data = [p[i] for i in held], [y[i] for i in held]
        for control, found in (("all", covered), ("share", missed)):
            sets = ConformalLabels(Given(), confidence_level=level, control=control).conformalize(*data)
            pairs = zip(sets.predict_set([p[i] for i in new]), (index[i] for i in new), strict=True)
            inside = [one[range(len(k)), k] for one, k in pairs]
            found.append(sum(one.all() for one in inside) if control == "all" else 1 - np.mean([*map(np.mean, inside)]))
    # Without ties, the covered sequences of a split are beta-binomial: the coverage has the law Beta(k, n + 1 - k).
    k = math.ceil((n + 1) * Fraction(str(level)))
    law = betabinom(m, k, n + 1 - k)
    outside = sum(not law.ppf(0.025) <= c <= law.ppf(0.975) for c in covered)
    assert outside <= binom(n_splits, 0.05).ppf(0.999)
    assert np.mean(covered) == pytest.approx(law.mean(), abs=4 * law.std() / np.sqrt(n_splits))
    error = np.std(missed) / np.sqrt(n_splits)
    # Risk control loses at most one unit of n + 1 to its bound.
    assert 1 - level - 2 / (n + 1) - 3 * error <= np.mean(missed) <= 1 - level + 3 * error


@pytest.mark.parametrize("level", [0.5, 0.8])
def test_sets_of_labellings_have_the_truth_as_often_as_promised(crf, level):
    data = make_sequences(400, mean_length=4, random_state=5)
    rng, covered = np.random.default_rng(0), []
    scores = -crf.log_prob(data.X, data.y)
    for _ in range(300):
        order = rng.permutation(400)
        threshold = quantile_threshold(scores[order[:59]], level)
        covered.append(np.sum(scores[order[59:99]] <= threshold))
    law = betabinom(40, 60 * level, 60 - 60 * level)
    assert np.mean(covered) == pytest.approx(law.mean(), abs=4 * law.std() / np.sqrt(300))
    held, new = (slice(0, 200), slice(200, 400))
    sets = ConformalLabellings(crf, confidence_level=level).conformalize(data.X[held], data.y[held])
    assert sets.threshold_ == quantile_threshold(scores[held], level)
    found = sets.predict_set(data.X[new])
    inside = [any((labels == y).all() for labels, _ in one) for one, y in zip(found, data.y[new], strict=True)]
    np.testing.assert_array_equal(inside, scores[new] <= sets.threshold_)


def test_sets_of_labellings_are_those_of_enumeration(crf):
    X, y = [x[:4] for x in HELD.X], [labels[:4] for labels in HELD.y]
    new = [NEW.X[0][:0], *(x[:4] for x in NEW.X[:10])]
    for level in (0.5, 0.9, 0.95):
        sets = ConformalLabellings(crf, confidence_level=level).conformalize(X, y)
        for x, found in zip(new, sets.predict_set(new), strict=True):
            every = np.array(list(itertools.product(range(3), repeat=len(x))), int).reshape(-1 if len(x) else 1, len(x))
            log_p = crf.log_prob([x] * len(every), every)
            expected = {
                tuple(one) for one, value in zip(every.tolist(), log_p, strict=True) if -value <= sets.threshold_
            }
            assert {tuple(labels.tolist()) for labels, _ in found} == expected
            assert found.is_complete
            assert len(found) <= math.exp(sets.threshold_)
            assert [value for _, value in found] == sorted((value for _, value in found), reverse=True)


def test_sets_that_are_too_large_are_cut_and_say_so(crf):
    whole = ConformalLabellings(crf, confidence_level=0.95).conformalize(HELD.X, HELD.y).predict_set(NEW.X)
    size = sorted(map(len, whole))[30]
    sets = ConformalLabellings(crf, confidence_level=0.95, max_size=size).conformalize(HELD.X, HELD.y)
    larger = sum(len(one) > size for one in whole)
    with pytest.warns(
        UserWarning, match=rf"{larger} of 60 sets have more than max_size={size} labellings and were cut"
    ):
        found = sets.predict_set(NEW.X)
    assert [one.is_complete for one in found] == [len(one) <= size for one in whole]
    for one, all_of in zip(found, whole, strict=True):
        assert [value for _, value in one] == pytest.approx([value for _, value in all_of[:size]])


@pytest.mark.parametrize(("control", "n"), [("all", 8), ("share", 8)])
def test_too_few_calibration_data_give_full_sets(control, n, crf):
    with pytest.warns(UserWarning, match="8 sequences or groups are too few .* expected at least 9"):
        few = ConformalLabels(crf, control=control).conformalize(HELD.X[:n], HELD.y[:n])
    assert few.threshold_ == math.inf
    assert all(one.all() for one in few.predict_set(NEW.X))
    enough = ConformalLabels(crf, control=control).conformalize(HELD.X[: n + 1], HELD.y[: n + 1])
    assert enough.threshold_ < 1
    short = [x[:3] for x in NEW.X[:5]]
    with pytest.warns(UserWarning, match="too few"):
        labellings = ConformalLabellings(crf).conformalize(HELD.X[:n], HELD.y[:n])
    found = labellings.predict_set(short)
    assert [len(one) for one in found] == [3 ** len(x) for x in short]


def test_sets_are_nested_in_the_level(crf):
    for control in ("all", "share"):
        found = [ConformalLabels(crf, confidence_level=level, control=control) for level in LEVELS]
        flat = [np.concatenate(one.conformalize(HELD.X, HELD.y).predict_set(NEW.X)) for one in found]
        assert all((a <= b).all() for a, b in itertools.pairwise(flat))
        assert flat[0].sum() < flat[-1].sum()
    found = [ConformalLabellings(crf, confidence_level=level).conformalize(HELD.X, HELD.y) for level in LEVELS]
    sizes = [[len(one) for one in sets.predict_set(NEW.X)] for sets in found]
    assert all((np.array(a) <= b).all() for a, b in itertools.pairwise(sizes))


def test_a_group_is_one_unit():
    rng = np.random.default_rng(3)
    p, y = drawn(60, rng)
    groups = rng.permutation(np.repeat([f"person {k}" for k in range(20)], 3))
    joined = [np.concatenate([p[i] for i in np.flatnonzero(groups == name)]) for name in np.unique(groups)]
    labels = [np.concatenate([y[i] for i in np.flatnonzero(groups == name)]) for name in np.unique(groups)]
    for control in ("all", "share"):
        sets = ConformalLabels(Given(), control=control)
        by_group = sets.conformalize(p, y, groups=groups)
        found = by_group.threshold_, by_group.n_calibration_
        expected = sets.conformalize(joined, labels)
        assert found == (expected.threshold_, 20)
        assert found == (expected.threshold_, expected.n_calibration_)


def test_groups_of_labellings_count_by_their_least_likely_sequence(crf):
    groups = np.arange(60) // 3
    sets = ConformalLabellings(crf, confidence_level=0.7).conformalize(HELD.X, HELD.y, groups)
    worst = -crf.log_prob(HELD.X, HELD.y).reshape(20, 3).min(axis=1)
    assert (sets.threshold_, sets.n_calibration_) == (sorted(worst)[math.ceil(21 * Fraction(7, 10)) - 1], 20)


def test_labels_that_are_missing_do_not_count(crf):
    rng = np.random.default_rng(4)
    p, y = drawn(40, rng)
    for missing in (None, -1):
        hidden = [[missing if rng.random() < 0.4 else label for label in one] for one in y]
        known = [[label != missing for label in one] for one in hidden]
        kept = [i for i, one in enumerate(known) if any(one)]
        assert len(kept) < 40
        shorter = [p[i][known[i]] for i in kept], [np.array(y[i])[known[i]] for i in kept]
        whole = [i for i, one in enumerate(known) if all(one)]
        complete = [p[i] for i in whole], [y[i] for i in whole]
        for control, data in (("all", complete), ("share", shorter)):
            sets = ConformalLabels(Given(), confidence_level=0.8, control=control)
            found = sets.conformalize(p, hidden)
            found = found.threshold_, found.n_calibration_
            expected = sets.conformalize(*data)
            assert found == (expected.threshold_, len(data[0]))
    y = [[None, *labels[1:]] if i < 20 else labels for i, labels in enumerate(HELD.y)]
    found = ConformalLabellings(crf).conformalize(HELD.X, y)
    expected = ConformalLabellings(crf).conformalize(HELD.X[20:], HELD.y[20:])
    assert found.threshold_ == pytest.approx(expected.threshold_, rel=1e-12)
    assert found.n_calibration_ == expected.n_calibration_ == 40


@pytest.fixture(scope="module")
def label_sets():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(200, 4))
    return X, (X[:, :3] + rng.normal(size=(200, 3)) > 0.8).astype(int)


def test_label_sets_count_their_true_labels(label_sets):
    X, Y = label_sets
    model = MultiLabelCRF("linear", structure="full").fit(X[:60], Y[:60])
    p, truth = model.predict_proba(X[60:160]), Y[60:160].copy()
    truth[0], truth[1, 0] = -1, -1
    own = [[1 - q for q, label in zip(*one, strict=True) if label == 1] for one in zip(p, truth, strict=True)][1:]
    assert any(not one for one in own)
    every = ConformalLabels(model, confidence_level=0.8).conformalize(X[60:160], truth)
    worst = [max(one, default=0.0) for one in own[1:]]
    assert (every.threshold_, every.n_calibration_) == (sorted(worst)[math.ceil(99 * Fraction(8, 10)) - 1], 98)
    share = ConformalLabels(model, confidence_level=0.8, control="share").conformalize(X[60:160], truth)
    candidates = {0.0, *itertools.chain(*own)}
    assert share.threshold_ == min(u for u in candidates if 99 / 100 * risk(u, own) + 1 / 100 <= 0.2)
    assert share.threshold_ < every.threshold_
    found = every.predict_set(X[160:])
    assert (found.shape, found.dtype) == ((40, 3), bool)
    np.testing.assert_array_equal(found, 1 - model.predict_proba(X[160:]) <= every.threshold_)
    sets = ConformalLabellings(model, confidence_level=0.8).conformalize(X[60:160], truth)
    assert sets.n_calibration_ == 98
    whole = sets.predict_set(X[160:])
    log_p = model.log_prob(X[160:], Y[160:])
    inside = [any((labels == y).all() for labels, _ in one) for one, y in zip(whole, Y[160:], strict=True)]
    np.testing.assert_array_equal(inside, -log_p <= sets.threshold_)
    with pytest.raises(ValueError, match="y has 3 rows and X has 5"):
        every.conformalize(X[:5], Y[:3])


def test_a_single_column_of_labels_is_a_class_per_row(label_sets):
    X, Y = label_sets
    y = np.where(Y[:, 0] == 1, "yes", "no")
    for model in (MultiLabelCRF("linear"), KernelClassifier("linear", C=1.0)):
        model.fit(X[:60], y[:60])
        sets = ConformalLabels(model, confidence_level=0.8).conformalize(X[60:160], y[60:160])
        scores = 1 - model.predict_proba(X[60:160])[np.arange(100), (y[60:160] == "yes").astype(int)]
        assert sets.threshold_ == quantile_threshold(scores, 0.8)
        assert sets.predict_set(X[160:]).shape == (40, 2)
        assert sets.classes_.tolist() == ["no", "yes"]
    model = MultiLabelCRF("linear").fit(X[:60], y[:60])
    found = ConformalLabellings(model, confidence_level=0.8).conformalize(X[60:160], y[60:160]).predict_set(X[160:])
    assert {label for one in found for label, _ in one} == {"no", "yes"}


def test_every_estimator_with_the_methods_can_be_wrapped(crf):
    scaled = TemperatureScaling(crf).fit(TRAIN.X, TRAIN.y)
    chain = ChainCRF(inputs={"classifier": Input("linear")}, C=1.0)
    over = ChainOver(LogisticRegression(), chain=chain).fit(TRAIN.X, TRAIN.y)
    pipe = make_pipeline(PerToken(StandardScaler()), ChainCRF(C=1.0, n_components=60, random_state=0))
    pipe.fit(TRAIN.X, TRAIN.y)
    for model in (crf, scaled, over, pipe, make_pipeline(crf)):
        sets = ConformalLabels(model, confidence_level=0.8).conformalize(HELD.X, HELD.y)
        expected = [one >= 1 - sets.threshold_ for one in model.predict_proba(NEW.X)]
        for found, one in zip(sets.predict_set(NEW.X), expected, strict=True):
            np.testing.assert_array_equal(found, one)
    for model in (scaled.estimator_, pipe):
        sets = ConformalLabellings(model, confidence_level=0.9).conformalize(HELD.X, HELD.y)
        assert sets.n_calibration_ == 60
        assert max(map(len, sets.predict_set(NEW.X))) > 1
    graphs = [[(x, [[t, t + 1] for t in range(len(x) - 1)]) for x in data.X] for data in (TRAIN, HELD, NEW)]
    graph = GraphCRF(C=1.0, n_components=60, random_state=0).fit(graphs[0], TRAIN.y)
    sets = ConformalLabellings(graph, confidence_level=0.8).conformalize(graphs[1], HELD.y)
    assert sets.threshold_ == quantile_threshold(-graph.log_prob(graphs[1], HELD.y), 0.8)
    assert len(sets.predict_set(graphs[2])) == 60
    sets = ConformalLabels(graph, confidence_level=0.8).conformalize(graphs[1], HELD.y)
    assert [one.shape for one in sets.predict_set(graphs[2])] == [(len(x), 3) for x in NEW.X]


@pytest.mark.parametrize("wrapper", [ConformalLabels, ConformalLabellings, ConformalSpans])
def test_wrappers_follow_scikit_learn(wrapper, crf):
    sets = wrapper(crf, confidence_level=0.75)
    assert clone(sets).get_params(deep=False)["confidence_level"] == 0.75
    assert sets.get_params()["estimator__C"] == 1.0
    with pytest.raises(NotFittedError, match=r"call conformalize\(X, y\) before predict_set\(X\)"):
        sets.predict_set(NEW.X)
    with pytest.raises(NotFittedError):
        wrapper(ChainCRF()).conformalize(HELD.X, HELD.y)
    assert not hasattr(sets, "threshold_")
    assert sets.conformalize(HELD.X, HELD.y) is sets


WRONG = {
    "a label that the model does not know": (HELD.X, [*HELD.y[:-1], [7] * len(HELD.y[-1])], {}, "y has the label 7"),
    "another number of sequences": (HELD.X, HELD.y[:-1], {}, "y has 59 sequences and X has 60"),
    "only missing labels": (HELD.X[:2], [[None] * len(y) for y in HELD.y[:2]], {}, "no sequence that calibration can"),
    "no sequences": ([], [], {}, "no sequence that calibration can use"),
    "sets of labels": (HELD.X[:1], [[{0, 1}] * len(HELD.y[0])], {}, "y has sets of labels: expected one label per"),
    "too few groups": (HELD.X, HELD.y, {"groups": [1, 2]}, r"groups has shape \(2,\): expected \(60,\)"),
}


@pytest.mark.parametrize("case", WRONG)
@pytest.mark.parametrize("wrapper", [ConformalLabels, ConformalLabellings, ConformalSpans])
def test_calibration_data_that_cannot_be_used_are_refused_by_name(wrapper, case, crf):
    X, y, options, message = WRONG[case]
    with pytest.raises(ValueError, match=message):
        wrapper(crf).conformalize(X, y, **options)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda crf: ConformalLabels(crf, confidence_level=1.0), "confidence_level=1.0: expected a finite number"),
        (lambda crf: ConformalLabels(crf, control="most"), "control='most': expected 'all' or 'share'"),
        (lambda crf: ConformalLabels(object()), "a fitted estimator with the method predict_proba; such as ChainCRF"),
        (lambda crf: ConformalLabellings(crf, max_size=0), "max_size=0: expected an integer from 1"),
        (lambda crf: ConformalLabellings(ChainCRF), "with the methods log_prob and distribution"),
        (lambda crf: ConformalLabellings(TemperatureScaling(crf)), "for TemperatureScaling, pass its estimator_"),
    ],
)
def test_wrong_parameters_are_refused_by_name(make, message, crf):
    with pytest.raises(ValueError, match=message):
        make(crf).conformalize(HELD.X, HELD.y)


def test_labellings_that_constraints_forbid_are_never_covered():
    x, legal, illegal = [{"a": 1}] * 2, ["B-A", "I-A"], ["O", "I-A"]
    crf = ChainCRF("linear", C=1.0, constraints="BIO").fit([x] * 4, [legal] * 3 + [["O", "O"]])
    sets = ConformalLabellings(crf, confidence_level=0.8).conformalize([x] * 10, [legal] * 9 + [illegal])
    assert sets.threshold_ < 5
    with pytest.raises(ValueError, match=r"y has 5 labellings or spans of probability 0.*confidence_level=0.8"):
        sets.conformalize([x] * 10, [legal] * 5 + [illegal] * 5)


TAGS = ("B-A", "B-B", "I-A", "I-B", "O")


def sentences(n, seed):
    """Draw tags with spans of two types, some sentences without any, and words that hint at the tags."""
    rng = np.random.default_rng(seed)
    y = []
    for length in rng.integers(1, 9, n):
        tags = ["O"]
        while len(tags) <= length:
            kind = rng.choice(["A", "B"])
            inside = ["B-" + kind, *["I-" + kind] * rng.integers(0, 3)] if rng.random() < 0.3 else ["O"]
            tags += inside
        y.append(tags[1 : length + 1])
    hints = [[tag if rng.random() < 0.6 else str(rng.choice(TAGS)) for tag in tags] for tags in y]
    return [[{"hint=" + hint: 1} for hint in one] for one in hints], y


@pytest.fixture(scope="module")
def tagger():
    return ChainCRF("linear", C=1.0, constraints="BIO", classes=TAGS).fit(*sentences(60, 0))


def test_spans_miss_at_most_the_share_that_was_chosen(tagger):
    X, y = sentences(900, 1)
    true = [spans(tags) for tags in y]
    own = [1 - p for p in tagger.distribution(X).span_marginals(true)]
    counted = np.flatnonzero([len(one) > 0 for one in true])
    assert len(counted) < 900
    rng, missed = np.random.default_rng(0), []
    for _ in range(100):
        order = rng.permutation(counted)
        held, new = order[:99], order[99:199]
        units = np.repeat(np.arange(99), [len(own[i]) for i in held])
        threshold = risk_threshold(np.concatenate([own[i] for i in held]), units, 99, 0.8)
        missed.append(risk(threshold, [own[i] for i in new]))
    error = np.std(missed) / 10
    assert 0.2 - 2 / 100 - 3 * error <= np.mean(missed) <= 0.2 + 3 * error
    sets = ConformalSpans(tagger, confidence_level=0.8).conformalize(X[:300], y[:300])
    held = [one for one in own[:300] if len(one)]
    candidates, n = {0.0, *np.concatenate(held).tolist()}, len(held)
    assert sets.n_calibration_ == n < 300
    assert sets.threshold_ == min(u for u in candidates if n / (n + 1) * risk(u, held) + 1 / (n + 1) <= 0.2)
    for found, scores, one in zip(sets.predict_set(X[300:]), own[300:], true[300:], strict=True):
        inside = [span in {tuple(each[:3]) for each in found} for span in one]
        np.testing.assert_array_equal(inside, scores <= sets.threshold_)
        assert all(span.probability >= 1 - sets.threshold_ - 1e-8 for span in found)


def test_spans_have_groups_missing_labels_and_full_sets(tagger):
    X, y = sentences(60, 2)
    scores = [1 - p for p in tagger.distribution(X).span_marginals([spans(tags) for tags in y])]
    sets = ConformalSpans(tagger, confidence_level=0.7).conformalize(X, y, groups=np.arange(60) // 3)
    grouped = [one for k in range(20) if len(one := np.concatenate(scores[3 * k : 3 * k + 3]))]
    candidates, n = {0.0, *np.concatenate(scores).tolist()}, len(grouped)
    assert sets.threshold_ == min(u for u in candidates if n / (n + 1) * risk(u, grouped) + 1 / (n + 1) <= 0.3)
    hidden = [[None, *tags[1:]] if i < 20 else tags for i, tags in enumerate(y)]
    sets, rest = ConformalSpans(tagger).conformalize(X, hidden), ConformalSpans(tagger).conformalize(X[20:], y[20:])
    with_spans = sum(bool(spans(tags)) for tags in y[20:])
    assert (sets.threshold_, sets.n_calibration_) == (pytest.approx(rest.threshold_, rel=1e-12), with_spans)
    with pytest.warns(UserWarning, match="too few for confidence_level=0.9"):
        few = ConformalSpans(tagger).conformalize(X[:8], y[:8])
    assert few.threshold_ == math.inf
    x = X[0][:4]
    assert {tuple(span[:3]) for span in few.predict_set([x])[0]} == {
        (a, b, kind) for a in range(len(x)) for b in range(a + 1, len(x) + 1) for kind in "AB"
    }
    with pytest.raises(ValueError, match="y has no sequence that calibration can use"):
        ConformalSpans(tagger).conformalize(X[:20], [["O"] * len(x) for x in X[:20]])
    sizes = [
        sum(map(len, ConformalSpans(tagger, confidence_level=level).conformalize(X, y).predict_set(X)))
        for level in LEVELS
    ]
    assert sizes == sorted(sizes)


def test_spans_that_cannot_be_calibrated_are_refused_by_name(tagger):
    X, y = sentences(60, 2)
    with pytest.raises(ValueError, match="y has the label 'B-C' at sequence 0, token 0"):
        ConformalSpans(tagger).conformalize(X[:1], [["B-C", *y[0][1:]]])
    with pytest.raises(ValueError, match="scheme='BOI': expected 'lenient'"):
        ConformalSpans(tagger, scheme="BOI").conformalize(X, y)
    with pytest.raises(ValueError, match="expected a fitted ChainCRF, SegmentCRF or ChainOver"):
        ConformalSpans(KernelClassifier()).conformalize(X, y)
    illegal = [["I-A"] * len(x) for x in X]
    with pytest.raises(ValueError, match="y has 60 labellings or spans of probability 0"):
        ConformalSpans(tagger, scheme="runs").conformalize(X, illegal)


def test_all_labels_are_covered_though_some_are_unknown(crf):
    """A sequence with one known label says little about all of its labels, so that it does not count."""
    few = [[label if t == 0 else None for t, label in enumerate(y)] for y in HELD.y]
    alone = [len(y) == 1 for y in HELD.y]
    with pytest.warns(UserWarning, match=f"{sum(alone)} sequences or groups are too few"):
        sets = ConformalLabels(crf, confidence_level=0.8).conformalize(HELD.X, few)
    assert sets.n_calibration_ == sum(alone)
    share = ConformalLabels(crf, confidence_level=0.8, control="share").conformalize(HELD.X, few)
    assert share.n_calibration_ == len(few)


def test_single_precision_loses_no_tie():
    """Of calibration data with many equal inputs, those whose score is the threshold are covered."""
    rng = np.random.default_rng(5)
    values, rows = rng.normal(size=(4, 3)).astype(np.float32), rng.integers(4, size=1299)
    X, y = values[rows], (rng.random(1299) < np.array([0.2, 0.35, 0.7, 0.8])[rows]).astype(int)
    model = KernelClassifier("rbf", C=1.0, random_state=0).fit(X[:300], y[:300])
    for control in ("all", "share"):
        sets = ConformalLabels(model, confidence_level=0.8, control=control).conformalize(X[300:], y[300:])
        assert sets.predict_set(X[300:])[np.arange(999), y[300:]].mean() >= 0.8


def test_another_fit_needs_another_threshold():
    crf = ChainCRF("linear", C=1.0).fit(TRAIN.X, TRAIN.y)
    for estimator in (crf, make_pipeline(PerToken(StandardScaler()), crf).fit(TRAIN.X, TRAIN.y)):
        sets = ConformalLabels(estimator, confidence_level=0.8).conformalize(HELD.X, HELD.y)
        pickle.loads(pickle.dumps(sets)).predict_set(NEW.X)
        crf.fit(HELD.X, HELD.y)
        with pytest.raises(ValueError, match="fitted again after conformalize"):
            sets.predict_set(NEW.X)
        sets.conformalize(HELD.X, HELD.y).predict_set(NEW.X)


def test_segments_of_any_probability_are_found():
    rng = np.random.default_rng(0)
    labels = [np.repeat(rng.integers(2, size=2), 2) for _ in range(32)]
    X = [(one[:, None] * 2.0 - 1) * np.ones((1, 2)) for one in labels]
    wrong = [1 - one if i % 2 else one for i, one in enumerate(labels[8:])]
    crf = SegmentCRF("linear", C=1e4).fit(X[:8], labels[:8])
    sets = ConformalSpans(crf, confidence_level=0.8).conformalize(X[8:], wrong)
    found = [{span[:3] for span in own} for own in sets.predict_set(X[8:])]
    shares = [
        np.mean([tuple(s) in own for s in spans(y.tolist(), "runs")]) for own, y in zip(found, wrong, strict=True)
    ]
    assert np.mean(shares) >= 0.8
    with pytest.warns(UserWarning, match="too few for confidence_level=0.99, .* expected at least 99"):
        everything = ConformalSpans(crf, confidence_level=0.99).conformalize(X[8:], wrong)
    assert everything.threshold_ == math.inf
    assert len(everything.predict_set(X[8:9])[0]) == 20


@pytest.mark.parametrize("wrapper", [ConformalLabels, ConformalLabellings, ConformalSpans])
def test_a_wrapper_that_is_asked_to_fit_names_conformalize(wrapper):
    conformal = wrapper(ChainCRF("linear"))
    assert not hasattr(conformal, "fit")
    with pytest.raises(AttributeError, match=rf"{wrapper.__name__} has no fit: fit the estimator .* conformalize"):
        conformal.fit(TRAIN.X, TRAIN.y)
    with pytest.raises(AttributeError, match=rf"{wrapper.__name__} has no predict: call predict_set"):
        conformal.predict(TRAIN.X)
    with pytest.raises(AttributeError, match="no attribute 'predict_everything'"):
        conformal.predict_everything  # noqa: B018
