"""Column files, as in the CoNLL shared tasks: one token per line, with cells separated by tabs or blanks.

An empty line ends a sequence. All lines must use the same separator and have the same number of cells as the first
line, at most MOST_CELLS. The last cell is the label, unless the options of `read` say otherwise. Comments such as
`# sent_id = 3` before the first token of a sequence are skipped.
"""

from __future__ import annotations

import re
import warnings
from collections.abc import Iterable, Iterator, Sequence
from itertools import chain
from typing import TextIO

from kernelcrf.formats.records import MOST_CELLS, FormatError, Record
from kernelcrf.formats.round_trip import HOLDS_ALL, TextLabels, is_line
from kernelcrf.formats.streams import MARK, display_name, paragraphs
from kernelcrf.formats.token_lines import TokenLines
from kernelcrf.persistence import PathLike
from kernelcrf.validation import shown

FORMAT = "a column file"
CONLLU_CELLS = 10
# A token may be the sign #, so only comments in the form of Universal Dependencies are recognised.
COMMENT = re.compile(r"# (?:[^\s=]+(?: id)? =(?: [^\t]*)?|newdoc|newpar)")


def read(path: PathLike, *, n_columns: int | None = None, labels: bool = True) -> Iterator[list[Record]]:
    """Yield lists of records with text as their input; `kernelcrf.formats.read_batches` explains the options."""
    name, separator, width, n, warned = display_name(path), "", 0, 0, False
    for batch in paragraphs(path, " \t"):
        records = []
        for number, all_lines in batch:
            start = _n_comments(all_lines)
            if start == len(all_lines):
                continue
            number, lines = number + start, all_lines[start:] if start else all_lines
            separator = separator or ("\t" if "\t" in lines[0] else " ")
            _check_cells(lines, separator, name, number)
            cells = [line.split(separator) for line in lines]
            if separator == " " and any("" in row for row in cells):
                cells = [list(filter(None, row)) for row in cells]
            if not width:
                width = len(cells[0])
                n = width - labels if n_columns is None else n_columns
                if n < 1 or not n <= width <= n + 1:
                    expected = "at least 2 cells, with the label as the last cell"
                    if n_columns is not None:
                        expected = (
                            f"{n_columns} or {n_columns + 1} cells: the model was fitted to {n_columns} "
                            f"column{'s' if n_columns > 1 else ''}, after which there may be a label"
                        )
                    raise FormatError(f"{name}, line {number}: got the cells {shown(cells[0])}: expected {expected}")
                if separator == "\t" and width == CONLLU_CELLS and cells[0][0] == "1":
                    warnings.warn(
                        f"{name}: the lines look like CoNLL-U, but they are read as a column file, whose last cell is "
                        "the label. Pass format='conllu' (--format conllu to the command), or name the file .conllu",
                        stacklevel=2,
                    )
            if set(map(len, cells)) != {width} or "" in chain.from_iterable(cells):
                t = next(t for t, row in enumerate(cells) if len(row) != width or "" in row)
                got = f"got the cells {shown(cells[t])}: expected {width} cells"
                if separator == "\t" and len(cells[t]) == 1:
                    got = f"the line {shown(lines[t])} has no tab: expected {width} cells separated by tabs"
                expected = f"{got}, as on the first line, and no empty cell{_advice(lines[t])}"
                raise FormatError(f"{name}, line {number + t}: {expected}")
            x = cells if n == width else [row[:n] for row in cells]
            known = None if n == width else [row[n] for row in cells]
            if not warned and separator == "\t" and known is not None:
                warned = _warn_of_blank(known, f"{name}, line {number}")
            raw = TokenLines(all_lines, range(start, len(all_lines)))
            records.append(Record("text", x, known, [row[0] for row in cells], f"{name}, line {number}", raw))
        yield records


def lines_of(record: Record, extra: Iterable[Sequence[object]], after_one_cell: str = "\t") -> Iterator[str]:
    """Return the lines of a sequence; each column in `extra` adds one cell per token at the end of the lines.

    If the sequence was read from a column file or a CoNLL-U file, the result has the original lines, with comments.
    Otherwise it has one line per token.

    after_one_cell : the separator to use if the original lines have only one cell.
    """
    columns = [list(map(str, column)) for column in extra]
    separator, raw = "\t", record.raw if isinstance(record.raw, TokenLines) else None
    if raw is not None:
        separator = raw.separator or after_one_cell
    elif record.kind == "text":
        columns = [*map(list, zip(*record.x, strict=True)), *columns]
    elif record.tokens:
        columns = [list(record.tokens), *columns]
    # Millions of lines have the same few labels, so each distinct cell is checked once.
    for cell in {cell for column in columns for cell in column}:
        if not cell or separator in cell or set(cell) & set("\t\n\r"):
            raise FormatError(
                f"{record.place}: {shown(cell)} cannot be written as a cell: expected text that is not empty, without "
                "tabs and line ends, and without blanks if blanks separate the cells of this file; use the option "
                "--json instead"
            )
    return map(separator.join, zip(*columns, strict=True)) if raw is None else raw.with_cells(columns, separator)


def write(lines: TextIO, records: Iterable[Record]) -> None:
    """Write records with text as their input to an open text file, with tabs between the cells."""
    labels, first = TextLabels(FORMAT), None
    for record in records:
        if record.weight != 1.0:
            raise FormatError(
                f"{record.place}: the weight is {record.weight:g}, but {FORMAT} cannot store weights: {HOLDS_ALL}"
            )
        table = [list(row) for row in record.x]
        if record.labels is not None:
            if None in record.labels:
                raise FormatError(f"{record.place}: a label is missing, but {FORMAT} needs every label: {HOLDS_ALL}")
            table = [[*row, label] for row, label in zip(table, labels.texts(record) or [], strict=True)]
        for row in table:
            line = "\t".join(row)
            first = first or (len(row), line)
            if len(row) != first[0]:
                raise FormatError(
                    f"{record.place}: a line would have {len(row)} cells, but the first line has {first[0]}: expected "
                    f"the same number for all tokens, and labels for all sequences or for none; {HOLDS_ALL}"
                )
            # If the first line has one cell, the reader splits lines at blanks.
            cells = line.split("\t" if "\t" in first[1] else " ")
            if cells != row or "" in cells or not is_line(line) or first[1].startswith(MARK):
                raise FormatError(
                    f"{record.place}: the cells {shown(row)} cannot be written as a line: expected cells that are not "
                    f"empty, without tabs and line ends, and without blanks if a token has one cell; {HOLDS_ALL}"
                )
            lines.write(line + "\n")
        lines.write("\n")


def _n_comments(lines: list[str]) -> int:
    """Return the number of comments before the first token of a sequence."""
    return next((t for t, line in enumerate(lines) if line[0] != "#" or not COMMENT.fullmatch(line)), len(lines))


def _advice(line: str) -> str:
    """Return what to do about a line that has no tab, although other lines have tabs."""
    if line.startswith("#"):
        return ". A line is a comment only if it has the form '# key = value'"
    return ". If words contain no blanks, replace blanks by tabs with tr -s ' ' '\\t'"


def _warn_of_blank(labels: Sequence[str], place: str) -> bool:
    """Warn if a label has a blank, as if tabs and blanks both separated cells; return whether it does."""
    mixed = next((label for label in labels if " " in label), None)
    if mixed is None:
        return False
    warnings.warn(
        f"{place}: the label {shown(mixed)} has a blank, because the first line has a tab, so that tabs separate the "
        "cells. If blanks separate cells too, replace them by tabs with tr -s ' ' '\\t'",
        stacklevel=2,
    )
    return True


def _check_cells(lines: list[str], separator: str, name: str, number: int) -> None:
    """Raise if a line has a tab although `separator` is a blank, or if a line has more than MOST_CELLS cells.

    Cells are counted without splitting lines, to save memory.
    """
    for t, line in enumerate(lines):
        if separator == " " and "\t" in line:
            raise FormatError(
                f"{name}, line {number + t}: the line {shown(line)} has a tab, but the first line {shown(lines[0])} "
                f"has none: expected the same separator on all lines{_advice(lines[0])}"
            )
        # A cell and its separator have at least two characters, so cells of short lines need not be counted.
        if len(line) >= 2 * MOST_CELLS and (n := line.count(separator) + 1) > MOST_CELLS:
            raise FormatError(
                f"{name}, line {number + t}: the line has {n:,} cells: expected at most {MOST_CELLS:,}; for more, "
                "write a .jsonl file with features or vectors"
            )
