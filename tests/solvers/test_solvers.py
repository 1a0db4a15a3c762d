import itertools
from dataclasses import replace

import numpy as np
import pytest
from sklearn.gaussian_process import GaussianProcessClassifier
from sklearn.gaussian_process.kernels import RBF
from sklearn.linear_model import LogisticRegression

from chain_fits import fit_chain
from kernelcrf.engines.local import LocalEngine
from kernelcrf.fitting.sequences import LabelledSequences
from kernelcrf.graphs.structure import Chains
from kernelcrf.kernels.inputs import InputKernel
from kernelcrf.objective import Objective
from kernelcrf.partitions.chains import ChainPartition
from kernelcrf.score.features import TokenFeatures
from kernelcrf.solvers import LBFGS, SOLVERS, BlockJacobi, Newton, NewtonCG, find_solver
from kernelcrf.solvers.linear_systems import GROWTH, lower_factor
from kernelcrf.solvers.loop import minimise
from objectives import random_objective

# The dual one takes other problems, and has its own file.
EVERY = sorted(set(SOLVERS) - {"dual"})


@pytest.mark.few
@pytest.mark.parametrize("seed", range(2))
@pytest.mark.parametrize("kind", [{}, {"edge_inputs": 2}, {"label_kernel": "centred", "weighted": True}])
def test_all_solvers_find_the_same_optimum(seed, kind):
    objective = random_objective(seed, **kind)
    start = np.zeros(objective.layout.size)
    best = minimise(objective, Newton(), start, tol=1e-14)
    for name in EVERY:
        found = minimise(objective, SOLVERS[name](), start, tol=1e-14, max_iter=2000)
        assert found.certificate.relative_gap < 1e-13, name
        np.testing.assert_allclose(found.theta, best.theta, atol=1e-6, err_msg=name)


@pytest.mark.parametrize("kind", [{}, {"edge_inputs": 2, "weighted": True}])
def test_the_optimum_is_an_expansion_in_the_features_of_all_labelings(kind):
    """(16) and Corollary 8: theta = C sum_iy alpha_iy Phi(x_i, y) with alpha_iy = omega_i ([y = y_i] - p(y|x_i))."""
    objective = random_objective(2, lengths=(3, 1, 2), n_parts=1, **kind)
    layout, partition = objective.layout, objective.partitions[0]
    theta = minimise(objective, Newton(), np.zeros(layout.size), tol=1e-14).theta
    tables, expansion = [partition.scores(layout, e) for e in np.eye(layout.size)], np.zeros(layout.size)
    for i, (low, high) in enumerate(itertools.pairwise(partition.chains.offsets)):
        y = np.array(list(itertools.product(range(3), repeat=high - low)))
        t = np.arange(high - low)
        Phi = np.empty((len(y), layout.size))
        for k, (s, w) in enumerate(tables):
            steps = w[low:high] if w.ndim == 3 else np.broadcast_to(w, (high - low, *w.shape))
            Phi[:, k] = s[low:high][t, y].sum(axis=1) + steps[t[1:], y[:, :-1], y[:, 1:]].sum(axis=1)
        p = np.exp(Phi @ theta)
        alpha = (y == partition.labels[low:high]).all(axis=1) - p / p.sum()
        expansion += (1.0 if partition.weights is None else partition.weights[i]) * (alpha @ Phi)
    np.testing.assert_allclose(layout.times_lam(theta), expansion, atol=1e-7)


@pytest.mark.parametrize("name", EVERY)
def test_weights_have_no_part_that_is_penalised_without_changing_a_score(name):
    objective = random_objective(0, label_kernel="centred")
    part = objective.partitions[0]
    heavy = replace(part, weights=10.0 ** np.linspace(-6, 6, part.chains.n_samples))
    objective = replace(objective, partitions=[heavy])
    # Rounding of a gradient of 1e6 shows in directions of curvature 1, and a start may have any weights.
    start = np.random.default_rng(0).normal(size=objective.layout.size)
    found = minimise(objective, SOLVERS[name](), start, tol=1e-3, max_iter=5)
    W = next(iter(objective.layout.split(found.theta).values()))
    assert np.abs(W.mean(axis=1)).max() < 1e-14 * np.abs(W).max()


@pytest.mark.parametrize("n", [70, 5], ids=["kronecker", "per label"])
def test_preconditioned_solvers_are_exact_whatever_the_preconditioner(n):
    objective = random_objective(1, n=n, lengths=(5, 4, 3, 7) * 5, strength=2.0)
    start = np.zeros(objective.layout.size)
    best = minimise(objective, Newton(), start, tol=1e-13).certificate.objective
    for solver in (NewtonCG(), LBFGS(), LBFGS(precondition=False)):
        found = minimise(objective, solver, start, tol=1e-10).certificate.objective
        assert found == pytest.approx(best, rel=1e-10), solver


def badly_scaled(objective):
    """The same with features of sizes from 1/30 to 30."""
    parts = []
    for one in objective.partitions:
        F = one.features["node"].F
        scaled = TokenFeatures(F * np.geomspace(1 / 30, 30, F.shape[1]))
        parts.append(replace(one, features={"node": scaled}))
    return Objective(objective.layout, parts, objective.engine)


def test_a_preconditioner_saves_iterations():
    objective = badly_scaled(random_objective(1, n=12, lengths=(5, 4, 3, 7) * 5, strength=2.0))
    start = np.zeros(objective.layout.size)
    taken = [
        minimise(objective, LBFGS(precondition=one), start, tol=1e-8, max_iter=9999).n_iter for one in (True, False)
    ]
    assert 2 * taken[0] < taken[1]


def test_lbfgs_counts_its_evaluations(monkeypatch):
    objective, calls = random_objective(1), []
    evaluate = Objective.evaluate
    monkeypatch.setattr(Objective, "evaluate", lambda *given, **named: calls.append(1) or evaluate(*given, **named))
    found = minimise(objective, LBFGS(), np.zeros(objective.layout.size), tol=1e-8)
    assert found.history[0].passes == 1
    assert found.history[-1].passes == len(calls)


def sticky_labels(n_sequences, length, stay, seed):
    """Chains of two labels that stay as they are with a high probability, and inputs that tell little."""
    rng = np.random.default_rng(seed)
    changes = rng.random((n_sequences, length)) > stay
    changes[:, 0] = rng.integers(2, size=n_sequences)
    labels = (changes.cumsum(axis=1) % 2).astype(np.int32).ravel()
    F = rng.normal(size=(labels.size, 2)) + (labels - 0.5)[:, None]
    return ChainPartition(Chains.from_lengths([length] * n_sequences), 2, labels, {"node": TokenFeatures(F)})


def test_block_jacobi_converges_where_its_undamped_steps_diverge():
    """Labels that move together: the blocks see a fraction of the curvature."""
    layout = random_objective(0, n_labels=2, n=2, C=(1.0, 1.0, 1.0)).layout
    objective = Objective(layout, [sticky_labels(20, 30, 0.98, seed=0)], LocalEngine(1))
    solver, start = BlockJacobi(rtol=1e-8), np.zeros(layout.size)
    optimum = minimise(objective, Newton(), start, tol=1e-12).certificate.objective
    theta = start
    for _ in range(15):
        at = objective.evaluate(theta)
        theta = theta + solver.direction(objective, at)[0]
    assert at.value > 100 * optimum
    damped = minimise(objective, BlockJacobi(), start, tol=1e-6, max_iter=1000)
    assert damped.status == "optimal"
    assert damped.certificate.objective == pytest.approx(optimum, rel=1e-6)


@pytest.mark.parametrize("name", EVERY)
def test_chains_of_one_token_are_logistic_regression(name):
    rng = np.random.default_rng(2)
    X, y = rng.normal(size=(120, 5)), rng.integers(3, size=120)
    y[X[:, 0] > 0.5] = 2
    reference = LogisticRegression(C=0.8, fit_intercept=False, tol=1e-12, max_iter=10_000).fit(X, y)
    data = LabelledSequences(X, Chains.from_lengths([1] * 120), y.astype(np.int32), 3)
    ours = fit_chain(data, InputKernel("linear"), C=0.8, solver=name, tol=1e-12, max_iter=5000)
    np.testing.assert_allclose(ours.weights["node"].T, reference.coef_, atol=1e-5)


def test_chains_of_one_token_and_two_labels_are_the_mode_of_gp_classification():
    """With scores +-f/2 of two labels, f has twice the prior variance of a label's own score: C = 1/2."""
    rng = np.random.default_rng(3)
    X = rng.normal(size=(80, 2))
    y = (np.sin(2 * X[:, 0]) + X[:, 1] + 0.3 * rng.normal(size=80) > 0).astype(np.int32)
    length = 0.9
    gp = GaussianProcessClassifier(RBF(length), optimizer=None, max_iter_predict=1000).fit(X, y)
    new = rng.normal(size=(30, 2))
    k_star = gp.kernel_(X, new)
    expected = k_star.T @ (gp.base_estimator_.y_train_ - gp.base_estimator_.pi_)
    data = LabelledSequences(X, Chains.from_lengths([1] * 80), y, 2)
    kernel = InputKernel("rbf", gamma=1 / (2 * length**2))
    ours = fit_chain(data, kernel, C=0.5, tol=1e-13)
    scores = ours.maps["node"].transform(new) @ ours.weights["node"]
    np.testing.assert_allclose(scores[:, 1] - scores[:, 0], expected, atol=1e-5)


def test_missing_labels_are_fitted_to_a_stationary_point():
    objective = random_objective(4, missing=0.5, lengths=(5,) * 10)
    for name in EVERY:
        found = minimise(objective, SOLVERS[name](), np.zeros(objective.layout.size), tol=1e-8, max_iter=3000)
        assert found.status == "stationary", name
        assert np.abs(found.evaluation.gradient).max() < 1e-2
        assert found.certificate.lower_bound == -np.inf
        values = [record.value for record in found.history]
        assert all(b <= a + 1e-9 * abs(a) for a, b in itertools.pairwise(values)), name


@pytest.mark.parametrize("name", EVERY)
def test_a_run_out_of_iterations_says_so_and_keeps_its_bound(name):
    objective = random_objective(5, strength=3.0, lengths=(9,) * 10)
    found = minimise(objective, SOLVERS[name](), np.zeros(objective.layout.size), tol=1e-14, max_iter=2)
    assert found.status == "max_iter"
    assert found.n_iter == 2
    assert found.certificate.gap_in_span > 0


@pytest.mark.parametrize("name", EVERY)
def test_asking_for_more_than_rounding_allows_ends_cleanly(name):
    objective = random_objective(6)
    found = minimise(objective, SOLVERS[name](), np.zeros(objective.layout.size), tol=1e-300, max_iter=3000)
    assert found.status in ("stalled", "optimal", "max_iter")
    assert abs(found.certificate.relative_gap) < 1e-9


@pytest.mark.parametrize("name", EVERY)
def test_an_interrupt_keeps_the_best_point(name):
    objective = random_objective(7, strength=3.0)
    seen = []

    def interrupt(record):
        seen.append(record)
        if len(seen) == 3:
            raise KeyboardInterrupt

    found = minimise(
        objective, SOLVERS[name](), np.zeros(objective.layout.size), tol=1e-15, callback=interrupt, max_iter=500
    )
    assert found.status == "interrupted"
    assert found.certificate.objective == min(record.value for record in found.history)


def test_history_is_a_record_of_the_run():
    objective = random_objective(8)
    found = minimise(objective, NewtonCG(), np.zeros(objective.layout.size), tol=1e-8)
    passes, seconds = zip(*((record.passes, record.seconds) for record in found.history), strict=True)
    assert passes[0] == 1
    assert sorted(passes) == list(passes)
    assert sorted(seconds) == list(seconds)
    bounds = [record.lower_bound for record in found.history]
    assert sorted(bounds) == bounds
    assert found.history[-1].relative_gap <= 1e-8


def test_what_does_not_fit_is_refused_before_it_starts():
    large = random_objective(9, n=700, lengths=(2,))
    with pytest.raises(ValueError, match=r"solver='newton' would form the Hessian of 2112 parameters.*'newton-cg'"):
        minimise(large, Newton(), np.zeros(large.layout.size))
    with pytest.raises(ValueError, match="solver='adam': expected 'auto', 'newton-cg', 'newton'"):
        find_solver("adam", large)
    with pytest.raises(ValueError, match=r"tol=0\.0: expected a finite number above 0"):
        minimise(large, NewtonCG(), np.zeros(large.layout.size), tol=0.0)


@pytest.mark.usefixtures("two_threads_of_blas")
def test_the_number_of_threads_changes_no_bit_of_a_solution():
    results = []
    for n_jobs in (1, 2):
        objective = random_objective(10, n=80, lengths=tuple(range(1, 40)), n_parts=7, n_jobs=n_jobs)
        for name in ("newton-cg", "lbfgs"):
            results.append(minimise(objective, SOLVERS[name](), np.zeros(objective.layout.size), tol=1e-6).theta)
    np.testing.assert_array_equal(results[0], results[2])
    np.testing.assert_array_equal(results[1], results[3])


@pytest.mark.parametrize("solver", EVERY)
def test_blocks_that_rounding_makes_indefinite(solver):
    """A common offset of 1e8: the small eigenvalues of F' D F drown in the rounding of the large one."""
    rng = np.random.default_rng(0)
    labels = rng.integers(3, size=40).astype(np.int32)
    X = 1e8 + np.eye(3)[labels] + rng.normal(size=(40, 3))
    data = LabelledSequences(X, Chains.from_lengths([10] * 4), labels, 3)
    certificate = fit_chain(data, InputKernel("linear"), C=1e4, solver=solver, max_iter=30).certificate
    assert certificate.lower_bound <= certificate.objective
    assert np.isfinite(certificate.lower_bound)


def test_a_factor_is_that_of_the_matrix_or_of_one_near_it():
    A = np.random.default_rng(0).normal(size=(6, 6))
    for M in (A @ A.T, A @ A.T + 10 * np.eye(len(A))):
        np.testing.assert_allclose(lower_factor(M), np.linalg.cholesky(M), rtol=1e-12)
    M = A[:, :3] @ A[:, :3].T - 1e-15 * np.eye(6)
    E = lower_factor(M)
    assert np.abs(E @ E.T - M).max() < 1e-12 * np.trace(M)
    for far in (-np.eye(3), np.full((2, 2), np.nan)):
        with pytest.raises(ValueError, match="scale the inputs"):
            lower_factor(far)


def test_a_factor_allows_for_the_precision_of_the_scores():
    M = np.diag([2.4, 0.003, -0.007])
    with pytest.raises(ValueError, match="rounding errors are too large"):
        lower_factor(M)
    E = lower_factor(M, np.float32)
    assert np.abs(E @ E.T - M).max() <= GROWTH * 0.007


def test_a_solver_that_calls_a_point_optimal_is_not_believed():
    class Boastful:
        def check(self, objective):
            pass

        def solve(self, start, progress):
            progress.observe(progress.objective.evaluate(start), 0.0)
            return "optimal"

    objective = random_objective(3)
    far = minimise(objective, Boastful(), np.ones(objective.layout.size), tol=1e-6)
    assert far.status == "stalled"
    optimum = minimise(objective, SOLVERS["newton"](), np.zeros(objective.layout.size), tol=1e-9).theta
    assert minimise(objective, Boastful(), optimum, tol=1e-6).status == "optimal"
