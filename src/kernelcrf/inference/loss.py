"""The loss of labels on a graph, its gradient with respect to the tables, and its curvature.

Exact inference gives -log p of the labels. Approximate inference gives an upper bound, or a pseudo-likelihood.
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
    """Protocol of evaluated points that keep what derivatives of the marginals need."""

    def tangents(self, direction: Floats, n_threads: int) -> Floats:
        """Return derivatives (m, n_entries) of the marginals along a direction (m, n_entries) of the tables."""


@dataclass(frozen=True, eq=False)
class DualPoint:
    """A linear lower bound of the loss: for each sample and *all* tables t, it is at least `entropy` + <residual, t>.

    entropy : (m, n_samples).
    residual : (m, n_entries).
    """

    entropy: Floats
    residual: Floats


@dataclass(frozen=True, eq=False)
class Loss:
    """The loss of labels at given tables.

    losses : (m, n_samples), -log p of the labels or an approximation of it.
    residual : (m, n_entries), the gradient of the losses with respect to the tables.
    marginals : (m, n_entries), the marginals of the graph's cliques under the model.
    dual : a linear lower bound of the loss at all tables; None if the residual itself gives one.
    """

    losses: Floats
    residual: Floats
    marginals: Floats
    curvature: Curvature | None
    dual: DualPoint | None = None


@dataclass(frozen=True, eq=False)
class GraphMoments:
    """Log-partitions (m, n_samples) of the samples in each row, and marginals (m, n_entries) of the graph's cliques."""

    log_partition: Floats
    cliques: Floats


class Inference(Protocol):
    """Protocol of inference on one graph: it computes -log p of labels and its derivatives."""

    @property
    def graph(self) -> Graph:
        """Return the graph, which all rows of the tables share."""

    def moments(self, tables: Floats, n_threads: int) -> GraphMoments:
        """Return log-partitions and marginals, or approximations of them."""

    def loss(self, tables: Floats, labels: Array, n_threads: int, *, curvature: bool) -> Loss:
        """Return the loss of labels (m, V) at tables (m, n_entries); labels that are not observed are MISSING."""

    def entropy(self, tables: Floats, n_threads: int) -> Floats:
        """Return -sum_y p(y) log p(y) of each sample, (m, n_samples)."""


class InfeasibleSampleError(ValueError):
    """Raised if scores of -inf forbid all labelings of a sample."""

    def __init__(self, sample: int) -> None:
        super().__init__(f"every labelling of sample {sample} is forbidden by a score of -inf: allow at least one")
        self.sample = sample


def clamped(graph: Graph, tables: Floats, labels: Array) -> Floats:
    """Return tables that forbid all labels except the given ones; a node with a MISSING label keeps all of its labels.

    Only tables of single nodes change. Every node with a given label must have such a table.
    """
    tables = tables.copy()
    unseen = np.asarray(labels) < 0
    for name, nodes in graph.cliques.items():
        if nodes.shape[1] == 1:
            place, card = graph.slices[name], graph.shape(name)[0]
            own = labels[:, nodes[:, 0]]
            free = (own[..., None] == np.arange(card)) | (own[..., None] < 0)
            tables[:, place] = np.where(free.reshape(len(tables), nodes.shape[0] * card), tables[:, place], -np.inf)
            unseen[:, nodes[:, 0]] = True
    if not unseen.all():
        raise ValueError(
            f"node {int(np.argmax(~unseen.all(axis=0)))} has a label but is in no term of single nodes: if some labels "
            "are missing, expected such a term for every node that has a label"
        )
    return tables


def labelling_scores(graph: Graph, tables: Floats, labels: Array) -> Floats:
    """Return the scores sum_C t_C(y_C) of labelings (m, V), for each sample, (m, n_samples)."""
    return _chosen_scores(graph, tables, graph.chosen(np.asarray(labels)))


def likeliest_labels(graph: Graph, nodes: Floats) -> Labels:
    """Return the label with the largest probability for each node, (m, V); `nodes` holds them, node after node."""
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
    """Return the loss log Z - log Z(labels) and its gradient; `model` holds the moments at the tables."""
    graph = inference.graph
    if (labels == MISSING).any():
        target = inference.moments(clamped(graph, tables, labels), n_threads)
        losses, residual = model.log_partition - target.log_partition, model.cliques - target.cliques
    else:
        chosen, residual = graph.chosen(labels), model.cliques.copy()
        losses = model.log_partition - _chosen_scores(graph, tables, chosen)
        np.put_along_axis(residual, chosen, np.take_along_axis(residual, chosen, axis=1) - 1, axis=1)
    return Loss(losses, residual, model.cliques, curvature)


def loss_of_statistics(
    inference: Inference, tables: Floats, statistics: Floats, n_threads: int, *, curvature: bool
) -> Loss:
    """Return log Z - <statistics, tables>: the mean loss of samples with these mean statistics of labels."""
    anyhow = np.zeros((len(tables), inference.graph.n_nodes), np.int32)
    model = inference.loss(tables, anyhow, n_threads, curvature=curvature)
    log_partition = model.losses[:, 0] + labelling_scores(inference.graph, tables, anyhow)[:, 0]
    losses = log_partition - np.einsum("ip,ip->i", tables, statistics)
    dual = model.dual
    if dual is not None:
        dual = replace(dual, residual=dual.residual - model.residual + model.marginals - statistics)
    return Loss(losses[:, None], model.marginals - statistics, model.marginals, model.curvature, dual)
