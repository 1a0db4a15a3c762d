"""Check that a format can store each value unchanged; writers raise an error if it cannot.

Text formats store labels as text, such as "1" for the number 1. Distinct labels of a file must have distinct texts.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np

from kernelcrf.arrays import Inputs
from kernelcrf.formats.records import FormatError, Record
from kernelcrf.readers.feature_items import SEPARATOR, flat_items
from kernelcrf.readers.labels import plain
from kernelcrf.validation import shown

HOLDS_ALL = "write a .jsonl file, which can store every text, label and weight"


class TextLabels:
    """Converts the labels of a file to text; raises if two distinct labels would have the same text."""

    def __init__(self, format: str) -> None:
        self._format = format
        self._labels: dict[str, object] = {}
        self._texts: dict[object, str] = {}

    def texts(self, record: Record) -> list[str] | None:
        """Return the labels of a record as text, or None if the record has no labels."""
        return None if record.labels is None else [self._text(plain(label), record.place) for label in record.labels]

    def _text(self, label: object, place: str) -> str:
        if isinstance(label, str) and self._texts.get(label) == label:
            return label
        text, wrong = str(label), f"the label {shown(label)} is not a string or a number"
        if isinstance(label, str | int | float):
            other, known = self._labels.setdefault(text, label), self._texts.setdefault(label, text)
            if type(other) is type(label) and known == text:
                return text
            wrong = f"the labels {shown(label)} and {shown(other)} have the same text"
            if known != text:
                wrong = f"the labels {shown(label)} and {shown(self._labels[known])} are equal and have different texts"
        raise FormatError(f"{place}: {wrong}, which {self._format} cannot store: {HOLDS_ALL}")


def is_line(line: str) -> bool:
    """Return whether a text can be one line of a file: it must be valid Unicode, not blank, and without line ends."""
    try:
        line.encode()
    except UnicodeEncodeError:
        return False
    return bool(line.strip(" ")) and not set(line) & {"\n", "\r"}


def feature_counts(token: object, place: str) -> dict[str, float]:
    """Return the features of a token as a dict from names to numbers; the values of equal names are added up.

    A feature `name` with the string "v" as its value becomes the feature "name:v" with the value 1.
    """
    counts: dict[str, float] = {}
    for name, value in flat_items(token):
        column, number = (f"{name}{SEPARATOR}{value}", 1.0) if isinstance(value, str) else (name, exact(value, place))
        counts[column] = counts.get(column, 0.0) + number
    return counts


def exact(value: Any, place: str) -> float:
    """Convert a number to a float64; raise if rounding would change the number."""
    try:
        number = float(value)
    except (TypeError, ValueError, OverflowError):
        number = np.nan
    if number != value:
        raise FormatError(
            f"{place}: a feature has the value {shown(value)}: expected a string, or a number that float64 can "
            "represent exactly; scale the number, or write it as a string"
        )
    return number


def check_same(record: Record, again: Record, format: str) -> None:
    """Raise if a record changes when it is written and read back.

    again : the record after it was written in `format` and read back.
    """
    for what, same in (
        ("inputs", _same_inputs(record, again)),
        ("labels", _same_labels(record.labels, again.labels)),
        ("weight", record.weight == again.weight),
        ("tokens", record.tokens is None or record.kind == "text" or list(record.tokens) == list(again.tokens or ())),
    ):
        if not same:
            raise FormatError(
                f"{record.place}: {format} would change the {what} of this sequence: expected strings, or numbers "
                "that float64 can represent exactly"
            )


def _same_inputs(record: Record, again: Record) -> bool:
    if record.kind != again.kind or len(record) != len(again):
        return False
    if record.kind == "vectors":
        return _same_numbers(record.x, again.x)
    if record.kind == "text":
        return bool([list(row) for row in record.x] == again.x)
    pairs = zip(record.x, again.x, strict=True)
    return all(feature_counts(a, record.place) == feature_counts(b, record.place) for a, b in pairs)


def _same_numbers(X: Inputs, again: Inputs) -> bool:
    if hasattr(X, "tocsr") and hasattr(again, "tocsr"):
        # Stacking keeps the positions of entries but may change their type; dense matrices may not fit in memory.
        X, again = (np.sort(A.tocsr().data) for A in (X, again))
    X, again = (A.toarray() if hasattr(A, "toarray") else np.asarray(A) for A in (X, again))
    if X.dtype == again.dtype:
        return bool(np.array_equal(X, again, equal_nan=True))
    # Python compares integers with floats exactly; NumPy would round the integers first.
    return bool(X.tolist() == again.tolist())


def _same_labels(labels: Iterable[object] | None, again: Iterable[object] | None) -> bool:
    if labels is None or again is None:
        return labels is again
    known = (set(label) if isinstance(label, frozenset) else plain(label) for label in labels)
    return all(type(a) is type(b) and a == b for a, b in zip(known, again, strict=True))
