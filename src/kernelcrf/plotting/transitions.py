"""What a model makes of steps between labels: T[from, to] as a heatmap."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
from sklearn.utils.validation import check_is_fitted

from kernelcrf.plotting.axes import DIVERGING, GREY, WRITTEN_UP_TO, matrix_ticks, new_axes, square_size, write_cells


class TransitionsDisplay:
    """Scores of steps, `transitions` (L, L), [from, to]; `forbidden` (L, L) marks those that constraints rule out.

    Examples
    --------
    >>> from kernelcrf.plotting import TransitionsDisplay
    >>> display = TransitionsDisplay([[1.0, -1.0], [0.5, 0.0]], ["O", "B"]).plot()
    >>> display.ax_.get_ylabel(), display.transitions.shape
    ('from', (2, 2))
    """

    def __init__(
        self, transitions: npt.ArrayLike, labels: Sequence[Any], forbidden: npt.ArrayLike | None = None
    ) -> None:
        self.transitions = np.asarray(transitions, np.float64)
        self.labels = list(map(str, labels))
        L = len(self.labels)
        self.forbidden = np.zeros((L, L), bool) if forbidden is None else np.asarray(forbidden, bool)
        if self.transitions.shape != (L, L) or self.forbidden.shape != (L, L):
            raise ValueError(f"transitions has shape {self.transitions.shape}: expected ({L}, {L}), [from, to]")

    @classmethod
    def from_estimator(cls, estimator: Any, *, ax: Any = None) -> TransitionsDisplay:
        """Of a fitted ChainCRF."""
        check_is_fitted(estimator)
        forbidden = None if estimator._legal is None else ~estimator._legal.steps
        return cls(estimator.transitions_, estimator.classes_, forbidden).plot(ax)

    def plot(self, ax: Any = None) -> TransitionsDisplay:
        """Draw on `ax`; zero is white, forbidden steps are grey with a cross."""
        self.ax_ = ax = new_axes(ax, square_size(len(self.labels)))
        self.figure_ = ax.figure
        shown = np.where(self.forbidden, np.nan, self.transitions)
        most = float(np.nanmax(np.abs(shown))) if np.isfinite(shown).any() else 1.0
        self.im_ = ax.imshow(shown, cmap=DIVERGING, vmin=-(most or 1.0), vmax=most or 1.0)
        ax.figure.colorbar(self.im_, ax=ax, label="score of the step")
        ax.set_facecolor("#dddddd")
        matrix_ticks(ax, self.labels, self.labels)
        ax.set(xlabel="to", ylabel="from")
        if len(self.labels) <= WRITTEN_UP_TO:
            texts = [["" if np.isnan(value) else f"{value:.1f}" for value in row] for row in shown.tolist()]
            write_cells(ax, self.im_, np.nan_to_num(shown), texts)
        rows, columns = np.nonzero(self.forbidden)
        ax.plot(columns, rows, "x", color=GREY, markersize=4, linestyle="none")
        return self
