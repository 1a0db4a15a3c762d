"""Prepare the tokens of sequences with transformers of scikit-learn, which work on tables with one row per sample."""

from kernelcrf.preprocessing.per_token import PerToken

__all__ = ["PerToken"]
