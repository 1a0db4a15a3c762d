"""The scores of steps between labels, T[from, to], as a heatmap."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
from sklearn.utils.validation import check_is_fitted

from kernelcrf.plotting.axes import DIVERGING, GREY, Estimator, MatrixDisplay, MaybeAxes


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
