"""Arrays and feature maps as they come from a file: checked before anything computes with them.

Model files and checkpoints are read by the same checks: types, shapes and finite numbers of arrays, indices of sparse
landmarks that compiled code would follow without asking, and that the parts of a map fit together.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from kernelcrf.basis.features import FeatureMap, WhitenedMap, from_arrays
from kernelcrf.kernels.inputs import is_sparse
from kernelcrf.kernels.rows import check_rows
from kernelcrf.persistence import ModelFileError

Array = npt.NDArray[Any]


def feature_map(config: Mapping[str, Any], arrays: Mapping[str, Array], prefix: str, n_features: int) -> FeatureMap:
    """Return the map whose arrays begin with a prefix, once it fits inputs of `n_features` columns."""
    own = {name.removeprefix(prefix): array for name, array in arrays.items() if name.startswith(prefix)}
    result = from_arrays(config, own)
    check_map(result, n_features)
    return result


def check_map(result: FeatureMap, n_features: int | None) -> None:
    """Refuse a map that does not fit inputs of n_features columns, or itself where that number is not known."""
    fits = n_features is None or (type(result.n) is int and result.n == n_features)
    if isinstance(result, WhitenedMap):
        R, B = checked({"R": result.R}, "R", (result.n, result.n), "f"), result.landmarks
        fits = B.ndim == 2 and len(R) == B.shape[0] > 0 and n_features in (None, B.shape[1]) and B.dtype.kind == "f"
        if is_sparse(B):
            check_rows(B)
        if not (np.diagonal(R) > 0).all():
            raise ModelFileError("the factor of the landmarks has a diagonal that is not above 0")
    if not fits:
        raise ModelFileError("landmarks, their factor and the inputs do not fit together")
    if isinstance(result, WhitenedMap):
        with np.errstate(all="ignore"):
            finite = np.isfinite(B.data if is_sparse(B) else B).all() and np.isfinite(result.kernel.gram(B[:1])).all()
        if not finite:
            raise ModelFileError("landmarks, or the kernel between them, are not finite")


def checked(arrays: Mapping[str, Array], name: str, shape: tuple[int, ...] | None, kind: str) -> Array:
    """Return the array of a name, once it has the shape and kind it must have, and is finite."""
    array = arrays[name]
    if array.dtype.kind != kind or (shape is not None and array.shape != shape) or not np.isfinite(array).all():
        raise ModelFileError(
            f"tensor {name!r} has type {array.dtype} and shape {array.shape}: expected {shape}, finite"
        )
    return array
