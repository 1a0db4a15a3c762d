"""Read spans, such as entities, chunks or words, from the labels of tokens.

If the labels are tags, a scheme (`readers.schemes`) says where spans start, continue and end; a span that ends where
the scheme does not allow it is ignored. "lenient" gives the same spans as conlleval and the default mode of seqeval;
the other schemes give the same spans as the strict mode of seqeval. The scheme "runs" is for labels that are not tags,
such as activities: each maximal run of equal labels is a span.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import lru_cache
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np

from ..arrays import Flags, Places
from ..validation import either, one_of, shown, validated
from .schemes import LENIENT, OUTSIDE, SCHEMES, Tag

RUNS = "runs"
SCHEME = either(one_of(*SCHEMES, RUNS))


class Span(NamedTuple):
    """A span of the tokens from `start` to `end` - 1, and its label.

    The label is the type of the tags, such as "PER", or "_" if the tags have no type. In the scheme "runs" it is the
    label of the tokens.

    Examples
    --------
    >>> from kernelcrf.metrics import Span
    >>> Span(3, 5, "PER").label, Span(3, 5, "PER") == (3, 5, "PER")
    ('PER', True)
    """

    start: int
    end: int
    label: Any


def are_spans(labels: Iterable[object]) -> bool:
    """Return whether all labels look like tags of spans, such as O and B-PER, and not all are O.

    Examples
    --------
    >>> from kernelcrf.metrics import are_spans
    >>> are_spans(["O", "B-PER", "I-PER"]), are_spans(["NOUN", "VERB"])
    (True, False)
    """
    rest = [label for label in labels if label != "O"]
    return bool(rest) and all(isinstance(label, str) and "-" in label and LENIENT.parse(label) for label in rest)


@dataclass(frozen=True, eq=False)
class SpanRules:
    """The rules of a scheme for each pair (i, j) of labels, where a token with label j follows a token with label i.

    The L labels are the integers below L. At the start of a sequence i is L, and at the end j is L.

    types : the K labels of spans, such as "PER".
    members : (K, n), in row k, the labels that tokens of spans of type k may have; the rest of the row is -1.
    starts : (L + 1, L), whether a span may start at the token with label j.
    continues : (L, L), whether the token with label j continues the span of the token before it.
    completes : (L, L + 1), whether the span of the token with label i may end at this token.
    """

    types: list[Any]
    members: Places
    starts: Flags
    continues: Flags
    completes: Flags


def span_rules(classes: Iterable[object], scheme: str) -> SpanRules:
    """Return the rules of a scheme for the given labels."""
    labels = list(classes)
    if scheme == RUNS:
        same, L = np.eye(len(labels), dtype=bool), len(labels)
        starts = np.vstack([~same, np.ones((1, L), bool)])
        return SpanRules(labels, np.arange(L)[:, None], starts, same, starts.T)
    return _rules_of_tags(tuple(labels), scheme)


@lru_cache(maxsize=16)
def _rules_of_tags(labels: tuple[object, ...], scheme: str) -> SpanRules:
    rule, tags = SCHEMES[scheme], _parse_all(labels, scheme, "classes_")
    continues = np.array([[j.continues(i) for j in tags] for i in tags], bool).reshape(len(tags), -1)
    starts = np.array([[rule.may_start(i, j) for j in tags] for i in (*tags, OUTSIDE)], bool)
    completes = np.array([[rule.may_end(i, j) for j in (*tags, OUTSIDE)] for i in tags], bool)
    completes[:, :-1] &= ~continues
    labels_of_types: dict[str, list[int]] = {}
    for at, tag in enumerate(tags):
        if tag.letter != "O":
            labels_of_types.setdefault(tag.span_label, []).append(at)
    width = max(map(len, labels_of_types.values()), default=0)
    members = np.full((len(labels_of_types), width), -1, np.intp)
    for k, places in enumerate(labels_of_types.values()):
        members[k, : len(places)] = places
    return SpanRules(list(labels_of_types), members, starts, continues, completes)


def scheme_of(classes: Iterable[object], scheme: str | None) -> str:
    """Return `scheme` or, if `scheme` is None, choose a scheme for the labels `classes`.

    The choice is "lenient" for labels that look like tags of spans, and "runs" for other labels.
    """
    return scheme or ("lenient" if are_spans(classes) else RUNS)


@validated(scheme=SCHEME)
def spans(tags: Iterable[object], scheme: str = "lenient", *, name: str = "tags") -> list[Span]:
    """Return the spans of a sequence of tags, from left to right.

    scheme : the tagging scheme: "lenient" accepts tags of all schemes, "IOB2" is the most common strict scheme, and
        "runs" makes each run of equal labels a span.
    name : the name of the sequence, which error messages show.

    Examples
    --------
    >>> from kernelcrf.metrics import spans
    >>> spans(["B-PER", "I-PER", "O", "I-LOC"])
    [Span(start=0, end=2, label='PER'), Span(start=3, end=4, label='LOC')]
    >>> spans(["B-PER", "I-PER", "O", "I-LOC"], "IOB2")  # in IOB2 a span starts with B
    [Span(start=0, end=2, label='PER')]
    """
    if scheme == RUNS:
        return _runs(list(tags))
    rule, row = SCHEMES[scheme], [OUTSIDE, *_parse_all(tags, scheme, name), OUTSIDE]
    complete, start = list[Span](), None
    for t, (previous, tag) in enumerate(pairwise(row)):
        if start is not None:
            if tag.continues(previous):
                continue
            if rule.may_end(previous, tag):
                complete.append(Span(start, t, previous.span_label))
        start = t if rule.may_start(previous, tag) else None
    return complete


def _runs(labels: list[object]) -> list[Span]:
    bounds = [t for t in range(1, len(labels)) if labels[t] != labels[t - 1]]
    return [Span(low, high, labels[low]) for low, high in pairwise([0, *bounds, len(labels)]) if low < high]


def _parse_all(labels: Iterable[object], scheme: str, name: str) -> list[Tag]:
    """Return the tags of labels; `name` is the name of the labels in the error for a label that is not a tag."""
    rule, tags = SCHEMES[scheme], list[Tag]()
    for label in labels:
        tag = rule.parse(label)
        if tag is None:
            raise ValueError(
                f"{name} has the tag {shown(label)}, which does not belong to scheme={scheme!r}: expected O, or one of "
                f"the letters {' '.join(rule.letters)} with a type, such as B-PER"
            )
        tags.append(tag)
    return tags
