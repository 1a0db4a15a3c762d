"""The commands with models of CRFsuite: python-crfsuite gives the labels that the command gives."""

import json
import random

import pycrfsuite
import pytest
from typer.testing import CliRunner

import kernelcrf
from kernelcrf.cli.app import app
from kernelcrf.formats import read


def run(*arguments):
    return CliRunner().invoke(app, list(map(str, arguments)), catch_exceptions=False)


@pytest.fixture
def folder(tmp_path):
    """Sentences as text, and the features that default templates make of them."""
    rng = random.Random(0)
    for name in ("train", "test"):
        lines = []
        for _ in range(30):
            lines += [f"{rng.choice('abcdefg')} {rng.choice('xyz')} {rng.choice(['N', 'V'])}" for _ in range(5)] + [""]
        (tmp_path / f"{name}.txt").write_text("\n".join(lines) + "\n")
        assert run("convert", tmp_path / f"{name}.txt", tmp_path / f"{name}.items").exit_code == 0
    return tmp_path


def tagged(path, data):
    tagger = pycrfsuite.Tagger()
    tagger.open(str(path))
    return [tagger.tag(record.x) for record in read(data)]


def test_fit_tag_evaluate_inspect_and_report(folder):
    model, data = folder / "m.crfsuite", folder / "test.items"
    result = run("fit", folder / "train.items", model, "-C", "1", "--set", 'penalty={"name": "elastic net", "l1": 0.1}')
    assert result.exit_code == 0, result.output
    lines = run("tag", model, data).stdout.splitlines()
    labels = [label for sentence in tagged(model, data) for label in sentence]
    assert [line.split("\t")[-1] for line in lines if line] == labels
    assert run("evaluate", model, data).exit_code == 0
    facts = json.loads(run("inspect", model, "--json").stdout)
    assert (facts["status"], facts["kernel"], facts["labels"]) == ("imported", "linear", ["N", "V"])
    assert not {"C", "objective", "certified gap", "solver seconds"} & facts.keys()
    assert "imported" in run("inspect", model).stdout
    assert run("report", model, data, folder / "r.html").exit_code == 0
    # A model is replaced, another file is not.
    assert run("fit", folder / "train.items", model, "-C", "1").exit_code == 0
    (folder / "n.crfsuite").write_text("notes")
    assert "is not a model" in run("fit", folder / "train.items", folder / "n.crfsuite", "-C", "1").stderr


def test_text_becomes_features_and_the_templates_are_not_stored(folder):
    result = run("fit", folder / "train.txt", folder / "m.crfsuite", "-C", "1")
    assert result.exit_code == 0
    assert "models of CRFsuite cannot store templates: pass files of features" in " ".join(result.stderr.split())
    run("fit", folder / "train.txt", folder / "m.kcrf", "-C", "1")
    ours = [line.split()[-1] for line in run("tag", folder / "m.kcrf", folder / "test.txt").stdout.splitlines() if line]
    assert [label for one in tagged(folder / "m.crfsuite", folder / "test.items") for label in one] == ours
    line = run("tag", folder / "m.crfsuite", folder / "test.txt").stderr
    assert "the model has no templates for text: pass a .jsonl or .items file with the features" in line


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (("--kernel", "rbf"), "cannot store --kernel rbf: pass the name of a .kcrf file, or omit --kernel rbf"),
        (("--constraints", "BIO"), "cannot store --constraints"),
        (("--set", 'inputs={"words": "linear"}'), "cannot store inputs, or templates of steps"),
        (("--set", "hash_features=256"), "cannot store --set hash_features"),
    ],
)
def test_what_crfsuite_does_not_have_is_refused_before_the_fit(folder, options, said):
    result = run("fit", folder / "train.items", folder / "m.crfsuite", *options)
    assert result.exit_code != 0
    assert said in " ".join(result.stderr.split())
    assert not (folder / "m.crfsuite").exists()


def test_models_are_no_data_and_data_is_no_model(folder):
    run("fit", folder / "train.items", folder / "m.crfsuite", "-C", "1")
    assert "is that of a model" in run("tag", folder / "m.crfsuite", folder / "m.crfsuite").stderr
    (folder / "t.crfsuite").write_text((folder / "train.items").read_text())
    assert "or a model of CRFsuite" in run("inspect", folder / "t.crfsuite").stderr
    assert run("fit", folder / "t.crfsuite", folder / "n.kcrf", "-C", "1", "--format", "crfsuite").exit_code == 0
    assert kernelcrf.load(folder / "n.kcrf").classes_.tolist() == ["N", "V"]
