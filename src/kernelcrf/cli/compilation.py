"""Compile all loops and store the compiled code, so that later processes need not compile them.

The command is `python -m kernelcrf compile [FOLDER]`; it is meant for container images and servers.

Numba compiles a loop for the types of the arguments with which it is first called. This module therefore fits small
models of all kinds, and calls all methods of their distributions, with the types that users' data have: single and
double precision, dense, sparse and feature dicts.
"""

from __future__ import annotations

import os
import subprocess
import sys
import warnings
from pathlib import Path
from typing import Any

import numpy as np

FOLDER = "NUMBA_CACHE_DIR"


def compile_loops(folder: str | None = None) -> None:
    """Compile all loops in several processes at the same time, and store the code.

    folder : where the code is stored. Processes find it there if the environment variable NUMBA_CACHE_DIR names this
        folder. None stores it in the first folder that can be written to: `__pycache__` beside the source, or the cache
        folder of the user.
    """
    environment = dict(os.environ)
    if folder is not None:
        environment[FOLDER] = str(Path(folder).resolve())
    command = [sys.executable, "-W", "ignore", "-m", "kernelcrf.cli.compilation"]
    parts = [subprocess.Popen([*command, part], env=environment) for part in PARTS]
    if failed := [code for code in [part.wait() for part in parts] if code]:
        sys.exit(failed[0])
    sys.stderr.write("kernelcrf has compiled all loops.\n")


def main(arguments: list[str]) -> None:
    """Run the command `python -m kernelcrf compile`, which needs no extra packages."""
    if len(arguments) > 1 or any(argument.startswith("-") for argument in arguments):
        sys.exit("usage: python -m kernelcrf compile [FOLDER]\nerror: expected at most one argument, a folder")
    compile_loops(*arguments)


def compile_arrays() -> None:
    """Fit models to sequences of dense arrays, so that the loops for such data are compiled."""
    _compile_chains("double", "single")


def compile_sparse() -> None:
    """Fit models to sparse matrices and feature dicts, so that the loops for such data are compiled."""
    _compile_chains("sparse", "dicts")


def _compile_chains(*names: str) -> None:
    import scipy.sparse as sp

    from kernelcrf import ChainCRF, Input
    from kernelcrf.datasets import make_sequences
    from kernelcrf.penalties import ElasticNet

    data = make_sequences(12, random_state=0)
    X, y = data.X, [labels.tolist() for labels in data.y]
    kinds: dict[str, Any] = {
        "double": X,
        "single": [x.astype(np.float32) for x in X],
        "sparse": [sp.csr_array(x) for x in X],
        "dicts": [[{"a": float(a), "word": str(round(b))} for a, b in x.tolist()] for x in X],
    }
    twelve = [np.arange(len(labels)) % 12 for labels in y]
    missing = [[None, *labels[1:]] for labels in y]
    spans = [["B-A", *["I-A"] * (len(labels) - 1)] for labels in y]
    # Landmarks between the tokens are only computed if there are fewer landmarks than tokens.
    few: dict[str, Any] = {"n_components": 10}
    brief: dict[str, Any] = {"C": 1.0, "max_iter": 3, "random_state": 0}
    short = brief | few
    sparse = "sparse" in names
    for Z in map(kinds.__getitem__, names):
        kernel = "linear" if sparse else "rbf"
        for labels in (y, twelve):
            _ask(ChainCRF(kernel, **short).fit(Z, labels), Z, labels)
        ChainCRF(kernel, solver="newton-cg", fit_intercept=True, **short).fit(Z, y)
        ChainCRF(kernel, **short).fit(Z, missing).predict_proba(Z)
        constrained = ChainCRF(kernel, constraints="BIO", classes=["O", "B-A", "I-A"], **short).fit(Z, spans)
        _ask(constrained, Z, spans)
        if sparse:
            ChainCRF(kernel, penalty=ElasticNet(0.1), weights="all", **short).fit(Z, y)
            ChainCRF(kernel, solver="lbfgs", **short).fit(Z, y)
            # With a small tolerance, the dual solver stores its variables in double precision.
            ChainCRF(kernel, tol=1e-6, **short).fit(Z, y)
    if not sparse:
        ChainCRF("rbf", laplace=True, **short).fit(X, y).uncertainty(X, n_samples=2)
        inputs = {"tokens": Input("rbf", **few), "steps": Input("linear", scores="steps")}
        _ask(ChainCRF(inputs=inputs, **brief).fit(X, y), X, y)


def compile_segments() -> None:
    """Fit a model of segments, so that the loops for segmentations are compiled."""
    from kernelcrf import SegmentCRF
    from kernelcrf.datasets import make_sequences

    data = make_sequences(12, random_state=0)
    X, y = data.X, [labels.tolist() for labels in data.y]
    short: dict[str, Any] = {"C": 1.0, "max_iter": 3, "random_state": 0}
    _ask(SegmentCRF("rbf", **short).fit(X, y), X, y)
    options: dict[str, Any] = {"solver": "newton-cg", "segment_kernel": "linear", **short}
    _ask(SegmentCRF("linear", tail=False, **options).fit(X, y), X, y)
    SegmentCRF("linear", **short).fit(X, [[None, *labels[1:]] for labels in y])


def compile_graphs() -> None:
    """Fit models of rows, graphs, sets of labels and tables, so that the loops for them are compiled."""
    from kernelcrf import GraphCRF, KernelClassifier, MarkovNetwork, MultiLabelCRF

    rng = np.random.default_rng(0)
    X = rng.normal(size=(24, 2))
    y = (X[:, 0] > 0).astype(int)
    ring = [[0, 1], [1, 2], [2, 3], [3, 0]]
    graphs, labels = [(X[4 * i : 4 * i + 4], ring) for i in range(6)], np.split(y, 6)
    sets = np.column_stack((y, X[:, 1] > 0, rng.random(24) < 0.5)).astype(int)
    short: dict[str, Any] = {"max_iter": 3, "random_state": 0}
    _ask(KernelClassifier("rbf", laplace=True, **short).fit(X, y), X, y)
    _ask(GraphCRF("linear", solver="newton-cg", laplace=True, **short).fit(graphs, labels), graphs, labels)
    for inference in ("loopy", "gibbs"):
        GraphCRF("linear", inference=inference, **short).fit(graphs, labels).predict(graphs)
    _ask(MultiLabelCRF("rbf", structure="full", **short).fit(X, sets), X, sets)
    MarkovNetwork(structure="full", max_iter=3).fit(sets)


def _ask(model: Any, X: Any, y: Any) -> None:
    """Call all methods of the distribution of the labels of X."""
    distribution = model.distribution(X)
    for question in ("marginals", "edge_marginals", "entropy", "decode", "spans"):
        if hasattr(distribution, question):
            getattr(distribution, question)()
    for question, arguments in (("k_best", (3,)), ("sample", (2,)), ("log_prob", (y,))):
        if hasattr(distribution, question):
            getattr(distribution, question)(*arguments)
    if hasattr(distribution, "certify") and np.isfinite(model.certificate_.lower_bound):
        distribution.certify()
    model.predict(X[:1])
    if hasattr(model, "stream") and getattr(model, "segment_kernel", None) is None:
        live = model.stream(lag=1, max_delay=1)
        live.extend(X[0])
        live.finish()


PARTS = {"sparse": compile_sparse, "arrays": compile_arrays, "segments": compile_segments, "graphs": compile_graphs}
"""What is compiled at the same time; few loops belong to two parts."""


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    PARTS[sys.argv[1]]()
