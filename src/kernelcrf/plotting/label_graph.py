"""Labels as the nodes of a graph, with the strongest weights between them as arrows: chains, trees, any matrix."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
from sklearn.utils.validation import check_is_fitted

from kernelcrf.plotting.axes import BLUE, VERMILION, new_axes
from kernelcrf.validation import either, validated, whole

EDGES = 30


class LabelGraphDisplay:
    """`weights` (L, L), [from, to], between `labels`; a symmetric matrix has lines, others arrows.

    Examples
    --------
    >>> from kernelcrf.plotting import LabelGraphDisplay
    >>> display = LabelGraphDisplay([[0, 2], [-1, 0]], ["a", "b"]).plot()
    >>> len(display.ax_.patches) > 0, display.labels
    (True, ['a', 'b'])
    """

    def __init__(self, weights: npt.ArrayLike, labels: Sequence[Any]) -> None:
        self.weights, self.labels = np.asarray(weights, np.float64), list(map(str, labels))
        L = len(self.labels)
        if self.weights.shape != (L, L) or not np.isfinite(self.weights).all():
            raise ValueError(f"weights has shape {self.weights.shape}: expected ({L}, {L}), finite numbers")

    @classmethod
    def from_estimator(
        cls, estimator: Any, *, labels: Sequence[Any] | None = None, n_edges: int = EDGES, ax: Any = None
    ) -> LabelGraphDisplay:
        """Of the transitions of a fitted ChainCRF, the edges of a GraphCRF, or the interactions of a MultiLabelCRF.

        labels : names to show; None takes the classes.
        """
        check_is_fitted(estimator)
        names = estimator.classes_ if labels is None else labels
        return cls(_weights_of(estimator), names).plot(ax, n_edges=n_edges)

    @validated(n_edges=either(whole(least=0)))
    def plot(self, ax: Any = None, *, n_edges: int = EDGES) -> LabelGraphDisplay:
        """Draw the `n_edges` strongest weights on `ax`: solid and blue above zero, dashed and orange below."""
        from matplotlib.lines import Line2D
        from matplotlib.patches import Circle, FancyArrowPatch

        L = len(self.labels)
        self.ax_ = ax = new_axes(ax, (6.4, 5.6))
        self.figure_ = ax.figure
        angles = np.pi / 2 - 2 * np.pi * np.arange(L) / L
        places = np.column_stack((np.cos(angles), np.sin(angles)))
        symmetric = np.allclose(self.weights, self.weights.T)
        size = np.abs(self.weights)
        if symmetric:
            size = np.triu(size)
        order = [edge for edge in np.argsort(-size, axis=None, kind="stable")[:n_edges] if size.flat[edge] > 0]
        most = size.max() if order else 1.0
        radius = 0.05
        for edge in reversed(order):
            i, j = divmod(int(edge), L)
            weight = self.weights[i, j]
            style: dict[str, Any] = {
                "color": BLUE if weight > 0 else VERMILION,
                "linestyle": "-" if weight > 0 else "--",
            }
            width, alpha = 0.5 + 3.0 * size[i, j] / most, 0.35 + 0.6 * size[i, j] / most
            if i == j:
                ax.add_patch(
                    Circle(places[i] * 0.90, 0.07, fill=False, linewidth=width, alpha=alpha, zorder=1, **style)
                )
                continue
            ax.add_patch(
                FancyArrowPatch(
                    places[i],
                    places[j],
                    arrowstyle="-" if symmetric else "-|>",
                    mutation_scale=8 + 2 * width,
                    connectionstyle="arc3,rad=0.12" if not symmetric else "arc3",
                    shrinkA=9,
                    shrinkB=9,
                    linewidth=width,
                    alpha=alpha,
                    zorder=1,
                    **style,
                )
            )
        for place, angle, label in zip(places, np.degrees(angles) % 360, self.labels, strict=True):
            ax.add_patch(Circle(place, radius, facecolor="white", edgecolor="black", zorder=2))
            left = 90 < angle < 270
            ax.text(
                *(place * (1 + 2 * radius)),
                label,
                ha="right" if left else "left",
                va="center",
                rotation=angle - 180 if left else angle,
                rotation_mode="anchor",
                fontsize=9 if L <= 30 else 7,
                parse_math=False,
            )
        reach = 1.15 + 0.035 * max(map(len, self.labels))
        ax.set(xlim=(-reach, reach), ylim=(-reach, reach), aspect="equal")
        ax.axis("off")
        signs: list[tuple[str, Any, str]] = [(BLUE, "-", f"+{most:.2g}"), (VERMILION, "--", f"−{most:.2g}")]
        handles = [
            Line2D([], [], color=color, linestyle=line, linewidth=3.5, label=text) for color, line, text in signs
        ]
        ax.legend(handles=handles, loc="lower right", frameon=False, title="strongest", handlelength=3)
        return self


def _weights_of(estimator: Any) -> npt.NDArray[np.float64]:
    """(L, L) weights between the labels of an estimator."""
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
        "with weights between labels; LabelGraphDisplay(weights, labels) takes any matrix"
    )
