"""Gibbs sampling on any graph, and the loss that its conditionals make of labels.

A sweep draws every node in turn from p(y_v | all others). This needs only the tables of the node's cliques, so that the
treewidth does not matter. After enough sweeps labelings come from p(y|x), unless forbidden labelings separate them.

A solver cannot certify a loss from samples. `loss` is therefore the pseudo-likelihood (Besag 1975),
-sum_v log p(y_v | y_others), made of the same conditionals: convex in the tables, exact to compute, and consistent if
the labels of all nodes are observed.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from kernelcrf.arrays import Array, Floats, Ints, Labels
from kernelcrf.graphs.structure import Graph
from kernelcrf.inference.clique_tree import over_rows
from kernelcrf.inference.loops import gibbs as loops
from kernelcrf.inference.loss import MISSING, GraphMoments, Loss, labelling_scores


@dataclass(frozen=True, eq=False)
class Incidence:
    """The cliques of each node v: rows starts[v] .. starts[v + 1] of uses, (clique, stride, nodes of the clique)."""

    starts: Ints
    uses: Ints
    samples: Ints

    @classmethod
    def of(cls, graph: Graph) -> Incidence:
        """Collect the cliques of each node, numbered in the order of `graph.chosen`."""
        nodes, rows, first = [np.empty(0, np.int64)], [np.empty((0, 3), np.int64)], 0
        for name, members in graph.cliques.items():
            strides = np.append(np.cumprod(graph.shape(name)[:0:-1])[::-1], 1).astype(np.int64)
            for place in range(members.shape[1]):
                nodes.append(members[:, place])
                own = np.empty((len(members), 3), np.int64)
                own[:, 0], own[:, 1] = first + np.arange(len(members)), strides[place]
                own[:, 2] = members.shape[1]
                rows.append(own)
            first += len(members)
        of_node = np.concatenate(nodes)
        starts = np.concatenate(([0], np.cumsum(np.bincount(of_node, minlength=graph.n_nodes))))
        uses = np.concatenate(rows)[np.argsort(of_node, kind="stable")]
        samples = np.zeros(graph.n_nodes, np.int64) if graph.samples is None else graph.samples
        return cls(starts, np.ascontiguousarray(uses), samples)


@dataclass(frozen=True, eq=False)
class PseudoCurvature:
    """The conditionals at the labels, (m, sum of cards), for derivatives of the loss."""

    gibbs: Gibbs
    labels: Labels
    chosen: Ints
    conditionals: Floats

    def tangents(self, direction: Floats, n_threads: int = 1) -> Floats:
        """Return the derivative of the loss's gradient along a direction of the tables, (m, n_entries)."""
        out, incidence = np.zeros(direction.shape), self.gibbs.incidence

        def work(rows: slice) -> None:
            loops.tangents(
                np.ascontiguousarray(direction[rows]), self.labels[rows], self.chosen[rows], self.gibbs.graph.cards,
                incidence.starts, incidence.uses, self.conditionals[rows], out[rows],
            )  # fmt: skip

        over_rows(work, len(direction), n_threads)
        return out


@dataclass(frozen=True, eq=False)
class Gibbs:
    """Inference by Gibbs sampling: `n_draws` sweeps after `burn_in`, from a random labelling."""

    graph: Graph
    n_draws: int = 500
    burn_in: int = 100
    seed: int = 0

    @cached_property
    def incidence(self) -> Incidence:
        """Return the cliques of each node."""
        return Incidence.of(self.graph)

    def sample(self, tables: Array, n_draws: int, rng: np.random.Generator, thin: int = 1) -> Labels:
        """Return labelings (m, n_draws, V), each `thin` sweeps after the last."""
        tables = np.ascontiguousarray(tables, np.float64)
        chain = _Chain.of(self, tables, rng)
        chain.run(self.burn_in)
        draws = np.empty((len(tables), n_draws, self.graph.n_nodes), np.int32)
        for k in range(n_draws):
            chain.run(thin)
            draws[:, k] = chain.labels
        return draws

    def moments(self, tables: Array, n_threads: int = 1) -> GraphMoments:
        """Return sampled marginals (m, n_entries): means of conditionals for nodes, frequencies for larger cliques.

        Sampling gives no log-partition: it is NaN.
        """
        tables = np.ascontiguousarray(tables, np.float64)
        chain = _Chain.of(self, tables, np.random.default_rng(self.seed))
        chain.run(self.burn_in)
        counts, rows = np.zeros(tables.shape), np.arange(len(tables))[:, None]
        for _ in range(self.n_draws):
            chain.run(1, means=True)
            counts[rows, chain.chosen] += 1
        starts = np.concatenate(([0], np.cumsum(self.graph.cards)))
        for name, nodes in self.graph.cliques.items():
            if nodes.shape[1] == 1:
                columns = (starts[nodes[:, 0]][:, None] + np.arange(self.graph.shape(name)[0])).ravel()
                counts[:, self.graph.slices[name]] = chain.means[:, columns]
        return GraphMoments(np.full((len(tables), self.graph.n_samples), np.nan), counts / self.n_draws)

    def best(self, tables: Array, n_threads: int = 1) -> tuple[Labels, Floats]:
        """Return the likeliest label of each node by its sampled marginal, (m, V), and the score of that labelling."""
        tables = np.ascontiguousarray(tables, np.float64)
        chain = _Chain.of(self, tables, np.random.default_rng(self.seed))
        chain.run(self.burn_in)
        chain.run(self.n_draws, means=True)
        ends = np.cumsum(self.graph.cards)
        columns = [
            chain.means[:, end - card : end].argmax(axis=1) for end, card in zip(ends, self.graph.cards, strict=True)
        ]
        labels = np.array(columns, np.int32).reshape(self.graph.n_nodes, len(tables)).T
        return labels, labelling_scores(self.graph, tables, labels)

    def loss(self, tables: Floats, labels: Array, n_threads: int = 1, *, curvature: bool) -> Loss:
        """Return -sum_v log p(y_v | y_others) of labels (m, V), all of them observed."""
        if (labels == MISSING).any():
            raise ValueError(
                "inference='gibbs' fits by the conditionals of single labels given all others, and some labels are "
                "missing: expected all of them, or inference='loopy'"
            )
        tables, labels = np.ascontiguousarray(tables, np.float64), np.ascontiguousarray(labels, np.int32)
        chosen, incidence, m = self.graph.chosen(labels), self.incidence, len(tables)
        kept = np.empty((m, int(self.graph.cards.sum()) if curvature else 0))
        losses = np.zeros((m, self.graph.n_samples))
        residual, shares = np.zeros(tables.shape), np.zeros(tables.shape)

        def work(rows: slice) -> None:
            loops.pseudo_likelihood(
                tables[rows], labels[rows], chosen[rows], self.graph.cards, incidence.samples, incidence.starts,
                incidence.uses, kept[rows], losses[rows], residual[rows], shares[rows],
            )  # fmt: skip

        over_rows(work, m, n_threads)
        known = PseudoCurvature(self, labels, chosen, kept) if curvature else None
        return Loss(losses, residual, shares, known)

    def entropy(self, tables: Array, n_threads: int = 1) -> Floats:
        """Raise: samples do not give the entropy."""
        raise ValueError(
            "entropy is not available with inference='gibbs': expected 'exact', or 'loopy' for a value near it"
        )


@dataclass(eq=False)
class _Chain:
    """The current labelings of all rows, and the sum of the conditionals so far."""

    gibbs: Gibbs
    tables: Floats
    rng: np.random.Generator
    labels: Labels
    chosen: Ints
    means: Floats

    @classmethod
    def of(cls, gibbs: Gibbs, tables: Floats, rng: np.random.Generator) -> _Chain:
        graph = gibbs.graph
        shape = len(tables), graph.n_nodes
        labels = rng.integers(graph.cards, size=shape).astype(np.int32) if graph.n_nodes else np.zeros(shape, np.int32)
        means = np.zeros((len(tables), int(graph.cards.sum())))
        return cls(gibbs, tables, rng, labels, graph.chosen(labels), means)

    def run(self, n_sweeps: int, *, means: bool = False) -> None:
        graph, incidence = self.gibbs.graph, self.gibbs.incidence
        into = self.means if means else np.empty((len(self.labels), 0))
        for _ in range(n_sweeps if graph.n_nodes else 0):
            uniform = self.rng.random(self.labels.shape)
            loops.sweep(
                self.tables, self.labels, self.chosen, graph.cards, incidence.starts, incidence.uses, uniform, into
            )
