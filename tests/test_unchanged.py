"""Fits on fixed problems give the numbers on file: objective, weights, predictions, and contents of model files.

    python tests/test_unchanged.py --record     writes tests/unchanged.json anew; do so only if a change is intended

Only public names are used, so that the inside may change freely. Numbers are compared to 1e-12 of the largest entry of
their array and not bit for bit, because the last bits depend on what Numba's cache holds.
"""

from __future__ import annotations

import json
import sys
import tempfile
import warnings
from functools import partial
from pathlib import Path

import numpy as np
import pytest
import scipy.sparse as sp
from safetensors import safe_open
from sklearn.exceptions import ConvergenceWarning
from sklearn.gaussian_process.kernels import RBF

import kernelcrf
from clusters import two_workers
from kernelcrf import GraphCRF, Input, MarkovNetwork, MultiLabelCRF, TemperatureScaling
from kernelcrf.kernels import Polynomial
from kernelcrf.rules import Evidence

RECORD = Path(__file__).with_name("unchanged.json")
RTOL, SINGLE_RTOL = 1e-12, 3e-6
RNG = np.random.default_rng(22)

SEQUENCES = [RNG.normal(size=(T, 3)) for T in (5, 1, 7, 4, 6, 3, 5, 8, 2, 9, 4, 6)]
LABELS = [np.where(x[:, 0] + 0.5 * np.roll(x[:, 1], 1) > 0.4, "a", np.where(x[:, 2] > 0, "b", "c")) for x in SEQUENCES]
SINGLE = [x.astype(np.float32) for x in SEQUENCES]
CSR = [sp.csr_array(np.where(x > 0.2, x, 0.0)) for x in SEQUENCES]
WORDS = [
    [{"word": "abcdefg"[int(abs(3 * a)) % 7], "size": float(b), "up": bool(c > 0)} for a, b, c in x] for x in SEQUENCES
]
MISSING = [[None if i % 5 == 2 else label for i, label in enumerate(y)] for y in LABELS]
SPANS = [["O", "B-X", "I-X", "O", "B-Y", "I-Y", "I-Y", "O", "O"][: len(x)] for x in SEQUENCES]
SEQUENCE_WEIGHTS = RNG.uniform(0.5, 2.0, size=len(SEQUENCES))

ROWS = RNG.normal(size=(60, 3))
CLASSES = np.where(ROWS[:, 0] > 0.5, "up", np.where(np.sin(2 * ROWS[:, 1]) > 0, "mid", "down"))
SETS = (ROWS @ RNG.normal(size=(3, 4)) + RNG.normal(size=(60, 4)) > 0).astype(int)
SETS[:, 1] = np.where(RNG.random(60) < 0.8, SETS[:, 0], SETS[:, 1])
SETS_WITH_GAPS = np.where(RNG.random(SETS.shape) < 0.15, -1, SETS)
TABLE = np.array([(v % 2, v % 3, (v + v // 4) % 2, v % 5 // 2) for v in RNG.integers(0, 60, size=90)])

PAIRS = np.array([[0, 1], [1, 2], [0, 2], [2, 3]])
GRAPHS = [(RNG.normal(size=(4, 2)), PAIRS, RNG.normal(size=(4, 2))) for _ in range(12)]
BARE = [graph[:2] for graph in GRAPHS]
NODE_LABELS = [(x[0][:, 0] + 0.3 * RNG.normal(size=4) > 0).astype(int) for x in GRAPHS]

# The numbers on file are those of fits without constant scores of labels.
ChainCRF = partial(kernelcrf.ChainCRF, decoding="viterbi", fit_intercept=False)
KernelClassifier = partial(kernelcrf.KernelClassifier, fit_intercept=False)

LOW = {"n_components": 8}
SEED = {"random_state": 0}
TIGHT = {"solver": "newton", "tol": 1e-13, "random_state": 0}
EVERY = {"weights": "all"}


def fit_temperature():
    crf = ChainCRF("rbf", C=100.0, **LOW, **TIGHT).fit(SEQUENCES[:8], LABELS[:8])
    return TemperatureScaling(crf).fit(SEQUENCES[8:], LABELS[8:])


def fit_again():
    crf = ChainCRF("linear", warm_start=True, **TIGHT, C=1.0).fit(SEQUENCES, LABELS)
    return crf.set_params(C=3.0).fit(SEQUENCES, LABELS)


# Solvers of first order stop early: rounding grows with their iterations, by a factor in each.
PROBLEMS = {
    "chain, rbf": (lambda: ChainCRF("rbf", **LOW, **TIGHT, C=1.0).fit(SEQUENCES, LABELS), SEQUENCES),
    "chain, linear, weights": (
        lambda: ChainCRF("linear", class_weight="balanced", **TIGHT, C=1.0).fit(SEQUENCES, LABELS, SEQUENCE_WEIGHTS),
        SEQUENCES,
    ),
    "chain, linear, newton-cg": (
        lambda: ChainCRF("linear", solver="newton-cg", tol=1e-13, C=1.0).fit(SEQUENCES, LABELS),
        SEQUENCES,
    ),
    "chain, rbf, lbfgs": (
        lambda: ChainCRF("rbf", **LOW, **SEED, solver="lbfgs", max_iter=8, C=1.0).fit(SEQUENCES, LABELS),
        SEQUENCES,
    ),
    "chain, block-jacobi": (
        lambda: ChainCRF("rbf", **LOW, **SEED, solver="block-jacobi", max_iter=5, C=1.0).fit(SEQUENCES, LABELS),
        SEQUENCES,
    ),
    "chain, subspace": (
        lambda: ChainCRF("rbf", **LOW, **SEED, solver="subspace", max_iter=5, C=1.0).fit(SEQUENCES, LABELS),
        SEQUENCES,
    ),
    "chain, single precision": (
        lambda: ChainCRF("rbf", **LOW, **SEED, solver="lbfgs", max_iter=4, C=1.0).fit(SINGLE, LABELS),
        SINGLE,
    ),
    "chain, sparse, dual": (
        lambda: ChainCRF("linear", solver="dual", max_iter=4, C=1.0, **EVERY).fit(CSR, LABELS),
        CSR,
    ),
    "chain, sparse, rbf": (lambda: ChainCRF("rbf", **LOW, **TIGHT, C=1.0).fit(CSR, LABELS), CSR),
    "chain, feature dicts": (lambda: ChainCRF("linear", **TIGHT, C=1.0, **EVERY).fit(WORDS, LABELS), WORDS),
    "chain, hashed dicts": (
        lambda: ChainCRF("linear", hash_features=16, **TIGHT, C=1.0, **EVERY).fit(WORDS, LABELS),
        WORDS,
    ),
    "chain, observed pairs": (lambda: ChainCRF("linear", **TIGHT, C=1.0).fit(WORDS, LABELS), WORDS),
    "chain, constraints": (
        lambda: ChainCRF("rbf", constraints="BIO", **LOW, **TIGHT, C=1.0).fit(SEQUENCES, SPANS),
        SEQUENCES,
    ),
    "chain, missing labels": (
        lambda: ChainCRF("linear", random_state=0, max_iter=6, C=1.0).fit(SEQUENCES, MISSING),
        SEQUENCES,
    ),
    "chain, steps with inputs": (
        lambda: ChainCRF(
            inputs={"tokens": Input(Polynomial(degree=2), **LOW), "steps": Input("linear", scores="steps", **LOW)},
            decoding="marginal",
            **TIGHT,
            C=1.0,
        ).fit(SEQUENCES, LABELS),
        SEQUENCES,
    ),
    "chain, grown basis": (
        lambda: ChainCRF("rbf", n_components="auto", solver="newton", tol=1e-2, random_state=0, C=1.0).fit(
            SEQUENCES, LABELS
        ),
        SEQUENCES,
    ),
    "chain, evidence": (lambda: ChainCRF("rbf", C="evidence", **LOW, **TIGHT).fit(SEQUENCES, LABELS), SEQUENCES),
    "chain, laplace": (lambda: ChainCRF("rbf", laplace=True, **LOW, **TIGHT, C=1.0).fit(SEQUENCES, LABELS), SEQUENCES),
    "chain, warm start": (fit_again, SEQUENCES),
    "chain, temperature": (fit_temperature, SEQUENCES),
    "classifier": (lambda: KernelClassifier("rbf", **LOW, **TIGHT).fit(ROWS, CLASSES), ROWS),
    "classifier, all landmarks, laplace": (
        lambda: KernelClassifier(RBF(0.7), n_components=None, laplace=True, **TIGHT).fit(ROWS, CLASSES == "up"),
        ROWS,
    ),
    "classifier, label kernel": (
        lambda: KernelClassifier("laplacian", gamma=0.5, label_kernel="centred", **LOW, **TIGHT).fit(ROWS, CLASSES),
        ROWS,
    ),
    "classifier, kernel by evidence": (
        # Few rows and landmarks: the search fits models for many kernels.
        lambda: KernelClassifier(RBF(0.7), C=Evidence(optimize_kernel=True), n_components=5, **TIGHT).fit(
            ROWS[:30], CLASSES[:30]
        ),
        ROWS,
    ),
    "graph": (lambda: GraphCRF("rbf", **LOW, **TIGHT).fit(BARE, NODE_LABELS), BARE),
    "graph, edge kernel, paths": (
        lambda: GraphCRF(
            "linear", edge_kernel=RBF(0.5), directed=True, cliques=("edges", "paths"), laplace=True, **TIGHT
        ).fit(GRAPHS, NODE_LABELS),
        GRAPHS,
    ),
    "graph, searched": (
        lambda: GraphCRF("linear", edge_kernel="linear", cliques="auto", **TIGHT).fit(BARE, NODE_LABELS),
        BARE,
    ),
    "graph, loopy": (
        lambda: GraphCRF("linear", inference="loopy", max_iter=5, random_state=0).fit(BARE, NODE_LABELS),
        BARE,
    ),
    "graph, gibbs": (
        lambda: GraphCRF("linear", inference="gibbs", **{**TIGHT, "random_state": 3}).fit(BARE, NODE_LABELS),
        BARE,
    ),
    "graph of chains": (lambda: GraphCRF("rbf", **LOW, **TIGHT).fit(SEQUENCES, LABELS), SEQUENCES),
    "label sets, searched": (lambda: MultiLabelCRF("rbf", laplace=True, **LOW, **TIGHT).fit(ROWS, SETS), ROWS),
    "label sets, edge kernel": (
        lambda: MultiLabelCRF(RBF(0.7), edge_kernel="linear", structure=[(0, 1), (2, 1)], **LOW, **TIGHT).fit(
            ROWS, SETS
        ),
        ROWS,
    ),
    "label sets, missing, sparse": (
        lambda: MultiLabelCRF("linear", structure="full", max_iter=6, random_state=0).fit(
            sp.csr_array(ROWS), SETS_WITH_GAPS
        ),
        sp.csr_array(ROWS),
    ),
    "network, searched": (lambda: MarkovNetwork(laplace=True, **TIGHT).fit(TABLE), None),
    "network, rbf": (lambda: MarkovNetwork("rbf", gamma=0.5, structure="full", **TIGHT).fit(TABLE), None),
}

WEIGHTS = (
    "C_",
    "coef_",
    "edge_coef_",
    "edge_potentials_",
    "edges_",
    "interactions_",
    "intercept_",
    "landmark_positions_",
    "landmarks_",
    "n_iter_",
    "objective_curve_",
    "potentials_",
    "temperature_",
    "transitions_",
)


def summary(values):
    """Return the kind and shape of an array, its largest magnitude and a few of its entries and sums."""
    if isinstance(values, (list, tuple)) and not np.isscalar(values[0]):
        values = np.concatenate([np.ravel(one) for one in values])
    array = values.toarray() if sp.issparse(values) else np.asarray(values)
    if array.dtype.kind not in "fiub":
        return array.tolist()
    flat = array.astype(np.float64).ravel()
    finite = flat[np.isfinite(flat)]
    return {
        "dtype": array.dtype.name if array.dtype.kind == "f" else array.dtype.kind,
        "shape": list(array.shape),
        "scale": float(np.abs(finite).max(initial=0.0)),
        "mean": float(finite.mean()) if finite.size else 0.0,
        "waves": float(finite @ np.cos(np.arange(finite.size)) / max(finite.size, 1)),
        "entries": [float(value) for value in flat[:: max(1, flat.size // 6)]],
    }


def plain(config, prefix=""):
    """Return the leaves of a JSON value by their paths."""
    items = config.items() if isinstance(config, dict) else enumerate(config) if isinstance(config, list) else None
    if items is None or not config:
        return {prefix: config}
    return {path: leaf for key, value in items for path, leaf in plain(value, f"{prefix}/{key}").items()}


def contents(model):
    """Return what a model file holds; seconds are no part of it."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "model.kcrf"
        model.save(path)
        with safe_open(path, framework="numpy") as file:
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
            config = json.loads(file.metadata()["config"])
    if "gap_curve" in tensors:
        tensors["gap_curve"] = tensors["gap_curve"][:, :2]
    return {
        **{f"file{path}": leaf for path, leaf in plain(config).items()},
        **{f"tensor {name}": summary(tensor) for name, tensor in tensors.items()},
    }


def numbers(model, X):
    """Return everything public that must not change, by name."""
    public = {name: getattr(model, name, None) for name in WEIGHTS}
    # Attributes of several inputs are dicts.
    leaves = {
        path: value
        for name, own in public.items()
        for path, value in (plain(own, name) if isinstance(own, dict) else {name: own}).items()
    }
    found = {name: summary(value) for name, value in leaves.items() if value is not None}
    if isinstance(model, TemperatureScaling):
        answers = {"labels": model.predict(X), "probabilities": model.predict_proba(X)}
        return found | {name: summary(answer) for name, answer in answers.items()} | contents(model.estimator_)
    certificate = model.certificate_
    found["status"] = certificate.status
    for name in ("objective", "lower_bound", "gap_full"):
        value = getattr(certificate, name)
        found[name] = value if value is None else summary(value)
    if model.get_params().get("laplace") or model.get_params().get("C") in ("evidence", Evidence(optimize_kernel=True)):
        found["evidence"] = summary(model.log_marginal_likelihood())
    if isinstance(model, MarkovNetwork):
        answers = {"samples": model.sample(5, random_state=0), "log_probabilities": model.score_samples(TABLE)}
    else:
        answers = {"labels": model.predict(X), "probabilities": model.predict_proba(X)}
        if not isinstance(model, kernelcrf.KernelClassifier) and getattr(model, "inference", "exact") == "exact":
            answers["entropy"] = model.distribution(X).entropy()
            answers["samples"] = model.distribution(X).sample(2, random_state=0)
            answers["n_best"] = [log_p for sample in model.distribution(X).k_best(2) for _, log_p in sample]
        if isinstance(model, kernelcrf.ChainCRF | kernelcrf.KernelClassifier) and model.laplace:
            answers["laplace"] = model.predict_proba(X, posterior="laplace", n_samples=8, random_state=0)
    return found | {name: summary(answer) for name, answer in answers.items()} | contents(model)


def differences(name, recorded, found):
    """Return the names whose values differ. More may be known of a model than before, nothing less."""
    recorded, rtol = recorded[name], SINGLE_RTOL if "single" in name else RTOL
    wrong = []
    for name, before in recorded.items():
        if name not in found:
            wrong.append(f"{name} is gone")
        elif not close(before, found[name], rtol):
            wrong.append(f"{name}: {before} -> {found[name]}")
    return wrong


def close(before, now, rtol):
    if isinstance(before, float) and isinstance(now, float):
        return bool(np.isclose(now, before, rtol=rtol, atol=0.0, equal_nan=True))
    if not (isinstance(before, dict) and isinstance(now, dict) and before and now):
        return before == now
    same = {"atol": rtol * before["scale"], "rtol": 0.0, "equal_nan": True}
    return (before["dtype"], before["shape"]) == (now["dtype"], now["shape"]) and all(
        np.allclose(now[name], before[name], **same) for name in ("scale", "mean", "waves", "entries")
    )


def fitted(make, X):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        return numbers(make(), X)


def fits_on_cluster(client):
    """Return the numbers of two fits on the workers of a cluster."""
    from kernelcrf.distributed import DaskEngine

    engine = DaskEngine(client, n_partitions=3)
    return {
        "cluster, rbf": fitted(
            lambda: ChainCRF("rbf", **LOW, **SEED, solver="newton-cg", tol=1e-13, engine=engine, C=1.0).fit(
                SEQUENCES, LABELS
            ),
            SEQUENCES,
        ),
        "cluster, feature dicts": fitted(
            lambda: ChainCRF("linear", solver="lbfgs", max_iter=6, engine=engine, C=1.0, **EVERY).fit(WORDS, LABELS),
            WORDS,
        ),
    }


@pytest.fixture(scope="module")
def recorded():
    return json.loads(RECORD.read_text(encoding="utf-8"))


@pytest.mark.parametrize("name", PROBLEMS)
def test_a_fit_gives_the_numbers_on_file(name, recorded):
    assert differences(name, recorded, fitted(*PROBLEMS[name])) == []


@pytest.mark.filterwarnings("ignore::ResourceWarning", "ignore::DeprecationWarning")
def test_a_fit_on_a_cluster_gives_the_numbers_on_file(recorded):
    with two_workers() as client:
        found = fits_on_cluster(client)
    wrong = {name: differences(name, recorded, own) for name, own in found.items()}
    assert not any(wrong.values()), wrong


if __name__ == "__main__" and sys.argv[1:] == ["--record"]:
    with two_workers() as client:
        on_cluster = fits_on_cluster(client)
    on_file = {name: fitted(*problem) for name, problem in PROBLEMS.items()} | on_cluster
    lines = ",\n".join(f"{json.dumps(name)}: {json.dumps(value)}" for name, value in on_file.items())
    RECORD.write_text("{\n" + lines + "\n}\n", encoding="utf-8")
