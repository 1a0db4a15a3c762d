"""Which labels a model takes for which: tokens by their true and their predicted label."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from kernelcrf.metrics import flat_confusion
from kernelcrf.plotting.axes import SEQUENTIAL, WRITTEN_UP_TO, matrix_ticks, new_axes, square_size, write_cells


class ConfusionDisplay:
    """`counts` (L, L) of tokens, [true, predicted].

    Examples
    --------
    >>> from kernelcrf.plotting import ConfusionDisplay
    >>> display = ConfusionDisplay.from_predictions([["a", "b"], ["a"]], [["a", "a"], ["a"]])
    >>> display.counts, display.ax_.get_xlabel()
    (array([[2, 0],
           [1, 0]]), 'predicted')
    """

    def __init__(self, counts: npt.ArrayLike, labels: Sequence[Any]) -> None:
        self.counts, self.labels = np.asarray(counts), list(map(str, labels))
        if self.counts.shape != (len(self.labels),) * 2:
            raise ValueError(f"counts has shape {self.counts.shape}: expected {(len(self.labels),) * 2}")

    @classmethod
    def from_estimator(cls, estimator: Any, X: Any, y: Any, *, ax: Any = None) -> ConfusionDisplay:
        """Of a fitted ChainCRF on labelled sequences."""
        return cls.from_predictions(y, estimator.predict(X), ax=ax)

    @classmethod
    def from_predictions(cls, y_true: Any, y_pred: Any, *, ax: Any = None) -> ConfusionDisplay:
        """Of true and predicted label sequences; tokens without a known label are left out."""
        labels, counts = flat_confusion(y_true, y_pred)
        return cls(counts, labels).plot(ax)

    def plot(self, ax: Any = None) -> ConfusionDisplay:
        """Draw on `ax`; a row's colours are shares of its tokens, its numbers are counts."""
        self.ax_ = ax = new_axes(ax, square_size(len(self.labels)))
        self.figure_ = ax.figure
        totals = self.counts.sum(axis=1, keepdims=True)
        shares = np.divide(self.counts, totals, out=np.zeros(self.counts.shape), where=totals > 0)
        # The square root shows rare mistakes too.
        self.im_ = ax.imshow(shares, cmap=SEQUENTIAL, norm=_square_root())
        ax.figure.colorbar(
            self.im_, ax=ax, label="share of the true label's tokens", ticks=[0, 0.01, 0.1, 0.25, 0.5, 1]
        )
        matrix_ticks(ax, self.labels, self.labels)
        ax.set(xlabel="predicted", ylabel="true")
        if len(self.labels) <= WRITTEN_UP_TO:
            texts = [[f"{count:,}" if count else "" for count in row] for row in self.counts.tolist()]
            write_cells(ax, self.im_, shares, texts)
        return self


def _square_root() -> Any:
    from matplotlib.colors import PowerNorm

    return PowerNorm(0.5, vmin=0, vmax=1)
