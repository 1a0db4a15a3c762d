"""Inputs of segments against the definition, for dense and sparse inputs."""

import numpy as np
import pytest
import scipy.sparse as sp

from kernelcrf.graphs.structure import Chains
from kernelcrf.readers.pooling import candidates, described, pool

X = np.random.default_rng(0).normal(size=(9, 3)) * (np.random.default_rng(1).random((9, 3)) < 0.7)
CHAINS = Chains.from_lengths([4, 0, 1, 4])
POOLED = {
    "mean": lambda x: x.mean(axis=0),
    "max": lambda x: x.max(axis=0),
    "ends": lambda x: np.concatenate([x[0], x[-1]]),
}


def expected_candidates(D):
    found = []
    for low, T in ((0, 4), (4, 1), (5, 4)):
        found += [(low + b, low + b + d) for b in range(T) for d in range(1, D + 1) if b + d <= T]
    return found


@pytest.mark.parametrize("D", [1, 3, 10])
@pytest.mark.parametrize("pooling", POOLED)
def test_pooled_inputs_are_those_of_the_definition(pooling, D):
    every = expected_candidates(D)
    assert list(zip(*map(np.ndarray.tolist, candidates(CHAINS, D)), strict=True)) == every
    expected = np.array([POOLED[pooling](X[b:e]) for b, e in every])
    np.testing.assert_allclose(pool(X, CHAINS, D, pooling), expected, atol=1e-15)
    sparse = pool(sp.csr_array(X), CHAINS, D, pooling)
    np.testing.assert_allclose(sparse.toarray(), expected, atol=1e-15)


def test_a_function_gets_the_sequence_and_both_ends():
    found = described(["ab", "", "c"], None, Chains.from_lengths([2, 0, 1]), 5, lambda x, b, e: (x, b, e))
    assert found == [[("ab", 0, 1), ("ab", 0, 2), ("ab", 1, 2)], [], [("c", 0, 1)]]
