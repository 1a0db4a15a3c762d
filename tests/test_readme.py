import doctest
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent


@pytest.mark.parametrize("page", ["README.md"])
def test_the_examples_print_what_they_say(page, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    failures, examples = doctest.testfile(str(ROOT / page), module_relative=False, encoding="utf-8")
    assert examples > 0
    assert failures == 0
