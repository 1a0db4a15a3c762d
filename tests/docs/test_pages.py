"""The code on the pages of the site prints what they say."""

import doctest
from pathlib import Path

import pytest

DOCS = Path(__file__).parents[2] / "docs"
BUILT = ("_build", "gallery", "generated")
ELSEWHERE = "coming_from/crfsuite.md"  # test_coming_from.py runs this page, beside the code of the other library
PAGES = sorted(
    page.relative_to(DOCS).as_posix()
    for page in (*DOCS.rglob("*.md"), *DOCS.rglob("*.rst"))
    if not set(page.relative_to(DOCS).parts) & set(BUILT) and ">>> " in page.read_text(encoding="utf-8")
    if page != DOCS / ELSEWHERE
)


@pytest.mark.parametrize("page", PAGES)
def test_the_examples_print_what_they_say(page, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("MPLBACKEND", "agg")
    failures, examples = doctest.testfile(str(DOCS / page), module_relative=False, encoding="utf-8")
    assert examples > 0
    assert failures == 0
