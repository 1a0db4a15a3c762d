"""Build clique trees, which exact inference on a graph needs.

The graph is first triangulated: its nodes are eliminated one by one, and the neighbours of an eliminated node are
connected to each other. The next node is always a node whose elimination adds the fewest edges (least fill; Rose,
Kjaerulff). The tree is then built in the reverse order. Let N(v) be the neighbours of node v that were eliminated
after v. All of them are in one clique that is already part of the tree. If this clique contains no other nodes, v is
added to it. Otherwise, N(v) and v become a new clique. Its parent is the old clique, and the nodes N(v), which the two
share, are its separator. The result is a tree of the maximal cliques, in which all cliques that contain the same node
are connected.

The largest clique determines the cost of exact inference. Its size is known before any table is computed.
"""

from __future__ import annotations

import heapq
import math
from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

HUB = 48
"""Nodes with more neighbours than this are eliminated last, in the order of their degree."""


@dataclass(frozen=True)
class CliqueTree:
    """The clique tree of a triangulated graph, with one root for each connected component.

    cliques : the nodes of each clique; a parent comes before its children.
    parents : the index of each clique's parent, or -1 for a root.
    separators : the nodes that each clique shares with its parent; empty for a root.
    homes : for each node, the index of a clique that contains the node and those of its neighbours that were eliminated
        later.
    places : for each node, its position in the order of elimination.
    """

    cliques: tuple[tuple[int, ...], ...]
    parents: tuple[int, ...]
    separators: tuple[tuple[int, ...], ...]
    homes: tuple[int, ...]
    places: tuple[int, ...]

    @property
    def width(self) -> int:
        """Return the treewidth of the triangulation: the size of the largest clique minus one."""
        return max((len(clique) for clique in self.cliques), default=0) - 1

    def entries(self, cards: Sequence[int]) -> int:
        """Return the number of entries in the tables of all cliques, if node v has cards[v] labels."""
        return sum(math.prod(map(cards.__getitem__, clique)) for clique in self.cliques)


def clique_tree(n_nodes: int, scopes: Iterable[Sequence[int]]) -> CliqueTree:
    """Return the clique tree of a graph; each scope is a set of nodes that are all connected to each other."""
    neighbours: list[set[int]] = [set() for _ in range(n_nodes)]
    for scope in scopes:
        if len(scope) > 1:
            for v in scope:
                neighbours[v].update(scope)
    for v in range(n_nodes):
        neighbours[v].discard(v)
    return _build_tree(*_eliminate(neighbours))


def _eliminate(neighbours: list[set[int]]) -> tuple[list[int], list[set[int]]]:
    """Eliminate all nodes of a graph. Return their order, and the neighbours that each node had at its elimination.

    `neighbours` contains the neighbours of each node, and is changed in place.
    """
    order, gone = _strip_leaves(neighbours)
    later = [neighbours[v] if gone[v] else set() for v in range(len(neighbours))]
    keys = [(0, 0) if gone[v] else _key(neighbours, v) for v in range(len(neighbours))]
    heap = [(key, v) for v, key in enumerate(keys) if not gone[v]]
    heapq.heapify(heap)
    while heap:
        key, v = heapq.heappop(heap)
        if gone[v] or key != keys[v]:
            continue
        around = neighbours[v]
        gone[v], later[v] = True, around
        order.append(v)
        touched = set(around)
        for u in around:
            missing = around - neighbours[u]
            missing.discard(u)
            neighbours[u].discard(v)
            if missing:
                neighbours[u] |= missing
                for t in missing:
                    touched |= neighbours[u] & neighbours[t]
        for u in touched:
            if not gone[u] and (new := _key(neighbours, u)) != keys[u]:
                keys[u] = new
                heapq.heappush(heap, (new, u))
    return order, later


def _strip_leaves(neighbours: list[set[int]]) -> tuple[list[int], list[bool]]:
    """Eliminate nodes with at most one neighbour until there are none; return their order, and which nodes are gone.

    Such a node has the smallest key of all. A queue finds the next one faster than the heap of all nodes.
    """
    queue = deque(v for v, around in enumerate(neighbours) if len(around) <= 1)
    order, gone = list[int](), [False] * len(neighbours)
    while queue:
        v = queue.popleft()
        if gone[v]:
            continue
        gone[v] = True
        order.append(v)
        for u in neighbours[v]:
            neighbours[u].discard(v)
            if len(neighbours[u]) == 1:
                queue.append(u)
    return order, gone


def _key(neighbours: list[set[int]], v: int) -> tuple[int, int]:
    """Return a sort key of node v; the node with the smallest key is eliminated next.

    The key is (number of edges that the elimination of v adds, number of neighbours of v). If v has more than `HUB`
    neighbours, these edges are not counted, and the first number is larger than for every node with fewer neighbours.
    """
    around = neighbours[v]
    degree = len(around)
    if degree <= 1:
        return 0, degree
    if degree > HUB:
        return HUB**2 + degree, degree
    return degree * (degree - 1) // 2 - sum(len(around & neighbours[u]) for u in around) // 2, degree


def _build_tree(order: list[int], later: list[set[int]]) -> CliqueTree:
    places, homes = [0] * len(order), [-1] * len(order)
    for place, v in enumerate(order):
        places[v] = place
    cliques, separators = list[tuple[int, ...]](), list[tuple[int, ...]]()
    parents: list[int] = []
    for v in reversed(order):
        around = tuple(sorted(later[v]))
        first = min(around, key=places.__getitem__) if len(around) > 1 else around[0] if around else -1
        parent = homes[first] if around else -1
        if parent >= 0 and around == cliques[parent]:
            cliques[parent] = tuple(sorted((*around, v)))
            homes[v] = parent
        else:
            homes[v] = len(cliques)
            cliques.append(tuple(sorted((*around, v))))
            parents.append(parent)
            separators.append(around)
    return CliqueTree(tuple(cliques), tuple(parents), tuple(separators), tuple(homes), tuple(places))
