"""docs/guide/projects.md: each project runs from its page alone, on the first sequences of public data."""

import gzip
import os
import re
import shlex
import subprocess
import sys
from functools import partial
from itertools import groupby
from pathlib import Path

import pytest
from typer.testing import CliRunner

import kernelcrf
from kernelcrf.cli.app import app
from kernelcrf.formats import read

PAGE = Path(__file__).parents[2] / "docs" / "guide" / "projects.md"
ENTITIES = {"train": 80, "dev": 40, "test": 40}


def blocks(title, language):
    """The code under a heading of the page, as one text."""
    section = re.split(r"^## ", PAGE.read_text(encoding="utf-8").split(f"\n## {title}\n")[1], flags=re.MULTILINE)[0]
    return "\n".join(re.findall(rf"```{language}\n(.*?)```", section, re.DOTALL))


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("MPLBACKEND", "agg")
    return tmp_path


@pytest.fixture
def entities(folder, data_folder):
    for part, n_sentences in ENTITIES.items():
        text = gzip.decompress((data_folder / "wnut17_ner" / f"{part}.txt.gz").read_bytes()).decode("utf-8")
        sentences = text.split("\n\n")[:n_sentences]
        (folder / f"{part}.txt").write_text("\n\n".join(sentences) + "\n", encoding="utf-8")
    return folder


def test_a_project_with_sklearn_crfsuite(entities, capsys):
    exec(compile(blocks("A project with sklearn-crfsuite", "python"), str(PAGE), "exec"), {})
    printed = capsys.readouterr().out
    assert ", optimal, F1 = 0." in printed
    assert "micro avg" in printed
    assert re.search(r"B-person\s+\S+\s+\d", printed)
    assert (entities / "entities.kcrf").stat().st_size > 0


def test_sensors_in_a_data_frame(folder, data_folder, capsys):
    pytest.importorskip("matplotlib")
    header, *rows = (
        gzip.decompress((data_folder / "batteryless_activity" / "S1.csv.gz").read_bytes()).decode().splitlines()
    )
    trials = [list(own) for _, own in groupby(rows, key=lambda row: row.split(",")[0])]
    short = [row for trial in trials if len(trial) < 80 for row in trial]
    (folder / "recordings.csv").write_text("\n".join([header, *short]), encoding="utf-8")
    exec(compile(blocks("Sensors in a data frame", "python"), str(PAGE), "exec"), {})
    printed = capsys.readouterr().out
    assert float(re.search(r"([\d.]+) of the test measurements", printed)[1]) > 0.8
    assert "acc_vertical" in printed
    assert (folder / "recording.png").read_bytes().startswith(b"\x89PNG")


def test_text_files_in_the_shell(entities):
    """The command runs in this process, because each process that loads scikit-learn takes seconds to start."""
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
    shell = partial(subprocess.run, env=os.environ | {"PATH": path}, capture_output=True, text=True, check=True)
    assert shell(["bash", "-c", "kernelcrf --version"]).stdout == f"kernelcrf {kernelcrf.__version__}\n"
    printed = ""
    for line in filter(None, blocks("Text files in the shell", "bash").splitlines()):
        command, _, target = line.partition(" > ")
        program, *arguments = shlex.split(command)
        if program == "kernelcrf":
            done = CliRunner().invoke(app, arguments, catch_exceptions=False)
            assert done.exit_code == 0, done.output
            printed += done.stdout
            if target:
                (entities / target).write_text(done.stdout, encoding="utf-8")
        else:
            shell(["bash", "-c", line])
    assert "F1" in printed
    assert "<html" in (entities / "report.html").read_text(encoding="utf-8")
    tagged, words = (list(read(entities / name)) for name in ("tagged.txt", "test.txt"))
    assert [[cells[0] for cells in one.x] for one in tagged] == [[cells[0] for cells in one.x] for one in words]
    labels = {label for one in tagged for label in one.labels}
    assert labels <= set(kernelcrf.load("entities.kcrf").classes_)
