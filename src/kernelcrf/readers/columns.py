"""Store the column names of data frames, and compare the columns of later data with them, as scikit-learn does.

Columns have names if all names are strings. A data frame whose names differ from the names in `fit` raises an error.
If only the data of `fit` or only the later data have names, there is a warning. If the columns of a sequence are in
another order than in `fit`, they are reordered. In a single table, another order is an error, as in scikit-learn.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager

import numpy as np
from sklearn.base import BaseEstimator
from sklearn.utils.validation import validate_data

from kernelcrf.arrays import Array, UserData, is_sparse
from kernelcrf.persistence import ModelFileError
from kernelcrf.readers.containers import column_names, is_frame, to_array
from kernelcrf.validation import one_line, shown, shown_list

LONGEST = 400


def stand_in(owner: str, names: Array | None = None) -> BaseEstimator:
    """Return an empty estimator whose class has the name `owner`, with the attribute `feature_names_in_` if given.

    `validate_data` of scikit-learn needs an estimator: it compares the columns of X with this attribute, and shows the
    name of the class in its messages.
    """
    estimator = type(owner, (BaseEstimator,), {})()
    if names is not None:
        estimator.feature_names_in_ = names
    return estimator


def read_names(owner: str, X: UserData, place: str) -> Array | None:
    """Return the column names of X if X is a data frame and all names are strings; otherwise return None.

    owner, place : the names of the estimator and of X in error messages.
    """
    estimator = stand_in(owner)
    with named_errors(place):
        validate_data(estimator, X, skip_check_array=True, ensure_2d=False)
    return getattr(estimator, "feature_names_in_", None)


def check_names(owner: str, X: UserData, place: str, names: Array | None) -> None:
    """Raise if X is a data frame whose columns are not `names`, in this order.

    Warn if X has column names and `names` is None, or if X has no column names and `names` is given.

    owner, place : the names of the estimator and of X in error messages.
    """
    with named_errors(place):
        validate_data(stand_in(owner, names), X, reset=False, skip_check_array=True, ensure_2d=False)


def match_columns(
    owner: str, parts: Sequence[UserData], place: Callable[[int], str], names: Array | None
) -> Sequence[UserData]:
    """Return sequences with their columns in the order of `names`, the column names in `fit`.

    owner : the name of the estimator in error messages.
    place : a function that returns the name of sequence i in error messages, such as "X[0]".
    """
    if names is None and not any(map(is_frame, parts)):
        return parts
    orders: dict[tuple[object, ...] | None, list[int] | None] = {}
    matched = []
    for i, part in enumerate(parts):
        columns = _columns(part)
        if columns not in orders and not _is_empty(part):
            orders[columns] = _find_order(owner, part, columns, place(i), names)
        order = orders.get(columns)
        matched.append(part if order is None else to_array(part)[:, order])
    return matched


def read_columns(
    owner: str, parts: Sequence[UserData], place: Callable[[int], str]
) -> tuple[Sequence[UserData], Array | None]:
    """Return training sequences with all columns in the same order, and the column names, or None without names.

    Raise if the sequences have different column names.

    owner : the name of the estimator in error messages.
    place : a function that returns the name of sequence i in error messages, such as "X[0]".
    """
    if not any(is_frame(part) and not _is_empty(part) for part in parts):
        return parts, None
    found: dict[tuple[object, ...] | None, tuple[str, Array | None]] = {}
    for i, part in enumerate(parts):
        if not _is_empty(part) and (columns := _columns(part)) not in found:
            found[columns] = place(i), read_names(owner, part, place(i))
    first, names = next(iter(found.values()))
    wanted = set() if names is None else set(names)
    for other, others in found.values():
        own = set() if others is None else set(others)
        if own != wanted:
            sides = ((other, own - wanted), (first, wanted - own))
            only = [f"only {at} has {shown_list(sorted(more))}" for at, more in sides if more]
            raise ValueError(
                f"{other} and {first} have different column names ({' and '.join(only)}): expected the same columns in "
                "every sequence"
            )
    return (parts if names is None else match_columns(owner, parts, place, names)), names


def names_from_config(config: Mapping[str, UserData], n_features: int) -> Array | None:
    """Return the column names that a model file stores, or None if it has none; raise if they are not valid.

    config : the part of the model file that describes the columns.
    """
    names = config.get("feature_names")
    if names is None:
        return None
    if not isinstance(names, list) or len(names) != n_features or not all(isinstance(name, str) for name in names):
        raise ModelFileError(f"feature_names is {shown(names)}: expected {n_features} strings, or null")
    return np.array(names, object)


@contextmanager
def named_errors(*names: str) -> Iterator[None]:
    """Shorten errors that scikit-learn raises in a `with` block to one line.

    names : the checked arguments, such as "X" and "y". If the error mentions none of them, it is prefixed with them.
    """
    try:
        yield
    except (ValueError, TypeError) as error:
        line = one_line(error, LONGEST)
        if not set(names) & set(re.split(r"[\s.,:]", line)):
            line = f"{' or '.join(names)}: {line}"
        raise (ValueError if isinstance(error, ValueError) else TypeError)(line) from None


def _is_empty(part: UserData) -> bool:
    return not is_sparse(part) and hasattr(part, "__len__") and len(part) == 0


def _columns(part: UserData) -> tuple[object, ...] | None:
    """Return the column names of a data frame; return None for anything else."""
    return tuple(column_names(part)) if is_frame(part) else None


def _find_order(
    owner: str, part: UserData, columns: tuple[object, ...] | None, place: str, names: Array | None
) -> list[int] | None:
    """Return the index in `part` of each column in `names`; return None if the columns need not be reordered.

    Raise if the columns do not have these names.
    """
    if columns is not None and names is not None and sorted(map(str, columns)) == sorted(names):
        at = {name: number for number, name in enumerate(columns)}
        if len(at) == len(names):
            return None if columns == tuple(names) else [at[name] for name in names]
    check_names(owner, part, place, names)
    return None
