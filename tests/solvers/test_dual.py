import copy
import itertools
from dataclasses import replace

import numpy as np
import pytest
import scipy.sparse as sp

from chain_fits import fit_chain
from kernelcrf.basis.pairs import Pairs
from kernelcrf.engines.local import LocalEngine
from kernelcrf.fitting.fit import Start
from kernelcrf.fitting.sequences import LabelledSequences
from kernelcrf.graphs.structure import Chains, Legal
from kernelcrf.inference.chain import entropy, moments
from kernelcrf.inference.logspace import LogMessages
from kernelcrf.inference.scaled import padded_width
from kernelcrf.kernels.inputs import InputKernel
from kernelcrf.objective import Objective
from kernelcrf.partitions import chains as chain_partitions
from kernelcrf.partitions.chains import ChainPartition
from kernelcrf.penalties import ElasticNet
from kernelcrf.score.features import TokenFeatures
from kernelcrf.score.layout import Layout
from kernelcrf.score.terms import TOKEN_TERM, chain_terms
from kernelcrf.solvers import LBFGS, Dual, Newton, find_solver
from kernelcrf.solvers import ascent_loops as loops
from kernelcrf.solvers.ascent import Ascent
from kernelcrf.solvers.dual import _expected_rounds, _is_slow
from kernelcrf.solvers.loop import minimise
from kernelcrf.solvers.weight_rows import WeightRows
from objectives import random_objective


def sparse_objective(
    seed, *, n_labels=3, C=(1.5, 0.7), weighted=False, legal=False, shared=False, pairs=False, dense=(), lengths=None,
    steps=False,
):  # fmt: skip
    rng = np.random.default_rng(seed)
    lengths = tuple(rng.integers(0, 8, 12)) if lengths is None else lengths
    chains = Chains.from_lengths(lengths)
    layout = Layout.of(chain_terms(n_labels, InputKernel("linear"), C=C[0], C_edge=C[1]), {TOKEN_TERM: 9})
    shape = chains.n_nodes, 9
    F = sp.csr_array(np.where(rng.random(shape) < 0.4, rng.normal(size=shape), 0.0))
    features = TokenFeatures(F, rng.integers(chains.n_nodes, size=chains.n_nodes)) if shared else TokenFeatures(F)
    labels = rng.integers(n_labels, size=chains.n_nodes).astype(np.int32)
    rules = None
    if legal:
        # Labels run upwards from 0, one step or none at a time.
        upwards = np.eye(n_labels, dtype=bool) | np.eye(n_labels, k=1, dtype=bool)
        rules = Legal(upwards, np.arange(n_labels) == 0, np.ones(n_labels, bool))
        for low, high in itertools.pairwise(chains.offsets):
            rises = rng.integers(0, 2, high - low) * (np.arange(high - low) > 0)
            labels[low:high] = np.minimum(np.cumsum(rises), n_labels - 1)
    weights = rng.uniform(0.3, 2.0, len(lengths)) if weighted else None
    if pairs:
        # Some pairs have a weight, whether they occur or not.
        node, edge = (replace(term, pairs=Pairs.of(rng.random((term.n, term.k_y.L)) < 0.6)) for term in layout.terms)
        layout, features = Layout((node, edge)), features.with_pairs(node.pairs)
    of_terms, node = {"node": features}, layout.terms[0]
    for k, dtype in enumerate(dense):
        # Dense inputs have their own prior variance, and one of them is shared by several tokens.
        F = rng.normal(size=(chains.n_nodes, 4 + k)).astype(dtype)
        index = rng.integers(chains.n_nodes, size=chains.n_nodes) if k == 0 else None
        of_terms[f"dense {k}"] = TokenFeatures(F, index)
        term = replace(node, name=f"dense {k}", n=4 + k, C=node.C * (k + 2), pairs=None)
        layout = Layout((term, *layout.terms) if k == 0 else (*layout.terms, term))
    if steps:
        # Inputs of steps have their own prior variance and, if `pairs`, weights for some steps only.
        F = sp.csr_array(np.where(rng.random((chains.n_nodes, 5)) < 0.4, rng.normal(size=(chains.n_nodes, 5)), 0.0))
        edge = next(term for term in layout.terms if term.kind.is_step)
        change = replace(edge, name="change", n=5, C=2 * edge.C, kernel=InputKernel("linear"), input="change")
        change = replace(change, pairs=Pairs.of(rng.random((5, edge.k_y.L)) < 0.4) if pairs else None)
        of_terms["change"], layout = TokenFeatures(F).with_pairs(change.pairs), Layout((*layout.terms, change))
    partition = ChainPartition(chains, n_labels, labels, of_terms, None, weights, rules)
    return Objective(layout, [partition], LocalEngine(1))


@pytest.mark.few
@pytest.mark.parametrize("seed", range(2))
@pytest.mark.parametrize(
    "kind",
    [
        *(
            {},
            {"weighted": True},
            {"legal": True},
            {"shared": True},
            {"pairs": True},
            {"n_labels": 17},
            {"n_labels": 1},
        ),
        *({"dense": (np.float64,)}, {"dense": (np.float64, np.float64), "pairs": True, "n_labels": 17}),
        *({"steps": True, "legal": True}, {"steps": True, "pairs": True, "weighted": True, "n_labels": 6}),
    ],
    ids=str,
)
def test_the_dual_ends_at_the_optimum(seed, kind):
    objective = sparse_objective(seed, **kind)
    start = np.zeros(objective.layout.size)
    best = minimise(objective, Newton(), start, tol=1e-12)
    found = minimise(objective, Dual(), start, tol=1e-9, max_iter=3000)
    assert found.status == "optimal"
    assert found.certificate.lower_bound <= best.certificate.objective + 1e-12
    assert found.certificate.objective == pytest.approx(best.certificate.objective, rel=1e-9)


@pytest.mark.parametrize(
    "kind",
    [
        *({}, {"weighted": True, "shared": True}, {"legal": True}, {"n_labels": 17}, {"n_labels": 1}),
        *({"steps": True, "weighted": True}, {"steps": True, "legal": True}),
    ],
    ids=str,
)
def test_theta_and_value_are_those_of_the_distributions(kind):
    """theta and D recomputed from the scores of alpha by the library's own inference."""
    objective = sparse_objective(3, **kind)
    partition, layout = objective.partitions[0], objective.layout
    ascent, rng = Ascent.of(objective, np.zeros(layout.size)), np.random.default_rng(0)
    for _ in range(5):
        ascent.visit(rng.permutation(12))
    chains, weights = partition.chains, np.ones(12) if partition.weights is None else partition.weights
    tied = len(ascent.b) == 12
    r, q, total = np.zeros_like(ascent.a), np.zeros(ascent.b.shape[1:] if tied else ascent.b.shape), 0.0
    for i, (low, high) in enumerate(itertools.pairwise(chains.offsets)):
        own, y = Chains.from_lengths([high - low]), partition.labels[low:high]
        s, w = ascent.a[low:high], ascent.b[i] if tied else ascent.b[low:high]
        if partition.legal is not None:
            s, w = partition.legal.impose(own, s, w)
        found = moments(s, w, own)
        r[low:high] = weights[i] * (np.eye(partition.n_labels)[y] - found.nodes)
        if tied:
            np.add.at(q, (y[:-1], y[1:]), weights[i])
            q -= weights[i] * found.edges
        else:
            q[np.arange(low + 1, high), y[:-1], y[1:]] += weights[i]
            q[low:high] -= weights[i] * found.edges
        total += weights[i] * entropy(s, w, own).sum()
    gradients = layout.split(partition.pull_back(layout, r, q))
    theta = layout.join({term.name: term.C * gradients[term.name] for term in layout.terms})
    np.testing.assert_allclose(ascent.theta, theta, atol=1e-10)
    assert ascent.value == pytest.approx(total - 0.5 * layout.squared_norm(theta), abs=1e-9)


@pytest.mark.parametrize("n_labels", [1, 3, 17])
@pytest.mark.parametrize("level", [0.0, 900.0, -900.0])
def test_marginals_of_a_sequence_are_those_of_inference_at_any_level_of_scores(n_labels, level):
    rng = np.random.default_rng(n_labels)
    s, w = level + rng.normal(size=(6, n_labels)), level + 3 * rng.normal(size=(n_labels, n_labels))
    found, p, q, failed = inferred(s, w)
    there = moments(s, w, Chains.from_lengths([6]))
    np.testing.assert_allclose(p, there.nodes, atol=1e-12)
    np.testing.assert_allclose(q, there.edges, atol=1e-12)
    assert found == pytest.approx(entropy(s, w, Chains.from_lengths([6])).sum(), abs=1e-9)
    assert not failed


@pytest.mark.parametrize(("spread", "fails"), [(150.0, False), (310.0, True)])
def test_steps_that_scaled_messages_cannot_hold_are_told(spread, fails):
    w = np.array([[0.0, spread], [0.0, 0.0]])
    assert inferred(np.zeros((3, 2)), w)[3] == fails


def inferred(s, w):
    """Entropy, marginals of nodes and sums of those of edges, and whether it failed, by the solver's own loops."""
    T, n = s.shape
    width = padded_width(n)
    work, p, q = loops.memory(np.array([0, T]), width, n, True), np.empty((T, n)), np.empty((1, width, width))
    legal = np.ones(n, bool), np.ones(n, bool), np.ones((n, n), bool)
    found = loops.infer(s, w[None], True, legal, work, p, q)
    return found, p, q[0, :n, :n], bool(work[-1][0])


def test_every_pass_raises_the_dual_and_stays_below_the_optimum():
    objective = sparse_objective(4, C=(2.0, 2.0))
    optimum = minimise(objective, Newton(), np.zeros(objective.layout.size), tol=1e-12).certificate.objective
    ascent, rng, values = Ascent.of(objective, np.zeros(objective.layout.size)), np.random.default_rng(0), []
    for _ in range(40):
        values.append(ascent.value)
        ascent.visit(rng.permutation(len(ascent.etas)))
    assert all(b > a for a, b in itertools.pairwise(values))
    assert values[-1] <= optimum
    assert values[-1] == pytest.approx(optimum, rel=1e-2)


@pytest.mark.parametrize(
    "kind", [{}, {"weighted": True, "shared": True}, {"legal": True}, {"n_labels": 1}, {"steps": True}], ids=str
)
def test_the_gap_is_the_sum_of_the_gaps_of_the_sequences(kind):
    objective = sparse_objective(3, **kind)
    ascent = Ascent.of(objective, np.zeros(objective.layout.size))
    ascent.visit(np.arange(len(ascent.etas)))
    gap, total = objective.evaluate(ascent.theta).value - ascent.value, 0.0
    for i in range(len(ascent.etas)):
        here = copy.deepcopy(ascent)
        here.visit(np.array([i]))
        total += here.gaps[i]
    assert total == pytest.approx(gap, rel=1e-10)


def test_a_climb_ends_without_a_gap_and_with_empty_sequences():
    objective = sparse_objective(5, lengths=(0, 3, 0, 2))
    theta = minimise(objective, Newton(), np.zeros(objective.layout.size), tol=1e-13).theta
    ascent = Ascent.of(objective, theta)
    assert ascent.climb(np.random.default_rng(0), 0.0) <= 3
    ascent.gaps[:] = 0
    assert ascent.climb(np.random.default_rng(0), 1e-3) == 1


def test_a_start_at_the_optimum_ends_at_once():
    objective = sparse_objective(5)
    theta = minimise(objective, Newton(), np.zeros(objective.layout.size), tol=1e-13).theta
    passes = minimise(objective, Dual(), theta, tol=1e-6).history[-1].passes
    assert passes < minimise(objective, Dual(), 0 * theta, tol=1e-6).history[-1].passes


def test_scores_that_scaled_messages_cannot_hold_are_left_to_lbfgs():
    objective = sparse_objective(6, legal=True, C=(1e-3, 1e-3))
    partition = objective.partitions[0]
    partition.features["node"].F.data *= 1e7
    found = minimise(objective, Dual(), np.zeros(objective.layout.size), tol=1e-4, max_iter=500)
    best = minimise(objective, LBFGS(), np.zeros(objective.layout.size), tol=1e-6, max_iter=2000)
    assert found.certificate.lower_bound <= best.certificate.objective
    assert found.certificate.objective >= best.certificate.lower_bound


def test_problems_of_another_kind_are_refused_and_automatically_left_to_lbfgs():
    dense = random_objective(0, n_parts=1)
    with pytest.raises(ValueError, match=r"solver='dual' cannot minimise this objective.*sparse inputs.*'lbfgs'"):
        minimise(dense, Dual(), np.zeros(dense.layout.size))
    assert isinstance(find_solver("auto", dense), LBFGS)
    assert isinstance(find_solver("auto", sparse_objective(0)), Dual)


def test_an_interrupt_keeps_the_point_reached():
    def interrupt(record):
        raise KeyboardInterrupt

    objective = sparse_objective(7)
    found = minimise(objective, Dual(), np.zeros(objective.layout.size), tol=1e-15, callback=interrupt)
    assert found.status == "interrupted"
    assert found.certificate.gap_in_span >= 0


def test_a_run_out_of_passes_says_so():
    objective = sparse_objective(8)
    found = minimise(objective, Dual(), np.zeros(objective.layout.size), tol=1e-12, max_iter=3)
    assert found.status == "max_iter"
    assert found.certificate.gap_in_span > 0


def test_warm_starts_go_on_from_the_weights_of_an_earlier_fit():
    partition = sparse_objective(9, lengths=(5,) * 20).partitions[0]
    data = LabelledSequences(partition.features["node"].F, partition.chains, partition.labels, 3)
    first = fit_chain(data, InputKernel("linear"), C=1.0, C_edge=1.0, tol=1e-8)
    again = {"kernel": InputKernel("linear"), "C": 1.1, "C_edge": 1.1, "tol": 1e-8}
    cold, warm = fit_chain(data, **again), fit_chain(data, **again, start=first.end)
    assert isinstance(first.end, Start)
    assert warm.certificate.objective == pytest.approx(cold.certificate.objective, rel=1e-8)
    assert warm.solution.history[-1].passes < cold.solution.history[-1].passes


def test_small_masses_one_after_the_other_keep_their_product():
    """Steps that cost 299 and tokens that ask for them: the entropy is that of log space."""
    d = np.array([259.0, -446, 227, 86, 353, -356])
    a, b = np.stack([d / 2, -d / 2], axis=1), np.array([[0.0, -299], [-299, 0]])
    found, p, _, failed = inferred(a, b)
    exact = LogMessages.of(a, b)
    assert not failed
    assert found == pytest.approx(exact.entropy, abs=1e-9)
    np.testing.assert_allclose(p, exact.nodes, atol=1e-12)


def test_a_gap_that_first_grows_does_not_count_as_slow():
    growing = [564.0, 1438.0, 1394.0, 1149.0, 922.0, 752.0, 628.0, 508.0, 426.0]
    assert _expected_rounds(growing, 1.3) < 40
    assert _expected_rounds([1.0] * 8 + [2.0], 0.1) == np.inf
    assert _expected_rounds(growing[:8], 1.3) == 0


def test_one_large_gap_does_not_count_as_slow():
    shrinking = [100.0 * 0.9**k for k in range(12)]
    assert _expected_rounds([*shrinking, 110.0], 1.0) == np.inf
    assert not _is_slow([*shrinking, 110.0], 1.0)
    assert _is_slow([*shrinking, 110.0, 120.0], 1.0)
    assert not _is_slow([1.0] * 8 + [2.0], 0.1)
    assert not _is_slow([1.0], 0.1)


@pytest.mark.parametrize("l1", [0.0, 0.3])
@pytest.mark.parametrize(
    "kind", [{}, {"weighted": True, "pairs": True, "n_labels": 17, "dense": (float,)}, {"steps": True}], ids=str
)
def test_the_gap_is_that_of_the_objective_for_any_centre(kind, l1):
    """P(theta) - D is the gap of the proximal problem, summed over sequences, and the excess of the weights."""
    objective = sparse_objective(11, **kind)
    if l1:
        # With an L1 penalty, all terms of tokens must have the same C.
        terms = (replace(term, penalty=ElasticNet(l1), C=1.5) for term in objective.layout.terms)
        objective = replace(objective, layout=Layout(tuple(terms)))
    ascent, rng = Ascent.of(objective, np.zeros(objective.layout.size)), np.random.default_rng(0)
    for _ in range(4):
        ascent.visit(rng.permutation(len(ascent.etas)))
        if rng.random() < 0.6:
            ascent.move_centre()
        measured = 0.0
        for i in range(len(ascent.etas)):
            here = copy.deepcopy(ascent)
            here.visit(np.array([i]))
            measured += here.gaps[i]
        ascent.inner_gap = measured
        assert ascent.gap == pytest.approx(objective.evaluate(ascent.theta).value - ascent.value, rel=1e-9)
    assert ascent.pull > 0


@pytest.mark.parametrize("C", [0.01, 1.0, 1e4])
def test_single_precision_keeps_the_bound_below_the_optimum(C):
    objective = sparse_objective(12, C=(C, C), lengths=(5,) * 20)
    start = np.zeros(objective.layout.size)
    optimum = minimise(objective, Newton(), start, tol=1e-12).certificate.lower_bound
    ascent = Ascent.of(objective, start, tol=1e-3)
    assert ascent.a.dtype == ascent.r.dtype == np.float32
    found = minimise(objective, Dual(), start, tol=1e-4, max_iter=3000)
    assert found.status == "optimal"
    assert found.certificate.lower_bound <= optimum <= found.certificate.objective


def repeated_posts(C, n=300, copies=4, n_labels=4, vocabulary=300, length=20, n_features=28):
    """Return an objective of posts, six of which occur five times with labels that contradict each other."""
    rng = np.random.default_rng(0)
    words = np.minimum(rng.zipf(1.3, size=(n, length)) - 1, vocabulary - 1)
    labels = np.where(rng.random((n, length)) < 0.1, rng.integers(1, n_labels, size=(n, length)), 0)
    again, others = np.repeat(words[:6], copies, axis=0), np.repeat(labels[:6], copies, axis=0)
    others[:, 5] += np.arange(len(others)) % copies < copies // 2
    others[:, 9] += np.arange(len(others)) % copies > 0
    words, labels = np.concatenate([words, again]), np.concatenate([labels, others % n_labels])
    # Features are the word, and pairs of the word and another one; different pairs may share a feature.
    pairs = [(7 * words + 31 * np.roll(words, k, axis=1) + k) % 5000 + vocabulary for k in range(n_features)]
    columns = np.stack([words, *pairs], axis=-1).reshape(words.size, -1).astype(np.int32)
    ends = np.arange(0, columns.size + 1, n_features + 1, dtype=np.int32)
    F = sp.csr_array((np.ones(columns.size), columns.ravel(), ends), shape=(words.size, vocabulary + 5000))
    F.sum_duplicates()
    layout = Layout.of(chain_terms(n_labels, InputKernel("linear"), C=C, C_edge=C), {TOKEN_TERM: F.shape[1]})
    chains = Chains.from_lengths(np.full(len(words), length))
    partition = ChainPartition(chains, n_labels, labels.ravel().astype(np.int32), {TOKEN_TERM: TokenFeatures(F)})
    return Objective(layout, [partition], LocalEngine(1))


def test_steps_that_single_precision_hides_are_taken_in_double_precision(monkeypatch):
    objective = repeated_posts(100.0)
    start, refined = np.zeros(objective.layout.size), []
    refine = Ascent.refine

    def refine_and_tell(ascent):
        refined.append((ascent.a.dtype, refine(ascent), ascent.a.dtype))
        return refined[-1][1]

    monkeypatch.setattr(Ascent, "refine", refine_and_tell)
    found = minimise(objective, Dual(), start, tol=1e-4, max_iter=100)
    assert found.status == "optimal"
    assert refined == [(np.float32, True, np.float64)]
    monkeypatch.setattr(Ascent, "refine", lambda ascent: False)
    stuck = minimise(objective, Dual(), start, tol=1e-4, max_iter=100)
    assert stuck.status == "max_iter"
    assert stuck.certificate.objective > found.certificate.objective


def test_rows_of_weights_are_spread_and_gathered():
    rng = np.random.default_rng(0)
    few = Pairs.of(rng.random((30, 17)) < 0.1)
    layout = sparse_objective(0, n_labels=17).layout
    terms = [replace(layout.terms[0], n=30, pairs=few), replace(layout.terms[0], n=4)]
    rows, weights = WeightRows.of(terms, 24), rng.normal(size=few.size + 4 * 17)
    flat = rows.spread(weights)
    np.testing.assert_array_equal(rows.gather(flat), weights)
    dense = np.vstack([few.unpack(weights[: few.size]), weights[few.size :].reshape(4, 17)])
    full = np.zeros((34, 24))
    for f, (low, high) in enumerate(itertools.pairwise(rows.pointers.astype(int))):
        assert high - low in (24, np.count_nonzero(dense[f]))
        full[f, rows.labels[low:high]] = flat[low:high]
    np.testing.assert_array_equal(full[:, :17], dense)
    assert not full[:, 17:].any()


def test_blocks_of_a_partition_measure_the_same_objective(monkeypatch):
    objective = sparse_objective(13, weighted=True, lengths=(5,) * 20)
    theta = np.random.default_rng(0).normal(size=objective.layout.size)
    whole = objective.evaluate(theta)
    assert objective.complete(whole) is whole
    monkeypatch.setattr(chain_partitions, "LEAST_MEASURED", 20)
    at = objective.measure(theta)
    assert at.parts[0].scores is None
    assert at.value == pytest.approx(whole.value, rel=1e-13)
    np.testing.assert_allclose(at.gradient, whole.gradient, atol=1e-12)
    assert objective.noise(at) == pytest.approx(objective.noise(whole), rel=1e-12)
    complete = objective.complete(at)
    np.testing.assert_array_equal(complete.parts[0].scores.s, whole.parts[0].scores.s)
    assert complete.lower_bound == at.lower_bound
