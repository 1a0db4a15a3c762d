"""The tagger and the library give the same labels, probabilities and spans, for 300 random models of all options."""

import numpy as np
import pytest
from sklearn.pipeline import Pipeline

from kernelcrf import save
from kernelcrf.answers.expected_costs import costs_of_labels
from kernelcrf.decoding import ExpectedCost, ExpectedSpanCost, find_rule
from kernelcrf.tagger.tagger import Tagger
from tagger import random_models

TIE = 1e-9


def parts(model):
    """The function that transforms inputs, and the estimator."""
    return (model[:-1].transform, model[-1]) if isinstance(model, Pipeline) else (list, model)


def tied(crf, x, ours, theirs):
    """Whether two labellings of a sequence are equally good by the rule of the model, up to rounding."""
    if crf.decoding == "marginal" or (crf.decoding == "auto" and crf.distribution([x]).scores_tokens_alone):
        p, index = crf.predict_proba([x])[0], {label: k for k, label in enumerate(crf.classes_.tolist())}
        both = [[p[t, index[label]] for t, label in enumerate(labels)] for labels in (ours, theirs)]
    elif isinstance(crf.decoding, ExpectedCost):
        classes = crf.classes_.tolist()
        index = {label: k for k, label in enumerate(classes)}
        risks = crf.predict_proba([x])[0] @ costs_of_labels(crf.decoding.costs, crf.decoding.classes, classes)
        both = [sum(risks[t, index[label]] for t, label in enumerate(labels)) for labels in (ours, theirs)]
    else:
        both = [crf.log_prob([x], [labels]) for labels in (ours, theirs)]
    return np.allclose(*both, rtol=0, atol=TIE)


@pytest.mark.few(5)
@pytest.mark.parametrize("first", range(0, 300, 25))
def test_random_models_have_the_answers_of_the_library(first, tmp_path):
    for seed in range(first, first + 25):
        model, X = random_models.model(seed)
        save(model, tmp_path / "model.kcrf")
        tagger = Tagger.open(tmp_path / "model.kcrf")
        transform, crf = parts(model)
        inner, note = transform(X), f"seed {seed}: {crf}"
        assert tagger.classes == crf.classes_.tolist(), note
        labels, known = tagger.tag_all(X), [one.tolist() for one in crf.predict(inner)]
        differ = [i for i, (ours, theirs) in enumerate(zip(labels, known, strict=True)) if ours != theirs]
        assert all(tied(crf, inner[i], labels[i], known[i]) for i in differ), note
        if crf.decoding in ("auto", "viterbi", "marginal") or isinstance(crf.decoding, ExpectedCost | ExpectedSpanCost):
            assert [tagger.tag(x) for x in X] == labels, note
        for ours, theirs in zip(tagger.probabilities_all(X), crf.predict_proba(inner), strict=True):
            np.testing.assert_allclose(ours, theirs, rtol=0, atol=1e-12, err_msg=note)
        if differ:
            continue
        for ours, theirs in zip(tagger.spans_all(X), crf.distribution(inner).spans(), strict=True):
            assert [span[:3] for span in ours] == [span[:3] for span in theirs], note
            np.testing.assert_allclose([s[3] for s in ours], [s[3] for s in theirs], atol=1e-12, err_msg=note)


def test_all_options_are_drawn():
    """Every reader, kernel, rule and transformer occurs among the first models."""
    seen = set()
    for seed in range(90):
        crf = parts(random_models.model(seed)[0])[1]
        seen |= {find_rule(crf.decoding).name, str(crf.kernel), f"constraints {crf.constraints is not None}"}
        seen |= {f"hashed {crf.hash_features}", f"edges {crf.edge_coef_ is not None}", str(crf.label_kernel)[:7]}
        seen |= {f"inputs {crf.inputs is not None}", str(crf.fit_intercept)}
        seen |= {one.scores for one in (crf.inputs or {}).values()}
    assert {
        "viterbi",
        "marginal",
        "f1",
        "cost",
        "span_cost",
        *random_models.KERNELS,
        *random_models.SCORES,
        "centred",
        "hashed 64",
    } <= seen
    assert {"boundaries", *(f"{name} True" for name in ("constraints", "edges", "inputs"))} <= seen
