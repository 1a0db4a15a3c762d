"""Checks of the values and arrays of a file, made before anything computes with them."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import TypeVar

import numpy as np

from kernelcrf.arrays import Array
from kernelcrf.persistence.model_file import ModelFileError
from kernelcrf.validation import shown

T = TypeVar("T")


def read_number(config: Mapping[str, object], name: str, *, finite: bool = True, least: float = -math.inf) -> float:
    """Return the number of a name; with finite=False it may be infinite or NaN."""
    value = config[name]
    if isinstance(value, bool) or not isinstance(value, int | float) or (finite and not math.isfinite(value)):
        raise ModelFileError(f"{name} is {shown(value)}: expected a {'finite ' * finite}number")
    if value < least:
        raise ModelFileError(f"{name} is {shown(value)}: expected a number >= {least}")
    return value


def read_count(config: Mapping[str, object], name: str, least: int = 0) -> int:
    """Return the integer of a name; it is at least `least` and fits 64 bits."""
    value = config[name]
    if type(value) is not int or not least <= value < 2**63:
        raise ModelFileError(f"{name} is {shown(value)}: expected an integer >= {least}")
    return value


def read_flag(config: Mapping[str, object], name: str) -> bool:
    """Return the truth value of a name."""
    return _read(config, name, bool, "true or false")


def read_text(config: Mapping[str, object], name: str) -> str:
    """Return the string of a name."""
    return _read(config, name, str, "a string")


def _read(config: Mapping[str, object], name: str, kind: type[T], expected: str) -> T:
    value = config[name]
    if type(value) is not kind:
        raise ModelFileError(f"{name} is {shown(value)}: expected {expected}")
    return value


def read_array(arrays: Mapping[str, Array], name: str, shape: tuple[int, ...] | None, kind: str) -> Array:
    """Return the array of a name, which must have the shape and the NumPy kind, and finite entries."""
    array = arrays[name]
    if array.dtype.kind != kind or (shape is not None and array.shape != shape) or not np.isfinite(array).all():
        raise ModelFileError(
            f"tensor {name!r} has type {array.dtype} and shape {array.shape}: expected {shape}, finite"
        )
    return array
