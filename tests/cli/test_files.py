"""Files and terminals: no input is overwritten, and nothing that a file holds acts on the terminal."""

import json
import os
import subprocess
import sys

import numpy as np
import pytest
from safetensors.numpy import save_file
from typer.testing import CliRunner

from kernelcrf import ChainCRF
from kernelcrf.cli.app import app
from kernelcrf.formats import Record, Templates, write

# An escape sequence, the title of a window, a bell, ends of lines, a tab, C1 controls, a direction mark.
HOSTILE = ["\x1b[2Jx", "\x1b]0;title\x07", "a\nb", "a\tb", "\x9b31m", "\u202egnp", "\u2028", "\\n"]
ACTIVE = {character for label in HOSTILE for character in label if not character.isprintable()}


def run(*arguments, data=None):
    return CliRunner().invoke(app, list(map(str, arguments)), input=data, catch_exceptions=False)


def fails(result):
    """Return the one line of a command that failed."""
    assert result.exit_code == 1, result.output
    (line,) = result.stderr.splitlines()
    assert line.startswith("error: ")
    return line


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A model of text, and one whose labels and features hold what acts on terminals."""
    path = tmp_path_factory.mktemp("files")
    (path / "train.txt").write_text("a X\nb Y\n\nb Y\n\na X\n")
    (path / "templates").write_text("U:%x[0,0]\n")
    assert run("fit", path / "train.txt", path / "m.kcrf", "--templates", path / "templates").exit_code == 0
    templates = Templates("U:%x[0,0]\n#\x1b[1m", 1)
    X = templates.features([[[label] for label in HOSTILE]])
    model = ChainCRF("linear", C=1.0).fit(X, [HOSTILE])
    templates.attach(model)
    model.save(path / "hostile.kcrf")
    write(path / "hostile.jsonl", [Record("text", [[word] for word in HOSTILE], HOSTILE, HOSTILE, "here")])
    return path


@pytest.fixture
def copies(folder, tmp_path):
    for name in ("train.txt", "m.kcrf", "templates"):
        (tmp_path / name).write_bytes((folder / name).read_bytes())
    (tmp_path / "symbolic").symlink_to(tmp_path / "train.txt")
    os.link(tmp_path / "train.txt", tmp_path / "hard")
    (tmp_path / "there").mkdir()
    return tmp_path


@pytest.mark.parametrize(
    "arguments",
    [
        ("fit", "train.txt", "train.txt"),
        ("fit", "train.txt", "there/../train.txt"),
        ("fit", "train.txt", "symbolic"),
        ("fit", "hard", "train.txt", "--format", "columns"),
        ("fit", "train.txt", "templates", "--templates", "templates"),
        ("convert", "train.txt", "train.txt"),
        ("convert", "symbolic", "train.txt", "--from", "columns", "--to", "jsonl"),
        ("convert", "train.txt", "templates", "--templates", "templates", "--to", "jsonl"),
        ("report", "m.kcrf", "train.txt", "m.kcrf"),
        ("report", "m.kcrf", "train.txt", "train.txt"),
        ("report", "m.kcrf", "train.txt", "hard", "--train", "train.txt"),
    ],
)
def test_no_command_overwrites_what_it_reads(copies, monkeypatch, arguments):
    monkeypatch.chdir(copies)
    before = {path.name: path.read_bytes() for path in copies.iterdir() if path.is_file()}
    assert "is the same file as the input" in fails(run(*arguments))
    assert {path.name: path.read_bytes() for path in copies.iterdir() if path.is_file()} == before


def test_only_models_and_reports_are_replaced(copies, monkeypatch):
    monkeypatch.chdir(copies)
    fit, report = ("fit", "train.txt"), ("report", "m.kcrf", "train.txt")
    (copies / "notes.jsonl").write_text('{"tokens": ["kernelcrf"], "labels": ["X"]}')
    save_file({"a": np.ones(3)}, "other.safetensors")
    (copies / "empty").touch()
    for command, targets, kind in (
        (fit, ("templates", "notes.jsonl", "other.safetensors"), "a model"),
        (report, ("templates", "notes.jsonl", "other.safetensors"), "HTML"),
    ):
        for target in targets:
            before = (copies / target).read_bytes()
            line = fails(run(*command, target))
            assert f"{target}: this file exists and is not {kind}, so it is not overwritten: pass another name" in line
            assert (copies / target).read_bytes() == before
    for arguments in ((*fit, "m.kcrf"), (*fit, "empty"), (*report, "a.html"), (*report, "a.html")):
        assert run(*arguments).exit_code == 0
    assert "is not HTML" in fails(run(*report, "empty"))
    assert "is not a model" in fails(run(*fit, "a.html"))


def test_convert_and_tag_replace_no_file_with_content(copies, monkeypatch):
    monkeypatch.chdir(copies)
    (copies / "there" / "empty.txt").touch()
    (copies / "there" / "train.txt").write_text("kept\n")
    (copies / "empty.txt").write_bytes((copies / "train.txt").read_bytes())
    for arguments in (
        ("convert", "train.txt", "there/train.txt"),
        ("convert", "train.txt", "there/train.txt", "--to", "jsonl"),
        ("tag", "m.kcrf", "train.txt", "-o", "there"),
        ("tag", "m.kcrf", "empty.txt", "train.txt", "-o", "there"),
    ):
        line = fails(run(*arguments))
        assert "train.txt: this file exists, so it is not overwritten: pass another name for the output, or" in line
        assert (copies / "there" / "train.txt").read_text() == "kept\n"
        assert (copies / "there" / "empty.txt").read_text() == ""
    assert run("tag", "m.kcrf", "empty.txt", "-o", "there").exit_code == 0
    (copies / "there" / "train.txt").unlink()
    assert run("convert", "train.txt", "there/train.txt").exit_code == 0


def test_files_of_the_shell_are_not_overwritten_either(copies, monkeypatch, capsys):
    """`convert - train.txt < train.txt`, and `tag m.kcrf train.txt >> train.txt`, which would never end."""
    monkeypatch.chdir(copies)
    before = (copies / "train.txt").read_bytes()
    for arguments, stdin, stdout in [
        (["convert", "-", "train.txt", "--from", "columns"], "train.txt", "out"),
        (["tag", "m.kcrf", "train.txt"], os.devnull, "train.txt"),
    ]:
        with open(stdin) as source, open(stdout, "a") as target, monkeypatch.context() as patch:
            patch.setattr(sys, "stdin", source)
            patch.setattr(sys, "stdout", target)
            with pytest.raises(SystemExit, match=r"^1$"):
                app(arguments)
        assert "is the same file as the input" in capsys.readouterr().err
        assert (copies / "train.txt").read_bytes() == before


def test_another_file_of_the_same_content_is_written(copies, monkeypatch):
    monkeypatch.chdir(copies)
    assert run("convert", "train.txt", "there/train.txt").exit_code == 0
    assert run("convert", "-", "there/a.jsonl", data=(copies / "train.txt").read_text()).exit_code == 0


@pytest.mark.parametrize("command", [["inspect"], ["inspect", "--json"], ["evaluate"], ["evaluate", "--json"], ["tag"]])
def test_what_labels_and_features_hold_is_escaped(folder, command):
    arguments = [] if command[0] == "inspect" else [folder / "hostile.jsonl"]
    result = run(command[0], folder / "hostile.kcrf", *arguments, *command[1:])
    assert result.exit_code == 0, result.output
    assert not set(result.stdout) & (ACTIVE - {"\n"})
    assert "1b[2Jx" in result.stdout or command == ["evaluate", "--json"]
    if command[-1] != "--json" and command != ["tag"]:
        assert r"\x1b]0;title\x07" in result.stdout
        assert r"\u202egnp" in result.stdout
        assert r"a\nb" in result.stdout


def test_tagged_json_says_the_label_as_it_is(folder):
    found = json.loads(run("tag", folder / "hostile.kcrf", folder / "hostile.jsonl").stdout)
    assert found["predicted"] == found["tokens"] == HOSTILE


def test_a_label_that_cannot_be_a_cell_is_refused_by_columns(folder, tmp_path):
    for word in ("a\nb", "a\tb"):
        write(tmp_path / "a.jsonl", [Record("text", [["x"], [word]], None, ["x", word], "here")])
        result = run("tag", folder / "hostile.kcrf", tmp_path / "a.jsonl", "--json")
        assert json.loads(result.stdout)["predicted"][1] == word
    blank = ChainCRF("linear", C=1.0).fit([[["w=x"], ["w=y"]]], [["New York", "O"]])
    Templates("U:%x[0,0]", 1).attach(blank)
    blank.save(tmp_path / "m.kcrf")
    (tmp_path / "a.txt").write_text("x A\ny B\n")
    assert "a.txt, line 1: 'New York' cannot be written as a cell" in fails(
        run("tag", tmp_path / "m.kcrf", tmp_path / "a.txt")
    )
    (tmp_path / "a.txt").write_text("x\tA\ny\tB\n")
    assert "\tNew York\n" in run("tag", tmp_path / "m.kcrf", tmp_path / "a.txt").stdout
    (tmp_path / "a.txt").write_text("a\n")
    lines = ChainCRF("linear", C=1.0).fit([[["U:a"], ["U:b"]]], [["X\nY", "O"]])
    Templates("U:%x[0,0]", 1).attach(lines)
    lines.save(tmp_path / "m.kcrf")
    assert "cannot be written as a cell" in fails(run("tag", tmp_path / "m.kcrf", tmp_path / "a.txt"))


@pytest.mark.skipif(sys.platform == "win32", reason="terminals are those of POSIX")
def test_columns_on_a_terminal_are_escaped_and_in_a_pipe_are_not(tmp_path, monkeypatch):
    model = ChainCRF("linear", C=1.0).fit([[["U:a"], ["U:b"]]], [["\x1b[2J", "O"]])
    Templates("U:%x[0,0]", 1).attach(model)
    model.save(tmp_path / "m.kcrf")
    (tmp_path / "a.txt").write_text("a\n")
    arguments = ["tag", str(tmp_path / "m.kcrf"), str(tmp_path / "a.txt")]
    own, theirs = os.openpty()
    piped, into = os.pipe()
    for end, expected in ((theirs, ["a", r"\x1b[2J"]), (into, ["a", "\x1b[2J"])):
        with open(end, "w") as stream, monkeypatch.context() as patch:
            patch.setattr(sys, "stdout", stream)
            with pytest.raises(SystemExit, match=r"^0$"):
                app(arguments)
            with open(own if end == theirs else piped, "rb", buffering=0) as source:
                assert source.read(1000).decode().split() == expected


def test_names_of_files_are_escaped_in_errors(tmp_path):
    line = fails(run("inspect", tmp_path / "m\x1b[2J.kcrf"))
    assert r"m\x1b[2J.kcrf" in line
    (tmp_path / "m\x07.txt").write_text("a\n")
    assert r"m\x07.txt, line 1" in fails(run("fit", tmp_path / "m\x07.txt", tmp_path / "m.kcrf"))


def test_labels_that_the_model_does_not_know_have_no_scores_of_probabilities(folder, tmp_path):
    (tmp_path / "new.txt").write_text("a P\nb Q\n")
    printed = run("evaluate", folder / "m.kcrf", tmp_path / "new.txt").stdout
    assert "log-loss" not in printed.lower()
    assert "labels that the model does not know, left out of the scores of probabilities: P, Q" in printed
    assert "the model knows no label of the data" in printed
    found = json.loads(run("evaluate", folder / "m.kcrf", tmp_path / "new.txt", "--json").stdout)
    assert sorted(found["scores"]) == ["flat_accuracy", "sequence_accuracy"]
    assert found["scores"]["flat_accuracy"]["value"] == 0
    assert found["unknown_labels"] == ["P", "Q"]


FIT_IN_300_MB = """
import resource, sys
from typer.testing import CliRunner
from kernelcrf.cli.app import app
import kernelcrf.cli.training
pages = int(open("/proc/self/statm").read().split()[0])
resource.setrlimit(resource.RLIMIT_AS, (pages * resource.getpagesize() + (300 << 20),) * 2)
for name in sys.argv[2:]:
    print(CliRunner().invoke(app, ["fit", name, sys.argv[1]]).output)
"""


def test_tokens_of_many_columns_are_refused_in_little_memory(tmp_path):
    """80,000 columns took 2.75 GB."""
    (tmp_path / "wide.txt").write_text("a " * 80_000 + "X\n" + "b " * 80_000 + "Y\n")
    (tmp_path / "later.txt").write_text("a X\n" + "b\t" * 20_000_000 + "Y\n")
    (tmp_path / "wide.jsonl").write_text(json.dumps({"tokens": [["a"] * 80_000], "labels": ["X"]}) + "\n")
    paths = [str(tmp_path / name) for name in ("m.kcrf", "wide.txt", "later.txt", "wide.jsonl")]
    done = subprocess.run([sys.executable, "-c", FIT_IN_300_MB, *paths], capture_output=True, text=True, check=False)
    lines = [line for line in done.stdout.splitlines() if line]
    assert len(lines) == 3, done.stderr[-300:]
    assert "wide.txt, line 1: the line has 80,001 cells: expected at most 1,000" in lines[0]
    assert "later.txt, line 2: " in lines[1]
    assert "wide.jsonl, line 1: tokens have 80,000 cells: expected at most 1,000" in lines[2]
