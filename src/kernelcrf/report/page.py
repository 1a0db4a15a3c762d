"""Build a self-contained HTML page with SVG charts, without scripts, in a light and a dark theme.

All text from data is escaped by `text`. A security policy in the head of the page forbids scripts and downloads.

The charts are not made by `kernelcrf.plotting`, so that a report needs no matplotlib, and so that the style sheet can
give its charts the colours of the reader's theme. The colours of a picture that matplotlib has made are fixed.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from html import escape
from pathlib import Path

import numpy as np

from kernelcrf.arrays import Floats
from kernelcrf.metrics import Reliability

CONTROL = re.compile(r"[\x00-\x1f\x7f]")
POLICY = "default-src 'none'; style-src 'unsafe-inline'"
WIDTH, HEIGHT, LEFT, BOTTOM, TOP, RIGHT = 400, 300, 52, 40, 12, 14
STYLE = Path(__file__).with_name("page.css").read_text(encoding="utf-8")


def text(value: object) -> str:
    """Escape a value for HTML, so that markup and control characters are shown as text."""
    return escape(CONTROL.sub(lambda match: chr(0x2400 + min(ord(match[0]), 0x21)), str(value)))


def page(title: str, body: Iterable[str]) -> str:
    """Return the HTML of the whole page, with its style and its security policy."""
    return (
        '<!DOCTYPE html>\n<html lang="en"><head><meta charset="utf-8">'
        f'<meta http-equiv="Content-Security-Policy" content="{POLICY}">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>{text(title)}</title><style>{STYLE}</style></head>\n<body>\n" + "\n".join(body) + "\n</body></html>\n"
    )


def section(title: str, *parts: str) -> str:
    """Return the HTML of a section: a heading with the text `title`, then the HTML `parts`."""
    return f"<section><h2>{text(title)}</h2>\n" + "\n".join(parts) + "</section>"


def cards(facts: Sequence[tuple[str, str]]) -> str:
    """Return the HTML of a row of boxes, one per (name, value) pair, with the value in large letters."""
    return (
        '<div class="cards">'
        + "".join(f'<div class="card"><b>{text(value)}</b><span>{text(name)}</span></div>' for name, value in facts)
        + "</div>"
    )


def table(header: Sequence[str], rows: Iterable[Sequence[object]], kind: str = "") -> str:
    """Return an HTML table with text in the first column and numbers in the other columns.

    Cells are escaped unless they are `Markup`; `kind` is the CSS class of the table.
    """
    attributes = ["", *[' class="number"'] * (len(header) - 1)]
    titles = zip(attributes, header, strict=True)
    cells = "".join(f'<th{attribute} scope="col">{text(title)}</th>' for attribute, title in titles)
    lines = "".join(
        "<tr>" + "".join(f"<td{a}>{_cell(value)}</td>" for a, value in zip(attributes, row, strict=True)) + "</tr>"
        for row in rows
    )
    return (
        f'<div class="wide"><table class="{kind}"><thead><tr>{cells}</tr></thead><tbody>{lines}</tbody></table></div>'
    )


class Markup(str):
    """A string of HTML, which `table` does not escape."""


def _cell(value: object) -> str:
    # <bdi> keeps right-to-left text from changing the direction of the text after it.
    return str(value) if isinstance(value, Markup) else f"<bdi>{text(value)}</bdi>"


def reliability_chart(bins: Reliability) -> str:
    """Return an SVG chart of accuracy against confidence, with bars for the fraction of tokens in each bin."""
    n, filled = len(bins.weight), bins.weight > 0
    share = bins.weight / bins.weight.sum()
    bars = "".join(
        f'<rect class="bar" x="{_x(b / n):.1f}" y="{_y(share[b]):.1f}" width="{(_x(1) - _x(0)) / n * 0.9:.1f}" '
        f'height="{_y(0) - _y(share[b]):.1f}"/>'
        for b in np.flatnonzero(filled).tolist()
    )
    curve = _curve(bins.confidence[filled], bins.accuracy[filled])
    ticks = {value: f"{value:g}" for value in (0.0, 0.25, 0.5, 0.75, 1.0)}
    guide = _line("guide", (0, 0), (1, 1))
    return _chart("Reliability diagram", ("confidence", ticks), ("accuracy", ticks), bars + guide + curve)


def gap_chart(passes: Floats, gap: Floats, tol: float, measure: str) -> str:
    """Return an SVG chart of the convergence of a fit: its relative gap to the optimum, on a logarithmic scale.

    passes, gap : the number of passes over the data, and the gap, at each evaluation of the objective.
    tol : the tolerance of the fit, drawn as a dashed line.
    measure : the name of the gap, such as "certified gap".
    """
    passes, levels = passes[gap > 0], np.log10(gap[gap > 0])
    if not len(passes):
        return ""
    low, high = np.floor(min(levels.min(), np.log10(tol))), np.ceil(levels.max())
    high, most = max(high, low + 1), max(float(passes.max()), 1.0)

    def height(level: Floats) -> Floats:
        return np.asarray((level - low) / (high - low))

    columns = {share: f"{share * most:.0f}" for share in (0.0, 0.5, 1.0)}
    step = max(1, int((high - low) // 6))
    rows = {float(height(level)): f"1e{int(level):+d}" for level in np.arange(low, high + 1, step)}
    at = float(height(np.log10(tol)))
    guide = _line("guide", (0, at), (1, at)) + _text(_x(0) + 4, _y(at) - 4, f"tol {tol:g}", "start")
    axes = ("passes over the data", columns), (f"relative {measure}", rows)
    return _chart(f"{measure.capitalize()} during the fit", *axes, guide + _curve(passes / most, height(levels)))


def _x(share: float) -> float:
    return LEFT + share * (WIDTH - LEFT - RIGHT)


def _y(share: float) -> float:
    return HEIGHT - BOTTOM - share * (HEIGHT - BOTTOM - TOP)


def _line(kind: str, start: tuple[float, float], end: tuple[float, float]) -> str:
    (x1, y1), (x2, y2) = ((_x(x), _y(y)) for x, y in (start, end))
    return f'<line class="{kind}" x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}"/>'


def _text(x: float, y: float, words: str, anchor: str = "middle") -> str:
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}">{text(words)}</text>'


def _curve(x: Floats, y: Floats) -> str:
    points = [f"{_x(a):.1f},{_y(b):.1f}" for a, b in zip(x, y, strict=True)]
    dots = ['<circle class="dot" cx="{}" cy="{}" r="3"/>'.format(*point.split(",")) for point in points]
    return f'<polyline class="curve" points="{" ".join(points)}"/>{"".join(dots) if len(dots) <= 40 else ""}'


def _chart(name: str, across: tuple[str, dict[float, str]], up: tuple[str, dict[float, str]], inner: str) -> str:
    """Return an SVG chart called `name` with the content `inner`.

    across, up : the title and the ticks of the horizontal and of the vertical axis; ticks map positions in [0, 1] to
        texts.
    """
    (xlabel, xticks), (ylabel, yticks) = across, up
    axes = _line("axis", (0, 0), (1, 0)) + _line("axis", (0, 0), (0, 1))
    below = "".join(_text(_x(share), _y(0) + 15, tick) for share, tick in xticks.items())
    beside = "".join(_text(_x(0) - 6, _y(share) + 4, tick, "end") for share, tick in yticks.items())
    title = f'<text transform="translate(12 {_y(0.5)}) rotate(-90)" text-anchor="middle">{text(ylabel)}</text>'
    return (
        f'<svg viewBox="0 0 {WIDTH} {HEIGHT}" role="img" aria-label="{text(name)}">'
        f"{axes}{below}{beside}{_text(_x(0.5), HEIGHT - 6, xlabel)}{title}{inner}</svg>"
    )
