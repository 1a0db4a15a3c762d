from dataclasses import replace

import numpy as np
import pytest
import scipy.sparse as sp

from chain_fits import chain_problem, fit_chain
from kernelcrf import ChainCRF
from kernelcrf.datasets import make_sequences
from kernelcrf.engines.local import LocalEngine
from kernelcrf.fitting.fit import objective_of
from kernelcrf.fitting.sequences import LabelledSequences
from kernelcrf.graphs.structure import Chains
from kernelcrf.inference.chain import moments
from kernelcrf.inference.decoding import viterbi
from kernelcrf.kernels import Polynomial
from kernelcrf.kernels.inputs import InputKernel
from kernelcrf.objective import Objective
from kernelcrf.score.terms import TOKEN_TERM
from kernelcrf.solvers import LBFGS
from kernelcrf.solvers.loop import minimise

RBF, OTHER = InputKernel("rbf", gamma=0.5), InputKernel("rbf", gamma=0.5)


@pytest.fixture(scope="module")
def data():
    rng = np.random.default_rng(0)
    chains = Chains.from_lengths(rng.integers(1, 12, size=50))
    X = rng.normal(size=(chains.n_nodes, 3))
    labels = (np.sin(2 * X[:, 0]) + X[:, 1] * X[:, 2] > 0).astype(np.int32) + (X[:, 2] > 0.8)
    return LabelledSequences(X, chains, labels.astype(np.int32), 3)


@pytest.fixture(scope="module")
def exact(data):
    return fit_chain(data, RBF, C=2.0, tol=1e-10).certificate.objective


@pytest.mark.parametrize("n", [20, 60, 150])
@pytest.mark.parametrize("rule", ["random", "lloyd"])
def test_gap_full_bounds_the_distance_to_the_kernels_own_optimum(data, exact, n, rule):
    shape = {"n_components": n, "rule": rule, "certify_full": True, "random_state": 0}
    found = fit_chain(data, RBF, C=2.0, tol=1e-10, **shape).certificate
    truth = found.objective - exact
    assert truth <= found.gap_full <= 3 * truth
    assert found.gap_in_span < 1e-4 * truth


def test_projected_gradients_are_sums_of_kernels(data):
    """(23) and (28): sum_t k(u, x_t) (p_t - [y_t]) + 1/C sum_v k(u, v) alpha_v at every input u, with f = K alpha."""
    problem, engine, C = chain_problem(data, RBF, C=2.0), LocalEngine(1), 2.0
    features = problem.corpus.features(problem.terms[0], None, "random", 0, engine, None)
    objective = objective_of(problem, {TOKEN_TERM: features}, engine)
    layout = objective.layout
    W = 0.1 * np.random.default_rng(2).normal(size=(features.F.shape[1], 3))
    at = objective.evaluate(layout.join({term.name: np.zeros(term.shape) for term in layout.terms} | {TOKEN_TERM: W}))
    K = RBF.gram(data.X)
    alpha = np.zeros((len(K), 3))
    alpha[features.basis.indices] = np.linalg.solve(features.map.R.T, W)
    p = moments(K @ alpha, np.zeros((3, 3)), data.chains).nodes
    expected = K @ (p - np.eye(3)[data.labels]) + K @ alpha / C
    np.testing.assert_allclose(features.F @ layout.split(at.gradient)[TOKEN_TERM], expected, atol=1e-7)


@pytest.mark.parametrize("tol", [1e-1, 1e-2, 1e-3])
def test_a_basis_that_grows_stops_at_the_tolerance(data, exact, tol):
    grown = fit_chain(data, RBF, C=2.0, n_components="auto", tol=tol, random_state=0)
    assert grown.certificate.gap_full <= tol * grown.certificate.objective
    assert grown.certificate.objective - exact <= grown.certificate.gap_full
    assert grown.features["node"].F.shape[1] < data.chains.n_nodes


def test_a_warm_start_grows_its_basis_to_what_other_data_need():
    data = make_sequences(60, random_state=0)
    settings = {"C": 1.0, "gamma": 5.0, "tol": 1e-3, "random_state": 0}
    whole = ChainCRF(n_components=None, **settings).fit(data.X, data.y).certificate_.objective
    crf = ChainCRF(n_components="auto", warm_start=True, **settings).fit(data.X[:5], data.y[:5])
    n = len(crf.landmarks_)
    certificate = crf.fit(data.X, data.y).certificate_
    assert certificate.status == "optimal"
    assert certificate.gap_full <= 1e-3 * certificate.objective
    assert certificate.objective <= whole * (1 + 2e-3)
    assert len(crf.landmarks_) > n


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_a_basis_that_grows_is_optimal_only_within_the_tolerance_of_the_whole_space(dtype):
    data = make_sequences(12, random_state=0)
    X = [x.astype(dtype) for x in data.X]
    for gamma, tol in ((5.0, 1e-3), (0.1, 1e-4), (0.01, 1e-6)):
        certificate = (
            ChainCRF(n_components="auto", gamma=gamma, C=100.0, tol=tol, random_state=0).fit(X, data.y).certificate_
        )
        assert (certificate.status == "optimal") == (certificate.gap_full <= tol * certificate.objective)


def test_the_linear_kernel_is_primal_and_sparse_equals_dense(data):
    settings = {"kernel": InputKernel("linear"), "C": 1.0, "C_bias": 1.0, "tol": 1e-13, "certify_full": True}
    dense = fit_chain(data, **settings)
    sparse = fit_chain(LabelledSequences(sp.csr_array(data.X), data.chains, data.labels, 3), **settings, n_jobs=2)
    assert dense.weights["node"].shape == (3, 3)
    assert dense.certificate.gap_full == pytest.approx(dense.certificate.gap_in_span, abs=1e-9)
    np.testing.assert_allclose(dense.solution.theta, sparse.solution.theta, atol=1e-5)


def test_the_linear_kernel_is_the_primal_of_its_own_dual(data):
    """Figure 1 of the paper: weights of columns, and weights of landmarks under the same kernel, are one model."""
    primal = fit_chain(data, InputKernel("linear"), C=1.0, tol=1e-12)
    dual = fit_chain(data, InputKernel(Polynomial(1, 0.0), gamma=1.0), C=1.0, tol=1e-12)
    assert dual.certificate.objective == pytest.approx(primal.certificate.objective, rel=1e-11)
    scores = [found.features["node"].F @ found.weights["node"] for found in (primal, dual)]
    np.testing.assert_allclose(scores[0], scores[1], atol=1e-4)


def test_shared_inputs_give_the_same_model_as_their_copies(data):
    rng = np.random.default_rng(1)
    index = rng.integers(25, size=data.chains.n_nodes)
    copies = LabelledSequences(data.X[index], data.chains, data.labels, 3)
    nudged = LabelledSequences(data.X[index] + 1e-9 * rng.normal(size=data.X.shape), data.chains, data.labels, 3)
    shared = fit_chain(copies, RBF, tol=1e-10, certify_full=True)
    apart = fit_chain(nudged, RBF, n_components=25, rule="random", random_state=0, tol=1e-10)
    assert shared.features["node"].F.shape == (25, 25)
    assert shared.certificate.objective == pytest.approx(apart.certificate.objective, rel=1e-5)


def test_a_fit_takes_up_the_weights_of_an_earlier_one(data):
    settings = {"n_components": 40, "rule": "random", "random_state": 0, "tol": 1e-8}
    first = fit_chain(data, RBF, **settings)
    again = fit_chain(data, RBF, **settings, start=first.end)
    assert again.solution.n_iter == 0
    fewer = data.chains.offsets[20]
    part = LabelledSequences(data.X[:fewer], Chains(data.chains.offsets[:21]), data.labels[:fewer], 3)
    other = fit_chain(part, RBF, **settings, certify_full=True, start=first.end)
    assert other.maps["node"] is first.maps["node"]
    assert other.certificate.status == "optimal"
    assert other.certificate.gap_full > other.certificate.gap_in_span
    more = fit_chain(data, RBF, **settings, C_bias=1.0, start=first.end)
    assert more.certificate.objective == pytest.approx(
        fit_chain(data, RBF, **settings, C_bias=1.0).certificate.objective, rel=1e-7
    )
    fewer_labels = replace(data, labels=np.minimum(data.labels, 1), n_labels=2)
    with pytest.raises(ValueError, match=r"the earlier fit has 120 weights of term 'node', but this fit needs 80"):
        fit_chain(fewer_labels, RBF, **settings, start=first.end)


def test_edges_with_inputs_have_a_basis_and_a_part_in_the_gap(data):
    settings = {"C": 2.0, "tol": 1e-8, "random_state": 0, "certify_full": True}
    exact = fit_chain(data, RBF, OTHER, **settings).certificate
    assert exact.gap_full == pytest.approx(exact.gap_in_span, abs=1e-4)
    small = fit_chain(data, RBF, OTHER, **settings, n_components=30, rule="random")
    truth = small.certificate.objective - exact.objective
    assert truth <= small.certificate.gap_full <= 4 * truth
    assert small.weights["inputs__steps"].shape == (30, 9)
    again = fit_chain(data, RBF, OTHER, **settings, n_components=30, start=small.end)
    assert again.solution.n_iter == 0


def test_a_word_that_is_no_number_of_atoms_is_refused(data):
    with pytest.raises(ValueError, match="n='many'"):
        fit_chain(data, RBF, n_components="many")


def test_letters_are_learnt_to_a_certificate(data_folder):
    letters = np.load(data_folder / "letters_ocr" / "letters.npz")
    X = np.unpackbits(letters["pixels_packed"], axis=1).astype(np.float64)
    lengths = np.unique(letters["word_id"][letters["fold"] == 0], return_counts=True)[1]
    train = letters["fold"] == 0
    sequences = LabelledSequences(X[train], Chains.from_lengths(lengths), letters["label"][train].astype(np.int32), 26)
    shape = {"n_components": 300, "random_state": 0, "tol": 1e-3}
    found = fit_chain(sequences, InputKernel("rbf", gamma=0.03), C=10.0, **shape, n_jobs=2)
    assert found.certificate.status == "optimal"
    assert found.certificate.relative_gap <= 1e-3
    scores = found.maps["node"].transform(X[train]) @ found.weights["node"]
    labels, _ = viterbi(scores, found.weights["edge"].reshape(26, 26), sequences.chains)
    assert (labels == sequences.labels).mean() > 0.95


@pytest.mark.parametrize("factor", [1.0, 1.00005])
def test_gap_full_counts_features_that_exceed_the_kernel(data, factor):
    """Features that are too long have a lower optimum than the kernel, and the gap covers the difference either way."""
    exact = fit_chain(data, RBF, C=2.0, tol=1e-10)
    corpus, own = exact.problem.corpus, exact.features["node"]
    features = replace(own, F=factor * own.F)
    objective = Objective(exact.layout, corpus.partitions(exact.layout.terms, {"node": features}), LocalEngine(1))
    found = minimise(objective, LBFGS(), np.zeros(exact.layout.size), tol=1e-10)
    gap = corpus.gap_full(objective, found.evaluation, {"node": features}).value
    difference = abs(exact.certificate.objective - found.certificate.objective)
    assert (difference > 1e-4) == (factor > 1)
    assert difference <= 1.001 * gap + 1e-9


def test_landmarks_that_are_added_never_raise_the_objective(data):
    """Bases that are chosen apart are not nested, and promise nothing of the kind."""
    problem, engine, tol = chain_problem(data, RBF, C=2.0), LocalEngine(1), 1e-9
    features, before = None, np.inf
    for n in (18, 20, 40, 80):
        start = None if features is None else features.basis
        features = problem.corpus.features(problem.terms[0], n, "random", 0, engine, start)
        objective = objective_of(problem, {TOKEN_TERM: features}, engine)
        found = minimise(objective, LBFGS(), np.zeros(objective.layout.size), tol=tol).certificate
        assert found.objective <= before * (1 + tol)
        before = found.objective


@pytest.mark.parametrize("weight", [1e-300, 1e-160, 1e-10, 1e100])
def test_tiny_and_huge_weights_have_certificates_that_hold(data, weight):
    """With weights w and prior variances C / w, P is w times as large and so is everything that is said of it."""

    def certificate(w, **settings):
        own = replace(data, weights=np.full(data.chains.n_samples, w))
        shape = {"n_components": 60, "random_state": 0, "certify_full": True}
        return fit_chain(own, RBF, C=2.0 / w, C_edge=1.0 / w, **shape, **settings).certificate

    best, found = certificate(1.0, tol=1e-9), certificate(weight, tol=1e-3)
    assert found.lower_bound / weight <= best.objective
    assert (found.objective - found.gap_full) / weight <= best.objective - best.gap_full / 2
    assert found.status in ("optimal", "stalled")
    assert found.status == "stalled" or found.objective / weight <= best.objective * 1.001
