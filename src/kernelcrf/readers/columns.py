"""Names of columns: keep them if data come as data frames, and compare later data with them as scikit-learn does.

scikit-learn's conventions apply: columns have names if all names are strings. Data frames whose names differ from those
of `fit` raise an error; if only `fit` or only the later data have names, there is a warning. In sequences, columns in
another order are put in the order of `fit`; in single tables they are refused, as scikit-learn does.
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
from kernelcrf.readers.containers import is_frame, to_array
from kernelcrf.validation import one_line, shown, shown_list

LONGEST = 400


def stand_in(owner: str, names: Array | None = None) -> BaseEstimator:
    """Return an estimator of the class `owner` that was fitted to columns with the given names.

    scikit-learn compares the columns of X with attributes of an estimator, whose class its messages mention.
    """
    estimator = type(owner, (BaseEstimator,), {})()
    if names is not None:
        estimator.feature_names_in_ = names
    return estimator


def read_names(owner: str, X: UserData, place: str) -> Array | None:
    """Return the names of the columns of X if it is a data frame and all names are strings; otherwise None."""
    estimator = stand_in(owner)
    with named_errors(place):
        validate_data(estimator, X, skip_check_array=True, ensure_2d=False)
    return getattr(estimator, "feature_names_in_", None)


def check_names(owner: str, X: UserData, place: str, names: Array | None) -> None:
    """Raise if X is a data frame whose columns are not `names`, in this order; warn if only one of both has names."""
    with named_errors(place):
        validate_data(stand_in(owner, names), X, reset=False, skip_check_array=True, ensure_2d=False)


def match_columns(
    owner: str, parts: Sequence[UserData], place: Callable[[int], str], names: Array | None
) -> Sequence[UserData]:
    """Return sequences with their columns in the order of `names`, the names of the columns in `fit`.

    Error messages call the estimator `owner`, and the sequence i place(i), such as "X[0]".
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
    """Return the sequences of a fit with their columns in the same order, and the names of the columns, if any.

    Raise if the sequences have columns with different names.
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
    """Return the names of columns that a model file stores, or None; raise if they are not `n_features` strings."""
    names = config.get("feature_names")
    if names is None:
        return None
    if not isinstance(names, list) or len(names) != n_features or not all(isinstance(name, str) for name in names):
        raise ModelFileError(f"feature_names is {shown(names)}: expected {n_features} strings, or null")
    return np.array(names, object)


@contextmanager
def named_errors(*names: str) -> Iterator[None]:
    """Shorten errors of scikit-learn to one line; put `names` before a line that mentions none of them."""
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
    """Return the names of the columns of a data frame; return None for anything else."""
    if not is_frame(part):
        return None
    # Tables of Arrow have their names in `column_names`, and the columns themselves in `columns`.
    return tuple(part.column_names if hasattr(type(part), "column_names") else part.columns)


def _find_order(
    owner: str, part: UserData, columns: tuple[object, ...] | None, place: str, names: Array | None
) -> list[int] | None:
    """Return the numbers of the columns of `part` in the order of `names`; return None if the order is the same."""
    if columns is not None and names is not None and sorted(map(str, columns)) == sorted(names):
        at = {name: number for number, name in enumerate(columns)}
        if len(at) == len(names):
            return None if columns == tuple(names) else [at[name] for name in names]
    check_names(owner, part, place, names)
    return None
