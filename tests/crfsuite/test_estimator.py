"""kernelcrf.crfsuite.CRF beside sklearn_crfsuite.CRF: the same scripts, the same weights, the same answers."""

import contextlib
import inspect
import io
import pickle
import warnings
from fractions import Fraction

import numpy as np
import pycrfsuite
import pytest
import sklearn_crfsuite
import sklearn_crfsuite.scorers
from sklearn.base import clone
from sklearn.exceptions import ConvergenceWarning
from sklearn.model_selection import GridSearchCV, cross_val_predict, cross_val_score
from sklearn.utils.validation import check_is_fitted

import kernelcrf
import kernelcrf.crfsuite
from kernelcrf import ChainCRF
from kernelcrf.crfsuite import CRF
from kernelcrf.penalties import ElasticNet
from kernelcrf.validation import ParameterError

# The usual script: features of a word and its neighbours, a fit, predictions, scores, a search, the largest weights.
TUTORIAL = """
{imports}
from collections import Counter
from sklearn.metrics import make_scorer
from sklearn.model_selection import RandomizedSearchCV

def word2features(sent, i):
    word, postag = sent[i]["word"], sent[i]["pos"]
    features = {{
        "bias": 1.0,
        "word.lower()": word.lower(),
        "word[-3:]": word[-3:],
        "word.isupper()": word.isupper(),
        "word.istitle()": word.istitle(),
        "word.isdigit()": word.isdigit(),
        "postag": postag,
        "postag[:2]": postag[:2],
    }}
    if i > 0:
        before = sent[i - 1]
        features.update({{"-1:word.lower()": before["word"].lower(), "-1:postag": before["pos"]}})
    else:
        features["BOS"] = True
    if i < len(sent) - 1:
        after = sent[i + 1]
        features.update({{"+1:word.lower()": after["word"].lower(), "+1:postag": after["pos"]}})
    else:
        features["EOS"] = True
    return features

def sent2features(sent):
    return [word2features(sent, i) for i in range(len(sent))]

X_train, X_test = [sent2features(s) for s in train_sents], [sent2features(s) for s in test_sents]
crf = sklearn_crfsuite.CRF(
    algorithm="lbfgs", c1=0.1, c2=0.1, max_iterations=100, all_possible_transitions=True
)
crf.fit(X_train, y_train)
labels = list(crf.classes_)
labels.remove("O")
y_pred = crf.predict(X_test)
f1 = metrics.flat_f1_score(y_test, y_pred, average="weighted", labels=labels, zero_division=0)
sorted_labels = sorted(labels, key=lambda name: (name[1:], name[0]))
report = metrics.flat_classification_report(y_test, y_pred, labels=sorted_labels, digits=3, zero_division=0)
scorer = make_scorer(metrics.flat_f1_score, average="weighted", labels=labels, zero_division=0)
search = RandomizedSearchCV(
    sklearn_crfsuite.CRF(algorithm="lbfgs", max_iterations=100),
    {{"c1": [0.01, 0.5], "c2": [0.01, 0.5]}},
    cv=3, n_iter=2, scoring=scorer, random_state=0,
)
search.fit(X_train[:60], y_train[:60])
likely = Counter(crf.transition_features_).most_common(20)
positive = Counter(crf.state_features_).most_common(30)
info = crf.tagger_.info()
size = crf.size_ / 1000000
"""
THEIRS = "import sklearn_crfsuite\nfrom sklearn_crfsuite import metrics, scorers"
OURS = "import kernelcrf.crfsuite as sklearn_crfsuite\nfrom kernelcrf.crfsuite import metrics, scorers"


@pytest.mark.parametrize("n_train", [60, pytest.param(120, marks=pytest.mark.slow)])
def test_the_tutorial_runs_with_other_import_lines(data_folder, n_train):
    """Predictions and F1 nearly agree: CRFsuite stops earlier, and counts features that are False as observed."""
    train, test = (kernelcrf.datasets.load_conll2000(part, folder=data_folder) for part in ("train", "test"))
    names = {
        "train_sents": train.X[:n_train],
        "test_sents": test.X[:n_train],
        "y_train": [labels.tolist() for labels in train.y[:n_train]],
        "y_test": [labels.tolist() for labels in test.y[:n_train]],
    }
    found = {}
    for side, imports in (("theirs", THEIRS), ("ours", OURS)):
        found[side] = dict(names)
        with contextlib.redirect_stdout(io.StringIO()), warnings.catch_warnings():
            warnings.simplefilter("ignore", ConvergenceWarning)
            exec(compile(TUTORIAL.format(imports=imports), side, "exec"), found[side])
    ours, theirs = found["ours"], found["theirs"]
    assert type(ours["crf"]) is CRF
    pairs = [pair for a, b in zip(ours["y_pred"], theirs["y_pred"], strict=True) for pair in zip(a, b, strict=True)]
    assert np.mean([a == b for a, b in pairs]) >= 0.99
    assert ours["f1"] == pytest.approx(theirs["f1"], abs=0.005)
    assert ours["report"].splitlines()[0] == theirs["report"].splitlines()[0]
    assert ours["search"].best_score_ == pytest.approx(theirs["search"].best_score_, abs=0.02)
    assert ours["search"].best_params_ == theirs["search"].best_params_
    same = {pair for pair, _ in ours["likely"]} & {pair for pair, _ in theirs["likely"]}
    assert len(same) >= 16
    loss = theirs["crf"].training_log_.last_iteration["loss"]
    assert ours["crf"].certificate_.objective <= loss * 1.002
    assert ours["crf"].size_ == pytest.approx(theirs["crf"].size_, rel=0.05)


def sequences(seed=0, n=40):
    rng = np.random.default_rng(seed)
    X = [
        [{"w": str(rng.integers(12)), "bias": 1.0, "size": float(rng.random())} for _ in range(rng.integers(1, 8))]
        for _ in range(n)
    ]
    return X, [[str(rng.choice(["A", "B", "O"])) for _ in x] for x in X]


X, Y = sequences()
TIGHT = {"max_iterations": 2000, "epsilon": 1e-9, "delta": 1e-12}


@pytest.mark.parametrize(
    "settings",
    [
        {},
        {"c1": 0.3, "c2": 0.05},
        {"all_possible_states": True, "all_possible_transitions": True},
        {"min_freq": 4},
        {"all_possible_states": 1, "all_possible_transitions": 0},
        {"algorithm": "lbfgs", "c1": 0, "c2": 2},
    ],
    ids=str,
)
def test_weights_and_answers_are_those_of_sklearn_crfsuite(settings):
    ours, theirs = CRF(**settings, **TIGHT).fit(X, Y), sklearn_crfsuite.CRF(**settings, **TIGHT).fit(X, Y)
    assert ours.training_log_.last_iteration["loss"] == pytest.approx(
        theirs.training_log_.last_iteration["loss"], rel=1e-6
    )
    assert ours.certificate_.status == "optimal"
    for name in ("state_features_", "transition_features_"):
        mine, other = getattr(ours, name), getattr(theirs, name)
        pairs = mine.keys() | other.keys()
        for pair in pairs:
            assert mine.get(pair, 0.0) == pytest.approx(other.get(pair, 0.0), abs=2e-3)
        assert len(mine) >= len(pairs) - 3
    assert set(ours.classes_) == set(theirs.classes_)
    new = sequences(1)[0]
    assert ours.predict(new) == list(theirs.predict(new))
    assert ours.score(X, Y) == pytest.approx(theirs.score(X, Y), abs=0.01)
    assert ours.predict_single(new[0]) == theirs.predict_single(new[0]) == ours.tagger_.tag(new[0])
    for mine, other in zip(ours.predict_marginals(new), theirs.predict_marginals(new), strict=True):
        for a, b in zip(mine, other, strict=True):
            assert a == pytest.approx(b, abs=1e-3)
    assert ours.predict_marginals_single(new[0]) == ours.predict_marginals(new)[0]


def test_features_that_are_false_are_observed():
    """They have weights for more pairs than features that are absent, here and in CRFsuite."""
    flagged = [[{**token, "even": int(token["w"]) % 2 == 0} for token in x] for x in X]
    y = [
        ["A" if token["even"] else label for token, label in zip(x, own, strict=True)]
        for x, own in zip(flagged, Y, strict=True)
    ]
    absent = [[{name: value for name, value in token.items() if value is not False} for token in x] for x in flagged]
    ours, theirs = {}, {}
    for name, data in (("flagged", flagged), ("absent", absent)):
        crf = CRF(**TIGHT).fit(data, y)
        ours[name] = crf.certificate_.objective, crf.training_log_.featgen_num_features
        log = sklearn_crfsuite.CRF(**TIGHT).fit(data, y).training_log_
        theirs[name] = log.last_iteration["loss"], log.featgen_num_features
    for name in ours:
        assert ours[name] == (pytest.approx(theirs[name][0], rel=1e-6), theirs[name][1])
    assert ours["flagged"][0] < ours["absent"][0] - 0.1
    assert ours["flagged"][1] > ours["absent"][1]


@pytest.mark.parametrize("min_freq", [0, 1])
def test_crfsuite_adds_up_the_signs_of_values_that_min_freq_counts_here(min_freq):
    """As docs/coming_from/crfsuite.md says: CRFsuite drops pairs whose values sum to less than min_freq."""
    X = [[{"up": 1.0, "down": -1.0}, {"up": -1.0, "down": -2.0}]] * 5
    theirs = sklearn_crfsuite.CRF(min_freq=min_freq, max_iterations=20).fit(X, [["a", "b"]] * 5)
    ours = CRF(min_freq=min_freq, max_iterations=20).fit(X, [["a", "b"]] * 5)
    assert set(theirs.state_features_) == {("up", "a")}
    assert set(ours.state_features_) == {("up", "a"), ("up", "b"), ("down", "a"), ("down", "b")}


def test_the_parameters_are_those_of_sklearn_crfsuite():
    ours, theirs = inspect.signature(CRF).parameters, inspect.signature(sklearn_crfsuite.CRF).parameters
    assert list(ours) == list(theirs)
    assert [one.default for one in ours.values()] == [one.default for one in theirs.values()]
    assert CRF().get_params() == sklearn_crfsuite.CRF().get_params()
    methods = {name for name in dir(sklearn_crfsuite.CRF) if not name.startswith("_")}
    assert methods <= set(dir(CRF))
    for module in ("metrics", "scorers"):
        theirs = vars(getattr(sklearn_crfsuite, module))
        public = {name for name in theirs if name.startswith(("flat_", "sequence_"))}
        assert public <= set(vars(getattr(kernelcrf.crfsuite, module)))


def test_scores_are_those_of_sklearn_crfsuite():
    predicted, options = CRF().fit(X, Y).predict(X), {"average": "macro", "zero_division": 0}
    ours, theirs = kernelcrf.crfsuite.metrics, sklearn_crfsuite.metrics
    for name in ("flat_f1_score", "flat_precision_score", "flat_recall_score"):
        assert getattr(ours, name)(Y, predicted, **options) == getattr(theirs, name)(Y, predicted, **options)
    assert ours.flat_fbeta_score(Y, predicted, beta=2, **options) == theirs.flat_fbeta_score(
        Y, predicted, beta=2, **options
    )
    for name in ("flat_accuracy_score", "sequence_accuracy_score"):
        assert getattr(ours, name)(Y, predicted) == getattr(theirs, name)(Y, predicted)
    crf = CRF().fit(X, Y)
    assert kernelcrf.crfsuite.scorers.flat_accuracy(crf, X, Y) == crf.score(X, Y)
    assert kernelcrf.crfsuite.scorers.sequence_accuracy(crf, X, Y) == ours.sequence_accuracy_score(Y, crf.predict(X))


def test_it_is_a_chain_crf_underneath():
    crf = CRF(c1=0.2, c2=0.1, min_freq=2, epsilon=1e-3, delta=1e-4, max_iterations=50).fit(X, Y)
    chain = crf.crf_
    assert isinstance(chain, ChainCRF)
    assert (chain.C, chain.penalty, chain.weights, chain.tol, chain.max_iter) == (5.0, ElasticNet(0.2), 2, 1e-3, 50)
    assert CRF()._chain_crf().weights == ("observed", "observed")
    assert CRF(all_possible_states=True)._chain_crf().weights == ("all", "observed")
    assert crf.certificate_.relative_gap <= 1e-3
    assert CRF(epsilon=0, delta=0)._chain_crf().tol == 1e-9
    assert CRF(epsilon=5)._chain_crf().tol == 0.5
    assert CRF()._chain_crf().tol == 1e-5
    log = crf.training_log_
    last = log.last_iteration
    assert last is log.iterations[-1]
    assert last["num"] == len(log.iterations) - 1 == chain.n_iter_
    assert last["active_features"] == len(crf.state_features_) + len(crf.transition_features_)
    assert last["active_features"] <= log.featgen_num_features
    assert last["scores"] == {}
    assert last["loss"] == chain.certificate_.objective
    assert sum(one["time"] for one in log.iterations) == pytest.approx(chain.gap_curve_[-1, 2])


def test_held_out_scores_are_those_of_crfsuite():
    dev = sequences(1)
    ours = CRF(**TIGHT).fit(X, Y, X_dev=dev[0], y_dev=dev[1]).training_log_.last_iteration
    theirs = sklearn_crfsuite.CRF(**TIGHT).fit(X, Y, X_dev=dev[0], y_dev=dev[1]).training_log_.last_iteration
    for label, score in theirs["scores"].items():
        assert ours["scores"][label]._asdict() == pytest.approx(score._asdict(), abs=1e-3)
    for name in ("avg_precision", "avg_recall", "avg_f1"):
        assert ours[name] == pytest.approx(theirs[name], abs=1e-3)
    predicted = CRF(**TIGHT).fit(X, Y).predict(dev[0])
    right = [a == b for one, other in zip(dev[1], predicted, strict=True) for a, b in zip(one, other, strict=True)]
    assert ours["item_accuracy"] == Fraction(sum(right), len(right))
    assert ours["instance_accuracy"] == theirs["instance_accuracy"]
    with pytest.raises(ValueError, match="y_dev is None: expected X_dev and y_dev together"):
        CRF().fit(X, Y, X_dev=dev[0])


def test_the_tagger_answers_as_the_one_of_python_crfsuite(tmp_path):
    crf = CRF(c1=0.1, model_filename=tmp_path / "a.crfsuite").fit(X, Y)
    theirs, ours = pycrfsuite.Tagger(), crf.tagger_
    theirs.open(str(tmp_path / "a.crfsuite"))
    for x, y in zip(X[:10], Y[:10], strict=True):
        items = pycrfsuite.ItemSequence(x)
        assert ours.tag(x) == theirs.tag(x) == ours.tag(items) == crf.predict_single(items)
        ours.set(x)
        theirs.set(x)
        assert ours.tag() == theirs.tag()
        assert ours.probability(y) == pytest.approx(theirs.probability(y), abs=1e-12)
        assert ours.marginal("B", len(x) - 1) == pytest.approx(theirs.marginal("B", len(x) - 1), abs=1e-12)
    assert ours.labels() == theirs.labels()
    mine, other = ours.info(), theirs.info()
    assert mine.state_features == pytest.approx(other.state_features, abs=1e-6)
    assert mine.transitions == pytest.approx(other.transitions, abs=1e-6)
    assert {name: str(number) for name, number in mine.attributes.items()} == other.attributes
    assert {name: str(number) for name, number in mine.labels.items()} == other.labels
    assert crf.size_ == (tmp_path / "a.crfsuite").stat().st_size == int(other.header["size"])
    assert crf.num_attributes_ == len(crf.attributes_) == int(other.header["num_attrs"])


def test_a_file_of_a_model_predicts_without_a_fit(tmp_path):
    path = tmp_path / "model"
    theirs = sklearn_crfsuite.CRF(model_filename=str(path)).fit(X, Y)
    crf = CRF(model_filename=str(path))
    assert crf.predict(X) == list(theirs.predict(X))
    assert crf.certificate_.status == "imported"
    check_is_fitted(crf)
    assert not hasattr(crf, "training_log_")
    crf.fit(X, Y)
    assert crf.certificate_.status == "optimal"
    assert list(sklearn_crfsuite.CRF(model_filename=str(path)).predict(X)) == crf.predict(X)
    crf.save(tmp_path / "a.crfsuite")
    assert (tmp_path / "a.crfsuite").read_bytes() == path.read_bytes()
    with pytest.raises(AttributeError, match="this CRF is not fitted: call fit, or pass the file"):
        CRF(model_filename=tmp_path / "none").predict(X)
    with pytest.raises(AttributeError, match="this CRF is not fitted"):
        clone(crf).set_params(model_filename=None).classes_  # noqa: B018


def test_copies_and_searches():
    crf = CRF(c1=0.1, c2=0.2).fit(X, Y)
    again = pickle.loads(pickle.dumps(crf))
    assert again.predict_marginals(X) == crf.predict_marginals(X)
    assert again.state_features_ == crf.state_features_
    assert again.training_log_.last_iteration == crf.training_log_.last_iteration
    assert clone(crf).get_params() == crf.get_params()
    assert repr(crf) == "CRF(c1=0.1, c2=0.2)"
    search = GridSearchCV(CRF(), {"c1": [0.0, 0.5], "c2": [0.1, 10.0]}, cv=3).fit(X, Y)
    assert search.best_estimator_.score(X, Y) == search.score(X, Y)
    assert cross_val_score(CRF(), X, Y, cv=3).shape == (3,)
    assert len(cross_val_predict(CRF(), X, Y, cv=3)) == len(X)


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"algorithm": "pa"}, "algorithm='pa': expected .*'lbfgs'.*both minimise the same objective"),
        ({"c2": 0}, "c2=0: .*the certificate needs an L2 penalty; pass a small number such as 1e-3"),
        ({"c1": -1}, "c1=-1"),
        ({"max_iterations": 0}, "max_iterations=0"),
        ({"min_freq": "2"}, "min_freq='2'"),
        ({"all_possible_states": "yes"}, "all_possible_states='yes'"),
    ],
)
def test_what_has_no_counterpart_is_refused(settings, said):
    with pytest.raises(ParameterError, match=said):
        CRF(**settings).fit(X, Y)


def test_what_is_ignored_is_said_once():
    crf = CRF(linesearch="Backtracking", num_memories=10, pa_type=1)
    with pytest.warns(UserWarning, match="no effect") as caught:
        crf.fit(X, Y)
    assert [str(warning.message) for warning in caught] == [
        "num_memories, linesearch, pa_type have no effect on kernelcrf.crfsuite.CRF, whose fit is certified to be "
        "close to the optimum: omit them"
    ]
    assert caught[0].filename == __file__
    assert crf.predict(X) == CRF().fit(X, Y).predict(X)
    with pytest.warns(UserWarning, match="^period has no effect"):
        CRF(period=5).fit(X, Y)


def test_another_file_is_another_model(tmp_path):
    X = [[["a"], ["b"]]]
    for name, y in (("first", ["X", "Y"]), ("second", ["Y", "X"])):
        CRF(model_filename=tmp_path / f"{name}.crfsuite").fit(X, [y])
    crf = CRF(model_filename=tmp_path / "first.crfsuite")
    assert list(crf.predict(X)[0]) == ["X", "Y"]
    crf.set_params(model_filename=tmp_path / "second.crfsuite")
    assert list(crf.predict(X)[0]) == ["Y", "X"]
    crf.fit(X, [["X", "Y"]]).set_params(model_filename=tmp_path / "second.crfsuite")
    assert list(crf.predict(X)[0]) == ["X", "Y"]


def test_missing_labels_are_left_out_of_held_out_scores():
    X = [[{"w": "a"}, {"w": "b"}], [{"w": "b"}, {"w": "a"}]]
    crf = CRF(c2=0.1).fit(X, [["A", "B"], ["B", "A"]], X_dev=X, y_dev=[["A", None], ["B", "A"]])
    assert crf.training_log_.last_iteration["item_accuracy"] == Fraction(1)
    crf.tagger_.set(X[0])
    with pytest.raises(ValueError, match=r"y='Z', t=0: expected one of the labels"):
        crf.tagger_.marginal("Z", 0)
    with pytest.raises(ValueError, match=r"t=-1: expected .* from 0 to 1"):
        crf.tagger_.marginal("A", -1)


def test_spans_are_those_of_the_model_underneath():
    X = [[{"word": "in"}, {"word": "New"}, {"word": "York"}], [{"word": "York"}, {"word": "in"}]] * 3
    y = [["O", "B-LOC", "I-LOC"], ["B-LOC", "O"]] * 3
    crf = CRF(c2=0.01).fit(X, y)
    ((span,), (other,)) = crf.predict_spans(X[:2])
    assert (span.start, span.end, span.label) == (1, 3, "LOC")
    assert (other.start, other.end, other.label) == (0, 1, "LOC")
    for options in ({}, {"scheme": "IOB2", "threshold": 0.01}, {"n_best": 2}, {"certify": True}):
        assert crf.predict_spans(X, **options) == crf.crf_.distribution(X).spans(**options)
    with pytest.raises(ParameterError, match="threshold"):
        crf.predict_spans(X, threshold=2)
