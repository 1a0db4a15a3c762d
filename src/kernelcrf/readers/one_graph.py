"""Read one graph in any of its forms: a tuple, a mapping, a networkx graph or a sequence of tokens.

The first step, `open_graph`, finds the parts of the graph. The second step, `read_graph`, checks the parts and converts
them to arrays. Between the two steps, the columns of the features can be reordered.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

import numpy as np

from kernelcrf.arrays import Array, Inputs, Ints, NamedInputs, UserData, is_sparse
from kernelcrf.graphs.structure import EDGE, Chains
from kernelcrf.readers.containers import is_frame, read_container, read_matrix
from kernelcrf.readers.graph_kinds import RESERVED
from kernelcrf.validation import shown, shown_list

REQUIRED = ("nodes", "edges")
OPTIONAL = ("edge_features", "node_types", "edge_types", "cliques")


class OpenGraph(NamedTuple):
    """The parts of a graph as the user passed them, before they are checked.

    place, edge_place : the names of the node features and of the edge features in error messages.
    nodes : the features of the nodes, one row per node. Several inputs of nodes have already become `NamedInputs`.
    edges : the numbers of the two nodes of each edge, or None for a sequence, whose tokens form a chain.
    edge_features : the features of the edges, or None.
    node_types, edge_types : the type of each node and of each edge, or None.
    cliques : a dict from the user's names to the numbers of the nodes of each clique, or None.
    """

    place: str
    edge_place: str
    nodes: UserData
    edges: UserData = None
    edge_features: UserData = None
    node_types: UserData = None
    edge_types: UserData = None
    cliques: UserData = None


class OneGraph(NamedTuple):
    """The parts of a graph as arrays; `OpenGraph` describes them. Types are arrays of strings and integers."""

    nodes: Inputs | NamedInputs
    edges: Ints
    edge_features: Inputs | None
    is_chain: bool
    node_types: Array | None
    edge_types: Array | None
    cliques: dict[str, Ints]


def open_graph(x: UserData, i: int, directed: bool) -> OpenGraph:
    """Return the parts of the graph x, which is X[i]; raise if a networkx graph or a mapping lacks a part."""
    if hasattr(x, "nodes") and hasattr(x, "edges") and hasattr(x, "adjacency"):
        return _from_networkx(x, i, directed)
    if isinstance(x, Mapping) and not is_sparse(x):  # a sparse matrix of format DOK is a dict
        return _from_mapping(x, i)
    if _is_tuple(x):
        return OpenGraph(f"X[{i}][0]", f"X[{i}][2]", *x)
    return OpenGraph(f"X[{i}]", "", x)


def read_graph(x: OpenGraph, i: int, directed: bool) -> OneGraph:
    """Check the parts of a graph, which is X[i], and convert them to arrays."""
    nodes = x.nodes if isinstance(x.nodes, NamedInputs) else _matrix(x.nodes, x.place)
    if x.edges is None:
        return OneGraph(nodes, Chains.from_lengths([nodes.shape[0]]).cliques(EDGE), None, True, None, None, {})
    edges = _edges(x.edges, nodes.shape[0], i, directed)
    features = None if x.edge_features is None else _matrix(x.edge_features, x.edge_place)
    if features is not None and features.shape[0] != len(edges):
        raise ValueError(
            f"X[{i}] has {len(edges)} edges and {features.shape[0]} rows of edge features: expected one row per edge"
        )
    node_types, edge_types = (
        _types(x.node_types, nodes.shape[0], "node", i),
        _types(x.edge_types, len(edges), "edge", i),
    )
    return OneGraph(nodes, edges, features, False, node_types, edge_types, _cliques(x.cliques, nodes.shape[0], i))


def _from_mapping(graph: Mapping[UserData, UserData], i: int) -> OpenGraph:
    unknown = [key for key in graph if key not in REQUIRED + OPTIONAL]
    lacking = [key for key in REQUIRED if key not in graph]
    if unknown or lacking:
        problem = f"the unknown keys {shown_list(unknown)}" if unknown else f"no key {shown_list(lacking)}"
        raise ValueError(
            f"X[{i}] is a mapping with {problem}: expected the keys {shown_list(REQUIRED)} and optionally "
            f"{shown_list(OPTIONAL)}"
        )
    if graph["edges"] is None:
        raise ValueError(f"X[{i}]['edges'] is None: expected an array (n_edges, 2); pass [] for a graph without edges")
    return OpenGraph(f"X[{i}]['nodes']", f"X[{i}]['edge_features']", **graph)


def _from_networkx(graph: UserData, i: int, directed: bool) -> OpenGraph:
    """Return the parts of a networkx graph; features are the attributes "x", and types are the attributes "type"."""
    if graph.is_directed() != directed:
        other = "graph.to_directed() or directed=False" if directed else "graph.to_undirected() or directed=True"
        raise ValueError(
            f"X[{i}] is a {type(graph).__name__} of networkx, and directed={directed!r}: expected "
            f"{'directed' if directed else 'undirected'} graphs; use {other}"
        )
    places = {node: k for k, node in enumerate(graph.nodes)}
    of_nodes, pairs = [data for _, data in graph.nodes(data=True)], list(graph.edges(data=True))
    of_edges = [data for _, _, data in pairs]
    try:
        features = np.array([np.atleast_1d(data["x"]) for data in of_nodes], np.float64)
    except (KeyError, ValueError):
        raise ValueError(
            f"X[{i}] lacks node features: expected an attribute 'x' with the same number of features for every node"
        ) from None
    edge_features = _attributes(of_edges, "x", "edges", i)
    if edge_features is not None:
        try:
            edge_features = np.array([np.atleast_1d(values) for values in edge_features], np.float64)
        except ValueError:
            raise ValueError(
                f"the edges of X[{i}] have attributes 'x' that are not numbers or differ in length: expected the same "
                "number of features for every edge"
            ) from None
    return OpenGraph(
        f"X[{i}], the attributes 'x' of nodes,",
        f"X[{i}], the attributes 'x' of edges,",
        features,
        np.array([(places[a], places[b]) for a, b, _ in pairs], np.int64).reshape(-1, 2),
        edge_features,
        _attributes(of_nodes, "type", "nodes", i),
        _attributes(of_edges, "type", "edges", i),
    )


def _attributes(held: list[dict[UserData, UserData]], name: str, what: str, i: int) -> UserData:
    """Return the attribute of all nodes or edges of a networkx graph as a list, or None if none of them has it."""
    n_with = sum(name in data for data in held)
    if 0 < n_with < len(held):
        raise ValueError(
            f"{n_with} of the {len(held)} {what} of X[{i}] have an attribute {name!r}: expected this attribute for all "
            f"{what} or for none"
        )
    return [data[name] for data in held] if n_with else None


def _is_tuple(x: UserData) -> bool:
    """Return whether x is (features, edges) or (features, edges, edge features) rather than a sequence of tokens."""
    if not isinstance(x, tuple | list) or len(x) not in (2, 3) or is_sparse(x[1]):
        return False
    if isinstance(x[0], Mapping) and not is_sparse(x[0]):
        return not isinstance(x[1], Mapping)
    try:
        return any(is_sparse(part) or is_frame(part) or np.ndim(part) > 1 for part in x)
    except ValueError:  # rows of different lengths
        return True


def _matrix(values: UserData, name: str) -> Inputs:
    matrix = read_matrix(values, name)
    values = matrix.data if is_sparse(matrix) else matrix
    if not np.isfinite(values).all():
        has_nan = np.isnan(values).any()
        remedy = (
            "fill in missing values with sklearn.impute, since p(y|x) cannot sum out inputs"
            if has_nan
            else "remove or clip infinite values"
        )
        raise ValueError(f"{name} contains {'NaN' if has_nan else 'infinity'}: expected finite numbers; {remedy}")
    return matrix


def _edges(values: UserData, n_nodes: int, i: int, directed: bool) -> Ints:
    expected = "an array (n_edges, 2) of integers, the numbers of the two nodes of each edge"
    edges = _node_numbers(values, n_nodes, f"the edges of X[{i}]", expected)
    if edges.size == 0:
        return np.empty((0, 2), np.int64)
    if edges.shape[1] != 2:
        raise ValueError(f"the edges of X[{i}] have shape {edges.shape}, dtype {edges.dtype}: expected {expected}")
    if (edges[:, 0] == edges[:, 1]).any():
        raise ValueError(
            f"X[{i}] has an edge from node {edges[edges[:, 0] == edges[:, 1]][0, 0]} to itself: expected two different "
            "nodes per edge"
        )
    twice = _first_twice(edges if directed else np.sort(edges, axis=1))
    if twice is not None:
        a, b = edges[twice]
        raise ValueError(
            f"X[{i}] has the edge ({a}, {b}) more than once: expected each edge once"
            + ("" if directed else "; (a, b) and (b, a) are the same edge unless directed=True")
        )
    return edges


def _cliques(values: UserData, n_nodes: int, i: int) -> dict[str, Ints]:
    """Return a dict from the names of the user's cliques to arrays with one row of node numbers per clique."""
    if values is None:
        return {}
    if not isinstance(values, Mapping):
        raise TypeError(
            f"the cliques of X[{i}] are {shown(values)}: expected a dict from names to arrays (n_cliques, k) of node "
            "numbers"
        )
    expected = "an array (n_cliques, k) of integers, the numbers of the k nodes of each clique, with k at least 2"
    cliques = {}
    for name, rows in values.items():
        if not isinstance(name, str) or name in ("", *RESERVED):
            raise ValueError(
                f"X[{i}] has cliques named {shown(name)}: expected a string that is not empty and not one of "
                f"{shown_list(RESERVED)}; choose another name"
            )
        what = f"the cliques {shown(name)} of X[{i}]"
        nodes = _node_numbers(rows, n_nodes, what, expected)
        if nodes.size == 0:
            continue
        if nodes.shape[1] < 2:
            raise ValueError(f"{what} have shape {nodes.shape}, dtype {nodes.dtype}: expected {expected}")
        ranked = np.sort(nodes, axis=1)
        same = np.flatnonzero((ranked[:, 1:] == ranked[:, :-1]).any(axis=1))
        if same.size:
            raise ValueError(
                f"{what} contain {tuple(nodes[same[0]].tolist())}, which has a node twice: expected different nodes"
            )
        twice = _first_twice(nodes)
        if twice is not None:
            raise ValueError(f"{what} contain {tuple(nodes[twice].tolist())} more than once: expected each clique once")
        cliques[str(name)] = nodes
    return cliques


def _node_numbers(values: UserData, n_nodes: int, what: str, expected: str) -> Ints:
    """Return the values as a two-dimensional array of node numbers, or as an empty array if there are none."""
    opened = read_container(values, what, expected)
    try:
        numbers = np.asarray(opened)
    except ValueError:
        raise ValueError(f"{what} are not rows of equal length: expected {expected}") from None
    if numbers.size == 0:
        return np.empty(0, np.int64)
    if numbers.ndim != 2 or numbers.dtype.kind not in "iu":
        raise ValueError(f"{what} have shape {numbers.shape}, dtype {numbers.dtype}: expected {expected}")
    if numbers.min() < 0 or numbers.max() >= n_nodes:
        raise ValueError(
            f"{what} have node numbers from {numbers.min()} to {numbers.max()}: expected 0 to {n_nodes - 1}"
        )
    return numbers.astype(np.int64)


def _first_twice(rows: Ints) -> int | None:
    """Return the index of the first row that occurs more than once, or None if all rows are different."""
    _, first, counts = np.unique(rows, axis=0, return_index=True, return_counts=True)
    return int(first[counts > 1].min()) if (counts > 1).any() else None


def _types(values: UserData, n: int, what: str, i: int) -> Array | None:
    """Return the types of n nodes or edges as an array of strings and integers, or None if `values` is None."""
    if values is None:
        return None
    expected = f"one string or integer per {what}"
    opened = read_container(values, f"the {what} types of X[{i}]", expected)
    if is_sparse(opened) or is_frame(opened) or (isinstance(opened, np.ndarray) and opened.ndim != 1):
        raise ValueError(f"the {what} types of X[{i}] have shape {opened.shape}: expected {expected}")
    if len(opened) != n:
        raise ValueError(f"X[{i}] has {n} {what}s and {len(opened)} {what} types: expected {expected}")
    types = np.empty(n, object)
    for k, type_ in enumerate(opened):
        if isinstance(type_, bool | np.bool_) or not isinstance(type_, str | int | np.integer):
            raise TypeError(f"the {what} types of X[{i}] contain {shown(type_)}: expected {expected}")
        types[k] = str(type_) if isinstance(type_, str) else int(type_)
    return types
