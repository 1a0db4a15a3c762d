"""Batches: what sequences weigh, and how they are cut into blocks, beside sequences one at a time."""

from dataclasses import replace

import numpy as np
import pytest

from kernelcrf.graphs.structure import Chains
from kernelcrf.inference import batch as batches
from kernelcrf.inference.batch import Batch
from kernelcrf.inference.tangents import Linearisation
from problems import random_problem

LENGTHS = (3, 0, 1, 5, 2, 4, 6, 1)
WEIGHTS = np.array([2.0, 7.0, 0.5, 1.5, 0.0, 3.0, 0.25, 4.0])


def one_by_one(problem, function):
    """The value of a function of each sequence alone, as a batch of its own."""
    found = []
    for i, length in enumerate(problem.chains.lengths.tolist()):
        rows = problem.rows(i)
        transitions = problem.transitions if problem.tied else problem.transitions[rows]
        found.append(function(Batch.of(problem.scores[rows], transitions, Chains.from_lengths([length])), rows))
    return found


@pytest.mark.parametrize("gauge", [0.0, 600.0], ids=["scaled", "log space"])
@pytest.mark.parametrize("block_values", [8, 24, 2**16])
def test_summed_edge_marginals_and_tangents_count_sequences_by_their_weight(monkeypatch, gauge, block_values):
    monkeypatch.setattr(batches, "BLOCK_VALUES", block_values)
    problem = random_problem(np.random.default_rng(0), 3, LENGTHS, gauge=gauge)
    weighted = replace(Batch.of(*problem.arguments), weights=WEIGHTS)
    alone = one_by_one(problem, lambda batch, _: Linearisation.of(batch, 1, keep=False).moments)
    found = Linearisation.of(weighted, 1, keep=False).moments
    expected = sum(weight * one.edges for weight, one in zip(WEIGHTS, alone, strict=True))
    np.testing.assert_allclose(found.edges, expected, atol=1e-9)
    np.testing.assert_allclose(found.nodes, np.concatenate([one.nodes for one in alone]), atol=1e-9)
    np.testing.assert_allclose(found.log_partition, [one.log_partition[0] for one in alone], rtol=1e-12)

    rng = np.random.default_rng(1)
    du, dw = rng.normal(size=problem.scores.shape), rng.normal(size=(3, 3))
    parts = one_by_one(problem, lambda batch, rows: Linearisation.of(batch, 1).tangents(du[rows], dw))
    tangents = Linearisation.of(weighted, 1).tangents(du, dw)
    expected = sum(weight * one.edges for weight, one in zip(WEIGHTS, parts, strict=True))
    np.testing.assert_allclose(tangents.edges, expected, atol=1e-8)
    np.testing.assert_allclose(tangents.nodes, np.concatenate([one.nodes for one in parts]), atol=1e-8)


@pytest.mark.parametrize("tied", [True, False])
@pytest.mark.parametrize(("values", "most_nodes", "most_tasks"), [(8, 100, 256), (64, 2, 3), (2**16, 2**14, 256)])
def test_blocks_are_whole_sequences_in_their_order(monkeypatch, tied, values, most_nodes, most_tasks):
    monkeypatch.setattr(batches, "BLOCK_VALUES", values)
    monkeypatch.setattr(batches, "MOST_BLOCK_NODES", most_nodes)
    monkeypatch.setattr(batches, "MOST_TASKS", most_tasks)
    problem = random_problem(np.random.default_rng(2), 2, LENGTHS, tied=tied)
    batch = replace(Batch.of(*problem.arguments), weights=WEIGHTS)
    tasks = batch.map_tasks(list, 2)
    blocks = [block for task in tasks for block in task]
    np.testing.assert_array_equal(np.concatenate([block.scores for block in blocks]), problem.scores)
    np.testing.assert_array_equal(np.concatenate([block.weights for block in blocks]), WEIGHTS)
    np.testing.assert_array_equal(np.concatenate([np.diff(block.offsets) for block in blocks]), LENGTHS)
    assert [block.samples.start for block in blocks[1:]] == [block.samples.stop for block in blocks[:-1]]
    assert len(tasks) <= most_tasks + 1
    nodes = min(values // (2 if tied else 4), most_nodes)
    for block in blocks:
        lengths = np.diff(block.offsets)
        assert len(block.scores) <= max(nodes, lengths.max())
        if not tied:
            np.testing.assert_array_equal(block.transitions, problem.transitions[block.nodes])
