"""Spans: the entities, chunks or words that tags such as B-PER I-PER O mark.

A span (type, start, end) holds the tokens start .. end - 1. A tag is a letter and a type. In every scheme, token t
continues the span of token t - 1 if and only if

    letter_{t-1} in {B, I},  letter_t in {I, E},  type_{t-1} = type_t

and a scheme defines where a span may start and whether it is complete at its end:

    scheme          letters        starts at                      complete
    lenient         all of these   any letter but O               always
    IOB2 (BIO)      B I O          B                              always
    IOB1            B I O          I; B after a tag of its type   unless it ends in B before a B of another type
    IOBES (BIOES)   B I O E S      B, S                           if it ends in E or S
    BIOUL (BILOU)   B I O L U      as IOBES, L for E, U for S
    BMES            B M O E S      as IOBES, M for I

Lenient spans are those of conlleval and of seqeval's default; the other schemes are those of seqeval's strict mode.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import NamedTuple

from kernelcrf.validation import either, one_of, shown, validated


class Span(NamedTuple):
    """The tokens from `start` to `end` - 1 of one type, which is "_" for tags without a type.

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
    """A letter of B I O E S, and a type."""

    letter: str
    type: str


@dataclass(frozen=True)
class Scheme:
    """The map of `letters` to B I O E S, and the rules `starts(previous, tag)` and `complete(last, next)`."""

    letters: Mapping[str, str]
    starts: Callable[[Tag, Tag], bool]
    complete: Callable[[Tag, Tag], bool]


def _scheme(letters: str, starts: Callable[[Tag, Tag], bool], complete: Callable[[Tag, Tag], bool]) -> Scheme:
    return Scheme({letter: {"M": "I", "L": "E", "U": "S"}.get(letter, letter) for letter in letters}, starts, complete)


def _always(last: Tag, following: Tag) -> bool:
    return True


def _not_outside(previous: Tag, tag: Tag) -> bool:
    return tag.letter != "O"


def _opens(previous: Tag, tag: Tag) -> bool:
    return tag.letter in "BS"


def _closed(last: Tag, following: Tag) -> bool:
    return last.letter in "ES"


def _iob1_starts(previous: Tag, tag: Tag) -> bool:
    return tag.letter == "I" or (tag.letter == "B" and previous.letter != "O" and previous.type == tag.type)


def _iob1_complete(last: Tag, following: Tag) -> bool:
    return not (last.letter == following.letter == "B" and last.type != following.type)


SCHEMES: Mapping[str, Scheme] = {
    "lenient": _scheme("BIOESULM", _not_outside, _always),
    "IOB1": _scheme("BIO", _iob1_starts, _iob1_complete),
    **dict.fromkeys(("IOB2", "BIO"), _scheme("BIO", _opens, _always)),
    **dict.fromkeys(("IOBES", "BIOES"), _scheme("BIOES", _opens, _closed)),
    **dict.fromkeys(("BIOUL", "BILOU"), _scheme("BIOUL", _opens, _closed)),
    "BMES": _scheme("BMOES", _opens, _closed),
}


SCHEME = either(one_of(*SCHEMES))


def are_spans(labels: Iterable[object]) -> bool:
    """Return whether labels look like tags of spans: O, and letters with a type, such as B-PER.

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
    """Return the spans of one tag sequence in order; errors call the sequence `name`.

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
    row = [*(_tag(tag, rule, scheme, name) for tag in tags), outside]
    found = []
    previous, t = outside, 0
    while t < len(row):
        start, t = t, t + 1
        if rule.starts(previous, row[start]):
            while _continues(row[t - 1], row[t]):
                t += 1
            if rule.complete(row[t - 1], row[t]):
                found.append(Span(row[start].type, start, t))
        previous = row[t - 1]
    return found


def _continues(last: Tag, tag: Tag) -> bool:
    return last.letter in "BI" and tag.letter in "IE" and last.type == tag.type


def _tag(tag: object, rule: Scheme, scheme: str, name: str) -> Tag:
    letter, _, type_ = tag.partition("-") if isinstance(tag, str) else ("", "", "")
    if letter not in rule.letters:
        raise ValueError(
            f"{name} has the tag {shown(tag)}: the scheme {scheme} expects O, or a letter of {' '.join(rule.letters)} "
            "with a type, such as B-PER"
        )
    return Tag(rule.letters[letter], type_ or "_")
