"""Decide which labels are missing: None, pandas.NA and, if it cannot be a class, -1.

scikit-learn marks missing labels by -1. This is possible if all classes are strings or integers >= 0; otherwise -1 is a
label like any other.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

import numpy as np

from kernelcrf.arrays import UserData
from kernelcrf.readers.containers import is_missing_value

UNKNOWN = -1


def minus_one_is_free(labels: Iterable[UserData]) -> bool:
    """Return whether all labels are strings or integers >= 0, so that -1 can mean a missing label."""
    return all(isinstance(label, str) or (_is_integer(label) and label >= 0) for label in labels)


def is_minus_one(label: UserData) -> bool:
    """Return whether a label is the integer -1."""
    return _is_integer(label) and label == UNKNOWN


def _is_integer(label: UserData) -> bool:
    # NumPy's durations are integers by their class, but cannot be compared with numbers.
    return isinstance(label, int | np.integer | np.bool_) and not isinstance(label, np.timedelta64)


def missing_among(labels: Iterable[UserData], classes: Iterable[UserData] = ()) -> Callable[[UserData], bool]:
    """Return a function that says whether one of the labels is missing.

    classes : labels that are known not to be missing, such as predictions.
    """
    others = (label for label in labels if not (is_missing_value(label) or is_minus_one(label)))
    free = minus_one_is_free(others) and minus_one_is_free(classes)
    return lambda label: is_missing_value(label) or (free and is_minus_one(label))
