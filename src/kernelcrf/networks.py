"""Networks: label nodes, cliques by template, and terms of the score, each with kernels, inputs and a prior variance.

    score(y | x) = sum over terms, sum over cliques C of the term's template, of f_term(x_C, y_C)

with f_term in the RKHS of k_x k_y, the labels of a clique taken jointly. A term without inputs has k_x = 1. `fit`
solves for the terms of the templates that are present.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from kernelcrf.basis.distinct import Distinct, distinct
from kernelcrf.basis.features import FeatureMap, Features, features_of, from_arrays
from kernelcrf.basis.folded import check_scores
from kernelcrf.basis.pivots import Rule
from kernelcrf.certificate import Certificate
from kernelcrf.engines.local import LocalEngine, single_threaded_blas
from kernelcrf.graphs.junction import clique_tree
from kernelcrf.graphs.structure import Graph
from kernelcrf.inference.clique_tree import Exact
from kernelcrf.inference.loss import Inference
from kernelcrf.kernels.cliques import CliqueKernel, LabelKernel, LabelMap
from kernelcrf.kernels.inputs import InputKernel, Inputs
from kernelcrf.objective import Objective
from kernelcrf.parameters import Layout, TemplateBlock
from kernelcrf.partitions.features import TokenFeatures
from kernelcrf.partitions.graphs import GraphPartition
from kernelcrf.solvers import Record, Solution, first_point, solver_named
from kernelcrf.solvers.loop import minimise

Array = npt.NDArray[Any]
Floats = npt.NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class CliqueInputs:
    """The features of cliques' inputs: of the distinct ones, with which one each clique has."""

    kernel: InputKernel
    found: Distinct
    features: Features

    @classmethod
    def of(
        cls, kernel: InputKernel, X: Inputs, n: int | None, rule: str | Rule, random_state: Any, engine: LocalEngine
    ) -> CliqueInputs:
        """By a basis of n of the inputs X."""
        found = distinct(X)
        return cls(kernel, found, features_of(kernel, found.inputs, n, rule, random_state, engine))

    @cached_property
    def rows(self) -> TokenFeatures:
        """F, a row for each clique."""
        return TokenFeatures.of(self.found, self.features.F)


@dataclass(frozen=True, eq=False)
class Term:
    """A function of the labels of a template's cliques, and of inputs where it has any; C is its prior variance."""

    name: str
    template: str
    k_y: LabelMap
    C: float
    inputs: CliqueInputs | None = None

    @property
    def block(self) -> TemplateBlock:
        """Its place in theta."""
        kernel = None if self.inputs is None else self.inputs.kernel
        n = 1 if self.inputs is None else self.inputs.rows.F.shape[1]
        return TemplateBlock(CliqueKernel(self.name, 1, self.k_y, kernel), n, self.C)


@dataclass(frozen=True, eq=False)
class Network:
    """Labelled samples: m rows (m, V) on one graph, or one row on a union of graphs, and the terms of their scores.

    cliques : (K, arity) by template.
    weights : of the samples, or None for one each.
    inference : how, given a graph.
    pooled : whether rows differ in their labels alone, no term having inputs, and are so one row of shares.
    """

    cards: Array
    cliques: Mapping[str, Array]
    terms: Sequence[Term]
    labels: npt.NDArray[np.int32]
    samples: Array | None = None
    weights: Floats | None = None
    inference: Callable[[Graph], Inference] = Exact
    pooled: bool = False

    @property
    def mass(self) -> float:
        """Labelled samples, by weight."""
        if self.weights is not None:
            return float(self.weights.sum())
        return float(len(self.labels) if self.samples is None else np.max(self.samples, initial=-1) + 1)

    def objective(self, templates: Collection[str], engine: LocalEngine) -> Objective:
        """P of the terms of some templates."""
        graph = Graph(
            self.cards, {name: self.cliques[name] for name in self.cliques if name in templates}, self.samples
        )
        terms = [term for term in self.terms if term.template in templates]
        if self.pooled:
            return self._pooled(graph, terms, engine)
        partition = GraphPartition(
            self.inference(graph),
            self.labels,
            {term.name: term.inputs.rows for term in terms if term.inputs is not None},
            {term.name: term.template for term in terms},
            self.weights,
        )
        return Objective(Layout(tuple(term.block for term in terms)), [partition], engine)

    def _pooled(self, graph: Graph, terms: Sequence[Term], engine: LocalEngine) -> Objective:
        counts, chosen = np.zeros(graph.n_entries), graph.chosen(self.labels)
        weights = np.ones(len(self.labels)) if self.weights is None else self.weights
        np.add.at(counts, chosen.ravel(), np.repeat(weights, chosen.shape[1]))
        partition = GraphPartition(
            self.inference(graph),
            self.labels[:1],
            templates={term.name: term.template for term in terms},
            weights=np.array([self.mass]),
            statistics=counts[None] / self.mass,
        )
        return Objective(Layout(tuple(term.block for term in terms)), [partition], engine)

    def entries(self, templates: Collection[str]) -> int:
        """Labelings of all cliques of the tree of some templates: what exact inference costs."""
        scopes = (scope for name in templates for scope in np.asarray(self.cliques[name]).tolist())
        return clique_tree(len(self.cards), scopes).entries(np.asarray(self.cards).tolist())


@dataclass(frozen=True)
class Settings:
    """How a network is solved; `tol` is the relative certified gap.

    random_state : where a fit with missing labels starts; without them it has no effect.
    """

    solver: str = "auto"
    tol: float = 1e-4
    max_iter: int = 1000
    random_state: Any = None


@dataclass(frozen=True, eq=False)
class NetworkFit:
    """A fitted network: the templates present, and weights by term."""

    network: Network
    templates: tuple[str, ...]
    objective: Objective
    solution: Solution

    @property
    def graph(self) -> Graph:
        """The graph of every row."""
        return self.partition.graph

    @property
    def partition(self) -> GraphPartition:
        """The samples; a network has them in one part."""
        partition = self.objective.partitions[0]
        if not isinstance(partition, GraphPartition):
            raise TypeError(f"partition is of type {type(partition).__name__}: expected graphs")
        return partition

    @property
    def certificate(self) -> Certificate:
        """What is certified within the templates present."""
        return self.solution.certificate

    @property
    def weights(self) -> dict[str, Floats]:
        """theta by term."""
        return self.objective.layout.split(self.solution.theta)


@dataclass(frozen=True, eq=False)
class Potentials:
    """What is left of a fit for new samples: the functions of its terms, without the training data.

    weights : (n, S) by term, S the joint labels of its cliques: label kernels are multiplied out, so that nothing
        depends on which factor of theirs was taken.
    of_term : the template of each term.
    maps : of the terms that have inputs.
    """

    weights: Mapping[str, Floats]
    templates: tuple[str, ...]
    of_term: Mapping[str, str]
    maps: Mapping[str, FeatureMap]

    @classmethod
    def of(cls, fitted: NetworkFit) -> Potentials:
        """Those of a fitted network."""
        terms = [term for term in fitted.network.terms if term.template in fitted.templates]
        weights = fitted.weights
        return cls(
            {
                block.clique.name: np.ascontiguousarray(block.clique.expand(weights[block.clique.name]), np.float64)
                for block in fitted.objective.layout.blocks
            },
            fitted.templates,
            {term.name: term.template for term in terms},
            {term.name: term.inputs.features.map for term in terms if term.inputs is not None},
        )

    @cached_property
    def layout(self) -> Layout:
        """The weights as blocks of joint labels."""
        return Layout(
            tuple(
                TemplateBlock(CliqueKernel(name, 1, LabelKernel("delta", W.shape[1]), None), len(W), 1.0)
                for name, W in self.weights.items()
            )
        )

    @cached_property
    def theta(self) -> Floats:
        """The weights as one vector."""
        return self.layout.join(self.weights)

    def tables(self, inference: Inference, m: int, inputs: Mapping[str, Inputs], engine: LocalEngine) -> Floats:
        """The tables (m, n_entries) of new samples, given the inputs of each template's cliques."""
        known: dict[int, TokenFeatures] = {}
        features = {}
        for name, own in self.maps.items():
            if id(own) not in known:
                known[id(own)] = TokenFeatures(own.transform(inputs[self.of_term[name]], engine))
            features[name] = known[id(own)]
        anyhow = np.zeros((m, inference.graph.n_nodes), np.int32)
        partition = GraphPartition(inference, anyhow, features, self.of_term)
        with single_threaded_blas(), np.errstate(over="ignore", under="ignore", invalid="ignore"):
            tables = partition.tables(self.layout, self.theta, engine.n_threads)
        check_scores(tables)
        return tables

    def potential(self, term: str) -> Floats:
        """The table of a term without inputs."""
        return np.asarray(self.weights[term][0])

    def to_arrays(self) -> tuple[dict[str, Any], dict[str, Array]]:
        """A JSON-able config and named plain arrays, from which `from_arrays` makes equal potentials."""
        distinct_maps = list({id(own): own for own in self.maps.values()}.values())
        places = {id(own): place for place, own in enumerate(distinct_maps)}
        configs: list[dict[str, Any]] = []
        arrays: dict[str, Array] = {"weights": self.theta}
        for place, own in enumerate(distinct_maps):
            config, of_map = own.to_arrays()
            configs.append(config)
            arrays |= {f"map {place}.{name}": array for name, array in of_map.items()}
        terms = [
            {
                "name": name,
                "template": self.of_term[name],
                "shape": list(W.shape),
                "map": places[id(self.maps[name])] if name in self.maps else None,
            }
            for name, W in self.weights.items()
        ]
        return {"templates": list(self.templates), "terms": terms, "maps": configs}, arrays

    @classmethod
    def from_arrays(cls, config: Mapping[str, Any], arrays: Mapping[str, Array]) -> Potentials:
        """The potentials that `to_arrays` described, once their parts fit together."""
        terms, theta = config["terms"], arrays["weights"]
        shapes = {term["name"]: tuple(int(size) for size in term["shape"]) for term in terms}
        if len(shapes) != len(terms) or any(len(shape) != 2 or min(shape) < 1 for shape in shapes.values()):
            raise ValueError("expected terms of different names, and weights (n, S) of each")
        ends = np.cumsum([n * S for n, S in shapes.values()], dtype=np.int64)
        if theta.ndim != 1 or theta.dtype != np.float64 or len(theta) != (ends[-1] if len(ends) else 0):
            raise ValueError(f"weights of type {theta.dtype} and shape {theta.shape} do not fit {len(shapes)} terms")
        if not np.isfinite(theta).all():
            raise ValueError("weights contain NaN or infinity: expected finite numbers")
        prefixes = [f"map {place}." for place in range(len(config["maps"]))]
        maps = [
            from_arrays(own, {name.removeprefix(prefix): a for name, a in arrays.items() if name.startswith(prefix)})
            for own, prefix in zip(config["maps"], prefixes, strict=True)
        ]
        of_map = {term["name"]: term["map"] for term in terms if term["map"] is not None}
        named = all(isinstance(name, str) for term in terms for name in (term["name"], term["template"]))
        if not named or not all(type(place) is int and 0 <= place < len(maps) for place in of_map.values()):
            raise ValueError("expected names of terms and templates, and the numbers of their maps")
        for name, (n, _) in shapes.items():
            expected = maps[of_map[name]].n if name in of_map else 1
            if n != expected:
                raise ValueError(f"term {name!r} has {n} weights for each label: expected {expected}")
        parts = np.split(theta, ends[:-1])
        return cls(
            {name: part.reshape(shape) for (name, shape), part in zip(shapes.items(), parts, strict=True)},
            tuple(config["templates"]),
            {term["name"]: term["template"] for term in terms},
            {name: maps[place] for name, place in of_map.items()},
        )


def fit(
    network: Network,
    templates: Collection[str],
    settings: Settings,
    engine: LocalEngine,
    callback: Callable[[Record], None] | None = None,
    start: Mapping[str, Floats] | None = None,
) -> NetworkFit:
    """Solve for the terms of some templates, from the weights of an earlier fit where there is one."""
    objective = network.objective(templates, engine)
    solution = minimise(
        objective,
        solver_named(settings.solver, objective),
        first_point(objective, settings.random_state) if start is None else theta_of(objective.layout, start),
        tol=settings.tol,
        max_iter=settings.max_iter,
        callback=callback,
    )
    present = tuple(name for name in network.cliques if name in templates)
    return NetworkFit(network, present, objective, solution)


def theta_of(layout: Layout, weights: Mapping[str, Floats]) -> Floats:
    """Known weights by term, and zeros for the others."""
    return layout.join(
        {block.clique.name: weights.get(block.clique.name, np.zeros(block.shape)) for block in layout.blocks}
    )
