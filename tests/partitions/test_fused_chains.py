"""The pass by blocks beside the steps that it joins."""

from dataclasses import replace

import numpy as np
import pytest

from kernelcrf.graphs.structure import Chains, Legal
from kernelcrf.kernels.inputs import InputKernel
from kernelcrf.objective import Objective
from kernelcrf.partitions import chains, fused_chains
from kernelcrf.partitions.chains import ChainPartition
from kernelcrf.score.features import TokenFeatures
from kernelcrf.score.layout import Layout
from kernelcrf.score.terms import chain_terms
from objectives import random_objective

LENGTHS = (3, 0, 90, 1, 4, 0, 2, 5, 70, 30)
STEPS = np.array([[1, 1, 0], [0, 1, 1], [1, 0, 1]], bool)


def legal_labels(objective):
    """The objective with labels that keep to STEPS, and begin and end with 0 or 1."""
    rules = Legal(STEPS, np.array([True, True, False]), np.array([True, True, False]))
    parts = [replace(one, labels=np.zeros_like(one.labels), legal=rules) for one in objective.partitions]
    return Objective(objective.layout, parts, objective.engine)


def in_steps(objective, monkeypatch):
    """Evaluations without the pass by blocks."""
    monkeypatch.setattr(fused_chains.FusedChains, "evaluate", lambda *_: None)
    return objective


@pytest.mark.parametrize(
    ("kind", "constrained"),
    [
        ({}, False),
        ({"weighted": True, "label_kernel": "centred"}, False),
        ({"n_labels": 17, "n": 70}, False),
        ({"strength": 30.0}, False),
        ({"weighted": True}, True),
        ({"second": "dense", "weighted": True}, False),
    ],
    ids=str,
)
def test_evaluations_and_hessian_products_are_those_of_the_steps(kind, constrained, monkeypatch):
    monkeypatch.setattr(chains, "BLOCK_BYTES", 1)
    objective = random_objective(11, lengths=LENGTHS, **kind)
    objective = legal_labels(objective) if constrained else objective
    rng = np.random.default_rng(0)
    theta, v = rng.normal(size=(2, objective.layout.size))
    passes = [one._fused(objective.layout) for one in objective.partitions]
    assert all(one.evaluate(theta, "residuals") for one in passes)
    ours = objective.evaluate(theta, curvature=True)
    assert all(isinstance(part.residuals.curvature, fused_chains.FusedMessages) for part in ours.parts)
    product = objective.hessian_product(ours, v)
    alone = [one.sums(objective.layout, theta, 1) for one in objective.partitions]
    theirs = in_steps(objective, monkeypatch).evaluate(theta, curvature=True)
    for sums, one in zip(alone, objective.partitions, strict=True):
        expected = one.sums(objective.layout, theta, 1)
        assert sums.loss == pytest.approx(expected.loss, rel=1e-12)
        np.testing.assert_allclose(sums.gradient, expected.gradient, atol=1e-10)
    assert not any(isinstance(part.residuals.curvature, fused_chains.FusedMessages) for part in theirs.parts)
    assert ours.value == pytest.approx(theirs.value, rel=1e-12)
    np.testing.assert_allclose(ours.gradient, theirs.gradient, atol=1e-10)
    np.testing.assert_allclose(product, objective.hessian_product(theirs, v), atol=1e-9)
    for one, other in zip(ours.parts, theirs.parts, strict=True):
        np.testing.assert_allclose(one.scores.s, other.scores.s, atol=1e-10)
        np.testing.assert_array_equal(one.scores.w, other.scores.w)
        np.testing.assert_allclose(one.residuals.r, other.residuals.r, atol=1e-12)
        np.testing.assert_allclose(one.residuals.q, other.residuals.q, atol=1e-10)
        np.testing.assert_allclose(one.residuals.nodes, other.residuals.nodes, atol=1e-12)


def test_single_precision_stays_so(monkeypatch):
    objective = random_objective(12, lengths=LENGTHS)
    parts = [
        replace(one, features={"node": TokenFeatures(one.features["node"].F.astype(np.float32))})
        for one in objective.partitions
    ]
    objective = Objective(objective.layout, parts, objective.engine)
    theta, v = np.random.default_rng(1).normal(size=(2, objective.layout.size))
    ours = objective.evaluate(theta, curvature=True)
    assert ours.parts[0].scores.s.dtype == np.float32
    product = objective.hessian_product(ours, v)
    theirs = in_steps(objective, monkeypatch).evaluate(theta, curvature=True)
    np.testing.assert_allclose(ours.gradient, theirs.gradient, rtol=1e-4, atol=1e-4)
    np.testing.assert_allclose(product, objective.hessian_product(theirs, v), rtol=1e-3, atol=1e-3)


def test_what_needs_log_space_is_left_to_the_steps():
    """A forbidden step, and a label of negligible weight that is the only way on."""
    objective = legal_labels(random_objective(13, lengths=(4, 6)))
    theta = 1e3 * np.random.default_rng(2).normal(size=objective.layout.size)
    passes = [one._fused(objective.layout) for one in objective.partitions]
    assert None in [one.evaluate(theta, "residuals") for one in passes]
    at = objective.evaluate(theta, curvature=True)
    assert np.isfinite(at.value)
    assert np.all(np.isfinite(at.gradient))


def test_other_partitions_are_left_alone():
    objective = random_objective(14, edge_inputs=2)
    missing = random_objective(14, missing=0.5)
    sparse = random_objective(14, second="sparse")
    assert sparse.partitions[0]._fused(sparse.layout) is None
    assert objective.partitions[0]._fused(objective.layout) is None
    assert missing.partitions[0]._fused(missing.layout) is None
    empty = ChainPartition(
        Chains.from_lengths([0]), 3, np.empty(0, np.int32), {"node": TokenFeatures(np.empty((0, 4)))}
    )
    layout = random_objective(14).layout
    assert empty._fused(layout) is None


def test_small_masses_one_after_the_other_keep_their_product():
    """Steps that cost 299 and tokens that ask for them: the loss is that of log space."""
    d = np.array([259.0, -446, 227, 86, 353, -356])
    labels = np.zeros(6, np.int32)
    partition = ChainPartition(Chains.from_lengths([6]), 2, labels, {"node": TokenFeatures(d[:, None])})
    theta = np.array([0.5, -0.5, 0.0, -299.0, -299.0, 0.0])
    layout = Layout(tuple(chain_terms(2, InputKernel("linear"))))
    found = partition._fused(layout).evaluate(theta, "residuals")
    assert found is not None
    assert found[0].loss == pytest.approx(118.5 - d.sum() / 2, abs=1e-9)
