"""Choose the labels with the highest expected F1 score of spans; `answers.f1_spans` has the formulas."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

from kernelcrf.answers.f1_spans import f1_labels, f1_runs
from kernelcrf.arrays import Array
from kernelcrf.decoding.rule import DecodingRule
from kernelcrf.readers.spans import RUNS, SCHEME, are_spans, span_rules
from kernelcrf.validation import shown_list


@dataclass(frozen=True)
class ExpectedF1(DecodingRule):
    """Choose the labels whose spans have the highest expected F1 score over all samples together.

    A span can be chosen only if its probability is above a threshold, which depends on all samples. So pass a whole
    test set, not one sequence at a time. The labels must be tags such as B-PER, except for scheme="runs".

    Parameters
    ----------
    scheme : str, default="lenient"
        The tagging scheme of the labels, such as "IOB2" or "IOBES". "lenient" reads tags of all schemes as conlleval
        does. "runs" is for labels that are not tags, such as chords or activities: each run of equal labels is a span.

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
    >>> from kernelcrf.datasets import make_sequences
    >>> data = make_sequences(30, random_state=0)
    >>> crf = ChainCRF(C=10.0, n_components=50, decoding=ExpectedF1("runs"), random_state=0).fit(data.X, data.y)
    >>> crf.predict(data.X)[0].tolist()
    [0, 1, 1, 2, 0, 0, 2, 1, 1, 0, 0]
    """

    scheme: str = "lenient"

    name: ClassVar[str] = "f1"
    needs: ClassVar[tuple[str, ...]] = ("edge_marginals", "spans")
    pools_samples: ClassVar[bool] = True

    def __post_init__(self) -> None:
        SCHEME.check("scheme", self.scheme)

    def decode(self, distribution: Any) -> Array:
        """Return the labels with the highest expected F1 score, as indices of labels."""
        classes = distribution.classes.tolist()
        if self.scheme == RUNS:
            return f1_runs(distribution.field, span_rules(classes, RUNS))
        if not are_spans(classes):
            raise ValueError(
                f"decoding='f1' with the labels {shown_list(classes)}: expected tags of spans, such as O, B-PER and "
                "I-PER. Use decoding=ExpectedF1('runs') for runs of equal labels, or 'viterbi' or 'marginal' instead"
            )
        return f1_labels(distribution.field, span_rules(classes, self.scheme))
