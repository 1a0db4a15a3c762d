"""tools/train_parser.py trains a small parser, and both model files give the labels of the library."""

import importlib
import re
from pathlib import Path

import pytest

from kernelcrf.tagger.crfsuite import Tagger

pycrfsuite = pytest.importorskip("pycrfsuite")
TOOLS = Path(__file__).parents[2] / "tools"
PARSER = """
MODEL_FILE = "learned_settings.crfsuite"


def tokens2features(tokens):
    features = [{"word": token.lower(), "digits": token.isdigit()} for token in tokens]
    for before, after in zip(features, features[1:]):
        after["previous"] = {"word": before["word"]}
    return features
"""
ITEMS = [
    "<Item><Number>12</Number> <Street>Oak</Street> <Street>Road</Street></Item>",
    "<Item><Number>7</Number> <Street>Elm</Street></Item>",
    "<Item><Street>Oak</Street> <Street>Lane</Street></Item>",
    "<Item><Number>12</Number> <Street>Oak</Street> <Street>Road</Street></Item>",
    "<Item><Number>350</Number> <Street>Elm</Street> <Street>Road</Street></Item>",
]


@pytest.fixture(scope="module")
def script():
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(TOOLS)
        yield importlib.import_module("train_parser")


@pytest.fixture
def project(tmp_path, monkeypatch):
    (tmp_path / "small_parser.py").write_text(PARSER)
    (tmp_path / "labeled.xml").write_text(f"<Items>{chr(10).join(ITEMS)}</Items>")
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    return tmp_path


def test_the_script_compares_writes_and_checks(script, project, capsys):
    script.main(["--module", "small_parser", "--data", "labeled.xml", "--folds", "2", "--out", "made"])
    printed = capsys.readouterr().out
    assert "4 labelled items (1 more are repetitions), 10 tokens, 2 labels" in printed
    rows = dict(re.findall(r"^(kernelcrf|python-crfsuite)  +(\d+\.\d+ %  +\d+\.\d+ %)", printed, re.M))
    assert set(rows) == {"kernelcrf", "python-crfsuite"}
    assert printed.count("another label than kernelcrf to 0 of 10 tokens") == 2
    tokens = ["9", "Oak"]
    x = importlib.import_module("small_parser").tokens2features(tokens)
    theirs = pycrfsuite.Tagger()
    theirs.open("made/learned_settings.crfsuite")
    assert theirs.tag(x) == Tagger().open("made/learned_settings.kcrf").tag(x) == ["Number", "Street"]


def test_errors_are_those_of_the_labels(script, tmp_path):
    """The counts of the cross-validation, for a model that labels each token "a"."""

    class Constant:
        def fit(self, X, y):
            assert len(X) == len(y) == 2
            return self

        def predict(self, X):
            return [["a"] * len(x) for x in X]

    class Oracle(Constant):
        def predict(self, X):
            return [list(x) for x in X]

    y = [["a"], ["a", "b"], ["a", "a"], ["b"]]
    right, seconds = script.compare({"one": Constant, "other": Oracle}, y, y, 2)
    assert [one.tolist() for one in right["one"]] == [[True], [True, False], [True, True], [False]]
    text = script.describe(right, seconds)
    assert re.search(r"^one +33.33 % +50.00 %", text, re.M)
    assert re.search(r"^other +0.00 % +0.00 %", text, re.M)
    assert "0 items are right by one alone, 2 by other alone (sign test: p = 0.50)" in text


@pytest.mark.parametrize(
    ("module", "xml", "message"),
    [
        ("json", "<Items/>", "has a function tokens2features"),
        ("small_parser", "<Items><Item><Street/></Item></Items>", r"labeled\.xml: item 1"),
        ("small_parser", "<Items><Item/></Items>", "expected children with a text"),
    ],
)
def test_what_cannot_be_used_is_named(script, project, module, xml, message):
    (project / "labeled.xml").write_text(xml)
    with pytest.raises(SystemExit, match=message):
        script.main(["--module", module, "--data", "labeled.xml", "--folds", "0"])
