"""The tagger and the library give the same labels, probabilities and spans, for 300 random models of all options."""

import numpy as np
import pytest
from sklearn.pipeline import Pipeline

from kernelcrf import save
from kernelcrf.tagger.tagger import Tagger
from tagger import random_models


@pytest.mark.parametrize("first", range(0, 300, 25))
def test_random_models_have_the_answers_of_the_library(first, tmp_path):
    for seed in range(first, first + 25):
        model, X = random_models.model(seed)
        save(model, tmp_path / "model.kcrf")
        tagger = Tagger.open(tmp_path / "model.kcrf")
        last = model[-1] if isinstance(model, Pipeline) else model
        inner = model[:-1].transform(X) if isinstance(model, Pipeline) else X
        note = f"seed {seed}: {last}"
        assert tagger.classes == last.classes_.tolist(), note
        assert tagger.tag_all(X) == [labels.tolist() for labels in last.predict(inner)], note
        if last.decoding in ("viterbi", "marginal"):
            assert [tagger.tag(x) for x in X] == tagger.tag_all(X), note
        for ours, theirs in zip(tagger.probabilities_all(X), last.predict_proba(inner), strict=True):
            np.testing.assert_allclose(ours, theirs, rtol=0, atol=1e-12, err_msg=note)
        for ours, theirs in zip(tagger.spans_all(X), last.distribution(inner).spans(), strict=True):
            assert [span[:3] for span in ours] == [span[:3] for span in theirs], note
            np.testing.assert_allclose([s[3] for s in ours], [s[3] for s in theirs], atol=1e-12, err_msg=note)


def test_all_options_are_drawn():
    """Every reader, kernel, rule and transformer occurs among the first models."""
    seen = set()
    for seed in range(120):
        model, _ = random_models.model(seed)
        last = model[-1] if isinstance(model, Pipeline) else model
        seen |= {str(last.decoding), str(last.kernel), f"constraints {last.constraints is not None}"}
        seen |= {f"hashed {last.hash_features}", f"edges {last.edge_coef_ is not None}", f"pipe {model is not last}"}
        seen |= {f"inputs {last.inputs is not None}", str(last.label_kernel)[:7], f"boundaries {last.boundaries}"}
    assert {"viterbi", "marginal", "f1", *random_models.KERNELS, "centred", "hashed 64"} <= seen
    assert {f"{name} True" for name in ("constraints", "edges", "pipe", "inputs", "boundaries")} <= seen
