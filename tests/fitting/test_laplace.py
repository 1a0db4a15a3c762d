from dataclasses import replace

import numpy as np
import pytest
import scipy.sparse as sp
from scipy.linalg import expm

from kernelcrf import ChainCRF
from kernelcrf.datasets import make_sequences
from kernelcrf.fitting import laplace as module
from kernelcrf.fitting.curvature_diagonal import curvature_diagonal
from kernelcrf.fitting.lanczos import krylov
from kernelcrf.fitting.laplace import hessian, laplace
from kernelcrf.score.features import TokenFeatures
from kernelcrf.score.terms import TOKEN_TERM
from kernelcrf.solvers import LBFGS
from kernelcrf.solvers.loop import minimise
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


def test_the_evidence_of_single_tokens_counts_the_scores_of_first_and_last_labels():
    """The features of a token are its inputs and three ones; the Hessian is that of multinomial logistic regression."""
    rng = np.random.default_rng(0)
    y, C = rng.integers(0, 3, size=25), 2.0
    x = np.eye(3)[y][:, :2] + 0.5 * rng.normal(size=(25, 2))
    X, Y = list(x[:, None]), list(y[:, None])
    options = {"fit_intercept": "boundaries", "tol": 1e-10, "random_state": 0}
    crf = ChainCRF("linear", C=C, laplace=True, **options).fit(X, Y)
    p, features = np.concatenate(crf.predict_proba(X)), np.column_stack((x, np.ones((25, 3))))
    H = np.eye(15) / C
    for own, row in zip(features, p, strict=True):
        H += np.kron(np.outer(own, own), np.diag(row) - np.outer(row, row))
    expected = -crf.certificate_.objective - 0.5 * np.linalg.slogdet(C * H)[1]
    assert crf.log_marginal_likelihood() == pytest.approx(expected, abs=1e-6)
    best = ChainCRF("linear", C="evidence", laplace=True, **options).fit(X, Y)
    for factor in (0.8, 1.25):
        other = ChainCRF("linear", C=best.C_ * factor, laplace=True, **options).fit(X, Y)
        assert other.log_marginal_likelihood() < best.log_marginal_likelihood()


def diagonals(objective, at):
    """The approximation and the exact diagonal of the curvature of the loss."""
    exact = np.diagonal(hessian(objective, objective.evaluate(at.theta, curvature=True))) - objective.layout.lam
    return curvature_diagonal(objective, at), exact


def diagonals_of_fit(monkeypatch, X, y, **options):
    """The terms of a fit, with the approximation and the exact diagonal for their weights."""
    found = {}

    def both(objective, at):
        d, exact = diagonals(objective, at)
        found.update({name: (d[place], exact[place]) for name, place in objective.layout.slices.items()})
        return d

    monkeypatch.setattr(module, "curvature_diagonal", both)
    ChainCRF(laplace="diagonal", random_state=0, **options).fit(X, y)
    return found


def test_the_diagonal_is_exact_for_features_that_occur_once_in_a_sequence(monkeypatch):
    rows = random_objective(3, lengths=(1,) * 9, weighted=True)
    np.testing.assert_allclose(*diagonals(rows, mode(rows)), atol=1e-9)
    rng = np.random.default_rng(0)
    X = [[[f"at {t}", f"of {rng.integers(2)} at {t}"] for t in range(3)] for _ in range(20)]
    found = diagonals_of_fit(monkeypatch, X, [list(rng.permutation(list("abc"))) for _ in X], C=1.0)
    np.testing.assert_allclose(*found["node"], atol=1e-9)
    assert not np.allclose(*found["edge"], rtol=0.1)


def test_how_far_the_diagonal_is_from_the_exact_one(monkeypatch):
    """The figures are those of docs/guide/updating.md."""
    data = make_sequences(60, random_state=0)
    found = diagonals_of_fit(monkeypatch, data.X, data.y, C=10.0, n_components=60, fit_intercept=False)
    nodes, steps = ((0.1 + d) / (0.1 + exact) for d, exact in found.values())
    assert 0.8 < nodes.min() < nodes.max() < 1.2
    assert (steps.min().round(1), steps.max().round(1)) == (0.6, 1.6)
