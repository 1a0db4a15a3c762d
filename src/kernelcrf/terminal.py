"""Text from files and models that is safe to show on a terminal.

A label, a feature or a file name can hold any character: an escape sequence that rewrites the screen, a newline that
forges a line of output, a mark that changes the direction of writing. All output goes through `printable`.
"""

from __future__ import annotations

import json
import re

# Joiners form letters of Persian and Indian scripts and emoji, and have no other effect.
JOINERS = "\u200c\u200d"
SUSPECT = re.compile(r"[^\w !-~]|[\x7f-\x9f]")


def printable(text: object, keep: str = "") -> str:
    r"""Return the text with an escape such as \x1b or \u202e for every character that `str.isprintable` rejects.

    keep : further characters to leave unchanged.
    """
    text = str(text)
    return text if text.isprintable() else SUSPECT.sub(lambda found: _escaped(found[0], keep), text)


def printable_json(value: object) -> str:
    """Return the value as JSON in one line, with JSON's escapes for characters that are not printable."""
    text = json.dumps(value, ensure_ascii=False)
    if text.isprintable():
        return text
    return SUSPECT.sub(lambda found: found[0] if _is_plain(found[0]) else json.dumps(found[0])[1:-1], text)


def _escaped(character: str, keep: str) -> str:
    return character if character in keep or _is_plain(character) else ascii(character)[1:-1]


def _is_plain(character: str) -> bool:
    return character.isprintable() or character in JOINERS
