"""Weights of tokens: what they equal where something simpler is known, and why other definitions are left out."""

import itertools

import numpy as np
import pytest
from scipy.special import logsumexp

from kernelcrf import ChainCRF, KernelClassifier, SegmentCRF
from kernelcrf.basis import Landmarks
from kernelcrf.fitting.token_weights import layers
from kernelcrf.graphs.structure import Chains
from kernelcrf.solvers import Dual

RNG = np.random.default_rng(0)
X = [RNG.normal(size=(T, 2)) for T in (5, 1, 4, 0, 3, 6)]
Y = [np.digitize(x.sum(axis=1) + RNG.normal(size=len(x)), [-1.0, 1.0]) for x in X]
W = [RNG.choice([0.0, 0.5, 1.0, 3.0], size=len(x)) for x in X]
EXACT = {"kernel": "linear", "C": 2.0, "tol": 1e-10}


def fit(y=Y, weights=None, X=X, **parameters):
    return ChainCRF(**EXACT | parameters).fit(X, y, weights)


def loss(crf):
    """Return the objective without the penalty."""
    squares = sum(np.square(one).sum() for one in (crf.coef_, crf.transitions_, crf.intercept_))
    return crf.certificate_.objective - squares / (2 * crf.C_)


def known(i, tokens):
    """Return the labels of sequence i, of which only those of some tokens are known."""
    return [int(label) if t in tokens else None for t, label in enumerate(Y[i])]


def log_prob(crf, i, tokens):
    """Return log p of the labels of some tokens of sequence i."""
    return float(crf.log_prob([X[i]], [known(i, set(tokens))])[0]) if len(tokens) else 0.0


def test_equal_weights_are_the_weight_of_the_sequence():
    weights = RNG.uniform(0.5, 2.0, len(X))
    for parameters in ({}, {"kernel": "rbf", "gamma": 1.0}):
        by_token = fit(weights=[np.full(len(x), w) for x, w in zip(X, weights, strict=True)], **parameters)
        by_sequence = fit(weights=weights, **parameters)
        np.testing.assert_array_equal(by_token.coef_, by_sequence.coef_)
        assert by_token.certificate_ == by_sequence.certificate_


def test_the_loss_is_the_weighted_sum_of_conditional_likelihoods():
    crf, expected = fit(weights=W), 0.0
    for i, weights in enumerate(W):
        before = 0.0
        for value in np.unique(weights[weights > 0]):
            rest = np.flatnonzero(weights < value)
            joint = log_prob(crf, i, range(len(X[i])))
            expected -= (value - before) * (joint - log_prob(crf, i, rest))
            before = value
    assert loss(crf) == pytest.approx(expected, rel=1e-10)
    assert crf.certificate_.status == "optimal"


def test_increasing_weights_are_those_of_labels_given_all_labels_before():
    weights = [np.sort(one) for one in W]
    crf = fit(weights=weights)
    terms = [
        weight * (log_prob(crf, i, range(t + 1)) - log_prob(crf, i, range(t)))
        for i, one in enumerate(weights)
        for t, weight in enumerate(one.tolist())
    ]
    assert loss(crf) == pytest.approx(-sum(terms), rel=1e-10)


def test_sequences_of_one_token_have_the_weights_of_rows():
    rows, y, weights = np.concatenate(X), np.concatenate(Y), np.concatenate(W)
    of_tokens = fit(list(y[:, None]), list(weights[:, None]), [x[None] for x in rows], fit_intercept=False)
    of_rows = KernelClassifier("linear", C=2.0, tol=1e-10, fit_intercept=False).fit(rows, y, weights)
    np.testing.assert_allclose(of_tokens.coef_, of_rows.coef_, atol=1e-5)
    # Weight 0 equals a missing label where labels are independent.
    missing = [None if weight == 0 else int(label) for label, weight in zip(y, weights, strict=True)]
    left_out = KernelClassifier("linear", C=2.0, tol=1e-10, fit_intercept=False).fit(rows, missing, weights)
    np.testing.assert_allclose(left_out.coef_, of_rows.coef_, atol=1e-12)


def test_a_missing_label_is_missing_whatever_its_weight():
    y = [known(i, set(range(len(x))) - {1}) for i, x in enumerate(X)]
    ones = [np.ones(len(x)) for x in X]
    zeros = [np.where(np.arange(len(x)) == 1, 0.0, 1.0) for x in X]
    high = [np.where(np.arange(len(x)) == 1, 7.0, 1.0) for x in X]
    fits = [fit(y, weights, random_state=0) for weights in (None, ones, zeros, high)]
    for other in fits[1:]:
        np.testing.assert_allclose(other.coef_, fits[0].coef_, atol=1e-12)
    assert fits[0].certificate_.lower_bound == -np.inf
    # In a chain, weight 0 differs from a missing label: the label is known to its neighbours.
    assert not np.allclose(fit(weights=zeros).coef_, fits[0].coef_, atol=1e-3)


def test_constraints_at_the_ends_do_not_hold_for_parts_of_sequences():
    names = np.array(["B-X", "I-X", "O"])
    tags = [names[y] for y in Y]
    for one in tags:
        for t, label in enumerate(one):
            if label == "I-X" and (t == 0 or one[t - 1] == "O"):
                one[t] = "B-X"
    weights = [np.where(one == "I-X", 0.0, w + 0.1) for one, w in zip(tags, W, strict=True)]
    crf = fit(tags, weights, constraints="BIO", fit_intercept="boundaries")
    assert crf.certificate_.status == "optimal"
    by_newton = fit(tags, weights, constraints="BIO", fit_intercept="boundaries", solver="newton")
    np.testing.assert_allclose(crf.coef_, by_newton.coef_, atol=1e-4)


def test_flat_data_and_scores_have_weights_of_tokens():
    flat = {"lengths": [len(x) for x in X]}
    crf = fit(weights=W)
    other = ChainCRF(**EXACT).fit(np.concatenate(X), np.concatenate(Y), np.concatenate(W), **flat)
    np.testing.assert_array_equal(other.coef_, crf.coef_)
    right = np.concatenate(crf.predict(X)) == np.concatenate(Y)
    expected = np.average(right, weights=np.concatenate(W))
    assert crf.score(X, Y, W) == pytest.approx(expected)
    assert crf.score(np.concatenate(X), np.concatenate(Y), np.concatenate(W), **flat) == pytest.approx(expected)


def test_class_weights_multiply_weights_of_tokens():
    factors = [float(np.mean(np.array([1.0, 2.0, 3.0])[y])) if len(y) else 1.0 for y in Y]
    crf = fit(weights=W, class_weight={0: 1.0, 1: 2.0, 2: 3.0})
    other = fit(weights=[factor * w for factor, w in zip(factors, W, strict=True)])
    np.testing.assert_allclose(crf.coef_, other.coef_, atol=1e-6)


def test_positions_of_landmarks_are_those_in_the_sequences():
    weights = [np.where(np.arange(len(x)) < 2, 0.0, 1.0) for x in X]
    crf = fit(weights=weights, kernel="rbf", gamma=1.0, n_components=Landmarks(5, "greedy"))
    for (i, t), landmark in zip(crf.landmark_positions_, crf.landmarks_, strict=True):
        np.testing.assert_array_equal(X[i][t], landmark)


def test_pairs_that_only_conditions_have_get_no_weight():
    words = [[{"w": f"{i}-{t}"} for t in range(len(x))] for i, x in enumerate(X)]
    weights = [np.where(np.arange(len(x)) == 0, 0.0, 1.0) for x in X]
    crf = ChainCRF("linear", C=1.0).fit(words, Y, weights)
    names = {row["feature"]: row["weight"] for _, row in crf.top_features(100).iterrows()}
    assert all(names[name] == 0 for name in ("w=0-0", "w=1-0") if name in names)
    assert any(weight != 0 for weight in names.values())


def test_all_layers_of_a_sequence_are_held_out_together():
    crf = ChainCRF("linear").fit(X * 5, Y * 5, W * 5)
    assert crf.C_ in 10.0 ** np.arange(-3, 5)
    one = ChainCRF("linear").fit([np.concatenate(X)], [np.concatenate(Y)], [np.concatenate(W)])
    assert one.certificate_.status == "optimal"


def test_layers_cut_sequences_at_tokens_with_smaller_weights():
    found = layers(Chains.from_lengths([5, 0, 3]), np.array([1.0, 0.0, 2.0, 1.0, 1.0, 3.0, 3.0, 3.0]), None)
    # Layer 0 of the first sequence has the tokens 0 and 2 to 4; layer 1 has token 2.
    assert [found.nodes[low:high].tolist() for low, high in itertools.pairwise(found.chains.offsets)] == [
        [0, 1],
        [1, 2, 3, 4],
        [1, 2, 3],
        [5, 6, 7],
    ]
    assert found.pieces.given.tolist() == [*(0, 1), *(1, 0, 0, 0), *(1, 0, 1), *(0, 0, 0)]
    assert found.weights.tolist() == [1.0, 1.0, 1.0, 3.0]
    assert found.pieces.layers.tolist() == [0, 0, 1, 0]
    assert found.pieces.starts.tolist() == [0, 1, 1, 0]
    assert found.chains.numbers.tolist() == [0, 0, 0, 2]


@pytest.mark.parametrize(
    ("weights", "match"),
    [
        (W[:5], r"sample_weight has shape \(5,\): expected an array of shape \(6,\)"),
        (
            [*W[:5], W[5][:2]],
            r"sample_weight\[5\] has length 2, X\[5\] has length 6: expected one weight per token",
        ),
        ([*W[:5], -W[5] - 1], r"sample_weight\[5\]\[0\] is -.*: expected a 1-D array with a finite number >= 0"),
        ([*W[:5], W[5][:, None]], r"sample_weight\[5\] has shape \(6, 1\): expected a 1-D array"),
        ([*W[:5], ["1"] * 6], r"sample_weight\[5\] is \['1'.*: expected a 1-D array"),
        ([0 * w for w in W], "sample_weight is zero for every token: expected at least one weight above zero"),
    ],
)
def test_what_are_no_weights_of_tokens_is_refused(weights, match):
    with pytest.raises((ValueError, TypeError), match=match):
        fit(weights=weights)


def test_estimators_and_methods_without_weights_of_tokens_say_so():
    crf = fit(weights=W)
    for method in (crf.loo_log_prob, SegmentCRF("linear", C=1.0).fit):
        with pytest.raises(ValueError, match=r"as a weight: expected .* which only ChainCRF in one process takes"):
            method(X, Y, W)
    words = [[{"w": float(row[0])} for row in x] for x in X]
    for solver in ("dual", Dual()):
        with pytest.raises(ValueError, match=r"solver='dual' cannot minimise this objective: .*one label per"):
            fit(weights=W, X=words, solver=solver)
    equal = fit(weights=[np.full(len(x), 2.0) for x in X], X=words, solver="dual")
    assert equal.certificate_.status == "optimal"


def scores_of(y, s, w):
    return s[np.arange(len(y)), y].sum() + sum(w[a, b] for a, b in itertools.pairwise(y))


def enumerated(s, w):
    """Return all labellings of two labels, and their log-probabilities and log-partition."""
    every = np.array(list(itertools.product(range(2), repeat=len(s))))
    scores = np.array([scores_of(y, s, w) for y in every])
    return every, scores - logsumexp(scores), logsumexp(scores)


def test_the_likelihood_of_single_tokens_is_not_convex():
    def loss(w):
        every, log_p, _ = enumerated(np.zeros((2, 2)), np.diag([w, w]) + np.array([[0.0, 0.0], [0.0, 1.0]]))
        return -logsumexp(log_p[every[:, 1] == 0])

    left, middle, right = loss(-2.0), loss(0.0), loss(2.0)
    assert middle > (left + right) / 2 + 1e-3


def test_weighted_features_of_cliques_have_no_minimum():
    def loss(shift, weight):
        s = np.array([[0.3, -0.2], [0.1, 0.4]]) + shift
        _, _, log_partition = enumerated(s, np.zeros((2, 2)))
        return log_partition - weight * (s[0, 0] + s[1, 1])

    for weight, direction in ((0.5, -1.0), (2.0, 1.0)):
        values = [loss(direction * size, weight) for size in (0.0, 10.0, 100.0)]
        assert values[2] < values[1] - 50 < values[0] - 50
