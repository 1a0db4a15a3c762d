"""Choose the spans with the smallest expected cost; `answers.expected_costs` has the formulas."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

from kernelcrf.answers.expected_costs import least_cost_spans
from kernelcrf.arrays import Array
from kernelcrf.decoding.rule import DecodingRule
from kernelcrf.readers.schemes import SCHEMES
from kernelcrf.readers.spans import are_spans, span_rules
from kernelcrf.validation import POSITIVE, either, one_of, shown_list

TAG_SCHEME = either(one_of(*SCHEMES))


@dataclass(frozen=True)
class ExpectedSpanCost(DecodingRule):
    """Choose the labels whose spans have the smallest expected cost, if missed spans cost more or less than false ones.

    A span can be chosen only if its probability is above false / (missed + false). If both cost the same, this is 1/2.
    A span with a wrong label or a wrong boundary is a false span, and the true span is missed. The labels must be tags
    such as B-PER.

    Parameters
    ----------
    missed : float, default=1.0
        The cost of a true span that is not predicted.
    false : float, default=1.0
        The cost of a predicted span that is not true.
    scheme : str, default="lenient"
        The tagging scheme of the labels, as in `ExpectedF1`.

    Examples
    --------
    >>> from kernelcrf import ChainCRF
    >>> from kernelcrf.decoding import ExpectedSpanCost
    >>> sentences = [["the", "dog", "of", "Ann"], ["Bob", "and", "Ann", "Lee"]]
    >>> X = [[{"word": word, "upper": word[0].isupper()} for word in sentence] for sentence in sentences]
    >>> y = [["O", "O", "O", "B-PER"], ["B-PER", "O", "B-PER", "I-PER"]]
    >>> crf = ChainCRF(C=10.0, decoding=ExpectedSpanCost(missed=10.0)).fit(X, y)
    >>> crf.predict(X)[1].tolist()
    ['B-PER', 'O', 'B-PER', 'I-PER']
    """

    missed: float = 1.0
    false: float = 1.0
    scheme: str = "lenient"

    name: ClassVar[str] = "span_cost"
    needs: ClassVar[tuple[str, ...]] = ("edge_marginals", "spans")

    def __post_init__(self) -> None:
        for name in ("missed", "false"):
            object.__setattr__(self, name, POSITIVE.check(name, getattr(self, name)))
        TAG_SCHEME.check("scheme", self.scheme)

    def decode(self, distribution: Any) -> Array:
        """Return the labels whose spans have the smallest expected cost, as indices of labels."""
        classes = distribution.classes.tolist()
        if not are_spans(classes):
            raise ValueError(
                f"decoding='span_cost' with the labels {shown_list(classes)}: expected tags of spans, such as O, B-PER "
                "and I-PER. Use a rule for single labels, such as ExpectedCost, instead"
            )
        rules = span_rules(classes, self.scheme)
        return least_cost_spans(distribution.field, rules, self.missed, self.false)
