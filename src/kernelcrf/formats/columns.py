"""Column files, as of the CoNLL shared tasks: a token a line, cells apart by a tab or by blanks.

An empty line ends a sequence. The first line of a file says which separator it has, and how many cells.

The last cell is the label, unless the reader is told otherwise. A line has at most MOST_CELLS cells: each of them takes
memory of its own, and default templates make a dozen features of each.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import chain
from typing import Any

from kernelcrf.formats.faithful import HOLDS_ALL, TextLabels, check_unweighted, is_line
from kernelcrf.formats.records import MOST_CELLS, FormatError, Record
from kernelcrf.formats.streams import MARK, PathLike, display_name, paragraphs
from kernelcrf.validation import shown

FORMAT = "a column file"


def rows(
    path: PathLike, *, separator: str | None = None, width: int | None = None
) -> Iterator[list[tuple[int, list[str], list[list[str]]]]]:
    """Batches of sequences: the number of their first line, their lines, and the cells of each line.

    separator, width : as the file must have them; None takes those of the first line.
    """
    name = display_name(path)
    for batch in paragraphs(path):
        found = []
        for number, lines in batch:
            if separator is None:
                separator = "\t" if "\t" in lines[0] else " "
            _check_cells(lines, separator, name, number)
            cells = [line.split(separator) for line in lines]
            if separator == " " and any("" in row for row in cells):
                cells = [list(filter(None, row)) for row in cells]
            width = len(cells[0]) if width is None else width
            if set(map(len, cells)) != {width} or "" in chain.from_iterable(cells):
                t = next(t for t, row in enumerate(cells) if len(row) != width or "" in row)
                raise FormatError(
                    f"{name}, line {number + t}: expected {width} cells, none of them empty, got {shown(cells[t])}"
                )
            found.append((number, lines, cells))
        yield found


def read(path: PathLike, *, n_columns: int | None = None, labels: bool = True) -> Iterator[list[Record]]:
    """Batches of records of kind "text".

    n_columns : how many cells describe a token; a further one is its label. None is all but the last, or all where
        `labels` is False.
    """
    name, seen = display_name(path), False
    for batch in rows(path):
        if not seen and batch:
            seen, width = True, len(batch[0][2][0])
            n = n_columns if n_columns is not None else width - labels
            if n < 1 or not n <= width <= n + 1:
                expected = f"{n_columns} or {n_columns + 1}" if n_columns is not None else "2 or more"
                raise FormatError(
                    f"{name}, line {batch[0][0]}: expected {expected} cells, one for each of the columns that describe "
                    f"a token and one for its label, got {shown(batch[0][2][0])}"
                )
        labelled = n < width
        yield [
            Record(
                "text",
                [row[:n] for row in cells] if labelled else cells,
                [row[n] for row in cells] if labelled else None,
                [row[0] for row in cells],
                f"{name}, line {number}",
                lines,
            )
            for number, lines, cells in batch
        ]


def lines_of(record: Record, extra: Iterable[Sequence[Any]]) -> Iterator[str]:
    """Return the lines of a sequence, as they came if they did, with a further cell from each column of `extra`."""
    columns = [list(map(str, column)) for column in extra]
    if record.raw is not None and record.kind == "text" and isinstance(record.raw, list):
        separator, known = ("\t" if "\t" in record.raw[0] else " "), record.raw
    else:
        separator = "\t"
        known = ["\t".join(row) for row in record.x] if record.kind == "text" else list(record.tokens or ())
        if record.kind != "text":
            columns, known = [known, *columns] if known else columns, []
    # A set: the same few labels are on millions of lines.
    for cell in {cell for column in columns for cell in column}:
        if not cell or separator in cell or set(cell) & set("\t\n\r"):
            raise FormatError(
                f"{record.place}: {shown(cell)} cannot be a cell of a line: expected text that is not empty, without "
                "tabs and ends of lines, and without blanks between cells apart by blanks; ask for --json"
            )
    return map(separator.join, zip(*([known] if known else []), *columns, strict=True))


def write(lines: Any, records: Iterable[Record]) -> None:
    """Write records of kind "text" to an open text file, apart by tabs."""
    labels, first = TextLabels(FORMAT), None
    for record in records:
        if record.kind != "text":
            raise FormatError(
                f"{record.place}: column files hold text, and this sequence has {record.kind}: write .jsonl, which "
                "holds any kind"
            )
        check_unweighted(record, FORMAT)
        table = [list(row) for row in record.x]
        if record.labels is not None:
            if None in record.labels:
                raise FormatError(
                    f"{record.place}: a label is missing, and the cells cannot be a line without it: {HOLDS_ALL}"
                )
            table = [[*row, label] for row, label in zip(table, labels.texts(record) or [], strict=True)]
        for row in table:
            line = "\t".join(row)
            first = first or (len(row), line)
            if len(row) != first[0]:
                raise FormatError(
                    f"{record.place}: {len(row)} cells after lines of {first[0]}: expected labels for all sequences "
                    f"or for none; {HOLDS_ALL}"
                )
            if not _is_line(line, row, "\t" if "\t" in first[1] else " ") or first[1].startswith(MARK):
                raise FormatError(
                    f"{record.place}: the cells {shown(row)} cannot be a line: expected none empty, none with a tab, a "
                    f"newline or a carriage return, and no blanks in a single cell; {HOLDS_ALL}"
                )
            lines.write(line + "\n")
        lines.write("\n")


def _is_line(line: str, row: list[str], separator: str) -> bool:
    """Return whether the line is read as the cells that it was made of."""
    cells = line.split(separator)
    return cells == row and "" not in cells and is_line(line)


def _check_cells(lines: list[str], separator: str, name: str, number: int) -> None:
    """Refuse a line of too many cells before they are apart."""
    for t, line in enumerate(lines):
        # A cell and a separator take two characters, so that most lines need not be looked through.
        if len(line) >= 2 * MOST_CELLS and (n := line.count(separator) + 1) > MOST_CELLS:
            raise FormatError(
                f"{name}, line {number + t}: {n:,} cells: expected at most {MOST_CELLS:,}, one for each column; write "
                ".jsonl with features or vectors"
            )
