"""Read spans, such as entities, chunks or words, from tags such as B-PER I-PER O.

A tag consists of a letter and a type, such as B and PER. A token continues the span of the previous token if the types
of both tokens are equal, the letter of the previous token is B or I, and the letter of this token is I or E. A scheme
determines at which letters a span may start and end; a span that ends at another letter is ignored:

    scheme          letters        start                                 end
    lenient         all            any except O                          any
    IOB2 (BIO)      B I O          B                                     B, I
    IOB1            B I O          I, or B after a tag of the same type  I, or B unless a B of another type follows
    IOBES (BIOES)   B I O E S      B, S                                  E, S
    BIOUL (BILOU)   B I O L U      like IOBES, with L instead of E and U instead of S
    BMES            B M O E S      like IOBES, with M instead of I

"lenient" gives the same spans as conlleval and the default mode of seqeval; the other schemes give the same spans as
the strict mode of seqeval. The scheme "runs" is for labels that are not tags, such as activities: each maximal run of
equal labels is a span.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np

from kernelcrf.arrays import Flags, Places
from kernelcrf.validation import either, one_of, shown, validated


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


class Tag(NamedTuple):
    """A tag of any scheme: a letter (B, I, O, E or S; M, L and U are read as I, E and S) and the type of the span."""

    letter: str
    type: str


class Scheme(NamedTuple):
    """A tagging scheme: all its letters, the letters at which a span may start, and the letters at which it may end."""

    letters: tuple[str, ...]
    starts: str
    complete: str


OUTSIDE = Tag("O", "_")
SYNONYMS = {"M": "I", "L": "E", "U": "S"}
SCHEMES: Mapping[str, Scheme] = {
    "lenient": Scheme(tuple("BIOESULM"), "BIES", "BIES"),
    "IOB1": Scheme(tuple("BIO"), "I", "I"),
    **dict.fromkeys(("IOB2", "BIO"), Scheme(tuple("BIO"), "B", "BI")),
    **dict.fromkeys(("IOBES", "BIOES"), Scheme(tuple("BIOES"), "BS", "ES")),
    **dict.fromkeys(("BIOUL", "BILOU"), Scheme(tuple("BIOUL"), "BS", "ES")),
    "BMES": Scheme(tuple("BMOES"), "BS", "ES"),
}
RUNS = "runs"
SCHEME = either(one_of(*SCHEMES, RUNS))


def are_spans(labels: Iterable[object]) -> bool:
    """Return whether all labels look like tags of spans, such as O and B-PER, and not all are O.

    Examples
    --------
    >>> from kernelcrf.metrics import are_spans
    >>> are_spans(["O", "B-PER", "I-PER"]), are_spans(["NOUN", "VERB"])
    (True, False)
    """
    rest = [label for label in labels if label != "O"]
    return bool(rest) and all(
        isinstance(tag, str) and tag[:1] in SCHEMES["lenient"].letters and tag[1:2] == "-" for tag in rest
    )


@dataclass(frozen=True, eq=False)
class SpanRules:
    """The rules of a scheme for each pair of neighbouring labels i and j; i = L or j = L is the end of a sequence.

    The L labels are integers. Each span has one of K types, and `members` has the labels that its tokens may have.

    types : the K labels of spans, such as "PER".
    members : (K, n), the labels of each type; -1 fills the rows of types that have fewer than n labels.
    starts : (L + 1, L), whether label j after label i may start a span.
    continues : (L, L), whether label j continues the span of label i.
    completes : (L, L + 1), whether label j completes the span that label i belongs to.
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
    rule = SCHEMES[scheme]
    tags = [_tag(label, rule, scheme, "classes_") for label in labels]
    after, before = [*tags, OUTSIDE], [*tags, OUTSIDE]
    continues = np.array([[_continues(i, j) for j in tags] for i in tags], bool).reshape(len(tags), -1)
    starts = np.array([[_starts(rule, i, j) for j in tags] for i in before], bool)
    completes = np.array([[_is_complete(rule, i, j) for j in after] for i in tags], bool)
    completes[:, :-1] &= ~continues
    types = list(dict.fromkeys(tag.type for tag in tags if tag.letter != "O"))
    own = [[at for at, tag in enumerate(tags) if tag.letter != "O" and tag.type == one] for one in types]
    width = max(map(len, own), default=0)
    members = np.array([[*row, *[-1] * (width - len(row))] for row in own], np.intp).reshape(len(types), width)
    return SpanRules(types, members, starts, continues, completes)


def scheme_of(classes: Iterable[object], scheme: str | None) -> str:
    """Return `scheme` or, if it is None, "lenient" if the labels look like tags of spans, and "runs" otherwise."""
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
    rule = SCHEMES[scheme]
    row = [OUTSIDE, *(_tag(tag, rule, scheme, name) for tag in tags), OUTSIDE]
    found, start = [], None
    for t, (previous, tag) in enumerate(pairwise(row)):
        if start is not None:
            if _continues(previous, tag):
                continue
            if _is_complete(rule, previous, tag):
                found.append(Span(start, t, previous.type))
        start = t if _starts(rule, previous, tag) else None
    return found


def _runs(labels: list[object]) -> list[Span]:
    bounds = [t for t in range(1, len(labels)) if labels[t] != labels[t - 1]]
    return [Span(low, high, labels[low]) for low, high in pairwise([0, *bounds, len(labels)]) if low < high]


def _continues(previous: Tag, tag: Tag) -> bool:
    return previous.letter in "BI" and tag.letter in "IE" and previous.type == tag.type


def _starts(rule: Scheme, previous: Tag, tag: Tag) -> bool:
    if rule is SCHEMES["IOB1"] and tag.letter == "B":
        return previous.letter != "O" and previous.type == tag.type
    return tag.letter in rule.starts


def _is_complete(rule: Scheme, last: Tag, following: Tag) -> bool:
    if rule is SCHEMES["IOB1"] and last.letter == "B":
        return following.letter != "B" or last.type == following.type
    return last.letter in rule.complete


def _tag(tag: object, rule: Scheme, scheme: str, name: str) -> Tag:
    letter, _, type_ = tag.partition("-") if isinstance(tag, str) else ("", "", "")
    if letter not in rule.letters:
        raise ValueError(
            f"{name} has the tag {shown(tag)}, which does not belong to scheme={scheme!r}: expected O, or one of the "
            f"letters {' '.join(rule.letters)} with a type, such as B-PER"
        )
    return Tag(SYNONYMS.get(letter, letter), type_ or "_")
