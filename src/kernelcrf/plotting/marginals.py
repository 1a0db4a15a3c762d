"""Plot of the probabilities p(y_t = label | x) along one sequence, with the true labels marked."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from kernelcrf.arrays import UserData
from kernelcrf.plotting.axes import SEQUENTIAL, VERMILION, Display, Estimator, MaybeAxes, matrix_ticks
from kernelcrf.readers.containers import read_labels

LEGIBLE = 60


class MarginalsDisplay(Display):
    """Heatmap of the probabilities `proba` (T, L) of one sequence; `y_true` may have None for missing labels.

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
                f"proba has shape {self.proba.shape}: expected (T, {len(self.classes)}), one column per class; "
                "use predict_proba(X)[i] for sequence i"
            )
        y_true = None if y_true is None else read_labels(y_true, "y_true")
        tokens = None if tokens is None else read_labels(tokens, "tokens", "a list of words")
        for name, given in (("y_true", y_true), ("tokens", tokens)):
            if given is not None and len(given) != len(self.proba):
                raise ValueError(f"{name} has {len(given)} entries and proba has {len(self.proba)}: expected the same")
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
        """Draw the marginals of a fitted ChainCRF for one sequence x."""
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
        """Draw the predicted probabilities (T, L) of one sequence."""
        return cls(proba, classes, y_true, tokens).plot(ax)

    def plot(self, ax: MaybeAxes = None) -> MarginalsDisplay:
        """Draw on `ax`. Circles mark the true labels; a circle is open if another label is more probable."""
        from matplotlib.ticker import MaxNLocator

        T, L = self.proba.shape
        ax = self._use(ax, (0.3 * min(T, LEGIBLE) + 2.0, 0.22 * L + 1.8))
        self.im_ = ax.imshow(self.proba.T, cmap=SEQUENTIAL, vmin=0, vmax=1, aspect="auto", interpolation="none")
        self.figure_.colorbar(self.im_, ax=ax, label="probability")
        words = [str(t) for t in range(T)] if self.tokens is None else [_short(str(word)) for word in self.tokens]
        matrix_ticks(ax, list(map(str, self.classes)), words if T <= LEGIBLE else [])
        if T > LEGIBLE:
            ax.xaxis.set_major_locator(MaxNLocator(integer=True))
        ax.set(xlabel="position" if self.tokens is None or T > LEGIBLE else "", ylabel="label")
        if self.y_true is not None:
            code = {label: j for j, label in enumerate(self.classes)}
            gold = [(t, code[label]) for t, label in enumerate(self.y_true) if label in code]
            best = self.proba.argmax(axis=1)
            for right, face in ((True, VERMILION), (False, "none")):
                places = np.array([(t, j) for t, j in gold if (best[t] == j) == right]).reshape(-1, 2)
                style: dict[str, Any] = {"color": VERMILION, "markerfacecolor": face, "markersize": 5}
                ax.plot(*places.T, "o", label="gold" if right else "gold, not the likeliest", **style)
            ax.legend(loc="lower left", bbox_to_anchor=(0, 1), ncols=2, frameon=False, borderaxespad=0.2)
        return self


def _short(word: str) -> str:
    return word if len(word) <= 14 else word[:13] + "…"
