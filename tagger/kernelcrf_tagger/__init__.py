"""Labels, probabilities and spans from the files of kernelcrf, with NumPy and safetensors alone."""

from .persistence.error import ModelFileError
from .tagger.tagger import TaggedSpan, Tagger

__all__ = ["ModelFileError", "TaggedSpan", "Tagger"]
