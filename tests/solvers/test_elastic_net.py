"""l1 > 0: the gap is that of enumeration, covers the truth at every iterate, and the optimum is CRFsuite's."""

from dataclasses import replace

import numpy as np
import pytest
import sklearn_crfsuite

import kernelcrf
from kernelcrf import ChainCRF
from kernelcrf.objective import Objective
from kernelcrf.penalties import ElasticNet, soft
from kernelcrf.score.layout import Layout
from kernelcrf.solvers import LBFGS, Dual, NewtonCG, minimise
from kernelcrf.validation import ParameterError
from objectives import entropy_side, enumerated_value, gradient_side, random_objective
from solvers.test_dual import sparse_objective

RNG = np.random.default_rng(1)
X = [[{"word": f"w{RNG.integers(15)}", "bias": 1.0} for _ in range(T)] for T in RNG.integers(1, 8, size=30)]
Y = [[("a", "b", "c")[(int(token["word"][1:]) + (RNG.random() < 0.3)) % 3] for token in x] for x in X]


def with_l1(objective, *factors):
    terms = [replace(term, penalty=ElasticNet(l1)) for term, l1 in zip(objective.layout.terms, factors, strict=True)]
    return Objective(Layout(tuple(terms)), objective.partitions, objective.engine)


def enumerated_gap(objective, theta):
    """The formula of the elastic net, with the loss and its gradient by enumeration and differences."""
    plain = with_l1(objective, *np.zeros(len(objective.layout.terms)))
    steps = 1e-5 * np.eye(len(theta))
    losses = [[enumerated_value(plain, theta + sign * step) for sign in (1, -1)] for step in steps]
    g = np.array([(up - down) / 2e-5 for up, down in losses]) - objective.layout.times_lam(theta)
    total = 0.0
    for term in objective.layout.terms:
        own = objective.layout.slices[term.name]
        w, d, lam = theta[own], g[own], 1 / term.C
        total += (
            w @ d
            + lam / 2 * w @ w
            + term.penalty.l1 * np.abs(w).sum()
            + np.square(soft(d, term.penalty.l1)).sum() / (2 * lam)
        )
    return total


@pytest.mark.few(6)
@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("kind", [{}, {"weighted": True}, {"edge_inputs": 2}], ids=str)
def test_the_gap_is_that_of_enumeration(seed, kind):
    objective = random_objective(seed, lengths=(3, 1, 2), **kind)
    objective = with_l1(objective, 0.3, 1.1, 0.0, *([0.7] if "edge_inputs" in kind else []))
    rng = np.random.default_rng(seed)
    theta = rng.normal(size=objective.layout.size) * (rng.random(objective.layout.size) < 0.6)
    at = objective.evaluate(theta)
    absolute = np.dot(objective.layout.absolute, np.abs(theta))
    assert at.value == pytest.approx(enumerated_value(objective, theta) + absolute, rel=1e-12)
    assert objective.gap(at) == pytest.approx(enumerated_gap(objective, theta), rel=1e-7)
    assert gradient_side(objective, at) == pytest.approx(entropy_side(objective, at), rel=1e-9, abs=1e-9)


@pytest.mark.few(5)
@pytest.mark.parametrize("seed", range(2))
@pytest.mark.parametrize("l1", [(0.0, 0.5), (0.3, 0.0), (0.2, 0.2), (1e4, 1e4)], ids=str)
@pytest.mark.parametrize("C", [(300.0, 30.0), (0.01, 1.0)], ids=str)
@pytest.mark.parametrize("kind", [{}, {"pairs": True, "weighted": True}], ids=str)
def test_every_iterate_covers_the_truth(seed, l1, C, kind):
    objective = with_l1(sparse_objective(seed, C=C, **kind), *l1)
    start = np.zeros(objective.layout.size)
    best = minimise(objective, LBFGS(), start, tol=1e-13, max_iter=3000).certificate
    assert best.relative_gap < 1e-7
    for solver in (LBFGS(), LBFGS(precondition=False), Dual()):
        found = minimise(objective, solver, start, tol=1e-6, max_iter=2000)
        assert found.status == "optimal", solver
        slack = 1e-10 * abs(best.objective)
        for record in found.history:
            assert record.lower_bound <= best.objective + slack
            assert record.value >= best.lower_bound - slack


def test_the_smallest_penalty_that_makes_all_weights_zero():
    """At theta = 0, the subgradient contains zero if and only if l1 is at least the largest derivative of the loss."""
    objective = sparse_objective(0)
    largest = np.abs(objective.evaluate(np.zeros(objective.layout.size)).gradient).max()
    for factor, expected in ((1.001, True), (0.99, False)):
        for solver in (LBFGS(), Dual()):
            found = minimise(
                with_l1(objective, *[factor * largest] * 2), solver, np.zeros(objective.layout.size), tol=1e-9
            )
            assert (not found.theta.any()) == expected


@pytest.mark.parametrize(("c1", "c2"), [(0.1, 0.01), (1.0, 0.5)])
@pytest.mark.parametrize("solver", ["dual", "lbfgs"])
def test_weights_are_those_of_crfsuite(c1, c2, solver):
    theirs = sklearn_crfsuite.CRF(
        c1=c1, c2=c2, max_iterations=5000, epsilon=1e-9, delta=1e-12, all_possible_transitions=True
    ).fit(X, Y)
    ours = ChainCRF("linear", C=1 / (2 * c2), penalty=ElasticNet(c1), solver=solver, tol=1e-9).fit(X, Y)
    assert ours.certificate_.objective == pytest.approx(theirs.training_log_.last_iteration["loss"], rel=1e-5)
    names = ours.get_feature_names_out().tolist()
    for (name, label), weight in theirs.state_features_.items():
        assert ours.coef_[names.index(name), ours.classes_.tolist().index(label)] == pytest.approx(weight, abs=5e-3)
    count = (ours.coef_ != 0).sum() + (ours.transitions_ != 0).sum()
    assert abs(count - len(theirs.state_features_) - len(theirs.transition_features_)) <= 2


def test_missing_labels_end_at_a_stationary_point():
    y = [[None if t % 4 == 3 else label for t, label in enumerate(labels)] for labels in Y]
    crf = ChainCRF("linear", C=10.0, penalty=ElasticNet(0.5), random_state=0).fit(X, y)
    assert crf.certificate_.status == "stationary"
    assert (crf.coef_ == 0).mean() > 0.3


def test_dense_inputs_have_exact_zeros():
    rng = np.random.default_rng(0)
    dense = [np.column_stack([np.eye(3)[["abc".index(label) for label in y]], rng.normal(size=(len(y), 5))]) for y in Y]
    crf = ChainCRF("linear", C=100.0, penalty=ElasticNet(5.0)).fit(dense, Y)
    assert crf.certificate_.status == "optimal"
    assert (crf.coef_[3:] == 0).mean() > 0.7


def test_a_model_file_keeps_the_penalty(tmp_path):
    crf = ChainCRF("linear", C=10.0, penalty=ElasticNet(0.3)).fit(X, Y)
    crf.save(tmp_path / "model")
    loaded = kernelcrf.load(tmp_path / "model")
    assert loaded.penalty == ElasticNet(0.3)
    assert loaded.model_.layout.terms[0].penalty == ElasticNet(0.3)
    np.testing.assert_array_equal(loaded.coef_, crf.coef_)


def test_C_is_chosen_with_the_penalty():
    assert ChainCRF("linear", penalty=ElasticNet(0.1)).fit(X, Y).certificate_.status == "optimal"


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({"laplace": True}, "laplace=True"),
        ({"C": "evidence"}, "C='evidence'"),
        ({"label_kernel": "centred"}, "label_kernel='centred'"),
        ({"kernel": "rbf"}, "kernel='linear'"),
        ({"solver": "newton-cg"}, "solver='auto'"),
        ({"solver": "newton"}, "solver='auto'"),
        ({"solver": NewtonCG()}, "solver='auto'"),
        ({"penalty": 0.1}, "penalty=0.1"),
    ],
    ids=str,
)
def test_what_has_no_meaning_is_refused(parameters, message):
    with pytest.raises((ParameterError, ValueError), match=message):
        ChainCRF(**{"kernel": "linear", "C": 1.0, "penalty": ElasticNet(0.1), **parameters}).fit(X, Y)


def test_a_negative_factor_is_refused():
    with pytest.raises(ParameterError, match=r"l1=-1\.0"):
        ElasticNet(-1.0)


def test_rare_pairs_are_left_out():
    crf = ChainCRF("linear", C=1.0, weights=3).fit(X, Y)
    theirs = sklearn_crfsuite.CRF(c1=0.0, c2=0.5, min_freq=3, epsilon=1e-9, delta=1e-12, max_iterations=1000).fit(X, Y)
    assert crf.model_.layout.size == len(theirs.state_features_) + len(theirs.transition_features_)
    assert crf.certificate_.objective == pytest.approx(theirs.training_log_.last_iteration["loss"], rel=1e-4)
