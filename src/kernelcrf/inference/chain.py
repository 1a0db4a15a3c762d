"""Moments of a chain: p(y|x) proportional to exp(sum_t s_t(y_t) + sum_{t>1} w_t(y_{t-1}, y_t)), as in (4), (25).

All functions take a ragged batch stored flat: scores (N, L), transitions (L, L) for all tokens or (N, L, L), and the
`Chains` that say which rows belong to which sequence. Matrix t scores the step from t-1 to t; those of first tokens are
not read. -inf forbids a label or a step. Messages are computed in scaled space; the few sequences whose range it cannot
represent are computed in log space.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TypeVar

import numpy as np
import numpy.typing as npt

from kernelcrf.arrays import Array, Flags, Floats
from kernelcrf.engines.local import LocalEngine
from kernelcrf.graphs.structure import Chains
from kernelcrf.inference import scaled
from kernelcrf.inference.batch import Batch, Block
from kernelcrf.inference.feasibility import reason
from kernelcrf.inference.logspace import LogMessages
from kernelcrf.inference.loops import decoding as decoding_loops

Result = TypeVar("Result")
Task = tuple[tuple[Block, scaled.ScaledMessages], ...]


@dataclass(frozen=True)
class ChainMoments:
    """Moments of a batch (Proposition 2).

    log_partition : (m,) float64, g(theta; x) of each sequence.
    nodes : (N, L), p(y_t = j).
    edges : the gradient of sum(log_partition) in the transitions, of their shape: the edge marginals summed over
        the batch, (L, L) float64, if transitions are tied; else each of them, (N, L, L), zero at first tokens.
    """

    log_partition: Floats
    nodes: Array
    edges: Array


def log_partition(scores: npt.ArrayLike, transitions: npt.ArrayLike, chains: Chains, *, n_threads: int = 1) -> Floats:
    """Return the logarithm of g(theta; x) (5) of each sequence, (m,)."""
    batch = Batch.of(scores, transitions, chains)
    result, failed = np.empty(chains.n_samples), np.zeros(chains.n_samples, dtype=bool)

    def work(blocks: Iterator[Block]) -> None:
        for block in blocks:
            own = block.samples
            scaled.forward(block.scores, block.offsets, block.edges, result[own], failed[own])

    batch.map_tasks(work, n_threads)

    def redo(sample: int, messages: LogMessages) -> None:
        result[sample] = messages.log_partition

    redone(batch, failed, redo, n_threads)
    return result


def moments(scores: npt.ArrayLike, transitions: npt.ArrayLike, chains: Chains, *, n_threads: int = 1) -> ChainMoments:
    """Return log-partitions, node marginals and edge marginals from one forward-backward pass."""
    return forward_backward(Batch.of(scores, transitions, chains), n_threads, keep=False).moments


def edge_marginals(scores: npt.ArrayLike, transitions: npt.ArrayLike, chains: Chains, *, n_threads: int = 1) -> Array:
    """Return p(y_{t-1} = i, y_t = j) at every token, (N, L, L); zero at first tokens."""
    batch = Batch.of(scores, transitions, chains)
    result, failed = np.empty(chains.n_samples), np.zeros(chains.n_samples, dtype=bool)
    nodes = np.empty_like(batch.scores)
    edges = np.empty((*batch.scores.shape, batch.n_labels), batch.scores.dtype)

    def work(blocks: Iterator[Block]) -> None:
        for block in blocks:
            scaled.edge_marginals(_messages(block, result, failed, nodes), edges[block.nodes])

    def redo(sample: int, messages: LogMessages) -> None:
        edges[slice(*chains.offsets[sample : sample + 2])] = messages.edges

    batch.map_tasks(work, n_threads)
    redone(batch, failed, redo, n_threads)
    return edges


def entropy(scores: npt.ArrayLike, transitions: npt.ArrayLike, chains: Chains, *, n_threads: int = 1) -> Floats:
    """Return -sum_y p(y|x) log p(y|x) of each sequence, (m,)."""
    batch = Batch.of(scores, transitions, chains)
    result, failed = np.empty(chains.n_samples), np.zeros(chains.n_samples, dtype=bool)

    def work(blocks: Iterator[Block]) -> None:
        for block in blocks:
            own = block.samples
            messages = scaled.forward(block.scores, block.offsets, block.edges, result[own], failed[own])
            scaled.entropy(messages, failed[own], result[own], batch.n_labels)

    def redo(sample: int, messages: LogMessages) -> None:
        result[sample] = messages.entropy

    batch.map_tasks(work, n_threads)
    redone(batch, failed, redo, n_threads)
    return result


def labelling_scores(
    scores: npt.ArrayLike, transitions: npt.ArrayLike, chains: Chains, labels: npt.ArrayLike
) -> Floats:
    """Return the score of each sequence's labels, (m,); labels is (N,), integers below L."""
    batch = Batch.of(scores, transitions, chains)
    y = np.asarray(labels)
    if y.shape != (chains.n_nodes,) or not np.issubdtype(y.dtype, np.integer):
        raise ValueError(
            f"labels has shape {y.shape} and dtype {y.dtype}: expected ({chains.n_nodes},) integers, one per token"
        )
    if y.size and not (y.min() >= 0 and y.max() < batch.n_labels):
        raise ValueError(
            f"labels runs from {y.min()} to {y.max()}: expected indices into the {batch.n_labels} columns of scores"
        )
    result = np.empty(chains.n_samples)
    w = batch.transitions[None] if batch.tied else batch.transitions
    decoding_loops.labelling_scores(batch.scores, w, batch.tied, chains.offsets, y, result)
    return result


def log_prob(
    scores: npt.ArrayLike,
    transitions: npt.ArrayLike,
    chains: Chains,
    labels: npt.ArrayLike,
    *,
    n_threads: int = 1,
) -> Floats:
    """Return log p(y|x) of each sequence, (m,); -inf if the labelling is forbidden."""
    score = labelling_scores(scores, transitions, chains, labels)
    return score - log_partition(scores, transitions, chains, n_threads=n_threads)


@dataclass(frozen=True)
class ForwardBackward:
    """A forward-backward pass: its moments and, if asked for, its messages.

    tasks : the blocks of each task with their messages; those of failed sequences are zero.
    in_log_space : the failed sequences, with their messages.
    scaled_edges : the part of the summed edge marginals that comes from the sequences of `tasks`.
    """

    moments: ChainMoments
    tasks: tuple[Task, ...]
    in_log_space: tuple[tuple[int, LogMessages], ...]
    scaled_edges: Floats


def forward_backward(batch: Batch, n_threads: int, *, keep: bool) -> ForwardBackward:
    """Return the moments of a batch, and the messages if `keep` is set."""
    n_labels, offsets = batch.n_labels, batch.chains.offsets
    result, failed = np.empty(batch.chains.n_samples), np.zeros(batch.chains.n_samples, dtype=bool)
    nodes = np.empty_like(batch.scores)
    edges = np.zeros((n_labels, n_labels)) if batch.tied else np.empty_like(batch.transitions)

    def work(blocks: Iterator[Block]) -> tuple[Task, Floats]:
        kept, total = [], np.zeros((n_labels, n_labels))
        for block in blocks:
            messages = _messages(block, result, failed, nodes)
            if batch.tied:
                total += messages.summed_edges(messages.alpha, block.weighted(messages.v))[:n_labels, :n_labels]
            else:
                scaled.edge_marginals(messages, edges[block.nodes])
            if keep:
                kept.append((block, messages))
        return tuple(kept), total

    def redo(sample: int, messages: LogMessages) -> tuple[tuple[int, LogMessages] | None, Floats]:
        own = slice(*offsets[sample : sample + 2])
        result[sample] = messages.log_partition
        nodes[own] = messages.nodes
        q = messages.edges
        if not batch.tied:
            edges[own] = q
        weight = 1.0 if batch.weights is None else batch.weights[sample]
        return (sample, messages) if keep else None, np.asarray(weight * q.sum(axis=0))

    tasks = batch.map_tasks(work, n_threads)
    in_log_space = redone(batch, failed, redo, n_threads)
    scaled_edges = np.zeros((n_labels, n_labels))
    for _, total in tasks:
        scaled_edges += total
    if batch.tied:
        edges += scaled_edges
        for _, total in in_log_space:
            edges += total
    return ForwardBackward(
        ChainMoments(result, nodes, edges),
        tuple(task for task, _ in tasks),
        tuple(item for item, _ in in_log_space if item),
        scaled_edges,
    )


def _messages(block: Block, log_partitions: Floats, failed: Flags, nodes: Array) -> scaled.ScaledMessages:
    """Return the messages of a block, and fill its part of arrays over the batch."""
    own = block.samples
    messages = scaled.forward(block.scores, block.offsets, block.edges, log_partitions[own], failed[own])
    scaled.backward(messages, failed[own], nodes[block.nodes])
    return messages


def redone(
    batch: Batch,
    failed: Flags,
    redo: Callable[[int, LogMessages], Result],
    n_threads: int,
) -> list[Result]:
    """Return `redo(sample, messages)` of each failed sequence; raise if one has no distribution."""

    def work(sample: int) -> Result:
        scores, transitions = batch.sequence(sample)
        messages = LogMessages.of(scores.astype(np.float64), transitions.astype(np.float64))
        if not np.isfinite(messages.log_partition):
            raise reason(batch, sample)
        return redo(sample, messages)

    samples = np.flatnonzero(failed).tolist()
    return LocalEngine(n_threads).map(work, samples) if samples else []
