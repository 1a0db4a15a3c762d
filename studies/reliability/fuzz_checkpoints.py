"""Interrupt fits of small problems, and continue them from an edited checkpoint."""

from __future__ import annotations

import os
import tempfile
import warnings
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp

from kernelcrf import ChainCRF, Input, ModelFileError
from kernelcrf.basis import Landmarks
from kernelcrf.persistence import read, write

KINDS: dict[str, dict[str, Any]] = {
    "dense": {"kernel": "rbf", "gamma": 0.5, "n_components": 4},
    "sparse linear": {"kernel": "linear", "solver": "lbfgs"},
    "sparse": {"kernel": "rbf", "gamma": 0.5, "n_components": Landmarks(4, "random")},
    "edges": {
        "inputs": {
            "tokens": Input("rbf", gamma=0.5, n_components=3),
            "steps": Input("rbf", gamma=0.5, n_components=3, scores="steps"),
        }
    },
    "missing labels": {"kernel": "poly", "gamma": 0.5, "n_components": Landmarks(3, "random")},
}
OTHER_PROBLEM = ("was written by a fit that differs", "was written by an earlier version")


@dataclass(frozen=True, eq=False)
class Interrupted:
    """Hold an interrupted fit: its settings, its data and its checkpoint."""

    settings: dict[str, Any]
    X: list[Any]
    y: list[list[Any]]
    config: dict[str, Any]
    arrays: dict[str, Any]


@cache
def interrupted() -> list[Interrupted]:
    """Return one fit of each kind."""
    rng, found = np.random.default_rng(0), []
    for kind, settings in KINDS.items():
        X: list[Any] = [np.round(rng.normal(size=(length, 3)), 1) for length in (3, 1, 4, 2)]
        y: list[list[Any]] = [["b" if x[0] > 0 else "a" for x in rows] for rows in X]
        if kind.startswith("sparse"):
            X = [sp.csr_array(np.where(rows > 0, rows, 0)) for rows in X]
        if kind == "missing labels":
            y[0][0] = None
        settings = {**settings, "random_state": 0, "tol": 1e-6}
        with tempfile.TemporaryDirectory() as folder, warnings.catch_warnings():
            warnings.simplefilter("ignore")
            path = Path(folder) / "run"
            ChainCRF(**settings, max_iter=2, checkpoint=path).fit(X, y)
            found.append(Interrupted(settings, X, y, *read(path)[:2]))
    return found


def goes_on(own: Interrupted, config: dict[str, Any], arrays: dict[str, Any], path: str) -> ChainCRF | None:
    """Fit from an edited checkpoint; return None if the file is refused."""
    if os.path.exists(path):
        os.unlink(path)
    write(path, config, arrays)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            crf = ChainCRF(**own.settings, max_iter=6, checkpoint=path).fit(own.X, own.y)
    except ModelFileError:
        return None
    except ValueError as error:
        if any(words in str(error) for words in OTHER_PROBLEM):
            return None
        raise
    certificate = crf.certificate_
    assert certificate.status != "optimal" or certificate.relative_gap <= crf.tol, "optimal above the tolerance"
    assert (certificate.lower_bound == -np.inf) == (None in own.y[0]), "a bound despite missing labels, or none"
    return crf
