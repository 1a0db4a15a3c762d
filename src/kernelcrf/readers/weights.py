"""Read sample weights, weights of tokens and class weights, and combine them.

A weight is a finite number >= 0, and at least one weight is above 0. The total weight of a sample is its sample weight
times the mean class weight of its known labels; without known labels, it is the sample weight.

A sample of total weight 0 is left out of the fit: it does not affect gamma, landmarks or vocabulary. The sample is
still checked, and its labels are still among the classes: the columns of probabilities do not depend on weights.
class_weight="balanced" does not count the labels of samples whose sample weight is 0.
"""

from __future__ import annotations

from collections.abc import Mapping, Sized
from dataclasses import dataclass
from numbers import Real

import numpy as np

from kernelcrf.arrays import Array, Flags, Floats, Ints, Labels, UserData, is_sparse
from kernelcrf.graphs.structure import Chains
from kernelcrf.readers.containers import is_frame, read_container, read_lengths
from kernelcrf.validation import shown, shown_list

# What the samples of structured data consist of. Each of these parts has a label, but no weight.
PARTS = {"sequence": "token", "graph": "node"}


def read_weights(
    sample_weight: UserData, n_samples: int, noun: str, *, first: int = 0, part: bool = False
) -> Floats | None:
    """Return the sample weights as an array of floats, or None if `sample_weight` is None.

    noun : what error messages call a sample: "sequence", "graph" or "row".
    first : the number of the first sample in the user's data, for error messages.
    part : whether `sample_weight` belongs to only a part of the data; then all weights may be 0.
    """
    if sample_weight is None:
        return None
    expected = f"an array of shape ({n_samples},), with a finite number >= 0 for each {noun}"
    opened = read_container(sample_weight, "sample_weight", expected)
    if is_sparse(opened) or is_frame(opened):
        raise TypeError(f"sample_weight is of type {type(sample_weight).__name__}: expected {expected}")
    remedy = ""
    if noun in PARTS:
        remedy = f"; a weight applies to a whole {noun}: to leave out single {PARTS[noun]}s, pass None as their labels"
    if noun == "sequence":
        remedy = "; weights of tokens are a list with one array per sequence, which only ChainCRF in one process takes"
    if isinstance(opened, list) and any(isinstance(one, Sized) and not isinstance(one, str | bytes) for one in opened):
        raise ValueError(
            f"sample_weight={shown(sample_weight)} has a list or an array as a weight: expected {expected}{remedy}"
        )
    try:
        weights = np.asarray(opened)
        # Strings are refused even if they look like numbers.
        texts = weights.dtype == object and any(isinstance(value, str | bytes) for value in weights.flat)
        if texts or weights.dtype.kind not in "fiubO":
            raise TypeError
        weights = weights.astype(np.float64)
    except (TypeError, ValueError):
        raise TypeError(
            f"sample_weight={shown(sample_weight)} has entries that are not numbers: expected {expected}"
        ) from None
    if weights.shape != (n_samples,):
        raise ValueError(f"sample_weight has shape {weights.shape}: expected {expected}{remedy}")
    wrong = np.flatnonzero(~(np.isfinite(weights) & (weights >= 0)))
    if len(wrong):
        at = int(wrong[0])
        raise ValueError(f"sample_weight[{first + at}] is {weights[at]:g}: expected {expected}")
    if not part and not weights.any():
        raise ValueError(f"sample_weight is zero for every {noun}: expected at least one weight above zero")
    return weights


@dataclass(frozen=True, eq=False)
class TokenWeights:
    """Weights of the tokens of sequences.

    parts : one array per sequence, with the weight of each of its tokens.
    """

    parts: list[Floats]

    @classmethod
    def read(cls, sample_weight: UserData, lengths: UserData = None, *, part: bool = False) -> TokenWeights | None:
        """Return the weights of tokens, or None if `sample_weight` has one weight per sequence.

        sample_weight : a list of arrays, one per sequence, with one weight per token; with `lengths`, one array with
            the weights of all tokens.
        part : whether `sample_weight` belongs to only a part of the data; then all weights may be 0.
        """
        if _is_nested(sample_weight):
            parts = [_numbers(one, f"sample_weight[{i}]") for i, one in enumerate(sample_weight)]
        elif sample_weight is None or lengths is None:
            return None
        else:
            sizes = read_lengths(lengths)
            if len(sizes) == sizes.sum() or np.asarray(sample_weight).shape != (sizes.sum(),):
                return None
            parts = np.split(_numbers(sample_weight, "sample_weight"), np.cumsum(sizes)[:-1])
        if not part and not any(one.any() for one in parts):
            raise ValueError("sample_weight is zero for every token: expected at least one weight above zero")
        return cls(parts)

    @property
    def of_sequences(self) -> Floats:
        """Return 1 for each sequence that has a token of a positive weight, and 0 for all others."""
        return np.array([float(one.any()) for one in self.parts])

    def tokens(self, chains: Chains) -> Floats:
        """Return the weights of the tokens of all sequences; raise if a sequence has not one weight per token."""
        if len(self.parts) != chains.n_samples:
            raise ValueError(
                f"sample_weight has {len(self.parts)} sequences and X has {chains.n_samples}: expected an array with "
                "the weights of the tokens for each sequence of X, or one weight per sequence"
            )
        for i, (one, length) in enumerate(zip(self.parts, chains.lengths.tolist(), strict=True)):
            if len(one) != length:
                i = chains.number(i)
                raise ValueError(
                    f"sample_weight[{i}] has length {len(one)}, X[{i}] has length {length}: expected one weight "
                    "per token, or one weight per sequence"
                )
        return np.concatenate([np.empty(0), *self.parts])


def _is_nested(weights: UserData) -> bool:
    """Return whether weights are a list or an array with one list or array of weights per sequence."""
    is_list = isinstance(weights, list | tuple) or (isinstance(weights, np.ndarray) and weights.ndim > 0)
    return is_list and any(isinstance(one, Sized) and not isinstance(one, str | bytes) for one in weights)


def _numbers(weights: UserData, name: str) -> Floats:
    """Return the weights of tokens as an array; raise if they are no finite numbers >= 0."""
    expected = "a 1-D array with a finite number >= 0 for each token, as in the rest of sample_weight"
    try:
        if np.asarray(weights).dtype.kind not in "fiub":
            raise TypeError
        numbers = np.asarray(weights, np.float64)
    except (TypeError, ValueError):
        raise TypeError(f"{name} is {shown(weights)}: expected {expected}") from None
    if numbers.ndim != 1:
        raise ValueError(f"{name} has shape {numbers.shape}: expected {expected}")
    wrong = np.flatnonzero(~(np.isfinite(numbers) & (numbers >= 0)))
    if len(wrong):
        raise ValueError(f"{name}[{wrong[0]}] is {numbers[wrong[0]]:g}: expected {expected}")
    return numbers


def weigh_samples(
    sample_weight: Floats | None,
    class_weight: UserData,
    lengths: Ints,
    indices: Labels,
    classes: Array,
    noun: str,
    *,
    soft: Floats | None = None,
    part: bool = False,
) -> Floats | None:
    """Return the total weight of each sample: its sample weight times the mean class weight of its known labels.

    Return None if `sample_weight` and `class_weight` are None.

    sample_weight : the result of `read_weights`.
    lengths : the number of labels of each sample.
    indices : the class indices of the labels of all samples, one sample after the other; -1 is an unknown label.
    noun : what error messages call a sample: "sequence", "graph" or "row".
    soft : the probabilities of the labels, one row per label; None if labels are observed. The weight of a label is
        then its expected class weight.
    part : whether the samples are only a part of the data; then all weights may be 0.
    """
    if class_weight is None:
        return sample_weight
    known = indices >= 0
    samples = np.repeat(np.arange(len(lengths)), lengths)[known]
    counted = slice(None) if sample_weight is None else sample_weight[samples] > 0
    p = np.eye(len(classes))[indices[known]] if soft is None else soft[known]
    by_class = read_class_weights(class_weight, classes, p[counted].sum(axis=0))
    totals = np.bincount(samples, p @ by_class, minlength=len(lengths))
    counts = np.bincount(samples, minlength=len(lengths))
    means = np.where(counts > 0, totals / np.maximum(counts, 1), 1.0)
    weights = means if sample_weight is None else means * sample_weight
    if not part and not weights.any():
        raise ValueError(f"class_weight gives every {noun} the weight 0: expected at least one weight above 0")
    return np.asarray(weights)


def only_weighted(weights: Floats | None, *values: UserData) -> tuple[UserData, ...]:
    """Return the weights and the given arrays or sparse matrices, all without the samples that have weight 0."""
    if weights is None or weights.all():
        return weights, *values
    return weights[weights > 0], *(value[weights > 0] for value in values)


def score_weights(
    sample_weight: UserData,
    chains: Chains,
    known: Flags,
    noun: str,
    of_tokens: TokenWeights | None = None,
    *,
    part: bool = False,
) -> Floats:
    """Return the weight of each token or node with a known label, for use in a score; raise if all weights are 0.

    chains : the sequences, or the graphs in the order of their nodes.
    known : one flag per token or node, which says whether its label is known.
    of_tokens : weights of tokens, which take the place of `sample_weight`, or None.
    part : whether the samples are a part of the data, in which all weights may be 0.
    """
    place = PARTS[noun]
    if not known.any():
        raise ValueError(f"y has no {place} with a known label: expected at least one {place} to score")
    if of_tokens is None:
        given = read_weights(sample_weight, chains.n_samples, noun, part=part)
        weights = np.ones(int(known.sum())) if given is None else np.repeat(given, chains.lengths)[known]
    else:
        weights = of_tokens.tokens(chains)[known]
    if not part and not weights.any():
        raise ValueError(f"sample_weight is zero for every {place} with a known label: expected a weight above zero")
    return weights


def read_class_weights(spec: UserData, classes: Array, counts: Array) -> Floats:
    """Return the weight of each class, given a mapping from labels to weights, or "balanced".

    A class that is not in the mapping has weight 1. The "balanced" weight of a class is the mean count of the classes
    that occur, divided by the count of this class; a class that does not occur has weight 1.
    """
    result = np.ones(len(classes))
    if isinstance(spec, Mapping):
        places = {label: k for k, label in enumerate(classes.tolist())}
        for label, weight in spec.items():
            if label not in places:
                raise ValueError(
                    f"class_weight names the label {shown(label)}, which is not among the classes "
                    f"{shown_list(places)}: expected only labels that are classes"
                )
            if not isinstance(weight, Real | np.bool_) or not np.isfinite(float(weight)) or weight < 0:
                raise ValueError(
                    f"class_weight has the weight {shown(weight)} for the label {shown(label)}: expected a finite "
                    "number >= 0"
                )
            result[places[label]] = weight
        return result
    if spec != "balanced":
        raise ValueError(f"class_weight={shown(spec)}: expected None, 'balanced' or a dict from labels to weights")
    present = counts > 0
    result[present] = counts.sum() / (present.sum() * counts[present])
    return result
