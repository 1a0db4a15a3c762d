"""Feature maps from a file, checked before anything computes with them.

Compiled code follows the indices of sparse landmarks without asking, so they are checked here as well.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from kernelcrf.arrays import Array, check_rows, is_sparse
from kernelcrf.basis.features import FeatureMap, WhitenedMap, from_arrays
from kernelcrf.persistence import ModelFileError
from kernelcrf.persistence.checks import read_array


def read_map(config: Mapping[str, Any], arrays: Mapping[str, Array], prefix: str, n_features: int) -> FeatureMap:
    """Return the map whose arrays begin with a prefix, for inputs of `n_features` columns."""
    own = {name.removeprefix(prefix): array for name, array in arrays.items() if name.startswith(prefix)}
    result = from_arrays(config, own)
    check_map(result, n_features)
    return result


def check_map(result: FeatureMap, n_features: int | None) -> None:
    """Raise if a map does not fit itself or inputs of `n_features` columns; None if that number is not known."""
    fits = n_features is None or (type(result.n) is int and result.n == n_features)
    if isinstance(result, WhitenedMap):
        R, B = read_array({"R": result.R}, "R", (result.n, result.n), "f"), result.landmarks
        fits = B.ndim == 2 and len(R) == B.shape[0] > 0 and n_features in (None, B.shape[1]) and B.dtype.kind == "f"
        if is_sparse(B):
            check_rows(B)
        if not (np.diagonal(R) > 0).all():
            raise ModelFileError("the factor of the landmarks has diagonal entries <= 0: expected positive ones")
    if not fits:
        raise ModelFileError("the model file is inconsistent: landmarks, their factor and the inputs differ in size")
    if isinstance(result, WhitenedMap):
        with np.errstate(all="ignore"):
            finite = np.isfinite(B.data if is_sparse(B) else B).all() and np.isfinite(result.kernel.gram(B[:1])).all()
        if not finite:
            raise ModelFileError("landmarks, or the kernel between them, are not finite")
