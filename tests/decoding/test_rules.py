"""Decoding rules are objects or names, validated by what they need and stored by their parameters."""

from dataclasses import dataclass

import numpy as np
import pytest
import scipy.sparse as sp

from kernelcrf import ChainCRF, GraphCRF, Input, MultiLabelCRF, SegmentCRF, load
from kernelcrf.decoding import (
    RULES,
    DecodingRule,
    ExpectedCost,
    ExpectedF1,
    ExpectedSpanCost,
    Marginal,
    Viterbi,
    rules_for,
)
from kernelcrf.distributions import ChainDistribution, LabelSetDistribution, SegmentDistribution

RNG = np.random.default_rng(0)
X = [RNG.normal(size=(5, 2)) for _ in range(12)]
Y = [np.array(["O", "B-A", "I-A"])[np.clip((x[:, 0] * 1.5).astype(int) + 1, 0, 2)] for x in X]


COSTS = [[0, 1, 1], [5, 0, 2], [3, 1, 0.5]]


@dataclass(frozen=True)
class Careful(DecodingRule):
    """Choose the likeliest label if it is probable enough, and a fallback otherwise."""

    least: float = 0.6
    fallback: int = 0

    name = "careful"

    def decode(self, distribution):
        p = distribution.probabilities
        return np.where(p.max(axis=-1) >= self.least, p.argmax(axis=-1), self.fallback)


class Wrong(DecodingRule):
    name = "wrong"

    def __init__(self, answer):
        self.answer = answer

    def decode(self, distribution):
        return self.answer


@pytest.fixture(scope="module")
def crf():
    return ChainCRF("linear", C=1.0).fit(X, Y)


@pytest.mark.parametrize("name", RULES)
def test_a_name_stands_for_the_rule_with_its_defaults(crf, name):
    by_name, by_object = (crf.distribution(X).decode(rule) for rule in (name, RULES[name]()))
    assert [y.tolist() for y in by_name] == [y.tolist() for y in by_object]
    assert [y.tolist() for y in by_name] == [y.tolist() for y in crf.set_params(decoding=name).predict(X)]


def test_the_rules_of_a_structure_are_those_whose_needs_it_has():
    of_labels = ["viterbi", "marginal", "cost"]
    expected = {ChainDistribution: list(RULES), SegmentDistribution: of_labels, LabelSetDistribution: of_labels}
    for distribution, names in expected.items():
        accepted = [name for name in RULES if rules_for(distribution).constraints[0].accepts(name)]
        assert accepted == names
        assert rules_for(distribution).constraints[1].accepts(ExpectedF1()) == ("f1" in names)


@pytest.mark.parametrize("decoding", ["f1", ExpectedF1(), "best", Viterbi, None, 1])
def test_a_rule_that_does_not_suit_is_refused(decoding):
    with pytest.raises(
        ValueError, match=r"decoding=.*: expected 'viterbi', 'marginal', 'cost' or a decoding rule such"
    ):
        SegmentCRF(decoding=decoding).fit(X, Y)


def test_a_rule_of_the_user_is_accepted_wherever_a_name_is(crf):
    rule = Careful(0.6)
    p = np.concatenate(crf.predict_proba(X))
    expected = np.where(p.max(axis=1) >= 0.6, p.argmax(axis=1), 0)
    careful = ChainCRF("linear", C=1.0, decoding=rule).fit(X, Y)
    assert np.concatenate(careful.predict(X)).tolist() == crf.classes_[expected].tolist()
    assert careful.score(X, Y) == np.mean(np.concatenate(careful.predict(X)) == np.concatenate(Y))
    assert careful.explain(X[0], 0).label == careful.predict(X[:1])[0][0]
    assert np.concatenate(crf.distribution(X).decode(rule)).tolist() == crf.classes_[expected].tolist()
    graph = GraphCRF("linear").fit(X, Y).distribution(X)
    assert np.concatenate(graph.decode(rule)).shape == (60,)
    rows = np.concatenate(X)
    sets = MultiLabelCRF("linear", decoding=Careful(0.9)).fit(rows, (rows > 0).astype(int))
    assert ((sets.predict_proba(rows) >= 0.9) == sets.predict(rows)).all()


@pytest.mark.parametrize(
    ("answer", "match"),
    [
        (np.zeros(60), r"shape \(60,\) and dtype float64: expected integers of shape \(60,\)"),
        (np.zeros(3, int), r"shape \(3,\).*expected integers of shape \(60,\)"),
        (np.full(60, 3), "integers from 3 to 3: expected indices of labels, from 0 to 2"),
        (np.full(60, -1), "integers from -1 to -1"),
    ],
)
def test_labels_that_do_not_fit_are_refused(crf, answer, match):
    with pytest.raises(ValueError, match=match):
        crf.distribution(X).decode(Wrong(answer))


@pytest.mark.parametrize(
    "rule",
    [
        *("marginal", Viterbi(), Marginal(), ExpectedF1("IOB2"), ExpectedSpanCost(missed=3.0, scheme="IOB2")),
        *(ExpectedCost(), ExpectedCost(np.eye(3)[::-1]), ExpectedCost(COSTS, ["O", "B-A", "I-A"])),
    ],
)
def test_files_have_a_rule_with_its_parameters(crf, rule, tmp_path):
    crf.set_params(decoding=rule).save(tmp_path / "model.kcrf")
    again = load(tmp_path / "model.kcrf")
    assert again.decoding == rule
    assert [y.tolist() for y in again.predict(X)] == [y.tolist() for y in crf.predict(X)]


def test_a_rule_that_a_file_cannot_store_is_named(crf, tmp_path):
    with pytest.raises(TypeError, match=r"decoding=Careful.*cannot be written to a file.*RULES"):
        crf.set_params(decoding=Careful()).save(tmp_path / "model.kcrf")


def test_wrong_parameters_of_rules_are_refused(crf):
    with pytest.raises(ValueError, match="scheme='IOE': expected"):
        ExpectedF1("IOE")
    with pytest.raises(
        ValueError,
        match="rule='best': expected 'viterbi', 'marginal', 'f1', 'cost', 'span_cost', 'auto' or a decoding rule",
    ):
        crf.distribution(X).decode("best")
    numbers = ChainCRF("linear", C=1.0).fit(X, [np.arange(5) % 2 for _ in X])
    with pytest.raises(ValueError, match="decoding='f1' with the labels 0, 1: expected tags of spans"):
        numbers.distribution(X).decode("f1")


def test_labels_of_arrays_are_chosen_one_by_one_unless_they_are_tags_or_constrained():
    names = [np.where(y == "O", "rest", y) for y in Y]
    pairs = [(a, b) for a in ("rest", "B-A", "I-A") for b in ("rest", "B-A", "I-A")]
    mixed = [{"dense": x, "words": [["w"]] * len(x)} for x in X]
    dense, words = Input("linear", of="dense"), Input("linear", of="words")
    linear = {"kernel": "linear"}
    for inputs, labels, options, expected in (
        (X, names, linear, "marginal"),
        (mixed, names, {"inputs": {"a": dense, "b": Input("linear", of="dense", columns=[0])}}, "marginal"),
        (X, Y, linear, "viterbi"),
        (X, names, {**linear, "constraints": pairs}, "viterbi"),
        ([sp.csr_array(x) for x in X], names, linear, "viterbi"),
        (mixed, names, {"inputs": {"a": dense, "b": words}}, "viterbi"),
    ):
        crf = ChainCRF(C=0.01, **options).fit(inputs, labels)
        distribution = crf.distribution(inputs)
        assert distribution.scores_tokens_alone == (expected == "marginal")
        assert [y.tolist() for y in crf.predict(inputs)] == [y.tolist() for y in distribution.decode(expected)]
