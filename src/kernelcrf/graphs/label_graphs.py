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


def count_pairs(labels: Array, cards: Array, weights: Array | None = None) -> Array:
    """Return how often two nodes have two labels, as an array of tables: one for each pair of `all_pairs`.

    The counts of all samples are the sums of those of parts.

    labels : one row per sample and one column per node; negative labels are missing.
    cards : the number of labels of each node.
    weights : the weight of each sample, or None if all weights are 1.
    """
    mass = np.ones(len(labels)) if weights is None else np.asarray(weights, np.float64)
    pairs = all_pairs(len(cards))
    tables = np.empty(len(pairs), object)
    for k, (i, j) in enumerate(pairs):
        shape = int(cards[i]), int(cards[j])
        both = (labels[:, i] >= 0) & (labels[:, j] >= 0)
        joint = np.ravel_multi_index((labels[both, i], labels[both, j]), shape)
        tables[k] = np.bincount(joint, mass[both], minlength=shape[0] * shape[1]).reshape(shape)
    return tables


def chow_liu(tables: Array, n_nodes: int) -> list[Pair]:
    """Return the edges of the tree that maximises the mutual information between labels of connected nodes.

    This is the tree of maximum likelihood (Chow, Liu 1968). Two nodes with independent labels are not connected.

    tables : how often the labels of two nodes occur together, as `count_pairs` returns it.
    """
    information = np.zeros((n_nodes, n_nodes))
    for (i, j), table in zip(all_pairs(n_nodes), tables, strict=True):
        information[i, j] = _mutual_information(table)
    tree = minimum_spanning_tree(-information).tocoo()
    return sorted((int(min(i, j)), int(max(i, j))) for i, j in zip(tree.row, tree.col, strict=True))


def _mutual_information(counts: Array) -> float:
    if counts.sum() == 0:
        return 0.0
    p = counts / counts.sum()
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
