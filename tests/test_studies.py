"""`python -m studies` knows every study, and every result on file belongs to one."""

import pytest

from studies import __main__ as command
from studies.common import ROOT

NAMES = [name for group in command.STUDIES for name in command.names(group)]


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
