import gzip
import inspect
import json
import os
import re
import signal
import subprocess
import sys
import warnings
from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp
from sklearn.impute import SimpleImputer
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from typer.testing import CliRunner

import kernelcrf
from kernelcrf import ChainCRF, Input, metrics
from kernelcrf.cli import app as cli
from kernelcrf.cli import training
from kernelcrf.cli.app import app
from kernelcrf.datasets import make_sequences
from kernelcrf.estimators import base
from kernelcrf.formats import Record, Templates, default_templates, read, write
from kernelcrf.kernels import Polynomial
from kernelcrf.kernels.named_kernels import NAMED
from kernelcrf.preprocessing import PerToken
from kernelcrf.solvers import Restarts
from studies.datasets import load_references

COMMANDS = ("fit", "tag", "evaluate", "inspect", "report", "convert")
WORDS = {"B-NP": ["the", "a", "The"], "I-NP": ["dog", "cat", "Hill-9"], "B-VP": ["barks", "sleeps"], "O": [".", ","]}
STEPS = {"B-NP": ["I-NP"], "I-NP": ["B-VP", "I-NP"], "B-VP": ["B-NP", "O"], "O": ["B-NP"]}
ONE_THREAD = os.environ | {"OPENBLAS_NUM_THREADS": "1"}
POSIX = pytest.mark.skipif(sys.platform == "win32", reason="signals and pipes are those of POSIX")


def sentences(n, seed):
    rng = np.random.default_rng(seed)
    result = []
    for _ in range(n):
        label, rows = "O", []
        for _ in range(rng.integers(1, 9)):
            label = str(rng.choice(STEPS[label]))
            rows.append((str(rng.choice(WORDS[label])), label[-1], label if rng.random() < 0.9 else "O"))
        result.append(rows)
    return result


def text_of(some):
    return "".join("".join(f"{' '.join(row)}\n" for row in rows) + "\n" for rows in some)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Training and test files, and a model that the command made."""
    path = tmp_path_factory.mktemp("cli")
    (path / "train.txt").write_text(text_of(sentences(60, 0)))
    (path / "test.txt").write_text(text_of(sentences(40, 1)))
    result = run("fit", path / "train.txt", path / "chunks.kcrf", "--set", "solver=lbfgs")
    assert result.exit_code == 0, result.output
    return path


def run(*arguments, data=None):
    return CliRunner().invoke(app, list(map(str, arguments)), input=data, catch_exceptions=False)


def process(*arguments, **options):
    return subprocess.Popen(
        [sys.executable, "-m", "kernelcrf", *map(str, arguments)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=ONE_THREAD,
        **options,
    )


def fails(result, code=1):
    """The one line that a failed command says."""
    assert result.exit_code == code, result.output
    (line,) = result.stderr.splitlines()
    assert line.startswith("error: ")
    return line


def last_column(text):
    return [[line.split()[-1] for line in part.split("\n")] for part in text.strip("\n").split("\n\n")]


def test_three_lines_from_text_to_scores_equal_the_library(folder):
    templates = default_templates(2)
    train, test = (list(read(folder / name)) for name in ("train.txt", "test.txt"))
    crf = ChainCRF("linear", random_state=0, solver="lbfgs")
    crf.fit(templates.features([one.x for one in train]), [one.labels for one in train])
    X, y = templates.features([one.x for one in test]), [one.labels for one in test]
    expected = [labels.tolist() for labels in crf.predict(X)]

    tagged = run("tag", folder / "chunks.kcrf", folder / "test.txt").stdout
    assert last_column(tagged) == expected
    kept = ["\n".join(line.rsplit(" ", 1)[0] for line in part.split("\n")) for part in tagged.split("\n\n")]
    assert "\n\n".join(kept) == (folder / "test.txt").read_text()
    scores = json.loads(run("evaluate", folder / "chunks.kcrf", folder / "test.txt", "--json").stdout)["scores"]
    assert scores["span_f1"]["value"] == metrics.span_f1(y, expected)
    assert scores["flat_accuracy"]["value"] == crf.score(X, y)
    assert scores["log_loss"]["value"] == pytest.approx(metrics.log_loss(y, crf.predict_proba(X), crf.classes_))
    assert scores["span_f1"]["low"] < scores["span_f1"]["value"] < scores["span_f1"]["high"]
    printed = run("evaluate", folder / "chunks.kcrf", folder / "test.txt").stdout
    assert f"F1 of spans             {scores['span_f1']['value']:.4f}" in printed
    assert "micro avg" in printed


def test_templates_of_steps_give_an_input_of_steps(folder, tmp_path):
    template, model = tmp_path / "templates", tmp_path / "steps.kcrf"
    template.write_text("U:w=%x[0,0]\n*:p=%x[0,1]\nB:pair=%x[-1,1]/%x[0,1]\nB\n")
    options = ("--templates", template, "-C", "1", "--tol", "1e-6")
    result = run("fit", folder / "train.txt", model, *options)
    assert result.exit_code == 0, result.output
    templates, train, test = (
        Templates(template.read_text(), 2),
        *(list(read(folder / f"{name}.txt")) for name in ("train", "test")),
    )
    inputs = {"tokens": Input("linear"), "steps": Input("linear", scores="steps")}
    crf = ChainCRF(inputs=inputs, C=1.0, tol=1e-6, random_state=0)
    crf.fit(templates.features([one.x for one in train]), [one.labels for one in train])
    X, loaded = templates.features([one.x for one in test]), kernelcrf.load(model)
    assert Templates.of(loaded).features([test[0].x]) == X[:1]
    for ours, theirs in zip(crf.predict_proba(X), loaded.predict_proba(X), strict=True):
        np.testing.assert_allclose(ours, theirs, atol=1e-12)
    assert last_column(run("tag", model, folder / "test.txt").stdout) == [one.tolist() for one in crf.predict(X)]
    assert (
        run("tag", model, data=(folder / "test.txt").read_text()).stdout
        == run("tag", model, folder / "test.txt").stdout
    )
    assert run("evaluate", model, folder / "test.txt").exit_code == 0
    assert "B:pair=%x[-1,1]/%x[0,1]" in run("inspect", model).stdout
    assert run("report", model, folder / "test.txt", tmp_path / "r.html").exit_code == 0
    # Each weight of a step matters: without these templates, probabilities differ.
    assert crf.edge_coef_.shape[0] > 4
    assert np.abs(crf.edge_coef_).max() > 0.1
    line = fails(run("convert", folder / "train.txt", tmp_path / "x.jsonl", "--templates", template))
    assert f"{template}: the templates give features of steps" in line
    refused = run("fit", folder / "train.txt", tmp_path / "m.crfsuite", *options)
    assert refused.exit_code == 2
    assert "models of CRFsuite cannot store inputs, or templates of steps" in " ".join(refused.stderr.split())


def test_templates_of_steps_on_references(tmp_path, data_folder):
    """In references, fields end at commas and full stops, which scores of steps see in the token before."""
    references = load_references(folder=data_folder)
    for name, start in (("train", 0), ("test", 60)):
        rows = zip(references.X[start : start + 60], references.y[start : start + 60], strict=True)
        sentences = ["".join(f"{token['word']}\t{label}\n" for token, label in zip(x, y, strict=True)) for x, y in rows]
        (tmp_path / f"{name}.txt").write_text("\n".join(sentences) + "\n")
    plain = "*\nU:word=%X[0,0]\nU:shape=%s[0,0]\n"
    (tmp_path / "plain").write_text(plain)
    (tmp_path / "steps").write_text(plain + 'B:end=%m[-1,0,".$"]\n')
    accuracy = {}
    for name in ("plain", "steps"):
        model = tmp_path / f"{name}.kcrf"
        result = run("fit", tmp_path / "train.txt", model, "--templates", tmp_path / name, "-C", "1", "--tol", "0.01")
        assert result.exit_code == 0, result.output
        scores = json.loads(run("evaluate", model, tmp_path / "test.txt", "--json").stdout)["scores"]
        accuracy[name] = scores["flat_accuracy"]["value"]
    assert kernelcrf.load(tmp_path / "steps.kcrf").certificate_.relative_gap <= 0.01
    assert accuracy["steps"] > accuracy["plain"] + 0.01, accuracy


def test_a_pipeline_is_used_like_its_last_step(tmp_path):
    data, model, file = make_sequences(20, random_state=0), tmp_path / "pipe.kcrf", tmp_path / "data.jsonl"
    X, y = [x * [1.0, 1000.0] for x in data.X], [list(map(str, labels)) for labels in data.y]
    pipe = make_pipeline(PerToken(StandardScaler()), ChainCRF(n_components=10, random_state=0, C=1.0))
    kernelcrf.save(pipe.fit([pd.DataFrame(x, columns=["a", "b"]) for x in X], y), model)
    write(file, [Record("vectors", x, labels, None, "") for x, labels in zip(X, y, strict=True)])
    result = run("tag", model, file, "--marginals", "--n-best", 2)
    tagged = [json.loads(line) for line in result.stdout.splitlines()]
    assert result.stderr == ""  # no warning about column names, which files do not have
    pipe.fit(X, y)
    assert [one["predicted"] for one in tagged] == [labels.tolist() for labels in pipe.predict(X)]
    np.testing.assert_allclose(tagged[0]["marginals"][0]["0"], pipe.predict_proba(X)[0][0, 0], atol=1e-6)
    scores = json.loads(run("evaluate", model, file, "--json").stdout)["scores"]
    assert scores["flat_accuracy"]["value"] == pipe.score(X, y)
    assert "preprocessing   [PerToken(transformer=StandardScaler())]" in run("inspect", model).stdout
    assert run("report", model, file, tmp_path / "report.html").exit_code == 0
    write(file, [Record("vectors", np.ones((1, 1)), ["0"], None, "")])
    assert "X has 1 features, but StandardScaler is expecting 2" in fails(run("tag", model, file))


@pytest.mark.parametrize("name", ["conll2000_chunking", "wnut17_ner"])
def test_public_data_from_the_shell_score_as_in_the_library(data_folder, tmp_path, name):
    for part in ("train", "test"):
        with gzip.open(data_folder / name / f"{part}.txt.gz", "rt", encoding="utf-8") as file:
            (tmp_path / f"{part}.txt").write_text("\n\n".join(file.read().split("\n\n")[:40]) + "\n", encoding="utf-8")
    model, test = tmp_path / "m.kcrf", tmp_path / "test.txt"
    assert run("fit", tmp_path / "train.txt", model, "-C", 1, "--tol", 0.01, "--set", "solver=lbfgs").exit_code == 0
    tagged = last_column(run("tag", model, test).stdout)
    scores = json.loads(run("evaluate", model, test, "--json").stdout)["scores"]
    train, held = list(read(tmp_path / "train.txt")), list(read(test))
    templates = default_templates(len(train[0].x[0]))
    crf = ChainCRF("linear", C=1.0, tol=0.01, random_state=0, solver="lbfgs")
    crf.fit(templates.features([one.x for one in train]), [one.labels for one in train])
    predicted = [labels.tolist() for labels in crf.predict(templates.features([one.x for one in held]))]
    assert tagged == predicted
    expected = metrics.span_f1([one.labels for one in held], predicted, zero_division=0)
    assert scores["span_f1"]["value"] == pytest.approx(expected, abs=1e-15)


def test_a_model_of_the_command_loads_in_python_and_keeps_its_templates(folder, tmp_path):
    crf = kernelcrf.load(folder / "chunks.kcrf")
    templates = Templates.of(crf)
    assert (templates.text, templates.n_columns) == (default_templates(2).text, 2)
    crf.save(tmp_path / "again.kcrf")
    again = run("tag", tmp_path / "again.kcrf", folder / "test.txt").stdout
    assert again == run("tag", folder / "chunks.kcrf", folder / "test.txt").stdout


def test_a_model_of_python_tags_in_the_shell(folder, tmp_path):
    train = list(read(folder / "train.txt"))
    templates, y = Templates("U:%x[0,0]\nU:%s[-1,0]", 2), [one.labels for one in train]
    X = templates.features([one.x for one in train])
    crf = ChainCRF("linear", C=1.0).fit(X, y)
    write(tmp_path / "x.jsonl", [Record("features", x, None, None, "") for x in X])
    crf.save(tmp_path / "m.kcrf")
    line = fails(run("tag", tmp_path / "m.kcrf", folder / "train.txt"))
    assert "train.txt: the file has text, but the model has no templates for text" in line
    expected = [labels.tolist() for labels in crf.predict(X)]
    lines = run("tag", tmp_path / "m.kcrf", tmp_path / "x.jsonl").stdout.splitlines()
    assert [json.loads(one)["predicted"] for one in lines] == expected
    templates.attach(crf)
    crf.save(tmp_path / "m.kcrf")
    assert last_column(run("tag", tmp_path / "m.kcrf", folder / "train.txt").stdout) == expected


def test_vectors_and_integers_from_archives(tmp_path):
    data = make_sequences(30, random_state=0)
    records = [Record("vectors", x, y.tolist(), None, "") for x, y in zip(data.X, data.y, strict=True)]
    for name in ("a.npz", "a.jsonl", "a.parquet"):
        write(tmp_path / name, records)
        inputs = '{"tokens": {"kernel": "rbf", "n_components": 15}, "steps": {"kernel": "linear", "scores": "steps"}}'
        options = ("-C", 10, "--set", f"inputs={inputs}")
        result = run("fit", tmp_path / name, tmp_path / f"{name}.kcrf", *options)
        assert "30 sequences" in result.stdout
        assert "15 landmarks" in result.stdout
    inputs = {"tokens": Input("rbf", n_components=15), "steps": Input("linear", scores="steps")}
    crf = ChainCRF(C=10, random_state=0, inputs=inputs).fit(data.X, data.y)
    predicted = [labels.tolist() for labels in crf.predict(data.X)]
    assert last_column(run("tag", tmp_path / "a.parquet.kcrf", tmp_path / "a.npz").stdout) == [
        list(map(str, labels)) for labels in predicted
    ]
    scores = json.loads(run("evaluate", tmp_path / "a.npz.kcrf", tmp_path / "a.jsonl", "--json").stdout)["scores"]
    assert scores["flat_accuracy"]["value"] == crf.score(data.X, data.y)
    assert "span_f1" not in scores
    facts = json.loads(run("inspect", tmp_path / "a.npz.kcrf", "-n", 2, "--json").stdout)
    assert (facts["kernel"], facts["landmarks"], facts["labels"]) == ("tokens: rbf", 15, [0, 1, 2])
    assert [len(own) for own in facts["terms"].values()] == [2, 2, 2]
    line = fails(run("tag", tmp_path / "a.npz.kcrf", "-"), 1)
    assert line.endswith("pass an .npz or .jsonl file with the vectors, as in training")


@pytest.mark.parametrize("make", [np.asarray, sp.csr_array])
@pytest.mark.parametrize(("value", "remedy"), [(np.nan, "fill in missing"), (-np.inf, "remove or clip infinite")])
def test_a_vector_with_nan_is_found_by_file_and_sequence(tmp_path, make, value, remedy):
    data, file, model = make_sequences(5, random_state=0), tmp_path / "a.npz", tmp_path / "m.kcrf"
    ChainCRF("rbf", C=1, n_components=5, random_state=0).fit([make(x) for x in data.X], data.y).save(model)
    data.X[3][2, 1] = value
    write(file, [Record("vectors", make(x), y.tolist(), None, "") for x, y in zip(data.X, data.y, strict=True)])
    expected = (
        f"error: {file}, sequence 3, token 2: the vector has the value {value} in column 1: expected finite numbers; "
        f"{remedy} values before you write the file"
    )
    for arguments in (("tag", model, file), ("evaluate", model, file), ("fit", file, tmp_path / "new.kcrf")):
        assert fails(run(*arguments)).startswith(expected)


def test_a_pipeline_that_fills_in_missing_values_tags_vectors_with_nan(tmp_path):
    data, file, model = make_sequences(12, random_state=0), tmp_path / "a.npz", tmp_path / "m.kcrf"
    data.X[3][2, 1] = np.nan
    pipe = make_pipeline(PerToken(SimpleImputer()), ChainCRF("rbf", C=1, n_components=5, random_state=0))
    kernelcrf.save(pipe.fit(data.X, data.y), model)
    write(file, [Record("vectors", x, y.tolist(), None, "") for x, y in zip(data.X, data.y, strict=True)])
    tagged = last_column(run("tag", model, file).stdout)
    assert tagged == [list(map(str, labels)) for labels in pipe.predict(data.X)]
    scores = json.loads(run("evaluate", model, file, "--json").stdout)["scores"]
    assert scores["flat_accuracy"]["value"] == pipe.score(data.X, data.y)


def test_marginals_and_labellings_that_come_next(folder):
    crf, rows = kernelcrf.load(folder / "chunks.kcrf"), [["the", "P"], ["dog", "P"]]
    x = default_templates(2).features([rows])
    data = text_of([rows])
    found = run("tag", folder / "chunks.kcrf", "--marginals", "--n-best", 3, data=data).stdout.split("\n")
    cells = [line.split(" ") for line in found[:2]]
    best = crf.distribution(x).k_best(3)[0]
    assert [cell[2:5] for cell in cells] == [[str(labels[t]) for labels, _ in best] for t in (0, 1)]
    pairs = [dict(cell.rsplit(":", 1) for cell in row[5:]) for row in cells]
    for pair, expected in zip(pairs, crf.predict_marginals(x)[0], strict=True):
        assert {label: float(p) for label, p in pair.items()} == pytest.approx(expected, abs=1e-4)
    one = json.loads(run("tag", folder / "chunks.kcrf", "--n-best", 400, "--json", data=text_of([rows[:1]])).stdout)
    assert len(one["n_best"]) == len(crf.classes_)
    assert sum(np.exp(own["log_prob"]) for own in one["n_best"]) == pytest.approx(1)
    short = run("tag", folder / "chunks.kcrf", "--n-best", len(crf.classes_) + 1, data=text_of([rows[:1]])).stdout
    assert short.split()[-1] == "_"


def test_spans_are_written_as_json(folder):
    crf, rows = kernelcrf.load(folder / "chunks.kcrf"), [["the", "P"], ["dog", "P"]]
    found = json.loads(run("tag", folder / "chunks.kcrf", "--spans", data=text_of([rows])).stdout)
    expected = crf.distribution(default_templates(2).features([rows])).spans()[0]
    assert [tuple(span.values())[:3] for span in found["spans"]] == [span[:3] for span in expected]
    assert [span["probability"] for span in found["spans"]] == pytest.approx(
        [s.probability for s in expected], abs=1e-6
    )
    assert set(found["spans"][0]) == {"start", "end", "label", "probability"}


def test_inspect_says_what_the_model_is(folder):
    text = run("inspect", folder / "chunks.kcrf", "-n", 2).stdout
    crf = kernelcrf.load(folder / "chunks.kcrf")
    i, j = np.unravel_index(np.abs(crf.transitions_).argmax(), crf.transitions_.shape)
    assert f"{crf.transitions_[i, j]:+8.3f}  {crf.classes_[i]} -> {crf.classes_[j]}" in text
    beside = crf.coef_[:, 1] - crf.coef_.mean(axis=1)
    assert f"{beside.max():+8.3f}  {crf.model_.reader.feature_names[beside.argmax()]}" in text
    assert "status          optimal" in text
    assert '\nC chosen by     likelihood of held-out sequences (C="auto")\n' in text
    assert "U:shape[0]=%s[0,0]" in text


BROKEN = {
    "ragged.txt": (b"a b O\nc d\n", "ragged.txt, line 2: got the cells ['c', 'd']: expected 3 cells"),
    "latin.txt": ("caf\u00e9 b O\n".encode("latin-1"), "latin.txt, line 1: expected UTF-8"),
    "empty.txt": (b"", "empty.txt: the file has no sequence"),
    "cut.txt.gz": (gzip.compress(b"a b O\n" * 50, mtime=0)[:-9], "expected a complete gzip file"),
    "wide.txt": (b"a b c d O\n", "expected 2 or 3 cells: the model was fitted to 2 columns, after which"),
    "nowhere.txt": (None, "nowhere.txt: No such file"),
    "odd.xyz": (b"a b O\n", "odd.xyz: the extension '.xyz'"),
    "bad.jsonl": (b'{"tokens": [["a", "b"]]}\n{"tokens": 3}\n', "bad.jsonl, line 2: tokens is 3"),
}


@pytest.mark.parametrize("name", BROKEN)
def test_broken_input_is_one_line_and_an_exit_code(folder, tmp_path, name):
    content, message = BROKEN[name]
    path = tmp_path / name
    if content is not None:
        path.write_bytes(content)
    for arguments in (["tag", folder / "chunks.kcrf", path], ["evaluate", folder / "chunks.kcrf", path]):
        assert message in fails(run(*arguments))
    if name not in ("wide.txt", "bad.jsonl"):
        assert message in fails(run("fit", path, tmp_path / "m.kcrf"))
    assert not (tmp_path / "m.kcrf").exists()


def test_wrong_models_are_one_line_and_an_exit_code(folder, tmp_path):
    blob = (folder / "chunks.kcrf").read_bytes()
    (tmp_path / "cut.kcrf").write_bytes(blob[: len(blob) // 2])
    for model in (folder / "train.txt", tmp_path, tmp_path / "nothing", tmp_path / "cut.kcrf"):
        assert str(model) in fails(run("tag", model, folder / "test.txt"))
    write(tmp_path / "v.jsonl", [Record("vectors", np.ones((2, 3)), ["O", "O"], None, "")])
    assert "v.jsonl, line 1: X has arrays of numbers, but fit was given feature dicts" in fails(
        run("tag", folder / "chunks.kcrf", tmp_path / "v.jsonl")
    )


def test_swapped_arguments_and_folders_are_named(folder, tmp_path):
    packed, data = tmp_path / "a.txt.gz", tmp_path / "folder.txt"
    packed.write_bytes(gzip.compress((folder / "test.txt").read_bytes(), mtime=0))
    data.mkdir()
    for command, name in (("tag", folder / "test.txt"), ("evaluate", folder / "test.txt"), ("tag", packed)):
        line = fails(run(command, name, folder / "chunks.kcrf"))
        assert f"{name}: this is not a kernelcrf model: expected a file written by fit, or a model of" in line
    for arguments in (
        ("tag", folder / "chunks.kcrf", data),
        ("evaluate", folder / "chunks.kcrf", data, "--format", "jsonl"),
        ("fit", data, tmp_path / "m.kcrf"),
        ("fit", folder / "train.txt", tmp_path / "m.kcrf", "--dev", data),
    ):
        assert fails(run(*arguments)) == f"error: {data}: this is a folder: expected a file"
    for arguments, kind in (
        (("fit", tmp_path / "new.kcrf", folder / "train.txt"), "model"),
        (("report", folder / "chunks.kcrf", tmp_path / "new.html", folder / "test.txt"), "report"),
    ):
        line = fails(run(*arguments))
        assert f"{arguments[-2]}: the extension '{arguments[-2].suffix}' is that of a {kind}: expected data" in line
        assert line.endswith(f"; check that data and {kind} are not swapped")


@pytest.mark.parametrize(
    ("name", "place"), [("a.txt", "line 5"), ("a.items", "line 5"), ("a.jsonl", "line 2"), ("a.parquet", "row 1")]
)
def test_labels_that_break_constraints_are_found_by_file_and_line(tmp_path, name, place):
    (tmp_path / "a.txt").write_text("the B-NP\ndog I-NP\n\nit O\nbarks I-VP\nloud O\n")
    run("convert", tmp_path / "a.txt", tmp_path / name) if name != "a.txt" else None
    line = fails(run("fit", tmp_path / name, tmp_path / "m.kcrf", "--constraints", "BIO"))
    assert f"{name}, {place}: 'O' -> 'I-VP' is not allowed by --constraints BIO: correct the label" in line
    line = fails(run("fit", tmp_path / name, tmp_path / "m.kcrf", "--constraints", "BMES"))
    first = {"line 5": "line 2", "line 2": "line 1", "row 1": "row 0"}[place]
    assert f"{name}, {first}: the label 'I-NP' does not follow --constraints BMES: correct the label" in line
    (tmp_path / "train.txt").write_text("the B-NP\ndog I-NP\n\nit O\n")
    options = ("--dev", tmp_path / name, "--constraints", "BIO")
    line = fails(run("fit", tmp_path / "train.txt", tmp_path / "m.kcrf", *options))
    assert f"{name}, {place}: 'O' -> 'I-VP' is not allowed by --constraints BIO: correct the label" in line
    (tmp_path / "train.jsonl").write_text('{"tokens": ["the", "dog"], "labels": ["O", ["S", "L-NP"]]}\n')
    (tmp_path / "dev.txt").write_text("the S\n")
    options = ("--dev", tmp_path / "dev.txt", "--constraints", "BMES")
    line = fails(run("fit", tmp_path / "train.jsonl", tmp_path / "m.kcrf", *options))
    assert "train.jsonl, line 1: the label 'L-NP' does not follow --constraints BMES" in line


def test_wrong_fits_are_one_line_and_write_nothing(folder, tmp_path):
    (tmp_path / "t").write_text("U:%x[0,7]\n")
    (tmp_path / "bare.jsonl").write_text('{"tokens": ["a"]}\n')
    train, model = folder / "train.txt", tmp_path / "m.kcrf"
    for arguments, message in [
        ((train, tmp_path / "no" / "m.kcrf"), "the folder of this file does not exist"),
        ((train, model, "--templates", tmp_path / "t"), "t, line 1: %x[0,7] uses column 7"),
        ((train, model, "--constraints", "BMES"), "BMES"),
        ((tmp_path / "bare.jsonl", model), "bare.jsonl, line 1: the sequence has no labels"),
    ]:
        assert message in fails(run("fit", *arguments))
    for arguments in (("--set", "sea=1"), ("--format", "xml"), ("--frobnicate",), ("--seed", -1)):
        assert run("fit", train, model, *arguments).exit_code == 2
    assert not model.exists()


@pytest.mark.parametrize(
    ("option", "value", "expected"),
    [
        ("--kernel", "sinc", "sinc: expected auto, linear, rbf, poly, laplacian, cosine or chi2"),
        ("--kernel", "chi2", "--kernel chi2 needs dense vectors, but the file has text: choose from linear, poly"),
        ("-C", "much", "much: expected a number above 0, auto or evidence"),
        ("-C", "inf", "inf: expected a number above 0, auto or evidence"),
        ("--gamma", 0, "0: expected a number above 0, scale or auto"),
        ("--gamma", 2, "--gamma 2.0 has no effect, because the kernel is linear: omit --gamma, or choose --kernel"),
        ("--constraints", "bi", "bi: expected BIO, IOB2, "),
        ("--format", "xml", "xml: expected columns, conllu, jsonl, crfsuite, parquet or npz; omit the option"),
        ("--tol", 1, "1: expected a number above 0 and below 1"),
        ("--tol", "nan", "nan: expected a number above 0 and below 1"),
        ("--n-jobs", 0, "0: expected a number of threads, at least 1, or -1 for all cores"),
    ],
)
def test_a_wrong_value_of_an_option_is_told_in_the_words_of_the_shell(folder, tmp_path, option, value, expected):
    result = run("fit", folder / "train.txt", tmp_path / "m.kcrf", option, value)
    assert result.exit_code == 2
    said = " ".join(result.stderr.replace("│", " ").split())
    assert option in said
    assert expected in said


@pytest.mark.parametrize("name", ["jsonl", "parquet", "npz"])
def test_a_file_that_has_another_format_than_the_given_one_is_named_with_a_remedy(folder, tmp_path, name):
    line = fails(run("fit", folder / "train.txt", tmp_path / "m.kcrf", "--format", name))
    assert "train.txt" in line
    assert line.endswith(f"the file was read as {name}: check that the file has this format, or do not pass the format")


def test_an_input_of_steps_has_its_own_gamma(folder, tmp_path):
    steps = '{"kernel": "rbf", "gamma": 2, "n_components": 5, "scores": "steps"}'
    options = ("-C", 1, "--tol", 0.5, "--set", f'inputs={{"tokens": "linear", "steps": {steps}}}')
    assert run("fit", folder / "train.txt", tmp_path / "m.kcrf", *options).exit_code == 0
    crf = kernelcrf.load(tmp_path / "m.kcrf")
    assert crf.model_.kernels["inputs__steps__kernel"].gamma == crf.inputs["steps"].gamma == 2


def test_objects_are_set_as_json(folder, tmp_path):
    options = ("-C", 1, "--tol", 0.5, "--gamma", 0.5, "--n-components", 5, "--set", 'kernel={"degree": 2}')
    run("fit", folder / "train.txt", tmp_path / "m.kcrf", *options, "--set", 'solver={"n": 2, "solver": "lbfgs"}')
    crf = kernelcrf.load(tmp_path / "m.kcrf")
    assert (crf.kernel, crf.solver) == (Polynomial(degree=2), Restarts(2, "lbfgs"))
    inputs = '{"tokens": {"kernel": {"degree": 2}, "n_components": 5}}'
    run("fit", folder / "train.txt", tmp_path / "n.kcrf", "-C", 1, "--tol", 0.5, "--set", f"inputs={inputs}")
    assert kernelcrf.load(tmp_path / "n.kcrf").inputs["tokens"].kernel == Polynomial(degree=2)


@pytest.mark.parametrize("inputs", ["linear", '{"tokens": {"width": 3}}', "[1]"])
def test_wrong_inputs_are_refused_before_the_fit(folder, tmp_path, inputs):
    result = run("fit", folder / "train.txt", tmp_path / "m.kcrf", "--set", f"inputs={inputs}")
    assert result.exit_code != 0
    assert "expected inputs such as" in " ".join(result.stderr.split())


def test_names_in_options_may_be_in_lower_or_upper_case(tmp_path):
    (tmp_path / "a.txt").write_text("the B-NP\ndog I-NP\n\n" * 2)
    options = ("--constraints", "bio", "--kernel", "Linear", "--format", "COLUMNS")
    assert run("fit", tmp_path / "a.txt", tmp_path / "m.kcrf", "-C", "1", *options).exit_code == 0
    crf = kernelcrf.load(tmp_path / "m.kcrf")
    assert (crf.constraints, crf.kernel) == ("BIO", "linear")


def test_help_has_defaults_and_formats():
    formats, written = (
        f"columns,{more} jsonl, crfsuite, parquet, npz. [default: (by extension)]" for more in (" conllu,", "")
    )
    said = {command: " ".join(run(command, "--help").stdout.split()) for command in ("fit", "convert")}
    assert f"--format NAME {formats}" in said["fit"]
    assert "BMES. [default: (none)]" in said["fit"]
    assert f"--from NAME {formats} --to NAME {written}" in said["convert"]


def test_held_out_data_choose_C(folder, tmp_path):
    train, dev, model = folder / "train.txt", folder / "test.txt", tmp_path / "m.kcrf"
    head, *rows, goes, last = run("fit", train, model, "--dev", dev, "--set", "solver=lbfgs").stdout.splitlines()
    assert head.split() == ["C", "span", "F1", "seconds"]
    scores = {float(C): float(f1) for C, f1, _ in map(str.split, rows)}
    crf = kernelcrf.load(model)
    assert max(scores, key=scores.get) == crf.C_
    assert goes == f"the last fit, with C = {crf.C_:g}, goes to tol = 0.0001"
    assert f"; C={crf.C_:g}, chosen by F1 of spans on test.txt; " in last
    assert "\nC chosen by     F1 of spans on test.txt\n" in run("inspect", model).stdout
    assert not crf.warm_start
    own = json.loads(run("evaluate", model, dev, "--json").stdout)["scores"]["span_f1"]["value"]
    assert scores[crf.C_] == pytest.approx(own, abs=1e-4)
    assert "-C 3 cannot be combined with --dev" in run("fit", train, model, "--dev", dev, "-C", 3).stderr


def test_a_fit_with_missing_labels_says_that_it_has_no_certificate(tmp_path):
    lines = [
        {"tokens": [["the"], ["dog"]], "labels": ["D", None]},
        {"tokens": [["a"], ["cat"]], "labels": [["D", "N"], "N"]},
    ]
    (tmp_path / "train.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    result = run("fit", tmp_path / "train.jsonl", tmp_path / "m.kcrf", "--set", "random_state=0")
    assert result.exit_code == 0, result.output
    assert "stationary, without a certificate (labels are missing)" in result.output
    assert "status" not in result.stderr
    shown = run("inspect", tmp_path / "m.kcrf").output
    assert "status          stationary" in shown
    assert "certified gap" not in shown


def test_a_fit_that_did_not_arrive_is_written_with_a_warning(folder, tmp_path):
    result = run("fit", folder / "train.txt", tmp_path / "m.kcrf", "--max-iter", 1, "-C", 1, "--set", "solver=lbfgs")
    assert result.exit_code == 0
    assert re.search(
        r"^warning: .*m\.kcrf: the fit ended .*'max_iter'.*: pass a larger --max-iter or --tol$",
        result.stderr,
    )
    assert kernelcrf.load(tmp_path / "m.kcrf").certificate_.status == "max_iter"


@POSIX
@pytest.mark.usefixtures("interruptible")
def test_ctrl_c_in_a_fit_leaves_the_old_model(folder, tmp_path, monkeypatch):
    model = tmp_path / "m.kcrf"
    old = (folder / "chunks.kcrf").read_bytes()
    model.write_bytes(old)
    told = nullcontext(lambda point: os.kill(os.getpid(), signal.SIGINT))
    monkeypatch.setattr(base.Estimator, "_progress", lambda *_: told)
    assert fails(run("fit", folder / "train.txt", model), 130) == "error: interrupted"
    assert (model.read_bytes(), os.listdir(tmp_path)) == (old, ["m.kcrf"])


def test_a_bar_is_shown_on_a_terminal_only(folder, tmp_path, monkeypatch):
    arguments = ("fit", folder / "train.txt", tmp_path / "m.kcrf", "-C", 1, "--set", "solver=lbfgs")
    assert run(*arguments).stderr == ""
    written = (tmp_path / "m.kcrf").read_bytes()
    monkeypatch.setattr(training, "sys", SimpleNamespace(stderr=SimpleNamespace(isatty=lambda: True)))
    shown = run(*arguments).stderr
    assert "objective" in shown
    assert "gap" in shown
    assert kernelcrf.load(tmp_path / "m.kcrf").verbose == 0
    assert len((tmp_path / "m.kcrf").read_bytes()) == len(written)


@POSIX
@pytest.mark.usefixtures("interruptible")
def test_a_stream_is_answered_sentence_by_sentence_and_ends_cleanly(folder):
    with process("tag", folder / "chunks.kcrf") as tagger:
        for word in ("the", "a"):
            tagger.stdin.write(f"{word} P\n\n".encode())
            tagger.stdin.flush()
            assert tagger.stdout.readline().split()[:2] == [word.encode(), b"P"]
            assert tagger.stdout.readline() == b"\n"
        tagger.send_signal(signal.SIGINT)
        out, err = tagger.communicate()
    assert (tagger.returncode, out, err) == (130, b"", b"error: interrupted\n")


@POSIX
def test_a_closed_pipe_ends_quietly(folder):
    with process("tag", folder / "chunks.kcrf") as tagger:
        tagger.stdin.write(b"the P\n\n")
        tagger.stdin.flush()
        tagger.stdout.readline()
        tagger.stdout.close()
        tagger.stdin.write(b"the P\n\n")
        tagger.stdin.close()
        tagger.wait()
        assert (tagger.returncode, tagger.stderr.read()) == (141, b"")


def test_parquet_that_cannot_be_read_is_named_in_one_line(folder, tmp_path):
    pa, pq = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    path = tmp_path / "a.parquet"
    model = folder / "chunks.kcrf"
    for content, said in (
        (b"nothing", "expected a complete Parquet file"),
        (b"PAR1" + b"\x1b" * 40 + b"PAR1", "a.parquet"),
    ):
        path.write_bytes(content)
        for command in (("tag", model, path), ("evaluate", model, path), ("convert", path, tmp_path / "b.jsonl")):
            line = fails(run(*command))
            assert str(path) in line
            assert said in line
            assert "\x1b" not in line
    for table, said in (
        ({"other\x1b[2J": [1]}, r"the columns are 'other\x1b[2J': expected a column named tokens, features"),
        ({"tokens": [1]}, "row 0: tokens is 1: expected a list with one entry per token"),
        ({"tokens": pa.array([2**31 - 1], pa.date32())}, "expected lists of strings and numbers"),
    ):
        pq.write_table(pa.table(table), path)
        line = fails(run("tag", model, path))
        assert str(path) in line
        assert said in line


def test_conversions_there_and_back(folder, tmp_path):
    assert run("convert", folder / "train.txt", tmp_path / "a.jsonl.gz").exit_code == 0
    assert run("convert", tmp_path / "a.jsonl.gz", tmp_path / "a.parquet").exit_code == 0
    assert run("convert", tmp_path / "a.parquet", tmp_path / "a.txt").exit_code == 0
    assert (tmp_path / "a.txt").read_text() == (folder / "train.txt").read_text().replace(" ", "\t")
    assert run("convert", folder / "train.txt", tmp_path / "a.items").exit_code == 0
    (tmp_path / "t").write_text(default_templates(2).text)
    run("convert", folder / "train.txt", tmp_path / "b.items", "--templates", tmp_path / "t")
    assert (tmp_path / "a.items").read_bytes() == (tmp_path / "b.items").read_bytes()
    C = kernelcrf.load(folder / "chunks.kcrf").C_
    result = run("fit", tmp_path / "a.items", tmp_path / "m.kcrf", "-C", C, "--set", "solver=lbfgs")
    assert result.exit_code == 0
    run("convert", folder / "test.txt", tmp_path / "test.items")
    labels = last_column(run("tag", tmp_path / "m.kcrf", tmp_path / "test.items").stdout)
    assert labels == last_column(run("tag", folder / "chunks.kcrf", folder / "test.txt").stdout)
    piped = run("convert", "-", "-", "--to", "jsonl", "--no-labels", data="a b\n").stdout
    assert json.loads(piped) == {"tokens": [["a", "b"]]}
    for arguments in (("train.txt", "a.npz"), ("train.txt", "-", "--to", "npz")):
        fails(run("convert", folder / arguments[0], arguments[1], *arguments[2:]))


def test_crfsuite_reads_the_same_features(folder, tmp_path):
    """The features of a converted file, given to CRFsuite, and those of the templates are the same model to it."""
    import sklearn_crfsuite

    run("convert", folder / "train.txt", tmp_path / "a.items")
    records, text = list(read(tmp_path / "a.items")), list(read(folder / "train.txt"))
    X, y = default_templates(2).features([one.x for one in text]), [one.labels for one in text]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        ours = sklearn_crfsuite.CRF(max_iterations=20).fit([one.x for one in records], [one.labels for one in records])
        theirs = sklearn_crfsuite.CRF(max_iterations=20).fit(X, y)
    assert ours.state_features_ == theirs.state_features_


@pytest.mark.parametrize("command", COMMANDS)
def test_help_fits_a_screen_and_its_example_runs(folder, tmp_path, monkeypatch, command):
    text = run(command, "--help").stdout
    assert len(text.splitlines()) <= (29 if command == "fit" else 24)
    assert max(map(len, text.splitlines())) <= 80
    (example,) = (line.strip() for line in text.splitlines() if line.strip().startswith("Example: "))
    for name in ("train.txt", "test.txt"):
        # Labels that keep to BIO, which the example of fit asks for.
        rows = [row[:2] for one in read(folder / name) for row in zip(one.tokens, one.labels, strict=True)]
        (tmp_path / name).write_text("".join(f"{word} P {label.replace('I-', 'B-')}\n\n" for word, label in rows))
    (tmp_path / "chunks.kcrf").write_bytes((folder / "chunks.kcrf").read_bytes())
    monkeypatch.chdir(tmp_path)
    name, *arguments = example.removeprefix("Example: ").split(" > ")[0].split()
    result = run(*arguments)
    assert (name, result.exit_code) == ("kernelcrf", 0), result.output


def test_defaults_and_names_of_the_options_are_those_of_the_library():
    defaults = {name: parameter.default for name, parameter in inspect.signature(training.ChainCRF).parameters.items()}
    own = {name: parameter.default for name, parameter in inspect.signature(cli.fit).parameters.items()}
    defaults["random_state"] = own["random_state"]
    shared = defaults.keys() & own.keys()
    assert {"kernel", "C", "gamma", "n_components", "tol", "max_iter", "n_jobs"} < shared
    assert {name: own[name] for name in shared} == {name: defaults[name] for name in shared}
    assert set(cli.KERNELS) == NAMED.keys() - {"polynomial"}


@POSIX
@pytest.mark.parametrize(
    ("words", "expected"),
    [("kernelcrf ev", "evaluate"), ("kernelcrf fit a.txt m.kcrf --constraints BI", "BIO\nBIOES\nBIOUL\nBILOU")],
)
def test_bash_completes_commands_and_names(words, expected):
    asked = {"_KERNELCRF_COMPLETE": "complete_bash", "COMP_WORDS": words, "COMP_CWORD": str(words.count(" "))}
    command = [sys.executable, "-m", "kernelcrf"]
    assert subprocess.run(command, env=ONE_THREAD | asked, capture_output=True, text=True).stdout.strip() == expected


def test_several_files_are_tagged_one_after_the_other_or_to_a_folder(folder, tmp_path):
    model, records = folder / "chunks.kcrf", list(read(folder / "test.txt"))
    packed, lines = tmp_path / "b.txt.gz", tmp_path / "c.jsonl"
    packed.write_bytes(gzip.compress((folder / "train.txt").read_bytes()))
    write(str(lines), records)
    alone = [run("tag", model, path).stdout for path in (folder / "test.txt", packed, lines)]
    assert run("tag", model, folder / "test.txt", packed).stdout == alone[0] + alone[1]
    assert "would mix JSON lines and columns" in fails(run("tag", model, packed, lines))
    result = run("tag", model, folder / "test.txt", packed, lines, "-o", tmp_path / "out" / "new")
    written = [tmp_path / "out" / "new" / name for name in ("test.txt", "b.txt", "c.jsonl")]
    assert result.stdout.splitlines() == [
        f"{path}: {n} sequences" for path, n in zip(written, (40, 60, 40), strict=True)
    ]
    assert [path.read_text() for path in written] == alone
    run("tag", model, lines, folder / "test.txt", "--json", "-o", tmp_path / "out")
    assert [path.name for path in sorted((tmp_path / "out").glob("*.jsonl"))] == ["c.jsonl", "test.jsonl"]
    assert "same output file" in fails(run("tag", model, packed, packed, "-o", tmp_path))
    assert "this is a file: pass a folder" in fails(run("tag", model, packed, "-o", lines))
    assert "standard input has no name" in fails(run("tag", model, "-", "-o", tmp_path))
    assert "this is the same file as the input" in fails(run("tag", model, lines, "-o", tmp_path))
    result = run("tag", model, folder / "test.txt", tmp_path / "nowhere.txt")
    assert "nowhere.txt: No such file" in fails(result)
    assert result.stdout == ""


def test_warnings_of_fit_name_options_of_the_command(tmp_path):
    data = make_sequences(20, random_state=0)
    vectors = (Record("vectors", x * [1, 1e4], y.tolist(), None, "") for x, y in zip(data.X, data.y, strict=True))
    write(tmp_path / "a.npz", vectors)
    options = ("-C", 1, "--n-components", 10, "--max-iter", 1, "--tol", 1e-6)
    hidden, short = run("fit", tmp_path / "a.npz", tmp_path / "m.kcrf", *options).stderr.splitlines()
    assert hidden.endswith(
        "Scale the columns before you write the file. If only the other columns matter, remove these, or pass a number "
        "as --gamma"
    )
    assert re.search(r"status 'max_iter' .*, above --tol 1e-06: pass a larger --max-iter or --tol$", short)
    assert training._for_shell("it ended at C=1e+03; or pass C as a number").endswith("or pass a number as --C")
    assert training._for_shell("may exceed tol=1, so increase tol, or pass float64 inputs") == (
        "may exceed --tol 1, so pass a larger --tol, or vectors of float64"
    )


def test_fit_says_that_C_is_1_if_there_are_too_few_sequences_to_choose_it(tmp_path):
    (tmp_path / "few.txt").write_text("a X\nb Y\n\n" * 4)
    (tmp_path / "five.txt").write_text("a X\nb Y\n\n" * 5)
    (tmp_path / "long.txt").write_text("a X\nb Y\n" * 250)
    reason = "there are fewer than five sequences, too few to hold some out"
    for name in ("few", "five", "long"):
        data, model = tmp_path / f"{name}.txt", tmp_path / f"{name}.kcrf"
        printed = run("fit", data, model).stdout
        run("report", model, data, tmp_path / "r.html")
        texts = printed, run("inspect", model).stdout, (tmp_path / "r.html").read_text()
        assert ["chosen by" in text for text in texts] == [name != "few"] * 3
        assert [reason in text for text in texts] == [name == "few"] * 3
    assert f"; C=1, because {reason}; " in run("fit", tmp_path / "few.txt", tmp_path / "few.kcrf").stdout
    assert f"\nC is 1 because  {reason}\n" in run("inspect", tmp_path / "few.kcrf").stdout
    run("report", tmp_path / "few.kcrf", tmp_path / "few.txt", tmp_path / "r.html")
    assert f"<b>1</b><span>C, because {reason}</span>" in (tmp_path / "r.html").read_text()
    given = run("fit", tmp_path / "few.txt", tmp_path / "few.kcrf", "-C", 1).stdout
    assert reason not in given + run("inspect", tmp_path / "few.kcrf").stdout


def test_the_C_that_was_found_is_shown(tmp_path):
    data = make_sequences(20, random_state=0)
    vectors = (Record("vectors", x, y.tolist(), None, "") for x, y in zip(data.X, data.y, strict=True))
    write(tmp_path / "a.npz", vectors)
    printed = run("fit", tmp_path / "a.npz", tmp_path / "m.kcrf", "-C", "evidence", "--n-components", 10).stdout
    C = kernelcrf.load(tmp_path / "m.kcrf").C_
    assert f'; C={C:.3g}, chosen by evidence (C="evidence"); ' in printed
    shown = run("inspect", tmp_path / "m.kcrf").stdout
    assert f'\nC               {C:,.4g}\nC chosen by     evidence (C="evidence")\n' in shown
    seconds = re.search(r"\nsolver seconds  (\S+)\n", shown)[1]
    assert f" s, {seconds} s of them in the solver of the last fit\n" in printed
    run("report", tmp_path / "m.kcrf", tmp_path / "a.npz", tmp_path / "r.html")
    page = (tmp_path / "r.html").read_text()
    assert f"<b>{seconds}</b><span>solver seconds</span>" in page
    assert f"<b>{C:.3g}</b><span>C, chosen by evidence (C=&quot;evidence&quot;)</span>" in page
    given = run("fit", tmp_path / "a.npz", tmp_path / "m.kcrf", "-C", 2, "--n-components", 10).stdout
    assert "chosen" not in given + run("inspect", tmp_path / "m.kcrf").stdout


def test_help_of_all_names_every_command():
    text = run("--help").stdout
    assert len(text.splitlines()) <= 24
    assert all(f"\n  {command}" in text for command in COMMANDS)
    assert run("--version").stdout == f"kernelcrf {kernelcrf.__version__}\n"


def test_without_typer_the_command_says_what_to_install():
    code = "import sys; sys.modules['typer'] = None; from kernelcrf.cli import main; main()"
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert out.returncode == 1
    assert out.stderr == "error: the command line needs typer, which is not installed: pip install 'kernelcrf[cli]'\n"


def test_the_python_of_the_documents_runs(folder, tmp_path, monkeypatch):
    text = (Path(__file__).parents[2] / "docs" / "cli.md").read_text(encoding="utf-8")
    blocks = re.findall(r"```python\n(.*?)```", text, re.DOTALL)
    assert len(blocks) == 2
    (tmp_path / "train.txt").write_bytes((folder / "train.txt").read_bytes())
    (tmp_path / "train.txt.gz").write_bytes(gzip.compress((folder / "train.txt").read_bytes()))
    monkeypatch.chdir(tmp_path)
    for block in blocks:
        exec(block, {})
    assert [one.labels for one in read("train.jsonl")] == [one.labels for one in read("train.txt")]
    assert run("tag", "chunks.kcrf", "train.txt").exit_code == 0


def test_evaluate_names_labels_that_the_model_does_not_know(folder, tmp_path):
    (tmp_path / "new.txt").write_text("the P B-NP\ndog P B-XX\n\n")
    result = run("evaluate", folder / "chunks.kcrf", tmp_path / "new.txt")
    assert result.exit_code == 0
    assert "labels that the model does not know, left out of the scores of probabilities: B-XX" in result.output


def test_report_explains_the_tokens_that_are_asked_for(folder, tmp_path):
    page = tmp_path / "report.html"
    arguments = ("report", folder / "chunks.kcrf", folder / "test.txt", page, "--explain")
    assert run(*arguments, "0:0").exit_code == 0
    assert page.read_text().startswith("<!DOCTYPE html>")
    wrong = run(*arguments, "zero")
    assert wrong.exit_code == 2
    assert "expected SEQUENCE:TOKEN" in " ".join(wrong.output.replace("│", " ").split())


def test_templates_go_with_text_alone(folder, tmp_path):
    (tmp_path / "t").write_text("U:w=%x[0,0]\n")
    (tmp_path / "a.jsonl").write_text('{"features": [["a"], ["b"]], "labels": ["X", "Y"]}\n' * 2)
    for arguments in (
        ("convert", tmp_path / "a.jsonl", tmp_path / "b.items", "--templates", tmp_path / "t"),
        ("fit", tmp_path / "a.jsonl", tmp_path / "m.kcrf", "--templates", tmp_path / "t"),
    ):
        assert "--templates needs text: omit --templates" in fails(run(*arguments))
    held = fails(run("convert", folder / "test.txt", tmp_path / "b.txt", "--templates", tmp_path / "t"))
    assert "columns files cannot store features, but --templates makes features: omit" in held
    (tmp_path / "t").write_bytes(b"U:w=%x[0,0]\xff\n")
    assert "expected templates as UTF-8 text" in fails(
        run("fit", folder / "train.txt", tmp_path / "m.kcrf", "--templates", tmp_path / "t")
    )
    assert not (tmp_path / "m.kcrf").exists()


def test_text_for_a_model_of_features_is_refused(folder, tmp_path):
    (tmp_path / "a.jsonl").write_text('{"features": [["a"], ["b"]], "labels": ["X", "Y"]}\n' * 2)
    assert run("fit", tmp_path / "a.jsonl", tmp_path / "m.kcrf").exit_code == 0
    (tmp_path / "text.jsonl").write_text('{"tokens": ["a"], "labels": ["X"]}\n')
    assert "the model has no templates for text" in fails(run("tag", tmp_path / "m.kcrf", tmp_path / "text.jsonl"))
    (tmp_path / "wide.jsonl").write_text('{"tokens": [["a", "b", "c"]]}\n')
    (tmp_path / "a.txt").write_text("a X\n")
    line = fails(run("tag", tmp_path / "m.kcrf", tmp_path / "a.txt"))
    assert line.endswith("pass a .jsonl or .items file with the features, as in training")
    assert "tokens have 3 cells: expected 2" in fails(run("tag", folder / "chunks.kcrf", tmp_path / "wide.jsonl"))
    (tmp_path / "bare.jsonl").write_text('{"tokens": [["a", "b"]]}\n')
    assert "expected the true labels" in fails(run("evaluate", folder / "chunks.kcrf", tmp_path / "bare.jsonl"))


def test_conllu_is_fitted_tagged_and_scored(tmp_path):
    rows = [("the", "DET"), ("dog", "NOUN"), ("barks", "VERB")]
    lines = [f"{t}\t{word}\t_\t{tag}\t_\t_\t0\t_\t_\t_" for t, (word, tag) in enumerate(rows, 1)]
    sentence = "\n".join(["# sent_id = 1", lines[0], lines[1].replace("2", "2-3", 1), *lines[1:]]) + "\n\n"
    data, model = tmp_path / "a.conllu", tmp_path / "m.kcrf"
    data.write_text(sentence * 3)
    assert run("fit", data, model, "-C", "10").exit_code == 0
    tagged = run("tag", model, data).stdout.split("\n\n")[0].split("\n")
    assert tagged[0] == "# sent_id = 1"
    assert [line.rsplit("\t", 1)[1] for line in tagged[1:]] == ["DET", "_", "NOUN", "VERB"]
    assert json.loads(run("evaluate", model, data, "--json").stdout)["scores"]["flat_accuracy"]["value"] == 1.0
    data.write_text((sentence * 2).replace("VERB", "I-X"))
    line = fails(run("fit", data, model, "--constraints", "bio"))
    assert "a.conllu, line 2: the label 'DET' does not follow --constraints BIO" in line
    data.write_text(sentence.replace("DET", "O").replace("NOUN", "O").replace("VERB", "I-X"))
    assert "a.conllu, line 5: 'O' -> 'I-X' is not allowed" in fails(run("fit", data, model, "--constraints", "bio"))


@pytest.mark.parametrize("separator", [" ", "\t"])
def test_words_alone_are_tagged_with_the_separator_of_the_training_data(tmp_path, separator):
    (tmp_path / "a.txt").write_text(f"the{separator}DET\ndog{separator}NOUN\n\n" * 2)
    assert run("fit", tmp_path / "a.txt", tmp_path / "m.kcrf", "-C", "10").exit_code == 0
    assert run("tag", tmp_path / "m.kcrf", data="the\ndog\n\n").stdout == f"the{separator}DET\ndog{separator}NOUN\n\n"
    assert "\npasses          " in run("inspect", tmp_path / "m.kcrf").stdout


@pytest.mark.skipif(sys.platform != "linux", reason="/sys is that of Linux")
def test_a_folder_that_cannot_be_written_is_told_before_the_fit(folder, monkeypatch):
    monkeypatch.setattr(training, "read", None)
    message = fails(run("fit", folder / "train.txt", "/sys/m.kcrf"), 1)
    assert message == "error: /sys/m.kcrf: the folder of this file is read-only; choose another folder"


@pytest.mark.skipif(sys.platform != "linux", reason="/dev/fd and /proc are those of Linux")
def test_what_is_no_file_is_told_by_its_own_name(folder, tmp_path, monkeypatch):
    words, model, strange = folder / "train.txt", folder / "chunks.kcrf", "/proc/self/mem"
    unreadable = f"error: {strange}: Input/output error"
    assert fails(run("fit", strange, tmp_path / "m.kcrf", "--format", "columns")) == unreadable
    assert fails(run("convert", strange, tmp_path / "m.jsonl", "--from", "columns")) == unreadable
    assert fails(run("tag", model, strange, "--format", "columns")) == unreadable
    assert fails(run("inspect", strange)) == unreadable
    assert fails(run("fit", words, tmp_path / "m.kcrf", "--templates", strange)) == unreadable
    heard, told = os.pipe()
    monkeypatch.setattr(training, "read", None)
    with open(heard, "rb"), open(told, "wb"):
        message = fails(run("fit", words, f"/dev/fd/{told}"))
    assert message == f"error: /dev/fd/{told}: this is a folder, a device or a pipe; pass the path of a file"


@pytest.mark.parametrize("becomes", ["itself", "an ImportError"])
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_ctrl_c_while_modules_load_is_one_line(number, becomes):
    """The signal comes with the first import of the command; extension modules make an ImportError of it."""
    code = (
        "import os, signal, sys\n"
        "from kernelcrf.cli import main\n"
        "signal.signal(signal.SIGINT, signal.default_int_handler)\n"  # a shell may ignore it for its background
        "class Late:\n"
        "    def find_spec(self, name, *_):\n"
        "        try:\n"
        f"            os.kill(os.getpid(), {int(number)})\n"
        "        except BaseException:\n"
        f"            raise {'' if becomes == 'itself' else 'ImportError from None'}\n"
        "sys.meta_path.insert(0, Late())\n"
        "main()"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True)
    said = b"error: interrupted\n" if number == signal.SIGINT else b""
    assert (done.returncode, done.stderr) == (128 + number, said)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_that_comes_in_a_destructor_is_not_lost(number):
    code = (
        "import os, signal, sys, time\n"
        "from kernelcrf.cli import main\n"
        "signal.signal(signal.SIGINT, signal.default_int_handler)\n"
        "class Gone:\n"
        "    def __del__(self):\n"
        f"        os.kill(os.getpid(), {int(number)})\n"
        "        time.sleep(0.1)\n"
        "class Late:\n"
        "    def find_spec(self, name, *_):\n"
        "        sys.meta_path.remove(self)\n"
        "        Gone()\n"
        "        time.sleep(60)\n"
        "sys.meta_path.insert(0, Late())\n"
        "main()"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, timeout=30)
    said = b"error: interrupted\n" if number == signal.SIGINT else b""
    assert (done.returncode, done.stderr) == (128 + number, said)


def test_a_full_disk_behind_standard_output_is_one_line(folder):
    command = [sys.executable, "-m", "kernelcrf", "inspect", folder / "chunks.kcrf"]
    with open("/dev/full", "wb") as full:
        done = subprocess.run(command, stdout=full, stderr=subprocess.PIPE)
    assert (done.returncode, done.stderr) == (1, b"error: standard output: No space left on device\n")


def test_a_full_disk_behind_tagged_text_is_one_line(folder, monkeypatch, capsys):
    with open("/dev/full", "w") as full, monkeypatch.context() as patch:
        patch.setattr(sys, "stdout", full)
        with pytest.raises(SystemExit, match=r"^1$"):
            app(["tag", str(folder / "chunks.kcrf"), str(folder / "train.txt")])
    assert capsys.readouterr().err == "error: standard output: No space left on device\n"


def test_signals_that_come_after_the_work_change_nothing():
    code = (
        "import atexit, os, signal, sys\n"
        "from kernelcrf.cli import main\n"
        "atexit.register(lambda: [os.kill(os.getpid(), number) for number in (signal.SIGINT, signal.SIGTERM)])\n"
        "sys.argv = ['kernelcrf', '--version']\n"
        "main()"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True)
    assert (done.returncode, done.stderr) == (0, b"")


def test_a_model_is_updated_with_new_sentences(folder):
    old, new = folder / "old.kcrf", folder / "new.kcrf"
    (folder / "patterns.txt").write_text("U:word=%x[0,0]\nU:last=%x[-1,0]\n")
    made = run("fit", folder / "train.txt", old, "--templates", folder / "patterns.txt", "--set", "laplace=diagonal")
    assert made.exit_code == 0, made.output
    result = run("fit", folder / "test.txt", new, "--prior", old, "--set", "laplace=diagonal")
    assert result.exit_code == 0, result.output
    assert "chosen by" not in result.output
    updated, templates = kernelcrf.load(new), Templates(*["U:word=%x[0,0]\nU:last=%x[-1,0]\n", 2, "text"])
    test = list(read(folder / "test.txt"))
    X, y = templates.features([one.x for one in test]), [one.labels for one in test]
    crf = ChainCRF(prior=old, laplace="diagonal", random_state=0).fit(X, y)
    np.testing.assert_array_equal(updated.coef_, crf.coef_)
    assert updated.C_ == kernelcrf.load(old).C_
    assert Templates.of(updated).text == templates.text
    assert json.loads(run("evaluate", new, folder / "test.txt", "--json").stdout)["scores"]["span_f1"]["value"] > 0.5


def test_what_an_update_cannot_be_combined_with(folder):
    for option in ("--dev", "--templates"):
        result = run("fit", folder / "test.txt", folder / "x.kcrf", "--prior", folder / "chunks.kcrf", option, "file")
        assert f"cannot be combined with {option}" in result.stderr
    assert "expected" in fails(run("fit", folder / "test.txt", folder / "x.kcrf", "--prior", folder / "train.txt"))
    ChainCRF("linear").fit([[["a"], ["b"]]], [["B-NP", "O"]]).save(folder / "bare.kcrf")
    result = run("fit", folder / "test.txt", folder / "x.kcrf", "--prior", folder / "bare.kcrf")
    assert "has no templates, but" in result.stderr


def test_f1_decoding_sees_the_whole_file(folder, monkeypatch):
    monkeypatch.setattr("kernelcrf.formats.streams.CHUNK", 200)
    X, y = [[["hi"]]] * 10 + [[["lo"]]] * 10, [["B-X"]] * 13 + [["O"]] * 7
    crf = ChainCRF("linear", C=10.0, decoding="f1").fit(X, y)
    crf.save(folder / "f1.kcrf")
    new = [[["hi"]]] * 60 + [[["lo"]]] * 40
    (folder / "f1.jsonl").write_text("".join(json.dumps({"features": x}) + "\n" for x in new))
    lines = run("tag", folder / "f1.kcrf", folder / "f1.jsonl").stdout.splitlines()
    assert [json.loads(line)["predicted"] for line in lines] == [labels.tolist() for labels in crf.predict(new)]


def test_labels_with_the_same_text_are_refused(folder):
    ChainCRF("linear").fit([[["a"], ["b"]]], [[1, "1"]]).save(folder / "same.kcrf")
    (folder / "same.jsonl").write_text('{"features": [["a"]]}\n')
    assert "have the same text" in fails(run("tag", folder / "same.kcrf", folder / "same.jsonl", "--marginals"))


def test_data_without_spans_are_evaluated(folder):
    ChainCRF("linear", C=10.0).fit([[["a"], ["b"]]] * 3, [["O", "B-X"]] * 3).save(folder / "spans.kcrf")
    (folder / "none.jsonl").write_text('{"features": [["a"]], "labels": ["O"]}\n')
    result = run("evaluate", folder / "spans.kcrf", folder / "none.jsonl")
    assert result.exit_code == 0, result.output


def test_inspect_names_the_intercept(folder):
    X = [np.arange(4.0)[:, None]] * 3
    ChainCRF("rbf", n_components=2, fit_intercept=True, gamma=1.0).fit(X, [[0, 0, 1, 0]] * 3).save(folder / "i.kcrf")
    shown = run("inspect", folder / "i.kcrf").stdout
    assert "intercept" in shown
    assert "-1:-1" not in shown
