from dataclasses import replace

import numpy as np
import pytest
import scipy.sparse as sp

from kernelcrf import ChainCRF
from kernelcrf.corpora.sequences import LabelledSequences
from kernelcrf.datasets import make_sequences
from kernelcrf.engines.local import LocalEngine
from kernelcrf.fitting import Settings, fit
from kernelcrf.graphs.structure import Chains
from kernelcrf.inference.decoding import viterbi
from kernelcrf.kernels.cliques import CliqueKernel, LabelKernel
from kernelcrf.kernels.inputs import InputKernel
from kernelcrf.objective import Objective
from kernelcrf.parameters import Layout, TemplateBlock
from kernelcrf.solvers import LBFGS
from kernelcrf.solvers.loop import minimise

RBF = InputKernel("rbf", gamma=0.5)


@pytest.fixture(scope="module")
def data():
    rng = np.random.default_rng(0)
    chains = Chains.from_lengths(rng.integers(1, 12, size=50))
    X = rng.normal(size=(chains.n_nodes, 3))
    labels = (np.sin(2 * X[:, 0]) + X[:, 1] * X[:, 2] > 0).astype(np.int32) + (X[:, 2] > 0.8)
    return LabelledSequences(X, chains, labels.astype(np.int32), 3)


@pytest.fixture(scope="module")
def exact(data):
    return fit(data, Settings(RBF, C=2.0, tol=1e-10), LocalEngine(1)).certificate.objective


@pytest.mark.parametrize("n", [20, 60, 150])
@pytest.mark.parametrize("rule", ["random", "lloyd"])
def test_gap_full_bounds_the_distance_to_the_kernels_own_optimum(data, exact, n, rule):
    settings = Settings(RBF, C=2.0, n_components=n, rule=rule, tol=1e-10, certify_full=True, random_state=0)
    found = fit(data, settings, LocalEngine(1)).certificate
    truth = found.objective - exact
    assert truth <= found.gap_full <= 3 * truth
    assert found.gap_in_span < 1e-4 * truth


@pytest.mark.parametrize("tol", [1e-1, 1e-2, 1e-3])
def test_a_basis_that_grows_stops_at_the_tolerance(data, exact, tol):
    grown = fit(data, Settings(RBF, C=2.0, n_components="auto", tol=tol, random_state=0), LocalEngine(1))
    assert grown.certificate.gap_full <= tol * grown.certificate.objective
    assert grown.certificate.objective - exact <= grown.certificate.gap_full
    assert grown.features.F.shape[1] < data.chains.n_nodes


def test_a_cap_ends_the_growth_with_an_honest_gap(data, exact):
    settings = Settings(RBF, C=2.0, n_components="auto", max_components=70, tol=1e-6, random_state=0)
    found = fit(data, settings, LocalEngine(1))
    assert found.features.F.shape[1] == 70
    assert found.certificate.gap_full > 1e-6 * found.certificate.objective
    assert found.certificate.gap_full >= found.certificate.objective - exact
    assert found.certificate.status == "max_components"
    assert found.solution.status == "optimal"


def test_a_warm_start_grows_its_basis_to_what_other_data_need():
    data = make_sequences(60, random_state=0)
    settings = {"gamma": 5.0, "tol": 1e-3, "random_state": 0}
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
    data = make_sequences(30, random_state=0)
    X = [x.astype(dtype) for x in data.X]
    for gamma, tol in ((5.0, 1e-3), (0.1, 1e-4), (0.01, 1e-6)):
        certificate = (
            ChainCRF(n_components="auto", gamma=gamma, C=100.0, tol=tol, random_state=0).fit(X, data.y).certificate_
        )
        assert (certificate.status == "optimal") == (certificate.gap_full <= tol * certificate.objective)


def test_the_linear_kernel_is_primal_and_sparse_equals_dense(data):
    settings = Settings(InputKernel("linear"), C=1.0, C_bias=1.0, tol=1e-13, certify_full=True)
    dense = fit(data, settings, LocalEngine(1))
    sparse = fit(LabelledSequences(sp.csr_array(data.X), data.chains, data.labels, 3), settings, LocalEngine(2))
    assert dense.weights["node"].shape == (3, 3)
    assert dense.certificate.gap_full == pytest.approx(dense.certificate.gap_in_span, abs=1e-9)
    np.testing.assert_allclose(dense.solution.theta, sparse.solution.theta, atol=1e-5)


def test_shared_inputs_give_the_same_model_as_their_copies(data):
    rng = np.random.default_rng(1)
    index = rng.integers(25, size=data.chains.n_nodes)
    copies = LabelledSequences(data.X[index], data.chains, data.labels, 3)
    nudged = LabelledSequences(data.X[index] + 1e-9 * rng.normal(size=data.X.shape), data.chains, data.labels, 3)
    settings = Settings(RBF, tol=1e-10, certify_full=True)
    shared = fit(copies, settings, LocalEngine(1))
    apart = fit(nudged, Settings(RBF, n_components=25, rule="random", random_state=0, tol=1e-10), LocalEngine(1))
    assert shared.features.F.shape == (25, 25)
    assert shared.certificate.objective == pytest.approx(apart.certificate.objective, rel=1e-5)


def test_a_fit_takes_up_the_weights_of_an_earlier_one(data):
    settings = Settings(RBF, n_components=40, rule="random", random_state=0, tol=1e-8)
    first = fit(data, settings, LocalEngine(1))
    again = fit(data, settings, LocalEngine(1), start=first.end)
    assert again.solution.n_iter == 0
    fewer = data.chains.offsets[20]
    part = LabelledSequences(data.X[:fewer], Chains(data.chains.offsets[:21]), data.labels[:fewer], 3)
    other = fit(part, replace(settings, certify_full=True), LocalEngine(1), start=first.end)
    assert other.features.map is first.features.map
    assert other.certificate.status == "optimal"
    assert other.certificate.gap_full > other.certificate.gap_in_span
    with pytest.raises(ValueError, match=r"start has 129 weights but this fit has 132"):
        fit(data, replace(settings, C_bias=1.0), LocalEngine(1), start=first.end)


def test_edges_with_inputs_have_a_basis_and_a_part_in_the_gap(data):
    settings = Settings(RBF, RBF, C=2.0, tol=1e-8, random_state=0, certify_full=True)
    exact = fit(data, settings, LocalEngine(1)).certificate
    assert exact.gap_full == pytest.approx(exact.gap_in_span, abs=1e-4)
    small = fit(data, replace(settings, n_components=30, rule="random"), LocalEngine(1))
    truth = small.certificate.objective - exact.objective
    assert truth <= small.certificate.gap_full <= 4 * truth
    assert small.weights["steps"].shape == (30, 3, 3)
    again = fit(data, replace(settings, n_components=30), LocalEngine(1), start=small.end)
    assert again.solution.n_iter == 0


def test_a_word_that_is_no_number_of_atoms_is_refused(data):
    with pytest.raises(ValueError, match="n_components='many'"):
        fit(data, Settings(RBF, n_components="many"), LocalEngine(1))


def test_letters_are_learnt_to_a_certificate(data_folder):
    letters = np.load(data_folder / "letters_ocr" / "letters.npz")
    X = np.unpackbits(letters["pixels_packed"], axis=1).astype(np.float64)
    lengths = np.unique(letters["word_id"][letters["fold"] == 0], return_counts=True)[1]
    train = letters["fold"] == 0
    sequences = LabelledSequences(X[train], Chains.from_lengths(lengths), letters["label"][train].astype(np.int32), 26)
    settings = Settings(InputKernel("rbf", gamma=0.03), C=10.0, n_components=300, random_state=0, tol=1e-3)
    found = fit(sequences, settings, LocalEngine(2))
    assert found.certificate.status == "optimal"
    assert found.certificate.relative_gap <= 1e-3
    scores = found.features.map.transform(X[train]) @ found.weights["node"]
    labels, _ = viterbi(scores, found.weights["edge"][0], sequences.chains)
    assert (labels == sequences.labels).mean() > 0.95


@pytest.mark.parametrize("factor", [1.0, 1.00005])
def test_gap_full_counts_features_that_exceed_the_kernel(data, factor):
    """Features that are too long have a lower optimum than the kernel, and the gap covers the difference either way."""
    settings = Settings(RBF, C=2.0, tol=1e-10)
    corpus, engine = data.corpus(matched=True), LocalEngine(1)
    exact = fit(data, settings, engine)
    features = replace(exact.features, F=factor * exact.features.F)
    objective = Objective(exact.layout, corpus.partitions({"node": features}), engine)
    found = minimise(objective, LBFGS(), np.zeros(exact.layout.size), tol=1e-10)
    gap, _ = corpus.gap_full(objective, found.evaluation, {"node": features})
    difference = abs(exact.certificate.objective - found.certificate.objective)
    assert (difference > 1e-4) == (factor > 1)
    assert difference <= 1.001 * gap + 1e-9


def test_landmarks_that_are_added_never_raise_the_objective(data):
    """Bases that are chosen apart are not nested, and promise nothing of the kind."""
    corpus, engine, tol = data.corpus(matched=True), LocalEngine(1), 1e-9
    features, before = None, np.inf
    for n in (18, 20, 40, 80):
        start = None if features is None else features.basis
        features = corpus.features(RBF, n, "random", 0, engine, start)
        layout = Layout(
            (
                TemplateBlock(CliqueKernel("node", 1, LabelKernel("delta", 3), RBF), n, 2.0),
                TemplateBlock(CliqueKernel("edge", 2, LabelKernel("delta", 3), None), 1, 1.0),
            )
        )
        objective = Objective(layout, corpus.partitions({"node": features}), engine)
        found = minimise(objective, LBFGS(), np.zeros(layout.size), tol=tol).certificate
        assert found.objective <= before * (1 + tol)
        before = found.objective


@pytest.mark.parametrize("weight", [1e-300, 1e-160, 1e-10, 1e100])
def test_tiny_and_huge_weights_have_certificates_that_hold(data, weight):
    """With weights w and prior variances C / w, P is w times as large and so is everything that is said of it."""

    def certificate(w, **settings):
        own = replace(data, weights=np.full(data.chains.n_samples, w))
        shape = {"n_components": 60, "random_state": 0, "certify_full": True}
        return fit(own, Settings(RBF, C=2.0 / w, C_edge=1.0 / w, **shape, **settings), LocalEngine(1)).certificate

    best, found = certificate(1.0, tol=1e-9), certificate(weight, tol=1e-3)
    assert found.lower_bound / weight <= best.objective
    assert (found.objective - found.gap_full) / weight <= best.objective - best.gap_full / 2
    assert found.status in ("optimal", "stalled")
    assert found.status == "stalled" or found.objective / weight <= best.objective * 1.001
