"""A warm start and a prior take over what the parameters ask for, or an error names the parameter that changed."""

import warnings
from copy import copy
from functools import cache

import numpy as np
import pytest
from sklearn.gaussian_process.kernels import RBF, Matern

from kernelcrf import (
    ChainCRF,
    GraphCRF,
    Input,
    KernelClassifier,
    MarkovNetwork,
    MultiLabelCRF,
    SegmentCRF,
    load,
)
from kernelcrf.basis import Landmarks
from kernelcrf.basis.pivots import Greedy
from kernelcrf.estimators.parameters import declared_parameters
from kernelcrf.kernels import Polynomial
from kernelcrf.penalties import ElasticNet
from kernelcrf.solvers import NewtonCG
from kernelcrf.validation import ParameterError

RNG = np.random.default_rng(0)
ROWS = RNG.normal(size=(40, 2))
CLASSES = (np.sin(2 * ROWS[:, 0]) + ROWS[:, 1] > 0).astype(int)
SETS = np.column_stack((CLASSES, CLASSES ^ (RNG.random(40) < 0.2), ROWS[:, 1] > 0.3)).astype(int)
GRAPHS = [(ROWS[4 * i : 4 * i + 4], [[0, 1], [1, 2], [2, 3], [3, 0]]) for i in range(10)]
SEQUENCES, LABELS = np.split(ROWS, 10), np.split(CLASSES, 10)
TABLE = np.column_stack((SETS, RNG.integers(3, size=40)))
PARAMETERS = {"kernel": "rbf", "gamma": 0.5, "n_components": 10, "random_state": 0, "C": 1.0, "tol": 1e-7}
CASES = {
    "ChainCRF": (ChainCRF, PARAMETERS, SEQUENCES, LABELS),
    "SegmentCRF": (SegmentCRF, PARAMETERS, SEQUENCES, LABELS),
    "KernelClassifier": (KernelClassifier, PARAMETERS, ROWS, CLASSES),
    "GraphCRF": (GraphCRF, PARAMETERS, GRAPHS, LABELS),
    "MultiLabelCRF": (MultiLabelCRF, PARAMETERS, ROWS, SETS),
    "MarkovNetwork": (MarkovNetwork, {"C": 1.0}, TABLE, None),
}
LINEAR = {"kernel": "linear", "C": 1.0, "random_state": 0, "tol": 1e-7}
# Another value of each parameter. The engine, the checkpoint, the number of threads and the verbosity change no answer.
OTHER = {
    "kernel": "poly",
    "gamma": 2.0,
    "C": 0.1,
    "C_label": 0.1,
    "penalty": ElasticNet(0.5),
    "n_components": 4,
    "label_kernel": "centred",
    "edge_kernel": "linear",
    "fit_intercept": True,
    "constraints": [(0, 1), (1, 0), (0, 0), (1, 1), (None, 0), (None, 1), (0, None)],
    "classes": [0, 1, 2],
    "class_weight": {0: 3.0},
    "laplace": True,
    "decoding": "marginal",
    "weights": 3.0,
    "hash_features": 16,
    "solver": NewtonCG(),
    "tol": 1e-8,
    "max_iter": 500,
    "certify_full": True,
    "random_state": 7,
    "structure_tol": 0.1,
    "min_gain": 0.1,
    "structure": "full",
    "cliques": ("edges", "skips"),
    "inference": "loopy",
    "directed": True,
    "categories": [[0, 1, 2], None, None, None],
    "max_duration": 2,
    "durations": None,
    "tail": False,
    "ends": False,
    "segment_kernel": "linear",
    "pooling": "sum",
}
NO_ANSWER = {"engine", "checkpoint", "n_jobs", "verbose", "warm_start", "prior"}
# Tests below try these with parameters of their own.
ELSEWHERE = {"inputs"}
CHANGES = [
    (name, parameter)
    for name, (estimator, *_) in CASES.items()
    for parameter in declared_parameters(estimator)
    if parameter not in NO_ANSWER | ELSEWHERE
]


@cache
def first_fit(name, linear):
    """Return a fitted estimator with warm_start=True, whose copies can be fitted again."""
    estimator, given, X, y = CASES[name]
    return estimator(**(LINEAR if linear else given), warm_start=True).fit(X, y)


def objective(model):
    return model.certificate_.objective


def outcome(model, X, y):
    """Return the objective of a fit, or the text of its error."""
    try:
        return objective(model.fit(X, y))
    except ValueError as error:
        return str(error)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(("name", "parameter"), CHANGES)
def test_a_changed_parameter_is_obeyed_or_refused_by_its_name(name, parameter):
    estimator, given, X, y = CASES[name]
    changed = {parameter: "rbf" if (name, parameter) == ("MarkovNetwork", "kernel") else OTHER[parameter]}
    if parameter == "penalty":
        given = LINEAR
    changed |= {"segment_kernel": "linear"} if parameter == "pooling" else {}
    found = outcome(copy(first_fit(name, parameter == "penalty")).set_params(**changed), X, y)
    if isinstance(found, str) and f"{parameter}=" in found:
        return
    expected = outcome(estimator(**given | changed), X, y)
    if isinstance(found, str):
        assert isinstance(expected, str)
    else:
        assert found == pytest.approx(expected, rel=1e-5)


@pytest.mark.parametrize("name", CASES)
def test_a_warm_start_with_free_parameters_is_not_refused(name):
    estimator, given, X, y = CASES[name]
    free = {"C": 3.0, "max_iter": 500, "solver": "newton-cg", "n_jobs": 2, "certify_full": True}
    model = estimator(**given, warm_start=True).fit(X, y).set_params(**free)
    assert set(free) <= pytest.importorskip("kernelcrf.estimators.inheritance").FREE
    assert objective(model.fit(X, y)) == pytest.approx(objective(estimator(**given | free).fit(X, y)), rel=1e-6)


def test_parameters_of_landmarks_may_change_if_the_kernel_is_linear():
    crf = ChainCRF("linear", C=1.0, warm_start=True).fit(SEQUENCES, LABELS)
    crf.set_params(gamma=5.0, n_components=3, random_state=1).fit(SEQUENCES, LABELS)
    assert crf.certificate_.status == "optimal"


STEPS = {"t": Input("linear"), "a": Input("linear", scores="steps")}
INPUTS = {
    "columns": ({"a": Input("linear", columns=[0])}, {"a": Input("linear", columns=[1])}, "inputs__a__columns="),
    "kernel": ({"a": Input("linear")}, {"a": Input("rbf", gamma=1.0)}, "inputs__a__kernel="),
    "gamma": ({"a": Input("rbf", gamma=1.0)}, {"a": Input("rbf", gamma=2.0)}, "inputs__a__gamma="),
    "steps": (STEPS | {"a": Input("linear")}, STEPS, "inputs__a__scores="),
    "no steps": (STEPS, STEPS | {"a": Input("linear")}, "inputs__a__scores="),
    "added": ({"a": Input("linear")}, {"a": Input("linear"), "b": Input("rbf")}, "inputs="),
    "removed": ({"a": Input("linear"), "b": Input("rbf")}, {"a": Input("linear")}, "inputs="),
    "none": ({"a": Input("linear")}, None, "inputs="),
}


@pytest.mark.parametrize(("first", "second", "word"), INPUTS.values(), ids=INPUTS)
def test_other_inputs_are_refused_by_their_names(first, second, word):
    crf = ChainCRF(inputs=first, C=1.0, warm_start=True).fit(SEQUENCES, LABELS)
    with pytest.raises(ParameterError, match=word):
        crf.set_params(inputs=second).fit(SEQUENCES, LABELS)
    with pytest.raises(ParameterError, match=word):
        ChainCRF(inputs=second, C=1.0, prior=crf).fit(SEQUENCES, LABELS)


def test_other_entries_of_sequences_are_refused():
    X = [{"u": x[:, :1], "v": x[:, 1:]} for x in SEQUENCES]
    crf = ChainCRF(inputs={"a": Input("linear", of="u")}, C=1.0, warm_start=True).fit(X, LABELS)
    for change in ({"warm_start": True}, {"prior": crf, "warm_start": False}):
        again = ChainCRF(inputs={"a": Input("linear", of="u")}, C=1.0, warm_start=True).fit(X, LABELS)
        again.set_params(inputs={"a": Input("linear", of="v")}, **change)
        with pytest.raises(ParameterError, match="inputs__a__of='v'"):
            again.fit(X, LABELS)


PRIORS = {
    "gamma": ({"gamma": 0.1}, {"gamma": 10.0}, "gamma=10.0"),
    "kernel object": ({"kernel": RBF(1.0)}, {"kernel": Matern(3.0)}, "kernel="),
    "callable": ({"kernel": "rbf"}, {"kernel": lambda A, B: A @ B.T}, "kernel=another object"),
    "degree": ({"kernel": "poly"}, {"kernel": Polynomial(degree=2)}, "kernel="),
}


@pytest.mark.parametrize(("first", "second", "word"), PRIORS.values(), ids=PRIORS)
def test_a_prior_with_other_kernels_is_refused(first, second, word):
    options = {"C": 1.0, "n_components": 5, "random_state": 0}
    prior = ChainCRF(**options, **first).fit(SEQUENCES, LABELS)
    with pytest.raises(ParameterError, match=word):
        ChainCRF(**options, **second, prior=prior).fit(SEQUENCES, LABELS)


def test_a_prior_determines_what_is_left_to_the_data():
    prior = ChainCRF("rbf", gamma=0.3, C=1.0, n_components=5, random_state=0).fit(SEQUENCES, LABELS)
    crf = ChainCRF(prior=prior, C=1.0, n_components=7, random_state=1).fit(SEQUENCES, LABELS)
    assert (crf.kernel_.kernel, crf.kernel_.gamma, len(crf.landmarks_)) == ("rbf", 0.3, 7)


def test_a_kernel_that_was_changed_after_the_fit_does_not_hide_in_a_file(tmp_path):
    crf = ChainCRF("rbf", gamma=1.0, C=1.0, n_components=5, random_state=0).fit(SEQUENCES, LABELS)
    crf.set_params(gamma=5.0).save(tmp_path / "model.kcrf")
    again = load(tmp_path / "model.kcrf").set_params(warm_start=True)
    with pytest.raises(ParameterError, match=r"gamma=5.0, but the previous fit had gamma=1.0"):
        again.fit(SEQUENCES, LABELS)
    assert again.set_params(gamma=1.0).fit(SEQUENCES, LABELS).certificate_.status == "optimal"
    for prior in (crf, str(tmp_path / "model.kcrf")):
        with pytest.raises(ParameterError, match=r"gamma=5.0, but the prior was fitted with gamma=1.0"):
            ChainCRF(gamma=5.0, prior=prior).fit(SEQUENCES, LABELS)


def test_an_input_that_is_changed_in_place_is_noticed():
    crf = ChainCRF(inputs={"a": Input("rbf", gamma=1.0)}, C=1.0, warm_start=True).fit(SEQUENCES, LABELS)
    with pytest.raises(ParameterError, match=r"inputs__a__gamma=5\.0"):
        crf.set_params(inputs__a__gamma=5.0).fit(SEQUENCES, LABELS)


def test_an_object_is_only_equal_to_itself():
    kernel = RBF(1.0)
    crf = ChainCRF(kernel, C=1.0, n_components=Landmarks(5, Greedy()), random_state=0, warm_start=True)
    crf.fit(SEQUENCES, LABELS)
    crf.set_params(kernel=RBF(1.0), n_components=Landmarks(5, Greedy())).fit(SEQUENCES, LABELS)
    with pytest.raises(ParameterError, match="kernel="):
        crf.set_params(kernel=RBF(2.0)).fit(SEQUENCES, LABELS)


WORDS = [[{"w": w} for w in text.split()] for text in ("a b a", "b b", "a c")]
MORE = [[{"w": w} for w in text.split()] for text in ("d e a", "e b d")]
TAGS, MORE_TAGS = [["x", "y", "x"], ["y", "y"], ["x", "y"]], [["x", "y", "x"], ["y", "y", "x"]]


@pytest.mark.parametrize("weights", ["observed", "all"])
@pytest.mark.parametrize("kernel", ["linear", "rbf"])
def test_a_warm_start_learns_new_feature_names(kernel, weights):
    options = {"C": 1.0, "tol": 1e-9, "gamma": 0.5, "n_components": None, "weights": weights}
    crf = ChainCRF(kernel, warm_start=True, **options).fit(WORDS, TAGS).fit(WORDS + MORE, TAGS + MORE_TAGS)
    fresh = ChainCRF(kernel, **options).fit(WORDS + MORE, TAGS + MORE_TAGS)
    assert crf.n_features_in_ == fresh.n_features_in_ == 5
    if kernel == "linear":
        assert objective(crf) == pytest.approx(objective(fresh), rel=1e-8)
        for found, expected in zip(crf.predict_proba(MORE), fresh.predict_proba(MORE), strict=True):
            np.testing.assert_allclose(found, expected, atol=1e-4)
    else:
        # The landmarks stay those of the first fit.
        assert crf.landmarks_.shape == (3, 5)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        shrunk = crf.fit(WORDS, TAGS)
    assert shrunk.n_features_in_ == 5


def test_a_warm_start_reads_columns_by_their_names():
    pd = pytest.importorskip("pandas")
    frame, other = pd.DataFrame(ROWS, columns=["a", "b"]), pd.DataFrame(ROWS[:, ::-1], columns=["b", "a"])
    options = {"C": 1.0, "gamma": 0.5, "n_components": 10, "random_state": 0}
    for estimator, y in ((KernelClassifier, CLASSES), (MultiLabelCRF, SETS)):
        model = estimator(**options, warm_start=True).fit(frame, y)
        with pytest.raises(ValueError, match="feature names should match"):
            model.fit(other, y)
    graphs, turned = ([(own[4 * i : 4 * i + 4], [[0, 1]]) for i in range(10)] for own in (frame, other))
    crf = GraphCRF(**options, warm_start=True).fit(graphs, LABELS)
    expected = np.concatenate(crf.predict_proba(graphs))
    np.testing.assert_allclose(np.concatenate(crf.fit(turned, LABELS).predict_proba(graphs)), expected, atol=1e-2)
