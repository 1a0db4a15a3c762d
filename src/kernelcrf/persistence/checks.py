"""Read values, arrays, pairs and feature maps from the content of a model file; raise if they are not valid."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, NamedTuple, TypeVar

import numpy as np

from ..arrays import CSR_PARTS, Array, Config, Ints, Labels
from ..graphs.structure import Legal
from ..validation import shown
from .error import ModelFileError

T = TypeVar("T")


def read_number(config: Mapping[str, object], name: str, *, finite: bool = True, least: float = -math.inf) -> float:
    """Return config[name]; raise unless it is a number >= `least`, and a finite number if `finite` is true."""
    value = config[name]
    if isinstance(value, bool) or not isinstance(value, int | float) or (finite and not math.isfinite(value)):
        raise ModelFileError(
            f"{name} is {shown(value)}: expected a {'finite ' * finite}number. The file may be damaged: use another "
            "copy of it"
        )
    if value < least:
        raise ModelFileError(
            f"{name} is {shown(value)}: expected a number >= {least}. The file may be damaged: use another copy of it"
        )
    return value


def read_count(config: Mapping[str, object], name: str, least: int = 0) -> int:
    """Return config[name]; raise unless it is an integer >= `least` that fits in 64 bits."""
    value = config[name]
    if type(value) is not int or not least <= value < 2**63:
        raise ModelFileError(
            f"{name} is {shown(value)}: expected an integer >= {least}. The file may be damaged: use another copy of it"
        )
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
        raise ModelFileError(
            f"{name} is {shown(value)}: expected {expected}. The file may be damaged: use another copy of it"
        )
    return value


def read_array(arrays: Mapping[str, Array], name: str, shape: tuple[int, ...] | None, kind: str) -> Array:
    """Return arrays[name]; raise unless its entries are finite, its shape is `shape` and its dtype.kind is in `kind`.

    Arrays of any shape are accepted if `shape` is None.
    """
    array = arrays[name]
    if array.dtype.kind not in kind or (shape is not None and array.shape != shape) or not np.isfinite(array).all():
        raise ModelFileError(
            f"tensor {name!r} has type {array.dtype} and shape {array.shape}: expected finite entries, a type of kind "
            f"{' or '.join(map(repr, kind))}{'' if shape is None else f' and shape {shape}'}. The file may be "
            "damaged: use another copy of it"
        )
    return array


def check_factor(name: str, factor: Array) -> None:
    """Raise unless all diagonal entries of a Cholesky factor are positive, so that it can be inverted."""
    if not (np.diagonal(factor) > 0).all():
        raise ModelFileError(
            f"the Cholesky factor {name!r} has diagonal entries <= 0: expected only entries > 0 on the diagonal. The "
            "file may be damaged: use another copy of it"
        )


class StoredMap(NamedTuple):
    """The feature map of a term in a model file: the identity for the linear kernel, or k(x, B) R^-T for landmarks B.

    n, d : the number of features, and the number of columns of inputs.
    kernel : the kernel as JSON stores it. For the linear kernel, `kernel`, `R` and `landmarks` are None.
    R : the lower triangular Cholesky factor of the kernel matrix of the landmarks.
    landmarks : the landmarks, one per row; a sparse matrix is given as its arrays data, indices and indptr.
    """

    n: int
    d: int
    kernel: Config | None = None
    R: Array | None = None
    landmarks: Array | tuple[Array, Array, Array] | None = None


def check_map(config: Mapping[str, Any], arrays: Mapping[str, Array], prefix: str, n_features: int | None) -> StoredMap:
    """Return the feature map whose arrays have names that begin with `prefix`; raise if its arrays do not fit together.

    n_features : the number of input columns that the map must accept, or None if any number is valid.
    """
    if config["map"] == "primal":
        n = config["n"]
        _check_sizes(type(n) is int and n_features in (None, n))
        return StoredMap(n, n)
    if config["map"] != "whitened" or type(config["sparse"]) is not bool:
        raise ValueError(
            f"the stored feature map is {shown(config)}: expected 'map' to be 'primal' or 'whitened', and 'sparse' to "
            "be true or false"
        )
    R = arrays[f"{prefix}R"]
    R = read_array({"R": R}, "R", (len(R), len(R)), "f")
    landmarks: Array | tuple[Array, Array, Array]
    if config["sparse"]:
        d = read_count(config, "d", 1)
        data, indices, indptr = (arrays[f"{prefix}landmarks.{part}"] for part in CSR_PARTS)
        landmarks, values = (data, indices, indptr), data
        fits = len(R) > 0 and _is_csr(data, indices, indptr, (len(R), d))
    else:
        landmarks = values = arrays[f"{prefix}landmarks"]
        fits = values.ndim == 2 and len(R) == len(values) > 0 and values.dtype.kind == "f"
        d = int(values.shape[-1])
    _check_sizes(fits and n_features in (None, d))
    check_factor("R", R)
    if not np.isfinite(values).all():
        raise ModelFileError(
            "the landmarks of a feature map have entries that are not finite: expected finite numbers. The file may be "
            "damaged: use another copy of it"
        )
    return StoredMap(len(R), d, config["kernel"], R, landmarks)


def _check_sizes(fits: bool) -> None:
    if not fits:
        raise ModelFileError(
            "the sizes of a feature map do not match: expected as many landmarks as rows of the factor R, and as many "
            "columns as the inputs have. The file may be damaged: use another copy of it"
        )


def _is_csr(data: Array, indices: Array, indptr: Array, shape: tuple[int, int]) -> bool:
    """Return whether the arrays are a sparse matrix of this shape, with all pointers and indices inside the matrix."""
    one_dimension = data.ndim == indices.ndim == indptr.ndim == 1 and data.dtype.kind == "f"
    whole = indices.dtype.kind == indptr.dtype.kind == "i"
    if not (one_dimension and whole and len(indptr) == shape[0] + 1 and len(data) == len(indices)):
        return False
    ends = indptr[0] == 0 and indptr[-1] == len(indices) and bool((indptr[1:] >= indptr[:-1]).all())
    return bool(ends and (not len(indices) or (indices.min() >= 0 and indices.max() < shape[1])))


def read_pairs(arrays: Mapping[str, Array], name: str, n_labels: int) -> tuple[Ints, Labels] | None:
    """Read which pairs of a feature and a label have weights in the term called `name`.

    Return two arrays, as in `basis.pairs.Pairs`: the index of the first pair of each feature, and the label of each
    pair. Return None if all pairs have weights.
    """
    keys = f"pairs.{name}.counts", f"pairs.{name}.labels"
    if keys[0] not in arrays:
        return None
    counts, labels = (read_array(arrays, key, (arrays[key].size,), "iu") for key in keys)
    pointers = np.zeros(len(counts) + 1, np.int64)
    np.cumsum(counts, dtype=np.int64, out=pointers[1:])
    fits = len(counts) > 0 and counts.min() >= 0 and pointers[-1] == len(labels)
    if fits and len(labels):
        rises = labels[1:] > labels[:-1]
        starts = np.zeros(len(labels) + 1, bool)
        starts[pointers] = True
        fits = labels.min() >= 0 and labels.max() < n_labels and bool((rises | starts[1:-1]).all())
    if not fits:
        raise ModelFileError(
            f"the tensors {keys[0]!r} and {keys[1]!r} of the model file do not match: expected, for each feature, a "
            f"number of labels, and these labels in increasing order, from 0 to {n_labels - 1}. The file may be "
            "damaged: use another copy of it"
        )
    return pointers, labels.astype(np.int32)


def read_legal(arrays: Mapping[str, Array], L: int) -> Legal | None:
    """Return the constraints on L labels, or None if the file has none."""
    if "legal.steps" not in arrays:
        return None
    shapes = {"steps": (L, L), "first": (L,), "last": (L,)}
    return Legal(**{name: read_array(arrays, f"legal.{name}", shape, "b") for name, shape in shapes.items()})


def check_terms(config: Mapping[str, Any], expected: Mapping[str, tuple[str, str | None]]) -> None:
    """Raise unless the file has the expected terms, in this order.

    expected : a dict from the name of each term to the kind of its cliques and the name of its input.
    """
    stored = [(one["name"], one["cliques"], one["input"]) for one in config["terms"]]
    if stored != [(name, cliques, source) for name, (cliques, source) in expected.items()]:
        raise ModelFileError(
            f"the model file has the terms {shown(stored)}: expected {', '.join(expected)}. The file may be damaged: "
            "use another copy of it"
        )
