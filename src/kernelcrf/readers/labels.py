"""Read labels: convert the label of each token to an index into the classes.

y is a list of label sequences. If X is one list of the tokens of all sequences, y is one list of all labels. The
containers may be of any type that `kernelcrf.readers.containers` accepts. A label is any hashable value that equals
itself, which NaN does not. A string in the place of a sequence is a sequence of one-letter labels. These values have a
special meaning:

    None, pandas.NA The label is missing. A masked entry of a masked array is missing too.
    -1              The label is missing, or it is a class: see `kernelcrf.readers.missing_labels`.
    {"a", "b"}      The label is one of the elements of this set or frozenset.

If a token has a set of labels, training maximises the probability that its label is in the set.
"""

from __future__ import annotations

import warnings
from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import chain, compress

import numpy as np
import numpy.typing as npt

from kernelcrf.arrays import Array, Flags, Labels, UserData
from kernelcrf.graphs.structure import Chains
from kernelcrf.readers.containers import DATES, Ragged, is_missing_value, read_labels, read_list
from kernelcrf.readers.missing_labels import UNKNOWN, is_minus_one, minus_one_is_free, missing_among
from kernelcrf.readers.stored_values import NUMBERS, classes_from_config, object_array
from kernelcrf.validation import shown, shown_list, stacklevel_of_user

SETS = (set, frozenset)


@dataclass(frozen=True)
class LabelReader:
    """Converts the labels of tokens or nodes to indices into the classes, and back.

    classes : the distinct labels, sorted as in scikit-learn, or in order of appearance if they cannot be sorted.
    """

    classes: Array

    @classmethod
    def fit(cls, tokens: Iterable[UserData], classes: Iterable[Hashable] | None = None) -> LabelReader:
        """Return a reader for the given classes or, if `classes` is None, for the labels in `tokens`, one per token.

        Raise if no token has a label that is a class, or if there is only one class.
        """
        seen = distinct_labels(tokens)
        if classes is not None:
            labels = dict.fromkeys(classes)
            _check_labels(labels, "classes")
        else:
            is_missing = missing_among(seen)
            labels = {label: None for label in seen if not is_missing(label)}
        reader = cls(_sort_labels(list(labels)))
        if not any(label in reader._index for label in seen):
            if all(map(reader._is_missing, seen)):
                raise ValueError("y has only missing labels (None or -1): expected at least one labelled token")
            raise ValueError(
                f"y has none of the classes {shown_list(labels)}: expected at least one label of y among classes="
            )
        if len(labels) < 2:
            hint = "; -1 counts as a missing label: name it in classes= to use it as a class"
            raise ValueError(
                f"y has one class, {shown(next(iter(labels)))}: a classifier needs samples of at least 2 classes; "
                f"use classes= to name labels that do not occur in y{hint if UNKNOWN in seen else ''}"
            )
        return reader

    def extend(self, tokens: Iterable[UserData], classes: Iterable[Hashable] | None = None) -> LabelReader:
        """Return a reader that also has the given classes or, if `classes` is None, the labels in `tokens`."""
        seen = distinct_labels(tokens) if classes is None else list(dict.fromkeys(classes))
        _check_labels(seen, "classes")
        new = [label for label in seen if label not in self._index and not self._is_missing(label)]
        check_same_type(new, self._index, "y", "the prior")
        return LabelReader(_sort_labels([*self.classes.tolist(), *new])) if new else self

    def positions_of(self, other: LabelReader) -> Labels:
        """Return, for each class of another reader, its index among the classes of this reader."""
        return np.array([self._index[label] for label in other.classes.tolist()], np.int32)

    def encode(self, tokens: Sequence[UserData], chains: Chains) -> tuple[Labels, Flags | None]:
        """Return the class index of each token, and flags that say which labels each token may have.

        The index is -1 if the label is missing or is a set of several labels. The flags have one row per token and one
        column per class; they are None if no label is missing and no label is a set.
        """
        try:
            labels = np.fromiter(map(self._index.__getitem__, tokens), np.int32, len(tokens))
        except (KeyError, TypeError):
            return self._encode_partial(tokens, chains)
        return labels, None

    def encode_single(self, tokens: Sequence[UserData], chains: Chains) -> Labels:
        """Return the class index of each token, -1 for a missing label; raise if a label is a set of several labels.

        A set of all classes counts as a missing label.
        """
        labels, allowed = self.encode(tokens, chains)
        counts = np.ones(len(labels), int) if allowed is None else allowed.sum(axis=1)
        if ((counts > 1) & (counts < len(self.classes))).any():
            raise ValueError("y has sets of labels: expected one label per node, or None for a missing label")
        return np.where(counts > 1, np.int32(UNKNOWN), labels)

    def compare(self, indices: npt.ArrayLike, tokens: Sequence[UserData]) -> tuple[Flags, Flags]:
        """Compare predicted class indices with labels, and return two arrays with one flag per token.

        The first array says whether the prediction is right, the second whether the label is known. A label that is not
        among the classes counts as known, and every prediction for it counts as wrong. Warn if no label is
        among the classes.
        """
        known = np.array([not (isinstance(label, SETS) or self._is_missing(label)) for label in tokens], bool)
        check_same_type(compress(tokens, known), self._index, "y", "the data of the fit")
        truth = np.full(len(known), UNKNOWN)
        truth[known] = [self._index.get(label, UNKNOWN) for label in compress(tokens, known)]
        if known.any() and (truth == UNKNOWN).all():
            warnings.warn(
                f"none of the labels of y, such as {shown(tokens[int(np.argmax(known))])}, is among the classes of the "
                f"fit, such as {shown(self.classes[0])}: every prediction counts as wrong",
                stacklevel=stacklevel_of_user(),
            )
        return np.asarray(indices) == truth, known

    def decode(self, indices: npt.ArrayLike, chains: Chains) -> Ragged[Array]:
        """Convert class indices, one per token, to labels; return one array of labels per sequence."""
        return Ragged.cut(self.classes[np.asarray(indices, dtype=np.intp)], chains.offsets)

    def to_config(self) -> dict[str, UserData]:
        """Return the classes as a dict that can be written as JSON; `from_config` reads this dict."""
        kind = self.classes.dtype.kind
        return {"kind": kind, "classes": [label_to_json(label) for label in self.classes.tolist()]}

    @classmethod
    def from_config(cls, config: Mapping[str, UserData]) -> LabelReader:
        """Return the reader whose `to_config` returned `config`."""
        return cls(classes_from_config(config))

    @cached_property
    def _index(self) -> dict[UserData, int]:
        return {label: index for index, label in enumerate(self.classes.tolist())}

    @cached_property
    def _minus_one_is_missing(self) -> bool:
        return minus_one_is_free(self._index)

    def _is_missing(self, label: UserData) -> bool:
        return is_missing_value(label) or (is_minus_one(label) and self._minus_one_is_missing)

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
                    f"y has an empty set of labels at {chains.place(t)}: expected at least one label in the set, or "
                    "None for a missing label"
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
                f"{shown_list(self.classes.tolist())}: expected one of these classes, a set of them, or None for a "
                "missing label. Set classes= to allow labels that do not occur in the training data"
            ) from None


def flat_labels(y: UserData, chains: Chains, *, flat: bool = False) -> list[UserData]:
    """Return the labels of all tokens in one list; raise if a sequence has more or fewer labels than tokens.

    flat : whether y already is one list of the labels of all tokens.
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
    """Return the distinct labels in order of appearance, including the elements of sets; skip None and pandas.NA."""
    seen: dict[UserData, None] = {}
    for label in tokens:
        if isinstance(label, SETS):
            # The order of a set is not fixed: sorting its labels by their repr makes a fit repeatable.
            seen.update(dict.fromkeys(sorted(label, key=repr)))
        elif not is_missing_value(label):
            try:
                seen[label] = None
            except TypeError:
                raise TypeError(
                    f"y has the label {shown(label)} of type {type(label).__name__}: expected a hashable label; "
                    "if the token is ambiguous, pass a set of its possible labels"
                ) from None
    _check_labels(seen, "y")
    return list(seen)


def check_same_type(labels: Iterable[UserData], others: Iterable[UserData], name: str, other_name: str) -> None:
    """Raise if one side has only strings as labels and the other side has no strings, so that no labels can be equal.

    name, other_name : the names of the two sides in the error message.
    """
    first, second = ({isinstance(label, str): label for label in side} for side in (labels, others))
    if len(first) == len(second) == 1 and first.keys() != second.keys():
        (label,), (other,) = first.values(), second.values()
        raise ValueError(
            f"{name} has labels such as {shown(label)} of type {type(label).__name__}, and {other_name} has labels "
            f"such as {shown(other)} of type {type(other).__name__}: expected labels of the same type; convert one side"
        )


def _check_labels(labels: Iterable[UserData], name: str) -> None:
    for label in labels:
        try:
            is_label = not is_missing_value(label) and bool(label == label)
        except (TypeError, ValueError):
            is_label = False
        if not is_label:
            raise ValueError(
                f"{name} has {shown(label)} as a label: expected a value that equals itself, unlike NaN; for a token "
                "without a label, pass None in place of its label or of its set of labels"
            )


def _sort_labels(labels: list[UserData]) -> Array:
    """Sort strings or numbers with `numpy.unique` and other labels with `sorted`; if that fails, keep the order."""
    labels = list(map(plain, labels))
    for types in (str, bool, int | float):
        if all(isinstance(label, types) for label in labels):
            array = np.unique(np.asarray(labels))
            # NumPy drops trailing NUL characters of strings and rounds integers of more than 64 bits.
            if set(array.tolist()) == set(labels):
                return array
    try:
        return object_array(sorted(labels))
    except TypeError:
        return object_array(labels)


def plain(label: UserData) -> UserData:
    """Convert a NumPy scalar to a Python value; return other values, and NumPy dates, unchanged.

    NumPy would convert a date in nanoseconds to an integer.
    """
    return label.item() if isinstance(label, np.generic) and label.dtype.kind not in DATES else label


def label_to_json(label: UserData) -> UserData:
    """Convert a label for JSON: a tuple becomes a list; strings, numbers and booleans do not change."""
    if isinstance(label, tuple):
        return [label_to_json(part) for part in label]
    value = plain(label)
    if value is None or isinstance(value, str | bool | int | float):
        return value
    raise TypeError(
        f"classes has the label {shown(label)} of type {type(label).__name__}, which cannot be written to a file: "
        "expected strings, numbers, booleans or tuples of them; fit with labels such as str(label), or save this "
        "estimator with joblib.dump"
    )


def values_to_config(values: Array) -> dict[str, object]:
    """Return the values of an array and the name of their type, such as "int64" or "str", as a dict for JSON."""
    name = values.dtype.name
    kind = name if name in NUMBERS else "str" if values.dtype.kind == "U" else "object"
    return {"type": kind, "values": [label_to_json(value) for value in values.tolist()]}
