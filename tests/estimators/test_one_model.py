"""An answer comes from one model: another thread may fit the estimator again between any two reads of `model_`."""

import inspect
from copy import copy
from functools import cache

import numpy as np
import pytest
import scipy.sparse as sp
from sklearn.linear_model import LogisticRegression

from kernelcrf import (
    ChainCRF,
    ChainOver,
    ConformalLabellings,
    ConformalLabels,
    ConformalSpans,
    GraphCRF,
    KernelClassifier,
    MarkovNetwork,
    MultiLabelCRF,
    SegmentCRF,
    TemperatureScaling,
    make_report,
)
from kernelcrf.answers.summary import summarise
from kernelcrf.distributions import Distribution
from kernelcrf.plotting import GapDisplay, LabelGraphDisplay, MarginalsDisplay, ReliabilityDisplay, TransitionsDisplay

RNG = np.random.default_rng(0)
ROWS = RNG.normal(size=(40, 2))
CLASSES = (np.sin(2 * ROWS[:, 0]) + ROWS[:, 1] > 0).astype(int)
SETS = np.column_stack((CLASSES, CLASSES ^ (RNG.random(40) < 0.2), ROWS[:, 1] > 0.3)).astype(int)
GRAPHS = [(ROWS[4 * i : 4 * i + 4], [[0, 1], [1, 2], [2, 3], [3, 0]]) for i in range(10)]
SEQUENCES = np.split(ROWS, 10)
TABLE = np.column_stack((SETS, RNG.integers(3, size=40)))


def named(names, y=CLASSES):
    return [np.array(names)[own] for own in np.split(y, 10)]


FIRST, SECOND = named(["a", "b"]), named(["z", "y"], 1 - CLASSES)
PARAMETERS = {"gamma": 0.5, "n_components": 10, "random_state": 0, "laplace": True, "C": 1.0}
# An estimator, its data, other labels or data for a second fit, and arguments of methods beyond X and y.
CASES = {
    "ChainCRF": (ChainCRF(**PARAMETERS, certify_full=True, decoding="marginal"), SEQUENCES, FIRST, SECOND),
    "SegmentCRF": (SegmentCRF(**PARAMETERS), SEQUENCES, FIRST, SECOND),
    "KernelClassifier": (KernelClassifier(**PARAMETERS), ROWS, np.concatenate(FIRST), np.concatenate(SECOND)),
    "GraphCRF": (GraphCRF(**PARAMETERS), GRAPHS, FIRST, SECOND),
    "MultiLabelCRF": (MultiLabelCRF(**PARAMETERS), ROWS, SETS, sp.csr_array(1 - SETS)),
    "MarkovNetwork": (MarkovNetwork(laplace=True), TABLE, None, None),
}
ARGUMENTS = {"k": 2, "x": SEQUENCES[0], "t": 1, "X_pool": SEQUENCES, "random_state": 0, "n_samples": 3}
NOT_ANSWERS = {
    "fit",
    "set_params",
    "get_params",
    "save",
    "from_arrays",
    "from_crfsuite",
    "from_wapiti",
    "get_metadata_routing",
}
NOT_ANSWERS |= {"set_fit_request", "set_score_request", "set_predict_request", "set_predict_proba_request"}


@cache
def fits(name):
    """Return the estimator of a case, fitted to its data, and another one that was fitted to other data."""
    estimator, X, y, other = CASES[name]
    second = copy(estimator)
    estimator = copy(estimator).fit(X, y)
    return estimator, second.fit(X[::-1] + 1 if other is None else X, other)


def answers(name):
    """Return the names of the public methods of a class that answer questions."""
    public = inspect.getmembers(type(CASES[name][0]), inspect.isfunction)
    return [own for own, _ in public if not own.startswith(("_", "set_")) and own not in NOT_ANSWERS]


def attributes(name):
    return [own for own in dir(type(CASES[name][0])) if own.endswith("_") and not own.startswith("_")]


def ask(estimator, method, name):
    """Call a method with the arguments that it needs."""
    X, y = CASES[name][1:3]
    known = {"X": X, "y": y, **ARGUMENTS}
    function = getattr(estimator, method)
    given = inspect.signature(function).parameters
    # A score needs labels, except on data of a cluster, which hold them.
    needs_y = method == "score"
    needed = {
        own: known[own] for own, p in given.items() if own in known and (p.default is p.empty or own != "y" or needs_y)
    }
    result = function(**needed)
    if isinstance(result, Distribution):
        return result.marginals(), result.entropy(), result.decode(), result.k_best(2)
    return result


def exchanged(estimator, other):
    """Return the estimator, whose model becomes that of the other estimator once it was read."""
    models = iter([estimator.model_])

    class Exchanged(type(estimator)):
        @property
        def model_(self):
            return next(models, other.model_)

    Exchanged.__name__ = type(estimator).__name__
    found = object.__new__(Exchanged)
    vars(found).update({name: value for name, value in vars(estimator).items() if name != "model_"})
    return found


def plain(value):
    """Return an answer as nested tuples that can be compared."""
    if sp.issparse(value):
        return plain(value.toarray())
    if isinstance(value, np.ndarray | np.generic):
        return value.tolist()
    if hasattr(value, "iloc"):
        return plain(value.to_dict("list"))
    if isinstance(value, dict):
        return tuple((key, plain(own)) for key, own in value.items())
    if hasattr(value, "__dataclass_fields__"):
        return plain({name: getattr(value, name) for name in value.__dataclass_fields__})
    return tuple(map(plain, value)) if isinstance(value, list | tuple) else value


QUESTIONS = [(name, method) for name in CASES for method in answers(name)]


@pytest.mark.parametrize(("name", "method"), QUESTIONS)
def test_a_method_answers_by_the_model_that_it_has_read_first(name, method):
    estimator, other = fits(name)
    expected = repr(plain(ask(estimator, method, name)))
    assert repr(plain(ask(exchanged(estimator, other), method, name))) == expected


@pytest.mark.parametrize("name", CASES)
def test_the_second_model_answers_otherwise(name):
    """The test above would notice a second read."""
    method = "sample" if name == "MarkovNetwork" else "predict"
    first, second = (repr(plain(ask(estimator, method, name))) for estimator in fits(name))
    assert first != second


@pytest.mark.parametrize("name", CASES)
def test_attributes_are_those_of_the_model_that_is_read_first(name):
    estimator, other = fits(name)
    known = [own for own in attributes(name) if hasattr(estimator, own)]
    assert len(known) > 5
    for own in known:
        expected = repr(plain(getattr(estimator, own)))
        assert repr(plain(getattr(exchanged(estimator, other), own))) == expected, own


@pytest.mark.parametrize("certify", [False, True])
def test_spans_and_their_certificates_are_those_of_one_model(certify):
    estimator, other = fits("ChainCRF")
    found = exchanged(estimator, other).distribution(SEQUENCES).spans(certify=certify)
    assert found == estimator.distribution(SEQUENCES).spans(certify=certify)


def refitted():
    """Return a fitted ChainCRF that gets another model as soon as it, or a copy of it, has answered once."""
    estimator, other = fits("ChainCRF")

    def exchanging(answer):
        def method(self, *arguments, **options):
            result = answer(self, *arguments, **options)
            found.model_ = other.model_
            return result

        return method

    names = "predict", "predict_proba", "log_prob", "distribution"
    answers = {name: exchanging(getattr(ChainCRF, name)) for name in names}
    attributes = {name: property(exchanging(lambda own, name=name: getattr(own.model_, PATHS[name]))) for name in PATHS}
    found = object.__new__(type("ChainCRF", (ChainCRF,), answers | attributes))
    vars(found).update(vars(estimator))
    return found


PATHS = {"certificate_": "certificate", "transitions_": "transitions", "gap_curve_": "gap_curve"}


WRAPPERS = {
    "labels": ConformalLabels,
    "spans": ConformalSpans,
    "labellings": lambda crf: ConformalLabellings(crf, max_size=5),
}


@pytest.mark.filterwarnings("ignore:.*were cut")
@pytest.mark.parametrize("wrap", WRAPPERS.values(), ids=WRAPPERS)
def test_a_threshold_is_that_of_one_model(wrap):
    expected = wrap(fits("ChainCRF")[0]).conformalize(SEQUENCES, FIRST)
    sets = wrap(refitted()).conformalize(SEQUENCES, FIRST)
    assert (sets.threshold_, sets.n_calibration_) == (expected.threshold_, expected.n_calibration_)
    with pytest.raises(ValueError, match="was fitted again after conformalize"):
        sets.predict_set(SEQUENCES)
    sets.set_params(estimator=refitted())
    assert repr(plain(sets.predict_set(SEQUENCES))) == repr(plain(expected.predict_set(SEQUENCES)))


@pytest.mark.parametrize("likelihood", ["labelling", "token", "span"])
def test_a_temperature_is_that_of_one_model(likelihood):
    expected = TemperatureScaling(fits("ChainCRF")[0], likelihood=likelihood).fit(SEQUENCES, FIRST)
    found = TemperatureScaling(refitted(), likelihood=likelihood).fit(SEQUENCES, FIRST)
    assert found.temperature_ == expected.temperature_
    assert found.estimator_.coef_.tolist() == expected.estimator_.coef_.tolist()


def test_a_temperature_of_the_posterior_stays_with_its_model():
    crf = copy(fits("ChainCRF")[0])
    scaled = TemperatureScaling(crf, posterior="laplace", n_samples=5).fit(SEQUENCES, FIRST)
    expected = repr(plain(scaled.predict_proba(SEQUENCES)))
    crf.model_ = fits("ChainCRF")[1].model_
    assert repr(plain(scaled.predict_proba(SEQUENCES))) == expected
    assert scaled.classes_.tolist() == ["a", "b"]


@pytest.fixture(scope="module")
def chains_over():
    return [ChainOver(LogisticRegression(), cv=2).fit(SEQUENCES, y) for y in (FIRST, SECOND)]


@pytest.mark.parametrize("method", ["predict", "predict_proba", "log_prob", "score", "transform", "distribution"])
def test_a_chain_over_a_classifier_answers_by_one_model(method, chains_over):
    name = "ChainCRF"
    first, second = chains_over
    expected = repr(plain(ask(first, method, name)))
    assert repr(plain(ask(exchanged(first, second), method, name))) == expected


def test_a_summary_and_a_report_are_about_one_model():
    estimator = fits("ChainCRF")[0]
    assert summarise(refitted()) == summarise(estimator)
    tail = make_report(estimator, SEQUENCES, FIRST).partition("<main")[2]
    assert make_report(refitted(), SEQUENCES, FIRST).partition("<main")[2] == tail


def test_displays_are_about_one_model():
    crf = fits("ChainCRF")[0]
    found, expected = (MarginalsDisplay.from_estimator(own, SEQUENCES[0]) for own in (refitted(), crf))
    assert found.classes == expected.classes == ["a", "b"]
    bins = [ReliabilityDisplay.from_estimator(own, SEQUENCES, FIRST).bins for own in (refitted(), crf)]
    assert bins[0].error == bins[1].error
    assert LabelGraphDisplay.from_estimator(refitted()).labels == ["a", "b"]
    assert TransitionsDisplay.from_estimator(refitted()).labels == ["a", "b"]
    assert GapDisplay.from_estimator(refitted()).gap.tolist() == crf.gap_curve_[:, 0].tolist()
