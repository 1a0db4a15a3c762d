"""What a model thinks along one sequence: p(y_t = label | x), labels by positions, gold marked."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from kernelcrf.estimators.containers import read_labels
from kernelcrf.plotting.axes import SEQUENTIAL, VERMILION, matrix_ticks, new_axes

LEGIBLE = 60


class MarginalsDisplay:
    """Probabilities `proba` (T, L) of one sequence; its labels `y_true`, None where one is missing; its words.

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
        classes: Sequence[Any],
        y_true: Sequence[Any] | None = None,
        tokens: Sequence[Any] | None = None,
    ) -> None:
        self.proba, self.classes = np.asarray(proba, np.float64), list(classes)
        if self.proba.ndim != 2 or self.proba.shape[1] != len(self.classes):
            raise ValueError(
                f"proba has shape {self.proba.shape}: expected (T, {len(self.classes)}), a column for each class; "
                "predict_proba(X)[i] is that of one sequence"
            )
        y_true = None if y_true is None else read_labels(y_true, "y_true")
        tokens = None if tokens is None else read_labels(tokens, "tokens", "a list of words")
        for name, given in (("y_true", y_true), ("tokens", tokens)):
            if given is not None and len(given) != len(self.proba):
                raise ValueError(f"{name} has {len(given)} entries and proba {len(self.proba)} rows: expected the same")
        self.y_true, self.tokens = y_true, tokens

    @classmethod
    def from_estimator(
        cls, estimator: Any, x: Any, y_true: Sequence[Any] | None = None, *, tokens: Any = None, ax: Any = None
    ) -> MarginalsDisplay:
        """Of one sequence x, under a fitted ChainCRF."""
        proba = estimator.predict_proba([x])[0]
        return cls(proba, estimator.classes_.tolist(), y_true, tokens).plot(ax)

    @classmethod
    def from_predictions(
        cls,
        proba: npt.ArrayLike,
        classes: Sequence[Any],
        y_true: Sequence[Any] | None = None,
        *,
        tokens: Any = None,
        ax: Any = None,
    ) -> MarginalsDisplay:
        """Of probabilities (T, L) of one sequence."""
        return cls(proba, classes, y_true, tokens).plot(ax)

    def plot(self, ax: Any = None) -> MarginalsDisplay:
        """Draw on `ax`; gold labels are circles, open where the model likes another label better."""
        T, L = self.proba.shape
        self.ax_ = ax = new_axes(ax, (0.3 * min(T, LEGIBLE) + 2.0, 0.22 * L + 1.8))
        self.figure_ = ax.figure
        self.im_ = ax.imshow(self.proba.T, cmap=SEQUENTIAL, vmin=0, vmax=1, aspect="auto", interpolation="none")
        ax.figure.colorbar(self.im_, ax=ax, label="probability")
        words = [str(t) for t in range(T)] if self.tokens is None else [_short(str(word)) for word in self.tokens]
        matrix_ticks(ax, list(map(str, self.classes)), words if T <= LEGIBLE else [])
        if T > LEGIBLE:
            ax.xaxis.set_major_locator(_locator())
        ax.set(xlabel="position" if self.tokens is None or T > LEGIBLE else "", ylabel="label")
        if self.y_true is not None:
            code = {label: j for j, label in enumerate(self.classes)}
            gold = [(t, code[label]) for t, label in enumerate(self.y_true) if label in code]
            best = self.proba.argmax(axis=1)
            for right, face in ((True, VERMILION), (False, "none")):
                places = [(t, j) for t, j in gold if (best[t] == j) == right]
                name = "gold" if right else "gold, not the likeliest"
                ax.plot(
                    [t for t, _ in places],
                    [j for _, j in places],
                    "o",
                    color=VERMILION,
                    markerfacecolor=face,
                    markersize=5,
                    label=name,
                )
            ax.legend(loc="lower left", bbox_to_anchor=(0, 1), ncols=2, frameon=False, borderaxespad=0.2)
        return self


def _short(word: str) -> str:
    return word if len(word) <= 14 else word[:13] + "…"


def _locator() -> Any:
    from matplotlib.ticker import MaxNLocator

    return MaxNLocator(integer=True)
