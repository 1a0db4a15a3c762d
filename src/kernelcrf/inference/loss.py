"""Define the loss of labels on a graph, its gradient with respect to the tables, and its curvature.

Exact inference gives the loss -log p(labels). Approximate inference gives an upper bound on this loss, or the negative
log pseudo-likelihood. Tables have the shape (m, n_entries): each of the m rows contains the score tables of all cliques
of the graph, one after the other.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass, replace
from typing import Protocol

import numpy as np

from kernelcrf.arrays import Array, Floats, Labels
from kernelcrf.graphs.structure import Graph

MISSING = -1


class Curvature(Protocol):
    """Protocol of objects that compute derivatives of the marginals at given tables."""

    def tangents(self, direction: Floats, n_threads: int) -> Floats:
        """Return the derivatives of the marginals along `direction`; both have the shape of the tables."""


@dataclass(frozen=True, eq=False)
class DualPoint:
    """A lower bound on the loss that is linear in the tables t: loss(t) >= entropy + <residual, t> for *all* t.

    entropy : (m, n_samples), the constant term of each sample's bound.
    residual : (m, n_entries), the coefficients of the table entries.
    """

    entropy: Floats
    residual: Floats


@dataclass(frozen=True, eq=False)
class Loss:
    """The loss of labels at given tables, with its derivatives.

    losses : (m, n_samples), the loss of each sample: -log p(labels) or an approximation.
    residual : (m, n_entries), the gradient of the losses with respect to the tables.
    marginals : (m, n_entries), the marginals of the graph's cliques under the model.
    curvature : an object that computes derivatives of the marginals; None if it was not requested.
    dual : a lower bound on the loss that is valid at all tables; if it is None, solvers use the tangent of the loss.
    """

    losses: Floats
    residual: Floats
    marginals: Floats
    curvature: Curvature | None
    dual: DualPoint | None = None


@dataclass(frozen=True, eq=False)
class GraphMoments:
    """Log-partitions and marginals, computed from tables of shape (m, n_entries).

    log_partition : (m, n_samples), one number per sample.
    cliques : (m, n_entries), the marginals of the graph's cliques, in the order of the tables.
    """

    log_partition: Floats
    cliques: Floats


class Inference(Protocol):
    """Protocol of objects that run exact or approximate inference on one graph."""

    @property
    def graph(self) -> Graph:
        """Return the graph, which is the same for all rows of the tables."""

    def moments(self, tables: Floats, n_threads: int) -> GraphMoments:
        """Return exact or approximate log-partitions and marginals."""

    def loss(self, tables: Floats, labels: Array, n_threads: int, *, curvature: bool) -> Loss:
        """Return the loss of the given labels, and its gradient with respect to the tables.

        labels : one row per row of the tables and one column per node; labels that were not observed are MISSING (-1).
        curvature : whether the result must be able to compute derivatives of the marginals.
        """

    def entropy(self, tables: Floats, n_threads: int) -> Floats:
        """Return the entropy -sum_y p(y) log p(y) of each sample as an array of shape (len(tables), n_samples)."""


class InfeasibleSampleError(ValueError):
    """Raised if scores of -inf forbid all labelings of a sample."""

    def __init__(self, sample: int) -> None:
        super().__init__(sample)
        self.sample = sample

    def __str__(self) -> str:
        return f"every labelling of sample {self.sample} is forbidden by a score of -inf: allow at least one"


def clamp_labels(graph: Graph, tables: Floats, labels: Array) -> Floats:
    """Return a copy of the tables in which each node with a known label can have only this label.

    Nodes whose label is MISSING keep all labels. Only tables of single nodes are changed, so every node with a known
    label must have such a table.
    """
    tables = tables.copy()
    unseen = np.asarray(labels) < 0
    for name, nodes in graph.cliques.items():
        if nodes.shape[1] == 1:
            place, card = graph.slices[name], graph.shape(name)[0]
            node_labels = labels[:, nodes[:, 0]]
            free = (node_labels[..., None] == np.arange(card)) | (node_labels[..., None] < 0)
            tables[:, place] = np.where(free.reshape(len(tables), nodes.shape[0] * card), tables[:, place], -np.inf)
            unseen[:, nodes[:, 0]] = True
    if not unseen.all():
        raise ValueError(
            f"node {int(np.argmax(~unseen.all(axis=0)))} has a label, but no term scores this node alone. Since "
            "other labels are missing, such a term is expected for every labelled node: add the term, or the "
            "missing labels"
        )
    return tables


def labelling_scores(graph: Graph, tables: Floats, labels: Array) -> Floats:
    """Return the total score of the given labels for each sample, as an array of shape (len(tables), n_samples)."""
    return _chosen_scores(graph, tables, graph.chosen(np.asarray(labels)))


def likeliest_labels(graph: Graph, nodes: Floats) -> Labels:
    """Return the most probable label of each node, with one row per row of `nodes` and one column per node.

    nodes : label probabilities. Each row has the probabilities of the labels of the first node, then of the second
        node, and so on.
    """
    columns = [nodes[:, low:high].argmax(axis=1) for low, high in itertools.pairwise(graph.node_starts)]
    return np.array(columns, np.int32).reshape(graph.n_nodes, len(nodes)).T


def _chosen_scores(graph: Graph, tables: Floats, chosen: Array) -> Floats:
    scores = np.take_along_axis(tables, chosen, axis=1)
    if graph.n_samples == 1:
        return np.asarray(scores.sum(axis=1, keepdims=True))
    return np.array([np.bincount(graph.clique_samples, row, graph.n_samples) for row in scores])


def loss_of(
    inference: Inference,
    tables: Floats,
    labels: Array,
    model: GraphMoments,
    curvature: Curvature | None,
    n_threads: int,
) -> Loss:
    """Return the loss of the given labels, and its gradient; missing labels are summed over.

    model : log-partitions and marginals that `inference` has computed from the same tables.
    curvature : an object that computes derivatives of the marginals; the result contains it.
    """
    graph = inference.graph
    if (labels == MISSING).any():
        target = inference.moments(clamp_labels(graph, tables, labels), n_threads)
        losses, residual = model.log_partition - target.log_partition, model.cliques - target.cliques
    else:
        chosen, residual = graph.chosen(labels), model.cliques.copy()
        losses = model.log_partition - _chosen_scores(graph, tables, chosen)
        np.put_along_axis(residual, chosen, np.take_along_axis(residual, chosen, axis=1) - 1, axis=1)
    return Loss(losses, residual, model.cliques, curvature)


def product_statistics(graph: Graph, q: Floats) -> Floats:
    """Return the probability of each table entry if the labels of nodes are independent, (m, n_entries).

    q : (m, number of nodes, L), the probability of each label of each node; all nodes have L labels.
    """
    statistics = np.empty((len(q), graph.n_entries))
    for name, nodes in graph.cliques.items():
        p = q[:, nodes[:, 0]]
        for column in nodes.T[1:]:
            p = (p[..., None] * q[:, column][:, :, None, :]).reshape(*p.shape[:2], -1)
        statistics[:, graph.slices[name]] = p.reshape(len(q), -1)
    return statistics


def loss_of_statistics(
    inference: Inference, tables: Floats, statistics: Floats, n_threads: int, *, curvature: bool
) -> Loss:
    """Return the loss log Z - <statistics, tables> of each sample, the cross-entropy of a distribution of its labels.

    If a row represents several samples that share the same tables, this is their mean loss.

    statistics : (m, n_entries), the probability of each table entry under the distribution of labels, or the fraction
        of the samples whose labels select it.
    """
    graph, anyhow = inference.graph, np.zeros((len(tables), inference.graph.n_nodes), np.int32)
    model = inference.loss(tables, anyhow, n_threads, curvature=curvature)
    expected = tables * statistics
    if graph.n_samples == 1:
        totals = expected.sum(axis=1, keepdims=True)
    else:
        sizes = [np.full(len(nodes), np.prod(graph.shape(name), dtype=int)) for name, nodes in graph.cliques.items()]
        samples = np.repeat(graph.clique_samples, np.concatenate(sizes))
        totals = np.array([np.bincount(samples, row, graph.n_samples) for row in expected])
    losses = model.losses + labelling_scores(graph, tables, anyhow) - totals
    dual = model.dual
    if dual is not None:
        dual = replace(dual, residual=dual.residual - model.residual + model.marginals - statistics)
    return Loss(losses, model.marginals - statistics, model.marginals, model.curvature, dual)
