"""Sets of labels as users hand them in: scikit-learn's indicator matrix (m, n_labels), dense or sparse.

-1 is a missing label in a y with zeros. A y without zeros, such as one of -1 and 1, has its own two values in each
column, and none is missing. A y of one column is a single label.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from sklearn.utils.multiclass import check_classification_targets, type_of_target
from sklearn.utils.validation import check_array

from kernelcrf.arrays import Array, Labels, UserData, is_sparse
from kernelcrf.persistence import ModelFileError
from kernelcrf.persistence.checks import read_flag
from kernelcrf.readers.rows import named_errors, read_targets
from kernelcrf.readers.stored_labels import values_from_config, values_to_config
from kernelcrf.validation import shown, shown_list


@dataclass(frozen=True, eq=False)
class LabelSetReader:
    """Reads sets of the labels that `fit` saw.

    values : the two values of each label; the second says that the label is in the set.
    one_column : whether y was (m,), a single label.
    """

    values: tuple[Array, ...]
    one_column: bool

    @classmethod
    def fit(cls, y: UserData) -> tuple[LabelSetReader, Labels]:
        """Return a reader of sets like y, an array or a sparse matrix, and y itself as `read` returns it."""
        Y = _columns(y)
        zeros = bool((Y == 0).any())
        reader = cls(tuple(_two_values(column, j, zeros) for j, column in enumerate(Y.T)), y.ndim == 1)
        return reader, reader._encode(Y)

    @property
    def classes(self) -> Array:
        """Return the numbers of the labels, or the two values of a single label."""
        return self.values[0] if self.one_column else np.arange(len(self.values))

    def read(self, y: UserData) -> Labels:
        """Return y as indices into the two values of each label, (m, n_labels), -1 where a label is missing."""
        with named_errors("y"):
            y = check_array(read_targets(y), accept_sparse="csr", ensure_2d=False, dtype=None, ensure_min_samples=0)
        Y = _columns(y) if y.shape[0] else np.empty((0, len(self.values)))
        if Y.shape[1] != len(self.values):
            raise ValueError(f"y has {Y.shape[1]} columns: expected {len(self.values)}, one for each label")
        return self._encode(Y)

    def decode(self, indices: Array) -> Array:
        """Return the values of indices (m, n_labels), in the shape that y had."""
        columns = [values[indices[:, j]] for j, values in enumerate(self.values)]
        return columns[0] if self.one_column else np.column_stack(columns)

    def to_config(self) -> dict[str, object]:
        """Return the reader as JSON-able values, which `from_config` reads."""
        return {"values": [values_to_config(values) for values in self.values], "one_column": self.one_column}

    @classmethod
    def from_config(cls, config: Mapping[str, UserData]) -> LabelSetReader:
        """Return the reader that `to_config` described."""
        # A label that showed one value in training has it twice.
        values = tuple(values_from_config(own, distinct=False) for own in config["values"])
        one_column = read_flag(config, "one_column")
        if any(own.shape != (2,) for own in values) or (one_column and len(values) != 1):
            raise ModelFileError(
                f"values have the shapes {shown_list(own.shape for own in values)}: expected two values of each "
                "label, and a single label if one_column is true"
            )
        return cls(values, one_column)

    def _encode(self, Y: Array) -> Labels:
        return np.column_stack([_indices(Y[:, j], values, j) for j, values in enumerate(self.values)])


def _columns(y: UserData) -> Array:
    """Return y as a dense matrix with one column per label."""
    dense = np.asarray(y.toarray() if is_sparse(y) else y)
    return dense.reshape(len(dense), -1)


def _two_values(column: Array, j: int, zeros: bool) -> Array:
    """Return the two values of label j; if y has zeros, a column of -1, 0 and 1 has missing labels."""
    may_miss = zeros and column.dtype.kind in "if" and bool(np.isin(column, (-1, 0, 1)).all())
    known = column[column != -1] if may_miss else column
    if len(known):
        check_classification_targets(known)
    values = np.unique(known)
    if len(values) > 2:
        raise ValueError(
            f"Only binary classification is supported. The type of the target is {type_of_target(known)}: column "
            f"{j} of y has the values {shown(values[:5].tolist())}; expected an indicator matrix, two values per label"
        )
    if np.isin(values, (0, 1)).all():
        return np.array([0, 1], values.dtype)
    return values if len(values) == 2 else np.concatenate((values, values))


def _indices(column: Array, values: Array, j: int) -> Labels:
    indices = np.where(column == values[1], 1, 0).astype(np.int32)
    unknown = ~np.isin(column, values)
    if column.dtype.kind in "if":
        indices[unknown & (column == -1)] = -1
        unknown &= column != -1
    if unknown.any():
        raise ValueError(
            f"column {j} of y has the value {shown(column[unknown][0])}: expected {shown(values[0])} or "
            f"{shown(values[1])}"
        )
    return indices
