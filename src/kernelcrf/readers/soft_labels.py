"""Read soft labels: probabilities of the labels of tokens, in place of labels.

y is soft if a sequence of y is a two-dimensional array or a data frame, with one row per token and one column per
class, or if a token has a mapping from labels to probabilities. The probabilities of a token are numbers >= 0 whose sum
is 1. In sequences with mappings, a token may also have an ordinary label, whose probability is then 1. The columns of
data frames have the names of labels. Those of arrays have the order of the classes, as in `predict_proba`.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain

import numpy as np

from kernelcrf.arrays import Array, Floats, UserData
from kernelcrf.graphs.structure import Chains, Legal
from kernelcrf.inference.feasibility import InfeasibleSequenceError
from kernelcrf.partitions.expected_labels import ExpectedLabels
from kernelcrf.readers.containers import column_names, is_frame, is_missing_value, to_array
from kernelcrf.readers.labels import SETS, distinct_labels, flat_labels, plain
from kernelcrf.validation import shown, shown_list

CLOSE = 1e-4


@dataclass(frozen=True, eq=False)
class SoftLabels:
    """Probabilities of labels.

    p : (N, K), one row per token, whose sum is 1.
    names : the label of each column; None if the columns have the order of the classes.
    """

    p: Floats
    names: list[UserData] | None

    @classmethod
    def read(cls, y: UserData, chains: Chains, *, flat: bool = False) -> SoftLabels | None:
        """Return the soft labels in y, one row per token of all sequences; None if y has ordinary labels.

        flat : whether y has the tokens of all sequences one after the other.
        """
        parts = [y] if flat or is_frame(y) else y
        if isinstance(parts, list | tuple) or (isinstance(parts, np.ndarray) and parts.ndim > 1):
            if any(map(_is_table, parts)):
                return cls._of_tables(list(parts), chains, flat)
            if any(isinstance(token, Mapping) for part in parts if isinstance(part, list | tuple) for token in part):
                return cls._of_mappings(flat_labels(y, chains, flat=flat), chains)
        return None

    @classmethod
    def of_rows(cls, y: UserData) -> SoftLabels | None:
        """Return the soft labels of independent rows, one row per sample; None if y has ordinary labels."""
        if not _is_table(y):
            return None
        chains = Chains.from_lengths(np.ones(len(y), np.int64))
        return cls._of_tables([y], chains, True, lambda t: f"row {t}")

    @classmethod
    def _of_tables(
        cls, parts: Sequence[UserData], chains: Chains, flat: bool, place: Callable[[int], str] | None = None
    ) -> SoftLabels:
        lengths = [chains.n_nodes] if flat else chains.lengths.tolist()
        if len(parts) != len(lengths):
            raise ValueError(
                f"y has {len(parts)} sequences and X has {len(lengths)}: expected an array of probabilities for each "
                "sequence of X"
            )
        first = next(part for part in parts if _is_table(part))
        names = [plain(name) for name in column_names(first)] if is_frame(first) else None
        width, tables = to_array(first).shape[1], list[Floats]()
        for i, (part, length) in enumerate(zip(parts, lengths, strict=True)):
            name = "y" if flat else f"y[{chains.number(i)}]"
            if length == 0 and not _is_table(part) and len(part) == 0:
                continue
            table = to_array(part) if _is_table(part) else np.empty(0)
            if table.shape != (length, width):
                raise ValueError(
                    f"{name} is {shown(part)}: expected probabilities of labels in an array of shape "
                    f"({length}, {width}), with one row per token and one column per label, as in the rest of y"
                )
            columns = [plain(one) for one in column_names(part)] if is_frame(part) else None
            if columns != names:
                raise ValueError(
                    f"{name} has the columns {shown(columns)}: expected {shown(names)}, as in the rest of y, where "
                    "None stands for the columns of an array"
                )
            tables.append(np.asarray(table, np.float64))
        if names is not None and len(distinct_labels(names)) < len(names):
            raise ValueError(f"y has the columns {shown_list(names)}: expected different labels")
        return cls(_normalised(np.concatenate(tables), place or chains.place), names)

    @classmethod
    def _of_mappings(cls, tokens: list[UserData], chains: Chains) -> SoftLabels:
        for t, token in enumerate(tokens):
            if isinstance(token, SETS) or is_missing_value(token):
                raise ValueError(
                    f"y has {shown(token)} at {chains.place(t)}, and probabilities of labels elsewhere: expected "
                    "probabilities for every token, because they cannot be combined with labels that are missing; if "
                    "you know nothing about a token, cut its sequence there"
                )
        names = distinct_labels(chain.from_iterable(one if isinstance(one, Mapping) else (one,) for one in tokens))
        columns, p = {name: k for k, name in enumerate(names)}, np.zeros((len(tokens), len(names)))
        for t, token in enumerate(tokens):
            for label, value in token.items() if isinstance(token, Mapping) else [(token, 1.0)]:
                try:
                    p[t, columns[label]] = value
                except (TypeError, ValueError):
                    raise TypeError(
                        f"y has {shown(token)} at {chains.place(t)}: expected a mapping from labels to probabilities"
                    ) from None
        return cls(_normalised(p, chains.place), names)

    def labels(self, classes: Iterable[Hashable] | None) -> list[UserData]:
        """Return the labels that the columns have; without names, those of `classes` or else 0, 1, ..."""
        if self.names is not None:
            return self.names
        return list(range(self.p.shape[1])) if classes is None else list(classes)

    def columns(self, classes: Array, given: Iterable[Hashable] | None) -> Floats:
        """Return the probabilities with one column per class.

        given : the classes that the user passed, or None.
        """
        order = classes.tolist()
        if self.names is None:
            if given is not None and [plain(label) for label in given] != order:
                raise ValueError(
                    f"classes={shown(list(given))} is not in the order of the columns of predict_proba, and y has "
                    f"arrays of probabilities: expected the order {shown_list(order)} for both, or y with data frames "
                    "or mappings, which name the labels"
                )
            if self.p.shape[1] != len(order):
                raise ValueError(
                    f"y has probabilities of {self.p.shape[1]} labels, and there are {len(order)} classes "
                    f"({shown_list(order)}): expected one column per class"
                )
            return self.p
        places = {label: k for k, label in enumerate(order)}
        if wrong := [name for name in self.names if name not in places]:
            raise ValueError(
                f"y has probabilities of the label {shown(wrong[0])}, which is not among the classes "
                f"{shown_list(order)}: expected only classes; name it in classes="
            )
        p = np.zeros((len(self.p), len(order)))
        p[:, [places[name] for name in self.names]] = self.p
        return p


def check_soft_labels(legal: Legal | None, chains: Chains, p: Floats) -> None:
    """Raise if constraints forbid all labellings of a sequence that soft labels allow.

    legal : the constraints, or None.
    p : the probability of each label of each token.
    """
    try:
        ExpectedLabels(chains, p, legal).nodes  # noqa: B018
    except InfeasibleSequenceError as error:
        raise ValueError(
            f"the constraints forbid every labelling of sequence {chains.number(error.sample)} that has a positive "
            f"probability in y, up to token {error.token}: expected probabilities of labels that can follow each "
            "other; give such labels a small probability, or omit constraints="
        ) from None


def _is_table(part: UserData) -> bool:
    """Return whether a part of y has one row per token and one column per label, and not one label per token."""
    if is_frame(part):
        return bool(part.shape[1] > 1)
    return isinstance(part, np.ndarray) and part.ndim == 2 and part.shape[1] > 1 and part.dtype.kind in "fiub"


def _normalised(p: Floats, place: Callable[[int], str]) -> Floats:
    """Return probabilities whose rows sum to 1; raise if a number is not a probability, or a sum is not near 1.

    place : a function that names a row in error messages.
    """
    sums = p.sum(axis=1)
    wrong = np.flatnonzero(~((p >= 0).all(axis=1) & (np.abs(sums - 1) <= CLOSE)))
    if len(wrong):
        t = int(wrong[0])
        raise ValueError(
            f"y has the probabilities {shown_list(p[t].tolist())} at {place(t)}, whose sum is {sums[t]:g}: "
            "expected numbers >= 0 whose sum is 1; divide counts, such as votes, by their sum"
        )
    return np.asarray(p / sums[:, None])
