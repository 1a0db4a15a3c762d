"""Read segments from the labels of tokens, or from lists of segments.

Labels of tokens are of one of two kinds. If they look like IOB2 tags (B-PER, I-PER, O), a segment starts at each B, and
its label is the type of the tag; a run of O is a segment, too. An I without a segment to continue is read as a B. For
all other labels, each maximal run of equal labels is a segment. In both cases the labels of the tokens determine the
segments, and the segments determine the labels.

Lists of segments have tuples (start, end, label), from the token `start` to the token `end` - 1. They are read as the
labels of their tokens if they cover all tokens and no two neighbours have the same label, and as IOB2 tags otherwise.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np

from kernelcrf.arrays import Array, Flags, Floats, Ints, Labels, UserData
from kernelcrf.graphs.structure import Chains
from kernelcrf.inference.segments import Observed
from kernelcrf.readers.containers import read_list
from kernelcrf.readers.labels import LabelReader, distinct_labels, flat_labels
from kernelcrf.readers.missing_labels import is_minus_one
from kernelcrf.readers.schemes import LENIENT, STRICT_SCHEMES
from kernelcrf.readers.spans import are_spans
from kernelcrf.score.cliques import FIRSTS, TOKENS
from kernelcrf.validation import is_whole, shown

OUTSIDE = "O"


class KnownSegments(NamedTuple):
    """The segments that the labels of tokens determine, completely or in part.

    observed : all segments, or None if some labels are missing.
    opens, continues : flags with one row per token and one column per label of segments. They say whether the token may
        be the first token, or a later token, of a segment with this label. Both are None if no label is missing.
    """

    observed: Observed | None
    opens: Flags | None = None
    continues: Flags | None = None


@dataclass(frozen=True, eq=False)
class SegmentLabels:
    """The labels of tokens (classes), and the labels of the segments to which the tokens belong (types).

    classes, types : the labels of tokens, and the labels of segments.
    of_class : for each class, the index of its type.
    opens, continues : for each class, whether its tokens may be the first token, or later tokens, of a segment.
    """

    classes: Array
    types: list[UserData]
    of_class: Ints
    opens: Flags
    continues: Flags

    @classmethod
    def of(cls, classes: Array) -> SegmentLabels:
        """Return the labels that segments can have, such as PER, if tokens can have the given labels, such as B-PER."""
        labels = classes.tolist()
        if not are_spans(labels):
            every = np.ones(len(labels), bool)
            return cls(classes, labels, np.arange(len(labels)), every, every)
        if any(label[1:] == f"-{OUTSIDE}" for label in labels):
            raise ValueError(
                f"y has tags of the type {OUTSIDE!r}, such as 'B-{OUTSIDE}': expected another name, because the tag "
                f"{OUTSIDE!r} means that a token is outside of all segments"
            )
        tags = [tag for label in labels if (tag := LENIENT.parse(label)) is not None]
        type_of_class = [OUTSIDE if tag.letter == "O" else tag.type for tag in tags]
        types = list(dict.fromkeys(type_of_class))
        of_class = np.array([types.index(label) for label in type_of_class])
        opens, continues = (np.array([tag.letter in letters for tag in tags]) for letters in ("BO", "IO"))
        return cls(classes, types, of_class, opens, continues)

    @property
    def is_tags(self) -> bool:
        """Return whether the labels of tokens are IOB2 tags."""
        return not (self.opens & self.continues).all()

    @cached_property
    def repeats(self) -> Flags:
        """Return, for each type, whether a segment may follow a segment of the same type."""
        # A type whose first tokens look like its other tokens cannot repeat: both segments would be one.
        may_repeat = np.ones(len(self.types), bool)
        may_repeat[self.of_class[self.opens & self.continues]] = False
        return may_repeat

    @cached_property
    def _class_of(self) -> Ints:
        """Return the classes of the tokens of segments, with one column per type of segment.

        Row 0 has the class of the first token of a segment, and row 1 the class of all later tokens.
        """
        classes = np.zeros((2, len(self.types)), np.int64)
        for row, flags in enumerate((self.opens, self.continues)):
            classes[row, self.of_class[flags]] = np.flatnonzero(flags)
        return classes

    def class_of(self, types: Ints, is_first: Flags) -> Labels:
        """Return the class of tokens, given the types of their segments and whether they are first tokens."""
        return self._class_of[np.where(is_first, 0, 1), types].astype(np.int32)

    def probabilities(self, nodes: Floats, starts: Floats) -> Floats:
        """Return the probabilities of classes at each token, given the probabilities of types and of segment starts."""
        later = np.maximum(nodes - starts, 0.0)[:, self.of_class]
        starts, nodes = starts[:, self.of_class], nodes[:, self.of_class]
        return np.where(self.opens & self.continues, nodes, np.where(self.opens, starts, later))

    def base_of_types(self, base: Mapping[str, Array] | None) -> dict[str, Floats] | None:
        """Return base scores of segments, given base scores of the labels of tokens, one row per token.

        The base score of a label may differ between the first token of a segment and later tokens.
        """
        if base is None:
            return None
        if set(base) != {TOKENS}:
            raise ValueError(
                f"base_scores has scores of {' and '.join(sorted(base))}: expected only scores of tokens, because "
                "there are no transitions between the tokens of a segment"
            )
        first, later = (np.asarray(base[TOKENS][:, classes], np.float64) for classes in self._class_of)
        return {TOKENS: later, FIRSTS: first - later}

    def known(self, indices: Labels, allowed: Flags | None, chains: Chains) -> KnownSegments:
        """Return the segments that the labels of tokens determine, completely or in part.

        indices, allowed : the index of each token's class, and the classes that it may have; see `LabelReader.encode`.
        """
        if allowed is None:
            types, is_first = self.of_class[indices], ~self.continues[indices]
            is_first[1:] |= types[1:] != types[:-1]
            is_first[chains.first_nodes] = True
            starts = np.flatnonzero(is_first)
            return KnownSegments(Observed(types[starts], starts, np.append(starts[1:], len(types))))
        opens, continues = np.zeros((2, len(indices), len(self.types)), bool)
        for c, a in enumerate(self.of_class.tolist()):
            opens[:, a] |= allowed[:, c] & self.opens[c]
            continues[:, a] |= allowed[:, c] & self.continues[c]
        # A token that must continue a segment, but cannot, starts one.
        before = np.zeros_like(opens)
        before[1:] = (opens | continues)[:-1]
        before[chains.first_nodes] = False
        return KnownSegments(None, opens | (continues & ~before), continues)


def fit_labels(tokens: Iterable[UserData], classes: UserData = None) -> LabelReader:
    """Return a reader for the labels `classes` or, if `classes` is None, for the labels in `tokens`.

    For IOB2 tags, the reader has a B tag and an I tag of each type.
    """
    seen = distinct_labels(tokens) if classes is None else list(classes)
    # Beside tags, -1 is a missing label.
    known = [label for label in seen if not is_minus_one(label)]
    if not are_spans(known):
        return LabelReader.fit(tokens, classes)
    tags = {label: STRICT_SCHEMES["IOB2"].parse(label) for label in known}
    wrong = [label for label, tag in tags.items() if tag is None]
    if wrong:
        raise ValueError(
            f"y has the tag {shown(wrong[0])}: expected IOB2 tags, such as B-PER, I-PER and O; convert other schemes "
            "to IOB2, or pass lists of segments (start, end, label)"
        )
    types = dict.fromkeys(tag.type for tag in tags.values() if tag is not None and tag.letter != "O")
    every = [f"{letter}-{one}" for one in types for letter in "BI"]
    return LabelReader.fit(tokens, [*every, *([OUTSIDE] if OUTSIDE in known else [])])


def read_tokens(y: UserData, chains: Chains, *, flat: bool = False, is_tags: bool | None = None) -> list[UserData]:
    """Return the labels of all tokens in one list, given the labels of tokens or lists of segments.

    is_tags : whether segments are read as IOB2 tags. None means yes, unless the segments of each sequence cover all
        its tokens and no two neighbouring segments have the same label.
    """
    if flat or not _has_segments(y):
        return flat_labels(y, chains, flat=flat)
    tables, lengths = _tables(y, chains), chains.lengths.tolist()
    if is_tags is None:
        is_tags = need_tags(y, chains)
    labels: list[UserData] = []
    for table, T in zip(tables, lengths, strict=True):
        tokens: list[UserData] = [OUTSIDE if is_tags else None] * T
        for start, end, label in table:
            if is_tags and not isinstance(label, str):
                raise ValueError(
                    f"y has a segment with the label {shown(label)}: expected strings, because segments are read as "
                    "IOB2 tags if they leave out tokens, or follow a segment of the same label"
                )
            inner = f"I-{label}" if is_tags else label
            tokens[start:end] = [f"B-{label}" if is_tags else label, *[inner] * (end - start - 1)]
        labels += tokens
    return labels


def need_tags(y: UserData, chains: Chains, *, flat: bool = False) -> bool:
    """Return whether y has lists of segments that must be read as IOB2 tags, as `read_tokens` explains."""
    if flat or not _has_segments(y):
        return False
    pairs = zip(_tables(y, chains), chains.lengths.tolist(), strict=True)
    return not all(_are_runs(table, T) for table, T in pairs)


def _tables(y: UserData, chains: Chains) -> list[list[tuple[int, int, Any]]]:
    """Return the segments of each sequence, from left to right."""
    rows = read_list(y, "y")
    if len(rows) != chains.n_samples:
        raise ValueError(
            f"y has {len(rows)} lists of segments and X has {chains.n_samples} sequences: expected a list for each "
            "sequence of X"
        )
    lengths: list[int] = chains.lengths.tolist()
    return [_segments(row, lengths[i], chains.number(i)) for i, row in enumerate(rows)]


def extend_labels(reader: LabelReader, tokens: Iterable[UserData], classes: UserData = None) -> LabelReader:
    """Return a reader that also has the labels in `tokens`; each new type of IOB2 tags gets a B tag and an I tag."""
    extended = reader.extend(tokens, classes)
    labels = extended.classes.tolist()
    return extended if extended is reader else fit_labels(labels, labels)


def _has_segments(y: UserData) -> bool:
    """Return whether the first item of y that is not empty is a list of tuples (start, end, label)."""
    if not isinstance(y, Sequence) or isinstance(y, str):
        return False
    first = next((row for row in y if isinstance(row, Sequence) and not isinstance(row, str) and len(row)), None)
    return first is not None and isinstance(first[0], tuple) and len(first[0]) == 3


def _segments(row: UserData, T: int, number: int) -> list[tuple[int, int, Any]]:
    """Return the segments of one sequence, from left to right; raise if they are not tuples, or overlap."""
    at = 0
    for one in (segments := sorted(row, key=lambda one: one[:2])):
        is_segment = isinstance(one, tuple) and len(one) == 3 and is_whole(one[0]) and is_whole(one[1])
        if not is_segment or not at <= one[0] < one[1] <= T:
            raise ValueError(
                f"y[{number}] has the segment {shown(one)}: expected tuples (start, end, label) that do not overlap, "
                f"with 0 <= start < end <= {T}, the number of tokens of X[{number}]"
            )
        at = one[1]
    return segments


def _are_runs(segments: list[tuple[int, int, Any]], T: int) -> bool:
    """Return whether segments cover all T tokens, and no two neighbours have the same label."""
    bounds, labels = [0, *(end for _, end, _ in segments)], [label for _, _, label in segments]
    covers = [start for start, _, _ in segments] == bounds[:-1] and bounds[-1] == T
    return covers and all(one != other for one, other in zip(labels[1:], labels[:-1], strict=True))
