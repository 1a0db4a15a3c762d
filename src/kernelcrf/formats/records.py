"""A sequence as a file holds it: what its tokens are, and the labels where there are some.

kind        x
text        T rows of cells (word, part of speech, ...), strings
features    T tokens, each a dict of features or a list of feature names
vectors     (T, d), dense or CSR
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

# Of a token of text. Default templates make a dozen features of each.
MOST_CELLS = 1000

Kind: TypeAlias = Literal["text", "features", "vectors"]


class FormatError(ValueError):
    """A file that is not what its format asks for; the message begins with its name and the line.

    Examples
    --------
    >>> from kernelcrf.formats import FormatError, format_of
    >>> try:
    ...     format_of("train.csv")
    ... except FormatError as error:
    ...     print(str(error)[:53])
    train.csv: the extension '.csv' is of no known format
    """


def one_line(error: Exception, most: int = 200) -> str:
    """Return what an error of another library says, in one line of at most `most` printable characters."""
    text = " ".join(str(error).split()) or type(error).__name__
    line = "".join(c if c.isprintable() else ascii(c)[1:-1] for c in text[:most])
    return line if len(line) <= most and len(text) <= most else f"{line[: most - 3]}..."


@dataclass(frozen=True, eq=False, slots=True)
class Record:
    """One sequence of a file.

    labels : T labels, None where one is missing; None where the file has no labels.
    tokens : T words to show, None where the file has only features or vectors.
    place : where the sequence begins, such as "train.txt, line 12".
    raw : what the file says: the lines of a column file, the object of a JSON line; None of other formats.
    weight : what the sequence counts for in training.

    Examples
    --------
    >>> from kernelcrf.formats import Record
    >>> cells, labels = [["The", "DT"], ["dog", "NN"]], ["B-NP", "I-NP"]
    >>> record = Record("text", cells, labels, tokens=["The", "dog"], place="train.txt, line 1")
    >>> len(record), record.kind, record.labels
    (2, 'text', ['B-NP', 'I-NP'])
    """

    kind: Kind
    x: Any
    labels: Sequence[Any] | None
    tokens: Sequence[str] | None
    place: str
    raw: Any = None
    weight: float = 1.0

    def __len__(self) -> int:
        return int(self.x.shape[0]) if hasattr(self.x, "shape") else len(self.x)
