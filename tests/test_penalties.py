"""Penalties: S is the nearest point, conjugates are maxima, gaps cover the truth on random problems."""

import numpy as np
import pytest
from scipy.optimize import minimize

import kernelcrf
from kernelcrf import ChainCRF, Input
from kernelcrf.penalties import PENALTIES, ElasticNet, Gaussian, GroupLasso, penalty_from_config
from kernelcrf.solvers import LBFGS, Proximal, minimise
from objectives import random_objective, with_penalty

EVERY = [Gaussian(), ElasticNet(0.4), GroupLasso(0.3), GroupLasso(0.2, "input")]


def a_term(seed=0):
    return random_objective(seed).layout.terms[0]


@pytest.mark.parametrize("penalty", EVERY, ids=str)
def test_shrinking_is_the_minimum_of_its_definition(penalty):
    term, rng = a_term(), np.random.default_rng(1)
    v = rng.normal(size=term.size)
    for factor in (0.5, 1.0, 3.0):
        theta = penalty.shrink(term, v, factor)

        def cost(theta, factor=factor):
            return 0.5 * np.square(theta - v).sum() + factor * penalty.extra(term, theta)

        best = minimize(cost, v, method="Powell", options={"xtol": 1e-10, "ftol": 1e-14, "maxiter": 10**5}).fun
        assert cost(theta) <= best + 1e-9


@pytest.mark.parametrize("penalty", EVERY, ids=str)
def test_the_conjugate_is_attained_at_the_primal_point(penalty):
    term, rng = a_term(), np.random.default_rng(2)
    for _ in range(20):
        g = rng.normal(size=term.size) * rng.choice([0.1, 1.0, 10.0])
        theta = penalty.primal(term, -g)
        value = -np.dot(g, theta) - penalty.value(term, theta)
        assert penalty.conjugate(term, g) == pytest.approx(value, rel=1e-12, abs=1e-12)
        others = theta + rng.normal(size=(50, term.size)) * rng.choice([1e-3, 0.1, 1.0], size=(50, 1))
        assert max(-np.dot(g, other) - penalty.value(term, other) for other in others) <= value + 1e-12


@pytest.mark.parametrize("penalty", EVERY, ids=str)
def test_the_gap_of_a_term_is_penalty_plus_conjugate(penalty):
    """Fenchel: <theta, g> + penalty(theta) + conjugate(g), for the gradient g of the loss."""
    term, rng = a_term(), np.random.default_rng(3)
    for _ in range(20):
        theta, g = rng.normal(size=(2, term.size)) * (rng.random((2, term.size)) < 0.7)
        expected = np.dot(theta, g) + penalty.value(term, theta) + penalty.conjugate(term, g)
        gap = penalty.gap(term, theta, g + theta / term.C)
        assert gap == pytest.approx(expected, rel=1e-10, abs=1e-10)


@pytest.mark.parametrize("penalty", EVERY, ids=str)
def test_the_slope_is_the_gradient_where_there_is_one(penalty):
    term, theta = a_term(), np.random.default_rng(4).normal(size=a_term().size)
    steps = 1e-6 * np.eye(term.size)
    numbers = [(penalty.extra(term, theta + step) - penalty.extra(term, theta - step)) / 2e-6 for step in steps]
    np.testing.assert_allclose(penalty.slope(term, theta), numbers, atol=1e-7)


@pytest.mark.parametrize("penalty", EVERY, ids=str)
def test_a_file_restores_the_penalty(penalty):
    assert penalty_from_config({"penalty": penalty.to_config()}) == penalty
    assert PENALTIES[penalty.name] is type(penalty)


def certify(seed):
    """One random problem: every bound on the way is below the best value, and the fit is optimal."""
    rng = np.random.default_rng(seed)
    C = tuple(10.0 ** rng.uniform(-1.5, 2, size=3))
    kind = [{}, {"weighted": True}, {"edge_inputs": 2}][seed % 3]
    objective = random_objective(seed, lengths=rng.integers(1, 6, size=8), C=C, **kind)
    penalty = GroupLasso(float(10 ** rng.uniform(-2, 0.7)), ("features", "input")[int(rng.integers(2))])
    objective = with_penalty(objective, penalty)
    start = np.zeros(objective.layout.size)
    best = minimise(objective, Proximal(), start, tol=1e-9, max_iter=5000)
    rough = minimise(objective, Proximal(), start, tol=1e-4, max_iter=1000)
    assert best.status == rough.status == "optimal"
    assert rough.certificate.lower_bound <= best.certificate.objective * (1 + 1e-9)
    assert rough.certificate.objective - best.certificate.objective <= 1.001e-4 * rough.certificate.objective
    for scale in (0.1, 1.0, 10.0):
        at = objective.evaluate(scale * rng.normal(size=objective.layout.size))
        assert at.lower_bound <= best.certificate.objective * (1 + 1e-9)
    return best


@pytest.mark.parametrize("seed", range(15))
def test_group_lasso_is_certified_on_random_problems(seed):
    certify(seed)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(15, 315))
def test_group_lasso_is_certified_on_300_random_problems(seed):
    certify(seed)


def test_elastic_net_has_the_same_optimum_by_both_solvers():
    objective = with_penalty(random_objective(1, C=(10.0, 10.0, 10.0)), ElasticNet(0.3))
    start = np.zeros(objective.layout.size)
    by_lbfgs, by_proximal = (minimise(objective, solver, start, tol=1e-9) for solver in (LBFGS(), Proximal()))
    assert by_lbfgs.certificate.objective == pytest.approx(by_proximal.certificate.objective, rel=1e-8)


RNG = np.random.default_rng(0)
Y = [RNG.choice(["a", "b", "c"], size=T).tolist() for T in RNG.integers(2, 7, size=40)]
ONE = {"a": [1.0, 0.0, 0.0], "b": [0.0, 1.0, 0.0], "c": [0.0, 0.0, 1.0]}
X = [np.hstack([[ONE[label] for label in y], RNG.normal(size=(len(y), 4))]) for y in Y]


def test_features_drop_out_and_the_file_keeps_the_penalty(tmp_path):
    crf = ChainCRF("linear", C=10.0, penalty=GroupLasso(2.0)).fit(X, Y)
    assert crf.certificate_.status == "optimal"
    assert crf.coef_.any(axis=1).tolist() == [True] * 3 + [False] * 4
    crf.save(tmp_path / "model")
    loaded = kernelcrf.load(tmp_path / "model")
    assert loaded.penalty == GroupLasso(2.0)
    np.testing.assert_array_equal(loaded.coef_, crf.coef_)


def test_whole_inputs_drop_out():
    inputs = {"good": Input("rbf", columns=slice(0, 3)), "noise": Input("rbf", columns=slice(3, 7))}
    crf = ChainCRF(inputs=inputs, C=10.0, penalty=GroupLasso(1.0, "input")).fit(X, Y)
    good, noise = (one.coef for one in crf.model_.token_inputs)
    assert good.any()
    assert not noise.any()


def test_groups_of_features_need_linear_kernels():
    with pytest.raises(ValueError, match="kernel='linear'"):
        ChainCRF("rbf", C=1.0, penalty=GroupLasso(0.1)).fit(X, Y)
