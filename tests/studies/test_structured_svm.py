"""studies/accuracy/structured_svm.py, beside enumeration, and beside the support vector machine of single tokens."""

from itertools import product

import numpy as np
import pytest
from scipy.optimize import minimize
from sklearn.svm import LinearSVC

from studies.accuracy.structured_svm import StructuredSVM

N_LABELS, LENGTHS = 3, np.array([3, 1, 4, 2])


@pytest.fixture(scope="module")
def data():
    rng = np.random.default_rng(0)
    return rng.normal(size=(LENGTHS.sum(), 2)), rng.integers(N_LABELS, size=LENGTHS.sum())


def features(F, labels):
    """Phi(x, y) of one sequence, as one vector."""
    W, T = np.zeros((F.shape[1], N_LABELS)), np.zeros((N_LABELS, N_LABELS))
    for t, label in enumerate(labels):
        W[:, label] += F[t]
        if t:
            T[labels[t - 1], label] += 1
    return np.concatenate([W.ravel(), T.ravel()])


def enumerated(F, y):
    """For each sequence, the loss of every labelling, and its features less those of the true one."""
    found, start = [], 0
    for n in LENGTHS:
        x, true = F[start : start + n], y[start : start + n]
        labellings = [np.array(one) for one in product(range(N_LABELS), repeat=n)]
        differences = np.array([features(x, one) - features(x, true) for one in labellings])
        found.append((np.array([(one != true).sum() for one in labellings]), differences))
        start += n
    return found


def objective(theta, parts, C):
    return theta @ theta / (2 * C) + sum((loss + difference @ theta).max() for loss, difference in parts)


@pytest.mark.parametrize("C", [0.1, 3.0])
def test_the_objective_is_that_of_enumeration_and_the_gap_bounds_the_distance_to_the_optimum(data, C):
    F, y = data
    parts = enumerated(F, y)
    svm = StructuredSVM(N_LABELS, C=C, tol=1e-2).fit(F, y, LENGTHS)
    theta = np.concatenate([svm.W.ravel(), svm.T.ravel()])
    assert svm.bounds.objective == pytest.approx(objective(theta, parts, C), rel=1e-12)
    # The same problem as a quadratic program, with a slack variable for each sequence.
    constraints = [
        {
            "type": "ineq",
            "fun": lambda v, i=i, a=loss, B=difference: v[len(theta) + i] - a - B @ v[: len(theta)],
            "jac": lambda v, i=i, B=difference: np.hstack([-B, np.tile(np.eye(len(parts))[i], (len(B), 1))]),
        }
        for i, (loss, difference) in enumerate(parts)
    ]
    start = np.concatenate([theta, [(a + B @ theta).max() for a, B in parts]])
    solved = minimize(
        lambda v: v[: len(theta)] @ v[: len(theta)] / (2 * C) + v[len(theta) :].sum(), start,
        jac=lambda v: np.concatenate([v[: len(theta)] / C, np.ones(len(parts))]),
        constraints=constraints, method="SLSQP", options={"ftol": 1e-12, "maxiter": 500},
    )  # fmt: skip
    assert solved.success
    assert svm.bounds.lower_bound <= solved.fun * (1 + 1e-9)
    assert solved.fun <= svm.bounds.objective * (1 + 1e-9)
    assert 0 < svm.bounds.relative_gap <= 1e-2


def test_sequences_of_one_token_are_the_machine_of_crammer_and_singer():
    rng = np.random.default_rng(1)
    F = rng.normal(size=(60, 3))
    y = (F + rng.normal(scale=0.5, size=F.shape)).argmax(axis=1)
    svm = StructuredSVM(N_LABELS, C=0.5, tol=1e-4, max_passes=3000).fit(F, y, np.ones(60, int))
    other = LinearSVC(multi_class="crammer_singer", C=0.5, fit_intercept=False, tol=1e-6, max_iter=100_000).fit(F, y)
    assert svm.bounds.relative_gap <= 1e-4
    np.testing.assert_array_equal(svm.T, 0.0)
    np.testing.assert_allclose(svm.W, other.coef_.T, atol=0.02)
