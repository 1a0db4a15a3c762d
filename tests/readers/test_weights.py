"""Weights of samples and classes: one check for all estimators, scores and metrics; weight 0 is a sample less."""

from functools import cache

import numpy as np
import pandas as pd
import pytest
from sklearn.base import clone

from clusters import Inline
from kernelcrf import ChainCRF, GraphCRF, KernelClassifier, MarkovNetwork, MultiLabelCRF
from kernelcrf.basis import Landmarks
from kernelcrf.datasets import make_sequences

DATA = make_sequences(14, random_state=3)
X, Y = DATA.X, [labels.tolist() for labels in DATA.y]
WORDS = [[{"w": f"{label}{t % 3}"} for t, label in enumerate(labels)] for labels in Y]
ROWS, LABELS = np.concatenate(X)[:60], np.concatenate(Y)[:60]
FAR = np.full((3, X[0].shape[1]), 40.0)

CHAINS = {
    "dense": (ChainCRF(n_components=Landmarks(8, "greedy"), random_state=0, C=1.0), X),
    "balanced": (ChainCRF(n_components=8, random_state=0, class_weight="balanced", C=1.0), X),
    "dicts": (ChainCRF("rbf", n_components=8, random_state=0, C=1.0), WORDS),
    "linear": (ChainCRF("linear", class_weight="balanced", C=1.0), WORDS),
}


class Local(Inline):
    """A cluster of two parts in this process."""

    def __init__(self):
        super().__init__(2, forgetful=False)


def bad_weights(m):
    """Weights of m samples that are none."""
    ones = np.ones(m)
    return {
        "negative": np.where(np.arange(m) == 2, -1.0, ones),
        "nan": np.where(np.arange(m) == 2, np.nan, ones),
        "infinite": np.where(np.arange(m) == 2, np.inf, ones),
        "zero": 0 * ones,
        "short": ones[:-1],
        "matrix": ones[:, None],
        "per token": [[1.0] * (1 + i % 3) for i in range(m)],
        "strings": ["1"] * m,
        "number": 1.0,
        "complex": ones + 1j,
        "objects": [None] * m,
        "iterator": iter(ones.tolist()),
    }


@pytest.mark.parametrize("kind", bad_weights(1))
@pytest.mark.parametrize("where", ["fit", "score", "cluster"])
def test_weights_of_sequences_that_are_none_are_refused_by_name(kind, where):
    weights = bad_weights(len(X))[kind]
    crf = ChainCRF("linear", engine=Local() if where == "cluster" else None, C=1.0)
    method = ChainCRF("linear", C=1.0).fit(X, Y).score if where == "score" else crf.fit
    with pytest.raises((ValueError, TypeError), match=r"^sample_weight") as raised:
        method(X, Y, sample_weight=weights)
    assert len(str(raised.value)) < 320
    assert "\n" not in str(raised.value)


def test_flat_weights_of_tokens_need_flat_data():
    crf, weights = ChainCRF("linear", C=1.0), np.ones(sum(map(len, Y)))
    expected = (
        rf"expected .* shape \({len(X)},\), .* for each sequence; .*weights of tokens are a list with one array per"
    )
    for method in (crf.fit, crf.fit(X, Y).score):
        with pytest.raises(ValueError, match=expected):
            method(X, Y, sample_weight=weights)


SETS = np.column_stack((LABELS > 0, ROWS[:, 0] > 0, LABELS == 2)).astype(int)
RINGS = [(x, [[0, 1], [1, 2]]) for x in (ROWS[3 * i : 3 * i + 3] for i in range(12))]
OTHERS = {
    "rows": (KernelClassifier(n_components=6, random_state=0), ROWS, LABELS),
    "balanced rows": (KernelClassifier("linear", class_weight="balanced"), ROWS, LABELS),
    "sets": (MultiLabelCRF(n_components=6, random_state=0), ROWS, SETS),
    "graphs": (GraphCRF(n_components=6, edge_kernel="rbf", random_state=0), RINGS, LABELS[:36].reshape(12, 3)),
    "table": (MarkovNetwork(structure="full"), SETS, None),
}


@cache
def fit_once(name):
    model, inputs, labels = OTHERS[name]
    return clone(model).fit(inputs, labels)


@pytest.mark.parametrize("kind", bad_weights(1))
@pytest.mark.parametrize("name", OTHERS)
def test_weights_of_other_samples_that_are_none_are_refused_by_name(name, kind):
    model, inputs, labels = OTHERS[name]
    with pytest.raises((ValueError, TypeError), match=r"^sample_weight"):
        clone(model).fit(inputs, labels, sample_weight=bad_weights(len(inputs))[kind])
    if labels is not None:
        with pytest.raises((ValueError, TypeError), match=r"^sample_weight"):
            fit_once(name).score(inputs, labels, sample_weight=bad_weights(len(inputs))[kind])


@pytest.mark.parametrize("name", OTHERS)
def test_another_sample_of_weight_0_is_a_sample_less(name):
    """To the bit: predictions and objective, with inputs far away."""
    model, inputs, labels = OTHERS[name]
    m = len(inputs)
    weights = np.linspace(0.5, 1.5, m)
    if name == "graphs":
        more, new = [*inputs[:4], (FAR, [[0, 1]]), *inputs[4:]], [*labels[:4], [0, 1, 2], *labels[4:]]
    elif name == "table":
        more, new = np.insert(inputs, 4, inputs[0], axis=0), None
    else:
        more, new = np.insert(inputs, 4, FAR[0], axis=0), np.insert(labels, 4, labels[0], axis=0)
    without = clone(model).fit(inputs, labels, sample_weight=weights)
    fitted = clone(model).fit(more, new, sample_weight=np.insert(weights, 4, 0.0))
    assert fitted.certificate_.objective == without.certificate_.objective
    for own, other in zip(fitted.predict_proba(inputs), without.predict_proba(inputs), strict=True):
        np.testing.assert_array_equal(own, other)


@pytest.mark.parametrize("weight", [-1.0, np.nan, np.inf, "2", None, [1.0]])
def test_a_class_weight_of_rows_that_is_none_is_refused_by_name(weight):
    with pytest.raises(ValueError, match=r"^class_weight"):
        KernelClassifier("linear", class_weight={0: 1.0, 1: weight}).fit(ROWS, LABELS)


@pytest.mark.parametrize("weight", [-1.0, np.nan, np.inf, "2", None, [1.0]])
@pytest.mark.parametrize("engine", [None, Local()])
def test_a_class_weight_that_is_none_is_refused_by_name(weight, engine):
    with pytest.raises(ValueError, match=r"^class_weight"):
        ChainCRF("linear", class_weight={0: 1.0, 1: weight}, engine=engine, C=1.0).fit(X, Y)


def test_class_weights_that_leave_nothing_are_refused():
    for engine in (None, Local()):
        with pytest.raises(ValueError, match="class_weight gives every sequence the weight 0"):
            ChainCRF("linear", class_weight=dict.fromkeys(range(3), 0.0), engine=engine, C=1.0).fit(X, Y)


@pytest.mark.parametrize("name", CHAINS)
@pytest.mark.parametrize("on_cluster", [False, True])
def test_a_sequence_of_weight_0_is_a_sequence_less(name, on_cluster):
    """To the bit, with inputs far away and a word of its own, though its labels are still checked."""
    crf, inputs = CHAINS[name]
    crf = ChainCRF(**crf.get_params()).set_params(engine=Local() if on_cluster else None)
    odd = FAR if inputs is X else [{"w": "unseen"}] * 3
    weights = np.linspace(0.5, 1.5, len(inputs))
    more, labels = [*inputs[:4], odd, *inputs[4:]], [*Y[:4], [0, 1, 2], *Y[4:]]
    without = crf.fit(inputs, Y, sample_weight=weights)
    theta, kernel, places = without.model_.theta, without.kernel_, without.landmark_positions_
    objective, names = without.certificate_.objective, without.n_features_in_
    fitted = crf.fit(more, labels, sample_weight=np.insert(weights, 4, 0.0))
    if on_cluster:
        # Parts are cut elsewhere, and sums over them are made in another order.
        np.testing.assert_allclose(fitted.certificate_.objective, objective, rtol=1e-4)
        np.testing.assert_allclose(fitted.kernel_.gamma or 0, kernel.gamma or 0, rtol=1e-12)
    else:
        np.testing.assert_array_equal(fitted.model_.theta, theta)
        assert fitted.kernel_.to_config() == kernel.to_config()
        assert fitted.certificate_.objective == objective
        if places is not None:
            moved = places + np.array([[1, 0]]) * (places[:, :1] >= 4)
            np.testing.assert_array_equal(fitted.landmark_positions_, moved)
    assert fitted.n_features_in_ == names
    assert fitted.landmark_positions_ is None or 4 not in fitted.landmark_positions_[:, 0]


@pytest.mark.parametrize("name", CHAINS)
@pytest.mark.parametrize("on_cluster", [False, True])
def test_a_sequence_of_class_weight_0_is_a_sequence_less(name, on_cluster):
    """It is left out of gamma, landmarks and the vocabulary; a missing label of it, here -1, changes nothing."""
    crf, inputs = CHAINS[name]
    crf = ChainCRF(**crf.get_params()).set_params(engine=Local() if on_cluster else None, class_weight={9: 0.0})
    odd = FAR if inputs is X else [{"w": "unseen"}] * 3
    labels = [[9] * len(own) for own in Y[:7]] + Y[7:]
    more, others = [*inputs[:9], odd, *inputs[9:]], [*labels[:9], [9, -1, 9], *labels[9:]]
    without = clone(crf).set_params(classes=[0, 1, 2, 9], class_weight=None).fit(inputs[7:], Y[7:])
    fitted = crf.fit(more, others)
    assert fitted.n_features_in_ == without.n_features_in_
    assert fitted.classes_.tolist() == [0, 1, 2, 9]
    np.testing.assert_allclose(fitted.kernel_.gamma or 0, without.kernel_.gamma or 0, rtol=1e-12)
    if on_cluster:
        np.testing.assert_allclose(fitted.certificate_.objective, without.certificate_.objective, rtol=1e-4)
    else:
        assert fitted.certificate_.objective == without.certificate_.objective


def test_a_row_of_class_weight_0_is_a_row_less():
    rows, labels = np.insert(ROWS, 4, FAR[0], axis=0), np.insert(LABELS, 4, 9)
    fitted = KernelClassifier(n_components=6, random_state=0, class_weight={9: 0.0}).fit(rows, labels)
    without = KernelClassifier(n_components=6, random_state=0).fit(ROWS, LABELS)
    assert fitted.kernel_.gamma == without.kernel_.gamma
    np.testing.assert_array_equal(fitted.landmarks_, without.landmarks_)


def test_labels_of_weight_0_are_classes_still():
    labels = [*Y[:-1], ["new"] * len(Y[-1])]
    crf = ChainCRF("linear", C=1.0).fit(X, labels, sample_weight=[1.0] * (len(X) - 1) + [0.0])
    assert "new" in crf.classes_.tolist()
    with pytest.raises(ValueError, match=r"y\[13\] has 1 labels"):
        ChainCRF("linear", C=1.0).fit(X, [*Y[:-1], ["a"]], sample_weight=[1.0] * (len(X) - 1) + [0.0])


def test_weights_go_by_position():
    weights = np.linspace(0.1, 2.0, len(X))
    shuffled = pd.Series(weights, index=np.random.default_rng(0).permutation(len(X)))
    known = ChainCRF("linear", C=1.0).fit(X, Y, sample_weight=weights)
    fitted = ChainCRF("linear", C=1.0).fit(X, Y, sample_weight=shuffled)
    np.testing.assert_array_equal(known.model_.theta, fitted.model_.theta)
    assert known.score(X, Y, sample_weight=shuffled) == known.score(X, Y, sample_weight=weights)


def test_a_score_of_nothing_is_refused():
    crf = ChainCRF("linear", C=1.0).fit(X, Y)
    for y in ([None] * len(own) for own in Y[:1]):
        with pytest.raises(ValueError, match="no token with a known label"):
            crf.score(X[:1], [y])
    for inputs, y in (([], []), ([np.empty((0, X[0].shape[1]))], [[]])):
        with pytest.raises(ValueError, match="no token with a known label"):
            crf.score(inputs, y)
    with pytest.raises(ValueError, match="sample_weight is zero for every token with a known label"):
        crf.score(X[:2], [Y[0], [None] * len(Y[1])], sample_weight=[0.0, 1.0])
