"""Compute log-partitions, marginals and entropies of sequences.

The labels y of a sequence x have the probability (equations 4 and 25 of the paper)

    p(y|x) proportional to exp(sum_t s_t(y_t) + sum_{t>1} w_t(y_{t-1}, y_t)).

All functions take m sequences with N tokens in total, stored one after the other. `scores` (N, L) contains the scores
s_t(j) of the L labels, one row per token. `transitions` contains the scores w_t(i, j) of a step from label i at token
t-1 to label j at token t. It is one matrix (L, L) for all tokens, or has one matrix per token, (N, L, L). The matrix of
the first token of a sequence is then not used. `chains` says which rows belong to which sequence. A score of -inf
forbids a label or a step. Results have one entry per sequence or one row per token.

Messages are scaled to sum to one at each token. Sequences whose numbers would underflow are computed again with
logarithms.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import numpy.typing as npt

from kernelcrf.arrays import Array, Floats
from kernelcrf.graphs.structure import Chains
from kernelcrf.inference.batch import Batch
from kernelcrf.inference.chain_messages import write_entropies
from kernelcrf.inference.logspace import LogMessages
from kernelcrf.inference.loops import decoding as decoding_loops
from kernelcrf.inference.scaled import ScaledMessages
from kernelcrf.inference.tangents import ChainMoments, Linearisation


def log_partition(scores: npt.ArrayLike, transitions: npt.ArrayLike, chains: Chains, *, n_threads: int = 1) -> Floats:
    """Return the log-partition of each sequence: log sum_y exp(score of the labelling y)."""

    def work(blocks: Iterator[ScaledMessages]) -> None:
        for _ in blocks:
            pass

    return Batch.of(scores, transitions, chains).infer(work, lambda sample, messages: None, n_threads)[0]


def moments(scores: npt.ArrayLike, transitions: npt.ArrayLike, chains: Chains, *, n_threads: int = 1) -> ChainMoments:
    """Return the log-partitions, node marginals and edge marginals, computed in one forward-backward pass."""
    return Linearisation.of(Batch.of(scores, transitions, chains), n_threads, keep=False).moments


def edge_marginals(scores: npt.ArrayLike, transitions: npt.ArrayLike, chains: Chains, *, n_threads: int = 1) -> Array:
    """Return the edge marginals p(y_{t-1} = i, y_t = j) of neighbouring tokens.

    The result has the shape (N, L, L) for N tokens and L labels: one matrix, indexed [i, j], per token t. The matrix of
    the first token of each sequence is zero.
    """
    batch = Batch.of(scores, transitions, chains)
    return Linearisation.of(batch, n_threads, keep=False, summed=False).moments.edges


def entropy(scores: npt.ArrayLike, transitions: npt.ArrayLike, chains: Chains, *, n_threads: int = 1) -> Floats:
    """Return the entropy -sum_y p(y|x) log p(y|x) of each sequence; `chain_messages` has the formula."""
    batch, result = Batch.of(scores, transitions, chains), np.empty(chains.n_samples)

    def redo(sample: int, messages: LogMessages) -> None:
        result[sample] = messages.entropy

    batch.infer(lambda blocks: write_entropies(batch, blocks, result), redo, n_threads)
    return result


def labelling_scores(
    scores: npt.ArrayLike, transitions: npt.ArrayLike, chains: Chains, labels: npt.ArrayLike
) -> Floats:
    """Return the total score of the given labels for each sequence.

    labels : (N,) integers, the label of each token as a column index of `scores`.
    """
    batch = Batch.of(scores, transitions, chains)
    y = np.asarray(labels)
    if y.shape != (chains.n_nodes,) or not np.issubdtype(y.dtype, np.integer):
        raise ValueError(
            f"labels has shape {y.shape} and dtype {y.dtype}: expected integers of shape ({chains.n_nodes},), "
            "one per token"
        )
    if y.size and not (y.min() >= 0 and y.max() < batch.n_labels):
        raise ValueError(
            f"labels has values from {y.min()} to {y.max()}: "
            f"expected column indices of scores, from 0 to {batch.n_labels - 1}"
        )
    result = np.empty(chains.n_samples)
    w = batch.transitions[None] if batch.tied else batch.transitions
    decoding_loops.labelling_scores(batch.scores, w, batch.tied, chains.offsets, y, result)
    return result


def log_prob(
    scores: npt.ArrayLike, transitions: npt.ArrayLike, chains: Chains, labels: npt.ArrayLike, *, n_threads: int = 1
) -> Floats:
    """Return the log-probability log p(labels|x) of each sequence; it is -inf if the labels are forbidden."""
    score = labelling_scores(scores, transitions, chains, labels)
    return score - log_partition(scores, transitions, chains, n_threads=n_threads)
