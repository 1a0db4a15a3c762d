"""Make sequences from a data frame: the rows with the same value in a group column form one sequence.

The frame may come from pandas, polars or any library whose columns have the methods `to_list` and `to_numpy`. This
module imports no such library.
"""

from __future__ import annotations

import warnings
from collections import Counter
from collections.abc import Sequence
from datetime import date, datetime, time, timedelta
from itertools import pairwise
from typing import overload

import numpy as np

from kernelcrf.arrays import Places, UserData
from kernelcrf.readers.containers import is_frame, read_labels
from kernelcrf.validation import Constraint, either, shown, shown_list, stacklevel_of_user

COLUMN = either(Constraint("the name of a column", lambda name: bool(hash(name)) or True))


@overload
def from_frame(
    frame: UserData,
    group: str,
    features: Sequence[str],
    label: str | None = None,
    *,
    order: str | None = None,
    groups: None = None,
) -> tuple[list[UserData], list[list[UserData]] | None]: ...


@overload
def from_frame(
    frame: UserData,
    group: str,
    features: Sequence[str],
    label: str | None = None,
    *,
    order: str | None = None,
    groups: str,
) -> tuple[list[UserData], list[list[UserData]] | None, list[UserData]]: ...


def from_frame(
    frame: UserData,
    group: str,
    features: Sequence[str],
    label: str | None = None,
    *,
    order: str | None = None,
    groups: str | None = None,
) -> (
    tuple[list[UserData], list[list[UserData]] | None]
    | tuple[list[UserData], list[list[UserData]] | None, list[UserData]]
):
    """Return the sequences X of a data frame and their labels y; y is None if no `label` column is given.

    If `groups` is passed, return X, y and the group of each sequence, for `fit` and for GroupKFold.

    group : the column whose value is the same for all rows of a sequence. The sequences are in the order in which their
        groups first appear.
    features : the columns of the inputs. If they have only numbers and booleans, each sequence is a data frame with
        these columns, and an estimator stores their names. Otherwise each sequence is a list of feature dicts, in which
        null values are left out.
    label : the column of the labels. A null label becomes None, which means a missing label.
    order : the column, such as a time, by which the rows of each group are sorted. Without it, tokens are in the order
        of the rows, and the rows of a group must be adjacent.
    groups : a column that is the same for all rows of a sequence, such as the person whose recordings should be held
        out together.

    Examples
    --------
    >>> import pandas as pd
    >>> from kernelcrf import from_frame
    >>> frame = pd.DataFrame(
    ...     {"day": [1, 2, 1], "hour": [9, 8, 7], "speed": [0.1, 0.4, 0.2], "gait": ["walk", "run", "walk"]}
    ... )
    >>> X, y = from_frame(frame, "day", ["speed"], "gait", order="hour")
    >>> X[0]["speed"].tolist(), y
    ([0.2, 0.1], [['walk', 'walk'], ['run']])
    >>> frame["person"] = ["Ada", "Bob", "Ada"]
    >>> from_frame(frame, "day", ["speed"], "gait", order="hour", groups="person")[2]
    ['Ada', 'Bob']
    """
    if isinstance(features, str):
        raise TypeError(
            f"features={shown(features)}: expected a list of column names; pass [{shown(features)}] to select a single "
            "column"
        )
    features = read_labels(features, "features", "a list of column names")
    if not (is_frame(frame) and hasattr(frame, "__getitem__")):
        raise TypeError(f"frame is of type {type(frame).__name__}: expected a data frame of pandas or polars")
    columns = list(frame.columns)
    counts = Counter(columns)
    given = [("group", group), *(("features", name) for name in features)]
    others = ("label", label), ("order", order), ("groups", groups)
    given += [(argument, name) for argument, name in others if name is not None]
    for argument, name in given:
        COLUMN.check(argument, name)
        if counts[name] != 1:
            times = f"{counts[name]} columns" if name in counts else "no column"
            raise ValueError(
                f"frame has {times} named {shown(name)}: expected exactly one for {argument}; the frame has the "
                f"columns {shown_list(columns)}"
            )
    if not features:
        raise ValueError("features is empty: expected the name of at least one column")
    if label in features:
        raise ValueError(
            f"features contains {shown(label)}, the label column: expected only columns of inputs; remove it from "
            "features"
        )
    rows = _rows_by_group(_values(frame[group]), group, None if order is None else _order(frame[order], order))
    if order is not None:
        _warn_of_ties(_values(frame[order]), rows, order, group)
    if all(_holds_numbers(frame[name]) for name in features):
        inputs, offsets = frame[features], np.cumsum([0, *map(len, rows)])
        # Slices of a sorted frame are many times faster than rows that are picked for each sequence.
        inputs = getattr(inputs, "iloc", inputs)[np.concatenate([[], *rows]).astype(np.intp)]
        at = getattr(inputs, "iloc", inputs)
        X: list[UserData] = [at[low:high] for low, high in pairwise(offsets.tolist())]
    else:
        named = [(name, _values(frame[name])) for name in features]
        _refuse_dates(named)
        _warn_of_texts(named)
        X = [[{n: v[t] for n, v in named if v[t] is not None} for t in places.tolist()] for places in rows]
    labels = None if label is None else _values(frame[label])
    y = None if labels is None else [[labels[t] for t in places.tolist()] for places in rows]
    return (X, y) if groups is None else (X, y, _one_per_sequence(_values(frame[groups]), rows, groups))


def _one_per_sequence(values: Sequence[UserData], rows: Sequence[Places], name: str) -> list[UserData]:
    """Return the value that all rows of each sequence have in the column called `name`; raise if they differ."""
    _refuse_missing(values, name, "groups")
    for number, places in enumerate(rows):
        different = [row for row in places.tolist() if values[row] != values[places[0]]]
        if different:
            raise ValueError(
                f"frame has {shown(values[places[0]])} and {shown(values[different[0]])} in the groups column "
                f"{shown(name)} of sequence {number}: expected one value for all rows of a sequence; correct the "
                "column, or pass another one as groups="
            )
    return [values[places[0]] for places in rows]


def _values(column: UserData) -> list[UserData]:
    """Return the values of a column, with None for null."""
    values = list(column.to_list())
    if hasattr(column, "isna"):
        return [None if null else value for value, null in zip(values, column.isna().to_list(), strict=True)]
    return values


def _holds_numbers(column: UserData) -> bool:
    """Return whether a column has only numbers, booleans and nulls."""
    array = np.asarray(column.to_numpy())
    if array.dtype == object:
        return all(value is None or isinstance(value, int | float) for value in _values(column))
    return array.dtype.kind in "biuf"


def _refuse_dates(columns: Sequence[tuple[str, Sequence[UserData]]]) -> None:
    """Raise if a column has dates or times, which cannot be values in feature dicts."""
    for name, values in columns:
        for row, value in enumerate(values):
            if isinstance(value, date | time | timedelta):
                raise TypeError(
                    f"frame has the value {shown(value)} in column {shown(name)} of features, row {row}: expected "
                    "numbers or text; convert dates and times to numbers, or remove the column from features"
                )


def _warn_of_texts(columns: Sequence[tuple[str, Sequence[UserData]]]) -> None:
    """Warn if a column has only numbers or dates as text, because each different text becomes a separate feature."""
    for name, values in columns:
        texts = {value for value in values if value is not None}
        if texts and all(isinstance(text, str) and _is_number_or_date(text) for text in texts):
            warnings.warn(
                f"frame has numbers or dates as text in column {shown(name)} of features, such as "
                f"{shown(min(texts))}. Each text becomes a feature of its own: convert the column to numbers, "
                "or remove it from features",
                UserWarning,
                stacklevel=stacklevel_of_user(),
            )


def _is_number_or_date(text: str) -> bool:
    for parse in (float, datetime.fromisoformat, time.fromisoformat):
        try:
            parse(text)
        except ValueError:
            continue
        return True
    return False


def _order(column: UserData, name: str) -> Places:
    """Return the row numbers in the order of the values in a column; rows with the same value keep their order."""
    values = _values(column)
    _refuse_missing(values, name, "order")
    try:
        rows = np.array(sorted(range(len(values)), key=values.__getitem__), np.intp)
        if _texts_of_numbers([values[row] for row in rows]):
            raise ValueError(
                f"frame has numbers stored as text in the order column {shown(name)}, such as "
                f"{shown(values[rows[0]])}, whose order as text is not their numerical order: convert the column to "
                "numbers"
            )
        return rows
    except TypeError:
        raise TypeError(
            f"frame has values in the order column {shown(name)} that cannot be compared: expected numbers, times "
            "or strings"
        ) from None


def _warn_of_ties(values: Sequence[UserData], rows: Sequence[Places], order: str, group: str) -> None:
    """Warn if two rows of a sequence have the same value in the order column.

    rows : the row numbers of each sequence, sorted by the order column.
    """
    for places in rows:
        for before, after in pairwise(places.tolist()):
            if values[before] == values[after]:
                warnings.warn(
                    f"frame has the value {shown(values[after])} of the order column {shown(order)} twice in one "
                    f"sequence, in rows {before} and {after}: expected different values. If several sequences have "
                    f"the same value of {shown(group)}, such as sessions of different persons, make a column that "
                    "tells them apart, and pass it as group",
                    UserWarning,
                    stacklevel=stacklevel_of_user(),
                )
                return


def _texts_of_numbers(values: Sequence[UserData]) -> bool:
    """Return whether the values are numbers stored as text, in an order that is not their numerical order.

    values : the sorted values of a column. Texts are sorted as text, for example "10" before "9".
    """
    if not all(isinstance(value, str) for value in values):
        return False
    try:
        return bool((np.diff(np.array(values, dtype=float)) < 0).any())
    except ValueError:
        return False


def _refuse_missing(values: Sequence[UserData], name: str, argument: str) -> None:
    missing = next((row for row, value in enumerate(values) if value is None or value != value), None)
    if missing is not None:
        raise ValueError(
            f"frame has no value in row {missing} of the {argument} column {shown(name)}: expected a value in every "
            "row; fill in or drop such rows"
        )


def _rows_by_group(groups: Sequence[UserData], name: str, order: Places | None) -> list[Places]:
    """Return the row numbers of each group, sorted as in `order`.

    groups, name : the group of each row, and the name of the group column for error messages.
    order : the row numbers in the wanted order. If None, the rows keep their order, and an error is raised if the rows
        of a group are not adjacent.
    """
    number: dict[UserData, int] = {}
    _refuse_missing(groups, name, "group")
    try:
        codes = np.fromiter((number.setdefault(value, len(number)) for value in groups), np.intp, len(groups))
    except TypeError:
        raise TypeError(
            f"frame has values in the group column {shown(name)} that cannot be hashed: expected numbers or strings"
        ) from None
    if order is None:
        # Groups are numbered as they appear, so a number that is smaller than the one before it is a return.
        returns = np.flatnonzero(np.diff(codes) < 0)
        if len(returns):
            row = int(returns[0]) + 1
            raise ValueError(
                f"frame has row {row - 1} of the group {shown(groups[row - 1])} between rows of the group "
                f"{shown(groups[row])}: expected adjacent rows for each value of {shown(name)}. Sort the frame by "
                "this column, or pass order= with a column, such as a time, by which the rows of each group are sorted"
            )
        order = np.arange(len(codes))
    rows = order[np.argsort(codes[order], kind="stable")]
    return np.split(rows, np.cumsum(np.bincount(codes, minlength=len(number)))[:-1]) if len(codes) else []
