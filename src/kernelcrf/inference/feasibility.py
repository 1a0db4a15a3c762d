"""The error that is raised if all labelings of a sequence are forbidden."""

from __future__ import annotations

import numpy as np

from ..arrays import Array, Flags


class InfeasibleSequenceError(ValueError):
    """Raised if scores of -inf forbid all labelings of a sequence.

    sample : the index of the sequence.
    token : the first token at which no label is possible.
    """

    def __init__(self, sample: int, token: int) -> None:
        super().__init__(sample, token)
        self.sample, self.token = sample, token

    def __str__(self) -> str:
        return (
            f"every labelling of sequence {self.sample} is forbidden: no label of its token {self.token} can be "
            "reached, because the scores of the labels, or of all transitions into them from allowed labels, are -inf; "
            "allow a label or a transition there"
        )


def reason(sample: int, scores: Array, transitions: Array) -> ValueError:
    """Return the error to raise for a sequence whose log-partition is not finite.

    The error says whether all labelings are forbidden, or the scores are too large.
    """
    reached: Flags = np.ones(scores.shape[1], dtype=bool)
    for token in range(len(scores)):
        if token > 0:
            into = transitions if transitions.ndim == 2 else transitions[token]
            reached = np.any(into[reached] > -np.inf, axis=0)
        reached = np.logical_and(reached, scores[token] > -np.inf)
        if not reached.any():
            return InfeasibleSequenceError(sample, token)
    return ValueError(
        f"the log-partition of sequence {sample} overflows float64: expected smaller scores "
        f"(the largest is {scores.max():.3g}); scale them down"
    )
