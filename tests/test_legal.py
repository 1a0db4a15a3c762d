import itertools

import numpy as np
import pytest

from kernelcrf.graphs.structure import Chains, Legal
from kernelcrf.inference.decoding import sample
from kernelcrf.inference.enumerate import enumerate_labelings
from kernelcrf.inference.feasibility import InfeasibleSequenceError
from kernelcrf.objective import Objective
from kernelcrf.partitions.chains import ChainPartition
from kernelcrf.solvers import SOLVERS
from kernelcrf.solvers.loop import minimise
from objectives import random_objective

LEGAL = Legal(
    steps=np.array([[True, True, False], [True, True, True], [True, False, True]]),
    first=np.array([True, True, False]),
    last=np.array([True, False, True]),
)


def is_legal(labels):
    inside = all(LEGAL.steps[a, b] for a, b in itertools.pairwise(labels))
    return inside and LEGAL.first[labels[0]] and LEGAL.last[labels[-1]]


def legal_objective(lengths):
    plain = random_objective(1, lengths=lengths, n_parts=1)
    partition = plain.partitions[0]
    rng = np.random.default_rng(0)
    labels = []
    for length in lengths:
        every = enumerate_labelings(length, 3, []).labelings
        fitting = [y for y in every if is_legal(y)]
        labels.append(fitting[rng.integers(len(fitting))])
    constrained = ChainPartition(
        partition.chains, 3, np.concatenate(labels).astype(np.int32), partition.features, legal=LEGAL
    )
    parts = [constrained.part(0, 2), constrained.part(2, len(lengths))]
    return Objective(plain.layout, parts, plain.engine)


def test_the_model_is_normalised_over_legal_labelings_alone():
    objective = legal_objective((3, 1, 4, 2))
    theta = np.random.default_rng(2).normal(size=objective.layout.size)
    at = objective.evaluate(theta)
    for local, partition in zip(at.parts, objective.partitions, strict=True):
        draws = sample(local.scores.s, local.scores.w, partition.chains, 200, np.random.default_rng(0))
        for i in range(partition.chains.n_samples):
            rows = slice(*partition.chains.offsets[i : i + 2])
            assert all(is_legal(y) for y in draws[:, rows])


@pytest.mark.parametrize("name", sorted(set(SOLVERS) - {"dual"}))
def test_constrained_objectives_are_solved_to_their_certificate(name):
    objective = legal_objective((3, 1, 4, 2, 5, 4))
    found = minimise(objective, SOLVERS[name](), np.zeros(objective.layout.size), tol=1e-8, max_iter=500)
    assert found.status == "optimal"
    v, h = np.random.default_rng(3).normal(size=objective.layout.size), 1e-4
    at = objective.evaluate(found.theta, curvature=True)
    moved = [objective.evaluate(found.theta + step * v).gradient for step in (h, -h)]
    np.testing.assert_allclose(objective.hessian_product(at, v), (moved[0] - moved[1]) / (2 * h), atol=1e-6)
    edge = objective.layout.split(found.theta)["edge"][0]
    np.testing.assert_allclose(edge[~LEGAL.steps.ravel()], 0, atol=1e-12)


def test_an_infeasible_sequence_is_named_by_its_place_in_all_data():
    objective = legal_objective((3, 1, 4, 2))
    partition = objective.partitions[1]
    allowed = np.ones((partition.chains.n_nodes, 3), dtype=bool)
    allowed[-1] = [False, True, False]
    broken = ChainPartition(partition.chains, 3, partition.labels, partition.features, allowed, None, LEGAL)
    objective = Objective(objective.layout, [objective.partitions[0], broken], objective.engine)
    with pytest.raises(InfeasibleSequenceError, match=r"every labelling of sequence 3 is forbidden.*token 1"):
        objective.evaluate(np.zeros(objective.layout.size))


def test_masks_touch_ends_and_steps_only():
    chains = Chains.from_lengths([2, 0, 3])
    s, w = LEGAL.impose(chains, np.zeros((5, 3)), np.zeros((3, 3)))
    np.testing.assert_array_equal(np.isfinite(s[[0, 2]]), [LEGAL.first] * 2)
    np.testing.assert_array_equal(np.isfinite(s[[1, 4]]), [LEGAL.last] * 2)
    assert np.isfinite(s[3]).all()
    np.testing.assert_array_equal(np.isfinite(w), LEGAL.steps)
