"""Every estimator answers with a valid certificate, or refuses in words: extreme scales, degenerate data, any C."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.exceptions import ConvergenceWarning

from kernelcrf import ChainCRF, GraphCRF, KernelClassifier, MarkovNetwork, MultiLabelCRF
from trials import cases
from trials.numerics import dicts, makers, sparse
from trials.probing import probe

pytestmark = pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
FINE = ("answered", "refused")
MAKERS = makers()
SOME = ("ChainCRF linear", "ChainCRF few landmarks", "KernelClassifier rbf", "GraphCRF edges")


@pytest.mark.few
@pytest.mark.parametrize("name", cases.CASES)
@pytest.mark.parametrize("maker", SOME)
def test_degenerate_data(maker, name):
    make, data = MAKERS[maker]
    assert probe(make, *data(cases.CASES[name]())) in FINE


ORDINARY = ("constant columns", "equal tokens", "empty sequences among full ones", "labels never seen together")


@pytest.mark.few
@pytest.mark.parametrize("name", ORDINARY)
@pytest.mark.parametrize("maker", [name for name in MAKERS if "Laplace" not in name])
def test_degenerate_data_that_have_an_answer_get_one(maker, name):
    make, data = MAKERS[maker]
    assert probe(make, *data(cases.CASES[name]())) == "answered"


@settings(max_examples=20)
@given(
    maker=st.sampled_from(sorted(MAKERS)),
    exponents=st.lists(st.floats(-308, 308), min_size=1, max_size=4),
    log_C=st.floats(-12, 12),
    seed=st.integers(0, 10),
    n_labels=st.integers(1, 4),
    m=st.integers(2, 5),
)
def test_any_scale_and_any_penalty(maker, exponents, log_C, seed, n_labels, m):
    X, y = cases.plain(seed, m=m, longest=4, d=len(exponents), n_labels=n_labels)
    with np.errstate(over="ignore", under="ignore"):
        X = [np.nan_to_num(x * 10.0 ** np.array(exponents)) for x in X]
    make, data = MAKERS[maker]

    def penalised():
        model = make()
        return model if model.get_params()["C"] == "evidence" else model.set_params(C=10.0**log_C, max_iter=30)

    assert probe(penalised, *data((X, y))) in FINE


@pytest.mark.few
@pytest.mark.parametrize("C", [1e-12, 1e-4, 1e4, 1e12])
@pytest.mark.parametrize("solver", ["lbfgs", "newton-cg", "newton", "block-jacobi", "subspace"])
def test_any_penalty_has_a_certificate(solver, C):
    X, y = cases.separable()
    for kernel in ("linear", "rbf"):
        model = ChainCRF(kernel, C=C, solver=solver, random_state=0, max_iter=200)
        assert probe(lambda model=model: model, X, y) == "answered"


@pytest.mark.parametrize("power", [-400, -100, 0, 100, 300])
def test_gamma_follows_the_scale(power):
    """gamma |x - x'|^2 does not depend on units; powers of two change no digit."""
    X, y = cases.plain()
    here = ChainCRF(n_components=10, random_state=0, C=1.0).fit(X, y)
    far = ChainCRF(n_components=10, random_state=0, C=1.0).fit([x * 2.0**power for x in X], y)
    np.testing.assert_allclose(far.kernel_.gamma * 2.0 ** (2 * power), here.kernel_.gamma, rtol=1e-12)
    np.testing.assert_allclose(far.certificate_.objective, here.certificate_.objective, rtol=1e-6)


@pytest.mark.parametrize("factor", [1e-200, 1e200])
def test_a_scale_that_no_gamma_serves_is_refused(factor):
    X, y = cases.scaled(factor)
    with pytest.raises(
        ValueError, match=r"X have standard deviation .*scale X with .*StandardScaler.*or pass gamma as a number"
    ):
        ChainCRF(C=1.0).fit(X, y)


@pytest.mark.parametrize("make", [ChainCRF, GraphCRF])
def test_a_kernel_that_is_zero_is_refused(make):
    X, y = cases.zeros()
    with pytest.raises(ValueError, match=r"kernel='cosine' has k\(x, x\) = 0 for every input"):
        make("cosine").fit(X, y)


@pytest.mark.parametrize("form", [np.asarray, sparse, dicts], ids=["dense", "sparse", "dicts"])
def test_an_objective_that_overflows_is_refused(form):
    X, y = cases.scaled(1e200)
    with pytest.raises(ValueError, match=r"overflow.*[Ss]cale the inputs"):
        ChainCRF("linear", C=1.0).fit(list(X) if form is np.asarray else form(X), y)


@pytest.mark.parametrize("form", [list, sparse, dicts], ids=["dense", "sparse", "dicts"])
def test_scores_that_overflow_are_refused(form):
    X, y = cases.plain()
    model = ChainCRF("linear", C=1.0).fit(form(X), y)
    far = form([x * 1e200 for x in X])
    for ask in (model.predict, model.predict_proba, model.distribution):
        with pytest.raises(ValueError, match=r"row 0 of the inputs has the score .*expected inputs on"):
            ask(far)


def test_scores_that_overflow_are_refused_by_every_estimator():
    X, y = cases.plain()
    for make, data in ((KernelClassifier, cases.rows), (MultiLabelCRF, cases.labelled_sets), (GraphCRF, cases.graphs)):
        model = make("poly", random_state=0).fit(*data((X, y)))
        with pytest.raises(ValueError, match="of the inputs has the score"):
            model.predict_proba(data(([x * 1e200 for x in X], y))[0])


def test_gap_full_of_a_kernel_that_is_none_is_no_certificate():
    """A kernel that looks like one on the first landmarks."""

    def late(X, Y):
        return np.exp(-np.square(X[:, None] - Y[None]).sum(axis=-1)) - 0.05 * np.abs(X[:, :1] - Y[:, 0])

    X, y = cases.plain(m=60, longest=20)
    with pytest.raises(ValueError, match=r"late.* is not positive semi-definite"):
        ChainCRF(late, n_components="auto", random_state=0, C=1.0).fit(X, y)


def test_markov_networks_of_any_values():
    rng = np.random.default_rng(0)
    table = rng.choice([1e-300, 1.0, 1e300, 5e-324], size=(40, 3))
    model = MarkovNetwork(structure="full").fit(table)
    assert np.isfinite(model.score_samples(table)).all()


def test_an_answer_that_falls_short_says_so():
    X, y = cases.separable()
    with pytest.warns(ConvergenceWarning, match="status 'max_iter'"):
        model = ChainCRF("linear", C=1e12, max_iter=1).fit(X, y)
    assert np.isfinite(model.certificate_.lower_bound)
