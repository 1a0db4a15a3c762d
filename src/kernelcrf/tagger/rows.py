"""Turn the tokens of one sequence into rows of numbers: dense rows, or sparse rows with the columns of features.

A sparse row is a run of entries (column, value). Entries need no order, a column may occur twice in a row, and names
that the model does not know are left out. All values are 1 if `values` is None.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from itertools import chain, repeat
from math import isfinite
from typing import NamedTuple, Protocol

import numpy as np

from ..arrays import Array, Floats, Places, UserData, advise_finite
from ..readers.feature_items import COLLECTIONS, HASHED_SEPARATOR, Item, check_item, flat_items
from ..readers.stored_inputs import WORDS, StoredColumns
from ..validation import shown
from .hashing import signed_hash

MOST_HASHED = 2**16


class SparseRows(NamedTuple):
    """Sparse rows: row t has the next counts[t] entries; `values` is None if all values are 1."""

    columns: Places
    values: Floats | None
    counts: Places

    @property
    def n_rows(self) -> int:
        """Return the number of rows."""
        return len(self.counts)

    @property
    def of_entries(self) -> Places:
        """Return the row of each entry."""
        return np.repeat(np.arange(len(self.counts)), self.counts)


class Reader(Protocol):
    """Protocol of objects that read the tokens of one sequence."""

    def read(self, tokens: UserData) -> Floats | SparseRows:
        """Return one row per token."""


def reader_of(columns: StoredColumns) -> Reader:
    """Return the reader of sequences with the columns that a model file describes."""
    if columns.kind == "dense":
        return DenseReader(columns.n_features)
    if columns.kind == "sparse":
        return SparseReader(columns.n_features)
    if columns.names is None:
        return HashedReader(columns.n_features)
    return NameReader(columns.names.tolist(), columns.separator)


class DenseReader:
    """Reads arrays, or lists of lists, of numbers with one row per token."""

    def __init__(self, n_features: int) -> None:
        self.n_features = n_features

    def read(self, tokens: UserData) -> Floats:
        """Return the tokens in float64; raise unless they are finite numbers in the right number of columns."""
        return check_table(tokens, self.n_features)


def check_table(tokens: UserData, n_features: int, *, finite: bool = True) -> Floats:
    """Return a table in float64; raise unless it has numbers in `n_features` columns.

    finite : whether to raise if a number is NaN or infinite.
    """
    if hasattr(tokens, "columns") or isinstance(tokens, Mapping | str | bytes):
        raise TypeError(
            f"tokens is of type {type(tokens).__name__}: expected an array with one row per token. The tagger reads "
            "columns by their position: pass tokens[names].to_numpy() for a data frame, with the columns of the fit"
        )
    X = np.asarray(tokens)
    if X.size == 0 and X.ndim < 3:
        return np.empty((len(X), n_features))
    if X.dtype.kind not in "biuf" or X.ndim != 2 or X.shape[1] != n_features:
        raise ValueError(
            f"tokens has shape {X.shape} and type {X.dtype}: expected numbers, one row per token and {n_features} "
            "columns, as in fit. Pass an array of this shape"
        )
    X = X.astype(np.float64, copy=False)
    if finite and not np.isfinite(X).all():
        t, column = np.argwhere(~np.isfinite(X))[0].tolist()
        raise ValueError(
            f"tokens has the value {X[t, column]} in token {t}, column {column}: expected finite numbers; "
            f"{advise_finite(X[t, column])}"
        )
    return X


class SparseReader:
    """Reads matrices of SciPy, which have a method `tocsr`, or arrays, with one row per token."""

    def __init__(self, n_features: int) -> None:
        self.n_features = n_features

    def read(self, tokens: UserData) -> SparseRows:
        """Return the tokens as sparse rows; raise unless they have the right number of columns."""
        if not hasattr(tokens, "tocsr"):
            X = check_table(tokens, self.n_features)
            rows, columns = np.nonzero(X)
            return SparseRows(columns, X[rows, columns], np.bincount(rows, minlength=len(X)))
        X = tokens.tocsr()
        if X.shape[1] != self.n_features or X.dtype.kind not in "biuf" or not np.isfinite(X.data).all():
            raise ValueError(
                f"tokens has shape {X.shape} and type {X.dtype}: expected finite numbers in {self.n_features} columns, "
                "as in fit. Pass a matrix of this shape"
            )
        return SparseRows(X.indices.astype(np.intp), X.data.astype(np.float64), np.diff(X.indptr).astype(np.intp))


class NameReader:
    """Reads feature dicts, or lists of feature names, of the names that a model knows."""

    def __init__(self, names: Sequence[str], separator: str) -> None:
        self._separator = separator
        self._column_of = dict(zip(names, range(len(names)), strict=True)).get

    def read(self, tokens: UserData) -> SparseRows:
        """Return the tokens as sparse rows; raise if a name or a value is not allowed."""
        kinds = set(map(type, check_tokens(tokens)))
        try:
            if kinds == {dict}:
                return self._read_dicts(tokens)
            if kinds <= set(COLLECTIONS):
                return self._read_names(tokens)
        except TypeError:
            pass  # A name is not a string, or a value has an unusual type: the general way reads it, or raises.
        return read_items(tokens, self._separator, self._entry)

    def _read_dicts(self, tokens: Sequence[Mapping[str, UserData]]) -> SparseRows:
        columns: list[int] = []
        values: list[float] = []
        ends = []
        for token in tokens:
            self._look_up(token, "", columns, values)
            ends.append(len(columns))
        x = None if values.count(1.0) == len(values) else np.array(values, np.float64)
        return SparseRows(np.array(columns, np.intp), x, np.diff(ends, prepend=0))

    def _look_up(self, token: Mapping[str, UserData], prefix: str, columns: list[int], values: list[float]) -> None:
        column_of, separator = self._column_of, self._separator
        for name, value in token.items():
            kind = type(value)
            if kind is str:
                column = column_of(prefix + name + separator + value)
                if column is not None:
                    columns.append(column)
                    values.append(1.0)
            elif kind is bool or kind is int or (kind is float and isfinite(value)):
                column = column_of(prefix + name)
                if column is not None and value:
                    columns.append(column)
                    values.append(value)
            elif kind is dict:
                self._look_up(value, prefix + name + separator, columns, values)
            else:
                raise TypeError("a value that is not finite, or of an unusual type")

    def _read_names(self, tokens: Sequence[Sequence[str]]) -> SparseRows:
        names = list(chain.from_iterable(tokens))
        "".join(names)  # raises a TypeError if a name is not a string
        found = np.fromiter(map(self._column_of, names, repeat(-1)), np.intp, len(names))
        counts = np.fromiter(map(len, tokens), np.intp, len(tokens))
        return without_unknown(found, None, counts)

    def _entry(self, name: str, value: UserData) -> tuple[int, float]:
        if isinstance(value, str):
            return self._column_of(f"{name}{self._separator}{value}", -1), 1.0
        return self._column_of(name, -1), value


class HashedReader:
    """Reads feature dicts, or lists of feature names, whose names are hashed as scikit-learn's FeatureHasher does."""

    def __init__(self, n_features: int) -> None:
        self.n_features = n_features
        self._hashes: dict[str, int] = {}

    def read(self, tokens: UserData) -> SparseRows:
        """Return the tokens as sparse rows; raise if a name or a value is not allowed."""
        check_tokens(tokens)
        return read_items(tokens, HASHED_SEPARATOR, self._entry)

    def _entry(self, name: str, value: UserData) -> tuple[int, float]:
        if isinstance(value, str):
            name, value = f"{name}{HASHED_SEPARATOR}{value}", 1.0
        h = self._hashes.get(name)
        if h is None:
            if len(self._hashes) >= MOST_HASHED:
                self._hashes.clear()
            h = self._hashes[name] = signed_hash(name.encode("utf-8"))
        return abs(h) % self.n_features, value if h >= 0 else -value


def check_tokens(tokens: UserData) -> Sequence[UserData]:
    """Return the tokens of a sequence of feature dicts; raise if they are no list."""
    if isinstance(tokens, list | tuple):
        return tokens
    raise TypeError(
        f"tokens={shown(tokens)}: expected a list of {WORDS['dicts']}, or of lists of feature names, one per token, as "
        "in fit. Pass the tokens of one sequence"
    )


def read_items(
    tokens: Sequence[UserData], separator: str, entry: Callable[[str, UserData], tuple[int, float]]
) -> SparseRows:
    """Return tokens with names and values of any type that is allowed as sparse rows, and raise for all others.

    entry : a function that returns the column and the value of an item; the column is -1 if the name is not known.
    """
    columns: list[int] = []
    values: list[float] = []
    counts = []
    for t, token in enumerate(tokens):
        where = f" in token {t}"
        items: list[Item] = [check_item(item, where) for item in flat_items(token, separator, where=where)]
        found = [entry(*item) for item in items]
        columns += [column for column, _ in found]
        values += [value for _, value in found]
        counts.append(len(found))
    return without_unknown(np.array(columns, np.intp), np.array(values, np.float64), np.array(counts, np.intp))


def without_unknown(columns: Places, values: Floats | None, counts: Places) -> SparseRows:
    """Return sparse rows without the entries of names that the model does not know, whose column is -1."""
    known = columns >= 0
    if known.all():
        return SparseRows(columns, values, counts)
    ends = np.cumsum(np.concatenate(([0], known)))[np.concatenate(([0], np.cumsum(counts)))]
    return SparseRows(columns[known], None if values is None else values[known], np.diff(ends))


def merged(rows: SparseRows, d: int) -> SparseRows:
    """Return the rows with one entry per column, in the order of columns.

    d : the number of columns.
    """
    of_entries: Array = rows.of_entries
    places, inverse = np.unique(of_entries * d + rows.columns, return_inverse=True)
    values = np.bincount(inverse, rows.values, len(places)).astype(np.float64)
    return SparseRows(places % d, values, np.bincount(places // d, minlength=rows.n_rows))
