"""Weights of samples and of classes, checked in one place for all estimators, their scores and the metrics.

A weight is a finite number >= 0, and not all of them are 0. A sequence counts for its sample weight times the mean of
its known labels' class weights, a row for its sample weight times the class weight of its label.

A sample of weight 0 is not there: it moves no gamma, no landmark, no vocabulary and no balanced class weight. It is
still checked, and its labels are still among the classes, so that the columns of probabilities do not depend on
weights.
"""

from __future__ import annotations

from collections.abc import Mapping
from numbers import Real
from typing import Any

import numpy as np
import numpy.typing as npt

from kernelcrf.estimators.containers import is_frame, read_container
from kernelcrf.graphs.structure import Chains
from kernelcrf.kernels.inputs import is_sparse
from kernelcrf.validation import shown, shown_list

Array = npt.NDArray[Any]
Floats = npt.NDArray[np.float64]
Booleans = npt.NDArray[np.bool_]


def checked_weights(sample_weight: Any, n_samples: int, noun: str, *, first: int = 0, part: bool = False) -> Floats:
    """Return weights (n_samples,) of what `noun` names, read by position; raise if they are no weights.

    first : the number of the first sample in the user's data, for messages.
    part : whether these are the weights of a part of the data, which may all be 0.
    """
    expected = f"({n_samples},), a finite number >= 0 for each {noun}"
    opened = read_container(sample_weight, "sample_weight", expected)
    if is_sparse(opened) or is_frame(opened):
        raise TypeError(f"sample_weight is of type {type(sample_weight).__name__}: expected {expected}")
    try:
        weights = np.asarray(opened)
        weights = weights if weights.dtype.kind in "fiub" else _numbers(weights)
    except (TypeError, ValueError):
        raise TypeError(
            f"sample_weight={shown(sample_weight)} has entries that are no numbers: expected {expected}"
        ) from None
    weights = weights.astype(np.float64)
    if weights.shape != (n_samples,):
        raise ValueError(f"sample_weight has shape {weights.shape}: expected {expected}")
    wrong = np.flatnonzero(~(np.isfinite(weights) & (weights >= 0)))
    if len(wrong):
        at = int(wrong[0])
        raise ValueError(f"sample_weight[{first + at}] is {weights[at]:g}: expected {expected}")
    if not part and not weights.any():
        raise ValueError(f"sample_weight is zero for every {noun}: expected at least one above zero")
    return weights


def counted_samples(sample_weight: Any, n_samples: int, noun: str) -> Booleans | None:
    """Return which samples count for anything, (n_samples,), or None if all do."""
    if sample_weight is None:
        return None
    counted = checked_weights(sample_weight, n_samples, noun, part=True) > 0
    return None if counted.all() else counted


def score_weights(sample_weight: Any, lengths: npt.NDArray[np.int64], known: Booleans, noun: str) -> Floats:
    """Return a weight for each known token or node of samples of these lengths, for a score; not all are 0."""
    if not known.any():
        raise ValueError(f"y has no {noun} with a known label: expected at least one to score")
    if sample_weight is None:
        return np.ones(int(known.sum()))
    weights = np.repeat(checked_weights(sample_weight, len(lengths), "sample"), lengths)[known]
    if not weights.any():
        raise ValueError(f"sample_weight is zero for every {noun} with a known label: expected at least one above zero")
    return weights


def sequence_weights(
    sample_weight: Floats | None,
    class_weight: Any,
    chains: Chains,
    indices: npt.NDArray[np.int32],
    classes: Array,
    *,
    part: bool = False,
) -> Floats | None:
    """Return what sequences count for, (m,), or None if every one counts for one.

    sample_weight : checked weights, or None.
    indices : (N,), into the classes, -1 where a label is not known.
    part : whether these are a part of the data, whose sequences may all count for 0.
    """
    if class_weight is None:
        return sample_weight
    known = indices >= 0
    samples = np.repeat(np.arange(chains.n_samples), chains.lengths)[known]
    counted = slice(None) if sample_weight is None else sample_weight[samples] > 0
    by_class = class_weights(class_weight, classes, indices[known][counted])
    totals = np.bincount(samples, by_class[indices[known]], minlength=chains.n_samples)
    counts = np.bincount(samples, minlength=chains.n_samples)
    means = np.where(counts > 0, totals / np.maximum(counts, 1), 1.0)
    weights = means if sample_weight is None else means * sample_weight
    if not part and not weights.any():
        raise ValueError("class_weight leaves no sequence with a weight above zero: expected at least one")
    return np.asarray(weights)


def row_weights(sample_weight: Any, class_weight: Any, indices: npt.NDArray[np.intp], classes: Array) -> Floats | None:
    """Return what rows with the labels classes[indices] count for, (m,), or None if every one counts for one."""
    given = None if sample_weight is None else checked_weights(sample_weight, len(indices), "row")
    if class_weight is None:
        return given
    counted = slice(None) if given is None else given > 0
    by_class = class_weights(class_weight, classes, indices[counted])[indices]
    weights = by_class if given is None else by_class * given
    if not weights.any():
        raise ValueError("class_weight leaves no row with a weight above zero: expected at least one")
    return np.asarray(weights)


def class_weights(spec: Any, classes: Array, occurring: npt.NDArray[Any]) -> Floats:
    """Return the weight of each class, (L,); classes that a dict does not name count for one.

    spec : "balanced", for n / (number of labels that occur * count), or a mapping from labels to weights.
    occurring : indices of the labels that occur, which "balanced" counts.
    """
    result = np.ones(len(classes))
    if isinstance(spec, Mapping):
        places = {label: k for k, label in enumerate(classes.tolist())}
        for label, weight in spec.items():
            if label not in places:
                raise ValueError(
                    f"class_weight names the label {shown(label)}, which is not among the classes "
                    f"{shown_list(places)}: expected one of them"
                )
            number = isinstance(weight, Real | np.bool_)
            if not number or not np.isfinite(float(weight)) or weight < 0:
                raise ValueError(
                    f"class_weight has the weight {shown(weight)} for the label {shown(label)}: expected a finite "
                    "number >= 0"
                )
            result[places[label]] = weight
        return result
    if spec != "balanced":
        raise ValueError(f"class_weight={shown(spec)}: expected None, 'balanced' or a dict from labels to weights")
    counts = np.bincount(occurring, minlength=len(classes))
    present = counts > 0
    result[present] = len(occurring) / (present.sum() * counts[present])
    return result


def _numbers(weights: Array) -> Floats:
    """Return an array of objects as numbers; strings that look like numbers are none."""
    if weights.dtype != object or any(isinstance(value, str | bytes) for value in weights.flat):
        raise TypeError("no numbers")
    return weights.astype(np.float64)
