import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kernelcrf.inference import chain
from kernelcrf.inference.enumerate import factors
from kernelcrf.inference.tangents import linearise
from oracles import log_space_tangents
from problems import chain_problems, random_problem


def random_direction(problem, seed):
    rng = np.random.default_rng(seed)
    return rng.normal(size=problem.scores.shape), rng.normal(size=problem.transitions.shape)


@given(chain_problems(), st.integers(0, 2**32 - 1))
def test_tangents_equal_the_enumerated_covariance(problem, seed):
    du, dw = random_direction(problem, seed)
    tangents = linearise(*problem.arguments).tangents(du, dw)
    directions = problem.tables(du, dw)
    summed = np.zeros(problem.transitions.shape[-2:])
    for sample, rows, truth in problem.enumerations():
        direction = factors(problem.chains, sample, directions)
        for t in range(rows.stop - rows.start):
            np.testing.assert_allclose(tangents.nodes[rows][t], truth.tangent([t], direction), atol=1e-10, rtol=0)
            if t:
                dq = truth.tangent([t - 1, t], direction)
                summed += dq
                if not problem.tied:
                    np.testing.assert_allclose(tangents.edges[rows][t], dq, atol=1e-10, rtol=0)
            elif not problem.tied:
                np.testing.assert_array_equal(tangents.edges[rows][t], 0)
    if problem.tied:
        np.testing.assert_allclose(tangents.edges, summed, atol=1e-10, rtol=0)


@pytest.mark.parametrize("n_labels", [2, 9, 23])
@pytest.mark.parametrize("tied", [True, False])
def test_tangents_equal_finite_differences(n_labels, tied):
    problem = random_problem(np.random.default_rng(n_labels), n_labels, [25], tied=tied)
    du, dw = random_direction(problem, 1)
    tangents = linearise(*problem.arguments).tangents(du, dw)
    dp, dq = log_space_tangents(problem.scores, problem.transitions, du, dw)
    np.testing.assert_allclose(tangents.nodes, dp, atol=1e-6, rtol=0)
    np.testing.assert_allclose(tangents.edges, dq.sum(axis=0) if tied else dq, atol=1e-6, rtol=0)


@given(chain_problems(), st.integers(0, 2**32 - 1))
def test_the_curvature_is_symmetric_and_has_no_negative_direction(problem, seed):
    point = linearise(*problem.arguments)
    (du, dw), (dv, dx) = random_direction(problem, seed), random_direction(problem, seed + 1)
    inner = np.setdiff1d(np.arange(problem.chains.n_nodes), problem.chains.first_nodes)
    read = slice(None) if problem.tied else inner
    along, other = point.tangents(du, dw), point.tangents(dv, dx)
    forth = np.vdot(along.nodes, dv) + np.vdot(along.edges[read], dx[read])
    back = np.vdot(other.nodes, du) + np.vdot(other.edges[read], dw[read])
    assert forth == pytest.approx(back, abs=1e-9)
    assert np.vdot(along.nodes, du) + np.vdot(along.edges[read], dw[read]) >= -1e-10


def test_a_linearisation_has_the_moments_of_the_plain_pass_whatever_the_threads():
    rng = np.random.default_rng(2)
    problem = random_problem(rng, 4, rng.integers(0, 70, size=1200), forbid=0.2)
    plain = chain.moments(*problem.arguments)
    du, dw = random_direction(problem, 3)
    results = []
    for n_threads in (1, 2):
        point = linearise(*problem.arguments, n_threads=n_threads)
        np.testing.assert_array_equal(point.moments.nodes, plain.nodes)
        np.testing.assert_array_equal(point.moments.edges, plain.edges)
        results.append(point.tangents(du, dw))
    np.testing.assert_array_equal(results[0].nodes, results[1].nodes)
    np.testing.assert_array_equal(results[0].edges, results[1].edges)


def test_constants_in_a_direction_change_nothing_even_in_single_precision():
    problem = random_problem(np.random.default_rng(4), 6, [20_000])
    du, dw = random_direction(problem, 5)
    exact = linearise(*problem.arguments).tangents(du, dw)
    single = linearise(problem.scores.astype(np.float32), problem.transitions.astype(np.float32), problem.chains)
    shifted = single.tangents((du + 3.0).astype(np.float32), (dw - 2.0).astype(np.float32))
    assert np.abs(shifted.nodes - exact.nodes).max() < 1e-4 * np.abs(exact.nodes).max()
    assert np.abs(shifted.edges - exact.edges).max() < 1e-4 * np.abs(exact.edges).max()


def test_directions_that_do_not_fit_are_refused():
    problem = random_problem(np.random.default_rng(6), 2, [3])
    point = linearise(*problem.arguments)
    with pytest.raises(ValueError, match=r"shapes \(3, 1\) and \(2, 2\): expected the shapes of scores"):
        point.tangents(np.zeros((3, 1)), np.zeros((2, 2)))
    with pytest.raises(ValueError, match="expected finite numbers"):
        point.tangents(np.zeros((3, 2)), np.full((2, 2), -np.inf))
