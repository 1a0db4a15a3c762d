"""Convert feature maps to JSON and arrays, and read them back with checks."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np

from kernelcrf.arrays import Array, Arrays, Config
from kernelcrf.basis.features import FeatureMap, WhitenedMap, from_arrays
from kernelcrf.persistence.checks import check_map
from kernelcrf.persistence.error import ModelFileError


def maps_to_arrays(maps: Iterable[FeatureMap]) -> tuple[list[Config], Arrays]:
    """Convert feature maps to a list of values that JSON can store, and a dict of arrays.

    A feature map that occurs several times is stored once. The names of the arrays of the first map in the list begin
    with "map 0.", those of the second with "map 1.", and so on.
    """
    configs: list[Config] = []
    arrays: Arrays = {}
    for place, one in enumerate({id(feature_map): feature_map for feature_map in maps}.values()):
        config, of_map = one.to_arrays()
        configs.append(config)
        arrays |= {f"map {place}.{name}": array for name, array in of_map.items()}
    return configs, arrays


def read_map(config: Mapping[str, Any], arrays: Mapping[str, Array], prefix: str, n_features: int | None) -> FeatureMap:
    """Return the feature map whose arrays have names that begin with `prefix`; raise if its arrays do not fit together.

    n_features : the number of input columns that the map must accept, or None if any number is valid.
    """
    stored = check_map(config, arrays, prefix, n_features)
    result = from_arrays(
        config, {name.removeprefix(prefix): x for name, x in arrays.items() if name.startswith(prefix)}
    )
    if isinstance(result, WhitenedMap):
        with np.errstate(all="ignore"):
            finite = np.isfinite(result.kernel.gram(result.landmarks[:1])).all()
        if not finite:
            raise ModelFileError(
                f"the kernel values of {stored.n} landmarks have entries that are not finite: expected finite numbers. "
                "The file may be damaged: use another copy of it"
            )
    return result
