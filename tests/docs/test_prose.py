"""Sentences of pages, docstrings and messages are short, and docstrings of functions start with a verb."""

import importlib
from pathlib import Path

import pytest

TOOLS = Path(__file__).parents[2] / "tools"


@pytest.fixture
def prose(monkeypatch):
    monkeypatch.syspath_prepend(TOOLS)
    return importlib.import_module("check_prose")


def test_nothing_is_found_in_the_repository(prose):
    found = [f"{path.relative_to(prose.ROOT)}:{finding}" for path in prose.files() for finding in prose.findings(path)]
    assert found == []


@pytest.mark.parametrize("start", ["Of", "What", "Those", "That of", "By"])
def test_a_docstring_that_starts_with_a_fragment_is_found(prose, start, tmp_path):
    (tmp_path / "a.py").write_text(f'def f():\n    """{start} all numbers."""\n\n\nclass A:\n    """Offer that."""\n')
    assert list(prose.findings(tmp_path / "a.py")) == [f"1: starts with a fragment: {start} all numbers."]


def test_the_docstring_of_a_function_starts_with_a_verb(prose, tmp_path):
    text = '"""The text."""\n\n\nclass A:\n    """A thing."""\n\n    def f(self):\n        """The place."""\n'
    (tmp_path / "a.py").write_text(text)
    assert list(prose.findings(tmp_path / "a.py")) == ["7: does not start with a verb: The place."]


LONG = "word " * 20 + "and " + "word " * 20 + "end"
PARTS = {
    "a docstring": f'"""Return {LONG}."""',
    "a message": f'raise ValueError(f"{{x}} {LONG}")',
    "a warning": f'warnings.warn("{LONG}", stacklevel=2)',
    "a parameter": f'def f(x):\n    """Return x.\n\n    x : several words\n        {LONG}.\n    """',
}


@pytest.mark.parametrize("text", PARTS.values(), ids=PARTS)
def test_a_long_sentence_of_a_module_is_found(prose, text, tmp_path):
    (tmp_path / "a.py").write_text(text)
    assert [" words: " in finding for finding in prose.findings(tmp_path / "a.py")] == [True]
    (tmp_path / "a.py").write_text(text.replace("word and", "word. And"))
    assert list(prose.findings(tmp_path / "a.py")) == []


@pytest.mark.parametrize(
    ("text", "count"),
    [
        (f"First. {LONG}. Last.", 1),
        (f"- {LONG}\n- {LONG}\n", 2),
        (f"| a | {LONG} |\n", 1),
        (f"```{{figure}} a.png\n\n{LONG}\n```\n", 1),
        ("\n".join(["- few words in an item"] * 20), 0),
        (f"| {' | '.join(['few words'] * 40)} |\n", 0),
        (f"```python\n{LONG}\n```\n", 0),
        (f"`{LONG}` and ${LONG}$ are [two words](a{'/b' * 50}).", 0),
        (f"{'word ' * 30}(e.g. three).  {'word ' * 30}", 0),
    ],
)
def test_long_sentences_of_a_page_are_counted(prose, text, count, tmp_path):
    (tmp_path / "a.md").write_text(text)
    assert len(list(prose.findings(tmp_path / "a.md"))) == count
