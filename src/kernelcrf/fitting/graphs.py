"""Labelled samples on graphs: many samples on the same graph, or samples with different graphs."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from kernelcrf.arrays import Array, Floats, Inputs, Labels
from kernelcrf.fitting.corpus import Corpus, LocalCorpus, folds
from kernelcrf.fitting.digest import digest_array, digest_value
from kernelcrf.graphs.junction import clique_tree
from kernelcrf.graphs.structure import Graph
from kernelcrf.inference.clique_tree import Exact
from kernelcrf.inference.loss import Inference, product_statistics
from kernelcrf.partitions.graphs import GraphPartition
from kernelcrf.readers.graphs import GraphSamples
from kernelcrf.score.features import TokenFeatures
from kernelcrf.score.terms import Term

COVERS = {
    "exact": "the negative log posterior",
    "loopy": "an upper bound on the negative log posterior, by tree-reweighted messages",
    "gibbs": "the negative log pseudo-likelihood, with the same prior",
}
"""The objective that a fit on graphs minimises, by its inference."""


class Networks(Corpus):
    """Labelled samples on graphs, in this process or on a cluster, for a search for cliques."""

    @property
    @abstractmethod
    def templates(self) -> Sequence[str]:
        """Return the kinds of cliques that the samples have."""

    @property
    @abstractmethod
    def mass(self) -> float:
        """Return the sum of the weights of all samples; if all weights are 1, this is the number of samples."""

    @abstractmethod
    def entries(self, templates: Collection[str]) -> int:
        """Return the cost of exact inference with the given kinds of cliques: the number of table entries."""

    @abstractmethod
    def share_nodes(self, one: str, other: str) -> bool:
        """Return whether a node is in cliques of both kinds."""


@dataclass(frozen=True, eq=False)
class LabelledGraphs(LocalCorpus, Networks):
    """Labelled samples on graphs.

    If all samples have the same graph, `labels` has one row per sample. Otherwise, the graphs of all samples are joined
    to one large graph, and `labels` has a single row.

    cards : the number of labels of each node.
    cliques : a dict from kinds of cliques to arrays of node indices, one row per clique.
    labels : an array with one column per node; -1 is a missing label.
    inputs : named matrices with one row per clique of the kinds that use the matrix, in the order of the samples.
    samples : for a joined graph, the index of the sample of each node; else None.
    weights : the weights of the samples, or None if all are 1.
    inference : a function that returns an object for inference on a graph.
    pooled : whether the frequencies of labels replace the samples. This is possible if no term has inputs and no label
        is missing.
    base : a dict from kinds of cliques to base scores, one row per clique; None if there are none.
    soft : the probability of each label of each node, as an array [row of `labels`, node, label]; None if labels are
        observed. `labels` then has the likeliest label of each node.
    """

    cards: Array
    cliques: Mapping[str, Array]
    labels: Labels
    inputs: Mapping[str, Inputs] = field(default_factory=dict)
    samples: Array | None = None
    weights: Floats | None = None
    inference: Callable[[Graph], Inference] = Exact
    pooled: bool = False
    base: Mapping[str, Floats] | None = None
    soft: Floats | None = None

    @classmethod
    def of(
        cls,
        graphs: GraphSamples,
        labels: Labels,
        n_labels: int,
        templates: Iterable[str],
        weights: Floats | None,
        inference: Callable[[Graph], Inference],
        *,
        of_edges: bool,
        base: Floats | None = None,
        soft: Floats | None = None,
    ) -> LabelledGraphs:
        """Return graphs with one label per node.

        templates : the kinds of cliques that have scores.
        of_edges : whether edges have inputs.
        base, soft : base scores and soft labels, with one row per node; None if there are none.
        """
        m = _n_rows(graphs)
        cliques = {name: graphs.members(name) for name in templates}
        return cls(
            np.full(len(labels) // m, n_labels),
            {name: nodes[: len(nodes) // m] for name, nodes in cliques.items()},
            labels.reshape(m, -1),
            graphs.inputs_of_nodes | (graphs.inputs_of_edges if of_edges else {}),
            graphs.samples if m < graphs.n_samples else None,
            # Graphs without nodes at the end are not part of the union.
            None if weights is None else weights[: int(graphs.samples.max(initial=-1)) + 1],
            inference,
            base=None if base is None else graphs.spread(base),
            soft=None if soft is None else soft.reshape(m, -1, n_labels),
        )

    def rows(self, name: str) -> Inputs:
        return self.inputs[name]

    @property
    def n_samples(self) -> int:
        """Return the number of samples."""
        return len(self.labels) if self.samples is None else int(np.max(self.samples, initial=-1)) + 1

    @property
    def templates(self) -> list[str]:
        return list(self.cliques)

    @property
    def mass(self) -> float:
        return float(self.n_samples if self.weights is None else self.weights.sum())

    @property
    def n_groups(self) -> int:
        return self.n_samples if self.weights is None else int((self.weights > 0).sum())

    @property
    def n_tokens(self) -> int:
        return int(self.labels.size)

    def hold_out(self, n_tokens: int, n_few: int) -> Sequence[tuple[LabelledGraphs, LabelledGraphs]]:
        """Return folds, each as a pair of copies of all samples with different weights.

        In the first copy, for training, the held-out samples have weight 0. In the second copy, all other samples have
        weight 0.
        """
        weights, masks = np.ones(self.n_samples) if self.weights is None else self.weights, folds(self.n_samples)
        return [(replace(self, weights=weights * ~mask), replace(self, weights=weights * mask)) for mask in masks]

    def share_nodes(self, one: str, other: str) -> bool:
        nodes, others = (np.asarray(self.cliques[name]).ravel() for name in (one, other))
        return bool(np.isin(nodes, others).any())

    def entries(self, templates: Collection[str]) -> int:
        scopes = (scope for name in templates for scope in np.asarray(self.cliques[name]).tolist())
        return clique_tree(len(self.cards), scopes).entries(np.asarray(self.cards).tolist())

    def digest(self) -> dict[str, Any]:
        return {
            "inputs": digest_value({name: digest_array(X) for name, X in self.inputs.items()}),
            "labels": digest_array(self.labels),
            "weights": None if self.weights is None else digest_array(self.weights),
            "graphs": digest_value([self.cards, self.cliques, self.samples, getattr(self.inference, "__name__", "")]),
            **({} if self.base is None else {"base_scores": digest_value(self.base)}),
            **({} if self.soft is None else {"soft labels": digest_array(self.soft)}),
        }

    def partition(self, terms: Sequence[Term], rows: Mapping[str, TokenFeatures]) -> GraphPartition:
        present = {term.cliques for term in terms}
        graph = Graph(self.cards, {name: rows for name, rows in self.cliques.items() if name in present}, self.samples)
        if self.pooled:
            return self._pool_rows(graph)
        expected = None if self.soft is None else product_statistics(graph, self.soft)
        return GraphPartition(self.inference(graph), self.labels, rows, self.weights, expected, self.base)

    def _pool_rows(self, graph: Graph) -> GraphPartition:
        counts, chosen = np.zeros(graph.n_entries), graph.chosen(self.labels)
        weights = np.ones(len(self.labels)) if self.weights is None else self.weights
        np.add.at(counts, chosen.ravel(), np.repeat(weights, chosen.shape[1]))
        return GraphPartition(
            self.inference(graph), self.labels[:1], weights=np.array([self.mass]), statistics=counts[None] / self.mass
        )


def _n_rows(graphs: GraphSamples) -> int:
    """Return the number of rows of the array of labels: one per sample if all samples have the same graph, else 1.

    The same graph means the same nodes, edges, types and cliques. Different graphs are joined to one large graph.
    """
    m, sizes = graphs.n_samples, np.diff(graphs.offsets)
    if not m:
        return 1
    cliques, types = [graphs.edges, *graphs.cliques.values()], [graphs.node_types, graphs.edge_types]
    if (sizes != sizes[0]).any() or sizes[0] == 0 or any(len(members) % m for members in cliques):
        return 1
    for members in cliques:
        nodes = members.reshape(m, -1, members.shape[1]) - sizes[0] * np.arange(m)[:, None, None]
        if (nodes != nodes[0]).any() or nodes.min(initial=0) < 0 or nodes.max(initial=0) >= sizes[0]:
            return 1
    by_sample = [one.reshape(m, -1) for one in types if one is not None]
    return m if all((one == one[0]).all() for one in by_sample) else 1
