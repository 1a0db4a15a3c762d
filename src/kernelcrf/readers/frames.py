"""Make sequences from a data frame: the rows with the same value in a group column form one sequence.

The frame may come from pandas, polars or any library whose columns have the methods `to_list` and `to_numpy`. This
module imports no such library.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import numpy as np

from kernelcrf.arrays import Array, Places, UserData
from kernelcrf.readers.containers import is_frame, read_labels
from kernelcrf.validation import Constraint, either, shown, shown_list

COLUMN = either(Constraint("the name of a column", lambda name: bool(hash(name)) or True))


def from_frame(
    frame: UserData, group: str, features: Sequence[str], label: str | None = None
) -> tuple[list[UserData], list[list[UserData]] | None]:
    """Return the sequences X of a data frame and their labels y; y is None if no `label` column is given.

    The sequences are in the order in which their groups first appear, and tokens are in the order of the rows; the
    rows of a group need not be adjacent. If all `features` are columns of numbers or booleans, a sequence is an
    array with one row per token, and NaN for null; otherwise it is a list of feature dicts, without the null values. A
    null label becomes None, which means a missing label.

    Examples
    --------
    >>> import pandas as pd
    >>> from kernelcrf.readers.frames import from_frame
    >>> frame = pd.DataFrame({"day": [1, 1, 2], "speed": [0.1, 0.4, 0.2], "is": ["walk", "run", "walk"]})
    >>> X, y = from_frame(frame, "day", ["speed"], "is")
    >>> [x.shape for x in X], y
    ([(2, 1), (1, 1)], [['walk', 'run'], ['walk']])
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
    given = [("group", group), *(("features", name) for name in features), ("label", label)]
    for argument, name in given if label is not None else given[:-1]:
        COLUMN.check(argument, name)
        if counts[name] != 1:
            times = f"{counts[name]} columns" if name in counts else "no column"
            raise ValueError(
                f"frame has {times} named {shown(name)}: expected exactly one for {argument}; the frame has the "
                f"columns {shown_list(columns)}"
            )
    if not features:
        raise ValueError("features is empty: expected the name of at least one column")
    rows = _rows_by_group(_values(frame[group]), group)
    numbers = [_numbers(frame[name]) for name in features]
    if all(column.dtype.kind in "biuf" for column in numbers):
        table = np.column_stack(numbers)
        X: list[UserData] = [table[own] for own in rows]
    else:
        named = [(name, _values(frame[name])) for name in features]
        X = [[{n: v[t] for n, v in named if v[t] is not None} for t in own.tolist()] for own in rows]
    if label is None:
        return X, None
    labels = _values(frame[label])
    return X, [[labels[t] for t in own.tolist()] for own in rows]


def _values(column: UserData) -> list[UserData]:
    """Return the values of a column, with None for null."""
    values = list(column.to_list())
    if hasattr(column, "isna"):
        return [None if null else value for value, null in zip(values, column.isna().to_list(), strict=True)]
    return values


def _numbers(column: UserData) -> Array:
    """Return a column as an array; if the column has only numbers and nulls, null becomes NaN."""
    array = np.asarray(column.to_numpy())
    if array.dtype == object:
        values = _values(column)
        if all(value is None or isinstance(value, int | float) for value in values):
            return np.array(values, dtype=np.float64)
    return array


def _rows_by_group(groups: Sequence[UserData], name: str) -> list[Places]:
    number: dict[UserData, int] = {}
    missing = next((row for row, value in enumerate(groups) if value is None or value != value), None)
    if missing is not None:
        raise ValueError(
            f"frame has no value in row {missing} of the group column {shown(name)}: expected a value in every row"
        )
    try:
        codes = np.fromiter((number.setdefault(value, len(number)) for value in groups), np.intp, len(groups))
    except TypeError:
        raise TypeError(
            f"frame has values in group column {shown(name)} that cannot be hashed: expected numbers or strings"
        ) from None
    order = np.argsort(codes, kind="stable")
    return np.split(order, np.cumsum(np.bincount(codes, minlength=len(number)))[:-1]) if len(codes) else []
