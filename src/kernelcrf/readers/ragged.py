"""Lists of one value per sequence, such as predictions, which NumPy converts to one object per sequence.

scikit-learn joins the predictions of folds by `numpy.concatenate`, which would read plain lists of arrays as matrices,
or fail if their lengths differ.
"""

from __future__ import annotations

from typing import TypeVar

import numpy as np
import numpy.typing as npt

from kernelcrf.arrays import Array, UserData
from kernelcrf.readers.containers import object_array

T = TypeVar("T")


class Ragged(list[T]):
    """A list of m values, whose array is (m,) of dtype object."""

    @classmethod
    def cut(cls, values: Array, offsets: npt.NDArray[np.int64], axis: int = 0) -> Ragged[UserData]:
        """Return the values of m sequences, which begin at offsets (m + 1,) along an axis; m may be 0."""
        return cls(np.split(values, offsets[1:-1], axis=axis) if len(offsets) > 1 else ())

    def __array__(self, dtype: npt.DTypeLike | None = None, copy: bool | None = None) -> Array:
        """Return the values as an array (m,) of objects."""
        if copy is False:
            raise ValueError("copy=False: a list cannot become an array without a copy; pass copy=None")
        array = object_array(self)
        return array if dtype is None else array.astype(dtype)
