"""Column files, as of the CoNLL shared tasks: a token a line, cells apart by a tab or by blanks.

An empty line ends a sequence. The first line of a file says which separator it has, and how many cells.

The last cell is the label, unless the reader is told otherwise.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import chain
from typing import Any

from kernelcrf.formats.records import FormatError, Record
from kernelcrf.formats.streams import PathLike, display_name, paragraphs

SEPARATORS = "\t\n\r"


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
            cells = [line.split(separator) for line in lines]
            if separator == " " and any("" in row for row in cells):
                cells = [list(filter(None, row)) for row in cells]
            width = len(cells[0]) if width is None else width
            if set(map(len, cells)) != {width} or "" in chain.from_iterable(cells):
                t = next(t for t, row in enumerate(cells) if len(row) != width or "" in row)
                raise FormatError(
                    f"{name}, line {number + t}: expected {width} cells, none of them empty, got {cells[t]}"
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
                    f"a token and one for its label, got {batch[0][2][0]}"
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
    """The lines of a sequence, as they came where they did, with a further cell from each column of `extra`."""
    if record.raw is not None and record.kind == "text" and isinstance(record.raw, list):
        separator, known = ("\t" if "\t" in record.raw[0] else " "), record.raw
    else:
        separator = "\t"
        known = ["\t".join(row) for row in record.x] if record.kind == "text" else list(record.tokens or ())
    columns = [list(map(str, column)) for column in extra]
    return map(separator.join, zip(*([known] if known else []), *columns, strict=True))


def write(lines: Any, records: Iterable[Record]) -> None:
    """Write records of kind "text" to an open text file, apart by tabs."""
    for record in records:
        if record.kind != "text":
            raise FormatError(
                f"{record.place}: column files hold text, and this sequence has {record.kind}: write .jsonl, which "
                "holds any kind"
            )
        cells = [*zip(*record.x, strict=True), *([] if record.labels is None else [record.labels])]
        for row in zip(*cells, strict=True):
            if any(cell is None or not str(cell) or set(str(cell)) & set(SEPARATORS) for cell in row):
                raise FormatError(
                    f"{record.place}: the cells {list(row)} cannot be a line: expected none empty, none missing, none "
                    "with a tab, a newline or a carriage return"
                )
            lines.write("\t".join(map(str, row)) + "\n")
        lines.write("\n")
