import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from graph_problems import graph_problems, random_graph, random_graph_problem
from kernelcrf.graphs.structure import Graph
from kernelcrf.inference.clique_tree import Exact
from kernelcrf.inference.loopy import Loopy
from kernelcrf.inference.lower_bounds import make_consistent

PAIRS = graph_problems(max_nodes=7, cards=(1, 2, 3), triples=0)


def grid(rows, columns):
    nodes = np.arange(rows * columns).reshape(rows, columns)
    across = np.column_stack((nodes[:, :-1].ravel(), nodes[:, 1:].ravel()))
    down = np.column_stack((nodes[:-1].ravel(), nodes[1:].ravel()))
    return np.concatenate((across, down))


@given(PAIRS, st.integers(0, 5))
def test_the_bound_is_never_below_the_log_partition(problem, sweeps):
    exact = Exact(problem.graph).log_partition(problem.scores)
    bound = Loopy(problem.graph, max_sweeps=sweeps).log_partition(problem.scores)
    assert (bound >= exact - 1e-9 * np.maximum(1, np.abs(exact))).all()


@given(PAIRS)
def test_sweeps_tighten_the_bound(problem):
    first, last = (Loopy(problem.graph, max_sweeps=n).log_partition(problem.scores) for n in (0, 200))
    assert (last <= first + 1e-7 * np.maximum(1, np.abs(first))).all()


@given(graph_problems(max_nodes=8, cards=(2, 3), triples=0, forbid=(0.0,)))
def test_marginals_are_normalised_and_agree_between_edges_and_nodes(problem):
    graph = problem.graph
    loopy = Loopy(graph, tol=1e-12, max_sweeps=5000)
    # Strong couplings converge slowly: sweeps then end before all marginals agree.
    moments = loopy.moments(problem.scores / max(1.0, np.abs(problem.scores).max(initial=0) / 3))
    own = {}
    for name, nodes in graph.cliques.items():
        shape = graph.shape(name)
        tables = moments.cliques[:, graph.slices[name]].reshape(len(problem.scores), -1, *shape)
        np.testing.assert_allclose(tables.sum(axis=tuple(range(2, tables.ndim))), 1, atol=1e-9)
        for k, clique in enumerate(nodes.tolist()):
            for axis, v in enumerate(clique):
                others = tuple(2 + other for other in range(len(clique)) if other != axis)
                found = np.moveaxis(tables, 1, 0)[k].sum(axis=tuple(a - 1 for a in others))
                np.testing.assert_allclose(own.setdefault(v, found), found, atol=1e-6)


def test_a_label_that_no_neighbour_allows_has_no_probability():
    graph = Graph([2, 3], {"left": [[0]], "right": [[1]], "edge": [[0, 1]]})
    scores = np.random.default_rng(0).normal(size=(1, graph.n_entries))
    scores[0, graph.slices["edge"]].reshape(2, 3)[:, 1] = -np.inf
    found, exact = (kind(graph).moments(scores) for kind in (Loopy, Exact))
    np.testing.assert_allclose(found.cliques, exact.cliques, atol=1e-12)
    assert found.cliques[0, graph.slices["right"]][1] == 0
    np.testing.assert_allclose(found.log_partition, exact.log_partition)


@given(st.integers(1, 9), st.integers(0, 2**32 - 1))
def test_trees_are_exact(n_nodes, seed):
    rng = np.random.default_rng(seed)
    cards = rng.integers(1, 4, size=n_nodes)
    templates = {f"node {v}": [[v]] for v in range(n_nodes)}
    templates |= {f"edge {v}": [[int(rng.integers(v)), v]] for v in range(1, n_nodes)}
    problem = random_graph_problem(rng, Graph(cards, templates), forbid=0.2)
    exact, loopy = Exact(problem.graph), Loopy(problem.graph)
    a, b = exact.moments(problem.scores), loopy.moments(problem.scores)
    np.testing.assert_allclose(b.log_partition, a.log_partition, atol=1e-9)
    np.testing.assert_allclose(b.cliques, a.cliques, atol=1e-9)
    np.testing.assert_allclose(loopy.entropy(problem.scores), exact.entropy(problem.scores), atol=1e-9)


def test_marginals_are_the_gradient_of_the_least_bound():
    rng = np.random.default_rng(0)
    problem = random_graph_problem(rng, random_graph(rng, 6, cards=(2, 3), density=0.8), n_rows=2)
    loopy = Loopy(problem.graph, tol=1e-13, max_sweeps=5000)
    direction = rng.normal(size=problem.scores.shape)

    def value(h):
        return loopy.log_partition(problem.scores + h * direction).sum()

    slope = (8 * (value(1e-3) - value(-1e-3)) - (value(2e-3) - value(-2e-3))) / 12e-3
    assert slope == pytest.approx(np.vdot(loopy.moments(problem.scores).cliques, direction), abs=1e-6)


def test_tangents_are_those_of_the_bound_with_messages_held_fixed():
    rng = np.random.default_rng(1)
    problem = random_graph_problem(rng, random_graph(rng, 5, cards=(2,), density=0.9), n_rows=1)
    loopy = Loopy(problem.graph, max_sweeps=0)
    direction = rng.normal(size=problem.scores.shape)
    tangents = loopy.calibrate(problem.scores)[1].tangents(direction)
    plus, minus = (loopy.moments(problem.scores + h * direction).cliques for h in (1e-5, -1e-5))
    np.testing.assert_allclose(tangents, (plus - minus) / 2e-5, atol=1e-8)


def test_a_grid_converges_in_a_hundred_sweeps():
    rng = np.random.default_rng(2)
    edges = grid(12, 12)
    graph = Graph(np.full(144, 2), {"node": np.arange(144)[:, None], "edge": edges})
    scores = np.concatenate((rng.normal(size=288), np.tile([0.8, 0, 0, 0.8], len(edges))))[None]
    moments, exact = Loopy(graph).moments(scores), Exact(graph).moments(scores)
    assert 0 <= moments.log_partition[0, 0] - exact.log_partition[0, 0] < 0.1 * exact.log_partition[0, 0]
    nodes = graph.slices["node"]
    assert np.abs(moments.cliques[0, nodes] - exact.cliques[0, nodes]).mean() < 0.1
    more, fewer = (Loopy(graph, tol=tol, max_sweeps=n).moments(scores) for tol, n in ((1e-12, 5000), (1e-4, 1)))
    np.testing.assert_allclose(moments.cliques, more.cliques, atol=1e-3)
    assert np.abs(fewer.cliques - more.cliques).max() > 0.05


def test_every_edge_is_in_a_forest_and_no_forest_has_a_cycle():
    graph = Graph(np.full(7, 2), {"edge": list(itertools.combinations(range(7), 2))})
    cover = Loopy(graph).cover
    assert (cover.rho > 0).all()
    for forest in cover.forests:
        assert forest.exact.tree.width == 1
        assert len(forest.exact.tree.cliques) == 6
    assert cover.rho.sum() == pytest.approx(6)


def test_cliques_of_three_nodes_are_refused():
    with pytest.raises(ValueError, match=r"term 'three'.*expects single nodes and pairs"):
        Loopy(Graph([2, 2, 2], {"three": [[0, 1, 2]]})).moments(np.zeros((1, 8)))


@given(graph_problems(max_nodes=6, cards=(2, 3), triples=0, forbid=(0.0,)), st.integers(0, 3), st.integers(0, 2**20))
def test_pseudo_marginals_bound_the_bound_at_all_tables(problem, sweeps, seed):
    """Whatever the messages were, and however far from where they were taken."""
    graph = problem.graph
    scores = problem.scores / max(1.0, np.abs(problem.scores).max(initial=0) / 3)
    cover = Loopy(graph).cover
    tau, entropy = make_consistent(cover, Loopy(graph, max_sweeps=sweeps).moments(scores).cliques)
    tables = {name: tau[:, graph.slices[name]].reshape(len(scores), -1, *graph.shape(name)) for name in graph.cliques}
    own = {}
    for name, nodes in graph.cliques.items():
        for k, clique in enumerate(nodes.tolist()):
            for axis, v in enumerate(clique):
                others = tuple(1 + other for other in range(len(clique)) if other != axis)
                found = tables[name][:, k].sum(axis=others)
                np.testing.assert_allclose(found.sum(axis=1), 1, atol=1e-12)
                np.testing.assert_allclose(own.setdefault(v, found), found, atol=1e-12)
    elsewhere = scores + np.random.default_rng(seed).normal(size=scores.shape)
    for other in (scores, elsewhere):
        least = Loopy(graph, max_sweeps=300).log_partition(other).sum(axis=1)
        score = entropy.sum(axis=1) + np.einsum("ip,ip->i", tau, other)
        assert (score <= least + 1e-7 * np.maximum(1, np.abs(least))).all()


def test_the_entropy_of_messages_may_be_on_either_side():
    edges = [(a, b) for b in range(4) for a in range(b)]
    graph = Graph([2] * 4, {"nodes": [[v] for v in range(4)], "edges": edges})
    scores = 2.0 * np.random.default_rng(0).normal(size=(60, graph.n_entries))
    found = Loopy(graph, tol=1e-9, max_sweeps=5000).entropy(scores) - Exact(graph).entropy(scores)
    assert found.min() < -0.01
    assert found.max() > 0.01
    assert np.abs(found).max() < 1.5
