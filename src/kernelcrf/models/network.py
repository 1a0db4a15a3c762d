"""Fitted models on graphs of labels: graphs as samples, sets of labels, and tables of variables.

p(y|x) = exp(sum over cliques C of t_C(y_C)) / Z(x),      t_C the table of a clique, summed over terms
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from functools import cached_property, partial
from typing import Self

import numpy as np

from kernelcrf.arrays import Array, Arrays, Config, Floats, Inputs, Labels
from kernelcrf.engines.local import LocalEngine
from kernelcrf.fitting.structure_search import Search
from kernelcrf.graphs.structure import Graph
from kernelcrf.inference.clique_tree import Exact
from kernelcrf.inference.gibbs import Gibbs
from kernelcrf.inference.loopy import Loopy
from kernelcrf.inference.loss import clamped, labelling_scores
from kernelcrf.inference.lower_bounds import mean_field
from kernelcrf.kernels.inputs import InputKernel
from kernelcrf.models.base import FittedModel
from kernelcrf.models.potentials import Potentials
from kernelcrf.models.stored_parts import search_from_config
from kernelcrf.persistence import ModelFileError
from kernelcrf.persistence.checks import read_count, read_flag
from kernelcrf.readers.graphs import GraphSamples
from kernelcrf.readers.labels import LabelReader
from kernelcrf.terms import EDGE_INPUTS, EDGES, NODES, PATHS, SKIPS, constant_term

Way = Exact | Loopy | Gibbs

COVERS = {
    "exact": "the negative log posterior",
    "loopy": "an upper bound on the negative log posterior, by tree-reweighted messages",
    "gibbs": "the negative log pseudo-likelihood, with the same prior",
}
"""The objective that a fit minimises, by its inference."""


def inference_named(name: str, seed: int) -> Callable[[Graph], Way]:
    """Return the class that does "exact", "loopy" or "gibbs" inference on a graph; `seed` is for Gibbs sampling."""
    ways: dict[str, Callable[[Graph], Way]] = {"exact": Exact, "loopy": Loopy, "gibbs": partial(Gibbs, seed=seed)}
    return ways[name]


@dataclass(frozen=True, eq=False)
class NetworkDistribution:
    """The distribution p(y|x) of m rows on one graph with `inference.graph.n_samples` samples; labels are indices.

    tables : (m, n_entries), the scores of the labellings of all cliques.
    n_samples : number of samples; samples without nodes come last and have one labelling, of probability 1.
    """

    inference: Way
    tables: Floats
    n_samples: int
    n_threads: int = 1

    def marginals(self, template: str) -> Floats:
        """Return the marginals of the cliques of a template, (m, n_cliques * n_labellings)."""
        return self.all_marginals[:, self.inference.graph.slices[template]]

    @cached_property
    def all_marginals(self) -> Floats:
        """Return the marginals of all cliques, (m, n_entries)."""
        return self.inference.moments(self.tables, self.n_threads).cliques

    def best(self) -> Array:
        """Return the likeliest labelling of each row, (m, V); unless exact, the likeliest single labels."""
        return self.inference.best(self.tables, self.n_threads)[0]

    def k_best(self, k: int) -> Iterator[tuple[Array, list[float]]]:
        """Yield the k likeliest labellings (k, V) of each row with their log-probabilities; raise unless exact."""
        if not isinstance(self.inference, Exact):
            raise ValueError("the k best labellings need exact inference: fit or predict with inference='exact'")
        log_z = self.inference.log_partition(self.tables, self.n_threads)[:, 0]
        for (labels, scores), z in zip(self.inference.k_best(self.tables, k), log_z, strict=True):
            yield labels, [float(score - z) for score in scores]

    def log_prob(self, labels: Labels) -> Floats:
        """Return log p(y|x) of each sample for labels y (m, V); labels of -1 are unknown, and are summed over.

        With loopy inference, return a lower bound.
        """
        if isinstance(self.inference, Gibbs):
            raise ValueError(
                "log_prob is not available with inference='gibbs': expected 'exact', or 'loopy' for a lower bound"
            )
        log_z = self.inference.log_partition(self.tables, self.n_threads)
        if (labels >= 0).all():
            return self._by_sample(labelling_scores(self.inference.graph, self.tables, labels) - log_z)
        target = clamped(self.inference.graph, self.tables, labels)
        if isinstance(self.inference, Loopy):
            # The difference of two upper bounds is not a bound.
            return self._by_sample(mean_field(self.inference.cover, target).log_partition - log_z)
        return self._by_sample(self.inference.log_partition(target, self.n_threads) - log_z)

    def entropy(self) -> Floats:
        """Return the entropy of the labelling of each sample, in nats."""
        return self._by_sample(self.inference.entropy(self.tables, self.n_threads))

    def sample(self, n_samples: int, rng: np.random.Generator) -> Array:
        """Return labellings drawn from p(y|x), (m, n_samples, V); by Gibbs sampling unless inference is exact."""
        if isinstance(self.inference, Exact):
            return self.inference.calibrate(self.tables).sample(n_samples, rng)
        return Gibbs(self.inference.graph).sample(self.tables, n_samples, rng)

    def _by_sample(self, values: Floats) -> Floats:
        known = values.ravel()[: self.n_samples]
        return np.concatenate((known, np.zeros(self.n_samples - len(known))))


@dataclass(frozen=True, eq=False, kw_only=True)
class NetworkModel(FittedModel):
    """Base class of fitted models on graphs of labels.

    search : the structure search, or None if there was none.
    kernels : the kernels that were passed as objects, not by name; the keys are names of parameters.
    """

    search: Search | None

    def to_arrays(self) -> tuple[Config, Arrays]:
        """Return a JSON-able config and named arrays, from which `from_arrays` makes an equal model."""
        config, arrays = super().to_arrays()
        config["search"] = None if self.search is None else asdict(self.search)
        config["kernels"] = {name: own.to_config() for name, own in self.kernels.items()}
        return config, arrays

    @classmethod
    def _read_fields(cls, config: Config) -> Config:
        """Return the fields of this class from a model file, which does not hold the posterior of the weights."""
        return cls._read_shared(config, {}, np.empty(0)) | {
            "search": search_from_config(config["search"]),
            "kernels": {name: InputKernel.from_config(own) for name, own in config.get("kernels", {}).items()},
        }


@dataclass(frozen=True, eq=False, kw_only=True)
class GraphModel(NetworkModel):
    """A fitted conditional random field on graphs.

    directed : whether the edges of the training data have a direction, as in sequences.
    has_edge_features : whether the edges of the training data have features.
    seed : the seed of Gibbs sampling.
    covers : which objective the fit minimised.
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
        """Return the kinds of cliques that have a potential, without nodes."""
        return tuple(name for name in self.potentials.layout.cliques if name != NODES)

    @property
    def edge_potentials(self) -> Floats | None:
        """Return the scores (L, L) of pairs of labels on edges, [from, to]; None if edges have no potential."""
        L = len(self.labels.classes)
        return self.potentials.potential(constant_term(EDGES)).reshape(L, L) if EDGES in self.cliques else None

    @property
    def empty_samples(self) -> GraphSamples:
        """Return an empty list of graphs with the number of features and the direction of the training data."""
        none = np.empty((0, 2), np.int64)
        return GraphSamples(np.empty((0, self.n_features)), np.zeros(1, np.int64), none, None, self.directed)

    def distribution(self, graphs: GraphSamples, inference: str, engine: LocalEngine) -> NetworkDistribution:
        """Return the distribution p(y|x) of graphs, computed by "exact", "loopy" or "gibbs" inference."""
        if graphs.nodes.shape[1] != self.n_features:
            raise ValueError(f"X has {graphs.nodes.shape[1]} node features: expected {self.n_features}, as in training")
        if graphs.directed != self.directed:
            own, theirs = ("sequences", "graphs") if graphs.directed else ("graphs", "sequences")
            raise ValueError(f"X has {own}, but the training data were {theirs}: expected X as in training")
        if len(graphs.edges) and (graphs.edge_features is not None) != self.has_edge_features:
            expected = "edge features" if self.has_edge_features else "no edge features"
            raise ValueError(f"X must have {expected}, as in training: add them to every graph, or leave them out")
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
        """Return the model that `to_arrays` wrote; raise if its parts do not fit together."""
        shared, labels = cls._read_fields(config), LabelReader.from_config(config["labels"])
        L, n_features = len(labels.classes), read_count(config, "n_features", 1)
        sizes = {NODES: L, EDGES: L**2, EDGE_INPUTS: L**2, SKIPS: L**2, PATHS: L**3}
        potentials = Potentials.from_arrays(config["potentials"], arrays, sizes, {NODES: n_features})
        if NODES not in potentials.maps:
            raise ModelFileError(
                f"the terms with inputs are {list(potentials.maps)[:8]}: expected {NODES!r} among them"
            )
        # Files of earlier versions do not name the objective; it follows from their inference.
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
