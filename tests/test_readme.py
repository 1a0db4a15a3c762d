import doctest
from pathlib import Path


def test_the_examples_of_the_readme_print_what_they_say(tmp_path, monkeypatch):
    readme = Path(__file__).parent.parent / "README.md"
    monkeypatch.chdir(tmp_path)
    failures, examples = doctest.testfile(str(readme), module_relative=False)
    assert examples > 0
    assert failures == 0
