"""Spanning forests that cover the edges of a pairwise graph, for tree-reweighted messages and mean fields."""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from kernelcrf.arrays import Array, Floats, Ints
from kernelcrf.graphs.structure import Graph
from kernelcrf.inference.clique_tree import Exact


@dataclass(frozen=True, eq=False)
class Forest:
    """One forest: exact inference on it, the numbers of its edges, and the places of their entries."""

    exact: Exact
    edges: Ints
    entries: Ints


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
        """Cover a graph by forests, each of the edges used least so far, until each edge is in one."""
        wide = [name for name, nodes in graph.cliques.items() if nodes.shape[1] > 2]
        if wide:
            raise ValueError(f"term {wide[0]!r} has cliques of more than two nodes: inference='loopy' takes pairs")
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
        """Map entries of the edges' tables to entries of the messages into their first, and second, nodes."""
        first, second = [np.empty(0, np.int64)], [np.empty(0, np.int64)]
        at_i, at_j = 0, 0
        for n_i, n_j in self.graph.cards[self.edge_nodes].tolist():
            first.append(np.repeat(np.arange(at_i, at_i + n_i), n_j))
            second.append(np.tile(np.arange(at_j, at_j + n_j), n_i))
            at_i, at_j = at_i + n_i, at_j + n_j
        return np.concatenate(first), np.concatenate(second)

    @cached_property
    def message_nodes(self) -> tuple[Ints, Ints]:
        """Map entries of the messages into first nodes, and into second ones, to entries of the nodes."""
        starts, cards = self.node_starts, self.graph.cards
        first, second = (
            np.concatenate([np.empty(0, np.int64), *(np.arange(starts[v], starts[v] + cards[v]) for v in nodes)])
            for nodes in self.edge_nodes.T
        )
        return first, second

    def node_scores(self, tables: Floats) -> Floats:
        """Return the tables of single nodes, (m, sum of cards), summed if a node has several."""
        scores = np.zeros((len(tables), int(self.node_starts[-1])))
        for name, nodes in self.graph.cliques.items():
            if nodes.shape[1] == 1:
                card = self.graph.shape(name)[0]
                columns = (self.node_starts[nodes[:, 0]][:, None] + np.arange(card)).ravel()
                np.add.at(scores.T, columns, tables[:, self.graph.slices[name]].T)
        return scores

    def gathered(self, found: list[Floats]) -> Floats:
        """Return marginals (m, n_entries) of the graph from those of the forests, nodes first, then edges."""
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
    """Return the graph of a forest: a table for every node, then one for each of its edges, in order."""
    cliques: dict[str, Array] = {}
    for low, high in _runs(graph.cards[:, None]):
        cliques[f"nodes from {low}"] = np.arange(low, high)[:, None]
    for low, high in _runs(graph.cards[edge_nodes[edges]]):
        cliques[f"edges from {low}"] = edge_nodes[edges[low:high]]
    return Graph(graph.cards, cliques, graph.samples)


def _runs(rows: Array) -> list[tuple[int, int]]:
    """Return runs of equal rows: cliques of one form, which one template can hold."""
    if not len(rows):
        return []
    cuts = np.flatnonzero((rows[1:] != rows[:-1]).any(axis=1)) + 1
    return list(itertools.pairwise([0, *cuts.tolist(), len(rows)]))


def _forests(n_nodes: int, edges: Ints) -> list[Ints]:
    """Return spanning forests, each of the edges least used so far, until all are used; at least one."""
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
