"""Derivatives of the marginals along a direction (du, dw) of the scores: exact covariances (6b), no exponentials.

With P_t(i|j) and Q_t(j|i) the conditionals of the glossary, and du_t centred by p_t,

    A_1 = du_1,   A_t(j) = du_t(j) + sum_i P_t(i|j) [A_{t-1}(i) + dw_t(i, j)],
    B_T = 0,      B_{t-1}(i) = sum_j Q_t(j|i) [dw_t(i, j) + du_t(j) + B_t(j)],
    dp_t = p_t o (A_t + B_t),
    dq_t = q_t o (A_{t-1}(i) + dw_t(i, j) - <q_t, dw_t> + du_t(j) + B_t(j)),

where A_t and B_t are centred by p_t at each step: a constant changes nothing, but without centring it would grow with t
until rounding destroys the rest. The messages of `scaled` give the conditionals: P_t(i|j) p_t(j) = Q_t(j|i) p_{t-1}(i)
= q_t(i, j) = alpha_{t-1}(i) e_t(i, j) v_t(j), so that the recursions run on p o A and p o B with products by e and e o
dw alone: O(N L^2) work on O(N L) memory.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from kernelcrf.arrays import Array, Floats
from kernelcrf.engines.local import LocalEngine
from kernelcrf.graphs.structure import EDGE, Chains
from kernelcrf.inference.batch import Batch
from kernelcrf.inference.chain import ChainMoments, ForwardBackward, Task, forward_backward
from kernelcrf.inference.logspace import LogMessages
from kernelcrf.inference.loops import tangents as loops


@dataclass(frozen=True)
class Tangents:
    """dp (N, L), and dq of the shape of the transitions: summed over the batch if those are tied."""

    nodes: Array
    edges: Array


@dataclass(frozen=True)
class Linearisation:
    """The moments of a batch at given scores, with the messages that their derivatives need."""

    batch: Batch
    messages: ForwardBackward
    n_threads: int

    @property
    def moments(self) -> ChainMoments:
        """Return the moments at the scores themselves."""
        return self.messages.moments

    @classmethod
    def of(cls, batch: Batch, n_threads: int) -> Linearisation:
        """Run a forward-backward pass over a batch and keep its messages."""
        return cls(batch, forward_backward(batch, n_threads, keep=True), n_threads)

    def tangents(self, du: Array, dw: Array) -> Tangents:
        """Return derivatives of node and edge marginals along du (N, L) and dw, of the shape of the transitions."""
        batch, offsets, n_labels = self.batch, self.batch.chains.offsets, self.batch.n_labels
        du, dw = self._centred(du, dw)
        nodes = np.empty_like(batch.scores)
        edges = np.zeros((n_labels, n_labels)) if batch.tied else np.empty_like(batch.transitions)

        def work(task: Task) -> Floats:
            total = np.zeros((n_labels, n_labels))
            for block, messages in task:
                own = block.nodes
                e, e_T = messages.edges.e, messages.edges.e_T
                edw, edw_T = messages.edges.weighted(dw if batch.tied else dw[own], block.first_nodes)
                tied, alpha, v, p = batch.tied, messages.alpha, messages.v, self.moments.nodes[own]
                d, pA, x, y = (np.empty_like(alpha) for _ in range(4))
                loops.centre_nodes(p, du[own], d)
                loops.forward(block.offsets, e, edw, tied, alpha, v, p, d, pA, x)
                loops.backward(block.offsets, e_T, edw_T, tied, alpha, v, p, d, y, nodes[own])
                nodes[own] += pA[:, :n_labels]
                if tied:
                    total += messages.summed_edges(x, block.weighted(v))[:n_labels, :n_labels]
                    total += messages.summed_edges(alpha, block.weighted(y))[:n_labels, :n_labels]
                else:
                    loops.edge_tangents(e, edw, tied, alpha, v, x, y, edges[own])
            return total

        def redo(item: tuple[int, LogMessages]) -> Floats:
            sample, messages = item
            own = slice(*offsets[sample : sample + 2])
            direction = dw if batch.tied else dw[own]
            nodes[own], dq = messages.tangents(du[own].astype(np.float64), direction.astype(np.float64))
            if not batch.tied:
                edges[own] = dq
            weight = 1.0 if batch.weights is None else batch.weights[sample]
            return np.asarray(weight * dq.sum(axis=0))

        engine = LocalEngine(self.n_threads)
        tasks, scaled_edges = self.messages.tasks, self.messages.scaled_edges
        totals = engine.map(work, tasks, [float(sum(len(block.scores) for block, _ in task)) for task in tasks])
        totals += engine.map(redo, self.messages.in_log_space)
        if batch.tied:
            edges += scaled_edges * dw
            for total in totals:
                edges += total
        return Tangents(nodes, edges)

    def _centred(self, du: Array, dw: Array) -> tuple[Array, Array]:
        batch = self.batch
        if du.shape != batch.scores.shape or dw.shape != batch.transitions.shape:
            raise ValueError(
                f"du and dw have shapes {du.shape} and {dw.shape}: expected those of scores and transitions, "
                f"{batch.scores.shape} and {batch.transitions.shape}"
            )
        read = dw if batch.tied else dw[batch.chains.cliques(EDGE)[:, 1]]
        if not (np.all(np.isfinite(du)) and np.all(np.isfinite(read))):
            raise ValueError("du or dw contains NaN or infinity: expected a finite direction, also for forbidden steps")
        if batch.tied and self.moments.edges.any():
            dw = dw - np.average(dw, weights=self.moments.edges)
        return np.asarray(du, batch.scores.dtype), np.asarray(dw, batch.scores.dtype)


def linearise(
    scores: npt.ArrayLike, transitions: npt.ArrayLike, chains: Chains, *, n_threads: int = 1
) -> Linearisation:
    """Return the moments of a batch, from which derivatives along any direction can be computed."""
    return Linearisation.of(Batch.of(scores, transitions, chains), n_threads)
