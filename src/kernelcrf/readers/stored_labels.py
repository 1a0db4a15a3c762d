"""Labels, and values of variables, as JSON-able values and back."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from kernelcrf.arrays import Array, UserData
from kernelcrf.persistence import ModelFileError
from kernelcrf.readers.containers import DATES, object_array
from kernelcrf.validation import shown

NUMBERS = ("bool", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64", "float32", "float64")


def label_to_json(label: UserData) -> UserData:
    """Return a label as a JSON-able value: a tuple as a list; strings, numbers and booleans as they are."""
    if isinstance(label, tuple):
        return [label_to_json(part) for part in label]
    value = label.item() if isinstance(label, np.generic) and label.dtype.kind not in DATES else label
    if value is None or isinstance(value, str | bool | int | float):
        return value
    raise TypeError(
        f"classes has the label {shown(label)} of type {type(label).__name__}, which cannot be written to a file: "
        "expected strings, numbers, booleans or tuples of them; fit with labels such as str(label), or keep this "
        "estimator by joblib.dump"
    )


def label_from_json(label: UserData) -> UserData:
    """Return the label that `label_to_json` wrote."""
    if isinstance(label, list):
        return tuple(label_from_json(part) for part in label)
    if label is None or isinstance(label, str | bool | int | float):
        return label
    raise ValueError(f"config has the class {shown(label)}: expected strings, numbers, booleans or lists of them")


def values_to_config(values: Array) -> dict[str, object]:
    """Return values with their type, which is the name of a type of numbers, "str" or "object"."""
    name = values.dtype.name
    kind = name if name in NUMBERS else "str" if values.dtype.kind == "U" else "object"
    return {"type": kind, "values": [label_to_json(value) for value in values.tolist()]}


def values_from_config(config: Mapping[str, UserData], *, distinct: bool = True) -> Array:
    """Return the values that `values_to_config` described, which must differ if they are `distinct`."""
    kind, values = config["type"], [label_from_json(value) for value in config["values"]]
    if any(value != value for value in values) or (distinct and len(set(values)) != len(values)):
        raise ModelFileError(f"values are {shown(values)}: expected different ones")
    types = str if kind == "str" else bool if kind == "bool" else int | float if kind in NUMBERS else object
    if not all(isinstance(value, types) for value in values):
        raise ModelFileError(f"values are {shown(values)}: expected the type {kind!r}")
    if kind in NUMBERS:
        return np.array(values, kind).reshape(len(values))
    if kind == "str":
        return np.array(values, dtype=np.str_)
    if kind != "object":
        raise ModelFileError(f"values have the type {kind!r}: expected one of {', '.join(NUMBERS)}, str or object")
    return object_array(values)
