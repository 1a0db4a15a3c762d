"""The tagger with python-crfsuite's methods gives what python-crfsuite gives for the same weights."""

import numpy as np
import pytest

from kernelcrf import ChainCRF, ModelFileError
from kernelcrf.tagger.crfsuite import Tagger

Y = [["N", "S", "S", "C"], ["N", "S", "C"], ["S", "S", "C"], ["C"]]
TEXTS = ["12 Oak Street Salem", "7 Elm Troy", "Oak Avenue Dover", "Salem"]
NEW = ["350 Lake Street Troy", "Oak Salem", "9"]


def describe(text):
    """Nested features, as parserator's parsers make them."""
    tokens = [{"word": word.lower(), "digits": word.isdigit(), "length": len(word)} for word in text.split()]
    before = [{}, *tokens]
    return [{**token, "previous": dict(before[t])} for t, token in enumerate(tokens)]


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    folder = tmp_path_factory.mktemp("models")
    crf = ChainCRF("linear", C=5.0, tol=1e-8).fit([describe(text) for text in TEXTS], Y)
    for name in ("model.kcrf", "model.crfsuite"):
        crf.save(folder / name)
    return folder


def test_all_methods_give_what_those_of_python_crfsuite_give(files):
    pycrfsuite = pytest.importorskip("pycrfsuite")
    ours, theirs = Tagger(), pycrfsuite.Tagger()
    ours.open(str(files / "model.kcrf"))
    theirs.open(str(files / "model.crfsuite"))
    assert sorted(ours.labels()) == sorted(theirs.labels())
    for text in TEXTS + NEW:
        x = describe(text)
        labels = ours.tag(x)
        assert labels == theirs.tag(x) == ours.tag() == theirs.tag()
        for one in (labels, ["S"] * len(x)):
            assert ours.probability(one) == pytest.approx(theirs.probability(one), abs=1e-12)
        for t in range(len(x)):
            for label in ours.labels():
                assert ours.marginal(label, t) == pytest.approx(theirs.marginal(label, t), abs=1e-12)
    ours.set(describe(NEW[0]))
    theirs.set(describe(NEW[0]))
    assert ours.probability(["N", "S", "S", "C"]) == pytest.approx(theirs.probability(["N", "S", "S", "C"]), abs=1e-12)


def test_a_tagger_says_what_is_missing(files, tmp_path):
    tagger = Tagger()
    with pytest.raises(ValueError, match="call open"):
        tagger.tag(describe("Oak"))
    with pytest.raises(OSError, match="nowhere"):  # parsers catch it, and ask to train a model
        tagger.open(tmp_path / "nowhere.kcrf")
    with pytest.raises(ModelFileError, match="CRFsuite"):
        tagger.open(files / "model.crfsuite")
    with tagger.open(files / "model.kcrf") as opened:
        assert opened.tag(describe("Oak Salem")) == ["S", "C"]
        with pytest.raises(ValueError, match="2 tokens"):
            tagger.probability(["S"])
        with pytest.raises(ValueError, match="one of the labels"):
            tagger.marginal("X", 0)
        with pytest.raises(ValueError, match="from 0 to 1"):
            tagger.marginal("S", 2)
    with pytest.raises(ValueError, match="call open"):
        tagger.labels()


def test_the_probability_of_forbidden_labels_is_zero(tmp_path):
    X, y = (
        [describe(text) for text in TEXTS],
        [["B-N", "B-S", "I-S", "O"], ["B-N", "B-S", "O"], ["B-S", "I-S", "O"], ["O"]],
    )
    crf = ChainCRF("linear", C=5.0, constraints="BIO").fit(X, y)
    crf.save(tmp_path / "model.kcrf")
    tagger = Tagger().open(tmp_path / "model.kcrf")
    tagger.set(X[1])
    assert tagger.probability(["O", "I-S", "O"]) == 0
    assert tagger.probability(y[1]) == pytest.approx(np.exp(crf.log_prob([X[1]], [y[1]])[0]), abs=1e-12)
