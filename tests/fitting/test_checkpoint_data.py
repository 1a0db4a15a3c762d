"""A checkpoint knows its data and its problem, and no bound is taken from it."""

import numpy as np
import pytest
import scipy.sparse as sp

from chain_fits import of_tokens_and_steps
from clusters import Inline
from kernelcrf import ChainCRF
from kernelcrf.basis import Landmarks
from kernelcrf.fitting.checkpoints import Checkpoint
from kernelcrf.fitting.digest import digest_words
from model_files import rewritten

SETTINGS = {"gamma": 0.5, "C": 3.0, "n_components": 15, "random_state": 0, "tol": 1e-8}
LABELS = np.array(["B", "I", "O"])


@pytest.fixture(scope="module")
def data():
    rng = np.random.default_rng(0)
    X = [rng.normal(size=(rng.integers(2, 7), 2)) for _ in range(40)]
    y = [[str(LABELS[np.digitize(x, (-0.5, 0.5))]) for x in rows[:, 0]] for rows in X]
    return X, y


@pytest.fixture
def path(data, tmp_path):
    """The checkpoint of a fit that was cut short."""
    with pytest.warns(match="max_iter"):
        ChainCRF(**SETTINGS, checkpoint=tmp_path / "run", max_iter=5).fit(*data)
    return tmp_path / "run"


def sets(y):
    return [[{"B", "I"} if t == 0 and label != "O" else label for t, label in enumerate(labels)] for labels in y]


def test_the_other_half_of_the_data_is_refused(data, tmp_path):
    """The bound of one half lies above the optimum of the other."""
    X, y = data
    crf = ChainCRF(**SETTINGS, checkpoint=tmp_path / "run").fit(X[:20], y[:20])
    assert crf.certificate_.status == "optimal"
    with pytest.raises(ValueError, match=r"was written by a fit that differs in X; y: pass another path"):
        ChainCRF(**SETTINGS, checkpoint=tmp_path / "run").fit(X[20:], y[20:])


def weighted(X, y):
    return {"sample_weight": np.linspace(1.0, 2.0, len(X))}


WITH_STEPS = {
    "inputs": of_tokens_and_steps("rbf", "linear", gamma=SETTINGS["gamma"], n_components=SETTINGS["n_components"]),
    "gamma": "scale",
    "n_components": 500,
}
CHANGES = {
    "X": lambda X, y: ({}, ([X[0] + 1e-9, *X[1:]], y), {}),
    "X ": lambda X, y: ({}, ([x.astype(np.float32) for x in X], y), {}),
    "y": lambda X, y: ({}, (X, [["O"] * len(y[0]), *y[1:]]), {}),
    "y ": lambda X, y: ({}, (X, sets(y)), {}),
    "y  ": lambda X, y: ({}, (X, [[None, *labels[1:]] for labels in y]), {}),
    "sample_weight or class_weight": lambda X, y: ({}, (X, y), weighted(X, y)),
    "sample_weight or class_weight ": lambda X, y: ({"class_weight": {"B": 2.0}}, (X, y), {}),
    "constraints": lambda X, y: ({"constraints": [(a, b) for a in LABELS for b in LABELS]}, (X, y), {}),
    "C ": lambda X, y: ({"C": 3.5}, (X, y), {}),
    "kernel ": lambda X, y: ({"gamma": 0.6}, (X, y), {}),
    "terms ": lambda X, y: (WITH_STEPS, (X, y), {}),
    "label_kernel": lambda X, y: ({"label_kernel": np.eye(3) + 0.1}, (X, y), {}),
    "pivots ": lambda X, y: ({"n_components": Landmarks(SETTINGS["n_components"], "random")}, (X, y), {}),
    "n_components ": lambda X, y: ({"n_components": 16}, (X, y), {}),
    "n_labels ": lambda X, y: ({"classes": ["B", "I", "O", "X"]}, (X, y), {}),
}


@pytest.mark.parametrize("told", CHANGES)
def test_whatever_changes_the_objective_is_refused_by_its_name(data, path, told):
    settings, changed, more = CHANGES[told](*data)
    with pytest.raises(ValueError, match=rf"differs in (.*; )?{told.strip()}") as heard:
        ChainCRF(**{**SETTINGS, **settings}, checkpoint=path).fit(*changed, **more)
    assert len(str(heard.value)) < 600 + len(str(path))


def test_labels_of_other_sequences_are_refused(data, tmp_path):
    X, y = [np.array([[0.0]]), np.array([[1.0]]), np.array([[2.0]])], [["a"], ["b"], ["b"]]
    ChainCRF("linear", checkpoint=tmp_path / "run", C=1.0).fit(X, y)
    with pytest.raises(ValueError, match="differs in the order of y beside X"):
        ChainCRF("linear", checkpoint=tmp_path / "run", C=1.0).fit(X, [y[1], y[0], y[2]])


def test_what_does_not_change_the_objective_goes_on(data, path):
    X, y = data
    whole = ChainCRF(**SETTINGS).fit(X, y).certificate_.objective
    order = np.random.default_rng(0).permutation(len(X))
    shuffled = [X[i] for i in order] + [np.zeros((0, 2)), X[0]], [y[i] for i in order] + [[], y[0]]
    weights = np.append(np.ones(len(X) + 1), 0.0)
    settings = {**SETTINGS, "tol": 1e-9, "max_iter": 500, "solver": "newton-cg", "n_jobs": 2}
    found = ChainCRF(**settings, checkpoint=path).fit(*shuffled, sample_weight=weights)
    assert found.certificate_.objective == pytest.approx(whole, rel=1e-8)
    assert found.gap_curve_[0, 1] == 1.0
    assert len(found.objective_curve_) > 5


def test_a_bound_that_a_file_claims_is_not_believed(data, path):
    """The bound is written as the objective itself: a fit that believed it would end at once, and be optimal."""
    optimum = ChainCRF(**SETTINGS).fit(*data).certificate_.objective
    told = {}

    def lie(arrays):
        arrays["history"][:, 1] = told["value"] = arrays["history"][-1, 0]
        arrays["history"][:, 2] = 0.0
        return arrays

    rewritten(path, change_arrays=lie)
    certificate = ChainCRF(**SETTINGS, checkpoint=path).fit(*data).certificate_
    assert told["value"] > optimum * (1 + 1e-3)
    assert certificate.status == "optimal"
    assert certificate.lower_bound <= optimum * (1 + 1e-9)
    assert certificate.objective == pytest.approx(optimum, rel=1e-7)


@pytest.mark.parametrize("kind", ["dense", "sparse", "sets"])
def test_a_cluster_of_any_size_has_the_digest_of_one_machine(data, kind, tmp_path):
    X, y = data
    settings = {**SETTINGS, "n_components": Landmarks(SETTINGS["n_components"], "random")}
    if kind == "sparse":
        X = [sp.csr_array(np.round(x)) for x in X]
        settings = {"kernel": "linear", "C": 3.0, "tol": 1e-8, "solver": "lbfgs"}
    if kind == "sets":
        y = sets(y)
    at = {**settings, "checkpoint": Checkpoint(tmp_path / "run", every=2)}
    with pytest.warns(match="max_iter"):
        ChainCRF(**at, engine=Inline(3, forgetful=False), max_iter=4).fit(X, y)
    for engine in (Inline(2, forgetful=False), Inline(7, forgetful=False), None):
        with pytest.warns(match="max_iter"):
            ChainCRF(**at, engine=engine, max_iter=5).fit(X, y)
    with pytest.raises(ValueError, match="differs in X; y"):
        ChainCRF(**at, engine=Inline(2, forgetful=False)).fit(X[1:], y[1:])


def test_the_landmarks_of_a_warm_start_belong_to_the_problem(data, tmp_path):
    X, y = data
    path = tmp_path / "run"
    crf = ChainCRF(**SETTINGS, warm_start=True).fit(X[:10], y[:10])
    crf.set_params(checkpoint=path).fit(X, y)
    with pytest.raises(ValueError, match="differs in the landmarks of the warm start"):
        ChainCRF(**SETTINGS, checkpoint=path).fit(X, y)
    again = ChainCRF(**SETTINGS, warm_start=True).fit(X[:10], y[:10]).set_params(checkpoint=path).fit(X, y)
    assert again.n_iter_ <= crf.n_iter_ + 1


def test_a_checkpoint_that_does_not_name_its_data_is_refused(data, path):
    def older(config):
        return {**config, "problem": {key: config["problem"][key] for key in ("kernels", "C")}}

    rewritten(path, older)
    with pytest.raises(ValueError, match="an earlier version of kernelcrf, which did not store 'inputs'"):
        ChainCRF(**SETTINGS, checkpoint=path).fit(*data)


def test_digests_add_up_over_any_parts():
    rng = np.random.default_rng(1)
    X, labels, offsets = rng.normal(size=(30, 2)), rng.integers(3, size=30).astype(np.int32), np.arange(0, 31, 3)
    allowed = np.eye(3, dtype=bool)[labels]
    whole = digest_words(X, offsets, labels, None, None)
    parts = [digest_words(X[a:b], offsets[: (b - a) // 3 + 1], labels[a:b], None, None) for a, b in ((0, 12), (12, 30))]
    np.testing.assert_array_equal(parts[0] + parts[1], whole)
    np.testing.assert_array_equal(digest_words(X, offsets, labels, allowed, np.ones(10)), whole)
    allowed[4, :] = True
    changed = digest_words(X, offsets, labels, allowed, None) != whole
    assert changed.any(axis=1).tolist() == [False, True, False, True]
    X[5, 1] += 1e-12
    assert (digest_words(X, offsets, labels, None, None) != whole).any(axis=1).tolist() == [True, False, False, True]
