import pickle

import numpy as np
import pytest

from kernelcrf.graphs.structure import Chains
from kernelcrf.inference import chain, decoding
from kernelcrf.inference.clique_tree import TreewidthError
from kernelcrf.inference.feasibility import InfeasibleSequenceError
from kernelcrf.inference.loss import InfeasibleSampleError
from kernelcrf.inference.tangents import linearise


def forbidden_label(tied):
    scores = np.zeros((9, 2))
    scores[5] = -np.inf
    return scores, np.zeros((2, 2) if tied else (9, 2, 2))


def forbidden_path(tied):
    scores = np.zeros((9, 2))
    scores[4, 0] = scores[5, 1] = -np.inf
    transitions = np.array([[0.0, 0.0], [-np.inf, 0.0]])
    return scores, transitions if tied else np.broadcast_to(transitions, (9, 2, 2))


@pytest.mark.parametrize("problem", [forbidden_label, forbidden_path])
@pytest.mark.parametrize("tied", [True, False])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize(
    "routine",
    [
        chain.log_partition,
        chain.moments,
        chain.edge_marginals,
        chain.entropy,
        linearise,
        decoding.viterbi,
        lambda *arguments: decoding.k_best(*arguments, 3),
        lambda *arguments: decoding.sample(*arguments, 2, np.random.default_rng(0)),
        lambda *arguments: chain.log_prob(*arguments, np.zeros(9, dtype=int)),
    ],
)
def test_an_infeasible_sequence_is_named(problem, tied, dtype, routine):
    scores, transitions = (array.astype(dtype) for array in problem(tied))
    with pytest.raises(
        InfeasibleSequenceError, match=r"every labelling of sequence 1 is forbidden.*its token 2 can be reached"
    ) as error:
        routine(scores, transitions, Chains.from_lengths([3, 4, 2]))
    assert (error.value.sample, error.value.token) == (1, 2)


def test_a_sequence_of_one_label_is_feasible_where_its_single_step_is():
    scores, chains = np.zeros((2, 1)), Chains.from_lengths([2])
    assert chain.log_partition(scores, [[0.5]], chains)[0] == pytest.approx(0.5)
    with pytest.raises(InfeasibleSequenceError):
        chain.log_partition(scores, [[-np.inf]], chains)


@pytest.mark.parametrize(
    "error", [InfeasibleSequenceError(3, 5), InfeasibleSampleError(3), TreewidthError(9, 2**30, 2**25)]
)
def test_errors_can_be_sent_between_processes(error):
    received = pickle.loads(pickle.dumps(error))
    assert type(received) is type(error)
    assert vars(received) == vars(error)
    assert str(received) == str(error)
