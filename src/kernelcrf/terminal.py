"""Make text from files and models safe to show on a terminal.

A label, a feature or a file name can contain any character, for example an escape sequence that rewrites the screen,
a newline that fakes a line of output, or a mark that reverses the direction of writing. The functions below escape
such characters.
"""

from __future__ import annotations

import json
import re

# Zero-width joiners combine letters of Persian and Indian scripts, and emoji; they have no other effect.
JOINERS = "\u200c\u200d"
SUSPECT = re.compile(r"[^\w !-~]|[\x7f-\x9f]")


def printable(text: object, keep: str = "") -> str:
    r"""Replace characters that are not printable, such as control characters, by escapes such as \x1b or \u202e.

    keep : characters to leave unchanged, although they are not printable.
    """
    text = str(text)
    return text if text.isprintable() else SUSPECT.sub(lambda found: _escape(found[0], keep), text)


def printable_json(value: object) -> str:
    """Return the value as one line of JSON, in which characters that are not printable are escaped."""
    text = json.dumps(value, ensure_ascii=False)
    if text.isprintable():
        return text
    return SUSPECT.sub(lambda found: found[0] if _is_plain(found[0]) else json.dumps(found[0])[1:-1], text)


def _escape(character: str, keep: str) -> str:
    return character if character in keep or _is_plain(character) else ascii(character)[1:-1]


def _is_plain(character: str) -> bool:
    return character.isprintable() or character in JOINERS
