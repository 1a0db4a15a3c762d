"""Fitted models on graphs whose nodes have labels: a base class, and `GraphModel` for samples that are graphs.

The probability of the labels y given the inputs x is

    p(y|x) = exp(sum over cliques c of t_c(y_c)) / Z(x),

where the table t_c has one score for each way to label the nodes of the clique c, and Z(x) normalises.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import cached_property, partial
from typing import Any, Self

import numpy as np

from kernelcrf.arrays import Array, Arrays, Config, Floats, Inputs, Labels, UserData
from kernelcrf.basis.features import WhitenedMap
from kernelcrf.basis.kernel_weights import check_scores
from kernelcrf.engines.local import LocalEngine, single_threaded_blas
from kernelcrf.fitting.fit import Start
from kernelcrf.fitting.graphs import COVERS
from kernelcrf.fitting.structure_search import Search
from kernelcrf.graphs.structure import Chains, Graph
from kernelcrf.inference.clique_tree import Calibrated, Exact
from kernelcrf.inference.gibbs import Gibbs
from kernelcrf.inference.loopy import Loopy
from kernelcrf.inference.loss import GraphMoments, Inference, clamp_labels, labelling_scores
from kernelcrf.inference.lower_bounds import mean_field
from kernelcrf.kernels.inputs import InputKernel
from kernelcrf.kernels.joint_labels import same_label_kernel
from kernelcrf.models.base import FittedModel, rng_of
from kernelcrf.models.kernel import kernel_parameter
from kernelcrf.models.posterior import transform_rows
from kernelcrf.models.stored_parts import search_from_config
from kernelcrf.partitions.graphs import GraphPartition
from kernelcrf.persistence import ModelFileError
from kernelcrf.persistence.checks import read_count, read_flag
from kernelcrf.readers.base_scores import check_base_scores, read_node_scores
from kernelcrf.readers.graph_kinds import GraphKinds, Type
from kernelcrf.readers.graphs import GraphColumns, GraphSamples
from kernelcrf.readers.inputs import InputsReader
from kernelcrf.readers.labels import LabelReader
from kernelcrf.score.cliques import EDGES, NODES
from kernelcrf.score.features import TokenFeatures
from kernelcrf.score.layout import Layout
from kernelcrf.score.terms import Term, constant_term, input_name, named_term
from kernelcrf.validation import shown_list

Way = Exact | Loopy | Gibbs


def inference_named(name: str, seed: int) -> Callable[[Graph], Way]:
    """Return a function that creates the inference object for a graph.

    name : "exact", "loopy" or "gibbs".
    seed : the seed of Gibbs sampling, not used otherwise.
    """
    ways: dict[str, Callable[[Graph], Way]] = {"exact": Exact, "loopy": Loopy, "gibbs": partial(Gibbs, seed=seed)}
    return ways[name]


@dataclass(frozen=True, eq=False)
class NetworkField:
    """The random field of the labels y of all samples: p(y|x), given the scores of all labellings of all cliques.

    inference : the graph, with the method that computes probabilities on it.
    tables : the scores of all labellings of all cliques, in one row per graph. If there are several rows, each row is a
        sample, and all samples have the same graph. A single row may be the union of several samples.
    n_samples : the number of samples. Samples without nodes come last; their only labelling has probability 1.
    """

    inference: Way
    tables: Floats
    n_samples: int
    n_threads: int = 1

    @cached_property
    def _calibrated(self) -> Calibrated:
        """Return the results of exact inference; they are computed once, and several methods use them."""
        assert isinstance(self.inference, Exact)
        return self.inference.calibrate(self.tables, self.n_threads)

    @cached_property
    def moments(self) -> GraphMoments:
        """Return the log-partitions of all samples, and the probabilities of all labellings of all cliques."""
        if isinstance(self.inference, Exact):
            return self._calibrated.moments
        return self.inference.moments(self.tables, self.n_threads)

    def marginals(self, template: str) -> Floats:
        """Return the probabilities of all labellings of the cliques called `template`, such as "edges".

        The result has one row per sample, or a single row if all samples are joined to one graph.
        """
        return self.moments.cliques[:, self.inference.graph.slices[template]]

    def best(self) -> Labels:
        """Return the likeliest labelling of each row of `tables`, with one column per node.

        If inference is not exact, return the likeliest label of each node instead.
        """
        return self.inference.best(self.tables, self.n_threads)[0]

    def k_best(self, k: int, log_z: Floats | None = None) -> Iterator[tuple[Labels, list[float]]]:
        """Yield, for each row of `tables`, the k likeliest labellings and a list of their log-probabilities.

        log_z : the log-partition of each row, if it is known already.
        """
        if not isinstance(self.inference, Exact):
            raise ValueError("the k likeliest labellings need exact inference: pass inference='exact'")
        log_z = self.moments.log_partition[:, 0] if log_z is None else log_z
        for (labels, scores), z in zip(self.inference.k_best(self.tables, k), log_z, strict=True):
            yield labels, [float(score - z) for score in scores]

    def log_partition(self) -> Floats:
        """Return log Z(x) of each sample; with loopy inference, return an upper bound."""
        return self._by_sample(self.moments.log_partition)

    def log_prob(self, labels: Labels) -> Floats:
        """Return the log-probability of the labels of each sample; unknown labels (-1) are summed over.

        With loopy inference, return a lower bound on the log-probability.
        """
        if isinstance(self.inference, Gibbs):
            raise ValueError(
                "log_prob is not available with inference='gibbs': pass inference='exact', or 'loopy' for a lower bound"
            )
        log_z = self.moments.log_partition
        if (labels >= 0).all():
            return self._by_sample(labelling_scores(self.inference.graph, self.tables, labels) - log_z)
        target = clamp_labels(self.inference.graph, self.tables, labels)
        if isinstance(self.inference, Loopy):
            # The difference of two upper bounds is not a bound.
            return self._by_sample(mean_field(self.inference.cover, target).log_partition - log_z)
        return self._by_sample(self.inference.log_partition(target, self.n_threads) - log_z)

    def entropy(self) -> Floats:
        """Return the entropy of p(y|x) for each sample, in nats."""
        if isinstance(self.inference, Exact):
            return self._by_sample(self._calibrated.entropy())
        return self._by_sample(self.inference.entropy(self.tables, self.n_threads))

    def sample(self, n_samples: int, rng: np.random.Generator) -> Labels:
        """Draw labels from p(y|x), by Gibbs sampling if inference is not exact.

        The result is an array [row of `tables`, draw, node].
        """
        if isinstance(self.inference, Exact):
            return self._calibrated.sample(n_samples, rng)
        return Gibbs(self.inference.graph).sample(self.tables, n_samples, rng)

    def _by_sample(self, values: Floats) -> Floats:
        known = values.ravel()[: self.n_samples]
        return np.concatenate((known, np.zeros(self.n_samples - len(known))))


@dataclass(frozen=True, eq=False, kw_only=True)
class NetworkModel(FittedModel):
    """Base class of fitted models on graphs, whose nodes have labels.

    search : how the fit chose the edges (or other cliques) of the model, or None if they were given.
    kernels : a dict from names of parameters to kernels. It has the kernels that the user passed as objects and not by
        name, and the kernels of named inputs.
    """

    search: Search | None

    @property
    def answer_bytes(self) -> int:
        return 16 * sum(term.n * term.k_y.L for term in self.layout.terms)

    def potential(self, name: str) -> Floats:
        """Return the scores that a term without inputs, called `name`, gives to the labellings of a clique."""
        return np.asarray(self.layout.by_name[name].expand(self.layout.split(self.theta)[name])[0])

    def landmarks_of(self, name: str) -> Inputs | None:
        """Return the landmarks of the term called `name`, one per row, or None for the linear kernel."""
        feature_map = self.maps[name]
        return feature_map.landmarks if isinstance(feature_map, WhitenedMap) else None

    def tables(
        self,
        inference: Inference,
        m: int,
        inputs: Mapping[str, Inputs],
        engine: LocalEngine,
        base: Mapping[str, Array] | None = None,
    ) -> Floats:
        """Return the scores of all labellings of all cliques, with one row per sample.

        inference : the inference object of the graph that all m samples share.
        inputs : a dict from names of inputs, such as "rows", to matrices with one row per clique.
        base : a dict from kinds of cliques to base scores, one row per clique, or None.
        """
        transformed: dict[tuple[int, str], TokenFeatures] = {}
        features = {}
        for name, feature_map in self.maps.items():
            source = str(self.layout.by_name[name].input)
            key = id(feature_map), source
            if key not in transformed:
                transformed[key] = TokenFeatures(transform_rows(feature_map, inputs[source], engine))
            features[name] = transformed[key]
        with single_threaded_blas(), np.errstate(over="ignore", under="ignore", invalid="ignore"):
            partition = _unlabelled(inference, m, features, base)
            tables = partition.with_base(self.layout, partition.tables(self.layout, self.theta, engine.n_threads))
        check_scores(tables)
        return tables

    def draw_tables(
        self,
        inference: Inference,
        m: int,
        inputs: Mapping[str, Inputs],
        n_samples: int | None,
        temperature: float,
        random_state: UserData,
        engine: LocalEngine,
        base: Mapping[str, Array] | None = None,
    ) -> Iterator[Floats]:
        """Yield the scores for each draw from the posterior of the weights, in the shape that `tables` returns.

        n_samples, temperature : as in `ScorePosterior.draw_terms`.
        """
        by_term = {name: inputs[str(self.layout.by_name[name].input)] for name in self.maps}
        partition = _unlabelled(inference, m, {}, base)
        rng = rng_of(random_state)
        for scores in self.score_posterior.draw_terms(by_term, n_samples, rng, temperature, engine):
            tables = partition.with_base(self.layout, partition.add_up(self.layout, scores))
            check_scores(tables)
            yield tables

    def start_for(self, terms: Sequence[Term], n_columns: Callable[[str], int] | None = None) -> Start:
        """Return a starting point for a fit of `terms`: the landmarks and the weights of this model.

        If the label kernel of a term has changed since the fit of this model, the weights of the term start at 0.
        """
        known = self.layout.by_name
        same = {term.name for term in terms if term.name in known and same_label_kernel(known[term.name].k_y, term.k_y)}
        start = super().start_for(terms, n_columns)
        return Start(start.maps, {name: W for name, W in start.weights.items() if name in same})

    def to_arrays(self) -> tuple[Config, Arrays]:
        """Return the model as two dicts: values that JSON can store, and named arrays."""
        config, arrays = super().to_arrays()
        config["search"] = None if self.search is None else asdict(self.search)
        named = named_kernels(self.layout)
        config["kernels"] = {name: one.to_config() for name, one in self.kernels.items() if name not in named}
        return config, arrays

    @classmethod
    def _read_network(
        cls, config: Config, arrays: Arrays, sizes: Mapping[str, int], widths: Mapping[str, int | None]
    ) -> Config:
        """Return the fields of `NetworkModel` as a dict, as read from a model file.

        sizes, widths : as in `FittedModel._read_fields`.
        """
        shared = cls._read_fields(config, arrays, sizes, widths)
        kernels = {name: InputKernel.from_config(one) for name, one in config.get("kernels", {}).items()}
        search = search_from_config(config["search"])
        return shared | {"search": search, "kernels": kernels | named_kernels(shared["layout"])}


def named_kernels(layout: Layout) -> dict[str, InputKernel]:
    """Return a dict from names of parameters to the kernels of named inputs; inputs without a name are left out."""
    named = [term for term in layout.terms if input_name(term.name) is not None]
    return {kernel_parameter(term.name): term.kernel for term in named if term.kernel is not None}


def _unlabelled(
    inference: Inference, m: int, features: Mapping[str, TokenFeatures], base: Mapping[str, Array] | None
) -> GraphPartition:
    """Return m samples without labels that share one graph, as predictions need them."""
    return GraphPartition(inference, np.zeros((m, inference.graph.n_nodes), np.int32), features, base=base)


@dataclass(frozen=True, eq=False, kw_only=True)
class GraphModel(NetworkModel):
    """A fitted conditional random field on graphs.

    directed : whether the training data were sequences, whose edges have a direction.
    has_edge_features : whether the edges of the training data have features.
    seed : the seed of Gibbs sampling.
    covers : a description of the objective that the fit minimised.
    columns : the names of the features of nodes and of edges in the training data.
    named : the reader of the features of nodes, if these are several inputs with names; else None.
    kinds : the types of nodes and edges, and the cliques that the user has named, in the training data.
    """

    labels: LabelReader
    n_features: int
    directed: bool
    has_edge_features: bool
    seed: int
    covers: str
    columns: GraphColumns = field(default_factory=GraphColumns)
    kinds: GraphKinds = field(default_factory=GraphKinds)
    named: InputsReader | None = None

    @property
    def landmarks(self) -> Any:
        """Return the landmarks of the kernel on node inputs, or None for the linear kernel.

        If nodes have types, return a dict from types to landmarks. If inputs have names, return a dict from each name
        to the result for this input.
        """
        if self.named is None:
            return self._landmarks_of(lambda kind: kind)
        return {name: self._landmarks_of(partial(named_term, name)) for name in self.named.sources}

    def _landmarks_of(self, term: Callable[[str], str]) -> Inputs | dict[Type, Inputs] | None:
        """Return the landmarks of one input of the nodes; if nodes have types, a dict from types to landmarks.

        term : a function from a kind of nodes (each type has one) to the name of the term that scores this input.
        """
        if self.kinds.node_types is None:
            return self.landmarks_of(term(NODES))
        by_type = {one: self.landmarks_of(term(self.kinds.nodes[one])) for one in self.kinds.node_types}
        return {node_type: landmarks for node_type, landmarks in by_type.items() if landmarks is not None} or None

    @property
    def cliques(self) -> tuple[str, ...]:
        """Return the names of the kinds of cliques that have scores, such as "edges"; single nodes are left out."""
        return self.kinds.public_names(self.layout.cliques)

    @property
    def edge_potentials(self) -> Floats | dict[Type, Floats] | None:
        """Return the scores of label pairs on edges as an array [from label, to label].

        These are the scores that do not depend on inputs. If edges have types, return a dict from types to arrays.
        Return None if edges have no scores.
        """
        if EDGES not in self.cliques:
            return None
        if self.kinds.edge_types is None:
            return self._table(EDGES, 2)
        return {edge_type: self._table(self.kinds.edges[edge_type], 2) for edge_type in self.kinds.edge_types}

    @property
    def clique_potentials(self) -> dict[str, Floats]:
        """Return a dict from each kind of cliques that the user has named to its scores, with one axis per node."""
        return {name: self._table(self.kinds.cliques[name], k) for name, k in self.kinds.named.items()}

    def _table(self, kind: str, n_nodes: int) -> Floats:
        return self.potential(constant_term(kind)).reshape((len(self.labels.classes),) * n_nodes)

    @property
    def empty_samples(self) -> GraphSamples:
        """Return an empty collection of graphs that this model accepts as input."""
        none = np.empty((0, 2), np.int64)
        nodes, offsets = np.empty((0, self.n_features)), np.zeros(1, np.int64)
        inputs = nodes if self.named is None else self.named.read([])[0]
        return GraphSamples(inputs, offsets, none, None, self.directed, self.columns, named=self.named)

    def field(
        self, graphs: GraphSamples, inference: str, engine: LocalEngine, base_scores: UserData = None
    ) -> NetworkField:
        """Return the random field of the labels of graphs.

        inference : the method that computes probabilities, "exact", "loopy" or "gibbs".
        """
        way, inputs = self._read_inputs(graphs, inference)
        tables = self.tables(way, 1, inputs, engine, self._read_base(base_scores, graphs))
        return NetworkField(way, tables, graphs.n_samples, engine.n_threads)

    def _read_base(self, base_scores: UserData, graphs: GraphSamples) -> dict[str, Floats] | None:
        """Read base scores; raise if they are not of the same kinds as in the fit."""
        base = read_node_scores(base_scores, Chains(graphs.offsets), len(self.labels.classes))
        check_base_scores(self.base, base)
        return None if base is None else graphs.with_kinds(self.kinds).spread(base[NODES])

    def draw_marginals(
        self,
        graphs: GraphSamples,
        inference: str,
        n_samples: int | None,
        temperature: float,
        random_state: UserData,
        engine: LocalEngine,
        base_scores: UserData = None,
    ) -> Iterator[Array]:
        """Yield, for each draw from the posterior of the weights, the label probabilities, one row per node."""
        way, inputs = self._read_inputs(graphs, inference)
        base = self._read_base(base_scores, graphs)
        for tables in self.draw_tables(way, 1, inputs, n_samples, temperature, random_state, engine, base):
            field = NetworkField(way, tables, graphs.n_samples, engine.n_threads)
            yield field.marginals(NODES)[0].reshape(-1, len(self.labels.classes))

    def _read_inputs(self, graphs: GraphSamples, inference: str) -> tuple[Way, dict[str, Inputs]]:
        """Return a pair: the inference object for the union of the graphs, and a dict of the inputs of all terms.

        Raise if the graphs do not fit the model.
        """
        self.check(graphs)
        graphs = graphs.with_kinds(self.kinds)
        # All nodes are one kind of cliques even if they have types, for the marginals of single nodes.
        cliques = dict.fromkeys((NODES, *self.layout.cliques))
        graph = Graph(
            np.full(graphs.nodes.shape[0], len(self.labels.classes)),
            {name: graphs.members(name) for name in cliques},
            graphs.samples if graphs.n_samples > 1 else None,
        )
        way, inputs = inference_named(inference, self.seed)(graph), graphs.inputs_of_nodes
        sources = {term.input for term in self.layout.terms}
        if not sources.isdisjoint(self.kinds.edges.values()):
            inputs |= graphs.inputs_of_edges
        return way, inputs

    def match(self, graphs: GraphSamples) -> GraphSamples:
        """Return the graphs with the kinds of cliques of this model; raise if the graphs do not fit the model.

        If the model has edge features, graphs without edges get a matrix of edge features that has no rows.
        """
        self.check(graphs)
        of_edges = [self.maps[term.name] for term in self.layout.terms if term.input in self.kinds.edges.values()]
        if self.has_edge_features and graphs.edge_features is None and of_edges:
            first = of_edges[0]
            width = first.landmarks.shape[1] if isinstance(first, WhitenedMap) else first.n
            graphs = replace(graphs, edge_features=np.empty((0, width)))
        return graphs.with_kinds(self.kinds)

    def check(self, graphs: GraphSamples) -> None:
        """Raise unless the features of nodes and edges, and the directions of edges, are as in the training data."""
        if self.named is None and graphs.nodes.shape[1] != self.n_features:
            raise ValueError(f"X has {graphs.nodes.shape[1]} node features: expected {self.n_features}, as in training")
        if graphs.directed != self.directed:
            given, theirs = ("sequences", "graphs") if graphs.directed else ("graphs", "sequences")
            raise ValueError(f"X has {given}, but the model was fitted on {theirs}: pass {theirs}")
        if len(graphs.edges) and (graphs.edge_features is not None) != self.has_edge_features:
            has, lacks = ("no edge features", "with") if self.has_edge_features else ("edge features", "without")
            raise ValueError(f"X has {has}, but the model was fitted {lacks} edge features: pass graphs {lacks} them")

    def to_arrays(self) -> tuple[Config, Arrays]:
        """Return the model as two dicts: values that JSON can store, and named arrays."""
        config, arrays = super().to_arrays()
        config |= {
            "labels": self.labels.to_config(),
            "directed": bool(self.directed),
            "has_edge_features": self.has_edge_features,
            "seed": int(self.seed),
            "n_features": int(self.n_features),
            "covers": self.covers,
            **self.columns.to_config(),
        } | ({} if self.named is None else {"inputs": self.named.to_config()})
        if self.kinds.has_ties:
            config["kinds"] = self.kinds.to_config()
        return config, arrays

    @classmethod
    def from_arrays(cls, config: Config, arrays: Arrays) -> Self:
        """Return the model, given the two dicts that `to_arrays` returned; raise an error if they are inconsistent."""
        labels = LabelReader.from_config(config["labels"])
        L, n_features = len(labels.classes), read_count(config, "n_features", 1)
        kinds = GraphKinds.from_config(config.get("kinds"), L)
        named = InputsReader.from_config(config["inputs"], "GraphCRF") if "inputs" in config else None
        of_nodes: dict[str, int] = dict.fromkeys(kinds.nodes.values(), n_features)
        if named is not None:
            of_nodes = {named_term(name, kind): width for name, width in named.widths.items() for kind in of_nodes}
        nodes, names = list(of_nodes), set(kinds.cliques.values())
        widths = of_nodes | dict.fromkeys(kinds.edges.values())
        shared = cls._read_network(config, arrays, kinds.sizes(L), widths)
        layout, covers = shared["layout"], config["covers"]
        if not set(nodes) <= shared["maps"].keys() or not names <= set(layout.cliques):
            raise ModelFileError(
                f"the model file has features for the terms {shown_list(shared['maps'])}, and the cliques "
                f"{shown_list(layout.cliques)}: expected features for {shown_list(nodes)}, and the cliques "
                f"{shown_list(names)}. The file may be damaged: use another copy of it"
            )
        if covers not in COVERS.values():
            raise ModelFileError(
                f"the model file has covers={str(covers)[:80]!r}: expected one of {list(COVERS.values())}. The file "
                "may be damaged: use another copy of it"
            )
        if covers != COVERS["exact"]:
            shared["laplace"] = None
        return cls(
            **shared,
            labels=labels,
            n_features=n_features,
            directed=read_flag(config, "directed"),
            has_edge_features=read_flag(config, "has_edge_features"),
            seed=read_count(config, "seed"),
            covers=covers,
            columns=GraphColumns.from_config(config, n_features),
            kinds=kinds,
            named=named,
        )
