"""An objective whose prior is an earlier model: means and precisions of single weights."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kernelcrf.fitting.laplace import laplace, prior_scale
from kernelcrf.fitting.leave_one_out import leave_one_out
from kernelcrf.penalties import EarlierGaussian, JointGaussian
from kernelcrf.score.layout import Layout
from kernelcrf.solvers import LBFGS, BlockJacobi, Dual, MaxIterations, Newton, NewtonCG, Subspace
from kernelcrf.solvers.ascent import Ascent
from kernelcrf.solvers.loop import Progress, minimise
from kernelcrf.solvers.preconditioners import Preconditioning
from kernelcrf.solvers.starting_points import first_point
from objectives import (
    dense_optimum,
    entropy_side,
    enumerated_value,
    gradient_side,
    look_ahead,
    prior_arrays,
    prior_matrix,
    random_objective,
    with_prior,
)
from solvers.test_dual import sparse_objective

KINDS = {
    "plain": {},
    "weights, edges with inputs": {"edge_inputs": 2, "weighted": True},
    "centred labels": {"label_kernel": "centred"},
    "two inputs, one sparse": {"second": "sparse"},
    "many features": {"n": 70},
}


@pytest.fixture(params=[False, True, "joint"], ids=["means", "precisions", "joint"])
def information(request):
    return request.param


@pytest.fixture(params=KINDS.values(), ids=KINDS.keys())
def objective(request, information):
    return with_prior(random_objective(5, **request.param), 9, information=information)


def point(objective, seed=0):
    return np.random.default_rng(seed).normal(size=objective.layout.size)


@pytest.mark.few(6)
@pytest.mark.parametrize("missing", [0.0, 0.4])
def test_value_gradient_and_curvature_are_those_of_the_definition(objective, missing, information):
    if missing:
        objective = with_prior(random_objective(5, missing=missing), 9, information=information)
    theta, v, h = point(objective), point(objective, 1), 1e-3
    at = objective.evaluate(theta, curvature=True)
    assert at.value == pytest.approx(enumerated_value(objective, theta), rel=1e-12)

    def value(step):
        return enumerated_value(objective, theta + step * v)

    slope = (8 * (value(h) - value(-h)) - (value(2 * h) - value(-2 * h))) / (12 * h)
    assert np.dot(at.gradient, v) == pytest.approx(slope, rel=1e-8, abs=1e-8)
    if objective.is_convex:
        ends = [objective.evaluate(theta + step * v).gradient for step in (1e-4, -1e-4)]
        np.testing.assert_allclose(objective.hessian_product(at, v), (ends[0] - ends[1]) / 2e-4, atol=1e-6)
    value_there, slope_there = objective.ray(at, v).along(0.3)
    there = objective.evaluate(theta + 0.3 * v)
    assert (value_there, slope_there) == pytest.approx((there.value, np.dot(there.gradient, v)), rel=1e-10)


@pytest.mark.few
def test_both_sides_of_the_certificate_agree_and_are_below_the_minimum(objective):
    _, best = dense_optimum(objective)
    for theta in (point(objective), 3 * point(objective, 1), objective.layout.mean):
        at = objective.evaluate(theta, curvature=True)
        assert gradient_side(objective, at) == pytest.approx(entropy_side(objective, at), rel=1e-9)
        assert at.lower_bound <= best + 1e-9 * abs(best)
        assert at.lower_bound <= look_ahead(objective, at) <= best + 1e-9 * abs(best)


@pytest.mark.few(8)
@pytest.mark.parametrize("solver", [LBFGS(), Newton(), NewtonCG(), BlockJacobi(), Subspace()])
def test_every_solver_ends_at_the_optimum_of_a_dense_twin(objective, solver):
    theta, best = dense_optimum(objective)
    found = minimise(objective, solver, first_point(objective), tol=1e-9, max_iter=2000)
    assert found.status == "optimal"
    assert found.certificate.lower_bound <= best * (1 + 1e-12)
    assert found.certificate.objective == pytest.approx(best, rel=1e-9)
    # The distance that the gap allows, with the precision of each weight.
    allowed, moved = 2 * (found.certificate.gap_in_span + 1e-12 * best), found.theta - theta
    assert moved @ prior_matrix(objective.layout) @ moved <= allowed


SPARSE_KINDS = [{}, {"weighted": True}, {"legal": True}, {"shared": True}, {"pairs": True}, {"n_labels": 17}]


@pytest.mark.few(5)
@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("kind", SPARSE_KINDS, ids=str)
@pytest.mark.parametrize("information", [False, True], ids=["means", "precisions"])
def test_the_dual_solver_takes_means_and_precisions(seed, kind, information):
    objective = with_prior(sparse_objective(seed, **kind), seed, information=information)
    assert Dual.suits(objective)
    best = minimise(objective, Newton(), first_point(objective), tol=1e-12)
    found = minimise(objective, Dual(), first_point(objective), tol=1e-9, max_iter=3000)
    assert found.status == "optimal"
    assert found.certificate.lower_bound <= best.certificate.objective + 1e-12
    assert found.certificate.objective == pytest.approx(best.certificate.objective, rel=1e-9)
    np.testing.assert_allclose(found.theta, best.theta, atol=1e-3)


@pytest.mark.parametrize("kind", SPARSE_KINDS, ids=str)
def test_the_dual_solver_leaves_joint_precisions_to_others(kind):
    assert not Dual.suits(with_prior(sparse_objective(0, **kind), 0, information="joint"))


@pytest.mark.parametrize("information", [False, True])
def test_the_value_of_the_dual_solver_is_that_of_its_distributions(information):
    objective = with_prior(sparse_objective(1, weighted=True), 4, information=information)
    ascent = Ascent.of(objective, first_point(objective))
    rng = np.random.default_rng(0)
    for _ in range(3):
        before = ascent.value
        ascent.climb(rng, 1e-12)
        again = Ascent._at(objective, ascent.a, ascent.b[0]) if len(ascent.b) == 1 else None
        assert again is None or again.value == pytest.approx(ascent.value, rel=1e-12)
        assert ascent.value >= before
    mean, lam = prior_arrays(objective.layout)
    partition = objective.partitions[0]
    weights = partition.weights
    steps = -np.einsum("i,ijk->jk", weights, ascent.q)
    v = partition.pull_back(objective.layout, partition.apply_weights(-ascent.r), steps)
    np.testing.assert_allclose(ascent.theta, mean + v / lam, atol=1e-10)
    value = np.dot(weights, ascent.entropies) - np.dot(v, mean) - 0.5 * np.dot(v, v / lam)
    assert ascent.value == pytest.approx(value, rel=1e-10)


@pytest.mark.few
@pytest.mark.parametrize("lengths", [(3, 1, 4, 2, 5), (1,) * 12])
def test_the_evidence_and_the_posterior_use_the_prior(information, lengths):
    objective = with_prior(random_objective(3, lengths=lengths), 2, information=information)
    lam = prior_matrix(objective.layout)
    np.testing.assert_allclose(prior_scale(objective.layout), np.diagonal(lam) ** -0.5)
    assert objective.layout.log_determinant == pytest.approx(np.linalg.slogdet(lam)[1])
    at = minimise(objective, Newton(), first_point(objective), tol=1e-12).evaluation
    at = objective.evaluate(at.theta, curvature=True)
    H = np.column_stack([objective.hessian_product(at, e) for e in np.eye(len(lam))])
    found = laplace(objective, at)
    logdet = np.linalg.slogdet(H)[1] - np.linalg.slogdet(lam)[1]
    assert found.log_evidence == pytest.approx(-at.value - 0.5 * logdet)
    assert found.n_effective == pytest.approx(len(lam) - np.trace(np.linalg.inv(H) @ lam))
    np.testing.assert_allclose(found.posterior.covariance(slice(None)), np.linalg.inv(H), atol=1e-10)
    sampled = laplace(objective, at, most_exact=0, n_draws=200)
    assert sampled.log_evidence == pytest.approx(found.log_evidence, abs=5 * sampled.error + 1e-6)
    assert sampled.n_effective == pytest.approx(found.n_effective, abs=2.0)


def test_features_that_never_occur_keep_their_prior():
    objective = with_prior(sparse_objective(2), 3)
    term, partition = objective.layout.terms[0], objective.partitions[0]
    F = partition.features["node"].F.tolil()
    F[:, [2, 5]] = 0
    features = {"node": replace(partition.features["node"], F=F.tocsr())}
    objective = replace(objective, partitions=[replace(partition, features=features)])
    found = minimise(objective, Newton(), first_point(objective), tol=1e-12)
    mean, lam = prior_arrays(objective.layout)
    unseen = np.isin(np.arange(term.size) // term.k_y.rank, [2, 5])
    np.testing.assert_allclose(found.theta[: term.size][unseen], mean[: term.size][unseen], atol=1e-12)
    around = laplace(objective, found.evaluation)
    draws = around.posterior.deviations(20000, np.random.default_rng(0))[:, : term.size][:, unseen]
    np.testing.assert_allclose(draws.std(axis=0), lam[: term.size][unseen] ** -0.5, rtol=0.05)
    at = objective.evaluate(found.theta, curvature=True)
    H = np.column_stack([objective.hessian_product(at, e) for e in np.eye(len(lam))])
    logdet = np.linalg.slogdet(H / np.sqrt(lam) / np.sqrt(lam)[:, None])[1]
    assert around.log_evidence == pytest.approx(-at.value - 0.5 * logdet)


def test_leaving_one_out_keeps_the_prior(information):
    objective = with_prior(random_objective(3, n_parts=1), 2, information=information)
    theta = minimise(objective, Newton(), first_point(objective), tol=1e-12).theta
    found = leave_one_out(objective, theta)
    partition = objective.partitions[0]
    for i in range(partition.chains.n_samples):
        kept = np.ones(partition.chains.n_samples)
        kept[i] = 0.0
        others = replace(objective, partitions=[replace(partition, weights=kept)])
        refit = minimise(others, Newton(), first_point(others), tol=1e-12).theta
        alone = replace(objective, partitions=[partition.part(i, i + 1)])
        expected = alone.layout.penalty(refit) - alone.evaluate(refit).value
        assert abs(found.log_prob[i] - expected) <= found.error[i] + 1e-9


def test_preconditioners_are_positive_definite_and_add_the_precision():
    objective = with_prior(random_objective(3), 2)
    at = objective.evaluate(point(objective))
    _, lam = prior_arrays(objective.layout)
    assert (Preconditioning(objective, {}).diagonal(at, 0.0)[: objective.layout.terms[0].size] == lam[:12]).all()
    M = Preconditioning.of(objective).at(at)
    inverse = np.column_stack([M.inverse(e) for e in np.eye(len(lam))])
    assert np.linalg.eigvalsh((inverse + inverse.T) / 2).min() > 0


@given(st.integers(0, 200))
def test_no_bound_exceeds_the_optimum(seed):
    objective = with_prior(random_objective(seed, n=2, lengths=(3, 2)), seed, size=3.0)
    best = minimise(objective, Newton(), first_point(objective), tol=1e-11).certificate.objective
    rng = np.random.default_rng(seed)
    bounds = [objective.evaluate(s * rng.normal(size=objective.layout.size)).lower_bound for s in (0.1, 1, 10, 1e4)]
    assert max(bounds) <= best * (1 + 1e-11) + 1e-11


def test_selected_rows_keep_their_numbers():
    prior = EarlierGaussian(np.array([0, 2, 3, 7]), np.arange(4.0), np.arange(4.0) + 1)
    fewer = prior.select(np.array([1, 3]), 2)
    assert fewer.places.tolist() == [0, 1, 3]
    assert fewer.means.tolist() == [1.0, 2.0, 3.0]
    assert fewer.information.tolist() == [2.0, 3.0, 4.0]


def test_pairs_that_the_prior_needs_are_not_left_out():
    objective = with_prior(sparse_objective(0, pairs=True), 0)
    term = objective.layout.terms[0]
    fewer = replace(term, pairs=term.pairs.select(np.arange(term.pairs.size) % 2 == 0))
    with pytest.raises(ValueError, match="but not in the new term"):
        _ = fewer.mean


def test_rounding_errors_of_the_information_do_not_matter():
    """Directions about which earlier data say nothing have the precision 1 / C, however much is known of others."""
    rng, C, size = np.random.default_rng(0), 1e4, 1e8
    Q = np.linalg.qr(rng.normal(size=(6, 6)))[0]
    precision = JointGaussian(np.arange(6), size * Q[:, :2], np.full(6, C))
    for known, lam in ((Q[:, 0], size**2 + 1 / C), (Q[:, 5], 1 / C)):
        assert precision.squared_dual_norm(known) == pytest.approx(1 / lam, rel=1e-6)
    expected = 2 * np.log(size**2 + 1 / C) - 4 * np.log(C)
    assert precision.log_determinant == pytest.approx(expected, rel=1e-9)


@pytest.mark.parametrize("seed", [1, 3])
def test_large_precisions_leave_the_dual_bound_its_digits(seed):
    objective = with_prior(sparse_objective(seed), seed, information=True)
    priors = [replace(term.penalty, information=1e12 * term.penalty.information) for term in objective.layout.terms]
    terms = [replace(term, penalty=prior) for term, prior in zip(objective.layout.terms, priors, strict=True)]
    objective = replace(objective, layout=Layout(tuple(terms)))
    ascent, progress = (
        Ascent.of(objective, np.zeros(objective.layout.size)),
        Progress(objective, 1e-9, MaxIterations(100)),
    )
    for _ in range(30):
        ascent.climb(np.random.default_rng(0), 1e-9)
    ascent.report(progress)
    minimum = objective.evaluate(dense_optimum(objective)[0]).value
    assert minimum * (1 - 1e-6) <= progress.lower_bound <= minimum * (1 + 1e-12)
