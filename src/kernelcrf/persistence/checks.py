"""Read values, arrays and feature maps from the content of a model file; raise if the content is not valid."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import Any, TypeVar

import numpy as np

from kernelcrf.arrays import Array, Arrays, Config, check_rows, is_sparse
from kernelcrf.basis.features import FeatureMap, WhitenedMap, from_arrays
from kernelcrf.persistence.error import ModelFileError
from kernelcrf.validation import shown

T = TypeVar("T")


def read_number(config: Mapping[str, object], name: str, *, finite: bool = True, least: float = -math.inf) -> float:
    """Return config[name]; raise unless it is a number >= `least`, and a finite number if `finite` is true."""
    value = config[name]
    if isinstance(value, bool) or not isinstance(value, int | float) or (finite and not math.isfinite(value)):
        raise ModelFileError(f"{name} is {shown(value)}: expected a {'finite ' * finite}number")
    if value < least:
        raise ModelFileError(f"{name} is {shown(value)}: expected a number >= {least}")
    return value


def read_count(config: Mapping[str, object], name: str, least: int = 0) -> int:
    """Return config[name]; raise unless it is an integer >= `least` that fits in 64 bits."""
    value = config[name]
    if type(value) is not int or not least <= value < 2**63:
        raise ModelFileError(f"{name} is {shown(value)}: expected an integer >= {least}")
    return value


def read_flag(config: Mapping[str, object], name: str) -> bool:
    """Return config[name]; raise unless it is true or false."""
    return _read(config, name, bool, "true or false")


def read_text(config: Mapping[str, object], name: str) -> str:
    """Return config[name]; raise unless it is a string."""
    return _read(config, name, str, "a string")


def _read(config: Mapping[str, object], name: str, kind: type[T], expected: str) -> T:
    value = config[name]
    if type(value) is not kind:
        raise ModelFileError(f"{name} is {shown(value)}: expected {expected}")
    return value


def read_array(arrays: Mapping[str, Array], name: str, shape: tuple[int, ...] | None, kind: str) -> Array:
    """Return arrays[name]; raise unless its entries are finite, its shape is `shape` and its dtype.kind is in `kind`.

    Arrays of any shape are accepted if `shape` is None.
    """
    array = arrays[name]
    if array.dtype.kind not in kind or (shape is not None and array.shape != shape) or not np.isfinite(array).all():
        raise ModelFileError(
            f"tensor {name!r} has type {array.dtype} and shape {array.shape}: expected finite entries, a type of kind "
            f"{' or '.join(map(repr, kind))}" + ("" if shape is None else f" and shape {shape}")
        )
    return array


def maps_to_arrays(maps: Iterable[FeatureMap]) -> tuple[list[Config], Arrays]:
    """Convert feature maps to a list of values that JSON can store, and a dict of arrays.

    An object that occurs several times is stored once. The names of its arrays begin with "map " and its place in the
    list, such as "map 0.".
    """
    configs: list[Config] = []
    arrays: Arrays = {}
    for place, one in enumerate({id(feature_map): feature_map for feature_map in maps}.values()):
        config, of_map = one.to_arrays()
        configs.append(config)
        arrays |= {f"map {place}.{name}": array for name, array in of_map.items()}
    return configs, arrays


def check_factor(name: str, factor: Array) -> None:
    """Raise unless all diagonal entries of a Cholesky factor are positive; otherwise it could not be inverted."""
    if not (np.diagonal(factor) > 0).all():
        raise ModelFileError(f"the Cholesky factor {name!r} has diagonal entries <= 0: expected entries > 0")


def read_map(config: Mapping[str, Any], arrays: Mapping[str, Array], prefix: str, n_features: int | None) -> FeatureMap:
    """Return the feature map whose arrays have names that begin with `prefix`; raise if its arrays do not fit together.

    n_features : the number of input columns that the map must accept, or None if any number is valid.
    """
    map_arrays = {name.removeprefix(prefix): array for name, array in arrays.items() if name.startswith(prefix)}
    result = from_arrays(config, map_arrays)
    fits = n_features is None or (type(result.n) is int and result.n == n_features)
    if isinstance(result, WhitenedMap):
        R, B = read_array({"R": result.R}, "R", (result.n, result.n), "f"), result.landmarks
        fits = B.ndim == 2 and len(R) == B.shape[0] > 0 and n_features in (None, B.shape[1]) and B.dtype.kind == "f"
        if is_sparse(B):
            check_rows(B)
        check_factor("R", R)
    if not fits:
        raise ModelFileError(
            "the sizes of a feature map do not match: expected as many landmarks as rows of the factor R, and as many "
            "columns as the inputs have"
        )
    if isinstance(result, WhitenedMap):
        with np.errstate(all="ignore"):
            finite = np.isfinite(B.data if is_sparse(B) else B).all() and np.isfinite(result.kernel.gram(B[:1])).all()
        if not finite:
            raise ModelFileError(
                "the landmarks, or their kernel values, have entries that are not finite: expected finite numbers"
            )
    return result
