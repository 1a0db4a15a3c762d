"""Links between files of the repository, and what the check of the built site finds."""

import importlib.util
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
MAKE = ROOT / "docs" / "make.py"
FOLDERS = ("", "docs", "docs/guide", "docs/extend", "docs/coming_from", "docs/beside")
PAGES = [page for folder in FOLDERS for page in sorted((ROOT / folder).glob("*.md"))]


def dead_links(folder):
    spec = importlib.util.spec_from_file_location("docs_make", MAKE)
    make = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(make)
    return make.dead_links(folder)


def test_dead_links_are_named_with_their_page(tmp_path):
    (tmp_path / "sub").mkdir()
    (tmp_path / "index.html").write_text('<h1 id="top">.</h1><a href="sub/page.html#here">.</a><a href="#top">.</a>')
    (tmp_path / "sub" / "page.html").write_text(
        '<p id="here">.</p><a href="../index.html">.</a><a href="https://x">.</a>'
    )
    assert dead_links(tmp_path) == []
    (tmp_path / "sub" / "page.html").write_text('<p id="there">.</p><img src="no.png"><a href="../gone.html">.</a>')
    found = ["index.html: sub/page.html#here", "sub/page.html: ../gone.html", "sub/page.html: no.png"]
    assert [entry.replace("\\", "/") for entry in dead_links(tmp_path)] == found


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.relative_to(ROOT).as_posix())
def test_links_of_pages_lead_to_files(page):
    text = re.sub(r"```.*?```", "", page.read_text(encoding="utf-8"), flags=re.DOTALL)
    for link in re.findall(r"\]\((?![a-z]+:)([^)#\s]+)", text):
        target = page.parent / link
        if target.parent.name == "gallery":  # pages that are made of the examples
            target = ROOT / "examples" / ("GALLERY_HEADER.rst" if target.stem == "index" else f"{target.stem}.py")
        assert target.is_file(), link


def anchors(page):
    """The anchors of the headings of a page, and those that it names."""
    text = re.sub(r"```.*?```", "", page.read_text(encoding="utf-8"), flags=re.DOTALL)
    headings = re.findall(r"^#+ (.*)$", text, re.MULTILINE)
    made = {re.sub(r"[^\w\- ]", "", heading.strip().lower()).replace(" ", "-") for heading in headings}
    return made | set(re.findall(r"^\(([\w-]+)\)=", text, re.MULTILINE))


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.relative_to(ROOT).as_posix())
def test_links_to_headings_lead_to_headings(page):
    text = re.sub(r"```.*?```", "", page.read_text(encoding="utf-8"), flags=re.DOTALL)
    for path, anchor in re.findall(r"\]\((?![a-z]+:)([^)#\s]*)#([^)\s]+)\)", text):
        target = page.parent / path if path else page
        if target.suffix == ".md":
            assert anchor in anchors(target), f"{path}#{anchor}"
