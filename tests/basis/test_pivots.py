"""Which atoms the rules choose: against one-at-a-time twins on the whole matrix, and in law."""

import numpy as np
import pytest

from bases import KERNELS, greedy_pivots, inputs
from kernelcrf.basis.choice import choose_basis
from kernelcrf.basis.pivots import AllInputs, Gradient, Greedy, Random, Uniform


@pytest.mark.parametrize("block", [1, 3, 16, 256])
@pytest.mark.parametrize("name", ["rbf", "laplacian", "poly"])
def test_greedy_in_blocks_takes_the_pivots_of_one_at_a_time(name, block):
    X, kernel = inputs(150), KERNELS[name]
    basis = choose_basis(kernel, X, 40, Greedy(block))
    expected = greedy_pivots(kernel.gram(X), 40)
    if block == 1:
        assert basis.indices.tolist() == expected
    assert set(basis.indices) == set(expected)


def test_random_pivots_in_blocks_have_the_law_of_one_at_a_time():
    """Two pivots among four inputs: the frequencies of all pairs, against the product of exact probabilities."""
    X = np.array([[0.0], [0.3], [1.0], [3.0]])
    kernel = KERNELS["rbf"]
    K = kernel.gram(X)
    exact = np.zeros((4, 4))
    for i in range(4):
        d = np.diagonal(K) - K[:, i] ** 2 / K[i, i]
        exact[i] = np.diagonal(K)[i] / np.trace(K) * np.maximum(d, 0) / np.maximum(d, 0).sum()
    pairs = exact + exact.T
    draws = 300
    for rule in (Random(block=1), Random(block=4), Random()):
        seen = np.zeros((4, 4))
        for seed in range(draws):
            i, j = choose_basis(kernel, X, 2, rule, random_state=seed).indices
            seen[i, j] += 1
            seen[j, i] += 1
        spread = np.sqrt(pairs * (1 - pairs) / draws)
        assert (np.abs(seen / draws - pairs) <= 4 * spread + 1e-12).all()


def test_random_pivots_prefer_large_residuals():
    """Nine copies of nearly one point and three far ones: the far ones are found first."""
    X = np.vstack([1e-3 * inputs(60), [[9.0] * 5], [[-9.0] * 5], [[9.0, -9.0, 9.0, -9.0, 9.0]]])
    basis = choose_basis(KERNELS["rbf"], X, 4, "random", random_state=0)
    assert {60, 61, 62} < set(basis.indices)


def test_uniform_draws_do_not_repeat_and_cover():
    X = inputs(40)
    seen = np.zeros(40)
    for seed in range(200):
        indices = choose_basis(KERNELS["rbf"], X, 8, "uniform", random_state=seed).indices
        assert len(set(indices)) == 8
        seen[indices] += 1
    assert np.abs(seen / 200 - 0.2).max() < 4 * np.sqrt(0.2 * 0.8 / 200)


def test_gradient_takes_the_largest_scores_and_makes_up_for_dependent_ones():
    X = inputs(30)
    X[7] = X[3]
    scores = np.zeros(30)
    scores[[3, 7, 11, 5]] = [9.0, 8.0, 7.0, 7.0]
    basis = choose_basis(KERNELS["rbf"], X, 3, Gradient(scores))
    assert len(set(basis.indices) & {3, 7}) == 1
    assert {5, 11} < set(basis.indices)


def test_gradient_goes_on_with_what_is_not_chosen_yet():
    X = inputs(30)
    scores = np.arange(30.0)
    start = choose_basis(KERNELS["rbf"], X, 2, Gradient(scores))
    assert set(start.indices) == {28, 29}
    grown = choose_basis(KERNELS["rbf"], X, 5, Gradient(scores), start=start)
    assert set(grown.indices) == {25, 26, 27, 28, 29}


def test_exact_takes_all():
    basis = choose_basis(KERNELS["rbf"], inputs(30), None, AllInputs())
    assert sorted(basis.indices) == list(range(30))


def test_scores_of_a_wrong_shape_are_named():
    with pytest.raises(ValueError, match=r"scores has shape \(29,\): expected \(30,\), one score per distinct input"):
        choose_basis(KERNELS["rbf"], inputs(30), 3, Gradient(np.zeros(29)))
    with pytest.raises(ValueError, match=r"scores=.*: expected finite numbers"):
        choose_basis(KERNELS["rbf"], inputs(30), 3, Gradient(np.full(30, np.nan)))


def test_rules_are_values():
    assert Random() == Random(256)
    assert Greedy() != Random()
    assert Uniform() == Uniform()
