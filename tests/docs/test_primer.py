"""The pictures of docs/primer.md are drawn from the models that its examples fit."""

import re

import pytest

from studies import common
from studies.accuracy import primer_pictures


def test_the_script_draws_each_picture_of_the_page(tmp_path, monkeypatch):
    pytest.importorskip("matplotlib", reason="pictures are drawn with matplotlib")
    shown = set(re.findall(r"figures/(\w+\.png)", primer_pictures.PAGE.read_text(encoding="utf-8")))
    assert shown == {path.name for path in common.FIGURES.glob("primer_*.png")}
    monkeypatch.setattr(common, "FIGURES", tmp_path)
    primer_pictures.main([])
    assert {path.name for path in tmp_path.iterdir()} == shown
    assert all(path.read_bytes().startswith(b"\x89PNG") for path in tmp_path.iterdir())
