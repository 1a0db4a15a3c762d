"""Labels of any hashable type, nothing to predict, and errors that number the user's sequences in one short line."""

import datetime
import enum

import numpy as np
import pandas as pd
import pytest

import kernelcrf
from clusters import Inline
from kernelcrf import ChainCRF, GraphCRF, KernelClassifier, MarkovNetwork, MultiLabelCRF
from kernelcrf.metrics import flat_accuracy

RNG = np.random.default_rng(0)
X = [RNG.normal(size=(size, 2)) for size in (3, 2, 4, 3, 2, 3, 4, 2)]
Y = [(x[:, 0] > 0).astype(int) for x in X]
ROWS, LABELS = np.concatenate(X), np.concatenate(Y)


class Colour(enum.Enum):
    RED = 1
    BLUE = 2


class Size(enum.IntEnum):
    SMALL = 1
    LARGE = 2


class Word(enum.StrEnum):
    THE = "the"
    DOG = "dog"


DAY = datetime.date(2026, 1, 1)
PAIRS = {
    "enum": (Colour.RED, Colour.BLUE),
    "integer enum": (Size.SMALL, Size.LARGE),
    "string enum": (Word.THE, Word.DOG),
    "days": (np.datetime64("2026-01-01"), np.datetime64("2026-01-02")),
    "nanoseconds": (np.datetime64(1, "ns"), np.datetime64(2, "ns")),
    "durations": (np.timedelta64(1, "D"), np.timedelta64(2, "D")),
    "timestamps": (pd.Timestamp("2026-01-01"), pd.Timestamp("2026-01-02")),
    "dates": (DAY, DAY + datetime.timedelta(1)),
    "bytes": (b"a", b"b"),
    "trailing NUL": ("a", "a\0"),
    "empty": ("", "a"),
    "large integers": (2**70, 2**70 + 1),
    "integers that a float rounds": (2**63, -(2**63)),
    "tuples": (("a", 1), ("b", None)),
    "mixed": ("a", 1),
    "classes": (int, str),
    "floats": (0.5, 1.5),
    "booleans": (False, True),
    "fractions of numpy": (np.float32(0.1), np.float32(0.2)),
}


SAVED = (
    "integer enum",
    "string enum",
    "trailing NUL",
    "empty",
    "large integers",
    "tuples",
    "mixed",
    "floats",
    "booleans",
)
SAVED += ("booleans", "fractions of numpy", "integers that a float rounds")


@pytest.mark.parametrize("name", PAIRS)
def test_any_hashable_value_is_a_label(name, tmp_path):
    pair = PAIRS[name]
    y = [[pair[label] for label in labels] for labels in Y]
    for model in (ChainCRF("linear", C=1.0), GraphCRF("linear")):
        fitted = model.fit(X, y)
        assert set(fitted.classes_.tolist()) == set(pair)
        predicted = [own.tolist() for own in fitted.predict(X)]
        right = [p == t for own, labels in zip(predicted, y, strict=True) for p, t in zip(own, labels, strict=True)]
        assert fitted.score(X, y) == np.mean(right) == flat_accuracy(y, predicted)
        if name in SAVED:
            fitted.save(tmp_path / "model.kcrf")
            assert [own.tolist() for own in kernelcrf.load(tmp_path / "model.kcrf").predict(X)] == predicted
        else:
            with pytest.raises(TypeError, match=r"cannot be written to a file: .*joblib\.dump"):
                fitted.save(tmp_path / "model.kcrf")


def test_arrays_of_dates_are_labels():
    days = np.array(["2026-01-01", "2026-01-02"], "M8[ns]")
    for given in ([days[labels] for labels in Y], [pd.Series(days[labels], index=labels) for labels in Y]):
        fitted = ChainCRF("linear", C=1.0).fit(X, given)
        assert fitted.classes_[0] == days[0]
        assert fitted.score(X, given) == ChainCRF("linear", C=1.0).fit(X, Y).score(X, Y)


@pytest.mark.parametrize("missing", [None, pd.NA, np.ma.masked])
def test_a_missing_label_may_be_none_na_or_masked(missing):
    texts = [["ab"[label] for label in labels] for labels in Y]
    known = [[None, *labels[1:]] for labels in texts]
    if missing is np.ma.masked:
        given = [np.ma.masked_array(labels, [True] + [False] * (len(labels) - 1)) for labels in texts]
    else:
        given = [[missing, *labels[1:]] for labels in texts]
    expected = ChainCRF("linear", random_state=0, C=1.0).fit(X, known)
    fitted = ChainCRF("linear", random_state=0, C=1.0).fit(X, given)
    np.testing.assert_array_equal(fitted.coef_, expected.coef_)
    assert fitted.score(X, given) == expected.score(X, known)
    assert flat_accuracy(given, fitted.predict(X)) == flat_accuracy(known, fitted.predict(X))


@pytest.mark.parametrize("label", [float("nan"), pd.NaT, np.datetime64("NaT", "s"), ["a"], np.ones(2)])
def test_what_is_no_label_is_named(label):
    y = [[label, *["a"] * (len(labels) - 1)] for labels in Y]
    with pytest.raises((ValueError, TypeError), match=r"^y has .*expected a"):
        ChainCRF("linear", C=1.0).fit(X, y)


def answer(model, name):
    """Return a function that asks the distribution of given inputs."""
    return lambda X: getattr(model.distribution(X), name)()


def test_predictions_of_nothing_are_empty():
    chain = ChainCRF(laplace=True, C=1.0).fit(X, Y)
    graph, rows = GraphCRF("linear").fit(X, Y), KernelClassifier(laplace=True).fit(ROWS, LABELS)
    sets = MultiLabelCRF("linear").fit(ROWS, np.column_stack((LABELS, 1 - LABELS)))
    for say in (
        *(getattr(model, name) for model in (chain, graph, rows, sets) for name in ["predict", "predict_proba"]),
        chain.predict_marginals,
        rows.decision_function,
        *(answer(chain, name) for name in ["edge_marginals", "k_best", "entropy", "sample", "spans"]),
        *(answer(graph, name) for name in ["edge_marginals", "k_best", "entropy", "sample"]),
        *(answer(rows, name) for name in ["k_best", "entropy"]),
        *(answer(sets, name) for name in ["k_best", "entropy"]),
        lambda none: chain.predict_proba(none, posterior="laplace"),
        lambda none: chain.uncertainty(none).epistemic,
        lambda none: rows.uncertainty(none).epistemic,
        lambda none: chain.log_prob(none, []),
        lambda none: graph.log_prob(none, []),
        lambda none: sets.log_prob(none, []),
    ):
        assert len(say([])) == 0
    table = MarkovNetwork().fit(np.column_stack((LABELS, 1 - LABELS)))
    assert table.score_samples([]).shape == (0,)
    assert table.impute([]).shape == (0, 2)
    assert [p.shape for p in table.predict_proba([])] == [(0, 2), (0, 2)]
    assert chain.predict(np.empty((0, 2)), lengths=[]) == []
    for model in (graph, rows, sets, chain):
        with pytest.raises(ValueError, match=r"^[Xy] "):
            model.score([], [])


WRONG = {
    "NaN": lambda x, y: (np.where(x > 9, x, np.nan), y, r"X has the value NaN in sequence 5, token 0"),
    "width": lambda x, y: (x[:, :1], y, r"X\[5\] has 1\b|1 features"),
    "string": lambda x, y: ("the dog", y, r"X\[5\] is the string"),
    "kind": lambda x, y: ([{"a": 1.0}] * len(x), y, r"X\[5\] has feature dicts|feature dicts in"),
    "few labels": lambda x, y: (x, y[:1], r"y\[5\] has 1 labels and X\[5\] has 3"),
    "label": lambda x, y: (x, [[1]] * len(y), r"y has the label \[1\]"),
    "unknown": lambda x, y: (x, [7] * len(y), r"y has the label 7 at sequence 5, token 0"),
}


@pytest.mark.parametrize("name", WRONG)
@pytest.mark.parametrize("n_parts", [1, 3, 8])
def test_a_cluster_numbers_the_users_sequences(name, n_parts):
    x, y, message = WRONG[name](X[5], Y[5].tolist())
    given, labels = [*X[:5], x, *X[6:]], [*(own.tolist() for own in Y[:5]), y, *(own.tolist() for own in Y[6:])]
    crf = ChainCRF("linear", engine=Inline(n_parts), classes=[0, 1] if name == "unknown" else None, C=1.0)
    with pytest.raises((ValueError, TypeError), match=message):
        crf.fit(given, labels)


def test_a_cluster_numbers_sequences_behind_empty_parts():
    """Empty sequences make a part without tokens, which is not read."""
    given = [*X[:4], *[np.empty((0, 2))] * 4, *X[4:]]
    labels = [*Y[:4], *[[]] * 4, *Y[4:]]
    places = ChainCRF(n_components=4, random_state=0, engine=Inline(6), C=1.0).fit(given, labels).landmark_positions_
    alone = ChainCRF(n_components=4, random_state=0, C=1.0).fit(given, labels).landmark_positions_
    assert {tuple(place) for place in places.tolist()} <= {(i, t) for i, x in enumerate(given) for t in range(len(x))}
    assert len(places) == len(alone)
    bad = [*labels[:10], [7] * len(labels[10]), *labels[11:]]
    with pytest.raises(ValueError, match="label 7 at sequence 10, token 0"):
        ChainCRF("linear", engine=Inline(6), classes=[0, 1], C=1.0).fit(given, bad)


LONG = "x" * 100_000


@pytest.mark.parametrize(
    "call",
    [
        lambda: ChainCRF("linear", C=1.0).fit([[LONG]], [["a"]]),
        lambda: ChainCRF("linear", C=1.0).fit([LONG], [["a"]]),
        lambda: ChainCRF("linear", C=1.0).fit([[{"a": object()}] * 5], [[LONG] * 5]),
        lambda: ChainCRF("linear", C=1.0).fit([[{LONG: [1, 2]}]], [["a"]]),
        lambda: ChainCRF("linear", C=1.0).fit([[{"a": [LONG, 3]}]], [["a"]]),
        lambda: ChainCRF("linear", C=1.0).fit(X, [[LONG] * len(y) for y in Y]),
        lambda: ChainCRF("linear", C=1.0).fit(X, [[[LONG]] * len(y) for y in Y]),
        lambda: ChainCRF("linear", classes=[f"{LONG}{i}" for i in range(99)], C=1.0).fit(X, Y),
        lambda: ChainCRF("linear", C=1.0).fit(ROWS, LABELS, lengths=list(range(100_000))),
        lambda: ChainCRF("linear", C=1.0).fit(ROWS, LABELS, lengths=["\n"] * 1000),
        lambda: ChainCRF("linear", class_weight={LONG: 1.0}, C=1.0).fit(X, Y),
        lambda: ChainCRF("linear", constraints=[(LONG, LONG)], C=1.0).fit(X, Y),
        lambda: ChainCRF("linear", C=1.0).fit(X, Y).log_prob(X, [[LONG] * len(y) for y in Y]),
        lambda: GraphCRF("linear").fit(X, [[LONG] * len(y) for y in Y]),
        lambda: KernelClassifier("linear").fit([[LONG, 1.0]] * 4, [0, 1, 0, 1]),
        lambda: KernelClassifier("linear").fit(ROWS, [LONG] * len(ROWS)),
        lambda: MarkovNetwork().fit([["a", "b"], ["b", "a"]]).impute([[LONG, "a"]]),
        lambda: flat_accuracy([LONG], [LONG]),
        lambda: kernelcrf.metrics.log_loss([["a"]], [np.ones((1, 2)) / 2], [LONG, LONG]),
        lambda: kernelcrf.metrics.log_loss([[LONG]], [np.ones((1, 2)) / 2], ["a", "b"]),
    ],
)
def test_an_error_is_one_line_of_bounded_length(call):
    with pytest.raises((ValueError, TypeError)) as raised:
        call()
    assert len(str(raised.value)) < 700
    assert "\n" not in str(raised.value)
