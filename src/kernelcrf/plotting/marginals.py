"""Plot the probability of each label at each token of one sequence, with marks at the true labels."""

from __future__ import annotations

from collections.abc import Sequence
from copy import copy
from typing import Any

import numpy as np
import numpy.typing as npt

from kernelcrf.arrays import UserData
from kernelcrf.plotting.axes import SEQUENTIAL, VERMILION, Display, Estimator, MaybeAxes, matrix_ticks
from kernelcrf.readers.containers import read_labels

LEGIBLE = 60


class MarginalsDisplay(Display):
    """Heatmap of the label probabilities of one sequence.

    proba : the probabilities, with one row per token and one column per label.
    classes : the labels of the columns of `proba`.
    y_true : the true labels, one per token, with None for missing labels; if y_true is None, no true label is shown.
    tokens : the words of the sequence, which label the axis; None shows positions instead.

    Examples
    --------
    >>> from kernelcrf.plotting import MarginalsDisplay
    >>> proba = [[0.9, 0.1], [0.3, 0.7]]
    >>> display = MarginalsDisplay.from_predictions(proba, ["a", "b"], ["a", "a"], tokens=["so", "it"])
    >>> display.proba.shape
    (2, 2)
    """

    def __init__(
        self,
        proba: npt.ArrayLike,
        classes: Sequence[object],
        y_true: Sequence[object] | None = None,
        tokens: Sequence[object] | None = None,
    ) -> None:
        self.proba, self.classes = np.asarray(proba, np.float64), list(classes)
        if self.proba.ndim != 2 or self.proba.shape[1] != len(self.classes):
            raise ValueError(
                f"proba has shape {self.proba.shape}: expected one row per token and {len(self.classes)} columns, one "
                "per class; pass predict_proba(X)[i] for sequence i"
            )
        y_true = None if y_true is None else read_labels(y_true, "y_true")
        tokens = None if tokens is None else read_labels(tokens, "tokens", "a list of words")
        for name, given in (("y_true", y_true), ("tokens", tokens)):
            if given is not None and len(given) != len(self.proba):
                raise ValueError(
                    f"{name} has {len(given)} entries, but proba has {len(self.proba)} rows: expected one entry per row"
                )
        self.y_true, self.tokens = y_true, tokens

    @classmethod
    def from_estimator(
        cls,
        estimator: Estimator,
        x: UserData,
        y_true: UserData = None,
        *,
        tokens: UserData = None,
        ax: MaybeAxes = None,
    ) -> MarginalsDisplay:
        """Plot the label probabilities of a fitted ChainCRF for one sequence x."""
        estimator = copy(estimator)
        proba = estimator.predict_proba([x])[0]
        return cls(proba, estimator.classes_.tolist(), y_true, tokens).plot(ax)

    @classmethod
    def from_predictions(
        cls,
        proba: npt.ArrayLike,
        classes: Sequence[object],
        y_true: UserData = None,
        *,
        tokens: UserData = None,
        ax: MaybeAxes = None,
    ) -> MarginalsDisplay:
        """Plot the predicted probabilities of one sequence; `proba` has one row per token and one column per class."""
        return cls(proba, classes, y_true, tokens).plot(ax)

    def plot(self, ax: MaybeAxes = None) -> MarginalsDisplay:
        """Plot the heatmap on `ax`, with a circle at the true label of each token.

        The circle is filled if the true label is the most probable label, and open otherwise. In long sequences,
        circles would overlap; lines are drawn instead. A line is longer and black if the true label is not the most
        probable label.
        """
        from matplotlib.ticker import MaxNLocator, ScalarFormatter

        T, L = self.proba.shape
        ax = self._use(ax, (0.3 * min(T, LEGIBLE) + 2.0, 0.22 * L + 1.8))
        self.im_ = ax.imshow(self.proba.T, cmap=SEQUENTIAL, vmin=0, vmax=1, aspect="auto", interpolation="none")
        self.figure_.colorbar(self.im_, ax=ax, label="probability")
        words = [str(t) for t in range(T)] if self.tokens is None else [_short(str(word)) for word in self.tokens]
        matrix_ticks(ax, list(map(str, self.classes)), words if T <= LEGIBLE else [])
        if T > LEGIBLE:
            ax.xaxis.set_major_locator(MaxNLocator(integer=True))
            ax.xaxis.set_major_formatter(ScalarFormatter())
        ax.set(xlabel="position" if self.tokens is None or T > LEGIBLE else "", ylabel="label")
        if self.y_true is not None:
            code = {label: j for j, label in enumerate(self.classes)}
            true = [(t, code[label]) for t, label in enumerate(self.y_true) if label in self.classes]
            best = self.proba.argmax(axis=1)
            for right, face in ((True, VERMILION), (False, "none")):
                places = np.array([(t, j) for t, j in true if (best[t] == j) == right]).reshape(-1, 2)
                style: dict[str, Any] = {"marker": "o", "color": VERMILION, "markerfacecolor": face, "markersize": 5}
                if T > LEGIBLE:
                    style = {"marker": "|", "color": VERMILION if right else "black", "markersize": 6 if right else 14}
                name = "true label" if right else "true label, not the likeliest"
                ax.plot(*places.T, linestyle="none", label=name, **style)
            ax.legend(loc="lower left", bbox_to_anchor=(0, 1), ncols=2, frameon=False, borderaxespad=0.2)
        return self


def _short(word: str) -> str:
    return word if len(word) <= 14 else word[:13] + "…"
