"""Tree-reweighted sum-product: an upper bound on the log-partition of any pairwise graph, and its marginals.

The graph is covered by K spanning forests F_1 .. F_K; a share rho_e of them contains edge e. Messages M define

    b_i(y_i)      = t_i(y_i) + sum_j rho_ij log M_ji(y_i)
    c_ij(y_i, y_j) = t_ij(y_i, y_j) / rho_ij - log M_ji(y_i) - log M_ij(y_j)

and for *any* messages the mean over forests of (b on all nodes + c on the forest's edges) is the score itself, so that

    log Z <= 1/K sum_k log Z(b, c on F_k)                                                       (convexity of log Z)

where inference on each forest is exact. The updates M_ij(y_j) <- sum_{y_i} exp(t_ij / rho_ij + b_i - log M_ji) tighten
the bound (Wainwright, Jaakkola, Willsky 2005); if they converge, it is the least over all messages. The marginals are
the means of the forests' marginals: for fixed messages, they are the gradient of the bound in the tables.

Strong potentials need many sweeps. A solver evaluates points that are close to each other, so sweeps start from the
messages of the previous call, which a `Loopy` object keeps. The bound holds for any messages.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import cached_property

import numpy as np

from kernelcrf.arrays import Array, Floats, Labels
from kernelcrf.graphs.structure import Graph
from kernelcrf.inference.clique_tree import Calibrated, over_rows
from kernelcrf.inference.forests import Cover
from kernelcrf.inference.loops import loopy as loops
from kernelcrf.inference.loss import (
    MISSING,
    DualPoint,
    GraphMoments,
    Loss,
    clamped,
    labelling_scores,
    likeliest_labels,
    loss_of,
)  # fmt: skip
from kernelcrf.inference.lower_bounds import make_consistent, mean_field


@dataclass(frozen=True, eq=False)
class LoopyCurvature:
    """Computes derivatives of the marginals for fixed messages."""

    cover: Cover
    parts: tuple[Calibrated, ...]

    def tangents(self, direction: Floats, n_threads: int = 1) -> Floats:
        """Return derivatives (m, n_entries) of the marginals along a direction (m, n_entries) of the tables."""
        cover = self.cover
        rows = np.concatenate(cover.spread(direction), axis=1) / cover.shares
        found = [
            part.tangents(rows[:, forest.entries], n_threads)
            for forest, part in zip(cover.forests, self.parts, strict=True)
        ]
        return cover.mean_marginals(found)


@dataclass(frozen=True, eq=False)
class Loopy:
    """Inference by tree-reweighted messages: `log_partition` is an upper bound, marginals are approximate."""

    graph: Graph
    tol: float = 1e-4
    max_sweeps: int = 100
    _kept: dict[str, list[Floats]] = field(default_factory=dict, repr=False)

    @cached_property
    def cover(self) -> Cover:
        """Return the spanning forests that cover the graph."""
        return Cover.of(self.graph)

    def _reparametrise(self, tables: Array, n_threads: int, of: str) -> Floats:
        """Return b of all nodes, then c of all edges, after messages converge or after `max_sweeps`.

        Sweeps start from the messages of the last call with the same `of`.
        """
        tables, cover = np.ascontiguousarray(tables, np.float64), self.cover
        b, c = cover.spread(tables)
        c /= np.repeat(cover.rho, cover.edge_sizes)
        into = self._kept.get(of)
        if into is None or len(into[0]) != len(tables):
            into = [np.zeros((len(tables), len(own))) for own in cover.message_nodes]
        into = [np.where(np.isfinite(messages), messages, 0.0) for messages in into]
        for messages, own, nodes in zip(into, cover.message_nodes, cover.edge_nodes.T, strict=True):
            np.add.at(b.T, own, (messages * np.repeat(cover.rho, self.graph.cards[nodes])).T)
        edges = np.column_stack((cover.edge_nodes, np.cumsum(cover.edge_sizes) - cover.edge_sizes))

        def work(rows: slice) -> None:
            loops.sweeps(
                b[rows], c[rows], self.graph.node_starts, edges, cover.message_starts, cover.rho,
                into[0][rows], into[1][rows], self.tol, self.max_sweeps,
            )  # fmt: skip

        if len(edges):
            over_rows(work, len(tables), n_threads)
        self._kept[of] = into
        with np.errstate(invalid="ignore"):
            for messages, own in zip(into, cover.message_entries, strict=True):
                c -= messages[:, own]
        # A message of -inf has taken its label out of b already.
        c[np.isnan(c)] = -np.inf
        c[c == np.inf] = 0.0
        return np.concatenate((b, c), axis=1)

    def calibrate(self, tables: Array, n_threads: int = 1, *, of: str = "model") -> tuple[GraphMoments, LoopyCurvature]:
        """Return the bound with its marginals, and their curvature."""
        scores, cover = self._reparametrise(tables, n_threads, of), self.cover
        parts = tuple(forest.exact.calibrate(scores[:, forest.entries], n_threads) for forest in cover.forests)
        bound = np.mean([part.moments.log_partition for part in parts], axis=0)
        marginals = cover.mean_marginals([part.moments.cliques for part in parts])
        return GraphMoments(bound, marginals), LoopyCurvature(cover, parts)

    def moments(self, tables: Array, n_threads: int = 1) -> GraphMoments:
        """Return the upper bound on log Z, (m, n_samples), and approximate marginals (m, n_entries)."""
        return self.calibrate(tables, n_threads, of="moments")[0]

    def log_partition(self, tables: Array, n_threads: int = 1) -> Floats:
        """Return the upper bound on log Z, (m, n_samples)."""
        return self.moments(tables, n_threads).log_partition

    def entropy(self, tables: Array, n_threads: int = 1) -> Floats:
        """Return the mean of the forests' entropies, (m, n_samples): an approximation, not a bound."""
        parts = self.calibrate(tables, n_threads)[1].parts
        return np.asarray(np.mean([part.entropy() for part in parts], axis=0))

    def best(self, tables: Array, n_threads: int = 1) -> tuple[Labels, Floats]:
        """Return the label with the largest approximate marginal of each node, (m, V), and the labelling's score."""
        parts = self.calibrate(tables, n_threads)[1].parts
        nodes = np.sum([part.moments.cliques[:, : self.graph.node_starts[-1]] for part in parts], axis=0)
        labels = likeliest_labels(self.graph, nodes)
        return labels, labelling_scores(self.graph, tables, labels)

    def loss(self, tables: Floats, labels: Array, n_threads: int = 1, *, curvature: bool) -> Loss:
        """Return an approximate -log p of labels (m, V): an upper bound, since log Z is replaced by its upper bound.

        If labels are missing, a mean field gives a lower bound of the sum over them.
        """
        model, kept = self.calibrate(tables, n_threads)
        if (labels == MISSING).any():
            target = mean_field(self.cover, clamped(self.graph, tables, labels))
            losses, residual = model.log_partition - target.log_partition, model.cliques - target.cliques
            return Loss(losses, residual, model.cliques, kept if curvature else None)
        found = loss_of(self, tables, labels, model, kept if curvature else None, n_threads)
        near, entropy = make_consistent(self.cover, model.cliques)
        # The residual is the marginals minus the statistics of the labels.
        return replace(found, dual=DualPoint(entropy, near + (found.residual - found.marginals)))
