"""Translate exact inference on one graph into flat arrays, which `loops.clique_tree` executes.

All tables are stored in one array `values`, and all index maps in one array `index`. A step (dst, src, size, at) adds
one table to another: for e from 0 to size - 1, values[src + index[at + e]] is added to values[dst + e]. A clique of the
tree contains many cliques of the graph, and adding each of their tables directly to the large table of the tree's
clique would be slow. Tables are therefore first added to intermediate tables over fewer nodes, so that most additions
involve small tables. If the same steps are executed backwards, with dst and src exchanged, they sum the marginals of
the tree's cliques to the marginals of the graph's cliques.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field

import numpy as np

from kernelcrf.arrays import Ints
from kernelcrf.graphs.junction import CliqueTree
from kernelcrf.graphs.structure import Graph
from kernelcrf.inference.loops import clique_tree as loops

Scope = tuple[int, ...]


@dataclass(frozen=True, eq=False)
class Program:
    """Exact inference on one graph as flat arrays, for `loops.clique_tree`.

    n_values : the number of entries of all tables: of the graph, of the tree's cliques, and of intermediate sums.
    n_tree : the number of entries of the tables of the tree's cliques.
    widest : the largest number of labellings of a separator.
    steps, index : the additions of tables and the index maps that they use, as in the module docstring.
    cliques : (n_cliques, 7), one row per clique of the tree, explained in `loops.clique_tree`.
    homes : one row (clique, stride, card) per node. If the entry e of this clique's table is chosen, the node has the
        label (e // stride) % card.
    """

    n_values: int
    n_tree: int
    widest: int
    steps: Ints
    index: Ints
    cliques: Ints
    homes: Ints

    @property
    def tree(self) -> tuple[Ints, Ints, Ints, int, int]:
        """Return the tuple of arguments that describe the tree to the functions of `loops.clique_tree`."""
        return self.steps, self.index, self.cliques, self.n_values, self.widest

    @classmethod
    def of(cls, graph: Graph, tree: CliqueTree) -> Program:
        """Return the arrays for inference on a graph with the given clique tree."""
        cards, n_cliques = graph.cards.tolist(), len(tree.cliques)
        sizes = [math.prod(cards[v] for v in clique) for clique in tree.cliques]
        places = (graph.n_entries + np.cumsum(sizes, dtype=np.int64) - sizes).tolist()
        assembly = _Assembly(cards, graph.n_entries + sum(sizes))
        rows: list[tuple[int, ...]] = []
        for k, (clique, given) in enumerate(zip(tree.cliques, _tables_per_clique(graph, tree), strict=True)):
            assembly.fill(_Table(places[k], clique, made=True), given)
            parent, separator, above, down = tree.parents[k], tree.separators[k], -1, 0
            if parent >= 0:
                above, down = n_cliques - 1 - parent, assembly.index_map(tree.cliques[parent], separator)
            width, up = math.prod(cards[v] for v in separator), assembly.index_map(clique, separator)
            rows.append((places[k], sizes[k], above, width, up, down, int(graph.node_samples[clique[0]])))
        cliques = np.array(rows[::-1], np.int64).reshape(-1, 7)
        widest = int(cliques[:, loops.SEPARATOR_SIZE].max(initial=1))
        steps, index = np.array(assembly.steps, np.int64).reshape(-1, 4), np.concatenate(assembly.maps)
        return cls(assembly.n_values, sum(sizes), widest, steps, index, cliques, _homes(graph, tree))


@dataclass(frozen=True)
class _Table:
    """A table of scores with one axis per node of `scope`, which starts at `place` in the array of all tables.

    made : whether other tables may be added to this table; tables of the graph itself must not change.
    """

    place: int
    scope: Scope
    made: bool


@dataclass(eq=False)
class _Assembly:
    """Collects the steps that add tables to each other, and their index maps; cliques of the same shape share maps."""

    cards: list[int]
    n_values: int
    steps: list[tuple[int, int, int, int]] = field(default_factory=list)
    maps: list[Ints] = field(default_factory=lambda: [np.empty(0, np.int64)])
    n_mapped: int = 0
    known: dict[tuple[Scope, Scope], int] = field(default_factory=dict)

    def fill(self, whole: _Table, given: list[_Table]) -> None:
        """Append steps that add the tables `given` to the table `whole` of a clique of the tree."""
        total = self._sum(whole, whole.scope, (), [(table, frozenset(table.scope)) for table in given])
        if total is not None and total is not whole:
            self._add(whole, total)

    def index_map(self, onto: Scope, source: Scope) -> int:
        """Return the start of an index map, which is created if it does not exist yet.

        For each labelling of the nodes `onto`, the map gives the entry of a table over the nodes `source`, which are a
        subset of `onto`.
        """
        shape = tuple(self.cards[v] for v in onto)
        axes = tuple(onto.index(v) for v in source)
        if (shape, axes) not in self.known:
            grid = np.indices(shape, sparse=True)
            entries = np.ravel_multi_index([grid[k] for k in axes], [shape[k] for k in axes]) if axes else np.int64(0)
            self.known[shape, axes] = self.n_mapped
            self.maps.append(np.broadcast_to(entries, shape).ravel())
            self.n_mapped += math.prod(shape)
        return self.known[shape, axes]

    def _sum(
        self, whole: _Table, prefix: Scope, fixed: Scope, items: list[tuple[_Table, frozenset[int]]]
    ) -> _Table | None:
        """Append steps that sum tables; return the table of the sum, or None if there are no tables.

        The sum has one axis per node of prefix + fixed.

        whole : the table of a clique of the tree. Tables are added to it directly if the sum has the same nodes.
        items : pairs (table, nodes of `prefix` that the table depends on). All tables depend on all nodes of `fixed`.
        """
        if not items:
            return None
        if len(items) == 1 and len(items[0][1]) == len(prefix):
            return items[0][0]
        if all(not rest for _, rest in items):
            return self._add_all(whole, prefix + fixed, [table for table, _ in items])
        *head, last = prefix
        without = self._sum(whole, tuple(head), fixed, [item for item in items if last not in item[1]])
        inside = [(table, rest - {last}) for table, rest in items if last in rest]
        having = self._sum(whole, tuple(head), (last, *fixed), inside)
        if without is None and having is not None:
            return having
        return self._add_all(whole, prefix + fixed, [table for table in (having, without) if table is not None])

    def _add_all(self, whole: _Table, scope: Scope, tables: list[_Table]) -> _Table:
        first, *others = tables
        if not (first.made and first.scope == scope):
            first, others = whole, tables
            if scope != whole.scope:
                first = _Table(self.n_values, scope, made=True)
                self.n_values += math.prod(self.cards[v] for v in scope)
        for table in others:
            self._add(first, table)
        return first

    def _add(self, onto: _Table, source: _Table) -> None:
        size = math.prod(self.cards[v] for v in onto.scope)
        self.steps.append((onto.place, source.place, size, self.index_map(onto.scope, source.scope)))


def _tables_per_clique(graph: Graph, tree: CliqueTree) -> list[list[_Table]]:
    """Return, for each clique of the tree, the tables of the graph that are added to it."""
    homes, places = np.array(tree.homes, np.int64), np.array(tree.places, np.int64)
    given: list[list[_Table]] = [[] for _ in tree.cliques]
    for name, nodes in graph.cliques.items():
        if not len(nodes):
            continue
        first = nodes[np.arange(len(nodes)), places[nodes].argmin(axis=1)]
        starts = graph.slices[name].start + math.prod(graph.shape(name)) * np.arange(len(nodes))
        for home, start, scope in zip(homes[first].tolist(), starts.tolist(), nodes.tolist(), strict=True):
            given[home].append(_Table(start, tuple(scope), made=False))
    return given


def _homes(graph: Graph, tree: CliqueTree) -> Ints:
    homes = np.empty((graph.n_nodes, 3), np.int64)
    cards, n_cliques = graph.cards.tolist(), len(tree.cliques)
    for v, home in enumerate(tree.homes):
        clique = tree.cliques[home]
        stride = math.prod(cards[u] for u in clique[clique.index(v) + 1 :])
        homes[v] = n_cliques - 1 - home, stride, cards[v]
    return homes
