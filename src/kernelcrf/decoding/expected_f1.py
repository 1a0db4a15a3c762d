"""Choose the labels with the highest expected F1 score of spans; `answers.f1_spans` has the formulas."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

from kernelcrf.answers.f1_spans import f1_labels
from kernelcrf.arrays import Array
from kernelcrf.decoding.rule import DecodingRule
from kernelcrf.readers.schemes import SCHEMES
from kernelcrf.readers.spans import are_spans, span_rules
from kernelcrf.validation import either, one_of, shown_list

TAG_SCHEME = either(one_of(*SCHEMES))


@dataclass(frozen=True)
class ExpectedF1(DecodingRule):
    """Choose the labels whose spans have the highest expected F1 score over all samples together.

    A span can be chosen only if its probability is above a threshold, which depends on all samples. So pass a whole
    test set, not one sequence at a time. The labels must be tags such as B-PER.

    Parameters
    ----------
    scheme : str, default="lenient"
        The tagging scheme of the labels, such as "IOB2" or "IOBES". "lenient" reads tags of all schemes as conlleval
        does.

    Examples
    --------
    >>> from kernelcrf import ChainCRF
    >>> from kernelcrf.decoding import ExpectedF1
    >>> sentences = [["the", "dog", "of", "Ann"], ["Bob", "and", "Ann", "Lee"]]
    >>> X = [[{"word": word, "upper": word[0].isupper()} for word in sentence] for sentence in sentences]
    >>> y = [["O", "O", "O", "B-PER"], ["B-PER", "O", "B-PER", "I-PER"]]
    >>> crf = ChainCRF(C=10.0, decoding=ExpectedF1("IOB2")).fit(X, y)
    >>> crf.predict(X)[1].tolist()
    ['B-PER', 'O', 'B-PER', 'I-PER']
    """

    scheme: str = "lenient"

    name: ClassVar[str] = "f1"
    needs: ClassVar[tuple[str, ...]] = ("edge_marginals", "spans")
    pools_samples: ClassVar[bool] = True

    def __post_init__(self) -> None:
        TAG_SCHEME.check("scheme", self.scheme)

    def decode(self, distribution: Any) -> Array:
        """Return the labels with the highest expected F1 score, as indices of labels."""
        classes = distribution.classes.tolist()
        if not are_spans(classes):
            raise ValueError(
                f"decoding='f1' with the labels {shown_list(classes)}: expected tags of spans, such as O, B-PER and "
                "I-PER. Use decoding='viterbi' or 'marginal' instead"
            )
        return f1_labels(distribution.field, span_rules(classes, self.scheme))
