import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import chisquare

from kernelcrf.graphs.structure import EDGE, Chains
from kernelcrf.inference import chain, decoding
from problems import chain_problems, random_problem


@given(chain_problems())
def test_viterbi_equals_enumeration(problem):
    labels, best = decoding.viterbi(*problem.arguments)
    for sample, rows, truth in problem.enumerations():
        labelings, scores = truth.best(1)
        np.testing.assert_array_equal(labels[rows], labelings[0])
        assert best[sample] == pytest.approx(scores[0], abs=1e-10)


@given(chain_problems(max_labels=4, max_length=5), st.sampled_from([1, 2, 7, 40]))
def test_the_k_best_equal_enumeration(problem, k):
    ranked = decoding.k_best(*problem.arguments, k)
    for sample, _, truth in problem.enumerations():
        labelings, scores = truth.best(k)
        np.testing.assert_array_equal(ranked[sample].labelings, labelings)
        np.testing.assert_allclose(ranked[sample].scores, scores, atol=1e-10, rtol=0)


def test_ties_go_to_the_lower_label_and_the_k_best_are_distinct():
    problem = random_problem(np.random.default_rng(0), 3, [4], scale=0.0)
    labels, _ = decoding.viterbi(*problem.arguments)
    np.testing.assert_array_equal(labels, 0)
    ranked = decoding.k_best(*problem.arguments, 100)[0]
    assert len(np.unique(ranked.labelings, axis=0)) == len(ranked.labelings) == 81


@pytest.mark.parametrize("gauge", [0.0, 600.0], ids=["scaled", "log space"])
@pytest.mark.parametrize("tied", [True, False])
def test_samples_follow_the_distribution(tied, gauge):
    rng = np.random.default_rng(7)
    problem = random_problem(rng, 3, [4, 0, 1, 3], tied=tied, forbid=0.25, gauge=gauge)
    draws = decoding.sample(*problem.arguments, 40_000, rng)
    for _, rows, truth in problem.enumerations():
        code = draws[:, rows] @ (3 ** np.arange(rows.stop - rows.start)[::-1])
        counts = np.bincount(code, minlength=len(truth.labelings))
        possible = truth.probabilities > 0
        assert counts[~possible].sum() == 0
        expected = 40_000 * truth.probabilities[possible]
        common = expected >= 5
        observed = np.append(counts[possible][common], counts[possible][~common].sum())
        expected = np.append(expected[common], expected[~common].sum())
        kept = expected > 0
        if kept.sum() > 1:
            assert chisquare(observed[kept], expected[kept]).pvalue > 1e-3


def test_decoding_and_sampling_do_not_depend_on_the_number_of_threads():
    rng = np.random.default_rng(1)
    problem = random_problem(rng, 4, rng.integers(0, 50, size=2000), forbid=0.2)
    one, two = (decoding.viterbi(*problem.arguments, n_threads=n) for n in (1, 2))
    np.testing.assert_array_equal(one[0], two[0])
    np.testing.assert_array_equal(one[1], two[1])
    draws = [decoding.sample(*problem.arguments, 3, np.random.default_rng(9), n_threads=n) for n in (1, 2)]
    np.testing.assert_array_equal(*draws)


def test_what_is_forbidden_is_never_decoded_or_drawn_and_has_probability_zero():
    rng = np.random.default_rng(2)
    problem = random_problem(rng, 4, rng.integers(1, 40, size=200), forbid=0.4)
    edges = problem.chains.cliques(EDGE)
    labels, best = decoding.viterbi(*problem.arguments)
    np.testing.assert_allclose(best, chain.labelling_scores(*problem.arguments, labels), rtol=1e-12)
    for y in [labels, *decoding.sample(*problem.arguments, 20, rng)]:
        assert np.isfinite(problem.scores[np.arange(len(y)), y]).all()
        assert np.isfinite(problem.transitions[y[edges[:, 0]], y[edges[:, 1]]]).all()
    moments = chain.moments(*problem.arguments)
    assert (moments.nodes[np.isneginf(problem.scores)] == 0).all()
    assert (moments.edges[np.isneginf(problem.transitions)] == 0).all()
    each = chain.edge_marginals(*problem.arguments)
    assert (each[:, np.isneginf(problem.transitions)] == 0).all()


def test_a_number_of_labelings_that_is_none_is_refused():
    problem = random_problem(np.random.default_rng(3), 2, [2])
    with pytest.raises(ValueError, match="k=0: expected the number of labelings"):
        decoding.k_best(*problem.arguments, 0)


@pytest.mark.parametrize("n_labels", [2, 3, 255, 256, 257, 300])
def test_the_last_label_is_found_however_many_there_are(n_labels):
    """Pointers back are kept in the smallest type that holds a label; the best path goes through the last one alone."""
    length, last = 6, n_labels - 1
    s, w = np.zeros((length, n_labels)), np.zeros((n_labels, n_labels))
    w[last, last] = 5.0
    s[0, last] = 1.0
    labels, values = decoding.viterbi(s, w, Chains.from_lengths([length]))
    np.testing.assert_array_equal(labels, np.full(length, last))
    assert values[0] == 5.0 * (length - 1) + 1.0
    best = decoding.k_best(s, w, Chains.from_lengths([length]), 2)
    np.testing.assert_array_equal(best[0].labelings[0], np.full(length, last))
