import numpy as np
import pytest

from kernelcrf.inference.enumerate import enumerate_labelings


def test_one_node_is_a_softmax():
    scores = np.array([0.3, -1.0, 2.0])
    one = enumerate_labelings(1, 3, [([0], scores)])
    p = np.exp(scores) / np.exp(scores).sum()
    np.testing.assert_allclose(one.marginal([0]), p, rtol=1e-14)
    assert one.log_partition == pytest.approx(np.log(np.exp(scores).sum()), rel=1e-14)
    assert one.entropy == pytest.approx(-(p * np.log(p)).sum(), rel=1e-14)


def test_independent_nodes_factorise_and_a_cycle_does_not_matter_to_the_oracle():
    rng = np.random.default_rng(0)
    unary = rng.normal(size=(3, 2))
    free = enumerate_labelings(3, 2, [([t], unary[t]) for t in range(3)])
    singles = [free.marginal([t]) for t in range(3)]
    np.testing.assert_allclose(free.marginal([0, 1, 2]), np.einsum("i,j,k->ijk", *singles), rtol=1e-13)
    ring = enumerate_labelings(
        3, 2, [([a, b], np.array([[1.0, -1.0], [-1.0, 1.0]])) for a, b in ((0, 1), (1, 2), (2, 0))]
    )
    assert ring.marginal([0, 2])[0, 0] == pytest.approx(ring.marginal([0, 2])[1, 1])
    assert ring.log_partition == pytest.approx(np.log(2 * np.exp(3) + 6 * np.exp(-1)))


def test_a_tangent_is_the_derivative_of_a_marginal():
    rng = np.random.default_rng(1)
    tables, direction = rng.normal(size=(2, 2, 3, 3))
    chain = [([0, 1], tables[0]), ([1, 2], tables[1])]
    along = [([0, 1], direction[0]), ([1, 2], direction[1])]

    def marginal(h):
        moved = [(nodes, table + h * d) for (nodes, table), (_, d) in zip(chain, along, strict=True)]
        return enumerate_labelings(3, 3, moved).marginal([0, 2])

    difference = (marginal(1e-5) - marginal(-1e-5)) / 2e-5
    np.testing.assert_allclose(enumerate_labelings(3, 3, chain).tangent([0, 2], along), difference, atol=1e-9)


def test_best_leaves_out_what_is_forbidden():
    labelings, scores = enumerate_labelings(2, 2, [([0], np.array([0.0, -np.inf])), ([1], np.array([1.0, 2.0]))]).best(
        9
    )
    np.testing.assert_array_equal(labelings, [[0, 1], [0, 0]])
    np.testing.assert_array_equal(scores, [2.0, 1.0])


def test_too_many_labelings_are_refused():
    with pytest.raises(ValueError, match=r"n_nodes=40 and n_labels=5 give .*: expected at most"):
        enumerate_labelings(40, 5, [])
