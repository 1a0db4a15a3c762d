"""The compiled loops over the tokens of a stream, behind the protocol that `chain_filter` defines."""

from __future__ import annotations

from itertools import pairwise

import numpy as np

from kernelcrf.arrays import Array, Floats, Labels
from kernelcrf.graphs.structure import Chains
from kernelcrf.inference.loops import streams as loops
from kernelcrf.streams.chain_filter import ChainFilter, Steps
from kernelcrf.streams.token_filter import Paths


class CompiledLoops:
    """Loops that Numba compiles; `chain_filter.Loops` explains the methods."""

    def filter_tokens(self, before: Floats, s: Floats, steps: Steps, la: Floats) -> int:
        """Write the filtered logarithms of new tokens; return the first token without a possible label, or -1."""
        return int(loops.filter_tokens(before, s, steps.w, steps.e, steps.tops, steps.tied, la))

    def smooth(self, la: Floats, s: Floats, steps: Steps, first: int, lag: int, p: Floats) -> None:
        """Write the probabilities of the tokens first, first + 1, ..., one row of p each, given `lag` more tokens."""
        if steps.free:
            part = slice(first, first + len(p) + lag)
            # One column per token: operations on long rows are fast.
            u, alpha = np.ascontiguousarray(s[part].T), np.exp(la[part].T, order="C")
            u = np.exp(u - u.max(axis=0))
            out = np.empty(p.T.shape)
            e = steps.part(first).e
            loops.smooth_scaled(alpha, u, e, steps.tied, 0, lag, out)
            p[:] = out.T
        else:
            loops.smooth(la, s, steps.w, steps.e, steps.tops, steps.tied, first, lag, p)

    def smooth_rest(self, la: Floats, s: Floats, steps: Steps, end: Floats, p: Floats) -> None:
        """Write the probabilities of all tokens of the window of a sequence that has ended."""
        loops.smooth_rest(la, s, steps.w, steps.e, steps.tops, steps.tied, end, p)

    def decide(self, s: Floats, steps: Steps, la: Floats, paths: Paths, labels: Array) -> int:
        """Continue the paths by new tokens; write the labels that are decided, and return their number."""
        state = paths.delta, paths.back, paths.root, paths.counts, paths.allowed
        return int(loops.decide_chain(s, steps.w, steps.tied, la, *state, paths.max_delay, labels))

    def settle_all(self, value: Floats, paths: Paths, labels: Array) -> int:
        """Write the labels of all undecided tokens on the best path, and return their number."""
        states = np.arange(len(value))
        return int(loops.settle_all(value, paths.back, paths.counts, states, labels, 0))


def labels_at_lag(s: Array, w: Array, chains: Chains, lag: int) -> Labels:
    """Return the likeliest label of each token given the tokens up to `lag` tokens later, for whole sequences.

    s, w : the scores of labels (N, L), and of steps (L, L) or (N, L, L). Scores of last labels are part of s.
    """
    labels, L = np.empty(len(s), np.int32), s.shape[1]
    for low, high in pairwise(chains.offsets.tolist()):
        live = ChainFilter(CompiledLoops(), L, lag, None, w if w.ndim == 2 else None)
        parts = [live.push(s[low:high], None if w.ndim == 2 else w[low:high], np.zeros(L)), live.finish()]
        labels[low:high] = np.concatenate([part.lagged for part in parts]).argmax(axis=1)
    return labels
