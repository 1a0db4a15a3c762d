"""The wheel of kernelcrf-tagger, built from the checkout and from its own sdist, opens files without the library."""

import json
import subprocess
import sys
import tarfile
import tomllib
import zipfile
from pathlib import Path

import pytest

import golden_models

pytest.importorskip("hatchling")
FOLDER = Path(__file__).parents[2] / "tagger"
BUILD = "import sys; from hatchling import build; build.build_{kind}(sys.argv[1])"
RUN = """
import json, sys
# Neither the library nor what it needs may be there.
sys.modules.update(dict.fromkeys(("kernelcrf", "scipy", "sklearn", "numba")))
from kernelcrf_tagger import ModelFileError, TaggedSpan, Tagger
import kernelcrf_tagger.crfsuite as pycrfsuite
tagger = Tagger.open(sys.argv[1])
sequences = json.loads(sys.argv[2])
assert [pycrfsuite.Tagger().open(sys.argv[1]).tag(x) for x in sequences] == tagger.tag_all(sequences)
spans = [[isinstance(span, TaggedSpan) for span in row] for row in tagger.spans_all(sequences)]
print(json.dumps([tagger.tag_all(sequences), [p.tolist() for p in tagger.probabilities_all(sequences)], spans]))
"""


def built(kind, folder, target):
    """Build a wheel or an sdist, and return its path."""
    subprocess.run([sys.executable, "-c", BUILD.format(kind=kind), str(target)], cwd=folder, check=True)
    (path,) = target.glob("*.whl" if kind == "wheel" else "*.tar.gz")
    return path


@pytest.fixture(scope="module")
def wheel(tmp_path_factory):
    return built("wheel", FOLDER, tmp_path_factory.mktemp("wheel"))


def test_the_wheel_gives_the_answers_of_the_library(wheel, tmp_path):
    name = "dicts-linear"
    known = json.loads((golden_models.FOLDER / "v3" / "predictions.json").read_text(encoding="utf-8"))[name]
    sequences = json.dumps(golden_models.inputs(name))
    zipfile.ZipFile(wheel).extractall(tmp_path)
    (tmp_path / "run.py").write_text(RUN)
    command = [sys.executable, "run.py", str(golden_models.FOLDER / "v3" / f"{name}.kcrf"), sequences]
    out = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=True)
    labels, proba, spans = json.loads(out.stdout)
    assert labels == known["labels"]
    assert all(map(all, spans))
    for ours, theirs in zip(proba, known["proba"], strict=True):
        assert [pytest.approx(row, abs=2e-12) for row in theirs] == ours


def test_a_wheel_from_the_sdist_has_the_same_files(wheel, tmp_path):
    (tmp_path / "sdist").mkdir()
    (tmp_path / "wheel").mkdir()
    sdist = built("sdist", FOLDER, tmp_path / "sdist")
    # Python 3.11 has filters since 3.11.4.
    safe = {"filter": "data"} if hasattr(tarfile, "data_filter") else {}
    with tarfile.open(sdist) as file:
        file.extractall(tmp_path, **safe)
    (unpacked,) = tmp_path.glob("kernelcrf_tagger-*")
    again = built("wheel", unpacked, tmp_path / "wheel")
    files = [{one.filename: one.CRC for one in zipfile.ZipFile(path).infolist()} for path in (wheel, again)]
    records = [name for name in files[0] if name.endswith("RECORD")]
    assert {**files[0], records[0]: 0} == {**files[1], records[0]: 0}
    assert any(name.endswith("LICENSE") for name in files[0])


def test_both_distributions_have_one_version():
    projects = [
        tomllib.loads((folder / "pyproject.toml").read_text(encoding="utf-8"))["project"]
        for folder in (FOLDER, FOLDER.parent)
    ]
    assert projects[0]["version"] == projects[1]["version"]
    assert projects[0]["requires-python"] == projects[1]["requires-python"]
    # The lower bounds of what both need are the same.
    assert set(projects[0]["dependencies"]) <= set(projects[1]["dependencies"])
