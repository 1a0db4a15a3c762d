"""Read graphs: tuples (node features, edges) or (node features, edges, edge features), mappings, or networkx graphs.

A sequence of tokens is also accepted: it becomes a graph in which each token has an edge to the next token.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import NamedTuple

import numpy as np
import scipy.sparse as sp

from kernelcrf.arrays import (
    Array,
    Flags,
    Floats,
    Inputs,
    Ints,
    Labels,
    NamedInputs,
    UserData,
    as_writable,
    is_sparse,
    join_columns,
)
from kernelcrf.basis.factor import stack
from kernelcrf.graphs.structure import Chains
from kernelcrf.readers.columns import match_columns, names_to_config, read_columns
from kernelcrf.readers.containers import is_frame, read_container
from kernelcrf.readers.graph_kinds import GraphKinds, Type
from kernelcrf.readers.inputs import InputsReader
from kernelcrf.readers.labels import LabelReader, flat_labels
from kernelcrf.readers.one_graph import OneGraph, OpenGraph, open_graph, read_graph
from kernelcrf.readers.soft_labels import SoftLabels
from kernelcrf.readers.stored_values import names_from_config
from kernelcrf.readers.weights import read_weights, weigh_samples
from kernelcrf.score.cliques import EDGE_INPUTS, EDGES, NODES, PATHS, SKIPS
from kernelcrf.score.terms import named_term


class GraphColumns(NamedTuple):
    """The names of the features of nodes and of edges; each is None unless the features were passed as data frames."""

    nodes: Array | None = None
    edges: Array | None = None

    def to_config(self) -> dict[str, UserData]:
        """Return the names as a dict that can be written as JSON; `from_config` reads this dict."""
        named = {"feature_names": self.nodes, "edge_feature_names": self.edges}
        return {key: names_to_config(names) for key, names in named.items() if names is not None}

    @classmethod
    def from_config(cls, config: Mapping[str, UserData], n_features: int) -> GraphColumns:
        """Return the names in a dict that `to_config` returned; nodes have `n_features` features."""
        edges = {"feature_names": config.get("edge_feature_names")}
        return cls(names_from_config(config, n_features), names_from_config(edges, None))


@dataclass(frozen=True, eq=False)
class GraphSamples:
    """Several graphs (samples) in one object: the nodes are numbered from 0 on, one sample after the other.

    nodes : the features of the nodes, one row per node: one matrix, or `NamedInputs` with one matrix per input.
    offsets : sample i has the nodes offsets[i], ..., offsets[i+1] - 1.
    edges : the numbers of the two nodes of each edge, one row per edge.
    edge_features : the features of the edges, one row per edge, or None.
    directed : whether edges have a direction; the edges of sequences always have a direction.
    columns : the names of the features of nodes and of edges.
    node_types, edge_types : the type of each node and of each edge, or None.
    cliques : a dict from the user's names to cliques, one row of node numbers per clique.
    known : the kinds of cliques of a fitted model; None means the kinds that these graphs have.
    named : if nodes have several inputs with names, the reader of these inputs; else None. The reader reads the nodes
        of a graph like the tokens of a sequence.
    """

    nodes: Inputs | NamedInputs
    offsets: Ints
    edges: Ints
    edge_features: Inputs | None
    directed: bool
    columns: GraphColumns = field(default_factory=GraphColumns)
    node_types: Array | None = None
    edge_types: Array | None = None
    cliques: Mapping[str, Ints] = field(default_factory=dict)
    known: GraphKinds | None = None
    named: InputsReader | None = None

    @cached_property
    def kinds(self) -> GraphKinds:
        """Return the types of nodes and edges and the names of cliques; they say which cliques share a potential."""
        return GraphKinds.of(self.node_types, self.edge_types, self.cliques) if self.known is None else self.known

    def with_kinds(self, known: GraphKinds) -> GraphSamples:
        """Return these graphs with the kinds `known` of a fitted model; raise if `known` lacks one of their kinds."""
        known.check_known(self.kinds, self.nodes.shape[0], len(self.edges))
        return replace(self, known=known)

    @property
    def n_samples(self) -> int:
        """Return the number of graphs."""
        return len(self.offsets) - 1

    @property
    def samples(self) -> Ints:
        """Return an array with one entry per node: the number of the sample that the node belongs to."""
        return np.repeat(np.arange(self.n_samples), np.diff(self.offsets))

    @classmethod
    def read(
        cls,
        X: UserData,
        *,
        directed: bool,
        like: GraphSamples | None = None,
        chosen: Mapping[str, tuple[str | None, UserData]] | None = None,
        sample_weight: UserData = None,
        learns_names: bool = False,
    ) -> GraphSamples:
        """Read the graphs in a container.

        chosen : for several inputs of nodes, the entry and the columns of each, as for `InputsReader.fit`; else None.
        sample_weight : one weight per graph; feature names in a graph of weight 0 are not added to a vocabulary.
        learns_names : whether the feature names of X are added to those that `like` knows.
        like : a `GraphSamples` without graphs. X must have the same column names, and if X is empty, `like` is
            returned. If `like` is None, an empty X raises a ValueError.
        """
        opened = [open_graph(x, i, directed) for i, x in enumerate(read_graphs(X))]
        named, nodes = None if like is None else like.named, None
        if opened and (named is not None or chosen is not None):
            features = [x.nodes for x in opened]
            if named is not None and learns_names:
                named, nodes, chains = named.extend(features, sample_weight=sample_weight)
            elif named is not None:
                nodes, chains = named.read(features)
            else:
                named, nodes, chains = InputsReader.fit(
                    features, chosen or {}, sample_weight=sample_weight, owner="GraphCRF"
                )
            ends = zip(chains.offsets[:-1], chains.offsets[1:], strict=True)
            opened = [x._replace(nodes=nodes[low:high]) for x, (low, high) in zip(opened, ends, strict=True)]
        matched, columns = _match_columns(opened, like, named)
        items = [read_graph(x, i, directed) for i, x in enumerate(matched)]
        if not items:
            if like is not None:
                return like
            raise ValueError("X is empty: expected at least one graph")
        _check_alike(items)
        offsets = Chains.from_lengths([item.nodes.shape[0] for item in items]).offsets
        edges = np.concatenate([item.edges + low for item, low in zip(items, offsets[:-1], strict=True)])
        features = [item.edge_features for item in items if item.edge_features is not None]
        cliques: dict[str, list[Ints]] = {}
        for item, low in zip(items, offsets[:-1], strict=True):
            for name, rows in item.cliques.items():
                cliques.setdefault(name, []).append(rows + low)
        return cls(
            as_writable(stack([item.nodes for item in items])) if nodes is None else nodes,
            offsets,
            edges,
            as_writable(stack(features)) if features else None,
            directed or items[0].is_chain,
            columns,
            _join_types([item.node_types for item in items]),
            _join_types([item.edge_types for item in items]),
            {name: np.concatenate(rows) for name, rows in cliques.items()},
            named=named,
        )

    def select(self, kept: Flags) -> GraphSamples:
        """Return the samples whose flag in `kept` is true."""
        nodes = kept[self.samples]
        edges = nodes[self.edges[:, 0]]
        numbers = np.cumsum(nodes) - 1
        cliques = {name: numbers[rows[nodes[rows[:, 0]]]] for name, rows in self.cliques.items()}
        return GraphSamples(
            self.nodes[nodes],
            Chains.from_lengths(np.diff(self.offsets)[kept]).offsets,
            numbers[self.edges[edges]],
            None if self.edge_features is None else self.edge_features[edges],
            self.directed,
            self.columns,
            None if self.node_types is None else _join_types([self.node_types[nodes]]),
            None if self.edge_types is None else _join_types([self.edge_types[edges]]),
            {name: rows for name, rows in cliques.items() if len(rows)},
            named=self.named,
        )

    def spread(self, rows: Floats) -> dict[str, Floats]:
        """Return a dict from kinds of nodes to the rows of these nodes, given an array with one row per node."""
        return {kind: rows[self.members(kind)[:, 0]] for kind in self.kinds.nodes.values()}

    def members(self, cliques: str) -> Ints:
        """Return the numbers of the nodes in each clique, one row per clique.

        A clique is a group of nodes whose labels are scored together.

        cliques : the kind of cliques: "nodes", "edges", "edge inputs" (the same as "edges"), "skips" or "paths", or a
            kind that `kinds` names. The properties `skips` and `paths` describe "skips" and "paths".
        """
        if cliques == SKIPS:
            return self.skips
        return self.paths if cliques == PATHS else self._members[cliques]

    @cached_property
    def _members(self) -> dict[str, Ints]:
        """Return a dict from each kind of cliques, except skips and paths, to its array of node numbers."""
        nodes, kinds = np.arange(self.nodes.shape[0])[:, None], self.kinds
        cliques = {NODES: nodes, EDGES: self.edges, EDGE_INPUTS: self.edges}
        cliques |= {kind: _of_type(nodes, self.node_types, type_) for type_, kind in kinds.nodes.items()}
        cliques |= {kind: _of_type(self.edges, self.edge_types, type_) for type_, kind in kinds.edges.items()}
        for name, kind in kinds.cliques.items():
            cliques[kind] = self.cliques.get(name, np.empty((0, kinds.named[name]), np.int64))
        return cliques

    @property
    def inputs_of_nodes(self) -> dict[str, Inputs]:
        """Return a dict from each kind of nodes to the features of these nodes, one row per node.

        If nodes have several inputs, the dict has one matrix for each pair of an input and a kind. The key of a matrix
        is then the name of the term that reads this matrix.
        """
        rows = {kind: _of_type(self.nodes, self.node_types, type_) for type_, kind in self.kinds.nodes.items()}
        if self.named is None:
            return rows
        return {named_term(name, kind): X for kind, named in rows.items() for name, X in named.matrices.items()}

    @property
    def inputs_of_edges(self) -> dict[str, Inputs]:
        """Return a dict from each kind of edges to the inputs of an edge kernel, one row per edge of this kind."""
        return {kind: _of_type(self.edge_inputs, self.edge_types, type_) for type_, kind in self.kinds.edges.items()}

    @cached_property
    def edge_inputs(self) -> Inputs:
        """Return the inputs of an edge kernel, one row per edge: the edge features if there are any.

        Otherwise the inputs come from the two nodes of each edge: the features of both nodes if edges are directed, and
        the sum and the absolute difference of these features if edges are undirected.
        """
        if self.edge_features is not None:
            return self.edge_features
        nodes = join_columns(self.nodes)
        first, second = nodes[self.edges[:, 0]], nodes[self.edges[:, 1]]
        with np.errstate(over="ignore"):
            pair = (first, second) if self.directed else (first + second, abs(first - second))
        return sp.hstack(pair, format="csr") if is_sparse(first) else np.concatenate(pair, axis=1)

    @property
    def skips(self) -> Ints:
        """Return the pairs of nodes that have a common neighbour but no edge between them, one pair per row.

        If edges are directed, these are the first and the last nodes of directed paths of three nodes.
        """
        ends = self.paths[:, ::2] if self.directed else np.sort(self.paths[:, ::2], axis=1)
        joined = set(map(frozenset, self.edges.tolist()))
        pairs = [pair for pair in np.unique(ends, axis=0).tolist() if frozenset(pair) not in joined]
        return np.array(pairs, np.int64).reshape(-1, 2)

    @property
    def paths(self) -> Ints:
        """Return all paths of three different nodes, one row per path; paths follow the direction of directed edges."""
        n_nodes = self.nodes.shape[0]
        into: list[list[int]] = [[] for _ in range(n_nodes)]
        out: list[list[int]] = [[] for _ in range(n_nodes)]
        for a, b in self.edges.tolist():
            out[a].append(b)
            into[b].append(a)
        triples = []
        for middle in range(n_nodes):
            if self.directed:
                triples += [(a, middle, b) for a in into[middle] for b in out[middle] if a != b]
            else:
                around = sorted({*into[middle], *out[middle]})
                triples += [(a, middle, b) for k, a in enumerate(around) for b in around[k + 1 :]]
        return np.array(triples, np.int64).reshape(-1, 3)


def read_labelled_graphs(
    X: UserData,
    y: UserData,
    sample_weight: UserData,
    *,
    directed: bool,
    classes: UserData,
    class_weight: UserData = None,
    like: GraphSamples | None = None,
    chosen: Mapping[str, tuple[str | None, UserData]] | None = None,
    learns_names: bool = False,
    known: LabelReader | None = None,
) -> tuple[LabelReader, GraphSamples, Labels, Floats | None, Flags, Floats | None]:
    """Read graphs with their labels and weights, and drop the graphs whose weight is 0.

    Return six values: the `LabelReader`, the graphs, the labels, the weights, a flag for each graph of X that is kept,
    and soft labels. The labels are indices into the classes, one per node; -1 is a missing label. The weights are None
    if all are 1. Soft labels have one row per node, and are None if y has ordinary labels; the labels are then the
    likeliest ones.

    class_weight : weights of labels; the weight of a graph is multiplied by the mean weight of its known labels.
    like : a `GraphSamples` without graphs, whose column names these graphs must have; None means the column names of
        the first graph.
    chosen : for several inputs of nodes, the entry and the columns of each, as for `InputsReader.fit`; else None.
    learns_names : whether the feature names of X are added to those that `like` knows.
    known : if the fit has a prior, the label reader of the earlier model, to which new labels are added; otherwise
        None. With a prior, all weights may be 0.
    """
    graphs = GraphSamples.read(
        X, directed=directed, like=like, chosen=chosen, sample_weight=sample_weight, learns_names=learns_names
    )
    order = Chains(graphs.offsets)
    soft_labels, soft = SoftLabels.read(y, order), None
    if soft_labels is None:
        tokens = flat_labels(y, order)
    else:
        before = known.classes if known is not None else classes
        tokens = soft_labels.labels(before)
    reader, part = (
        LabelReader.fit(tokens, classes) if known is None else known.extend(tokens, classes),
        known is not None,
    )
    if soft_labels is None:
        labels = reader.encode_single(tokens, order)
    else:
        soft = soft_labels.columns(reader.classes, classes)
        labels = np.asarray(soft.argmax(axis=1), np.int32)
    given, kept = read_weights(sample_weight, graphs.n_samples, "graph", part=part), np.ones(graphs.n_samples, bool)
    weights = weigh_samples(given, class_weight, order.lengths, labels, reader.classes, "graph", soft=soft, part=part)
    if weights is not None and not weights.all():
        kept = weights > 0
        of_nodes = kept[graphs.samples]
        labels, soft = labels[of_nodes], None if soft is None else soft[of_nodes]
        graphs, weights = graphs.select(kept), weights[kept]
    return reader, graphs, labels, weights, kept, soft


def read_graphs(X: UserData) -> list[UserData]:
    """Return the graphs in a container as a list; raise if X is a single array, matrix or data frame."""
    expected = "a list of graphs, each a tuple (features, edges), a dict or a networkx graph, or a list of sequences"
    opened = read_container(X, "X", expected)
    if is_sparse(opened) or is_frame(opened) or (isinstance(opened, np.ndarray) and opened.ndim < 3):
        raise ValueError(f"X is one array, of shape {opened.shape}: expected {expected}; pass [X] for one sequence")
    return list(opened)


def _match_columns(
    graphs: list[OpenGraph], like: GraphSamples | None, named: InputsReader | None
) -> tuple[list[OpenGraph], GraphColumns]:
    """Return a pair: the graphs with their feature columns in the same order, and the names of the columns.

    The columns have the order of `like` or, if `like` is None, the order of the first graph.

    named : the reader that has already read the features of nodes, or None.
    """
    known = GraphColumns() if like is None else like.columns

    def match(parts: list[UserData], places: list[str], names: Array | None) -> tuple[Sequence[UserData], Array | None]:
        if like is None:
            return read_columns("GraphCRF", parts, places.__getitem__)
        return match_columns("GraphCRF", parts, places.__getitem__, names), names

    nodes: Sequence[UserData] = [x.nodes for x in graphs]
    if named is None:
        nodes, of_nodes = match(list(nodes), [x.place for x in graphs], known.nodes)
    else:
        of_nodes = named.column_names
    features = [() if x.edge_features is None else x.edge_features for x in graphs]
    edges, of_edges = match(features, [x.edge_place for x in graphs], known.edges)
    matched = [
        x._replace(nodes=of_node, edge_features=None if x.edge_features is None else of_edge)
        for x, of_node, of_edge in zip(graphs, nodes, edges, strict=True)
    ]
    return matched, GraphColumns(of_nodes, of_edges)


def _of_type(rows: Inputs, types: Array | None, wanted: Type | None) -> Inputs:
    """Return the rows of the nodes or edges whose type is `wanted`; None means all rows, without a copy."""
    if wanted is None:
        return rows
    return rows[:0] if types is None else rows[np.flatnonzero(types == wanted)]


def _join_types(parts: Sequence[Array | None]) -> Array | None:
    """Return the types of all graphs as one array, or None if the graphs have no types."""
    types = np.concatenate([np.empty(0, object), *(part for part in parts if part is not None)])
    return types if len(types) else None


def _check_alike(items: Sequence[OneGraph]) -> None:
    if len({item.is_chain for item in items}) > 1:
        raise ValueError("X mixes sequences and graphs: expected only sequences or only graphs")
    widths = [item.nodes.shape[1] for item in items]
    if 0 in widths:
        raise ValueError(
            f"X[{widths.index(0)}] has no node features: expected at least one column. Pass a column of ones if nodes "
            "have no features"
        )
    for i, width in enumerate(widths):
        if width != widths[0]:
            raise ValueError(
                f"X[{i}] has {width} node features but X[0] has {widths[0]}: expected the same number in every graph"
            )
    features = [item.edge_features for item in items if len(item.edges)]
    parts = {
        "edge features": features,
        "node types": [item.node_types for item in items if item.nodes.shape[0]],
        "edge types": [item.edge_types for item in items if len(item.edges)],
    }
    for what, held in parts.items():
        if len({part is None for part in held}) > 1:
            raise ValueError(
                f"X has some graphs with {what} and some without: expected {what} in all graphs or in none"
            )
    if len({matrix.shape[1] for matrix in features if matrix is not None}) > 1:
        raise ValueError(
            "X has graphs with different numbers of edge features: expected the same number in every graph"
        )
    sizes: dict[str, int] = {}
    for i, item in enumerate(items):
        for name, rows in item.cliques.items():
            if sizes.setdefault(name, rows.shape[1]) != rows.shape[1]:
                raise ValueError(
                    f"the cliques {name!r} of X[{i}] have {rows.shape[1]} nodes each, but those of earlier graphs have "
                    f"{sizes[name]}: expected the same number; use another name for cliques of another size"
                )
