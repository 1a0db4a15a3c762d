"""Scores of +-800, long sequences, single precision: finite, and equal to a reference."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kernelcrf.graphs.structure import Chains
from kernelcrf.inference import chain, decoding
from kernelcrf.inference.logspace import LogMessages
from kernelcrf.inference.tangents import linearise
from oracles import log_space_moments
from problems import random_problem


def close(actual, expected, relative=1e-4):
    """Within `relative` of the greatest magnitude, as a probability vector is judged."""
    assert np.isfinite(actual).all()
    assert np.abs(np.asarray(actual, np.float64) - expected).max() <= relative * max(1.0, np.abs(expected).max())


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("where", ["nodes", "edges", "both", "edges with forbidden steps"])
def test_scores_of_800_are_exact(dtype, where):
    rng = np.random.default_rng(0)
    scores = rng.choice([-800.0, 0.0, 800.0], size=(50, 4)) if where != "edges" else np.zeros((50, 4))
    scores += rng.normal(size=scores.shape)
    transitions = rng.choice([-800.0, 800.0], size=(4, 4)) if where != "nodes" else np.zeros((4, 4))
    transitions += rng.normal(size=(4, 4))
    if where == "edges with forbidden steps":
        transitions[0, 1] = transitions[2, 2] = transitions[3, 0] = -np.inf
    scores, transitions = scores.astype(dtype), transitions.astype(dtype)
    chains = Chains.from_lengths([50])
    with np.errstate(divide="ignore"):
        log_z, p, q = log_space_moments(scores.astype(float), transitions.astype(float))
    moments = chain.moments(scores, transitions, chains)
    tolerance = 1e-4 if dtype == np.float32 else 1e-10
    close(moments.log_partition, log_z, tolerance)
    close(moments.nodes, p, tolerance)
    close(moments.edges, q.sum(axis=0), tolerance)
    assert np.isfinite(chain.entropy(scores, transitions, chains)).all()
    tangents = linearise(scores, transitions, chains).tangents(np.ones((50, 4), dtype), np.ones((4, 4), dtype))
    close(tangents.nodes, 0.0, tolerance)
    labels, best = decoding.viterbi(scores, transitions, chains)
    np.testing.assert_array_equal(p[np.arange(50), labels] > 0, True)
    assert best[0] <= moments.log_partition[0] + 1e-6 * abs(best[0])


def test_a_message_that_underflows_but_decides_the_sequence_is_not_lost():
    """Two sets of labels with no way between them: the one behind at half-time by exp(2000) wins in the end."""
    n_nodes = 40
    scores = np.zeros((n_nodes, 2))
    scores[: n_nodes // 2, 0] = 100.0
    scores[n_nodes // 2 :, 1] = 101.0
    transitions = np.array([[0.0, -np.inf], [-np.inf, 0.0]])
    moments = chain.moments(scores, transitions, Chains.from_lengths([n_nodes]))
    expected = 1 / (1 + np.exp(20.0))
    np.testing.assert_allclose(moments.nodes, np.tile([expected, 1 - expected], (n_nodes, 1)), rtol=1e-10)


@pytest.mark.parametrize("forbid", [0.0, 0.3])
def test_single_precision_at_20000_tokens_is_double_precision_to_1e_4(forbid):
    rng = np.random.default_rng(1)
    problem = random_problem(rng, 9, [20_000], scale=2.0, forbid=forbid)
    scores, transitions = (array.astype(np.float32) for array in problem.arguments[:2])
    double = scores.astype(float), transitions.astype(float), problem.chains
    single = scores, transitions, problem.chains
    moments, reference = chain.moments(*single), chain.moments(*double)
    assert moments.nodes.dtype == np.float32
    np.testing.assert_allclose(moments.log_partition, reference.log_partition, rtol=1e-4)
    np.testing.assert_allclose(moments.nodes, reference.nodes, rtol=1e-4, atol=1e-30)
    np.testing.assert_allclose(moments.edges, reference.edges, rtol=1e-4)
    np.testing.assert_allclose(chain.entropy(*single), chain.entropy(*double), rtol=1e-4)
    du, dw = rng.normal(size=scores.shape), rng.normal(size=(9, 9))
    tangents, exact = linearise(*single).tangents(du, dw), linearise(*double).tangents(du, dw)
    close(tangents.nodes, exact.nodes)
    close(tangents.edges, exact.edges)
    np.testing.assert_array_equal(decoding.viterbi(*single)[0], decoding.viterbi(*double)[0])


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_a_million_tokens_are_the_product_of_their_parts(dtype):
    """A label that is the only one allowed cuts a chain: the long sequence must equal its pieces."""
    rng = np.random.default_rng(2)
    piece, n_pieces = 1000, 1000
    scores = rng.normal(scale=3.0, size=(n_pieces * piece, 3)).astype(dtype)
    scores[::piece] = [0.0, -np.inf, -np.inf]
    transitions = rng.normal(size=(3, 3)).astype(dtype)
    long = Chains.from_lengths([n_pieces * piece])
    short = Chains.from_lengths([piece] * n_pieces)
    whole = chain.moments(scores, transitions, long)
    # A piece ends before the cut; the step into it is a factor of its own, a tilt of the last token.
    tilted = scores.copy()
    tilted[piece - 1 :: piece][:-1] += transitions[:, 0]
    parts = chain.moments(tilted.astype(np.float64), transitions.astype(np.float64), short)
    np.testing.assert_allclose(whole.log_partition, parts.log_partition.sum(), rtol=1e-4)
    # The scale of backward messages makes a random walk: each of the million steps rounds it once or twice.
    close(whole.nodes, parts.nodes, 2 * np.finfo(dtype).eps * np.sqrt(len(scores)))
    assert chain.entropy(scores, transitions, long)[0] == pytest.approx(
        chain.entropy(tilted, transitions, short).sum(), rel=1e-4
    )
    labels, _ = decoding.viterbi(scores, transitions, long)
    np.testing.assert_array_equal(labels, decoding.viterbi(tilted, transitions, short)[0])


def test_marginals_at_scores_of_1e30():
    """The rounding of such scores is larger than any score that a label can have: marginals are still marginals."""
    rng = np.random.default_rng(0)
    s, w = 1e30 * rng.normal(size=(9, 3)), 1e30 * rng.normal(size=(9, 3, 3))
    chains = Chains.from_lengths([4, 5])
    p, q = chain.moments(s, w, chains).nodes, chain.edge_marginals(s, w, chains)
    labels, _ = decoding.viterbi(s, w, chains)
    np.testing.assert_allclose(p, np.eye(3)[labels], atol=1e-12)
    np.testing.assert_allclose(q[[1, 2, 3, 5, 6, 7, 8]].sum(axis=(1, 2)), 1, atol=1e-12)


def alternating_labels(dtype=np.float64):
    """Six tokens that pull to one label and the other, and steps that cost 299: every mass is far below one."""
    d = np.array([259.0, -446, 227, 86, 353, -356])
    return np.stack([d / 2, -d / 2], axis=1).astype(dtype), np.array([[0.0, -299], [-299, 0]], dtype)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_small_masses_one_after_the_other_keep_their_product(dtype):
    scores, transitions = alternating_labels(dtype)
    chains = Chains.from_lengths([6])
    assert chain.log_partition(scores, transitions, chains)[0] == pytest.approx(118.5, abs=1e-9)
    repeated = Chains.from_lengths([6, 60, 6])
    many = np.vstack([scores, *[scores] * 10, scores])
    expected = log_space_moments(np.vstack([scores] * 10).astype(float), transitions.astype(float))[0]
    found = chain.moments(many, transitions, repeated).log_partition
    np.testing.assert_allclose(found, [118.5, expected, 118.5], rtol=1e-12)


@pytest.mark.parametrize("growth", [1.0, 100.0, 240.0])
def test_labels_that_no_path_reaches_may_have_any_scores(growth):
    """Labels 2 and 3 cannot be first, and no step leads to them: what would follow them has no weight."""
    transitions = np.full((4, 4), -np.inf)
    transitions[:2, :2] = transitions[2:, 2:] = 0.0
    scores = np.zeros((30, 4))
    scores[1:, 2:] = growth
    scores[0, 2:] = -np.inf
    chains = Chains.from_lengths([30])
    moments = chain.moments(scores, transitions, chains)
    assert moments.log_partition[0] == pytest.approx(30 * np.log(2), rel=1e-12)
    np.testing.assert_allclose(moments.nodes, np.tile([0.5, 0.5, 0, 0], (30, 1)), atol=1e-12)
    np.testing.assert_allclose(moments.edges[:2, :2], 29 / 4, rtol=1e-12)
    np.testing.assert_array_equal(moments.edges[2:], 0)
    np.testing.assert_array_equal(moments.edges[:, 2:], 0)
    tangents = linearise(scores, transitions, chains).tangents(np.ones((30, 4)), np.ones((4, 4)))
    np.testing.assert_allclose(tangents.nodes, 0, atol=1e-12)


def hard_scores(rng, regime, n_nodes, n_labels):
    """Node scores and transitions where messages are hardest to represent."""
    if regime == "uniform":
        return rng.uniform(-800, 800, (n_nodes, n_labels)), rng.uniform(-800, 800, (n_labels, n_labels))
    if regime == "bimodal":
        scores = rng.choice([-800.0, -400, 0, 400, 800], (n_nodes, n_labels))
        transitions = rng.choice([-800.0, -300, 0, 300], (n_labels, n_labels))
        return scores + rng.normal(size=scores.shape), transitions + rng.normal(size=transitions.shape)
    if regime == "alternating":
        scores = np.zeros((n_nodes, n_labels))
        scores[::2, 0], scores[1::2, -1] = rng.uniform(200, 800, 2)
        return scores, rng.uniform(-299, 0, (n_labels, n_labels))
    if regime == "steps of almost 300":
        scores, d = rng.normal(size=(n_nodes, n_labels)), rng.uniform(-450, 450, n_nodes)
        scores[:, 0], scores[:, 1] = d / 2, -d / 2
        return scores, np.where(np.eye(n_labels) > 0, 0.0, -rng.uniform(280, 300, (n_labels, n_labels)))
    scores = rng.uniform(-250, 250, (n_nodes, n_labels)) * rng.choice([0.2, 1.0])
    transitions = rng.uniform(-200, 0, (n_labels, n_labels))
    transitions[rng.random((n_labels, n_labels)) < 0.4] = -np.inf
    transitions[np.diag_indices(n_labels)] = 0.0
    scores[0, 1:][rng.random(n_labels - 1) < 0.5] = -np.inf
    return scores, transitions


@given(
    st.integers(0, 2**32 - 1),
    st.sampled_from(["uniform", "bimodal", "alternating", "steps of almost 300", "forbidden"]),
    st.integers(1, 50),
    st.integers(2, 5),
    st.sampled_from([np.float32, np.float64]),
)
def test_moments_of_hard_scores_are_those_of_log_space(seed, regime, n_nodes, n_labels, dtype):
    scores, transitions = hard_scores(np.random.default_rng(seed), regime, n_nodes, n_labels)
    scores, transitions = scores.astype(dtype), transitions.astype(dtype)
    chains = Chains.from_lengths([n_nodes])
    with np.errstate(divide="ignore", invalid="ignore"):
        log_z, p, q = log_space_moments(scores.astype(float), transitions.astype(float))
    moments = chain.moments(scores, transitions, chains)
    tolerance = 1e-5 if dtype == np.float32 else 1e-9
    assert moments.log_partition[0] == pytest.approx(log_z, abs=tolerance, rel=1e-12)
    assert chain.log_partition(scores, transitions, chains)[0] == moments.log_partition[0]
    close(moments.nodes, p, tolerance)
    close(chain.edge_marginals(scores, transitions, chains), q, tolerance)
    close(moments.edges, q.sum(axis=0), tolerance)


def test_a_direction_that_raises_all_scores_alike_changes_no_marginal_at_scores_of_1e4():
    """Rounding of logarithms of 1e4 would let conditional probabilities sum to 1 + 1e-12, times a large direction."""
    rng = np.random.default_rng(0)
    scores, transitions = (1e4 * rng.choice([-1, 1], shape) + rng.normal(size=shape) for shape in ((20, 3), (20, 3, 3)))
    messages = LogMessages.of(scores, transitions)
    for du, dw in ((1e5, 0.0), (0.0, 1e5), (1e5, -3e5)):
        dp, dq = messages.tangents(np.full(scores.shape, du), np.full(transitions.shape, dw))
        assert np.abs(dp).max() <= 1e-9
        assert np.abs(dq).max() <= 1e-9
