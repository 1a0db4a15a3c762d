"""Time and memory of training against the number of tokens N, of landmarks n and of labels L, with fitted exponents.

The data are chains of 20 tokens, drawn from a known law. `rbf` has 10 numbers per token, n = 100 random landmarks, five
labels and float32, unless they vary. `linear` has 20 of 100,000 sparse features per token and the dual solver. Each
point is a fresh process on one thread. Its seconds are those of `fit` to a certified gap of 1 %, without compilation,
and its memory is the peak beyond what the data took. An exponent is the slope of a line through the logarithms of the
upper half of the range: 1 means that twice the size takes twice as much.
"""

from __future__ import annotations

import argparse
import time
from typing import Any

import numpy as np
import scipy.sparse as sp

from kernelcrf import ChainCRF
from kernelcrf.basis import Landmarks
from studies import common

LENGTH = 20
TOKENS = (1_000, 3_000, 10_000, 30_000, 100_000, 300_000, 1_000_000)
SWEEPS: dict[str, tuple[str, str, tuple[int, ...]]] = {
    "rbf, N": ("rbf", "N", TOKENS),
    "linear, N": ("linear", "N", TOKENS),
    "rbf, n": ("rbf", "n", (64, 128, 256, 512, 1024, 2048)),
    "rbf, L": ("rbf", "L", (2, 4, 8, 16, 32, 64)),
}
DEFAULTS = {"N": 20_000, "n": 100, "L": 5}


def labels(N: int, L: int, rng: np.random.Generator) -> np.ndarray:
    """Draw labels that stay as they are two times in three."""
    moves = np.where(rng.random((N // LENGTH, LENGTH)) < 2 / 3, 0, rng.integers(1, max(L, 2), (N // LENGTH, LENGTH)))
    return (np.cumsum(moves, axis=1) % L).astype(np.int32)


def dense(N: int, L: int, rng: np.random.Generator) -> tuple[list[np.ndarray], list[np.ndarray]]:
    """Return inputs in two clusters per label."""
    y = labels(N, L, rng)
    centres = rng.normal(size=(L, 2, 10)).astype(np.float32)
    X = centres[y, rng.integers(2, size=y.shape)] + rng.normal(size=(*y.shape, 10)).astype(np.float32)
    return list(X.astype(np.float32)), list(y)


def sparse(N: int, L: int, rng: np.random.Generator) -> tuple[list[sp.csr_array], list[np.ndarray]]:
    """Draw features by Zipf's law, each of which has labels that it prefers."""
    y = labels(N, L, rng)
    places = np.minimum(rng.zipf(1.1, size=(*y.shape, 20)) % 19_999 + 1, 19_999)
    columns = (
        L * places - 1 - np.where(rng.random(places.shape) < 0.5, y[..., None], rng.integers(L, size=places.shape))
    )
    columns.sort(axis=-1)
    X = sp.csr_array(
        (np.ones(columns.size), columns.ravel(), np.arange(0, columns.size + 1, 20)), shape=(N, 20_000 * L)
    )
    X.sum_duplicates()
    return [X[low : low + LENGTH] for low in range(0, N, LENGTH)], list(y)


def point(kernel: str, N: int, n: int, L: int) -> dict[str, float]:
    make = dense if kernel == "rbf" else sparse
    model = ChainCRF(kernel, gamma=0.05, n_components=Landmarks(n, "random"), tol=1e-2, random_state=0, C=1.0)
    model.fit(*make(400, L, np.random.default_rng(1)))
    X, y = make(N, L, np.random.default_rng(0))
    before, start = common.peak_memory(reset=True), time.perf_counter()
    model.fit(X, y)
    return {"seconds": time.perf_counter() - start, "MB": common.peak_memory() - before, "iterations": model.n_iter_}


def measure(options: argparse.Namespace) -> dict[str, Any]:
    results: dict[str, Any] = {"rounds": options.rounds}
    for name, (kernel, variable, values) in SWEEPS.items():
        rows: dict[int, Any] = {}
        for value in [value for value in values if value <= options.largest]:
            setting = {**DEFAULTS, variable: value}
            runs = [common.in_process(point, kernel, *setting.values()) for _ in range(options.rounds)]
            rows[value] = {key: float(np.median([run[key] for run in runs])) for key in runs[0]}
        results[name] = rows
    return results


def exponent(rows: dict[Any, Any], key: str) -> float:
    return common.growth_exponent(rows, [row[key] for row in rows.values()], 0.1)


def figure(results: dict[str, Any]) -> None:
    from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter

    panels = (("N", "tokens N"), ("n", "landmarks n"), ("L", "labels L"))
    with common.picture("growth", 1, 3, figsize=(11, 3.6)) as (_, axes):
        for axis, (variable, title) in zip(axes, panels, strict=True):
            memory = axis.twinx()
            for name, (kernel, swept, _) in SWEEPS.items():
                if swept != variable:
                    continue
                rows, colour = results[name], common.COLOURS[kernel == "linear"]
                x = [float(value) for value in rows]
                label = f"{kernel}, seconds: exponent {exponent(rows, 'seconds'):.2f}"
                axis.loglog(x, [row["seconds"] for row in rows.values()], "o-", color=colour, label=label)
                memory.loglog(x, [max(row["MB"], 1) for row in rows.values()], "s:", color=colour, alpha=0.6)
            axis.set(xlabel=title, ylabel="seconds of fit" if variable == "N" else "")
            if variable != "N":
                axis.set_xticks(x, [f"{value:g}" for value in x])
            for scale in (axis.xaxis, axis.yaxis, memory.yaxis):
                scale.set_minor_formatter(NullFormatter())
            for scale in (axis.yaxis, memory.yaxis):
                scale.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
                scale.set_major_locator(LogLocator(subs=(1.0, 3.0) if variable == "L" else (1.0,)))
            memory.set_ylabel("MB beyond the data (dotted)" if variable == "L" else "")
            axis.legend(frameon=False, fontsize=8, loc="upper left")


def table(results: dict[str, Any]) -> str:
    rows = []
    for name in SWEEPS:
        found = results[name]
        ends = [f"{next(iter(found))} to {list(found)[-1]}", f"{exponent(found, 'seconds'):.2f}"]
        last = found[list(found)[-1]]
        rows.append([name, *ends, f"{exponent(found, 'MB'):.2f}", f"{last['seconds']:.1f}", f"{last['MB']:,.0f}"])
    header = ["", "range", "exponent of seconds", "exponent of MB", "seconds at the end", "MB at the end"]
    return common.markdown(header, rows) + "\n\n![Time and memory of training](figures/growth.png)"


OPTIONS = {"rounds": 1, "largest": TOKENS[-1]}
