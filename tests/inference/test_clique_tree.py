import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import chisquare

from graph_problems import graph_problems, random_graph, random_graph_problem
from graph_problems import union as joined
from kernelcrf.graphs.structure import EDGE, Graph
from kernelcrf.inference import chain, decoding
from kernelcrf.inference.batch import Batch
from kernelcrf.inference.clique_tree import Exact, TreewidthError
from kernelcrf.inference.loss import InfeasibleSampleError, labelling_scores
from kernelcrf.inference.tangents import Linearisation
from problems import random_problem


@given(graph_problems())
def test_moments_and_entropy_equal_enumeration(problem):
    calibrated = Exact(problem.graph).calibrate(problem.scores)
    moments, entropy = calibrated.moments, calibrated.entropy()
    for i, truth in problem.enumerations():
        assert moments.log_partition[i, 0] == pytest.approx(truth.log_partition, rel=1e-9, abs=1e-9)
        np.testing.assert_allclose(moments.cliques[i], problem.marginals(truth.marginal), atol=1e-9, rtol=0)
        assert entropy[i, 0] == pytest.approx(truth.entropy, abs=1e-9)


@given(graph_problems(), st.integers(0, 2**32 - 1))
def test_tangents_equal_enumeration(problem, seed):
    direction = np.random.default_rng(seed).normal(size=problem.scores.shape)
    tangents = Exact(problem.graph).calibrate(problem.scores).tangents(direction)
    for i, truth in problem.enumerations():
        factors = problem.factors(direction[i])
        expected = problem.marginals(lambda nodes, truth=truth, factors=factors: truth.tangent(nodes, factors))
        np.testing.assert_allclose(tangents[i], expected, atol=1e-9, rtol=0)


@given(graph_problems(), st.integers(1, 7))
def test_best_labelings_equal_enumeration(problem, k):
    exact = Exact(problem.graph)
    labels, scores = exact.best(problem.scores)
    ranked = exact.k_best(problem.scores, k)
    np.testing.assert_allclose(labelling_scores(exact.graph, problem.scores, labels), scores, atol=1e-9)
    for i, truth in problem.enumerations():
        expected_labels, expected = truth.best(k)
        assert scores[i, 0] == pytest.approx(expected[0], abs=1e-9)
        np.testing.assert_array_equal(labels[i], expected_labels[0])
        np.testing.assert_allclose(ranked[i][1], expected, atol=1e-9)
        np.testing.assert_array_equal(ranked[i][0], expected_labels)


def test_samples_pass_a_chi_square_test():
    rng = np.random.default_rng(0)
    problem = random_graph_problem(
        rng, random_graph(rng, 5, cards=(2, 3), density=0.6, triples=1), n_rows=1, forbid=0.2
    )
    draws = Exact(problem.graph).calibrate(problem.scores).sample(20_000, rng)[0]
    _, truth = next(iter(problem.enumerations()))
    codes = np.ravel_multi_index(tuple(draws.T), truth.cards)
    counts, p = np.bincount(codes, minlength=len(truth.scores)), truth.probabilities
    assert not counts[p == 0].any()
    often = p * len(draws) >= 5
    observed = np.append(counts[often], counts[~often].sum())
    expected = np.append(p[often], p[~often].sum()) * len(draws)
    assert chisquare(observed[expected > 0], expected[expected > 0]).pvalue > 1e-3


@given(st.lists(st.integers(1, 6), min_size=1, max_size=4), st.integers(0, 2**32 - 1), st.booleans())
def test_a_union_of_graphs_equals_its_samples(sizes, seed, share):
    rng = np.random.default_rng(seed)
    graphs = [random_graph(rng, n, cards=(2,), density=0.5) for n in sizes]
    if share:
        graphs = [graphs[0]] * len(graphs)
    names = {"(2,)": 1, "(2, 2)": 2}
    graphs = [
        Graph(g.cards, {name: g.cliques.get(name, np.empty((0, arity), int)) for name, arity in names.items()})
        for g in graphs
    ]
    problems = [random_graph_problem(rng, graph, n_rows=1) for graph in graphs]
    union = joined(graphs)
    scores = np.concatenate([p.scores[0, p.graph.slices[name]] for name in names for p in problems])[None]
    exact = Exact(union)
    calibrated = exact.calibrate(scores)
    labels, best = exact.best(scores)
    for k, problem in enumerate(problems):
        own = Exact(problem.graph)
        alone = own.calibrate(problem.scores)
        assert calibrated.moments.log_partition[0, k] == pytest.approx(alone.moments.log_partition[0, 0], abs=1e-9)
        assert calibrated.entropy()[0, k] == pytest.approx(alone.entropy()[0, 0], abs=1e-9)
        own_labels, own_best = own.best(problem.scores)
        assert best[0, k] == pytest.approx(own_best[0, 0], abs=1e-9)
        np.testing.assert_array_equal(labels[0, union.samples == k], own_labels[0])
    np.testing.assert_allclose(labelling_scores(exact.graph, scores, labels), best, atol=1e-9)


def chain_as_graph(problem):
    """The union of chains as a graph, with its scores in one row."""
    chains, n_labels = problem.chains, problem.scores.shape[1]
    edges = chains.cliques(EDGE)
    samples = np.repeat(np.arange(chains.n_samples), chains.lengths)
    graph = Graph(
        np.full(chains.n_nodes, n_labels), {"node": np.arange(chains.n_nodes)[:, None], "edge": edges}, samples
    )
    tables = (
        problem.transitions[edges[:, 1]] if not problem.tied else np.repeat(problem.transitions[None], len(edges), 0)
    )
    return graph, np.concatenate((problem.scores.ravel(), tables.ravel()))[None]


@pytest.mark.parametrize("tied", [True, False])
def test_chains_given_as_graphs_equal_the_chain_code(tied):
    rng = np.random.default_rng(1)
    problem = random_problem(rng, 4, [5, 1, 30, 2], tied=tied, forbid=0.2)
    graph, scores = chain_as_graph(problem)
    exact = Exact(graph)
    assert exact.tree.width == 1
    calibrated = exact.calibrate(scores)
    moments = chain.moments(*problem.arguments)
    q = chain.edge_marginals(*problem.arguments)
    nodes, edges = (calibrated.moments.cliques[0, graph.slices[name]] for name in ("node", "edge"))
    np.testing.assert_allclose(calibrated.moments.log_partition[0], moments.log_partition, rtol=1e-11)
    np.testing.assert_allclose(nodes.reshape(-1, 4), moments.nodes, atol=1e-11)
    np.testing.assert_allclose(edges.reshape(-1, 4, 4), q[problem.chains.cliques(EDGE)[:, 1]], atol=1e-11)
    np.testing.assert_allclose(calibrated.entropy()[0], chain.entropy(*problem.arguments), atol=1e-10)
    labels, best = decoding.viterbi(*problem.arguments)
    np.testing.assert_array_equal(exact.best(scores)[0][0], labels)
    np.testing.assert_allclose(exact.best(scores)[1][0], best, rtol=1e-12)
    if not tied:
        du, dw = rng.normal(size=problem.scores.shape), rng.normal(size=problem.transitions.shape)
        tangents = Linearisation.of(Batch.of(*problem.arguments), 1).tangents(du, dw)
        direction = np.concatenate((du.ravel(), dw[problem.chains.cliques(EDGE)[:, 1]].ravel()))[None]
        found = calibrated.tangents(direction)[0, graph.slices["node"]].reshape(-1, 4)
        np.testing.assert_allclose(found, tangents.nodes, atol=1e-10)


def test_a_result_does_not_depend_on_the_number_of_threads():
    rng = np.random.default_rng(0)
    problem = random_graph_problem(rng, random_graph(rng, 8, cards=(2, 3), density=0.4), n_rows=301)
    exact = Exact(problem.graph)
    direction = rng.normal(size=problem.scores.shape)
    one, two = (exact.calibrate(problem.scores, n) for n in (1, 2))
    np.testing.assert_array_equal(one.moments.cliques, two.moments.cliques)
    np.testing.assert_array_equal(one.tangents(direction, 1), two.tangents(direction, 2))


def test_a_graph_that_is_too_wide_is_refused_with_its_width_and_cost():
    side = 40
    nodes = np.arange(side**2).reshape(side, side)
    edges = np.concatenate(
        [
            np.column_stack((nodes[:, :-1].ravel(), nodes[:, 1:].ravel())),
            np.column_stack((nodes[:-1].ravel(), nodes[1:].ravel())),
        ]
    )
    with pytest.raises(TreewidthError, match=r"GiB.*treewidth \d+.*inference='loopy'") as caught:
        Exact(Graph(np.full(side**2, 2), {"edge": edges})).log_partition(np.zeros((1, 4 * len(edges))))
    assert caught.value.width >= side


def test_a_sample_without_a_labelling_is_named():
    graph = Graph([2, 2], {"edge": [[0, 1]]})
    scores = np.zeros((3, 4))
    scores[2] = -np.inf
    for call in (Exact(graph).moments, Exact(graph).best):
        with pytest.raises(InfeasibleSampleError, match="every labelling of sample 2 is forbidden"):
            call(scores)
    with pytest.raises(InfeasibleSampleError):
        Exact(graph).k_best(scores[2:], 2)


def test_what_does_not_fit_is_refused_by_name():
    with pytest.raises(ValueError, match=r"scores has shape \(1, 3\): expected \(m, 4\)"):
        Exact(Graph([2, 2], {"edge": [[0, 1]]})).moments(np.zeros((1, 3)))
    with pytest.raises(ValueError, match=r"clique \(1, 1\) of template 'edge' has a node twice"):
        Graph([2, 2], {"edge": [[1, 1]]})
    with pytest.raises(ValueError, match="differ in the numbers of labels of their nodes"):
        Graph([2, 2, 3], {"edge": [[0, 1], [1, 2]]})
    with pytest.raises(ValueError, match="nodes from 0 to 2: expected node indices from 0 to 1"):
        Graph([2, 2], {"edge": [[0, 2]]})
