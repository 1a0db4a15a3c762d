"""Exact inference on any graph, by its clique tree.

A sample scores a labelling by sum_C t_C(y_C) over the cliques of its graph (8). Their tables add up to those of the
tree's cliques, T_c. From the leaves to the root, with s the separator of a clique and its parent,

    m_c(y_s) = log sum_{y_c ~ y_s} exp T_c(y_c),     kappa_c(y_c | y_s) = exp(T_c(y_c) - m_c(y_s)),

and m_c is added to the parent's table; the root's m is log Z. The distribution is then the product of kappa_c over the
tree: marginals p_c = kappa_c p(y_s) from the root down, exact samples in the same order, and the entropy
-sum_c E log kappa_c. Along a direction dT of the tables,

    dm_c = E[dT_c | y_s],    d kappa_c = kappa_c (dT_c - dm_c),    dp_c = d kappa_c p(y_s) + kappa_c dp(y_s),

which needs no exponentials. With max in place of the sum the same pass decodes. Summing marginals of the tree's cliques
onto those of the graph is the transpose of adding their tables up. -inf forbids a labelling of a clique exactly,
because differences of two messages are never taken.

All samples of `scores` (m, n_entries) have one graph, which may itself be the union of many.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from kernelcrf.arrays import Array, Floats, Labels
from kernelcrf.engines.local import LocalEngine
from kernelcrf.graphs.junction import CliqueTree, clique_tree
from kernelcrf.graphs.structure import Graph
from kernelcrf.inference.loops import clique_tree as loops
from kernelcrf.inference.loss import GraphMoments, InfeasibleSampleError, Loss, loss_of
from kernelcrf.inference.tree_program import Program

MOST_ENTRIES = 2**25
"""The greatest number of labelings of all cliques of a sample's tree for exact inference."""
TASKS = 64


class TreewidthError(ValueError):
    """Raised for a graph that is too wide for exact inference; `width` and `entries` say how wide."""

    def __init__(self, width: int, entries: int, most: int) -> None:
        super().__init__(
            f"exact inference needs tables of {entries:.3g} labelings per sample ({8 * entries / 2**30:.3g} GiB): the "
            f"graph, triangulated, has treewidth {width}. At most {most:.3g} are allowed: remove edges, use a tree "
            "or a learned structure if you can choose one; GraphCRF also has inference='loopy' (an upper bound on "
            "the log-partition) and inference='gibbs' (samples)"
        )
        self.width = width
        self.entries = entries


@dataclass(frozen=True, eq=False)
class Calibrated:
    """Scores after a pass: moments, and the conditionals kappa (m, entries) of the tree's cliques."""

    exact: Exact
    moments: GraphMoments
    conditionals: Floats

    def tangents(self, direction: Array, n_threads: int = 1) -> Floats:
        """Return derivatives (m, n_entries) of the marginals along a direction (m, n_entries) of the scores."""
        program, out = self.exact.program, np.empty(direction.shape)

        def work(rows: slice) -> None:
            loops.tangents(
                np.ascontiguousarray(direction[rows], np.float64), program.steps, program.index, program.cliques,
                program.n_values, program.widest, self.conditionals[rows], out[rows],
            )  # fmt: skip

        over_rows(work, len(direction), n_threads)
        return out

    def entropy(self) -> Floats:
        """Return -sum_y p(y) log p(y) of each sample, (m, n_samples)."""
        program, graph = self.exact.program, self.exact.graph
        out = np.zeros((len(self.conditionals), graph.n_samples))
        loops.entropy(program.cliques, program.index, graph.n_entries, program.widest, self.conditionals, out)
        return out

    def sample(self, n_draws: int, rng: np.random.Generator) -> Labels:
        """Return exact draws of labelings, (m, n_draws, V)."""
        program, graph = self.exact.program, self.exact.graph
        labels = np.empty((len(self.conditionals), n_draws, graph.n_nodes), np.int32)
        uniform = rng.random((len(labels), n_draws, len(program.cliques)))
        loops.sample(uniform, program.cliques, program.index, graph.n_entries, self.conditionals, program.homes, labels)
        return labels


@dataclass(frozen=True, eq=False)
class Exact:
    """Exact inference on one graph."""

    graph: Graph
    most_entries: int = MOST_ENTRIES

    @cached_property
    def tree(self) -> CliqueTree:
        """Return the clique tree, or raise if it is too wide."""
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
        """Return the tree as arrays."""
        return Program.of(self.graph, self.tree)

    def log_partition(self, scores: Array, n_threads: int = 1) -> Floats:
        """Return log Z of each sample, (m, n_samples)."""
        return self._pass(scores, n_threads, keep=False, marginals=False)[0]

    def moments(self, scores: Array, n_threads: int = 1) -> GraphMoments:
        """Return log Z, and the marginals of the graph's cliques."""
        log_partition, _, marginals = self._pass(scores, n_threads, keep=False, marginals=True)
        return GraphMoments(log_partition, marginals)

    def calibrate(self, scores: Array, n_threads: int = 1) -> Calibrated:
        """Return the moments with the conditionals that derivatives, entropy and samples need."""
        log_partition, conditionals, marginals = self._pass(scores, n_threads, keep=True, marginals=True)
        return Calibrated(self, GraphMoments(log_partition, marginals), conditionals)

    def _pass(self, scores: Array, n_threads: int, *, keep: bool, marginals: bool) -> tuple[Floats, Floats, Floats]:
        scores, program = self._checked(scores), self.program
        m = len(scores)
        log_partition = np.zeros((m, self.graph.n_samples))
        conditionals = np.empty((m if keep else 0, program.n_tree))
        out = np.empty((m if marginals else 0, scores.shape[1]))

        def work(rows: slice) -> None:
            loops.moments(
                scores[rows], program.steps, program.index, program.cliques, program.n_values, program.widest,
                conditionals[rows] if keep else conditionals, log_partition[rows], out[rows] if marginals else out,
            )  # fmt: skip

        over_rows(work, m, n_threads)
        self._raise_if_infeasible(log_partition)
        return log_partition, conditionals, out

    def entropy(self, scores: Array, n_threads: int = 1) -> Floats:
        """Return -sum_y p(y) log p(y) of each sample, (m, n_samples)."""
        return self.calibrate(scores, n_threads).entropy()

    def loss(self, tables: Floats, labels: Array, n_threads: int = 1, *, curvature: bool) -> Loss:
        """Return -log p of labels (m, V), summed over all labelings that agree with them if some are missing."""
        tables = self._checked(tables)
        kept = self.calibrate(tables, n_threads) if curvature else None
        model = kept.moments if kept else self.moments(tables, n_threads)
        return loss_of(self, tables, labels, model, kept, n_threads)

    def best(self, scores: Array, n_threads: int = 1) -> tuple[Labels, Floats]:
        """Return the labelling of the highest score, (m, V), and that score, (m, n_samples)."""
        scores, program = self._checked(scores), self.program
        labels = np.empty((len(scores), self.graph.n_nodes), np.int32)
        totals = np.zeros((len(scores), self.graph.n_samples))

        def work(rows: slice) -> None:
            loops.best(
                scores[rows], program.steps, program.index, program.cliques, program.n_values, program.widest,
                program.homes, labels[rows], totals[rows],
            )  # fmt: skip

        over_rows(work, len(scores), n_threads)
        self._raise_if_infeasible(totals)
        return labels, totals

    def k_best(self, scores: Array, k: int) -> list[tuple[Labels, Floats]]:
        """Return up to k labelings (k', V) of each row with the highest scores, best first, and their scores (k',).

        Lists of the k best labelings of a subtree, for each labelling of its separator, are merged from the leaves to
        the root. The graph must be that of a single sample.
        """
        if k < 1:
            raise ValueError(f"k={k!r}: expected at least 1")
        if self.graph.n_samples > 1:
            raise ValueError("k_best ranks the labelings of one sample: expected a graph that is not a union")
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
            raise ValueError(
                f"scores has shape {scores.shape}: expected (m, {self.graph.n_entries}), one row per sample"
            )
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
    """Return the k best sums of a labelling of each of two parts; a link is a pair of links, or a clique's choice."""
    pairs = ((a + b, (left, right)) for a, left in first for b, right in second)
    return heapq.nlargest(k, pairs, key=_score)


def _chosen(link: Link) -> Iterator[tuple[int, int]]:
    """Return the (clique, entry) pairs of a ranked labelling."""
    waiting = [link]
    while waiting:
        link = waiting.pop()
        if len(link) == 3:
            yield link[0], link[1]
            waiting.append(link[2])
        else:
            waiting.extend(link)


def over_rows(work: Callable[[slice], None], m: int, n_threads: int) -> None:
    """Run `work` on blocks of m rows, in threads."""
    size = max(-(-m // TASKS), 1)
    LocalEngine(n_threads).map(work, [slice(low, min(low + size, m)) for low in range(0, m, size)])
