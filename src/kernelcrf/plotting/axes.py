"""Define the base class of all displays, their colours, and the tick labels of matrices."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

if TYPE_CHECKING:
    from matplotlib.axes import Axes

# A scikit-learn estimator; its fitted attributes have no static type. A display that reads several of them copies the
# estimator first: if another thread fits the original again, the copy keeps its model.
Estimator: TypeAlias = Any
MaybeAxes: TypeAlias = "Axes | None"

# Okabe and Ito's colours, which colour-blind readers can tell apart.
BLUE, VERMILION, GREY = "#0072B2", "#D55E00", "#767676"
DIVERGING, SEQUENTIAL = "RdBu_r", "Blues"


class Display:
    """Base class of displays; a subclass stores the numbers of a plot, and has a method `plot` that draws them."""

    ax_: Axes
    figure_: Any

    def _use(self, ax: MaybeAxes, size: tuple[float, float] | None = None) -> Axes:
        """Set `ax_` and `figure_`; return `ax`, or the axes of a new figure if `ax` is None.

        A new figure is at least as large as `size` (width and height in inches) and matplotlib's default size.
        """
        if ax is None:
            try:
                import matplotlib.pyplot as plt
            except ImportError:
                raise ImportError(
                    "plots need matplotlib, which is not installed: pip install 'kernelcrf[plot]'"
                ) from None
            usual = plt.rcParams["figure.figsize"]
            larger = [max(a, b) for a, b in zip(usual, size or usual, strict=True)]
            ax = plt.subplots(figsize=tuple(larger), layout="constrained")[1]
        self.ax_, self.figure_ = ax, ax.figure
        return ax


def _font_size(n: int, inches: float) -> float:
    """Return the font size in points, from 4 to 10, with which n lines of text fit into a height of `inches`."""
    return float(np.clip(72 * inches / max(n, 1) * 0.8, 4.0, 10.0))


def matrix_ticks(ax: Axes, rows: Sequence[str], columns: Sequence[str]) -> None:
    """Label the rows and columns of a matrix; rotate the column labels if they do not fit side by side."""
    box = ax.get_window_extent().transformed(ax.figure.dpi_scale_trans.inverted())
    across = _font_size(len(columns), box.width)
    upright = max(map(len, columns), default=0) * 0.65 * across > 72 * box.width / max(len(columns), 1)
    ax.set_yticks(range(len(rows)), rows, fontsize=_font_size(len(rows), box.height), parse_math=False)
    ax.set_xticks(range(len(columns)), columns, fontsize=across, rotation=90 if upright else 0, parse_math=False)
