"""Metrics of labels and probabilities, and scorers: scikit-learn on flattened data, and numbers worked out by hand."""

import pickle

import numpy as np
import pytest
from sklearn import config_context
from sklearn import metrics as sk
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.model_selection import GridSearchCV, KFold, cross_val_score

from kernelcrf import metrics as km

AVERAGES = ["micro", "macro", "weighted", None]


def random_labels(seed, labels, lengths=(3, 1, 6, 4)):
    rng = np.random.default_rng(seed)
    return tuple([[labels[j] for j in rng.integers(len(labels), size=T)] for T in lengths] for _ in range(2))


def random_proba(seed, L, lengths=(3, 1, 6, 4)):
    rng = np.random.default_rng(seed)
    return [rng.dirichlet(np.full(L, 0.7), size=T) for T in lengths]


def flat(y):
    return [label for labels in y for label in labels]


WEIGHT = np.array([0.5, 2.0, 0.0, 3.0])
TOKEN_WEIGHT = np.repeat(WEIGHT, [3, 1, 6, 4])


@pytest.mark.parametrize("weight", [None, WEIGHT])
@pytest.mark.parametrize("labels", [["b", "a", "c"], [3, 1, 2]])
def test_flat_metrics_are_scikit_learns(labels, weight):
    y_true, y_pred = random_labels(0, labels)
    w = None if weight is None else TOKEN_WEIGHT
    t, p = flat(y_true), flat(y_pred)
    arrays = [np.array(y) for y in y_true], [np.array(y) for y in y_pred]
    for true, pred in ((y_true, y_pred), arrays):
        assert km.flat_accuracy(true, pred, sample_weight=weight) == sk.accuracy_score(t, p, sample_weight=w)
        for average in AVERAGES:
            for chosen in (None, labels[:2], np.array(labels[:1])):
                found = km.flat_f1(true, pred, average=average, labels=chosen, sample_weight=weight)
                expected = sk.f1_score(t, p, average=average, labels=chosen, sample_weight=w)
                np.testing.assert_array_equal(found, expected)
        for output_dict in (False, True):
            options = {"output_dict": output_dict, "digits": 3, "zero_division": 0}
            found = km.flat_classification_report(true, pred, sample_weight=weight, **options)
            assert found == sk.classification_report(t, p, sample_weight=w, **options)


def test_one_label_gives_binary_f1():
    y_true, y_pred = random_labels(1, [0, 1])
    assert km.flat_f1(y_true, y_pred, labels=[1]) == sk.f1_score(flat(y_true), flat(y_pred))


def test_any_hashable_label():
    names = [("x", 1), 7, "z"]
    y_true, y_pred = random_labels(2, names)
    coded = tuple([[names.index(label) for label in row] for row in y] for y in (y_true, y_pred))
    assert km.flat_f1(y_true, y_pred) == km.flat_f1(*coded)
    assert "('x', 1)" in km.flat_classification_report(y_true, y_pred, zero_division=0)
    proba = random_proba(3, 3)
    assert km.log_loss(y_true, proba, names) == km.log_loss(coded[0], proba, [0, 1, 2])


def test_sequence_accuracy_by_hand():
    y_true = [["a", "b"], ["a"], [None, "b"], [None], []]
    y_pred = [["a", "b"], ["b"], ["a", "b"], ["a"], []]
    assert km.sequence_accuracy(y_true, y_pred) == pytest.approx(2 / 3)
    assert km.sequence_accuracy(y_true, y_pred, sample_weight=[1, 5, 2, 9, 9]) == pytest.approx(3 / 8)


@pytest.mark.parametrize("weight", [None, WEIGHT])
def test_probability_metrics(weight):
    classes = np.array(["b", "c", "a"])  # columns in an order of their own
    y_true, _ = random_labels(4, ["a", "b", "c"])
    proba = random_proba(5, 3)
    w = None if weight is None else TOKEN_WEIGHT
    t, P = flat(y_true), np.concatenate(proba)[:, [2, 0, 1]]
    options = {"labels": ["a", "b", "c"], "sample_weight": w}
    assert km.log_loss(y_true, proba, classes, sample_weight=weight) == pytest.approx(sk.log_loss(t, P, **options))
    one_hot = np.array(["a", "b", "c"]) == np.array(t)[:, None]
    expected = np.average(np.square(one_hot - P).sum(axis=1), weights=w)
    assert km.brier(y_true, proba, classes, sample_weight=weight) == pytest.approx(expected)
    single = [p.astype(np.float32) for p in proba]
    assert km.log_loss(y_true, single, classes, sample_weight=weight) == pytest.approx(
        sk.log_loss(t, P, **options), 1e-6
    )

    u = np.ones(len(t)) if w is None else w
    hit, c = classes[np.concatenate(proba).argmax(1)] == t, P.max(1)
    for n_bins in (1, 4, 15):
        expected = 0.0
        for b in range(n_bins):
            inside = (b / n_bins < c) & (c <= (b + 1) / n_bins)
            if u[inside].sum():
                accuracy, confidence = (np.average(v[inside], weights=u[inside]) for v in (hit, c))
                expected += u[inside].sum() / u.sum() * abs(accuracy - confidence)
        found = km.expected_calibration_error(y_true, proba, classes, n_bins=n_bins, sample_weight=weight)
        assert found == pytest.approx(expected, abs=1e-12)


def test_probability_metrics_by_hand():
    y, P = [["a", "b"], ["a"]], [[[0.6, 0.4], [0.6, 0.4]], [[0.9, 0.1]]]
    assert km.log_loss(y, P, "ab") == pytest.approx(-np.log(0.6 * 0.4 * 0.9) / 3)
    assert km.brier(y, P, "ab") == pytest.approx((0.32 + 0.72 + 0.02) / 3)
    assert km.expected_calibration_error(y, P, "ab", n_bins=10) == pytest.approx((abs(1 - 1.2) + 0.1) / 3)
    edge = [[[0.5, 0.5], [0.51, 0.49]]]  # 0.5 closes the first of two bins
    assert km.expected_calibration_error([["a", "b"]], edge, "ab", n_bins=2) == pytest.approx((0.5 + 0.51) / 2)
    assert km.log_loss([["a"]], [[[0.0, 1.0]]], "ab") == pytest.approx(-np.log(np.finfo(float).eps))


@pytest.mark.parametrize("missing", [None, -1, np.int64(-1)])
def test_missing_tokens_are_left_out(missing):
    hidden = [["B-X", missing, "I-X"], ["O", missing]], [["B-X", "B-Y", "I-X"], ["B-Y", "O"]]
    known = [["B-X", "I-X"], ["O"]], [["B-X", "I-X"], ["B-Y"]]
    for metric in (km.flat_accuracy, km.flat_f1, km.sequence_accuracy, km.span_precision, km.span_f1):
        options = {"zero_division": 0} if "f1" in metric.__name__ else {}
        assert metric(*hidden, **options) == metric(*known, **options)
    P = random_proba(6, 3, (3, 2))
    for metric in (km.log_loss, km.brier, km.expected_calibration_error):
        classes = ["B-X", "I-X", "O"]
        assert metric(hidden[0], P, classes) == metric(known[0], [P[0][[0, 2]], P[1][:1]], classes)


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda: km.flat_accuracy([["a"]], []), ValueError, "y_pred has 0 sequences and y_true has 1"),
        (
            lambda: km.span_f1([["O"], ["O"]], [["O"], []]),
            ValueError,
            r"y_pred\[1\] has 0 tokens and y_true\[1\] has 1",
        ),
        (lambda: km.flat_f1(["B-X"], ["B-X"]), TypeError, r"y_true\[0\]='B-X' is not a sequence"),
        (lambda: km.flat_f1([1, 2], [1, 2]), TypeError, r"y_true\[0\]=1 is not a sequence"),
        (
            lambda: km.flat_f1([[None], []], [["a"], []]),
            ValueError,
            "no token of y_true .2 sequences. has a known label",
        ),
        (lambda: km.sequence_accuracy([["a"], [{"a"}]], [["a"]] * 2), TypeError, r"y_true\[1\] .*not hashable.* None"),
        (lambda: km.flat_f1([["a"]], [["a"]], average="binary"), ValueError, r"average='binary': .* labels=\[l\]"),
        (lambda: km.span_f1([["O"]], [["O"]], average="mean"), ValueError, "average='mean'"),
        (lambda: km.span_f1([["O"]], [["X-A"]]), ValueError, r"y_pred\[0\] has the tag 'X-A'"),
        (lambda: km.span_f1([["O"], ["E-A"]], [["O"]] * 2, scheme="BIO"), ValueError, r"y_true\[1\] .*'E-A'.*B I O"),
        (lambda: km.spans([3]), ValueError, "tags has the tag 3"),
        (lambda: km.spans(["O"], "IOE1"), ValueError, "scheme='IOE1': expected .*BMES"),
        (lambda: km.flat_f1([["a"]], [["a"]], sample_weight=[1, 2]), ValueError, r"shape \(2,\): expected .* \(1,\)"),
        (lambda: km.flat_f1([["a"]], [["a"]], sample_weight=[-1]), ValueError, "sample_weight.0. is -1: expected"),
        (lambda: km.flat_f1([["a"], [None]], [["a"]] * 2, sample_weight=[0, 1]), ValueError, "is 0 for every sequence"),
        (
            lambda: km.brier([["a"]], [[[0.5, 0.5]]], "abc"),
            ValueError,
            r"y_proba\[0\] has shape \(1, 2\): .* and 3 columns",
        ),
        (lambda: km.brier([["a"]], [[[0.5, 0.5]] * 2], "ab"), ValueError, r"y_proba\[0\] has 2 tokens"),
        (lambda: km.brier([["a"]], [[[0.5, 0.6]]], "ab"), ValueError, r"y_proba\[0\] has rows that are not prob"),
        (lambda: km.brier([["a"]], [[[np.nan, 0.5]]], "ab"), ValueError, "not probabilities"),
        (lambda: km.log_loss([["c"]], [[[0.5, 0.5]]], "ab"), ValueError, r"y_true\[0\] has the label 'c'"),
        (lambda: km.log_loss([["a"]], [[[0.5, 0.5]]], "aa"), ValueError, "two or more distinct labels"),
        (lambda: km.expected_calibration_error([["a"]], [[[0.5, 0.5]]], "ab", n_bins=0), ValueError, "n_bins=0"),
        (lambda: km.get_scorer("f1"), ValueError, "name='f1': expected .*span_f1"),
    ],
)
def test_errors_say_what_came_and_what_was_expected(call, error, message):
    with pytest.raises(error, match=message):
        call()


class Threshold(ClassifierMixin, BaseEstimator):
    """B-X where the input is above `cut`, O elsewhere; surer with `sharpness`."""

    def __init__(self, cut=0.0, sharpness=1.0):
        self.cut = cut
        self.sharpness = sharpness

    def fit(self, X, y):
        self.classes_ = np.array(["B-X", "O"])
        return self

    def predict_proba(self, X):
        p = [1 / (1 + np.exp(-self.sharpness * (np.ravel(x) - self.cut))) for x in X]
        return [np.stack([q, 1 - q], axis=1) for q in p]

    def predict(self, X):
        return [self.classes_[P.argmax(1)] for P in self.predict_proba(X)]


def threshold_problem():
    rng = np.random.default_rng(0)
    X = [rng.normal(size=(T, 1)) for T in (4, 7, 2, 5, 6, 3)]
    y = [["B-X" if value > 0.25 else "O" for value in x.ravel()] for x in X]
    y[1][0] = None
    return X, y


@pytest.mark.parametrize("name", km.SCORERS)
def test_scorers_choose_in_a_grid_search(name):
    X, y = threshold_problem()
    proba = name.startswith("neg")
    grid = {"sharpness": [0.01, 1.0, 50.0]} if proba else {"cut": [9.0, 0.25, -9.0]}
    search = GridSearchCV(Threshold(cut=0.25), grid, scoring=km.get_scorer(name), cv=KFold(3), error_score="raise")
    search.fit(X, y)
    assert search.best_params_ == ({"sharpness": 50.0} if proba else {"cut": 0.25})
    scorer = pickle.loads(pickle.dumps(km.get_scorer(name)))
    weight = np.arange(1.0, 7.0)
    assert scorer(search, X, y) == search.score(X, y)
    model = Threshold(cut=-1.0).fit(X, y)
    args = (y, model.predict_proba(X), model.classes_) if proba else (y, model.predict(X))
    average = {"average": name.rpartition("_")[2]} if name.startswith("flat_f1_") else {}
    metric = getattr(km, name.removeprefix("neg_").removesuffix("_micro").removesuffix("_weighted"))
    expected = metric(*args, sample_weight=weight, **average)
    assert scorer(model, X, y, sample_weight=weight) == (-expected if proba else expected)


def test_routed_weights_reach_a_scorer():
    X, y = threshold_problem()
    weight = np.arange(1.0, 7.0)
    with config_context(enable_metadata_routing=True):
        scorer = km.get_scorer("flat_accuracy").set_score_request(sample_weight=True)
        found = cross_val_score(Threshold(), X, y, scoring=scorer, cv=KFold(2), params={"sample_weight": weight})
    model = Threshold().fit(X, y)
    halves = [slice(0, 3), slice(3, 6)]
    expected = [km.flat_accuracy(y[half], model.predict(X[half]), sample_weight=weight[half]) for half in halves]
    np.testing.assert_array_equal(found, expected)
    assert km.get_scorer("flat_accuracy") is not km.SCORERS["flat_accuracy"]


def test_minus_one_is_missing_unless_it_is_a_class():
    y, answers, p = [[-1, 1, 1, -1]], [[1, 1, 1, -1]], [np.array([[0.1, 0.9]] * 4)]
    assert km.flat_accuracy(y, [[1, 1, 1, 1]]) == 0.5
    assert km.flat_accuracy(y, answers) == 0.75
    assert km.flat_accuracy([[-1, 2, 0]], [[1, 2, 1]]) == 0.5
    with pytest.warns(UserWarning, match=r"-1 is read as a missing label: pass classes=\[-1, 0, 1\]"):
        assert km.flat_accuracy([[-1, 1, 0]], [[1, 1, 1]]) == 0.5
    assert km.flat_accuracy([[-1, -2]], [[1, -2]]) == 0.5
    assert km.flat_accuracy([["a", -1]], [["a", "b"]]) == 1.0
    assert km.flat_f1(y, [[1, 1, 1, 1]], labels=[-1, 1], average=None, zero_division=0)[0] == 0.0
    assert km.log_loss(y, p, [-1, 1]) == pytest.approx(sk.log_loss(y[0], p[0], labels=[-1, 1]))
    assert km.bootstrap(y, answers, p, [-1, 1])["log_loss"].value == pytest.approx(km.log_loss(y, p, [-1, 1]))
