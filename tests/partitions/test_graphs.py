import numpy as np
import pytest

from graph_objectives import enumerated_graph_value, random_graph_objective
from kernelcrf.graphs.structure import EDGE, Graph
from kernelcrf.inference.clique_tree import Exact
from kernelcrf.inference.loss import InfeasibleSampleError
from kernelcrf.kernels.labels import LabelKernel
from kernelcrf.objective import Objective
from kernelcrf.partitions.graphs import GraphPartition, Tables
from kernelcrf.score.cliques import STEPS, TOKENS
from kernelcrf.score.layout import Layout
from kernelcrf.score.terms import Term
from kernelcrf.solvers import SOLVERS, find_solver
from kernelcrf.solvers.loop import minimise
from objectives import random_objective

KINDS = {
    "plain": {},
    "weights": {"weighted": True},
    "centred": {"centred": True},
    "missing labels": {"missing": 0.4, "weighted": True},
    "a union": {"union": True, "weighted": True},
    "a union with missing labels": {"union": True, "missing": 0.4},
}


@pytest.fixture(params=KINDS.values(), ids=KINDS.keys())
def objective(request):
    return random_graph_objective(5, **request.param)


@pytest.fixture(params=[kind for kind in KINDS.values() if "missing" not in kind], ids=str)
def convex(request):
    return random_graph_objective(5, **request.param)


def point(objective, seed=0):
    return np.random.default_rng(seed).normal(size=objective.layout.size)


def test_the_value_is_that_of_the_definition(objective):
    theta = point(objective)
    assert objective.evaluate(theta).value == pytest.approx(enumerated_graph_value(objective, theta), rel=1e-11)


def test_the_losses_of_samples_add_up_to_that_of_the_definition(objective):
    theta = point(objective)
    losses = [one.losses(Tables(one.tables(objective.layout, theta))) for one in objective.partitions]
    total = sum(own.sum() for own in losses) + objective.layout.penalty(theta)
    assert total == pytest.approx(enumerated_graph_value(objective, theta), rel=1e-11)


def test_the_gradient_is_the_derivative_of_the_enumerated_value(objective):
    theta, v = point(objective), point(objective, 1)
    value = [enumerated_graph_value(objective, theta + h * v) for h in (-2e-3, -1e-3, 1e-3, 2e-3)]
    slope = (8 * (value[2] - value[1]) - (value[3] - value[0])) / 12e-3
    assert np.dot(objective.evaluate(theta).gradient, v) == pytest.approx(slope, rel=1e-8)


def test_hessian_products_are_differences_of_gradients(convex):
    objective = convex
    theta, v = point(objective), point(objective, 1)
    at = objective.evaluate(theta, curvature=True)
    g = [objective.evaluate(theta + h * v).gradient for h in (-2e-4, -1e-4, 1e-4, 2e-4)]
    difference = (8 * (g[2] - g[1]) - (g[3] - g[0])) / 12e-4
    product = objective.hessian_product(at, v)
    np.testing.assert_allclose(product, difference, atol=1e-8 * np.abs(product).max())


def test_both_sides_of_lemma_9_are_equal(convex):
    objective = convex
    at = objective.evaluate(point(objective))
    layout = objective.layout
    primal = at.gradient - layout.times_lam(at.theta)
    entropy_side = objective.entropy(at) - 0.5 * sum(layout.squared_dual_norms(primal).values())
    assert at.lower_bound == pytest.approx(entropy_side, rel=1e-9)


def test_block_products_are_those_of_single_cliques():
    """On a graph whose cliques share no node, the blocks are the whole Hessian."""
    rng = np.random.default_rng(0)
    graph = Graph([2, 3, 2, 3, 2], {"edge": [[0, 1], [2, 3]], "node": [[4]]})
    terms = [Term(name, name, LabelKernel("delta", size), 1.0) for name, size in (("edge", 6), ("node", 2))]
    labels = rng.integers(graph.cards, size=(4, 5)).astype(np.int32)
    whole = Objective(Layout(tuple(terms)), [GraphPartition(Exact(graph), labels)], random_graph_objective(0).engine)
    at, v = whole.evaluate(rng.normal(size=8), curvature=True), rng.normal(size=8)
    np.testing.assert_allclose(whole.block_product(at, v), whole.hessian_product(at, v), atol=1e-10)


@pytest.mark.parametrize("solver", [name for name in SOLVERS if name != "dual"])
def test_every_solver_finds_the_optimum(solver):
    objective = random_graph_objective(3, weighted=True)
    start = np.zeros(objective.layout.size)
    best = minimise(objective, find_solver("newton", objective), start, tol=1e-12, max_iter=50)
    found = minimise(objective, find_solver(solver, objective), start, tol=1e-6, max_iter=2000)
    assert found.status == "optimal"
    assert found.certificate.objective - best.certificate.objective <= found.certificate.gap_in_span + 1e-9
    np.testing.assert_allclose(found.theta, best.theta, atol=5e-3)


@pytest.mark.parametrize("kind", [{}, {"weighted": True}, {"missing": 0.9}], ids=str)
def test_chains_given_as_graphs_have_the_objective_of_chains(kind):
    chains = random_objective(4, n_parts=1, **kind)
    partition = chains.partitions[0]
    edges, n_labels = partition.chains.cliques(EDGE), partition.n_labels
    samples = np.repeat(np.arange(partition.chains.n_samples), partition.chains.lengths)
    nodes = np.arange(partition.n_nodes)[:, None]
    graph = Graph(np.full(partition.n_nodes, n_labels), {TOKENS: nodes, STEPS: edges}, samples)
    labels = partition.labels.copy()
    if partition.allowed is not None:
        few = partition.allowed.sum(axis=1) < n_labels
        partition.allowed[few] = np.eye(n_labels, dtype=bool)[labels[few]]
        labels[~few] = -1
    ours = GraphPartition(Exact(graph), labels[None], partition.features, partition.weights)
    graphs = Objective(chains.layout, [ours], chains.engine)
    theta, v = point(chains), point(chains, 1)
    a, b = (objective.evaluate(theta, curvature=True) for objective in (chains, graphs))
    assert a.value == pytest.approx(b.value, rel=1e-11)
    np.testing.assert_allclose(a.gradient, b.gradient, atol=1e-9)
    np.testing.assert_allclose(chains.hessian_product(a, v), graphs.hessian_product(b, v), atol=1e-8)
    np.testing.assert_allclose(chains.block_product(a, v), graphs.block_product(b, v), atol=1e-8)


def test_an_infeasible_sample_goes_by_its_place():
    objective = random_graph_objective(5)
    tables = objective.partitions[0].tables(objective.layout, point(objective))
    tables[1] = -np.inf
    with pytest.raises(InfeasibleSampleError, match="sample 1"):
        objective.partitions[0].evaluate_at(objective.layout, Tables(tables), 1, curvature=False)


def test_labels_of_a_node_without_a_table_cannot_be_kept_apart_from_missing_ones():
    graph = Graph([2, 2], {"edge": [[0, 1]]})
    with pytest.raises(ValueError, match="node 0 has a label, but no term scores this node alone"):
        Exact(graph).loss(np.zeros((1, 4)), np.array([[1, -1]]), curvature=False)
