"""Decide which labels are missing: None, pandas.NA and, if it cannot be a class, -1.

scikit-learn marks missing labels by -1. All estimators and metrics follow one rule:

    -1 is a missing label if all other labels are strings or integers >= 0. Otherwise it is a label like any other.
    If the only other label is 1, -1 is a class, because -1 and 1 are the signs of two classes. If the other labels are
    0 and 1, -1 is a missing label, with a warning, because -1, 0 and 1 could be classes.

If a user names the classes, -1 is missing unless it is one of them, and there is no warning. The values of an indicator
matrix are 0 and 1, so that -1 beside them gives no warning either. How often -1 occurs does not matter, because most
labels may be missing.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Collection, Iterable

import numpy as np

from kernelcrf.arrays import UserData
from kernelcrf.readers.containers import is_missing_value
from kernelcrf.validation import stacklevel_of_user

UNKNOWN = -1


def minus_one_is_free(labels: Iterable[UserData]) -> bool:
    """Return whether all labels are strings or integers >= 0, so that -1 can mean a missing label."""
    return all(isinstance(label, str) or (_is_integer(label) and label >= 0) for label in labels)


def are_signs(others: Collection[UserData]) -> bool:
    """Return whether -1 counts as a class because the only other label is the number 1."""
    return set(others) == {1} and not any(isinstance(label, bool | np.bool_) for label in others)


def is_minus_one(label: UserData) -> bool:
    """Return whether a label is the integer -1."""
    return _is_integer(label) and label == UNKNOWN


def _is_integer(label: UserData) -> bool:
    # NumPy's durations are integers by their class, but cannot be compared with numbers.
    return isinstance(label, int | np.integer | np.bool_) and not isinstance(label, np.timedelta64)


def missing_among(
    labels: Iterable[UserData], classes: Iterable[UserData] | None = None, predicted: Iterable[UserData] = ()
) -> Callable[[UserData], bool]:
    """Return a function that says whether a label is missing; warn if -1 is read as missing but could be a class.

    classes : all classes, or None if each class is among the labels and the predictions.
    predicted : the predicted labels, which are never missing.
    """
    given = list(labels)
    others = [label for label in given if not (is_missing_value(label) or is_minus_one(label))]
    others += [*predicted, *(() if classes is None else classes)]
    free = minus_one_is_free(others) and (classes is not None or not are_signs(others))
    if free and classes is None and set(others) == {0, 1} and any(map(is_minus_one, given)):
        _warn_of_signs(others)
    return lambda label: is_missing_value(label) or (free and is_minus_one(label))


def _warn_of_signs(others: Iterable[UserData]) -> None:
    if not any(isinstance(label, bool | np.bool_) for label in others):
        warnings.warn(
            "the labels are -1, 0 and 1, and -1 is read as a missing label: pass classes=[-1, 0, 1] if -1 is a "
            "class. If -1 means missing, pass classes=[0, 1], or None instead of -1. If there is no parameter "
            "classes=, pass None for a missing label, and use strings as labels if -1 is a class",
            stacklevel=stacklevel_of_user(),
        )
