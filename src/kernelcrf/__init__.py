"""Conditional random fields with kernels, after Altun, Smola and Hofmann (UAI 2004)."""

from importlib.metadata import version

from kernelcrf.estimators.chain import ChainCRF
from kernelcrf.estimators.loading import load
from kernelcrf.persistence import ModelFileError

__version__ = version("kernelcrf")

__all__ = ["ChainCRF", "ModelFileError", "__version__", "load"]
