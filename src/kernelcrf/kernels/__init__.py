"""Kernels of inputs, and kernels of labels.

The score of an input and a label is a function in the space of the product of both kernels (equation 10 of the paper).
"""

from .polynomial import Polynomial

__all__ = ["Polynomial"]
