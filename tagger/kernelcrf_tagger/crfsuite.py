"""The tagger with the methods of python-crfsuite: use `import kernelcrf_tagger.crfsuite as pycrfsuite`."""

from .tagger.crfsuite import Tagger

__all__ = ["Tagger"]
