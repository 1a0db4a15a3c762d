"""Labels and spans with the smallest expected cost, against enumeration of all labellings."""

import itertools

import numpy as np
import pytest

from kernelcrf import ChainCRF, GraphCRF, KernelClassifier, MarkovNetwork, MultiLabelCRF, SegmentCRF
from kernelcrf.answers.expected_costs import costs_of_labels, least_cost_labels, least_cost_spans
from kernelcrf.decoding import ExpectedCost, ExpectedSpanCost
from kernelcrf.graphs.structure import Chains
from kernelcrf.metrics import spans
from kernelcrf.models.chain_field import ChainField
from kernelcrf.readers.constraints import legal_labelings
from kernelcrf.readers.spans import span_rules

TAGS = ["O", "B-X", "I-X", "B-Y", "I-Y"]
RNG = np.random.default_rng(0)
X = [RNG.normal(size=(5, 2)) for _ in range(12)]
Y = [np.array(["O", "B-X", "I-X"])[np.clip((x[:, 0] * 1.5).astype(int) + 1, 0, 2)] for x in X]
COSTS = np.array([[0.0, 1, 1], [8, 0, 2], [4, 1, 0]])


def field(seed, *, constraints):
    rng, chains = np.random.default_rng(seed), Chains.from_lengths([4])
    s, w = rng.normal(scale=2.0, size=(4, 5)), rng.normal(scale=1.5, size=(5, 5))
    return ChainField(*(legal_labelings("IOB2", TAGS).impose(chains, s, w) if constraints else (s, w)), chains)


def labellings(one):
    """Return all possible labellings of a field with one sequence, and their probabilities."""
    every = [np.array(y, np.int32) for y in itertools.product(range(5), repeat=4)]
    p = np.exp([one.log_prob(y)[0] for y in every])
    return [y for y, q in zip(every, p, strict=True) if q > 0], p[p > 0]


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("constraints", [False, True])
def test_the_expected_cost_of_tokens_is_the_smallest_of_all_labellings(seed, constraints):
    one, costs = field(seed, constraints=constraints), np.random.default_rng(seed).exponential(size=(5, 5))
    every, p = labellings(one)

    true = np.array(every)

    def expected(y):
        return p @ costs[true, y].sum(axis=1)

    chosen = least_cost_labels(one, one.marginals() @ costs)
    assert any((chosen == y).all() for y in every)
    assert expected(chosen) == pytest.approx(min(map(expected, every)), rel=1e-12)


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize(("missed", "false"), [(1.0, 1.0), (6.0, 1.0), (1.0, 3.0)])
def test_the_expected_cost_of_spans_is_the_smallest_of_all_labellings(seed, missed, false):
    one = field(seed, constraints=seed % 2 == 0)
    every, p = labellings(one)
    sets = [frozenset(spans([TAGS[j] for j in y])) for y in every]

    def expected(chosen):
        costs = [missed * len(true - chosen) + false * len(chosen - true) for true in sets]
        return float(np.dot(p, costs))

    labels = least_cost_spans(one, span_rules(TAGS, "lenient"), missed, false)
    chosen = frozenset(spans([TAGS[j] for j in labels]))
    assert expected(chosen) == pytest.approx(min(map(expected, set(sets))), rel=1e-12)


@pytest.fixture(scope="module")
def crf():
    return ChainCRF("linear", C=1.0).fit(X, Y)


def test_costs_can_be_named_in_any_order(crf):
    order = [2, 0, 1]
    named = ExpectedCost(COSTS[np.ix_(order, order)], crf.classes_[order])
    assert named.costs != ExpectedCost(COSTS).costs
    for other in (COSTS, COSTS.tolist()):
        by_order = crf.distribution(X).decode(ExpectedCost(other))
        assert [y.tolist() for y in by_order] == [y.tolist() for y in crf.distribution(X).decode(named)]


def test_equal_costs_choose_the_likeliest_label_of_each_token(crf):
    distribution = crf.distribution(X)
    for rule in (ExpectedCost(), ExpectedCost(2 - 2 * np.eye(3)), "cost"):
        assert (distribution.decode_indices(rule) == distribution.decode_indices("marginal")).all()


def test_all_estimators_of_labels_choose_by_cost():
    rows, graphs = np.concatenate(X), [(x, [[0, 1], [1, 2], [3, 4]]) for x in X]
    sets = (rows > 0).astype(int)
    binary = np.array([[0.0, 1.0], [9.0, 0.0]])
    for model, data, y, costs in (
        (SegmentCRF("linear", C=1.0), X, Y, COSTS),
        (KernelClassifier("linear"), rows, np.concatenate(Y), COSTS),
        (GraphCRF("linear"), graphs, Y, COSTS),
        (MultiLabelCRF("linear"), rows, sets, binary),
    ):
        distribution = model.fit(data, y).distribution(data)
        chosen = distribution.decode_indices(ExpectedCost(costs))
        np.testing.assert_array_equal(chosen, (distribution.probabilities @ costs).argmin(axis=-1))
        assert (chosen != distribution.decode_indices("marginal")).any()
    again = MultiLabelCRF("linear", decoding=ExpectedCost(binary)).fit(rows, sets)
    assert (again.predict(rows) == (again.predict_proba(rows) > 0.1)).all()


@pytest.mark.parametrize(
    ("costs", "match"),
    [
        ([[0, 1]], "costs=.*: expected a square matrix of finite numbers"),
        ([[0, np.inf], [1, 0]], "expected a square matrix of finite numbers"),
        ([[0, 1], [1]], "expected a square matrix of finite numbers"),
        ("dear", "expected a square matrix of finite numbers"),
        ([], "expected a square matrix of finite numbers"),
    ],
)
def test_costs_that_are_no_matrix_are_refused(costs, match):
    with pytest.raises(ValueError, match=match):
        ExpectedCost(costs)


def test_costs_that_do_not_fit_the_labels_are_refused(crf):
    distribution = crf.distribution(X)
    with pytest.raises(ValueError, match=r"costs has 2 rows and the model has 3 labels \('B-X', .*expected one row"):
        distribution.decode(ExpectedCost([[0, 1], [1, 0]]))
    for classes in (["O", "B-X", "B-X"], ["O", "B-X", "rest"], ["O", "B-X"]):
        with pytest.raises(ValueError, match=r"the costs have the classes 'O', 'B-X'.*: expected each label of the"):
            distribution.decode(ExpectedCost(COSTS, classes))
    with pytest.raises(ValueError, match="missed=0: expected a finite number above 0"):
        ExpectedSpanCost(missed=0)
    with pytest.raises(ValueError, match="scheme='IOE': expected"):
        ExpectedSpanCost(scheme="IOE")
    numbers = KernelClassifier("linear").fit(np.concatenate(X), np.arange(60) % 2)
    with pytest.raises(ValueError, match=r"rule=.*expected 'viterbi', 'marginal', 'cost' or"):
        numbers.distribution(X[0]).decode(ExpectedSpanCost())
    table = MarkovNetwork().fit(RNG.integers(2, size=(30, 2)))
    with pytest.raises(ValueError, match="decoding='cost' with the values of a table"):
        table.distribution([[None, 1]]).decode("cost")
    with pytest.raises(ValueError, match="decoding='span_cost' with the labels 0, 1: expected tags of spans"):
        ChainCRF("linear", C=1.0).fit(X, [np.arange(5) % 2 for _ in X]).distribution(X).decode("span_cost")


def test_one_order_of_labels_serves_all_models():
    assert costs_of_labels(None, None, ["a", "b"]).tolist() == [[0, 1], [1, 0]]
    assert costs_of_labels([[0, 1], [2, 3]], ["b", "a"], ["a", "b"]).tolist() == [[3, 2], [1, 0]]
