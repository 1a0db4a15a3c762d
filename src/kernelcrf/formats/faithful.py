"""A format must return what it was given: values that it would change are refused when they are written.

Writers compare each sequence with what their reader makes of it. Text formats have labels as text: a number becomes
its digits, and no two labels of a file may have the same text.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NoReturn

import numpy as np

from kernelcrf.estimators.feature_dicts import SEPARATOR, flat_items
from kernelcrf.formats.records import FormatError, Record
from kernelcrf.validation import shown

HOLDS_ALL = "write .jsonl, which holds any text, label and weight"


class TextLabels:
    """The labels of a file as text."""

    def __init__(self, format: str) -> None:
        self._format = format
        self._labels: dict[str, Any] = {}
        self._texts: dict[Any, str] = {}

    def texts(self, record: Record) -> list[str] | None:
        """Return the labels of a record as text, None if it has no labels."""
        return None if record.labels is None else [self._text(label, record.place) for label in record.labels]

    def _text(self, label: Any, place: str) -> str:
        label = label.item() if isinstance(label, np.generic) else label
        if isinstance(label, str) and self._texts.get(label) == label:
            return label
        if not isinstance(label, str | int | float):
            self._refuse(place, f"the label {shown(label)} is no string or number")
        text = str(label)
        other = self._labels.setdefault(text, label)
        if type(other) is not type(label) or self._texts.setdefault(label, text) != text:
            self._refuse(place, f"the label {shown(label)} is written as {text!r}, and so is another label")
        return text

    def _refuse(self, place: str, what: str) -> NoReturn:
        raise FormatError(f"{place}: {what}, which {self._format} cannot hold: {HOLDS_ALL}")


def is_line(line: str) -> bool:
    """Return whether a file of text has the line as it is: UTF-8 that ends nowhere and is not all blanks."""
    try:
        line.encode()
    except UnicodeEncodeError:
        return False
    return bool(line.strip(" ")) and not set(line) & {"\n", "\r"}


def check_unweighted(record: Record, format: str) -> None:
    """Refuse a record with a weight, for a format that has none."""
    if record.weight != 1.0:
        raise FormatError(
            f"{record.place}: the sequence has the weight {record.weight:g}, which {format} cannot hold: {HOLDS_ALL}"
        )


def feature_counts(token: Any, place: str) -> dict[str, float]:
    """Return what a token counts for each feature, by the names of its columns; names that are equal are added up."""
    counts: dict[str, float] = {}
    for name, value in flat_items(token):
        column, number = (f"{name}{SEPARATOR}{value}", 1.0) if isinstance(value, str) else (name, exact(value, place))
        counts[column] = counts.get(column, 0.0) + number
    return counts


def exact(value: Any, place: str) -> float:
    """Return the number as a float64; refuse it if that is another number."""
    try:
        number = float(value)
    except (TypeError, ValueError, OverflowError):
        number = np.nan
    if number != value:
        raise FormatError(
            f"{place}: a feature has the value {shown(value)}: expected a string or a number that a float64 can hold; "
            "scale it, or make it a string"
        )
    return number


def check_same(record: Record, again: Record, format: str) -> None:
    """Raise unless the record that was read again says what the first one did."""
    for what, same in (
        ("inputs", _same_inputs(record, again)),
        ("labels", _same_labels(record.labels, again.labels)),
        ("weight", record.weight == again.weight),
        ("tokens", record.tokens is None or record.kind == "text" or list(record.tokens) == list(again.tokens or ())),
    ):
        if not same:
            raise FormatError(
                f"{record.place}: {format} cannot hold the {what} of this sequence as they are: expected strings, and "
                "numbers that a float64 can hold"
            )


def _same_inputs(record: Record, again: Record) -> bool:
    if record.kind != again.kind or len(record) != len(again):
        return False
    if record.kind == "vectors":
        return same_numbers(record.x, again.x)
    if record.kind == "text":
        return bool([list(row) for row in record.x] == again.x)
    return all(
        feature_counts(a, record.place) == feature_counts(b, record.place)
        for a, b in zip(record.x, again.x, strict=True)
    )


def same_numbers(X: Any, again: Any) -> bool:
    """Return whether two matrices are equal, number by number and without rounding."""
    X, again = (A.toarray() if hasattr(A, "toarray") else np.asarray(A) for A in (X, again))
    if X.shape != again.shape:
        return False
    if X.dtype == again.dtype or {X.dtype.kind, again.dtype.kind} <= {"f"}:
        return bool(np.array_equal(X, again))
    # NumPy compares an integer with a float after rounding it; Python does not.
    return bool(X.tolist() == again.tolist())


def _same_labels(labels: Iterable[Any] | None, again: Iterable[Any] | None) -> bool:
    if labels is None or again is None:
        return labels is again
    known = [label.item() if isinstance(label, np.generic) else label for label in labels]
    return all(
        type(a) is type(b) and a == b
        for a, b in zip(
            (set(label) if isinstance(label, frozenset) else label for label in known), list(again), strict=True
        )
    )
