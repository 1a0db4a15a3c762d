"""Fits whose features are not stored are fits whose features are stored, for every estimator and option."""

import numpy as np
import pytest
from sklearn.datasets import make_multilabel_classification

from kernelcrf import ChainCRF, GraphCRF, Input, KernelClassifier, MultiLabelCRF, SegmentCRF, Symmetry
from kernelcrf.basis import Landmarks
from kernelcrf.basis.recomputed_features import RecomputedFeatures
from kernelcrf.datasets import make_sequences
from kernelcrf.fitting import corpus, fit
from kernelcrf.fitting.checkpoints import Checkpoint

SETTINGS = {"C": 2.0, "tol": 1e-9, "random_state": 0}


@pytest.fixture(scope="module")
def data():
    return make_sequences(30, random_state=0)


@pytest.fixture
def storage(monkeypatch):
    """Return a list to which each fit adds whether its features were recomputed, one flag per term with inputs."""
    flags, solve = [], fit.solve

    def spy(problem, features, *arguments, **options):
        flags.append([isinstance(one.F, RecomputedFeatures) for one in features.values()])
        return solve(problem, features, *arguments, **options)

    monkeypatch.setattr(fit, "solve", spy)
    return flags


def both(make, *arguments):
    stored, computed = (make(Landmarks(12, features=one)).fit(*arguments) for one in ("stored", "recomputed"))
    assert computed.certificate_.status == stored.certificate_.status == "optimal"
    assert computed.certificate_.objective == pytest.approx(stored.certificate_.objective, rel=1e-9)
    return stored, computed


@pytest.mark.parametrize(
    "options",
    [
        {"certify_full": True, "laplace": True},
        {"solver": "newton-cg", "n_jobs": 2},
        {"C": "auto"},
        {"label_kernel": "centred", "fit_intercept": "boundaries", "constraints": "pairs"},
    ],
    ids=str,
)
def test_sequences(data, options):
    if "constraints" in options:
        options = options | {"constraints": [(a, b) for a in range(3) for b in range(3)]}
    stored, computed = both(lambda n: ChainCRF("rbf", n_components=n, **SETTINGS | options), data.X, data.y)
    np.testing.assert_allclose(computed.predict_proba(data.X)[0], stored.predict_proba(data.X)[0], atol=1e-4)
    if options.get("laplace"):
        assert computed.certificate_.gap_full == pytest.approx(stored.certificate_.gap_full, rel=1e-6)
        assert computed.log_marginal_likelihood() == pytest.approx(stored.log_marginal_likelihood(), rel=1e-7)
        here, there = (one.loo_log_prob(data.X, data.y) for one in (stored, computed))
        np.testing.assert_allclose(there.log_prob, here.log_prob, atol=1e-5)


def test_inputs_that_a_group_moves():
    data = make_sequences(20, random_state=0)
    # Labels 0 and 1 change places if the columns do.
    swap = Symmetry({0: [0, 1], 1: [1, 0], 2: [2, 2]}, [[0, 1], [1, 0]])
    both(lambda n: ChainCRF("rbf", n_components=n, label_kernel=swap, **SETTINGS), data.X, data.y)


def test_several_inputs_each_have_their_own_choice(data, storage):
    def make(n):
        steps = Input("rbf", gamma=0.2, n_components=n, scores="steps")
        inputs = {
            "a": Input("rbf", n_components=n),
            "b": Input("rbf", gamma=0.3, n_components=Landmarks(5, features="stored")),
        }
        return ChainCRF(inputs=inputs | {"steps": steps}, **SETTINGS)

    both(make, data.X, data.y)
    assert storage == [[False] * 3, [True, False, True]]


def test_rows_and_equal_inputs(data):
    X, y = np.round(np.concatenate(data.X)), np.concatenate(data.y)
    both(lambda n: KernelClassifier("rbf", n_components=n, **SETTINGS), X, y)


@pytest.mark.parametrize("form", ["segments", "graphs", "label sets"])
def test_other_structures(data, form):
    if form == "segments":
        both(lambda n: SegmentCRF("rbf", n_components=n, **SETTINGS | {"tol": 1e-8}), data.X, data.y)
    elif form == "graphs":
        graphs = [(x, np.column_stack([np.arange(len(x) - 1), np.arange(1, len(x))])) for x in data.X]
        both(lambda n: GraphCRF("rbf", n_components=n, **SETTINGS), graphs, data.y)
    else:
        X, Y = make_multilabel_classification(40, 5, n_classes=3, random_state=0)
        both(lambda n: MultiLabelCRF(kernel="rbf", n_components=n, **SETTINGS), X, Y)


def test_features_that_need_too_much_memory_are_recomputed(data, storage, monkeypatch):
    n_tokens = len(np.unique(np.concatenate(data.X), axis=0))
    for limit, expected in ((None, False), (2 * 8 * 12 * n_tokens, False), (2 * 8 * 12 * n_tokens - 1, True)):
        monkeypatch.setattr(corpus, "memory_limit", lambda limit=limit: limit)
        storage.clear()
        ChainCRF("rbf", n_components=12, **SETTINGS).fit(data.X, data.y)
        assert storage == [[expected]]


def test_landmarks_are_added_and_kept_without_stored_features(data, storage, tmp_path, monkeypatch):
    settings = SETTINGS | {"tol": 1e-2}
    stored, computed = (
        ChainCRF("rbf", n_components=Landmarks("auto", "random", one), **settings).fit(data.X, data.y)
        for one in ("stored", "recomputed")
    )
    assert any(map(any, storage))
    assert len(computed.landmarks_) == len(stored.landmarks_)
    assert computed.certificate_.gap_full == pytest.approx(stored.certificate_.gap_full, rel=1e-6)
    options = {"n_components": Landmarks(12, features="recomputed"), "tol": 1e-9, "C": 2.0, "random_state": 0}
    first = ChainCRF("rbf", warm_start=True, **options).fit(data.X[:20], data.y[:20])
    again = first.set_params(C=1.0).fit(data.X, data.y)
    assert again.certificate_.status == "optimal"
    # A checkpoint does not depend on whether features are stored.
    point = Checkpoint(str(tmp_path / "fit"))
    whole = ChainCRF("rbf", checkpoint=point, **options).fit(data.X, data.y)
    resumed = ChainCRF("rbf", checkpoint=point, **options | {"n_components": 12}).fit(data.X, data.y)
    assert resumed.certificate_.objective == pytest.approx(whole.certificate_.objective, rel=1e-9)


def test_the_dual_solver_needs_stored_features(data):
    words = [[{f"w={token[0] > 0}": 1.0} for token in x] for x in data.X]
    X = [{"words": w, "vectors": x} for w, x in zip(words, data.X, strict=True)]
    inputs = {"words": "linear", "vectors": Input("rbf", n_components=Landmarks(8, features="recomputed"))}
    assert ChainCRF(inputs=inputs, **SETTINGS | {"tol": 1e-4}).fit(X, data.y).certificate_.status == "optimal"
    with pytest.raises(ValueError, match="stored features"):
        ChainCRF(inputs=inputs, solver="dual", **SETTINGS).fit(X, data.y)


def test_the_choice_is_saved_and_checked(data, tmp_path):
    from kernelcrf import load

    crf = ChainCRF("rbf", n_components=Landmarks(12, features="recomputed"), C=2.0, random_state=0).fit(data.X, data.y)
    crf.save(tmp_path / "model.kcrf")
    assert load(tmp_path / "model.kcrf").n_components == Landmarks(12, features="recomputed")
    with pytest.raises(ValueError, match="features='disk'"):
        Landmarks(12, features="disk")
