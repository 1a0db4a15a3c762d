"""Tree-reweighted sum-product: an upper bound on the log-partition of any pairwise graph, and its marginals.

K spanning forests cover the graph; rho_ij is the fraction of the forests that contain the edge between nodes i and j.
With the tables t of nodes and edges, messages M_ij from node i to node j define new scores of nodes and edges:

    b_i(y_i)      = t_i(y_i) + sum_j rho_ij log M_ji(y_i)
    c_ij(y_i, y_j) = t_ij(y_i, y_j) / rho_ij - log M_ji(y_i) - log M_ij(y_j)

Score a labelling on each forest by b on all nodes and c on the edges of the forest. For *any* messages, the mean of
these scores over the forests is the score of the labelling on the graph. Because log Z is convex in the scores, log Z
of the graph is at most the mean of log Z(b, c) over the forests, which exact inference computes. The updates

    M_ij(y_j) <- sum_{y_i} exp(t_ij(y_i, y_j) / rho_ij + b_i(y_i) - log M_ji(y_i))

tighten this bound (Wainwright, Jaakkola, Willsky 2005). If the updates converge, the bound is the smallest over all
messages. The approximate marginals are means of the marginals on the forests. For fixed messages, they are the gradient
of the bound with respect to the tables.

Strong potentials need many sweeps over the messages. A solver evaluates points that are close to each other, so a
`Loopy` object keeps its messages and starts the next call from them.
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
    Curvature,
    DualPoint,
    GraphMoments,
    Loss,
    clamp_labels,
    labelling_scores,
    likeliest_labels,
    loss_of,
)  # fmt: skip
from kernelcrf.inference.lower_bounds import make_consistent, mean_field


@dataclass(frozen=True, eq=False)
class LoopyCurvature(Curvature):
    """Computes derivatives of the approximate marginals, with the messages treated as constants."""

    cover: Cover
    parts: tuple[Calibrated, ...]

    def tangents(self, direction: Floats, n_threads: int = 1) -> Floats:
        cover = self.cover
        rows = np.concatenate(cover.spread(direction), axis=1) / cover.shares
        tangents = [
            part.tangents(rows[:, forest.entries], n_threads)
            for forest, part in zip(cover.forests, self.parts, strict=True)
        ]
        return cover.mean_marginals(tangents)


@dataclass(frozen=True, eq=False)
class Loopy:
    """Inference by tree-reweighted messages: log-partitions are upper bounds, and marginals are approximate.

    tol : sweeps stop if no logarithm of a message changes by more than this.
    max_sweeps : the largest number of sweeps per call.
    """

    graph: Graph
    tol: float = 1e-4
    max_sweeps: int = 100
    _kept: dict[str, list[Floats]] = field(default_factory=dict, repr=False)

    @cached_property
    def cover(self) -> Cover:
        """Return the spanning forests that cover the graph."""
        return Cover.of(self.graph)

    def _reparametrise(self, tables: Array, n_threads: int, of: str) -> Floats:
        """Update the messages, and return the scores that they define: b for all nodes, followed by c for all edges.

        The module docstring defines b and c. Sweeps stop when the messages have converged, or after `max_sweeps`.

        of : a name for the purpose of the call; sweeps start from the messages of the last call with the same name.
        """
        tables, cover = np.ascontiguousarray(tables, np.float64), self.cover
        b, c = cover.spread(tables)
        c /= np.repeat(cover.rho, cover.edge_sizes)
        into = self._kept.get(of)
        if into is None or len(into[0]) != len(tables):
            into = [np.zeros((len(tables), len(entries))) for entries in cover.message_nodes]
        into = [np.where(np.isfinite(messages), messages, 0.0) for messages in into]
        for messages, entries, nodes in zip(into, cover.message_nodes, cover.edge_nodes.T, strict=True):
            np.add.at(b.T, entries, (messages * np.repeat(cover.rho, self.graph.cards[nodes])).T)
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
            for messages, entries in zip(into, cover.message_entries, strict=True):
                c -= messages[:, entries]
        # A message of -inf has taken its label out of b already.
        c[np.isnan(c)] = -np.inf
        c[c == np.inf] = 0.0
        return np.concatenate((b, c), axis=1)

    def calibrate(self, tables: Array, n_threads: int = 1, *, of: str = "model") -> tuple[GraphMoments, LoopyCurvature]:
        """Return an upper bound on log Z, approximate marginals, and an object that computes the derivatives of both.

        of : a name for the purpose of the call; sweeps start from the messages of the last call with the same name.
        """
        scores, cover = self._reparametrise(tables, n_threads, of), self.cover
        parts = tuple(forest.exact.calibrate(scores[:, forest.entries], n_threads) for forest in cover.forests)
        bound = np.mean([part.moments.log_partition for part in parts], axis=0)
        marginals = cover.mean_marginals([part.moments.cliques for part in parts])
        return GraphMoments(bound, marginals), LoopyCurvature(cover, parts)

    def moments(self, tables: Array, n_threads: int = 1) -> GraphMoments:
        """Return an upper bound on log Z of each sample, and approximate marginals of the graph's cliques."""
        return self.calibrate(tables, n_threads, of="moments")[0]

    def log_partition(self, tables: Array, n_threads: int = 1) -> Floats:
        """Return an upper bound on log Z of each sample as an array of shape (len(tables), n_samples)."""
        return self.moments(tables, n_threads).log_partition

    def entropy(self, tables: Array, n_threads: int = 1) -> Floats:
        """Return an approximation of the entropy of each sample: the mean of the entropies on the spanning forests."""
        parts = self.calibrate(tables, n_threads)[1].parts
        return np.asarray(np.mean([part.entropy() for part in parts], axis=0))

    def best(self, tables: Array, n_threads: int = 1) -> tuple[Labels, Floats]:
        """Return the label with the largest approximate marginal for each node, and the total score of these labels."""
        parts = self.calibrate(tables, n_threads)[1].parts
        nodes = np.sum([part.moments.cliques[:, : self.graph.node_starts[-1]] for part in parts], axis=0)
        labels = likeliest_labels(self.graph, nodes)
        return labels, labelling_scores(self.graph, tables, labels)

    def loss(self, tables: Floats, labels: Array, n_threads: int = 1, *, curvature: bool) -> Loss:
        """Return an upper bound on the loss -log p(labels) of each sample, and its gradient with respect to the tables.

        log Z is replaced by an upper bound. If labels are missing, the sum over these labels is replaced by a
        mean-field lower bound.
        """
        model, kept = self.calibrate(tables, n_threads)
        if (labels == MISSING).any():
            target = mean_field(self.cover, clamp_labels(self.graph, tables, labels))
            losses, residual = model.log_partition - target.log_partition, model.cliques - target.cliques
            return Loss(losses, residual, model.cliques, kept if curvature else None)
        loss = loss_of(self, tables, labels, model, kept if curvature else None, n_threads)
        near, entropy = make_consistent(self.cover, model.cliques)
        # The residual is the marginals minus the statistics of the labels.
        return replace(loss, dual=DualPoint(entropy, near + (loss.residual - loss.marginals)))
