"""Segmentations against enumeration: sums, marginals, derivatives, the best ones, and samples."""

import itertools
from collections import Counter
from dataclasses import replace

import numpy as np
import pytest

from kernelcrf.graphs.structure import Chains
from kernelcrf.inference import chain
from kernelcrf.inference.feasibility import InfeasibleSequenceError
from kernelcrf.inference.segmentations import k_best, labels_of, sample, score_of, viterbi
from kernelcrf.inference.segments import SegmentMessages, SegmentScores, candidate_rows

WIDE = "scores and durations that differ by hundreds"
OWN, LIMITED = "scores of segments", "limits of segments"
PROBLEMS = {
    "one token": (1, 2, 1, False, False),
    "durations of 1 and 2": (4, 2, 2, False, False),
    "a tail": (5, 2, 2, True, False),
    "a tail from the first token": (5, 3, 1, True, False),
    "longer durations than the sequence": (5, 2, 7, True, True),
    "runs": (5, 3, 3, False, True),
    "runs with a tail": (6, 2, 3, True, True),
    WIDE: (6, 2, 5, True, False),
    OWN: (6, 2, 3, True, False),
    f"{OWN} without a tail": (6, 2, 4, False, True),
    LIMITED: (6, 2, 3, True, False),
    f"{OWN} and {LIMITED}": (6, 2, 2, True, False),
}
FIELDS = "tokens", "steps", "durations", "first", "last", "tail", "segments"


def draw(T, L, D, with_tail, runs, seed=0, ends=True):
    rng = np.random.default_rng(seed)
    steps = rng.normal(size=(L, L))
    if runs:
        np.fill_diagonal(steps, -np.inf)
    first, last = (rng.normal(size=(T, L)) if ends else None for _ in range(2))
    tail = rng.normal(size=L) if with_tail else None
    return SegmentScores(rng.normal(size=(T, L)), steps, rng.normal(size=(D, L)), first, last, tail)


def segmentations(T, L):
    for cuts in itertools.product([False, True], repeat=T - 1):
        bounds = [0, *(t + 1 for t, cut in enumerate(cuts) if cut), T]
        pieces = list(itertools.pairwise(bounds))
        for labels in itertools.product(range(L), repeat=len(pieces)):
            yield [(a, b, e) for a, (b, e) in zip(labels, pieces, strict=True)]


def plain_score(scores, segments):
    """The score of a segmentation, from the formula."""
    D, total = len(scores.durations), 0.0
    for at, (a, b, e) in enumerate(segments):
        total += scores.tokens[b:e, a].sum() + scores.durations[min(e - b, D) - 1, a]
        if e - b > D:
            total += -np.inf if scores.tail is None else (e - b - D) * scores.tail[a]
        total += 0.0 if scores.first is None else scores.first[b, a] + scores.last[e - 1, a]
        total += scores.steps[segments[at - 1][0], a] if at else 0.0
        if scores.segments is not None:
            total += scores.segments[candidate(len(scores.tokens), D, b, min(e - b, D)), a]
        if scores.continues is not None and not scores.continues[b + 1 : e, a].all():
            return -np.inf
    return total


def candidate(T, D, b, d):
    """The row of a candidate segment, by counting."""
    every = [(start, n) for start in range(T) for n in range(1, D + 1) if start + n <= T]
    return every.index((b, d))


@pytest.fixture(params=PROBLEMS, scope="module")
def problem(request):
    scores = draw(*PROBLEMS[request.param])
    if request.param == WIDE:
        rng = np.random.default_rng(0)
        scores = replace(scores, tokens=300 * rng.normal(size=(6, 2)), durations=500 * rng.normal(size=(5, 2)))
        scores.durations[1, 0] = -np.inf
    T, L = scores.tokens.shape
    if OWN in request.param:
        n = candidate_rows(Chains.from_lengths([T]), len(scores.durations))[-1]
        scores = replace(scores, segments=np.random.default_rng(3).normal(size=(n, L)))
    if LIMITED in request.param:
        scores = replace(scores, continues=np.random.default_rng(4).random((T, L)) < 0.6)
        scores.first[2, 0] = -np.inf
    every = list(segmentations(T, L))
    values = np.array([plain_score(scores, one) for one in every])
    return scores, every, values


def test_marginals_equal_enumeration(problem):
    scores, every, values = problem
    found, (T, L), D = SegmentMessages.of(scores), scores.tokens.shape, len(scores.durations)
    log_z = np.logaddexp.reduce(values)
    expected = {"nodes": np.zeros((T, L)), "starts": np.zeros((T, L)), "ends": np.zeros((T, L))}
    expected |= {"steps": np.zeros((L, L)), "lengths": np.zeros((D, L)), "more": np.zeros(L)}
    expected["segments"] = np.zeros((0, L) if scores.segments is None else scores.segments.shape)
    of_segments = Counter()
    for segments, p in zip(every, np.exp(values - log_z), strict=True):
        for at, (a, b, e) in enumerate(segments):
            expected["nodes"][b:e, a] += p
            expected["starts"][b, a] += p
            expected["ends"][e - 1, a] += p
            expected["lengths"][min(e - b, D) - 1, a] += p
            expected["more"][a] += p * max(e - b - D, 0)
            of_segments[a, b, e] += p
            if scores.segments is not None:
                expected["segments"][candidate(T, D, b, min(e - b, D)), a] += p
            if at:
                expected["steps"][segments[at - 1][0], a] += p
    assert found.log_partition[0] == pytest.approx(log_z, abs=1e-12)
    own = np.exp(found.log_probabilities(*np.array(list(of_segments)).T))
    np.testing.assert_allclose(own, list(of_segments.values()), rtol=0, atol=1e-12)
    for name, value in expected.items():
        np.testing.assert_allclose(getattr(found.moments, name), value, rtol=0, atol=1e-12, err_msg=name)
    p = np.exp(values - log_z)
    assert found.entropy()[0] == pytest.approx(-(p[p > 0] * np.log(p[p > 0])).sum(), abs=1e-10)


def test_the_best_segmentations_equal_enumeration(problem):
    scores, every, values = problem
    order = np.argsort(-values, kind="stable")
    best, score = viterbi(scores)
    assert best == every[order[0]]
    assert score == pytest.approx(values.max())
    possible = int((values > -np.inf).sum())
    ranked = k_best(scores, 12)
    assert len(ranked) == min(12, possible)
    np.testing.assert_allclose([own for _, own in ranked], values[order[: len(ranked)]], atol=1e-12)
    for segments, own in ranked:
        assert score_of(scores, segments) == pytest.approx(own) == plain_score(scores, segments)


def test_samples_have_the_probabilities_of_segmentations(problem):
    scores, every, values = problem
    n = 4000
    counts = Counter(tuple(one) for one in sample(SegmentMessages.of(scores), n, np.random.default_rng(0)))
    p = np.exp(values - np.logaddexp.reduce(values))
    for segments, own in zip(every, p, strict=True):
        assert abs(counts[tuple(segments)] / n - own) <= 5 * np.sqrt(own * (1 - own) / n) + 2 / n


def test_tangents_are_derivatives_of_the_marginals(problem):
    scores, _, _ = problem
    rng, step = np.random.default_rng(1), 1e-5
    direction = SegmentScores(
        **{name: None if (x := getattr(scores, name)) is None else rng.normal(size=x.shape) for name in FIELDS}
    )
    tangent = SegmentMessages.of(scores).tangent(direction)
    high, low = (SegmentMessages.of(scores.move(direction, sign * step)) for sign in (1, -1))
    np.testing.assert_allclose(tangent.log_partition, (high.log_partition - low.log_partition) / (2 * step), atol=1e-8)
    for name in ("nodes", "starts", "ends", "steps", "lengths", "more", "segments"):
        difference = (getattr(high.moments, name) - getattr(low.moments, name)) / (2 * step)
        np.testing.assert_allclose(getattr(tangent, name), difference, rtol=0, atol=1e-8, err_msg=name)


def test_segments_of_one_token_are_a_chain():
    scores = replace(draw(7, 3, 1, False, False, ends=False), durations=np.zeros((1, 3)))
    chains = Chains.from_lengths([7])
    found = SegmentMessages.of(scores)
    expected = chain.moments(scores.tokens, scores.steps, chains)
    assert found.log_partition[0] == pytest.approx(chain.log_partition(scores.tokens, scores.steps, chains)[0])
    np.testing.assert_allclose(found.moments.nodes, expected.nodes, atol=1e-12)


@pytest.mark.parametrize("D", [1, 3, 10])
def test_geometric_durations_are_self_transitions_of_a_chain(D):
    rng, T, L = np.random.default_rng(0), 8, 3
    w, s = rng.normal(size=(L, L)), rng.normal(size=(T, L))
    between = w.copy()
    np.fill_diagonal(between, -np.inf)
    durations = np.arange(D)[:, None] * np.diagonal(w)
    # A copy, because the loops would be compiled anew for a diagonal, whose entries are not side by side.
    found = SegmentMessages.of(SegmentScores(s, between, durations, tail=np.diagonal(w).copy()))
    chains = Chains.from_lengths([T])
    assert found.log_partition[0] == pytest.approx(chain.log_partition(s, w, chains)[0], abs=1e-12)
    np.testing.assert_allclose(found.moments.nodes, chain.moments(s, w, chains).nodes, atol=1e-12)
    edges = chain.edge_marginals(s, w, chains).sum(axis=0)
    np.testing.assert_allclose(found.moments.steps, np.where(np.eye(L, dtype=bool), 0, edges), atol=1e-12)


def test_long_sequences_and_large_scores_stay_finite():
    rng, T, L, D = np.random.default_rng(0), 20_000, 4, 30
    scores = SegmentScores(rng.normal(size=(T, L)), rng.normal(size=(L, L)), rng.normal(size=(D, L)), tail=np.zeros(L))
    found = SegmentMessages.of(scores).moments
    np.testing.assert_allclose(found.nodes.sum(axis=1), 1, atol=1e-12)
    assert found.starts.sum() == pytest.approx(found.ends.sum(), rel=1e-9)
    assert found.steps.sum() == pytest.approx(found.starts.sum() - 1, rel=1e-9)
    assert found.lengths.sum() == pytest.approx(found.starts.sum(), rel=1e-9)
    segments, score = viterbi(scores)
    assert score == pytest.approx(score_of(scores, segments), rel=1e-12)
    assert labels_of(segments).shape == (T,)
    large = SegmentMessages.of(replace(draw(6, 2, 3, True, False), tokens=800 * rng.normal(size=(6, 2))))
    assert np.isfinite(large.log_partition[0])
    assert np.isfinite(large.moments.nodes).all()


def test_what_is_empty_or_forbidden():
    nothing = SegmentScores(np.empty((0, 2)), np.zeros((2, 2)), np.zeros((3, 2)))
    assert SegmentMessages.of(nothing).log_partition[0] == 0
    assert viterbi(nothing) == ([], 0.0)
    assert labels_of([]).shape == (0,)
    short = SegmentScores(np.zeros((5, 1)), np.full((1, 1), -np.inf), np.zeros((3, 1)))
    with pytest.raises(InfeasibleSequenceError):
        SegmentMessages.of(short)
    with pytest.raises(InfeasibleSequenceError):
        viterbi(short)


@pytest.mark.parametrize("with_segments", [False, True])
def test_sequences_in_one_call_equal_single_sequences(with_segments):
    rng, L, D, lengths = np.random.default_rng(0), 3, 4, [5, 0, 1, 7, 3]
    chains, weights = Chains.from_lengths(lengths), rng.random(5)
    N = chains.n_nodes
    rows = candidate_rows(chains, D)
    both = SegmentScores(
        rng.normal(size=(N, L)), rng.normal(size=(L, L)), rng.normal(size=(D, L)), rng.normal(size=(N, L)),
        rng.normal(size=(N, L)), rng.normal(size=L), rng.normal(size=(rows[-1], L)) if with_segments else None,
        rng.random((N, L)) < 0.9, chains,
    )  # fmt: skip
    direction = SegmentScores(
        **{name: None if (x := getattr(both, name)) is None else rng.normal(size=x.shape) for name in FIELDS}
    )
    found = SegmentMessages.of(both, weights, n_threads=2)
    results = {"moments": (found.moments, []), "tangent": (found.tangent(direction), [])}
    entropies = found.entropy()
    for i, (low, high) in enumerate(zip(chains.offsets[:-1], chains.offsets[1:], strict=True)):
        cut = {name: slice(low, high) for name in ("tokens", "first", "last", "continues")}
        cut["segments"] = slice(rows[low], rows[high])
        one, along = (
            replace(x, chains=None, **{k: None if getattr(x, k) is None else getattr(x, k)[t] for k, t in cut.items()})
            for x in (both, direction)
        )
        single = SegmentMessages.of(one)
        results["moments"][1].append(single.moments)
        results["tangent"][1].append(single.tangent(along))
        assert entropies[i] == pytest.approx(single.entropy()[0], abs=1e-12)
        assert k_best(both, 3, i) == k_best(one, 3)
        same = [np.random.default_rng(1) for _ in range(2)]
        assert sample(found, 5, same[0], i) == sample(single, 5, same[1])
    for together, singles in results.values():
        for name in ("log_partition", "nodes", "starts", "ends", "segments"):
            np.testing.assert_allclose(getattr(together, name), np.concatenate([getattr(x, name) for x in singles]))
        for name in ("steps", "lengths", "more"):
            total = sum(own * getattr(x, name) for own, x in zip(weights, singles, strict=True))
            np.testing.assert_allclose(getattr(together, name), total, atol=1e-13)
