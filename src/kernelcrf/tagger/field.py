"""The random field of the labels of sequences; `answers.span_probabilities` defines its protocol."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import pairwise
from typing import Self

import numpy as np

from ..arrays import Array, Floats, Labels
from ..graphs.structure import Chains
from .chain import marginals, viterbi


@dataclass(frozen=True, eq=False)
class TaggedField:
    """The random field of the labels of a few sequences.

    s : the scores of labels, (N, L), one row per token of all sequences.
    w : the scores of steps, (L, L) or (N, L, L).
    """

    s: Floats
    w: Floats
    chains: Chains

    @classmethod
    def of(cls, scores: Sequence[tuple[Floats, Floats]]) -> Self:
        """Return the field of sequences, given a pair for each sequence: the scores of its labels and of its steps."""
        s = np.concatenate([one for one, _ in scores])
        steps = [w for _, w in scores]
        w = steps[0] if steps[0].ndim == 2 else np.concatenate(steps)
        return cls(s, w, Chains.from_lengths([len(one) for one, _ in scores]))

    def part(self, low: int, high: int) -> Self:
        """Return the field of the sequences from `low` to `high` - 1."""
        rows = slice(*self.chains.offsets[[low, high]])
        return replace(self, s=self.s[rows], w=self._steps(rows), chains=self.chains.part(low, high))

    def batches(self) -> Iterator[tuple[int, int, Self]]:
        """Yield (k, k + 1, field) for each sequence k; the field has only this sequence."""
        for low in range(self.chains.n_samples):
            yield low, low + 1, self.part(low, low + 1)

    def replaced(self, s: Array, w: Array) -> Self:
        """Return the field of the same sequences with other scores."""
        return replace(self, s=s, w=w)

    def in_float64(self) -> Self:
        """Return this field unchanged, because its scores are float64 already."""
        return self

    def marginals(self) -> Array:
        """Return the probabilities p(y_t = j | x), with one row per token t and one column per label j."""
        return self._both[0]

    def edge_marginals(self) -> Array:
        """Return p(y_{t-1} = i, y_t = j | x) as an array [t, i, j]; it is 0 if t is the first token of a sequence."""
        return self._both[1]

    def best(self) -> Labels:
        """Return the likeliest labelling of each sequence."""
        return np.array([label for s, w in self._sequences() for label in viterbi(s, w)], np.int32)

    @cached_property
    def _both(self) -> tuple[Floats, Floats]:
        both = [marginals(s, w, edges=True) for s, w in self._sequences()]
        return np.concatenate([p for p, _ in both]), np.concatenate([q for _, q in both if q is not None])

    def _steps(self, rows: slice) -> Floats:
        return self.w if self.w.ndim == 2 else self.w[rows]

    def _sequences(self) -> Iterator[tuple[Floats, Floats]]:
        for low, high in pairwise(self.chains.offsets):
            yield self.s[low:high], self._steps(slice(low, high))
