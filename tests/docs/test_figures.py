"""Figures in the documentation are printed by studies, or by code on the same page."""

import re
from functools import cache
from pathlib import Path

import pytest

from studies import pages, readme
from studies.reliability import drop_in
from studies.speed import cluster_model

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
PRINTED = {DOCS / page for page in (*pages.printed(), "scaling.md", "guide/parsers.md")}
BUILT = {"_build", "gallery", "generated"}
SITE = sorted(page for page in DOCS.rglob("*.md") if not BUILT & set(page.relative_to(DOCS).parts))
NUMBER = re.compile(r"(?<![\w.])\d[\d,]*(?:\.\d+)?(?=x\b|\W)")
# A figure is a number with a unit that only a measurement can give.
FIGURE = re.compile(r"(?<![\w.])(\d[\d,]*(?:\.\d+)?) ?(?:%|times\b|seconds\b|s\b|minutes\b|MB\b|GB\b|points\b)")
CODE = re.compile(r"```.*?```", re.DOTALL)
# `python -m studies pages` writes the parts of the README between its marks; test_readme.py checks its picture.
NOT_PROSE = re.compile(
    r"!\[.*?\]|<!-- [a-z]+, by.*?<!-- end|```.*?```|`[^`]*`|\$\$.*?\$\$|\$[^$]*\$|\]\([^)]*\)", re.DOTALL
)
# A paragraph, item or row that links to pages with results takes its figures from these pages.
PARAGRAPHS = re.compile(r"\n\n|\n(?=- |\|)")
LINK = re.compile(r"\]\(([^)#]+\.md)")
# Figures that other tests print or that were published elsewhere, with the place where they are checked.
CHECKED = {
    "6.16": "an earlier trial of CRFsuite on AnyStyle's references, with lists of keywords that the data lack",
    "99.9": "tests/crfsuite: predictions of both libraries on WNUT-17",
    "86.2": "tests/docs/test_coming_from.py: the law of a hidden Markov model",
    "88": "tests/docs/test_coming_from.py: hidden states that both libraries find",
    "99.7": "tests/crfsuite/test_estimator.py: both libraries on 200 sentences of CoNLL-2000",
}


def plain(number):
    return number.replace(",", "")


@cache
def printed_numbers(page):
    return {plain(n) for n in NUMBER.findall(page.read_text(encoding="utf-8"))}


@pytest.mark.parametrize(
    "page",
    [*(page for page in SITE if page not in PRINTED), ROOT / "README.md"],
    ids=lambda page: page.relative_to(ROOT).as_posix(),
)
def test_figures_are_printed_somewhere(page):
    text = page.read_text(encoding="utf-8")
    own = {plain(n) for block in CODE.findall(text) for n in NUMBER.findall(block)}
    for paragraph in PARAGRAPHS.split(CODE.sub("", text)):
        linked = {(page.parent / link).resolve() for link in LINK.findall(paragraph)} & PRINTED
        printed = {n for one in linked or PRINTED for n in printed_numbers(one)}
        found = {plain(n) for n in FIGURE.findall(NOT_PROSE.sub("", paragraph))}
        assert found - printed - own - set(CHECKED) == set(), paragraph


def test_the_pages_of_results_are_those_on_file(monkeypatch, tmp_path):
    before = {page: page.read_text(encoding="utf-8") for page in (*PRINTED, *readme.PAGES)}
    copies = {page: tmp_path / page.relative_to(ROOT) for page in before}
    for page, text in before.items():
        copies[page].parent.mkdir(parents=True, exist_ok=True)
        copies[page].write_text(text.replace("handwritten letters", "printed letters"), encoding="utf-8")
    monkeypatch.setattr(pages, "DOCS", tmp_path / "docs")
    monkeypatch.setattr(cluster_model, "PAGE", copies[DOCS / "scaling.md"])
    monkeypatch.setattr(drop_in, "PAGE", copies[DOCS / "guide" / "parsers.md"])
    monkeypatch.setattr(readme, "PAGES", {copies[page]: blocks for page, blocks in readme.PAGES.items()})
    pages.write()
    for page, text in before.items():
        assert copies[page].read_text(encoding="utf-8") == text, page.name
