"""Tagging schemes, which write spans such as entities, chunks or words as tags such as B-PER I-PER O.

A tag consists of a letter and a type, such as B and PER. A token continues the span of the previous token if the types
of both tokens are equal, the letter of the previous token is B or I, and the letter of this token is I or E. A scheme
determines at which letters a span may start and end:

    scheme          letters        start                                 end
    lenient         all            any except O                          any
    IOB2 (BIO)      B I O          B                                     B, I
    IOB1            B I O          I, or B after a tag of the same type  I, or B unless a B of another type follows
    IOBES (BIOES)   B I O E S      B, S                                  E, S
    BIOUL (BILOU)   B I O L U      the same as IOBES: both accept L for E and U for S
    BMES            B M O E S      like IOBES, with M instead of I

A tag may follow another tag in two cases: the second tag continues the span of the first; or the first tag is O or may
end a span, and the second tag is O or may start a span.

This file is loaded by the options of the command line, so it imports no NumPy.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple


class Tag(NamedTuple):
    """A tag of any scheme: a letter (B, I, O, E or S; M, L and U are read as I, E and S) and the type of the span."""

    letter: str
    type: str

    @property
    def span_label(self) -> str:
        """Return the label of the spans of this tag: its type, or "_" if it has none."""
        return self.type or "_"

    def continues(self, previous: Tag) -> bool:
        """Return whether this tag continues the span of the previous tag."""
        return previous.letter in "BI" and self.letter in "IE" and previous.type == self.type


class Scheme(NamedTuple):
    """A tagging scheme.

    letters : the letters of all tags, as they are written.
    starts, ends : the letters of parsed tags at which a span may start, and at which a span may end.
    b_separates : whether B may start a span only directly after another span of the same type, as in IOB1.
    """

    letters: str
    starts: str
    ends: str
    b_separates: bool = False

    def parse(self, label: object) -> Tag | None:
        """Return the parsed tag of a label, or None if the label is not a tag of the scheme."""
        letter, _, type_ = label.partition("-") if isinstance(label, str) else ("", "", "")
        if len(letter) != 1 or letter not in self.letters or (letter == "O" and label != "O"):
            return None
        return Tag(SYNONYMS.get(letter, letter), type_)

    def may_start(self, previous: Tag, tag: Tag) -> bool:
        """Return whether a span may start at a tag, given the previous tag."""
        if self.b_separates and tag.letter == "B":
            return previous.letter != "O" and previous.type == tag.type
        return tag.letter in self.starts

    def may_end(self, tag: Tag, following: Tag) -> bool:
        """Return whether a span may end at a tag, given the following tag."""
        if self.b_separates and tag.letter == "B":
            return following.letter != "B" or tag.type == following.type
        return tag.letter in self.ends

    def allows(self, previous: Tag, tag: Tag) -> bool:
        """Return whether `tag` may follow the tag `previous`; the module docstring has the two cases."""
        ends = previous.letter == "O" or self.may_end(previous, tag)
        starts = tag.letter == "O" or self.may_start(previous, tag)
        return tag.continues(previous) or (ends and starts)


OUTSIDE = Tag("O", "")
SYNONYMS = {"M": "I", "L": "E", "U": "S"}
LENIENT = Scheme("BIOESULM", "BIES", "BIES")
STRICT_SCHEMES: Mapping[str, Scheme] = {
    **dict.fromkeys(("BIO", "IOB2"), Scheme("BIO", "B", "BI")),
    "IOB1": Scheme("BIO", "I", "I", b_separates=True),
    **dict.fromkeys(("IOBES", "BIOES", "BIOUL", "BILOU"), Scheme("BIOESUL", "BS", "ES")),
    "BMES": Scheme("BMOES", "BS", "ES"),
}
SCHEMES: Mapping[str, Scheme] = {"lenient": LENIENT, **STRICT_SCHEMES}
