"""Text from files and models, as a terminal may show it.

A label, a feature or the name of a file can hold any character: an escape sequence that rewrites the screen, a newline
that forges a line of output, a mark that turns the direction of writing. Whatever is printed goes through `printable`.
"""

from __future__ import annotations

import json
import re
from typing import Any

# Joiners make letters of Persian, of Indian scripts and of emoji, and do nothing else.
JOINERS = "\u200c\u200d"
SUSPECT = re.compile(r"[^\w !-~]|[\x7f-\x9f]")


def printable(text: Any, keep: str = "") -> str:
    r"""Return the text with every character that is not printed as itself as an escape such as \x1b or \u202e.

    Characters are printable as `str.isprintable` says; `keep` has further ones to leave alone.
    """
    text = str(text)
    return text if text.isprintable() else SUSPECT.sub(lambda found: _escaped(found[0], keep), text)


def printable_json(value: Any) -> str:
    """Return the value as JSON in one line; characters that are not printed as themselves are JSON's escapes."""
    text = json.dumps(value, ensure_ascii=False)
    if text.isprintable():
        return text
    return SUSPECT.sub(lambda found: found[0] if _is_plain(found[0]) else json.dumps(found[0])[1:-1], text)


def _escaped(character: str, keep: str) -> str:
    return character if character in keep or _is_plain(character) else ascii(character)[1:-1]


def _is_plain(character: str) -> bool:
    return character.isprintable() or character in JOINERS
