"""The scores of sequences and segmentations as arrays with one row per clique, named as in `score.cliques`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np

from kernelcrf.arrays import Array, DType
from kernelcrf.inference.segments import SegmentMoments, SegmentScores
from kernelcrf.score.cliques import DURATIONS, FIRSTS, LASTS, SEGMENTS, STEPS, TAILS, TOKENS

FLOAT64 = np.dtype(np.float64)
Steps = Literal["none", "tied", "own"]


@dataclass(frozen=True, eq=False)
class ChainScores:
    """The scores of sequences with N tokens in total and L labels.

    s : (N, L), the token scores, one row per token.
    w : the transition scores, of shape (L, L) if they are the same for all tokens, (N, L, L) if they depend on inputs,
        and (0, 0) if tokens are independent.
    """

    s: Array
    w: Array

    @classmethod
    def zeros(cls, n_nodes: int, n_labels: int, steps: Steps, dtype: DType = FLOAT64) -> ChainScores:
        """Return scores that are 0.

        steps : whether there are transition scores: "none", "tied" for one matrix, or "own" for a matrix per token.
        """
        side = 0 if steps == "none" else n_labels
        shape = (n_nodes, side, side) if steps == "own" else (side, side)
        return cls(np.zeros((n_nodes, n_labels), dtype), np.zeros(shape, dtype))

    @property
    def arrays(self) -> dict[str, Array]:
        """Return the scores as a dict from names, as in `score.cliques`, to arrays with one row per clique."""
        steps = {STEPS: self.w.reshape(-1, self.w.shape[-1] ** 2)} if self.w.shape[-1] else {}
        return {TOKENS: self.s} | steps

    def move(self, direction: ChainScores, step: float) -> ChainScores:
        """Return these scores plus `step` times the scores `direction`."""
        dtype = self.s.dtype.type
        return ChainScores(self.s + dtype(step) * direction.s, self.w + dtype(step) * direction.w)


def arrays_of_scores(scores: SegmentScores) -> dict[str, Array]:
    """Return the scores as a dict from names, as in `score.cliques`, to arrays with one row per clique."""
    arrays = {TOKENS: scores.tokens, FIRSTS: scores.first, LASTS: scores.last, SEGMENTS: scores.segments}
    sums = {STEPS: scores.steps, DURATIONS: scores.durations, TAILS: scores.tail}
    arrays |= {name: None if x is None else x.reshape(1, -1) for name, x in sums.items()}
    return {name: x for name, x in arrays.items() if x is not None}


def arrays_of_moments(moments: SegmentMoments) -> dict[str, Array]:
    """Return the moments as a dict from names, as in `score.cliques`, to arrays with one row per clique."""
    arrays = {TOKENS: moments.nodes, FIRSTS: moments.starts, LASTS: moments.ends, SEGMENTS: moments.segments}
    sums = {STEPS: moments.steps, DURATIONS: moments.lengths, TAILS: moments.more}
    return arrays | {name: x.reshape(1, -1) for name, x in sums.items()}
