"""Formulas of docstrings, written out in NumPy from their text and held against what the code returns.

Each test begins with the formula as the docstring has it, so that a change of either is seen here.
"""

import inspect
import itertools

import numpy as np
import pytest
from scipy.special import entr, log_softmax, logsumexp, softmax

from kernelcrf import ChainCRF, KernelClassifier, MultiLabelCRF, TemperatureScaling, certificate, objective
from kernelcrf.answers import conformal_thresholds, explain, uncertainty
from kernelcrf.basis import factor
from kernelcrf.basis.features import make_features
from kernelcrf.datasets import make_sequences, synthetic
from kernelcrf.engines.local import LocalEngine
from kernelcrf.estimators import chain as chain_estimator
from kernelcrf.estimators import classifier, multilabel, temperature
from kernelcrf.fitting import laplace
from kernelcrf.graphs.structure import Chains
from kernelcrf.inference import chain, tangents
from kernelcrf.kernels import Polynomial, named_kernels, rbf
from kernelcrf.kernels import labels as label_kernels
from kernelcrf.kernels.inputs import InputKernel
from kernelcrf.kernels.labels import LabelKernel
from kernelcrf.metrics import (
    brier,
    expected_calibration_error,
    flat_accuracy,
    flat_f1,
    labels,
    log_loss,
    probabilities,
    sequence_accuracy,
    span_f1,
    span_precision,
    span_recall,
)
from kernelcrf.readers.spans import spans
from objectives import entropy_side, gradient_side, random_objective, with_prior

RNG = np.random.default_rng(0)
DATA = make_sequences(30, mean_length=4, random_state=0)


def stated(thing, *formulas):
    """The formulas stand in the docstring, whatever its line breaks and spaces."""
    text = " ".join(inspect.getdoc(thing).split())
    for formula in formulas:
        assert " ".join(formula.split()) in text, formula


def labelings(T, L):
    return np.array(list(itertools.product(range(L), repeat=T)))


def scores_of(y, s, w):
    """sum_t s_t(y_t) + sum_{t>1} w(y_{t-1}, y_t) of each row of y."""
    T = y.shape[1]
    return s[np.arange(T), y].sum(axis=1) + w[y[:, :-1], y[:, 1:]].sum(axis=1)


POLYNOMIALS = ("poly", "polynomial")
POLY = "(gamma x.x' + coef0)^degree", lambda x, z: (0.7 * (x @ z) + 0.5) ** 3
NAMED_KERNELS = {  # the formula in the docstring, and the same in Python with gamma=0.7, degree=3, coef0=0.5
    "linear": ("x.x'", lambda x, z: x @ z),
    "poly": POLY,
    "polynomial": POLY,
    "rbf": ("exp(-gamma |x - x'|^2)", lambda x, z: np.exp(-0.7 * ((x - z) ** 2).sum())),
    "laplacian": ("exp(-gamma |x - x'|_1)", lambda x, z: np.exp(-0.7 * np.abs(x - z).sum())),
    "cosine": ("x.x' / (|x| |x'|)", lambda x, z: x @ z / np.sqrt((x @ x) * (z @ z))),
    "chi2": (
        "exp(-gamma sum_j (x_j - x'_j)^2 / (x_j + x'_j))",
        lambda x, z: np.exp(-0.7 * ((x - z) ** 2 / (x + z)).sum()),
    ),
}


@pytest.mark.parametrize("name", named_kernels.NAMED)
def test_input_kernels(name):
    formula, function = NAMED_KERNELS[name]
    stated(named_kernels, formula if name == "polynomial" else f"{name} {formula}")
    X, Y = RNG.random((4, 3)), RNG.random((5, 3))
    kernel = InputKernel(Polynomial(coef0=0.5) if name in POLYNOMIALS else name, gamma=0.7)
    np.testing.assert_allclose(kernel.gram(X, Y), [[function(x, z) for z in Y] for x in X], rtol=1e-12)


def test_the_folded_norms_of_rbf():
    stated(rbf, "log k(x, y) = [s (x-c), -gamma |x-c|^2, 1] . [s (y-c), 1, -gamma |y-c|^2], s = sqrt(2 gamma).")
    x, y, c, gamma = *RNG.normal(size=(3, 4)), 0.6
    s = np.sqrt(2 * gamma)
    left = [*(s * (x - c)), -gamma * ((x - c) ** 2).sum(), 1]
    right = [*(s * (y - c)), 1, -gamma * ((y - c) ** 2).sum()]
    np.testing.assert_allclose(np.exp(np.dot(left, right)), InputKernel("rbf", gamma).gram(x[None], y[None])[0, 0])


def test_label_kernels():
    stated(label_kernels, "`F W A'`", "k_y = I - 11'/L")
    F, matrix = RNG.normal(size=(5, 2)), np.array([[2.0, 0.5, 0.0], [0.5, 1.0, 0.2], [0.0, 0.2, 1.5]])
    k_y = LabelKernel.of(matrix, 3)
    A = k_y.factor
    np.testing.assert_allclose(A @ A.T, matrix, atol=1e-12)
    np.testing.assert_allclose(LabelKernel("centred", 3).gram, np.eye(3) - np.ones((3, 3)) / 3)
    W = RNG.normal(size=(2, 3))
    np.testing.assert_allclose(k_y.expand(F @ W), F @ W @ A.T)


def test_the_whitened_features():
    stated(factor, "`F = K_xB R^-T`", "`K_BB = R R'`", "d_x = k(x, x) - |F_x|^2")
    kernel, X = InputKernel("rbf", 0.5), RNG.normal(size=(30, 3))
    features = make_features(kernel, X, 10, "random", random_state=0)
    B, R = features.basis.landmarks, features.basis.R
    np.testing.assert_allclose(R @ R.T, kernel.gram(B), atol=1e-12)
    np.testing.assert_allclose(features.F, kernel.gram(X, B) @ np.linalg.inv(R).T, atol=1e-10)
    np.testing.assert_allclose(features.basis.residual, 1 - (features.F**2).sum(axis=1), atol=1e-12)


def test_moments_of_a_chain():
    stated(chain, "p(y|x) proportional to exp(sum_t s_t(y_t) + sum_{t>1} w_t(y_{t-1}, y_t))")
    stated(chain.entropy, "-sum_y p(y|x) log p(y|x)")
    s, w, T, L = RNG.normal(size=(4, 3)), RNG.normal(size=(3, 3)), 4, 3
    chains, y = Chains.from_lengths([T]), labelings(T, L)
    every = scores_of(y, s, w)
    p = softmax(every)
    np.testing.assert_allclose(chain.log_partition(s, w, chains), [logsumexp(every)])
    np.testing.assert_allclose(chain.entropy(s, w, chains), [entr(p).sum()])
    np.testing.assert_allclose(chain.log_prob(s, w, chains, y[7]), [np.log(p[7])])
    marginals = [[p[y[:, t] == j].sum() for j in range(L)] for t in range(T)]
    np.testing.assert_allclose(chain.moments(s, w, chains).nodes, marginals, atol=1e-12)


def test_tangents_by_their_recursions():
    stated(
        tangents,
        "A_1 = du_1, A_t(j) = du_t(j) + sum_i P_t(i|j) [A_{t-1}(i) + dw_t(i, j)],",
        "B_T = 0, B_{t-1}(i) = sum_j Q_t(j|i) [dw_t(i, j) + du_t(j) + B_t(j)],",
        "dp_t = p_t o (A_t + B_t),",
        "dq_t = q_t o (A_{t-1}(i) + dw_t(i, j) - <q_t, dw_t> + du_t(j) + B_t(j)),",
    )
    T, L = 5, 3
    s, w, du, dw = (RNG.normal(size=shape) for shape in ((T, L), (L, L), (T, L), (L, L)))
    chains = Chains.from_lengths([T])
    p, q = chain.moments(s, w, chains).nodes, chain.edge_marginals(s, w, chains)
    centred = du - (p * du).sum(axis=1, keepdims=True)
    A, B = np.zeros((T, L)), np.zeros((T, L))
    A[0] = centred[0]
    for t in range(1, T):
        P = q[t] / p[t]  # p(y_{t-1} = i | y_t = j)
        A[t] = centred[t] + (P * (A[t - 1][:, None] + dw)).sum(axis=0)
        A[t] -= p[t] @ A[t]
    for t in range(T - 1, 0, -1):
        Q = q[t] / p[t - 1][:, None]
        B[t - 1] = (Q * (dw + centred[t] + B[t])).sum(axis=1)
        B[t - 1] -= p[t - 1] @ B[t - 1]
    dq = np.zeros((L, L))
    for t in range(1, T):
        inner = A[t - 1][:, None] + dw - (q[t] * dw).sum() + centred[t] + B[t]
        dq += q[t] * inner
    found = tangents.linearise(s, w, chains).tangents(du, dw)
    np.testing.assert_allclose(found.nodes, p * (A + B), atol=1e-12)
    np.testing.assert_allclose(found.edges, dq, atol=1e-12)


def test_the_objective_its_gradient_and_its_curvature():
    stated(
        objective,
        "P(theta) = sum_i omega_i [log Z_i - log Z_i(allowed)] + sum_k lam_k/2 |theta_k - mu_k|^2",
        "g = sum_i omega_i [E_p Phi - E_p(. | allowed) Phi] + lam (theta - mu)",
        "H v = sum_i omega_i Cov_p[Phi, <Phi, v>] + lam v",
    )
    whole = with_prior(random_objective(0, weighted=True, n_parts=1, lengths=(3, 2)), 0)
    part, layout = whole.partitions[0], whole.layout
    theta, v = RNG.normal(size=(2, layout.size))
    lam = layout.times_lam(np.ones(layout.size))
    moved = theta - layout.mean
    value, g, Hv = 0.5 * (lam * moved * moved).sum(), lam * moved, lam * v
    directions = np.eye(layout.size)
    per_direction = [part.scores(layout, e) for e in directions]  # scores are linear in theta: these are the features
    for i, (low, high) in enumerate(itertools.pairwise(part.chains.offsets)):
        y = labelings(high - low, part.n_labels)
        Phi = np.column_stack([scores_of(y, s[low:high], w) for s, w in per_direction])
        every = Phi @ theta
        p, own = softmax(every), int((y == part.labels[low:high]).all(axis=1).argmax())
        value += part.weights[i] * (logsumexp(every) - every[own])
        g = g + part.weights[i] * (p @ Phi - Phi[own])
        centred = Phi - p @ Phi
        Hv = Hv + part.weights[i] * (centred.T @ (p * (centred @ v)))
    at = whole.evaluate(theta, curvature=True)
    np.testing.assert_allclose(at.value, value)
    np.testing.assert_allclose(at.gradient, g, atol=1e-10)
    np.testing.assert_allclose(whole.hessian_product(at, v), Hv, atol=1e-10)


def test_both_sides_of_lemma_9():
    stated(
        certificate,
        "min P >= P(theta) - sum_k |g_k|^2 / (2 lam_k)",
        "= sum_i omega_i H(p_i) - sum_k [|h_k|^2 / (2 lam_k) - <h_k, mu_k>], h_k = g_k - lam_k (theta_k - mu_k)",
    )
    whole = with_prior(random_objective(1, weighted=True), 1)
    at = whole.evaluate(RNG.normal(size=whole.layout.size))
    lam = whole.layout.times_lam(np.ones(whole.layout.size))
    np.testing.assert_allclose(at.value - (at.gradient**2 / (2 * lam)).sum(), gradient_side(whole, at))
    h = at.gradient - lam * (at.theta - whole.layout.mean)
    moments = h**2 / (2 * lam) - h * whole.layout.mean
    np.testing.assert_allclose(whole.entropy(at) - moments.sum(), entropy_side(whole, at))


def test_bounds_out_of_the_span():
    stated(certificate.residual_products, "(K - F F') R")
    kernel, X, R, engine = InputKernel("rbf", 0.5), RNG.normal(size=(20, 2)), RNG.normal(size=(20, 3)), LocalEngine()
    K, F = kernel.gram(X), make_features(kernel, X, 5, random_state=0).F
    E = K - F @ F.T
    np.testing.assert_allclose(certificate.residual_products(kernel, X, F, R, engine), E @ R, atol=1e-12)


def test_the_evidence_and_the_effective_number():
    stated(
        laplace,
        "log evidence = -P(theta_hat) - 1/2 logdet(I + C^1/2 H_L C^1/2)",
        "gamma = size - tr(H^-1 / C)",
    )
    whole = random_objective(2)
    at = whole.evaluate(np.zeros(whole.layout.size), curvature=True)
    H = np.column_stack([whole.hessian_product(at, e) for e in np.eye(whole.layout.size)])
    C = 1 / whole.layout.times_lam(np.ones(whole.layout.size))
    H_L = H - np.diag(1 / C)
    inner = np.eye(len(C)) + np.sqrt(C)[:, None] * H_L * np.sqrt(C)
    found = laplace.laplace(whole, at)
    np.testing.assert_allclose(found.log_evidence, -at.value - 0.5 * np.linalg.slogdet(inner)[1])
    np.testing.assert_allclose(found.n_effective, len(C) - np.trace(np.linalg.inv(H) / C))


def test_the_probability_of_a_labelling_under_the_estimator():
    stated(chain_estimator, "p(y|x) = exp(sum_t f(x_t, y_t) + sum_{t>1} T[y_{t-1}, y_t]) / Z(x)")
    crf = ChainCRF("linear", C=3.0, fit_intercept=False).fit(DATA.X, DATA.y)
    x = DATA.X[0][:4]
    y = labelings(len(x), 3)
    every = scores_of(y, x @ crf.coef_, crf.transitions_)
    np.testing.assert_allclose(crf.log_prob([x], y[5:6]), [every[5] - logsumexp(every)], rtol=1e-10)


def test_the_terms_of_an_explanation():
    stated(
        explain,
        "s_t(j) = sum_b k(x_t, b) a_b(j), a = R^-T coef_",
        "k(x_t, b) (a_b(label) - mean_j a_b(j)),",
        "score = s_t(label) - mean_j s_t(j)",
        "neighbours = log p(y_t = label | x) - log softmax(s_t)_label",
    )
    crf = ChainCRF(C=3.0, n_components=10, fit_intercept=False, random_state=0).fit(DATA.X, DATA.y)
    x, t = DATA.X[1], 1
    a = np.linalg.solve(crf.model_.maps["node"].R.T, crf.coef_)
    K = crf.kernel_.gram(x[t : t + 1], crf.landmarks_)[0]
    s = K @ a
    why = crf.explain(x, t, n_terms=10)
    column = crf.classes_.tolist().index(why.label)
    terms = K * (a[:, column] - a.mean(axis=1))
    np.testing.assert_allclose(np.sort(why.contributions), np.sort(terms), atol=1e-8)
    np.testing.assert_allclose(why.score, s[column] - s.mean(), atol=1e-8)
    p = crf.predict_proba([x])[0][t, column]
    np.testing.assert_allclose(why.neighbours, np.log(p) - log_softmax(s)[column], atol=1e-8)


def test_classes_of_rows():
    stated(classifier, "p(y|x) = exp(f_y(x)) / sum_l exp(f_l(x))")
    X, y = np.vstack(DATA.X), np.hstack(DATA.y)
    model = KernelClassifier(n_components=20, random_state=0).fit(X, y)
    np.testing.assert_allclose(model.predict_proba(X), softmax(model.decision_function(X), axis=1), atol=1e-12)


def test_interactions_are_log_odds_ratios():
    stated(multilabel.MultiLabelCRF, "interactions_ : (n_edges,), the log odds ratio of each pair")
    X = RNG.normal(size=(60, 2))
    Y = (X + RNG.normal(size=X.shape) > 0).astype(int)
    model = MultiLabelCRF("linear", structure=[(0, 1)]).fit(X, Y)
    log_p = {pair: model.log_prob(X[:1], [pair])[0] for pair in itertools.product((0, 1), repeat=2)}
    ratio = log_p[1, 1] + log_p[0, 0] - log_p[1, 0] - log_p[0, 1]
    np.testing.assert_allclose(model.interactions_, [ratio], rtol=1e-8)


def test_a_temperature_divides_the_scores():
    stated(temperature, "p(y|x) is proportional to exp(score(x, y) / T)")
    crf = ChainCRF("linear", C=100.0, fit_intercept=False).fit(DATA.X, DATA.y)
    scaled = TemperatureScaling(crf).fit(DATA.X[:5], DATA.y[:5])
    x, T = DATA.X[0][:3], scaled.temperature_
    y = labelings(3, 3)
    every = scores_of(y, x @ crf.coef_, crf.transitions_) / T
    np.testing.assert_allclose(scaled.estimator_.log_prob([x], y[4:5]), [every[4] - logsumexp(every)], rtol=1e-10)


def test_both_parts_of_uncertainty():
    stated(uncertainty, "H(p) = mean_s H(p_s) + [H(p) - mean_s H(p_s)]")
    draws = softmax(RNG.normal(size=(7, 5, 3)), axis=2)
    p, epistemic, aleatoric = uncertainty.average_draws(iter(draws))
    np.testing.assert_allclose(p, draws.mean(axis=0))
    np.testing.assert_allclose(aleatoric, entr(draws).sum(axis=2).mean(axis=0))
    np.testing.assert_allclose(epistemic + aleatoric, entr(p).sum(axis=1))


def test_the_law_of_the_sequences():
    stated(
        synthetic,
        "p(x | y = j) = (N(x; c_j, noise^2 I) + N(x; -c_j, noise^2 I)) / 2",
        "y_1 is uniform, and p(y_t = j | y_{t-1} = i) = transitions[i, j]",
    )
    stated(synthetic.SequenceData, "1 - max_j p(y_t = j | x)")
    data = make_sequences(3, mean_length=3, noise=0.4, random_state=3)
    angles = np.pi * np.arange(3) / 3
    c = np.column_stack((np.cos(angles), np.sin(angles)))
    for x, posterior in zip(data.X, data.posterior, strict=True):
        density = sum(np.exp(-((x[:, None] - sign * c) ** 2).sum(axis=2) / (2 * 0.4**2)) for sign in (1, -1))
        y = labelings(len(x), 3)
        joint = density[np.arange(len(x)), y].prod(axis=1) * data.transitions[y[:, :-1], y[:, 1:]].prod(axis=1)
        expected = [[joint[y[:, t] == j].sum() for j in range(3)] for t in range(len(x))] / joint.sum()
        np.testing.assert_allclose(posterior, expected, atol=1e-10)
    np.testing.assert_allclose(data.bayes_error, np.mean(1 - np.vstack(data.posterior).max(axis=1)))


def test_scores_of_tokens_and_sequences():
    stated(labels, "sum_t w_t [z_t = y_t] / sum_t w_t", "2 tp_l / (2 tp_l + fp_l + fn_l)")
    stated(labels, "sum_i w_i [z_t = y_t for all t of i] / sum_i w_i")
    y, z = ([RNG.integers(3, size=4).tolist() for _ in range(6)] for _ in range(2))
    z[0], weights = y[0], RNG.random(6)
    w, flat_y, flat_z = np.repeat(weights, 4), np.ravel(y), np.ravel(z)
    right = flat_y == flat_z
    np.testing.assert_allclose(flat_accuracy(y, z, sample_weight=weights), w @ right / w.sum())
    for label in range(3):
        tp = w @ (right & (flat_y == label))
        fp, fn = w @ (~right & (flat_z == label)), w @ (~right & (flat_y == label))
        np.testing.assert_allclose(flat_f1(y, z, labels=[label], sample_weight=weights), 2 * tp / (2 * tp + fp + fn))
    whole = np.array([own == said for own, said in zip(y, z, strict=True)])
    np.testing.assert_allclose(sequence_accuracy(y, z, sample_weight=weights), weights @ whole / weights.sum())


def test_thresholds_of_prediction_sets():
    stated(
        conformal_thresholds,
        "the ceil((n + 1) level)-th smallest of n scores",
        "the smallest threshold t >= 0 with n / (n + 1) R(t) + 1 / (n + 1) <= 1 - level",
    )
    scores, units, n, level = RNG.random(60), RNG.integers(20, size=60), 20, 0.75
    assert conformal_thresholds.quantile_threshold(scores, level) == np.sort(scores)[int(np.ceil(61 * level)) - 1]

    def R(t):
        return sum((scores[units == i] > t).mean() for i in range(n) if i in units) / n

    candidates = [t for t in (0.0, *scores) if n / (n + 1) * R(t) + 1 / (n + 1) <= 1 - level]
    assert conformal_thresholds.risk_threshold(scores, units, n, level) == min(candidates)


def test_scores_of_spans():
    stated(labels, "precision |S & S'| / |S'|, recall |S & S'| / |S|, F1 2 |S & S'| / (|S| + |S'|)")
    tags = ["O", "B-A", "I-A", "B-B"]
    y, z = ([[tags[k] for k in RNG.integers(4, size=8)] for _ in range(5)] for _ in range(2))
    S, S_ = ({(i, *span) for i, own in enumerate(part) for span in spans(own)} for part in (y, z))
    np.testing.assert_allclose(span_precision(y, z), len(S & S_) / len(S_))
    np.testing.assert_allclose(span_recall(y, z), len(S & S_) / len(S))
    np.testing.assert_allclose(span_f1(y, z), 2 * len(S & S_) / (len(S) + len(S_)))


def test_scores_of_probabilities():
    stated(
        probabilities,
        "- sum_t w_t log p_t(y_t) / W",
        "sum_t w_t sum_l (p_t(l) - [l = y_t])^2 / W",
        "sum_b |sum_{t in b} w_t ([l_t = y_t] - c_t)| / W",
        "(b - 1) / n_bins < c_t <= b / n_bins",
    )
    y, proba = [RNG.integers(3, size=5) for _ in range(4)], [softmax(RNG.normal(size=(5, 3)), axis=1) for _ in range(4)]
    weights, classes = RNG.random(4), [0, 1, 2]
    w, p, true = np.repeat(weights, 5), np.vstack(proba), np.hstack(y)
    said = {"y_true": y, "y_proba": proba, "classes": classes, "sample_weight": weights}
    np.testing.assert_allclose(log_loss(**said), -(w @ np.log(p[np.arange(20), true])) / w.sum())
    np.testing.assert_allclose(brier(**said), w @ ((p - np.eye(3)[true]) ** 2).sum(axis=1) / w.sum())
    c, right = p.max(axis=1), p.argmax(axis=1) == true
    bins = np.ceil(10 * c)
    error = sum(abs(w[bins == b] @ (right - c)[bins == b]) for b in range(1, 11)) / w.sum()
    np.testing.assert_allclose(expected_calibration_error(**said, n_bins=10), error)
