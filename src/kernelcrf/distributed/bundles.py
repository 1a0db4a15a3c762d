"""Bundles: parts of the data that one worker holds as one value, and processes in one task.

A sum over n parts is taken along one fixed binary tree. Its root covers the parts 0 to n - 1. A node that covers more
than one part has two children, which divide these parts in the middle. A worker returns the sums of the largest
subtrees whose parts are all in its bundle, and the sums of these subtrees are added along the same tree. The result
has the same bits, however the parts are divided among bundles.

If a worker is lost or a new one joins, `rebalance` says which parts go to which worker. It moves few parts: bundles of
workers with about an even share stay as they are.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import NamedTuple, TypeAlias

from kernelcrf.distributed.cluster import Value

Subtree: TypeAlias = tuple[int, int]
"""A node of the tree, which covers the parts from the first number to below the second."""

# A worker is relieved only if it has more than this multiple of its even share.
UNEVEN = 1.25


def subtrees(n: int, places: Sequence[int], at_least: int = 1) -> list[Subtree]:
    """Return the largest subtrees whose parts are all in `places`, in the order of their parts.

    n : the number of parts of the whole tree.
    places : indices of parts in ascending order.
    at_least : the largest of these subtrees are divided until there are so many subtrees, or only single parts.
    """
    found: list[Subtree] = []

    def visit(low: int, high: int, first: int, last: int) -> None:
        if last - first == high - low:
            found.append((low, high))
        elif first < last:
            middle = _middle(low, high)
            cut = bisect_left(places, middle, first, last)
            visit(low, middle, first, cut)
            visit(middle, high, cut, last)

    visit(0, n, 0, len(places))
    while len(found) < at_least:
        most = max(high - low for low, high in found)
        if most < 2:
            break
        divided = ([(low, high)] if high - low < most else _children(low, high) for low, high in found)
        found = [subtree for children in divided for subtree in children]
    return found


def sum_subtree(subtree: Subtree, value_of: Callable[[int], Value]) -> Value:
    """Return the sum of the values of all parts of a subtree, added along the tree; few sums exist at a time."""
    low, high = subtree
    if high - low == 1:
        return value_of(low)
    left, right = _children(low, high)
    return sum_subtree(left, value_of) + sum_subtree(right, value_of)


def add_along(n: int, sums: Iterable[Mapping[Subtree, Value]]) -> dict[Subtree, Value]:
    """Add sums of subtrees along the tree over n parts, as far as both children of a node are known.

    Return the sums of the largest subtrees that are known.
    """
    known = {subtree: value for some in sums for subtree, value in some.items()}

    def visit(low: int, high: int, inside: Sequence[Subtree]) -> dict[Subtree, Value]:
        if not inside or inside[0] == (low, high):
            return {subtree: known[subtree] for subtree in inside}
        middle = _middle(low, high)
        left = visit(low, middle, [subtree for subtree in inside if subtree[0] < middle])
        right = visit(middle, high, [subtree for subtree in inside if subtree[0] >= middle])
        if left.keys() == {(low, middle)} and right.keys() == {(middle, high)}:
            return {(low, high): left[low, middle] + right[middle, high]}
        return left | right

    return visit(0, n, list(known))


class Move(NamedTuple):
    """Parts that become a bundle of a worker: those at `places`, from the bundle with the index `source`."""

    source: int
    places: tuple[int, ...]
    worker: str


def rebalance(bundles: Sequence[tuple[str, tuple[int, ...]]], workers: Sequence[str]) -> list[Move]:
    """Return the bundles that there should be, now that `workers` are the workers.

    Parts of lost workers go to the workers with the fewest parts. After that, a worker with far more than its even
    share gives parts to a worker with far less. A bundle that is to stay as it is becomes a move of all its parts to
    its own worker.

    bundles : for each bundle, the worker to which it was given, and its parts.
    """
    n = sum(len(places) for _, places in bundles)
    share = -(-n // len(workers))
    held: dict[str, list[Move]] = {worker: [] for worker in workers}

    def load(worker: str) -> int:
        return sum(len(move.places) for move in held[worker])

    lost = []
    for source, (worker, places) in enumerate(bundles):
        if worker in held:
            held[worker].append(Move(source, places, worker))
        else:
            lost.append((source, places))
    for source, rest in lost:
        while rest:
            worker = min(workers, key=load)
            some = max(share - load(worker), 1)
            held[worker].append(Move(source, rest[:some], worker))
            rest = rest[some:]
    while True:
        high, low = max(workers, key=load), min(workers, key=load)
        surplus = min(load(high) - share, share - load(low))
        if load(high) <= UNEVEN * share or UNEVEN * load(low) >= share or surplus < 1:
            break
        last = held[high].pop()
        kept, given = last.places[:-surplus], last.places[-surplus:]
        if kept:
            held[high].append(Move(last.source, kept, high))
        held[low].append(Move(last.source, given, low))
    return [move for worker in workers for move in held[worker]]


def _middle(low: int, high: int) -> int:
    return (low + high + 1) // 2


def _children(low: int, high: int) -> tuple[Subtree, Subtree]:
    return (low, _middle(low, high)), (_middle(low, high), high)
