"""Read spans that users pass, and return those that a model predicts; `span_probabilities` has the formulas."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np

from kernelcrf.answers.certified_labels import CertifiedLabels
from kernelcrf.answers.span_probabilities import SpanTable
from kernelcrf.arrays import Array, Flags, Floats, UserData
from kernelcrf.models.chain_field import ChainField
from kernelcrf.readers.containers import read_labels, read_list
from kernelcrf.readers.missing_labels import missing_among
from kernelcrf.readers.schemes import SCHEMES
from kernelcrf.readers.spans import SCHEME, SpanRules, scheme_of, spans
from kernelcrf.validation import either, is_whole, nothing, real, shown, whole

SPAN_SCHEME = either(*SCHEME.constraints, nothing)
THRESHOLD = either(real(least=0.0, most=1.0), nothing)
N_BEST = either(whole(least=1), nothing)


class PredictedSpan(NamedTuple):
    """A span with its label and its probability; its tokens are those from `start` to `end` - 1.

    probability : the probability that the labels of the sequence have exactly this span.
    certified : whether the likeliest labelling of the exact optimum provably has this span, too; None if this was not
        computed.

    Examples
    --------
    >>> from kernelcrf import ChainCRF
    >>> sentences = [["the", "dog", "of", "Ann"], ["Bob", "and", "Ann", "Lee"]]
    >>> X = [[{"word": word, "upper": word[0].isupper()} for word in sentence] for sentence in sentences]
    >>> crf = ChainCRF(C=1.0).fit(X, [["O", "O", "O", "B-PER"], ["B-PER", "O", "B-PER", "I-PER"]])
    >>> spans = crf.distribution(X).spans()[1]
    >>> [span.start for span in spans], spans[1].label
    ([0, 2], 'PER')
    """

    start: int
    end: int
    label: Any
    probability: float
    certified: bool | None = None


def read_spans(field: ChainField, rules: SpanRules, given: UserData) -> SpanTable:
    """Convert the spans of a user to a table; `given` has one list of tuples (start, end, label) per sequence."""
    lengths, number = field.chains.lengths, {label: k for k, label in enumerate(rules.types)}
    lists = list(given)
    if len(lists) != len(lengths):
        raise ValueError(
            f"spans has {len(lists)} lists: expected one list of spans per sequence, {len(lengths)} in all"
        )
    rows = []
    for i, listed in enumerate(lists):
        for span in listed:
            if isinstance(span, str) or not isinstance(span, Sequence) or len(span) < 3:
                raise ValueError(f"spans[{i}] has {shown(span)}: expected tuples (start, end, label)")
            start, end, label = span[:3]
            if not (is_whole(start) and is_whole(end) and 0 <= start < end <= lengths[i]):
                raise ValueError(
                    f"spans[{i}] has the span {shown(tuple(span))}: expected integers 0 <= start < end <= "
                    f"{lengths[i]}, the number of tokens of the sequence"
                )
            if label not in number:
                raise ValueError(
                    f"spans[{i}] has the label {shown(label)}: expected one of {shown(rules.types)}. Pass the type of "
                    "the span without the letter of the tag"
                )
            rows.append((i, start, end, number[label]))
    return SpanTable(*np.array(rows, np.intp).reshape(-1, 4).T)


def labelled_spans(field: ChainField, rules: SpanRules, labels: Array, scheme: str) -> SpanTable:
    """Return the spans of a labelling; `labels` has the name of the label of each token."""
    offsets = field.chains.offsets
    labelled = [spans(labels[low:high].tolist(), scheme) for low, high in pairwise(offsets)]
    return read_spans(field, rules, labelled)


def predicted_spans(table: SpanTable, p: Floats, rules: SpanRules, n_samples: int) -> list[list[PredictedSpan]]:
    """Return the spans of a table with their probabilities, one list per sequence."""
    result: list[list[PredictedSpan]] = [[] for _ in range(n_samples)]
    for i, start, end, k, probability in zip(*(column.tolist() for column in (*table, p)), strict=True):
        result[i].append(PredictedSpan(start, end, rules.types[k], probability))
    return result


def mark_certified(
    predicted: list[list[PredictedSpan]], certified: CertifiedLabels, scheme: str
) -> list[list[PredictedSpan]]:
    """Return the spans with the attribute `certified`, true if the labelling of the optimum provably has the span.

    A predicted span is certified if its labels, and the labels next to it, are certified.
    """
    separates = scheme in SCHEMES and SCHEMES[scheme].b_separates
    before, result = 2 if separates else 1, []
    for row, labels, flags in zip(predicted, certified.labels, certified.tokens, strict=True):
        sure = {
            (span.start, span.end, span.label)
            for span in spans(labels.tolist(), scheme)
            if flags[max(span.start - before, 0) : span.end + 1].all()
        }
        result.append([span._replace(certified=span[:3] in sure) for span in row])
    return result


def right_spans(
    y_true: UserData, predicted: Sequence[Sequence[PredictedSpan]], scheme: str | None = None
) -> tuple[Floats, Flags]:
    """Return the probabilities of all predicted spans, and whether each span is also a span of the true labels.

    Sequences with missing labels are left out.

    scheme : the tagging scheme of the labels; None means "lenient" if labels look like tags, and "runs" otherwise.
    """
    rows = [read_labels(labels, f"y_true[{i}]") for i, labels in enumerate(read_list(y_true, "y_true"))]
    if len(rows) != len(predicted):
        raise ValueError(f"y_true has {len(rows)} sequences, and y_spans has {len(predicted)}: expected equally many")
    is_missing = missing_among(label for labels in rows for label in labels)
    scheme = scheme_of([label for labels in rows for label in labels if not is_missing(label)], scheme)
    p, right = list[float](), list[bool]()
    for i, (labels, row) in enumerate(zip(rows, predicted, strict=True)):
        if not any(map(is_missing, labels)):
            true = set(spans(labels, scheme, name=f"y_true[{i}]"))
            p += [span.probability for span in row]
            right += [span[:3] in true for span in row]
    return np.array(p, np.float64), np.array(right, bool)
