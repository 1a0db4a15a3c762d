"""Graphs as users hand them in: node features, edges, edge features; or networkx graphs; or sequences, as chains."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp

from kernelcrf.kernels.inputs import Inputs, is_sparse

Array = npt.NDArray[Any]
Ints = npt.NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class GraphSamples:
    """Graphs side by side: nodes of all samples one after the other.

    nodes : (N, d) features.
    offsets : (m + 1,), where each sample's nodes begin.
    edges : (E, 2), numbers of nodes among all of them, sample by sample.
    edge_features : (E, k), or None.
    directed : whether edges go from one node to the other, as those of sequences do.
    """

    nodes: Inputs
    offsets: Ints
    edges: Ints
    edge_features: Inputs | None
    directed: bool

    @property
    def n_samples(self) -> int:
        """m."""
        return len(self.offsets) - 1

    @property
    def samples(self) -> Ints:
        """(N,): the sample of each node."""
        return np.repeat(np.arange(self.n_samples), np.diff(self.offsets))

    @classmethod
    def read(cls, X: Any, *, directed: bool) -> GraphSamples:
        """Check and join what a user handed in."""
        if (isinstance(X, np.ndarray) and X.ndim < 3) or is_sparse(X):
            raise ValueError("X is one array: expected a list of graphs, each (features, edges) or a networkx graph")
        items = [_sample(x, i) for i, x in enumerate(X)]
        if not items:
            raise ValueError("X is empty: expected at least one graph")
        chains = {item.is_chain for item in items}
        if len(chains) > 1:
            raise ValueError("X mixes sequences and graphs: expected all of one kind")
        _check_alike(items)
        offsets = np.concatenate(([0], np.cumsum([item.features.shape[0] for item in items]))).astype(np.int64)
        edges = [item.edges + low for item, low in zip(items, offsets[:-1], strict=True)]
        nodes = [item.features for item in items]
        ends = [item.edge_features for item in items if item.edge_features is not None]
        return cls(
            _joined(nodes),
            offsets,
            np.concatenate([np.empty((0, 2), np.int64), *edges]),
            _joined(ends) if ends else None,
            directed or chains == {True},
        )

    @property
    def edge_inputs(self) -> Inputs:
        """What an edge kernel sees: the edges' own features, else those of both ends.

        Of an edge without direction that is their sum and the absolute difference.
        """
        if self.edge_features is not None:
            return self.edge_features
        first, second = self.nodes[self.edges[:, 0]], self.nodes[self.edges[:, 1]]
        with np.errstate(over="ignore"):
            pair = (first, second) if self.directed else (first + second, abs(first - second))
        return sp.hstack(pair, format="csr") if is_sparse(first) else np.concatenate(pair, axis=1)

    @property
    def skips(self) -> Ints:
        """(K, 2): the ends of each path of three nodes that are not joined themselves, each pair once."""
        paths = self.paths
        ends = paths[:, ::2] if self.directed else np.sort(paths[:, ::2], axis=1)
        ends = np.unique(ends, axis=0)
        joined = {(min(a, b), max(a, b)) for a, b in self.edges.tolist()}
        keep = [(min(a, b), max(a, b)) not in joined for a, b in ends.tolist()]
        return ends[np.array(keep, bool)] if len(ends) else np.empty((0, 2), np.int64)

    @property
    def paths(self) -> Ints:
        """(K, 3): paths of three different nodes along edges; against no edge's direction where they have one."""
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


@dataclass(frozen=True, eq=False)
class _Sample:
    features: Inputs
    edges: Ints
    edge_features: Inputs | None
    is_chain: bool


def _sample(x: Any, i: int) -> _Sample:
    if hasattr(x, "nodes") and hasattr(x, "edges") and hasattr(x, "adjacency"):
        return _from_networkx(x, i)
    if isinstance(x, tuple | list) and len(x) in (2, 3) and not np.isscalar(x[0]):
        features = _matrix(x[0], f"the node features of graph {i}")
        edges = _edges(x[1], features.shape[0], i)
        ends = None if len(x) == 2 else _matrix(x[2], f"the edge features of graph {i}")
        if ends is not None and ends.shape[0] != len(edges):
            raise ValueError(
                f"graph {i} has {len(edges)} edges and {ends.shape[0]} rows of edge features: expected as many"
            )
        return _Sample(features, edges, ends, False)
    features = _matrix(x, f"sequence {i}")
    steps = np.arange(features.shape[0])
    return _Sample(features, np.column_stack((steps[:-1], steps[1:])), None, True)


def _from_networkx(graph: Any, i: int) -> _Sample:
    """Node features in the attribute "x" of each node, edge features in "x" of each edge where they have it."""
    places = {node: k for k, node in enumerate(graph.nodes)}
    try:
        features = np.array([np.atleast_1d(data["x"]) for _, data in graph.nodes(data=True)], np.float64)
    except (KeyError, ValueError):
        raise ValueError(
            f"graph {i} lacks features: expected an attribute 'x' of every node, numbers of one length"
        ) from None
    pairs = list(graph.edges(data=True))
    edges = _edges([(places[a], places[b]) for a, b, _ in pairs], len(places), i)
    ends = None
    if pairs and all("x" in data for _, _, data in pairs):
        try:
            ends = np.array([np.atleast_1d(data["x"]) for _, _, data in pairs], np.float64)
        except ValueError:
            raise ValueError(f"the edges of graph {i} have attributes 'x' that are not numbers of one length") from None
        ends = _matrix(ends, f"the edge features of graph {i}")
    return _Sample(_matrix(features, f"the node features of graph {i}"), edges, ends, False)


def _matrix(values: Any, name: str) -> Inputs:
    matrix = values if is_sparse(values) else np.asarray(values)
    if not is_sparse(matrix) and (matrix.dtype.kind not in "fiub" or matrix.ndim != 2):
        raise ValueError(f"{name} have shape {matrix.shape} and type {matrix.dtype}: expected numbers, a row for each")
    entries = matrix.data if is_sparse(matrix) else matrix
    if not np.isfinite(entries).all():
        raise ValueError(f"{name} contain NaN or infinity: expected finite numbers")
    return matrix if matrix.dtype.kind == "f" else matrix.astype(np.float64)


def _edges(values: Any, n_nodes: int, i: int) -> Ints:
    edges = np.asarray(values)
    if edges.size == 0:
        return np.empty((0, 2), np.int64)
    if edges.ndim != 2 or edges.shape[1] != 2 or edges.dtype.kind not in "iu":
        raise ValueError(f"the edges of graph {i} have shape {edges.shape}: expected (n_edges, 2) numbers of nodes")
    if edges.min() < 0 or edges.max() >= n_nodes:
        raise ValueError(
            f"the edges of graph {i} name nodes from {edges.min()} to {edges.max()}: expected 0 to {n_nodes - 1}"
        )
    if (edges[:, 0] == edges[:, 1]).any():
        raise ValueError(
            f"graph {i} joins node {edges[edges[:, 0] == edges[:, 1]][0, 0]} to itself: expected two nodes"
        )
    return edges.astype(np.int64)


def _check_alike(items: Sequence[_Sample]) -> None:
    widths = [item.features.shape[1] for item in items]
    if len(set(widths)) > 1:
        i = next(k for k, width in enumerate(widths) if width != widths[0])
        raise ValueError(f"graph {i} has {widths[i]} node features but graph 0 has {widths[0]}: expected as many")
    with_edges = [item for item in items if len(item.edges)]
    if len({item.edge_features is None for item in with_edges}) > 1:
        raise ValueError("some graphs have edge features and some have none: expected all or none")
    if len({item.edge_features.shape[1] for item in with_edges if item.edge_features is not None}) > 1:
        raise ValueError("graphs differ in the number of their edge features: expected as many for all")


def _joined(parts: Sequence[Inputs]) -> Inputs:
    if any(is_sparse(part) for part in parts):
        return sp.csr_array(sp.vstack([sp.csr_array(part) for part in parts], format="csr"))
    return np.concatenate(parts)
