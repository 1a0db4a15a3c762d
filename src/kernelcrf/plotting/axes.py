"""Axes to draw on, and what all displays share: colours, and ticks that stay legible."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

# Okabe and Ito's colours, in the order in which they are told apart best.
BLUE, ORANGE, GREEN, VERMILION, PURPLE, GREY = "#0072B2", "#E69F00", "#009E73", "#D55E00", "#CC79A7", "#767676"
DIVERGING, SEQUENTIAL = "RdBu_r", "Blues"
WRITTEN_UP_TO = 12
INCH_A_LABEL = 0.24


def new_axes(ax: Any, size: tuple[float, float] | None = None) -> Any:
    """`ax`, or the axes of a new figure, of matplotlib's own size or larger."""
    if ax is not None:
        return ax
    try:
        import matplotlib.pyplot as plt
    except ImportError:
        raise ImportError("pictures need matplotlib, which is not installed: pip install 'kernelcrf[plot]'") from None
    usual = plt.rcParams["figure.figsize"]
    if size is not None:
        usual = [max(a, b) for a, b in zip(usual, size, strict=True)]
    return plt.subplots(figsize=usual, layout="constrained")[1]


def square_size(n: int) -> tuple[float, float]:
    """Inches of a figure with n labels on both axes."""
    side = INCH_A_LABEL * n + 1.8
    return side + 1.0, side


def font_size(n: int, inches: float) -> float:
    """Points of n texts in a row, so that they do not touch."""
    return float(np.clip(72 * inches / max(n, 1) * 0.8, 4.0, 10.0))


def matrix_ticks(ax: Any, rows: Sequence[str], columns: Sequence[str]) -> None:
    """The names of rows and columns; those of columns upright where they would not fit side by side."""
    box = ax.get_window_extent().transformed(ax.figure.dpi_scale_trans.inverted())
    across = font_size(len(columns), box.width)
    upright = max(map(len, columns), default=0) * 0.65 * across > 72 * box.width / max(len(columns), 1)
    ax.set_yticks(range(len(rows)), rows, fontsize=font_size(len(rows), box.height), parse_math=False)
    ax.set_xticks(range(len(columns)), columns, fontsize=across, rotation=90 if upright else 0, parse_math=False)


def verbatim_legend(ax: Any, **options: Any) -> None:
    """Add a legend whose names are shown as they are: "$" begins no formula in what users call their models."""
    for text in ax.legend(**options).get_texts():
        text.set_parse_math(False)


def write_cells(ax: Any, image: Any, values: npt.NDArray[Any], texts: Sequence[Sequence[str]]) -> None:
    """A text in each cell of an image, dark on light and light on dark."""
    size = min(9.0, 72 * ax.get_window_extent().width / ax.figure.dpi / values.shape[1] / 4)
    for i, row in enumerate(texts):
        for j, text in enumerate(row):
            r, g, b, _ = image.cmap(image.norm(values[i, j]))
            dark = 0.299 * r + 0.587 * g + 0.114 * b < 0.55
            ax.text(j, i, text, ha="center", va="center", fontsize=size, color="white" if dark else "black")
