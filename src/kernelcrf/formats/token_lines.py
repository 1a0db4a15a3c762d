"""The lines of one sequence in a file; some lines are comments or have no token."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

NOTHING = "_"


@dataclass(frozen=True, slots=True)
class TokenLines:
    """The lines of one sequence of a column file or a CoNLL-U file.

    lines : all lines, with comments.
    places : the indices of the lines that have a token.
    """

    lines: list[str]
    places: Sequence[int]

    @property
    def separator(self) -> str:
        """Return the character between the cells of a line: a tab, or a blank, or "" if a line has only one cell."""
        first = self.lines[self.places[0]].strip(" ")
        return next((one for one in "\t " if one in first), "")

    def line_of(self, t: int) -> int:
        """Return by how many lines token t is below the first token."""
        return self.places[t] - self.places[0]

    def with_cells(self, columns: Sequence[Sequence[str]], separator: str) -> Iterator[str]:
        """Return all lines, with one new cell per column at the end of each line; comments do not change.

        If a line has no token and is not a comment, its new cells are "_".

        columns : the new columns, each with one cell per token.
        """
        if len(self.places) == len(self.lines):
            return map(separator.join, zip(self.lines, *columns, strict=True))
        cells = dict(zip(self.places, zip(*columns, strict=True), strict=True))
        nothing = (NOTHING,) * len(columns)
        return (
            line if t not in cells and line.startswith("#") else separator.join((line, *cells.get(t, nothing)))
            for t, line in enumerate(self.lines)
        )
