"""The objective of segmentations against enumeration: value, gradient, Hessian products, bounds and lines."""

import numpy as np
import pytest

from kernelcrf.solvers import LBFGS, Newton, NewtonCG
from kernelcrf.solvers.loop import minimise
from segment_problems import enumerated_value, random_objective

KINDS = {
    "runs": {},
    "runs without a tail": {"tail": False, "D": 4},
    "free durations": {"durations": "free", "D": 3},
    "no durations": {"durations": None, "D": 1, "segments": False},
    "tokens alone": {"ends": False, "segments": False, "weighted": False},
    "tags": {"tags": True, "lengths": (3, 2)},
    "constraints": {"legal": True},
    "tags with constraints": {"tags": True, "lengths": (3, 2), "legal": True},
    "missing labels": {"missing": 0.4},
    "missing tags": {"tags": True, "lengths": (3, 3), "missing": 0.4},
    "missing labels and constraints": {"missing": 0.5, "legal": True, "segments": False},
}


@pytest.fixture(params=KINDS.values(), ids=KINDS.keys())
def problem(request):
    return random_objective(3, **request.param)


def point(objective, seed=0):
    return np.random.default_rng(seed).normal(size=objective.layout.size)


def test_the_value_is_that_of_the_definition(problem):
    theta = point(problem[0])
    assert problem[0].evaluate(theta).value == pytest.approx(enumerated_value(problem, theta), rel=1e-12)


def test_the_losses_of_sequences_add_up_to_that_of_the_definition(problem):
    objective, theta = problem[0], point(problem[0])
    losses = [one.losses(one.scores(objective.layout, theta)) for one in objective.partitions]
    total = sum(own.sum() for own in losses) + objective.layout.penalty(theta)
    assert total == pytest.approx(enumerated_value(problem, theta), rel=1e-12)
    assert [len(own) for own in losses] == [one.chains.n_samples for one in objective.partitions]


def test_the_gradient_is_the_derivative_of_the_enumerated_value(problem):
    objective = problem[0]
    theta, v, h = point(objective), point(objective, 1), 1e-3

    def value(step):
        return enumerated_value(problem, theta + step * v)

    slope = (8 * (value(h) - value(-h)) - (value(2 * h) - value(-2 * h))) / (12 * h)
    assert np.dot(objective.evaluate(theta).gradient, v) == pytest.approx(slope, rel=1e-8, abs=1e-8)


def test_hessian_products_are_derivatives_of_the_gradient(problem):
    objective = problem[0]
    if not objective.is_convex:
        assert objective.evaluate(point(objective)).lower_bound == -np.inf
        return
    theta, v, h = point(objective), point(objective, 1), 1e-4
    difference = (objective.evaluate(theta + h * v).gradient - objective.evaluate(theta - h * v).gradient) / (2 * h)
    at = objective.evaluate(theta, curvature=True)
    np.testing.assert_allclose(objective.hessian_product(at, v), difference, atol=1e-6)


def test_a_ray_follows_the_objective_without_new_products(problem):
    objective = problem[0]
    theta, v = point(objective), point(objective, 1)
    ray = objective.ray(objective.evaluate(theta), v)
    for step in (0.0, 0.3, 1.7):
        there = objective.evaluate(theta + step * v)
        value, slope = ray.along(step)
        assert value == pytest.approx(there.value, rel=1e-12)
        assert slope == pytest.approx(np.dot(there.gradient, v), rel=1e-10, abs=1e-10)
        moved = ray.point(step, curvature=False)
        np.testing.assert_allclose(moved.gradient, there.gradient, atol=1e-10)


def test_the_lower_bound_is_below_the_optimum_at_every_iterate(problem):
    objective = problem[0]
    if not objective.is_convex:
        return
    best = minimise(objective, Newton(), np.zeros(objective.layout.size), tol=1e-13, max_iter=200)
    least = best.evaluation.value
    seen = []
    for solver in (LBFGS(), NewtonCG()):
        found = minimise(
            objective,
            solver,
            point(objective, 2),
            tol=1e-9,
            max_iter=300,
            keep=lambda theta, history: seen.append(objective.evaluate(theta)),
        )
        assert found.evaluation.value == pytest.approx(least, rel=1e-8)
    assert len(seen) > 10
    for at in seen:
        assert at.lower_bound <= least * (1 + 1e-12) <= at.value * (1 + 1e-10)


def test_block_products_are_positive_and_diagonal_preconditioners_are_finite(problem):
    objective = problem[0]
    at, v = objective.evaluate(point(objective), curvature=True), point(objective, 1)
    assert np.dot(v, objective.block_product(at, v)) > 0
    for term in objective.layout.terms:
        spread = objective.partitions[0].spread(term, at.parts[0])
        assert np.isfinite(spread).all()
        assert (spread >= 0).all()


def test_the_entropy_is_that_of_all_segmentations():
    objective, spec, *_ = random_objective(0, weighted=False, lengths=(4,))
    from segment_problems import all_labelings, plain_score

    theta = point(objective)
    scores = np.array([plain_score(objective, theta, 0, own) for _, own in all_labelings(spec, 4)])
    p = np.exp(scores - np.logaddexp.reduce(scores))
    assert objective.entropy(objective.evaluate(theta)) == pytest.approx(-(p * np.log(p)).sum(), abs=1e-10)


def test_the_number_of_threads_changes_no_bit():
    results = []
    for n_jobs in (1, 2):
        objective = random_objective(4, lengths=(5,) * 900, n_jobs=n_jobs, D=3)[0]
        at = objective.evaluate(point(objective), curvature=True)
        results.append((at.value, at.gradient, objective.hessian_product(at, point(objective, 1))))
    assert results[0][0] == results[1][0]
    np.testing.assert_array_equal(results[0][1], results[1][1])
    np.testing.assert_array_equal(results[0][2], results[1][2])
