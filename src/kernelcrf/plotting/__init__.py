"""Plot models and their predictions, with the interface of scikit-learn's displays.

A display object stores the numbers of a plot. The class methods `from_estimator` and `from_predictions` compute the
numbers and plot them. `plot` draws on the matplotlib axes `ax`, or on a new figure if `ax` is None, and sets the
attributes `ax_` and `figure_`. Colour-blind readers can distinguish the colours; no meaning depends on colour alone.
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
