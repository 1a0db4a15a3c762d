"""The items of tokens: pairs (name, value), read from feature dicts or lists of feature names, and checked.

A token is a mapping from names to values, or a list, tuple or set of feature names, which all have the value 1. In a
mapping, the type of the value decides how the item `name: value` changes the columns of the token's row:

    "the"            add 1 to the column `name:the`
    2.5 or True      add 2.5, or 1, to the column `name`
    ["a", "b"]       add 1 to each of the columns `name:a` and `name:b`; a tuple or a set has the same effect
    {"k": value}     add what the item `name:k: value` adds, by these same rules

CRFsuite gives columns the same names. A model of CRFsuite can therefore be converted to a ChainCRF, and the reverse.
Some names have "=" in place of ":": those in model files of earlier versions, and those that are hashed, because
`FeatureHasher` of scikit-learn uses "=".
"""

from __future__ import annotations

from collections.abc import Mapping
from math import isfinite
from numbers import Real
from typing import TypeAlias

import numpy as np

from ..arrays import UserData
from ..validation import Constraint, either, is_whole, nothing, shown

SEPARATOR, HASHED_SEPARATOR = ":", "="
COLLECTIONS = (list, tuple, set, frozenset)
PLAIN = (str, int, float, bool)

Item: TypeAlias = tuple[str, UserData]

HASH_FEATURES = either(
    Constraint(
        "a power of two below 2**31 such as 2**18",
        lambda value: is_whole(value) and 0 < value < 2**31 and int(value).bit_count() == 1,
    ),
    nothing,
    advice="None keeps a vocabulary",
)


def is_nested(value: UserData) -> bool:
    """Return whether a value is a mapping, or a collection of strings."""
    # Comparing the type is fast, and settles most values; isinstance with Mapping is slow.
    if type(value) in PLAIN:
        return False
    strings = isinstance(value, COLLECTIONS) and all(isinstance(name, str) for name in value)
    return strings or isinstance(value, Mapping)


def _is_vector(value: UserData) -> bool:
    return type(value) not in PLAIN and (isinstance(value, COLLECTIONS) or np.ndim(value) > 0)


def flat_items(token: UserData, separator: str = SEPARATOR, prefix: str = "", where: str = "") -> list[Item]:
    """Return the pairs (name, value) of a token; a pair in a nested dict has a name such as "outer:inner".

    separator : the text between the names of nested dicts.
    where : the place of the token for error messages, such as " in sequence 3, token 1".
    """
    if isinstance(token, COLLECTIONS):
        return [(prefix + check_name(name, where), 1) for name in token]
    if not isinstance(token, Mapping):
        raise TypeError(
            f"X has the token {shown(token)} of type {type(token).__name__} among feature dicts{where}: expected a "
            "dict from names to values, or a list of feature names"
        )
    items: list[Item] = []
    for name, value in token.items():
        full = prefix + check_name(name, where)
        if is_nested(value):
            items.extend(flat_items(value, separator, full + separator, where))
        elif _is_vector(value):
            raise _refuse_value(full, value, where)
        else:
            items.append((full, value))
    return items


def collect_items(
    token: Mapping[str, UserData],
    separator: str,
    names: list[str],
    values: list[float],
    prefix: str = "",
    *,
    zeros: bool = False,
) -> None:
    """Append the column names and the values of a feature dict to two lists.

    This is a fast way to read ordinary dicts. Raise TypeError if a name is not a string, or if a value is not a string,
    a finite number of Python, a boolean or a dict. Callers then use `flat_items` and `check_item`, which accept more
    types and say which item is wrong.

    separator : the text between a name and a value, and between the names of nested dicts.
    zeros : whether to keep items whose value is 0. They do not change scores, but a fit counts where a feature occurs.
    """
    for name, value in token.items():
        kind = type(value)
        if kind is str:
            names.append(prefix + name + separator + value)
            values.append(1.0)
        elif kind is bool or kind is int or (kind is float and isfinite(value)):
            if value or zeros:
                names.append(prefix + name)
                values.append(value)
        elif kind is dict:
            collect_items(value, separator, names, values, prefix + name + separator, zeros=zeros)
        else:
            raise TypeError(
                "a feature has a value that is not finite, or of an unusual type: expected a finite number, a "
                "string or a dict"
            )


def check_name(name: UserData, where: str = "") -> str:
    """Return a feature name; raise if it is not a string."""
    if isinstance(name, Mapping):
        raise TypeError(
            f"X has a feature dict in the place of a feature name{where}: expected a sequence of feature dicts. Remove "
            "one list around them, or pass several sequences to a method that takes several"
        )
    if not isinstance(name, str):
        raise TypeError(
            f"X has the feature name {shown(name)} of type {type(name).__name__}{where}: expected a string; use "
            "str(name)"
        )
    return name


def check_item(item: Item, where: str = "") -> Item:
    """Return an item with its value as a string or a float; raise if its name or its value is not allowed.

    where : the place of the token for error messages, such as " in sequence 3, token 1".
    """
    name, value = item
    check_name(name, where)
    if isinstance(value, str):
        return item
    if isinstance(value, Real | np.bool_):
        if not np.isfinite(float(value)):
            raise ValueError(
                f"X has the value {value} for feature {shown(name)}{where}: expected finite numbers; "
                + ("leave out a feature whose value is unknown" if value != value else "remove or clip infinite values")
            )
        return name, float(value)
    raise _refuse_value(name, value, where)


def _refuse_value(name: str, value: UserData, where: str) -> TypeError:
    remedy = "leave out a feature that has no value"
    if _is_vector(value):
        remedy = (
            f"turn a vector into one feature per entry, such as {shown(name + '[0]')}: 0.5, or pass arrays of numbers "
            "instead of feature dicts"
        )
    return TypeError(
        f"X has the value {shown(value)} of type {type(value).__name__} for feature {shown(name)}{where}: expected a "
        f"string, a number, a boolean, a list or set of strings, or a nested dict; {remedy}"
    )
