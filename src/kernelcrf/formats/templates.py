"""Create features from the cells of tokens with templates, in the syntax of CRF++ and Wapiti.

    # a comment
    U:w-1=%x[-1,0]                  the cell of the previous token (-1) in column 0
    U:w0|p0=%x[0,0]|%x[0,1]         the cells of the current token in columns 0 and 1, as one feature
    U:start=%m[0,0,"^.{1,3}"]       the first match of the regular expression in the cell, or an empty text
    U:digit=%t[0,0,"[0-9]"]         true if the regular expression matches in the cell, else false
    U:shape=%s[0,0]                 the shape of the cell, such as Xx-0 for Rome-42
    B01:%x[0,0]                     a feature of the step from the label of the previous token to the current label
    *:p0=%x[0,1]                    a feature of the current label and of the step to it, as U:... and B:... together
    B                               ignored, since every model has transitions between labels
    *, U                            a feature that every token has, and so a constant score of each label

Each line is a template and gives one feature per token: the line, in which each macro (%...) is replaced by its value.
The macros %X, %M, %T and %S convert the cell to lower case first. Positions before the first token have the cells
_B-1, _B-2, ..., and positions after the last token have _B+1, _B+2, ...

Templates repeat a cell many times, so that a cell may have at most LONGEST_CELL characters.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache, partial, reduce
from itertools import chain, compress, islice
from operator import add
from typing import Generic, TypeAlias, TypeVar

import numpy as np

from kernelcrf.arrays import UserData
from kernelcrf.basis.sparse_entries import Entries
from kernelcrf.formats.records import LONGEST_CELL, MOST_CELLS
from kernelcrf.score.chain_names import STEPS, TOKENS
from kernelcrf.validation import shown

# Templates that need no macro: they give the same feature to each token, or, for B, to each step.
CONSTANT = re.compile(r"[BbUu*]\d*:?")
MACRO = re.compile(r'%([xmtsXMTS])\[\s*(-?\d{1,9})\s*,\s*(\d{1,9})\s*(?:,\s*"((?:[^"\\]|\\.)*)"\s*)?\]')
RUN = re.compile(r"(.)\1+", re.DOTALL)
FURTHEST = 20
REMEMBERED = 1 << 14
# Longer texts are not remembered: many of them would fill the memory.
REMEMBERED_LENGTH = 256
# Half of a surrogate pair, which no valid text has, marks padding.
BEYOND = "\ud800"
KEY = "templates"
FOR_TOKENS, FOR_STEPS = "Uu*", "Bb*"
ABSENT = -1

Search: TypeAlias = Callable[[str], re.Match[str] | None]
TextSequences: TypeAlias = Sequence[Sequence[Sequence[str]]]
Features: TypeAlias = list[list[str]]
T = TypeVar("T")


class TemplateError(ValueError):
    """Raised if a line is not a valid template, or if templates do not fit the number of cells per token.

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
    """A dict that computes the value of a missing key with a given function, and stores the value."""

    def __init__(self, function: Callable[[str], T]) -> None:
        self.function = function

    def __missing__(self, key: str) -> T:
        value = self.function(key)
        if len(key) <= REMEMBERED_LENGTH:
            self[key] = value
        return value

    def forget(self) -> None:
        """Drop all values if there are more than REMEMBERED, so that an endless stream does not fill the memory."""
        if len(self) > REMEMBERED:
            self.clear()


@dataclass(frozen=True)
class Place:
    """A macro of a template, such as %x[-1,0], with the literal text around it.

    text : a dict from each cell to a part of the feature name: the value of the macro, and the literal text around it.
    row, column : the position of the cell: `row` is counted from the current token, so -1 is the previous token.
    """

    text: Memo[str]
    row: int
    column: int


@dataclass(frozen=True)
class Templates:
    r"""Templates that create features from the cells of tokens, in the syntax of CRF++ and Wapiti.

    text : the templates, one per line.
    n_columns : the number of cells per token, without the label.
    source : the name of the templates, with which error messages begin.

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

    With templates that begin with ``B`` or ``*``, the features of a sequence are a dict, with an input per entry:

    >>> from kernelcrf import Input
    >>> templates = Templates("U:word=%x[0,0]\nB:word=%x[0,0]", n_columns=1)
    >>> templates.have_steps
    True
    >>> X = templates.features([[["the"], ["dog"]], [["a"], ["cat"]]])
    >>> X[0]
    {'tokens': [['U:word=the'], ['U:word=dog']], 'steps': [['B:word=the'], ['B:word=dog']]}
    >>> inputs = {"tokens": Input("linear"), "steps": Input("linear", scores="steps")}
    >>> ChainCRF(inputs=inputs, C=1.0).fit(X, [["DET", "NOUN"], ["DET", "NOUN"]]).edge_coef_.shape
    (4, 2, 2)
    """

    text: str
    n_columns: int
    source: str = "templates"

    def __post_init__(self) -> None:
        check_n_columns(self.n_columns, self.source)
        if not (self.compiled and self.of_tokens):
            raise TemplateError(
                f"{self.source}: the text has no template for tokens: expected a line such as U:word=%x[0,0]"
            )

    @classmethod
    def of(cls, model: UserData) -> Templates | None:
        """Return the templates that `attach` stored in a model, or None if the model has no templates."""
        kept = model.metadata_.get(KEY)
        if kept is None:
            return None
        text, n_columns = map(kept.get, ("text", "n_columns")) if isinstance(kept, dict) else (None, None)
        if not isinstance(text, str) or not isinstance(n_columns, int):
            raise TemplateError(
                f"metadata_[{KEY!r}] is {kept!r}: expected the value that Templates.attach stores; call attach again"
            )
        return cls(text, n_columns, "templates of the model")

    def attach(self, model: UserData) -> None:
        """Store the templates in the metadata of a fitted model, so that `kernelcrf tag` can label text."""
        model.metadata_[KEY] = {"text": self.text, "n_columns": self.n_columns}

    @property
    def have_steps(self) -> bool:
        """Return whether some templates give features of steps, as lines that begin with B or * do."""
        return len(self.of_steps) > 0

    def features(self, sequences: TextSequences) -> list[Features] | list[dict[str, Features]]:
        """Return the list of feature names of each token of each sequence; an input token is a list of cells.

        If `have_steps`, each sequence is a dict instead. Its entry "tokens" has these lists of feature names, and its
        entry "steps" those of the step from the previous token to each token. The step of a first token is not used.
        """
        seen, inside = self.cells(sequences)
        made = [list(names(template, cells)) for template, cells in zip(self.compiled, seen, strict=True)]
        of_tokens = _by_token([made[k] for k in self.of_tokens], inside, sequences)
        if not self.have_steps:
            return of_tokens
        of_steps = _by_token([made[k] for k in self.of_steps], inside, sequences)
        return [{TOKENS: own, STEPS: steps} for own, steps in zip(of_tokens, of_steps, strict=True)]

    def cells(self, sequences: TextSequences) -> tuple[list[list[list[str]]], bytearray]:
        """Return a pair: the cells that each macro of each template reads, and one flag per position.

        The positions are the tokens of all sequences, with padding such as _B+1 between sequences. Each macro reads one
        cell per position. The flag of a position is 1 for a token and 0 for padding.

        Applying each template to all positions at once takes a third of the time of applying all templates token by
        token.
        """
        for sequence in sequences:
            if len(sequence) and len(sequence[0]) != self.n_columns:
                raise TemplateError(
                    f"{self.source}: tokens have {len(sequence[0])} cells: expected {self.n_columns}, the n_columns "
                    "of the templates"
                )
        rows = [place.row for template in self.compiled for place in template]
        before, after = -min(0, *rows), max(0, *rows)
        head = [f"{BEYOND}_B-{i}" for i in range(before, 0, -1)]
        tail = [f"{BEYOND}_B+{i}" for i in range(1, after + 1)]
        columns: list[list[str]] = [[] for _ in range(self.n_columns)]
        inside = bytearray()
        for sequence in sequences:
            for column, cells in zip(columns, zip(*sequence, strict=True), strict=True):
                column += head
                column += cells
                column += tail
            inside += bytes(before) + b"\1" * len(sequence) + bytes(after)
        if max(map(len, chain.from_iterable(columns)), default=0) > LONGEST_CELL:
            raise self._long_cell(sequences)
        N = len(inside)
        seen = [
            [columns[place.column][before + place.row : N - after + place.row] for place in template]
            for template in self.compiled
        ]
        return seen, inside[before : N - after]

    def _long_cell(self, sequences: TextSequences) -> TemplateError:
        """Return the error for the first cell that is too long."""
        tokens = ((i, t, token) for i, sequence in enumerate(sequences) for t, token in enumerate(sequence))
        cells = ((i, t, cell) for i, t, token in tokens for cell in token)
        i, t, cell = next(place for place in cells if len(place[2]) > LONGEST_CELL)
        return TemplateError(
            f"{self.source}: token {t} of sequence {i} has a cell of {len(cell):,} characters, {shown(cell)}: expected "
            f"at most {LONGEST_CELL:,}; divide it into tokens, or shorten it"
        )

    @cached_property
    def compiled(self) -> list[list[Place]]:
        """Return the parsed templates; each template is a list of `Place`, one per macro."""
        return [self._parse(line, source) for line, source in self._lines]

    @cached_property
    def of_tokens(self) -> list[int]:
        """Return the indices in `compiled` of the templates whose features score labels."""
        return [k for k, (line, _) in enumerate(self._lines) if line[0] in FOR_TOKENS]

    @cached_property
    def of_steps(self) -> list[int]:
        """Return the indices in `compiled` of the templates whose features score steps from one label to the next.

        Templates without a macro are left out, because a constant score of each step is part of every model.
        """
        return [k for k, (line, _) in enumerate(self._lines) if line[0] in FOR_STEPS and not CONSTANT.fullmatch(line)]

    @cached_property
    def _lines(self) -> list[tuple[str, str]]:
        """Return the lines that give features, each with its place for error messages."""
        lines = []
        for number, line in enumerate(self.text.split("\n"), 1):
            line, source = line.strip(), f"{self.source}, line {number}"
            if not line or line.startswith("#") or (line[0] in "Bb" and CONSTANT.fullmatch(line)):
                continue
            if line[0] not in FOR_TOKENS + FOR_STEPS:
                raise TemplateError(
                    f"{source}: {line!r} starts with {line[0]!r}: expected a line that starts with U for features of "
                    "tokens, B for features of steps, or * for both"
                )
            lines.append((line, source))
        return lines

    def _parse(self, line: str, source: str) -> list[Place]:
        """Return the macros of a line with the literal texts around them."""
        if CONSTANT.fullmatch(line):
            return [Place(Memo(partial(_constant, line)), 0, 0)]
        macros, literals = list(MACRO.finditer(line)), MACRO.split(line)[:: MACRO.groups + 1]
        if not macros or any("%" in literal for literal in literals):
            raise TemplateError(
                f"{source}: {line!r} has no macro, or one that is not valid: expected macros such as %x[-1,0], "
                '%s[0,0], %m[0,0,"..."] or %t[0,0,"..."]'
            )
        afters = [""] * (len(macros) - 1) + literals[-1:]
        places = zip(literals[:-1], macros, afters, strict=True)
        return [self._place(source, *place) for place in places]

    def _place(self, source: str, before: str, macro: re.Match[str], after: str) -> Place:
        letter, row, column, pattern = macro[1], int(macro[2]), int(macro[3]), macro[4]
        if column >= self.n_columns:
            raise TemplateError(
                f"{source}: {macro[0]} uses column {column}: expected a column below {self.n_columns}, the number of "
                "columns without the label"
            )
        if abs(row) > FURTHEST:
            raise TemplateError(
                f"{source}: {macro[0]} reads a cell {abs(row)} tokens away: expected at most {FURTHEST} tokens"
            )
        if (pattern is None) == (letter in "mtMT"):
            raise TemplateError(
                f"{source}: {macro[0]} is not valid: expected a regular expression in quotes after the column in %m "
                "and %t, and no regular expression in %x and %s"
            )
        try:
            search = re.compile((pattern or "").replace('\\"', '"')).search
        except (re.error, ValueError, OverflowError, RecursionError) as error:
            raise TemplateError(f"{source}: {pattern!r} is not a valid regular expression ({error})") from None
        return Place(Memo(partial(_fill, before, letter, search, after)), row, column)


def names(template: Sequence[Place], cells: Sequence[Sequence[str]]) -> Iterator[str]:
    """Return the feature names that one template creates, one name per position.

    cells : for each macro of the template, the list of the cells that it reads, one per position.
    """
    for place in template:
        place.text.forget()
    parts = [map(place.text.__getitem__, texts) for place, texts in zip(template, cells, strict=True)]
    return iter(reduce(partial(map, add), parts))


def _by_token(made: Sequence[Sequence[str]], inside: bytearray, sequences: TextSequences) -> list[Features]:
    """Return one list of feature names per token of each sequence.

    made : for each template, one feature name per position.
    inside : 1 for each position that is a token.
    """
    tokens = compress(map(list, zip(*made, strict=True)), inside)
    return [list(islice(tokens, len(sequence))) for sequence in sequences]


class TemplateColumns:
    """Converts text to sparse rows, with templates of tokens and a vocabulary that maps feature names to columns.

    To be fast on long streams, columns are cached. If a template has one macro, each of its features depends on one
    cell only. The columns of these features are cached by cell, so that each feature name is built once. The columns of
    other features are cached by feature name.
    """

    def __init__(self, templates: Templates, vocabulary: Mapping[str, int]) -> None:
        self._templates, self._d = templates, len(vocabulary)
        self._known = [Memo(partial(_column, vocabulary, template)) for template in templates.compiled]

    def entries(self, sequences: TextSequences) -> Entries:
        """Return the sparse rows, one per token, that a vectoriser makes from the result of `Templates.features`."""
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
    """Return the column of the feature that a template creates, or ABSENT if it is not in the vocabulary.

    key : the cell if the template has one macro, otherwise the feature name.
    """
    return vocabulary.get(template[0].text.function(key) if len(template) == 1 else key, ABSENT)


def default_templates(n_columns: int) -> Templates:
    """Return templates for words in column 0 and other cells, such as parts of speech, in further columns.

    Column 0 gives the words in a window of five tokens, and the pairs of the word with the previous and with the next
    word. It also gives the lower-case words and the word shapes in a window of three tokens, and the prefixes and
    suffixes of the word of up to four letters. Each further column gives the cells in a window of five tokens, and all
    pairs and triples of adjacent cells in this window.

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


# The cache helps because several templates look at the same cell.
@lru_cache(REMEMBERED)
def shape(cell: str) -> str:
    """Replace capitals by X, other letters by x and digits by 0, then merge repeats: 'McGraw-42' gives 'XxXx-0'."""
    letters = ("0" if c.isdigit() else "X" if c.isupper() else "x" if c.isalpha() else c for c in cell)
    return RUN.sub(r"\1", "".join(letters))


def check_n_columns(n_columns: int, source: str) -> None:
    """Raise if `n_columns`, the number of cells per token, is not an integer from 1 to MOST_CELLS."""
    if not isinstance(n_columns, int) or not 1 <= n_columns <= MOST_CELLS:
        raise TemplateError(f"{source}: n_columns={shown(n_columns)}: expected an integer from 1 to {MOST_CELLS:,}")


def _constant(line: str, cell: str) -> str:
    return line


def _fill(before: str, letter: str, search: Search, after: str, cell: str) -> str:
    """Return the value of a macro for a cell, between the literal texts `before` and `after`.

    letter : the letter of the macro, such as "x" for %x.
    search : the search function of the regular expression of the macro.
    """
    if cell.startswith(BEYOND):
        return f"{before}{cell.removeprefix(BEYOND)}{after}"
    value = cell.lower() if letter.isupper() else cell
    if letter in "sS":
        value = (shape if len(value) <= REMEMBERED_LENGTH else shape.__wrapped__)(value)
    elif letter in "mM":
        value = match[0] if (match := search(value)) else ""
    elif letter in "tT":
        value = "true" if search(value) else "false"
    return f"{before}{value}{after}"
