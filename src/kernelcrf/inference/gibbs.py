"""Gibbs sampling on any graph, and the pseudo-likelihood as loss.

A sweep draws every node in turn from p(y_v | all others). This needs only the tables of the node's cliques, so that the
treewidth does not matter. After enough sweeps, labelings come from p(y|x), unless forbidden ones separate them.

A solver cannot certify a loss from samples. `loss` is therefore the negative log pseudo-likelihood (Besag 1975),
-sum_v log p(y_v | y_others): convex in the tables, computed exactly, and consistent if all labels are observed.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from kernelcrf.arrays import Array, Floats, Ints, Labels
from kernelcrf.graphs.structure import Graph
from kernelcrf.inference.clique_tree import over_rows
from kernelcrf.inference.loops import gibbs as loops
from kernelcrf.inference.loss import MISSING, GraphMoments, Loss, labelling_scores, likeliest_labels


@dataclass(frozen=True, eq=False)
class PseudoCurvature:
    """The probabilities p(y_v | y_others) of each node given the labels of all others, (m, sum of label counts)."""

    gibbs: Gibbs
    labels: Labels
    chosen: Ints
    conditionals: Floats

    def tangents(self, direction: Floats, n_threads: int = 1) -> Floats:
        """Return the derivative (m, n_entries) of the gradient of the loss along a direction of the tables."""
        out = np.zeros(direction.shape)

        def work(rows: slice) -> None:
            loops.tangents(
                np.ascontiguousarray(direction[rows]), self.labels[rows], self.chosen[rows], self.gibbs.graph.cards,
                *self.gibbs.incidence, self.conditionals[rows], out[rows],
            )  # fmt: skip

        over_rows(work, len(direction), n_threads)
        return out


@dataclass(frozen=True, eq=False)
class Gibbs:
    """Inference by Gibbs sampling: `n_draws` sweeps after `burn_in` sweeps that start from a random labelling."""

    graph: Graph
    n_draws: int = 500
    burn_in: int = 100
    seed: int = 0

    @cached_property
    def incidence(self) -> tuple[Ints, Ints]:
        """Return (starts, uses): node v has the cliques in rows starts[v] .. starts[v + 1] of uses (`loops.gibbs`)."""
        nodes, rows, first = [np.empty(0, np.int64)], [np.empty((0, 3), np.int64)], 0
        for name, members in self.graph.cliques.items():
            shape, numbers = self.graph.shape(name), first + np.arange(len(members))
            for place, own in enumerate(members.T):
                nodes.append(own)
                stride = np.full_like(own, math.prod(shape[place + 1 :]))
                rows.append(np.column_stack((numbers, stride, np.full_like(own, len(shape)))))
            first += len(members)
        of_node = np.concatenate(nodes)
        counts = np.bincount(of_node, minlength=self.graph.n_nodes)
        return np.concatenate(([0], np.cumsum(counts))), np.concatenate(rows)[np.argsort(of_node, kind="stable")]

    def _sweeps(self, tables: Floats, rng: np.random.Generator, means: Floats | None) -> Iterator[tuple[Labels, Ints]]:
        """Yield the labels (m, V) and the table entries that they select, after each sweep that follows `burn_in`.

        If `means` is given, these sweeps add the conditionals p(y_v | y_others) of all nodes to it.
        """
        graph, nothing = self.graph, np.empty((len(tables), 0))
        shape = len(tables), graph.n_nodes
        labels = rng.integers(graph.cards, size=shape).astype(np.int32) if graph.n_nodes else np.zeros(shape, np.int32)
        chosen = graph.chosen(labels)
        for k in itertools.count():
            counted = k >= self.burn_in
            if graph.n_nodes:
                into = means if counted and means is not None else nothing
                loops.sweep(tables, labels, chosen, graph.cards, *self.incidence, rng.random(shape), into)
            if counted:
                yield labels, chosen

    def sample(self, tables: Array, n_draws: int, rng: np.random.Generator, thin: int = 1) -> Labels:
        """Return sampled labelings (m, n_draws, V), with `thin` sweeps between two draws."""
        tables = np.ascontiguousarray(tables, np.float64)
        draws = np.empty((len(tables), n_draws, self.graph.n_nodes), np.int32)
        sweeps = self._sweeps(tables, rng, None)
        for k, (labels, _) in enumerate(itertools.islice(sweeps, thin - 1, n_draws * thin, thin)):
            draws[:, k] = labels
        return draws

    def moments(self, tables: Array, n_threads: int = 1) -> GraphMoments:
        """Estimate marginals (m, n_entries): means of conditionals for nodes, frequencies for larger cliques.

        The log-partition is NaN, because samples do not give it.
        """
        tables, starts = np.ascontiguousarray(tables, np.float64), self.graph.node_starts
        means, counts, rows = np.zeros((len(tables), starts[-1])), np.zeros(tables.shape), np.arange(len(tables))
        sweeps = self._sweeps(tables, np.random.default_rng(self.seed), means)
        for _, chosen in itertools.islice(sweeps, self.n_draws):
            counts[rows[:, None], chosen] += 1
        for name, nodes in self.graph.cliques.items():
            if nodes.shape[1] == 1:
                columns = (starts[nodes[:, 0]][:, None] + np.arange(self.graph.shape(name)[0])).ravel()
                counts[:, self.graph.slices[name]] = means[:, columns]
        return GraphMoments(np.full((len(tables), self.graph.n_samples), np.nan), counts / self.n_draws)

    def best(self, tables: Array, n_threads: int = 1) -> tuple[Labels, Floats]:
        """Return the label with the largest sampled marginal of each node, (m, V), and the score of this labelling."""
        tables = np.ascontiguousarray(tables, np.float64)
        means = np.zeros((len(tables), self.graph.node_starts[-1]))
        for _ in itertools.islice(self._sweeps(tables, np.random.default_rng(self.seed), means), self.n_draws):
            pass
        labels = likeliest_labels(self.graph, means)
        return labels, labelling_scores(self.graph, tables, labels)

    def loss(self, tables: Floats, labels: Array, n_threads: int = 1, *, curvature: bool) -> Loss:
        """Return -sum_v log p(y_v | y_others) of labels (m, V); raise if a label is missing."""
        if (labels == MISSING).any():
            raise ValueError(
                "some labels are missing: inference='gibbs' expects all labels, because it fits the probability of "
                "each label given all others; use inference='loopy'"
            )
        tables, labels = np.ascontiguousarray(tables, np.float64), np.ascontiguousarray(labels, np.int32)
        graph, chosen = self.graph, self.graph.chosen(labels)
        kept = np.empty((len(tables), graph.node_starts[-1] if curvature else 0))
        losses = np.zeros((len(tables), graph.n_samples))
        residual, shares = np.zeros(tables.shape), np.zeros(tables.shape)

        def work(rows: slice) -> None:
            loops.pseudo_likelihood(
                tables[rows], labels[rows], chosen[rows], graph.cards, graph.node_samples, *self.incidence,
                kept[rows], losses[rows], residual[rows], shares[rows],
            )  # fmt: skip

        over_rows(work, len(tables), n_threads)
        known = PseudoCurvature(self, labels, chosen, kept) if curvature else None
        return Loss(losses, residual, shares, known)

    def entropy(self, tables: Array, n_threads: int = 1) -> Floats:
        """Raise an error, because samples do not give the entropy."""
        raise ValueError(
            "entropy is not available with inference='gibbs': use 'exact', or 'loopy' for an approximate value"
        )
