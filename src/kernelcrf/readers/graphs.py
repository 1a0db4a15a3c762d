"""Read graphs: tuples (node features, edges) or (node features, edges, edge features), or networkx graphs.

A sequence of tokens is also accepted: it becomes a graph in which each token has an edge to the next token.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import scipy.sparse as sp

from kernelcrf.arrays import Array, Flags, Floats, Inputs, Ints, Labels, UserData, as_writable, is_sparse
from kernelcrf.basis.factor import stack
from kernelcrf.graphs.structure import EDGE, Chains
from kernelcrf.readers.columns import match_columns, read_columns
from kernelcrf.readers.containers import is_frame, read_container, read_matrix
from kernelcrf.readers.labels import LabelReader, flat_labels
from kernelcrf.readers.weights import read_weights


@dataclass(frozen=True, eq=False)
class GraphSamples:
    """Several graphs (samples) in one object: the nodes are numbered from 0 on, one sample after the other.

    nodes : the features of the nodes, one row per node.
    offsets : sample i has the nodes offsets[i], ..., offsets[i+1] - 1.
    edges : the numbers of the two nodes of each edge, one row per edge.
    edge_features : the features of the edges, one row per edge, or None.
    directed : whether edges have a direction; the edges of sequences always have a direction.
    column_names : the names of the node features if they were passed as data frames; otherwise None.
    """

    nodes: Inputs
    offsets: Ints
    edges: Ints
    edge_features: Inputs | None
    directed: bool
    column_names: Array | None = None

    @property
    def n_samples(self) -> int:
        """Return the number of graphs."""
        return len(self.offsets) - 1

    @property
    def samples(self) -> Ints:
        """Return an array with one entry per node: the number of the sample that the node belongs to."""
        return np.repeat(np.arange(self.n_samples), np.diff(self.offsets))

    @classmethod
    def read(cls, X: UserData, *, directed: bool, like: GraphSamples | None = None) -> GraphSamples:
        """Read the graphs in a container.

        like : a `GraphSamples` without graphs. X must have the same column names, and if X is empty, `like` is
            returned. If `like` is None, an empty X raises a ValueError.
        """
        graphs, names = _match_columns(read_graphs(X), like)
        items = [_sample(x, i, directed) for i, x in enumerate(graphs)]
        if not items:
            if like is not None:
                return like
            raise ValueError("X is empty: expected at least one graph")
        _check_alike(items)
        offsets = Chains.from_lengths([item.nodes.shape[0] for item in items]).offsets
        edges = np.concatenate([item.edges + low for item, low in zip(items, offsets[:-1], strict=True)])
        features = [item.edge_features for item in items if item.edge_features is not None]
        nodes = as_writable(stack([item.nodes for item in items]))
        edge_features = as_writable(stack(features)) if features else None
        return cls(nodes, offsets, edges, edge_features, directed or items[0].is_chain, names)

    def select(self, kept: Flags) -> GraphSamples:
        """Return the samples whose flag in `kept` is true."""
        nodes = kept[self.samples]
        edges = nodes[self.edges[:, 0]]
        numbers = np.cumsum(nodes) - 1
        return GraphSamples(
            self.nodes[nodes],
            Chains.from_lengths(np.diff(self.offsets)[kept]).offsets,
            numbers[self.edges[edges]],
            None if self.edge_features is None else self.edge_features[edges],
            self.directed,
            self.column_names,
        )

    def members(self, cliques: str) -> Ints:
        """Return the numbers of the nodes in each clique, one row per clique.

        A clique is a group of nodes whose labels are scored together.

        cliques : the kind of cliques: "nodes", "edges", "edge inputs" (the same as "edges"), "skips" or "paths". The
            properties `skips` and `paths` describe the last two.
        """
        if cliques == "nodes":
            return np.arange(self.nodes.shape[0])[:, None]
        return self.skips if cliques == "skips" else self.paths if cliques == "paths" else self.edges

    @property
    def edge_inputs(self) -> Inputs:
        """Return the inputs of an edge kernel, one row per edge: the edge features if there are any.

        Otherwise the inputs come from the two nodes of each edge: the features of both nodes if edges are directed, and
        the sum and the absolute difference of these features if edges are undirected.
        """
        if self.edge_features is not None:
            return self.edge_features
        first, second = self.nodes[self.edges[:, 0]], self.nodes[self.edges[:, 1]]
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
        found = [pair for pair in np.unique(ends, axis=0).tolist() if frozenset(pair) not in joined]
        return np.array(found, np.int64).reshape(-1, 2)

    @property
    def paths(self) -> Ints:
        """Return all paths of three different nodes, one row per path; paths follow the direction of directed edges."""
        n_nodes = self.nodes.shape[0]
        into: list[list[int]] = [[] for _ in range(n_nodes)]
        out: list[list[int]] = [[] for _ in range(n_nodes)]
        for a, b in self.edges.tolist():
            out[a].append(b)
            into[b].append(a)
        found = []
        for middle in range(n_nodes):
            if self.directed:
                found += [(a, middle, b) for a in into[middle] for b in out[middle] if a != b]
            else:
                around = sorted({*into[middle], *out[middle]})
                found += [(a, middle, b) for k, a in enumerate(around) for b in around[k + 1 :]]
        return np.array(found, np.int64).reshape(-1, 3)


class _Sample(NamedTuple):
    nodes: Inputs
    edges: Ints
    edge_features: Inputs | None
    is_chain: bool


def read_labelled_graphs(
    X: UserData, y: UserData, sample_weight: UserData, *, directed: bool, classes: UserData
) -> tuple[LabelReader, GraphSamples, Labels, Floats | None]:
    """Read graphs with their labels and weights, and drop the graphs whose weight is 0.

    Return four values: the `LabelReader`, the graphs, the labels and the weights. The labels are indices into the
    classes, one per node; -1 is a missing label. The weights are None if `sample_weight` is None.
    """
    graphs = GraphSamples.read(X, directed=directed)
    order = Chains(graphs.offsets)
    tokens = flat_labels(y, order)
    reader = LabelReader.fit(tokens, classes)
    labels = reader.encode_single(tokens, order)
    weights = read_weights(sample_weight, graphs.n_samples, "graph")
    if weights is not None and not weights.all():
        kept = weights > 0
        labels, graphs, weights = labels[kept[graphs.samples]], graphs.select(kept), weights[kept]
    return reader, graphs, labels, weights


def read_graphs(X: UserData) -> list[UserData]:
    """Return the graphs in a container as a list; raise if X is a single array, matrix or data frame."""
    expected = "a list of graphs, each a tuple (features, edges) or a networkx graph, or a list of sequences"
    opened = read_container(X, "X", expected)
    if is_sparse(opened) or is_frame(opened) or (isinstance(opened, np.ndarray) and opened.ndim < 3):
        raise ValueError(f"X is one array, of shape {opened.shape}: expected {expected}; pass [X] for one sequence")
    return list(opened)


def _match_columns(graphs: list[UserData], like: GraphSamples | None) -> tuple[list[UserData], Array | None]:
    """Return graphs whose node features have their columns in the same order, and the names of the columns, if any.

    The columns have the order of `like`, or, if `like` is None, the order of the first graph.
    """
    pairs = [_is_graph(x) for x in graphs]
    nodes = [x[0] if pair else x for x, pair in zip(graphs, pairs, strict=True)]

    def place(i: int) -> str:
        return f"X[{i}][0]" if pairs[i] else f"X[{i}]"

    if like is None:
        matched, names = read_columns("GraphCRF", nodes, place)
    else:
        matched, names = match_columns("GraphCRF", nodes, place, like.column_names), like.column_names
    return [(own, *x[1:]) if pair else own for x, own, pair in zip(graphs, matched, pairs, strict=True)], names


def _sample(x: UserData, i: int, directed: bool) -> _Sample:
    names = f"X[{i}][0]", f"X[{i}][2]"
    if hasattr(x, "nodes") and hasattr(x, "edges") and hasattr(x, "adjacency"):
        x = _from_networkx(x, i, directed)
        names = f"X[{i}], the attributes 'x' of nodes,", f"X[{i}], the attributes 'x' of edges,"
    if not _is_graph(x):
        nodes = _matrix(x, f"X[{i}]")
        return _Sample(nodes, Chains.from_lengths([nodes.shape[0]]).cliques(EDGE), None, True)
    nodes = _matrix(x[0], names[0])
    edges = _edges(x[1], nodes.shape[0], i, directed)
    features = None if len(x) == 2 else _matrix(x[2], names[1])
    if features is not None and features.shape[0] != len(edges):
        raise ValueError(
            f"X[{i}] has {len(edges)} edges and {features.shape[0]} rows of edge features: expected one row per edge"
        )
    return _Sample(nodes, edges, features, False)


def _from_networkx(graph: UserData, i: int, directed: bool) -> tuple[UserData, ...]:
    """Convert a networkx graph to a tuple (node features, edges), with edge features as a third entry if there are any.

    The features of a node or an edge are its attribute "x".
    """
    if graph.is_directed() != directed:
        other = "graph.to_directed() or directed=False" if directed else "graph.to_undirected() or directed=True"
        raise ValueError(
            f"X[{i}] is a {type(graph).__name__} of networkx, and directed={directed!r}: expected "
            f"{'directed' if directed else 'undirected'} graphs; use {other}"
        )
    places = {node: k for k, node in enumerate(graph.nodes)}
    try:
        features = np.array([np.atleast_1d(data["x"]) for _, data in graph.nodes(data=True)], np.float64)
    except (KeyError, ValueError):
        raise ValueError(
            f"X[{i}] lacks node features: expected an attribute 'x' with the same number of features for every node"
        ) from None
    pairs = list(graph.edges(data=True))
    edges = np.array([(places[a], places[b]) for a, b, _ in pairs], np.int64).reshape(-1, 2)
    with_features = sum("x" in data for _, _, data in pairs)
    if 0 < with_features < len(pairs):
        raise ValueError(
            f"{with_features} of the {len(pairs)} edges of X[{i}] have an attribute 'x': expected this "
            "attribute for all edges or for none"
        )
    if not with_features:
        return features, edges
    try:
        return features, edges, np.array([np.atleast_1d(data["x"]) for _, _, data in pairs], np.float64)
    except ValueError:
        raise ValueError(
            f"the edges of X[{i}] have attributes 'x' that are not numbers or differ in length: expected the same "
            "number of features for every edge"
        ) from None


def _is_graph(x: UserData) -> bool:
    """Return whether x is (features, edges) or (features, edges, edge features) rather than a sequence of tokens."""
    if not isinstance(x, tuple | list) or len(x) not in (2, 3) or is_sparse(x[1]):
        return False
    try:
        return any(is_sparse(part) or is_frame(part) or np.ndim(part) > 1 for part in x)
    except ValueError:  # rows of different lengths
        return True


def _matrix(values: UserData, name: str) -> Inputs:
    matrix = read_matrix(values, name)
    values = matrix.data if is_sparse(matrix) else matrix
    if not np.isfinite(values).all():
        has_nan = np.isnan(values).any()
        remedy = "fill in missing values with sklearn.impute" if has_nan else "remove or clip infinite values"
        raise ValueError(f"{name} contains {'NaN' if has_nan else 'infinity'}: expected finite numbers; {remedy}")
    return matrix


def _edges(values: UserData, n_nodes: int, i: int, directed: bool) -> Ints:
    expected = "an array (n_edges, 2) of integers, the numbers of the two nodes of each edge"
    opened = read_container(values, f"the edges of X[{i}]", expected)
    try:
        edges = np.asarray(opened)
    except ValueError:
        raise ValueError(f"the edges of X[{i}] are not pairs: expected {expected}") from None
    if edges.size == 0:
        return np.empty((0, 2), np.int64)
    if edges.ndim != 2 or edges.shape[1] != 2 or edges.dtype.kind not in "iu":
        raise ValueError(f"the edges of X[{i}] have shape {edges.shape}, dtype {edges.dtype}: expected {expected}")
    if edges.min() < 0 or edges.max() >= n_nodes:
        raise ValueError(
            f"the edges of X[{i}] have node numbers from {edges.min()} to {edges.max()}: expected 0 to {n_nodes - 1}"
        )
    if (edges[:, 0] == edges[:, 1]).any():
        raise ValueError(
            f"X[{i}] has an edge from node {edges[edges[:, 0] == edges[:, 1]][0, 0]} to itself: expected two different "
            "nodes per edge"
        )
    pairs = edges if directed else np.sort(edges, axis=1)
    _, first, counts = np.unique(pairs, axis=0, return_index=True, return_counts=True)
    if (counts > 1).any():
        a, b = edges[first[counts > 1].min()]
        raise ValueError(
            f"X[{i}] has the edge ({a}, {b}) more than once: expected each edge once"
            + ("" if directed else "; (a, b) and (b, a) are the same edge unless directed=True")
        )
    return edges.astype(np.int64)


def _check_alike(items: Sequence[_Sample]) -> None:
    if len({item.is_chain for item in items}) > 1:
        raise ValueError("X mixes sequences and graphs: expected only sequences or only graphs")
    widths = [item.nodes.shape[1] for item in items]
    for i, width in enumerate(widths):
        if width != widths[0]:
            raise ValueError(f"X[{i}] has {width} node features but X[0] has {widths[0]}: expected the same number")
    features = [item.edge_features for item in items if len(item.edges)]
    if len({own is None for own in features}) > 1:
        raise ValueError(
            "X has some graphs with edge features and some without: expected edge features in all graphs or in none"
        )
    if len({own.shape[1] for own in features if own is not None}) > 1:
        raise ValueError(
            "X has graphs with different numbers of edge features: expected the same number in every graph"
        )
