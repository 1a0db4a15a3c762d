"""The base of all displays: axes to draw on, colours, and ticks that stay legible."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

from kernelcrf.arrays import Array

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.image import AxesImage

# An estimator of scikit-learn's kind, whose fitted attributes have no static type.
Estimator: TypeAlias = Any
MaybeAxes: TypeAlias = "Axes | None"

# Okabe and Ito's colours, which colour-blind readers can tell apart.
BLUE, VERMILION, GREY = "#0072B2", "#D55E00", "#767676"
DIVERGING, SEQUENTIAL = "RdBu_r", "Blues"
WRITTEN_UP_TO = 12
INCHES_PER_LABEL = 0.24


class Display:
    """A picture of some numbers. `plot` draws it and sets `ax_` and `figure_`."""

    ax_: Axes
    figure_: Any

    def _use(self, ax: MaybeAxes, size: tuple[float, float] | None = None) -> Axes:
        """Return `ax`, or the axes of a new figure of matplotlib's own size or larger."""
        if ax is None:
            try:
                import matplotlib.pyplot as plt
            except ImportError:
                raise ImportError(
                    "pictures need matplotlib, which is not installed: pip install 'kernelcrf[plot]'"
                ) from None
            usual = plt.rcParams["figure.figsize"]
            larger = [max(a, b) for a, b in zip(usual, size or usual, strict=True)]
            ax = plt.subplots(figsize=tuple(larger), layout="constrained")[1]
        self.ax_, self.figure_ = ax, ax.figure
        return ax


class MatrixDisplay(Display):
    """A picture of a matrix with a row and a column per label."""

    im_: AxesImage
    labels: list[str]

    def _draw(
        self, ax: MaybeAxes, values: Array, texts: list[list[str]], names: tuple[str, str, str], **colours: Any
    ) -> Axes:
        """Draw the matrix with texts in its cells if they are few; `names` are those of colours, rows and columns."""
        side = INCHES_PER_LABEL * len(self.labels) + 1.8
        ax = self._use(ax, (side + 1.0, side))
        ticks = colours.pop("ticks", None)
        self.im_ = ax.imshow(values, **colours)
        self.figure_.colorbar(self.im_, ax=ax, label=names[0], ticks=ticks)
        matrix_ticks(ax, self.labels, self.labels)
        ax.set(xlabel=names[2], ylabel=names[1])
        if len(self.labels) <= WRITTEN_UP_TO:
            _write_cells(ax, self.im_, np.nan_to_num(values), texts)
        return ax


def _font_size(n: int, inches: float) -> float:
    """Return the points of n texts in a row, so that they do not touch."""
    return float(np.clip(72 * inches / max(n, 1) * 0.8, 4.0, 10.0))


def matrix_ticks(ax: Axes, rows: Sequence[str], columns: Sequence[str]) -> None:
    """Name rows and columns; the names of columns are upright if they would not fit side by side."""
    box = ax.get_window_extent().transformed(ax.figure.dpi_scale_trans.inverted())
    across = _font_size(len(columns), box.width)
    upright = max(map(len, columns), default=0) * 0.65 * across > 72 * box.width / max(len(columns), 1)
    ax.set_yticks(range(len(rows)), rows, fontsize=_font_size(len(rows), box.height), parse_math=False)
    ax.set_xticks(range(len(columns)), columns, fontsize=across, rotation=90 if upright else 0, parse_math=False)


def verbatim_legend(ax: Axes, **options: Any) -> None:
    """Add a legend that shows names unchanged: "$" begins no formula."""
    for text in ax.legend(**options).get_texts():
        text.set_parse_math(False)


def _write_cells(ax: Axes, image: AxesImage, values: Array, texts: Sequence[Sequence[str]]) -> None:
    """Write a text in each cell of an image, dark on light and light on dark."""
    size = min(9.0, 72 * ax.get_window_extent().width / ax.figure.dpi / values.shape[1] / 4)
    for i, row in enumerate(texts):
        for j, text in enumerate(row):
            r, g, b, _ = image.cmap(image.norm(values[i, j]))
            dark = 0.299 * r + 0.587 * g + 0.114 * b < 0.55
            ax.text(j, i, text, ha="center", va="center", fontsize=size, color="white" if dark else "black")
