"""F F' exceeds K by rounding alone: over kernels, rules, precisions and inputs that are all but equal."""

import numpy as np
import pytest
import scipy.sparse as sp
from scipy.spatial.distance import cdist

from bases import KERNELS, MEANS, RULES, SPARSE, VECTORIAL, rules
from clusters import Inline
from kernelcrf.basis import factor
from kernelcrf.basis.choice import choose_basis
from kernelcrf.basis.features import WhitenedMap
from kernelcrf.basis.pivots import Uniform, drive
from kernelcrf.datasets import make_sequences
from kernelcrf.distributed.basis import DistributedBasisBuilder, find_new_inputs
from kernelcrf.fitting.corpus import residual_of
from kernelcrf.kernels.inputs import InputKernel

U = 80
UNIT = 2.0**-24


def in_plane():
    return np.vstack(make_sequences(60, random_state=0).X)


def copies(distance, scale=1.0, offset=0.0, n_points=U // 4):
    """Four inputs around each of some points, at about a distance."""
    rng = np.random.default_rng(0)
    near = np.repeat(rng.random((n_points, 5)), 4, axis=0)
    near = near + distance * rng.normal(size=near.shape)
    return offset + scale * np.abs(near)


INPUTS = {
    "in the plane": lambda: np.abs(in_plane()[:U]),
    "copies at 1e-3": lambda: copies(1e-3),
    "copies at 1e-7": lambda: copies(1e-7),
    "far from zero": lambda: copies(1e-3, offset=100.0),
    "of a large scale": lambda: copies(1e-6, scale=1e4),
}


def exact_gram(kernel, X):
    """K in float64, of distances that do not cancel."""
    X = X.astype(np.float64)
    return np.exp(-kernel.gamma * cdist(X, X, "sqeuclidean")) if kernel.kernel == "rbf" else kernel.gram(X)


def excess_check(kernel, X):
    """A check of F: storing it costs |(F + D)' v|^2 - |F' v|^2 with |D| <= u |F|; K and R are rounded in float64."""
    K = exact_gram(kernel, X)
    eigenvalue, trace, largest = np.linalg.eigvalsh(K)[-1], np.trace(K), np.diagonal(K).max()

    def check(F):
        single, F64 = F.dtype == np.float32, F.astype(np.float64)
        stored = 2 * UNIT * np.sqrt(eigenvalue * trace) + UNIT**2 * trace if single else 0.0
        assert np.linalg.eigvalsh(F64 @ F64.T - K)[-1] <= 1e-10 * trace + stored
        assert (np.square(F64).sum(axis=1) - np.diagonal(K)).max() <= (3 * UNIT if single else 1e-9) * largest

    return check


@pytest.fixture
def small_blocks(monkeypatch):
    monkeypatch.setattr(factor, "ROWS", 32)


@pytest.mark.few(9)
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("kind", INPUTS)
@pytest.mark.parametrize("name", VECTORIAL)
def test_features_exceed_the_kernel_by_rounding_alone(name, kind, dtype, small_blocks):
    X = np.unique(INPUTS[kind]().astype(dtype), axis=0)
    check = excess_check(KERNELS[name], X)
    for rule_name, rule in rules(len(X)).items():
        if kind == "of a large scale" and rule_name in MEANS and name == "poly":
            continue
        size = len(X) if rule_name == "exact" else 50
        basis = choose_basis(KERNELS[name], X, size, rule, random_state=0)
        check(basis.F)
        again = WhitenedMap(KERNELS[name], basis.landmarks, basis.R).transform(X)
        check(again)


@pytest.mark.few
@pytest.mark.parametrize("rule_name", RULES)
@pytest.mark.parametrize("size", [64, 256])
def test_single_precision_keeps_to_the_kernel_at_many_atoms(rule_name, size):
    X, kernel = in_plane().astype(np.float32), InputKernel("rbf", gamma=5.0)
    basis = choose_basis(kernel, X, len(X) if rule_name == "exact" else size, rules(len(X))[rule_name], random_state=0)
    assert basis.F.dtype == np.float32
    check = excess_check(kernel, X)
    check(basis.F)
    grown = choose_basis(kernel, X, len(X), "exact", start=basis)
    np.testing.assert_array_equal(grown.F[:, : basis.n], basis.F)
    check(grown.F)


@pytest.mark.parametrize("name", SPARSE)
def test_sparse_inputs_keep_to_the_kernel(name):
    X = np.unique(copies(1e-3) * (np.random.default_rng(1).random((U, 5)) < 0.7), axis=0).astype(np.float32)
    basis = choose_basis(KERNELS[name], sp.csr_array(X), 50, "random", random_state=0)
    excess_check(KERNELS[name], X)(basis.F)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("started", [False, True])
def test_parts_on_a_cluster_keep_to_the_kernel(dtype, started):
    X, kernel = in_plane().astype(dtype), InputKernel("rbf", gamma=5.0)
    cluster = Inline(forgetful=True)
    parts = [cluster.call(np.ascontiguousarray, part) for part in np.array_split(X, 3)]
    own = find_new_inputs(parts, cluster)
    start = None
    for size in (100, 256) if started else (256,):
        builder = DistributedBasisBuilder(kernel, parts, own, size, cluster, start)
        drive(Uniform(), builder, np.random.default_rng(0))
        start = builder.finish()
        excess_check(kernel, X)(np.concatenate(cluster.fetch(start.F)))


def test_columns_that_exceed_the_kernel_are_dropped():
    """A kernel whose values carry errors of 1e-8: the atoms that differ by no more than these are left out."""

    def noisy(X, Y):
        K = np.exp(-cdist(X, Y, "sqeuclidean"))
        return K + 1e-8 * np.cos(1e9 * K)

    X = copies(1e-4, n_points=30)
    basis = choose_basis(InputKernel(noisy), X, len(X), "exact")
    assert 0 < basis.n < len(X)
    assert basis.F.shape == (len(X), basis.n)
    assert basis.landmarks.shape[0] == len(basis.indices) == basis.n
    np.testing.assert_array_equal(basis.landmarks, X[basis.indices])
    assert np.square(basis.F).sum(axis=1).max() <= 1 + 3e-8


def test_features_of_an_earlier_map_that_exceed_the_kernel_are_refused():
    X, kernel = copies(0.1), InputKernel("rbf", gamma=1.0)
    basis = choose_basis(kernel, X, 40, "random", random_state=0)
    residual, trace = residual_of(kernel, X, basis.F)
    np.testing.assert_allclose(residual, basis.residual, atol=1e-12)
    assert trace == pytest.approx(basis.trace)
    with pytest.raises(
        ValueError, match=r"squared norm 1\.00\d+: expected at most k\(x, x\) = 1\. The fit cannot continue"
    ):
        residual_of(kernel, X, 1.001 * basis.F)
