"""A sklearn-crfsuite user's script, side by side with sklearn-crfsuite itself."""

import gzip

import numpy as np
import pytest
import sklearn_crfsuite
from sklearn.feature_extraction import DictVectorizer

from kernelcrf import ChainCRF


def sentences(path, count):
    """[[(word, ..., label), ...], ...] of a file of columns."""
    with gzip.open(path, "rt", encoding="utf8") as file:
        blocks = file.read().strip().split("\n\n")
    return [[line.split() for line in block.splitlines()] for block in blocks[:count]]


def token_features(sentence, t):
    word = sentence[t][0]
    features = {
        "bias": 1.0,
        "word": word.lower(),
        "suffix": word[-3:],
        "upper": word[0].isupper(),
        "size": len(word) / 10,
    }
    if t > 0:
        features["before"] = {"word": sentence[t - 1][0].lower()}
    else:
        features["BOS"] = True
    if t + 1 < len(sentence):
        features["after"] = sentence[t + 1][0].lower()
    return features


def read(path, count):
    data = sentences(path, count)
    X = [[token_features(sentence, t) for t in range(len(sentence))] for sentence in data]
    return X, [[token[-1] for token in sentence] for sentence in data]


@pytest.mark.parametrize(
    ("name", "count", "states", "transitions"),
    [
        ("conll2000_chunking", 100, True, True),
        ("conll2000_chunking", 100, False, False),
        ("wnut17_ner", 100, False, True),
        pytest.param("conll2000_chunking", 300, True, True, marks=pytest.mark.slow),
        pytest.param("wnut17_ner", 300, False, True, marks=pytest.mark.slow),
        pytest.param("conll2000_chunking", 2000, False, False, marks=pytest.mark.slow),
        pytest.param("wnut17_ner", 3394, True, True, marks=pytest.mark.slow),
    ],
)
def test_objective_and_predictions_are_those_of_crfsuite(data_folder, name, count, states, transitions):
    X, y = read(data_folder / name / "train.txt.gz", count)
    X_test, _ = read(data_folder / name / "test.txt.gz", count)
    known = {label for labels in y for label in labels}
    C = 1.0
    crfsuite = sklearn_crfsuite.CRF(
        algorithm="lbfgs",
        c1=0.0,
        c2=1 / (2 * C),
        max_iterations=3000,
        epsilon=1e-9,
        delta=1e-12,
        all_possible_states=states,
        all_possible_transitions=transitions,
    ).fit(X, y)
    weights = tuple("all" if every else "observed" for every in (states, transitions))
    ours = ChainCRF("linear", C=C, tol=1e-6, weights=weights).fit(X, y)
    theirs = crfsuite.training_log_.last_iteration["loss"]
    assert ours.certificate_.objective == pytest.approx(theirs, rel=1e-4)
    assert ours.certificate_.lower_bound <= theirs * (1 + 1e-6)
    both = [
        (a, b)
        for p, q in zip(ours.predict(X_test), crfsuite.predict(X_test), strict=True)
        for a, b in zip(p, q, strict=True)
    ]
    assert np.mean([a == b for a, b in both]) >= 0.999
    marginals = ours.predict_marginals(X_test[:1])[0][0]
    assert set(marginals) == known
    for label, p in crfsuite.predict_marginals(X_test[:1])[0][0].items():
        assert marginals[label] == pytest.approx(p, abs=2e-3)


def test_dicts_equal_their_vectors(data_folder):
    X, y = read(data_folder / "conll2000_chunking" / "train.txt.gz", 60)
    flat = [{k: v for k, v in token.items() if k != "before"} for sentence in X for token in sentence]
    lengths = [len(sentence) for sentence in X]
    dicts = ChainCRF("linear", tol=1e-6, C=1.0).fit(flat, [label for labels in y for label in labels], lengths=lengths)
    vectors = DictVectorizer().fit_transform(flat)
    matrix = ChainCRF("linear", tol=1e-6, C=1.0).fit(
        vectors, [label for labels in y for label in labels], lengths=lengths
    )
    np.testing.assert_allclose(dicts.coef_, matrix.coef_, atol=1e-10)
