import numpy as np
import pytest

from kernelcrf.graphs.label_graphs import checked_pairs, chow_liu, count_pairs


@pytest.mark.parametrize("pair", [(0, 3), (-1, 1), (1, 1), (0, 1, 2), "a", 5, (0, "b")])
def test_what_is_no_pair_of_nodes_is_named(pair):
    with pytest.raises(ValueError, match=r"edges contains .*: expected (pairs|two different nodes from 0 to 2)"):
        checked_pairs([(0, 1), pair], 3, "edges")


def test_pairs_are_kept_once_whatever_their_order():
    assert checked_pairs([(1, 0), (0, 1), (2, 1)], 3, "edges") == [(0, 1), (1, 2)]


def test_labels_never_seen_together_are_not_joined():
    labels = np.array([[0, -1, 0], [1, -1, 1], [-1, 0, -1], [-1, 1, -1]] * 5)
    assert chow_liu(count_pairs(labels, np.array([2, 2, 2])), 3) == [(0, 2)]
