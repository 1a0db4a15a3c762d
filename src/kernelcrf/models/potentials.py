"""Potentials: the fitted functions that score the cliques of a graph."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import numpy as np

from kernelcrf.arrays import Arrays, Config, Floats, Inputs
from kernelcrf.basis.features import FeatureMap, WhitenedMap
from kernelcrf.basis.folded import check_scores
from kernelcrf.engines.local import LocalEngine, single_threaded_blas
from kernelcrf.fitting.fit import Fit, Start
from kernelcrf.inference.loss import Inference
from kernelcrf.kernels.inputs import InputKernel
from kernelcrf.kernels.labels import LabelKernel
from kernelcrf.partitions.features import TokenFeatures
from kernelcrf.partitions.graphs import GraphPartition
from kernelcrf.persistence import ModelFileError
from kernelcrf.persistence.checks import maps_to_arrays, read_array, read_count, read_map, read_text
from kernelcrf.terms import Layout, Term
from kernelcrf.validation import shown


@dataclass(frozen=True, eq=False)
class Potentials:
    """The fitted functions that score the labellings of cliques; each function is called a term.

    layout, theta : the terms, and the weights of all terms as one vector. A term has one weight for each feature and
        each labelling of its clique; the label kernel is already multiplied in.
    maps : for each term that depends on inputs, the map from inputs to features.
    """

    layout: Layout
    theta: Floats
    maps: Mapping[str, FeatureMap]

    @classmethod
    def of(cls, fitted: Fit) -> Potentials:
        """Return the functions that a fit has found, with the label kernels multiplied in."""
        terms, weights = fitted.layout.terms, fitted.weights
        layout = Layout(tuple(_plain_term(term.name, term.cliques, term.n, term.k_y.L) for term in terms))
        return cls(layout, layout.join({term.name: term.k_y.expand(weights[term.name]) for term in terms}), fitted.maps)

    @classmethod
    def of_tables(cls, tables: Mapping[str, Floats]) -> Potentials:
        """Return potentials without inputs; `tables` has, for each clique, the scores of its labellings in one row."""
        layout = Layout(tuple(_plain_term(name, name, *table.shape) for name, table in tables.items()))
        return cls(layout, layout.join(tables), {})

    @property
    def weights(self) -> dict[str, Floats]:
        """Return the weights of each term as an array [feature, labelling of the clique]; the key is its name."""
        return self.layout.split(self.theta)

    def tables(self, inference: Inference, m: int, inputs: Mapping[str, Inputs], engine: LocalEngine) -> Floats:
        """Return the scores of all labellings of all cliques, with one row per sample.

        inference : inference on the graph that the m samples share.
        inputs : for each kind of clique, such as "edges", the inputs of its cliques.
        """
        known: dict[int, TokenFeatures] = {}
        features = {}
        for term in self.layout.terms:
            own = self.maps.get(term.name)
            if own is not None:
                if id(own) not in known:
                    known[id(own)] = TokenFeatures(own.transform(inputs[term.cliques], engine))
                features[term.name] = known[id(own)]
        anyhow = np.zeros((m, inference.graph.n_nodes), np.int32)
        partition = GraphPartition(inference, anyhow, features)
        with single_threaded_blas(), np.errstate(over="ignore", under="ignore", invalid="ignore"):
            tables = partition.tables(self.layout, self.theta, engine.n_threads)
        check_scores(tables)
        return tables

    def start(self, terms: Iterable[Term]) -> Start:
        """Return the feature maps and weights from which a later fit of `terms` can start.

        Terms that these potentials do not have, or that have another number of labellings, are left out.
        """
        sizes, weights = {term.name: term.k_y.L for term in self.layout.terms}, {}
        for term in terms:
            if sizes.get(term.name) == term.k_y.L:
                W = self.weights[term.name]
                # Solve A w = scores for the weights w, with the factor A of the label kernel A A'.
                factored = W if term.k_y.is_identity else np.linalg.lstsq(term.k_y.factor, W.T, rcond=None)[0].T
                weights[term.name] = np.ascontiguousarray(factored)
        return Start({name: own for name, own in self.maps.items() if name in weights}, weights)

    def kernel(self, term: str) -> InputKernel | None:
        """Return the kernel of the inputs of a term, or None if no term with inputs has this name."""
        own = self.maps.get(term)
        return own.kernel if isinstance(own, WhitenedMap) else None if own is None else InputKernel("linear")

    def potential(self, term: str) -> Floats:
        """Return the scores of a term without inputs, one per labelling of its clique."""
        return np.asarray(self.weights[term][0])

    def landmarks(self, term: str) -> Inputs | None:
        """Return the landmarks of a term with inputs, one per row, or None for the linear kernel."""
        own = self.maps[term]
        return own.landmarks if isinstance(own, WhitenedMap) else None

    def to_arrays(self) -> tuple[Config, Arrays]:
        """Return the potentials as a value for JSON and a dict of named arrays; `from_arrays` reads both."""
        configs, arrays = maps_to_arrays(self.maps.values())
        places = list(dict.fromkeys(map(id, self.maps.values())))
        terms = [
            {
                "name": term.name,
                "template": term.cliques,
                "shape": list(term.shape),
                "map": places.index(id(self.maps[term.name])) if term.name in self.maps else None,
            }
            for term in self.layout.terms
        ]
        config = {"templates": list(self.layout.cliques), "terms": terms, "maps": configs}
        return config, arrays | {"weights": self.theta}

    @classmethod
    def from_arrays(
        cls, config: Config, arrays: Arrays, sizes: Mapping[str, int], columns: Mapping[str, int]
    ) -> Potentials:
        """Return the potentials that `to_arrays` wrote; raise if the values and arrays are inconsistent.

        sizes : for each kind of clique that the model may have, the number of labellings of one clique.
        columns : for each kind of clique for which it is known, the number of columns of its inputs.
        """
        maps: dict[str, FeatureMap] = {}
        known: dict[tuple[int, int | None], FeatureMap] = {}
        terms: list[Term] = []
        for one in config["terms"]:
            name, template, n = read_text(one, "name"), read_text(one, "template"), 1
            if template not in sizes:
                raise ModelFileError(f"the model file has cliques {shown(template)}: expected {list(sizes)[:8]}")
            if one["map"] is not None:
                key = read_count(one, "map"), columns.get(template)
                if key not in known:
                    known[key] = read_map(config["maps"][key[0]], arrays, f"map {key[0]}.", key[1])
                maps[name], n = known[key], known[key].n
            if type(n) is not int or one["shape"] != [n, sizes[template]]:
                expected = f"({n}, {sizes[template]})"
                raise ModelFileError(f"term {name!r} has weights of shape {shown(one['shape'])}: expected {expected}")
            terms.append(_plain_term(name, template, n, sizes[template]))
        layout = Layout(tuple(terms))
        if config["templates"] != list(layout.cliques):
            raise ModelFileError(
                f"the model file has templates={shown(config['templates'])}: expected {layout.cliques[:8]}"
            )
        return cls(layout, np.asarray(read_array(arrays, "weights", (layout.size,), "f"), np.float64), maps)


def _plain_term(name: str, cliques: str, n: int, S: int) -> Term:
    return Term(name, cliques, LabelKernel("delta", S), 1.0, n=n)
