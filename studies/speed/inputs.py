"""Several inputs: a pass over two inputs beside the sum of the passes over each of them, and the memory of the fits.

A pass computes the objective and its gradient once. Dense inputs have 500 features per token. Sparse inputs have 20 of
50,000 columns, with weights for the pairs that occur. There are nine labels, and sequences of 20 tokens. Passes are
timed in turn, in one process, on one thread, and the median of several rounds counts. Memory is the peak during a fit
of five iterations, minus the memory before it, in a process of its own. Kernels are linear, so that the inputs are the
features. *Ratio* divides the pass over both inputs by the sum of the passes over each alone.
"""

from __future__ import annotations

import argparse
import warnings
from typing import Any

import numpy as np
import scipy.sparse as sp

from kernelcrf import ChainCRF, Input
from kernelcrf.arrays import NamedInputs
from kernelcrf.engines.local import LocalEngine
from kernelcrf.fitting.corpus import Problem
from kernelcrf.fitting.fit import Settings, choose_features, objective_of
from kernelcrf.fitting.sequences import LabelledSequences
from kernelcrf.graphs.structure import Chains
from kernelcrf.kernels.inputs import InputKernel
from kernelcrf.score.terms import TRANSITION_TERM, NamedInput, chain_terms
from studies import common

L, LENGTH, WIDTH, COLUMNS, PRESENT = 9, 20, 500, 50_000, 20
PAIRS = {
    "dense and dense": ("dense", "dense"),
    "sparse and dense": ("sparse", "dense"),
    "sparse and sparse": 2 * ("sparse",),
}


def draw(kind: str, n_tokens: int, seed: int) -> Any:
    """Return random inputs of tokens, dense or sparse."""
    rng = np.random.default_rng(seed)
    if kind == "dense":
        return rng.normal(size=(n_tokens, WIDTH))
    columns = np.minimum(rng.zipf(1.3, size=(n_tokens, PRESENT)), COLUMNS) - 1
    rows = np.repeat(np.arange(n_tokens), PRESENT)
    found = sp.csr_array((np.ones(rows.size), (rows, columns.ravel())), shape=(n_tokens, COLUMNS))
    found.sum_duplicates()
    return found


def labels(n_tokens: int) -> np.ndarray:
    return np.random.default_rng(2).integers(L, size=n_tokens).astype(np.int32)


def passes(kinds: tuple[str, str], n_tokens: int, rounds: int) -> list[float]:
    """Return the seconds of a pass over both inputs, over the first and over the second."""
    X = {name: draw(kind, n_tokens, seed) for seed, (name, kind) in enumerate(zip("ab", kinds, strict=True))}
    chains = Chains.from_lengths([LENGTH] * (n_tokens // LENGTH))
    data = LabelledSequences(NamedInputs(X), chains, labels(n_tokens), L)

    def objective(names: str) -> Any:
        kernels = {name: NamedInput(InputKernel("linear"), 1.0) for name in names}
        terms = chain_terms(L, None, inputs=kernels)
        problem = Problem(
            terms, data, {term.name: 0.0 for term in terms if term.name != TRANSITION_TERM}
        ).only_observed()
        return objective_of(problem, choose_features(problem, Settings()), LocalEngine(1))

    sides = {}
    for names in ("ab", "a", "b"):
        one = objective(names)
        theta = np.random.default_rng(3).normal(size=one.layout.size) / 10
        sides[names] = lambda one=one, theta=theta: one.evaluate(theta)
    found = common.side_by_side(sides, rounds)
    return [found[names] for names in ("ab", "a", "b")]


def memory(kinds: tuple[str, str], n_tokens: int, names: str) -> float:
    """Return the megabytes that a fit to the named inputs needs."""
    X = {name: draw(kind, n_tokens, seed) for seed, (name, kind) in enumerate(zip("ab", kinds, strict=True))}
    inputs = {name: Input("linear") for name in names}
    crf = ChainCRF(inputs=inputs, C=1.0, solver="lbfgs", max_iter=5, tol=1e-9)
    common.peak_memory(reset=True)
    before = common.peak_memory()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        crf.fit(X, labels(n_tokens), lengths=[LENGTH] * (n_tokens // LENGTH))
    return common.peak_memory() - before


def measure(options: argparse.Namespace) -> dict[str, Any]:
    one_thread = dict.fromkeys(("OMP_NUM_THREADS", "NUMBA_NUM_THREADS", "OPENBLAS_NUM_THREADS"), "1")
    rows = {}
    for name, kinds in PAIRS.items():
        found = common.in_process(passes, kinds, options.tokens, options.rounds, **one_thread)
        used = [common.in_process(memory, kinds, options.tokens, own, **one_thread) for own in ("ab", "a", "b")]
        rows[name] = {"seconds": found, "memory": used}
    return {"rows": rows}


def table(results: dict[str, Any]) -> str:
    lines = []
    for name, row in results["rows"].items():
        (both, *each), (used, *apart) = row["seconds"], row["memory"]
        alone = [" + ".join(f"{one:.0f}" for one in own) for own in ([1e3 * one for one in each], apart)]
        lines.append([name, f"{1e3 * both:.0f}", alone[0], f"{both / sum(each):.2f}", f"{used:.0f}", alone[1]])
    header = ["inputs", "pass, ms", "each alone, ms", "ratio", "memory, MB", "each alone, MB"]
    return common.markdown(header, lines)


OPTIONS = {"tokens": 40_000, "rounds": 7}
