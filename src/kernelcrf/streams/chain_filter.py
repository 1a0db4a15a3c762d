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
tokens, the label is that of the best path so far. This is a forced decision: paths with another label are given up, so
that all labels together are a path that the constraints allow. Without forced decisions, the labels are those of the
likeliest labelling of the whole sequence. If later constraints leave no path, the undecided labels are those of the
best path before, and the recursion starts again at the newest token, which counts as a forced decision too.

All numbers are float64. Messages are normalised at each token, so that nothing grows with the length of a stream. If
steps are not forbidden and their scores differ by at most FREE_RANGE, backward messages are products, as in
`inference.scaled`, which says why this is exact. Otherwise, they are logarithms.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

import numpy as np

from ..arrays import Array, Arrays, Floats
from ..inference.feasibility import InfeasibleSequenceError
from ..validation import shown

FREE_RANGE = 300.0
# The arrays of the window of the last tokens, and those of the paths.
WINDOW, PATHS = ("la", "s", "w", "end"), ("delta", "back", "root", "counts")


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


@dataclass
class Paths:
    """The best path into each of K states of the newest token, as far as its labels are undecided.

    delta : (K,), the scores of the paths, relative to the best.
    back : for each undecided token, the state of the token before on the path into each state.
    root : (K,), the label of the first undecided token on each path.
    counts : the first undecided token, the number of tokens, and the number of forced decisions.
    """

    delta: Floats
    back: Array
    root: Array
    counts: Array

    @classmethod
    def empty(cls, n_states: int, max_delay: int) -> Paths:
        """Return the paths before the first token."""
        back = np.zeros((max_delay + 2, n_states), np.int64)
        return cls(np.zeros(n_states), back, np.zeros(n_states, np.int64), np.zeros(3, np.int64))

    @property
    def max_delay(self) -> int:
        """Return how many tokens after a token its label is decided at the latest."""
        return len(self.back) - 2

    def copy(self) -> Paths:
        """Return a copy."""
        return Paths(self.delta.copy(), self.back.copy(), self.root.copy(), self.counts.copy())


class IndexAnswer(NamedTuple):
    """The answer to new tokens, with labels as indices: filtered and lagged probabilities, and decided labels."""

    newest: Floats
    first_lagged: int
    lagged: Floats
    first_decided: int
    decided: Array


class ChainFilter:
    """The state of a chain of which some tokens have arrived.

    loops : the loops over tokens.
    n_labels, lag, max_delay : the number of labels, and the parameters of the stream; max_delay=None decides nothing.
    w : the scores of steps (L, L); None if each token brings its own.
    """

    def __init__(self, loops: Loops, n_labels: int, lag: int, max_delay: int | None, w: Array | None) -> None:
        self._loops, self._n_labels, self._lag = loops, n_labels, lag
        self._steps = None if w is None else Steps.of(w)
        self.n_tokens = 0
        L, rows = n_labels, (0, n_labels)
        self._la, self._s, self._w, self._end = np.empty(rows), np.empty(rows), np.empty((0, L, L)), np.zeros(L)
        self._paths = None if max_delay is None else Paths.empty(L, max_delay)

    @property
    def n_forced(self) -> int:
        """Return the number of forced decisions."""
        return 0 if self._paths is None else int(self._paths.counts[2])

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

    def _nothing(self) -> IndexAnswer:
        none = np.empty((0, self._n_labels))
        first = 0 if self._paths is None else int(self._paths.counts[0])
        return IndexAnswer(none, max(0, self.n_tokens - self._lag), none, first, np.empty(0, np.int64))

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

    def state(self) -> Arrays:
        """Return everything that the answers to later tokens depend on, besides the model, as arrays."""
        sizes = self.n_tokens, self._lag, -1 if self._paths is None else self._paths.max_delay
        arrays = {"sizes": np.array(sizes, np.int64)} | {name: getattr(self, f"_{name}").copy() for name in WINDOW}
        if self._paths is not None:
            arrays |= vars(self._paths.copy())
        return arrays

    def restore(self, state: Mapping[str, Any]) -> None:
        """Continue from a state that `state` has returned; raise ValueError if it does not fit this stream."""
        L, own = self._n_labels, self.state()
        arrays = {name: np.asarray(state[name]) for name in own if name in state}
        sizes, expected_sizes = arrays.get("sizes"), own["sizes"][1:].tolist()
        if sizes is None or sizes.shape != (3,) or sizes[1:].tolist() != expected_sizes or not sizes[0] >= 0:
            raise ValueError(
                f"state['sizes'] is {shown(None if sizes is None else sizes.tolist())}: expected three integers: the "
                f"number of tokens, and {expected_sizes}, the lag and the max_delay (-1 for None) of this stream. "
                "Make the stream with the parameters of the one that was saved"
            )
        n_tokens = int(sizes[0])
        m = min(n_tokens, self._lag + 1)
        shapes = {"la": (m, L), "s": (m, L), "w": (m if self._steps is None else 0, L, L)}
        for name, expected in own.items():
            shape, found = shapes.get(name, expected.shape), arrays.get(name)
            fits = found is not None and found.shape == shape and found.dtype == expected.dtype
            if found is None or not fits or not (found < np.inf).all():
                what = "missing" if found is None else f"an array of {found.dtype} and shape {found.shape}"
                raise ValueError(
                    f"state[{name!r}] is {what}: expected {expected.dtype} of shape {shape}, without NaN. Pass what "
                    "`state` of a stream of the same model has returned"
                )
        if self._paths is not None:
            counts, back, root = (arrays[name] for name in ("counts", "back", "root"))
            first, n_seen, n_forced = counts.tolist()
            in_range = all(((x >= 0) & (x < own["delta"].size)).all() for x in (back, root))
            if not (in_range and n_seen == n_tokens and n_forced >= 0 and 0 <= n_seen - first <= len(back) - 1):
                raise ValueError(
                    f"state['counts'] is {shown(counts.tolist())}, and the largest state of 'back' is {back.max()}: "
                    "expected numbers of this stream. Pass what `state` has returned, unchanged"
                )
            self._paths = Paths(*(arrays[name].copy() for name in PATHS))
        self.n_tokens = n_tokens
        self._la, self._s, self._w, self._end = (arrays[name].copy() for name in WINDOW)
