"""Certified labels and bounds on scores. `tests/certificates` compares them with the optima of random problems."""

import itertools

import numpy as np
import pytest
import scipy.sparse as sp

from chain_fits import of_tokens_and_steps
from kernelcrf import ChainCRF, TemperatureScaling, load
from kernelcrf.datasets import make_sequences
from kernelcrf.graphs.structure import Chains
from kernelcrf.inference import decoding

PARAMETERS = {"C": 10.0, "decoding": "viterbi", "n_components": 40, "random_state": 0}


@pytest.fixture(scope="module")
def data():
    return make_sequences(25, random_state=0), make_sequences(40, random_state=1)


@pytest.mark.parametrize("tied", [True, False])
def test_rivals_equal_enumeration(tied):
    rng, lengths, L = np.random.default_rng(0), (4, 0, 1, 3), 3
    N = sum(lengths)
    s, w = rng.normal(size=(N, L)), rng.normal(size=(L, L) if tied else (N, L, L))
    w[..., 0, 1] = -np.inf
    y, extra, detour = rng.integers(2, 3, N), rng.random((N, L)), rng.random(N)
    extra[np.arange(N), y] = 0
    rival = decoding.rivals(s, w, Chains.from_lengths(lengths), y.astype(np.int32), extra, detour)
    first = 0
    for T in lengths:
        rows = range(first, first + T)

        def total(z, rows=rows, T=T):
            steps = [(w if tied else w[rows[t]])[z[t - 1], z[t]] for t in range(1, T)]
            around = [detour[rows[t]] for t in range(1, T) if z[t] == y[rows[t]] and z[t - 1] != y[rows[t - 1]]]
            return sum(s[t, j] + extra[t, j] for t, j in zip(rows, z, strict=True)) + sum(steps) + sum(around)

        own = total([y[t] for t in rows])
        for t in range(T):
            others = [z for z in itertools.product(range(L), repeat=T) if z[t] != y[rows[t]]]
            assert rival[rows[t]] == pytest.approx(max(map(total, others)) - own)
        first += T


@pytest.mark.parametrize(
    "parameters",
    [
        {},
        {"kernel": "linear", "fit_intercept": False},
        {
            "inputs": of_tokens_and_steps(n_components=40),
            "n_components": 500,
            "fit_intercept": "boundaries",
        },
        {"label_kernel": [[1.0, 0.5, 0.0], [0.5, 1.0, 0.0], [0.0, 0.0, 2.0]]},
    ],
)
def test_certified_labels_are_those_of_a_fit_to_a_tiny_gap(data, parameters):
    train, test = data
    exact = ChainCRF(**PARAMETERS | parameters, solver="newton-cg", tol=1e-9).fit(train.X, train.y)
    truth = exact.predict(test.X)
    shares = []
    for tol in (1e-3, 1e-7):
        crf = ChainCRF(**PARAMETERS | parameters, tol=tol).fit(train.X, train.y)
        found = crf.distribution(test.X).certify()
        for labels, own, predicted in zip(found.labels, truth, crf.predict(test.X), strict=True):
            np.testing.assert_array_equal(labels, predicted)
            assert len(labels) == len(own)
        wrong = [(a != b) & sure for a, b, sure in zip(found.labels, truth, found.tokens, strict=True)]
        assert not np.concatenate(wrong).any()
        assert found.sequences.tolist() == [bool(sure.all()) for sure in found.tokens]
        assert all(((margin > 0) == sure).all() for margin, sure in zip(found.margins, found.tokens, strict=True))
        bounds = crf.distribution(test.X).score_bounds(test.y)
        loss = -exact.log_prob(test.X, test.y).sum() / sum(map(len, test.y))
        assert bounds.log_loss[0] <= loss <= bounds.log_loss[1]
        assert bounds.accuracy[0] <= exact.score(test.X, test.y) <= bounds.accuracy[1]
        shares.append(np.concatenate(found.tokens).mean())
    assert shares == sorted(shares)
    assert shares[-1] > 0.7


def test_full_certificates_are_about_the_kernel_machine_on_all_inputs(data):
    train, test = data
    exact = ChainCRF(C=10.0, decoding="viterbi", solver="newton-cg", tol=1e-9).fit(train.X, train.y)
    crf = ChainCRF(C=10.0, n_components="auto", tol=1e-5, random_state=0).fit(train.X, train.y)
    found, in_span = crf.distribution(test.X).certify(full=True), crf.distribution(test.X).certify()
    assert found.radius > in_span.radius
    assert np.concatenate(found.tokens).mean() > 0.2
    for labels, own, sure in zip(found.labels, exact.predict(test.X), found.tokens, strict=True):
        assert (labels == own)[sure].all()
    bounds = crf.distribution(test.X).score_bounds(test.y, full=True)
    assert bounds.accuracy[0] <= exact.score(test.X, test.y) <= bounds.accuracy[1]


def test_inputs_in_any_container_have_the_same_margins(data):
    train, test = data
    crf = ChainCRF("linear", C=1.0).fit([sp.csr_array(x) for x in train.X], train.y)
    margins = np.concatenate(crf.distribution([sp.csr_array(x) for x in test.X]).certify().margins)
    flat = crf.distribution(sp.csr_array(np.concatenate(test.X)), [len(x) for x in test.X]).certify()
    np.testing.assert_array_equal(np.concatenate(flat.margins), margins)
    dense = ChainCRF("linear", C=1.0).fit(train.X, train.y)
    assert dense.distribution(test.X).certify(full=True).radius == dense.distribution(test.X).certify().radius
    assert crf.distribution([sp.csr_array((0, 2))]).certify().sequences.tolist() == [True]


def test_spans_are_certified_if_their_labels_and_neighbours_are(data):
    train, test = data
    names = np.array(["O", "B-A", "I-A"])
    crf = ChainCRF(**PARAMETERS, tol=1e-5).fit(train.X, [names[y] for y in train.y])
    certified = crf.distribution(test.X).certify()
    marks = 0
    for own, sure in zip(crf.distribution(test.X).spans(certify=True), certified.tokens, strict=True):
        for span in own:
            assert span.certified == sure[max(span.start - 1, 0) : span.end + 1].all()
            marks += span.certified
    assert marks > 0
    likely = crf.distribution(test.X).spans(threshold=0.01, certify=True)
    assert sum(span.certified for own in likely for span in own) == marks
    assert all(span.certified is None for own in crf.distribution(test.X).spans() for span in own)


def test_what_cannot_be_certified_is_refused(data, tmp_path):
    train, test = data
    crf = ChainCRF(**PARAMETERS).fit(train.X, train.y)
    with pytest.raises(ValueError, match=r"full=True needs the gap .* fit with certify_full=True"):
        crf.distribution(test.X).certify(full=True)
    with pytest.raises(ValueError, match="divided by a temperature"):
        TemperatureScaling(crf).fit(test.X, test.y).estimator_.distribution(test.X).certify()
    partial = [[None, *y[1:]] for y in train.y]
    with pytest.raises(ValueError, match="status 'stationary' and no lower bound"):
        ChainCRF(**PARAMETERS).fit(train.X, partial).distribution(test.X).certify()
    with pytest.raises(ValueError, match="y has missing labels"):
        crf.distribution(test.X).score_bounds([[None, *y[1:]] for y in test.y])
    crf.save(tmp_path / "single.kcrf", dtype="float32")
    with pytest.raises(ValueError, match="rounded to single precision"):
        load(tmp_path / "single.kcrf").distribution(test.X).certify()
    crf.save(tmp_path / "double.kcrf")
    again = load(tmp_path / "double.kcrf").distribution(test.X).certify()
    np.testing.assert_array_equal(
        np.concatenate(again.margins), np.concatenate(crf.distribution(test.X).certify().margins)
    )
    load(tmp_path / "single.kcrf").save(tmp_path / "again.kcrf")
    with pytest.raises(ValueError, match="rounded to single precision"):
        load(tmp_path / "again.kcrf").distribution(test.X).certify()


def test_single_precision_certifies_less_and_nothing_wrongly(data):
    train, test = data
    single = ChainCRF(**PARAMETERS, tol=1e-4).fit([x.astype(np.float32) for x in train.X], train.y)
    found = single.distribution([x.astype(np.float32) for x in test.X]).certify()
    exact = ChainCRF(**PARAMETERS, solver="newton-cg", tol=1e-9).fit(train.X, train.y)
    for labels, own, sure in zip(found.labels, exact.predict(test.X), found.tokens, strict=True):
        assert (labels == own)[sure].all()


def test_margins_cover_the_rounding_of_transitions_to_single_precision(data):
    train, test = data
    crf = ChainCRF("linear", C=10.0).fit(train.X, train.y)
    X = [np.zeros_like(x) for x in test.X]  # the scores of tokens are exact
    rough, fine = crf.distribution([x.astype(np.float32) for x in X]).certify(), crf.distribution(X).certify()
    eps, largest = np.finfo(np.float32).eps, np.abs(crf.transitions_).max()
    for a, b in zip(rough.margins, fine.margins, strict=True):
        assert (a < b - eps * len(a) * largest).all()


def test_bounds_of_a_labelling_that_constraints_forbid_are_infinite():
    X = [[["a"], ["b"], ["c"]], [["b"], ["a"], ["a"]], [["a"], ["a"], ["a"]]]
    y = [["O", "B-X", "I-X"], ["B-X", "O", "O"], ["O", "O", "O"]]
    crf = ChainCRF("linear", C=10.0, constraints="BIO").fit(X, y)
    y[0] = ["O", "I-X", "O"]
    assert crf.distribution(X).score_bounds(y).log_loss == (np.inf, np.inf)
    y[0] = ["O", "I-X", None]
    log_p = crf.log_prob(X, y)
    assert log_p[0] == -np.inf
    np.testing.assert_allclose(log_p[1:], crf.log_prob(X[1:], y[1:]))


def test_several_inputs_of_feature_dicts_have_certified_labels():
    rng = np.random.default_rng(0)
    X = [[{"a": float(a), "b": 1.0} for a in rng.normal(size=4)] for _ in range(6)]
    y = [["high" if token["a"] > 0 else "low" for token in x] for x in X]
    crf = ChainCRF(inputs=of_tokens_and_steps("rbf", "rbf"), C=1.0, tol=1e-9, random_state=0).fit(X, y)
    certified = crf.distribution(X).certify()
    assert np.mean(np.concatenate(certified.tokens)) > 0.9
