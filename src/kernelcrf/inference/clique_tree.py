"""Exact inference on any graph, with its clique tree.

The score of a labelling is sum_C t_C(y_C) over the cliques of the graph (8). Their tables t_C are added to the tables
T_c of the tree's cliques. From the leaves to the root, with s the separator between a clique and its parent,

    m_c(y_s) = log sum_{y_c ~ y_s} exp T_c(y_c),     kappa_c(y_c | y_s) = exp(T_c(y_c) - m_c(y_s)),

and m_c is added to the parent's table; the root's m is log Z. The distribution is the product of the conditionals
kappa_c over the tree. They give the marginals p_c = kappa_c p(y_s) from the root down, exact samples in the same
order, and the entropy -sum_c E log kappa_c. Along a direction dT of the tables,

    dm_c = E[dT_c | y_s],    d kappa_c = kappa_c (dT_c - dm_c),    dp_c = d kappa_c p(y_s) + kappa_c dp(y_s),

which needs no exponentials. With max instead of the sum, the same pass decodes. Summing the marginals of the tree's
cliques to marginals of the graph's cliques is the transpose of adding the tables. -inf forbids a labelling of a clique
exactly, because no formula subtracts two messages.

All rows of `scores` (m, n_entries) have the same graph, which may be the union of the graphs of many samples.
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
"""The largest size of a sample's tree for exact inference: the number of labelings, summed over its cliques."""
TASKS = 64


class TreewidthError(ValueError):
    """Raised if exact inference on a graph would need too much memory; it has the treewidth and the table entries."""

    def __init__(self, width: int, entries: int, most: int) -> None:
        super().__init__(
            f"exact inference needs tables of {entries:.3g} labelings per sample ({8 * entries / 2**30:.3g} GiB): the "
            f"graph has treewidth {width} after triangulation. Expected at most {most:.3g} labelings: remove edges, or "
            "use a tree or a learned structure if you can choose; GraphCRF also has inference='loopy' (an upper bound "
            "on the log-partition) and inference='gibbs' (samples)"
        )
        self.width = width
        self.entries = entries


@dataclass(frozen=True, eq=False)
class Calibrated:
    """The result of inference: moments, and the conditionals kappa (m, entries) of the tree's cliques."""

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
    """Exact inference on one graph, if its clique tree has at most `most_entries` table entries per sample."""

    graph: Graph
    most_entries: int = MOST_ENTRIES

    @cached_property
    def tree(self) -> CliqueTree:
        """Return the clique tree; raise if its tables are too large."""
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
        """Return the tree as flat arrays for the compiled loops."""
        return Program.of(self.graph, self.tree)

    def log_partition(self, scores: Array, n_threads: int = 1) -> Floats:
        """Return log Z of each sample, (m, n_samples)."""
        return self._pass(scores, n_threads, keep=False, marginals=False)[0]

    def moments(self, scores: Array, n_threads: int = 1) -> GraphMoments:
        """Return log Z, and the marginals of the graph's cliques."""
        log_partition, _, marginals = self._pass(scores, n_threads, keep=False, marginals=True)
        return GraphMoments(log_partition, marginals)

    def calibrate(self, scores: Array, n_threads: int = 1) -> Calibrated:
        """Return the moments, together with the conditionals that derivatives, entropy and samples need."""
        log_partition, conditionals, marginals = self._pass(scores, n_threads, keep=True, marginals=True)
        return Calibrated(self, GraphMoments(log_partition, marginals), conditionals)

    def _pass(self, scores: Array, n_threads: int, *, keep: bool, marginals: bool) -> tuple[Floats, Floats, Floats]:
        scores, program = self._check_scores(scores), self.program
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
        """Return -log p of labels (m, V); if some are missing, p is the sum over all labelings that agree with them."""
        tables = self._check_scores(tables)
        kept = self.calibrate(tables, n_threads) if curvature else None
        model = kept.moments if kept else self.moments(tables, n_threads)
        return loss_of(self, tables, labels, model, kept, n_threads)

    def best(self, scores: Array, n_threads: int = 1) -> tuple[Labels, Floats]:
        """Return the labelling with the highest score, (m, V), and this score, (m, n_samples)."""
        scores, program = self._check_scores(scores), self.program
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
        """Return at most k labelings (k', V) with the highest scores for each row, best first, and the scores (k',).

        From the leaves to the root, the k best labelings of each subtree are ranked for each labelling of its
        separator. The graph must belong to a single sample.
        """
        if k < 1:
            raise ValueError(f"k={k!r}: expected at least 1")
        if self.graph.n_samples > 1:
            raise ValueError("the graph is a union of several samples: k_best expects the graph of a single sample")
        return [self._rank(row, k) for row in self._check_scores(scores)]

    def _rank(self, scores: Floats, k: int) -> tuple[Labels, Floats]:
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
                whole = _combine_rankings(whole, tops[0], k)
                continue
            above = lists[row[loops.PARENT]]
            for e, ranking in enumerate(above):
                above[e] = _combine_rankings(ranking, tops[program.index[row[loops.DOWN] + e]], k)
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

    def _check_scores(self, scores: Array) -> Floats:
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


# A ranked labelling: a pair of links, or (clique, entry of its table, link of the cliques below).
Link = tuple[Any, ...]
Ranking = list[tuple[float, Link]]


def _score(item: tuple[float, Link]) -> float:
    return item[0]


def _combine_rankings(first: Ranking, second: Ranking, k: int) -> Ranking:
    """Combine the rankings of two parts: return the k pairs of labelings with the largest total scores."""
    pairs = ((a + b, (left, right)) for a, left in first for b, right in second)
    return heapq.nlargest(k, pairs, key=_score)


def _chosen(link: Link) -> Iterator[tuple[int, int]]:
    """Yield the pairs (clique, entry of its table) of a ranked labelling."""
    waiting = [link]
    while waiting:
        link = waiting.pop()
        if len(link) == 3:
            yield link[0], link[1]
            waiting.append(link[2])
        else:
            waiting.extend(link)


def over_rows(work: Callable[[slice], None], m: int, n_threads: int) -> None:
    """Call `work` with slices that together cover m rows, in threads."""
    size = max(-(-m // TASKS), 1)
    LocalEngine(n_threads).map(work, [slice(low, min(low + size, m)) for low in range(0, m, size)])
