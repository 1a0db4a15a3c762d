"""Plots of models and their predictions, with the interface of scikit-learn's displays.

A display stores numbers. `from_estimator` and `from_predictions` compute and draw them; `plot` draws them on `ax` or on
a new figure, and sets `ax_` and `figure_`. Colour-blind readers can tell the colours apart, and no meaning depends on
colour alone.
"""

from kernelcrf.plotting.curves import GapDisplay, ReliabilityDisplay, ResidualDisplay
from kernelcrf.plotting.marginals import MarginalsDisplay
from kernelcrf.plotting.matrices import ConfusionDisplay, LabelGraphDisplay, TransitionsDisplay

__all__ = [
    "ConfusionDisplay",
    "GapDisplay",
    "LabelGraphDisplay",
    "MarginalsDisplay",
    "ReliabilityDisplay",
    "ResidualDisplay",
    "TransitionsDisplay",
]
