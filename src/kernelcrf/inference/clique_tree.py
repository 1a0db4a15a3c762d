"""Exact inference on any graph by message passing on its clique tree.

Each clique C of the graph has a table t_C with one score per labelling of its nodes. A labelling y of all nodes has the
score sum_C t_C(y_C) (equation 8 of the paper). First, every table t_C is added to the table T_c of a clique c of the
tree; this clique c contains all nodes of C. Let the separator s of c be the nodes that c shares with its parent. From
the leaves to the root, each clique computes a message m_c to its parent and a conditional distribution kappa_c:

    m_c(y_s) = log sum_{y_c that agrees with y_s} exp T_c(y_c),     kappa_c(y_c | y_s) = exp(T_c(y_c) - m_c(y_s)).

The message is added to the parent's table. The message of the root is log Z, and p(y) is the product of all kappa_c.
From the root to the leaves, the conditionals give the marginals p_c = kappa_c p(y_s) and exact samples. The entropy is
-sum_c E[log kappa_c]. If the graph's tables change, each table T_c changes by dT_c, which includes the changes dm of
the messages that are added to T_c. Then

    dm_c = E[dT_c | y_s],    d kappa_c = kappa_c (dT_c - dm_c),    dp_c = d kappa_c p(y_s) + kappa_c dp(y_s).

These derivatives need no exponentials. Decoding replaces the sum by the maximum, or by the k largest values. Marginals
of the graph's cliques are sums of the marginals of the tree's cliques. A score of -inf forbids a labelling exactly,
because no formula subtracts one message from another.

`scores` has the shape (m, n_entries). Each of the m rows contains the tables of all cliques of the graph, one after the
other. The graph may consist of the graphs of several samples.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property
from operator import itemgetter
from typing import Any

import numpy as np

from kernelcrf.arrays import Array, Floats, Labels
from kernelcrf.engines.local import LocalEngine
from kernelcrf.graphs.junction import CliqueTree, clique_tree
from kernelcrf.graphs.structure import Graph
from kernelcrf.inference.loops import clique_tree as loops
from kernelcrf.inference.loss import Curvature, GraphMoments, InfeasibleSampleError, Loss, loss_of
from kernelcrf.inference.tree_program import Program

MOST_ENTRIES = 2**25
"""The largest size of a sample's tree for exact inference: the number of labellings, summed over its cliques."""
TASKS = 64


class TreewidthError(ValueError):
    """Raised if exact inference on a graph would need too much memory.

    width : the treewidth of the graph after triangulation.
    entries, most : the number of table entries that inference would need, and the largest allowed number.
    """

    def __init__(self, width: int, entries: int, most: int) -> None:
        super().__init__(width, entries, most)
        self.width, self.entries, self.most = width, entries, most

    def __str__(self) -> str:
        return (
            f"exact inference needs tables of {self.entries:.3g} labelings per sample ({8 * self.entries / 2**30:.3g} "
            f"GiB): the graph has treewidth {self.width} after triangulation. Expected at most {self.most:.3g} "
            "labelings: remove edges, or use a tree or a learned structure if you can choose; GraphCRF also has "
            "inference='loopy' (an upper bound on the log-partition) and inference='gibbs' (samples)"
        )


@dataclass(frozen=True, eq=False)
class Calibrated(Curvature):
    """The results of exact inference at given scores.

    moments : log-partitions and marginals.
    conditionals : one row per row of the scores. For each clique of the tree, a row has the probabilities of the labels
        of its nodes, given the labels of the nodes that the clique shares with its parent.
    """

    exact: Exact
    moments: GraphMoments
    conditionals: Floats

    def tangents(self, direction: Array, n_threads: int = 1) -> Floats:
        direction, tree = np.ascontiguousarray(direction, np.float64), self.exact.program.tree
        out = np.empty(direction.shape)

        def work(rows: slice) -> None:
            loops.tangents(direction[rows], *tree, self.conditionals[rows], out[rows])

        over_rows(work, len(direction), n_threads)
        return out

    def entropy(self) -> Floats:
        """Return the entropy -sum_y p(y) log p(y) of each sample.

        The result has one row per row of the scores, and one column per sample.
        """
        program, graph = self.exact.program, self.exact.graph
        out = np.zeros((len(self.conditionals), graph.n_samples))
        loops.entropy(program.cliques, program.index, graph.n_entries, program.widest, self.conditionals, out)
        return out

    def sample(self, n_draws: int, rng: np.random.Generator) -> Labels:
        """Draw exact samples of the labels; return an array with the axes (row of the scores, draw, node)."""
        program, graph = self.exact.program, self.exact.graph
        labels = np.empty((len(self.conditionals), n_draws, graph.n_nodes), np.int32)
        uniform = rng.random((len(labels), n_draws, len(program.cliques)))
        loops.sample(uniform, program.cliques, program.index, graph.n_entries, self.conditionals, program.homes, labels)
        return labels


@dataclass(frozen=True, eq=False)
class Exact:
    """Exact inference on one graph, by message passing on its clique tree.

    The arguments `scores` and `tables` have the shape (m, n_entries). Each of the m rows contains the tables of all
    cliques of the graph, one after the other. A table has one score per joint labelling of a clique's nodes.
    """

    graph: Graph

    @cached_property
    def tree(self) -> CliqueTree:
        """Return the clique tree of the graph; raise TreewidthError if its tables are too large."""
        scopes = (scope for nodes in self.graph.cliques.values() for scope in nodes.tolist())
        tree = clique_tree(self.graph.n_nodes, scopes)
        entries = tree.entries(self.graph.cards.tolist())
        most = MOST_ENTRIES * self.graph.n_samples
        if entries > most:
            raise TreewidthError(tree.width, entries, most)
        return tree

    @property
    def n_labellings(self) -> int:
        """Count the joint labellings of each clique of the tree, and return the sum of these counts."""
        return self.tree.entries(self.graph.cards.tolist())

    @cached_property
    def program(self) -> Program:
        """Return the clique tree as flat arrays for the compiled loops."""
        return Program.of(self.graph, self.tree)

    def log_partition(self, scores: Array, n_threads: int = 1) -> Floats:
        """Return the log-partition log Z of each sample as an array of shape (len(scores), n_samples)."""
        return self._pass(scores, n_threads, keep=False, marginals=False)[0]

    def moments(self, scores: Array, n_threads: int = 1) -> GraphMoments:
        """Return the log-partition of each sample and the marginals of the graph's cliques."""
        log_partition, _, marginals = self._pass(scores, n_threads, keep=False, marginals=True)
        return GraphMoments(log_partition, marginals)

    def calibrate(self, scores: Array, n_threads: int = 1) -> Calibrated:
        """Return log-partitions and marginals in an object that can also compute derivatives, entropies and samples."""
        log_partition, conditionals, marginals = self._pass(scores, n_threads, keep=True, marginals=True)
        return Calibrated(self, GraphMoments(log_partition, marginals), conditionals)

    def _pass(self, scores: Array, n_threads: int, *, keep: bool, marginals: bool) -> tuple[Floats, Floats, Floats]:
        scores, program = self._check_scores(scores), self.program
        m = len(scores)
        log_partition = np.zeros((m, self.graph.n_samples))
        conditionals = np.empty((m if keep else 0, program.n_tree))
        out = np.empty((m if marginals else 0, scores.shape[1]))

        def work(rows: slice) -> None:
            kept, clique_marginals = conditionals[rows] if keep else conditionals, out[rows] if marginals else out
            loops.moments(scores[rows], *program.tree, kept, log_partition[rows], clique_marginals)

        over_rows(work, m, n_threads)
        _raise_if_infeasible(log_partition)
        return log_partition, conditionals, out

    def entropy(self, scores: Array, n_threads: int = 1) -> Floats:
        """Return the entropy -sum_y p(y) log p(y) of each sample as an array of shape (len(scores), n_samples)."""
        return self.calibrate(scores, n_threads).entropy()

    def loss(self, tables: Floats, labels: Array, n_threads: int = 1, *, curvature: bool) -> Loss:
        """Return the loss -log p(labels) of each sample, and its gradient with respect to the tables.

        labels : one column per node. Missing labels (-1) are summed over.
        curvature : whether the result must be able to compute derivatives of the marginals.
        """
        tables = self._check_scores(tables)
        kept = self.calibrate(tables, n_threads) if curvature else None
        model = kept.moments if kept else self.moments(tables, n_threads)
        return loss_of(self, tables, labels, model, kept, n_threads)

    def best(self, scores: Array, n_threads: int = 1) -> tuple[Labels, Floats]:
        """Return the labels with the highest total score (one column per node), and this score for each sample."""
        scores, program = self._check_scores(scores), self.program
        labels = np.empty((len(scores), self.graph.n_nodes), np.int32)
        totals = np.zeros((len(scores), self.graph.n_samples))

        def work(rows: slice) -> None:
            loops.best(scores[rows], *program.tree, program.homes, labels[rows], totals[rows])

        over_rows(work, len(scores), n_threads)
        _raise_if_infeasible(totals)
        return labels, totals

    def k_best(self, scores: Array, k: int) -> list[tuple[Labels, Floats]]:
        """Return the k best labellings and their scores, best first, for each row of `scores`.

        A row has fewer than k results if fewer labellings are allowed. The graph must belong to a single sample.
        """
        if k < 1:
            raise ValueError(f"k={k!r}: expected the number of labelings to return, at least 1")
        if self.graph.n_samples > 1:
            raise ValueError(
                f"the graph contains {self.graph.n_samples} samples: k_best expects the graph of one sample, "
                "so call it once per sample"
            )
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
            tops = [heapq.nlargest(k, group, key=itemgetter(0)) for group in groups]
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
            for c, e in _selected_entries(link):
                chosen[c] = e
            home, stride, card = program.homes.T
            labels[rank] = (chosen[home] // stride) % card
        return labels, np.array([score for score, _ in whole])

    def _check_scores(self, scores: Array) -> Floats:
        scores = np.ascontiguousarray(scores, np.float64)
        if scores.ndim != 2 or scores.shape[1] != self.graph.n_entries:
            raise ValueError(
                f"scores has shape {scores.shape}: expected (m, {self.graph.n_entries}), "
                "one column per table entry of the graph"
            )
        return scores


def _raise_if_infeasible(totals: Floats) -> None:
    bad = np.flatnonzero(~np.isfinite(totals))
    if bad.size:
        raise InfeasibleSampleError(int(bad[0]))


# A ranked labelling: a pair of links, or (clique, entry of its table, link of the cliques below).
Link = tuple[Any, ...]
Ranking = list[tuple[float, Link]]


def _combine_rankings(first: Ranking, second: Ranking, k: int) -> Ranking:
    """Combine each labelling in `first` with each in `second`; return the k combinations with the highest scores.

    The score of a combination is the sum of the scores of its two labellings.
    """
    pairs = ((a + b, (left, right)) for a, left in first for b, right in second)
    return heapq.nlargest(k, pairs, key=itemgetter(0))


def _selected_entries(link: Link) -> Iterator[tuple[int, int]]:
    """Yield (index of the clique, index of the chosen entry in its table) for each clique of a ranked labelling.

    `link` stores the labelling as nested tuples.
    """
    waiting = [link]
    while waiting:
        link = waiting.pop()
        if len(link) == 3:
            yield link[0], link[1]
            waiting.append(link[2])
        else:
            waiting.extend(link)


def over_rows(work: Callable[[slice], None], m: int, n_threads: int) -> None:
    """Call `work` with slices that together cover the rows 0 to m - 1, in up to `n_threads` threads."""
    size = max(-(-m // TASKS), 1)
    LocalEngine(n_threads).map(work, [slice(low, min(low + size, m)) for low in range(0, m, size)])
