"""Tree-reweighted sum-product: an upper bound on the log-partition of any pairwise graph, and marginals to go with it.

The graph is covered by K spanning forests F_1 .. F_K; edge e is in a share rho_e of them. Messages M define

    b_i(y_i)      = t_i(y_i) + sum_j rho_ij log M_ji(y_i)
    c_ij(y_i, y_j) = t_ij(y_i, y_j) / rho_ij - log M_ji(y_i) - log M_ij(y_j)

and for *any* messages the mean over forests of (b on all nodes + c on the forest's edges) is the score itself, so that

    log Z <= 1/K sum_k log Z(b, c on F_k)                                                       (convexity of log Z)

where each term is a tree's, and exact. The updates M_ij(y_j) <- sum_{y_i} exp(t_ij / rho_ij + b_i - log M_ji) tighten
it (Wainwright, Jaakkola, Willsky 2005); where they converge it is the least over all messages. Marginals are the means
of the forests' own: for messages held fixed, they are the gradient of the bound in the tables.

Strong potentials need many sweeps. A solver asks for one point close to another, so that sweeps begin with the messages
of the call before, which a `Loopy` keeps; the bound holds with any.
"""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from kernelcrf.graphs.structure import Graph
from kernelcrf.inference.clique_tree import Calibrated, Exact, over_rows
from kernelcrf.inference.loops import loopy as loops
from kernelcrf.inference.loss import MISSING, DualPoint, Loss, Moments, clamped, labelling_scores, loss_of
from kernelcrf.inference.mean_field import mean_field
from kernelcrf.inference.pseudo_marginals import consistent

Array = npt.NDArray[Any]
Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class Messages:
    """Messages and what they make of the scores of m rows: b of all nodes, c of all edges.

    moved : (m,), by how much the logarithm of any message moved in the last sweep.
    sweeps : (m,), sweeps made.
    """

    b: Floats
    c: Floats
    moved: Floats
    sweeps: Ints

    def converged(self, tol: float) -> npt.NDArray[np.bool_]:
        """(m,): whether the last sweep moved no message by more than `tol`."""
        return np.asarray(self.moved <= tol)


@dataclass(frozen=True, eq=False)
class Forest:
    """One of the forests: exact inference on it, its edges among all, and where their entries are."""

    exact: Exact
    edges: Ints
    entries: Ints


@dataclass(frozen=True, eq=False)
class LoopyCurvature:
    """Derivatives of the marginals, messages held fixed."""

    loopy: Loopy
    parts: tuple[Calibrated, ...]

    def tangents(self, direction: Floats, n_threads: int = 1) -> Floats:
        """(m, n_entries) along a direction (m, n_entries) of the tables."""
        cover = self.loopy.cover
        b = cover.node_scores(direction)
        c = direction[:, cover.edge_entries] / np.repeat(cover.rho, cover.edge_sizes)
        found = [
            part.tangents(np.concatenate((b, c[:, forest.entries]), axis=1), n_threads)
            for forest, part in zip(cover.forests, self.parts, strict=True)
        ]
        return cover.gathered(found)


@dataclass(frozen=True, eq=False)
class Cover:
    """A pairwise graph and spanning forests that cover its edges.

    node_starts : (V + 1,), entries of each node among those of all nodes.
    edge_nodes : (E, 2).
    edge_entries : the entries of all edges' tables among all entries.
    """

    graph: Graph
    node_starts: Ints
    edge_nodes: Ints
    edge_sizes: Ints
    edge_entries: Ints
    rho: Floats
    forests: tuple[Forest, ...]

    @classmethod
    def of(cls, graph: Graph) -> Cover:
        """Forests of the edges used least so far, until each edge is in one."""
        wide = [name for name, nodes in graph.cliques.items() if nodes.shape[1] > 2]
        if wide:
            raise ValueError(f"template {wide[0]!r} has cliques of more than two nodes: inference='loopy' takes pairs")
        pairs = [(name, nodes) for name, nodes in graph.cliques.items() if nodes.shape[1] == 2]
        edge_nodes = np.concatenate([np.empty((0, 2), np.int64), *(nodes for _, nodes in pairs)])
        sizes = [np.full(len(nodes), math.prod(graph.shape(name)), np.int64) for name, nodes in pairs]
        edge_sizes = np.concatenate([np.empty(0, np.int64), *sizes])
        slices = [np.arange(graph.slices[name].start, graph.slices[name].stop) for name, _ in pairs]
        edge_entries = np.concatenate([np.empty(0, np.int64), *slices])
        chosen = _forests(graph.n_nodes, edge_nodes)
        used = np.bincount(np.concatenate([np.empty(0, np.int64), *chosen]), minlength=len(edge_nodes))
        starts = np.concatenate(([0], np.cumsum(edge_sizes)))
        node_starts = np.concatenate(([0], np.cumsum(graph.cards)))
        forests = []
        for edges in chosen:
            entries = np.concatenate([np.empty(0, np.int64), *(np.arange(starts[e], starts[e + 1]) for e in edges)])
            forests.append(Forest(Exact(_named(graph, edges, edge_nodes)), edges, entries))
        rho = used / max(len(chosen), 1)
        return cls(graph, node_starts, edge_nodes, edge_sizes, edge_entries, rho, tuple(forests))

    @cached_property
    def message_entries(self) -> tuple[Ints, Ints]:
        """For each entry of the edges' tables, that of the messages into its first node, and into its second."""
        first, second = [np.empty(0, np.int64)], [np.empty(0, np.int64)]
        at_i, at_j = 0, 0
        for n_i, n_j in self.graph.cards[self.edge_nodes].tolist():
            first.append(np.repeat(np.arange(at_i, at_i + n_i), n_j))
            second.append(np.tile(np.arange(at_j, at_j + n_j), n_i))
            at_i, at_j = at_i + n_i, at_j + n_j
        return np.concatenate(first), np.concatenate(second)

    @cached_property
    def message_nodes(self) -> tuple[Ints, Ints]:
        """For each entry of the messages into first nodes, and into second ones, that of the node."""
        starts, cards = self.node_starts, self.graph.cards
        first, second = (
            np.concatenate([np.empty(0, np.int64), *(np.arange(starts[v], starts[v] + cards[v]) for v in nodes)])
            for nodes in self.edge_nodes.T
        )
        return first, second

    def node_scores(self, tables: Floats) -> Floats:
        """(m, sum of cards): the tables of single nodes, summed where a node has several."""
        scores = np.zeros((len(tables), int(self.node_starts[-1])))
        for name, nodes in self.graph.cliques.items():
            if nodes.shape[1] == 1:
                card = self.graph.shape(name)[0]
                columns = (self.node_starts[nodes[:, 0]][:, None] + np.arange(card)).ravel()
                np.add.at(scores.T, columns, tables[:, self.graph.slices[name]].T)
        return scores

    def gathered(self, found: list[Floats]) -> Floats:
        """(m, n_entries): marginals of the graph's cliques from those of the forests, nodes first and then edges."""
        n, m = int(self.node_starts[-1]), len(found[0])
        nodes = np.mean([part[:, :n] for part in found], axis=0)
        edges = np.zeros((m, len(self.edge_entries)))
        for forest, part in zip(self.forests, found, strict=True):
            edges[:, forest.entries] += part[:, n:]
        edges /= np.repeat(self.rho * len(found), self.edge_sizes)
        out = np.empty((m, self.graph.n_entries))
        out[:, self.edge_entries] = edges
        for name, own in self.graph.cliques.items():
            if own.shape[1] == 1:
                columns = (self.node_starts[own[:, 0]][:, None] + np.arange(self.graph.shape(name)[0])).ravel()
                out[:, self.graph.slices[name]] = nodes[:, columns]
        return out


def _named(graph: Graph, edges: Ints, edge_nodes: Ints) -> Graph:
    """The forest's graph: a table for every node, then one for each of its edges, in order."""
    cliques: dict[str, Array] = {}
    for low, high in _runs(graph.cards[:, None]):
        cliques[f"nodes from {low}"] = np.arange(low, high)[:, None]
    for low, high in _runs(graph.cards[edge_nodes[edges]]):
        cliques[f"edges from {low}"] = edge_nodes[edges[low:high]]
    return Graph(graph.cards, cliques, graph.samples)


def _runs(rows: Array) -> list[tuple[int, int]]:
    """Runs of equal rows: cliques of one form, that one template may hold."""
    if not len(rows):
        return []
    cuts = np.flatnonzero((rows[1:] != rows[:-1]).any(axis=1)) + 1
    return list(itertools.pairwise([0, *cuts.tolist(), len(rows)]))


def _forests(n_nodes: int, edges: Ints) -> list[Ints]:
    """Spanning forests, each of the edges least used so far, until all are used; at least one."""
    used = np.zeros(len(edges), np.int64)
    found: list[Ints] = []
    while not found or (used == 0).any():
        root = list(range(n_nodes))

        def find(v: int, root: list[int] = root) -> int:
            while root[v] != v:
                root[v] = root[root[v]]
                v = root[v]
            return v

        forest = []
        for e in np.argsort(used, kind="stable").tolist():
            i, j = find(int(edges[e, 0])), find(int(edges[e, 1]))
            if i != j:
                root[i] = j
                forest.append(e)
        chosen = np.array(sorted(forest), np.int64)
        used[chosen] += 1
        found.append(chosen)
    return found


@dataclass(frozen=True, eq=False)
class Loopy:
    """Inference by tree-reweighted messages: `log_partition` is an upper bound, marginals are approximate."""

    graph: Graph
    tol: float = 1e-4
    max_sweeps: int = 100
    _kept: dict[str, tuple[Floats, Floats]] = field(default_factory=dict, repr=False)

    @cached_property
    def cover(self) -> Cover:
        """The forests."""
        return Cover.of(self.graph)

    def messages(self, tables: Array, n_threads: int = 1, *, of: str = "model") -> Messages:
        """Sweeps until convergence or `max_sweeps`, from the messages kept of the last call `of` the same name."""
        tables, cover = np.ascontiguousarray(tables, np.float64), self.cover
        b = cover.node_scores(tables)
        c = tables[:, cover.edge_entries] / np.repeat(cover.rho, cover.edge_sizes)
        sizes = self.graph.cards[cover.edge_nodes]
        ends = np.cumsum(sizes, axis=0) - sizes
        shapes = [(len(tables), int(size)) for size in sizes.sum(axis=0)]
        kept = self._kept.get(of)
        if kept is None or [part.shape for part in kept] != shapes:
            kept = np.zeros(shapes[0]), np.zeros(shapes[1])
        into_i, into_j = (np.where(np.isfinite(part), part, 0.0) for part in kept)
        for part, own in zip((into_i, into_j), cover.message_nodes, strict=True):
            np.add.at(b.T, own, (part * np.repeat(cover.rho, sizes[:, 0 if part is into_i else 1])).T)
        starts = np.cumsum(cover.edge_sizes) - cover.edge_sizes
        edges = np.column_stack((cover.edge_nodes, starts)).astype(np.int64)
        status = np.zeros((len(tables), 2))

        def work(rows: slice) -> None:
            loops.sweeps(
                b[rows], c[rows], cover.node_starts, edges, ends, cover.rho,
                into_i[rows], into_j[rows], self.tol, self.max_sweeps, status[rows],
            )  # fmt: skip

        if len(edges):
            over_rows(work, len(tables), n_threads)
        self._kept[of] = into_i, into_j
        first, second = cover.message_entries
        with np.errstate(invalid="ignore"):
            c -= into_i[:, first]
            c -= into_j[:, second]
        # A message of -inf has taken its label out of b already.
        c[np.isnan(c)] = -np.inf
        c[c == np.inf] = 0.0
        return Messages(b, c, status[:, 0], status[:, 1].astype(np.int64))

    def calibrate(
        self, tables: Array, n_threads: int = 1, *, of: str = "model"
    ) -> tuple[Messages, Moments, LoopyCurvature]:
        """Messages, the bound with its marginals, and their curvature."""
        messages = self.messages(tables, n_threads, of=of)
        parts = tuple(
            forest.exact.calibrate(np.concatenate((messages.b, messages.c[:, forest.entries]), axis=1), n_threads)
            for forest in self.cover.forests
        )
        bound = np.mean([part.moments.log_partition for part in parts], axis=0)
        marginals = self.cover.gathered([part.moments.cliques for part in parts])
        return messages, Moments(bound, marginals), LoopyCurvature(self, parts)

    def moments(self, tables: Array, n_threads: int = 1) -> Moments:
        """The bound on log Z, (m, n_samples), and approximate marginals (m, n_entries)."""
        return self.calibrate(tables, n_threads, of="moments")[1]

    def log_partition(self, tables: Array, n_threads: int = 1) -> Floats:
        """The bound on log Z, (m, n_samples)."""
        return self.moments(tables, n_threads).log_partition

    def entropy(self, tables: Array, n_threads: int = 1) -> Floats:
        """Return the mean of the forests' entropies, (m, n_samples): near the entropy, and no bound on it."""
        parts = self.calibrate(tables, n_threads)[2].parts
        return np.asarray(np.mean([part.entropy() for part in parts], axis=0))

    def best(self, tables: Array, n_threads: int = 1) -> tuple[npt.NDArray[np.int32], Floats]:
        """The likeliest label of each node by its approximate marginal, (m, V), and the score of that labelling."""
        _, _, curvature = self.calibrate(tables, n_threads)
        n = int(self.cover.node_starts[-1])
        nodes = np.sum([part.moments.cliques[:, :n] for part in curvature.parts], axis=0)
        starts = self.cover.node_starts
        columns = [nodes[:, a:b].argmax(axis=1) for a, b in itertools.pairwise(starts)]
        labels = np.array(columns, np.int32).reshape(self.graph.n_nodes, len(nodes)).T
        return labels, labelling_scores(self.graph, tables, labels)

    def loss(self, tables: Floats, labels: Array, n_threads: int = 1, *, curvature: bool) -> Loss:
        """Return a bound on -log p of labels (m, V) from above.

        Where labels are missing, the sum over them is bounded from below by a mean field.
        """
        _, model, kept = self.calibrate(tables, n_threads)
        if (labels == MISSING).any():
            target = mean_field(self.cover, clamped(self.graph, tables, labels))
            losses, residual = model.log_partition - target.log_partition, model.cliques - target.cliques
            return Loss(losses, residual, model.cliques, kept if curvature else None)
        found = loss_of(self, tables, labels, model, kept if curvature else None, n_threads)
        near = consistent(self.cover, model.cliques)
        # The statistics of the labels are what marginals and residual differ in.
        dual = DualPoint(near.entropy, near.cliques + (found.residual - found.marginals))
        return replace(found, dual=dual)
