"""Base scores are added and not learned: fits, probabilities, files and bounds equal enumeration with them."""

from dataclasses import replace
from itertools import pairwise, product

import numpy as np
import pytest
from scipy.special import logsumexp, softmax
from sklearn.base import clone

import kernelcrf
from kernelcrf import ChainCRF, GraphCRF, KernelClassifier, MultiLabelCRF, SegmentCRF

RNG = np.random.default_rng(5)
LENGTHS = (3, 1, 4, 2, 4)
X = [RNG.normal(size=(T, 2)) for T in LENGTHS]
Y = [RNG.choice(["a", "b", "c"], size=T).tolist() for T in LENGTHS]
TOKENS = [2 * RNG.normal(size=(T, 3)) for T in LENGTHS]
STEPS = [2 * RNG.normal(size=(T, 3, 3)) for T in LENGTHS]
KINDS = {
    "tokens": TOKENS,
    "dict": {"tokens": TOKENS},
    "steps": {"steps": STEPS},
    "both": {"tokens": TOKENS, "steps": STEPS},
}


def parts(base):
    """The base scores of tokens and of steps of each sequence, zeros if they are not given."""
    given = base if isinstance(base, dict) else {"tokens": base}
    tokens = given.get("tokens", [np.zeros((T, 3)) for T in LENGTHS])
    return tokens, given.get("steps", [np.zeros((T, 3, 3)) for T in LENGTHS])


def enumerated(crf, base):
    """For each sequence, the log-probabilities of all labellings by the weights of the model and base scores."""
    found = []
    for x, u, w in zip(X, *parts(base), strict=True):
        s = x @ crf.coef_ + crf.intercept_ + u
        scores = {}
        for y in product(range(3), repeat=len(x)):
            steps = sum(crf.transitions_[i, j] + w[t + 1, i, j] for t, (i, j) in enumerate(pairwise(y)))
            scores[y] = sum(s[t, k] for t, k in enumerate(y)) + steps
        total = logsumexp(list(scores.values()))
        found.append({y: score - total for y, score in scores.items()})
    return found


def index(labels):
    return tuple("abc".index(label) for label in labels)


@pytest.fixture(scope="module", params=KINDS)
def fitted(request):
    base = KINDS[request.param]
    crf = ChainCRF("linear", decoding="viterbi", C=2.0, fit_intercept=True, laplace=True, tol=1e-10)
    return crf.fit(X, Y, base_scores=base), base


def test_probabilities_and_the_objective_are_those_of_enumeration(fitted):
    crf, base = fitted
    every = enumerated(crf, base)
    expected = [one[index(y)] for one, y in zip(every, Y, strict=True)]
    np.testing.assert_allclose(crf.log_prob(X, Y, base_scores=base), expected, rtol=1e-10)
    squares = sum(np.square(W).sum() for W in (crf.coef_, crf.intercept_, crf.transitions_))
    assert crf.certificate_.objective == pytest.approx(squares / 4 - sum(expected), rel=1e-10)
    assert crf.certificate_.status == "optimal"
    for p, one in zip(crf.predict_proba(X, base_scores=base), every, strict=True):
        for t, k in np.ndindex(p.shape):
            assert p[t, k] == pytest.approx(sum(np.exp(v) for y, v in one.items() if y[t] == k), rel=1e-9)
    best = [max(one, key=one.get) for one in every]
    assert [index(y) for y in crf.predict(X, base_scores=base)] == best


def test_other_weights_have_a_larger_objective(fitted):
    crf, base = fitted
    rng, model = np.random.default_rng(0), crf.model_
    for _ in range(5):
        theta = model.theta + 1e-2 * rng.normal(size=len(model.theta))
        other = clone(crf)
        other.model_ = replace(model, theta=theta)
        value = 0.25 * np.square(theta).sum() - other.log_prob(X, Y, base_scores=base).sum()
        assert value > crf.certificate_.objective


def test_a_file_keeps_what_a_fit_had(fitted, tmp_path):
    crf, base = fitted
    crf.save(tmp_path / "model")
    loaded = kernelcrf.load(tmp_path / "model")
    expected = crf.predict_proba(X, base_scores=base)
    for ours, theirs in zip(loaded.predict_proba(X, base_scores=base), expected, strict=True):
        np.testing.assert_array_equal(ours, theirs)
    with pytest.raises(ValueError, match="base_scores has scores of nothing"):
        loaded.predict(X)


def test_the_posterior_has_base_scores(fitted):
    crf, base = fitted
    options = {"posterior": "laplace", "n_samples": 5, "base_scores": base}
    narrow = crf.predict_proba(X, variance_temperature=1e-16, **options)
    for ours, theirs in zip(narrow, crf.predict_proba(X, base_scores=base), strict=True):
        np.testing.assert_allclose(ours, theirs, atol=1e-5)
    assert crf.uncertainty(X, n_samples=5, base_scores=base).epistemic[0].shape == (3,)


def test_certified_labels_and_left_out_sequences_have_base_scores(fitted):
    crf, base = fitted
    assert all(flags.all() for flags in crf.distribution(X, base_scores=base).certify().tokens)
    left_out = crf.loo_log_prob(X, Y, base_scores=base)
    tokens, steps = parts(base)
    given = {"tokens": tokens[1:], "steps": steps[1:]}
    without = ChainCRF("linear", C=2.0, fit_intercept=True, tol=1e-10).fit(X[1:], Y[1:], base_scores=given)
    first = {"tokens": tokens[:1], "steps": steps[:1]}
    assert left_out.log_prob[0] == pytest.approx(without.log_prob(X[:1], Y[:1], base_scores=first)[0], abs=0.02)


def test_zeros_change_nothing():
    plain = ChainCRF("rbf", C=2.0, tol=1e-9, random_state=0).fit(X, Y)
    zero = ChainCRF("rbf", C=2.0, tol=1e-9, random_state=0).fit(X, Y, base_scores=[np.zeros_like(b) for b in TOKENS])
    assert zero.certificate_.objective == pytest.approx(plain.certificate_.objective, rel=1e-9)


def test_flat_tokens_and_feature_dicts_have_base_scores():
    dicts = [[{"x": float(row[0])} for row in x] for x in X]
    one = ChainCRF(C=1.0).fit(dicts, Y, base_scores=TOKENS)
    flat = [token for x in dicts for token in x]
    labels = [label for y in Y for label in y]
    other = ChainCRF(C=1.0).fit(flat, labels, lengths=LENGTHS, base_scores=np.vstack(TOKENS))
    assert one.certificate_.status == "optimal"
    np.testing.assert_allclose(one.coef_, other.coef_, atol=1e-8)
    ours = other.predict_proba(flat, lengths=LENGTHS, base_scores=np.vstack(TOKENS))
    np.testing.assert_allclose(np.vstack(ours), np.vstack(one.predict_proba(dicts, base_scores=TOKENS)), atol=1e-8)


def test_C_is_chosen_with_base_scores():
    assert ChainCRF("linear").fit(X * 4, Y * 4, base_scores=TOKENS * 4).C_ > 0


def test_segments_add_the_scores_of_the_labels_of_their_tokens():
    """With weights of nearly zero, p(y|x) is that of base scores alone: runs of equal labels are segments."""
    crf = SegmentCRF("linear", C=1e-14, ends=False).fit(X, Y, base_scores=TOKENS)
    for p, base in zip(crf.predict_proba(X, base_scores=TOKENS), TOKENS, strict=True):
        np.testing.assert_allclose(p, softmax(base, axis=1), atol=1e-6)


def test_tags_of_segments_have_scores_of_their_own():
    tags = ["B-X", "I-X", "O"]
    y = [["B-X", "I-X", "O"], ["O"], ["O", "B-X", "B-X", "O"], ["B-X", "I-X"], ["O", "O", "B-X", "I-X"]]
    crf = SegmentCRF("linear", C=1e-14, ends=False).fit(X, y, base_scores=TOKENS)
    assert crf.classes_.tolist() == tags
    for p, base in zip(crf.predict_proba(X, base_scores=TOKENS), TOKENS, strict=True):
        legal = [
            z
            for z in product(range(3), repeat=len(base))
            if all(k != 1 or (t and z[t - 1] < 2) for t, k in enumerate(z))
        ]
        weights = softmax([sum(base[t, k] for t, k in enumerate(z)) for z in legal])
        for t in range(len(base)):
            expected = [sum(w for z, w in zip(legal, weights, strict=True) if z[t] == k) for k in range(3)]
            np.testing.assert_allclose(p[t], expected, atol=1e-6)
    with pytest.raises(ValueError, match="expected only scores of tokens"):
        SegmentCRF("linear").fit(X, y, base_scores={"steps": STEPS})


def test_rows_have_base_scores(tmp_path):
    rows, y, base = np.vstack(X), np.hstack(Y), np.vstack(TOKENS)
    model = KernelClassifier("linear", C=1e-14).fit(rows, y, base_scores=base)
    np.testing.assert_allclose(model.predict_proba(rows, base_scores=base), softmax(base, axis=1), atol=1e-6)
    model = KernelClassifier("rbf", C=3.0, tol=1e-9, random_state=0).fit(rows, y, [0, 1] * 7, base_scores=base)
    shifted = KernelClassifier("rbf", C=3.0, tol=1e-9, random_state=0).fit(
        rows, y, [0, 1] * 7, base_scores=base + rows[:, :1]
    )
    np.testing.assert_allclose(
        model.predict_proba(rows, base_scores=base),
        shifted.predict_proba(rows, base_scores=base + rows[:, :1]),
        atol=1e-4,
    )
    model.save(tmp_path / "rows")
    loaded = kernelcrf.load(tmp_path / "rows")
    assert loaded.score(rows, y, base_scores=base) == model.score(rows, y, base_scores=base)
    with pytest.raises(ValueError, match="scores of nothing"):
        loaded.predict(rows)


@pytest.mark.parametrize("typed", [False, True])
def test_nodes_of_graphs_have_base_scores(typed, tmp_path):
    """With weights of nearly zero, p(y|x) is that of base scores alone; graphs of weight 0 drop theirs."""
    edges = [[[t, t + 1] for t in range(T - 1)] or np.empty((0, 2), int) for T in LENGTHS]
    graphs = [{"nodes": x, "edges": e} for x, e in zip(X, edges, strict=True)]
    if typed:
        graphs = [one | {"node_types": ["u", "v", "u", "u"][: len(one["nodes"])]} for one in graphs]
    options = {"kernel": "linear", "C": 1e-14, "C_label": 1e-14, "laplace": True}
    crf = GraphCRF(**options).fit(graphs, Y, [1, 0, 1, 1, 1], base_scores=TOKENS)
    for p, base in zip(crf.predict_proba(graphs, base_scores=TOKENS), TOKENS, strict=True):
        np.testing.assert_allclose(p, softmax(base, axis=1), atol=1e-6)
    averaged = crf.predict_proba(graphs, posterior="laplace", n_samples=3, base_scores=TOKENS)
    np.testing.assert_allclose(np.vstack(averaged), softmax(np.vstack(TOKENS), axis=1), atol=1e-5)
    crf.save(tmp_path / "graphs")
    loaded = kernelcrf.load(tmp_path / "graphs")
    assert loaded.score(graphs, Y, base_scores=TOKENS) == crf.score(graphs, Y, base_scores=TOKENS)
    with pytest.raises(ValueError, match="scores of nothing"):
        loaded.predict(graphs)
    with pytest.raises(ValueError, match="has 2 graphs"):
        GraphCRF("linear").fit(graphs, Y, base_scores=TOKENS[:2])


def test_a_chain_of_graphs_is_a_chain_with_the_same_base_scores():
    chain = ChainCRF("linear", C=2.0, fit_intercept=True, tol=1e-9).fit(X, Y, base_scores=TOKENS)
    graph = GraphCRF("linear", C=2.0, C_label=2.0, directed=True, tol=1e-9).fit(X, Y, base_scores=TOKENS)
    assert graph.certificate_.objective == pytest.approx(chain.certificate_.objective, rel=1e-8)
    ours = np.vstack(graph.predict_proba(X, base_scores=TOKENS))
    np.testing.assert_allclose(ours, np.vstack(chain.predict_proba(X, base_scores=TOKENS)), atol=1e-4)


def test_label_sets_have_base_scores(tmp_path):
    rows, odds = np.vstack(X), np.vstack(TOKENS)
    y = (odds + np.random.default_rng(0).normal(size=odds.shape) > 0).astype(int)
    weights = np.arange(len(rows)) % 3
    options = {"kernel": "linear", "structure": "full", "laplace": True}
    model = MultiLabelCRF(C=1e-14, C_label=1e-14, **options).fit(rows, y, weights, base_scores=odds)
    expected = 1 / (1 + np.exp(-odds))
    np.testing.assert_allclose(model.predict_proba(rows, base_scores=odds), expected, atol=1e-6)
    averaged = model.predict_proba(rows, posterior="laplace", n_samples=3, base_scores=odds)
    np.testing.assert_allclose(averaged, expected, atol=1e-5)
    model.save(tmp_path / "sets")
    loaded = kernelcrf.load(tmp_path / "sets")
    np.testing.assert_array_equal(loaded.predict(rows, base_scores=odds), model.predict(rows, base_scores=odds))
    with pytest.raises(ValueError, match="scores of nothing"):
        loaded.predict(rows)


@pytest.mark.parametrize(
    ("base", "message"),
    [
        (TOKENS[:2], "has 2 sequences: expected 5"),
        ([base[:, :2] for base in TOKENS], r"has shape \(3, 2\): expected \(3, 3\)"),
        ({"edges": TOKENS}, "has the keys"),
        ([np.full_like(base, np.inf) for base in TOKENS], "not finite"),
        ([["x"]] * 5, "expected numbers"),
    ],
)
def test_wrong_base_scores_are_refused(base, message):
    with pytest.raises((ValueError, TypeError), match=message):
        ChainCRF("linear", C=1.0).fit(X, Y, base_scores=base)


def test_a_model_without_base_scores_refuses_them():
    crf = ChainCRF("linear", C=1.0).fit(X, Y)
    with pytest.raises(ValueError, match="fitted without base scores"):
        crf.predict(X, base_scores=TOKENS)
