"""Filtered and lagged probabilities of segments, open segments and decided labels equal enumeration."""

from itertools import pairwise

import numpy as np
import pytest

from kernelcrf.readers.segments import SegmentLabels
from kernelcrf.streams.segment_filter import OpenSegmentScores, SegmentFilter

RUNS = SegmentLabels.of(np.array(["a", "b"]))
TAGS = SegmentLabels.of(np.array(["B-X", "B-Y", "I-X", "I-Y"]))
CASES = {
    "runs": (RUNS, 3, True, 1.0),
    "runs without tail": (RUNS, 3, False, 1.0),
    "runs of large scores": (RUNS, 3, True, 400.0),
    "tags": (TAGS, 2, True, 1.0),
    "tags, one duration": (TAGS, 1, True, 1.0),
    "tags without tail": (TAGS, 4, False, 50.0),
}
T, L = 6, 2


def problem(name, n=T, seed=0):
    spec, D, tail, scale = CASES[name]
    rng = np.random.default_rng(seed)
    s, first, last = scale * rng.normal(size=(3, n, L))
    w, durations, end = (scale * rng.normal(size=shape) for shape in ((L, L), (D, L), L))
    w[np.eye(L, dtype=bool) & ~spec.repeats[:, None]] = -np.inf
    return spec, s, first, last, w, durations, rng.normal(size=L) if tail else np.full(L, -np.inf), end


def segmentations(n):
    """All divisions of n tokens into segments, with all labels, as lists of (label, start, end)."""
    if n == 0:
        yield []
    for d in range(1, n + 1):
        for before in segmentations(n - d):
            for a in range(L):
                yield [*before, (a, n - d, n)]


def duration(durations, tail, d, a):
    D = len(durations)
    return durations[min(d, D) - 1, a] + (d - D) * (tail[a] if d > D else 0.0)


def hypotheses(problem, n, *, ended=False):
    """All segmentations of the first n tokens with their scores, and their probabilities."""
    _, s, first, last, w, durations, tail, end = problem
    found = []
    for segments in segmentations(n):
        score = sum(w[a, b] for (a, _, _), (b, _, _) in pairwise(segments))
        for a, start, stop in segments:
            score += first[start, a] + s[start:stop, a].sum() + last[stop - 1, a]
            score += duration(durations, tail, stop - start, a)
        found.append((segments, score + (end[segments[-1][0]] if ended else 0.0)))
    scores = np.array([score for _, score in found])
    p = np.exp(scores - scores.max())
    return found, p / p.sum()


def marginals(problem, n, *, ended=False):
    spec, (found, p) = problem[0], hypotheses(problem, n, ended=ended)
    nodes, starts = np.zeros((2, n, L))
    for (segments, _), q in zip(found, p, strict=True):
        for a, start, stop in segments:
            nodes[start:stop, a] += q
            starts[start, a] += q
    return spec.probabilities(nodes, starts)


def run(problem, lag, max_delay, sizes, *, restart=False):
    spec, s, first, last, w, durations, tail, end = problem

    def new():
        return SegmentFilter(spec, w, durations, tail, lag, max_delay)

    live, at, answers = new(), 0, []
    for size in sizes:
        rows = slice(at, at + size)
        answers.append(live.push(OpenSegmentScores(s[rows], first[rows], last[rows], end)))
        at += size
        if restart:
            state, live = live.state(), new()
            live.restore(state)
    answers.append(live.finish())
    newest = np.concatenate([answer.newest for answer in answers[:-1]])
    return newest, *(np.concatenate([getattr(one, name) for one in answers]) for name in ("lagged", "decided")), live


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("lag", [0, 2, 9])
def test_probabilities_equal_enumeration(name, lag):
    tiny = problem(name)
    newest, lagged, _, _ = run(tiny, lag, None, [1, 2, 0, 3])
    prefixes = [marginals(tiny, n) for n in range(1, T + 1)]
    np.testing.assert_allclose(newest, [p[-1] for p in prefixes], atol=1e-10)
    whole = marginals(tiny, T, ended=True)
    expected = [prefixes[t + lag][t] if t + lag < T else whole[t] for t in range(T)]
    np.testing.assert_allclose(lagged, expected, atol=1e-10)


@pytest.mark.parametrize("name", CASES)
def test_open_segments_equal_enumeration(name):
    tiny = problem(name)
    spec, s, first, last, w, durations, tail, end = tiny
    live = SegmentFilter(spec, w, durations, tail, 0, None)
    for n in range(1, T + 1):
        rows = slice(n - 1, n)
        live.push(OpenSegmentScores(s[rows], first[rows], last[rows], end))
        p = live.open_segments()
        expected = np.zeros(p.shape)
        for (segments, _), q in zip(*hypotheses(tiny, n), strict=True):
            a, start, stop = segments[-1]
            expected[min(stop - start, len(p)) - 1, a] += q
        np.testing.assert_allclose(p, expected, atol=1e-10)


def best(found, spec, n):
    """The labels of the best segmentation."""
    segments = max(found, key=lambda one: one[1])[0]
    types, is_first = np.zeros(n, int), np.zeros(n, bool)
    for a, start, stop in segments:
        types[start:stop], is_first[start] = a, True
    return spec.class_of(types, is_first)


@pytest.mark.parametrize("name", CASES)
def test_decided_labels_are_those_of_the_best_segmentation_unless_decisions_are_forced(name):
    for seed in range(6):
        tiny = problem(name, seed=seed)
        expected = best(hypotheses(tiny, T, ended=True)[0], tiny[0], T)
        _, _, decided, live = run(tiny, 1, T, [2, 1, 3])
        assert live.n_forced == 0
        np.testing.assert_array_equal(decided, expected)
        _, _, decided, live = run(tiny, 1, 1, [2, 1, 3])
        assert len(decided) == T
        if live.n_forced == 0:
            np.testing.assert_array_equal(decided, expected)


@pytest.mark.parametrize("name", CASES)
def test_with_no_delay_labels_are_those_of_the_best_open_segmentation(name):
    tiny = problem(name, seed=3)
    _, s, first, last, w, durations, tail, end = tiny
    live = SegmentFilter(tiny[0], w, durations, tail, 0, 0)
    answer = live.push(OpenSegmentScores(s[:1], first[:1], last[:1], end))
    np.testing.assert_array_equal(answer.decided, best(hypotheses(tiny, 1)[0], tiny[0], 1))


@pytest.mark.parametrize("name", CASES)
def test_a_long_stream_does_not_depend_on_blocks_and_its_state_can_be_stored(name):
    long = problem(name, 300)
    one = run(long, 4, 300, [300])
    sizes = [1, 50, 3, 0, 1, 120, 125]
    for other in (run(long, 4, 300, sizes), run(long, 4, 300, sizes, restart=True)):
        for mine, theirs in zip(one[:3], other[:3], strict=True):
            np.testing.assert_allclose(mine, theirs, atol=1e-11)
    assert all(np.isfinite(part).all() for part in one[:3])
