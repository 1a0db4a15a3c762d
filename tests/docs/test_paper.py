"""docs/paper.md has every statement of the paper, and all names on the pages of the site exist."""

import ast
import importlib
import re
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "paper.md"
BUILT = {"_build", "gallery", "generated"}
PAGES = [page for page in sorted((ROOT / "docs").rglob("*.md")) if not BUILT & set(page.relative_to(ROOT).parts)]
NAME = re.compile(r"`~?(kernelcrf(?:\.\w+)+)`")
TEST = re.compile(r"`(tests/[\w/]+\.py)::(test_\w+)`")
STUDY = re.compile(r"`(studies/[\w/]+\.py)`")

EQUATIONS = {str(k) for k in range(1, 31)} - {"3", "6"} | {"3a", "3b", "6a", "6b"}
STATEMENTS = {
    *("Proposition 1", "Proposition 2", "Proposition 3", "Theorem 4", "Lemma 5", "Lemma 6", "Remark 7", "Corollary 8"),
    *("Lemma 9", "Corollary 10", "Remark 11", "Lemma 12", "Lemma 13", "Figure 1", "Footnote 1"),
}


def rows():
    """The cells of all rows of all tables, without the heads."""
    for line in PAGE.read_text(encoding="utf-8").splitlines():
        cells = [cell.strip() for cell in line.strip("|").split(" | ")]
        if line.startswith("| ") and cells[0] != "paper":
            yield cells


ROWS = list(rows())


def find_module(parts):
    return (ROOT / "src" / Path(*parts).with_suffix(".py")).is_file()


def exists(name):
    """Whether a dotted name is a module, or an attribute of one."""
    parts = name.split(".")
    for k in range(len(parts), 0, -1):
        try:
            found = importlib.import_module(".".join(parts[:k]))
        except ModuleNotFoundError:
            # A module that needs a package of an extra exists, whether the package is installed or not.
            if k == len(parts) and find_module(parts):
                return True
            continue
        for part in parts[k:]:
            if not hasattr(found, part):
                return False
            found = getattr(found, part)
        return True
    return False


@cache
def functions_of(path):
    tree = ast.parse((ROOT / path).read_text(encoding="utf-8"))
    return {node.name for node in tree.body if isinstance(node, ast.FunctionDef)}


def test_every_statement_of_the_paper_has_a_row():
    first = "; ".join(cells[0] for cells in ROWS)
    assert set(re.findall(r"\((\d+[ab]?)\)", first)) == EQUATIONS
    assert set(re.findall(r"[A-Z]\w+ \d+", first)) == STATEMENTS


@pytest.mark.parametrize("cells", ROWS, ids=lambda cells: cells[0])
def test_a_row_names_code_and_a_test_or_says_that_there_is_none(cells):
    _, _, code, test = cells
    assert NAME.search(code) or STUDY.search(code) or "](" in code
    assert test == "not tested" or re.fullmatch(rf"{TEST.pattern}(, {TEST.pattern})*", test)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.relative_to(ROOT / "docs").as_posix())
def test_names_on_a_page_exist(page):
    text = re.sub(r"```.*?```", "", page.read_text(encoding="utf-8"), flags=re.DOTALL)
    assert [name for name in NAME.findall(text) if not exists(name)] == []
    assert [path for path in STUDY.findall(text) if not (ROOT / path).is_file()] == []
    assert [f"{path}::{name}" for path, name in TEST.findall(text) if name not in functions_of(path)] == []
