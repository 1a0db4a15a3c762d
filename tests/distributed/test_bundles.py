import itertools

import numpy as np
import pytest

from kernelcrf.distributed.bundles import add_along, rebalance, subtrees, sum_subtree


def divided(n, n_bundles, rng=None):
    """The parts 0 to n - 1 in bundles: neighbours together, or drawn at random."""
    places = np.arange(n) if rng is None else rng.permutation(n)
    return [tuple(sorted(own.tolist())) for own in np.array_split(places, n_bundles) if len(own)]


def sums_of(n, places, values, at_least=1):
    trees = subtrees(n, places, at_least)
    return add_along(n, [{tree: sum_subtree(tree, values.__getitem__) for tree in trees}])


@pytest.mark.parametrize("n", [1, 2, 7, 64, 100])
def test_a_sum_has_the_same_bits_for_every_division(n):
    rng = np.random.default_rng(n)
    values = rng.normal(size=(n, 20)) * 10.0 ** rng.integers(-8, 8, size=(n, 1))
    whole = sum_subtree((0, n), values.__getitem__)
    np.testing.assert_allclose(whole, values.sum(axis=0), rtol=1e-9, atol=1e-6)
    for n_bundles, drawn, at_least in itertools.product((1, 2, 3, 5), (None, rng), (1, 8)):
        known = [sums_of(n, places, values, at_least) for places in divided(n, n_bundles, drawn)]
        # Some workers' sums may be added up first, as on a cluster with many workers.
        early, late = known[::2], known[1::2]
        total = add_along(n, [add_along(n, early), *late])
        assert total.keys() == {(0, n)}
        np.testing.assert_array_equal(total[0, n], whole)


def test_a_worker_returns_few_sums():
    most = 0
    for places in divided(1000, 7):
        values = np.ones(1000)
        trees = subtrees(1000, places)
        assert [part for low, high in trees for part in range(low, high)] == list(places)
        most = max(most, len(sums_of(1000, places, values)))
    assert most <= 2 * np.log2(1000)
    assert subtrees(1000, range(1000)) == [(0, 1000)]
    assert len(subtrees(1000, range(1000), 8)) == 8
    assert subtrees(3, range(3), 8) == [(0, 1), (1, 2), (2, 3)]


def loads(moves, workers):
    return [sum(len(move.places) for move in moves if move.worker == worker) for worker in workers]


def test_what_stays_even_stays_where_it_is():
    bundles = [(worker, places) for worker, places in zip("abc", divided(100, 3), strict=True)]
    moves = rebalance(bundles, ["a", "b", "c"])
    assert moves == [(k, places, worker) for k, (worker, places) in enumerate(bundles)]


@pytest.mark.parametrize(
    ("before", "after"),
    [("ab", "b"), ("ab", "bc"), ("abcd", "bcd"), ("abcd", "e"), ("a", "ab"), ("ab", "abcd"), ("abcd", "ab")],
)
def test_parts_of_lost_workers_go_to_others_and_new_workers_get_some(before, after):
    bundles = list(zip(before, divided(101, len(before)), strict=True))
    moves = rebalance(bundles, list(after))
    assert sorted(place for move in moves for place in move.places) == list(range(101))
    assert all(set(places) <= set(bundles[source][1]) for source, places, _ in moves)
    assert max(loads(moves, after)) <= 1.25 * -(-101 // len(after))
    # A worker that stays gives parts away only if it has too many.
    if len(after) <= len(before):
        for source, (worker, places) in enumerate(bundles):
            assert worker not in after or (source, places, worker) in moves


def test_few_parts_go_to_few_workers():
    assert loads(rebalance([("a", (0, 1))], ["a", "b", "c"]), "abc") == [1, 1, 0]
    assert loads(rebalance([("a", (0,))], ["b", "c"]), "bc") == [1, 0]
