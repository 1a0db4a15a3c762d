"""Labelled samples on graphs in this process: m rows on one graph, or one row on a union of graphs."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from kernelcrf.arrays import Array, Floats, Inputs, Labels
from kernelcrf.basis.features import Features
from kernelcrf.fitting.corpus import CliqueFeatures, LocalCorpus
from kernelcrf.fitting.digest import digest_array, digest_value
from kernelcrf.graphs.junction import clique_tree
from kernelcrf.graphs.structure import Graph
from kernelcrf.inference.clique_tree import Exact
from kernelcrf.inference.loss import Inference
from kernelcrf.partitions.graphs import GraphPartition
from kernelcrf.terms import Term


@dataclass(frozen=True, eq=False)
class LabelledGraphs(LocalCorpus):
    """Labelled samples: m rows of labels on one graph with V nodes, or one row on a union of graphs.

    cards : (V,) the number of labels of each node.
    cliques : the nodes of each clique, (n_cliques, nodes per clique), by template.
    labels : (m, V), -1 if a label is missing.
    inputs : (rows, d) by name, one row per clique of the templates that use it, sample by sample.
    samples : (V,) the sample of each node of a union, or None if every row is a sample.
    weights : the weights of the samples, or None if all are 1.
    inference : makes the inference routine of a graph.
    pooled : whether no term has inputs, so that one row with the frequencies of labels stands for all rows.
    """

    cards: Array
    cliques: Mapping[str, Array]
    labels: Labels
    inputs: Mapping[str, Inputs] = field(default_factory=dict)
    samples: Array | None = None
    weights: Floats | None = None
    inference: Callable[[Graph], Inference] = Exact
    pooled: bool = False

    def rows(self, name: str) -> Inputs:
        """Return the rows of the input `name`."""
        return self.inputs[name]

    @property
    def mass(self) -> float:
        """Return the total weight of the samples: their number if all weights are 1."""
        if self.weights is not None:
            return float(self.weights.sum())
        return float(len(self.labels) if self.samples is None else np.max(self.samples, initial=-1) + 1)

    def entries(self, templates: Collection[str]) -> int:
        """Return the cost of exact inference with some templates: the total size of the clique tree's tables."""
        scopes = (scope for name in templates for scope in np.asarray(self.cliques[name]).tolist())
        return clique_tree(len(self.cards), scopes).entries(np.asarray(self.cards).tolist())

    def digest(self) -> dict[str, Any]:
        """Return digests of the inputs, the labels, the weights and the graphs."""
        return {
            "inputs": digest_value({name: digest_array(X) for name, X in self.inputs.items()}),
            "labels": digest_array(self.labels),
            "weights": None if self.weights is None else digest_array(self.weights),
            "graphs": digest_value([self.cards, self.cliques, self.samples, getattr(self.inference, "__name__", "")]),
        }

    def partitions(self, terms: Sequence[Term], features: Mapping[str, Features]) -> Sequence[GraphPartition]:
        """Return a list with one partition: all samples, with the cliques and features of the given terms."""
        present = {term.cliques for term in terms}
        graph = Graph(self.cards, {name: own for name, own in self.cliques.items() if name in present}, self.samples)
        if self.pooled:
            return [self._pool_rows(graph)]
        rows = {name: own.rows for name, own in features.items() if isinstance(own, CliqueFeatures)}
        return [GraphPartition(self.inference(graph), self.labels, rows, self.weights)]

    def _pool_rows(self, graph: Graph) -> GraphPartition:
        counts, chosen = np.zeros(graph.n_entries), graph.chosen(self.labels)
        weights = np.ones(len(self.labels)) if self.weights is None else self.weights
        np.add.at(counts, chosen.ravel(), np.repeat(weights, chosen.shape[1]))
        return GraphPartition(
            self.inference(graph), self.labels[:1], weights=np.array([self.mass]), statistics=counts[None] / self.mass
        )
