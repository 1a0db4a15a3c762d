"""The progress of a fit: its relative certified gap against passes over the data or seconds."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
from sklearn.utils.validation import check_is_fitted

from kernelcrf.plotting.axes import BLUE, GREY, Display, Estimator, MaybeAxes, verbatim_legend
from kernelcrf.validation import either, one_of, validated

AGAINST = {"passes": "passes over the data", "seconds": "seconds"}


class GapDisplay(Display):
    """The curves `gap`, `passes` and `seconds`, each (n_iter + 1,), and `tol`, the gap that the fit was to reach.

    Examples
    --------
    >>> from kernelcrf import ChainCRF
    >>> from kernelcrf.datasets import make_sequences
    >>> from kernelcrf.plotting import GapDisplay
    >>> data = make_sequences(20, random_state=0)
    >>> crf = ChainCRF(n_components=50, random_state=0).fit(data.X, data.y)
    >>> display = GapDisplay.from_estimator(crf)
    >>> display.ax_.get_ylabel(), bool(display.gap[-1] <= crf.tol)
    ('relative certified gap', True)
    """

    def __init__(
        self, gap: npt.ArrayLike, passes: npt.ArrayLike, seconds: npt.ArrayLike, tol: float | None = None
    ) -> None:
        self.gap, self.passes, self.seconds = (np.asarray(values, np.float64) for values in (gap, passes, seconds))
        if not self.gap.shape == self.passes.shape == self.seconds.shape == (self.gap.size,):
            raise ValueError(f"gap has shape {self.gap.shape}: expected one number for each of passes and of seconds")
        self.tol = tol

    @classmethod
    def from_estimator(
        cls, estimator: Estimator, *, against: str = "passes", name: str | None = None, ax: MaybeAxes = None
    ) -> GapDisplay:
        """Draw the gap of a fitted ChainCRF; with missing labels it measures how stationary the point is."""
        check_is_fitted(estimator)
        gap, passes, seconds = estimator.gap_curve_.T
        return cls(gap, passes, seconds, estimator.tol).plot(ax, against=against, name=name)

    @validated(against=either(one_of(*AGAINST)))
    def plot(self, ax: MaybeAxes = None, *, against: str = "passes", name: str | None = None) -> GapDisplay:
        """Draw on `ax` with a logarithmic scale, against "passes" or "seconds"; `name` names the curve."""
        color = BLUE if ax is None else None
        ax = self._use(ax)
        marks = "o-" if len(self.gap) <= 40 else "-"
        (self.line_,) = ax.plot(getattr(self, against), self.gap, marks, color=color, ms=4, label=name)
        ax.set(yscale="log", xlabel=AGAINST[against], ylabel="relative certified gap")
        said = f"tol = {self.tol:g}" if self.tol is not None else ""
        if self.tol is not None and said not in [text.get_text() for text in ax.texts]:
            ax.axhline(self.tol, color=GREY, linestyle="--", linewidth=1)
            # Curves come from the upper left, so the lower left is free.
            style: dict[str, Any] = {"ha": "left", "va": "bottom", "fontsize": 9, "color": "#555555"}
            ax.annotate(said, (0.01, self.tol), xycoords=("axes fraction", "data"), **style)
        if name is not None:
            verbatim_legend(ax)
        ax.grid(True, which="major", alpha=0.3)
        return self
