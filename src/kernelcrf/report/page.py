"""An HTML page on its own: no script, no network, light or dark as the reader's system has it.

Whatever comes from data goes through `text`, and a policy in the head forbids scripts and loading besides.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from html import escape
from typing import Any

CONTROL = re.compile(r"[\x00-\x1f\x7f]")
POLICY = "default-src 'none'; style-src 'unsafe-inline'"
STYLE = """
:root { color-scheme: light dark; --bg: #ffffff; --fg: #1b1f24; --soft: #5b6470; --line: #d5dae1; --panel: #f5f7f9;
  --blue: 0 114 178; --warm: 213 94 0; --warm-most: .55; }
@media (prefers-color-scheme: dark) { :root { --bg: #14171c; --fg: #e6e9ed; --soft: #a3acb8; --line: #3a414b;
  --panel: #1d2128; --blue: 62 145 205; --warm: 226 112 30; --warm-most: .6; } }
* { box-sizing: border-box; }
body { margin: 0 auto; padding: 1rem; max-width: 68rem; background: var(--bg); color: var(--fg);
  font: 16px/1.5 system-ui, -apple-system, "Segoe UI", "DejaVu Sans", sans-serif; }
h1 { font-size: 1.5rem; margin: .5rem 0 0; overflow-wrap: anywhere; }
h2 { font-size: 1.15rem; margin: 2.2rem 0 .6rem; border-bottom: 1px solid var(--line); padding-bottom: .25rem; }
h3 { font-size: 1rem; margin: 1.2rem 0 .4rem; overflow-wrap: anywhere; }
p { margin: .4rem 0 .8rem; } .soft { color: var(--soft); font-size: .9rem; }
.cards { display: grid; grid-template-columns: repeat(auto-fill, minmax(9.5rem, 1fr)); gap: .6rem; margin: .8rem 0; }
.card { background: var(--panel); border: 1px solid var(--line); border-radius: .4rem; padding: .5rem .7rem;
  min-width: 0; }
.card b { display: block; font-size: 1.15rem; overflow-wrap: anywhere; }
.card span { color: var(--soft); font-size: .82rem; }
.wide { overflow-x: auto; max-width: 100%; }
table { border-collapse: collapse; font-size: .9rem; font-variant-numeric: tabular-nums; }
th, td { padding: .25rem .7rem .25rem 0; text-align: left; vertical-align: top; border-bottom: 1px solid var(--line); }
th { font-weight: 600; } .number { text-align: right; white-space: nowrap; }
td { overflow-wrap: anywhere; } td:first-child { min-width: 6.5rem; } .settings .number { white-space: normal; }
.matrix { border-collapse: separate; border-spacing: 1px; font-size: .75rem; }
.matrix th, .matrix td { border: 0; padding: .2rem .3rem; text-align: center; }
.matrix tbody th { text-align: right; white-space: nowrap; position: sticky; left: 0; background: var(--bg); }
.matrix thead th { vertical-align: bottom; }
.matrix thead span { writing-mode: vertical-rl; transform: rotate(180deg); }
.matrix td { background: rgb(var(--blue) / var(--p)); min-width: 2rem; } .matrix td.strong { color: #ffffff; }
svg { display: block; width: 100%; max-width: 26rem; height: auto; color: var(--fg); }
svg text { fill: currentColor; font-size: 11px; } svg .axis { stroke: var(--soft); stroke-width: 1; }
svg .guide { stroke: var(--soft); stroke-dasharray: 4 3; }
svg .curve { stroke: rgb(var(--blue)); stroke-width: 2; fill: none; }
svg .dot { fill: rgb(var(--blue)); } svg .bar { fill: rgb(var(--blue) / .25); }
.sequence { display: flex; flex-wrap: wrap; gap: .3rem .25rem; padding: 0; margin: .4rem 0; list-style: none; }
.token { background: rgb(var(--warm) / calc(var(--p) * var(--warm-most))); border-radius: .25rem; padding: .1rem .3rem;
  max-width: 100%; overflow-wrap: anywhere; text-align: center; }
.token small { display: block; font-size: .68rem; line-height: 1.25; }
.token.wrong > bdi { text-decoration: underline wavy; }
.token del { text-decoration: line-through; }
.contribution { display: inline-block; height: .7rem; background: rgb(var(--blue)); vertical-align: baseline; }
.contribution.against { background: rgb(var(--warm)); }
.plots { display: grid; grid-template-columns: repeat(auto-fit, minmax(min(18rem, 100%), 1fr)); gap: 1rem; }
@media (max-width: 30rem) { body { padding: .7rem; } table { font-size: .82rem; } th, td { padding-right: .45rem; }
  td:first-child { min-width: 4.5rem; } }
"""


def text(value: Any) -> str:
    """Anything as text in HTML: what would be markup is shown, and so are control characters."""
    return escape(CONTROL.sub(lambda match: chr(0x2400 + min(ord(match[0]), 0x21)), str(value)))


def page(title: str, body: Iterable[str]) -> str:
    """The whole file."""
    return (
        '<!DOCTYPE html>\n<html lang="en"><head><meta charset="utf-8">'
        f'<meta http-equiv="Content-Security-Policy" content="{POLICY}">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>{text(title)}</title><style>{STYLE}</style></head>\n<body>\n" + "\n".join(body) + "\n</body></html>\n"
    )


def section(title: str, *parts: str) -> str:
    """A heading and what is under it."""
    return f"<section><h2>{text(title)}</h2>\n" + "\n".join(parts) + "</section>"


def cards(facts: Sequence[tuple[str, str]]) -> str:
    """Figures with their names."""
    return (
        '<div class="cards">'
        + "".join(f'<div class="card"><b>{text(value)}</b><span>{text(name)}</span></div>' for name, value in facts)
        + "</div>"
    )


def table(header: Sequence[str], rows: Iterable[Sequence[Any]], kind: str = "") -> str:
    """A table: the first column to the left, the others are numbers; strings that are HTML come as `Markup`."""
    cells = "".join(f'<th{_number(j)} scope="col">{text(name)}</th>' for j, name in enumerate(header))
    lines = "".join(
        "<tr>" + "".join(f"<td{_number(j)}>{_cell(value)}</td>" for j, value in enumerate(row)) + "</tr>"
        for row in rows
    )
    return (
        f'<div class="wide"><table class="{kind}"><thead><tr>{cells}</tr></thead><tbody>{lines}</tbody></table></div>'
    )


class Markup(str):
    """HTML that has been escaped where it must be."""


def _cell(value: Any) -> str:
    # A direction that a text turns to ends with it.
    return str(value) if isinstance(value, Markup) else f"<bdi>{text(value)}</bdi>"


def _number(column: int) -> str:
    return ' class="number"' if column else ""
