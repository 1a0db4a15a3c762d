from dataclasses import replace

import numpy as np
import pytest
import scipy.sparse as sp
from scipy.linalg import expm

from kernelcrf.fitting.lanczos import krylov
from kernelcrf.fitting.laplace import hessian, laplace
from kernelcrf.partitions.features import TokenFeatures
from kernelcrf.solvers import LBFGS
from kernelcrf.solvers.loop import minimise
from kernelcrf.terms import TOKEN_TERM
from objectives import enumerated_value, random_objective

KINDS = {
    "chains": {},
    "weights, edges with inputs": {"edge_inputs": 2, "weighted": True},
    "centred labels": {"label_kernel": "centred"},
    "labels that share": {"label_kernel": [[2.0, 1.0, 0.0], [1.0, 2.0, 0.0], [0.0, 0.0, 1.0]]},
    "two inputs": {"second": "sparse"},
}


def mode(objective):
    return minimise(objective, LBFGS(), np.zeros(objective.layout.size), tol=1e-11, max_iter=3000).evaluation


def oracle(objective, at):
    """Evidence and covariance from the Hessian by differences of the gradient, nothing else."""
    size, h = objective.layout.size, 1e-4
    columns = [
        (objective.evaluate(at.theta + h * e).gradient - objective.evaluate(at.theta - h * e).gradient) / (2 * h)
        for e in np.eye(size)
    ]
    H = np.column_stack(columns)
    lam = objective.layout.times_lam(np.ones(size))
    inner = np.eye(size) + (H - np.diag(lam)) / np.sqrt(np.outer(lam, lam))
    evidence = -enumerated_value(objective, at.theta) - 0.5 * np.linalg.slogdet(inner)[1]
    return evidence, np.linalg.inv((H + H.T) / 2), lam


@pytest.mark.parametrize("kind", KINDS.values(), ids=KINDS.keys())
def test_the_exact_evidence_is_that_of_the_formula(kind):
    objective = random_objective(3, n_parts=2, **kind)
    at = mode(objective)
    evidence, covariance, lam = oracle(objective, at)
    found = laplace(objective, at)
    assert found.error == 0.0
    assert found.log_evidence == pytest.approx(evidence, abs=1e-5)
    assert found.n_effective == pytest.approx(len(lam) - np.trace(covariance * lam), abs=1e-5)
    for part in objective.layout.slices.values():
        np.testing.assert_allclose(found.posterior.covariance(part), covariance[part, part], atol=1e-7)


def test_the_evidence_of_few_weights_is_near_the_integral():
    """Three weights: one label against another, by sums over a grid of the exact posterior."""
    objective = random_objective(0, n_labels=2, n=1, lengths=(1,) * 40, C=(1.0, 1.0, 1e-6), n_parts=1)
    found = laplace(objective, mode(objective))
    # Only the difference of the two labels' weights has a likelihood; along it the prior variance is 2 C.
    grid = np.linspace(-8, 8, 801)
    theta = np.zeros(objective.layout.size)
    node = objective.layout.slices["node"]

    def log_joint(f):
        theta[node] = -f / 2, f / 2
        return -objective.evaluate(theta).value - 0.5 * np.log(2 * np.pi * 2.0)

    values = np.array([log_joint(f) for f in grid])
    exact = np.log(np.exp(values - values.max()).sum() * (grid[1] - grid[0])) + values.max()
    assert found.log_evidence == pytest.approx(exact, abs=0.02)


@pytest.mark.parametrize("weighted", [False, True])
def test_on_single_nodes_gram_matrices_are_the_hessian(weighted):
    objective = random_objective(4, n_labels=4, n=6, lengths=(1, 0, 1, 1, 1, 1, 1), n_parts=2, weighted=weighted)
    without_bias = type(objective)(
        type(objective.layout)(objective.layout.terms[:2]), objective.partitions, objective.engine
    )
    size = without_bias.layout.size
    at = without_bias.evaluate(np.random.default_rng(0).normal(size=size), curvature=True)
    expected = np.column_stack([without_bias.hessian_product(at, e) for e in np.eye(size)])
    np.testing.assert_allclose(hessian(without_bias, at), expected, atol=1e-12)


@pytest.mark.parametrize("n", [70, 20], ids=["kronecker", "per label"])
@pytest.mark.parametrize("strength", [0.5, 3.0])
def test_the_sampled_evidence_is_within_three_standard_errors(n, strength):
    objective = random_objective(n, n=n, lengths=(5, 9, 3, 7) * 8, strength=strength)
    at = mode(objective)
    exact, sampled = laplace(objective, at), laplace(objective, at, most_exact=0, n_draws=16, seed=0)
    assert 0 < sampled.error < 0.02 * abs(exact.log_evidence)
    assert abs(sampled.log_evidence - exact.log_evidence) < 3 * sampled.error
    assert sampled.n_effective == pytest.approx(exact.n_effective, rel=0.1)


def test_draws_have_the_covariance_of_the_posterior():
    objective = random_objective(1, n=3, n_labels=2, lengths=(6, 5), n_parts=1)
    at = mode(objective)
    exact, rng = laplace(objective, at).posterior, np.random.default_rng(0)
    whole = slice(0, objective.layout.size)
    expected = exact.covariance(whole)
    spread = np.sqrt(np.outer(np.diag(expected), np.diag(expected)))
    sampled = laplace(objective, at, most_exact=0, n_draws=300).posterior
    for drawn in (exact.deviations(300, rng), sampled.deviations(300, rng)):
        assert np.abs((drawn.T @ drawn / 300 - expected) / spread).max() < 0.3
    with pytest.raises(ValueError, match=r"n_samples=301: expected at most 300"):
        sampled.deviations(301, rng)


def test_single_precision_that_hides_definiteness_does_not_break_the_factor():
    objective = random_objective(2, n=30, lengths=(4,) * 30, strength=100.0, C=(1e4, 1.0, 1.0), n_parts=1)
    partition = objective.partitions[0]
    single = type(partition.features["node"])(partition.features["node"].F.astype(np.float32))
    rounded = type(objective)(
        objective.layout,
        [type(partition)(partition.chains, 3, partition.labels, {"node": single})],
        objective.engine,
    )
    theta = np.random.default_rng(0).normal(size=objective.layout.size) / 100
    a, b = (laplace(o, o.evaluate(theta)) for o in (objective, rounded))
    assert b.log_evidence == pytest.approx(a.log_evidence, rel=5e-2)


def test_sparse_features_that_never_occur_leave_the_evidence_of_the_other_terms():
    objective = random_objective(0, n_parts=1, strength=0.0)
    part, dense = objective.partitions[0], laplace(objective, mode(objective))
    empty = TokenFeatures(sp.csr_matrix(part.features[TOKEN_TERM].F))
    empty.F.eliminate_zeros()
    sparse = replace(objective, partitions=[replace(part, features={TOKEN_TERM: empty})])
    assert laplace(sparse, mode(sparse)).log_evidence == pytest.approx(dense.log_evidence, rel=1e-9)


def test_missing_labels_have_no_evidence():
    objective = random_objective(0, missing=0.5)
    with pytest.raises(ValueError, match="can only be computed if all labels are observed"):
        laplace(objective, objective.evaluate(np.zeros(objective.layout.size)))


def test_functions_of_a_matrix_by_lanczos():
    rng = np.random.default_rng(0)
    A = rng.normal(size=(60, 60))
    S = np.eye(60) + A @ A.T / 60
    z = rng.normal(size=60)
    found = krylov(lambda v: S @ v, z, rtol=1e-12)
    np.testing.assert_allclose(found.apply(lambda x: np.exp(-x)), expm(-S) @ z, atol=1e-10)
    assert found.quadrature(lambda x: 1 / x) * z @ z == pytest.approx(z @ np.linalg.solve(S, z), rel=1e-10)
    few = krylov(lambda v: np.where(np.arange(60) < 20, 2.0, 5.0) * v, z, rtol=0.0)
    assert len(few.V) == 2
