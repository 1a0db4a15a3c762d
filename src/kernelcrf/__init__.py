"""Conditional random fields with kernels, after Altun, Smola and Hofmann (UAI 2004)."""

from importlib.metadata import version

__version__ = version("kernelcrf")

__all__ = ["__version__"]
