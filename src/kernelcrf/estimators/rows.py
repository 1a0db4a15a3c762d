"""Rows of numbers as users hand them in to estimators of rows: containers by position, then scikit-learn's checks."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from numbers import Number
from typing import Any

import numpy as np
import numpy.typing as npt
from sklearn.base import BaseEstimator
from sklearn.metrics import accuracy_score
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_is_fitted, validate_data

from kernelcrf.estimators.containers import is_frame, read_container
from kernelcrf.estimators.weights import checked_weights
from kernelcrf.kernels.inputs import as_writable, is_sparse
from kernelcrf.validation import shown

Array = npt.NDArray[Any]

DTYPES = (np.float64, np.float32)
LONGEST = 400


def fit_rows(estimator: BaseEstimator, X: Any, y: Any, **checks: Any) -> tuple[Any, Array]:
    """Return rows X (m, d), dense or CSR, and their labels; the estimator keeps the number and names of columns."""
    X, y = _rows(X), read_targets(y)
    with named_errors("X", "y"):
        X, y = validate_data(estimator, X, y, accept_sparse="csr", dtype=DTYPES, **checks)
    return as_writable(X), y


def read_rows(estimator: BaseEstimator, X: Any) -> Any:
    """Return rows X (m, d) with the columns of the fit, dense or CSR; an empty list is a matrix without rows."""
    check_is_fitted(estimator)
    X = _rows(X)
    if isinstance(X, list) and not X:
        return np.empty((0, estimator.n_features_in_))
    with named_errors("X"):
        X = validate_data(estimator, X, reset=False, accept_sparse="csr", dtype=DTYPES, ensure_min_samples=0)
    return as_writable(X)


def read_classes(y: Array) -> tuple[Array, npt.NDArray[np.intp]]:
    """Return the classes of labels (m,), sorted, and the labels as indices into them."""
    with named_errors("y"):
        check_classification_targets(y)
    try:
        return np.unique(y, return_inverse=True)
    except TypeError:
        raise TypeError(f"y has labels without an order, such as {shown(y[0])}: expected strings or numbers") from None


def row_accuracy(y: Any, predicted: Array, sample_weight: Any) -> float:
    """Return the accuracy of predicted labels, or label sets, by the weights of their rows."""
    if not len(predicted):
        raise ValueError("X has no rows: expected at least one to score")
    weights = None if sample_weight is None else checked_weights(sample_weight, len(predicted), "row")
    with named_errors("y"):
        return float(accuracy_score(read_targets(y), predicted, sample_weight=weights))


def _rows(X: Any) -> Any:
    """Return X as a list, an array, a sparse matrix or a frame, once no entry is masked."""
    X = read_container(X, "X", "a matrix of numbers, one row per sample")
    if _holds_dates(X):
        raise TypeError("X has dates: expected numbers; a date becomes one by its distance from another, in days, say")
    if isinstance(X, list):
        # NumPy would take the numbers below a mask.
        X = [read_container(row, f"X[{i}]") if isinstance(row, np.ma.MaskedArray) else row for i, row in enumerate(X)]
    return X


def _holds_dates(X: Any) -> bool:
    """Whether an array or a column of a frame has dates, of which scikit-learn makes numbers without a word."""
    types = list(X.dtypes) if is_frame(X) and hasattr(X, "dtypes") else [getattr(X, "dtype", "")]
    return any(str(kind).lower().startswith(("date", "time", "duration")) for kind in types)


def read_targets(y: Any) -> Any:
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
