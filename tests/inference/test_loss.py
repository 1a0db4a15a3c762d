"""Losses of graphs, whatever the inference."""

import numpy as np
import pytest

from graph_problems import random_graph, random_graph_problem
from kernelcrf.inference.clique_tree import Exact
from kernelcrf.inference.loss import labelling_scores, loss_of_statistics


def test_the_loss_of_statistics_is_the_mean_loss_of_samples():
    rng = np.random.default_rng(0)
    graph = random_graph(rng, 5, cards=(2, 3), density=0.6, triples=1)
    tables = random_graph_problem(rng, graph, n_rows=1).scores
    labels = rng.integers(graph.cards, size=(7, graph.n_nodes)).astype(np.int32)
    statistics = np.zeros(tables.shape)
    for row in graph.chosen(labels):
        statistics[0, row] += 1 / len(labels)
    inference = Exact(graph)
    found = loss_of_statistics(inference, tables, statistics, 1, curvature=True)
    each = inference.loss(np.repeat(tables, len(labels), axis=0), labels, 1, curvature=False)
    assert found.losses[0, 0] == pytest.approx(each.losses.mean(), rel=1e-12)
    np.testing.assert_allclose(found.residual[0], each.residual.mean(axis=0), atol=1e-12)
    np.testing.assert_allclose(found.marginals, inference.moments(tables).cliques, atol=1e-12)
    assert found.curvature is not None


def test_the_score_of_a_labelling_is_that_of_its_entries():
    rng = np.random.default_rng(1)
    graph = random_graph(rng, 4, cards=(2, 3), density=0.6, triples=0)
    problem = random_graph_problem(rng, graph, n_rows=2)
    for i, truth in problem.enumerations():
        k = int(rng.integers(len(truth.scores)))
        found = labelling_scores(graph, problem.scores[i : i + 1], truth.labelings[k : k + 1])
        assert found[0, 0] == pytest.approx(truth.scores[k], rel=1e-12)
