"""`python -m studies` knows every study, and every result on file belongs to one."""

import subprocess
import sys

import pytest

from studies import __main__ as command
from studies import catalogue, common, runs
from studies.common import ROOT

NAMES = [name for group in catalogue.SUBJECTS for name in catalogue.names(group)]


def test_the_command_lists_all_studies(monkeypatch, capsys):
    monkeypatch.setattr("sys.argv", ["studies"])
    command.main()
    listed = capsys.readouterr().out.splitlines()
    for name in NAMES:
        assert any(line.split()[:1] == [name] and len(line.split()) > 3 for line in listed), name


def test_results_on_file_belong_to_studies():
    files = (ROOT / "studies").glob("*/results/*.json")
    assert {f"{path.parts[-3]}.{path.stem}" for path in files} <= set(NAMES)


def test_an_unknown_study_is_named(monkeypatch):
    monkeypatch.setattr("sys.argv", ["studies", "speed.nothing"])
    with pytest.raises(SystemExit, match=r"'speed\.nothing' is not a study"):
        command.main()


def test_a_run_skips_what_is_current_and_names_what_failed(monkeypatch, tmp_path, capsys):
    monkeypatch.setattr(runs, "LOG", tmp_path / "run.log")
    monkeypatch.setattr(runs, "is_current", lambda name: name == "accuracy.current")
    codes = {"accuracy.good": 0, "speed.bad": 3}
    monkeypatch.setattr(
        runs, "start", lambda name: subprocess.Popen([sys.executable, "-c", f"raise SystemExit({codes[name]})"])
    )
    assert runs.run_all(["speed.bad", "accuracy.current", "accuracy.good"], processes=2) == ["speed.bad"]
    lines = (tmp_path / "run.log").read_text(encoding="utf-8").splitlines()
    assert [line.split()[1:3] for line in lines[1:]] == [
        ["accuracy.good", "started;"],
        ["accuracy.good", "done"],
        ["speed.bad", "started;"],
        ["speed.bad", "FAILED"],
    ]


def test_the_code_of_a_result_ignores_docstrings(monkeypatch, tmp_path):
    monkeypatch.setattr(common, "source", lambda: tmp_path)
    monkeypatch.setattr(common, "code", common.code.__wrapped__)  # without its cache

    def code(text):
        (tmp_path / "module.py").write_text(text, encoding="utf-8")
        return common.code()

    first = code('def f():\n    """Return 1."""\n    return 1\n')
    assert code('def f():\n    """Return one."""\n    return 1  # always\n') == first
    assert code("def f():\n    return 2\n") != first


def test_parts_of_a_study_are_kept_with_their_seconds(monkeypatch, tmp_path):
    monkeypatch.setenv("KERNELCRF_CACHE", str(tmp_path))
    monkeypatch.setattr(common, "SECONDS_KEPT", [])
    assert common.kept("part", lambda: 1) == 1
    assert common.SECONDS_KEPT == []
    assert common.kept("part", lambda: 2) == 1
    assert common.SECONDS_KEPT == []
    monkeypatch.setattr(common, "STARTED", common.STARTED + 1e9)  # as if another run had left it
    assert common.kept("part", lambda: 2) == 1
    assert len(common.SECONDS_KEPT) == 1
