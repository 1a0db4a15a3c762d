"""Fit constants to the results of `speed.cluster`, and predict the cost of passes for more tokens and workers."""

from __future__ import annotations

import re
from dataclasses import dataclass
from math import ceil, log
from typing import Any

import numpy as np

from studies import common
from studies.speed import cluster

PAGE = common.ROOT / "docs" / "scaling.md"
TOKENS, WORKERS = (1e9, 1e11), (100, 1000)
PASSES = 60
SPARSE = {"weights": 2**18 * 8, "bytes per token": 24 * 6 + 3 * 8 * 8}
DENSE = {"weights": 1000 * 8, "bytes per token": 8 * (1000 + 100) + 3 * 8 * 8}


@dataclass(frozen=True)
class Constants:
    """Hold seconds: of a token in a pass on one worker, of a part, of a byte on its way, of a weight in the driver."""

    sparse_token: float
    dense_token: float
    part: float
    byte: float
    weight: float


def constants(results: dict[str, Any]) -> Constants:
    cost, tokens = results["cost"], results["tokens"]
    counts = np.array([float(name) for name in cost["overhead"]])
    seconds = np.array(list(cost["overhead"].values()))
    # Through the origin of many parts: the fixed cost of a pass is small beside it, and is in `byte` for few.
    part = float(np.polyfit(counts, seconds, 1)[0])
    payload = cost["payload"]
    steps = hops(2, payload["parts"])
    byte = max(payload["seconds"] - payload["seconds of none"], 0.0) / (8 * payload["weights"] * steps)
    n_dense = 8 * cluster.ROWS
    dense = 2 * max(cost["seconds"]["two workers, 8 parts"] - part * 8, 0.0) / n_dense
    a_pass = tokens["seconds"]["trained"] / tokens["passes"]
    weight = cost["driver"]["seconds"] / cost["driver"]["weights"]
    moved = byte * 8 * SPARSE["weights"] * hops(2, 2) + weight * SPARSE["weights"]
    sparse = 2 * max(a_pass - moved - part * 2, 0.0) / tokens["tokens"]
    scale = 1000 / cluster.N_FEATURES * 8 / cluster.N_LABELS
    return Constants(sparse, dense * scale, part, byte, weight)


def hops(workers: int, parts: int) -> int:
    """Count the steps of weights in sequence: out, among workers by doubling, up the tree, back."""
    return 2 + ceil(log(workers, 2)) + 8 * max(ceil(log(parts, 8)), 1)


def predicted(c: Constants, kind: str, tokens: float, workers: int) -> dict[str, float]:
    """Return the seconds of a pass by cause, the hours of PASSES passes, and the memory of a worker in GB."""
    what, a = (SPARSE, c.sparse_token) if kind == "sparse" else (DENSE, c.dense_token)
    parts = workers
    seconds = {
        "tokens": a * tokens / workers,
        "parts": c.part * parts,
        "payload": c.byte * 8 * what["weights"] * hops(workers, parts),
        "driver": c.weight * what["weights"],
    }
    return seconds | {
        "hours": PASSES * sum(seconds.values()) / 3600,
        "memory": what["bytes per token"] * tokens / workers / 1e9,
    }


def table(results: dict[str, Any]) -> str:
    c = constants(results)
    known = common.markdown(
        ["constant", "value"],
        [
            ["a, hashed linear features (6 names, 2^18 columns, 8 labels)", f"{1e6 * c.sparse_token:.2f} µs per token"],
            ["a, 1,000 landmarks, 8 labels (scaled from 512 and 10)", f"{1e6 * c.dense_token:.2f} µs per token"],
            ["b", f"{1e3 * c.part:.2f} ms per part"],
            ["s", f"{1e9 * c.byte:.2f} ns per byte and hop"],
            ["h", f"{1e9 * c.weight:.0f} ns per weight"],
        ],
    )
    rows = []
    for kind, name in (("sparse", "hashed linear"), ("dense", "1,000 landmarks")):
        for tokens in TOKENS:
            for workers in WORKERS:
                p = predicted(c, kind, tokens, workers)
                rows.append(
                    [f"{name}, 10^{round(log(tokens, 10))} tokens, {workers:,} workers"]
                    + [f"{p[key]:.2g} s" for key in ("tokens", "parts", "payload", "driver")]
                    + [f"{p['hours']:.2g} h", f"{p['memory']:.3g} GB"]
                )
    header = ["", "tokens", "parts", "payload", "driver", f"{PASSES} passes", "memory of a worker"]
    return f"{known}\n\n{common.markdown(header, rows)}"


def write_page() -> None:
    """Write the measured figures and the model to docs/scaling.md, between their marks."""
    results = common.load("speed.cluster")
    assert results is not None
    facts = ", ".join(f"{package} {value}" for package, value in results["environment"].items())
    text = PAGE.read_text(encoding="utf-8")
    for mark, part in {"measured": f"{cluster.table(results)}\n\n*{facts}*", "model": table(results)}.items():
        pattern = rf"(<!-- {mark} -->\n).*?(<!-- end of {mark} -->)"
        text = re.sub(pattern, lambda found, part=part: f"{found[1]}\n{part}\n\n{found[2]}", text, flags=re.S)
    PAGE.write_text(text, encoding="utf-8")
