"""Curves: the progress of a fit, the residual of a basis, and accuracy against confidence.

The first k columns of the features F are the features of the first k landmarks, so one F gives all residuals:

    residual(k) = tr(K - F F') / tr K = 1 - sum_{j <= k} |F_j|^2 / tr K.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
from sklearn.utils.validation import check_is_fitted

from kernelcrf.arrays import Array, UserData
from kernelcrf.basis.distinct import distinct
from kernelcrf.basis.features import WhitenedMap
from kernelcrf.engines.local import LocalEngine
from kernelcrf.metrics import Reliability, reliability
from kernelcrf.plotting.axes import BLUE, GREY, Display, Estimator, MaybeAxes
from kernelcrf.readers.containers import read_labels, read_list
from kernelcrf.validation import either, one_of, validated

if TYPE_CHECKING:
    from matplotlib.axes import Axes

AGAINST = {"passes": "passes over the data", "seconds": "seconds"}


class CurveDisplay(Display):
    """Base class of curves; several curves may be drawn on the same axes. `line_` is matplotlib's line."""

    line_: Any

    def _draw(self, ax: MaybeAxes, x: Array, y: Array, marks: str, label: str | None) -> Axes:
        color = BLUE if ax is None else None
        ax = self._use(ax)
        (self.line_,) = ax.plot(x, y, marks, color=color, markersize=4, label=label)
        return ax

    def _add_legend(self, **options: Any) -> None:
        """Add a legend in which names with "$" are not read as formulas."""
        for text in self.ax_.legend(**options).get_texts():
            text.set_parse_math(False)


class GapDisplay(CurveDisplay):
    """Plot of the certified `gap` (n_iter + 1,) against `passes` or `seconds`, with the tolerance `tol` of the fit.

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
            raise ValueError(f"gap has shape {self.gap.shape}: expected (n,), the same as for passes and seconds")
        self.tol = tol

    @classmethod
    def from_estimator(
        cls, estimator: Estimator, *, against: str = "passes", name: str | None = None, ax: MaybeAxes = None
    ) -> GapDisplay:
        """Draw the gap of a fitted ChainCRF; if labels were missing, the gap is a measure of stationarity."""
        check_is_fitted(estimator)
        gap, passes, seconds = estimator.gap_curve_.T
        return cls(gap, passes, seconds, estimator.tol).plot(ax, against=against, name=name)

    @validated(against=either(one_of(*AGAINST)))
    def plot(self, ax: MaybeAxes = None, *, against: str = "passes", name: str | None = None) -> GapDisplay:
        """Draw on `ax`, on a logarithmic scale, against "passes" or "seconds"; the legend shows `name`."""
        ax = self._draw(ax, getattr(self, against), self.gap, "o-" if len(self.gap) <= 40 else "-", name)
        ax.set(yscale="log", xlabel=AGAINST[against], ylabel="relative certified gap")
        said = f"tol = {self.tol:g}" if self.tol is not None else ""
        if self.tol is not None and said not in [text.get_text() for text in ax.texts]:
            ax.axhline(self.tol, color=GREY, linestyle="--", linewidth=1)
            # Curves come from the upper left, so the lower left is free.
            style: dict[str, Any] = {"ha": "left", "va": "bottom", "fontsize": 9, "color": "#555555"}
            ax.annotate(said, (0.01, self.tol), xycoords=("axes fraction", "data"), **style)
        if name is not None:
            self._add_legend()
        ax.grid(True, which="major", alpha=0.3)
        return self


class ResidualDisplay(CurveDisplay):
    """Plot of `residual` (n + 1,), the share of the trace of K that 0, ..., n landmarks do not explain.

    Examples
    --------
    >>> from kernelcrf import ChainCRF
    >>> from kernelcrf.datasets import make_sequences
    >>> from kernelcrf.plotting import ResidualDisplay
    >>> data = make_sequences(20, random_state=0)
    >>> crf = ChainCRF(n_components=30, random_state=0).fit(data.X, data.y)
    >>> display = ResidualDisplay.from_estimator(crf, data.X)
    >>> display.residual.shape, bool(display.residual[-1] < 0.01)
    ((31,), True)
    """

    def __init__(self, residual: npt.ArrayLike) -> None:
        self.residual = np.asarray(residual, np.float64)
        if self.residual.ndim != 1 or self.residual.size < 2:
            raise ValueError(f"residual has shape {self.residual.shape}: expected (n + 1,), for 0 to n landmarks")

    @classmethod
    def from_estimator(
        cls, estimator: Estimator, X: UserData, *, name: str | None = None, ax: MaybeAxes = None
    ) -> ResidualDisplay:
        """Draw the residual of the landmarks of a fitted ChainCRF, computed on the distinct tokens of X."""
        check_is_fitted(estimator)
        if not isinstance(estimator.model_.map, WhitenedMap):
            raise ValueError("kernel='linear' has no landmarks: fit a model with a basis, such as kernel='rbf'")
        inputs = distinct(estimator.model_.reader.read(X)[0]).inputs
        F = estimator.model_.map.transform(inputs, LocalEngine(estimator.n_jobs))
        trace = float(np.asarray(estimator.kernel_.diagonal(inputs), np.float64).sum())
        kept = np.cumsum(np.einsum("un,un->n", F, F, dtype=np.float64))
        return cls(np.maximum(1 - np.concatenate(([0.0], kept)) / trace, 0)).plot(ax, name=name)

    def plot(self, ax: MaybeAxes = None, *, name: str | None = None) -> ResidualDisplay:
        """Draw on `ax` with a logarithmic scale; `name` is the label of the curve in the legend."""
        shown = np.where(self.residual > 0, self.residual, np.nan)
        ax = self._draw(ax, np.arange(len(shown)), shown, "-", name)
        ax.set(yscale="log", xlabel="landmarks n", ylabel="relative residual, tr(K − F Fᵀ) / tr K")
        ax.grid(True, which="both", alpha=0.25)
        if name is not None:
            self._add_legend()
        return self


class ReliabilityDisplay(CurveDisplay):
    """Reliability diagram: accuracy against confidence, and the share of tokens in each bin of confidence.

    Examples
    --------
    >>> import numpy as np
    >>> from kernelcrf.plotting import ReliabilityDisplay
    >>> proba = [np.array([[0.9, 0.1], [0.6, 0.4], [0.2, 0.8]])]
    >>> display = ReliabilityDisplay.from_predictions([["a", "b", "b"]], proba, ["a", "b"], n_bins=5)
    >>> round(display.bins.error, 2)
    0.3
    """

    def __init__(self, bins: Reliability) -> None:
        self.bins = bins

    @classmethod
    def from_estimator(
        cls,
        estimator: Estimator,
        X: UserData,
        y: UserData,
        *,
        n_bins: int = 15,
        name: str | None = None,
        ax: MaybeAxes = None,
    ) -> ReliabilityDisplay:
        """Draw the reliability of a fitted ChainCRF on labelled sequences; ignore labels that it does not know."""
        known = set(estimator.classes_.tolist())
        rows = enumerate(read_list(y, "y", "a list of label sequences, one for each of X"))
        seen = [[label if label in known else None for label in read_labels(own, f"y[{i}]")] for i, own in rows]
        proba, classes = estimator.predict_proba(X), estimator.classes_.tolist()
        return cls.from_predictions(seen, proba, classes, n_bins=n_bins, name=name, ax=ax)

    @classmethod
    def from_predictions(
        cls,
        y_true: UserData,
        y_proba: UserData,
        classes: Sequence[object],
        *,
        n_bins: int = 15,
        name: str | None = None,
        ax: MaybeAxes = None,
    ) -> ReliabilityDisplay:
        """Draw the reliability of predicted probabilities, one array (T_i, L) per sequence."""
        return cls(reliability(y_true, y_proba, classes, n_bins=n_bins)).plot(ax, name=name)

    def plot(self, ax: MaybeAxes = None, *, name: str | None = None) -> ReliabilityDisplay:
        """Draw on `ax`; `name` is the label of the curve in the legend."""
        fresh, bins, n = ax is None, self.bins, len(self.bins.weight)
        filled = bins.weight > 0
        label = f"{name + ': ' if name else ''}calibration error {bins.error:.3f}"
        ax = self._draw(ax, bins.confidence[filled], bins.accuracy[filled], "o-", label)
        ax.plot([0, 1], [0, 1], "--", color=GREY, linewidth=1)
        bars = "share of tokens" if fresh or not ax.patches else None
        share, middles = bins.weight / bins.weight.sum(), (np.arange(n) + 0.5) / n
        ax.bar(middles, share, width=0.9 / n, color=self.line_.get_color(), alpha=0.25, label=bars)
        ax.set(xlim=(0, 1), ylim=(0, 1.02), xlabel="confidence", ylabel="accuracy")
        self._add_legend(loc="upper left" if fresh else "best")
        return self
