"""Choose the likeliest label of each token, argmax_j p(y_t = j | x)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from kernelcrf.arrays import Array
from kernelcrf.decoding.rule import DecodingRule


@dataclass(frozen=True)
class Marginal(DecodingRule):
    """Choose the likeliest label of each token, node or row, which maximises the expected number of right labels.

    For label sets, choose each label whose probability is above 1/2, which minimises the expected Hamming loss.

    Examples
    --------
    >>> from kernelcrf import ChainCRF
    >>> from kernelcrf.datasets import make_sequences
    >>> from kernelcrf.decoding import Marginal
    >>> data = make_sequences(30, random_state=0)
    >>> crf = ChainCRF(C=10.0, n_components=50, decoding=Marginal(), random_state=0).fit(data.X, data.y)
    >>> crf.predict(data.X)[0].tolist() == crf.predict_proba(data.X)[0].argmax(axis=1).tolist()
    True
    """

    name: ClassVar[str] = "marginal"

    def decode(self, distribution: Any) -> Array:
        """Return the likeliest label of each token, as indices of labels."""
        return np.asarray(distribution.probabilities.argmax(axis=-1))
