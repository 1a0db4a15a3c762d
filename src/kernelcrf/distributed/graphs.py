"""Read many labelled graphs in parts on a cluster, for GraphCRF."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable
from dataclasses import dataclass, replace
from functools import partial
from itertools import chain

import numpy as np
import scipy.sparse as sp

from kernelcrf.arrays import Inputs, NamedInputs, UserData
from kernelcrf.distributed.cluster import Cluster, Function
from kernelcrf.distributed.networks import DistributedNetworks
from kernelcrf.distributed.part_reader import (
    ExpectedFeatures,
    PartReader,
    PartsOfData,
    Reading,
    count_sequences,
    current_cluster,
    read_parts,
)
from kernelcrf.distributed.sources import RawSequences, load_graphs
from kernelcrf.distributed.summary import Chosen, DataSummary, InputSummary, count_labels, summarise_entries
from kernelcrf.fitting.graphs import LabelledGraphs
from kernelcrf.graphs.structure import Chains, Graph
from kernelcrf.inference.loss import Inference
from kernelcrf.readers.graph_kinds import GraphKinds, Type
from kernelcrf.readers.graphs import GraphColumns, GraphSamples, read_graphs, read_labelled_graphs
from kernelcrf.readers.inputs import InputsReader
from kernelcrf.readers.labels import LabelReader, distinct_labels, flat_labels
from kernelcrf.readers.one_graph import open_graph
from kernelcrf.readers.stored_values import object_array
from kernelcrf.readers.weights import read_class_weights, read_weights, weigh_samples


@dataclass(frozen=True, eq=False)
class GraphForm:
    """Facts about graphs besides features of nodes.

    n_edges : the number of edges.
    directed : whether edges have a direction.
    kinds : the types of nodes and edges, and the names of cliques.
    edges : a summary of the features of edges; its kind is None if edges have no features.
    """

    n_edges: int
    directed: bool
    kinds: GraphKinds
    edges: InputSummary

    def __add__(self, other: GraphForm) -> GraphForm:
        if self.directed != other.directed:
            raise ValueError("X mixes sequences and graphs: expected only sequences or only graphs")
        have_edges = bool(self.n_edges and other.n_edges)
        if have_edges and (self.edges.kind is None) != (other.edges.kind is None):
            raise ValueError(
                "X has some graphs with edge features and some without: expected edge features in all graphs or in none"
            )
        one, two = self.kinds, other.kinds
        sizes = {**one.named, **two.named}
        for name in one.named.keys() & two.named.keys():
            if one.named[name] != two.named[name]:
                raise ValueError(
                    f"the cliques {name!r} of X have {one.named[name]} nodes in one part and {two.named[name]} in "
                    "another: expected the same number; use another name for cliques of another size"
                )
        kinds = GraphKinds(
            _join_types("node", one.node_types, two.node_types, strict=True),
            _join_types("edge", one.edge_types, two.edge_types, strict=have_edges),
            {name: sizes[name] for name in sorted(sizes)},
        )
        return GraphForm(self.n_edges + other.n_edges, self.directed, kinds, self.edges + other.edges)


def _join_types(
    what: str, one: tuple[Type, ...] | None, other: tuple[Type, ...] | None, *, strict: bool
) -> tuple[Type, ...] | None:
    """Return the types of two parts, integers before strings; raise if one of them has no types and `strict` is set."""
    if strict and (one is None) != (other is None):
        raise ValueError(f"X has {what} types in one part and none in another: expected them in all graphs or in none")
    if one is None or other is None:
        return one or other
    return tuple(sorted({*one, *other}, key=lambda type_: (isinstance(type_, str), type_)))


@dataclass(frozen=True, eq=False, kw_only=True)
class GraphPartReader(PartReader[tuple[LabelReader, GraphSamples]]):
    """Reads graphs in parts. What reads new graphs are a reader of labels, and `GraphSamples` without graphs.

    directed, classes, class_weight : parameters of GraphCRF.
    chosen : for several inputs of nodes, the entry and the columns of each; else None.
    of_edges : whether edges have inputs.
    inference : a function that returns an object for inference on a graph.
    templates : a function from the kinds of graphs to the kinds of cliques that have scores.
    check : a function of the kinds of graphs and the number of labels, which raises if they cannot be combined with
        other parameters.
    named : the reader of several inputs of an earlier model, or None.
    learns_names : whether new feature names are added to `named`.
    match : a function that gives graphs the kinds of the model that is the prior; None if there is no prior.
    known : the reader of labels of the prior, or None.
    """

    directed: bool
    classes: UserData
    class_weight: UserData
    chosen: Chosen | None
    of_edges: bool
    inference: Callable[[Graph], Inference]
    templates: Callable[[GraphKinds], Iterable[str]]
    check: Callable[[GraphKinds, int], None]
    named: InputsReader | None = None
    learns_names: bool = True
    match: Callable[[GraphSamples], GraphSamples] | None = None
    known: LabelReader | None = None

    def count(self) -> Function:
        return count_sequences

    def summarise(self) -> Function:
        return partial(_summarise, self.directed, self.chosen)

    def settle(self, summary: DataSummary, weight: str) -> Reading[tuple[LabelReader, GraphSamples]]:
        if self.known is None:
            if not summary.samples:
                raise ValueError("X is empty: expected at least one graph")
            if not summary.counted:
                raise ValueError(f"{weight} is zero for every graph: expected at least one weight above zero")
            labels = LabelReader.fit(summary.labels, self.classes)
        else:
            labels = self.known.extend(summary.labels, self.classes)
        class_weight, leave_out = None, None
        if self.class_weight is not None:
            names: list[Hashable] = labels.classes.tolist()
            counts = np.array([summary.counts[name] for name in names])
            by_class = read_class_weights(self.class_weight, labels.classes, counts)
            class_weight = dict(zip(names, by_class.tolist(), strict=True))
            if not by_class.all() and weight != "class_weight":
                leave_out = partial(_leave_out, labels, class_weight)
        form = self._form(summary)
        if summary.samples:
            form = form.with_kinds(summary.others.kinds) if self.match is None else self.match(form)
        self.check(form.kinds, len(labels.classes))
        templates = list(self.templates(form.kinds))
        read = partial(_read, form, labels, class_weight, templates, self.inference, self.of_edges)
        return Reading((labels, form), read, partial(_is_sparse, form), leave_out)

    def _form(self, summary: DataSummary) -> GraphSamples:
        """Return graphs without nodes that have the columns of all graphs."""
        facts: GraphForm = summary.others or GraphForm(0, self.directed, GraphKinds(), InputSummary())
        named = self.named
        if self.chosen is not None and named is None:
            reader = summary.reader(self.chosen, owner="GraphCRF")
            named = reader if isinstance(reader, InputsReader) else None
        elif named is not None and self.learns_names:
            named = named.with_names(summary.names)
        of_nodes = summary.inputs.get(None, InputSummary())
        nodes: Inputs | NamedInputs = _without_rows(of_nodes) if named is None else named.read([])[0]
        names = (of_nodes.columns, facts.edges.columns)
        columns = GraphColumns(*(None if one is None else object_array(one) for one in names))
        return GraphSamples(
            nodes,
            np.zeros(1, np.int64),
            np.empty((0, 2), np.int64),
            None if facts.edges.kind is None else _without_rows(facts.edges),
            facts.directed,
            columns if named is None else columns._replace(nodes=named.column_names),
            known=GraphKinds() if summary.others is None else facts.kinds,
            named=named,
        )


def read_graph_parts(
    X: UserData,
    y: UserData,
    sample_weight: UserData,
    engine: Cluster | None,
    reader: GraphPartReader,
    expected: ExpectedFeatures,
) -> tuple[PartsOfData[tuple[LabelReader, GraphSamples]], DistributedNetworks]:
    """Load labelled graphs on the workers, and let the workers convert them to arrays.

    Return what reads new graphs, and the graphs.
    """
    cluster = engine or current_cluster()
    parts = read_parts(load_graphs(X, y, sample_weight, cluster), cluster, reader, expected)
    return parts, DistributedNetworks(cluster, parts.parts)


def _without_rows(summary: InputSummary) -> Inputs:
    none = np.empty((0, int(summary.n_features or 0)), np.float32 if summary.itemsize == 4 else np.float64)
    return none if summary.kind == "dense" else sp.csr_array(none)


def _is_sparse(form: GraphSamples, name: str) -> bool:
    return sp.issparse(form.nodes) if form.named is None else form.named.is_sparse(name)


# A worker calls the functions below with one part.


def _summarise(directed: bool, chosen: Chosen | None, part: RawSequences, first: int) -> DataSummary:
    if not len(part):
        return DataSummary(samples=0)
    graphs = GraphSamples.read(part.X, directed=directed, chosen=chosen)
    weights = read_weights(part.weights, len(part), "graph", first=first, part=True)
    kept = np.ones(len(part), bool) if weights is None else weights > 0
    order = Chains(graphs.offsets)
    tokens = flat_labels(part.y, order)
    nodes = kept[graphs.samples]
    if chosen is None:
        inputs: dict[str | None, InputSummary] = {None: InputSummary.of_matrix(graphs.nodes, graphs.columns.nodes)}
    else:
        inputs = summarise_entries(_features_of(part.X, directed), None, first, kept, None, chosen)
    edges = InputSummary()
    if graphs.edge_features is not None:
        edges = InputSummary.of_matrix(graphs.edge_features, graphs.columns.edges)
    return DataSummary(
        samples=len(part),
        tokens=(int(nodes.sum()),),
        counted=int(kept.sum()),
        inputs=inputs,
        labels=dict.fromkeys(distinct_labels(tokens)),
        counts=count_labels(label for label, is_kept in zip(tokens, nodes.tolist(), strict=True) if is_kept),
        others=GraphForm(len(graphs.edges), graphs.directed, graphs.kinds, edges),
    )


def _leave_out(labels: LabelReader, class_weight: UserData, part: RawSequences) -> RawSequences:
    """Return a copy of the part in which a graph has the weight 0 if `class_weight` gives it the weight 0."""
    chains = Chains.from_lengths([len(one) for one in part.y])
    indices = labels.encode_single(flat_labels(part.y, chains), chains)
    given = read_weights(part.weights, len(part), "graph", part=True)
    weights = weigh_samples(given, class_weight, chains.lengths, indices, labels.classes, "graph", part=True)
    return replace(part, weights=np.where(weights == 0, 0.0, np.ones(len(part)) if given is None else given))


def _read(
    form: GraphSamples,
    labels: LabelReader,
    class_weight: UserData,
    templates: list[str],
    inference: Callable[[Graph], Inference],
    of_edges: bool,
    firsts: list[int],
    parts: list[RawSequences],
) -> LabelledGraphs:
    """Convert several parts of the data to arrays, and join them into one part."""
    X, y = (list(chain.from_iterable(getattr(part, name) for part in parts)) for name in ("X", "y"))
    weights = [np.ones(len(part)) if part.weights is None else np.asarray(part.weights) for part in parts]
    given = None if all(part.weights is None for part in parts) else np.concatenate(weights)
    _, graphs, indices, weights_of_graphs, *_ = read_labelled_graphs(
        X, y, given, directed=form.directed, classes=None, class_weight=class_weight, like=form, known=labels
    )
    if graphs.edge_features is None:
        graphs = replace(graphs, edge_features=form.edge_features)
    graphs = graphs.with_kinds(form.kinds)
    n_labels = len(labels.classes)
    return LabelledGraphs.of(graphs, indices, n_labels, templates, weights_of_graphs, inference, of_edges=of_edges)


def _features_of(X: UserData, directed: bool) -> list[UserData]:
    return [open_graph(x, i, directed).nodes for i, x in enumerate(read_graphs(X))]
