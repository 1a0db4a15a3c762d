import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kernelcrf.certificate import Certificate, residual_products
from kernelcrf.engines.local import LocalEngine
from kernelcrf.kernels.inputs import InputKernel
from kernelcrf.solvers import SOLVERS, Newton
from kernelcrf.solvers.loop import minimise
from objectives import entropy_side, gradient_side, look_ahead, random_objective


@given(st.integers(0, 10_000), st.sampled_from([0.1, 1.0, 5.0]), st.booleans())
def test_the_two_sides_of_lemma_9_are_equal(seed, scale, weighted):
    objective = random_objective(
        seed, weighted=weighted, edge_inputs=seed % 2, second=(None, "dense", "sparse")[seed % 3]
    )
    at = objective.evaluate(scale * np.random.default_rng(seed).normal(size=objective.layout.size))
    gradient, entropy = gradient_side(objective, at), entropy_side(objective, at)
    assert gradient == pytest.approx(entropy, rel=1e-9)
    assert gradient == pytest.approx(at.lower_bound, rel=1e-12)


@settings(max_examples=6)
@given(st.integers(0, 10_000), st.sampled_from(sorted(set(SOLVERS) - {"dual"})), st.sampled_from([0.3, 3.0]))
def test_at_every_iterate_the_gap_is_at_least_the_truth(seed, name, strength):
    objective = random_objective(seed, strength=strength, weighted=bool(seed % 2), second=(None, "sparse")[seed % 2])
    start = np.random.default_rng(seed).normal(size=objective.layout.size)
    optimum = minimise(objective, Newton(), start, tol=1e-13).certificate.objective
    run = minimise(objective, SOLVERS[name](), start, tol=1e-8, max_iter=400)
    assert run.status == "optimal"
    for record in run.history:
        assert record.gap >= record.value - optimum - 1e-9 * abs(optimum)
        assert record.lower_bound <= optimum + 1e-9 * abs(optimum)


@given(st.integers(0, 10_000))
def test_a_newton_step_ahead_the_bound_is_close_to_the_truth(seed):
    objective = random_objective(seed)
    start = np.zeros(objective.layout.size)
    optimum = minimise(objective, Newton(), start, tol=1e-13).certificate.objective
    rough = minimise(objective, SOLVERS["newton-cg"](), start, tol=1e-3)
    at = objective.evaluate(rough.theta, curvature=True)
    truth = at.value - optimum
    ahead = at.value - max(rough.certificate.lower_bound, look_ahead(objective, at, tol=1e-6))
    assert truth - 1e-10 <= ahead <= 2 * truth + 1e-9
    assert ahead <= at.value - at.lower_bound + 1e-12


@settings(max_examples=8)
@given(st.integers(0, 10_000), st.sampled_from([0.1, 1.0, 5.0]))
def test_looking_ahead_is_never_worse_than_lemma_9_at_the_point_itself(seed, scale):
    objective = random_objective(seed, strength=3.0)
    start = scale * np.random.default_rng(seed).normal(size=objective.layout.size)
    at = objective.evaluate(start, curvature=True)
    optimum = minimise(objective, Newton(), start, tol=1e-13).certificate.objective
    assert at.lower_bound <= look_ahead(objective, at) <= optimum + 1e-9 * abs(optimum)


def test_a_gap_below_zero_raises_and_rounding_does_not():
    assert Certificate(1.0, 1.0 + 1e-12, "optimal").gap_in_span < 0
    with pytest.raises(ArithmeticError, match=r"gap_in_span is -0\.1"):
        Certificate(1.0, 1.1, "optimal")
    with pytest.raises(ArithmeticError, match="gap_full"):
        Certificate(1.0, 0.5, "optimal", gap_full=-0.2)


def test_products_out_of_the_span_in_blocks_equal_the_dense_matrix(monkeypatch):
    rng = np.random.default_rng(0)
    X, R = rng.normal(size=(53, 3)), rng.normal(size=(53, 4))
    kernel = InputKernel("rbf", gamma=0.5)
    K = kernel.gram(X)
    L = np.linalg.cholesky(K[:9, :9])
    F = np.linalg.solve(L, K[:9]).T
    E = K - F @ F.T
    monkeypatch.setattr("kernelcrf.certificate.GRAM_ROWS", 10)
    for n_jobs in (1, 2):
        np.testing.assert_allclose(residual_products(kernel, X, F, R, LocalEngine(n_jobs)), E @ R, atol=1e-10)


def test_the_bound_of_a_template_is_what_adding_it_cannot_exceed():
    """Solve without transitions, bound what they can bring (Remark 11), then solve with them."""
    whole = random_objective(3, lengths=(6,) * 12, n_parts=1)
    terms = [term for term in whole.layout.terms if term.name != "edge"]
    without = type(whole)(type(whole.layout)(tuple(terms)), whole.partitions, whole.engine)
    at = minimise(without, Newton(), np.zeros(without.layout.size), tol=1e-12).evaluation
    edge = next(term for term in whole.layout.terms if term.name == "edge")
    weights = without.layout.split(at.theta) | {"edge": np.zeros(edge.shape)}
    q = sum(local.residuals.q for local in whole.evaluate(whole.layout.join(weights)).parts)
    bound = 0.5 * edge.penalty.squared_dual_norm(edge, q.ravel())
    better = minimise(whole, Newton(), np.zeros(whole.layout.size), tol=1e-12).certificate.objective
    assert 0 < at.value - better <= bound + 1e-9


def test_gaps_are_those_of_their_formulas():
    certificate = Certificate(-4.0, -5.0, "optimal")
    assert (certificate.gap_in_span, certificate.relative_gap) == (1.0, 0.25)
