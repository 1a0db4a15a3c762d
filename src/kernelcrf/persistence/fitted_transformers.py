"""Read the fitted attributes of scikit-learn's transformers from model files, and check them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from ..arrays import Array, Config
from .checks import read_number
from .error import ModelFileError

NUMBER, VECTOR, OPTIONAL = ("",), ("d",), ("d", None)
SPECTRUM = {"explained_variance_": ("k",), "explained_variance_ratio_": ("k",), "singular_values_": ("k",)}
# The shapes that each fitted attribute may have: d is the number of columns, and other letters stand for any number,
# the same for all attributes of a transformer. The empty string means a number.
FITTED: dict[str, dict[str, tuple[str | None, ...]]] = {
    "StandardScaler": {"mean_": OPTIONAL, "var_": OPTIONAL, "scale_": OPTIONAL, "n_samples_seen_": ("", "d")},
    "MinMaxScaler": {
        **dict.fromkeys(("min_", "scale_", "data_min_", "data_max_", "data_range_"), VECTOR),
        "n_samples_seen_": NUMBER,
    },
    "MaxAbsScaler": {"max_abs_": VECTOR, "scale_": VECTOR, "n_samples_seen_": NUMBER},
    "RobustScaler": {"center_": OPTIONAL, "scale_": OPTIONAL},
    "QuantileTransformer": {"quantiles_": ("qd",), "references_": ("q",), "n_quantiles_": NUMBER},
    "PCA": {
        "components_": ("kd",),
        "mean_": VECTOR,
        **SPECTRUM,
        **dict.fromkeys(("noise_variance_", "n_components_", "n_samples_"), NUMBER),
    },
    "TruncatedSVD": {"components_": ("kd",), **SPECTRUM},
    "SimpleImputer": {"statistics_": VECTOR},
}
# A statistic is NaN if its column had no values in `fit`; the imputer removes such a column.
MAY_BE_NAN = ("statistics_",)


def read_fitted(
    numbers: Config,
    arrays: Mapping[str, Array],
    prefix: str,
    name: str,
    shapes: tuple[str | None, ...],
    sizes: dict[str, int],
) -> Any:
    """Return the value of the fitted attribute `name`; raise unless its shape is one of `shapes`.

    shapes : the allowed shapes, with one letter per axis, such as "kd"; "" means a number, and None means no value.
    sizes : a dict from these letters to the sizes that are known. Sizes of new letters are added to it.
    """
    if name in numbers:
        if numbers[name] is None and None in shapes:
            return None
        if "" in shapes:
            return read_number(numbers, name)
    array = arrays.get(prefix + name)
    for letters in shapes:
        if array is not None and letters and array.ndim == len(letters) and array.dtype.kind in "fi":
            expected = tuple(sizes.setdefault(letter, n) for letter, n in zip(letters, array.shape, strict=True))
            allowed = np.isfinite(array) | np.isnan(array) if name in MAY_BE_NAN else np.isfinite(array)
            if array.shape == expected and allowed.all():
                return array
    raise ModelFileError(
        f"{prefix + name!r} is absent, or has the wrong type, shape or values: expected a file written by save"
    )
