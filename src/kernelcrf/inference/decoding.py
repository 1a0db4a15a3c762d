"""Find the best labelling or the k best labelings of chains, and draw exact samples.

With the scores s_t of the labels at token t and the scores w_t of steps into token t, Viterbi's recursion is

    delta_t(j) = s_t(j) + max_i [delta_{t-1}(i) + w_t(i, j)].

It runs in float64. If labels have equal values delta_t(j), the first of them is chosen. To find the k best labelings,
the k best values of each label are kept: at each token, the sorted lists of the previous token's labels are merged.
This takes O(T L^2 k) operations for T tokens and L labels.

`rivals` takes labels y, and extra scores for tokens whose label differs from y. It runs the recursion forwards and
backwards. For token t and label j, the maxima of both directions sum to the best score of a labelling with label j at
token t. The result for token t is the largest of these sums over all labels j other than y_t.

`chain_messages` says how samples are drawn.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from kernelcrf.arrays import Array, Floats, Ints, Labels
from kernelcrf.engines.bounds import all_within
from kernelcrf.graphs.structure import Chains
from kernelcrf.inference.batch import LARGEST, Batch
from kernelcrf.inference.chain_messages import ChainMessages
from kernelcrf.inference.feasibility import reason
from kernelcrf.inference.loops import decoding as loops
from kernelcrf.inference.scaled import Block


@dataclass(frozen=True)
class Ranked:
    """The best labelings of one sequence, best first.

    labelings : (k, T), one row per labelling and one column per token; fewer rows if fewer labelings are allowed.
    scores : (k,), the total score of each labelling.
    """

    labelings: Labels
    scores: Floats


def viterbi(
    scores: npt.ArrayLike, transitions: npt.ArrayLike, chains: Chains, *, n_threads: int = 1
) -> tuple[Labels, Floats]:
    """Return the labels with the highest total score, one per token, and this score, one per sequence."""
    batch = Batch.of(scores, transitions, chains)
    labels, best = np.empty(chains.n_nodes, np.int32), np.empty(chains.n_samples)
    pointer = np.min_scalar_type(batch.n_labels - 1)

    def decode(s: Array, w: Array, offsets: Ints, own_labels: Labels, own_best: Floats) -> None:
        back = np.empty(s.shape, pointer)
        loops.viterbi(s, w[None] if batch.tied else w, batch.tied, offsets, back, own_labels, own_best)

    def work(blocks: Iterator[Block]) -> None:
        for block in blocks:
            decode(block.scores, block.transitions, block.offsets, labels[block.nodes], best[block.samples])

    if batch.is_small:
        decode(batch.scores, batch.transitions, chains.offsets, labels, best)
    else:
        batch.map_tasks(work, n_threads)
    _raise_if_infeasible(batch, best)
    return labels, best


def rivals(
    scores: npt.ArrayLike, transitions: npt.ArrayLike, chains: Chains, labels: Labels, extra: Floats, detour: Floats
) -> Floats:
    """Return, for each token t, the best score of a labelling whose label at token t differs from the given label.

    This score is relative: the score of the given labels is subtracted. It contains an extra score for each token whose
    label differs from the given label. The result for a token is -inf if all its other labels are forbidden.

    labels : (N,), the given labels.
    extra : (N, L), the extra score of each label of a token; it must be 0 for the given label.
    detour : (N,), the extra score of a token that has its given label although the previous token does not.
    """
    batch = Batch.of(scores, transitions, chains)
    w, rival = batch.transitions[None] if batch.tied else batch.transitions, np.empty(chains.n_nodes)
    ahead = np.empty((chains.n_nodes, batch.n_labels))
    loops.rivals(batch.scores, w, batch.tied, chains.offsets, labels, extra, detour, ahead, rival)
    return rival


def k_best(
    scores: npt.ArrayLike, transitions: npt.ArrayLike, chains: Chains, k: int, *, n_threads: int = 1
) -> list[Ranked]:
    """Return the k best labelings of each sequence, or fewer if scores of -inf forbid the others."""
    if k < 1:
        raise ValueError(f"k={k!r}: expected the number of labelings to return, at least 1")
    batch = Batch.of(scores, transitions, chains)

    def rank(sample: int) -> Ranked:
        s, w = batch.sequence(sample)
        if not len(s):
            return Ranked(np.empty((1, 0), np.int32), np.zeros(1))
        labelings, best = np.empty((k, len(s)), np.int32), np.empty(k)
        count = loops.k_best(s, w[None] if batch.tied else w, batch.tied, k, labelings, best)
        return Ranked(labelings[:count], best[:count])

    def work(blocks: Iterator[Block]) -> list[Ranked]:
        return [rank(i) for block in blocks for i in range(block.samples.start, block.samples.stop)]

    result = [item for task in batch.map_tasks(work, n_threads) for item in task]
    _raise_if_infeasible(batch, np.array([item.scores[0] if len(item.scores) else -np.inf for item in result]))
    return result


def sample(
    scores: npt.ArrayLike,
    transitions: npt.ArrayLike,
    chains: Chains,
    n_samples: int,
    rng: np.random.Generator,
    *,
    n_threads: int = 1,
) -> Labels:
    """Draw labelings from p(y|x); return an array of shape (n_samples, N), one row per draw, one column per token."""
    return ChainMessages.of(scores, transitions, chains, n_threads=n_threads).sample(n_samples, rng)


def _raise_if_infeasible(batch: Batch, best: Floats) -> None:
    if not all_within(best, -LARGEST, np.inf):
        sequence = int(best.argmin())
        raise reason(sequence, *batch.sequence(sequence))
