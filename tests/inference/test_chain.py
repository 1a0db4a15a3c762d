import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kernelcrf.graphs.structure import Chains
from kernelcrf.inference import chain
from oracles import log_space_moments
from problems import chain_problems, random_problem


@given(chain_problems())
def test_moments_equal_enumeration(problem):
    moments = chain.moments(*problem.arguments)
    each = chain.edge_marginals(*problem.arguments)
    summed = np.zeros_like(each[0]) if len(each) else 0.0
    for sample, rows, truth in problem.enumerations():
        assert moments.log_partition[sample] == pytest.approx(truth.log_partition, rel=1e-10, abs=1e-10)
        for t in range(rows.stop - rows.start):
            np.testing.assert_allclose(moments.nodes[rows][t], truth.marginal([t]), atol=1e-10, rtol=0)
            q = truth.marginal([t - 1, t]) if t else np.zeros_like(each[0])
            np.testing.assert_allclose(each[rows][t], q, atol=1e-10, rtol=0)
            summed = summed + q
    np.testing.assert_allclose(moments.edges, summed if problem.tied else each, atol=1e-10, rtol=0)


@given(chain_problems())
def test_log_partition_and_entropy_equal_enumeration(problem):
    log_z, entropy = chain.log_partition(*problem.arguments), chain.entropy(*problem.arguments)
    for sample, _, truth in problem.enumerations():
        assert log_z[sample] == pytest.approx(truth.log_partition, rel=1e-10, abs=1e-10)
        assert entropy[sample] == pytest.approx(truth.entropy, abs=1e-10)


@given(chain_problems(), st.integers(0, 2**32 - 1))
def test_log_prob_of_a_labelling_equals_enumeration(problem, seed):
    labels = np.random.default_rng(seed).integers(problem.scores.shape[1], size=problem.chains.n_nodes)
    log_p = chain.log_prob(*problem.arguments, labels)
    for sample, rows, truth in problem.enumerations():
        place = np.flatnonzero((truth.labelings == labels[rows]).all(axis=1))[0]
        expected = truth.scores[place] - truth.log_partition
        assert log_p[sample] == expected or log_p[sample] == pytest.approx(expected, abs=1e-9)


@pytest.mark.parametrize("tied", [True, False])
@pytest.mark.parametrize("gauge", [0.0, 600.0])
def test_marginals_are_the_gradient_of_the_log_partition(tied, gauge):
    rng = np.random.default_rng(3)
    problem = random_problem(rng, 3, [4, 1, 6], tied=tied, gauge=gauge)
    moments = chain.moments(*problem.arguments)
    du, dw = rng.normal(size=problem.scores.shape), rng.normal(size=problem.transitions.shape)

    def value(h):
        return chain.log_partition(problem.scores + h * du, problem.transitions + h * dw, problem.chains).sum()

    slope = (8 * (value(1e-3) - value(-1e-3)) - (value(2e-3) - value(-2e-3))) / 12e-3
    assert slope == pytest.approx((moments.nodes * du).sum() + (moments.edges * dw).sum(), abs=1e-8)


def test_labels_are_independent_given_a_label_between_them():
    """Theorem 4: a sum of scores over cliques is a Markov random field on their graph."""
    problem = random_problem(np.random.default_rng(6), 3, [4])
    labelings = np.array(list(itertools.product(range(3), repeat=4)))
    p = np.exp([chain.log_prob(*problem.arguments, y)[0] for y in labelings]).reshape((3,) * 4)
    for j in range(3):
        joint = p[:, :, j, :].sum(axis=1)  # of the first and the last label, if the third is j
        joint /= joint.sum()
        np.testing.assert_allclose(joint, np.outer(joint.sum(axis=1), joint.sum(axis=0)), atol=1e-12)
    pair = p.sum(axis=(2, 3))
    assert np.abs(pair - np.outer(pair.sum(axis=1), pair.sum(axis=0))).max() > 0.01  # neighbours are not independent


def test_scores_of_inputs_alone_change_no_probability():
    """Lemma 12: a clique without labels adds the same number to the scores of all labels."""
    rng = np.random.default_rng(7)
    problem = random_problem(rng, 3, [4, 1, 2])
    s, w, chains = problem.arguments
    labels = rng.integers(3, size=chains.n_nodes)
    moved = s + rng.normal(size=(chains.n_nodes, 1))
    np.testing.assert_allclose(chain.log_prob(moved, w, chains, labels), chain.log_prob(s, w, chains, labels))
    np.testing.assert_allclose(chain.moments(moved, w, chains).nodes, chain.moments(s, w, chains).nodes, atol=1e-12)


@pytest.mark.parametrize("n_labels", [10, 11, 16, 23, 45])
def test_wide_rows_equal_a_numpy_twin_in_log_space(n_labels):
    problem = random_problem(np.random.default_rng(n_labels), n_labels, [9, 1, 30], scale=2.0, forbid=0.2)
    moments, entropy = chain.moments(*problem.arguments), chain.entropy(*problem.arguments)
    edges = 0.0
    for sample in range(3):
        rows = problem.rows(sample)
        with np.errstate(divide="ignore"):
            log_z, p, q = log_space_moments(problem.scores[rows], problem.transitions)
        edges = edges + q.sum(axis=0)
        assert moments.log_partition[sample] == pytest.approx(log_z, rel=1e-12)
        np.testing.assert_allclose(moments.nodes[rows], p, atol=1e-12)
        expected = np.vdot(p, -np.nan_to_num(problem.scores[rows], neginf=0.0)) + log_z
        expected -= np.vdot(q.sum(axis=0), np.nan_to_num(problem.transitions, neginf=0.0))
        assert entropy[sample] == pytest.approx(expected, abs=1e-10)
    np.testing.assert_allclose(moments.edges, edges, atol=1e-11)


@pytest.mark.parametrize("forbid", [0.0, 0.3])
def test_a_result_does_not_depend_on_the_number_of_threads(forbid):
    rng = np.random.default_rng(0)
    lengths = np.concatenate((rng.integers(0, 60, size=1500), [9000], rng.integers(0, 9, size=500)))
    problem = random_problem(rng, 5, lengths, forbid=forbid)
    one, two, five = (chain.moments(*problem.arguments, n_threads=n) for n in (1, 2, 5))
    for other in (two, five):
        np.testing.assert_array_equal(one.log_partition, other.log_partition)
        np.testing.assert_array_equal(one.nodes, other.nodes)
        np.testing.assert_array_equal(one.edges, other.edges)


def test_transitions_at_first_tokens_are_not_read():
    problem = random_problem(np.random.default_rng(5), 3, [4, 3], tied=False)
    spoilt = problem.transitions.copy()
    spoilt[problem.chains.first_nodes] = np.nan
    a, b = (chain.moments(problem.scores, w, problem.chains) for w in (problem.transitions, spoilt))
    np.testing.assert_array_equal(a.edges, b.edges)
    np.testing.assert_array_equal(a.nodes, b.nodes)


def test_what_does_not_fit_is_refused_by_name():
    chains = Chains.from_lengths([2, 1])
    good, w = np.zeros((3, 2)), np.zeros((2, 2))
    with pytest.raises(ValueError, match=r"scores has 4 rows but the chains have 3 tokens"):
        chain.moments(np.zeros((4, 2)), w, chains)
    with pytest.raises(ValueError, match=r"scores has shape \(3,\): expected \(N, L\)"):
        chain.moments(np.zeros(3), w, chains)
    with pytest.raises(ValueError, match=r"transitions has shape \(3, 3\): expected \(2, 2\), indexed \[from, to\]"):
        chain.moments(good, np.zeros((3, 3)), chains)
    with pytest.raises(ValueError, match=r"scores\[2, 1\] is nan \(sequence 1, token 0\)"):
        chain.moments(np.array([[0, 0], [0, 0], [0, np.nan]]), w, chains)
    with pytest.raises(ValueError, match=r"transitions\[0, 1\] is inf"):
        chain.moments(good, np.array([[0, np.inf], [0, 0]]), chains)
    with pytest.raises(ValueError, match=r"values from 0 to 2: expected column indices of scores, from 0 to 1"):
        chain.log_prob(good, w, chains, [0, 1, 2])
    with pytest.raises(ValueError, match=r"labels has shape \(2,\).*one per token"):
        chain.log_prob(good, w, chains, [0, 1])
