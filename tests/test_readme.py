import doctest
import re
from pathlib import Path

import pytest

from kernelcrf.datasets import make_sequences
from studies.accuracy import pictures

ROOT = Path(__file__).parent.parent


@pytest.mark.parametrize("page", ["README.md"])
def test_the_examples_print_what_they_say(page, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    failures, examples = doctest.testfile(str(ROOT / page), module_relative=False, encoding="utf-8")
    assert examples > 0
    assert failures == 0


def test_the_text_of_the_cover_has_the_accuracies_of_its_models():
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    described = re.search(r"!\[(.*)\]\(docs/figures/cover.png\)", text)[1]
    train, test = make_sequences(200, random_state=0), make_sequences(200, random_state=1)
    found = [model.fit(train.X, train.y).score(test.X, test.y) for model in pictures.models()]
    assert re.findall(r"(\d+) %", described) == [f"{100 * accuracy:.0f}" for accuracy in found]
