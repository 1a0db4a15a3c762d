"""Labels as the nodes of a graph, with the strongest weights between them as arrows."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
from sklearn.utils.validation import check_is_fitted

from kernelcrf.arrays import Floats
from kernelcrf.plotting.axes import BLUE, VERMILION, Display, Estimator, MaybeAxes
from kernelcrf.validation import either, validated, whole

EDGES = 30


class LabelGraphDisplay(Display):
    """The `weights` (L, L), [from, to], between `labels`; a symmetric matrix has lines, others have arrows.

    Examples
    --------
    >>> from kernelcrf.plotting import LabelGraphDisplay
    >>> display = LabelGraphDisplay([[0, 2], [-1, 0]], ["a", "b"]).plot()
    >>> len(display.ax_.patches) > 0, display.labels
    (True, ['a', 'b'])
    """

    def __init__(self, weights: npt.ArrayLike, labels: Sequence[object]) -> None:
        self.weights, self.labels = np.asarray(weights, np.float64), list(map(str, labels))
        L = len(self.labels)
        if self.weights.shape != (L, L) or not np.isfinite(self.weights).all():
            raise ValueError(f"weights has shape {self.weights.shape}: expected ({L}, {L}), finite numbers")

    @classmethod
    def from_estimator(
        cls, estimator: Estimator, *, labels: Sequence[object] | None = None, n_edges: int = EDGES, ax: MaybeAxes = None
    ) -> LabelGraphDisplay:
        """Draw the transitions of a ChainCRF, the edges of a GraphCRF, or the interactions of a MultiLabelCRF.

        labels : names to show; None takes the classes.
        """
        check_is_fitted(estimator)
        names = estimator.classes_ if labels is None else labels
        return cls(_weights_of(estimator), names).plot(ax, n_edges=n_edges)

    @validated(n_edges=either(whole(least=0)))
    def plot(self, ax: MaybeAxes = None, *, n_edges: int = EDGES) -> LabelGraphDisplay:
        """Draw the `n_edges` strongest weights on `ax`: solid and blue above zero, dashed and orange below."""
        from matplotlib.lines import Line2D
        from matplotlib.patches import Circle, FancyArrowPatch

        L = len(self.labels)
        ax = self._use(ax, (6.4, 5.6))
        angles = np.pi / 2 - 2 * np.pi * np.arange(L) / L
        places = np.column_stack((np.cos(angles), np.sin(angles)))
        symmetric = np.allclose(self.weights, self.weights.T)
        size = np.triu(np.abs(self.weights)) if symmetric else np.abs(self.weights)
        order = [edge for edge in np.argsort(-size, axis=None, kind="stable")[:n_edges] if size.flat[edge] > 0]
        most = size.max() if order else 1.0
        radius = 0.05
        for edge in reversed(order):
            i, j = divmod(int(edge), L)
            weight = self.weights[i, j]
            width, alpha = 0.5 + 3.0 * size[i, j] / most, 0.35 + 0.6 * size[i, j] / most
            style: dict[str, Any] = {"linewidth": width, "alpha": alpha, "zorder": 1}
            style |= {"color": BLUE, "linestyle": "-"} if weight > 0 else {"color": VERMILION, "linestyle": "--"}
            if i == j:
                ax.add_patch(Circle(places[i] * 0.90, 0.07, fill=False, **style))
                continue
            style |= {"shrinkA": 9, "shrinkB": 9, "mutation_scale": 8 + 2 * width}
            arrow, curve = ("-", "arc3") if symmetric else ("-|>", "arc3,rad=0.12")
            ax.add_patch(FancyArrowPatch(places[i], places[j], arrowstyle=arrow, connectionstyle=curve, **style))
        for place, angle, label in zip(places, np.degrees(angles) % 360, self.labels, strict=True):
            ax.add_patch(Circle(place, radius, facecolor="white", edgecolor="black", zorder=2))
            left = 90 < angle < 270
            turned = {"rotation": angle - 180 if left else angle, "rotation_mode": "anchor", "va": "center"}
            kept: dict[str, Any] = {**turned, "fontsize": 9 if L <= 30 else 7, "parse_math": False}
            x, y = place * (1 + 2 * radius)
            ax.text(x, y, label, ha="right" if left else "left", **kept)
        reach = 1.15 + 0.035 * max(map(len, self.labels))
        ax.set(xlim=(-reach, reach), ylim=(-reach, reach), aspect="equal")
        ax.axis("off")
        handles = [
            Line2D([], [], color=BLUE, linestyle="-", linewidth=3.5, label=f"+{most:.2g}"),
            Line2D([], [], color=VERMILION, linestyle="--", linewidth=3.5, label=f"−{most:.2g}"),
        ]
        ax.legend(handles=handles, loc="lower right", frameon=False, title="strongest", handlelength=3)
        return self


def _weights_of(estimator: Estimator) -> Floats:
    """Return the weights (L, L) between the labels of an estimator."""
    if hasattr(estimator, "interactions_"):
        weights = np.zeros((len(estimator.classes_),) * 2)
        i, j = np.asarray(estimator.edges_, np.intp).reshape(-1, 2).T
        weights[i, j] = weights[j, i] = estimator.interactions_
        return weights
    for name in ("transitions_", "edge_potentials_"):
        if getattr(estimator, name, None) is not None:
            return np.asarray(getattr(estimator, name), np.float64)
    raise ValueError(
        f"{type(estimator).__name__} has neither transitions_ nor edge_potentials_ nor interactions_: expected a model "
        "with weights between labels; LabelGraphDisplay(weights, labels) draws any matrix"
    )
