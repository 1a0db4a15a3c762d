"""Matrices with a row and a column per label, as heatmaps: tokens by true and predicted label, and scores of steps."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
from sklearn.utils.validation import check_is_fitted

from kernelcrf.arrays import Array, UserData
from kernelcrf.metrics import flat_confusion
from kernelcrf.plotting.axes import DIVERGING, GREY, SEQUENTIAL, Display, Estimator, MaybeAxes, matrix_ticks

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.image import AxesImage

WRITTEN_UP_TO = 12
INCHES_PER_LABEL = 0.24


class MatrixDisplay(Display):
    """A picture of a matrix with a row and a column per label."""

    im_: AxesImage
    labels: list[str]

    def _draw(
        self, ax: MaybeAxes, values: Array, texts: list[list[str]], names: tuple[str, str, str], **colours: Any
    ) -> Axes:
        """Draw the matrix with texts in its cells if they are few; `names` are those of colours, rows and columns."""
        side = INCHES_PER_LABEL * len(self.labels) + 1.8
        ax = self._use(ax, (side + 1.0, side))
        ticks = colours.pop("ticks", None)
        self.im_ = ax.imshow(values, **colours)
        self.figure_.colorbar(self.im_, ax=ax, label=names[0], ticks=ticks)
        matrix_ticks(ax, self.labels, self.labels)
        ax.set(xlabel=names[2], ylabel=names[1])
        if len(self.labels) <= WRITTEN_UP_TO:
            self._write_cells(np.nan_to_num(values), texts)
        return ax

    def _write_cells(self, values: Array, texts: list[list[str]]) -> None:
        """Write a text in each cell, dark on light and light on dark."""
        size = min(9.0, 72 * self.ax_.get_window_extent().width / self.figure_.dpi / len(values) / 4)
        for (i, j), value in np.ndenumerate(values):
            r, g, b, _ = self.im_.cmap(self.im_.norm(value))
            color = "white" if 0.299 * r + 0.587 * g + 0.114 * b < 0.55 else "black"
            self.ax_.text(j, i, texts[i][j], ha="center", va="center", fontsize=size, color=color)


class ConfusionDisplay(MatrixDisplay):
    """The numbers of tokens `counts` (L, L), [true, predicted].

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
            raise ValueError(f"counts has shape {self.counts.shape}: expected {(len(self.labels),) * 2}")

    @classmethod
    def from_estimator(
        cls, estimator: Estimator, X: UserData, y: UserData, *, ax: MaybeAxes = None
    ) -> ConfusionDisplay:
        """Draw the confusion of a fitted ChainCRF on labelled sequences."""
        return cls.from_predictions(y, estimator.predict(X), ax=ax)

    @classmethod
    def from_predictions(cls, y_true: UserData, y_pred: UserData, *, ax: MaybeAxes = None) -> ConfusionDisplay:
        """Draw the confusion of true and predicted label sequences; tokens without a known label are left out."""
        labels, counts = flat_confusion(y_true, y_pred)
        return cls(counts, labels).plot(ax)

    def plot(self, ax: MaybeAxes = None) -> ConfusionDisplay:
        """Draw on `ax`; a row's colours are shares of its tokens, its numbers are counts."""
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
    """The scores of steps `transitions` (L, L), [from, to]; constraints rule out the steps `forbidden` (L, L).

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
            raise ValueError(f"transitions has shape {self.transitions.shape}: expected ({L}, {L}), [from, to]")

    @classmethod
    def from_estimator(cls, estimator: Estimator, *, ax: MaybeAxes = None) -> TransitionsDisplay:
        """Draw the transitions of a fitted ChainCRF."""
        check_is_fitted(estimator)
        forbidden = None if estimator.model_.legal is None else ~estimator.model_.legal.steps
        return cls(estimator.transitions_, estimator.classes_, forbidden).plot(ax)

    def plot(self, ax: MaybeAxes = None) -> TransitionsDisplay:
        """Draw on `ax`; zero is white, forbidden steps are grey with a cross."""
        shown = np.where(self.forbidden, np.nan, self.transitions)
        most = (float(np.nanmax(np.abs(shown))) if np.isfinite(shown).any() else 1.0) or 1.0
        texts = [["" if np.isnan(value) else f"{value:.1f}" for value in row] for row in shown.tolist()]
        names = "score of the step", "from", "to"
        ax = self._draw(ax, shown, texts, names, cmap=DIVERGING, vmin=-most, vmax=most)
        ax.set_facecolor("#dddddd")
        rows, columns = np.nonzero(self.forbidden)
        ax.plot(columns, rows, "x", color=GREY, markersize=4, linestyle="none")
        return self
