"""The tagger opens the golden files of this version, or names what it does not know."""

import json
import re

import numpy as np
import pytest

import golden_models
from kernelcrf import ModelFileError
from kernelcrf.tagger.tagger import Tagger

FOLDER = golden_models.FOLDER / "v3"
PREDICTIONS = json.loads((FOLDER / "predictions.json").read_text(encoding="utf-8"))
REFUSED = {
    "gaussian-process": "the kernel 'Sum'",
    "classifier": "a model of 'KernelClassifier'",
    "graph": "a model of 'GraphCRF'",
    "segments": "a model of 'SegmentCRF'",
    "sets": "a model of 'MultiLabelCRF'",
    "table": "a model of 'MarkovNetwork'",
    "candidates": "a model of 'CandidateCRF'",
    "symmetry": "a label kernel of the kind 'orbits'",
    "label-features": "a label kernel of the kind 'product'",
    "edge": "the parameter edge_kernel of version 0.1",
}


@pytest.mark.parametrize("name", PREDICTIONS)
def test_golden_files_give_their_answers_or_are_refused_by_name(name):
    path = FOLDER / f"{name}.kcrf"
    part = next((text for kind, text in REFUSED.items() if name.partition("-")[0] == kind or name == kind), None)
    if part is not None:
        with pytest.raises(ModelFileError, match=rf"{re.escape(part)}.*kernelcrf\.load"):
            Tagger.open(path)
        return
    tagger, X, known = Tagger.open(path), golden_models.inputs(name), PREDICTIONS[name]
    assert json.loads(json.dumps(tagger.tag_all(X))) == known["labels"]
    # The tagger computes in float64, also where the library computes in float32.
    atol = 1e-6 if name == "single-precision" else 2e-12
    for ours, theirs in zip(tagger.probabilities_all(X), known["proba"], strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=0, atol=atol)


@pytest.mark.parametrize("version", ["v1", "v2"])
def test_files_of_earlier_versions_are_refused_with_advice(version):
    with pytest.raises(
        ModelFileError, match=r"version . of the format: expected 3\. Load the file with kernelcrf\.load and save it"
    ):
        Tagger.open(FOLDER.parent / version / "rbf.kcrf")
