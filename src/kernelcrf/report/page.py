"""A self-contained HTML page: no scripts, no network, light or dark as the reader's system is.

Everything from data goes through `text`, and a policy in the head also forbids scripts and loading.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from html import escape
from pathlib import Path

CONTROL = re.compile(r"[\x00-\x1f\x7f]")
POLICY = "default-src 'none'; style-src 'unsafe-inline'"
STYLE = Path(__file__).with_name("page.css").read_text(encoding="utf-8")


def text(value: object) -> str:
    """Return a value as text in HTML; markup and control characters are shown, not interpreted."""
    return escape(CONTROL.sub(lambda match: chr(0x2400 + min(ord(match[0]), 0x21)), str(value)))


def page(title: str, body: Iterable[str]) -> str:
    """Return the HTML of the whole page."""
    return (
        '<!DOCTYPE html>\n<html lang="en"><head><meta charset="utf-8">'
        f'<meta http-equiv="Content-Security-Policy" content="{POLICY}">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>{text(title)}</title><style>{STYLE}</style></head>\n<body>\n" + "\n".join(body) + "\n</body></html>\n"
    )


def section(title: str, *parts: str) -> str:
    """Return a heading with its parts."""
    return f"<section><h2>{text(title)}</h2>\n" + "\n".join(parts) + "</section>"


def cards(facts: Sequence[tuple[str, str]]) -> str:
    """Return numbers with their names."""
    return (
        '<div class="cards">'
        + "".join(f'<div class="card"><b>{text(value)}</b><span>{text(name)}</span></div>' for name, value in facts)
        + "</div>"
    )


def table(header: Sequence[str], rows: Iterable[Sequence[object]], kind: str = "") -> str:
    """Return a table of text on the left and numbers in the other columns; cells of HTML are `Markup`."""
    cells = "".join(f'<th{_number(j)} scope="col">{text(name)}</th>' for j, name in enumerate(header))
    lines = "".join(
        "<tr>" + "".join(f"<td{_number(j)}>{_cell(value)}</td>" for j, value in enumerate(row)) + "</tr>"
        for row in rows
    )
    return (
        f'<div class="wide"><table class="{kind}"><thead><tr>{cells}</tr></thead><tbody>{lines}</tbody></table></div>'
    )


class Markup(str):
    """HTML whose content is already escaped."""


def _cell(value: object) -> str:
    # A text that changes the direction of writing must not affect the text after it.
    return str(value) if isinstance(value, Markup) else f"<bdi>{text(value)}</bdi>"


def _number(column: int) -> str:
    return ' class="number"' if column else ""
