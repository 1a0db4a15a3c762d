"""Labels and probabilities of one sequence equal enumeration, and those of compiled inference."""

from itertools import product

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kernelcrf.graphs.structure import Chains
from kernelcrf.inference import chain as compiled
from kernelcrf.inference.decoding import viterbi as compiled_viterbi
from kernelcrf.inference.feasibility import InfeasibleSequenceError
from kernelcrf.tagger.chain import FREE_RANGE, log_probability, marginals, viterbi


def problem(seed, T, L, *, by_token, forbid, scale):
    rng = np.random.default_rng(seed)
    s, w = scale * rng.normal(size=(T, L)), scale * rng.normal(size=(T, L, L) if by_token else (L, L))
    if forbid:
        s[rng.random(s.shape) < 0.2] = -np.inf
        w[rng.random(w.shape) < 0.2] = -np.inf
        s[:, 0], w[..., 0, 0] = 0.0, 0.0
    return s, w


def enumerated(s, w):
    """Probabilities of all labellings, and the labels."""
    T, L = s.shape
    labelings = np.array(list(product(range(L), repeat=T)))
    steps = np.broadcast_to(w, (T, L, L))
    scores = s[np.arange(T), labelings].sum(axis=1)
    for t in range(1, T):
        scores += steps[t, labelings[:, t - 1], labelings[:, t]]
    p = np.exp(scores - scores.max())
    return labelings, p / p.sum()


CASES = st.fixed_dictionaries(
    {"by_token": st.booleans(), "forbid": st.booleans(), "scale": st.sampled_from([1, 50, 800])}
)


@given(st.integers(0, 10**6), st.integers(1, 5), st.integers(1, 4), CASES)
def test_labels_and_probabilities_equal_enumeration(seed, T, L, case):
    s, w = problem(seed, T, L, **case)
    labelings, p = enumerated(s, w)
    nodes, edges = marginals(s, w, edges=True)
    np.testing.assert_allclose([[p[labelings[:, t] == j].sum() for j in range(L)] for t in range(T)], nodes, atol=1e-9)
    for t in range(1, T):
        joint = [[p[(labelings[:, t - 1] == i) & (labelings[:, t] == j)].sum() for j in range(L)] for i in range(L)]
        np.testing.assert_allclose(joint, edges[t], atol=1e-9)
    assert not edges[0].any()
    found = [log_probability(s, w, labels) for labels in labelings.tolist()]
    np.testing.assert_allclose(np.exp(found), p, atol=1e-9)
    assert max(found) <= 0
    assert p[(labelings == viterbi(s, w)).all(axis=1)] == pytest.approx(p.max())


@pytest.mark.parametrize("scale", [1, 3, 60, 800])
@pytest.mark.parametrize("by_token", [False, True])
@pytest.mark.parametrize("forbid", [False, True])
def test_long_sequences_equal_compiled_inference(scale, by_token, forbid):
    s, w = problem(0, 400, 6, by_token=by_token, forbid=forbid, scale=scale)
    chains = Chains.from_lengths([len(s)])
    expected = compiled.moments(s, w, chains)
    nodes, edges = marginals(s, w, edges=True)
    np.testing.assert_allclose(nodes, expected.nodes, rtol=0, atol=1e-11)
    np.testing.assert_allclose(edges, compiled.edge_marginals(s, w, chains), rtol=0, atol=1e-11)
    assert viterbi(s, w) == compiled_viterbi(s, w, chains)[0].tolist()


def test_wide_transitions_take_logarithms():
    s, w = np.array([[0.0, 0.0], [0.0, -1000.0]]), np.array([[-FREE_RANGE - 1.0, 0.0], [-2000.0, 0.0]])
    np.testing.assert_allclose(marginals(s, w)[0][0], [1.0, np.exp(-1000.0 + FREE_RANGE + 1.0)])


def test_sequences_without_a_labelling_are_an_error_and_empty_ones_are_not():
    s, w = np.zeros((2, 2)), np.full((2, 2), -np.inf)
    for ask in (viterbi, marginals):
        with pytest.raises(InfeasibleSequenceError):
            ask(s, w)
    assert viterbi(np.empty((0, 2)), w) == []
    assert marginals(np.empty((0, 2)), w)[0].shape == (0, 2)
