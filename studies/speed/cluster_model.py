"""Fit constants to the results of `speed.cluster`, and predict the cost of passes for more tokens and workers."""

from __future__ import annotations

import re
from dataclasses import dataclass
from itertools import pairwise, product
from math import ceil, log
from typing import Any

import numpy as np

from kernelcrf.distributed.bundles import subtrees
from kernelcrf.distributed.dask import MOST_MEMORY, PARTS_PER_MEMORY
from studies import common
from studies.speed import cluster, stored_features

PAGE = common.ROOT / "docs" / "scaling.md"
CORES, MEMORY = 32, 256  # of a machine, in GB
SIZES = ((1e9, 8), (1e9, 256), (1e11, 64), (1e11, 256))  # tokens and machines
PASSES = 60
SCORES = 3 * 8 * 8  # bytes of a token with eight labels
HASHED = {"weights": 2**18 * 8, "bytes of inputs": 24 * 6}
COLUMNS = 100
DENSE = {"weights": 1000 * 8, "bytes of inputs": 8 * (1000 + COLUMNS)}
RECOMPUTED = {"weights": 1000 * 8, "bytes of inputs": 8 * COLUMNS}


@dataclass(frozen=True)
class Constants:
    """Hold seconds: of a token in a pass on one thread, of a part, of a byte on its way, of a weight in the driver.

    Tokens have features by hashed names, sparse features with weights for observed pairs, or landmarks, whose features
    are stored or recomputed.

    bundle, growth : b bundles cost the scheduler `bundle` times b to the power of `growth`.
    threads : how many times as fast as one thread two threads are.
    """

    hashed_token: float
    observed_token: float
    dense_token: float
    recomputed_token: float
    bundle: float
    growth: float
    part: float
    byte: float
    weight: float
    threads: float


def constants(results: dict[str, Any]) -> Constants:
    cost, tokens = results["cost"], results["tokens"]
    bundles = {int(n): one["scheduler"] for n, one in results["parts"]["bundles"].items()}
    growth, bundle = np.polyfit(np.log(list(bundles)[-3:]), np.log(list(bundles.values())[-3:]), 1)
    idle = {int(n): one["wall"] for n, one in results["parts"]["passes"]["now"].items()}
    most = max(idle)
    part = 2 * (idle[most] - idle[min(idle)]) / most
    payload = cost["payload"]
    steps = hops(2, payload["parts"])
    byte = max(payload["seconds"] - payload["seconds of none"], 0.0) / (8 * payload["weights"] * steps)
    n_dense = 8 * cluster.ROWS
    dense = 2 * cost["seconds"]["two workers, 8 parts"] / n_dense
    a_pass = tokens["seconds"]["trained"] / tokens["passes"]
    weight = cost["driver"]["seconds"] / cost["driver"]["weights"]
    moved = byte * 8 * HASHED["weights"] * hops(2, 2) + weight * HASHED["weights"]
    hashed = 2 * max(a_pass - moved, 0.0) / tokens["tokens"]
    few, many = observed(results)
    slope = 2 * (many["seconds"] - few["seconds"]) / (many["tokens"] - few["tokens"])
    scale = 1000 / cluster.N_FEATURES * 8 / cluster.N_LABELS
    threads = results["threads"]["1"] / results["threads"]["2"]
    recomputed = dense * scale * times_stored(COLUMNS)
    return Constants(
        hashed, slope, dense * scale, recomputed, float(np.exp(bundle)), float(growth), part, byte, weight, threads
    )


def times_stored(columns: int) -> float:
    """Return how many times as long as with stored features a pass with recomputed ones takes, for 1,000 landmarks.

    The time grows linearly with the number of columns; `speed.stored_features` measures it for two numbers of columns.
    """
    measured = common.load("speed.stored_features")
    assert measured is not None
    sides = ["1,000 landmarks", "1,000 landmarks, 300 columns"]
    widths, ratios = [], []
    for name in sides:
        stored, recomputed = measured["passes"][name]
        widths.append(stored_features.PASSES[name][1])
        ratios.append(recomputed / stored)
    return float(np.interp(columns, widths, ratios))


def observed(results: dict[str, Any]) -> list[dict[str, Any]]:
    """Return the passes of two workers over few and over many tokens."""
    return [one for name, one in results["sizes"].items() if name.endswith("two workers")]


def hops(workers: int, parts: int) -> float:
    """Count the steps of weights in sequence: out, among workers by doubling, sums of eight workers at a time, back."""
    cuts = [-(-k * parts // workers) for k in range(workers + 1)]
    sums = np.mean([len(subtrees(parts, range(low, high))) for low, high in pairwise(cuts)])
    return 2 + ceil(log(workers, 2)) + 8 * float(sums) * max(ceil(log(workers, 8)), 1)


def predicted(c: Constants, a: float, what: dict[str, int], tokens: float, machines: int) -> dict[str, float]:
    """Return the seconds of a pass by cause, the hours of PASSES passes, and the memory of a machine in GB."""
    threads, memory = CORES * machines, MEMORY / CORES * 1e9
    parts = max(threads, ceil(PARTS_PER_MEMORY * what["bytes of inputs"] * tokens / memory))
    seconds = {
        "tokens": a * tokens / (threads * c.threads / 2),
        "parts": c.part * parts / threads,
        "scheduler": c.bundle * machines**c.growth,
        "payload": c.byte * 8 * what["weights"] * hops(machines, parts),
        "driver": c.weight * what["weights"],
    }
    return seconds | {
        "hours": PASSES * sum(seconds.values()) / 3600,
        "memory": (what["bytes of inputs"] + SCORES) * tokens / machines / 1e9,
    }


def table(results: dict[str, Any]) -> str:
    c = constants(results)
    sparse = HASHED | {"weights": observed(results)[-1]["weights"]}
    kinds = {
        "observed pairs": (c.observed_token, sparse),
        "hashed linear": (c.hashed_token, HASHED),
        "1,000 landmarks, stored": (c.dense_token, DENSE),
        "1,000 landmarks, recomputed": (c.recomputed_token, RECOMPUTED),
    }
    known = common.markdown(
        ["constant", "value"],
        [
            ["a, sparse linear features, observed pairs (6 names)", f"{1e6 * c.observed_token:.2f} µs per token"],
            ["a, hashed linear features (6 names, 2^18 columns, 8 labels)", f"{1e6 * c.hashed_token:.2f} µs per token"],
            ["a, 1,000 landmarks, 8 labels (scaled from 512 and 10)", f"{1e6 * c.dense_token:.2f} µs per token"],
            [
                f"a, 1,000 landmarks, features recomputed from {COLUMNS} columns",
                f"{1e6 * c.recomputed_token:.1f} µs per token",
            ],
            ["b", f"{1e3 * c.bundle:.2f} ms x (bundles to the power of {c.growth:.2f})"],
            ["c", f"{1e3 * c.part:.2f} ms per part and thread"],
            ["s", f"{1e9 * c.byte:.2f} ns per byte and hop"],
            ["h", f"{1e9 * c.weight:.0f} ns per weight"],
            ["two threads", f"{c.threads:.2f} times as fast as one thread"],
        ],
    )
    rows = []
    for (name, (a, what)), (tokens, machines) in product(kinds.items(), SIZES):
        p, most = predicted(c, a, what, tokens, machines), MEMORY * (MOST_MEMORY if what is DENSE else 1)
        rows.append(
            [f"{name}, 10^{round(log(tokens, 10))} tokens, {machines} x {CORES} cores"]
            + [f"{rounded(p[key])} s" for key in ("tokens", "parts", "scheduler", "payload", "driver")]
            + [f"{rounded(p['hours'])} h", f"{p['memory']:,.0f} GB" + (": too much" if p["memory"] > most else "")]
        )
    header = ["", "tokens", "parts", "scheduler", "payload", "driver", f"{PASSES} passes", "memory of a machine"]
    return f"{known}\n\n{common.markdown(header, rows)}"


def rounded(value: float) -> str:
    return f"{value:.2g}" if value < 100 else f"{value:,.0f}"


def write_page() -> None:
    """Write the measured figures and the model to docs/scaling.md, between their marks."""
    results = common.load("speed.cluster")
    assert results is not None
    facts = ", ".join(f"{package} {value}" for package, value in results["environment"].items())
    commits: dict[str, list[str]] = {}
    for part in (name for name in cluster.PARTS if name in results):
        commits.setdefault(results.get("commits", {}).get(part, results["commit"]), []).append(part)
    measured = "; ".join(f"{', '.join(parts)}: commit {commit}" for commit, parts in commits.items())
    facts = f"`python -m studies speed.cluster`: {measured}; {facts}"
    text = PAGE.read_text(encoding="utf-8")
    for mark, part in {"measured": f"{cluster.table(results)}\n\n*{facts}*", "model": table(results)}.items():
        pattern = rf"(<!-- {mark} -->\n).*?(<!-- end of {mark} -->)"
        text = re.sub(pattern, lambda found, part=part: f"{found[1]}\n{part}\n\n{found[2]}", text, flags=re.S)
    PAGE.write_text(text, encoding="utf-8")
