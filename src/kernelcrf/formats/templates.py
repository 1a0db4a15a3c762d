"""Templates: which features a token of text has, written as CRF++ and Wapiti write theirs.

    # a comment
    U:w-1=%x[-1,0]                  the cell of the token before, in column 0
    U:w0|p0=%x[0,0]|%x[0,1]         two cells together
    U:start=%m[0,0,"^.{1,3}"]       what the regular expression finds in the cell, nothing where it finds nothing
    U:digit=%t[0,0,"[0-9]"]         whether it finds something: true or false
    U:shape=%s[0,0]                 the shape of the cell: letters as X and x, digits as 0, runs once
    B                               steps between labels, which a model has in any case

A feature is its line with the macros filled in. The capitals X, M, T and S put the cell into lower case first.
Tokens before the first are the cells _B-1, _B-2, ..., those after the last _B+1, _B+2, ...
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import repeat

MACRO = re.compile(r'%([xmtsXMTS])\[\s*(-?\d+)\s*,\s*(\d+)\s*(?:,\s*"((?:[^"\\]|\\.)*)"\s*)?\]')
RUN = re.compile(r"(.)\1+", re.DOTALL)
FURTHEST = 20
REMEMBERED = 1 << 16


class TemplateError(ValueError):
    """A template file that says something else than templates."""


@dataclass(frozen=True)
class Template:
    """literals[0] macros[0] literals[1] ... ; a macro is (view, row), a view what is read off a column."""

    literals: tuple[str, ...]
    macros: tuple[tuple[int, int], ...]


class View:
    """A function of the cells of a column, remembered for the cells that came before."""

    def __init__(self, column: int, function: Callable[[str], str] | None) -> None:
        self.column, self.function, self._known = column, function, dict[str, str]()

    def values(self, cells: Sequence[str]) -> Sequence[str]:
        """What is read off each of the cells."""
        if self.function is None:
            return cells
        known = self._known
        try:
            return list(map(known.__getitem__, cells))
        except KeyError:
            # Bounded: an endless stream has words without end.
            if len(known) > REMEMBERED:
                known.clear()
            for cell in cells:
                if cell not in known:
                    known[cell] = self.function(cell)
            return list(map(known.__getitem__, cells))


@dataclass(frozen=True)
class Templates:
    """The templates of a text for tokens of `n_columns` cells; `source` is what errors call it."""

    text: str
    n_columns: int
    source: str = "templates"

    def __post_init__(self) -> None:
        if not self._compiled[0]:
            raise TemplateError(f"{self.source}: no template: expected a line such as U:word=%x[0,0]")

    def features(self, rows: Sequence[Sequence[str]]) -> list[list[str]]:
        """The feature names of each token of a sequence; rows are its tokens' cells."""
        templates, views, before, after = self._compiled
        columns, T = list(zip(*rows, strict=True)), len(rows)
        head = [f"_B-{i}" for i in range(before, 0, -1)]
        tail = [f"_B+{i}" for i in range(1, after + 1)]
        padded = [[*head, *view.values(columns[view.column]), *tail] for view in views]
        found = []
        for template in templates:
            first, *later = template.literals
            (view, row), *others = template.macros
            start = before + row
            parts = [repeat(first), padded[view][start : start + T]]
            for literal, (view, row) in zip(later, others, strict=False):
                start = before + row
                parts += [repeat(literal), padded[view][start : start + T]]
            found.append(map("".join, zip(*parts, repeat(later[-1]), strict=False)))
        return list(map(list, zip(*found, strict=True)))

    @cached_property
    def _compiled(self) -> tuple[list[Template], list[View], int, int]:
        """Templates, views, and how far they look to the left and to the right."""
        templates: list[Template] = []
        views: dict[tuple[int, str, str | None], int] = {}
        made: list[View] = []
        for number, line in enumerate(self.text.split("\n"), 1):
            line, place = line.strip(), f"{self.source}, line {number}"
            if not line or line.startswith("#") or line in ("B", "b"):
                continue
            if line[0] not in "Uu":
                raise TemplateError(
                    f"{place}: {line!r} starts with {line[0]!r}: expected U, a feature of the token's label; B alone "
                    "stands for the steps between labels, and their features are edge_kernel's"
                )
            macros = []
            for match in MACRO.finditer(line):
                letter, row, column, pattern = match[1], int(match[2]), int(match[3]), match[4]
                _check(place, match[0], letter, row, column, pattern, self.n_columns)
                key = (column, letter, pattern)
                if key not in views:
                    views[key] = len(made)
                    made.append(View(column, _function(letter, pattern, place)))
                macros.append((views[key], row))
            literals = tuple(MACRO.sub("\0", line).split("\0"))
            if not macros or any("%" in literal for literal in literals):
                raise TemplateError(
                    f'{place}: {line!r}: expected macros such as %x[-1,0], %s[0,0], %m[0,0,"..."] or %t[0,0,"..."]'
                )
            templates.append(Template(literals, tuple(macros)))
        rows = [row for template in templates for _, row in template.macros]
        return templates, made, -min([0, *rows]), max([0, *rows])


def default_templates(n_columns: int) -> Templates:
    """For words in column 0 and anything, such as parts of speech, in the others.

    Of the words: a window of five, pairs with the neighbours, lower case, shape, prefixes and suffixes of up to four
    letters. Of each other column: a window of five, its pairs and triples.
    """
    lines = [f"U:w[{i}]=%x[{i},0]" for i in range(-2, 3)]
    lines += [f"U:w[{i},{i + 1}]=%x[{i},0]|%x[{i + 1},0]" for i in (-1, 0)]
    lines += [f"U:lower[{i}]=%X[{i},0]" for i in (-1, 0, 1)]
    lines += [f"U:shape[{i}]=%s[{i},0]" for i in (-1, 0, 1)]
    lines.append("U:shape[-1,0,1]=%s[-1,0]|%s[0,0]|%s[1,0]")
    lines += [f'U:prefix{n}=%M[0,0,"^.{{1,{n}}}"]' for n in range(1, 5)]
    lines += [f'U:suffix{n}=%M[0,0,".{{1,{n}}}$"]' for n in range(1, 5)]
    for c in range(1, n_columns):
        for n in (1, 2, 3):
            for i in range(-2, 4 - n):
                run = range(i, i + n)
                cells = "|".join(f"%x[{j},{c}]" for j in run)
                lines.append(f"U:c{c}[{','.join(map(str, run))}]={cells}")
    return Templates("\n".join(lines), n_columns, "default templates")


def shape(cell: str) -> str:
    """Capitals as X, other letters as x, digits as 0, all else as it is; runs once: 'McGraw-42' is 'XxXx-0'."""
    letters = ("0" if c.isdigit() else "X" if c.isupper() else "x" if c.isalpha() else c for c in cell)
    return RUN.sub(r"\1", "".join(letters))


def _check(place: str, macro: str, letter: str, row: int, column: int, pattern: str | None, n_columns: int) -> None:
    if column >= n_columns:
        raise TemplateError(
            f"{place}: {macro} names column {column}: expected one below {n_columns}, the number of columns beside the "
            "label"
        )
    if abs(row) > FURTHEST:
        raise TemplateError(f"{place}: {macro} looks {abs(row)} tokens away: expected at most {FURTHEST}")
    if (pattern is None) == (letter in "mtMT"):
        raise TemplateError(
            f"{place}: {macro}: expected a regular expression in quotes after the column of %m and %t, and none of "
            "%x and %s"
        )


def _function(letter: str, pattern: str | None, place: str) -> Callable[[str], str] | None:
    plain: Callable[[str], str] | None = None
    if pattern is not None:
        try:
            search = re.compile(pattern.replace('\\"', '"')).search
        except re.error as error:
            raise TemplateError(f"{place}: {pattern!r} is no regular expression ({error})") from None
        if letter in "mM":

            def plain(cell: str) -> str:
                match = search(cell)
                return match[0] if match else ""
        else:

            def plain(cell: str) -> str:
                return "true" if search(cell) else "false"
    elif letter in "sS":
        plain = shape
    if letter.islower():
        return plain
    return str.lower if plain is None else (lambda cell: plain(cell.lower()))
