"""A fitted conditional random field on graphs, whose potentials are tied over nodes, edges, skips and paths."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Self

import numpy as np

from kernelcrf.arrays import Arrays, Config, Floats, Inputs
from kernelcrf.engines.local import LocalEngine
from kernelcrf.graphs.structure import Graph
from kernelcrf.models.network import COVERS, NetworkDistribution, NetworkModel, inference_named
from kernelcrf.models.potentials import Potentials
from kernelcrf.persistence import ModelFileError
from kernelcrf.persistence.checks import read_count, read_flag
from kernelcrf.readers.graphs import GraphSamples
from kernelcrf.readers.labels import LabelReader
from kernelcrf.terms import EDGE_INPUTS, EDGES, NODES, PATHS, SKIPS, constant_term


@dataclass(frozen=True, eq=False, kw_only=True)
class GraphModel(NetworkModel):
    """A fitted conditional random field on graphs.

    directed : whether edges had a direction, as those of sequences have.
    has_edge_features : whether edges had features of their own.
    seed : of Gibbs sampling.
    covers : what the objective of the fit was.
    """

    labels: LabelReader
    potentials: Potentials
    n_features: int
    directed: bool
    has_edge_features: bool
    seed: int
    covers: str

    @property
    def landmarks(self) -> Inputs | None:
        """Return the landmarks of the nodes' kernel, or None for the linear kernel."""
        return self.potentials.landmarks(NODES)

    @property
    def cliques(self) -> tuple[str, ...]:
        """Return what has a potential beside nodes."""
        return tuple(name for name in self.potentials.layout.cliques if name != NODES)

    @property
    def edge_potentials(self) -> Floats | None:
        """Return T (L, L), [from, to], or None without edges."""
        L = len(self.labels.classes)
        return self.potentials.potential(constant_term(EDGES)).reshape(L, L) if EDGES in self.cliques else None

    @property
    def empty_samples(self) -> GraphSamples:
        """Return no graphs, of the kind of the training data."""
        none = np.empty((0, 2), np.int64)
        return GraphSamples(np.empty((0, self.n_features)), np.zeros(1, np.int64), none, None, self.directed)

    def distribution(self, graphs: GraphSamples, inference: str, engine: LocalEngine) -> NetworkDistribution:
        """Return p(y|x) of graphs by "exact", "loopy" or "gibbs" inference."""
        if graphs.nodes.shape[1] != self.n_features:
            raise ValueError(f"X has {graphs.nodes.shape[1]} node features: expected {self.n_features}, as in training")
        other_edges = len(graphs.edges) and (graphs.edge_features is not None) != self.has_edge_features
        if graphs.directed != self.directed or other_edges:
            raise ValueError("X has graphs of another kind than training: sequences, or edge features in one alone")
        graph = Graph(
            np.full(graphs.nodes.shape[0], len(self.labels.classes)),
            {name: graphs.members(name) for name in self.potentials.layout.cliques},
            graphs.samples if graphs.n_samples > 1 else None,
        )
        way, inputs = inference_named(inference, self.seed)(graph), {NODES: graphs.nodes}
        if len(self.potentials.maps) > 1:
            inputs[EDGES] = inputs[EDGE_INPUTS] = graphs.edge_inputs
        tables = self.potentials.tables(way, 1, inputs, engine)
        return NetworkDistribution(way, tables, graphs.n_samples, engine.n_threads)

    def to_arrays(self) -> tuple[Config, Arrays]:
        """Return a JSON-able config and named arrays, from which `from_arrays` makes an equal model."""
        config, _ = super().to_arrays()
        potentials, arrays = self.potentials.to_arrays()
        config |= {
            "estimator": "GraphCRF",
            "potentials": potentials,
            "labels": self.labels.to_config(),
            "directed": bool(self.directed),
            "has_edge_features": self.has_edge_features,
            "seed": int(self.seed),
            "n_features": int(self.n_features),
            "covers": self.covers,
        }
        return config, arrays

    @classmethod
    def from_arrays(cls, config: Config, arrays: Arrays) -> Self:
        """Return the model that `to_arrays` described, once its parts are consistent."""
        shared, labels = cls._read_fields(config), LabelReader.from_config(config["labels"])
        L, n_features = len(labels.classes), read_count(config, "n_features", 1)
        sizes = {NODES: L, EDGES: L**2, EDGE_INPUTS: L**2, SKIPS: L**2, PATHS: L**3}
        potentials = Potentials.from_arrays(config["potentials"], arrays, sizes, {NODES: n_features})
        if NODES not in potentials.maps:
            raise ModelFileError(
                f"the terms with inputs are {list(potentials.maps)[:8]}: expected {NODES!r} among them"
            )
        # Files of earlier versions do not have the objective: it follows from their inference.
        covers = config["covers"] if "covers" in config else COVERS[config["parameters"].get("inference", "exact")]
        if covers not in COVERS.values():
            raise ModelFileError(f"covers={str(covers)[:80]!r}: expected one of {', '.join(COVERS.values())}")
        if covers != COVERS["exact"]:
            shared["laplace"] = None
        return cls(
            **shared,
            labels=labels,
            potentials=potentials,
            n_features=n_features,
            directed=read_flag(config, "directed"),
            has_edge_features=read_flag(config, "has_edge_features"),
            seed=read_count(config, "seed"),
            covers=covers,
        )
