"""What each sequence counts for: its sample weight times the mean of its known labels' class weights."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
from sklearn.utils.class_weight import compute_class_weight

from kernelcrf.estimators.labels import LabelReader
from kernelcrf.graphs.structure import Chains

Floats = npt.NDArray[np.float64]


def sequence_weights(
    sample_weight: npt.ArrayLike | None,
    class_weight: Any,
    chains: Chains,
    indices: npt.NDArray[np.int32],
    labels: LabelReader,
) -> Floats | None:
    """(m,), or None where every sequence counts for one; `indices` (N,) are -1 where a label is not known."""
    weights = None if sample_weight is None else checked_weights(sample_weight, chains.n_samples, "sequence")
    if class_weight is None:
        return weights
    known = indices >= 0
    by_class = _class_weights(class_weight, indices[known], labels)
    samples = np.repeat(np.arange(chains.n_samples), chains.lengths)[known]
    totals = np.bincount(samples, by_class[indices[known]], minlength=chains.n_samples)
    counts = np.bincount(samples, minlength=chains.n_samples)
    means = np.where(counts > 0, totals / np.maximum(counts, 1), 1.0)
    return np.asarray(means if weights is None else means * weights)


def checked_weights(sample_weight: npt.ArrayLike, n_samples: int, noun: str) -> Floats:
    """Weights (n_samples,) of what `noun` names, once they are finite, not negative and not all zero."""
    weights = np.asarray(sample_weight, np.float64)
    if weights.shape != (n_samples,) or not np.all(np.isfinite(weights)) or np.any(weights < 0):
        raise ValueError(
            f"sample_weight has shape {weights.shape}: expected ({n_samples},), a finite number >= 0 for each {noun}"
        )
    if not np.any(weights):
        raise ValueError(f"sample_weight is zero for every {noun}: expected at least one above zero")
    return weights


def _class_weights(spec: Any, shown: npt.NDArray[np.int32], labels: LabelReader) -> Floats:
    """(L,): one for each class; classes that y does not show, or a dict does not name, count for one."""
    result = np.ones(len(labels.classes))
    if isinstance(spec, dict):
        classes = labels.classes.tolist()
        for label, weight in spec.items():
            if label not in classes:
                raise ValueError(
                    f"class_weight names the label {label!r}, which is not among the classes {classes[:10]}: expected "
                    "one of them"
                )
            result[classes.index(label)] = weight
        return result
    present = np.unique(shown)
    result[present] = compute_class_weight(spec, classes=present, y=shown)
    return result
