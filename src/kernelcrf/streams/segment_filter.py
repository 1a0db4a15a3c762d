"""Filtering, fixed-lag smoothing and delayed decisions on segments whose tokens arrive one after the other.

`inference.segments` has the scores of segmentations. While a sequence goes on, p(y_t | x_1..x_n) is the answer of the
model to the n tokens that have arrived, without the scores and constraints of last labels. The newest segment has the
duration that it has so far, as if it ended with the newest token: a model of segments says nothing about an end that
has not been seen. Probabilities that allow for longer durations were tried, and labelled tokens worse.

The age of a segment is the number of its tokens so far. After token t, E_t(d, a) is the logarithm of the sum over all
segmentations whose newest segment has the label a and the age d, without the score of its duration. E_t(D, a) is that
of all segments of D tokens or more, with the score u(D, a) of the duration and the tail:

    B_t(a) = log sum_a' exp(A_{t-1}(a') + w(a', a)),   B_1 = 0                           (a segment starts with token t)
    E_t(1, a) = B_t(a) + first_t(a) + s_t(a),          E_t(d, a) = E_{t-1}(d - 1, a) + s_t(a)
    E_t(D, a) = s_t(a) + log [exp(E_{t-1}(D - 1, a) + u(D, a)) + exp(E_{t-1}(D, a) + tail(a))]
    A_t(a) = log [sum_{d < D} exp(E_t(d, a) + u(d, a)) + exp E_t(D, a)] + last_t(a)       (a segment ends with token t)

All of them are normalised by log sum_a exp A_t(a), so that A_t is log p(y_t | x_1..x_t).

For smoothing at a lag, backward messages over the last `lag` tokens give the probabilities that segments start and end
there, from which those of labels follow as in `inference.segments`. This takes O(lag^2 L + lag L^2) operations per
token. Decisions are those of `chain_filter`, for paths into states, each of which is a pair of a label and an age.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from kernelcrf.arrays import Array, Flags, Floats, Ints
from kernelcrf.inference.feasibility import InfeasibleSequenceError
from kernelcrf.inference.loops import segment_streams as loops
from kernelcrf.inference.loops.streams import settle_all
from kernelcrf.readers.segments import SegmentLabels
from kernelcrf.streams.token_filter import IndexAnswer, Paths, TokenFilter


@dataclass(frozen=True, eq=False)
class OpenSegmentScores:
    """The scores of tokens of a sequence that goes on, one row per token and one column per label of segments.

    tokens, first, last : the scores of labels at each token, and at tokens that are the first or the last of a segment.
    end : (L,), the scores that the last of these tokens also has if it ends the sequence.
    """

    tokens: Floats
    first: Floats
    last: Floats
    end: Floats


class SegmentFilter(TokenFilter):
    """The state of segments of which some tokens have arrived.

    spec : the labels of tokens and of segments.
    w, durations, tail : the scores of steps (L, L), of durations (D, L), and of further tokens (L,) or -inf.
    lag, max_delay : the parameters of the stream; max_delay=None decides nothing.
    """

    _arrays = "E", "A", "B", "s", "first", "last", "norm", "end"

    def __init__(
        self, spec: SegmentLabels, w: Array, durations: Array, tail: Array, lag: int, max_delay: int | None
    ) -> None:
        if len(durations) == 1:
            # The loops need a duration that is not the longest one.
            durations = np.vstack([durations, durations + tail])
        D, L = durations.shape
        super().__init__(
            len(spec.classes), lag, None if max_delay is None else Paths.empty(D * L, max_delay, _allowed(spec, w))
        )
        self._spec, self._tail = spec, np.asarray(tail, np.float64)
        self._w, self._durations = (np.ascontiguousarray(x, np.float64) for x in (w, durations))
        is_first = np.repeat(np.arange(D) == 0, L)
        self._label_of = spec.class_of(np.tile(np.arange(L), D), is_first).astype(np.int64)
        rows = (0, L)
        self._E, self._A = np.full((D, L), -np.inf), np.full((1, L), -np.inf)
        self._B, self._s, self._first, self._last = (np.empty(rows) for _ in range(4))
        self._norm, self._end = np.empty(0), np.zeros(L)

    def _shapes(self, m: int) -> dict[str, tuple[int, ...]]:
        L = len(self._tail)
        rows = dict.fromkeys(("B", "s", "first", "last"), (m, L))
        return {**rows, "norm": (m,), "A": (m + 1, L)}

    def push(self, scores: OpenSegmentScores) -> IndexAnswer:
        """Add tokens with these scores; if they have no possible labels, raise an error and change nothing."""
        n, n_before, lag = len(scores.tokens), self.n_tokens, self._lag
        if not n:
            return self._nothing()
        s, first, last = (np.ascontiguousarray(x, np.float64) for x in (scores.tokens, scores.first, scores.last))
        E, (B, nodes, starts), norm = self._E.copy(), np.empty((3, *s.shape)), np.empty(n)
        A = np.concatenate([self._A[-1:], np.empty_like(s)])
        rules = self._durations, self._tail
        w_T = np.ascontiguousarray(self._w.T)
        failed = loops.filter_tokens(s, first, last, w_T, *rules, E, B, A, norm, nodes, starts)
        if failed >= 0:
            raise InfeasibleSequenceError(0, n_before + failed)
        newest = self._probabilities(nodes, starts)
        decided, first_decided = self._decide(s, first, last)
        base, added = n_before - len(self._s), {"B": B, "s": s, "first": first, "last": last}
        window = {name: np.concatenate([getattr(self, f"_{name}"), rows]) for name, rows in added.items()}
        window |= {"A": np.concatenate([self._A, A[1:]]), "norm": np.concatenate([self._norm, norm])}
        start = max(0, n_before - lag)
        out = np.empty((2, max(0, n_before + n - lag) - start, s.shape[1]))
        lagged = newest
        if lag:
            if out.shape[1]:
                loops.smooth_all(
                    start - base, lag, *self._scores(window), window["B"], window["A"], window["norm"], out
                )
            lagged = self._probabilities(*out)
        for name, rows in window.items():
            setattr(self, f"_{name}", rows[-lag - 1 - (name == "A") :].copy())
        self._E, self._end, self.n_tokens = E, np.array(scores.end, np.float64), n_before + n
        return IndexAnswer(newest, start, lagged, first_decided, decided)

    def _scores(self, window: dict[str, Array]) -> tuple[Array, ...]:
        """Return the scores of the tokens of a window, and of steps and durations, as the loops take them."""
        return window["s"], window["first"], window["last"], self._w, self._durations, self._tail

    def _probabilities(self, nodes: Floats, starts: Floats) -> Floats:
        """Return the probabilities of the labels of tokens."""
        p = self._spec.probabilities(nodes, starts)
        return np.asarray(p / p.sum(axis=1, keepdims=True))

    def _decide(self, s: Floats, first: Floats, last: Floats) -> tuple[Ints, int]:
        paths = self._paths
        if paths is None:
            return np.empty(0, np.int64), 0
        at, labels = int(paths.counts[0]), np.empty(len(s) + paths.max_delay + 1, np.int64)
        before = np.zeros(len(self._tail)) if not self.n_tokens else self._last[-1].copy()
        n = loops.decide(
            s, first, last, self._w, self._durations, self._tail, paths.delta, paths.back, paths.root, paths.counts,
            self._label_of, paths.allowed, paths.max_delay, before, labels,
        )  # fmt: skip
        return labels[:n], at

    def open_segments(self) -> Floats:
        """Return the probabilities of the newest segments, (D, L), one row per age.

        The last row belongs to all segments of D tokens or more.
        """
        return np.asarray(np.exp(self._E + self._ends))

    @property
    def _ends(self) -> Floats:
        """Return the scores of segments that end with the newest token, as far as E does not contain them, (D, L)."""
        ends: Floats = self._durations + self._last[-1]
        ends[-1] = self._last[-1]
        return ends

    def finish(self) -> IndexAnswer:
        """End the sequence with the newest token, and return the answers for all tokens that still miss one."""
        if not self.n_tokens:
            return self._nothing()
        if (self._A[-1] + self._end).max() == -np.inf:
            raise InfeasibleSequenceError(0, self.n_tokens - 1)
        n, out = len(self._s), np.empty((2, *self._s.shape))
        scores = self._scores({"s": self._s, "first": self._first, "last": self._last})
        loops.smooth(0, n - 1, *scores, self._end, self._B, self._A, self._norm, out)
        p = self._probabilities(*out)
        answer = self._nothing()._replace(newest=p[-1:], lagged=p[n - min(self.n_tokens, self._lag) :])
        if self._paths is None:
            return answer
        value = (self._paths.delta.reshape(self._durations.shape) + self._ends + self._end).ravel()
        if value.max() == -np.inf:
            # Forced decisions have left no path with which a sequence may end.
            value = self._paths.delta
            self._paths.counts[2] += 1
        labels, paths = np.empty(len(self._paths.back), np.int64), self._paths
        n_decided = settle_all(value, paths.back, paths.counts, self._label_of, labels, 0)
        return answer._replace(decided=labels[:n_decided])


def _allowed(spec: SegmentLabels, w: Array) -> Flags:
    """Return whether the label of a token may follow another, [from, to]."""
    same = spec.of_class[:, None] == spec.of_class
    steps = (w > -np.inf)[np.ix_(spec.of_class, spec.of_class)]
    return np.asarray((same & spec.continues) | (steps & spec.opens))
