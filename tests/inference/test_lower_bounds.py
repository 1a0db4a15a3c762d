import numpy as np
import pytest
from hypothesis import given

from graph_problems import graph_problems
from kernelcrf.graphs.structure import Graph
from kernelcrf.inference.clique_tree import Exact
from kernelcrf.inference.loopy import Loopy
from kernelcrf.inference.lower_bounds import mean_field

PAIRS = graph_problems(max_nodes=7, cards=(1, 2, 3), triples=0, forbid=(0.0,))


@given(PAIRS)
def test_the_bound_is_never_above_the_log_partition(problem):
    exact = Exact(problem.graph).log_partition(problem.scores)
    bound = mean_field(Loopy(problem.graph).cover, problem.scores).log_partition
    assert (bound <= exact + 1e-9 * np.maximum(1, np.abs(exact))).all()


def test_it_is_exact_if_no_two_neighbours_are_free():
    graph = Graph([3, 2, 3], {"a": [[0]], "b": [[1]], "c": [[2]], "ab": [[0, 1]], "bc": [[1, 2]]})
    scores = np.random.default_rng(0).normal(size=(4, graph.n_entries))
    scores[:, graph.slices["b"]] += [0, -np.inf]
    found, exact = mean_field(Loopy(graph).cover, scores), Exact(graph).moments(scores)
    np.testing.assert_allclose(found.log_partition, exact.log_partition, rtol=1e-12)
    np.testing.assert_allclose(found.cliques, exact.cliques, atol=1e-12)


def test_marginals_are_the_gradient_of_the_bound():
    graph = Graph([2] * 4, {"nodes": [[0], [1], [2], [3]], "edges": [[0, 1], [1, 2], [2, 3], [3, 0]]})
    rng = np.random.default_rng(1)
    scores, direction = 0.5 * rng.normal(size=(2, 1, graph.n_entries))
    cover = Loopy(graph).cover
    ends = [mean_field(cover, scores + step * direction).log_partition[0, 0] for step in (-1e-4, 1e-4)]
    slope = np.vdot(mean_field(cover, scores).cliques, direction)
    assert (ends[1] - ends[0]) / 2e-4 == pytest.approx(slope, rel=1e-5)
