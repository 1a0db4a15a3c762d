"""Features that are recomputed in each pass beside features that are stored: time, memory and objective.

The data are chains of 20 tokens in two clusters per label, with nine labels and 64 numbers per token unless a row says
otherwise. The kernel is rbf with random landmarks, in float64, on one thread. A pass computes the objective and its
gradient once, over 10,000 tokens; passes are timed in turn. A fit runs to a certified gap of 1e-4, in a process of its
own, and its memory is the peak above that before the fit. In fits to the larger data, new memory is limited to a third
of what the stored features need. All seconds are CPU time.

The last table, on a fifth of the smaller data, makes the kernel smoother and smoother. K_BB = R R' is the Gram matrix
of the landmarks B, and features are found by a solve with R. A large condition number of R means that this solve
enlarges rounding errors.
"""

from __future__ import annotations

import argparse
import resource
import time
import warnings
from pathlib import Path
from typing import Any

import numpy as np

from kernelcrf import ChainCRF
from kernelcrf.basis import Landmarks
from kernelcrf.engines.local import LocalEngine
from kernelcrf.fitting.corpus import Problem
from kernelcrf.fitting.fit import Settings, choose_features, objective_of
from kernelcrf.fitting.sequences import LabelledSequences
from kernelcrf.graphs.structure import Chains
from kernelcrf.kernels.inputs import InputKernel
from kernelcrf.score.terms import chain_terms
from studies import common
from studies.speed.growth import LENGTH, labels

L, COLUMNS, GAMMA, TOKENS_OF_PASS = 9, 64, 0.005, 10_000
STORAGE = ("stored", "recomputed")
PASSES = {"500 landmarks": (500, 64), "1,000 landmarks": (1000, 64), "1,000 landmarks, 300 columns": (1000, 300)}
SMOOTHNESS = (5e-3, 5e-4, 5e-5, 5e-6)
OPTIONS = {"small": 30_000, "large": 150_000, "landmarks": 500, "rounds": 5}


def draw(n_tokens: int, n_columns: int = COLUMNS) -> tuple[np.ndarray, np.ndarray]:
    """Return the inputs of all tokens, and the labels of each sequence."""
    rng = np.random.default_rng(0)
    y = labels(n_tokens, L, rng)
    centres = rng.normal(size=(L, 2, n_columns)) / 2
    X = centres[y, rng.integers(2, size=y.shape)] + rng.normal(size=(*y.shape, n_columns))
    return X.reshape(-1, n_columns), y


def seconds_of_pass(n: int, n_columns: int, rounds: int) -> list[float]:
    """Return the CPU seconds of a pass with stored and with recomputed features."""
    X, y = draw(TOKENS_OF_PASS, n_columns)
    data = LabelledSequences(X, Chains.from_lengths([LENGTH] * len(y)), y.ravel(), L)
    kernel = InputKernel("rbf", gamma=GAMMA * COLUMNS / n_columns)
    problem, objectives = Problem(chain_terms(L, kernel), data), []
    for storage in STORAGE:
        settings = Settings(landmarks=Landmarks(n, "random", storage), random_state=0)
        objectives.append(objective_of(problem, choose_features(problem, settings), LocalEngine(1)))
    theta = np.random.default_rng(1).normal(size=objectives[0].layout.size) / 100
    times = []
    for _ in range(rounds + 1):
        row = []
        for objective in objectives:
            start = time.process_time()
            objective.evaluate(theta)
            row.append(time.process_time() - start)
        times.append(row)
    return [float(one) for one in np.median(times[1:], axis=0)]


def fit(storage: str, n_tokens: int, n: int, gamma: float, limited: bool) -> dict[str, Any]:
    """Return the seconds, peak memory, objective and status of a fit, or no seconds if it ran out of memory."""
    model = ChainCRF("rbf", gamma=gamma, C=10.0, n_components=Landmarks(n, "random", storage), random_state=0)
    rows, y = draw(400)
    model.fit(rows, y.ravel(), lengths=[LENGTH] * len(y))
    X, y = draw(n_tokens)
    if limited:
        used = next(line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith("VmData"))
        most = 1024 * int(used.split()[1]) + 8 * n * n_tokens // 3
        resource.setrlimit(resource.RLIMIT_DATA, (most, most))
    before, start = common.peak_memory(reset=True), time.process_time()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            model.fit(X, y.ravel(), lengths=[LENGTH] * len(y))
        except MemoryError:
            return {"seconds": None}
    took, peak = time.process_time() - start, common.peak_memory() - before
    certificate = model.certificate_
    return {
        "seconds": took,
        "megabytes": peak,
        "objective": certificate.objective,
        "gap": certificate.relative_gap,
        "status": certificate.status,
        "iterations": int(model.n_iter_),
        "condition": float(np.linalg.cond(model.model_.maps["node"].R)),
    }


def measure(options: argparse.Namespace) -> dict[str, Any]:
    one_thread = dict.fromkeys(("OMP_NUM_THREADS", "NUMBA_NUM_THREADS", "OPENBLAS_NUM_THREADS"), "1")

    def fits(n_tokens: int, gamma: float = GAMMA, *, limited: bool = False) -> dict[str, Any]:
        shape = n_tokens, options.landmarks, gamma, limited
        return {storage: common.in_process(fit, storage, *shape, **one_thread) for storage in STORAGE}

    return {
        "landmarks": options.landmarks,
        "passes": {
            name: common.in_process(seconds_of_pass, *shape, options.rounds, **one_thread)
            for name, shape in PASSES.items()
        },
        "fits": {
            options.small: fits(options.small),
            options.large: fits(options.large, limited=True),
        },
        "smoothness": {str(gamma): fits(options.small // 5, gamma) for gamma in SMOOTHNESS},
    }


def table(results: dict[str, Any]) -> str:
    passes = [
        [name, f"{1e3 * stored:.0f}", f"{1e3 * recomputed:.0f}", f"{recomputed / stored:.1f}"]
        for name, (stored, recomputed) in results["passes"].items()
    ]
    n, fits = results["landmarks"], []
    for n_tokens, row in results["fits"].items():
        size = f"{int(n_tokens):,} tokens, features of {8 * n * int(n_tokens) / 1e6:,.0f} MB"
        for storage in STORAGE:
            one = row[storage]
            if one["seconds"] is None:
                fits.append([f"{size}, {storage}", "out of memory", "", "", ""])
                continue
            cells = [f"{one['seconds']:.1f}", f"{one['megabytes']:,.0f}", f"{one['objective']:.9g}", one["status"]]
            fits.append([f"{size}, {storage}", *cells])
    smooth = []
    for gamma, row in results["smoothness"].items():
        stored, recomputed = (row[storage] for storage in STORAGE)
        difference = abs(recomputed["objective"] - stored["objective"]) / abs(stored["objective"])
        ratio = recomputed["seconds"] / stored["seconds"]
        cells = [f"{stored['condition']:.1e}", f"{difference:.1e}", recomputed["status"], f"{ratio:.1f}"]
        smooth.append([f"{float(gamma):g}", *cells])
    n_small, small = next(iter(results["fits"].items()))
    stored, recomputed = (small[storage] for storage in STORAGE)
    difference = abs(recomputed["objective"] - stored["objective"]) / abs(stored["objective"])
    return "\n\n".join(
        [
            common.markdown(["a pass, CPU ms", "stored", "recomputed", "ratio"], passes),
            common.markdown(["a fit", "CPU seconds", "memory, MB", "objective", "status"], fits),
            f"With {int(n_small):,} tokens, both fits have the same objective to {difference:.0e}. The fit that "
            f"recomputes features takes {recomputed['seconds'] / stored['seconds']:.1f} times as long.",
            common.markdown(
                ["gamma", "condition of R", "difference of the objectives", "status", "recomputed time / stored"],
                smooth,
            ),
        ]
    )
