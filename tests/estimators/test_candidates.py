"""CandidateCRF beside enumeration, beside other estimators that are special cases, and with what it refuses."""

from itertools import pairwise

import numpy as np
import pytest
import scipy.sparse as sp
from sklearn.base import clone

from joint_twin import JointTwin
from kernelcrf import CandidateCRF, ChainCRF, Input, load
from kernelcrf.basis import Landmarks

C, GAMMA, D, E = 2.0, 0.4, 2, 3
RNG = np.random.default_rng(0)
COUNTS = [[2, 3, 1], [4, 2], [1], [3, 3, 2]]
X = [[RNG.normal(size=(n, D)) for n in counts] for counts in COUNTS]
STEPS = [[RNG.normal(size=(a, b, E)) for a, b in pairwise(counts)] for counts in COUNTS]
Y = [[int(RNG.integers(n)) for n in counts] for counts in COUNTS]
BOTH = [{"near": x, "steps": s} for x, s in zip(X, STEPS, strict=True)]
TIGHT = {"C": C, "tol": 1e-10, "random_state": 0}


def inputs(kernel="rbf", of_steps="rbf", n=None):
    return {
        "near": Input(kernel, gamma=GAMMA, n_components=n),
        "steps": Input(of_steps, gamma=GAMMA, n_components=n, scores="steps"),
    }


def gram(kernel, rows):
    return rows @ rows.T if kernel == "linear" else np.exp(-GAMMA * np.square(rows[:, None] - rows[None]).sum(-1))


def twin(kernel="rbf", of_steps=None):
    """Return the dense twin: kernels between all candidates, and between all pairs of candidates."""
    counts = [n for one in COUNTS for n in one]
    N, L = len(counts), max(counts)
    rows = np.zeros((N, L, D))
    for t, one in enumerate(one for x in X for one in x):
        rows[t, : len(one)] = one
    K = C * gram(kernel, rows.reshape(-1, D)).reshape(N, L, N, L)
    Q = np.zeros((L,) * 4)
    if of_steps is not None:
        pairs, first = np.zeros((N, L, L, E)), 0
        for x, steps in zip(X, STEPS, strict=True):
            for t, table in enumerate(steps, first + 1):
                pairs[t, : table.shape[0], : table.shape[1]] = table
            first += len(x)
        Q = C * gram(of_steps, pairs.reshape(-1, E)).reshape(N, L, L, N, L, L)
    return JointTwin([len(x) for x in X], K, Q, counts), L


@pytest.fixture(scope="module")
def model():
    return CandidateCRF(inputs=inputs(), certify_full=True, laplace=True, **TIGHT).fit(BOTH, Y)


@pytest.mark.parametrize("kernel", ["rbf", "linear"])
@pytest.mark.parametrize("of_steps", [None, "rbf", "linear"])
def test_fits_equal_enumeration_with_dense_kernels(kernel, of_steps):
    dense, L = twin(kernel, of_steps)
    value, p = dense.fit(Y)
    if of_steps is None:
        crf, data = CandidateCRF(kernel, gamma=GAMMA, n_components=None, certify_full=True, **TIGHT), X
    else:
        crf, data = CandidateCRF(inputs=inputs(kernel, of_steps), certify_full=True, **TIGHT), BOTH
    crf.fit(data, Y)
    assert crf.certificate_.status == "optimal"
    assert crf.certificate_.objective == pytest.approx(value, rel=1e-8)
    assert crf.certificate_.gap_full < 1e-7
    expected = np.concatenate(dense.marginals(p, L))
    found = [q for tokens in crf.predict_proba(data) for q in tokens]
    for q, true in zip(found, expected, strict=True):
        assert q == pytest.approx(true[: len(q)], abs=1e-4)
    log_p = [
        np.log(q[(labellings == y).all(axis=1)][0]) for (labellings, _), q, y in zip(dense.samples, p, Y, strict=True)
    ]
    assert crf.log_prob(data, Y) == pytest.approx(log_p, abs=1e-4)


@pytest.mark.parametrize("solver", ["lbfgs", "newton-cg", "newton", "block-jacobi", "subspace"])
def test_gap_full_covers_the_distance_to_the_exact_optimum(solver, model):
    for n in (2, 5):
        crf = CandidateCRF(inputs=inputs(n=n), solver=solver, certify_full=True, **TIGHT).fit(BOTH, Y)
        truth = crf.certificate_.objective - model.certificate_.objective
        assert 0 < truth <= crf.certificate_.gap_full


def test_a_basis_grows_until_the_gap_is_small(model):
    crf = CandidateCRF(inputs=inputs(n="auto"), **(TIGHT | {"tol": 1e-2})).fit(BOTH, Y)
    assert crf.certificate_.status == "optimal"
    assert crf.certificate_.objective - model.certificate_.objective <= crf.certificate_.gap_full


def test_the_evidence_is_that_of_the_dense_curvature(model):
    dense, _ = twin("rbf", "rbf")
    value, p = dense.fit(Y)
    H = np.eye(dense.samples[0][1].shape[1])
    for (_, phi), q in zip(dense.samples, p, strict=True):
        mean = q @ phi
        H += (phi * q[:, None]).T @ phi - np.outer(mean, mean)
    assert model.log_marginal_likelihood() == pytest.approx(-value - 0.5 * np.linalg.slogdet(H)[1], abs=1e-4)


def test_labels_that_all_tokens_share_are_candidates_too():
    """With one feature per pair of an input and a label, candidates are the labels of ChainCRF."""
    rng = np.random.default_rng(1)
    rows, y = [rng.normal(size=(T, 2)) for T in (4, 3, 5)], [rng.integers(3, size=T) for T in (4, 3, 5)]
    eye = np.eye(3)
    tokens = [[np.kron(eye, row[None]) for row in x] for x in rows]
    steps = [[np.eye(9).reshape(3, 3, 9)] * (len(x) - 1) for x in rows]
    given = [{"tokens": a, "steps": b} for a, b in zip(tokens, steps, strict=True)]
    of_candidates = {"tokens": "linear", "steps": Input("linear", scores="steps")}
    one = CandidateCRF(inputs=of_candidates, **TIGHT).fit(given, y)
    other = ChainCRF("linear", fit_intercept=False, decoding="viterbi", **TIGHT).fit(rows, y)
    assert one.certificate_.objective == pytest.approx(other.certificate_.objective, rel=1e-8)
    assert pytest.approx(other.coef_, abs=1e-4) == one.coef_.reshape(3, 2).T
    assert one.step_coef_.reshape(3, 3) == pytest.approx(other.transitions_, abs=1e-4)
    assert [a.tolist() for a in one.predict(given)] == [a.tolist() for a in other.predict(rows)]


def test_feature_dicts_sparse_and_dense_candidates_are_the_same():
    dicts = [[[{"a": a, "b": b} for a, b in one] for one in x] for x in X]
    sparse = [[sp.csr_array(one) for one in x] for x in X]
    objectives = [CandidateCRF("linear", **TIGHT).fit(given, Y).certificate_.objective for given in (X, dicts, sparse)]
    assert objectives[1:] == pytest.approx(objectives[:1] * 2, rel=1e-9)


def test_the_distribution_sums_over_the_candidates_that_tokens_have(model):
    distribution = model.distribution(BOTH)
    ranked = distribution.k_best(1000)
    for i, counts in enumerate(COUNTS):
        assert len(ranked[i]) == np.prod(counts)
        p = np.exp([log_p for _, log_p in ranked[i]])
        assert p.sum() == pytest.approx(1.0)
        assert distribution.entropy()[i] == pytest.approx(-(p * np.log(p)).sum())
        assert model.predict(BOTH)[i].tolist() == ranked[i][0][0].tolist()
    drawn = distribution.sample(50, random_state=0)
    assert all((one < np.array(counts)).all() for one, counts in zip(drawn, COUNTS, strict=True))
    marginal = distribution.decode("marginal")
    best = [[int(p.argmax()) for p in tokens] for tokens in distribution.marginals()]
    assert [labels.tolist() for labels in marginal] == best
    assert list(distribution.labelled_marginals()[0][0]) == [0, 1]


def test_new_tokens_may_have_more_candidates(model):
    more = [{"near": [RNG.normal(size=(9, D))], "steps": []}]
    assert model.predict_proba(more)[0][0].shape == (9,)
    assert model.predict_proba(more)[0][0].sum() == pytest.approx(1.0)


def test_answers_of_a_stored_model_are_the_same(model, tmp_path):
    model.save(tmp_path / "model.kcrf")
    loaded = load(tmp_path / "model.kcrf")
    for a, b in zip(loaded.predict_proba(BOTH), model.predict_proba(BOTH), strict=True):
        assert all(np.array_equal(p, q) for p, q in zip(a, b, strict=True))
    assert loaded.score(BOTH, Y) == model.score(BOTH, Y)
    again = clone(loaded).fit(BOTH, Y)
    assert again.certificate_.objective == pytest.approx(model.certificate_.objective, rel=1e-9)
    assert loaded.set_params(warm_start=True, laplace=False).fit(BOTH, Y).n_iter_ <= 1


def test_missing_candidates_weights_and_searches(tmp_path):
    y = [[None, *Y[0][1:]], *Y[1:-1], [-1] * 3]
    crf = CandidateCRF("linear", C=C).fit(X, y)
    assert crf.certificate_.status == "stationary"
    assert crf.log_prob(X, y)[-1] == pytest.approx(0.0)
    assert 0 <= crf.score(X, y) <= 1
    weighted = CandidateCRF("rbf", gamma=GAMMA, **TIGHT).fit(X, Y, [2.0, 1.0, 1.0, 0.0])
    copied = CandidateCRF("rbf", gamma=GAMMA, **TIGHT).fit([X[0], *X[:3]], [Y[0], *Y[:3]])
    assert weighted.certificate_.objective == pytest.approx(copied.certificate_.objective, rel=1e-7)
    auto = CandidateCRF("linear").fit(X * 6, Y * 6)
    assert auto.C_ in 10.0 ** np.arange(-3, 5)
    by_evidence = CandidateCRF("linear", C="evidence").fit(X * 6, Y * 6)
    assert by_evidence.C_ > 0
    with pytest.warns(match="max_iter"):
        CandidateCRF("rbf", max_iter=1, checkpoint=tmp_path / "run", **TIGHT).fit(X, Y)
    went_on = CandidateCRF("rbf", checkpoint=tmp_path / "run", **TIGHT).fit(X, Y)
    assert went_on.certificate_.objective == pytest.approx(
        CandidateCRF("rbf", **TIGHT).fit(X, Y).certificate_.objective, rel=1e-8
    )


@pytest.mark.parametrize(
    ("given", "y", "message"),
    [
        ([[np.zeros((0, 2)), np.zeros((1, 2))]], [[0, 0]], "has no candidates"),
        ([[np.zeros((2, 2))]], [[2]], "from 0 to 1"),
        ([[np.zeros((2, 2))]], [[0, 0]], "has 1 tokens"),
        ([[np.zeros((2, 2))]], [[0], [0]], "y has 2 sequences"),
        ([{"near": [np.zeros((2, 2))]}], [[0]], "is a mapping"),
        ([[np.zeros((2, 2))]], [[None]], "no known candidate"),
    ],
)
def test_wrong_candidates_are_named(given, y, message):
    with pytest.raises((ValueError, TypeError), match=message):
        CandidateCRF("linear", C=1.0).fit(given, y)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"steps": STEPS[0][:1]}, "expected 2, one for each"),
        ({"steps": [table[:1] for table in STEPS[0]]}, r"expected \(2, 3, n_features\)"),
        ({"near": X[0][:2]}, "has 2 steps"),
        ({"other": 1, "near": None}, "X\\[0\\]"),
    ],
)
def test_wrong_steps_are_named(change, message):
    with pytest.raises((ValueError, TypeError), match=message):
        CandidateCRF(inputs=inputs(), C=1.0).fit([BOTH[0] | change, *BOTH[1:]], Y)


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({"prior": "model.kcrf"}, "prior="),
        ({"n_components": Landmarks(5, features="recomputed")}, "CandidateCRF stores features"),
        ({"inputs": {"near": Input("rbf", columns=[0])}}, "inputs__near__columns"),
        ({"inputs": {"near": Input("rbf", scores="starts")}}, "inputs__near__scores"),
        ({"solver": "dual"}, "dual"),
    ],
)
def test_what_is_not_available_is_refused(parameters, message):
    with pytest.raises(ValueError, match=message):
        CandidateCRF(C=1.0).set_params(**parameters).fit(BOTH if "inputs" in parameters else X, Y)
