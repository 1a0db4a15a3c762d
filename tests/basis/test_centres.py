"""Rules whose atoms are means."""

import numpy as np
import pytest
import scipy.sparse as sp
from sklearn.cluster import KMeans as FullKMeans

from bases import KERNELS, inputs
from kernelcrf.basis.centres import KMeans, Lloyd, _lloyd_step
from kernelcrf.basis.choice import choose_basis
from kernelcrf.engines.local import LocalEngine


def test_a_step_is_scikit_learns():
    X = inputs(3000)
    start = X[:20]
    none = np.empty((0, X.shape[1]))
    ours = _lloyd_step(X, _lloyd_step(X, start, none, LocalEngine()), none, LocalEngine(2))
    theirs = FullKMeans(20, init=start, n_init=1, max_iter=2, tol=0, algorithm="lloyd")
    theirs.fit(X)
    np.testing.assert_allclose(ours, theirs.cluster_centers_, atol=1e-12)


def test_fixed_points_keep_their_cells_and_a_centre_without_rows_stays():
    X = np.array([[0.0], [0.2], [1.0], [1.2]])
    moved = _lloyd_step(X, np.array([[0.9], [50.0]]), np.array([[0.0]]), LocalEngine())
    np.testing.assert_allclose(moved, [[1.1], [50.0]])


@pytest.mark.parametrize("rule", [KMeans(), Lloyd()])
def test_means_leave_less_than_draws_on_a_smooth_kernel(rule):
    X = np.random.default_rng(0).normal(size=(2000, 6))
    kernel = KERNELS["rbf"]
    left = {
        name: np.mean([choose_basis(kernel, X, 100, r, random_state=s).relative_residual for s in range(3)])
        for name, r in [("means", rule), ("random", "random"), ("uniform", "uniform")]
    }
    assert left["means"] < 0.95 * min(left["random"], left["uniform"])


def test_lloyd_finds_small_clusters():
    """A crowd and forty clusters of five far from it: equal draws and kmeans miss most of them."""
    rng = np.random.default_rng(0)
    X = np.vstack([0.3 * rng.normal(size=(3800, 6)), np.repeat(5 * rng.normal(size=(40, 6)), 5, axis=0)])
    X[3800:] += 0.05 * rng.normal(size=(200, 6))
    left = {
        rule: choose_basis(KERNELS["rbf"], X, 120, rule, random_state=0).relative_residual
        for rule in ("lloyd", "uniform", "kmeans")
    }
    assert left["lloyd"] < 0.4 * min(left["uniform"], left["kmeans"])


def test_a_sample_serves_as_well_as_all_rows():
    X = np.random.default_rng(0).normal(size=(6000, 6))
    sampled = choose_basis(KERNELS["rbf"], X, 60, Lloyd(), random_state=0).relative_residual
    full = choose_basis(KERNELS["rbf"], X, 60, Lloyd(rows=200, start_rows=200), random_state=0).relative_residual
    assert sampled < 1.05 * full


@pytest.mark.parametrize("rule", ["kmeans", "lloyd"])
def test_where_means_make_no_sense_the_rule_says_so(rule):
    with pytest.raises(TypeError, match=rf"X is sparse, but the rule '{rule}' computes means.*: use the rule 'random'"):
        choose_basis(KERNELS["rbf"], sp.csr_array(inputs(30)), 3, rule)
    with pytest.raises(TypeError, match=rf"callable.*the rule '{rule}' computes means.*use the rule 'random'"):
        choose_basis(KERNELS["callable"], inputs(30), 3, rule)
