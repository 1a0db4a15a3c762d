"""CoNLL-U files of Universal Dependencies: one line per token, with ten cells separated by tabs.

The input of a token is its FORM, and its label is its UPOS, in which "_" means a missing label. Lines of three
kinds are skipped: comments, which begin with #; multiword tokens (ID 1-2), because the next lines have their words; and
empty nodes (ID 8.1), because they are not in the text.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from kernelcrf.formats.records import FormatError, Record
from kernelcrf.formats.streams import display_name, paragraphs
from kernelcrf.formats.token_lines import NOTHING, TokenLines
from kernelcrf.persistence import PathLike
from kernelcrf.validation import shown

N_CELLS, FORM, UPOS = 10, 1, 3
# The word itself, or a multiword token or an empty node.
TOKEN, OTHER = re.compile(r"[0-9]+"), re.compile(r"[0-9]+[-.][0-9]+")


def read(path: PathLike, *, labels: bool = True) -> Iterator[list[Record]]:
    """Yield lists of records with one cell per token; if `labels` is False, the records have no labels."""
    name = display_name(path)
    for batch in paragraphs(path):
        records = []
        for number, lines in batch:
            rows = {
                t: cells
                for t, line in enumerate(lines)
                if not line.startswith("#") and (cells := _cells(line, f"{name}, line {number + t}")) is not None
            }
            if rows:
                raw, words = TokenLines(lines, list(rows)), [cells[FORM] for cells in rows.values()]
                tags = [None if cells[UPOS] == NOTHING else cells[UPOS] for cells in rows.values()]
                place = f"{name}, line {number + raw.places[0]}"
                known = tags if labels and any(tags) else None
                records.append(Record("text", [[word] for word in words], known, words, place, raw))
        yield records


def _cells(line: str, place: str) -> list[str] | None:
    """Return the cells of a line, or None if the line has no token."""
    # Cells are counted before the line is split, to save memory.
    if (n := line.count("\t") + 1) != N_CELLS:
        raise FormatError(
            f"{place}: the line {shown(line)} has {n:,} cells: expected {N_CELLS} cells of CoNLL-U, separated by tabs; "
            "for a table of another kind, use the extension of a column file, such as .conll"
        )
    cells = line.split("\t")
    if "" in cells:
        raise FormatError(f"{place}: cell {cells.index('') + 1} is empty: expected text, or _ for no value")
    if TOKEN.fullmatch(cells[0]):
        return cells
    if OTHER.fullmatch(cells[0]):
        return None
    raise FormatError(f"{place}: the ID is {shown(cells[0])}: expected a number such as 1, 1-2 or 8.1")
