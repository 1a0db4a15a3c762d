"""What a model says of each sequence: a list, which NumPy takes as one object for each sequence.

scikit-learn joins the predictions of folds by `numpy.concatenate`, which would read plain lists of arrays as matrices,
or fail where their lengths differ.
"""

from __future__ import annotations

from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt

T = TypeVar("T")


class Ragged(list[T]):
    """A list of m values, whose array is (m,) of dtype object."""

    @classmethod
    def cut(cls, values: npt.NDArray[Any], offsets: npt.NDArray[np.int64], axis: int = 0) -> Ragged[Any]:
        """Return the values of m sequences, which begin at offsets (m + 1,) along an axis; m may be 0."""
        return cls(np.split(values, offsets[1:-1], axis=axis) if len(offsets) > 1 else ())

    def __array__(self, dtype: npt.DTypeLike | None = None, copy: bool | None = None) -> npt.NDArray[Any]:
        """The values as they are, one an entry."""
        if copy is False:
            raise ValueError("copy=False: a list becomes an array by a copy only")
        array = np.empty(len(self), object)
        for i, value in enumerate(self):
            array[i] = value
        return array if dtype is None else array.astype(dtype)
