"""Labels of rows as users hand them in: one per row, strings or numbers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from sklearn.metrics import accuracy_score
from sklearn.utils.multiclass import check_classification_targets

from kernelcrf.arrays import Array, Labels, UserData
from kernelcrf.readers.rows import named_errors, read_targets
from kernelcrf.readers.stored_labels import values_from_config, values_to_config
from kernelcrf.readers.weights import read_weights
from kernelcrf.validation import shown, shown_list


@dataclass(frozen=True, eq=False)
class ClassReader:
    """Reads labels of rows; `classes` (L,) are those that `fit` saw, sorted."""

    classes: Array

    @classmethod
    def fit(cls, y: Array) -> tuple[ClassReader, Labels]:
        """Return a reader of labels like y (m,), and y itself as `read` returns it."""
        with named_errors("y"):
            check_classification_targets(y)
        try:
            classes, indices = np.unique(y, return_inverse=True)
        except TypeError:
            raise TypeError(
                f"y has labels without an order, such as {shown(y[0])}: expected strings or numbers"
            ) from None
        if len(classes) < 2:
            raise ValueError(f"y has one class, {shown(classes[0])}: a classifier needs samples of at least 2 classes")
        return cls(classes), indices.astype(np.int32)

    def read(self, y: UserData, n_rows: int) -> Labels:
        """Return the labels of n_rows rows as indices into the classes, (n_rows,)."""
        labels = np.asarray(read_targets(y))
        if labels.shape != (n_rows,):
            raise ValueError(f"y has shape {labels.shape}: expected ({n_rows},), one label per row of X")
        indices = np.searchsorted(self.classes, labels)
        if not np.array_equal(self.classes[np.minimum(indices, len(self.classes) - 1)], labels):
            raise ValueError(f"y has labels that are not among the classes {shown_list(self.classes.tolist())}")
        return indices.astype(np.int32)

    def to_config(self) -> dict[str, object]:
        """Return the reader as JSON-able values, which `from_config` reads."""
        return {"classes": values_to_config(self.classes)}

    @classmethod
    def from_config(cls, config: Mapping[str, UserData]) -> ClassReader:
        """Return the reader that `to_config` described."""
        return cls(values_from_config(config["classes"]))


def row_accuracy(y: UserData, predicted: Array, sample_weight: UserData) -> float:
    """Return the accuracy of predicted labels, or label sets, by the weights of their rows."""
    if not len(predicted):
        raise ValueError("X has no rows: expected at least one to score")
    weights = read_weights(sample_weight, len(predicted), "row")
    with named_errors("y"):
        return float(accuracy_score(read_targets(y), predicted, sample_weight=weights))
