"""The program of gathers that adds the tables of a graph's cliques up to those of its clique tree.

A step (dst, src, size, at) adds `values[src + index[at + e]]` to `values[dst + e]` for the entries e of a table. A
clique of the tree holds many cliques of the graph, and adding each of them to the whole table would touch it once for
each. Instead, tables over (v_1 .. v_j) are made from those over (v_1 .. v_{j-1}), so that most additions happen on
small tables. The same steps in reverse order, from marginals of the tree's cliques to those of the graph, are the
transpose.

Cliques of the same form share the index of their steps.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from kernelcrf.arrays import Ints

Scope = tuple[int, ...]


def index_map(onto: Scope, source: Scope, cards: Sequence[int]) -> Ints:
    """Return the entry of a table over `source`, a subset of `onto` in any order, for each labelling of `onto`."""
    shape = [cards[v] for v in onto]
    strides = dict.fromkeys(onto, 0)
    stride = 1
    for v in reversed(source):
        strides[v] = stride
        stride *= cards[v]
    entries = np.zeros(shape, np.int64)
    for axis, v in enumerate(onto):
        if strides[v]:
            steps = strides[v] * np.arange(cards[v])
            entries += steps.reshape([-1 if k == axis else 1 for k in range(len(onto))])
    return entries.ravel()


@dataclass(eq=False)
class IndexPool:
    """Index maps one after the other, each kept once."""

    pieces: list[Ints] = field(default_factory=list)
    size: int = 0
    _places: dict[bytes, int] = field(default_factory=dict)

    def place(self, index: Ints) -> int:
        """Return the place of an index map, which is added if it is new."""
        key = index.tobytes()
        if key not in self._places:
            self._places[key] = self.size
            self.pieces.append(index)
            self.size += len(index)
        return self._places[key]

    @property
    def flat(self) -> Ints:
        """Return all index maps as one array."""
        return np.concatenate([np.empty(0, np.int64), *self.pieces])


@dataclass(frozen=True)
class Table:
    """A table over the nodes of a scope: the k-th that is given, or an intermediate one (`made`)."""

    made: bool
    k: int
    scope: Scope


@dataclass(eq=False)
class Assembly:
    """The steps of one form of clique: nodes 0, 1, .. with `cards`, given tables over some of them.

    made : sizes of the intermediate tables.
    result : which of them is that of the clique.
    steps : (dst, src, size, at), in order, dst and src as tables.
    """

    cards: tuple[int, ...]
    pool: IndexPool
    made: list[int] = field(default_factory=list)
    result: int = 0
    steps: list[tuple[Table, Table, int, int]] = field(default_factory=list)

    @classmethod
    def of(cls, cards: tuple[int, ...], scopes: Sequence[Scope], pool: IndexPool) -> Assembly:
        """Return the steps that add tables over `scopes` to one over all nodes."""
        assembly = cls(cards, pool)
        given = [Table(False, k, scope) for k, scope in enumerate(scopes)]
        nodes = tuple(range(len(cards)))
        whole = assembly._sum(nodes, (), [(table, frozenset(table.scope)) for table in given])
        if whole is None:
            whole = assembly._new(nodes)
        elif not (whole.made and whole.scope == nodes):
            whole = assembly._added(nodes, [whole])
        assembly.result = whole.k
        return assembly

    @property
    def on_the_way(self) -> list[int]:
        """Return sizes of the tables that are not the result."""
        return [size for k, size in enumerate(self.made) if k != self.result]

    def _sum(self, prefix: Scope, fixed: Scope, items: list[tuple[Table, frozenset[int]]]) -> Table | None:
        """Return a table over prefix + fixed: the sum of items, each over `fixed` and a part of `prefix`."""
        if not items:
            return None
        if len(items) == 1 and len(items[0][1]) == len(prefix):
            return items[0][0]
        if all(not rest for _, rest in items):
            return self._added(prefix + fixed, [table for table, _ in items])
        *head, last = prefix
        without = self._sum(tuple(head), fixed, [item for item in items if last not in item[1]])
        inside = [(table, rest - {last}) for table, rest in items if last in rest]
        having = self._sum(tuple(head), (last, *fixed), inside)
        if without is None and having is not None:
            return having
        return self._added(prefix + fixed, [table for table in (having, without) if table is not None])

    def _added(self, scope: Scope, tables: list[Table]) -> Table:
        first, *others = tables
        if not (first.made and first.scope == scope):
            first, others = self._new(scope), tables
        for table in others:
            self._add(first, table)
        return first

    def _new(self, scope: Scope) -> Table:
        self.made.append(math.prod(self.cards[v] for v in scope))
        return Table(True, len(self.made) - 1, scope)

    def _add(self, onto: Table, source: Table) -> None:
        index = index_map(onto.scope, source.scope, self.cards)
        self.steps.append((onto, source, len(index), self.pool.place(index)))


@dataclass(eq=False)
class Assemblies:
    """Assemblies by form: cliques with the same cards and scopes share one."""

    pool: IndexPool
    _known: dict[tuple[tuple[int, ...], tuple[Scope, ...]], Assembly] = field(default_factory=dict)
    _maps: dict[tuple[tuple[int, ...], Scope], int] = field(default_factory=dict)

    def of(self, cards: tuple[int, ...], scopes: tuple[Scope, ...]) -> Assembly:
        """Return the assembly of a form."""
        key = cards, scopes
        if key not in self._known:
            self._known[key] = Assembly.of(cards, scopes, self.pool)
        return self._known[key]

    def projection(self, cards: tuple[int, ...], onto: Scope) -> int:
        """Return the place of the index map from the labelings of all nodes to those of the nodes `onto`."""
        key = cards, onto
        if key not in self._maps:
            self._maps[key] = self.pool.place(index_map(tuple(range(len(cards))), onto, cards))
        return self._maps[key]


def local(nodes: Sequence[int], scope: Sequence[int]) -> Scope:
    """Return the places of the nodes of a scope among the nodes of a clique."""
    places: Mapping[int, int] = {v: k for k, v in enumerate(nodes)}
    return tuple(places[v] for v in scope)
