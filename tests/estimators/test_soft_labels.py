"""Soft labels: a fit equals that of all labellings as copies, weighted by their probabilities. Their reader, too."""

import itertools

import numpy as np
import pandas as pd
import pytest

from chain_fits import of_tokens_and_steps
from kernelcrf import ChainCRF, GraphCRF, KernelClassifier, MultiLabelCRF, SegmentCRF
from kernelcrf.solvers import Dual

RNG = np.random.default_rng(0)
X = [RNG.normal(size=(T, 2)) for T in (3, 1, 4, 2)]
Q = [RNG.dirichlet(np.full(3, 0.5), size=len(x)) for x in X]
TAGS = ["B-X", "I-X", "O"]
ROWS, P = np.concatenate(X), np.concatenate(Q)
EXACT = {"C": 2.0, "tol": 1e-10}


def copies(X, Q, is_allowed=lambda labels: True):
    """Return each sequence with every labelling that is allowed, and the probability of this labelling."""
    every = []
    for x, q in zip(X, Q, strict=True):
        labellings = [y for y in itertools.product(range(q.shape[1]), repeat=len(q)) if is_allowed(y)]
        p = np.array([np.prod(q[np.arange(len(q)), y]) for y in labellings])
        every += [(x, list(y), weight) for y, weight in zip(labellings, p / p.sum(), strict=True) if weight > 0]
    return ([one[k] for one in every] for k in range(3))


def is_bio(labels):
    return all(label != 1 or (t > 0 and labels[t - 1] != 2) for t, label in enumerate(labels))


def check_same(model, other, atol=1e-4):
    """Two fits to the same objective: each objective is within the gap of the other, and the bounds hold for both."""
    one, two = model.certificate_, other.certificate_
    assert one.status == two.status == "optimal"
    assert one.objective == pytest.approx(two.objective, rel=1e-8)
    assert one.lower_bound <= two.objective * (1 + 1e-12)
    assert two.lower_bound <= one.objective * (1 + 1e-12)
    for name in ("coef_", "transitions_", "edge_potentials_"):
        if hasattr(model, name):
            np.testing.assert_allclose(getattr(model, name), getattr(other, name), atol=atol)


@pytest.mark.parametrize("solver", ["auto", "lbfgs", "newton-cg", "newton", "block-jacobi", "subspace"])
def test_soft_labels_are_all_labellings_with_their_probabilities(solver):
    all_X, all_y, weights = copies(X, Q)
    soft = ChainCRF("rbf", gamma=1.0, solver=solver, **EXACT).fit(X, Q)
    check_same(soft, ChainCRF("rbf", gamma=1.0, **EXACT).fit(all_X, all_y, weights))


@pytest.mark.parametrize("inputs", ["sparse", "steps", "base"])
def test_soft_labels_of_other_inputs_are_all_labellings_with_their_probabilities(inputs):
    words = [[{f"w{k}": float(v) for k, v in enumerate(row)} for row in x] for x in X] if inputs == "sparse" else X
    all_X, all_y, weights = copies(words, Q)
    crf, base = ChainCRF("linear", weights="all", **EXACT), None
    if inputs == "steps":
        crf = ChainCRF(inputs=of_tokens_and_steps("linear", "linear"), **EXACT)
    if inputs == "base":
        base = [RNG.normal(size=(len(x), 3)) for x in X]
    soft = crf.fit(words, Q, base_scores=base)
    again = None if base is None else [base[k] for k in range(4) for _ in range(3 ** len(X[k]))]
    check_same(soft, type(crf)(**crf.get_params(deep=False)).fit(all_X, all_y, weights, base_scores=again))


def test_soft_labels_with_constraints_are_the_labellings_that_are_allowed():
    q = [np.where(np.arange(3) == 1, one * (np.arange(len(one)) > 0)[:, None], one) + 0.05 for one in Q]
    q = [one / one.sum(axis=1, keepdims=True) for one in q]
    all_X, all_y, weights = copies(X, q, is_bio)
    parameters = {"kernel": "linear", "constraints": "BIO", "classes": TAGS, "fit_intercept": "boundaries", **EXACT}
    named = [[TAGS[label] for label in y] for y in all_y]
    check_same(ChainCRF(**parameters).fit(X, q), ChainCRF(**parameters).fit(all_X, named, weights))
    impossible = [np.eye(3)[[2, 1, 2]], *q[1:]]
    with pytest.raises(ValueError, match="the constraints forbid every labelling of sequence 0 that has a positive"):
        ChainCRF(**parameters).fit(X, impossible)


def test_labels_that_are_certain_are_labels():
    y = [q.argmax(axis=1) for q in Q]
    soft = ChainCRF("rbf", gamma=1.0, **EXACT).fit(X, [np.eye(3)[labels] for labels in y])
    check_same(soft, ChainCRF("rbf", gamma=1.0, **EXACT).fit(X, y))


def test_class_weights_count_each_class_with_its_probability():
    weights = {0: 1.0, 1: 3.0, 2: 0.5}
    expected = [float(np.mean(q @ [1.0, 3.0, 0.5])) for q in Q]
    soft = ChainCRF("linear", class_weight=weights, **EXACT).fit(X, Q)
    check_same(soft, ChainCRF("linear", **EXACT).fit(X, Q, expected))
    n = np.concatenate(Q).sum(axis=0)
    balanced = dict(enumerate((n.sum() / (3 * n)).tolist()))
    soft = ChainCRF("linear", class_weight="balanced", **EXACT).fit(X, Q)
    check_same(soft, ChainCRF("linear", class_weight=balanced, **EXACT).fit(X, Q))


def test_rows_of_a_classifier():
    expanded = np.repeat(ROWS, 3, axis=0), np.tile(np.arange(3), len(ROWS)), P.ravel()
    weights = RNG.uniform(0.0, 2.0, len(ROWS)).round()
    soft = KernelClassifier("rbf", gamma=1.0, **EXACT).fit(ROWS, P, weights)
    other = KernelClassifier("rbf", gamma=1.0, **EXACT).fit(*expanded[:2], expanded[2] * np.repeat(weights, 3))
    assert soft.certificate_.objective == pytest.approx(other.certificate_.objective, rel=1e-8)
    np.testing.assert_allclose(soft.predict_proba(ROWS), other.predict_proba(ROWS), atol=1e-5)
    named = pd.DataFrame(P[:, [2, 0, 1]], columns=["c", "a", "b"])
    assert KernelClassifier("linear").fit(ROWS, named).classes_.tolist() == ["a", "b", "c"]
    with pytest.raises(ValueError, match=r"y has the probabilities .* at row 0, whose sum is 2: expected numbers >= 0"):
        KernelClassifier("linear").fit(ROWS, 2 * P)


@pytest.mark.parametrize("same_graph", [True, False])
@pytest.mark.parametrize("inference", ["exact", "loopy"])
def test_nodes_of_graphs(same_graph, inference):
    ring = [[0, 1], [1, 2], [2, 0]]
    graphs = [(x, ring if same_graph else [[t, t + 1] for t in range(len(x) - 1)]) for x in X]
    graphs = [(RNG.normal(size=(3, 2)), ring) for _ in X] if same_graph else graphs
    q = [RNG.dirichlet(np.full(2, 0.5), size=len(x)) for x, _ in graphs]
    all_X, all_y, weights = copies(graphs, q)
    parameters = {"kernel": "linear", "inference": inference, "C": 2.0, "tol": 1e-8}
    check_same(GraphCRF(**parameters).fit(graphs, q), GraphCRF(**parameters).fit(all_X, all_y, weights))


def test_sets_of_labels():
    p = RNG.random((12, 3))
    rows = RNG.normal(size=(12, 2))
    all_X, all_y, weights = copies(list(rows), np.stack([1 - p, p], axis=2))
    parameters = {"kernel": "linear", "structure": "full", **EXACT}
    soft = MultiLabelCRF(**parameters).fit(rows, p)
    other = MultiLabelCRF(**parameters).fit(np.array(all_X), np.array(all_y), weights)
    assert soft.certificate_.objective == pytest.approx(other.certificate_.objective, rel=1e-8)
    np.testing.assert_allclose(soft.interactions_, other.interactions_, atol=1e-4)


def test_the_search_for_C_and_the_evidence_take_soft_labels():
    many = [x + RNG.normal(scale=0.1, size=x.shape) for x in X * 6]
    q = [0.7 * np.eye(3)[np.digitize(x[:, 0], [-0.5, 0.5])] + 0.1 for x in many]
    crf = ChainCRF("linear").fit(many, q)
    assert crf.C_ in 10.0 ** np.arange(-3, 5)
    evident = ChainCRF("linear", C="evidence", weights="all").fit(many, q)
    beside = [
        ChainCRF("linear", C=evident.C_ * factor, laplace=True, tol=1e-8).fit(many, q).log_marginal_likelihood()
        for factor in (0.5, 2.0)
    ]
    best = ChainCRF("linear", C=evident.C_, laplace=True, tol=1e-8).fit(many, q).log_marginal_likelihood()
    assert best > max(beside)


def test_all_forms_of_soft_labels_are_the_same():
    names = ["a", "b", "c"]
    frames = [pd.DataFrame(q[:, [1, 2, 0]], columns=["b", "c", "a"]) for q in Q]
    mappings = [[dict(zip(names, row.tolist(), strict=True)) for row in q] for q in Q]
    crf = ChainCRF("linear", classes=names, C=1.0)
    flat = {"X": ROWS, "lengths": [len(x) for x in X]}
    expected = crf.fit(X, Q).coef_
    for data in (
        {"X": X, "y": [q.astype(np.float32) for q in Q]},
        {"X": X, "y": frames},
        {"X": X, "y": mappings},
        flat | {"y": P},
        flat | {"y": pd.concat(frames)},
        flat | {"y": list(itertools.chain.from_iterable(mappings))},
    ):
        np.testing.assert_allclose(crf.fit(**data).coef_, expected, atol=1e-5)
    assert ChainCRF("linear", C=1.0).fit(X, frames).classes_.tolist() == names
    assert ChainCRF("linear", C=1.0).fit(X, Q).classes_.tolist() == [0, 1, 2]
    mixed = [[{"a": 0.5, "b": 0.5}, "c", "a"], ["b"], ["a"] * 4, ["b", {"c": 1}]]
    assert ChainCRF("linear", C=1.0).fit(X, mixed).classes_.tolist() == names
    again = crf.set_params(warm_start=True).fit(X, crf.predict_marginals(X))
    assert again.classes_.tolist() == names
    updated = ChainCRF("linear", prior=crf).fit(X, [q[:, :3] for q in Q])
    assert updated.classes_.tolist() == names


def changed(i, value):
    return [value if k == i else q for k, q in enumerate(Q)]


@pytest.mark.parametrize(
    ("parameters", "y", "match"),
    [
        ({}, changed(0, Q[0][:2]), r"y\[0\] is .*: expected probabilities of labels in an array of shape \(3, 3\)"),
        ({}, changed(2, Q[2][:, :2]), r"y\[2\] is .*: expected probabilities .* shape \(4, 3\)"),
        ({}, changed(1, [0]), r"y\[1\] is .*: expected probabilities"),
        ({}, changed(1, Q[1] * 1.1), "at sequence 1, token 0, whose sum is 1.1: expected numbers >= 0 whose sum is 1"),
        ({}, changed(1, np.array([[2.0, -1.0, 0.0]])), "at sequence 1, token 0, whose sum is 1: expected"),
        ({}, changed(1, np.full((1, 3), np.nan)), "whose sum is nan: expected"),
        ({}, changed(1, pd.DataFrame(Q[1])), r"y\[1\] has the columns \[0, 1, 2\]: expected None"),
        ({}, Q[:3], "y has 3 sequences and X has 4: expected an array of probabilities"),
        ({"classes": ["b", "a", "c"]}, Q, r"classes=\['b', 'a', 'c'\] is not in the order of the columns"),
        ({"classes": ["a", "b"]}, Q, r"y has probabilities of 3 labels, and there are 2 classes \('a', 'b'\)"),
        ({"classes": ["a", "b"]}, [[{"a": 0.5, "z": 0.5}] * len(x) for x in X], "of the label 'z', which is not among"),
        (
            {},
            [[{"a": 0.5, "b": 0.5}, None, "a"], *[["a"] * len(x) for x in X[1:]]],
            "y has None at sequence 0, token 1",
        ),
        ({}, [[{"a": 1.0}, {"a", "b"}, "b"], *[["a"] * len(x) for x in X[1:]]], "cannot be combined with labels that"),
        ({}, [[{"a": "much"}, "a", "b"], *[["a"] * len(x) for x in X[1:]]], "expected a mapping from labels to"),
        ({"solver": "dual"}, Q, "solver='dual' cannot minimise this objective: .*one label per token"),
        ({"solver": Dual()}, Q, "solver='dual' cannot minimise this objective: .*one label per token"),
    ],
)
def test_what_are_no_soft_labels_is_refused(parameters, y, match):
    words = [[{"w": float(row[0])} for row in x] for x in X]
    with pytest.raises((ValueError, TypeError), match=match):
        ChainCRF("linear", C=1.0, **parameters).fit(words, y)


def test_estimators_and_methods_without_soft_labels_say_so():
    crf = ChainCRF("linear", C=1.0).fit(X, Q)
    with pytest.raises(ValueError, match=r"y\[0\] has shape \(3, 3\): expected a 1-D array with one label per token"):
        crf.loo_log_prob(X, Q)
    with pytest.raises(ValueError, match=r"y\[0\] has shape \(3, 3\)"):
        SegmentCRF("linear", C=1.0).fit(X, Q)
    with pytest.raises(ValueError, match="inference='gibbs' cannot be combined with probabilities in y"):
        GraphCRF("linear", inference="gibbs").fit([(x, [[0, len(x) - 1]] if len(x) > 1 else []) for x in X], Q)
    with pytest.raises(ValueError, match="weights of tokens, which cannot be combined with soft labels"):
        ChainCRF("linear", C=1.0).fit(X, Q, [np.arange(len(x)) + 1.0 for x in X])
