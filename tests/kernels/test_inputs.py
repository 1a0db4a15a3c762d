"""Laws that every input kernel keeps, with scikit-learn's own functions as oracles."""

import json
import tracemalloc

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from scipy.spatial.distance import cdist
from sklearn.gaussian_process import kernels as gp
from sklearn.metrics import pairwise

from kernelcrf.arrays import take_columns
from kernelcrf.kernels import Polynomial
from kernelcrf.kernels.inputs import InputKernel
from kernelcrf.kernels.named_kernels import NAMED
from kernelcrf.kernels.rbf import ELEMENTWISE_ROWS


def dense(X):
    return X.toarray() if sp.issparse(X) else X


def triangle(X, Y):
    """A callable kernel: exp(-|x - y|_2)."""
    return np.exp(-cdist(dense(X), dense(Y)))


GP = gp.ConstantKernel(2.0) * gp.RBF(length_scale=[1.0, 2.0, 0.5, 1.5]) + gp.Matern(1.2, nu=1.5) ** 2
KERNELS = {
    **{name: InputKernel(name) for name in NAMED},
    "poly": InputKernel(Polynomial(coef0=0.5), gamma=0.7),
    "poly homogeneous": InputKernel(Polynomial(2, 0.0)),
    "rbf": InputKernel("rbf", gamma=0.4),
    "rbf default": InputKernel("rbf"),
    "laplacian": InputKernel("laplacian", gamma=0.3),
    "chi2": InputKernel("chi2", gamma=0.8),
    "callable": InputKernel(triangle),
    "gaussian process": InputKernel(GP),
}
SPARSE = [name for name, kernel in NAMED.items() if kernel.takes_sparse] + [
    "poly homogeneous",
    "rbf default",
    "callable",
]


def inputs(rows, seed=0, dtype=np.float64):
    rng = np.random.default_rng(seed)
    return (rng.random((rows, 4)) * (rng.random((rows, 4)) < 0.7)).astype(dtype)


def oracle(kernel, X, Y):
    """The Gram matrix by scikit-learn."""
    if callable(kernel.kernel):
        return kernel.kernel(X, Y)
    if isinstance(form := kernel.kernel, Polynomial):
        return pairwise.polynomial_kernel(X, Y, degree=form.degree, gamma=kernel.gamma, coef0=form.coef0)
    if kernel.kernel not in pairwise.KERNEL_PARAMS:
        pytest.skip(f"scikit-learn has no kernel {kernel.kernel!r}")
    parameters = {} if kernel.gamma is None or not kernel.reads_gamma else {"gamma": kernel.gamma}
    return pairwise.pairwise_kernels(X, Y, metric=kernel.kernel, **parameters)


@pytest.fixture(params=KERNELS, ids=str)
def kernel(request):
    return KERNELS[request.param]


def test_gram_is_scikit_learns(kernel):
    X, Y = inputs(2 * ELEMENTWISE_ROWS + 7), inputs(23, 1)
    assert np.abs(kernel.gram(X, Y) - oracle(kernel, X, Y)).max() < 2e-14


def test_float32_stays_float32_and_is_near(kernel):
    X, Y = inputs(40, dtype=np.float32), inputs(23, 1, np.float32)
    K = kernel.gram(X, Y)
    assert K.dtype == kernel.diagonal(X).dtype == np.float32
    np.testing.assert_allclose(K, kernel.gram(X.astype(float), Y.astype(float)), rtol=2e-5, atol=2e-6)


SHIFTED = inputs(30) + 0.5
OF_DIFFERENCES = [name for name in NAMED if np.allclose(KERNELS[name].gram(SHIFTED + 1.0), KERNELS[name].gram(SHIFTED))]
BOUNDED = [name for name in NAMED if np.allclose(KERNELS[name].diagonal(SHIFTED), 1.0)]


@pytest.mark.parametrize("name", OF_DIFFERENCES)
def test_a_kernel_of_differences_forgives_a_common_offset(name):
    """Adding 1e6 rounds X; subtracting it again does not."""
    far = inputs(30) + 1e6
    np.testing.assert_allclose(KERNELS[name].gram(far), KERNELS[name].gram(far - 1e6), rtol=0, atol=1e-8)


@pytest.mark.parametrize("name", BOUNDED)
@pytest.mark.parametrize("scale", [1e-200, 1e200])
def test_a_bounded_kernel_is_finite_at_any_scale(name, scale):
    assert np.isfinite(KERNELS[name].gram(scale * inputs(30))).all()


def test_positive_semi_definite_to_rounding(kernel):
    K = kernel.gram(inputs(60))
    values = np.linalg.eigvalsh(K)
    assert np.abs(K - K.T).max() < 1e-13
    assert values[0] > -1e-13 * values[-1]


def test_gram_of_one_argument_is_that_with_itself(kernel):
    X = inputs(30)
    np.testing.assert_array_equal(kernel.gram(X), kernel.gram(X, X))


def test_diagonal_is_that_of_the_gram_matrix(kernel):
    X = inputs(75)
    X[5] = 0.0
    np.testing.assert_allclose(kernel.diagonal(X), np.diagonal(kernel.gram(X)), rtol=1e-13, atol=1e-14)


def test_gram_writes_into_columns_of_a_larger_array(kernel):
    X, Y = inputs(30), inputs(9, 1)
    whole = np.full((30, 20), 7.0)
    kernel.gram(X, Y, out=whole[:, 4:13])
    np.testing.assert_array_equal(whole[:, 4:13], kernel.gram(X, Y))
    assert (whole[:, :4] == 7.0).all()
    assert (whole[:, 13:] == 7.0).all()


def test_no_rows_give_an_empty_matrix(kernel):
    assert kernel.gram(inputs(0), inputs(3)).shape == (0, 3)
    assert kernel.diagonal(inputs(0)).shape == (0,)


@pytest.mark.parametrize("name", SPARSE)
@pytest.mark.parametrize("container", [sp.csr_matrix, sp.csr_array, sp.coo_matrix])
def test_sparse_equals_dense(name, container):
    kernel = KERNELS[name]
    X, Y = inputs(ELEMENTWISE_ROWS + 40), inputs(23, 1)
    np.testing.assert_allclose(kernel.gram(container(X), container(Y)), kernel.gram(X, Y), atol=1e-13)
    np.testing.assert_allclose(kernel.diagonal(container(X)), kernel.diagonal(X), atol=1e-14)


@pytest.mark.parametrize("name", SPARSE)
def test_indices_of_sparse_inputs_may_have_64_bits(name):
    X, Y = sp.csr_matrix(inputs(40)), sp.csr_matrix(inputs(23, 1))
    expected = KERNELS[name].gram(X, Y)
    for one in (X, Y):
        one.indices, one.indptr = one.indices.astype(np.int64), one.indptr.astype(np.int64)
    np.testing.assert_array_equal(KERNELS[name].gram(X, Y), expected)


@pytest.mark.parametrize("name", ["linear", "poly", "rbf", "cosine"])
def test_sparse_and_dense_may_meet(name):
    kernel = KERNELS[name]
    X, Y = inputs(40), inputs(23, 1)
    for A, B in [(sp.csr_array(X), Y), (X, sp.csr_array(Y))]:
        np.testing.assert_allclose(kernel.gram(A, B), kernel.gram(X, Y), atol=1e-13)


@pytest.mark.parametrize("kernel", [InputKernel("chi2"), InputKernel(gp.RBF())], ids=["chi2", "gp"])
def test_a_kernel_for_dense_inputs_says_so(kernel):
    with pytest.raises(TypeError, match=r"sparse.*dense inputs.*X\.toarray\(\)"):
        kernel.gram(sp.csr_array(inputs(3)))


def test_chi2_refuses_negative_values_and_says_what_to_do():
    good, bad = inputs(3), inputs(3) - 2
    for X, Y in [(good, bad), (bad, good), (bad, bad)]:
        with pytest.raises(ValueError, match=rf"X has the value {bad.min():g}, .* chi2 .* >= 0.*MinMaxScaler.*rbf"):
            InputKernel("chi2").gram(X, Y)


def test_integers_become_float64_and_half_precision_float32():
    X = np.arange(6).reshape(3, 2)
    assert InputKernel("linear").gram(X).dtype == np.float64
    assert InputKernel("linear").gram(X.astype(np.float16)).dtype == np.float32


@given(arrays(np.float64, (6, 3), elements=st.floats(-1e3, 1e3)), st.floats(-1e6, 1e6), st.floats(1e-3, 10))
def test_rbf_forgives_a_common_offset(X, offset, gamma):
    X = X + offset
    distances = ((X[:, None] - X[None]) ** 2).sum(axis=2)
    K = InputKernel("rbf", gamma=gamma).gram(X)
    spread = ((X - X.mean(axis=0)) ** 2).sum(axis=1).max()
    # What the offset costs is its rounding against the spread, not its square.
    allowed = 1e-14 + 50 * gamma * np.finfo(float).eps * (spread + abs(offset) * np.sqrt(spread))
    assert np.abs(K - np.exp(-gamma * distances)).max() <= allowed
    assert K.max() <= 1.0


@pytest.mark.parametrize("scale", [1.0, 30.0, 1e3])
def test_rbf_in_float32_keeps_near_duplicates_apart_at_any_scale(scale):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(50, 8)) * scale
    X = np.vstack([X, X + 0.01 * rng.normal(size=X.shape)]).astype(np.float32)
    exact = pairwise.rbf_kernel(X.astype(float), gamma=1.0)
    # sqrt(d) roundings of a coordinate, which the data in float32 have by themselves, are not at fault here.
    np.testing.assert_allclose(InputKernel("rbf", gamma=1.0).gram(X), exact, atol=3e-5)
    np.testing.assert_allclose(InputKernel("rbf", gamma=1.0).gram(sp.csr_array(X)), exact, atol=3e-5)


@pytest.mark.parametrize("types", [(np.float32, np.float64), (np.float64, np.float32)])
def test_rbf_of_two_precisions_is_that_of_the_finer(types):
    rng = np.random.default_rng(0)
    X, Y = (rng.normal(size=(30, 8)).astype(dtype) * 30 for dtype in types)
    Y[:30] += X - Y + 0.1 * rng.normal(size=X.shape)
    kernel = InputKernel("rbf", gamma=1.0)
    exact = pairwise.rbf_kernel(X.astype(float), Y.astype(float), gamma=1.0)
    out = np.empty((30, 30))
    kernel.against(Y, X.dtype)(X, out)
    for found in (kernel.gram(X, Y), out):
        np.testing.assert_allclose(found, exact, atol=1e-9)


@pytest.mark.parametrize("name", [name for name in KERNELS if name != "callable"])
def test_config_goes_through_json(name):
    kernel = KERNELS[name]
    config = json.loads(json.dumps(kernel.to_config()))
    again = InputKernel.from_config(config)
    np.testing.assert_array_equal(again.gram(inputs(20)), kernel.gram(inputs(20)))
    assert again.to_config() == config


def test_a_callable_has_no_config():
    with pytest.raises(TypeError, match=r"triangle.*cannot be written.*pass the callable again"):
        InputKernel(triangle).to_config()


def test_a_gaussian_process_kernel_from_elsewhere_has_no_config():
    class Own(gp.RBF):
        pass

    with pytest.raises(TypeError, match=r"is not an object of sklearn.gaussian_process.kernels"):
        InputKernel(Own()).to_config()


def test_a_config_names_classes_of_scikit_learn_only():
    config = {"kernel": {"class": "np", "parameters": {}}, "gamma": None}
    with pytest.raises(ValueError, match="the stored kernel has the class 'np'"):
        InputKernel.from_config(config)


@pytest.mark.parametrize("name", ["sigmoid", "additive_chi2"])
def test_indefinite_kernels_are_refused_because_they_are(name):
    X = inputs(30)
    assert np.linalg.eigvalsh(pairwise.pairwise_kernels(X, metric=name))[0] < -1e-3
    with pytest.raises(ValueError, match=f"kernel='{name}': expected .*'rbf'.*not positive semi-definite"):
        InputKernel(name)


@pytest.mark.parametrize(
    ("parameters", "error", "message"),
    [
        ({"kernel": "gauss"}, ValueError, r"kernel='gauss': expected 'linear', 'poly'"),
        ({"kernel": 3}, TypeError, r"kernel=3: expected 'linear'"),
        ({"kernel": gp.RBF}, TypeError, r"kernel=<class.*expected 'linear'"),
        ({"kernel": gp.RBF() + gp.WhiteKernel()}, ValueError, r"WhiteKernel.*remove the WhiteKernel"),
        ({"gamma": "scale"}, ValueError, r"gamma='scale': expected a finite number above 0 or None"),
        ({"gamma": 0.0}, ValueError, r"gamma=0.0: expected a finite number above 0"),
    ],
)
def test_wrong_parameters_are_named(parameters, error, message):
    with pytest.raises(error, match=message):
        InputKernel(**parameters)


def test_wrong_inputs_are_named():
    kernel = InputKernel("rbf")
    with pytest.raises(ValueError, match=r"X has 1 dimension.*reshape\(1, -1\)"):
        kernel.gram(np.zeros(3))
    with pytest.raises(ValueError, match="X has 3 columns and Y has 2"):
        kernel.gram(np.zeros((2, 3)), np.zeros((2, 2)))
    with pytest.raises(TypeError, match=r"Y has dtype.*DictVectorizer"):
        kernel.gram(np.zeros((2, 3)), np.array([["a", "b", "c"]]))
    with pytest.raises(ValueError, match=r"returned an array of shape \(3,\).*expected \(3, 3\).*pairwise_kernels"):
        InputKernel(lambda X, Y: np.ones(len(X))).gram(np.zeros((3, 2)))


@pytest.mark.parametrize("as_given", [np.asarray, sp.csr_array], ids=["dense", "sparse"])
def test_rbf_keeps_its_digits_beside_an_outlier(as_given):
    """One far row takes the mean with it, and with it the digits of all distances by norms."""
    X = inputs(40)
    X[7, 2] = 1e20
    K = InputKernel("rbf", gamma=1.0).gram(as_given(X))
    np.testing.assert_allclose(K, np.exp(-cdist(X, X, "sqeuclidean")), rtol=1e-12)
    assert np.linalg.eigvalsh(K)[0] > -1e-12


@pytest.mark.parametrize("scale", [1e200, 1e300])
def test_rbf_of_distances_that_overflow_is_zero(scale):
    X = inputs(10) + np.arange(10)[:, None]
    np.testing.assert_array_equal(InputKernel("rbf", gamma=1.0).gram(scale * X), np.eye(10))


@pytest.mark.parametrize("as_given", [np.asarray, sp.csr_array], ids=["dense", "sparse"])
@pytest.mark.parametrize("scale", [1e-310, 1e-300, 1e-100, 1e-20, 1e100, 1e300])
def test_cosine_does_not_depend_on_lengths(scale, as_given):
    X, Y, kernel = inputs(20), inputs(15, 1), InputKernel("cosine")
    X[3] = 0
    found = kernel.gram(as_given(X * scale), as_given(Y))
    np.testing.assert_allclose(found, kernel.gram(X, Y), atol=1e-12 if scale > 1e-309 else 1e-10)
    np.testing.assert_array_equal(kernel.diagonal(as_given(X * scale)), X.any(axis=1))


@pytest.mark.parametrize(
    ("value", "message"),
    [(np.nan, "the value nan"), (np.inf, "the value inf"), (1j, "dtype complex128"), ("a", "dtype <U1")],
)
def test_a_callable_that_returns_no_numbers_is_named(value, message):
    def wrong(X, Y):
        return np.full((len(X), len(Y)), value)

    with pytest.raises((ValueError, TypeError), match=f"wrong.*{message}"):
        InputKernel(wrong).gram(inputs(3))


def test_the_error_of_a_callable_is_told_with_its_parameter():
    with pytest.raises(
        ValueError, match=r"kernel=<built-in function len> raised TypeError for inputs .*: expected a callable"
    ):
        InputKernel(len).gram(inputs(3))


@pytest.mark.parametrize("scale", [1.0, 1e6])
@pytest.mark.parametrize("kernel", ["linear", "poly", "rbf", "cosine", "laplacian"])
def test_columns_without_entries_take_no_memory(kernel, scale):
    """With entries of 1e6, the rbf kernel computes distances pair by pair."""
    few = [sp.random_array((n, 9), density=0.5, rng=np.random.default_rng(1), format="csr") * scale for n in (4, 3)]
    many = [sp.csr_array((x.data, x.indices * 10**6, x.indptr), shape=(x.shape[0], 9 * 10**6)) for x in few]
    k = InputKernel(kernel, 0.5 / scale)
    tracemalloc.start()
    try:
        K = k.gram(*many)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    np.testing.assert_allclose(K, k.gram(*few), rtol=1e-12)
    assert peak < 2**20


def test_columns_are_taken_in_any_order_and_several_times():
    X = sp.random_array((6, 9), density=0.5, rng=np.random.default_rng(0), format="csr")
    for columns in ([4, 1, 8], [2, 2, 0, 2], [5], []):
        places = np.array(columns, np.intp)
        np.testing.assert_array_equal(take_columns(X, places).toarray(), X.toarray()[:, places])
        np.testing.assert_array_equal(take_columns(X.toarray(), places), X.toarray()[:, places])
