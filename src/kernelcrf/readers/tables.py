"""Read tables of discrete values of any type: one row per sample, one column per variable.

None, NaN and pandas.NA are missing values. A column with fractional numbers is refused as continuous if it has more
than 20 different values, which occur fewer than 5 times on average (FEW_VALUES and ROWS_PER_VALUE).
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from kernelcrf.arrays import Array, Labels, UserData
from kernelcrf.readers.columns import check_names, names_to_config, read_names
from kernelcrf.readers.containers import is_missing_value, read_table
from kernelcrf.readers.labels import values_to_config
from kernelcrf.readers.stored_values import names_from_config, values_from_config
from kernelcrf.validation import shown, shown_list

FEW_VALUES, ROWS_PER_VALUE = 20, 5


@dataclass(frozen=True, eq=False)
class TableReader:
    """Reads tables with the same columns (variables) as the table passed to `fit`.

    categories : the sorted distinct values of each variable.
    column_names : the names of the variables if `fit` was given a data frame; otherwise None.
    """

    categories: tuple[Array, ...]
    column_names: Array | None = None

    @classmethod
    def fit(cls, X: UserData, categories: Sequence[UserData] | None = None) -> tuple[TableReader, Labels]:
        """Return a pair: a reader for tables with the columns of X, and X as an array of indices into the categories.

        categories : a list with one entry per column: the values of the column, or None for the values that occur in X.
            If `categories` is None, the values that occur in X are used for all columns.
        """
        table = read_table(X, "X")
        _check_shape(table)
        names = read_names(X)
        if categories is not None and len(categories) != table.shape[1]:
            raise ValueError(
                f"categories has {len(categories)} entries and X has {table.shape[1]} columns: expected one entry per "
                "column, an array of its values or None"
            )
        given = [None] * table.shape[1] if categories is None else categories
        columns = enumerate(zip(table.T, given, strict=True))
        read = (_categories(column, v) if values is None else _given(values, v) for v, (column, values) in columns)
        reader = cls(tuple(read), names)
        return reader, reader._encode(table)

    def read(self, X: UserData) -> Labels:
        """Return X as an array of indices into the categories of each column; -1 is a missing value."""
        table = read_table(X, "X")
        if table.ndim and not len(table):
            return np.empty((0, len(self.categories)), np.int32)
        _check_shape(table)
        check_names("MarkovNetwork", X, "X", self.column_names)
        if table.shape[1] != len(self.categories):
            raise ValueError(f"X has {table.shape[1]} columns: expected {len(self.categories)}, as in fit")
        return self._encode(table)

    def decode(self, indices: Array) -> Array:
        """Convert indices to the values of each column; the result has dtype object if the columns differ in type."""
        columns = [values[indices[:, v]] for v, values in enumerate(self.categories)]
        if len({column.dtype.kind for column in columns}) == 1:
            return np.column_stack(columns)
        table = np.empty(indices.shape, object)
        for v, column in enumerate(columns):
            table[:, v] = column.tolist()
        return table

    def to_config(self) -> dict[str, object]:
        """Return the reader as a dict that can be written as JSON; `from_config` reads this dict."""
        names = {} if self.column_names is None else {"feature_names": names_to_config(self.column_names)}
        return {"categories": [values_to_config(values) for values in self.categories], **names}

    @classmethod
    def from_config(cls, config: Mapping[str, UserData]) -> TableReader:
        """Return the reader whose `to_config` returned `config`."""
        categories = tuple(values_from_config(values) for values in config["categories"])
        return cls(categories, names_from_config(config, len(categories)))

    def _encode(self, table: Array) -> Labels:
        indices = np.full(table.shape, -1, np.int32)
        for v, values in enumerate(self.categories):
            places = {value: k for k, value in enumerate(values.tolist())}
            for i, value in enumerate(table[:, v].tolist()):
                if not _is_missing(value):
                    if not isinstance(value, Hashable) or value not in places:
                        raise ValueError(
                            f"X[{i}, {v}] is {shown(value)}: expected one of {shown_list(places)}, or None if "
                            "missing; to allow values that do not occur in the training data, list them in "
                            "categories="
                        )
                    indices[i, v] = places[value]
        return indices


def _check_shape(table: Array) -> None:
    if table.ndim != 2 or table.shape[1] == 0:
        raise ValueError(f"X has shape {table.shape}: expected a table with at least one row and one column")


def _is_missing(value: object) -> bool:
    return is_missing_value(value) or (isinstance(value, float) and value != value)


def _given(values: UserData, v: int) -> Array:
    """Return the sorted distinct values that a user lists for column v; raise if there are fewer than two."""
    categories = _categories(np.asarray(list(values), object), v)
    if len(categories) < 2:
        raise ValueError(f"categories[{v}] is {shown(values)}: expected at least two different values")
    return categories


def _categories(column: Array, v: int) -> Array:
    known = [value for value in column.tolist() if not _is_missing(value)]
    try:
        seen = set(known)
    except TypeError:
        raise TypeError(f"X has values in column {v} that cannot be hashed: expected numbers or strings") from None
    if not seen:
        raise ValueError(
            f"variable {v} of X has only missing values: expected at least one known value, or all its values in "
            "categories="
        )
    try:
        values = np.array(sorted(seen))
    except TypeError:
        raise ValueError(
            f"variable {v} of X has values of different types: expected all numbers or all strings"
        ) from None
    if values.ndim > 1:
        raise TypeError(f"X has the value {shown(next(iter(seen)))} in column {v}: expected numbers or strings")
    many = len(values) > FEW_VALUES and len(known) < ROWS_PER_VALUE * len(values)
    if many and values.dtype.kind == "f" and (values != np.round(values)).any():
        raise ValueError(
            f"variable {v} of X is continuous, with {len(values)} different values in {len(known)} rows: expected "
            "discrete values; cut it into intervals first, with scikit-learn's KBinsDiscretizer(encode='ordinal')"
        )
    return values
