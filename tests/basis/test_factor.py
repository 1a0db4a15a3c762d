"""Laws of a basis, over every kernel and every rule."""

import numpy as np
import pytest
import scipy.sparse as sp
from sklearn.gaussian_process import kernels as gp

from bases import KERNELS, MEANS, RULES, SPARSE, VECTORIAL, inputs, projected, rules
from kernelcrf.basis import factor, panels
from kernelcrf.basis.choice import choose_basis
from kernelcrf.basis.distinct_inputs import distinct
from kernelcrf.basis.factor import pivoted_cholesky, row_blocks
from kernelcrf.basis.features import WhitenedMap
from kernelcrf.basis.local_builder import LocalBasisBuilder
from kernelcrf.basis.pivots import Greedy, Random
from kernelcrf.engines.local import LocalEngine
from kernelcrf.kernels.inputs import InputKernel
from trials.user_kernels import INDEFINITE

U, n = 90, 24


EVERY = [
    pytest.param(KERNELS[name], rule, id=f"{name}-{rule}")
    for name in KERNELS
    for rule in RULES
    if name in VECTORIAL or rule not in MEANS
]
every = pytest.mark.parametrize(("kernel", "rule_name"), EVERY)
CHOSEN = {}
every_rule = pytest.mark.parametrize("rule_name", RULES)


@pytest.fixture(autouse=True)
def small_blocks(monkeypatch):
    """Blocks so small that these inputs have several, rows and panels."""
    monkeypatch.setattr(factor, "ROWS", 32)
    monkeypatch.setattr(panels, "PANEL", 7)


def choose(kernel, X, name, size=n, **options):
    size = X.shape[0] if name == "exact" else size
    return choose_basis(kernel, X, size, rules(X.shape[0])[name], random_state=0, **options)


def chosen(kernel, name):
    """Return the basis of `inputs(U)`, which several tests look at; the kernels of scikit-learn have no hash."""
    if (id(kernel), name) not in CHOSEN:
        CHOSEN[id(kernel), name] = choose(kernel, inputs(U), name)
    return CHOSEN[id(kernel), name]


@pytest.mark.few(9)
@every
def test_atoms_are_reproduced(kernel, rule_name):
    """F_B F' = K_Bx, R R' = K_BB, R lower triangular."""
    X = inputs(U)
    basis = chosen(kernel, rule_name)
    scale = kernel.diagonal(X).max()
    assert 0 < basis.n <= (U if rule_name == "exact" else n)
    np.testing.assert_array_equal(basis.R, np.tril(basis.R))
    np.testing.assert_allclose(basis.R @ basis.R.T, kernel.gram(basis.landmarks), atol=1e-12 * scale)
    np.testing.assert_allclose(basis.R @ basis.F.T, kernel.gram(basis.landmarks, X), atol=1e-10 * scale)


@pytest.mark.few(9)
@every
def test_data_atoms_carry_their_places(kernel, rule_name):
    X = inputs(U)
    basis = chosen(kernel, rule_name)
    if rule_name in MEANS:
        assert basis.indices is None
        return
    assert len(set(basis.indices)) == basis.n
    np.testing.assert_array_equal(basis.landmarks, X[basis.indices])
    scale = kernel.diagonal(X).max()
    np.testing.assert_allclose(basis.F[basis.indices] @ basis.F.T, kernel.gram(X[basis.indices], X), atol=1e-10 * scale)


@pytest.mark.few(9)
@every
def test_features_are_the_projection_on_the_atoms(kernel, rule_name):
    X = inputs(U)
    basis = chosen(kernel, rule_name)
    expected = projected(kernel.gram(X, basis.landmarks), kernel.gram(basis.landmarks))
    np.testing.assert_allclose(basis.F @ basis.F.T, expected, atol=2e-8 * kernel.diagonal(X).max())


@pytest.mark.few(9)
@every
def test_the_residual_is_the_diagonal_of_what_is_left(kernel, rule_name):
    X = inputs(U)
    basis = chosen(kernel, rule_name)
    K = kernel.gram(X)
    left = np.diagonal(K) - np.sum(basis.F**2, axis=1)
    np.testing.assert_allclose(basis.residual, left, atol=1e-11 * K.max())
    assert basis.residual.min() >= 0
    assert basis.trace == pytest.approx(np.trace(K), rel=1e-12)
    assert basis.relative_residual == pytest.approx(left.sum() / np.trace(K), abs=1e-11)


@pytest.mark.parametrize("kernel", KERNELS.values(), ids=KERNELS)
@pytest.mark.parametrize("name", ["exact", "greedy", "random", "uniform", "gradient"])
def test_full_rank_is_exact(kernel, name):
    X = inputs(U)
    basis = choose(kernel, X, name, size=U)
    K = kernel.gram(X)
    np.testing.assert_allclose(basis.F @ basis.F.T, K, atol=1e-8 * K.max())


@pytest.mark.parametrize("name", SPARSE)
@pytest.mark.parametrize("rule_name", [rule for rule in RULES if rule not in MEANS])
def test_sparse_equals_dense(name, rule_name):
    X, kernel = inputs(U), KERNELS[name]
    sparse = choose(kernel, sp.csr_array(X), rule_name)
    assert sp.issparse(sparse.landmarks)
    dense = LocalBasisBuilder(kernel, X, sparse.n, 0.0, LocalEngine())
    dense.append_inputs(sparse.indices)
    dense = dense.finish()
    assert set(dense.indices) == set(sparse.indices)
    np.testing.assert_allclose(sparse.F @ sparse.F.T, dense.F @ dense.F.T, atol=1e-9 * kernel.diagonal(X).max())


def test_sparse_and_dense_draw_the_same_atoms():
    X, kernel = inputs(U), KERNELS["poly"]
    for name in ("random", "uniform"):
        dense, sparse = (choose(kernel, Z, name) for Z in (X, sp.csr_array(X)))
        np.testing.assert_array_equal(sparse.indices, dense.indices)
        np.testing.assert_allclose(sparse.F, dense.F, atol=1e-8)


@pytest.mark.few(9)
@every
def test_float32_stays_float32(kernel, rule_name):
    X = inputs(U).astype(np.float32)
    basis = choose(kernel, X, rule_name)
    scale = kernel.diagonal(X).max()
    assert basis.F.dtype == basis.landmarks.dtype == np.float32
    assert basis.R.dtype == np.float64
    K = kernel.gram(basis.landmarks.astype(float), X.astype(float))
    np.testing.assert_allclose(basis.R @ basis.F.T, K, atol=1e-6 * scale)
    left = kernel.diagonal(X.astype(float)) - np.sum(basis.F.astype(float) ** 2, axis=1)
    np.testing.assert_allclose(basis.residual, np.maximum(left, 0), atol=1e-6 * scale)


@pytest.mark.few(9)
@every
def test_the_same_whatever_the_number_of_threads(kernel, rule_name):
    X = inputs(U)
    one = chosen(kernel, rule_name)
    three = choose(kernel, X, rule_name, engine=LocalEngine(3))
    for name in ("landmarks", "R", "F", "residual"):
        np.testing.assert_array_equal(getattr(three, name), getattr(one, name))


@every_rule
def test_rank_three_in_a_hundred_rows_stops_at_three(rule_name):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(100, 3)) @ rng.normal(size=(3, 8))
    for dtype in (np.float64, np.float32):
        basis = choose(KERNELS["linear"], X.astype(dtype), rule_name, size=40)
        assert basis.n == 3
        assert basis.F.shape == (100, 3)
        assert basis.F.flags.c_contiguous
        assert basis.relative_residual < (1e-12 if dtype == np.float64 else 1e-5)
        np.testing.assert_allclose(basis.F @ basis.F.T, X @ X.T, atol=1e-10 if dtype == np.float64 else 1e-3)


@pytest.mark.few(9)
@every
def test_duplicates_add_nothing_and_deduplicating_changes_nothing(kernel, rule_name):
    few = inputs(12)
    X = few[np.random.default_rng(1).integers(0, 12, 80)]
    repeated = choose(kernel, X, rule_name, size=40)
    found = distinct(X)
    once = choose(kernel, found.inputs, rule_name, size=min(40, found.U))
    assert repeated.n <= found.U
    scale = kernel.diagonal(X).max()
    K = kernel.gram(X)
    if rule_name in MEANS:
        return
    np.testing.assert_allclose(repeated.F @ repeated.F.T, K, atol=1e-10 * scale)
    np.testing.assert_allclose(found.expand(once.F) @ found.expand(once.F).T, K, atol=1e-10 * scale)


@every_rule
@pytest.mark.parametrize("tol", [0.5, 0.1, 0.01])
def test_a_tolerance_takes_no_more_atoms_than_it_needs(rule_name, tol):
    X, kernel = inputs(U), KERNELS["rbf"]
    basis = choose(kernel, X, rule_name, size=U, tol=tol)
    assert 0 < basis.n < U
    assert basis.relative_residual <= tol
    shorter = np.diagonal(kernel.gram(X)) - np.sum(basis.F[:, :-1] ** 2, axis=1)
    assert shorter.sum() > tol * basis.trace
    np.testing.assert_allclose(basis.residual, np.diagonal(kernel.gram(X)) - np.sum(basis.F**2, axis=1), atol=1e-12)


@every_rule
@pytest.mark.parametrize("first", ["uniform", "kmeans"])
def test_growing_keeps_columns_and_equals_the_projection_on_all_atoms(rule_name, first):
    """Extending = computing at once: the same span, the same F F'."""
    X, kernel = inputs(U), KERNELS["rbf"]
    start = choose(kernel, X, first, size=10)
    before = start.F.copy()
    grown = choose(kernel, X, rule_name, size=30, start=start)
    assert start.n < grown.n <= (U if rule_name == "exact" else 30)
    np.testing.assert_array_equal(start.F, before)
    np.testing.assert_array_equal(grown.F[:, :10], before)
    np.testing.assert_array_equal(grown.R[:10, :10], start.R)
    np.testing.assert_array_equal(grown.landmarks[:10], start.landmarks)
    expected = projected(kernel.gram(X, grown.landmarks), kernel.gram(grown.landmarks))
    np.testing.assert_allclose(grown.F @ grown.F.T, expected, atol=1e-8)
    np.testing.assert_allclose(grown.residual, 1.0 - np.sum(grown.F**2, axis=1), atol=1e-12)
    assert (grown.indices is None) == (first == "kmeans" or rule_name in MEANS)
    if grown.indices is not None:
        assert len(set(grown.indices)) == grown.n


def test_one_choice_of_atoms_in_two_parts_is_that_in_one():
    X, kernel = inputs(U), KERNELS["rbf"]
    atoms = np.arange(30)
    whole = LocalBasisBuilder(kernel, X, 30, 0.0, LocalEngine())
    whole.append_inputs(atoms)
    parts = LocalBasisBuilder(kernel, X, 30, 0.0, LocalEngine())
    parts.append_inputs(atoms[:11])
    parts.append_points(X[atoms[11:]])
    whole, parts = whole.finish(), parts.finish()
    np.testing.assert_allclose(parts.F @ parts.F.T, whole.F @ whole.F.T, atol=1e-9)
    np.testing.assert_allclose(parts.residual, whole.residual, atol=1e-10)


@pytest.mark.few(9)
@every
def test_new_inputs_map_as_those_of_training(kernel, rule_name):
    X = inputs(U)
    basis = chosen(kernel, rule_name)
    again = WhitenedMap(kernel, basis.landmarks, basis.R).transform(X)
    np.testing.assert_allclose(again, basis.F, atol=2e-9 * np.sqrt(kernel.diagonal(X).max()) + ill(basis))


def ill(basis):
    """What rounding of K costs in F: it is divided by the pivots."""
    return 1e-14 / np.diagonal(basis.R).min() ** 2 * np.diagonal(basis.R).max()


@pytest.mark.parametrize("rule", [Greedy(), Random(block=8)])
def test_the_residual_stays_accurate_where_nearly_all_is_explained(rule):
    X = inputs(200, d=2)
    kernel = KERNELS["rbf"]
    basis = choose_basis(kernel, X, 200, rule, tol=1e-11, random_state=0)
    exact = np.trace(kernel.gram(X) - basis.F @ basis.F.T)
    assert basis.n < 100
    assert abs(basis.residual.sum() - exact) < 3e-13 * basis.trace
    assert basis.relative_residual <= 1e-11


def test_an_input_of_no_length_is_nothing():
    basis = choose_basis(KERNELS["linear"], np.zeros((5, 3)), 2, "random", random_state=0)
    assert basis.n == 0
    assert basis.F.shape == (5, 0)
    assert basis.relative_residual == 0.0


def test_pivoted_cholesky_leaves_out_what_depends():
    A = np.array([[1.0, 0.0], [2.0, 0.0], [0.0, 1.0], [1.0, 1.0]])
    L, order = pivoted_cholesky(A @ A.T, 1e-12)
    assert len(order) == 2
    np.testing.assert_allclose(L @ L.T, (A @ A.T)[np.ix_(order, order)], atol=1e-14)
    L, order = pivoted_cholesky(np.zeros((3, 3)), 1e-12)
    assert L.shape == (0, 0)
    assert len(order) == 0


def test_row_blocks_cover_rows_once(monkeypatch):
    monkeypatch.setattr(factor, "ROWS", 4)
    assert [list(range(10))[rows] for rows in row_blocks(10)] == [[0, 1, 2, 3], [4, 5, 6, 7], [8, 9]]
    assert row_blocks(0) == []


@pytest.mark.parametrize("rule", ["exact", "greedy", "random", "uniform"])
@pytest.mark.parametrize("function", INDEFINITE, ids=lambda function: function.__name__)
def test_what_is_no_kernel_is_named(function, rule):
    X = np.random.default_rng(0).normal(size=(U, 3))
    with pytest.raises(ValueError, match=f"{function.__name__}.* is not positive semi-definite"):
        choose_basis(InputKernel(function), X, U if rule == "exact" else n, rule, random_state=0)


def test_rounding_does_not_make_a_kernel_none():
    """Inputs that are all but equal: residuals are rounding, of either sign."""
    X = 1.0 + 1e-9 * np.random.default_rng(0).normal(size=(200, 2))
    for kernel in (subtle, gp.RBF(1e-8)):
        assert choose_basis(InputKernel(kernel), X, 100, "random", random_state=0).n >= 1


def subtle(X, Y):
    return np.exp(-np.square(X[:, None] - Y[None]).sum(axis=-1))


@pytest.mark.parametrize("scale", [1e155, 1e200])
def test_a_diagonal_that_overflows_is_named(scale):
    with pytest.raises(
        ValueError, match=r"k\(x, x\) = inf for the distinct input with index 0: expected a finite number. Scale"
    ):
        choose_basis(KERNELS["poly"], scale * inputs(20), 5, "random", random_state=0)


@pytest.mark.parametrize("count", [1, 3, 8, 9])
def test_the_largest_residuals_and_the_largest_of_the_others(count):
    builder = LocalBasisBuilder(InputKernel("linear"), np.eye(8), 3, 0.0, LocalEngine())
    builder.residual[:] = d = np.array([3.0, 5.0, 1.0, 5.0, 4.0, 0.0, 5.0, 2.0])
    places, others = builder.largest(count)
    order = np.argsort(-d, kind="stable")
    assert sorted(places.tolist()) == sorted(order[:count].tolist())
    assert others == (d[order[count]] if count < 8 else 0.0)
