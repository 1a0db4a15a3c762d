"""Make text from files and models safe to show on a terminal.

A label, a feature or a file name can contain any character, for example an escape sequence that rewrites the screen,
a newline that fakes a line of output, or a mark that reverses the direction of writing. The functions below escape
such characters.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable

# Zero-width joiners combine letters of Persian and Indian scripts, and emoji; they have no other effect.
JOINERS = "\u200c\u200d"
SUSPECT = re.compile(r"[^\w !-~]|[\x7f-\x9f]")


def printable(text: object, keep: str = "") -> str:
    r"""Replace characters that are not printable, such as control characters, by escapes such as \x1b or \u202e.

    keep : characters to leave unchanged, although they are not printable.
    """
    return _escape(str(text), ascii, JOINERS + keep)


def printable_json(value: object) -> str:
    """Return the value as one line of JSON, in which characters that are not printable are escaped."""
    return _escape(json.dumps(value, ensure_ascii=False), json.dumps, JOINERS)


def _escape(text: str, quote: Callable[[str], str], keep: str) -> str:
    def escape(match: re.Match[str]) -> str:
        return match[0] if match[0].isprintable() or match[0] in keep else quote(match[0])[1:-1]

    return text if text.isprintable() else SUSPECT.sub(escape, text)
