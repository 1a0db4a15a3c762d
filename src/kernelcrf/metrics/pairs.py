"""Pair true labels with predictions; all metrics are computed from these pairs.

A prediction is a label, or a row of probabilities. Tokens whose true label is missing are dropped, so that the tokens
before and after a dropped token become neighbours. `kernelcrf.readers.missing_labels` says which labels are missing.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any

import numpy as np

from kernelcrf.arrays import Floats, UserData
from kernelcrf.readers.containers import read_labels, read_list
from kernelcrf.readers.labels import check_same_type
from kernelcrf.readers.missing_labels import missing_among
from kernelcrf.readers.weights import read_weights
from kernelcrf.validation import shown

SEQUENCES = "a list of sequences; pass [y] for a single sequence y"


@dataclass(frozen=True, eq=False)
class Pairs:
    """True labels and predictions, one list per sequence, for the tokens whose true label is not missing.

    `sample_weight` has one weight per sequence; None means that all weights are 1.
    """

    true: list[list[Hashable]]
    pred: list[list[Any]]
    sample_weight: Floats | None

    def repeat_weight(self, counts: Sequence[int]) -> Floats | None:
        """Return the weights of all sequences, with weight i repeated `counts[i]` times, or None if all are 1."""
        return None if self.sample_weight is None else np.repeat(self.sample_weight, counts)

    def flat(self) -> tuple[list[Hashable], list[Any], Floats | None]:
        """Return the true labels, the predictions and the weights of all tokens; weights are None if all are 1."""
        weight = self.repeat_weight([len(labels) for labels in self.true])
        return list(chain.from_iterable(self.true)), list(chain.from_iterable(self.pred)), weight


def pair(
    y_true: UserData,
    y_pred: UserData,
    sample_weight: UserData,
    name: str = "y_pred",
    classes: Iterable[Hashable] | None = None,
) -> Pairs:
    """Check true labels and predictions, and drop tokens without a true label.

    name : the name of the argument with the predictions, which error messages show.
    classes : the possible true labels; if -1 is one of them, it does not stand for a missing label.
    """
    y_true, y_pred = read_list(y_true, "y_true", SEQUENCES), read_list(y_pred, name, SEQUENCES)
    if len(y_true) != len(y_pred):
        raise ValueError(f"{name} has {len(y_pred)} sequences and y_true has {len(y_true)}: expected the same number")
    given = [_tokens(labels, f"y_true[{i}]") for i, labels in enumerate(y_true)]
    answers = [_tokens(said, f"{name}[{i}]") for i, said in enumerate(y_pred)]
    predicted = chain.from_iterable(answers if name == "y_pred" else [])
    is_missing = missing_among(chain.from_iterable(given), classes, predicted)
    true: list[list[Hashable]] = []
    pred: list[list[Any]] = []
    for i, (labels, said) in enumerate(zip(given, answers, strict=True)):
        if len(labels) != len(said):
            raise ValueError(
                f"{name}[{i}] has {len(said)} tokens and y_true[{i}] has {len(labels)}: expected the same number"
            )
        known = [t for t, label in enumerate(labels) if not is_missing(label)]
        true.append([labels[t] for t in known])
        _check_hashable(true[-1], f"y_true[{i}]")
        pred.append([said[t] for t in known])
    if not any(true):
        raise ValueError(f"no token of y_true ({len(y_true)} sequences) has a known label: expected at least one")
    if name == "y_pred":
        check_same_type(chain.from_iterable(true), chain.from_iterable(pred), "y_true", name)
    weight = read_weights(sample_weight, len(true), "sequence", part=True)
    if weight is not None and not weight[[bool(labels) for labels in true]].any():
        raise ValueError(
            "sample_weight is 0 for every sequence with a known label: expected at least one weight above 0"
        )
    return Pairs(true, pred, weight)


@dataclass(frozen=True, eq=False)
class Codes:
    """True and predicted labels as integers; the dict `code` maps each label to its index among the sorted labels."""

    code: dict[Hashable, int]
    true: list[int]
    pred: list[int]
    weight: Floats | None

    def apply(self, metric: Callable[..., Any], **options: Any) -> Any:
        """Return the value of one of scikit-learn's metrics for these labels and weights."""
        return metric(self.true, self.pred, sample_weight=self.weight, **options)


def encode(
    true: Iterable[Hashable], pred: Iterable[Hashable], weight: Floats | None, labels: Iterable[Hashable] = ()
) -> Codes:
    """Replace each label by its index among the sorted labels of `true`, `pred` and `labels`."""
    distinct = {*true, *pred, *labels}
    try:
        ordered = sorted(distinct)  # type: ignore[type-var]
    except TypeError:  # Labels of different types cannot be compared.
        ordered = sorted(distinct, key=lambda label: (type(label).__name__, repr(label)))
    code = {label: number for number, label in enumerate(ordered)}
    return Codes(code, [code[label] for label in true], [code[label] for label in pred], weight)


def _tokens(sequence: object, name: str) -> list[Any]:
    if isinstance(sequence, str) or not (isinstance(sequence, Iterable) or hasattr(sequence, "__array__")):
        raise TypeError(f"{name}={shown(sequence)} is not a sequence: expected {SEQUENCES}")
    if isinstance(sequence, np.ndarray) and sequence.ndim == 2:
        return list(sequence)  # rows of probabilities
    return read_labels(sequence, name)


def _check_hashable(labels: list[Hashable], name: str) -> None:
    try:
        set(labels)
    except TypeError as error:
        raise TypeError(
            f"{name} has a label that is not hashable ({shown(str(error))}): expected one label per "
            "token, such as a string or an integer; pass None to ignore a token"
        ) from None
