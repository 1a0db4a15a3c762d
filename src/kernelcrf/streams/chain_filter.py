"""Filtering, fixed-lag smoothing and delayed decisions on a chain whose tokens arrive one after the other.

A conditional random field is normalised over whole sequences. While a sequence goes on, p(y_t | x_1..x_n) is the answer
of the model to the n tokens that have arrived, without the scores and constraints of last labels, because the last
token is still to come. With the scores s_t of labels and w_t of steps, the forward messages

    a_1 = s_1,   a_t(j) = s_t(j) + log sum_i exp(a_{t-1}(i) + w_t(i, j)),   each minus log sum_j exp a_t(j),

are therefore log p(y_t | x_1..x_t) itself (filtering). Smoothing at a fixed lag runs the backward messages

    b_{t+lag} = 0,   b_{t-1}(i) = log sum_j exp(w_t(i, j) + s_t(j) + b_t(j))

over the last `lag` tokens: p(y_t | x_1..x_{t+lag}) is proportional to exp(a_t + b_t). When the sequence ends, the
messages start with the scores of last labels instead of 0, and the result is that of the whole sequence.

Viterbi's recursion keeps the best path into each label of the newest token. As soon as all of these paths agree on the
label of a token, no later token can change it, and the label is decided. If they disagree after `max_delay` more
tokens, the label is that of the best path so far. This is a forced decision. Paths with another label stay, because
later tokens may prove them right; only those whose next label may not follow the decided one are given up, so that the
labels break no constraint. Without forced decisions, the labels are those of the likeliest labelling of the whole
sequence. If later constraints leave no path, the undecided labels are those of the best path before, and the recursion
starts again at the newest token, which counts as a forced decision too.

All numbers are float64. Messages are normalised at each token, so that nothing grows with the length of a stream. If
steps are not forbidden and their scores differ by at most FREE_RANGE, backward messages are products, as in
`inference.scaled`, which says why this is exact. Otherwise, they are logarithms.
"""

from __future__ import annotations

from typing import NamedTuple, Protocol

import numpy as np

from ..arrays import Array, Flags, Floats
from ..inference.feasibility import InfeasibleSequenceError
from .token_filter import IndexAnswer, Paths, TokenFilter

FREE_RANGE = 300.0


class Steps(NamedTuple):
    """The scores w of steps, one matrix per token or one for all (`tied`), with e = exp(w - tops).

    free : whether no step is forbidden and scores differ by at most FREE_RANGE.
    """

    w: Floats
    e: Floats
    tops: Floats
    tied: bool
    free: bool

    @classmethod
    def of(cls, w: Array) -> Steps:
        """Return the steps with the scores w, of shape (L, L) or (n, L, L)."""
        tied = w.ndim == 2
        w = np.ascontiguousarray(w.reshape(-1, *w.shape[-2:]), np.float64)
        tops = w.max(axis=(1, 2))
        tops[tops == -np.inf] = 0.0
        e = np.exp(w - tops[:, None, None])
        free = bool(w.max() - w.min() <= FREE_RANGE) if w.size else True
        return cls(w, e, tops, tied, free)

    def part(self, first: int) -> Steps:
        """Return the steps into the tokens from `first` on."""
        return self if self.tied else Steps(self.w[first:], self.e[first:], self.tops[first:], False, self.free)


class Loops(Protocol):
    """Protocol of the loops over tokens, which are compiled in the library, and written with NumPy in the tagger."""

    def filter_tokens(self, before: Floats, s: Floats, steps: Steps, la: Floats) -> int:
        """Write the filtered logarithms of new tokens; return the first token without a possible label, or -1."""

    def smooth(self, la: Floats, s: Floats, steps: Steps, first: int, lag: int, p: Floats) -> None:
        """Write the probabilities of the tokens first, first + 1, ..., one row of p each, given `lag` more tokens."""

    def smooth_rest(self, la: Floats, s: Floats, steps: Steps, end: Floats, p: Floats) -> None:
        """Write the probabilities of all tokens of the window of a sequence that has ended."""

    def decide(self, s: Floats, steps: Steps, la: Floats, paths: Paths, labels: Array) -> int:
        """Continue the paths by new tokens; write the labels that are decided, and return their number."""

    def settle_all(self, value: Floats, paths: Paths, labels: Array) -> int:
        """Write the labels of all undecided tokens on the best path, and return their number."""


class ChainFilter(TokenFilter):
    """The state of a chain of which some tokens have arrived.

    loops : the loops over tokens.
    n_labels, lag, max_delay : the number of labels, and the parameters of the stream; max_delay=None decides nothing.
    w : the scores of steps (L, L); None if each token brings its own.
    allowed : whether a label may follow another, [from, to]; None if all may.
    """

    _arrays = "la", "s", "w", "end"

    def __init__(
        self,
        loops: Loops,
        n_labels: int,
        lag: int,
        max_delay: int | None,
        w: Array | None,
        allowed: Flags | None = None,
    ) -> None:
        if allowed is None:
            allowed = np.ones((n_labels, n_labels), bool)
        paths = None if max_delay is None else Paths.empty(n_labels, max_delay, allowed)
        super().__init__(n_labels, lag, paths)
        self._loops, self._steps = loops, None if w is None else Steps.of(w)
        L, rows = n_labels, (0, n_labels)
        self._la, self._s, self._w, self._end = np.empty(rows), np.empty(rows), np.empty((0, L, L)), np.zeros(L)

    def _shapes(self, m: int) -> dict[str, tuple[int, ...]]:
        L = self._n_labels
        return {"la": (m, L), "s": (m, L), "w": (m if self._steps is None else 0, L, L)}

    def push(self, s: Array, w: Array | None, end: Array) -> IndexAnswer:
        """Add tokens with the scores s (n, L) of labels, and w (n, L, L) of steps unless they are the same for all.

        end : (L,), the scores that the labels of the last of these tokens have if it ends the sequence.

        If the new tokens have no possible labels, raise InfeasibleSequenceError and change nothing.
        """
        s = np.ascontiguousarray(s, np.float64)
        n, n_before, lag = len(s), self.n_tokens, self._lag
        if not n:
            return self._nothing()
        new_steps = self._steps or Steps.of(np.asarray(w))
        la = np.empty(s.shape)
        if (failed := self._loops.filter_tokens(self._la[-1:], s, new_steps, la)) >= 0:
            raise InfeasibleSequenceError(0, n_before + failed)
        newest = np.exp(la)
        decided, first_decided = self._decide(s, new_steps, la)
        base = n_before - len(self._la)
        all_la, all_s = (np.concatenate(both) for both in ((self._la, la), (self._s, s)))
        all_w = self._w if self._steps is not None else np.concatenate([self._w, new_steps.w])
        first = max(0, n_before - lag)
        n_lagged = max(0, n_before + n - lag) - first
        if lag:
            lagged = np.empty((n_lagged, self._n_labels))
            if n_lagged:
                steps = self._steps or Steps.of(all_w)
                self._loops.smooth(all_la, all_s, steps, first - base, lag, lagged)
        else:
            lagged = newest
        kept = slice(-lag - 1, None)
        self._la, self._s, self._w = all_la[kept].copy(), all_s[kept].copy(), all_w[kept].copy()
        self._end, self.n_tokens = np.array(end, np.float64), n_before + n
        return IndexAnswer(newest, first, lagged, first_decided, decided)

    def _decide(self, s: Floats, steps: Steps, la: Floats) -> tuple[Array, int]:
        paths = self._paths
        if paths is None:
            return np.empty(0, np.int64), 0
        first, labels = int(paths.counts[0]), np.empty(len(s) + paths.max_delay + 1, np.int64)
        return labels[: self._loops.decide(s, steps, la, paths, labels)], first

    def finish(self) -> IndexAnswer:
        """End the sequence with the newest token, and return the answers for all tokens that still miss one.

        Raise InfeasibleSequenceError if the newest token has no label with which a sequence may end.
        """
        if not self.n_tokens:
            return self._nothing()
        if (self._la[-1] + self._end).max() == -np.inf:
            raise InfeasibleSequenceError(0, self.n_tokens - 1)
        first = max(0, self.n_tokens - self._lag)
        p = np.empty(self._la.shape)
        self._loops.smooth_rest(self._la, self._s, self._steps or Steps.of(self._w), self._end, p)
        answer = self._nothing()._replace(newest=p[-1:], lagged=p[len(p) - (self.n_tokens - first) :])
        if self._paths is None:
            return answer
        labels = np.empty(len(self._paths.back), np.int64)
        value = self._paths.delta + self._end
        if value.max() == -np.inf:
            # Forced decisions have left no path with which a sequence may end.
            value = self._paths.delta
            self._paths.counts[2] += 1
        return answer._replace(decided=labels[: self._loops.settle_all(value, self._paths, labels)])
