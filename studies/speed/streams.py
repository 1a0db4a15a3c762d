"""Streams of a million tokens, beside predict_proba of the whole.

A linear ChainCRF with ten columns and four labels, and a linear SegmentCRF with durations up to 20, label a million
tokens that were drawn at random. *Whole* is predict_proba of all tokens in one call. A stream takes them in blocks of
1,000; in the columns *one by one*, it takes some tokens singly; `lag` and `max_delay` are as the row says. Times are
CPU time per token in one process, and medians of rounds in turn. A push hands a token or a block to the stream. *First*
and *last* are median times over the first and the last tenth of the pushes: a ratio near 1 says that a long stream does
not slow down. The state is what `state()` returns after all tokens.
"""

from __future__ import annotations

import argparse
import time
from typing import Any

import numpy as np

from kernelcrf import ChainCRF, SegmentCRF
from studies import common

OPTIONS = {"tokens": 1_000_000, "pushed": 20_000, "rounds": 2}
BLOCK, COLUMNS, LABELS = 1000, 10, 4
CASES = {
    "ChainCRF, lag 0": ("chain", 0, None),
    "ChainCRF, lag 10": ("chain", 10, None),
    "ChainCRF, lag 10, max_delay 100": ("chain", 10, 100),
    "SegmentCRF, lag 0": ("segments", 0, None),
    "SegmentCRF, lag 10": ("segments", 10, None),
}


def draw(n: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Return tokens and their labels, which last for a while."""
    rng = np.random.default_rng(seed)
    labels = np.repeat(rng.integers(LABELS, size=n // 5 + 1), rng.integers(2, 12, n // 5 + 1))[:n]
    return np.eye(COLUMNS)[labels] + rng.normal(size=(n, COLUMNS)), labels


def fit(kind: str) -> Any:
    """Return a fitted model."""
    x, labels = draw(4000, 0)
    X, y = np.split(x, 40), np.split(labels, 40)
    if kind == "chain":
        return ChainCRF("linear", C=1.0, random_state=0).fit(X, y)
    return SegmentCRF("linear", C=1.0, max_duration=20, tol=1e-2, random_state=0).fit(X, y)


def push(live: Any, x: np.ndarray, size: int) -> np.ndarray:
    """Push the tokens in blocks of a size, and return the CPU seconds per token of each block."""
    took = []
    for low in range(0, len(x), size):
        start = time.process_time()
        live.push(x[low]) if size == 1 else live.extend(x[low : low + size])
        took.append((time.process_time() - start) / size)
    return np.array(took)


def answer_times(crf: Any, case: tuple[str, int, int | None], x: np.ndarray, pushed: int) -> dict[str, float]:
    """Return CPU seconds per token: of blocks, at first and at last, of single tokens, and of predict_proba."""
    _, lag, delay = case
    live = crf.stream(lag=lag, max_delay=delay)
    blocks, tenth = push(live, x, BLOCK), max(1, len(x) // BLOCK // 10)
    state = sum(array.nbytes for array in live.state().values())
    alone = push(crf.stream(lag=lag, max_delay=delay), x[:pushed], 1)
    start = time.process_time()
    crf.predict_proba([x])
    whole = (time.process_time() - start) / len(x)
    some = len(alone) // 10
    return {
        "block": float(blocks.mean()), "first": float(np.median(blocks[:tenth])),
        "last": float(np.median(blocks[-tenth:])),
        "push": float(np.median(alone)), "first push": float(np.median(alone[:some])),
        "last push": float(np.median(alone[-some:])), "whole": whole, "state": state,
    }  # fmt: skip


def memory(kind: str, lag: int, n: int, stream: bool) -> float:
    """Return the megabytes by which the peak memory of this process grows."""
    crf = fit(kind)
    x, _ = draw(BLOCK, 1)
    crf.predict_proba([x])
    live = crf.stream(lag=lag, max_delay=100)
    live.extend(x)
    before = common.peak_memory(reset=True)
    if stream:
        for _ in range(n // BLOCK):
            live.extend(x)
    else:
        crf.predict_proba([np.tile(x, (n // BLOCK, 1))])
    return common.peak_memory() - before


def measure(options: argparse.Namespace) -> dict[str, Any]:
    x, _ = draw(options.tokens, 1)
    models = {kind: fit(kind) for kind in ("chain", "segments")}
    for name, case in CASES.items():
        answer_times(models[case[0]], case, x[: 2 * BLOCK], BLOCK)
        print(name, flush=True)
    rounds = [
        {name: answer_times(models[case[0]], case, x, options.pushed) for name, case in CASES.items()}
        for _ in range(options.rounds)
    ]
    found = {
        name: {key: float(np.median([one[name][key] for one in rounds])) for key in rounds[0][name]} for name in CASES
    }
    grown = {
        kind: {
            side: common.in_process(memory, kind, 10, options.tokens, side == "stream") for side in ("stream", "whole")
        }
        for kind in models
    }
    return {"tokens": options.tokens, "rounds": options.rounds, "cases": found, "memory": grown}


def table(results: dict[str, Any]) -> str:
    rows = []
    for name, one in results["cases"].items():
        rows.append(
            [
                name, f"{1e6 * one['whole']:.2f}", f"{1e6 * one['block']:.2f}", f"{one['block'] / one['whole']:.1f}",
                f"{one['last'] / one['first']:.2f}", f"{1e6 * one['push']:.0f}",
                f"{one['last push'] / one['first push']:.2f}", f"{one['state'] / 1e3:.1f} kB",
            ]
        )  # fmt: skip
    header = [
        "µs per token", "whole", "blocks", "blocks / whole", "last / first block", "one by one", "last / first push",
        "state",
    ]  # fmt: skip
    grown = ", and ".join(
        f"{one['stream']:.1f} MB and {one['whole']:,.0f} MB for {'ChainCRF' if kind == 'chain' else 'SegmentCRF'}"
        for kind, one in results["memory"].items()
    )
    return common.markdown(header, rows) + (
        f"\n\nThe memory that {results['tokens']:,} tokens add to the peak of a fresh process, by a stream and by "
        f"predict_proba of the whole, is {grown}."
    )
