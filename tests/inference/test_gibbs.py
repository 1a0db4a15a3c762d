import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.special import logsumexp
from scipy.stats import chisquare

from graph_problems import graph_problems, random_graph, random_graph_problem
from kernelcrf.graphs.structure import Graph
from kernelcrf.inference.clique_tree import Exact
from kernelcrf.inference.gibbs import Gibbs


def test_samples_pass_a_chi_square_test():
    rng = np.random.default_rng(0)
    problem = random_graph_problem(rng, random_graph(rng, 4, cards=(2, 3), density=0.7, triples=1), n_rows=1)
    draws = Gibbs(problem.graph).sample(problem.scores, 8000, rng, thin=6)[0]
    _, truth = next(iter(problem.enumerations()))
    counts = np.bincount(np.ravel_multi_index(tuple(draws.T), truth.cards), minlength=len(truth.scores))
    expected = truth.probabilities * len(draws)
    often = expected >= 5
    observed = np.append(counts[often], counts[~often].sum())
    expected = np.append(expected[often], expected[~often].sum())
    assert chisquare(observed[expected > 0], expected[expected > 0]).pvalue > 1e-3


def test_marginals_come_near_the_exact_ones():
    rng = np.random.default_rng(1)
    problem = random_graph_problem(rng, random_graph(rng, 6, cards=(2, 3), density=0.4, triples=1), n_rows=2)
    found = Gibbs(problem.graph, n_draws=4000).moments(problem.scores)
    exact = Exact(problem.graph).moments(problem.scores)
    assert np.abs(found.cliques - exact.cliques).max() < 0.05
    assert np.isnan(found.log_partition).all()
    again = Gibbs(problem.graph, n_draws=4000).moments(problem.scores)
    np.testing.assert_array_equal(found.cliques, again.cliques)


def test_marginals_of_nodes_are_means_of_conditionals():
    """One draw says more of a node than its label."""
    rng = np.random.default_rng(3)
    problem = random_graph_problem(rng, random_graph(rng, 5, cards=(2, 3), density=0.4, triples=0), n_rows=1)
    found = Gibbs(problem.graph, n_draws=1, burn_in=0).moments(problem.scores).cliques
    for name, nodes in problem.graph.cliques.items():
        own = found[:, problem.graph.slices[name]]
        if nodes.shape[1] == 1:
            assert ((own > 0) & (own < 1)).all()
        else:
            assert set(np.unique(own)) == {0.0, 1.0}


@given(graph_problems(max_nodes=6, forbid=(0.0,)), st.integers(0, 2**32 - 1))
def test_the_loss_is_the_pseudo_likelihood_of_the_enumerated_conditionals(problem, seed):
    graph = problem.graph
    labels = np.random.default_rng(seed).integers(graph.cards, size=(len(problem.scores), graph.n_nodes))
    found = Gibbs(graph).loss(problem.scores, labels, curvature=False)
    for i, truth in problem.enumerations():
        expected = 0.0
        for v in range(graph.n_nodes):
            others = np.arange(graph.n_nodes) != v
            agree = (truth.labelings[:, others] == labels[i, others]).all(axis=1)
            own = agree & (truth.labelings[:, v] == labels[i, v])
            expected += logsumexp(truth.scores[agree]) - truth.scores[own][0]
        assert found.losses[i, 0] == pytest.approx(expected, abs=1e-9)


def test_gradient_and_curvature_of_the_loss_are_differences():
    rng = np.random.default_rng(2)
    graph = random_graph(rng, 6, cards=(2, 3), density=0.6, triples=1)
    problem = random_graph_problem(rng, graph, n_rows=3)
    labels, v = rng.integers(graph.cards, size=(3, 6)), rng.normal(size=problem.scores.shape)
    gibbs = Gibbs(graph)
    at = gibbs.loss(problem.scores, labels, curvature=True)
    plus, minus = (gibbs.loss(problem.scores + h * v, labels, curvature=False) for h in (1e-5, -1e-5))
    assert np.vdot(at.residual, v) == pytest.approx((plus.losses - minus.losses).sum() / 2e-5, rel=1e-7)
    np.testing.assert_allclose(at.curvature.tangents(v), (plus.residual - minus.residual) / 2e-5, atol=1e-7)


def test_a_grid_is_sampled_without_a_word_on_its_width():
    side = 20
    nodes = np.arange(side**2).reshape(side, side)
    edges = np.concatenate(
        [
            np.column_stack((nodes[:, :-1].ravel(), nodes[:, 1:].ravel())),
            np.column_stack((nodes[:-1].ravel(), nodes[1:].ravel())),
        ]
    )
    graph = Graph(np.full(side**2, 2), {"node": nodes.reshape(-1, 1), "edge": edges})
    scores = np.concatenate((np.tile([0.0, 3.0], side**2), np.tile([0.5, 0, 0, 0.5], len(edges))))[None]
    labels, _ = Gibbs(graph, n_draws=20, burn_in=5).best(scores)
    assert labels.all()


def test_missing_labels_and_entropies_are_refused():
    graph = Graph([2, 2], {"edge": [[0, 1]]})
    with pytest.raises(ValueError, match="some labels are missing"):
        Gibbs(graph).loss(np.zeros((1, 4)), np.array([[0, -1]]), curvature=False)
    with pytest.raises(ValueError, match="entropy is not available"):
        Gibbs(graph).entropy(np.zeros((1, 4)))
