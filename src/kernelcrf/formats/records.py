"""A sequence as a file holds it.

kind        x
text        T rows of cells (word, part of speech, ...), which are strings
features    T tokens, each a dict of features or a list of feature names
vectors     (T, d), dense or CSR
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

# Default templates make a dozen features of each cell of a token.
MOST_CELLS = 1000

Kind: TypeAlias = Literal["text", "features", "vectors"]


class FormatError(ValueError):
    """Raised if a file is not what its format asks for; the message begins with its name and the line.

    Examples
    --------
    >>> from kernelcrf.formats import FormatError, format_of
    >>> try:
    ...     format_of("train.csv")
    ... except FormatError as error:
    ...     print(str(error)[:47])
    train.csv: the extension '.csv' is not known: e
    """


def one_line(error: Exception, most: int = 200) -> str:
    """Return the message of another library's error in one line of at most `most` printable characters."""
    text = " ".join(str(error).split()) or type(error).__name__
    line = "".join(c if c.isprintable() else ascii(c)[1:-1] for c in text[:most])
    return line if len(line) <= most and len(text) <= most else f"{line[: most - 3]}..."


@dataclass(frozen=True, eq=False, slots=True)
class Record:
    """One sequence of a file.

    labels : T labels, None for each missing one; None if the file has no labels.
    tokens : T words to show, None if the file has only features or vectors.
    place : where the sequence begins, such as "train.txt, line 12".
    raw : the lines of a column file, or the object of a JSON line; None for other formats.
    weight : the weight of the sequence in training.

    Examples
    --------
    >>> from kernelcrf.formats import Record
    >>> cells, labels = [["The", "DT"], ["dog", "NN"]], ["B-NP", "I-NP"]
    >>> record = Record("text", cells, labels, tokens=["The", "dog"], place="train.txt, line 1")
    >>> len(record), record.kind, record.width
    (2, 'text', 2)
    """

    kind: Kind
    x: Any
    labels: Sequence[Any] | None
    tokens: Sequence[str] | None
    place: str
    raw: object = None
    weight: float = 1.0

    def __len__(self) -> int:
        return int(self.x.shape[0]) if hasattr(self.x, "shape") else len(self.x)

    @property
    def width(self) -> int:
        """The number of cells or numbers per token; 0 for features."""
        return len(self.x[0]) if self.kind == "text" else int(self.x.shape[1]) if self.kind == "vectors" else 0
