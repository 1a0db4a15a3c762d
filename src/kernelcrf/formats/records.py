"""Define `Record`, which stores one sequence of a file, and convert records to JSON objects and back.

The input `x` of a record depends on its kind:

text        one list of strings per token, such as the word and its part of speech
features    one dict of features, or one list of feature names, per token
vectors     one row of numbers per token, in a dense array or a CSR matrix

A JSON object, or a row of a Parquet file, has at least one of the entries tokens, features and vectors, but not both
features and vectors. Labels and weight are optional, and entries with other names are ignored:

tokens      one word, or one list of strings, per token; they are the input unless there are features or vectors
features    one dict from names to values, or one list of feature names, per token
vectors     one list of numbers per token
labels      one label per token; null means a missing label, and a list means that each of its labels is possible
weight      the weight of the sequence in training
"""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

import numpy as np

from kernelcrf.arrays import Floats
from kernelcrf.readers.feature_items import flat_items
from kernelcrf.readers.labels import plain
from kernelcrf.validation import shown

# The limit keeps default templates small: they create a dozen features from each cell of a token.
MOST_CELLS = 1000
LONGEST_CELL = 10_000

Kind: TypeAlias = Literal["text", "features", "vectors"]
KEYS = ("tokens", "features", "vectors", "labels", "weight")
INPUTS: tuple[Kind, ...] = ("features", "vectors")


class FormatError(ValueError):
    """Raised if a file does not follow its format; the message begins with the file name and the line.

    Examples
    --------
    >>> from kernelcrf.formats import FormatError, format_of
    >>> try:
    ...     format_of("train.csv")
    ... except FormatError as error:
    ...     print(str(error)[:47])
    train.csv: the extension '.csv' is not known: e
    """


@dataclass(frozen=True, eq=False, slots=True)
class Record:
    """One sequence of a file.

    kind : "text", "features" or "vectors".
    x : the input, one entry per token: a list of strings, the features or a row of numbers, depending on `kind`.
    labels : one label per token, in which None is a missing label; None if the whole sequence is unlabelled.
    tokens : one word per token, to be displayed; None if the file has only features or vectors.
    place : where the sequence begins, such as "train.txt, line 12".
    raw : the original lines of a column file or CoNLL-U file, or the original JSON object; None for other formats.
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
        """Return the number of cells per token for text, the number of columns for vectors, and 0 for features."""
        return len(self.x[0]) if self.kind == "text" else int(self.x.shape[1]) if self.kind == "vectors" else 0


def record_of(entries: object, place: str, raw: object = None) -> Record:
    """Convert a JSON object to a record; if the object is not valid, raise a FormatError that begins with `place`."""
    if not isinstance(entries, Mapping):
        raise FormatError(f"{place}: expected an object with tokens, features or vectors, got {shown(entries)}")
    lists: dict[str, list[Any]] = {key: entries[key] for key in KEYS[:4] if entries.get(key) is not None}
    for key, value in lists.items():
        if not isinstance(value, list):
            raise FormatError(f"{place}: {key} is {shown(value)}: expected a list with one entry per token")
    given = [key for key in INPUTS if key in lists]
    if len(given) > 1 or not (given or "tokens" in lists):
        raise FormatError(
            f"{place}: the object has the entries {list(entries)[:10]}: expected tokens, features or vectors, but not "
            "both features and vectors"
        )
    lengths = {key: len(value) for key, value in lists.items()}
    if len(set(lengths.values())) > 1 or 0 in lengths.values():
        raise FormatError(f"{place}: the lists have the lengths {lengths}: expected equal lengths above 0")
    _check_features(lists.get("features", ()), place)
    rows = _rows(lists["tokens"], place) if "tokens" in lists else None
    kind: Kind = given[0] if given else "text"
    weight = 1.0 if entries.get("weight") is None else entries["weight"]
    if isinstance(weight, bool) or not _is_finite(weight) or weight < 0:
        raise FormatError(f"{place}: the weight is {shown(weight)}: expected a number >= 0")
    x = rows if kind == "text" else _vectors(lists[kind], place) if kind == "vectors" else lists[kind]
    labels = [_label(label, place) for label in lists["labels"]] if "labels" in lists else None
    return Record(kind, x, labels, None if rows is None else [row[0] for row in rows], place, raw, float(weight))


def object_of(record: Record) -> dict[str, object]:
    """Convert a record to a JSON object, from which `record_of` restores the record."""
    entries: dict[str, object] = {}
    if record.kind == "text":
        single = all(len(row) == 1 for row in record.x)
        entries["tokens"] = [row[0] for row in record.x] if single else [list(row) for row in record.x]
    elif record.tokens is not None:
        entries["tokens"] = list(record.tokens)
    if record.kind == "features":
        entries["features"] = record.x
    elif record.kind == "vectors":
        entries["vectors"] = (record.x.toarray() if hasattr(record.x, "toarray") else record.x).tolist()
    if record.labels is not None:
        entries["labels"] = [plain_label(label) for label in record.labels]
    if record.weight != 1.0:
        entries["weight"] = record.weight
    return entries


def plain_label(label: object) -> object:
    """Convert a label to a value that JSON can store: a set becomes a sorted list."""
    return sorted(map(plain_label, label), key=repr) if isinstance(label, set | frozenset) else plain(label)


def _check_features(tokens: Sequence[object], place: str) -> None:
    if not all(isinstance(token, Mapping | list) for token in tokens):
        raise FormatError(f"{place}: features are {shown(tokens)}: expected a dict, or a list of names, for each token")
    for t, token in enumerate(tokens):
        try:
            items = flat_items(token)
        except (TypeError, RecursionError) as error:
            raise FormatError(f"{place}: the features of token {t}, {shown(token)}, are not valid: {error}") from None
        for name, value in items:
            if not isinstance(value, str) and not _is_finite(value):
                raise FormatError(
                    f"{place}: token {t} has the value {shown(value)} for the feature {shown(name)}: expected a "
                    "string, a finite number, true or false, a list of strings or an object; leave out features "
                    "without a value"
                )


def _is_finite(value: object) -> bool:
    return isinstance(value, int | float) and -sys.float_info.max <= value <= sys.float_info.max


def _rows(tokens: list[Any], place: str) -> list[list[str]]:
    rows = [[token] if isinstance(token, str) else token for token in tokens]
    widths = {len(row) if isinstance(row, list) else 0 for row in rows}
    if len(widths) > 1 or 0 in widths or not all(isinstance(cell, str) for row in rows for cell in row):
        raise FormatError(f"{place}: tokens are {shown(tokens)}: expected strings, or lists of strings of equal length")
    if len(rows[0]) > MOST_CELLS:
        raise FormatError(f"{place}: tokens have {len(rows[0]):,} cells: expected at most {MOST_CELLS:,}")
    return rows


def _vectors(vectors: list[Any], place: str) -> Floats:
    try:
        X = np.array(vectors, np.float64)
    except (ValueError, TypeError, OverflowError):
        X = np.empty(0)
    if X.ndim != 2 or X.shape[1] == 0:
        raise FormatError(f"{place}: vectors are {shown(vectors)}: expected lists of numbers, all of the same length")
    if not np.isfinite(X).all():
        t = int(np.flatnonzero(~np.isfinite(X).all(axis=1))[0])
        raise FormatError(f"{place}: the vector of token {t} is {shown(vectors[t])}: expected finite numbers")
    # Every integer below 2^53 is exact as a float64.
    if X.size and max(X.max(), -X.min()) >= 2.0**53 and X.tolist() != vectors:
        raise FormatError(
            f"{place}: vectors have an integer that float64 cannot represent exactly: expected smaller integers, or "
            "floats; to accept rounding, write the integer with a decimal point"
        )
    return X


def _label(label: Any, place: str) -> Any:
    if isinstance(label, list) and label and not any(one is None or isinstance(one, list) for one in label):
        return {_label(one, place) for one in label}
    if label is None or isinstance(label, str | int) or _is_finite(label):
        return label
    raise FormatError(
        f"{place}: a label is {shown(label)}: expected a string, a finite number, true or false, null for a missing "
        "label, or a list of the labels that a token may have"
    )
