import numpy as np
import pytest

from kernelcrf import metrics
from kernelcrf.metrics import Score, bootstrap

CLASSES = ["B-x", "I-x", "O"]


@pytest.fixture
def said():
    rng = np.random.default_rng(0)
    lengths = rng.integers(1, 9, size=40)
    proba = [rng.dirichlet(np.ones(3), size=T) for T in lengths]
    y_true = [[CLASSES[j] for j in rng.integers(3, size=T)] for T in lengths]
    y_pred = [[CLASSES[j] for j in p.argmax(axis=1)] for p in proba]
    y_true[3][0] = None
    return y_true, y_pred, proba


def by_metric(name, y_true, y_pred, proba, weight=None):
    if name in ("log_loss", "brier", "expected_calibration_error"):
        return getattr(metrics, name)(y_true, proba, CLASSES, sample_weight=weight)
    options = {"zero_division": 0} if name.startswith("span") else {}
    return getattr(metrics, name)(y_true, y_pred, sample_weight=weight, **options)


def test_values_and_intervals_are_those_of_the_metrics_on_resamples(said):
    y_true, y_pred, proba = said
    found = bootstrap(y_true, y_pred, proba, CLASSES, scheme="lenient", n_resamples=50, level=0.9, random_state=3)
    assert len(found) == 8
    rng, m = np.random.default_rng(3), len(y_true)
    counts = [np.bincount(rng.integers(m, size=m), minlength=m) for _ in range(50)]
    for name, score in found.items():
        assert score.value == pytest.approx(by_metric(name, *said), abs=1e-12)
        values = [by_metric(name, *said, weight) for weight in counts]
        np.testing.assert_allclose([score.low, score.high], np.quantile(values, [0.05, 0.95]), atol=1e-12)


def test_the_interval_of_independent_tokens_is_that_of_the_binomial_law():
    rng = np.random.default_rng(1)
    right = rng.random(400) < 0.8
    score = bootstrap([["a"]] * 400, [["a" if one else "b"] for one in right], n_resamples=2000)["flat_accuracy"]
    p = right.mean()
    half = 1.96 * np.sqrt(p * (1 - p) / 400)
    np.testing.assert_allclose([score.low, score.high], [p - half, p + half], atol=0.006)


def test_labels_beyond_the_classes_count_in_no_score_of_probabilities():
    proba = [np.array([[0.9, 0.1], [0.5, 0.5]])]
    found = bootstrap([["a", "new"]], [["a", "a"]], proba, ["a", "b"], n_resamples=5)
    assert found["log_loss"].value == pytest.approx(-np.log(0.9))
    assert found["flat_accuracy"] == Score(0.5, 0.5, 0.5)
    assert "span_f1" not in found


def test_no_span_at_all_is_no_error():
    found = bootstrap([["O"], ["B-x"]], [["O"], ["O"]], scheme="lenient", n_resamples=50)
    assert found["span_f1"].value == found["span_precision"].value == 0
    with pytest.raises(ValueError, match=r"level=2: expected a finite number above 0 and below 1"):
        bootstrap([["a"]], [["a"]], level=2)


def test_what_looks_like_spans():
    assert metrics.are_spans(["O", "B-NP", "I-NP"])
    assert not metrics.are_spans(["O"])
    assert not metrics.are_spans(["NN", "O"])
    assert not metrics.are_spans([0, 1])


def test_reliability_by_hand():
    y = [["a", "b", "a", "b"]]
    P = [np.array([[0.9, 0.1], [0.8, 0.2], [0.95, 0.05], [0.4, 0.6]])]
    bins = metrics.reliability(y, P, ["a", "b"], n_bins=2)
    np.testing.assert_allclose(bins.weight, [0, 4])
    np.testing.assert_allclose(bins.confidence[1], (0.9 + 0.8 + 0.95 + 0.6) / 4)
    np.testing.assert_allclose(bins.accuracy[1], 0.75)
    assert np.isnan(bins.accuracy[0])
    assert bins.error == pytest.approx(metrics.expected_calibration_error(y, P, ["a", "b"], n_bins=2))


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        ([[np.nan, np.nan]], "not"),
        ([[0.5, 0.2]], "rows that are not probabilities"),
        ([[0.5, 0.2, 0.3]], "expected one row per token and 2 columns"),
        ([[0.5, 0.5], [0.5, 0.5]], r"y_proba\[0\] has 2 rows and y_true\[0\] has 1 labels"),
    ],
)
def test_what_is_no_probability_is_refused(rows, message):
    with pytest.raises(ValueError, match=message):
        bootstrap([["a"], ["b"]], [["a"], ["b"]], [np.array(rows), np.array([[0.5, 0.5]])], ["a", "b"])


@pytest.mark.parametrize(
    ("given", "missing"), [({"y_proba": [np.ones((1, 1))]}, "classes"), ({"classes": ["a"]}, "y_proba")]
)
def test_probabilities_need_the_labels_of_their_columns(given, missing):
    with pytest.raises(ValueError, match=f"{missing} is None: expected both or neither"):
        bootstrap([["a"]], [["a"]], **given)
