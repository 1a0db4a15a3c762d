import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kernelcrf.solvers import Newton
from kernelcrf.solvers.loop import minimise
from objectives import enumerated_value, random_objective

KINDS = {
    "plain": {},
    "weights": {"weighted": True},
    "edges with inputs": {"edge_inputs": 2, "weighted": True},
    "missing labels": {"missing": 0.4, "weighted": True},
    "missing labels, edges with inputs": {"missing": 0.4, "edge_inputs": 2},
    "centred labels": {"label_kernel": "centred"},
    "labels that share": {"label_kernel": [[2.0, 1.0, 0.0], [1.0, 2.0, 0.0], [0.0, 0.0, 1.0]]},
    "a label": {"n_labels": 1},
    "two inputs": {"second": "dense", "weighted": True},
    "two inputs, one sparse": {"second": "sparse", "edge_inputs": 2},
}


@pytest.fixture(params=KINDS.values(), ids=KINDS.keys())
def objective(request):
    return random_objective(5, **request.param)


def point(objective, seed=0):
    return np.random.default_rng(seed).normal(size=objective.layout.size)


def test_the_value_is_that_of_the_definition(objective):
    theta = point(objective)
    assert objective.evaluate(theta).value == pytest.approx(enumerated_value(objective, theta), rel=1e-12)


def test_the_gradient_is_the_derivative_of_the_enumerated_value(objective):
    theta, v, h = point(objective), point(objective, 1), 1e-3

    def value(step):
        return enumerated_value(objective, theta + step * v)

    slope = (8 * (value(h) - value(-h)) - (value(2 * h) - value(-2 * h))) / (12 * h)
    assert np.dot(objective.evaluate(theta).gradient, v) == pytest.approx(slope, rel=1e-8, abs=1e-8)


def test_hessian_products_are_derivatives_of_the_gradient(objective):
    if not objective.is_convex:
        objective = random_objective(5, edge_inputs=2)
    theta, v, h = point(objective), point(objective, 1), 1e-4
    difference = (objective.evaluate(theta + h * v).gradient - objective.evaluate(theta - h * v).gradient) / (2 * h)
    at = objective.evaluate(theta, curvature=True)
    np.testing.assert_allclose(objective.hessian_product(at, v), difference, atol=1e-6)


def test_with_missing_labels_the_curvature_is_that_of_the_model_alone():
    observed, missing = random_objective(5, edge_inputs=2), random_objective(5, edge_inputs=2, missing=0.4)
    theta, v = point(observed), point(observed, 1)
    products = [o.hessian_product(o.evaluate(theta, curvature=True), v) for o in (observed, missing)]
    np.testing.assert_allclose(products[0], products[1], atol=1e-12)
    assert not missing.is_convex
    assert missing.evaluate(theta).lower_bound == -np.inf


def test_a_ray_follows_the_objective_without_new_products(objective):
    theta, v = point(objective), point(objective, 1)
    ray = objective.ray(objective.evaluate(theta), v)
    for step in (0.0, 0.3, 1.7):
        there = objective.evaluate(theta + step * v)
        value, slope = ray.along(step)
        assert value == pytest.approx(there.value, rel=1e-12)
        assert slope == pytest.approx(np.dot(there.gradient, v), rel=1e-10, abs=1e-10)
        moved = ray.point(step, curvature=False)
        assert moved.value == pytest.approx(there.value, rel=1e-12)
        np.testing.assert_allclose(moved.gradient, there.gradient, atol=1e-10)


def test_a_sequence_of_weight_two_is_a_sequence_twice():
    once = random_objective(6, lengths=(4, 3), n_parts=1)
    partition = once.partitions[0]
    double = type(once)(once.layout, [partition.part(0, 2), partition.part(1, 2)], once.engine)
    weighted = type(once)(
        once.layout,
        [type(partition)(partition.chains, 3, partition.labels, partition.features, None, np.array([1.0, 2.0]))],
        once.engine,
    )
    theta, v = point(once), point(once, 1)
    a, b = (o.evaluate(theta, curvature=True) for o in (double, weighted))
    assert a.value == pytest.approx(b.value, rel=1e-12)
    np.testing.assert_allclose(a.gradient, b.gradient, atol=1e-10)
    np.testing.assert_allclose(double.hessian_product(a, v), weighted.hessian_product(b, v), atol=1e-10)


@given(st.integers(0, 1000), st.booleans())
def test_on_single_tokens_the_papers_blocks_are_the_hessian(seed, weighted):
    objective = random_objective(seed, lengths=(1,) * 8, weighted=weighted)
    at = objective.evaluate(point(objective, seed), curvature=True)
    v = point(objective, seed + 1)
    v[objective.layout.slices["bias"]] = 0
    whole, blocks = objective.hessian_product(at, v), objective.block_product(at, v)
    np.testing.assert_allclose(blocks, whole, atol=1e-10)


@pytest.mark.parametrize("edge_inputs", [0, 2])
def test_the_papers_blocks_are_covariances_within_cliques(edge_inputs):
    objective = random_objective(7, edge_inputs=edge_inputs, weighted=True, n_parts=1)
    layout, partition = objective.layout, objective.partitions[0]
    at, v = objective.evaluate(point(objective), curvature=True), point(objective, 1)
    du, dw = partition.scores(layout, v)
    p = at.parts[0].residuals.nodes
    dp = np.stack([(np.diag(row) - np.outer(row, row)) @ d for row, d in zip(p, du, strict=True)])
    got = objective.block_product(at, v) - layout.times_lam(v)
    expected = layout.split(partition.pull_back(layout, partition.apply_weights(dp), np.zeros_like(dw)))
    for name in ("node", "bias"):
        np.testing.assert_allclose(layout.split(got)[name], expected[name], atol=1e-10)


@pytest.mark.usefixtures("two_threads_of_blas")
def test_the_number_of_threads_changes_no_bit():
    results = []
    for n_jobs in (1, 2, 3):
        objective = random_objective(8, lengths=tuple(range(1, 60)), n_parts=13, n_jobs=n_jobs, weighted=True)
        at = objective.evaluate(point(objective), curvature=True)
        results.append((at.value, at.gradient, objective.hessian_product(at, point(objective, 1))))
    for other in results[1:]:
        assert results[0][0] == other[0]
        np.testing.assert_array_equal(results[0][1], other[1])
        np.testing.assert_array_equal(results[0][2], other[2])


def test_a_product_without_curvature_is_refused():
    objective = random_objective(0)
    with pytest.raises(ValueError, match="curvature=True"):
        objective.hessian_product(objective.evaluate(point(objective)), point(objective))


@pytest.mark.parametrize("size", [1e-100, 1.0, 1e100])
def test_noise_is_estimated_at_scores_of_any_size(objective, size):
    theta = point(objective) * size
    at = objective.evaluate(theta)
    pairs = zip(objective.partitions, at.parts, strict=True)
    sizes = np.concatenate([partition.score_sizes(objective.layout, state) for partition, state in pairs])
    expected = np.finfo(np.float64).eps * (sizes.sum() + 8 * sizes.max() * np.linalg.norm(sizes / sizes.max()))
    assert objective.noise(at) == pytest.approx(expected, rel=1e-10, abs=0)


@pytest.mark.parametrize("size", [1e3, 1e6, 1e9, 1e12])
def test_no_bound_exceeds_the_optimum_however_far_the_point(size):
    objective = random_objective(5)
    best = minimise(objective, Newton(), np.zeros(objective.layout.size), tol=1e-9).certificate.objective
    rng = np.random.default_rng(1)
    points = [size * rng.normal(size=objective.layout.size) for _ in range(50)]
    assert max(objective.evaluate(theta).lower_bound for theta in points) <= best
