"""Pictures of models and of what they say, in the way of scikit-learn's displays.

A display holds the numbers, `from_estimator` and `from_predictions` make them, `plot` draws them on `ax` or on a new
figure and keeps `ax_` and `figure_`. Colours are told apart by the colour-blind, and never carry meaning alone.
"""

from kernelcrf.plotting.confusion import ConfusionDisplay
from kernelcrf.plotting.gap import GapDisplay
from kernelcrf.plotting.label_graph import LabelGraphDisplay
from kernelcrf.plotting.marginals import MarginalsDisplay
from kernelcrf.plotting.reliability import ReliabilityDisplay
from kernelcrf.plotting.residual import ResidualDisplay
from kernelcrf.plotting.transitions import TransitionsDisplay

__all__ = [
    "ConfusionDisplay",
    "GapDisplay",
    "LabelGraphDisplay",
    "MarginalsDisplay",
    "ReliabilityDisplay",
    "ResidualDisplay",
    "TransitionsDisplay",
]
