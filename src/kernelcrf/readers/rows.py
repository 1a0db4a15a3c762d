"""Rows of numbers as users hand them in to estimators of rows: containers by position, then scikit-learn's checks."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from numbers import Number

import numpy as np
from sklearn.base import BaseEstimator
from sklearn.utils.validation import validate_data

from kernelcrf.arrays import Array, Inputs, UserData, as_writable, is_sparse
from kernelcrf.persistence import ModelFileError
from kernelcrf.persistence.checks import read_count
from kernelcrf.readers.containers import is_frame, read_container
from kernelcrf.validation import shown

DTYPES = (np.float64, np.float32)
LONGEST = 400


@dataclass(frozen=True, eq=False)
class RowReader:
    """Reads rows with the columns that `fit` saw.

    owner : the name of the estimator that errors mention.
    feature_names : (n_features,) names of the columns of a data frame, or None.
    """

    owner: str
    n_features: int
    feature_names: Array | None = None

    @classmethod
    def fit(
        cls, owner: str, X: UserData, y: UserData, *, multi_output: bool = False
    ) -> tuple[RowReader, Inputs, Array]:
        """Return a reader of rows like X, X itself (m, d), dense or CSR, and its labels y."""
        if y is None:
            raise ValueError(f"{owner} requires y to be passed, but the target y is None: expected one label per row")
        X, y, columns = _rows(X), read_targets(y), type(owner, (BaseEstimator,), {})()
        with named_errors("X", "y"):
            X, y = validate_data(columns, X, y, accept_sparse="csr", dtype=DTYPES, multi_output=multi_output)
        return cls(owner, columns.n_features_in_, getattr(columns, "feature_names_in_", None)), as_writable(X), y

    @property
    def known_names(self) -> Array:
        """Return the names of the columns, or raise if they had none."""
        if self.feature_names is None:
            raise AttributeError(f"{self.owner} was fitted to columns without names: fit it to a data frame")
        return self.feature_names

    def read(self, X: UserData) -> Inputs:
        """Return rows X (m, d), dense or CSR; an empty list is a matrix without rows."""
        X = _rows(X)
        if isinstance(X, list) and not X:
            return np.empty((0, self.n_features))
        # scikit-learn compares the columns of X with those that an estimator keeps, and names its class in errors.
        columns = type(self.owner, (BaseEstimator,), {})()
        columns.n_features_in_ = self.n_features
        if self.feature_names is not None:
            columns.feature_names_in_ = self.feature_names
        with named_errors("X"):
            X = validate_data(columns, X, reset=False, accept_sparse="csr", dtype=DTYPES, ensure_min_samples=0)
        return as_writable(X)

    def to_config(self) -> dict[str, object]:
        """Return the columns as JSON-able values, which `from_config` reads."""
        names = None if self.feature_names is None else [str(name) for name in self.feature_names]
        return {"n_features": int(self.n_features), "feature_names": names}

    @classmethod
    def from_config(cls, owner: str, config: Mapping[str, UserData]) -> RowReader:
        """Return the reader that `to_config` described."""
        n_features, names = read_count(config, "n_features", 1), config["feature_names"]
        strings = isinstance(names, list) and all(isinstance(name, str) for name in names)
        if names is not None and not (strings and len(names) == n_features):
            raise ModelFileError(f"feature_names is {shown(names)}: expected {n_features} names of columns")
        return cls(owner, n_features, None if names is None else np.array(names, object))


def _rows(X: UserData) -> UserData:
    """Return X as a list, an array, a sparse matrix or a frame, once no entry is masked."""
    X = read_container(X, "X", "a matrix of numbers, one row per sample")
    if _holds_dates(X):
        raise TypeError("X has dates: expected numbers; a date becomes one by its distance from another, in days, say")
    if isinstance(X, list):
        # NumPy would take the numbers below a mask.
        X = [read_container(row, f"X[{i}]") if isinstance(row, np.ma.MaskedArray) else row for i, row in enumerate(X)]
    return X


def _holds_dates(X: UserData) -> bool:
    """Return whether an array or a column of a frame has dates, which scikit-learn converts to numbers silently."""
    types = list(X.dtypes) if is_frame(X) and hasattr(X, "dtypes") else [getattr(X, "dtype", "")]
    return any(str(kind).lower().startswith(("date", "time", "duration")) for kind in types)


def read_targets(y: UserData) -> UserData:
    """Return y as an array, a sparse matrix, a frame or a list, once no entry is masked."""
    if y is None or is_sparse(y) or is_frame(y) or hasattr(y, "iloc") or isinstance(y, str | Number):
        return y
    if isinstance(y, np.ma.MaskedArray):
        read_container(y, "y")
    if not isinstance(y, np.ndarray):
        return read_container(y, "y", "a list of labels, one per row")
    # scikit-learn knows no type of target for numbers that are held as objects.
    held = y.dtype == object and all(isinstance(value, Number) for value in y.flat)
    return np.asarray(y.tolist() if held else y)


@contextmanager
def named_errors(*names: str) -> Iterator[None]:
    """Let errors of scikit-learn's checks name the argument, in one line of bounded length."""
    try:
        yield
    except (ValueError, TypeError) as error:
        line = " ".join(str(error).split())
        line = line if len(line) <= LONGEST else f"{line[: LONGEST - 3]}..."
        named = any(name in line.replace(".", " ").replace(",", " ").replace(":", " ").split() for name in names)
        raise (ValueError if isinstance(error, ValueError) else TypeError)(
            line if named else f"{' or '.join(names)}: {line}"
        ) from None
