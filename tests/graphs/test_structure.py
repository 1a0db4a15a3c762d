import numpy as np
import pytest

from kernelcrf.graphs.structure import EDGE, NODE, Chains, Template


def test_cliques_of_a_ragged_batch():
    chains = Chains.from_lengths([3, 0, 1, 2])
    assert (chains.n_samples, chains.n_nodes) == (4, 6)
    np.testing.assert_array_equal(chains.offsets, [0, 3, 3, 4, 6])
    np.testing.assert_array_equal(chains.lengths, [3, 0, 1, 2])
    np.testing.assert_array_equal(chains.cliques(NODE), np.arange(6)[:, None])
    np.testing.assert_array_equal(chains.cliques(EDGE), [[0, 1], [1, 2], [4, 5]])
    np.testing.assert_array_equal(chains.first_nodes, [0, 3, 4])


def test_cliques_have_the_arity_of_their_template():
    chains = Chains.from_lengths([1, 1])
    for template in (NODE, EDGE):
        assert chains.cliques(template).shape[1] == template.arity


@pytest.mark.parametrize("offsets", [[], [1, 2], [0, 3, 2], [[0, 1]]])
def test_offsets_that_are_none_are_refused(offsets):
    with pytest.raises(ValueError, match=r"offsets=.*from_lengths"):
        Chains(np.array(offsets, dtype=int))


def test_a_template_that_chains_do_not_have_is_refused():
    with pytest.raises(ValueError, match="triangle"):
        Chains.from_lengths([2]).cliques(Template("triangle", 3))
