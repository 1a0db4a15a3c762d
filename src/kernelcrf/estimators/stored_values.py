"""Plain values as they come from a model file: checked before an estimator keeps them."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from kernelcrf.persistence import ModelFileError
from kernelcrf.validation import shown


def number(config: Mapping[str, Any], name: str, *, finite: bool = True, least: float = -math.inf) -> float:
    """Return the number of a name; with finite=False it may be infinite or NaN."""
    value = config[name]
    right = isinstance(value, int | float) and not isinstance(value, bool)
    if not right or (finite and not math.isfinite(value)) or value < least:
        raise ModelFileError(f"{name} is {shown(value)}: expected a {'finite ' * finite}number")
    found: float = value
    return found


def count(config: Mapping[str, Any], name: str, least: int = 0) -> int:
    """Return the integer of a name, which is not below the least and fits 64 bits."""
    value = config[name]
    if type(value) is not int or not least <= value < 2**63:
        raise ModelFileError(f"{name} is {shown(value)}: expected an integer >= {least}")
    return value


def flag(config: Mapping[str, Any], name: str) -> bool:
    """Return the truth value of a name."""
    value = config[name]
    if type(value) is not bool:
        raise ModelFileError(f"{name} is {shown(value)}: expected true or false")
    return value


def text(config: Mapping[str, Any], name: str) -> str:
    """Return the string of a name."""
    value = config[name]
    if type(value) is not str:
        raise ModelFileError(f"{name} is {shown(value)}: expected a string")
    return value
