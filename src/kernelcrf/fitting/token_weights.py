"""Weights of single tokens, as weighted conditional likelihoods of parts of sequences.

Let omega_t >= 0 be the weight of token t of a sequence, and 0 = v_0 < v_1 < ... < v_K the distinct values of these
weights. S_k is the set of tokens with omega_t >= v_k. The loss of the sequence is

    sum_k (v_k - v_{k-1}) [-log p(y_S | y_R, x)],    S = S_k, and R = all other tokens.

Each summand is the log-partition over all labellings that agree with y on R, minus the score of y. So the loss is
convex, and each summand has the same lower bounds as the loss of a sequence. If all weights are equal, the loss is that
of a weighted sequence. If labels do not depend on each other, it is sum_t omega_t [-log p(y_t | x)]. If the weights
never decrease from left to right, it is sum_t omega_t [-log p(y_t | y_1, ..., y_{t-1}, x)].

Given R, the other tokens form runs that are independent of each other. `layers` makes a sequence of each run in S_k,
with the neighbours of the run, whose labels are conditions, and the weight v_k - v_{k-1}. All other scores of tokens in
R are the same in both terms and cancel, and so do those of first and last labels.

A token that may have several labels is part of its run even if its weight is small: the condition is then that it has
one of these labels. So a token without any known label is missing, whatever its weight is.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from kernelcrf.arrays import Array, Flags, Floats, Ints, Places
from kernelcrf.graphs.structure import Chains


@dataclass(frozen=True, eq=False)
class Pieces:
    """The places of pieces in the sequences that they replace, and the labels that are conditions.

    given : one flag per token, which says whether its label is a condition.
    starts : for each piece, the position of its first token in its sequence.
    lengths : for each piece, the number of tokens of its sequence.
    layers : the number k of each piece, minus 1. Each token of a positive weight is in one piece of layer 0.
    """

    given: Flags
    starts: Ints
    lengths: Ints
    layers: Ints

    def take(self, nodes: Places, samples: Array) -> Pieces:
        """Return the given tokens and pieces."""
        return Pieces(self.given[nodes], self.starts[samples], self.lengths[samples], self.layers[samples])


@dataclass(frozen=True, eq=False)
class Layers:
    """Pieces of sequences, the tokens and the sequences that they come from, and their weights."""

    pieces: Pieces
    nodes: Places
    samples: Places
    chains: Chains
    weights: Floats


def layers(chains: Chains, weights: Floats, allowed: Flags | None) -> Layers:
    """Return the pieces of sequences that replace sequences with weights of tokens.

    weights : the weight of each token.
    allowed : flags that say which labels each token may have, or None if each token has one label.
    """
    fixed, missing = np.ones(len(weights), bool), np.zeros(len(weights), bool)
    if allowed is not None:
        fixed, missing = np.asarray(allowed.sum(axis=1) == 1), np.asarray(allowed.all(axis=1))
        weights = np.where(missing, 0.0, weights)
    rows: list[tuple[int, int, int, int, float]] = []
    given: list[Flags] = []
    for i, (low, high) in enumerate(zip(chains.offsets[:-1].tolist(), chains.offsets[1:].tolist(), strict=True)):
        of_sequence, before = weights[low:high], 0.0
        for k, value in enumerate(np.unique(of_sequence[of_sequence > 0]).tolist()):
            scored = of_sequence >= value
            for start, end in _runs(scored | ~fixed[low:high]):
                if scored[start:end].any():
                    first, last = max(start - 1, 0), min(end + 1, high - low)
                    rows.append((i, k, first, last, value - before))
                    given.append(~(scored | missing[low:high])[first:last])
            before = value
    samples, numbers, firsts, lasts = np.array([row[:4] for row in rows], np.int64).reshape(-1, 4).T
    sizes = lasts - firsts
    of_pieces = Chains.from_lengths(sizes)
    starts = chains.offsets[samples] + firsts
    nodes = np.arange(of_pieces.n_nodes) + np.repeat(starts - of_pieces.offsets[:-1], sizes)
    flags = np.concatenate(given) if given else np.zeros(0, bool)
    in_data = samples if chains.numbers is None else chains.numbers[samples]
    return Layers(
        Pieces(flags, firsts, chains.lengths[samples], numbers),
        nodes,
        samples,
        Chains(of_pieces.offsets, in_data),
        np.array([row[4] for row in rows]),
    )


def _runs(flags: Flags) -> list[tuple[int, int]]:
    """Return (start, end) of each run of neighbouring flags that are True; `end` is the index after the last one."""
    edges = np.flatnonzero(np.diff(np.concatenate([[False], flags, [False]])))
    return list(zip(edges[::2].tolist(), edges[1::2].tolist(), strict=True))
