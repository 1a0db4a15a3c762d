import matplotlib

matplotlib.use("Agg")
import io
from itertools import pairwise

import matplotlib.pyplot as plt
import numpy as np
import pytest
from matplotlib import colors
from matplotlib.text import Text

from kernelcrf import ChainCRF, KernelClassifier, MultiLabelCRF, make_report
from kernelcrf.datasets import make_sequences
from kernelcrf.metrics import expected_calibration_error
from kernelcrf.plotting import (
    ConfusionDisplay,
    GapDisplay,
    LabelGraphDisplay,
    MarginalsDisplay,
    ReliabilityDisplay,
    ResidualDisplay,
    TransitionsDisplay,
)
from kernelcrf.plotting.axes import BLUE, VERMILION

TAGS = [f"{letter}-{kind}" for letter in "BI" for kind in ("ADJP", "ADVP", "CONJP", "INTJ", "LST", "NP", "PP")] + ["O"]


@pytest.fixture(autouse=True)
def closed():
    yield
    plt.close("all")


@pytest.fixture(scope="module")
def data():
    return make_sequences(40, random_state=0)


@pytest.fixture(scope="module")
def crf(data):
    return ChainCRF(n_components=20, random_state=0, solver="lbfgs", C=10.0).fit(data.X, data.y)


def pixels(figure):
    figure.canvas.draw()
    return np.asarray(figure.canvas.buffer_rgba())[..., :3]


def drawn_ticks(axis):
    low, high = sorted(axis.get_view_interval())
    ticks = [tick for tick in axis.get_major_ticks() if low <= tick.get_loc() <= high]
    return [text for tick in ticks for text in (tick.label1, tick.label2) if text.get_visible() and text.get_text()]


def is_legible(figure):
    """Something is drawn, no text is cut, no tick runs into the next."""
    image = pixels(figure)
    assert (image < 250).any(axis=2).mean() > 0.005
    for ax in figure.axes:
        ticks = {axis: drawn_ticks(axis) if ax.axison else [] for axis in (ax.xaxis, ax.yaxis)}
        legend = [] if ax.get_legend() is None else ax.get_legend().get_texts()
        names = [ax.xaxis.label, ax.yaxis.label] if ax.axison else []
        texts = [
            text for text in [*ticks[ax.xaxis], *ticks[ax.yaxis], *ax.texts, *names, *legend] if text.get_text().strip()
        ]
        for text in texts:
            box = text.get_window_extent()
            assert min(box.x0, box.y0) >= -1, text
            assert box.x1 <= figure.bbox.x1 + 1, text
            assert box.y1 <= figure.bbox.y1 + 1, text
        for axis, (low, high) in ((ax.xaxis, ("x0", "x1")), (ax.yaxis, ("y0", "y1"))):
            boxes = [text.get_window_extent() for text in ticks[axis]]
            spans = sorted((getattr(box, low), getattr(box, high)) for box in boxes)
            assert all(before[1] <= after[0] + 0.5 for before, after in pairwise(spans)), ticks[axis]
    return True


def matrix(L, seed=0):
    return np.random.default_rng(seed).normal(size=(L, L))


@pytest.mark.parametrize("labels", [TAGS, list("abc")])
def test_transitions_are_the_numbers_with_zero_in_the_middle(labels):
    L = len(labels)
    forbidden = np.eye(L, k=1, dtype=bool)
    display = TransitionsDisplay(matrix(L), labels, forbidden).plot()
    shown = display.im_.get_array()
    np.testing.assert_array_equal(shown.mask, forbidden)
    np.testing.assert_array_equal(shown[~forbidden], matrix(L)[~forbidden])
    assert display.im_.norm(0.0) == 0.5
    assert is_legible(display.figure_)
    written = [text.get_text() for text in display.ax_.texts]
    assert len(written) == (L * L if L <= 12 else 0)


def test_transitions_of_a_model_and_what_it_forbids(data):
    pairs = [(i, j) for i in range(3) for j in range(3)]
    crf = ChainCRF("linear", constraints=pairs, tol=1e-2, C=1.0).fit(data.X, data.y)
    display = TransitionsDisplay.from_estimator(crf)
    np.testing.assert_array_equal(display.transitions, crf.transitions_)
    assert not display.forbidden.any()
    with pytest.raises(ValueError, match=r"transitions has shape \(2, 2\) .*: expected \(3, 3\)"):
        TransitionsDisplay(np.eye(2), list("abc"))


def test_marginals_show_probabilities_and_gold(crf, data):
    x, y = data.X[1], data.y[1].tolist()
    display = MarginalsDisplay.from_estimator(crf, x, y, tokens=[f"some-very-long-word-{t}" for t in range(len(x))])
    proba = crf.predict_proba([x])[0]
    np.testing.assert_allclose(display.im_.get_array(), proba.T)
    right, wrong = (set(zip(*line.get_data(), strict=True)) for line in display.ax_.lines)
    assert right == {(t, label) for t, label in enumerate(y) if proba[t].argmax() == label}
    assert wrong == {(t, label) for t, label in enumerate(y) if proba[t].argmax() != label}
    assert is_legible(display.figure_)


@pytest.mark.parametrize("T", [1, 30, 400])
def test_marginals_of_short_and_long_sequences(T):
    proba = np.random.default_rng(0).dirichlet(np.ones(len(TAGS)), size=T)
    display = MarginalsDisplay.from_predictions(proba, TAGS, [None] * T, tokens=["word"] * T)
    assert is_legible(display.figure_)
    assert not any(len(line.get_xdata()) for line in display.ax_.lines)
    with pytest.raises(ValueError, match=r"tokens has 0 entries, but proba"):
        MarginalsDisplay(proba, TAGS, tokens=[])
    with pytest.raises(ValueError, match="proba has shape"):
        MarginalsDisplay(proba[0], TAGS)


@pytest.mark.parametrize("against", ["passes", "seconds"])
def test_the_gap_of_a_fit(crf, against):
    display = GapDisplay.from_estimator(crf, against=against, name="rbf")
    gap, passes, seconds = crf.gap_curve_.T
    x, shown = display.line_.get_data()
    np.testing.assert_array_equal(shown, gap)
    np.testing.assert_array_equal(x, passes if against == "passes" else seconds)
    assert gap[-1] <= crf.tol < gap[0]
    assert (np.diff(passes) > 0).all()
    assert (np.diff(seconds) >= 0).all()
    assert display.ax_.get_yscale() == "log"
    assert is_legible(display.figure_)
    again = GapDisplay.from_estimator(crf, ax=display.ax_, name="again")
    assert again.ax_ is display.ax_
    assert again.line_.get_color() != BLUE
    with pytest.raises(ValueError, match="against='hours': expected 'passes' or 'seconds'"):
        display.plot(against="hours")


def test_a_fit_with_missing_labels_has_no_certified_gap(data):
    labels = [[None, *labels[1:]] for labels in data.y]
    crf = ChainCRF(n_components=10, random_state=0, C=1.0).fit(data.X, labels)
    assert GapDisplay.from_estimator(crf).ax_.get_ylabel() == "relative size of the gradient"
    html = make_report(crf, data.X, data.y)
    assert "The size of the gradient during the fit." in html
    assert "certified gap" not in html.lower()


def test_reliability_says_the_calibration_error(crf, data):
    y = [[*labels.tolist()[:-1], 99] for labels in data.y]
    known = [[*labels.tolist()[:-1], None] for labels in data.y]
    display = ReliabilityDisplay.from_estimator(crf, data.X, y, n_bins=10)
    expected = expected_calibration_error(known, crf.predict_proba(data.X), [0, 1, 2], n_bins=10)
    assert display.bins.error == pytest.approx(expected)
    assert f"calibration error {expected:.3f}" in display.ax_.get_legend().get_texts()[0].get_text()
    assert sum(bar.get_height() for bar in display.ax_.patches) == pytest.approx(1)
    assert is_legible(display.figure_)


def test_reliability_of_spans_counts_spans(crf, data):
    found = crf.distribution(data.X).spans()
    display = ReliabilityDisplay.from_spans(data.y, found, n_bins=5)
    assert display.bins.weight.sum() == sum(map(len, found))
    assert "share of spans" in [text.get_text() for text in display.ax_.get_legend().get_texts()]
    assert is_legible(display.figure_)


def test_confusion_counts_tokens(crf, data):
    display = ConfusionDisplay.from_estimator(crf, data.X, data.y)
    flat = np.concatenate(crf.predict(data.X)), np.concatenate(data.y)
    for i in range(3):
        for j in range(3):
            assert display.counts[i, j] == ((flat[1] == i) & (flat[0] == j)).sum()
    assert is_legible(display.figure_)
    many = ConfusionDisplay.from_predictions([TAGS], [TAGS[::-1]])
    np.testing.assert_array_equal(many.counts, np.eye(len(TAGS))[::-1])
    assert is_legible(many.figure_)


@pytest.mark.parametrize(("labels", "symmetric"), [(TAGS, False), (["sunset", "a very long label", "fall"], True)])
def test_a_label_graph_has_the_strongest_weights(labels, symmetric):
    W = matrix(len(labels))
    W = W + W.T - np.diag(2 * W.diagonal()) if symmetric else W
    display = LabelGraphDisplay(W, labels).plot(n_edges=5)
    drawn = [patch for patch in display.ax_.patches if not (type(patch).__name__ == "Circle" and patch.get_fill())]
    assert len(drawn) == (3 if symmetric else 5)
    top = np.sort(np.abs(np.triu(W) if symmetric else W), axis=None)[::-1]
    strongest = W.flat[np.abs(W).argmax()]
    assert drawn[-1].get_linewidth() == pytest.approx(3.5)
    assert drawn[0].get_linewidth() == pytest.approx(0.5 + 3 * top[len(drawn) - 1] / top[0])
    assert drawn[-1].get_edgecolor()[:3] == pytest.approx(colors.to_rgb(BLUE if strongest > 0 else VERMILION))
    assert is_legible(display.figure_)


def test_a_label_graph_of_a_model(crf):
    display = LabelGraphDisplay.from_estimator(crf)
    np.testing.assert_array_equal(display.weights, crf.transitions_)
    with pytest.raises(ValueError, match="weights has shape"):
        LabelGraphDisplay(np.eye(2), ["a"])
    alone = KernelClassifier(n_components=5).fit(np.random.default_rng(0).normal(size=(20, 2)), np.arange(20) % 2)
    with pytest.raises(ValueError, match="KernelClassifier has neither transitions_"):
        LabelGraphDisplay.from_estimator(alone)


def test_a_label_graph_of_labels_in_no_order():
    rng = np.random.default_rng(0)
    X, first = rng.normal(size=(60, 2)), rng.integers(2, size=60)
    Y = np.column_stack([first, np.where(rng.random(60) < 0.9, first, 1 - first), rng.integers(2, size=60)])
    model = MultiLabelCRF("linear", structure=[(0, 1), (1, 2)]).fit(X, Y)
    display = LabelGraphDisplay.from_estimator(model, labels=["sun", "beach", "noise"])
    expected = np.zeros((3, 3))
    for (i, j), weight in zip(model.edges_, model.interactions_, strict=True):
        expected[i, j] = expected[j, i] = weight
    np.testing.assert_array_equal(display.weights, expected)
    assert display.weights[0, 1] > abs(display.weights[1, 2])
    assert display.labels == ["sun", "beach", "noise"]
    assert is_legible(display.figure_)


def test_the_residual_is_that_of_smaller_bases(crf, data):
    display = ResidualDisplay.from_estimator(crf, data.X, name="lloyd")
    inputs = np.unique(np.concatenate(data.X), axis=0)
    K = crf.model_.kernel.gram(inputs, inputs)
    for n in (1, 7, 20):
        B = crf.landmarks_[:n]
        K_xB = crf.model_.kernel.gram(inputs, B)
        left = np.trace(K - K_xB @ np.linalg.solve(crf.model_.kernel.gram(B, B), K_xB.T))
        assert display.residual[n] == pytest.approx(left / np.trace(K), rel=1e-6, abs=1e-9)
    assert display.residual[0] == 1
    assert (np.diff(display.residual) <= 0).all()
    assert is_legible(display.figure_)
    linear = ChainCRF("linear", tol=1e-2, C=1.0).fit(data.X, data.y)
    with pytest.raises(ValueError, match="has no landmarks"):
        ResidualDisplay.from_estimator(linear, data.X)


def test_displays_draw_on_the_axes_of_others(crf, data):
    figure, axes = plt.subplots(2, 2, figsize=(9, 7), layout="constrained")
    TransitionsDisplay.from_estimator(crf, ax=axes[0, 0])
    ConfusionDisplay.from_estimator(crf, data.X, data.y, ax=axes[0, 1])
    MarginalsDisplay.from_estimator(crf, data.X[0], ax=axes[1, 0])
    LabelGraphDisplay.from_estimator(crf, ax=axes[1, 1])
    assert plt.get_fignums() == [figure.number]
    file = io.BytesIO()
    figure.savefig(file, format="png")
    assert file.tell() > 10_000


def test_colours_are_apart_for_eyes_without_red_or_green():
    """The two signs of a weight differ in lightness or blue, which every eye sees, and in their lines."""
    blue, orange = (np.array(colors.to_rgb(color)) for color in (BLUE, VERMILION))
    assert abs(blue[2] - orange[2]) > 0.5
    cmap = plt.get_cmap("RdBu_r")
    assert cmap(0.05)[2] - cmap(0.95)[2] > 0.2


def test_dollars_in_labels_and_names_begin_no_formula():
    """Every display is rendered, which is when matplotlib reads formulas, and shows the label as it is."""
    labels = ["$a^{$", "$x$", "\\$y$", "$$", "a$b"]
    name, proba = " and ".join(labels), np.eye(5)
    displays = [
        TransitionsDisplay(np.eye(5), labels).plot(),
        ConfusionDisplay.from_predictions([labels], [labels]),
        LabelGraphDisplay(np.ones((5, 5)) - np.eye(5), labels).plot(),
        MarginalsDisplay.from_predictions(proba, labels, labels, tokens=labels),
        GapDisplay([1.0, 0.1], [1, 2], [0.1, 0.2]).plot(name=name),
        ReliabilityDisplay.from_predictions([labels], [proba], labels, name=name),
        ResidualDisplay(np.array([1.0, 0.5])).plot(name=name),
    ]
    for display in displays:
        display.figure_.canvas.draw()
        for label in labels:
            holding = [text for text in display.figure_.findobj(Text) if label in text.get_text()]
            assert holding, (type(display).__name__, label)
            assert not any(text.get_parse_math() for text in holding), (type(display).__name__, label)
        plt.close(display.figure_)


def test_sets_of_labels_have_no_mark():
    display = MarginalsDisplay.from_predictions([[0.9, 0.1], [0.3, 0.7]], ["a", "b"], [{"a", "b"}, "a"])
    assert display.y_true == [{"a", "b"}, "a"]
