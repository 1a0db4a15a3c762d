"""The loops over the tokens of a stream, written with NumPy; `streams.chain_filter` has the formulas."""

from __future__ import annotations

import numpy as np

from ..arrays import Array, Floats
from ..streams.chain_filter import Steps
from ..streams.token_filter import Paths
from .chain import log_sum, normalised

# The largest number of pairs of labels of the tokens whose backward messages are computed side by side.
MOST_PAIRS = 2**20


# A probability of 0 has the logarithm -inf.
quietly = np.errstate(divide="ignore", under="ignore")


class NumpyLoops:
    """Loops over tokens; `chain_filter.Loops` explains the methods."""

    @quietly
    def filter_tokens(self, before: Floats, s: Floats, steps: Steps, la: Floats) -> int:
        """Write the filtered logarithms of new tokens; return the first token without a possible label, or -1."""
        latest = before[-1] if len(before) else None
        for t, scores in enumerate(s):
            now = scores
            if latest is not None:
                now = scores + log_sum(latest[:, None] + steps.w[0 if steps.tied else t], 0)
            top = now.max()
            if top == -np.inf:
                return t
            latest = now - (top + np.log(np.exp(now - top).sum()))
            la[t] = latest
        return -1

    @quietly
    def smooth(self, la: Floats, s: Floats, steps: Steps, first: int, lag: int, p: Floats) -> None:
        """Write the probabilities of the tokens first, first + 1, ..., one row of p each, given `lag` more tokens."""
        size = max(1, MOST_PAIRS // s.shape[1] ** 2)
        for low in range(0, len(p), size):
            rows = np.arange(first + low, first + min(low + size, len(p)))
            smooth_rows = self._smooth_scaled if steps.free else self._smooth_logarithms
            p[low : low + size] = smooth_rows(la, s, steps, rows, lag)

    def _smooth_scaled(self, la: Floats, s: Floats, steps: Steps, rows: Array, lag: int) -> Floats:
        b = np.ones((len(rows), s.shape[1]))
        for at in range(lag, 0, -1):
            later = s[rows + at]
            b *= np.exp(later - later.max(axis=1, keepdims=True))
            b = b @ steps.e[0].T if steps.tied else np.einsum("tij,tj->ti", steps.e[rows + at], b)
            b /= b.max(axis=1, keepdims=True)
        p = np.exp(la[rows]) * b
        return np.asarray(p / p.sum(axis=1, keepdims=True))

    def _smooth_logarithms(self, la: Floats, s: Floats, steps: Steps, rows: Array, lag: int) -> Floats:
        lb = np.zeros((len(rows), s.shape[1]))
        for at in range(lag, 0, -1):
            lb = log_sum(steps.w[0 if steps.tied else rows + at] + (s[rows + at] + lb)[:, None, :], 2)
        return normalised(la[rows] + lb)

    @quietly
    def smooth_rest(self, la: Floats, s: Floats, steps: Steps, end: Floats, p: Floats) -> None:
        """Write the probabilities of all tokens of the window of a sequence that has ended."""
        lb = end
        for t in range(len(s) - 1, -1, -1):
            p[t] = normalised((la[t] + lb)[None])[0]
            lb = log_sum(steps.w[0 if steps.tied else t] + (s[t] + lb), 1)

    def decide(self, s: Floats, steps: Steps, la: Floats, paths: Paths, labels: Array) -> int:
        """Continue the paths by new tokens; write the labels that are decided, and return their number."""
        states, n = np.arange(s.shape[1]), 0
        for r, scores in enumerate(s):
            came, now = states, scores
            if paths.counts[1]:
                sums = paths.delta[:, None] + steps.w[0 if steps.tied else r]
                came = sums.argmax(axis=0)
                now = sums[came, states] + scores
            if now.max() == -np.inf:
                n += self.settle_all(paths.delta, paths, labels[n:])
                paths.counts[2] += 1
                now = np.where(la[r] > -np.inf, scores, -np.inf)
            paths.delta = now - now.max()
            n += self._settle(came, paths, labels[n:])
        return n

    def _settle(self, came: Array, paths: Paths, labels: Array) -> int:
        """Take one more token, and decide the labels on which all paths agree; return the number of these labels."""
        counts, states, n = paths.counts, np.arange(len(came)), 0
        t, size = int(counts[1]), len(paths.back)
        counts[1] += 1
        paths.back[t % size] = came
        paths.root = states.copy() if counts[0] == t else paths.root[came]
        if counts[0] == t:
            self._follow(paths)
        while counts[0] <= t:
            alive = paths.delta > -np.inf
            label = int(paths.root[paths.delta.argmax()])
            if not (paths.root[alive] == label).all():
                if t - counts[0] < paths.max_delay:
                    break
                counts[2] += 1
            labels[n] = counts[3] = label
            n += 1
            counts[0] += 1
            paths.root = states.copy()
            for at in range(t, int(counts[0]), -1):
                paths.root = paths.back[at % size][paths.root]
            if counts[0] <= t:
                self._follow(paths)
        return n

    def _follow(self, paths: Paths) -> None:
        """Give up the paths whose first undecided label may not follow the last decided one, unless no path is left."""
        last = int(paths.counts[3])
        if last >= 0:
            may_follow = paths.allowed[last, paths.root]
            if (paths.delta[may_follow] > -np.inf).any():
                paths.delta[~may_follow] = -np.inf

    def settle_all(self, value: Floats, paths: Paths, labels: Array) -> int:
        """Write the labels of all undecided tokens on the best path, and return their number."""
        first, end = paths.counts[:2].tolist()
        state = int(value.argmax())
        for at in range(end - 1, first - 1, -1):
            labels[at - first] = state
            state = paths.back[at % len(paths.back), state]
        paths.counts[0] = end
        if end > first:
            paths.counts[3] = labels[end - first - 1]
        return int(end - first)
