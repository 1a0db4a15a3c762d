"""Read the names of the columns of data frames, and compare the columns of later data with them.

Names may have any type, such as strings, integers, dates and the tuples of a MultiIndex. A data frame whose names
differ from the names in `fit` raises an error. If the columns of a sequence are in another order than in `fit`, they
are reordered. In a single table, another order is an error, as in scikit-learn.

Arrays have no names. The default names in pandas are 0, 1, ..., so a data frame with these names matches an array. If
it is compared with a data frame whose names are strings, it counts as a table without names. If only the data of `fit`
or only the later data have names, columns are read by their position, with the warnings of scikit-learn.
"""

from __future__ import annotations

import math
import re
import warnings
from collections.abc import Callable, Hashable, Iterator, Sequence
from contextlib import contextmanager

import numpy as np

from kernelcrf.arrays import Array, UserData, is_sparse
from kernelcrf.readers.containers import column_names, is_frame, to_array
from kernelcrf.readers.stored_values import OtherName, object_array, string_names
from kernelcrf.validation import one_line, shown_list, stacklevel_of_user

LONGEST = 400
MOST_NAMES = 5


def read_names(X: UserData) -> Array | None:
    """Return the names of the columns if X is a data frame with columns; otherwise return None."""
    names = tuple(map(_read_name, column_names(X))) if is_frame(X) else ()
    return object_array(names) if names else None


def check_names(owner: str, X: UserData, place: str, names: Array | None) -> None:
    """Raise if X is a data frame whose columns are not `names`, in this order.

    Warn if X has column names and `names` is None, or if X has no column names and `names` is given.

    owner, place : the names of the estimator and of X in error messages.
    """
    if _find_order(owner, read_names(X), place, names) is not None:
        raise _names_differ(place, "Feature names must be in the same order as they were in fit.")


def match_columns(
    owner: str, parts: Sequence[UserData], place: Callable[[int], str], names: Array | None
) -> Sequence[UserData]:
    """Return sequences with their columns in the order of `names`, the column names in `fit`.

    owner : the name of the estimator in error messages.
    place : a function that returns the name of sequence i in error messages, such as "X[0]".
    """
    orders = find_orders(owner, parts, place, names)
    return [part if order is None else to_array(part)[:, order] for part, order in zip(parts, orders, strict=True)]


def find_orders(
    owner: str, parts: Sequence[UserData], place: Callable[[int], str], names: Array | None
) -> list[list[int] | None]:
    """Return one entry per sequence: the positions of `names` among the columns of this sequence.

    The entry is None if the columns already are in the order of `names`. Raise if a sequence has other column names.

    owner : the name of the estimator in error messages.
    place : a function that returns the name of sequence i in error messages, such as "X[0]".
    """
    if names is None and not any(map(is_frame, parts)):
        return [None] * len(parts)
    orders: dict[tuple[object, ...] | None, list[int] | None] = {}
    permutations = []
    for i, part in enumerate(parts):
        columns = _columns(part)
        if columns not in orders and not _is_empty(part):
            orders[columns] = _find_order(owner, read_names(part), place(i), names)
        permutations.append(orders.get(columns))
    return permutations


def common_names(parts: Sequence[UserData], place: Callable[[int], str]) -> Array | None:
    """Return the column names of training sequences, in the order of the first data frame; None if they have no names.

    Raise if the sequences have different column names.

    place : a function that returns the name of sequence i in error messages, such as "X[0]".
    """
    if not any(is_frame(part) and not _is_empty(part) for part in parts):
        return None
    distinct_columns: dict[tuple[object, ...] | None, tuple[str, Array | None]] = {}
    for i, part in enumerate(parts):
        if not _is_empty(part) and (columns := _columns(part)) not in distinct_columns:
            distinct_columns[columns] = place(i), read_names(part)
    first, names = next(iter(distinct_columns.values()))
    for other, others in distinct_columns.values():
        if not have_same_names(names, others):
            wanted, given = (set(() if these is None else these) for these in (names, others))
            sides = ((other, given - wanted), (first, wanted - given))
            only = [f"only {at} has {shown_list(sorted(more, key=str))}" for at, more in sides if more]
            raise ValueError(
                f"{other} and {first} have different column names ({' and '.join(only)}): expected the same columns in "
                "every sequence"
            )
    return next((frame_names for _, frame_names in distinct_columns.values() if frame_names is not None), None)


def read_columns(
    owner: str, parts: Sequence[UserData], place: Callable[[int], str]
) -> tuple[Sequence[UserData], Array | None]:
    """Return a pair: the training sequences with their columns in the same order, and the names of these columns.

    The second part is None if the columns have no names. Raise if the sequences have different column names.

    owner : the name of the estimator in error messages.
    place : a function that returns the name of sequence i in error messages, such as "X[0]".
    """
    names = common_names(parts, place)
    return match_columns(owner, parts, place, names), names


def have_same_names(names: Sequence[Hashable] | Array | None, others: Sequence[Hashable] | Array | None) -> bool:
    """Return whether two tables have the same column names, in any order.

    None stands for a table without names. Such a table matches other tables without names, and the names 0, 1, ...
    """
    if names is None or others is None:
        return _are_positions(names) and _are_positions(others)
    return set(names) == set(others)


def names_as_text(names: Array | None) -> list[str] | None:
    """Return the names as strings; return None if there are none, or if they are the positions 0, 1, ..."""
    return None if names is None or _are_positions(names) else list(map(str, names))


def names_to_config(names: Array | None) -> list[UserData] | None:
    """Return the column names as a list that can be written as JSON; `names_from_config` reads it."""
    return None if names is None else list(map(_name_to_json, names))


@contextmanager
def named_errors(*names: str) -> Iterator[None]:
    """Shorten the errors of scikit-learn in a `with` block to one line that names the checked arguments.

    names : the checked arguments, such as "X" and "y". A line that mentions none of them gets all of them at its start.
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
    """Return the names that a data frame gives to its columns; return None for anything else."""
    return tuple(column_names(part)) if is_frame(part) else None


def _read_name(name: UserData) -> Hashable:
    """Convert a column name to the form that model files store, so that loaded models recognise names such as NaN."""
    if isinstance(name, tuple):
        return tuple(map(_read_name, name))
    value = name.item() if isinstance(name, np.bool_ | np.number | np.str_) else name
    if value is None or isinstance(value, str | int) or (isinstance(value, float) and math.isfinite(value)):
        return value
    return OtherName(type(name).__name__, str(name))


def _name_to_json(name: UserData) -> UserData:
    if isinstance(name, tuple):
        return list(map(_name_to_json, name))
    return {"type": name.type, "text": name.text} if isinstance(name, OtherName) else name


def _are_positions(names: Sequence[Hashable] | Array | None) -> bool:
    """Return whether the names are None, or the positions 0, 1, ... in this order."""
    return names is None or tuple(names) == tuple(range(len(names)))


def _find_order(owner: str, columns: Array | None, place: str, names: Array | None) -> list[int] | None:
    """Return, for each name in `names`, its index in `columns`; return None if the columns need not be reordered.

    Raise if the columns have other names. Warn if only one of `columns` and `names` is None.
    """
    if columns is None or _are_no_names(columns, names):
        if not _are_positions(names):
            _warn(f"X does not have valid feature names, but {owner} was fitted with feature names")
        return None
    wanted = tuple(range(len(columns)) if names is None else names)
    present = set(columns)
    if (names is None or _are_no_names(names, columns)) and present != set(wanted):
        _warn(f"X has feature names, but {owner} was fitted without feature names")
        return None
    if tuple(columns) == wanted:
        return None
    unseen, missing = present - set(wanted), set(wanted) - present
    if unseen or missing:
        text = f"Feature names unseen at fit time: {_listed(unseen)} " if unseen else ""
        text += f"Feature names seen at fit time, yet now missing: {_listed(missing)}" if missing else ""
        raise _names_differ(place, text)
    at = {name: position for position, name in enumerate(columns)}
    if not len(at) == len(columns) == len(wanted):
        raise _names_differ(place, "Several columns have the same name, and must be in the same order as in fit.")
    return [at[name] for name in wanted]


def _are_no_names(names: Array, others: Array | None) -> bool:
    """Return whether `names` are 0, 1, ... and `others` are strings: numbers then do not count as names."""
    return _are_positions(names) and string_names(others) is not None


def _names_differ(place: str, text: str) -> ValueError:
    return ValueError(f"{place}: The feature names should match those that were passed during fit. {text.rstrip()}")


def _listed(names: set[Hashable]) -> str:
    texts = sorted(map(str, names))
    more = ["..."] if len(texts) > MOST_NAMES else []
    return " ".join(f"- {one_line(text)}" for text in texts[:MOST_NAMES] + more)


def _warn(message: str) -> None:
    warnings.warn(message, UserWarning, stacklevel=stacklevel_of_user())
