"""Constraints say which labels may start a sequence, which may end it, and which labels may follow each other.

A label sequence that breaks the constraints has probability 0. The constraints are a list of allowed pairs of labels,
or the name of a tagging scheme, which encodes spans as labels (`readers.schemes`). A span is a run of neighbouring
tokens that belong together, and has a type x, such as "person":

    BIO, IOB2               B-x begins a span; I-x continues it, directly after B-x or I-x
    IOB1                    I-x is a token of a span; B-x begins a span that directly follows another span of type x
    BIOUL, BILOU,           B-x begins, I-x continues and L-x (or E-x) ends a span; U-x (or S-x) is a span of one token
    IOBES, BIOES
    BMES                    the same as BIOUL, with the letters B, M, E, S

O marks tokens outside all spans. A label is a letter, optionally followed by "-" and a type; a letter alone has the
empty type.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Sequence

import numpy as np

from kernelcrf.arrays import Array, Flags, Labels, UserData
from kernelcrf.graphs.structure import Chains, Legal
from kernelcrf.readers.schemes import OUTSIDE, STRICT_SCHEMES, Tag
from kernelcrf.validation import Constraint, either, is_listed, nothing, one_of, shown, shown_list

CONSTRAINTS = either(
    nothing,
    one_of(*STRICT_SCHEMES),
    Constraint("a list of the pairs of labels (from, to) that are legal", is_listed),
)


class ConstraintError(ValueError):
    """Raised if a label does not follow the constraints.

    label : the label.
    place : the indices of its sequence and of its token; None if the constraints have no such label at all.
    reason : what is not allowed at this place, such as "'O' -> 'I' is not allowed"; empty if `place` is None.
    """

    def __init__(self, message: str, label: UserData, place: tuple[int, int] | None = None, reason: str = "") -> None:
        super().__init__(message, label, place, reason)
        self.label, self.place, self.reason = label, place, reason

    def __str__(self) -> str:
        return str(self.args[0])


def legal_labelings(spec: str | Iterable[tuple[Hashable, Hashable]], classes: Sequence[UserData] | Array) -> Legal:
    """Return which labels may start a sequence, end it, and follow each other.

    spec : a scheme such as "BIO", or a list of allowed pairs of labels (from, to).
    classes : all labels.

    The pair (None, y) allows y to start a sequence, and (y, None) allows y to end it. If no pair begins with None,
    every label may start a sequence; if no pair ends with None, every label may end it.
    """
    labels = list(classes.tolist() if isinstance(classes, np.ndarray) else classes)
    # The last row and the last column of the table are the start and the end of a sequence.
    allowed = _apply_scheme(spec, labels) if isinstance(spec, str) else _apply_pairs(spec, labels)
    return Legal(allowed[:-1, :-1].copy(), allowed[-1, :-1].copy(), allowed[:-1, -1].copy())


def _apply_scheme(spec: str, labels: Sequence[UserData]) -> Flags:
    if spec not in STRICT_SCHEMES:
        raise ValueError(
            f"constraints={shown(spec)}: expected one of {', '.join(STRICT_SCHEMES)}, or pairs of labels (from, to)"
        )
    # The start and the end of a sequence allow the same neighbours as O.
    scheme, tags = STRICT_SCHEMES[spec], [*(_parse(label, spec) for label in labels), OUTSIDE]
    return np.array([[scheme.allows(previous, tag) for tag in tags] for previous in tags], bool)


def _parse(label: UserData, spec: str) -> Tag:
    tag = STRICT_SCHEMES[spec].parse(label)
    if tag is None:
        letters = STRICT_SCHEMES[spec].letters.replace("O", "")
        raise ConstraintError(
            f"the label {shown(label)} does not follow constraints={shown(spec)}: expected 'O', or one of the letters "
            f"{', '.join(letters)} alone or with a type, as in 'B-x'",
            label,
        )
    return tag


def _apply_pairs(pairs: Iterable[tuple[Hashable, Hashable]], labels: Sequence[UserData]) -> Flags:
    index = {label: i for i, label in enumerate([*labels, None])}
    allowed = np.zeros((len(index), len(index)), bool)
    pairs = list(pairs)
    for pair in pairs:
        if isinstance(pair, str) or not isinstance(pair, Sequence) or len(pair) != 2 or pair[0] is pair[1] is None:
            raise ValueError(
                f"constraints has {shown(pair)}: expected pairs of labels (from, to), where None stands for the start "
                "or the end of a sequence"
            )
        for label in pair:
            if label not in index:
                raise ValueError(
                    f"constraints has the label {shown(label)} in the pair {shown(pair)}, which is not among the "
                    f"classes {shown_list(labels)}: expected a class, or None for the start or end of a sequence"
                )
        allowed[index[pair[0]], index[pair[1]]] = True
    if not pairs:
        raise ValueError(
            "constraints has no pairs, so it forbids every labelling: expected pairs (from, to), or None to allow all"
        )
    allowed[-1] |= not allowed[-1].any()
    allowed[:, -1] |= not allowed[:-1, -1].any()
    return allowed


def check_legal(legal: Legal, chains: Chains, indices: Labels, classes: Array) -> None:
    """Raise if the labels of a sequence break the constraints, because such labels have probability 0."""
    broken = np.flatnonzero(~legal.allows(chains, indices))
    if len(broken):
        node, names = int(broken[0]), classes.tolist()
        i = int(np.searchsorted(chains.offsets, node, side="right")) - 1
        number, t, label = chains.number(i), node - int(chains.offsets[i]), indices[node]
        before = indices[node - 1] if t else -1
        if before >= 0 and not legal.steps[before, label]:
            reason = f"{shown(names[before])} -> {shown(names[label])} is not allowed"
        else:
            end = "end" if t or legal.first[label] else "start"
            reason = f"{shown(names[label])} is not allowed at the {end} of a sequence"
        raise ConstraintError(
            f"the labels y of sequence {number} break the constraints at token {t}: {reason}; correct the labels, pass "
            "None for labels that may be wrong, or omit constraints=",
            names[label],
            (number, t),
            reason,
        )
