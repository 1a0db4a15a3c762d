"""What each solver does in one step, beside dense matrices; and the record that all of them keep."""

from dataclasses import replace

import numpy as np
import pytest

from kernelcrf.solvers import BlockJacobi, MaxIterations, Newton, NewtonCG, Subspace, newton
from kernelcrf.solvers.linear_systems import solve_cg
from kernelcrf.solvers.loop import Progress, descend, minimise
from kernelcrf.solvers.preconditioners import Preconditioning
from objectives import random_objective
from trials import interruption


@pytest.fixture
def objective():
    return random_objective(3, weighted=True, edge_inputs=2)


def at_random(objective):
    return objective.evaluate(np.random.default_rng(1).normal(size=objective.layout.size), curvature=True)


def matrix(product, size):
    return np.column_stack([product(e) for e in np.eye(size)])


@pytest.mark.parametrize("rtol", [0.5, 1e-3, 1e-10])
@pytest.mark.parametrize("preconditioned", [False, True])
def test_conjugate_gradients_end_at_the_residual_that_was_asked_for(rtol, preconditioned):
    rng = np.random.default_rng(0)
    B, g, scale = rng.normal(size=(12, 12)), rng.normal(size=12), 10.0 ** rng.uniform(-3, 3, size=12)
    A = (B @ B.T + np.eye(12)) * np.sqrt(np.outer(scale, scale))
    products = []
    d, count = solve_cg(
        lambda v: products.append(1) or A @ v, g, (lambda v: v / scale) if preconditioned else None, rtol, 500
    )
    assert np.linalg.norm(A @ d + g) <= rtol * np.linalg.norm(g) * (1 + 1e-6)
    assert count == len(products)
    if preconditioned:
        assert count <= 14


def test_conjugate_gradients_end_after_as_many_products_as_were_allowed():
    A = np.diag(np.arange(1.0, 40.0) ** 3)
    assert solve_cg(lambda v: A @ v, np.ones(39), None, 1e-12, 3)[1] == 3


def test_newtons_direction_solves_its_system(objective):
    at, n = at_random(objective), objective.layout.size
    H = matrix(lambda e: objective.hessian_product(at, e), n)
    d, passes = Newton().direction(objective, at)
    np.testing.assert_allclose(H @ d, -at.gradient, atol=1e-10)
    assert passes == n


def test_block_jacobi_solves_the_blocks(objective):
    at, n = at_random(objective), objective.layout.size
    blocks = matrix(lambda e: objective.block_product(at, e), n)
    d, passes = BlockJacobi(rtol=1e-10).direction(objective, at)
    np.testing.assert_allclose(d, -np.linalg.solve(blocks, at.gradient), atol=1e-8)
    assert 1 <= passes <= 100


def test_subspace_moves_the_template_of_the_greatest_bound_and_no_other(objective):
    at, n = at_random(objective), objective.layout.size
    bounds = objective.layout.squared_dual_norms(at.gradient)
    part = objective.layout.slices[max(bounds, key=bounds.get)]
    d, passes = Subspace(rtol=1e-10).direction(objective, at)
    H = matrix(lambda e: objective.hessian_product(at, e), n)[part, part]
    np.testing.assert_allclose(d[part], -np.linalg.solve(H, at.gradient[part]), atol=1e-8)
    rest = np.ones(n, bool)
    rest[part] = False
    assert not d[rest].any()
    assert passes >= 1


@pytest.mark.parametrize(
    ("gap", "tol", "expected"),
    [
        (1.0, 1e-4, 0.5),
        (1e-2, 1e-9, 0.1),
        (1e-4, 1e-5, np.sqrt(0.25 * 0.1)),
        (1e-4, 1e-3, 0.9),
    ],
)
def test_newton_cg_solves_as_far_as_it_pays(objective, monkeypatch, gap, tol, expected):
    """A share of the gradient, its own size, or just what the tolerance needs: the module's docstring."""
    asked = {}

    def recorded(product, g, precondition, rtol, max_iter):
        asked.update(rtol=rtol, max_iter=max_iter)
        return solve_cg(product, g, precondition, rtol, max_iter)

    monkeypatch.setattr(newton, "solve_cg", recorded)
    at, progress = at_random(objective), Progress(objective, tol, MaxIterations(10))
    progress.observe(at, 0.0)
    last = progress.history[-1]
    progress.history[-1] = type(last)(1.0, 0.0, gap, 0.0, 0.0, 0.0)
    rule = newton._Directions(NewtonCG(), Preconditioning.of(objective), progress)
    d, passes = rule.direction(objective, at)
    assert asked == {"rtol": pytest.approx(expected), "max_iter": 250}
    assert np.dot(d, at.gradient) < 0
    assert passes >= 1


def test_the_record_keeps_the_best_point_and_the_greatest_bound(objective):
    n, seen = objective.layout.size, []
    progress = Progress(objective, 1e-4, MaxIterations(2), lambda history: seen.append(history[-1]))
    near = minimise(objective, Newton(), np.zeros(n), tol=1e-2).theta
    points = [objective.evaluate(theta) for theta in (np.zeros(n), near, np.ones(n), near * 1.01)]
    for k, at in enumerate(points):
        assert progress.is_stopped == (k > 2)
        progress.passes = float(k)
        progress.observe(at, 0.5 * k)
    values, bounds = [at.value for at in points], np.maximum.accumulate([at.lower_bound for at in points])
    assert [record.lower_bound for record in progress.history] == list(bounds)
    assert [record.gap for record in progress.history] == [v - b for v, b in zip(values, bounds, strict=True)]
    assert [(record.step, record.passes) for record in progress.history] == [(0.5 * k, k) for k in range(4)]
    assert seen == progress.history
    assert progress.best.value == min(values)
    solution = progress.solution("stalled")
    assert (solution.n_iter, solution.status) == (3, "stalled")
    assert (solution.certificate.objective, solution.certificate.lower_bound) == (min(values), bounds[-1])
    assert all(0 <= record.seconds < 60 for record in progress.history)


def test_bounds_of_moved_scores_do_not_enter_the_certificate(objective):
    """Neither does one that a moved point gives, if the best point is another one."""
    start = objective.evaluate(np.zeros(objective.layout.size))
    moved = replace(start, value=start.value + 1e-9, lower_bound=start.value, is_moved=True)
    progress = Progress(objective, 1e-4, MaxIterations(5))
    for at in (start, moved):
        progress.observe(at, 0.0)
    assert progress.solution("optimal").certificate.lower_bound == start.lower_bound
    assert progress.history[-1].lower_bound == start.lower_bound


def test_without_a_point_an_interrupt_is_an_interrupt(objective):
    with pytest.raises(KeyboardInterrupt):
        Progress(objective, 1e-4, MaxIterations(2)).solution("interrupted")


def test_interrupted_at_every_line_there_is_no_point_without_a_record(objective):
    at, whole = at_random(objective), Progress(objective, 1e-4, MaxIterations(2))
    with interruption.At(None, KeyboardInterrupt) as counted:
        whole.observe(at, 0.0)
    for k in range(1, counted.lines + 1):
        progress = Progress(objective, 1e-4, MaxIterations(2))
        with pytest.raises(KeyboardInterrupt), interruption.At(k, KeyboardInterrupt):
            progress.observe(at, 0.0)
        assert progress.best is None or progress.history, k


def test_where_labels_are_missing_the_gap_is_that_of_the_gradient():
    objective = random_objective(3, missing=0.5)
    progress, at = Progress(objective, 1e-4, MaxIterations(5)), at_random(objective)
    progress.observe(at, 0.0)
    norms = objective.layout.squared_dual_norms(at.gradient)
    assert progress.history[0].gap == pytest.approx(sum(norms.values()) / 2)


def test_passes_are_counted(objective):
    """One for the start; then a direction's own, half of one for the ray, and half of one for each point on it."""

    class Steepest:
        def direction(self, objective, at):
            return -0.1 * at.gradient, 2.0

    progress = Progress(objective, 1e-12, MaxIterations(3))
    assert descend(Steepest(), np.zeros(objective.layout.size), progress, curvature=False, wolfe=0.9) == "max_iter"
    passes = [record.passes for record in progress.history]
    assert passes[0] == 1
    assert set(np.diff(passes)) <= {3.0, 3.5}
    assert len(passes) == 4


@pytest.mark.parametrize("solver", [Newton(), NewtonCG(), Subspace()], ids=lambda one: type(one).__name__)
def test_near_the_optimum_whole_steps_are_taken(objective, solver):
    found = minimise(objective, solver, np.zeros(objective.layout.size), tol=1e-9)
    assert found.status == "optimal"
    assert [record.step for record in found.history[-2:]] == [1.0, 1.0]


def test_newton_takes_as_many_parameters_as_it_is_allowed(objective):
    n = objective.layout.size
    assert minimise(objective, Newton(most=n), np.zeros(n)).status == "optimal"
    with pytest.raises(ValueError, match=rf"Hessian of {n} parameters: expected at most {n - 1}. Use solver="):
        minimise(objective, Newton(most=n - 1), np.zeros(n))
