"""Potentials: the fitted functions that score the cliques of a graph."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import numpy as np

from kernelcrf.arrays import Arrays, Config, Floats, Inputs
from kernelcrf.basis.features import FeatureMap, WhitenedMap
from kernelcrf.basis.kernel_weights import check_scores
from kernelcrf.engines.local import LocalEngine, single_threaded_blas
from kernelcrf.fitting.fit import Fit, Start
from kernelcrf.inference.loss import Inference
from kernelcrf.kernels.inputs import InputKernel
from kernelcrf.kernels.labels import LabelKernel
from kernelcrf.partitions.graphs import GraphPartition
from kernelcrf.persistence import ModelFileError
from kernelcrf.persistence.checks import maps_to_arrays, read_array, read_count, read_map, read_text
from kernelcrf.score.features import TokenFeatures
from kernelcrf.score.layout import Layout
from kernelcrf.score.terms import Term
from kernelcrf.validation import shown


@dataclass(frozen=True, eq=False)
class Potentials:
    """The fitted functions that score the labellings of cliques; each function is called a term.

    layout, theta : the terms, and the weights of all terms as one vector. A term has one weight for each feature and
        each labelling of its clique. These weights already include the factor of the label kernel.
    maps : for each term that depends on inputs, the map from inputs to features.
    """

    layout: Layout
    theta: Floats
    maps: Mapping[str, FeatureMap]

    @classmethod
    def of(cls, fitted: Fit) -> Potentials:
        """Return the potentials of a fit; the weights of each term are multiplied by the factor of its label kernel."""
        terms, weights = fitted.layout.terms, fitted.weights
        layout = Layout(tuple(_plain_term(term.name, term.cliques, term.n, term.k_y.L) for term in terms))
        return cls(layout, layout.join({term.name: term.k_y.expand(weights[term.name]) for term in terms}), fitted.maps)

    @classmethod
    def of_tables(cls, tables: Mapping[str, Floats]) -> Potentials:
        """Return potentials that do not depend on inputs.

        tables : for the name of each clique, the scores of its labellings as an array of one row.
        """
        layout = Layout(tuple(_plain_term(name, name, *table.shape) for name, table in tables.items()))
        return cls(layout, layout.join(tables), {})

    @property
    def weights(self) -> dict[str, Floats]:
        """Return a dict from the name of each term to its weights, an array [feature, labelling of the clique]."""
        return self.layout.split(self.theta)

    def tables(self, inference: Inference, m: int, inputs: Mapping[str, Inputs], engine: LocalEngine) -> Floats:
        """Return the scores of all labellings of all cliques, with one row per sample.

        inference : the inference object of the graph that all m samples share.
        inputs : for each kind of clique, such as "edges", the inputs of all cliques of this kind.
        """
        known: dict[int, TokenFeatures] = {}
        features = {}
        for term in self.layout.terms:
            own = self.maps.get(term.name)
            if own is not None:
                if id(own) not in known:
                    X = inputs[term.cliques]
                    # Graphs without edges may lack edge features, and then have no number of columns.
                    F = own.transform(X, engine) if X.shape[0] else np.empty((0, own.n))
                    known[id(own)] = TokenFeatures(F)
                features[term.name] = known[id(own)]
        anyhow = np.zeros((m, inference.graph.n_nodes), np.int32)
        partition = GraphPartition(inference, anyhow, features)
        with single_threaded_blas(), np.errstate(over="ignore", under="ignore", invalid="ignore"):
            tables = partition.tables(self.layout, self.theta, engine.n_threads)
        check_scores(tables)
        return tables

    def start(self, terms: Iterable[Term]) -> Start:
        """Return the feature maps and weights as the starting point of a later fit of `terms`.

        A term is left out if these potentials do not have it, or have it with another number of labellings.
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
        """Return the kernel of the inputs of the term called `term`, or None if it has no inputs or does not exist."""
        own = self.maps.get(term)
        return own.kernel if isinstance(own, WhitenedMap) else None if own is None else InputKernel("linear")

    def potential(self, term: str) -> Floats:
        """Return the scores of a term that has no inputs, one score per labelling of its clique."""
        return np.asarray(self.weights[term][0])

    def landmarks(self, term: str) -> Inputs | None:
        """Return the landmarks of a term that has inputs, one per row, or None for the linear kernel."""
        own = self.maps[term]
        return own.landmarks if isinstance(own, WhitenedMap) else None

    def to_arrays(self) -> tuple[Config, Arrays]:
        """Return the potentials as two dicts: values that JSON can store, and named arrays."""
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
        """Return potentials, given the two dicts that `to_arrays` returned; raise an error if they are inconsistent.

        sizes : for each kind of clique that the model may have, the number of labellings of one clique.
        columns : for some kinds of cliques, the expected number of columns of their inputs.
        """
        maps: dict[str, FeatureMap] = {}
        known: dict[tuple[int, int | None], FeatureMap] = {}
        terms: list[Term] = []
        for one in config["terms"]:
            name, template, n = read_text(one, "name"), read_text(one, "template"), 1
            if template not in sizes:
                raise ModelFileError(
                    f"the model file has cliques called {shown(template)}: expected one of {list(sizes)[:8]}. Use "
                    "another copy"
                )
            if one["map"] is not None:
                key = read_count(one, "map"), columns.get(template)
                if key not in known:
                    known[key] = read_map(config["maps"][key[0]], arrays, f"map {key[0]}.", key[1])
                maps[name], n = known[key], known[key].n
            if type(n) is not int or one["shape"] != [n, sizes[template]]:
                expected = f"({n}, {sizes[template]})"
                raise ModelFileError(
                    f"the term {name!r} of the model file has weights of shape {shown(one['shape'])}: expected "
                    f"{expected}. Use another copy"
                )
            terms.append(_plain_term(name, template, n, sizes[template]))
        layout = Layout(tuple(terms))
        if config["templates"] != list(layout.cliques):
            raise ModelFileError(
                f"the model file has templates={shown(config['templates'])}: expected {layout.cliques[:8]}, as in its "
                "terms. Use another copy"
            )
        return cls(layout, np.asarray(read_array(arrays, "weights", (layout.size,), "f"), np.float64), maps)


def _plain_term(name: str, cliques: str, n: int, S: int) -> Term:
    return Term(name, cliques, LabelKernel("delta", S), 1.0, n=n)
