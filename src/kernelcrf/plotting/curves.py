"""Plot three kinds of curves: the progress of a fit, the error of a kernel approximation, and calibration.

A model with landmarks approximates the kernel matrix K by F F', where the column F_j of F belongs to landmark j. The
residual of the first k landmarks is the fraction of the trace of K that these landmarks do not explain:

    residual(k) = 1 - sum_{j <= k} |F_j|^2 / tr K.
"""

from __future__ import annotations

from collections.abc import Sequence
from copy import copy
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
from sklearn.utils.validation import check_is_fitted

from kernelcrf.arrays import Array, UserData
from kernelcrf.basis.distinct_inputs import distinct
from kernelcrf.basis.features import WhitenedMap
from kernelcrf.engines.local import LocalEngine
from kernelcrf.metrics import Reliability, reliability, span_reliability
from kernelcrf.plotting.axes import BLUE, GREY, Display, Estimator, MaybeAxes
from kernelcrf.readers.containers import read_labels, read_list
from kernelcrf.validation import either, one_of, validated

if TYPE_CHECKING:
    from matplotlib.axes import Axes

AGAINST = {"passes": "passes over the data", "seconds": "seconds"}


class CurveDisplay(Display):
    """Base class of displays that draw one curve; `line_` is the matplotlib line of the curve."""

    line_: Any

    def _draw(self, ax: MaybeAxes, x: Array, y: Array, marks: str, label: str | None) -> Axes:
        color = BLUE if ax is None else None
        ax = self._use(ax)
        (self.line_,) = ax.plot(x, y, marks, color=color, markersize=4, label=label)
        return ax

    def _add_legend(self, **options: Any) -> None:
        """Add a legend that shows names unchanged; by default, matplotlib reads text between "$" as a formula."""
        for text in self.ax_.legend(**options).get_texts():
            text.set_parse_math(False)


class GapDisplay(CurveDisplay):
    """Plot of the progress of a fit: the relative gap against passes over the data, or against seconds.

    The gap is a bound on the difference between the objective and its minimum.

    gap, passes, seconds : one entry for the start of the fit, and one entry per iteration.
    tol : the tolerance of the fit, which is drawn as a horizontal line; None draws no line.
    measure : the name of the plotted quantity, for the label of the vertical axis.

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
        self,
        gap: npt.ArrayLike,
        passes: npt.ArrayLike,
        seconds: npt.ArrayLike,
        tol: float | None = None,
        measure: str = "certified gap",
    ) -> None:
        self.gap, self.passes, self.seconds = (np.asarray(values, np.float64) for values in (gap, passes, seconds))
        if not self.gap.shape == self.passes.shape == self.seconds.shape == (self.gap.size,):
            raise ValueError(
                f"gap, passes and seconds have the shapes {self.gap.shape}, {self.passes.shape} and "
                f"{self.seconds.shape}: expected one-dimensional arrays of equal length"
            )
        self.tol, self.measure = tol, measure

    @classmethod
    def from_estimator(
        cls, estimator: Estimator, *, against: str = "passes", name: str | None = None, ax: MaybeAxes = None
    ) -> GapDisplay:
        """Plot the relative certified gap of a fitted ChainCRF at each iteration of its fit.

        The certified gap is a bound on the difference between the objective and its minimum. If training labels were
        missing, there is no such bound, and the size of the gradient is plotted instead.

        against : the horizontal axis, "passes" (over the data) or "seconds".
        name : the name of the curve in the legend; None draws no legend.
        """
        check_is_fitted(estimator)
        estimator = copy(estimator)
        gap, passes, seconds = estimator.gap_curve_.T
        if not len(gap):
            raise ValueError(
                f"the model has the status {estimator.certificate_.status!r}, so that it has no curve: expected a "
                "model that was fitted by this library; call fit"
            )
        display = cls(gap, passes, seconds, estimator.tol, estimator.certificate_.measure)
        return display.plot(ax, against=against, name=name)

    @validated(against=either(one_of(*AGAINST)))
    def plot(self, ax: MaybeAxes = None, *, against: str = "passes", name: str | None = None) -> GapDisplay:
        """Plot the gap on a logarithmic scale.

        against : the horizontal axis, "passes" (over the data) or "seconds".
        name : the name of the curve in the legend; None draws no legend.
        """
        ax = self._draw(ax, getattr(self, against), self.gap, "o-" if len(self.gap) <= 40 else "-", name)
        ax.set(yscale="log", xlabel=AGAINST[against], ylabel=f"relative {self.measure}")
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
    """Plot of the relative residual against the number of landmarks.

    residual : entry n is the fraction of the trace of the kernel matrix that the first n landmarks do not explain.

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
            raise ValueError(
                f"residual has shape {self.residual.shape}: expected one dimension and at least two entries; entry n "
                "is the residual of the first n landmarks"
            )

    @classmethod
    def from_estimator(
        cls, estimator: Estimator, X: UserData, *, name: str | None = None, ax: MaybeAxes = None
    ) -> ResidualDisplay:
        """Plot the relative residual of a fitted ChainCRF against the number of landmarks.

        The residual is the fraction of the trace of the kernel matrix that the landmarks do not explain. The kernel
        matrix has one row per distinct token of X.
        """
        check_is_fitted(estimator)
        model = estimator.model_
        token_input, *others = model.token_inputs
        if others or token_input.prefix:
            raise ValueError("the model has several inputs: expected a model with one input, fitted without `inputs`")
        if not isinstance(token_input.map, WhitenedMap):
            raise ValueError(
                "the model has no landmarks: pass a model with landmarks, fitted with a kernel such as 'rbf'"
            )
        inputs = distinct(model.reader.read(X)[0]).inputs
        F = token_input.map.transform(inputs, LocalEngine(estimator.n_jobs))
        trace = float(np.asarray(token_input.kernel.diagonal(inputs), np.float64).sum())
        kept = np.cumsum(np.einsum("un,un->n", F, F, dtype=np.float64))
        return cls(np.maximum(1 - np.concatenate(([0.0], kept)) / trace, 0)).plot(ax, name=name)

    def plot(self, ax: MaybeAxes = None, *, name: str | None = None) -> ResidualDisplay:
        """Plot the residual on a logarithmic scale; `name` is the label of the curve in the legend."""
        shown = np.where(self.residual > 0, self.residual, np.nan)
        ax = self._draw(ax, np.arange(len(shown)), shown, "-", name)
        ax.set(yscale="log", xlabel="landmarks n", ylabel="relative residual, tr(K − F Fᵀ) / tr K")
        ax.grid(True, which="both", alpha=0.25)
        if name is not None:
            self._add_legend()
        return self


class ReliabilityDisplay(CurveDisplay):
    """Reliability diagram: accuracy against confidence, with bars for the fraction of tokens or spans in each bin.

    bins : the points of the diagram, as `kernelcrf.metrics.reliability` and `span_reliability` return them.
    of : "tokens" or "spans", for the legend.

    Examples
    --------
    >>> import numpy as np
    >>> from kernelcrf.plotting import ReliabilityDisplay
    >>> proba = [np.array([[0.9, 0.1], [0.6, 0.4], [0.2, 0.8]])]
    >>> display = ReliabilityDisplay.from_predictions([["a", "b", "b"]], proba, ["a", "b"], n_bins=5)
    >>> round(display.bins.error, 2)
    0.3
    """

    def __init__(self, bins: Reliability, of: str = "tokens") -> None:
        self.bins, self.of = bins, of

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
        """Plot the reliability diagram of a fitted ChainCRF; ignore tokens whose label is not a class."""
        estimator = copy(estimator)
        known = set(estimator.classes_.tolist())
        rows = enumerate(read_list(y, "y", "a list of label sequences, one for each of X"))
        seen = [[label if label in known else None for label in read_labels(row, f"y[{i}]")] for i, row in rows]
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
        """Plot the reliability diagram of predicted probabilities.

        y_proba : the predicted probabilities, one array per sequence with one row per token and one column per label.
        classes : the labels of the columns of `y_proba`.
        """
        return cls(reliability(y_true, y_proba, classes, n_bins=n_bins)).plot(ax, name=name)

    @classmethod
    def from_spans(
        cls,
        y_true: UserData,
        y_spans: UserData,
        *,
        scheme: str | None = None,
        n_bins: int = 15,
        name: str | None = None,
        ax: MaybeAxes = None,
    ) -> ReliabilityDisplay:
        """Plot the reliability diagram of predicted spans; `kernelcrf.metrics.span_reliability` has the details.

        y_spans : the predicted spans, as `ChainDistribution.spans` returns them.
        """
        return cls(span_reliability(y_true, y_spans, scheme=scheme, n_bins=n_bins), "spans").plot(ax, name=name)

    def plot(self, ax: MaybeAxes = None, *, name: str | None = None) -> ReliabilityDisplay:
        """Plot the diagram on `ax`; `name` is the label of the curve in the legend."""
        fresh, bins, n = ax is None, self.bins, len(self.bins.weight)
        filled = bins.weight > 0
        label = f"{name + ': ' if name else ''}calibration error {bins.error:.3f}"
        ax = self._draw(ax, bins.confidence[filled], bins.accuracy[filled], "o-", label)
        ax.plot([0, 1], [0, 1], "--", color=GREY, linewidth=1)
        bars = f"share of {self.of}" if fresh or not ax.patches else None
        share, middles = bins.weight / bins.weight.sum(), (np.arange(n) + 0.5) / n
        ax.bar(middles, share, width=0.9 / n, color=self.line_.get_color(), alpha=0.25, label=bars)
        ax.set(xlim=(0, 1), ylim=(0, 1.02), xlabel="confidence", ylabel="accuracy")
        self._add_legend(loc="upper left" if fresh else "best")
        return self
