"""Compute derivatives of the marginals of chains if the scores change along du and the transitions along dw.

These derivatives are covariances (equation 6b of the paper), and they are exact. Let P_t(i|j) be the probability of
label i at token t-1 given label j at token t. Let Q_t(j|i) be the probability of label j at token t given label i at
token t-1. With the node marginals p_t, the edge marginals q_t and the elementwise product o,

    A_1 = du_1,   A_t(j) = du_t(j) + sum_i P_t(i|j) [A_{t-1}(i) + dw_t(i, j)],
    B_T = 0,      B_{t-1}(i) = sum_j Q_t(j|i) [dw_t(i, j) + du_t(j) + B_t(j)],
    dp_t = p_t o (A_t + B_t),
    dq_t = q_t o (A_{t-1}(i) + dw_t(i, j) - <q_t, dw_t> + du_t(j) + B_t(j)),

where the means under p_t are subtracted from du_t, A_t and B_t at each step. These means change no derivative, but
without the subtraction they would grow with t until rounding errors dominate. The messages of `scaled` give the
conditional probabilities P and Q, because

    P_t(i|j) p_t(j) = Q_t(j|i) p_{t-1}(i) = q_t(i, j) = alpha_{t-1}(i) e_t(i, j) v_t(j).

The recursions therefore compute p o A and p o B by products with e and e o dw only. For N tokens and L labels, this
takes O(N L^2) operations, O(N L) memory and no exponentials.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from kernelcrf.arrays import Array, Floats
from kernelcrf.engines.local import LocalEngine
from kernelcrf.graphs.structure import EDGE, Chains
from kernelcrf.inference.batch import Batch
from kernelcrf.inference.logspace import LogMessages
from kernelcrf.inference.loops import scaled as scaled_loops
from kernelcrf.inference.loops import tangents as loops
from kernelcrf.inference.scaled import ScaledMessages

Task = tuple[ScaledMessages, ...]


@dataclass(frozen=True)
class ChainMoments:
    """Log-partitions and marginals of m sequences with N tokens and L labels (Proposition 2 of the paper).

    log_partition : (m,) float64, one number per sequence.
    nodes : (N, L), the node marginals p(y_t = j), one row per token.
    edges : the edge marginals p(y_{t-1} = i, y_t = j). If all tokens share their transitions, `edges` is the sum
        over tokens, (L, L) float64; otherwise it has one matrix per token, (N, L, L), which is zero at first tokens. In
        both cases, `edges` is the gradient of sum(log_partition) with respect to the transitions.
    """

    log_partition: Floats
    nodes: Array
    edges: Array


@dataclass(frozen=True)
class Tangents:
    """Derivatives of the marginals of chains with N tokens and L labels, along a direction of the scores.

    nodes : (N, L), the derivatives of the node marginals.
    edges : the derivatives of the edge marginals, in the shape of the transitions.
    """

    nodes: Array
    edges: Array


@dataclass(frozen=True)
class Linearisation:
    """Log-partitions and marginals of a batch at given scores, with the messages that derivatives need.

    tasks : the scaled messages of all sequences, grouped as the threads process them. They are zero for sequences that
        would underflow.
    in_log_space : the index and the messages in log space of each sequence that would underflow.
    scaled_edges : the sum of the edge marginals of the sequences that would not underflow.
    """

    batch: Batch
    moments: ChainMoments
    tasks: tuple[Task, ...]
    in_log_space: tuple[tuple[int, LogMessages], ...]
    scaled_edges: Floats
    n_threads: int

    @classmethod
    def of(cls, batch: Batch, n_threads: int, *, keep: bool = True, summed: bool = True) -> Linearisation:
        """Run a forward-backward pass over a batch.

        keep : whether to keep the messages, which `tangents` needs.
        summed : whether to sum the edge marginals over tokens if all tokens share their transitions.
        """
        n_labels, chains, summed = batch.n_labels, batch.chains, summed and batch.tied
        nodes, edges = np.empty_like(batch.scores), np.zeros((n_labels, n_labels))
        if not summed:
            edges = np.empty((chains.n_nodes, n_labels, n_labels), batch.scores.dtype)

        def work(blocks: Iterator[ScaledMessages]) -> tuple[Task, Floats]:
            kept, total = [], np.zeros((n_labels, n_labels))
            for messages in blocks:
                messages.backward(nodes)
                if summed:
                    total += messages.sum_edges(messages.alpha, messages.v)
                else:
                    e, block_edges = messages.edges.e, edges[messages.block.nodes]
                    scaled_loops.edge_marginals(e, batch.tied, messages.alpha, messages.v, block_edges)
                if keep:
                    kept.append(messages)
            return tuple(kept), total

        def redo(sample: int, messages: LogMessages) -> tuple[tuple[int, LogMessages], Floats]:
            rows, q = batch.nodes(sample), messages.edges
            nodes[rows] = messages.nodes
            if not summed:
                edges[rows] = q
            return (sample, messages), batch.weight(sample) * q.sum(axis=0)

        log_partition, tasks, redone = batch.infer(work, redo, n_threads)
        scaled_edges = np.zeros((n_labels, n_labels))
        for _, total in tasks:
            scaled_edges += total
        if summed:
            edges += scaled_edges
            for _, total in redone:
                edges += total
        in_log_space = tuple(item for item, _ in redone) if keep else ()
        moments = ChainMoments(log_partition, nodes, edges)
        return cls(batch, moments, tuple(task for task, _ in tasks), in_log_space, scaled_edges, n_threads)

    def tangents(self, du: Array, dw: Array) -> Tangents:
        """Return the derivatives of the marginals if the scores change along du and the transitions along dw."""
        batch, n_labels = self.batch, self.batch.n_labels
        du, dw = self._centre(du, dw)
        nodes = np.empty_like(batch.scores)
        edges = np.zeros((n_labels, n_labels)) if batch.tied else np.empty_like(batch.transitions)

        def work(task: Task) -> Floats:
            total = np.zeros((n_labels, n_labels))
            for messages in task:
                block, rows = messages.block, messages.block.nodes
                e, e_T = messages.edges.e, messages.edges.e_T
                edw, edw_T = messages.edges.multiply(dw if batch.tied else dw[rows], block.first_nodes)
                tied, alpha, v, p = batch.tied, messages.alpha, messages.v, self.moments.nodes[rows]
                d, pA, x, y = (np.empty_like(alpha) for _ in range(4))
                loops.centre_nodes(p, du[rows], d)
                loops.forward(block.offsets, e, edw, tied, alpha, v, p, d, pA, x)
                loops.backward(block.offsets, e_T, edw_T, tied, alpha, v, p, d, y, nodes[rows])
                nodes[rows] += pA[:, :n_labels]
                if tied:
                    total += messages.sum_edges(x, v)
                    total += messages.sum_edges(alpha, y)
                else:
                    loops.edge_tangents(e, edw, tied, alpha, v, x, y, edges[rows])
            return total

        def redo(item: tuple[int, LogMessages]) -> Floats:
            sample, messages = item
            rows = batch.nodes(sample)
            direction = dw if batch.tied else dw[rows]
            nodes[rows], dq = messages.tangents(du[rows].astype(np.float64), direction.astype(np.float64))
            if not batch.tied:
                edges[rows] = dq
            return np.asarray(batch.weight(sample) * dq.sum(axis=0))

        engine = LocalEngine(self.n_threads)
        costs = [float(sum(len(messages.alpha) for messages in task)) for task in self.tasks]
        totals = engine.map(work, self.tasks, costs) + engine.map(redo, self.in_log_space)
        if batch.tied:
            edges += self.scaled_edges * dw
            for total in totals:
                edges += total
        return Tangents(nodes, edges)

    def _centre(self, du: Array, dw: Array) -> tuple[Array, Array]:
        batch = self.batch
        if du.shape != batch.scores.shape or dw.shape != batch.transitions.shape:
            raise ValueError(
                f"du and dw have shapes {du.shape} and {dw.shape}: expected the shapes of scores and transitions, "
                f"{batch.scores.shape} and {batch.transitions.shape}"
            )
        read = dw if batch.tied else dw[batch.chains.cliques(EDGE)[:, 1]]
        if not (np.all(np.isfinite(du)) and np.all(np.isfinite(read))):
            raise ValueError("du or dw contains NaN or infinity: expected finite numbers, even if a score is -inf")
        if batch.tied and self.moments.edges.any():
            dw = dw - np.average(dw, weights=self.moments.edges)
        return np.asarray(du, batch.scores.dtype), np.asarray(dw, batch.scores.dtype)


def linearise(
    scores: npt.ArrayLike, transitions: npt.ArrayLike, chains: Chains, *, n_threads: int = 1
) -> Linearisation:
    """Return log-partitions and marginals, in an object that can also compute derivatives of the marginals."""
    return Linearisation.of(Batch.of(scores, transitions, chains), n_threads)
