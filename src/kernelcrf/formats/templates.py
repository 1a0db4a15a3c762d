"""Templates, which make features from tokens of text, in the syntax of CRF++ and Wapiti.

    # a comment
    U:w-1=%x[-1,0]                  the cell of the previous token, in column 0
    U:w0|p0=%x[0,0]|%x[0,1]         two cells together
    U:start=%m[0,0,"^.{1,3}"]       the match of the regular expression in the cell, empty without a match
    U:digit=%t[0,0,"[0-9]"]         whether there is a match: true or false
    U:shape=%s[0,0]                 the shape of the cell: letters as X and x, digits as 0, runs once
    B                               steps between labels, which a model always has

A feature is its line with the macros filled in. The capitals X, M, T and S put the cell into lower case first.
Tokens before the first have the cells _B-1, _B-2, ..., those after the last _B+1, _B+2, ...
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache, partial, reduce
from itertools import compress, islice
from operator import add
from typing import Generic, TypeAlias, TypeVar

import numpy as np

from kernelcrf.arrays import UserData
from kernelcrf.basis.entries import Entries
from kernelcrf.formats.records import MOST_CELLS
from kernelcrf.validation import shown

MACRO = re.compile(r'%([xmtsXMTS])\[\s*(-?\d{1,9})\s*,\s*(\d{1,9})\s*(?:,\s*"((?:[^"\\]|\\.)*)"\s*)?\]')
RUN = re.compile(r"(.)\1+", re.DOTALL)
FURTHEST = 20
REMEMBERED = 1 << 14
BEYOND = "\n"
KEY = "templates"
ABSENT = -1

TextFunction: TypeAlias = Callable[[str], str]
Search: TypeAlias = Callable[[str], re.Match[str] | None]
TextSequences: TypeAlias = Sequence[Sequence[Sequence[str]]]
T = TypeVar("T")


class TemplateError(ValueError):
    """Raised if a template file contains anything but templates.

    Examples
    --------
    >>> from kernelcrf.formats import TemplateError, Templates
    >>> try:
    ...     Templates("W:word=%x[0,0]", n_columns=1)
    ... except TemplateError as error:
    ...     print(str(error)[:51])
    templates, line 1: 'W:word=%x[0,0]' starts with 'W'
    """


class Memo(dict[str, T], Generic[T]):
    """A function of strings that remembers its values."""

    def __init__(self, function: Callable[[str], T]) -> None:
        self.function = function

    def __missing__(self, key: str) -> T:
        self[key] = value = self.function(key)
        return value

    def forget(self) -> None:
        """Forget all values if there are many: an endless stream has new words without end."""
        if len(self) > REMEMBERED:
            self.clear()


@dataclass(frozen=True)
class Place:
    """A part of a template: `text` is its text for a cell, which is `row` tokens further on, in `column`."""

    text: Memo[str]
    row: int
    column: int


@dataclass(frozen=True)
class Templates:
    r"""The templates of a text for tokens of `n_columns` cells; errors call them by `source`.

    Examples
    --------
    >>> from kernelcrf import ChainCRF
    >>> from kernelcrf.formats import Templates
    >>> templates = Templates("U:word=%x[0,0]\nU:before=%x[-1,0]", n_columns=1)
    >>> X = templates.features([[["the"], ["dog"]], [["a"], ["cat"]]])
    >>> X[0]
    [['U:word=the', 'U:before=_B-1'], ['U:word=dog', 'U:before=the']]
    >>> crf = ChainCRF("linear").fit(X, [["DET", "NOUN"], ["DET", "NOUN"]])
    >>> templates.attach(crf)  # the model keeps its templates from now on
    >>> Templates.of(crf).features([[["the"]]])
    [[['U:word=the', 'U:before=_B-1']]]
    >>> seen, inside = templates.cells([[["the"], ["dog"]]])
    >>> len(seen), len(inside)
    (2, 2)
    """

    text: str
    n_columns: int
    source: str = "templates"

    def __post_init__(self) -> None:
        check_n_columns(self.n_columns, self.source)
        if not self.compiled:
            raise TemplateError(f"{self.source}: no template: expected a line such as U:word=%x[0,0]")

    @classmethod
    def of(cls, model: UserData) -> Templates | None:
        """Return the templates in a model's metadata, None if there are none."""
        kept = model.metadata_.get(KEY)
        if kept is None:
            return None
        if not (
            isinstance(kept, dict) and isinstance(kept.get("text"), str) and isinstance(kept.get("n_columns"), int)
        ):
            raise TemplateError(f"metadata_[{KEY!r}] is {kept!r}: expected what Templates.attach keeps there")
        return cls(kept["text"], kept["n_columns"], "templates of the model")

    def attach(self, model: UserData) -> None:
        """Keep the templates in a fitted model's metadata, so that the command line can read text with it."""
        model.metadata_[KEY] = {"text": self.text, "n_columns": self.n_columns}

    def features(self, sequences: TextSequences) -> list[list[list[str]]]:
        """Return the feature names of each token of each sequence, which is a list of tokens' cells."""
        seen, inside = self.cells(sequences)
        found = [names(template, cells) for template, cells in zip(self.compiled, seen, strict=True)]
        tokens = compress(map(list, zip(*found, strict=True)), inside)
        return [list(islice(tokens, len(sequence))) for sequence in sequences]

    def cells(self, sequences: TextSequences) -> tuple[list[list[list[str]]], bytearray]:
        """Return the cells that each part of each template sees, and which of them belong to a token.

        All sequences come one after the other, with cells beyond their ends between them: going template by template
        over thousands of tokens takes a third of the time of going token by token.
        """
        for sequence in sequences:
            if len(sequence) and len(sequence[0]) != self.n_columns:
                raise TemplateError(
                    f"{self.source}: tokens of {len(sequence[0])} cells: expected {self.n_columns}, as many as the "
                    "templates were made for"
                )
        rows = [place.row for template in self.compiled for place in template]
        before, after = -min(0, *rows), max(0, *rows)
        head = [f"{BEYOND}_B-{i}" for i in range(before, 0, -1)]
        tail = [f"{BEYOND}_B+{i}" for i in range(1, after + 1)]
        columns: list[list[str]] = [[] for _ in range(self.n_columns)]
        inside = bytearray()
        for sequence in sequences:
            for column, own in zip(columns, zip(*sequence, strict=True), strict=True):
                column += head
                column += own
                column += tail
            inside += bytes(before) + b"\1" * len(sequence) + bytes(after)
        N = len(inside)
        seen = [
            [columns[place.column][before + place.row : N - after + place.row] for place in template]
            for template in self.compiled
        ]
        return seen, inside[before : N - after]

    @cached_property
    def compiled(self) -> list[list[Place]]:
        """The templates, each with its parts in order."""
        templates = []
        for number, line in enumerate(self.text.split("\n"), 1):
            line, source = line.strip(), f"{self.source}, line {number}"
            if not line or line.startswith("#") or line in ("B", "b"):
                continue
            if line[0] not in "Uu":
                raise TemplateError(
                    f"{source}: {line!r} starts with {line[0]!r}: expected U, a feature of the token's label; use "
                    "edge_kernel for features of the steps between labels, for which B stands alone"
                )
            macros = list(MACRO.finditer(line))
            starts, ends = [macro.start() for macro in macros], [0, *(macro.end() for macro in macros)]
            *literals, last = [line[a:b] for a, b in zip(ends, [*starts, len(line)], strict=True)]
            if not literals or any("%" in literal for literal in [*literals, last]):
                raise TemplateError(
                    f'{source}: {line!r}: expected macros such as %x[-1,0], %s[0,0], %m[0,0,"..."] or %t[0,0,"..."]'
                )
            afters = [*[""] * (len(literals) - 1), last]
            places = zip(literals, macros, afters, strict=True)
            templates.append([self._place(source, *place) for place in places])
        return templates

    def _place(self, source: str, before: str, macro: re.Match[str], after: str) -> Place:
        letter, row, column, pattern = macro[1], int(macro[2]), int(macro[3]), macro[4]
        if column >= self.n_columns:
            raise TemplateError(
                f"{source}: {macro[0]} names column {column}: expected a column below {self.n_columns}, the number of "
                "columns without the label"
            )
        if abs(row) > FURTHEST:
            raise TemplateError(f"{source}: {macro[0]} looks {abs(row)} tokens away: expected at most {FURTHEST}")
        if (pattern is None) == (letter in "mtMT"):
            raise TemplateError(
                f"{source}: {macro[0]}: expected a regular expression in quotes after the column of %m and %t, and no "
                "regular expression for %x and %s"
            )
        function = _function(letter, pattern, source)
        return Place(Memo(partial(_fill, before, function, letter.isupper(), after)), row, column)


def names(template: Sequence[Place], cells: Sequence[Sequence[str]]) -> Iterator[str]:
    """Return the features of a template whose parts see these cells."""
    for place in template:
        place.text.forget()
    parts = [map(place.text.__getitem__, own) for place, own in zip(template, cells, strict=True)]
    return iter(reduce(partial(map, add), parts))


class TemplateColumns:
    """The features of templates as columns of a vocabulary, to tag long streams.

    A template of one macro is a function of one cell: its column is remembered by the cell, so that repeated cells need
    no name and no look-up. Names of several macros are made, and their columns remembered by name.
    """

    def __init__(self, templates: Templates, vocabulary: Mapping[str, int]) -> None:
        self._templates, self._d = templates, len(vocabulary)
        self._known = [Memo(partial(_column, vocabulary, template)) for template in templates.compiled]

    def entries(self, sequences: TextSequences) -> Entries:
        """Return the rows that a vectoriser makes of `Templates.features`, all tokens one after the other."""
        seen, inside = self._templates.cells(sequences)
        table = np.empty((len(inside), len(seen)), np.int32)
        for k, (template, cells, known) in enumerate(zip(self._templates.compiled, seen, self._known, strict=True)):
            keys = cells[0] if len(cells) == 1 else names(template, cells)
            table[:, k] = np.fromiter(map(known.__getitem__, keys), np.int32, len(inside))
            known.forget()
        columns = table[np.frombuffer(inside, np.bool_)].ravel()
        offsets = np.arange(0, len(columns) + 1, len(seen), dtype=np.int64)
        return Entries(columns, np.ones(len(columns)), offsets, self._d)


def _column(vocabulary: Mapping[str, int], template: Sequence[Place], key: str) -> int:
    """Return the column of a cell, or of a name if the template has several macros, or ABSENT."""
    return vocabulary.get(template[0].text.function(key) if len(template) == 1 else key, ABSENT)


def default_templates(n_columns: int) -> Templates:
    """Return templates for words in column 0 and anything, such as parts of speech, in the others.

    Words have a window of five, pairs with the neighbours, lower case, shape, prefixes and suffixes of up to four
    letters. Each other column has a window of five with its pairs and triples.

    Examples
    --------
    >>> from kernelcrf.formats import default_templates
    >>> X = default_templates(1).features([[["Rome"], ["fell"]]])
    >>> len(X[0][0]), X[0][0][:3]
    (22, ['U:w[-2]=_B-2', 'U:w[-1]=_B-1', 'U:w[0]=Rome'])
    """
    check_n_columns(n_columns, "default templates")
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


# Several templates look at the same cell.
@lru_cache(REMEMBERED)
def shape(cell: str) -> str:
    """Return capitals as X, other letters as x, digits as 0, runs once: 'McGraw-42' gives 'XxXx-0'."""
    letters = ("0" if c.isdigit() else "X" if c.isupper() else "x" if c.isalpha() else c for c in cell)
    return RUN.sub(r"\1", "".join(letters))


def check_n_columns(n_columns: int, source: str) -> None:
    """Raise unless tokens may have so many cells."""
    if not isinstance(n_columns, int) or not 1 <= n_columns <= MOST_CELLS:
        raise TemplateError(f"{source}: n_columns={shown(n_columns)}: expected an integer from 1 to {MOST_CELLS:,}")


def _function(letter: str, pattern: str | None, source: str) -> TextFunction:
    if pattern is None:
        return shape if letter in "sS" else str
    try:
        search = re.compile(pattern.replace('\\"', '"')).search
    except (re.error, ValueError, OverflowError, RecursionError) as error:
        raise TemplateError(f"{source}: {pattern!r} is not a regular expression ({error})") from None
    return partial(_find if letter in "mM" else _test, search)


def _find(search: Search, cell: str) -> str:
    match = search(cell)
    return match[0] if match else ""


def _test(search: Search, cell: str) -> str:
    return "true" if search(cell) else "false"


def _fill(before: str, function: TextFunction, is_lower: bool, after: str, cell: str) -> str:
    """Return a macro's value for a cell between the text before and after it."""
    if cell.startswith(BEYOND):
        return f"{before}{cell.removeprefix(BEYOND)}{after}"
    return f"{before}{function(cell.lower() if is_lower else cell)}{after}"
