"""Potentials: the functions of the terms of a fitted network, without its training data."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from kernelcrf.arrays import Arrays, Config, Floats, Inputs
from kernelcrf.basis.features import FeatureMap, WhitenedMap, from_arrays
from kernelcrf.basis.folded import check_scores
from kernelcrf.engines.local import LocalEngine, single_threaded_blas
from kernelcrf.fitting.fit import Fit, Start
from kernelcrf.inference.loss import Inference
from kernelcrf.kernels.inputs import InputKernel
from kernelcrf.kernels.labels import LabelKernel
from kernelcrf.partitions.features import TokenFeatures
from kernelcrf.partitions.graphs import GraphPartition
from kernelcrf.persistence import ModelFileError
from kernelcrf.terms import Layout, Term


@dataclass(frozen=True, eq=False)
class Potentials:
    """The functions of the terms of a fit, for new samples.

    weights : (n, S) by term, with S the number of labellings of a clique. Label kernels are multiplied out, so that
        nothing depends on how they were factored.
    of_term : the template of each term.
    maps : the feature maps of the terms that have inputs.
    """

    weights: Mapping[str, Floats]
    templates: tuple[str, ...]
    of_term: Mapping[str, str]
    maps: Mapping[str, FeatureMap]

    @classmethod
    def of(cls, fitted: Fit) -> Potentials:
        """Return the potentials of a fit."""
        terms, weights = fitted.layout.terms, fitted.weights
        return cls(
            {term.name: np.ascontiguousarray(term.k_y.expand(weights[term.name]), np.float64) for term in terms},
            fitted.cliques,
            {term.name: term.cliques for term in terms},
            fitted.maps,
        )

    @cached_property
    def layout(self) -> Layout:
        """Return the layout of the weights, one block of joint labels per term."""
        return Layout(
            tuple(
                Term(name, self.of_term[name], LabelKernel("delta", W.shape[1]), 1.0, n=len(W))
                for name, W in self.weights.items()
            )
        )

    @cached_property
    def theta(self) -> Floats:
        """Return the weights as one vector."""
        return self.layout.join(self.weights)

    def tables(self, inference: Inference, m: int, inputs: Mapping[str, Inputs], engine: LocalEngine) -> Floats:
        """Return the tables (m, n_entries) of new samples, given the inputs of each template's cliques."""
        known: dict[int, TokenFeatures] = {}
        features = {}
        for name, own in self.maps.items():
            if id(own) not in known:
                known[id(own)] = TokenFeatures(own.transform(inputs[self.of_term[name]], engine))
            features[name] = known[id(own)]
        anyhow = np.zeros((m, inference.graph.n_nodes), np.int32)
        partition = GraphPartition(inference, anyhow, features)
        with single_threaded_blas(), np.errstate(over="ignore", under="ignore", invalid="ignore"):
            tables = partition.tables(self.layout, self.theta, engine.n_threads)
        check_scores(tables)
        return tables

    def start(self, terms: Iterable[Term]) -> Start:
        """Return where a later fit of some terms may begin: at the weights of those that it shares with this one."""
        sizes = {name: W.shape[1] for name, W in self.weights.items()}
        shared = [term for term in terms if sizes.get(term.name) == term.k_y.L]
        weights = {term.name: self.weights[term.name] for term in shared}
        for term in shared:
            if not term.k_y.is_identity:
                # The weights w of scores A w, for a label kernel A A'.
                found = np.linalg.lstsq(term.k_y.factor, weights[term.name].T, rcond=None)[0]
                weights[term.name] = np.ascontiguousarray(found.T)
        return Start({name: own for name, own in self.maps.items() if name in weights}, weights)

    def kernel(self, term: str) -> InputKernel | None:
        """Return the input kernel of a term, or None if there is no such term with inputs."""
        own = self.maps.get(term)
        return own.kernel if isinstance(own, WhitenedMap) else None if own is None else InputKernel("linear")

    def potential(self, term: str) -> Floats:
        """Return the table of a term without inputs."""
        return np.asarray(self.weights[term][0])

    def landmarks(self, term: str) -> Inputs | None:
        """Return the landmarks of a term with inputs, or None for the linear kernel."""
        own = self.maps[term]
        return own.landmarks if isinstance(own, WhitenedMap) else None

    def to_arrays(self) -> tuple[Config, Arrays]:
        """Return a JSON-able config and named arrays, from which `from_arrays` makes equal potentials."""
        distinct_maps = list({id(own): own for own in self.maps.values()}.values())
        places = {id(own): place for place, own in enumerate(distinct_maps)}
        configs: list[Config] = []
        arrays: Arrays = {"weights": self.theta}
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
    def from_arrays(cls, config: Config, arrays: Arrays) -> Potentials:
        """Return the potentials that `to_arrays` described, once their parts are consistent."""
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

    def check(self, sizes: Mapping[str, int]) -> None:
        """Raise if the templates are not those of a model that has so many labellings of each clique."""
        if set(self.templates) != set(sizes) or not set(self.of_term.values()) <= set(sizes):
            raise ModelFileError(f"the file has the cliques {self.templates[:8]}: expected {list(sizes)[:8]}")
        for name, template in self.of_term.items():
            S = self.weights[name].shape[1]
            if sizes[template] != S:
                raise ModelFileError(f"term {name!r} has {S} labels: expected {sizes[template]}")
