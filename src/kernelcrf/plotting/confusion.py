"""The labels that a model confuses: tokens by true and predicted label."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from kernelcrf.arrays import UserData
from kernelcrf.metrics import flat_confusion
from kernelcrf.plotting.axes import SEQUENTIAL, Estimator, MatrixDisplay, MaybeAxes


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
