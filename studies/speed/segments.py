"""Marginals of segmentations: time and memory against the length and the longest duration.

There are four labels, and random scores of tokens, steps and durations. Each token by which a segment is longer than D
adds the same score. Everything uses one thread. Times are medians. They include the forward and the backward pass, and
the marginals of tokens, steps and durations. Memory is the rise of the peak of a fresh process.
"""

from __future__ import annotations

import argparse
from typing import Any

import numpy as np

from kernelcrf.inference.segments import SegmentMessages, SegmentScores
from studies import common

L = 4
LENGTHS, LONGEST = (10_000, 30_000, 100_000), (25, 50, 100, 200)


def draw(T: int, D: int) -> SegmentScores:
    rng = np.random.default_rng(0)
    steps = rng.normal(size=(L, L))
    return SegmentScores(rng.normal(size=(T, L)), steps, rng.normal(size=(D, L)), tail=rng.normal(size=L) - 2)


def marginals(scores: SegmentScores) -> Any:
    return SegmentMessages.of(scores).moments


def memory(T: int, D: int) -> float:
    """Return by how many MB the peak memory of a fresh process rises while it computes marginals."""
    marginals(draw(100, 3))
    scores = draw(T, D)
    before = common.peak_memory(reset=True)
    marginals(scores)
    return common.peak_memory() - before


def measure(options: argparse.Namespace) -> dict[str, Any]:
    marginals(draw(100, 3))
    times = {f"{T} {D}": 0.0 for T in LENGTHS for D in LONGEST}
    for key in times:
        T, D = map(int, key.split())
        scores = draw(T, D)
        times[key] = common.side_by_side({"ours": lambda scores=scores: marginals(scores)}, options.rounds)["ours"]
        print(key, times[key], flush=True)
    return {"times": times, "memory": common.in_process(memory, LENGTHS[-1], LONGEST[-1])}


def table(results: dict[str, Any]) -> str:
    rows = [[f"{T:,}", *(f"{results['times'][f'{T} {D}']:.2f}" for D in LONGEST)] for T in LENGTHS]
    text = common.markdown(["tokens", *(f"D = {D}, s" for D in LONGEST)], rows)
    return f"{text}\n\nMarginals of 100,000 tokens with D = 200 take {results['memory']:.0f} MB."


OPTIONS: dict[str, Any] = {"rounds": 3}
