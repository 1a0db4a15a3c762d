"""Filtered and lagged probabilities, and decided labels, equal enumeration; the loops of the tagger give the same."""

from itertools import product

import numpy as np
import pytest

from kernelcrf.graphs.structure import Chains
from kernelcrf.inference.decoding import viterbi
from kernelcrf.inference.feasibility import InfeasibleSequenceError
from kernelcrf.streams.chain_filter import ChainFilter
from kernelcrf.streams.compiled_loops import CompiledLoops
from kernelcrf.tagger.stream_loops import NumpyLoops

LOOPS = pytest.mark.parametrize("loops", [CompiledLoops(), NumpyLoops()], ids=["compiled", "numpy"])
KINDS = pytest.mark.parametrize(("by_token", "forbid"), list(product([False, True], repeat=2)))
SCALES = pytest.mark.parametrize("scale", [1, 60, 800])


def problem(seed, T, L, *, by_token, forbid, scale):
    rng = np.random.default_rng(seed)
    s, w = scale * rng.normal(size=(T, L)), scale * rng.normal(size=(T, L, L) if by_token else (L, L))
    end = scale * rng.normal(size=L)
    if forbid:
        w[rng.random(w.shape) < 0.3] = -np.inf
        w[..., np.arange(L), np.arange(L)] = 0.0
        s[0, -1] = end[0] = -np.inf
    return s, w, end


def labellings(s, w):
    """All labellings and their scores."""
    T, L = s.shape
    y, steps = np.array(list(product(range(L), repeat=T))), np.broadcast_to(w, (T, L, L))
    scores = s[np.arange(T), y].sum(axis=1)
    for t in range(1, T):
        scores = scores + steps[t, y[:, t - 1], y[:, t]]
    return y, scores


def marginals(s, w, end=None):
    y, scores = labellings(s, w)
    scores = scores if end is None else scores + end[y[:, -1]]
    p = np.exp(scores - scores.max())
    return np.array([np.bincount(y[:, t], p / p.sum(), s.shape[1]) for t in range(len(s))])


def run(loops, s, w, end, lag, max_delay, sizes, *, restart=False):
    """Push blocks of the given sizes; return filtered and lagged probabilities, decided labels, and the filter."""
    L, by_token = s.shape[1], w.ndim == 3

    def new():
        return ChainFilter(loops, L, lag, max_delay, *((None, None) if by_token else (w, w > -np.inf)))

    live, at, answers = new(), 0, []
    for size in sizes:
        block = slice(at, at + size)
        answers.append(live.push(s[block], w[block] if by_token else None, end))
        at += size
        if restart:
            state, live = live.state(), new()
            live.restore(state)
    rest = live.finish()
    newest = np.concatenate([answer.newest for answer in answers])
    lagged, decided = (
        np.concatenate([getattr(one, name) for one in [*answers, rest]]) for name in ("lagged", "decided")
    )
    starts = [answer.first_lagged for answer in [*answers, rest]]
    assert starts == [0, *np.cumsum([len(answer.lagged) for answer in answers])][: len(starts)]
    return newest, lagged, decided, live


@LOOPS
@KINDS
@SCALES
@pytest.mark.parametrize("lag", [0, 2, 9])
def test_probabilities_equal_enumeration(loops, by_token, forbid, scale, lag):
    T, L = 6, 3
    s, w, end = problem(scale + lag, T, L, by_token=by_token, forbid=forbid, scale=scale)
    newest, lagged, _, _ = run(loops, s, w, end, lag, None, [1, 2, 0, 3])
    prefixes = [marginals(s[:t], w if w.ndim == 2 else w[:t]) for t in range(1, T + 1)]
    np.testing.assert_allclose(newest, [p[-1] for p in prefixes], atol=1e-11)
    whole = marginals(s, w, end)
    # Token t is final with token t + lag or, if the sequence ends before, with its end.
    expected = [prefixes[t + lag][t] if t + lag < T else whole[t] for t in range(T)]
    np.testing.assert_allclose(lagged, expected, atol=1e-11)


def following(paths, at, label, w):
    """The paths whose label at a token may follow the decided label of the token before; all, if there are none."""
    allowed = w > -np.inf if w.ndim == 2 else np.ones(w.shape[1:], bool)
    return {j: one for j, one in paths.items() if allowed[label, one[1][at]]} or paths


def decisions(s, w, end, max_delay):
    """Decided labels and the number of forced decisions, by Viterbi's algorithm with explicit paths."""
    (T, L), decided, forced = s.shape, [], 0
    paths = {}
    for t in range(T):
        steps = w if w.ndim == 2 else w[t]
        new = {j: (s[0, j], [j]) for j in range(L)} if t == 0 else {}
        for j in range(L if t else 0):
            score, path = max(
                ((score + steps[i, j], path) for i, (score, path) in paths.items()), key=lambda one: one[0]
            )
            new[j] = score + s[t, j], [*path, j]
        new = {j: one for j, one in new.items() if one[0] > -np.inf}
        if not new:
            decided += max(paths.values())[1][len(decided) :]
            forced += 1
            new = {j: (s[t, j], [*decided, j]) for j in range(L)}
        paths = following(new, t, decided[-1], w) if len(decided) == t > 0 else new
        while len(decided) <= t:
            at, top = len(decided), max(paths.values(), key=lambda one: one[0])[1]
            if len({path[at] for _, path in paths.values()}) > 1:
                if t - at < max_delay:
                    break
                forced += 1
            decided.append(top[at])
            if at < t:
                paths = following(paths, at + 1, decided[-1], w)
    ended = {j: (score + end[j], path) for j, (score, path) in paths.items()}
    if max(score for score, _ in ended.values()) == -np.inf:
        ended, forced = paths, forced + 1
    return [*decided, *max(ended.values(), key=lambda one: one[0])[1][len(decided) :]], forced


@LOOPS
@KINDS
@pytest.mark.parametrize("max_delay", [0, 1, 3, 20])
def test_decided_labels_equal_those_of_explicit_paths(loops, by_token, forbid, max_delay):
    n_forced = 0
    for seed in range(12):
        s, w, end = problem(seed, 12, 3, by_token=by_token, forbid=forbid, scale=0.7)
        labels, forced = decisions(s, w, end, max_delay)
        found = run(loops, s, w, end, 1, max_delay, [2, 1, 1, 8])
        np.testing.assert_array_equal(found[2], labels)
        assert found[3].n_forced == forced
        n_forced += forced
    assert (n_forced > 0) == (max_delay < 12)


@LOOPS
@KINDS
@SCALES
def test_a_long_stream_equals_inference_on_the_whole_and_its_state_can_be_stored(loops, by_token, forbid, scale):
    T, L, lag = 300, 4, 7
    s, w, end = problem(5, T, L, by_token=by_token, forbid=forbid, scale=scale)
    one = run(loops, s, w, end, lag, T, [T])
    sizes = [1, 50, 3, 0, 1, 120, 125]
    for other in (run(loops, s, w, end, lag, T, sizes), run(loops, s, w, end, lag, T, sizes, restart=True)):
        for mine, theirs in zip(one[:3], other[:3], strict=True):
            np.testing.assert_allclose(mine, theirs, atol=1e-13)
    s[-1] += end
    assert one[3].n_forced == 0
    np.testing.assert_array_equal(one[2], viterbi(s, w, Chains.from_lengths([T]))[0])


def test_both_loops_give_the_same_decisions_when_they_are_forced():
    for seed in range(5):
        s, w, end = problem(seed, 200, 5, by_token=seed % 2 == 0, forbid=seed > 2, scale=0.3)
        both = [run(loops, s, w, end, 3, 2, [60, 1, 139]) for loops in (CompiledLoops(), NumpyLoops())]
        np.testing.assert_array_equal(both[0][2], both[1][2])
        assert both[0][3].n_forced == both[1][3].n_forced > 0


@LOOPS
def test_a_path_that_cannot_go_on_starts_again(loops):
    """After the forced label 0 only 2 can follow, after which nothing can; the labels 1, 1, 1 were right."""
    w = np.full((3, 3), -np.inf)
    w[0, 2] = w[1, 1] = 0.0
    live = ChainFilter(loops, 3, 0, 0, w, w > -np.inf)
    rows = np.array([[1.0, 0.0, -1.0], [0.0, 0.0, 0.0], [0.0, 0.0, 0.0]])
    assert [live.push(row[None], None, np.zeros(3)).decided.tolist() for row in rows] == [[0], [2], [1]]
    assert live.n_forced == 2


@LOOPS
def test_a_forced_decision_keeps_other_paths_and_breaks_no_constraint(loops):
    """The label changes as soon as the evidence for it has grown, although all labels were decided at once."""
    s, w = np.column_stack([np.zeros(9), [-1.0, *[1.0] * 8]]), np.log([[0.9, 0.1], [0.1, 0.9]])
    found = run(loops, s, w, np.zeros(2), 0, 0, [9])
    assert found[2].tolist() == [0, 0, *[1] * 7]
    for seed in range(5):
        s, w, end = problem(seed, 60, 4, by_token=False, forbid=True, scale=0.5)
        labels = run(loops, s, w, end, 0, 1, [60])[2]
        assert (w[labels[:-1], labels[1:]] > -np.inf).all()


@LOOPS
def test_an_impossible_token_raises_and_changes_nothing(loops):
    s, w = np.zeros((3, 2)), np.array([[0.0, 1.0], [1.0, 0.0]])
    live = ChainFilter(loops, 2, 1, 5, w)
    live.push(s, None, np.zeros(2))
    before = live.state()
    with pytest.raises(InfeasibleSequenceError, match="token 4"):
        live.push(np.array([[0.0, 0.0], [-np.inf, -np.inf]]), None, np.zeros(2))
    for name, array in live.state().items():
        np.testing.assert_array_equal(array, before[name])
    live.push(s[:1], None, np.full(2, -np.inf))
    with pytest.raises(InfeasibleSequenceError):
        live.finish()


def test_a_state_that_does_not_fit_is_refused():
    live = ChainFilter(NumpyLoops(), 3, 2, 4, np.zeros((3, 3)))
    live.push(np.random.default_rng(0).normal(size=(5, 3)), None, np.zeros(3))
    state = live.state()

    def restore(n_labels=3, lag=2, max_delay=4, **changes):
        ChainFilter(NumpyLoops(), n_labels, lag, max_delay, np.zeros((n_labels,) * 2)).restore(state | changes)

    restore()
    with pytest.raises(ValueError, match=r"state\['la'\] is an array of float64 and shape \(3, 3\): expected"):
        restore(n_labels=2)
    with pytest.raises(ValueError, match="the lag and the max_delay"):
        restore(lag=3)
    with pytest.raises(ValueError, match="the lag and the max_delay"):
        restore(max_delay=None)
    with pytest.raises(ValueError, match="without NaN"):
        restore(la=np.full((3, 3), np.nan))
    with pytest.raises(ValueError, match="counts"):
        restore(counts=np.array([0, 9, 0]))
    with pytest.raises(ValueError, match="back"):
        restore(back=np.full((6, 3), 7))
