"""Estimators that go to a file and come back."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy.typing as npt
from sklearn.utils.validation import check_is_fitted

from kernelcrf.estimators.parameter_constraints import ValidatedEstimator
from kernelcrf.persistence import PathLike, write
from kernelcrf.validation import PATH, validated

Array = npt.NDArray[Any]


class SavedEstimator(ValidatedEstimator):
    """An estimator whose fitted state is plain values and arrays."""

    @validated(path=PATH)
    def save(self, path: PathLike) -> None:
        """Write the fitted model to a file that `kernelcrf.load` reads; nothing in it is executable."""
        check_is_fitted(self)
        write(path, *self._state())

    def _state(self) -> tuple[dict[str, Any], dict[str, Array]]:
        """A JSON-able config, whose "estimator" is the name that `load` knows, and arrays by name."""
        raise NotImplementedError(f"{type(self).__name__} has no state that a file could hold")

    def _restore(self, config: Mapping[str, Any], arrays: Mapping[str, Array]) -> None:
        """Make a new estimator the fitted one that `_state` described."""
        raise NotImplementedError(f"{type(self).__name__} has no state that a file could hold")
