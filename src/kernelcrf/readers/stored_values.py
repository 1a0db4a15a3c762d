"""Read labels, and the names of columns, from the content of a model file; raise if they are not valid."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from ..arrays import Array, UserData
from ..persistence.error import ModelFileError
from ..validation import shown

NUMBERS = ("bool", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64", "float32", "float64")
# The type of the classes for each of NumPy's letters for kinds of dtypes.
TYPES = {"b": "bool", "i": "int64", "u": "uint64", "f": "float64", "U": "str", "O": "object"}


@dataclass(frozen=True)
class OtherName:
    """A column name that JSON cannot store, such as a date; it is described by its type and its text."""

    type: str
    text: str

    def __str__(self) -> str:
        return self.text

    __repr__ = __str__


def string_names(names: Array | None) -> Array | None:
    """Return the names if all are strings, or else None. scikit-learn has this rule for `feature_names_in_`."""
    return names if names is not None and _are_strings(names) else None


def names_from_config(config: Mapping[str, UserData], n_features: int | None) -> Array | None:
    """Return the column names that a model file stores, or None if it has none; raise if they are not valid.

    config : the part of the model file that describes the columns.
    n_features : the number of columns, or None if it is not known.
    """
    names = config.get("feature_names")
    if names is None:
        return None
    if not isinstance(names, list) or len(names) != (len(names) if n_features is None else n_features):
        raise ModelFileError(
            f"the model file has feature_names={shown(names)}: expected {n_features} names, or null. The file may be "
            "damaged: use another copy of it"
        )
    # There may be millions of names, nearly always strings.
    return object_array(names if _are_strings(names) else list(map(_name_from_json, names)))


def classes_from_config(config: Mapping[str, UserData]) -> Array:
    """Return the classes that a model file stores, in the order of the columns of probabilities."""
    return values_from_config({"type": TYPES[config["kind"]], "values": config["classes"]})


def label_from_json(label: UserData) -> UserData:
    """Convert a value read from JSON to a label: a list becomes a tuple."""
    if isinstance(label, list):
        return tuple(label_from_json(part) for part in label)
    if label is None or isinstance(label, str | bool | int | float):
        return label
    raise ValueError(
        f"the model file has the class {shown(label)}: expected a string, a number, a boolean or a list of these. The "
        "file may be damaged: use another copy of it"
    )


def values_from_config(config: Mapping[str, UserData], *, distinct: bool = True) -> Array:
    """Return the array that `values_to_config` converted to `config`.

    distinct : whether to raise an error if two values are equal.
    """
    kind, values = config["type"], [label_from_json(value) for value in config["values"]]
    if kind not in (*NUMBERS, "str", "object"):
        raise ModelFileError(
            f"the model file has values of the type {kind!r}: expected one of {', '.join(NUMBERS)}, str or object. "
            "The file may be damaged: use another copy of it"
        )
    types = object if kind == "object" else str if kind == "str" else int | float
    if not all(isinstance(value, types) and value == value for value in values):
        raise ModelFileError(
            f"the model file has the values {shown(values)}: expected the type {kind!r} for each value. The file may "
            "be damaged: use another copy of it"
        )
    array = object_array(values) if kind == "object" else np.array(values, kind)
    # NumPy may round or wrap numbers that do not fit the type.
    if array.tolist() != values or (distinct and len(set(values)) != len(values)):
        raise ModelFileError(
            f"the model file has the values {shown(values)}: expected the type {kind!r} and no duplicates. The file "
            "may be damaged: use another copy of it"
        )
    return array


def _name_from_json(value: UserData) -> Hashable:
    if isinstance(value, list):
        return tuple(map(_name_from_json, value))
    if isinstance(value, dict):
        kind, text = value.get("type"), value.get("text")
        if len(value) == 2 and isinstance(kind, str) and isinstance(text, str):
            return OtherName(kind, text)
    elif value is None or isinstance(value, str | int | float):
        return value
    raise ModelFileError(
        f"the model file has {shown(value)} among feature_names: expected a string, a number, or a list of these. The "
        "file may be damaged: use another copy of it"
    )


def object_array(values: Sequence[object]) -> Array:
    """Return a 1-D array of objects with one entry per value; NumPy makes a 2-D array of lists of equal length."""
    array = np.empty(len(values), object)
    if _are_strings(values):
        array[:] = list(values)
    else:
        for i, value in enumerate(values):
            array[i] = value
    return array


def _are_strings(values: Iterable[object]) -> bool:
    return all(issubclass(one, str) for one in set(map(type, values)))
