"""Plot matrices with one row and one column per label: confusion matrices, and weights between labels.

Matrices are drawn as heatmaps. Weights can also be drawn as a graph with one arrow for each of the strongest weights.
"""

from __future__ import annotations

from collections.abc import Sequence
from copy import copy
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
from sklearn.utils.validation import check_is_fitted

from kernelcrf.arrays import Array, Floats, UserData
from kernelcrf.metrics import flat_confusion
from kernelcrf.plotting.axes import (
    BLUE,
    DIVERGING,
    GREY,
    SEQUENTIAL,
    VERMILION,
    Display,
    Estimator,
    MaybeAxes,
    matrix_ticks,
)
from kernelcrf.validation import either, shown_list, validated, whole

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.image import AxesImage

EDGES = 30
WRITTEN_UP_TO = 12
INCHES_PER_LABEL = 0.24


class MatrixDisplay(Display):
    """Base class of heatmaps with one row and one column per label."""

    im_: AxesImage
    labels: list[str]

    def _draw(
        self, ax: MaybeAxes, values: Array, texts: list[list[str]], names: tuple[str, str, str], **colours: Any
    ) -> Axes:
        """Draw a heatmap of `values`, with `texts` in its cells if there are at most WRITTEN_UP_TO labels.

        names : the titles of the colour bar, of the rows and of the columns.
        """
        side = INCHES_PER_LABEL * len(self.labels) + 1.8
        ax = self._use(ax, (side + 1.0, side))
        ticks = colours.pop("ticks", None)
        self.im_ = ax.imshow(values, **colours)
        self.figure_.colorbar(self.im_, ax=ax, label=names[0], ticks=ticks)
        matrix_ticks(ax, self.labels, self.labels)
        ax.set(xlabel=names[2], ylabel=names[1])
        if len(self.labels) <= WRITTEN_UP_TO:
            size = min(9.0, 72 * ax.get_window_extent().width / self.figure_.dpi / len(values) / 4)
            for (i, j), value in np.ndenumerate(np.nan_to_num(values)):
                r, g, b, _ = self.im_.cmap(self.im_.norm(value))
                is_dark = 0.299 * r + 0.587 * g + 0.114 * b < 0.55
                color = "white" if is_dark else "black"
                ax.text(j, i, texts[i][j], ha="center", va="center", fontsize=size, color=color)
        return ax


class ConfusionDisplay(MatrixDisplay):
    """Confusion matrix; counts[i, j] is the number of tokens with true label i and predicted label j.

    Examples
    --------
    >>> from kernelcrf.plotting import ConfusionDisplay
    >>> display = ConfusionDisplay.from_predictions([["a", "b"], ["a"]], [["a", "a"], ["a"]])
    >>> display.counts, display.ax_.get_xlabel()
    (array([[2, 0],
           [1, 0]]), 'predicted')
    """

    def __init__(self, counts: npt.ArrayLike, labels: Sequence[object]) -> None:
        self.counts, self.labels = np.asarray(counts), list(map(str, labels))
        if self.counts.shape != (len(self.labels),) * 2:
            raise ValueError(
                f"counts has shape {self.counts.shape}: expected {(len(self.labels),) * 2}, one row and one column per "
                "label"
            )

    @classmethod
    def from_estimator(
        cls, estimator: Estimator, X: UserData, y: UserData, *, ax: MaybeAxes = None
    ) -> ConfusionDisplay:
        """Plot the confusion matrix of a fitted ChainCRF on the sequences X with the true labels y."""
        return cls.from_predictions(y, estimator.predict(X), ax=ax)

    @classmethod
    def from_predictions(cls, y_true: UserData, y_pred: UserData, *, ax: MaybeAxes = None) -> ConfusionDisplay:
        """Plot the confusion matrix of label sequences; tokens without a true label are ignored."""
        labels, counts = flat_confusion(y_true, y_pred)
        return cls(counts, labels).plot(ax)

    def plot(self, ax: MaybeAxes = None) -> ConfusionDisplay:
        """Plot the matrix on `ax`: numbers are counts of tokens, and colours show counts divided by row sums."""
        from matplotlib.colors import PowerNorm

        totals = self.counts.sum(axis=1, keepdims=True)
        shares = np.divide(self.counts, totals, out=np.zeros(self.counts.shape), where=totals > 0)
        texts = [[f"{count:,}" if count else "" for count in row] for row in self.counts.tolist()]
        names = "share of the true label's tokens", "true", "predicted"
        # The square root makes rare errors visible.
        norm, ticks = PowerNorm(0.5, vmin=0, vmax=1), [0, 0.01, 0.1, 0.25, 0.5, 1]
        self._draw(ax, shares, texts, names, cmap=SEQUENTIAL, norm=norm, ticks=ticks)
        return self


class TransitionsDisplay(MatrixDisplay):
    """Heatmap of transition scores; transitions[i, j] is the score of label j after label i.

    forbidden : a boolean matrix; forbidden[i, j] is true if constraints exclude label j after label i. None means that
        no transition is forbidden.

    Examples
    --------
    >>> from kernelcrf.plotting import TransitionsDisplay
    >>> display = TransitionsDisplay([[1.0, -1.0], [0.5, 0.0]], ["O", "B"]).plot()
    >>> display.ax_.get_ylabel(), display.transitions.shape
    ('from', (2, 2))
    """

    def __init__(
        self, transitions: npt.ArrayLike, labels: Sequence[object], forbidden: npt.ArrayLike | None = None
    ) -> None:
        self.transitions, self.labels = np.asarray(transitions, np.float64), list(map(str, labels))
        L = len(self.labels)
        self.forbidden = np.zeros((L, L), bool) if forbidden is None else np.asarray(forbidden, bool)
        if self.transitions.shape != (L, L) or self.forbidden.shape != (L, L):
            raise ValueError(
                f"transitions has shape {self.transitions.shape} and forbidden has shape {self.forbidden.shape}: "
                f"expected ({L}, {L}), one row and one column per label"
            )

    @classmethod
    def from_estimator(cls, estimator: Estimator, *, ax: MaybeAxes = None) -> TransitionsDisplay:
        """Plot the transition scores of a fitted ChainCRF."""
        check_is_fitted(estimator)
        model = estimator.model_
        forbidden = None if model.legal is None else ~model.legal.steps
        return cls(model.transitions, model.column_labels, forbidden).plot(ax)

    def plot(self, ax: MaybeAxes = None) -> TransitionsDisplay:
        """Plot the heatmap on `ax`; a score of 0 is white, and forbidden transitions are grey with a cross."""
        shown = np.where(self.forbidden, np.nan, self.transitions)
        most = (float(np.nanmax(np.abs(shown))) if np.isfinite(shown).any() else 1.0) or 1.0
        texts = [["" if np.isnan(value) else f"{value:.1f}" for value in row] for row in shown.tolist()]
        names = "score of the transition", "from", "to"
        ax = self._draw(ax, shown, texts, names, cmap=DIVERGING, vmin=-most, vmax=most)
        ax.set_facecolor("#dddddd")
        rows, columns = np.nonzero(self.forbidden)
        ax.plot(columns, rows, "x", color=GREY, markersize=4, linestyle="none")
        return self


class LabelGraphDisplay(Display):
    """Graph whose nodes are labels and whose edges are weights; weights[i, j] is the weight from label i to label j.

    Edges are drawn as arrows, or as lines if the matrix of weights is symmetric.

    Examples
    --------
    >>> from kernelcrf.plotting import LabelGraphDisplay
    >>> display = LabelGraphDisplay([[0, 2], [-1, 0]], ["a", "b"]).plot()
    >>> len(display.ax_.patches) > 0, display.labels
    (True, ['a', 'b'])
    """

    def __init__(self, weights: npt.ArrayLike, labels: Sequence[object]) -> None:
        self.weights, self.labels = np.asarray(weights, np.float64), list(map(str, labels))
        L = len(self.labels)
        if self.weights.shape != (L, L) or not np.isfinite(self.weights).all():
            raise ValueError(
                f"weights has shape {self.weights.shape}, or contains NaN or infinity: expected finite numbers of "
                f"shape ({L}, {L}), with one row and one column per label"
            )

    @classmethod
    def from_estimator(
        cls, estimator: Estimator, *, labels: Sequence[object] | None = None, n_edges: int = EDGES, ax: MaybeAxes = None
    ) -> LabelGraphDisplay:
        """Plot the weights between the labels of a fitted ChainCRF, GraphCRF or MultiLabelCRF.

        labels : the names of the nodes; None means the classes of the estimator.
        n_edges : the number of edges to draw; the edges with the largest absolute weights are chosen.
        """
        check_is_fitted(estimator)
        estimator = copy(estimator)
        names = estimator.classes_ if labels is None else labels
        return cls(_weights_of(estimator), names).plot(ax, n_edges=n_edges)

    @validated(n_edges=either(whole(least=0)))
    def plot(self, ax: MaybeAxes = None, *, n_edges: int = EDGES) -> LabelGraphDisplay:
        """Plot the `n_edges` weights with the largest absolute values.

        Edges with positive weights are blue and solid; edges with negative weights are orange and dashed.
        """
        from matplotlib.lines import Line2D
        from matplotlib.patches import Circle, FancyArrowPatch

        L = len(self.labels)
        ax = self._use(ax, (6.4, 5.6))
        angles = np.pi / 2 - 2 * np.pi * np.arange(L) / L
        places = np.column_stack((np.cos(angles), np.sin(angles)))
        symmetric = np.allclose(self.weights, self.weights.T)
        size = np.triu(np.abs(self.weights)) if symmetric else np.abs(self.weights)
        order = [edge for edge in np.argsort(-size, axis=None, kind="stable")[:n_edges] if size.flat[edge] > 0]
        most = size.max() if order else 1.0
        radius = 0.05
        for edge in reversed(order):
            i, j = divmod(int(edge), L)
            weight = self.weights[i, j]
            width, alpha = 0.5 + 3.0 * size[i, j] / most, 0.35 + 0.6 * size[i, j] / most
            style: dict[str, Any] = {"linewidth": width, "alpha": alpha, "zorder": 1}
            style |= {"color": BLUE, "linestyle": "-"} if weight > 0 else {"color": VERMILION, "linestyle": "--"}
            if i == j:
                ax.add_patch(Circle(places[i] * 0.90, 0.07, fill=False, **style))
                continue
            style |= {"shrinkA": 9, "shrinkB": 9, "mutation_scale": 8 + 2 * width}
            arrow, curve = ("-", "arc3") if symmetric else ("-|>", "arc3,rad=0.12")
            ax.add_patch(FancyArrowPatch(places[i], places[j], arrowstyle=arrow, connectionstyle=curve, **style))
        for place, angle, label in zip(places, np.degrees(angles) % 360, self.labels, strict=True):
            ax.add_patch(Circle(place, radius, facecolor="white", edgecolor="black", zorder=2))
            left = 90 < angle < 270
            turned = {"rotation": angle - 180 if left else angle, "rotation_mode": "anchor", "va": "center"}
            kept: dict[str, Any] = {**turned, "fontsize": 9 if L <= 30 else 7, "parse_math": False}
            x, y = place * (1 + 2 * radius)
            ax.text(x, y, label, ha="right" if left else "left", **kept)
        reach = 1.15 + 0.035 * max(map(len, self.labels))
        ax.set(xlim=(-reach, reach), ylim=(-reach, reach), aspect="equal")
        ax.axis("off")
        handles = [
            Line2D([], [], color=BLUE, linestyle="-", linewidth=3.5, label=f"+{most:.2g}"),
            Line2D([], [], color=VERMILION, linestyle="--", linewidth=3.5, label=f"−{most:.2g}"),
        ]
        ax.legend(handles=handles, loc="lower right", frameon=False, title="strongest", handlelength=3)
        return self


def _weights_of(estimator: Estimator) -> Floats:
    """Return the weights between the labels of a fitted estimator, with one row and one column per label."""
    if hasattr(estimator, "interactions_"):
        weights = np.zeros((len(estimator.classes_),) * 2)
        i, j = np.asarray(estimator.edges_, np.intp).reshape(-1, 2).T
        weights[i, j] = weights[j, i] = estimator.interactions_
        return weights
    for name in ("transitions_", "edge_potentials_"):
        matrix = getattr(estimator, name, None)
        if isinstance(matrix, dict):
            raise ValueError(
                f"{name} of {type(estimator).__name__} has a matrix for each of the types {shown_list(matrix)}: "
                f"expected one matrix; use LabelGraphDisplay({name}[type], labels)"
            )
        if matrix is not None:
            return np.asarray(matrix, np.float64)
    raise ValueError(
        f"{type(estimator).__name__} has neither transitions_ nor edge_potentials_ nor interactions_: expected a model "
        "with weights between labels; for other matrices, use LabelGraphDisplay(weights, labels)"
    )
