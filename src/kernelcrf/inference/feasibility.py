"""The error for a sequence whose labelings are all forbidden."""

from __future__ import annotations

import numpy as np

from kernelcrf.arrays import Array, Flags


class InfeasibleSequenceError(ValueError):
    """Raised for a sequence whose labelings are all forbidden by -inf; `sample` and `token` say where."""

    def __init__(self, sample: int, token: int) -> None:
        super().__init__(
            f"every labelling of sequence {sample} is forbidden: no label of its token {token} can be reached "
            "(all have a score of -inf, or every transition into them from the labels allowed before is -inf); "
            "allow a label or a transition there"
        )
        self.sample = sample
        self.token = token

    def __reduce__(self) -> tuple[type[InfeasibleSequenceError], tuple[int, int]]:
        """Return what pickling needs, so that the error can cross processes."""
        return type(self), (self.sample, self.token)


def reason(sample: int, scores: Array, transitions: Array) -> ValueError:
    """Return the error to raise for a sequence whose log-partition is not finite."""
    reached: Flags = np.ones(scores.shape[1], dtype=bool)
    for token in range(len(scores)):
        if token > 0:
            into = transitions if transitions.ndim == 2 else transitions[token]
            reached = np.any(into[reached] > -np.inf, axis=0)
        reached = np.logical_and(reached, scores[token] > -np.inf)
        if not reached.any():
            return InfeasibleSequenceError(sample, token)
    return ValueError(
        f"the log-partition of sequence {sample} is beyond the range of float64: scale its scores down "
        f"(the greatest is {scores.max():.3g})"
    )
