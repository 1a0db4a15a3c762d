"""Choose the likeliest labelling of each sample, argmax_y p(y|x)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

from kernelcrf.arrays import Array
from kernelcrf.decoding.rule import DecodingRule


@dataclass(frozen=True)
class Viterbi(DecodingRule):
    """Choose the likeliest labelling of each sample, which maximises the expected number of samples without a mistake.

    Examples
    --------
    >>> from kernelcrf import ChainCRF
    >>> from kernelcrf.datasets import make_sequences
    >>> from kernelcrf.decoding import Viterbi
    >>> data = make_sequences(30, random_state=0)
    >>> crf = ChainCRF(C=10.0, n_components=50, decoding=Viterbi(), random_state=0).fit(data.X, data.y)
    >>> distribution = crf.distribution(data.X[:1])
    >>> distribution.decode(Viterbi())[0].tolist() == distribution.k_best(1)[0][0][0].tolist()
    True
    """

    name: ClassVar[str] = "viterbi"
    needs: ClassVar[tuple[str, ...]] = ("best",)

    def decode(self, distribution: Any) -> Array:
        """Return the likeliest labelling of each sample, as indices of labels."""
        best: Array = distribution.best
        return best
