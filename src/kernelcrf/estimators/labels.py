"""Labels as users hand them in, stored flat: indices (N,) into the classes, and what each token may be.

y is a list of label sequences, or all labels one after the other where X came flat, in any container that
`containers` reads. A label is any hashable value that equals itself; a string in the place of a sequence is a sequence
of one-letter labels.

    None, pandas.NA the label is missing, always; so is a masked entry of a masked array
    -1              the label is missing where the classes are all strings or integers >= 0; where other labels are
                    negative, or no integers, or where `classes` holds -1, it is a label as any other
    {"a", "b"}      a set or frozenset: the label is one of these

A set stands for an event: training maximises the probability that the labels lie within what is allowed.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import chain, pairwise
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from kernelcrf.estimators.containers import DATES, is_missing_value, read_labels, read_list
from kernelcrf.graphs.structure import Chains
from kernelcrf.validation import shown, shown_list

Array: TypeAlias = npt.NDArray[Any]
SETS = (set, frozenset)
UNKNOWN = -1


@dataclass(frozen=True)
class LabelReader:
    """`classes` (L,): the labels, sorted as scikit-learn sorts them, or by appearance where they have no order."""

    classes: Array

    @classmethod
    def fit(
        cls, y: Any, chains: Chains, classes: Iterable[Hashable] | None = None, *, flat: bool = False
    ) -> LabelReader:
        """The classes that y shows, or those given; y must show at least one label.

        flat : whether y holds the labels of all tokens one after the other.
        """
        return cls.of(shown_labels(y, chains, flat=flat), classes)

    @classmethod
    def of(cls, seen: Sequence[Any], classes: Iterable[Hashable] | None = None) -> LabelReader:
        """The classes among the distinct values that y shows, or those given."""
        if classes is not None:
            labels = dict.fromkeys(classes)
            _check_labels(labels, "classes")
        else:
            labels = dict.fromkeys(seen)
            if UNKNOWN in labels and _minus_one_is_free(label for label in labels if label != UNKNOWN):
                del labels[UNKNOWN]
        reader = cls(_sorted(list(labels)))
        if not any(label in reader._index for label in seen):
            raise ValueError(
                "y has no label that is not missing (None or -1): expected at least one labelled token"
                if all(map(reader._is_missing, seen))
                else f"y has none of the classes {shown_list(labels)}: expected labels among them"
            )
        if len(labels) < 2:
            hint = "; -1 counts as missing, classes=[-1, 1] makes it a label" if UNKNOWN in seen else ""
            raise ValueError(
                f"y has one class, {shown(next(iter(labels)))}: a classifier needs samples of at least 2 classes; "
                f"classes= names those that y does not show{hint}"
            )
        return reader

    def encode(
        self, y: Any, chains: Chains, *, flat: bool = False
    ) -> tuple[npt.NDArray[np.int32], npt.NDArray[np.bool_] | None]:
        """Indices (N,), -1 where a label is missing or one of a set, and what is allowed (N, L).

        `allowed` is None where every token has its one label.
        """
        tokens = flat_labels(y, chains, flat=flat)
        try:
            labels = np.fromiter(map(self._index.__getitem__, tokens), np.int32, len(tokens))
        except (KeyError, TypeError):
            return self._encode_partial(tokens, chains)
        return labels, None

    def compare(
        self, indices: npt.ArrayLike, y: Any, chains: Chains, *, flat: bool = False
    ) -> tuple[npt.NDArray[np.bool_], npt.NDArray[np.bool_]]:
        """Which of the indices (N,) are the labels of y, and which labels of y are known, each (N,).

        A label that is none of the classes is known, and never right.
        """
        tokens = flat_labels(y, chains, flat=flat)
        known = np.array([not (isinstance(label, SETS) or self._is_missing(label)) for label in tokens], bool)
        truth = [
            self._index.get(label, UNKNOWN) if seen else UNKNOWN for label, seen in zip(tokens, known, strict=True)
        ]
        return np.asarray(indices) == np.array(truth, np.intp), known

    def decode(self, indices: npt.ArrayLike, chains: Chains) -> list[Array]:
        """The labels of indices (N,), an array a sequence."""
        labels = self.classes[np.asarray(indices, dtype=np.intp)]
        if labels.shape != (chains.n_nodes,):
            raise ValueError(
                f"indices has shape {labels.shape} and the chains have {chains.n_nodes} tokens: expected one a token"
            )
        return [labels[low:high] for low, high in pairwise(chains.offsets.tolist())]

    def to_config(self) -> dict[str, Any]:
        """The classes as JSON-able values; `from_config` reads it."""
        kind = self.classes.dtype.kind
        return {"kind": kind, "classes": [label_to_json(label) for label in self.classes.tolist()]}

    @classmethod
    def from_config(cls, config: Mapping[str, Any]) -> LabelReader:
        """The reader that `to_config` described."""
        kind, labels = config["kind"], [label_from_json(label) for label in config["classes"]]
        reader = cls(_object_array(labels) if kind == "O" else np.asarray(labels))
        distinct = len(reader._index) == len(labels) and all(label == label for label in labels)
        if reader.classes.dtype.kind != kind or reader.classes.ndim != 1 or not distinct:
            raise ValueError(
                f"config has classes of kind {kind!r} and the values {shown_list(labels)}: expected distinct labels "
                "of that kind, as to_config writes them"
            )
        return reader

    @cached_property
    def _index(self) -> dict[Any, int]:
        return {label: index for index, label in enumerate(self.classes.tolist())}

    @cached_property
    def _minus_one_is_missing(self) -> bool:
        return UNKNOWN not in self._index and _minus_one_is_free(self._index)

    def _is_missing(self, label: Any) -> bool:
        return is_missing_value(label) or (self._minus_one_is_missing and _is_minus_one(label))

    def _encode_partial(
        self, tokens: Sequence[Any], chains: Chains
    ) -> tuple[npt.NDArray[np.int32], npt.NDArray[np.bool_]]:
        labels = np.full(len(tokens), UNKNOWN, np.int32)
        allowed = np.zeros((len(tokens), len(self.classes)), bool)
        for t, label in enumerate(tokens):
            if self._is_missing(label):
                allowed[t] = True
                continue
            choices = [self._find(one, t, chains) for one in (label if isinstance(label, SETS) else (label,))]
            if not choices:
                raise ValueError(
                    f"y has an empty set of labels at {chains.place(t)}: expected at least one; None is a missing label"
                )
            allowed[t, choices] = True
            if len(choices) == 1:
                labels[t] = choices[0]
        return labels, allowed

    def _find(self, label: Any, t: int, chains: Chains) -> int:
        try:
            return self._index[label]
        except (KeyError, TypeError):
            raise ValueError(
                f"y has the label {shown(label)} at {chains.place(t)}, which is not among the classes "
                f"{shown_list(self.classes.tolist())}: expected one of them, None for a missing label, or a set of "
                "them; fit with classes= to name labels beforehand"
            ) from None


def shown_labels(y: Any, chains: Chains, *, flat: bool = False) -> list[Any]:
    """The distinct values of y, those within sets too, by appearance; None left out."""
    return _shown(flat_labels(y, chains, flat=flat))


def flat_labels(y: Any, chains: Chains, *, flat: bool = False) -> list[Any]:
    """The labels of all tokens, once the numbers of labels are those of the tokens."""
    if y is None:
        raise ValueError(
            "ChainCRF requires y to be passed, but the target y is None: expected the labels of all tokens"
        )
    if flat:
        labels = read_labels(y, "y")
        if len(labels) != chains.n_nodes:
            raise ValueError(
                f"y has {len(labels)} labels and X has {chains.n_nodes} tokens: expected one label a token"
            )
        return labels
    masked = isinstance(y, np.ma.MaskedArray)
    rows = list(y) if masked else read_list(y, "y", "a list of label sequences, one for each of X")
    if len(rows) != chains.n_samples:
        raise ValueError(
            f"y has {len(rows)} sequences and X has {chains.n_samples}: expected a label sequence for each sequence "
            "of X"
        )
    sequences = [read_labels(labels, f"y[{chains.number(i)}]") for i, labels in enumerate(rows)]
    for i, (labels, length) in enumerate(zip(sequences, chains.lengths.tolist(), strict=True)):
        if len(labels) != length:
            i = chains.number(i)
            raise ValueError(
                f"y[{i}] has {len(labels)} labels and X[{i}] has {length} tokens: expected one label a token"
            )
    return list(chain.from_iterable(sequences))


def _shown(tokens: Iterable[Any]) -> list[Any]:
    seen: dict[Any, None] = {}
    for label in tokens:
        if isinstance(label, SETS):
            # Members of a set come in no fixed order: by their text, so that a fit can be repeated.
            seen.update(dict.fromkeys(sorted(label, key=repr)))
        elif not is_missing_value(label):
            try:
                seen[label] = None
            except TypeError:
                raise TypeError(
                    f"y has the label {shown(label)} of type {type(label).__name__}: expected a hashable label; "
                    "a set holds the labels of an ambiguous token"
                ) from None
    _check_labels(seen, "y")
    return list(seen)


def _check_labels(labels: Iterable[Any], name: str) -> None:
    for label in labels:
        if is_missing_value(label) or not _equals_itself(label):
            raise ValueError(
                f"{name} has {shown(label)} as a label: expected a value that equals itself; "
                "a token without a label is None, outside any set"
            )


def _equals_itself(label: Any) -> bool:
    try:
        return bool(label == label)
    except (TypeError, ValueError):
        return False


def _is_minus_one(label: Any) -> bool:
    return isinstance(label, int | np.integer) and label == UNKNOWN


def _minus_one_is_free(labels: Iterable[Any]) -> bool:
    """Whether all labels are strings or integers >= 0, so that -1 is none of their kind."""
    return all(isinstance(label, str) or (isinstance(label, int | np.integer) and label >= 0) for label in labels)


def _sorted(labels: list[Any]) -> Array:
    """As `numpy.unique` sorts strings or numbers; other values by their own order, or by appearance without one."""
    # The `item` of a date in nanoseconds is a number.
    labels = [
        label.item() if isinstance(label, np.generic) and label.dtype.kind not in DATES else label for label in labels
    ]
    for types in (str, bool, int | float):
        if all(isinstance(label, types) for label in labels):
            array = np.unique(np.asarray(labels))
            # Arrays drop a trailing NUL of strings and round integers beyond 64 bits.
            if set(array.tolist()) == set(labels):
                return array
    try:
        return _object_array(sorted(labels))
    except TypeError:
        return _object_array(labels)


def _object_array(labels: Sequence[Any]) -> Array:
    array = np.empty(len(labels), object)
    for i, label in enumerate(labels):
        array[i] = label
    return array


def label_to_json(label: Any) -> Any:
    """Return a label as a JSON-able value: a tuple as a list; strings, numbers and booleans as they are."""
    if isinstance(label, tuple):
        return [label_to_json(part) for part in label]
    value = label.item() if isinstance(label, np.generic) and label.dtype.kind not in DATES else label
    if value is None or isinstance(value, str | bool | int | float):
        return value
    raise TypeError(
        f"classes has the label {shown(label)} of type {type(label).__name__}, which cannot be written to a file: "
        "expected strings, numbers, booleans or tuples of them; fit with labels such as str(label), or keep this "
        "estimator by joblib.dump"
    )


def label_from_json(label: Any) -> Any:
    """The label that `label_to_json` wrote."""
    if isinstance(label, list):
        return tuple(label_from_json(part) for part in label)
    if label is None or isinstance(label, str | bool | int | float):
        return label
    raise ValueError(f"config has the class {shown(label)}: expected strings, numbers, booleans or lists of them")
