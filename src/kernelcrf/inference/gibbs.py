"""Gibbs sampling on any graph, with the pseudo-likelihood as the loss.

A sweep draws a new label for every node v in turn, from its distribution p(y_v | y_others) given the labels of all
other nodes. Only the tables of the cliques that contain v are needed, so that a large treewidth is no problem. After
enough sweeps, the labels are samples of p(y|x), unless forbidden labelings prevent sweeps from reaching all allowed
labelings.

If a loss is estimated from samples, the distance to its minimum cannot be bounded. `loss` is therefore the negative
log pseudo-likelihood -sum_v log p(y_v | y_others) (Besag 1975). It is convex in the tables, is computed exactly, and
gives consistent estimates if all labels are observed.
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
from kernelcrf.inference.loss import MISSING, Curvature, GraphMoments, Loss, labelling_scores, likeliest_labels


@dataclass(frozen=True, eq=False)
class PseudoCurvature(Curvature):
    """Computes second derivatives of the negative log pseudo-likelihood at given labels.

    chosen : the index of the table entry that the labels select in each clique.
    conditionals : the probabilities of each node's labels given the labels of all other nodes, node after node.
    """

    gibbs: Gibbs
    labels: Labels
    chosen: Ints
    conditionals: Floats

    def tangents(self, direction: Floats, n_threads: int = 1) -> Floats:
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
    """Inference by Gibbs sampling; a sweep draws a new label for every node.

    n_draws : the number of sweeps that estimates use.
    burn_in : the number of sweeps that are run first, and whose labels are discarded.
    seed : the seed of the random numbers.
    """

    graph: Graph
    n_draws: int = 500
    burn_in: int = 100
    seed: int = 0

    @cached_property
    def incidence(self) -> tuple[Ints, Ints]:
        """Return the cliques that contain each node, as the arrays `starts` and `uses`.

        The cliques that contain node v are the rows starts[v] to starts[v + 1] - 1 of `uses`. A row is (index of the
        clique, stride of the label of v in the clique's table, number of nodes of the clique).
        """
        nodes, rows, first = [np.empty(0, np.int64)], [np.empty((0, 3), np.int64)], 0
        for name, members in self.graph.cliques.items():
            shape, numbers = self.graph.shape(name), first + np.arange(len(members))
            for place, place_nodes in enumerate(members.T):
                nodes.append(place_nodes)
                stride = np.full_like(place_nodes, math.prod(shape[place + 1 :]))
                rows.append(np.column_stack((numbers, stride, np.full_like(place_nodes, len(shape)))))
            first += len(members)
        of_node = np.concatenate(nodes)
        counts = np.bincount(of_node, minlength=self.graph.n_nodes)
        return np.concatenate(([0], np.cumsum(counts))), np.concatenate(rows)[np.argsort(of_node, kind="stable")]

    def _sweeps(self, tables: Floats, rng: np.random.Generator, means: Floats | None) -> Iterator[tuple[Labels, Ints]]:
        """Run sweeps without end. After each sweep, yield the labels and the table entries that these labels select.

        Nothing is yielded during the burn-in.

        means : an array to which each sweep after the burn-in adds the label probabilities of all nodes, or None.
        """
        graph, nothing, shape = self.graph, np.empty((len(tables), 0)), (len(tables), self.graph.n_nodes)
        labels = rng.integers(graph.cards, size=shape).astype(np.int32)
        chosen = graph.chosen(labels)
        for k in itertools.count():
            counted = k >= self.burn_in
            into = means if counted and means is not None else nothing
            loops.sweep(tables, labels, chosen, graph.cards, *self.incidence, rng.random(shape), into)
            if counted:
                yield labels, chosen

    def sample(self, tables: Array, n_draws: int, rng: np.random.Generator, thin: int = 1) -> Labels:
        """Draw labels by Gibbs sampling; return an array with the axes (row of the tables, draw, node).

        Every `thin`-th sweep after the burn-in gives one draw.
        """
        tables = np.ascontiguousarray(tables, np.float64)
        draws = np.empty((len(tables), n_draws, self.graph.n_nodes), np.int32)
        sweeps = self._sweeps(tables, rng, None)
        for k, (labels, _) in enumerate(itertools.islice(sweeps, thin - 1, n_draws * thin, thin)):
            draws[:, k] = labels
        return draws

    def moments(self, tables: Array, n_threads: int = 1) -> GraphMoments:
        """Estimate the marginals of the graph's cliques from samples.

        The marginals of a single node are the mean of the distributions from which the sweeps draw its label. The
        marginals of a larger clique are frequencies of the drawn labels. The log-partition is NaN, because it is not
        estimated.
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
        """Return the label with the largest estimated marginal for each node, and the total score of these labels."""
        tables = np.ascontiguousarray(tables, np.float64)
        means = np.zeros((len(tables), self.graph.node_starts[-1]))
        for _ in itertools.islice(self._sweeps(tables, np.random.default_rng(self.seed), means), self.n_draws):
            pass
        labels = likeliest_labels(self.graph, means)
        return labels, labelling_scores(self.graph, tables, labels)

    def loss(self, tables: Floats, labels: Array, n_threads: int = 1, *, curvature: bool) -> Loss:
        """Return the negative log pseudo-likelihood of the labels and its gradient; raise if a label is missing."""
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
        """Raise ValueError, because Gibbs sampling does not estimate the entropy."""
        raise ValueError(
            "entropy is not available with inference='gibbs': use 'exact', or 'loopy' for an approximate value"
        )
