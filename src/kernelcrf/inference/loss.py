"""What labels cost under a model of a graph: the loss, its gradient in the tables, and its curvature.

Ways of inference differ in what they call the probability of labels: exact ones in nothing, others in a bound on it.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from kernelcrf.graphs.structure import Graph

Array = npt.NDArray[Any]
Floats = npt.NDArray[np.float64]

MISSING = -1


class Curvature(Protocol):
    """What derivatives of the marginals need of a point."""

    def tangents(self, direction: Floats, n_threads: int) -> Floats:
        """(m, n_entries) derivatives of the marginals along a direction (m, n_entries) of the tables."""
        ...


@dataclass(frozen=True, eq=False)
class DualPoint:
    """Numbers by which the loss at *all* tables t is at least `entropy` + <residual, t>, for each sample.

    entropy : (m, n_samples).
    residual : (m, n_entries).
    """

    entropy: Floats
    residual: Floats


@dataclass(frozen=True, eq=False)
class Loss:
    """What labels cost at given tables.

    losses : (m, n_samples), -log p of the labels or a bound on it.
    residual : (m, n_entries), its gradient in the tables.
    marginals : (m, n_entries), of the graph's cliques under the model.
    dual : a point from which the loss is bounded from below at all tables; None if the residual is such a point.
    """

    losses: Floats
    residual: Floats
    marginals: Floats
    curvature: Curvature | None
    dual: DualPoint | None = None


@dataclass(frozen=True, eq=False)
class Moments:
    """Log-partitions (m, n_samples) of the samples of each row, and marginals (m, n_entries) of the graph's cliques."""

    log_partition: Floats
    cliques: Floats


class Inference(Protocol):
    """A way to -log p of labels on one graph, and to its derivatives."""

    @property
    def graph(self) -> Graph:
        """The graph of every row."""
        ...

    def moments(self, tables: Floats, n_threads: int) -> Moments:
        """Log-partitions and marginals, or what takes their place."""
        ...

    def loss(self, tables: Floats, labels: Array, n_threads: int, *, curvature: bool) -> Loss:
        """The loss of labels (m, V), MISSING where there is none, at tables (m, n_entries)."""
        ...

    def entropy(self, tables: Floats, n_threads: int) -> Floats:
        """-sum_y p(y) log p(y) of each sample: (m, n_samples)."""
        ...


class InfeasibleSampleError(ValueError):
    """A sample of which every labelling is forbidden by -inf."""

    def __init__(self, sample: int) -> None:
        super().__init__(
            f"sample {sample} has no labelling that is not forbidden: every one has a score of -inf; allow one"
        )
        self.sample = sample


def clamped(graph: Graph, tables: Floats, labels: Array) -> Floats:
    """Tables in which every label but the given ones is forbidden; MISSING ones forbid none.

    It is done on tables of single nodes, which every node with a label must have.
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
            f"node {int(np.argmax(~unseen.all(axis=0)))} has a label but no table of its own: where some labels "
            "are missing, expected a template of single nodes on all others"
        )
    return tables


def labelling_scores(graph: Graph, tables: Floats, labels: Array) -> Floats:
    """sum_C t_C(y_C) of each sample, (m, n_samples), at labelings (m, V)."""
    return _chosen_scores(graph, tables, graph.chosen(np.asarray(labels)))


def _chosen_scores(graph: Graph, tables: Floats, chosen: Array) -> Floats:
    scores = np.take_along_axis(tables, chosen, axis=1)
    if graph.n_samples == 1:
        return np.asarray(scores.sum(axis=1, keepdims=True))
    return np.array([np.bincount(graph.clique_samples, row, graph.n_samples) for row in scores])


def loss_of(
    inference: Inference, tables: Floats, labels: Array, model: Moments, curvature: Curvature | None, n_threads: int
) -> Loss:
    """log Z - log Z(labels) and its gradient, given the moments of the model at the tables."""
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
    """log Z - <statistics, tables>: the mean loss of many samples whose labelings have these shares (m, n_entries)."""
    anyhow = np.zeros((len(tables), inference.graph.n_nodes), np.int32)
    model = inference.loss(tables, anyhow, n_threads, curvature=curvature)
    log_partition = model.losses[:, 0] + labelling_scores(inference.graph, tables, anyhow)[:, 0]
    losses = log_partition - np.einsum("ip,ip->i", tables, statistics)
    dual = model.dual
    if dual is not None:
        dual = replace(dual, residual=dual.residual - model.residual + model.marginals - statistics)
    return Loss(losses[:, None], model.marginals - statistics, model.marginals, model.curvature, dual)
