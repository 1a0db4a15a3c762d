"""Each method of a distribution gives what enumeration of all labellings gives, after one pass of inference."""

import itertools

import numpy as np
import pytest
from scipy.special import entr, log_softmax, logsumexp

from chain_fits import of_tokens_and_steps
from kernelcrf import ChainCRF, ChainOver, GraphCRF, KernelClassifier, MarkovNetwork, MultiLabelCRF, SegmentCRF
from kernelcrf.inference.batch import Batch
from kernelcrf.inference.clique_tree import Exact
from kernelcrf.inference.segments import SegmentMessages
from kernelcrf.readers.spans import spans

RNG = np.random.default_rng(0)
ROWS = RNG.normal(size=(60, 2))
CLASSES = (np.sin(2 * ROWS[:, 0]) + ROWS[:, 1] > 0).astype(int)
SEQUENCES = np.split(ROWS, 15)
LABELS = [np.array(["A", "B"])[labels] for labels in np.split(CLASSES, 15)]
RING = [[0, 1], [1, 2], [2, 3], [3, 0]]
GRAPHS = [{"nodes": x, "edges": RING, "edge_types": ["a", "b", "a", "b"]} for x in SEQUENCES]
SETS = np.column_stack((CLASSES, CLASSES ^ (RNG.random(60) < 0.2), ROWS[:, 1] > 0.3)).astype(int)
TABLE = np.column_stack((SETS, RNG.integers(3, size=60)))
KNOWN = [[1, None, None, 2], [None, 0, None, None]]
N_DRAWS = 4000


class ByEnumeration:
    """The probabilities of all labellings of one sample, which are tuples of indices of labels."""

    def __init__(self, labellings, scores):
        self.labellings = np.array(labellings)
        self.log_p = np.asarray(scores) - logsumexp(scores)
        self.p = np.exp(self.log_p)

    def node(self, v, L):
        return np.array([self.p[self.labellings[:, v] == j].sum() for j in range(L)])

    def edge(self, u, v, L):
        pairs = itertools.product(range(L), repeat=2)
        is_pair = [(self.labellings[:, [u, v]] == pair).all(axis=1) for pair in pairs]
        return np.array([self.p[flags].sum() for flags in is_pair]).reshape(L, L)

    def check(self, ranked, entropy, draws, indices):
        """Compare the k best labellings, the entropy and draws; `indices` turns labels into indices of labels."""
        k = len(ranked)
        order = np.argsort(-self.log_p, kind="stable")[:k]
        np.testing.assert_allclose([log_p for _, log_p in ranked], self.log_p[order], atol=1e-9)
        assert indices(ranked[0][0]).tolist() == self.labellings[order[0]].tolist()
        assert entropy == pytest.approx(entr(self.p).sum(), abs=1e-9)
        shares = [(np.array([indices(draw) for draw in draws]) == y).all(axis=1).mean() for y in self.labellings]
        assert np.abs(shares - self.p).max() < 0.05


def indices_of(classes):
    return lambda labels: np.searchsorted(classes, labels)


@pytest.fixture(scope="module")
def chain():
    inputs = of_tokens_and_steps("rbf", "linear", gamma=0.5, n_components=10)
    crf = ChainCRF(inputs=inputs, C=1.0, random_state=0).fit(SEQUENCES, LABELS)
    return crf, crf.distribution(SEQUENCES[:2])


@pytest.fixture(scope="module")
def chain_enumerated(chain):
    crf, _ = chain
    field = crf.model_.field(SEQUENCES[:2], None, crf._engine)
    labellings = list(itertools.product(range(2), repeat=4))

    def score(i, y):
        t = 4 * i + np.arange(4)
        return field.s[t, y].sum() + sum(field.w[t[k], y[k - 1], y[k]] for k in range(1, 4))

    return [ByEnumeration(labellings, [score(i, y) for y in labellings]) for i in range(2)]


def test_a_chain_agrees_with_enumeration(chain, chain_enumerated):
    crf, distribution = chain
    L, classes = 2, crf.classes_
    draws, ranked = distribution.sample(N_DRAWS, random_state=0), distribution.k_best(5)
    for i, exact in enumerate(chain_enumerated):
        for t in range(4):
            np.testing.assert_allclose(distribution.marginals()[i][t], exact.node(t, L), atol=1e-9)
            expected = exact.edge(t - 1, t, L) if t else np.zeros((L, L))
            np.testing.assert_allclose(distribution.edge_marginals()[i][t], expected, atol=1e-9)
        exact.check(ranked[i], distribution.entropy()[i], draws[i], indices_of(classes))
        given = classes[exact.labellings[3]]
        y = [given, given]
        assert distribution.log_prob(y)[i] == pytest.approx(exact.log_p[3], abs=1e-9)
        best = exact.labellings[exact.p.argmax()]
        assert distribution.decode("viterbi")[i].tolist() == classes[best].tolist()
        assert distribution.decode("marginal")[i].tolist() == [classes[exact.node(t, L).argmax()] for t in range(4)]
        for span in distribution.spans(threshold=1e-6, scheme="runs")[i]:
            has = [span[:3] in spans(classes[y].tolist(), "runs") for y in exact.labellings]
            assert span.probability == pytest.approx(exact.p[has].sum(), abs=1e-9)
    part = distribution.log_prob([[None, *LABELS[0][1:]], [None] * 4])
    agrees = (chain_enumerated[0].labellings[:, 1:] == indices_of(classes)(LABELS[0][1:])).all(axis=1)
    assert part[0] == pytest.approx(np.log(chain_enumerated[0].p[agrees].sum()), abs=1e-9)
    assert part[1] == pytest.approx(0.0, abs=1e-9)


def test_spans_are_those_of_the_labels_that_the_rule_chooses(chain):
    _, distribution = chain
    for rule in ("viterbi", "marginal"):
        runs = [spans(labels.tolist(), "runs") for labels in distribution.decode(rule)]
        predicted = distribution.spans(rule=rule)
        assert [[span[:3] for span in row] for row in predicted] == [[tuple(span) for span in row] for row in runs]
        for p, row in zip(distribution.span_marginals(runs), predicted, strict=True):
            np.testing.assert_allclose(p, [span.probability for span in row])


def test_a_segmentation_agrees_with_enumeration():
    crf = SegmentCRF(gamma=0.5, n_components=10, C=1.0, random_state=0).fit(SEQUENCES, LABELS)
    distribution, classes = crf.distribution(SEQUENCES[:2]), crf.classes_
    labellings = list(itertools.product(range(2), repeat=4))
    # Other methods of the same model have the log-probabilities: they must sum to one, and agree with each other.
    log_p = np.array([distribution.log_prob([classes[list(y)]] * 2) for y in labellings]).T
    draws, ranked = distribution.sample(N_DRAWS, random_state=0), distribution.k_best(5)
    np.testing.assert_allclose(logsumexp(log_p, axis=1), 0, atol=1e-9)
    for i in range(2):
        exact = ByEnumeration(labellings, log_p[i])
        np.testing.assert_allclose(distribution.marginals()[i], [exact.node(t, 2) for t in range(4)], atol=1e-9)
        exact.check(ranked[i], distribution.entropy()[i], draws[i], indices_of(classes))
        for span in distribution.spans(threshold=1e-6)[i]:
            has = [span[:3] in spans(classes[y].tolist(), "runs") for y in exact.labellings]
            assert span.probability == pytest.approx(exact.p[has].sum(), abs=1e-9)
            assert (
                distribution.span_marginals([[span[:3]] if j == i else [] for j in range(2)])[i][0] == span.probability
            )
    assert not hasattr(distribution, "edge_marginals")
    assert not hasattr(distribution, "certify")


def test_rows_agree_with_enumeration():
    model = KernelClassifier(gamma=0.5, n_components=10, random_state=0).fit(ROWS, CLASSES + 2 * (ROWS[:, 0] > 1))
    distribution, classes = model.distribution(ROWS[:3]), model.classes_
    log_p = log_softmax(model.decision_function(ROWS[:3]), axis=1)
    np.testing.assert_allclose(distribution.marginals(), np.exp(log_p))
    draws, ranked = distribution.sample(N_DRAWS, random_state=0), distribution.k_best(2)
    for i in range(3):
        exact = ByEnumeration([[j] for j in range(len(classes))], log_p[i])
        exact.check(ranked[i], distribution.entropy()[i], draws[:, i], lambda label: np.searchsorted(classes, [label]))
    np.testing.assert_allclose(distribution.log_prob(classes[[0, 1, 1]]), log_p[np.arange(3), [0, 1, 1]])
    assert distribution.log_prob([None, None, classes[0].item()])[:2].tolist() == [0, 0]
    assert (
        distribution.decode().tolist() == distribution.decode("marginal").tolist() == model.predict(ROWS[:3]).tolist()
    )
    assert not hasattr(distribution, "edge_marginals")


def test_graphs_agree_with_enumeration():
    crf = GraphCRF(gamma=0.5, n_components=10, random_state=0).fit(GRAPHS, LABELS)
    distribution, classes = crf.distribution(GRAPHS[:2]), crf.classes_
    labellings = list(itertools.product(range(2), repeat=4))
    graph, tables = distribution.field.inference.graph, distribution.field.tables[0]

    def score(i, y):
        total = 0.0
        for name, nodes in graph.cliques.items():
            scores = tables[graph.slices[name]].reshape(len(nodes), *[2] * nodes.shape[1])
            for clique, table in zip(nodes, scores, strict=True):
                if clique[0] // 4 == i:
                    total += table[tuple(y[v - 4 * i] for v in clique)]
        return total

    draws, ranked = distribution.sample(N_DRAWS, random_state=0), distribution.k_best(5)
    for i in range(2):
        exact = ByEnumeration(labellings, [score(i, y) for y in labellings])
        np.testing.assert_allclose(distribution.marginals()[i], [exact.node(v, 2) for v in range(4)], atol=1e-9)
        np.testing.assert_allclose(distribution.edge_marginals()[i], [exact.edge(u, v, 2) for u, v in RING], atol=1e-9)
        exact.check(ranked[i], distribution.entropy()[i], draws[i], indices_of(classes))
        assert distribution.log_prob([classes[exact.labellings[6]]] * 2)[i] == pytest.approx(exact.log_p[6], abs=1e-9)
        assert distribution.decode()[i].tolist() == classes[exact.labellings[exact.p.argmax()]].tolist()
        marginal = [classes[exact.node(v, 2).argmax()] for v in range(4)]
        assert distribution.decode("marginal")[i].tolist() == marginal


def test_graphs_whose_edges_have_no_scores_have_no_edge_marginals():
    graphs = [(x, RING) for x in SEQUENCES]
    crf = GraphCRF("linear", cliques="skips").fit(graphs, LABELS)
    with pytest.raises(ValueError, match=r"edges have no scores in this model.*fit with 'edges' in cliques"):
        crf.distribution(graphs).edge_marginals()
    crf.set_params(inference="gibbs")
    with pytest.raises(ValueError, match="k_best is not available with inference='gibbs'"):
        crf.distribution(graphs).k_best()


def test_label_sets_agree_with_enumeration():
    model = MultiLabelCRF("linear", structure="full", random_state=0).fit(ROWS, SETS)
    distribution = model.distribution(ROWS[:3])
    labellings = np.array(list(itertools.product(range(2), repeat=3)))
    graph, tables = model.model_.exact.graph, next(model.model_.fields(ROWS[:3], model._engine)).tables
    cliques = [(tuple(nodes[0]), graph.slices[name]) for name, nodes in graph.cliques.items()]

    def score(i, y):
        return sum(tables[i, place].reshape([2] * len(c))[tuple(y[list(c)])] for c, place in cliques)

    draws, ranked = distribution.sample(N_DRAWS, random_state=0), distribution.k_best(4)
    for i in range(3):
        exact = ByEnumeration(labellings, [score(i, y) for y in labellings])
        np.testing.assert_allclose(distribution.marginals()[i], [exact.node(j, 2)[1] for j in range(3)], atol=1e-9)
        expected = [exact.edge(u, v, 2) for u, v in model.edges_.tolist()]
        np.testing.assert_allclose(distribution.edge_marginals()[i], expected, atol=1e-9)
        exact.check(ranked[i], distribution.entropy()[i], draws[:, i], np.asarray)
        np.testing.assert_allclose(distribution.log_prob(labellings[[5, 5, 5]])[i], exact.log_p[5], atol=1e-9)
        assert distribution.decode("viterbi")[i].tolist() == labellings[exact.p.argmax()].tolist()
        assert distribution.decode("marginal")[i].tolist() == [exact.node(j, 2).argmax() for j in range(3)]


def test_label_sets_in_blocks_have_the_same_answers(monkeypatch):
    model = MultiLabelCRF("linear", structure="full", random_state=0).fit(ROWS, SETS)
    whole = model.distribution(ROWS[:7])
    expected = whole.marginals(), whole.edge_marginals(), whole.log_prob(SETS[:7]), whole.entropy(), whole.decode()
    monkeypatch.setattr(type(model.model_), "block_size", 2)
    few = model.distribution(ROWS[:7])
    answers = few.marginals(), few.edge_marginals(), few.log_prob(SETS[:7]), few.entropy(), few.decode()
    for answer, other in zip(answers, expected, strict=True):
        np.testing.assert_allclose(answer, other, atol=1e-12)


def test_tables_agree_with_enumeration():
    model = MarkovNetwork(structure="full").fit(TABLE)
    distribution = model.distribution(KNOWN)
    completions = np.array(list(itertools.product(*(range(len(values)) for values in model.categories_))))
    rows = np.column_stack([values[column] for values, column in zip(model.categories_, completions.T, strict=True)])
    log_p = model.score_samples(rows)
    draws, ranked = distribution.sample(N_DRAWS, random_state=0), distribution.k_best(3)
    for i, known in enumerate(KNOWN):
        agrees = np.all(
            [np.full(len(rows), True) if z is None else rows[:, v] == z for v, z in enumerate(known)], axis=0
        )
        exact = ByEnumeration(completions[agrees], log_p[agrees])
        for v, values in enumerate(model.categories_):
            np.testing.assert_allclose(distribution.marginals()[v][i], exact.node(v, len(values)), atol=1e-9)
        exact.check(ranked[i], distribution.entropy()[i], draws[:, i], np.asarray)
        given = np.array([ranked[i][1][0]] * 2)
        assert distribution.log_prob(given)[i] == pytest.approx(np.sort(exact.log_p)[-2], abs=1e-9)
        assert distribution.decode()[i].tolist() == ranked[i][0][0].tolist() == model.impute(KNOWN)[i].tolist()
        assert distribution.decode("marginal")[i].tolist() == [
            distribution.marginals()[v][i].argmax() for v in range(4)
        ]
    for (u, v), p in zip(model.edges_.tolist(), distribution.edge_marginals(), strict=True):
        np.testing.assert_allclose(p.sum(axis=2), distribution.marginals()[u], atol=1e-9)
        np.testing.assert_allclose(p.sum(axis=1), distribution.marginals()[v], atol=1e-9)


QUESTIONS = ("marginals", "edge_marginals", "entropy", "sample", "k_best", "decode")


def ask(distribution, y=None):
    for name in QUESTIONS:
        if hasattr(distribution, name):
            getattr(distribution, name)()
    distribution.decode("marginal")
    if hasattr(distribution, "spans"):
        distribution.spans()
        distribution.spans(threshold=0.5)
    if y is not None:
        distribution.log_prob(y)


def count_calls(monkeypatch, owner, name):
    """Count the calls of a method, which still does what it did."""
    calls, method = [], getattr(owner, name)

    def counted(*args, **kwargs):
        calls.append(name)
        return method(*args, **kwargs)

    monkeypatch.setattr(owner, name, counted)
    return calls


CASES = {
    "ChainCRF": (ChainCRF("linear", C=1.0), SEQUENCES, LABELS, (Batch, "infer")),
    "SegmentCRF": (SegmentCRF("linear", C=1.0), SEQUENCES, LABELS, (SegmentMessages, "run")),
    "GraphCRF": (GraphCRF("linear"), GRAPHS, LABELS, (Exact, "_pass")),
    "MultiLabelCRF": (MultiLabelCRF("linear", structure="full"), ROWS, SETS, (Exact, "_pass")),
    "MarkovNetwork": (MarkovNetwork(structure="full"), TABLE, TABLE, (Exact, "_pass")),
}
# The forward pass, the backward pass, and marginals from both.
N_PASSES = dict.fromkeys(CASES, 1) | {"SegmentCRF": 3}


@pytest.mark.parametrize("name", CASES)
def test_several_questions_need_one_pass(name, monkeypatch):
    estimator, X, y, counted = CASES[name]
    model = estimator.fit(X, y)
    calls = count_calls(monkeypatch, *counted)
    ask(model.distribution(X[:3]), y[:3])
    assert len(calls) == N_PASSES[name]


@pytest.mark.parametrize("name", CASES)
def test_the_answers_that_are_kept_cannot_be_changed(name):
    estimator, X, y, _ = CASES[name]
    distribution = estimator.fit(X, y).distribution(X[:3])
    with pytest.raises(ValueError, match="read-only"):
        distribution.probabilities[0] = 0
    with pytest.raises(AttributeError):
        distribution.rule = "marginal"
    p = distribution.marginals()
    before = np.array(distribution.probabilities)
    for array in p if isinstance(p, list) else [p]:
        array[:] = 0
    np.testing.assert_array_equal(distribution.probabilities, before)


def test_a_distribution_keeps_its_model_after_another_fit():
    crf = ChainCRF("linear", C=1.0).fit(SEQUENCES, LABELS)
    distribution = crf.distribution(SEQUENCES)
    expected = crf.log_prob(SEQUENCES, LABELS)
    crf.fit(SEQUENCES, [labels[::-1] for labels in LABELS])
    np.testing.assert_array_equal(distribution.log_prob(LABELS), expected)


def test_a_chain_over_a_classifier_has_the_distribution_of_its_chain():
    from sklearn.linear_model import LogisticRegression

    crf = ChainOver(LogisticRegression(), cv=2).fit(SEQUENCES, LABELS)
    distribution = crf.distribution(SEQUENCES)
    np.testing.assert_array_equal(distribution.log_prob(LABELS), crf.log_prob(SEQUENCES, LABELS))
    np.testing.assert_array_equal(
        np.concatenate(distribution.marginals()), np.concatenate(crf.predict_proba(SEQUENCES))
    )
