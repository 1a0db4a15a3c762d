from dataclasses import replace

import numpy as np
import pytest
import scipy.sparse as sp

from kernelcrf import ChainCRF
from kernelcrf.basis import recomputed_features
from kernelcrf.basis.recomputed_features import RecomputedFeatures
from kernelcrf.datasets import make_sequences
from kernelcrf.graphs.structure import Chains
from kernelcrf.partitions.chains import ChainPartition
from kernelcrf.score.features import RecomputedTokenFeatures, TokenFeatures
from objectives import ANY, random_objective


@pytest.mark.parametrize("label_kernel", ["delta", "centred", [[2.0, 1.0, 0.0], [1.0, 2.0, 0.0], [0.0, 0.0, 1.0]]])
@pytest.mark.parametrize("edge_inputs", [0, 2])
def test_pulling_back_is_the_transpose_of_scoring(label_kernel, edge_inputs):
    objective = random_objective(1, label_kernel=label_kernel, edge_inputs=edge_inputs, n_parts=1)
    layout, partition = objective.layout, objective.partitions[0]
    rng = np.random.default_rng(0)
    theta = rng.normal(size=layout.size)
    s, w = partition.scores(layout, theta)
    r, q = rng.normal(size=s.shape), rng.normal(size=w.shape)
    pulled = partition.pull_back(layout, r, q)
    assert np.dot(pulled, theta) == pytest.approx(np.vdot(r, s) + np.vdot(q, w), rel=1e-12)


def test_the_kernel_of_labelled_sequences_is_a_sum_over_pairs_of_tied_cliques():
    """Lemma 5 with tied cliques, (10) and (27): scores are linear in theta, and their coefficients are Phi(x, y)."""
    objective = random_objective(1, edge_inputs=2, lengths=(3, 4), n_parts=1)
    layout, partition = objective.layout, objective.partitions[0]
    tables = [partition.scores(layout, e) for e in np.eye(layout.size)]
    F, G = partition.features["node"].F, partition.features["inputs__steps"].F
    rng = np.random.default_rng(0)
    for first, second in ((slice(0, 3), slice(3, 7)), (slice(0, 3), slice(0, 3))):
        y, z = rng.integers(3, size=first.stop), rng.integers(3, size=second.stop - second.start)
        Phi = [
            np.array(
                [
                    s[own][np.arange(len(u)), u].sum() + w[own][np.arange(1, len(u)), u[:-1], u[1:]].sum()
                    for s, w in tables
                ]
            )
            for own, u in ((first, y), (second, z))
        ]
        total = 0.0
        for t, a in enumerate(y):
            for r, b in enumerate(z):
                total += (a == b) * (F[first][t] @ F[second][r] + 1)
                if t and r:
                    total += (a == b) * (y[t - 1] == z[r - 1]) * (G[first][t] @ G[second][r] + 1)
        assert Phi[0] @ Phi[1] == pytest.approx(total, abs=1e-12)


@pytest.mark.parametrize("second", ["dense", "sparse"])
def test_scores_are_the_sum_over_all_inputs(second):
    objective = random_objective(1, second=second, n_parts=1)
    layout, partition = objective.layout, objective.partitions[0]
    theta = np.random.default_rng(0).normal(size=layout.size)
    weights, features = layout.split(theta), partition.features
    F = features["inputs__second"].F
    F = F.toarray() if second == "sparse" else F
    expected = features["node"].F @ weights["node"] + F @ weights["inputs__second"]
    np.testing.assert_allclose(partition.scores(layout, theta)[0], expected + weights["bias"], atol=1e-12)


@pytest.mark.parametrize("options", [{}, {"edge_inputs": 2}, {"weighted": True}, {"missing": 0.3, "weighted": True}])
def test_the_loss_of_each_sequence_is_that_of_the_sequence_alone(options):
    objective = random_objective(3, **options)
    theta = np.random.default_rng(0).normal(size=objective.layout.size)
    for partition in objective.partitions:
        losses = partition.losses(partition.direction(objective.layout, theta, 1))
        alone = [partition.part(i, i + 1) for i in range(partition.chains.n_samples)]
        expected = [one.evaluate(objective.layout, theta, 1, curvature=False)[0].loss for one in alone]
        np.testing.assert_allclose(losses, expected, rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize("n_jobs", [1, 2])
def test_dense_sparse_and_shared_features_agree(n_jobs):
    rng = np.random.default_rng(2)
    F = rng.normal(size=(50, 7)) * (rng.random((50, 7)) < 0.4)
    index = rng.integers(50, size=9000)
    W, R = rng.normal(size=(7, 3)), rng.normal(size=(9000, 3))
    expanded = TokenFeatures(F[index])
    for features in (
        TokenFeatures(F, index),
        TokenFeatures(sp.csr_array(F), index),
        TokenFeatures(sp.csr_array(F[index])),
    ):
        np.testing.assert_allclose(features.times(W, n_jobs), expanded.times(W, n_jobs), atol=1e-12)
        np.testing.assert_allclose(
            features.transposed_times(R, n_jobs), expanded.transposed_times(R, n_jobs), atol=1e-10
        )
        squares = features.squares_transposed_times(R)
        np.testing.assert_allclose(squares, (F[index] ** 2).T @ R, atol=1e-10)
    weights = rng.random(9000)
    np.testing.assert_allclose(
        TokenFeatures(F, index).gram(weights), F[index].T @ (weights[:, None] * F[index]), atol=1e-9
    )


def test_cutting_keeps_sequences_whole_and_in_order():
    rng = np.random.default_rng(3)
    chains = Chains.from_lengths(rng.integers(0, 40, size=300))
    F = rng.normal(size=(chains.n_nodes, 512))
    labels = rng.integers(2, size=chains.n_nodes).astype(np.int32)
    whole = ChainPartition(chains, 2, labels, {"node": TokenFeatures(F)}, weights=rng.random(300))
    parts = whole.cut()
    assert len(parts) > 2
    np.testing.assert_array_equal(np.concatenate([part.labels for part in parts]), labels)
    np.testing.assert_array_equal(np.concatenate([part.chains.lengths for part in parts]), chains.lengths)
    np.testing.assert_array_equal(np.concatenate([part.features["node"].F for part in parts]), F)
    np.testing.assert_array_equal(np.concatenate([part.weights for part in parts]), whole.weights)


def test_sparse_and_shared_features_are_not_cut():
    chains = Chains.from_lengths([3, 2])
    labels = np.zeros(5, np.int32)
    for features in (TokenFeatures(sp.eye_array(5).tocsr()), TokenFeatures(np.eye(2), np.zeros(5, np.intp))):
        assert len(ChainPartition(chains, 2, labels, {"node": features}).cut()) == 1


def test_single_precision_features_give_single_precision_scores():
    objective = random_objective(4, n_parts=1)
    partition = objective.partitions[0]
    single = ChainPartition(
        partition.chains, 3, partition.labels, {"node": TokenFeatures(partition.features["node"].F.astype(np.float32))}
    )
    theta = np.random.default_rng(0).normal(size=objective.layout.size)
    s, w = single.scores(objective.layout, theta)
    assert s.dtype == w.dtype == np.float32
    np.testing.assert_allclose(s, partition.scores(objective.layout, theta)[0], rtol=1e-5, atol=1e-5)


def test_the_likeliest_labels_are_those_of_the_model():
    data = make_sequences(12, random_state=0)
    for options in ({}, {"constraints": [(0, 0), (0, 1), (1, 1), (1, 2), (2, 2), (0, 2)]}):
        y = [np.sort(labels) for labels in data.y] if options else data.y
        crf = ChainCRF("linear", C=1.0, **options).fit(data.X, y)
        lengths, model = list(map(len, y)), crf.model_
        partition = ChainPartition(
            Chains.from_lengths(lengths),
            3,
            np.concatenate(y),
            {"node": TokenFeatures(np.concatenate(data.X))},
            legal=model.legal,
        )
        found = partition.likeliest(model.layout, model.theta, 1)
        np.testing.assert_array_equal(found, np.concatenate(crf.predict(data.X)))


def recomputed(objective, *, shared):
    """Return an objective whose dense features are recomputed, and one in which the same features are stored."""
    rng, both = np.random.default_rng(5), ([], [])
    bases = {}
    for name, features in objective.partitions[0].features.items():
        if not features.is_sparse:
            landmarks = rng.normal(size=(features.F.shape[1], 2))
            bases[name] = landmarks, np.linalg.cholesky(ANY.gram(landmarks))
    for partition in objective.partitions:
        X = rng.normal(size=(partition.n_nodes, 2))
        index = rng.integers(len(X), size=len(X)) if shared else None
        for made, stored in zip(both, (False, True), strict=True):
            features = dict(partition.features)
            for name, (landmarks, R) in bases.items():
                rows = RecomputedFeatures(ANY, landmarks, R, X)
                features[name] = (
                    TokenFeatures(rows.compute(), index) if stored else RecomputedTokenFeatures(rows, index)
                )
            made.append(replace(partition, features=features))
    return (replace(objective, partitions=partitions) for partitions in both)


@pytest.mark.parametrize("rows", [2, 1000])
@pytest.mark.parametrize(
    "options",
    [
        {"weighted": True},
        {"edge_inputs": 2},
        {"second": "sparse"},
        {"second": "dense", "label_kernel": "centred"},
        {"missing": 0.3, "weighted": True},
        {"shared": True},
    ],
    ids=str,
)
def test_features_that_are_not_stored_give_the_same_objective(options, rows, monkeypatch):
    monkeypatch.setattr(recomputed_features, "BLOCK_BYTES", 0)
    monkeypatch.setattr(recomputed_features, "LEAST_ROWS", rows)
    shared = options.get("shared", False)
    options = {name: value for name, value in options.items() if name != "shared"}
    computed, stored = recomputed(random_objective(3, **options), shared=shared)
    theta, v = np.random.default_rng(0).normal(size=(2, computed.layout.size))
    assert computed.precision == np.float64
    for evaluate in ("evaluate", "measure"):
        at, expected = (getattr(one, evaluate)(theta) for one in (computed, stored))
        assert at.value == pytest.approx(expected.value, rel=1e-12)
        np.testing.assert_allclose(at.gradient, expected.gradient, atol=1e-10)
        assert computed.noise(at) == pytest.approx(stored.noise(expected), rel=1e-9)
    at, expected = computed.evaluate(theta), stored.evaluate(theta)
    assert computed.entropy(at) == pytest.approx(stored.entropy(expected), rel=1e-10)
    assert computed.ray(at, v).along(0.3) == pytest.approx(stored.ray(expected, v).along(0.3), rel=1e-10)
    at, expected = computed.evaluate(theta, curvature=True), stored.evaluate(theta, curvature=True)
    for product in ("hessian_product", "block_product"):
        np.testing.assert_allclose(
            getattr(computed, product)(at, v), getattr(stored, product)(expected, v), atol=1e-10, err_msg=product
        )
