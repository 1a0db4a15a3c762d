"""A reliability diagram: accuracy against confidence, and how often each confidence occurs."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from kernelcrf.arrays import UserData
from kernelcrf.metrics import Reliability, reliability
from kernelcrf.plotting.axes import BLUE, GREY, Display, Estimator, MaybeAxes, verbatim_legend
from kernelcrf.readers.containers import read_labels, read_list


class ReliabilityDisplay(Display):
    """The bins of `kernelcrf.metrics.reliability`.

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
        """Draw the reliability of a fitted ChainCRF on labelled sequences; labels unknown to it are left out."""
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
        """Draw the reliability of probabilities (T_i, L) of several sequences."""
        return cls(reliability(y_true, y_proba, classes, n_bins=n_bins)).plot(ax, name=name)

    def plot(self, ax: MaybeAxes = None, *, name: str | None = None) -> ReliabilityDisplay:
        """Draw on `ax`; `name` names the curve."""
        fresh = ax is None
        ax = self._use(ax)
        bins, n = self.bins, len(self.bins.weight)
        share = bins.weight / bins.weight.sum()
        edges = (np.arange(n) + 0.5) / n
        ax.plot([0, 1], [0, 1], "--", color=GREY, linewidth=1)
        filled = bins.weight > 0
        label = f"{name + ': ' if name else ''}calibration error {bins.error:.3f}"
        color = BLUE if fresh else None
        (self.line_,) = ax.plot(
            bins.confidence[filled], bins.accuracy[filled], "o-", color=color, markersize=5, label=label
        )
        bars = "share of tokens" if fresh or not ax.patches else None
        ax.bar(edges, share, width=0.9 / n, color=self.line_.get_color(), alpha=0.25, label=bars)
        ax.set(xlim=(0, 1), ylim=(0, 1.02), xlabel="confidence", ylabel="accuracy")
        verbatim_legend(ax, loc="upper left" if fresh else "best")
        return self
