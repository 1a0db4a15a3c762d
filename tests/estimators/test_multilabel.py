import itertools

import numpy as np
import pytest
import sklearn
from sklearn.base import clone
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import GridSearchCV, cross_val_predict
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils.estimator_checks import parametrize_with_checks

from kernelcrf import MultiLabelCRF

SHUFFLED = "scikit-learn 1.6 makes y binary by its first entry, after one of the two that it compares was shuffled"
EQUIVALENCE = [f"check_sample_weight_equivalence_on_{kind}_data" for kind in ("dense", "sparse")]


@parametrize_with_checks(
    [
        MultiLabelCRF(gamma=0.5, solver="newton-cg", tol=1e-13, random_state=0),
        MultiLabelCRF("linear", structure="full"),
    ],
    expected_failed_checks=lambda _: (
        dict.fromkeys(EQUIVALENCE, SHUFFLED) if sklearn.__version__.startswith("1.6.") else {}
    ),
)
def test_the_checks_of_scikit_learn(estimator, check):
    check(estimator)


def labelled(seed=0, m=60, n_labels=4):
    """Rows whose labels depend on the inputs and on each other."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(m, 3))
    Y = (X @ rng.normal(size=(3, n_labels)) + rng.normal(size=(m, n_labels)) > 0).astype(int)
    Y[:, 1] = np.where(rng.random(m) < 0.8, Y[:, 0], Y[:, 1])
    return X, Y


STRUCTURES = ["none", "tree", "full", "auto", [(0, 1), (2, 1)]]


@pytest.mark.parametrize("structure", STRUCTURES, ids=str)
@pytest.mark.parametrize("edge_kernel", [None, "linear"])
def test_probabilities_are_those_of_all_label_sets(structure, edge_kernel):
    X, Y = labelled()
    model = MultiLabelCRF(structure=structure, edge_kernel=edge_kernel, random_state=0).fit(X, Y)
    sets = np.array(list(itertools.product((0, 1), repeat=4)))
    p = np.exp([model.log_prob(X[:5], np.tile(one, (5, 1))) for one in sets]).T
    np.testing.assert_allclose(p.sum(axis=1), 1, rtol=1e-9)
    np.testing.assert_allclose(model.predict_proba(X[:5]), p @ sets, atol=1e-9)
    np.testing.assert_array_equal(model.predict(X[:5]), sets[p.argmax(axis=1)])
    np.testing.assert_allclose(model.distribution(X[:5]).entropy(), -(p * np.log(p)).sum(axis=1), atol=1e-9)
    for row, ranked in zip(p, model.distribution(X[:5]).k_best(3), strict=True):
        order = np.argsort(-row)[:3]
        np.testing.assert_array_equal([y for y, _ in ranked], sets[order])
        np.testing.assert_allclose([log_p for _, log_p in ranked], np.log(row[order]), atol=1e-9)
    hidden = np.tile([1, -1, 0, -1], (5, 1))
    agree = (sets[:, 0] == 1) & (sets[:, 2] == 0)
    np.testing.assert_allclose(model.log_prob(X[:5], hidden), np.log(p[:, agree].sum(axis=1)), atol=1e-9)


def test_without_interactions_each_label_is_a_logistic_regression():
    X, Y = labelled()
    C = 0.7
    model = MultiLabelCRF("linear", C=C, C_label=1e3, structure="none", tol=1e-10).fit(X, Y)
    for j in range(4):
        # The log odds are sqrt(2) w'x with |w|^2 / (2 C) of penalty: a prior variance of 2 C on their weights.
        single = LogisticRegression(C=2 * C, tol=1e-10, max_iter=10_000).fit(X, Y[:, j])
        np.testing.assert_allclose(model.predict_proba(X)[:, j], single.predict_proba(X)[:, 1], atol=2e-3)


def test_decoding_by_marginals_takes_each_label_for_itself():
    X, Y = labelled()
    model = MultiLabelCRF(decoding="marginal", random_state=0).fit(X, Y)
    np.testing.assert_array_equal(model.predict(X), model.predict_proba(X) > 0.5)


def test_samples_have_the_probabilities_of_the_model():
    X, Y = labelled()
    model = MultiLabelCRF(structure="full", random_state=0).fit(X, Y)
    draws = model.distribution(X[:3]).sample(n_samples=20_000, random_state=1)
    assert draws.shape == (20_000, 3, 4)
    p = model.predict_proba(X[:3])
    assert np.abs(draws.mean(axis=0) - p).max() < 5 * np.sqrt(0.25 / 20_000)


def test_interactions_are_log_odds_ratios():
    X, Y = labelled()
    model = MultiLabelCRF(structure=[(0, 1)], random_state=0).fit(X, Y)
    log_p = {(a, b): model.log_prob(X[:1], [[a, b, -1, -1]])[0] for a in (0, 1) for b in (0, 1)}
    ratio = log_p[1, 1] + log_p[0, 0] - log_p[0, 1] - log_p[1, 0]
    assert model.interactions_[0] == pytest.approx(ratio, abs=1e-9)
    assert ratio > 0.5


def test_the_search_bounds_what_the_full_graph_gains():
    X, Y = labelled(m=200)
    Y = np.column_stack((Y, np.random.default_rng(1).integers(2, size=200)))
    auto = MultiLabelCRF("linear", random_state=0).fit(X, Y)
    full = MultiLabelCRF("linear", structure="full", tol=1e-8).fit(X, Y)
    assert (0, 1) in {tuple(pair) for pair in auto.edges_.tolist()}
    assert 0 < len(auto.edges_) < 10
    assert auto.search_.lower_bound <= full.certificate_.objective <= auto.certificate_.objective
    assert {c.template for c in auto.search_.absent} | {f"edge {i} {j}" for i, j in auto.edges_} == {
        f"edge {i} {j}" for i, j in itertools.combinations(range(5), 2)
    }
    values = [r.objective for r in auto.search_.rounds]
    assert values == sorted(values, reverse=True)


def test_missing_labels_are_summed_over():
    X, Y = labelled(m=150)
    holes = Y.copy()
    holes[np.random.default_rng(2).random(Y.shape) < 0.3] = -1
    model = MultiLabelCRF("linear", structure="tree", random_state=0).fit(X, holes)
    assert model.certificate_.lower_bound == -np.inf
    assert (model.predict(X) == Y).mean() > 0.75


def test_it_works_with_the_tools_of_scikit_learn():
    X, Y = labelled()
    pipeline = make_pipeline(StandardScaler(), MultiLabelCRF(structure="tree", random_state=0))
    found = GridSearchCV(pipeline, {"multilabelcrf__C": [0.1, 1.0]}, cv=2).fit(X, Y)
    assert found.best_score_ == pytest.approx(max(found.cv_results_["mean_test_score"]))
    p = cross_val_predict(clone(found.best_estimator_), X, Y, cv=2, method="predict_proba")
    assert p.shape == Y.shape


def test_what_does_not_fit_is_refused_by_name():
    X, Y = labelled(m=10)
    with pytest.raises(ValueError, match=r"structure='web': expected 'auto', 'full', 'tree', 'none'"):
        MultiLabelCRF(structure="web").fit(X, Y)
    with pytest.raises(ValueError, match=r"structure contains \(0, 4\): expected two different nodes from 0 to 3"):
        MultiLabelCRF(structure=[(0, 4)]).fit(X, Y)
    with pytest.raises(ValueError, match="decoding='best'"):
        MultiLabelCRF(decoding="best").fit(X, Y)
    with pytest.raises(ValueError, match=r"column 1 of y has the values \[0, 1, 2\]"):
        MultiLabelCRF().fit(X, np.column_stack((Y[:, 0], np.arange(10) % 3)))
    model = MultiLabelCRF(structure="none").fit(X, Y)
    with pytest.raises(ValueError, match="y has 3 columns: expected 4"):
        model.log_prob(X, Y[:, :3])
    with pytest.raises(ValueError, match="y has 9 rows and X has 10"):
        model.log_prob(X, Y[:9])


def test_a_label_that_is_never_seen_to_be_absent_may_miss():
    """In an indicator matrix -1 is a missing label of every column, also of one in which no 0 is left."""
    X = np.random.default_rng(0).normal(size=(6, 2))
    Y = np.array([[1, -1, -1], [0, 1, -1], [1, 1, -1], [0, -1, -1], [-1, 1, -1], [1, 1, -1]])
    model = MultiLabelCRF("linear", structure="none").fit(X, Y)
    assert set(np.unique(model.predict(X))) <= {0, 1}
    np.testing.assert_array_equal(model.predict(X)[:, 1], 1)
    np.testing.assert_allclose(model.log_prob(X, np.full_like(Y, -1)), 0, atol=1e-12)
    signs = MultiLabelCRF("linear", structure="none").fit(X, np.where(X > 0, 1, -1))
    assert set(np.unique(signs.predict(X))) == {-1, 1}


@pytest.mark.parametrize("values", [(-1, 1), ("no", "yes"), (1, 2), (-1.0, 1.0)])
@pytest.mark.parametrize("lone", [0, 1])
def test_a_column_of_one_value_has_the_values_of_the_others(values, lone):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(30, 1))
    bits = (X + rng.normal(size=(30, 2)) > 0).astype(int)
    bits[:, 0] = lone
    crf = MultiLabelCRF("linear", structure="none").fit(X, np.array(values)[bits])
    same = MultiLabelCRF("linear", structure="none").fit(X, bits)
    np.testing.assert_array_equal(crf.predict_proba(X), same.predict_proba(X))
    assert set(crf.predict(X)[:, 0]) == {values[lone]}
    both = np.array(values)[[[1 - lone, 0], [lone, 0]]]
    unlikely, likely = crf.log_prob(X[:2] * 0, both)
    assert unlikely < likely


def test_columns_with_their_own_values_can_be_scored():
    X = np.random.default_rng(0).normal(size=(30, 1))
    Y = np.column_stack([np.where(X[:, 0] > 0, 2, 1), np.where(np.arange(30) % 2, 7, 5)])
    crf = MultiLabelCRF("linear", structure="full").fit(X, Y)
    assert crf.score(X, Y) == np.mean((crf.predict(X) == Y).all(axis=1))


def test_missing_labels_are_left_out_of_the_score():
    X = np.random.default_rng(0).normal(size=(30, 1))
    Y = np.column_stack([X[:, 0] > 0, X[:, 0] > 0.5]).astype(int)
    crf = MultiLabelCRF("linear", C=100.0).fit(X, Y)
    part, weight = Y.copy(), np.linspace(1, 2, 30)
    part[:5], part[5:10, 1] = -1, -1
    right = crf.predict(X) == Y
    right[5:10, 1] = True
    assert crf.score(X, part, weight) == pytest.approx(np.average(right.all(axis=1)[5:], weights=weight[5:]))
