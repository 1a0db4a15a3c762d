"""Choose the edges of a graph of label nodes: all pairs, a tree learned from labels, or pairs from the user."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Sequence

import numpy as np
from scipy.sparse.csgraph import minimum_spanning_tree

from kernelcrf.arrays import Array
from kernelcrf.validation import Constraint, is_whole, shown

Pair = tuple[int, int]

PAIR = Constraint("two integers", lambda pair: len(pair) == 2 and all(map(is_whole, pair)))


def all_pairs(n_nodes: int) -> list[Pair]:
    """Return all pairs of the nodes 0 to n_nodes - 1."""
    return list(itertools.combinations(range(n_nodes), 2))


def chow_liu(labels: Array, cards: Array, weights: Array | None = None) -> list[Pair]:
    """Return the edges of the tree that maximises the mutual information between labels of connected nodes.

    This is the tree of maximum likelihood (Chow, Liu 1968). Two nodes with independent labels are not connected.

    labels : one row per sample and one column per node; negative labels are missing.
    cards : the number of labels of each node.
    weights : the weight of each sample, or None if all weights are 1.
    """
    n_nodes = labels.shape[1]
    information = np.zeros((n_nodes, n_nodes))
    counts = np.ones(len(labels)) if weights is None else np.asarray(weights, np.float64)
    for i, j in all_pairs(n_nodes):
        information[i, j] = _mutual_information(labels[:, i], labels[:, j], (int(cards[i]), int(cards[j])), counts)
    tree = minimum_spanning_tree(-information).tocoo()
    return sorted((int(min(i, j)), int(max(i, j))) for i, j in zip(tree.row, tree.col, strict=True))


def _mutual_information(a: Array, b: Array, shape: Pair, counts: Array) -> float:
    both = (a >= 0) & (b >= 0)
    joint = np.bincount(np.ravel_multi_index((a[both], b[both]), shape), counts[both], minlength=shape[0] * shape[1])
    if joint.sum() == 0:
        return 0.0
    p = (joint / joint.sum()).reshape(shape)
    apart = np.outer(p.sum(axis=1), p.sum(axis=0))
    seen = p > 0
    information = float(np.dot(p[seen], np.log(p[seen] / apart[seen])))
    return information if information > 1e-12 else 0.0


def checked_pairs(pairs: Iterable[Sequence[int]], n_nodes: int, name: str) -> list[Pair]:
    """Check pairs of nodes that the user passed as the argument `name`, and return each pair once."""
    unique_pairs: dict[Pair, None] = {}
    for pair in pairs:
        if not PAIR.accepts(pair):
            raise ValueError(f"{name} contains {shown(pair)}: expected pairs of node numbers, such as (0, 1)")
        i, j = (int(node) for node in pair)
        if not (0 <= i < n_nodes and 0 <= j < n_nodes and i != j):
            raise ValueError(f"{name} contains {shown(pair)}: expected two different nodes from 0 to {n_nodes - 1}")
        unique_pairs[min(i, j), max(i, j)] = None
    return list(unique_pairs)
