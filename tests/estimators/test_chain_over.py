"""A chain over a classifier: out-of-fold probabilities by group, other inputs beside them, missing labels, errors."""

import numpy as np
import pytest
from sklearn.base import BaseEstimator, ClassifierMixin, clone
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import GridSearchCV, GroupKFold
from sklearn.naive_bayes import GaussianNB
from sklearn.neighbors import KNeighborsClassifier

from kernelcrf import ChainCRF, ChainOver, Input
from kernelcrf.datasets import make_sequences

DATA = make_sequences(40, random_state=0)
NEW = make_sequences(40, random_state=1)
PLAIN = ChainCRF(inputs={"classifier": Input("linear")}, C=1.0)


class Memory(ClassifierMixin, BaseEstimator):
    """Knows the labels of the tokens it has seen, and guesses all others."""

    def fit(self, X, y, sample_weight=None):
        self.classes_ = np.unique(y)
        self.seen_ = {tuple(x): label for x, label in zip(X, y, strict=True)}
        self.weight_ = None if sample_weight is None else float(np.sum(sample_weight))
        return self

    def predict_proba(self, X):
        same = np.full(len(self.classes_), 1 / len(self.classes_))
        return np.array([(self.classes_ == self.seen_[k]) * 1.0 if (k := tuple(x)) in self.seen_ else same for x in X])


def test_the_chain_reads_out_of_fold_log_probabilities():
    groups = np.arange(40) // 4
    over = ChainOver(KNeighborsClassifier(7), cv=4, chain=ChainCRF(inputs={"classifier": Input("linear")}, C=2.0))
    over.fit(DATA.X, DATA.y, groups=groups)
    rows, y = np.concatenate(DATA.X), np.concatenate(DATA.y)
    p, of_tokens = np.empty((len(y), 3)), np.repeat(groups, [len(x) for x in DATA.X])
    for train, test in GroupKFold(4).split(rows, groups=of_tokens):
        p[test] = KNeighborsClassifier(7).fit(rows[train], y[train]).predict_proba(rows[test])
    scores = np.log((p + 1e-3) / (1 + 3e-3))
    scores -= scores.mean(axis=1, keepdims=True)
    X = np.split(scores, np.cumsum([len(x) for x in DATA.X])[:-1])
    expected = ChainCRF("linear", C=2.0).fit(X, DATA.y)
    np.testing.assert_allclose(over.chain_.coef_, expected.coef_, rtol=1e-10)
    new = KNeighborsClassifier(7).fit(rows, y).predict_proba(NEW.X[0])
    scores = np.log((new + 1e-3) / (1 + 3e-3))
    found = over.transform(NEW.X)[0]
    np.testing.assert_allclose(found["classifier"], scores - scores.mean(axis=1, keepdims=True))
    assert found["tokens"] is NEW.X[0]
    assert over.score(NEW.X, NEW.y) > ChainCRF("linear", C=2.0).fit(DATA.X, DATA.y).score(NEW.X, NEW.y)


def test_a_classifier_that_memorises_is_not_believed():
    over = ChainOver(Memory(), chain=ChainCRF(inputs={"classifier": Input("linear")}, C=10.0)).fit(DATA.X, DATA.y)
    np.testing.assert_allclose(over.chain_.coef_, 0, atol=1e-6)


def test_other_inputs_stand_beside_the_classifier():
    inputs = {"classifier": Input("linear"), "tokens": Input("rbf", n_components=60)}
    over = ChainOver(LogisticRegression(), chain=ChainCRF(inputs=inputs, C=3.0, random_state=0)).fit(DATA.X, DATA.y)
    alone = ChainOver(LogisticRegression()).fit(DATA.X, DATA.y)
    assert over.log_prob(NEW.X, NEW.y).mean() > alone.log_prob(NEW.X, NEW.y).mean() + 0.5
    named = [{"numbers": x, "words": [{"v": str(round(v))} for v in x[:, 0]]} for x in DATA.X]
    inputs = {"classifier": Input("linear"), "words": Input()}
    third = ChainOver(LogisticRegression(), of="numbers", chain=ChainCRF(inputs=inputs, C=3.0)).fit(named, DATA.y)
    assert third.predict_proba(named)[0].shape == (len(DATA.y[0]), 3)
    assert [labels.dtype for labels in third.predict([])] == []


def test_missing_labels_and_weights_reach_both():
    y = [[None if t == 0 else label for t, label in enumerate(labels)] for labels in DATA.y]
    over = ChainOver(KNeighborsClassifier(5), chain=PLAIN).fit(DATA.X, y)
    assert over.classifier_.n_samples_fit_ == sum(len(labels) - 1 for labels in y)
    assert over.score(NEW.X, NEW.y) > 0.7
    weighted = ChainOver(Memory(), chain=PLAIN).fit(DATA.X, DATA.y, sample_weight=np.full(40, 2.0))
    assert weighted.classifier_.weight_ == 2.0 * sum(map(len, DATA.y))


def test_labels_that_a_fold_has_not_seen_have_probability_zero():
    X, y = [*DATA.X, np.array([[9.0, 9.0]])], [[str(label) for label in labels] for labels in DATA.y] + [["rare"]]
    over = ChainOver(KNeighborsClassifier(5), chain=PLAIN).fit(X, y)
    assert over.classes_.tolist() == ["0", "1", "2", "rare"]
    assert over.predict_proba(X)[0].shape[1] == 4


def test_scikit_learn_searches_the_parameters_of_both():
    inputs = {"classifier": Input("linear")}
    over = ChainOver(KNeighborsClassifier(), chain=ChainCRF(inputs=inputs))
    grid = {"classifier__n_neighbors": [1, 9], "chain__inputs__classifier__C": [1e-6, 1.0], "chain__C": [1.0]}
    search = GridSearchCV(over, grid, cv=3).fit(DATA.X, DATA.y)
    assert search.best_params_["chain__inputs__classifier__C"] == 1.0
    assert clone(over).get_params()["classifier__n_neighbors"] == 5


@pytest.mark.parametrize(
    ("parameters", "X", "message"),
    [
        ({"classifier": object()}, DATA.X, "expected a classifier with the method predict_proba"),
        ({"chain": ChainCRF()}, DATA.X, "expected an input 'classifier', which reads the probabilities"),
        ({"cv": 1}, DATA.X, "cv=1"),
        ({"of": "a"}, DATA.X, "of='a', but the sequences in X are not mappings"),
        ({}, [{"a": x} for x in DATA.X], "but of=None: pass the name of the entry that the classifier reads"),
        ({"of": "b"}, [{"a": x} for x in DATA.X], r"X\[0\] has no entry 'b'"),
        ({}, [np.concatenate(DATA.X)], "expected at least 2"),
    ],
)
def test_what_cannot_be_fitted_is_refused_by_name(parameters, X, message):
    y = DATA.y if len(X) > 1 else [np.concatenate(DATA.y)]
    with pytest.raises(ValueError, match=message):
        ChainOver(**{"classifier": KNeighborsClassifier(), **parameters}).fit(X, y)


def test_sequences_of_weight_zero_do_not_reach_the_classifier():
    rng = np.random.default_rng(0)
    X = [rng.normal(size=(5, 2)) for _ in range(8)]
    y = [(x[:, 0] > 0).astype(int) for x in X]
    weights = np.array([1, 1, 1, 1, 1, 1, 0, 0])
    wrong = [*y[:6], 1 - y[6], 1 - y[7]]
    groups = [0, 1, 2, 0, 1, 2, 0, 1]
    for classifier in (KNeighborsClassifier(3), GaussianNB()):
        one, other = (
            ChainOver(classifier, cv=3, chain=PLAIN).fit(X, own, weights, groups=groups) for own in (y, wrong)
        )
        for p, q in zip(one.predict_proba(X), other.predict_proba(X), strict=True):
            np.testing.assert_array_equal(p, q)
