"""Preconditioners beside dense matrices made from their formulas."""

from dataclasses import replace

import numpy as np
import pytest

import kernelcrf.objective
from graph_objectives import random_graph_objective
from kernelcrf.score.cliques import STEPS
from kernelcrf.solvers import preconditioners
from kernelcrf.solvers.preconditioners import Preconditioning, has_single_nodes, node_covariances
from objectives import random_objective

SHARING = [[2.0, 1.0, 0.0], [1.0, 2.0, 0.0], [0.0, 0.0, 1.0]]


def at_random(objective):
    theta = np.random.default_rng(7).normal(size=objective.layout.size)
    return objective.evaluate(theta, curvature=True)


def dense(M, size):
    """M from its factor: E^-1 and E^-T on all unit vectors."""
    forward = np.column_stack([M.forward(e) for e in np.eye(size)])
    back = np.column_stack([M.back(e) for e in np.eye(size)])
    inverse = np.column_stack([M.inverse(e) for e in np.eye(size)])
    np.testing.assert_allclose(back, forward.T, atol=1e-10)
    np.testing.assert_allclose(inverse, back @ forward, atol=1e-10)
    matrix = np.linalg.inv(inverse)
    assert M.log_determinant == pytest.approx(np.linalg.slogdet(matrix)[1], abs=1e-8)
    return matrix


def expected(objective, at, way, share):
    """The blocks of the module's docstring, with zeros between templates and between labels."""
    L = objective.partitions[0].n_labels
    F = np.concatenate([part.features["node"].F for part in objective.partitions])
    p = np.concatenate([local.residuals.nodes for local in at.parts])
    omega = np.concatenate([part.clique_weights(objective.layout.terms[0]) for part in objective.partitions])
    s = share * omega[:, None] * p * (1 - p)
    blocks = []
    for term in objective.layout.terms:
        lam, shared = 1 / term.C, not term.k_y.is_identity
        norm = np.linalg.norm(term.k_y.gram, 2)
        labels = np.full(term.k_y.rank, s.sum(axis=0).mean() * norm) if shared else s.sum(axis=0)
        size = int(np.prod(term.shape))
        if term.cliques == STEPS:
            blocks.append(np.eye(size) * (omega.sum() / size + lam))
        elif term.name == "bias":
            blocks.append(np.diag(labels + lam))
        elif way == "kronecker":
            blocks.append(np.kron(F.T @ (omega[:, None] * F), np.diag(labels / omega.sum())) + lam * np.eye(size))
        elif way == "diagonal":
            squares = (F**2).T @ s
            squares = (
                np.repeat(squares.mean(axis=1, keepdims=True) * norm, term.shape[1], axis=1) if shared else squares
            )
            blocks.append(np.diag(squares.ravel() + lam))
        else:
            M = np.zeros((term.n, L, term.n, L))
            for label in range(L):
                M[:, label, :, label] = F.T @ (s[:, label, None] * F) + lam * np.eye(term.n)
            blocks.append(M.reshape(size, size))
    result, start = np.zeros((objective.layout.size,) * 2), 0
    for M in blocks:
        result[start : start + len(M), start : start + len(M)] = M
        start += len(M)
    return result


@pytest.mark.parametrize("edge_inputs", [0, 2])
@pytest.mark.parametrize("share", [1.0, 0.25])
@pytest.mark.parametrize(
    ("way", "label_kernel"),
    [
        ("per label", "delta"),
        ("kronecker", "delta"),
        ("kronecker", SHARING),
        ("diagonal", "delta"),
        ("diagonal", SHARING),
    ],
)
def test_each_way_is_its_formula(monkeypatch, way, label_kernel, share, edge_inputs):
    monkeypatch.setattr(preconditioners, "PER_LABEL_UP_TO", 4 if way == "per label" else 3)
    monkeypatch.setattr(preconditioners, "KRONECKER_UP_TO", 4 if way == "kronecker" else 3)
    objective = random_objective(2, weighted=True, label_kernel=label_kernel, edge_inputs=edge_inputs)
    at = at_random(objective)
    M = dense(Preconditioning.of(objective).at(at, share), objective.layout.size)
    np.testing.assert_allclose(M, expected(objective, at, way, share), atol=1e-9)


def test_features_are_decomposed_once_and_only_if_labels_are_not_equally_likely(monkeypatch):
    monkeypatch.setattr(preconditioners, "PER_LABEL_UP_TO", 3)
    calls = []
    monkeypatch.setattr(kernelcrf.objective, "eigh", lambda A, **_: calls.append(len(A)) or np.linalg.eigh(A))
    objective = random_objective(2, weighted=True)
    at_zero = objective.evaluate(np.zeros(objective.layout.size), curvature=True)
    M = dense(Preconditioning.of(objective).at(at_zero, 0.25), objective.layout.size)
    np.testing.assert_allclose(M, expected(objective, at_zero, "kronecker", 0.25), atol=1e-9)
    assert calls == []
    for _ in range(2):
        preconditioning = Preconditioning.of(objective)
        assert set(preconditioning.grams) == {"node"}
        preconditioning.at(at_random(objective))
        assert calls == [4]


def single_nodes(**options):
    """Without the bias: one template with inputs is all that the nodes have."""
    whole = random_objective(4, **{"lengths": (1,) * 9, "weighted": True, **options})
    return type(whole)(type(whole.layout)(whole.layout.terms[:2]), whole.partitions, whole.engine)


def test_of_single_nodes_the_blocks_are_all_of_the_curvature():
    objective = single_nodes()
    at = at_random(objective)
    name, blocks = node_covariances(objective, at)
    part = objective.layout.slices[name]
    H = np.column_stack([objective.hessian_product(at, e)[part] for e in np.eye(objective.layout.size)[part]])
    lam = 1 / objective.layout.terms[0].C
    np.testing.assert_allclose(blocks.transpose(2, 0, 3, 1).reshape(H.shape) + lam * np.eye(len(H)), H, atol=1e-10)


def test_what_has_more_curvature_than_that_is_told_apart():
    assert has_single_nodes(single_nodes())
    biased = random_objective(4, lengths=(1,) * 9)
    for other in (single_nodes(lengths=(1, 2, 1)), single_nodes(label_kernel=SHARING), biased):
        assert not has_single_nodes(other)
        assert node_covariances(other, at_random(other)) is None


@pytest.mark.parametrize(
    ("objective", "kept"),
    [(random_objective(0), "nodes"), (random_graph_objective(5), "marginals")],
    ids=["chain", "graph"],
)
def test_marginals_that_rounding_puts_above_one_have_no_negative_variance(objective, kept):
    """In float32 with weights of 1e5, such a variance is greater than lam, and the square root of M is NaN."""
    at = at_random(objective)
    for partition, local in zip(objective.partitions, at.parts, strict=True):
        above = np.full_like(getattr(local.residuals, kept), 1 + np.finfo(np.float32).eps)
        changed = replace(local, residuals=replace(local.residuals, **{kept: above}))
        for term in objective.layout.terms:
            if term.cliques != STEPS:
                assert not partition.spread(term, changed).any()
