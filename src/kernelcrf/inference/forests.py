"""Cover the edges of a pairwise graph by spanning forests, for tree-reweighted messages and mean fields.

Arrays of scores or marginals have one column per label of every node, followed by one column per entry of every edge's
table. Nodes and edges have the order of the graph. Below, these columns are called the columns of the cover.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from kernelcrf.arrays import Array, Floats, Ints
from kernelcrf.graphs.structure import Graph
from kernelcrf.inference.clique_tree import Exact


@dataclass(frozen=True, eq=False)
class Forest:
    """A spanning forest of a graph, with exact inference on it.

    entries : the columns of the cover that belong to the forest. The cover has one column per label of every node and
        per entry of every edge's table; a forest has all columns of nodes, and the columns of its edges.
    """

    exact: Exact
    entries: Ints


@dataclass(frozen=True, eq=False)
class Cover:
    """A pairwise graph, and spanning forests that together contain all of its E edges.

    The columns of the cover are the labels of all nodes, followed by the entries of the tables of all edges. Each edge
    has one message into its first node and one into its second node. The properties `message_...` therefore have two
    parts: the first part is for messages into first nodes, the second part for messages into second nodes.

    entries : (n_entries,), the column of the cover that each entry of the graph's tables belongs to.
    edge_nodes : (E, 2), the two nodes of each edge.
    edge_sizes : (E,), the number of entries in the table of each edge.
    rho : (E,), the fraction of the forests that contain each edge.
    """

    graph: Graph
    entries: Ints
    edge_nodes: Ints
    edge_sizes: Ints
    rho: Floats
    forests: tuple[Forest, ...]

    @classmethod
    def of(cls, graph: Graph) -> Cover:
        """Find spanning forests that together contain all edges; raise if a clique has more than two nodes."""
        n = int(graph.node_starts[-1])
        edge_nodes, edge_sizes, entries = [np.empty((0, 2), np.int64)], [_NONE], [_NONE]
        for name, nodes in graph.cliques.items():
            if nodes.shape[1] > 2:
                raise ValueError(
                    f"term {name!r} has cliques of three or more nodes: inference='loopy' expects single nodes and "
                    "pairs; use inference='exact' or 'gibbs'"
                )
            sizes = np.full(len(nodes), math.prod(graph.shape(name)))
            if nodes.shape[1] == 1:
                entries.append(_ranges(graph.node_starts[nodes[:, 0]], sizes))
            else:
                edge_nodes.append(nodes)
                edge_sizes.append(sizes)
                entries.append(np.arange(n, n + sizes.sum()))
                n += int(sizes.sum())
        ends, sizes = np.concatenate(edge_nodes), np.concatenate(edge_sizes)
        chosen = _forests(graph.n_nodes, ends)
        rho = np.bincount(np.concatenate(chosen), minlength=len(ends)) / len(chosen)
        starts, nodes = n - sizes.sum() + np.cumsum(sizes) - sizes, np.arange(graph.node_starts[-1])
        forests = tuple(
            Forest(
                Exact(_forest_graph(graph, ends[edges])), np.concatenate((nodes, _ranges(starts[edges], sizes[edges])))
            )
            for edges in chosen
        )
        return cls(graph, np.concatenate(entries), ends, sizes, rho, forests)

    @property
    def n_node_entries(self) -> int:
        """Return the number of columns of the cover that belong to nodes; the columns of edges follow them."""
        return int(self.graph.node_starts[-1])

    @cached_property
    def shares(self) -> Floats:
        """Return the fraction of the forests that contain the node or edge of each column; it is 1 for nodes."""
        return np.concatenate((np.ones(self.n_node_entries), np.repeat(self.rho, self.edge_sizes)))

    @cached_property
    def message_starts(self) -> Ints:
        """Return the positions at which the two messages of each edge start, as an array of shape (E, 2).

        The messages into the first nodes of all E edges are stored one after the other in one array, and the messages
        into the second nodes in another array. The result has one column for each of these two arrays.
        """
        sizes = self.graph.cards[self.edge_nodes]
        return np.cumsum(sizes, axis=0) - sizes

    @cached_property
    def message_entries(self) -> tuple[Ints, Ints]:
        """Return, for each entry of the edges' tables, the positions of its two labels in the messages.

        An entry belongs to one label of each node of its edge. The first array has the position of the first node's
        label in the messages into first nodes. The second array does the same for the second nodes.
        """
        edge = np.repeat(np.arange(len(self.edge_sizes)), self.edge_sizes)
        entry, width = _ranges(np.zeros_like(self.edge_sizes), self.edge_sizes), self.graph.cards[self.edge_nodes[:, 1]]
        first, second = self.message_starts.T
        return first[edge] + entry // width[edge], second[edge] + entry % width[edge]

    @cached_property
    def message_nodes(self) -> list[Ints]:
        """Return two arrays, for the messages into the first nodes and into the second nodes of all edges.

        A message has one entry per label of the node that receives it. For each entry, the arrays have the column of
        the cover that belongs to this node and label.
        """
        return [_ranges(self.graph.node_starts[v], self.graph.cards[v]) for v in self.edge_nodes.T]

    def spread(self, tables: Floats) -> tuple[Floats, Floats]:
        """Split the tables of a graph into node scores and edge scores; tables of the same node are added up."""
        is_node = self.entries < self.n_node_entries
        nodes = np.zeros((len(tables), self.n_node_entries))
        np.add.at(nodes.T, self.entries[is_node], tables[:, is_node].T)
        return nodes, np.compress(~is_node, tables, axis=1)

    def mean_marginals(self, marginals: list[Floats]) -> Floats:
        """Average marginals over the forests, and return them in the order of the graph's tables.

        marginals : one array of marginals per forest. The marginals of a node or an edge are averaged over the forests
            that contain it.
        """
        rows = np.zeros((len(marginals[0]), len(self.shares)))
        for forest, part in zip(self.forests, marginals, strict=True):
            rows[:, forest.entries] += part
        return np.take(rows / (self.shares * len(marginals)), self.entries, axis=1)


_NONE: Ints = np.empty(0, np.int64)


def _ranges(starts: Ints, sizes: Ints) -> Ints:
    """Return one array with the integers from start to start + size - 1 for each pair (start, size)."""
    return np.repeat(starts - (np.cumsum(sizes) - sizes), sizes) + np.arange(sizes.sum())


def _forest_graph(graph: Graph, edge_nodes: Ints) -> Graph:
    """Return a graph with one table for every node, followed by one table for each of the given edges."""
    cliques: dict[str, Array] = {}
    for low, high in _runs(graph.cards[:, None]):
        cliques[f"nodes from {low}"] = np.arange(low, high)[:, None]
    for low, high in _runs(graph.cards[edge_nodes]):
        cliques[f"edges from {low}"] = edge_nodes[low:high]
    return Graph(graph.cards, cliques, graph.samples)


def _runs(rows: Array) -> Iterator[tuple[int, int]]:
    """Yield the pair (first index, index after the last) of each group of equal consecutive rows."""
    cuts = np.flatnonzero((rows[1:] != rows[:-1]).any(axis=1)) + 1
    return itertools.pairwise([0, *cuts.tolist(), len(rows)])


def _forests(n_nodes: int, edges: Ints) -> list[Ints]:
    """Return spanning forests that together contain all edges; each forest is an array of edge indices.

    Each new forest prefers the edges that are in the fewest earlier forests.
    """
    from scipy.cluster.hierarchy import DisjointSet

    used = np.zeros(len(edges), np.int64)
    forests: list[Ints] = []
    while not forests or (used == 0).any():
        joined = DisjointSet(range(n_nodes))
        order = np.argsort(used, kind="stable").tolist()
        forests.append(np.array(sorted(e for e in order if joined.merge(*edges[e].tolist())), np.int64))
        used[forests[-1]] += 1
    return forests
