import numpy as np
import pytest
import scipy.sparse as sp

from bases import KERNELS, Farthest, inputs
from clusters import Inline
from kernelcrf.basis.choice import choose_basis, find_rule
from kernelcrf.basis.distinct_inputs import distinct
from kernelcrf.basis.features import WhitenedMap
from kernelcrf.basis.pivots import drive
from kernelcrf.distributed.basis import DistributedBasisBuilder, digests, find_new_inputs


def generator(seed):
    return np.random.default_rng(np.random.RandomState(seed).randint(2**31, size=4))


def grown(kernel, parts, n, rule, start=None, sparse=False, *, stored=True):
    cluster = Inline(forgetful=False)
    X = [cluster.call(np.asarray if not sparse else sp.csr_array, part) for part in parts]
    own = find_new_inputs(X, cluster)
    builder = DistributedBasisBuilder(kernel, X, own, n, cluster, start, stored=stored)
    drive(find_rule(rule, kernel, sparse), builder, generator(0))
    return builder.finish(), cluster, cluster.fetch(own)


@pytest.fixture(scope="module")
def X():
    rows = inputs(90)
    return rows[np.random.default_rng(1).integers(90, size=150)]


def cut(X):
    """The distinct inputs of each of four parts; many rows are in several of them."""
    return [distinct(part).inputs for part in np.array_split(X, 4)]


@pytest.mark.parametrize("rule", ["random", "greedy", "lloyd", "uniform", "kmeans", "exact", Farthest()], ids=str)
@pytest.mark.parametrize("kernel", ["rbf", "laplacian"])
def test_a_rule_chooses_the_same_atoms_over_parts_as_over_all(X, rule, kernel):
    if rule in ("lloyd", "kmeans") and not KERNELS[kernel].is_vectorial:
        pytest.skip("a rule of means")
    found = distinct(X)
    n = found.U if rule == "exact" else 25
    whole = choose_basis(KERNELS[kernel], found.inputs, n, rule, random_state=0)
    shared, cluster, own = grown(KERNELS[kernel], cut(X), n, rule)
    assert sum(map(len, own)) == found.U
    np.testing.assert_allclose(shared.landmarks, whole.landmarks, atol=1e-12)
    np.testing.assert_allclose(shared.R, whole.R, atol=1e-9)
    assert (shared.indices is None) == (whole.indices is None)
    if whole.indices is not None:
        np.testing.assert_array_equal(shared.indices, whole.indices)
    np.testing.assert_allclose(np.concatenate(cluster.fetch(shared.residual)), whole.residual, atol=1e-9)
    F = np.concatenate([part[mine] for part, mine in zip(cluster.fetch(shared.F), own, strict=True)])
    np.testing.assert_allclose(F, whole.F, atol=1e-9)


def test_a_basis_goes_on_from_another(X):
    first, _, _ = grown(KERNELS["rbf"], cut(X), 10, "random")
    more, cluster, own = grown(KERNELS["rbf"], cut(X), 30, "random", start=first)
    np.testing.assert_array_equal(more.landmarks[:10], first.landmarks)
    np.testing.assert_array_equal(more.R[:10, :10], first.R)
    F = np.concatenate([part[mine] for part, mine in zip(cluster.fetch(more.F), own, strict=True)])
    rows = np.concatenate([part[mine] for part, mine in zip(cut(X), own, strict=True)])
    K = KERNELS["rbf"].gram(rows)
    np.testing.assert_allclose(
        np.diag(K) - (F * F).sum(axis=1), np.concatenate(cluster.fetch(more.residual)), atol=1e-9
    )


def test_features_need_not_be_stored(X):
    whole = choose_basis(KERNELS["rbf"], distinct(X).inputs, 25, "random", random_state=0)
    first, _, _ = grown(KERNELS["rbf"], cut(X), 10, "random")
    for start, n, expected in ((None, 25, whole), (first, 10, first)):
        basis, cluster, own = grown(KERNELS["rbf"], cut(X), n, "random", start, stored=False)
        np.testing.assert_array_equal(basis.indices, expected.indices)
        F = np.concatenate([part.compute() for part in cluster.fetch(basis.F)])
        np.testing.assert_allclose(
            F, WhitenedMap(KERNELS["rbf"], basis.landmarks, basis.R).transform(np.vstack(cut(X)))
        )
        residual = np.concatenate(cluster.fetch(basis.residual))
        assert len(residual) == sum(map(len, own))
        if start is None:
            np.testing.assert_allclose(residual, whole.residual, atol=1e-9)


def test_sparse_inputs_have_the_same_owners(X):
    parts = [np.where(np.abs(part) > 0.5, part, 0.0) for part in np.array_split(X, 4)]
    dense = [distinct(part).inputs for part in parts]
    sparse = [distinct(sp.csr_array(part)).inputs for part in parts]
    cluster = Inline(forgetful=False)
    own = next(cluster.fetch(find_new_inputs([cluster.call(type(p), p) for p in form], cluster)) for form in (sparse,))
    reference = distinct(np.concatenate(dense)).U
    assert sum(map(len, own)) == reference


def test_digests_tell_rows_apart_and_zeros_not():
    X = np.array([[0.0, 1.0], [-0.0, 1.0], [1.0, 0.0]])
    found = digests(X)
    assert found[0] == found[1] != found[2]
