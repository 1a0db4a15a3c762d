"""Translate exact inference on one graph into flat arrays, which `loops.clique_tree` executes.

All tables are stored in one array `values`, and all index maps in one array `index`. A step (dst, src, size, at) adds
one table to another: for e from 0 to size - 1, values[src + index[at + e]] is added to values[dst + e]. A clique of the
tree contains many cliques of the graph, and adding each of their tables directly to the large table of the tree's
clique would be slow. Tables are therefore first added to intermediate tables over fewer nodes, so that most additions
involve small tables. Cliques of the tree with the same numbers of labels and the same tables need the same steps, so
that their steps are computed together. If the same steps are executed backwards, with dst and src exchanged, they sum
the marginals of the tree's cliques to the marginals of the graph's cliques.
"""

from __future__ import annotations

import math
from collections import defaultdict
from dataclasses import dataclass, field
from itertools import chain

import numpy as np

from kernelcrf.arrays import Ints
from kernelcrf.graphs.junction import CliqueTree
from kernelcrf.graphs.structure import Graph
from kernelcrf.inference.loops import clique_tree as loops

Scope = tuple[int, ...]
NONE = -1


LARGEST_KEY = 2**62


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
        members, separators = _padded(tree.cliques), _padded(tree.separators)
        cards, parents = _cards(graph, members), np.array(tree.parents, np.int64)
        sizes, n_cliques = cards.prod(axis=1), len(members)
        n_tree = int(sizes.sum())
        places = graph.n_entries + np.cumsum(sizes) - sizes
        maps = _Maps()
        n_values, steps = _steps(graph, tree, members, cards, places, graph.n_entries + n_tree, maps)
        up = maps.starts(cards, _axes(members, separators))
        down = maps.starts(cards[parents], _axes(members[parents], separators))
        width = _cards(graph, separators).prod(axis=1)
        is_root = parents == NONE
        above = np.where(is_root, NONE, n_cliques - 1 - parents)
        samples = graph.node_samples[members[:, 0]] if n_cliques else np.empty(0, np.int64)
        rows = np.column_stack((places, sizes, above, width, up, np.where(is_root, 0, down), samples))
        cliques = np.ascontiguousarray(rows[::-1], np.int64).reshape(-1, 7)
        widest = int(cliques[:, loops.SEPARATOR_SIZE].max(initial=1))
        return cls(n_values, n_tree, widest, steps, maps.index, cliques, _homes(graph, tree, members, cards))


def _padded(scopes: tuple[Scope, ...]) -> Ints:
    """Return an array with one row per scope, filled up with NONE; it has at least one column."""
    lengths = np.fromiter(map(len, scopes), np.int64, len(scopes))
    padded = np.full((len(scopes), max(int(lengths.max(initial=0)), 1)), NONE, np.int64)
    padded[np.arange(padded.shape[1]) < lengths[:, None]] = np.fromiter(
        chain.from_iterable(scopes), np.int64, int(lengths.sum())
    )
    return padded


def _cards(graph: Graph, padded: Ints) -> Ints:
    """Return the number of labels of each node of padded scopes, and 1 where there is no node."""
    if not len(graph.cards):
        return np.ones(padded.shape, np.int64)
    return np.where(padded == NONE, 1, graph.cards[padded])


def _axes(members: Ints, nodes: Ints) -> Ints:
    """Return the position of each node in the clique of its row, and NONE where there is no node."""
    return np.where(nodes == NONE, NONE, (members[:, None, :] == nodes[:, :, None]).argmax(axis=2))


def _groups(rows: Ints) -> tuple[Ints, Ints]:
    """Return the distinct rows of an array, and for each row the index of the distinct row that equals it."""
    low = rows.min(axis=0, initial=0)
    sizes = (rows.max(axis=0, initial=0) - low + 1).tolist()
    if math.prod(sizes) < LARGEST_KEY:
        # Rows become numbers, which are sorted much faster than rows.
        keys = (rows - low) @ np.cumprod([1, *sizes[:0:-1]], dtype=np.int64)[::-1]
        _, first, inverse = np.unique(keys, return_index=True, return_inverse=True)
        return rows[first], inverse.reshape(-1)
    distinct, inverse = np.unique(rows, axis=0, return_inverse=True)
    return distinct, inverse.reshape(-1)


@dataclass(eq=False)
class _Maps:
    """The index maps of all steps; tables with the same numbers of labels share maps."""

    parts: list[Ints] = field(default_factory=lambda: [np.empty(0, np.int64)])
    size: int = 0
    known: dict[tuple[Scope, Scope], int] = field(default_factory=dict)

    def start(self, shape: Scope, axes: Scope) -> int:
        """Return the start of an index map, which is created if it does not exist yet.

        For each entry of a table with the given shape, the map has the entry of a table that has only some of the axes.
        """
        if (shape, axes) not in self.known:
            grid = np.indices(shape, sparse=True)
            entries = np.ravel_multi_index([grid[k] for k in axes], [shape[k] for k in axes]) if axes else np.int64(0)
            self.known[shape, axes] = self.size
            self.parts.append(np.broadcast_to(entries, shape).ravel())
            self.size += math.prod(shape)
        return self.known[shape, axes]

    def starts(self, shapes: Ints, axes: Ints) -> Ints:
        """Return the start of the index map for each row of shapes and of axes, which are filled up with 1 and NONE."""
        distinct, inverse = _groups(np.hstack((shapes, axes)))
        n = shapes.shape[1]
        found = [
            self.start(tuple(row[:n]), tuple(axis for axis in row[n:] if axis != NONE)) for row in distinct.tolist()
        ]
        return np.array(found, np.int64)[inverse]

    @property
    def index(self) -> Ints:
        """Return all maps as one array."""
        return np.concatenate(self.parts)


def _steps(
    graph: Graph, tree: CliqueTree, members: Ints, cards: Ints, places: Ints, n_values: int, maps: _Maps
) -> tuple[int, Ints]:
    """Return the number of entries of all tables, and the steps that add the tables of the graph to those of the tree.

    All tables include the intermediate ones, which the steps need.

    members, cards, places : the nodes of each clique of the tree, their numbers of labels, and the place of its table.
    n_values : the number of entries of the tables of the graph and of the tree, without intermediate ones.
    """
    homes, starts, kinds, axes_of_kind = _given(graph, tree, members)
    order = np.argsort(homes, kind="stable")
    starts, kinds = starts[order], kinds[order].tolist()
    ends = np.searchsorted(homes[order], np.arange(len(members) + 1)).tolist()
    distinct, shape_of = _groups(cards)
    alike: dict[tuple[int, ...], list[int]] = defaultdict(list)
    for k, shape in enumerate(shape_of.tolist()):
        alike[shape, *kinds[ends[k] : ends[k + 1]]].append(k)
    steps = [np.empty((0, 4), np.int64)]
    for (shape, *given), cliques in alike.items():
        plan = _Plan(tuple(distinct[shape].tolist()), maps)
        plan.fill([axes_of_kind[kind] for kind in given])
        if not plan.steps:
            continue
        low = np.array([ends[k] for k in cliques])
        made = n_values + plan.n_made * np.arange(len(cliques))[:, None] + np.array(plan.made, np.int64)
        n_values += plan.n_made * len(cliques)
        tables = np.hstack((places[cliques][:, None], starts[low[:, None] + np.arange(len(given))], made))
        into, source, size, at = np.array(plan.steps, np.int64).T
        rows = np.empty((len(cliques), len(size), 4), np.int64)
        rows[..., 0], rows[..., 1], rows[..., 2], rows[..., 3] = tables[:, into], tables[:, source], size, at
        steps.append(rows.reshape(-1, 4))
    return n_values, np.concatenate(steps)


def _given(graph: Graph, tree: CliqueTree, members: Ints) -> tuple[Ints, Ints, Ints, list[Scope]]:
    """Return, for each table of the graph, the clique of the tree to which it is added, its place and its kind.

    The last result has, for each kind, the axes of the clique's table that a table of the kind has.
    """
    of_nodes, order = np.array(tree.homes, np.int64), np.array(tree.places, np.int64)
    nothing, axes_of_kind = np.empty(0, np.int64), list[Scope]()
    homes, starts, kinds = [nothing], [nothing], [nothing]
    for name, nodes in graph.cliques.items():
        if not len(nodes):
            continue
        home = of_nodes[nodes[np.arange(len(nodes)), order[nodes].argmin(axis=1)]]
        distinct, inverse = _groups(_axes(members[home], nodes))
        homes.append(home)
        starts.append(graph.slices[name].start + math.prod(graph.shape(name)) * np.arange(len(nodes)))
        kinds.append(len(axes_of_kind) + inverse)
        axes_of_kind += [tuple(row) for row in distinct.tolist()]
    return np.concatenate(homes), np.concatenate(starts), np.concatenate(kinds), axes_of_kind


@dataclass(frozen=True)
class _Table:
    """A table of scores, known by its number in a plan, with one axis per node of `scope`.

    made : whether other tables may be added to this table; tables of the graph itself must not change.
    """

    number: int
    scope: Scope
    made: bool


@dataclass(eq=False)
class _Plan:
    """The steps that add tables of the graph to the table of a clique of the tree, for cliques that are alike.

    cards : the number of labels of each node of the clique.
    made : for each table of intermediate sums, its place after the first of them.
    n_made : the number of entries of these tables.
    steps : rows (table, table that is added to it, number of entries, start of the index map). Tables are numbered: 0
        is the clique's table; the tables of the graph and the intermediate ones follow.
    """

    cards: Scope
    maps: _Maps
    made: list[int] = field(default_factory=list)
    n_made: int = 0
    n_tables: int = 0
    steps: list[tuple[int, int, int, int]] = field(default_factory=list)

    def fill(self, given: list[Scope]) -> None:
        """Append steps that add tables with the given axes to the table of the clique."""
        scope = tuple(range(len(self.cards)))
        whole, self.n_tables = _Table(0, scope, made=True), 1 + len(given)
        tables = [_Table(number, axes, made=False) for number, axes in enumerate(given, 1)]
        total = self._sum(whole, scope, (), [(table, frozenset(table.scope)) for table in tables])
        if total is not None and total is not whole:
            self._add(whole, total)

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
                first = _Table(self.n_tables, scope, made=True)
                self.n_tables += 1
                self.made.append(self.n_made)
                self.n_made += math.prod(self.cards[v] for v in scope)
        for table in others:
            self._add(first, table)
        return first

    def _add(self, onto: _Table, source: _Table) -> None:
        shape = tuple(self.cards[v] for v in onto.scope)
        start = self.maps.start(shape, tuple(onto.scope.index(v) for v in source.scope))
        self.steps.append((onto.number, source.number, math.prod(shape), start))


def _homes(graph: Graph, tree: CliqueTree, members: Ints, cards: Ints) -> Ints:
    """Return one row per node: the last clique of the tree that has the node, in reverse order, its stride and card."""
    homes = np.array(tree.homes, np.int64)
    strides = np.cumprod(cards[:, ::-1], axis=1)[:, ::-1] // cards
    axes = (members[homes] == np.arange(len(homes))[:, None]).argmax(axis=1) if len(homes) else homes
    stride = strides[homes, axes]
    return np.column_stack((len(members) - 1 - homes, stride, graph.cards)).astype(np.int64)
