"""Tables of weights: names of features, the largest weights per label, and transitions."""

import sys

import numpy as np
import pandas as pd
import pytest

from kernelcrf import ChainCRF, KernelClassifier

RNG = np.random.default_rng(0)
X = [RNG.normal(size=(length, 3)) for length in (4, 6, 5, 7)]
Y = [np.digitize(x[:, 0], (-0.5, 0.5)) for x in X]
TEXT = [[{"word": "the", "n": 1.0}, {"word": "dog"}], [{"word": "a"}, {"word": "cat", "n": 2.0}]]
TAGS = [["D", "N"], ["D", "N"]]


def test_rows_of_coef_have_names():
    text = ChainCRF("linear", C=1.0).fit(TEXT, TAGS)
    assert text.get_feature_names_out().tolist() == ["n", "word:a", "word:cat", "word:dog", "word:the"]
    arrays = ChainCRF("linear", C=1.0).fit(X, Y)
    assert arrays.get_feature_names_out().tolist() == ["x0", "x1", "x2"]
    assert arrays.get_feature_names_out(["p", "q", "r"]).tolist() == ["p", "q", "r"]
    frames = ChainCRF("linear", C=1.0).fit([pd.DataFrame(x, columns=["a", "b", "c"]) for x in X], Y)
    assert frames.get_feature_names_out().tolist() == ["a", "b", "c"]
    with pytest.raises(ValueError, match="input_features is not equal to feature_names_in_"):
        frames.get_feature_names_out(["p", "q", "r"])
    hashed = ChainCRF("linear", hash_features=8, C=1.0).fit(TEXT, TAGS)
    assert hashed.get_feature_names_out().tolist() == [f"x{f}" for f in range(8)]
    landmarks = ChainCRF("rbf", n_components=5, random_state=0, C=1.0).fit(X, Y)
    assert landmarks.get_feature_names_out().tolist() == [f"chaincrf{b}" for b in range(len(landmarks.coef_))]


@pytest.mark.parametrize("model", [ChainCRF("linear", C=1.0), KernelClassifier("linear")])
def test_top_features_are_the_largest_weights_of_each_label(model):
    names = ["a", "b", "c"]
    if isinstance(model, ChainCRF):
        model.fit([pd.DataFrame(x, columns=names) for x in X], Y)
    else:
        model.fit(pd.DataFrame(np.concatenate(X), columns=names), np.concatenate(Y))
    found, weights = model.top_features(2), model.coef_ - model.coef_.mean(axis=1, keepdims=True)
    assert found["label"].tolist() == np.repeat(model.classes_, 2).tolist()
    for j, label in enumerate(model.classes_):
        own = found[found["label"] == label]
        assert own["weight"].tolist() == np.sort(weights[:, j])[::-1][:2].tolist()
        assert own["feature"].tolist() == [names[f] for f in np.argsort(-weights[:, j])[:2]]
    assert len(model.top_features()) == 9


def test_top_landmarks_have_positions():
    crf = ChainCRF("rbf", n_components=5, random_state=0, C=1.0).fit(X, Y)
    found = crf.top_features(1)
    weights = crf.model_.dual_coef
    best = (weights - weights.mean(axis=1, keepdims=True)).argmax(axis=0)
    assert found["feature"].tolist() == [f"landmark {b}" for b in best]
    assert found[["sequence", "token"]].to_numpy().tolist() == crf.landmark_positions_[best].tolist()


def test_a_table_of_transitions_shows_what_is_forbidden(monkeypatch):
    labels = [["B-X", "I-X"], ["O", "B-X"]]
    free, bound = (
        ChainCRF("linear", C=1.0).fit(TEXT, labels),
        ChainCRF("linear", constraints="BIO", C=1.0).fit(TEXT, labels),
    )
    assert free.transition_table().loc["B-X", "I-X"] == free.transitions_[0, 1]
    assert bound.transition_table().loc["O", "I-X"] == -np.inf
    assert np.isfinite(bound.transition_table().to_numpy()).sum() == 8
    monkeypatch.setitem(sys.modules, "pandas", None)
    with pytest.raises(ImportError, match=r"transition_table needs pandas.*or use transitions_"):
        free.transition_table()
