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
the strict mode of seqeval.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from itertools import pairwise
from typing import NamedTuple

from kernelcrf.validation import either, one_of, shown, validated


class Span(NamedTuple):
    """A span of tokens, from `start` to `end` - 1, and its type, such as "PER", or "_" if the tags have no type.

    Examples
    --------
    >>> from kernelcrf.metrics import Span
    >>> Span("PER", 3, 5).type, Span("PER", 3, 5) == ("PER", 3, 5)
    ('PER', True)
    """

    type: str
    start: int
    end: int


class Tag(NamedTuple):
    """A tag of any scheme: a letter (B, I, O, E or S; M, L and U are read as I, E and S) and the type of the span."""

    letter: str
    type: str


class Scheme(NamedTuple):
    """A tagging scheme: all its letters, the letters at which a span may start, and the letters at which it may end."""

    letters: tuple[str, ...]
    starts: str
    complete: str


SYNONYMS = {"M": "I", "L": "E", "U": "S"}
SCHEMES: Mapping[str, Scheme] = {
    "lenient": Scheme(tuple("BIOESULM"), "BIES", "BIES"),
    "IOB1": Scheme(tuple("BIO"), "I", "I"),
    **dict.fromkeys(("IOB2", "BIO"), Scheme(tuple("BIO"), "B", "BI")),
    **dict.fromkeys(("IOBES", "BIOES"), Scheme(tuple("BIOES"), "BS", "ES")),
    **dict.fromkeys(("BIOUL", "BILOU"), Scheme(tuple("BIOUL"), "BS", "ES")),
    "BMES": Scheme(tuple("BMOES"), "BS", "ES"),
}
SCHEME = either(one_of(*SCHEMES))


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


@validated(scheme=SCHEME)
def spans(tags: Iterable[object], scheme: str = "lenient", *, name: str = "tags") -> list[Span]:
    """Return the spans of a sequence of tags, from left to right.

    scheme : the tagging scheme: "lenient" accepts tags of all schemes, and "IOB2" is the most common strict scheme.
    name : the name of the sequence, which error messages show.

    Examples
    --------
    >>> from kernelcrf.metrics import spans
    >>> spans(["B-PER", "I-PER", "O", "I-LOC"])
    [Span(type='PER', start=0, end=2), Span(type='LOC', start=3, end=4)]
    >>> spans(["B-PER", "I-PER", "O", "I-LOC"], "IOB2")  # in IOB2 a span starts with B
    [Span(type='PER', start=0, end=2)]
    """
    rule = SCHEMES[scheme]
    outside = Tag("O", "_")
    row = [outside, *(_tag(tag, rule, scheme, name) for tag in tags), outside]
    found, start = [], None
    for t, (previous, tag) in enumerate(pairwise(row)):
        if start is not None:
            if previous.letter in "BI" and tag.letter in "IE" and previous.type == tag.type:
                continue
            if _is_complete(rule, previous, tag):
                found.append(Span(previous.type, start, t))
        start = t if _starts(rule, previous, tag) else None
    return found


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
