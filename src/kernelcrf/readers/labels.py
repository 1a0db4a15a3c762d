"""Labels as users hand them in, stored flat: indices (N,) into the classes, and what each token may be.

y is a list of label sequences, or all labels one after the other if X is flat, in any container that `containers`
reads. A label is any hashable value that equals itself. A string instead of a sequence is a sequence of one-letter
labels. These values do not stand for one known label:

    None, pandas.NA The label is missing. So is a masked entry of a masked array.
    -1              The label is missing if all classes are strings or integers >= 0. Otherwise -1 is a label.
    {"a", "b"}      The label is one of this set or frozenset.

Training maximises the probability that each label lies within its set.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import chain

import numpy as np
import numpy.typing as npt

from kernelcrf.arrays import Array, Flags, Labels, UserData
from kernelcrf.graphs.structure import Chains
from kernelcrf.persistence import ModelFileError
from kernelcrf.readers.containers import DATES, Ragged, is_missing_value, object_array, read_labels, read_list
from kernelcrf.validation import shown, shown_list

SETS = (set, frozenset)
NUMBERS = ("bool", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64", "float32", "float64")
# The types of classes by the letters that NumPy has for their kinds.
TYPES = {"b": "bool", "i": "int64", "u": "uint64", "f": "float64", "U": "str", "O": "object"}
UNKNOWN = -1


@dataclass(frozen=True)
class LabelReader:
    """Reads labels of tokens and nodes.

    classes : (L,), the labels, sorted as scikit-learn sorts them, or by appearance if they have no order.
    """

    classes: Array

    @classmethod
    def fit(cls, tokens: Iterable[UserData], classes: Iterable[Hashable] | None = None) -> LabelReader:
        """Return a reader of the labels of tokens, or of the given classes; at least one label must be known."""
        seen = distinct_labels(tokens)
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

    def encode(self, tokens: Sequence[UserData], chains: Chains) -> tuple[Labels, Flags | None]:
        """Return indices (N,), -1 where a label is missing or one of a set, and the labels that are allowed (N, L).

        The second is None if every token has one known label.
        """
        try:
            labels = np.fromiter(map(self._index.__getitem__, tokens), np.int32, len(tokens))
        except (KeyError, TypeError):
            return self._encode_partial(tokens, chains)
        return labels, None

    def encode_single(self, tokens: Sequence[UserData], chains: Chains) -> Labels:
        """Return indices (N,), -1 where a label is missing; raise if there are sets of labels."""
        labels, allowed = self.encode(tokens, chains)
        counts = np.ones(len(labels), int) if allowed is None else allowed.sum(axis=1)
        if ((counts > 1) & (counts < len(self.classes))).any():
            raise ValueError("y has sets of labels: expected one label per node, or None for a missing one")
        return np.where(counts > 1, np.int32(UNKNOWN), labels)

    def compare(self, indices: npt.ArrayLike, tokens: Sequence[UserData]) -> tuple[Flags, Flags]:
        """Return which of the indices (N,) are the labels of tokens, and which of these labels are known, each (N,).

        A label outside the classes is known, and no index is right.
        """
        known = np.array([not (isinstance(label, SETS) or self._is_missing(label)) for label in tokens], bool)
        truth = [
            self._index.get(label, UNKNOWN) if seen else UNKNOWN for label, seen in zip(tokens, known, strict=True)
        ]
        return np.asarray(indices) == np.array(truth, np.intp), known

    def decode(self, indices: npt.ArrayLike, chains: Chains) -> Ragged[Array]:
        """Return the labels of indices (N,), one array per sequence."""
        return Ragged.cut(self.classes[np.asarray(indices, dtype=np.intp)], chains.offsets)

    def to_config(self) -> dict[str, UserData]:
        """Return the classes as JSON-able values, which `from_config` reads."""
        kind = self.classes.dtype.kind
        return {"kind": kind, "classes": [label_to_json(label) for label in self.classes.tolist()]}

    @classmethod
    def from_config(cls, config: Mapping[str, UserData]) -> LabelReader:
        """Return the reader that `to_config` described."""
        return cls(values_from_config({"type": TYPES[config["kind"]], "values": config["classes"]}))

    @cached_property
    def _index(self) -> dict[UserData, int]:
        return {label: index for index, label in enumerate(self.classes.tolist())}

    @cached_property
    def _minus_one_is_missing(self) -> bool:
        return UNKNOWN not in self._index and _minus_one_is_free(self._index)

    def _is_missing(self, label: UserData) -> bool:
        return is_missing_value(label) or (self._minus_one_is_missing and _is_minus_one(label))

    def _encode_partial(self, tokens: Sequence[UserData], chains: Chains) -> tuple[Labels, Flags]:
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

    def _find(self, label: UserData, t: int, chains: Chains) -> int:
        try:
            return self._index[label]
        except (KeyError, TypeError):
            raise ValueError(
                f"y has the label {shown(label)} at {chains.place(t)}, which is not among the classes "
                f"{shown_list(self.classes.tolist())}: expected one of them, None for a missing label, or a set of "
                "them; fit with classes= to name labels beforehand"
            ) from None


def flat_labels(y: UserData, chains: Chains, *, flat: bool = False) -> list[UserData]:
    """Return the labels of all tokens; raise if a sequence has more or fewer labels than tokens.

    flat : whether y holds the labels of all tokens one after the other.
    """
    if y is None:
        raise ValueError(
            "the fit requires y to be passed, but the target y is None: expected a label for each token or node"
        )
    if flat:
        labels = read_labels(y, "y")
        if len(labels) != chains.n_nodes:
            raise ValueError(
                f"y has {len(labels)} labels and X has {chains.n_nodes} tokens: expected one label per token"
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
                f"y[{i}] has {len(labels)} labels and X[{i}] has {length} tokens: expected one label per token"
            )
    return list(chain.from_iterable(sequences))


def distinct_labels(tokens: Iterable[UserData]) -> list[UserData]:
    """Return the distinct labels of tokens without None, also those within sets, by appearance."""
    seen: dict[UserData, None] = {}
    for label in tokens:
        if isinstance(label, SETS):
            # The order of a set is not fixed: sorting by text makes a fit repeatable.
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


def _check_labels(labels: Iterable[UserData], name: str) -> None:
    for label in labels:
        if is_missing_value(label) or not _equals_itself(label):
            raise ValueError(
                f"{name} has {shown(label)} as a label: expected a value that equals itself; "
                "a token without a label is None, outside any set"
            )


def _equals_itself(label: UserData) -> bool:
    try:
        return bool(label == label)
    except (TypeError, ValueError):
        return False


def _is_minus_one(label: UserData) -> bool:
    return isinstance(label, int | np.integer) and label == UNKNOWN


def _minus_one_is_free(labels: Iterable[UserData]) -> bool:
    """Return whether all labels are strings or integers >= 0, so that -1 can stand for a missing one."""
    return all(isinstance(label, str) or (isinstance(label, int | np.integer) and label >= 0) for label in labels)


def _sorted(labels: list[UserData]) -> Array:
    """Return strings or numbers as `numpy.unique` sorts them, other values in their own order, or as they come."""
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
        return object_array(sorted(labels))
    except TypeError:
        return object_array(labels)


def label_to_json(label: UserData) -> UserData:
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


def label_from_json(label: UserData) -> UserData:
    """Return the label that `label_to_json` wrote."""
    if isinstance(label, list):
        return tuple(label_from_json(part) for part in label)
    if label is None or isinstance(label, str | bool | int | float):
        return label
    raise ValueError(f"config has the class {shown(label)}: expected strings, numbers, booleans or lists of them")


def values_to_config(values: Array) -> dict[str, object]:
    """Return values with their type, which is the name of a type of numbers, "str" or "object"."""
    name = values.dtype.name
    kind = name if name in NUMBERS else "str" if values.dtype.kind == "U" else "object"
    return {"type": kind, "values": [label_to_json(value) for value in values.tolist()]}


def values_from_config(config: Mapping[str, UserData], *, distinct: bool = True) -> Array:
    """Return the values that `values_to_config` described, which must differ if they are `distinct`."""
    kind, values = config["type"], [label_from_json(value) for value in config["values"]]
    if kind not in (*NUMBERS, "str", "object"):
        raise ModelFileError(f"values have the type {kind!r}: expected one of {', '.join(NUMBERS)}, str or object")
    types = object if kind == "object" else str if kind == "str" else int | float
    if not all(isinstance(value, types) and value == value for value in values):
        raise ModelFileError(f"values are {shown(values)}: expected the type {kind!r}")
    array = object_array(values) if kind == "object" else np.array(values, kind)
    # NumPy cuts numbers to fit their type.
    if array.tolist() != values or (distinct and len(set(values)) != len(values)):
        raise ModelFileError(f"values are {shown(values)}: expected different ones of the type {kind!r}")
    return array
