"""Golden model files: one small model of each kind that `save` writes, with inputs and what it predicts for them.

    python tests/golden_models.py           writes tests/golden/v<format version>/; commit what it writes

Files that are there stay as they are: every later version of the library must read them and predict the same
(`tests/models/test_golden.py`). The command adds kinds that are new, and a folder for a new format version.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp
from sklearn.decomposition import PCA
from sklearn.gaussian_process.kernels import RBF, ConstantKernel, Matern
from sklearn.impute import SimpleImputer
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import MaxAbsScaler, MinMaxScaler, RobustScaler, StandardScaler

from kernelcrf import (
    CandidateCRF,
    ChainCRF,
    GraphCRF,
    Input,
    KernelClassifier,
    LabelFeatures,
    MarkovNetwork,
    MultiLabelCRF,
    SegmentCRF,
    Symmetry,
    save,
)
from kernelcrf.basis import Landmarks
from kernelcrf.formats import Templates
from kernelcrf.kernels import Polynomial
from kernelcrf.persistence.model_file import VERSION
from kernelcrf.preprocessing import PerToken
from kernelcrf.solvers import Restarts

FOLDER = Path(__file__).parent / "golden"
LENGTHS = (5, 1, 7, 4, 6, 3, 5, 8)


def numbers(salt: int, *shape: int) -> np.ndarray:
    """Numbers in (0, 1) by a formula, so that no generator of another version matters."""
    i = np.arange(int(np.prod(shape)), dtype=np.float64) + 1 + 100 * salt
    return np.round(np.modf(i * 0.6180339887498949 + np.square(i) * 0.01)[0], 6).reshape(shape)


def dense(dtype: type = np.float64) -> list[np.ndarray]:
    return [numbers(i, T, 3).astype(dtype) for i, T in enumerate(LENGTHS)]


def gaps() -> list[np.ndarray]:
    return [np.where(x < 0.1, np.nan, x) for x in dense()]


def sparse() -> list[sp.csr_array]:
    return [sp.csr_array(np.where(x > 0.5, x, 0.0)) for x in dense()]


def dicts() -> list[list[dict[str, object]]]:
    return [[{"word": "abcdefg"[int(7 * a)], "size": float(b), "up": bool(c > 0.5)} for a, b, c in x] for x in dense()]


def labels(names: tuple[object, ...]) -> list[list[object]]:
    return [[names[int(len(names) * value)] for value in numbers(50 + i, T)] for i, T in enumerate(LENGTHS)]


def words() -> list[list[list[str]]]:
    return [[["wort" + "aeiou"[int(5 * a)]] for a, _, _ in x] for x in dense()]


def many_names() -> list[list[list[str]]]:
    return [[[f"wort{int(120 * a)}", f"größe{int(90 * b)}"] for a, b, _ in x] for x in dense()]


PAIRS = [[0, 1], [1, 2], [0, 2], [2, 3]]


def graphs() -> list[tuple]:
    return [(numbers(i, 4, 2), PAIRS) for i in range(6)]


def edge_graphs() -> list[tuple]:
    return [(*graph, numbers(20 + i, 4, 2)) for i, graph in enumerate(graphs())]


def typed_graphs() -> list[dict]:
    types = {"node_types": ["p", "q", "p", "q"], "edge_types": [0, 1, 0, 1], "cliques": {"all": [[0, 1, 2, 3]]}}
    return [{"nodes": nodes, "edges": edges} | types for nodes, edges in graphs()]


def candidates() -> list[list[np.ndarray]]:
    return [[numbers(50 + 10 * i + t, 3, 2) for t in range(T)] for i, T in enumerate(LENGTHS)]


def rows() -> np.ndarray:
    return numbers(7, 12, 3)


def table() -> list[list[int]]:
    return [[int(3 * a), int(2 * b), int(3 * a + b)] for a, b in numbers(9, 30, 2)]


def node_labels(names: tuple[object, ...]) -> list[list[object]]:
    return [[names[int(len(names) * value)] for value in numbers(30 + i, 4)] for i in range(6)]


THREE, TWO = ("a", "b", "c"), (0, 1)
SETS = (numbers(8, 12, 3) > 0.5).astype(int)
CLASSES = [THREE[int(3 * value)] for value in numbers(11, 12)]
BIO = [["O", "B-X", "I-X", "O", "B-Y", "I-Y", "I-Y", "O"][:T] for T in LENGTHS]


def steps(kernel: str | Polynomial, of_steps: str) -> dict[str, Input]:
    return {"tokens": Input(kernel, n_components=6), "steps": Input(of_steps, n_components=6, scores="steps")}


TURNS = Symmetry(
    {a: [THREE[(i + k) % 3] for k in range(3)] for i, a in enumerate(THREE)}, [[0, 1, 2], [1, 2, 0], [2, 0, 1]]
)
# name: (parameters, inputs, labels)
KINDS = {
    "linear": ({"kernel": "linear"}, dense, labels(THREE)),
    "poly": ({"kernel": Polynomial(degree=2)}, dense, labels(THREE)),
    "polynomial": ({"kernel": "polynomial", "gamma": 0.5}, dense, labels(TWO)),
    "rbf": ({}, dense, labels(THREE)),
    "laplacian": ({"kernel": "laplacian"}, dense, labels(THREE)),
    "cosine": ({"kernel": "cosine"}, dense, labels(THREE)),
    "chi2": ({"kernel": "chi2"}, dense, labels(THREE)),
    "gaussian-process": (
        {"kernel": ConstantKernel(2.0) * RBF([0.5, 1.0, 2.0]) + Matern(0.7, nu=1.5)},
        dense,
        labels(THREE),
    ),
    "single-precision": ({}, lambda: dense(np.float32), labels(THREE)),
    "sparse-linear": ({"kernel": "linear"}, sparse, labels(THREE)),
    "sparse-rbf": ({"kernel": "rbf"}, sparse, labels(THREE)),
    "dicts-linear": ({"kernel": "linear"}, dicts, labels(THREE)),
    "dicts-rbf": ({"kernel": "rbf"}, dicts, labels(THREE)),
    "dicts-hashed": ({"kernel": "linear", "hash_features": 32}, dicts, labels(THREE)),
    # 64 names or more are tensors of the file, not part of its header.
    "dicts-many": ({"kernel": "linear"}, many_names, labels(THREE)),
    "edge-linear": ({"inputs": steps("auto", "linear")}, dense, labels(THREE)),
    "edge-rbf": ({"inputs": steps("linear", "rbf")}, dense, labels(TWO)),
    "centred": ({"label_kernel": "centred"}, dense, labels(THREE)),
    "label-matrix": ({"label_kernel": (np.eye(3) + 0.5).tolist()}, dense, labels(THREE)),
    "label-features": (
        {"label_kernel": LabelFeatures({"a": ["x"], "b": ["x", "y"], "c": ["y"]})},
        dense,
        labels(THREE),
    ),
    "symmetry": ({"label_kernel": TURNS}, dense, labels(THREE)),
    "constraints": ({"constraints": "BIO"}, dense, BIO),
    "marginal": ({"decoding": "marginal", "classes": [1, 2, 3]}, dense, labels((1, 2))),
    "tuple-labels": ({}, dense, labels((("x", 1), ("y", 2)))),
    "number-labels": ({"kernel": "linear"}, dense, labels((0.5, 1.5))),
    "laplace": ({"laplace": True, "n_components": 4}, dense, labels(TWO)),
    "laplace-partial": ({"kernel": "linear", "hash_features": 16, "laplace": True}, dicts, labels(TWO)),
    # Options that are objects.
    "objects": (
        {
            "kernel": Polynomial(2, 0.5),
            "n_components": Landmarks(4, "random"),
            "fit_intercept": "boundaries",
            "solver": Restarts(2, "lbfgs"),
        },
        dense,
        labels(THREE),
    ),
    "steps": ({"inputs": steps(Polynomial(2), "linear")}, dense, labels(THREE)),
    "evidence": ({"C": "evidence", "n_components": 4}, dense, labels(TWO)),
    "templates": ({"kernel": "linear"}, words, labels(THREE)),
    "pipeline": ({}, dense, labels(THREE)),
    "imputer": ({}, gaps, labels(THREE)),
    "graph": ({}, graphs, node_labels(THREE)),
    "graph-edges": (
        {"kernel": "linear", "edge_kernel": RBF(0.5), "directed": True, "cliques": ("edges", "paths")},
        edge_graphs,
        node_labels(TWO),
    ),
    "graph-types": ({"edge_kernel": "linear"}, typed_graphs, node_labels(TWO)),
    "graph-searched": (
        {"kernel": "linear", "edge_kernel": "linear", "cliques": "auto", "min_gain": 0.0},
        graphs,
        node_labels(TWO),
    ),
    "sets": ({"structure": [(0, 1), (1, 2)]}, rows, SETS),
    "sets-edges": ({"kernel": "linear", "edge_kernel": RBF(0.5), "structure": "full"}, rows, SETS),
    "table": ({"structure": "full"}, table, None),
    "graph-laplace": ({"laplace": True}, graphs, node_labels(TWO)),
    "sets-laplace": ({"laplace": True, "structure": "full"}, rows, SETS),
    "table-laplace": ({"laplace": True, "structure": "full"}, table, None),
    "candidates": ({}, candidates, labels((0, 1, 2))),
    "classifier": ({"laplace": True}, rows, CLASSES),
    "classifier-linear": ({"kernel": "linear", "fit_intercept": True}, rows, CLASSES),
    "segments": ({"max_duration": 4}, dense, labels(THREE)),
    "segments-pooled": (
        {"kernel": "linear", "max_duration": 8, "tail": False, "segment_kernel": "rbf", "durations": "free"},
        dense,
        labels(TWO),
    ),
    "table-rbf": ({"kernel": "rbf", "structure": "tree"}, table, None),
}
# The estimator of a kind, by the first word of its name; all others are kinds of ChainCRF.
ESTIMATORS = {
    "candidates": CandidateCRF,
    "classifier": KernelClassifier,
    "graph": GraphCRF,
    "segments": SegmentCRF,
    "sets": MultiLabelCRF,
    "table": MarkovNetwork,
}
# Transformers that can be stored, each after the one before it.
STEPS = {
    "pipeline": (StandardScaler(), MinMaxScaler(), RobustScaler(), MaxAbsScaler(), PCA(2, whiten=True)),
    "imputer": (SimpleImputer(strategy="median"), StandardScaler()),
}


def inputs(name: str) -> list:
    """X of a kind, as `predict` takes it."""
    made = KINDS[name][1]()
    return TEMPLATES.features(made) if name == "templates" else made


def estimator(name: str) -> Any:
    """The estimator of a kind before its fit."""
    kind = ESTIMATORS.get(name.split("-")[0], ChainCRF)
    landmarks = {} if kind is MarkovNetwork or "inputs" in KINDS[name][0] else {"n_components": 6}
    return kind(**{"C": 1.0, "random_state": 0, **landmarks, **KINDS[name][0]})


def answers(model, X: list) -> dict[str, list]:
    """What a model predicts, as JSON can store it."""
    labels = model.impute([[None, *row[1:]] for row in X]) if isinstance(model, MarkovNetwork) else model.predict(X)
    proba = model.predict_proba(X if not isinstance(model, MarkovNetwork) else [[None, *row[1:]] for row in X])
    return {
        "labels": [found.tolist() for found in labels],
        "proba": [np.round(found, 12).tolist() for found in proba],
    }


TEMPLATES = Templates('U:w=%x[0,0]\nU:before=%x[-1,0]\nU:end=%m[0,0,".$"]', 1)


def write(folder: Path) -> None:
    """Each kind as <name>.kcrf, and what all of them predict as predictions.json; what is there already stays."""
    folder.mkdir(parents=True, exist_ok=True)
    known = folder / "predictions.json"
    predictions = json.loads(known.read_text(encoding="utf-8")) if known.exists() else {}
    for name, (_, _, y) in KINDS.items():
        if name in predictions:
            continue
        X, crf = inputs(name), estimator(name)
        model = make_pipeline(PerToken(make_pipeline(*STEPS[name])), crf) if name in STEPS else crf
        model.fit(X, y)
        if name == "templates":
            TEMPLATES.attach(model)
        # A time of day is no part of a model: the files are the same whenever they are written.
        if isinstance(crf, ChainCRF):
            crf.gap_curve_[:, 2] = 0.0
        save(model, folder / f"{name}.kcrf")
        predictions[name] = answers(model, X)
    known.write_text(json.dumps(predictions) + "\n", encoding="utf-8")


if __name__ == "__main__":
    write(FOLDER / f"v{VERSION}")
