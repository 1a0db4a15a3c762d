"""Turn the tokens of one sequence into rows of numbers: dense rows, or sparse rows with the columns of features.

A sparse row is a list of entries (column, value) in any order; several entries of a row may have the same column. In
rows with d columns, the columns are numbered from 0, and entries in column d or later columns are ignored.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import chain
from typing import NamedTuple, Protocol

import numpy as np

from ..arrays import Floats, Places, UserData, advise_finite
from ..readers.feature_items import COLLECTIONS, HASHED_SEPARATOR, Item, check_item, collect_items, flat_items
from ..readers.stored_inputs import WORDS, StoredColumns
from ..validation import shown
from .hashing import signed_hash
from .names import names_of

MOST_HASHED = 2**16


class SparseRows(NamedTuple):
    """Sparse rows, one after the other: row t has counts[t] entries. `values` is None if all values are 1."""

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
    names = columns.texts if columns.names is None else columns.names.tolist()
    return HashedReader(columns.n_features) if names is None else NameReader(names, columns.separator)


class DenseReader:
    """Reads numbers with one row per token: arrays, or lists of lists."""

    def __init__(self, n_features: int) -> None:
        self.n_features = n_features

    def read(self, tokens: UserData) -> Floats:
        """Return the tokens in float64; raise unless they are finite numbers in as many columns as in the fit."""
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
    """Reads sparse matrices of SciPy (objects with a method `tocsr`), or arrays, with one row per token."""

    def __init__(self, n_features: int) -> None:
        self.n_features = n_features

    def read(self, tokens: UserData) -> SparseRows:
        """Return the tokens as sparse rows; raise unless they have as many columns as in the fit."""
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
    """Reads feature dicts or lists of feature names; unknown names get a column after the last column of the model."""

    def __init__(self, names: Sequence[str], separator: str) -> None:
        self._names, self._separator = names_of(names), separator

    def read(self, tokens: UserData) -> SparseRows:
        """Return the tokens as sparse rows; raise if a name or a value is not allowed."""
        kinds = set(map(type, check_tokens(tokens)))
        try:
            if kinds == {dict}:
                return self._read_dicts(tokens)
            if kinds <= set(COLLECTIONS):
                return self._read_names(list(chain.from_iterable(tokens)), None, list(map(len, tokens)))
        except TypeError:
            pass  # A name is not a string, or a value has an unusual type: the general way reads it, or raises.
        return self._read_names(*read_items(tokens, self._separator))

    def _read_dicts(self, tokens: Sequence[Mapping[str, UserData]]) -> SparseRows:
        try:
            names = list(map(self._separator.join, chain.from_iterable(token.items() for token in tokens)))
        except TypeError:
            pass  # A value is not a string.
        else:
            return self._read_names(names, None, list(map(len, tokens)))
        names, counts, before = [], [], 0
        values: list[float] = []
        for token in tokens:
            collect_items(token, self._separator, names, values)
            counts.append(len(names) - before)
            before = len(names)
        return self._read_names(names, values, counts)

    def _read_names(self, names: list[str], values: list[float] | None, counts: list[int]) -> SparseRows:
        "".join(names)  # raises a TypeError if a name is not a string
        x = None if values is None or values.count(1.0) == len(values) else np.array(values, np.float64)
        return SparseRows(self._names.find(names, len(names)), x, np.array(counts, np.intp))


class HashedReader:
    """Reads feature dicts, or lists of feature names, whose names are hashed as scikit-learn's FeatureHasher does."""

    def __init__(self, n_features: int) -> None:
        self.n_features = n_features
        self._hashes: dict[str, int] = {}

    def read(self, tokens: UserData) -> SparseRows:
        """Return the tokens as sparse rows; raise if a name or a value is not allowed."""
        names, values, counts = read_items(check_tokens(tokens), HASHED_SEPARATOR)
        hashes = np.fromiter(map(self._hash, names), np.int64, len(names))
        x = np.array(values, np.float64) * np.where(hashes >= 0, 1.0, -1.0)
        return SparseRows(np.abs(hashes) % self.n_features, x, np.array(counts, np.intp))

    def _hash(self, name: str) -> int:
        h = self._hashes.get(name)
        if h is None:
            if len(self._hashes) >= MOST_HASHED:
                self._hashes.clear()
            h = self._hashes[name] = signed_hash(name.encode("utf-8"))
        return h


def check_tokens(tokens: UserData) -> Sequence[UserData]:
    """Return the tokens of a sequence of feature dicts; raise if they are not a list or a tuple."""
    if isinstance(tokens, list | tuple):
        return tokens
    raise TypeError(
        f"tokens={shown(tokens)}: expected a list of {WORDS['dicts']}, or of lists of feature names, one per token, as "
        "in fit. Pass the tokens of one sequence"
    )


def read_items(tokens: Sequence[UserData], separator: str) -> tuple[list[str], list[float], list[int]]:
    """Return the names and values of all items of the tokens, and the number of items per token.

    Raise if a name or a value is not allowed.
    """
    names, values, counts = [], [], []
    for t, token in enumerate(tokens):
        where = f" in token {t}"
        items: list[Item] = [check_item(item, where) for item in flat_items(token, separator, where=where)]
        names += [f"{name}{separator}{value}" if isinstance(value, str) else name for name, value in items]
        values += [1.0 if isinstance(value, str) else value for _, value in items]
        counts.append(len(items))
    return names, values, counts


def select_columns(X: Floats | SparseRows, columns: Places) -> Floats | SparseRows:
    """Return the columns of X with these indices, which may be in any order and may occur several times."""
    if not isinstance(X, SparseRows):
        return X[:, columns]
    order = np.argsort(columns, kind="stable")
    first, end = (np.searchsorted(columns[order], X.columns, side) for side in ("left", "right"))
    copies = end - first
    values = None if X.values is None else X.values.repeat(copies)
    counts = np.bincount(X.of_entries, copies, X.n_rows).astype(np.intp)
    return SparseRows(order[spread(first, copies)], values, counts)


def spread(starts: Places, counts: Places) -> Places:
    """Return the numbers starts[k], ..., starts[k] + counts[k] - 1 for each k, one run after the other."""
    ends = counts.cumsum()
    run: Places = (starts - ends + counts).repeat(counts)
    run += np.arange(len(run))
    return run


def merged(rows: SparseRows, d: int) -> SparseRows:
    """Return the rows with entries sorted by columns; the values of entries in the same column are added.

    d : the number of columns; entries in other columns are dropped.
    """
    known = rows.columns < d
    keys = (rows.of_entries * d + rows.columns)[known]
    places, inverse = np.unique(keys, return_inverse=True)
    x = None if rows.values is None else rows.values[known]
    values = np.bincount(inverse, x, len(places)).astype(np.float64)
    return SparseRows(places % d, values, np.bincount(places // d, minlength=rows.n_rows))
