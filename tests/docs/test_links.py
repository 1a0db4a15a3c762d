"""What the check of the built site finds."""

import importlib.util
from pathlib import Path

MAKE = Path(__file__).parents[2] / "docs" / "make.py"


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
