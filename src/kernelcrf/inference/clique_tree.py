"""Exact inference on any graph, by its clique tree.

A sample scores a labelling by sum_C t_C(y_C) over the cliques of its graph (8). Their tables add up to those of the
tree's cliques, T_c. From the leaves to the root, with s the separator of a clique and its parent,

    m_c(y_s) = log sum_{y_c ~ y_s} exp T_c(y_c),     kappa_c(y_c | y_s) = exp(T_c(y_c) - m_c(y_s)),

and m_c is added to the parent's table; the root's m is log Z. The distribution is then the product of kappa_c over the
tree: marginals p_c = kappa_c p(y_s) from the root down, exact samples in the same order, and the entropy
-sum_c E log kappa_c. Along a direction dT of the tables,

    dm_c = E[dT_c | y_s],    d kappa_c = kappa_c (dT_c - dm_c),    dp_c = d kappa_c p(y_s) + kappa_c dp(y_s),

which needs no exponentials. With max in place of the sum the same pass decodes. Summing marginals of the tree's cliques
onto those of the graph is the transpose of adding their tables up. -inf forbids a labelling of a clique: exactly, since
differences of two messages are never taken.

All samples of `scores` (m, n_entries) have one graph, which may itself be the union of many.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from kernelcrf.engines.local import LocalEngine
from kernelcrf.graphs.junction import CliqueTree, clique_tree
from kernelcrf.graphs.structure import Graph
from kernelcrf.inference.assembly import Assemblies, IndexPool, local
from kernelcrf.inference.loops import clique_tree as loops
from kernelcrf.inference.loss import InfeasibleSampleError, Loss, Moments, loss_of

Array = npt.NDArray[Any]
Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]
Labels = npt.NDArray[np.int32]

MOST_ENTRIES = 2**25
"""Labelings of all cliques of a sample's tree beyond which exact inference is refused."""
TASKS = 64


class TreewidthError(ValueError):
    """A graph too wide for exact inference; `width` and `entries` say how wide."""

    def __init__(self, width: int, entries: int, most: int) -> None:
        super().__init__(
            f"exact inference needs tables of {entries:.3g} labelings a sample ({8 * entries / 2**30:.3g} GiB): the "
            f"graph, triangulated, has treewidth {width}. At most {most:.3g} are allowed: take edges away, by a tree "
            "or a learned structure where one can be chosen; GraphCRF also has inference='loopy' (an upper bound on "
            "the log-partition) and inference='gibbs' (samples)"
        )
        self.width = width
        self.entries = entries


@dataclass(frozen=True, eq=False)
class Program:
    """Exact inference on one graph as flat arrays, for `loops.clique_tree`.

    n_values : entries of the graph's own tables, of those made on the way, and of the tree's cliques.
    base : where the tree's cliques begin.
    widest : entries of the largest separator.
    steps, index : see `assembly`.
    cliques : (n_cliques, 7), see `loops.clique_tree`.
    homes : (V, 3), the clique that tells a node's label, and how: (entry // stride) % card.
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
        """The program of a graph by its clique tree."""
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
    """Of each clique of the tree, the tables that it takes up: where each begins, and its nodes."""
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


@dataclass(frozen=True, eq=False)
class Calibrated:
    """Scores after a pass: moments, and the conditionals kappa (m, entries) of the tree's cliques."""

    exact: Exact
    moments: Moments
    conditionals: Floats

    def tangents(self, direction: Array, n_threads: int = 1) -> Floats:
        """Derivatives (m, n_entries) of the marginals along a direction (m, n_entries) of the scores."""
        program, out = self.exact.program, np.empty(direction.shape)

        def work(rows: slice) -> None:
            loops.tangents(
                np.ascontiguousarray(direction[rows], np.float64), program.steps, program.index, program.cliques,
                program.n_values, program.base, program.widest, self.conditionals[rows], out[rows],
            )  # fmt: skip

        over_rows(work, len(direction), n_threads)
        return out

    def entropy(self) -> Floats:
        """-sum_y p(y) log p(y) of each sample: (m, n_samples)."""
        program = self.exact.program
        out = np.zeros((len(self.conditionals), self.exact.graph.n_samples))
        loops.entropy(
            program.cliques, program.index, program.n_values, program.base, program.widest, self.conditionals, out
        )
        return out

    def sample(self, n_draws: int, rng: np.random.Generator) -> Labels:
        """(m, n_draws, V) labelings, drawn exactly."""
        program = self.exact.program
        labels = np.empty((len(self.conditionals), n_draws, self.exact.graph.n_nodes), np.int32)
        uniform = rng.random((len(labels), n_draws, len(program.cliques)))
        loops.sample(uniform, program.cliques, program.index, program.base, self.conditionals, program.homes, labels)
        return labels


@dataclass(frozen=True, eq=False)
class Exact:
    """Exact inference on one graph."""

    graph: Graph
    most_entries: int = MOST_ENTRIES

    @cached_property
    def tree(self) -> CliqueTree:
        """The clique tree; raises where it is too wide."""
        tree = clique_tree(
            self.graph.n_nodes, (scope for nodes in self.graph.cliques.values() for scope in nodes.tolist())
        )
        entries = tree.entries(self.graph.cards.tolist())
        most = self.most_entries * self.graph.n_samples
        if entries > most:
            raise TreewidthError(tree.width, entries, most)
        return tree

    @cached_property
    def program(self) -> Program:
        """The tree as arrays."""
        return Program.of(self.graph, self.tree)

    def log_partition(self, scores: Array, n_threads: int = 1) -> Floats:
        """log Z of each sample, (m, n_samples)."""
        return self._pass(scores, n_threads, keep=False, marginals=False)[0]

    def moments(self, scores: Array, n_threads: int = 1) -> Moments:
        """log Z, and the marginals of the graph's cliques."""
        log_partition, _, marginals = self._pass(scores, n_threads, keep=False, marginals=True)
        return Moments(log_partition, marginals)

    def calibrate(self, scores: Array, n_threads: int = 1) -> Calibrated:
        """The moments, with what derivatives, entropy and samples need of them."""
        log_partition, conditionals, marginals = self._pass(scores, n_threads, keep=True, marginals=True)
        return Calibrated(self, Moments(log_partition, marginals), conditionals)

    def _pass(self, scores: Array, n_threads: int, *, keep: bool, marginals: bool) -> tuple[Floats, Floats, Floats]:
        scores, program = self._checked(scores), self.program
        m = len(scores)
        log_partition = np.zeros((m, self.graph.n_samples))
        conditionals = np.empty((m if keep else 0, program.n_values - program.base))
        out = np.empty((m if marginals else 0, scores.shape[1]))

        def work(rows: slice) -> None:
            loops.moments(
                scores[rows], program.steps, program.index, program.cliques, program.n_values, program.base,
                program.widest, conditionals[rows] if keep else conditionals, log_partition[rows],
                out[rows] if marginals else out,
            )  # fmt: skip

        over_rows(work, m, n_threads)
        self._raise_if_infeasible(log_partition)
        return log_partition, conditionals, out

    def entropy(self, scores: Array, n_threads: int = 1) -> Floats:
        """-sum_y p(y) log p(y) of each sample: (m, n_samples)."""
        return self.calibrate(scores, n_threads).entropy()

    def loss(self, tables: Floats, labels: Array, n_threads: int = 1, *, curvature: bool) -> Loss:
        """-log p of labels (m, V), of all labelings that agree with them where some are missing."""
        tables = self._checked(tables)
        kept = self.calibrate(tables, n_threads) if curvature else None
        model = kept.moments if kept else self.moments(tables, n_threads)
        return loss_of(self, tables, labels, model, kept, n_threads)

    def best(self, scores: Array, n_threads: int = 1) -> tuple[Labels, Floats]:
        """The labelling of the highest score, (m, V), and that score, (m, n_samples)."""
        scores, program = self._checked(scores), self.program
        labels = np.empty((len(scores), self.graph.n_nodes), np.int32)
        totals = np.zeros((len(scores), self.graph.n_samples))

        def work(rows: slice) -> None:
            loops.best(
                scores[rows], program.steps, program.index, program.cliques, program.n_values, program.base,
                program.widest, program.homes, labels[rows], totals[rows],
            )  # fmt: skip

        over_rows(work, len(scores), n_threads)
        self._raise_if_infeasible(totals)
        return labels, totals

    def k_best(self, scores: Array, k: int) -> list[tuple[Labels, Floats]]:
        """Of each row, its up to k labelings (k', V) of the highest scores, best first, and those scores (k',).

        Lists of the k best labelings of a subtree, for each labelling of its separator, are merged from the leaves
        up. The graph is that of a single sample.
        """
        if k < 1:
            raise ValueError(f"k={k!r}: expected at least 1")
        if self.graph.n_samples > 1:
            raise ValueError("k_best ranks the labelings of one sample: expected a graph that is no union")
        return [self._ranked(row, k) for row in self._checked(scores)]

    def _ranked(self, scores: Floats, k: int) -> tuple[Labels, Floats]:
        program = self.program
        values = np.concatenate((scores, np.zeros(program.n_values - len(scores))))
        loops.assemble(program.steps, program.index, values)
        lists: list[list[Ranking]] = [
            [[(float(value), ())] if value > -np.inf else [] for value in values[row[loops.TABLE] :][: row[loops.SIZE]]]
            for row in program.cliques
        ]
        whole: Ranking = [(0.0, ())]
        for c, row in enumerate(program.cliques.tolist()):
            groups: list[list[tuple[float, Link]]] = [[] for _ in range(row[loops.SEPARATOR_SIZE])]
            for e, ranking in enumerate(lists[c]):
                into = groups[program.index[row[loops.UP] + e]]
                into.extend((score, (c, e, link)) for score, link in ranking)
            tops = [heapq.nlargest(k, group, key=_score) for group in groups]
            lists[c] = []
            if row[loops.PARENT] < 0:
                whole = _summed(whole, tops[0], k)
                continue
            above = lists[row[loops.PARENT]]
            for e, ranking in enumerate(above):
                above[e] = _summed(ranking, tops[program.index[row[loops.DOWN] + e]], k)
        if not whole:
            raise InfeasibleSampleError(0)
        labels = np.empty((len(whole), self.graph.n_nodes), np.int32)
        for rank, (_, link) in enumerate(whole):
            chosen = np.empty(len(program.cliques), np.int64)
            for c, e in _chosen(link):
                chosen[c] = e
            home, stride, card = program.homes.T
            labels[rank] = (chosen[home] // stride) % card
        return labels, np.array([score for score, _ in whole])

    def _checked(self, scores: Array) -> Floats:
        scores = np.ascontiguousarray(scores, np.float64)
        if scores.ndim != 2 or scores.shape[1] != self.graph.n_entries:
            raise ValueError(f"scores has shape {scores.shape}: expected (m, {self.graph.n_entries}), a row a sample")
        return scores

    @staticmethod
    def _raise_if_infeasible(log_partition: Floats) -> None:
        bad = np.flatnonzero(~np.isfinite(log_partition))
        if bad.size:
            raise InfeasibleSampleError(int(bad[0]))


Link = tuple[Any, ...]
Ranking = list[tuple[float, Link]]


def _score(item: tuple[float, Link]) -> float:
    return item[0]


def _summed(first: Ranking, second: Ranking, k: int) -> Ranking:
    """The k best sums of a labelling of each of two parts; a link is a pair of links, or a clique's choice."""
    pairs = ((a + b, (left, right)) for a, left in first for b, right in second)
    return heapq.nlargest(k, pairs, key=_score)


def _chosen(link: Link) -> Iterator[tuple[int, int]]:
    """The (clique, entry) pairs of a ranked labelling."""
    waiting = [link]
    while waiting:
        link = waiting.pop()
        if len(link) == 3:
            yield link[0], link[1]
            waiting.append(link[2])
        else:
            waiting.extend(link)


def over_rows(work: Callable[[slice], None], m: int, n_threads: int) -> None:
    """`work` on runs of m rows, in threads."""
    size = max(-(-m // TASKS), 1)
    LocalEngine(n_threads).map(work, [slice(low, min(low + size, m)) for low in range(0, m, size)])
