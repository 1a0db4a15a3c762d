"""Exact inference on one graph as flat arrays, which `loops.clique_tree` runs."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from kernelcrf.arrays import Ints
from kernelcrf.graphs.junction import CliqueTree
from kernelcrf.graphs.structure import Graph
from kernelcrf.inference.assembly import Assemblies, IndexPool, local
from kernelcrf.inference.loops import clique_tree as loops


@dataclass(frozen=True, eq=False)
class Program:
    """Exact inference on one graph as flat arrays, for `loops.clique_tree`.

    n_values : the number of entries of the graph's tables, of intermediate tables, and of the tree's cliques.
    base : the place of the first entry of the tree's cliques.
    widest : the number of entries of the largest separator.
    steps, index : see `assembly`.
    cliques : (n_cliques, 7), see `loops.clique_tree`.
    homes : (V, 3), the clique that has a node's label, with stride and card: label = (entry // stride) % card.
    """

    n_values: int
    base: int
    widest: int
    steps: Ints
    index: Ints
    cliques: Ints
    homes: Ints

    @classmethod
    def of(cls, graph: Graph, tree: CliqueTree) -> Program:
        """Compile the inference on a graph by its clique tree."""
        forms = Assemblies(IndexPool())
        cards, n_cliques = graph.cards.tolist(), len(tree.cliques)
        shapes = [tuple(cards[v] for v in clique) for clique in tree.cliques]
        given = _given(graph, tree)
        assemblies = [
            forms.of(shape, tuple(local(clique, scope) for _, scope in tables))
            for shape, clique, tables in zip(shapes, tree.cliques, given, strict=True)
        ]
        base = graph.n_entries + sum(sum(assembly.on_the_way) for assembly in assemblies)
        made, table = graph.n_entries, base
        steps: list[tuple[int, int, int, int]] = []
        rows: list[tuple[int, ...]] = []
        samples = [0] * graph.n_nodes if graph.samples is None else graph.samples.tolist()
        for k, (clique, assembly) in enumerate(zip(tree.cliques, assemblies, strict=True)):
            starts = []
            for j, size in enumerate(assembly.made):
                starts.append(table if j == assembly.result else made)
                made += 0 if j == assembly.result else size
            for onto, source, size, at in assembly.steps:
                steps.append((starts[onto.k], starts[source.k] if source.made else given[k][source.k][0], size, at))
            parent, separator = tree.parents[k], tree.separators[k]
            size, down = assembly.made[assembly.result], 0
            if parent >= 0:
                down = forms.projection(shapes[parent], local(tree.cliques[parent], separator))
            rows.append((
                table, size, n_cliques - 1 - parent if parent >= 0 else -1,
                math.prod(cards[v] for v in separator), forms.projection(shapes[k], local(clique, separator)), down,
                samples[clique[0]],
            ))  # fmt: skip
            table += size
        cliques = np.array(rows[::-1], np.int64).reshape(-1, 7)
        widest = int(cliques[:, loops.SEPARATOR_SIZE].max(initial=1))
        index = forms.pool.flat
        return cls(table, base, widest, np.array(steps, np.int64).reshape(-1, 4), index, cliques, _homes(graph, tree))


def _given(graph: Graph, tree: CliqueTree) -> list[list[tuple[int, tuple[int, ...]]]]:
    """Return, for each clique of the tree, the tables that are added to it: where each begins, and its nodes."""
    homes, places = np.array(tree.homes, np.int64), np.array(tree.places, np.int64)
    given: list[list[tuple[int, tuple[int, ...]]]] = [[] for _ in tree.cliques]
    for name, nodes in graph.cliques.items():
        if not len(nodes):
            continue
        size = int(np.prod(graph.shape(name)))
        first = nodes[np.arange(len(nodes)), places[nodes].argmin(axis=1)]
        starts = graph.slices[name].start + size * np.arange(len(nodes))
        for home, start, scope in zip(homes[first].tolist(), starts.tolist(), nodes.tolist(), strict=True):
            given[home].append((start, tuple(scope)))
    return given


def _homes(graph: Graph, tree: CliqueTree) -> Ints:
    homes = np.empty((graph.n_nodes, 3), np.int64)
    cards, n_cliques = graph.cards.tolist(), len(tree.cliques)
    for v, home in enumerate(tree.homes):
        stride = 1
        for u in reversed(tree.cliques[home]):
            if u == v:
                break
            stride *= cards[u]
        homes[v] = n_cliques - 1 - home, stride, cards[v]
    return homes
