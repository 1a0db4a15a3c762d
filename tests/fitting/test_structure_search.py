import warnings
from dataclasses import replace
from functools import partial

import numpy as np
import pytest
from sklearn.exceptions import ConvergenceWarning

from kernelcrf.engines.local import LocalEngine
from kernelcrf.fitting.corpus import Problem
from kernelcrf.fitting.fit import Settings, fit, objective_of
from kernelcrf.fitting.graphs import LabelledGraphs
from kernelcrf.fitting.structure_search import SearchSettings, bounds, search
from kernelcrf.inference.loopy import Loopy
from kernelcrf.kernels.joint_labels import Contrasts, Reversible, interactions
from kernelcrf.kernels.labels import LabelKernel
from kernelcrf.score.terms import Term

ENGINE = LocalEngine(1)


def network(seed=0, m=40, cards=(2, 3, 2), **more):
    """A table of discrete values in which the first two depend on each other."""
    rng = np.random.default_rng(seed)
    labels = rng.integers(cards, size=(m, len(cards))).astype(np.int32)
    labels[:, 1] = np.where(rng.random(m) < 0.7, labels[:, 0], labels[:, 1])
    pairs = [(0, 1), (0, 2), (1, 2)]
    cliques = {f"node {v}": np.array([[v]]) for v in range(3)} | {f"edge {u} {v}": np.array([[u, v]]) for u, v in pairs}
    terms = [Term(f"node {v}", f"node {v}", Contrasts(card), 1.5) for v, card in enumerate(cards)]
    terms += [Term(f"edge {u} {v}", f"edge {u} {v}", interactions(cards[u], cards[v]), 0.7) for u, v in pairs]
    data = LabelledGraphs(np.array(cards), cliques, labels, weights=rng.uniform(0.5, 2.0, size=m), **more)
    return Problem(terms, data)


NODES = ["node 0", "node 1", "node 2"]
EDGES = ["edge 0 1", "edge 0 2", "edge 1 2"]


def test_pooled_rows_have_the_objective_of_single_ones():
    single, pooled = (objective_of(network(pooled=pooled), {}, ENGINE) for pooled in (False, True))
    theta, v = np.random.default_rng(1).normal(size=(2, single.layout.size))
    a, b = (objective.evaluate(theta, curvature=True) for objective in (single, pooled))
    assert a.value == pytest.approx(b.value, rel=1e-11)
    np.testing.assert_allclose(a.gradient, b.gradient, atol=1e-9)
    np.testing.assert_allclose(single.hessian_product(a, v), pooled.hessian_product(b, v), atol=1e-9)


def test_the_bound_of_an_absent_template_is_that_of_its_gradient():
    problem = network()
    fitted = fit(problem.only(NODES), Settings(tol=1e-10))
    whole = objective_of(problem, {}, ENGINE)
    theta = np.zeros(whole.layout.size)
    theta[: fitted.solution.theta.size] = fitted.solution.theta
    at = whole.evaluate(theta)
    for candidate in bounds(fitted, problem, {}, EDGES):
        g = at.gradient[whole.layout.slices[candidate.template]]
        assert candidate.bound == pytest.approx(0.7 * np.dot(g, g) / 2, rel=1e-9)
        larger = problem.only([*NODES, candidate.template])
        best = fit(larger, Settings(tol=1e-10)).certificate.objective
        gain = fitted.certificate.objective - best
        assert -1e-9 <= gain <= candidate.bound + 1e-9
        assert candidate.expected_gain == pytest.approx(gain, rel=0.5, abs=0.1)


@pytest.mark.parametrize("tol", [1e-1, 1e-2, 1e-6])
def test_a_search_ends_where_what_is_left_out_is_bounded(tol):
    problem = network(m=200)
    fitted, found = search(problem, Settings(tol=1e-8), SearchSettings(NODES, tol, min_gain=0.0))
    assert found.left_out <= tol * found.rounds[-1].objective
    full = fit(problem, Settings(tol=1e-10)).certificate.objective
    assert found.lower_bound <= full <= fitted.certificate.objective + 1e-7
    assert fitted.certificate.objective - full <= found.left_out + found.rounds[-1].gap + 1e-7
    assert found.rounds[0].joined[0].template == "edge 0 1"


def test_a_search_stops_at_what_is_asked_for():
    problem = network(m=200)
    _, none = search(problem, Settings(), SearchSettings(NODES, 1e-9, min_gain=1e9))
    assert len(none.rounds) == 1
    assert {candidate.template for candidate in none.absent} == set(EDGES)


@pytest.mark.parametrize("max_sweeps", [0, 1, 3, 100])
def test_a_loopy_certificate_holds_before_messages_converge(max_sweeps):
    """The least bound at any weights is above the certificate's, whose messages may be far from the best."""
    rng = np.random.default_rng(0)
    edges = np.array([(0, 1), (1, 2), (2, 0), (2, 3), (3, 4), (4, 0)])
    cliques = {"nodes": np.arange(5)[:, None], "edges": edges}
    terms = [Term("nodes", "nodes", LabelKernel("delta", 2), 1.0), Term("edges", "edges", Reversible(2, 2), 4.0)]
    labels = (rng.random((12, 1)) < 0.7) ^ (rng.random((12, 5)) < 0.2)
    rough = LabelledGraphs(
        np.full(5, 2), cliques, labels.astype(np.int32), inference=partial(Loopy, max_sweeps=max_sweeps)
    )
    fine = replace(rough, inference=partial(Loopy, tol=1e-12, max_sweeps=20_000))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        fitted = fit(Problem(terms, rough), Settings(tol=1e-7, max_iter=60))
    best = fit(Problem(terms, fine), Settings(tol=1e-9))
    assert best.certificate.status == "optimal"
    assert fitted.certificate.lower_bound <= best.certificate.objective + 1e-9
    assert fitted.certificate.objective >= best.certificate.lower_bound - 1e-9
