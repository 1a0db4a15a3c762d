"""Choose the likeliest label of each token, or the likeliest labelling, whichever suits the data."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

from kernelcrf.arrays import Array
from kernelcrf.decoding.marginal import Marginal
from kernelcrf.decoding.rule import DecodingRule
from kernelcrf.decoding.viterbi import Viterbi


@dataclass(frozen=True)
class Auto(DecodingRule):
    """Choose the likeliest label of each token for arrays and data frames, and the likeliest labelling otherwise.

    The likeliest label of each token is right most often. If the inputs say little about the labels, the likeliest
    labelling can have far fewer right labels. But tags of spans, and labels with constraints, must fit together: for
    them, as for feature dicts and sparse inputs, the rule chooses the likeliest labelling, as CRFsuite does.

    Examples
    --------
    >>> from kernelcrf import ChainCRF
    >>> from kernelcrf.datasets import make_sequences
    >>> from kernelcrf.decoding import Auto
    >>> data = make_sequences(30, random_state=0)
    >>> crf = ChainCRF(C=10.0, n_components=50, random_state=0).fit(data.X, data.y)
    >>> distribution = crf.distribution(data.X)
    >>> all((a == b).all() for a, b in zip(distribution.decode(Auto()), distribution.decode("marginal")))
    True
    """

    name: ClassVar[str] = "auto"
    needs: ClassVar[tuple[str, ...]] = ("best", "probabilities", "scores_tokens_alone")

    def decode(self, distribution: Any) -> Array:
        """Return the chosen labels, as indices of labels."""
        rule: DecodingRule = Marginal() if distribution.scores_tokens_alone else Viterbi()
        return rule.decode(distribution)
