"""Marginals of segmentations: time and memory against the length and the longest duration, beside torch-struct.

Four labels, random scores of tokens, steps and durations, and a tail beyond the longest duration D; one thread. Times
of ours are medians; each includes the forward and the backward pass, the marginals of tokens, steps and durations. The
memory is by how much the peak of a fresh process rises.

torch-struct's SemiMarkov (which has no tail) takes a dense array of scores for each start, duration and pair of labels.
Both sides have the same scores and give the same log-partition, of one sequence of T tokens; torch-struct computes its
marginals by differentiating the log-partition, and its dense array is made before the clock starts. It runs if
torch-struct can be imported, and its rows on file are kept otherwise.
"""

from __future__ import annotations

import argparse
from typing import Any

import numpy as np

from kernelcrf.inference.segments import SegmentMessages, SegmentScores
from studies import common

L = 4
LENGTHS, LONGEST = (10_000, 30_000, 100_000), (25, 50, 100, 200)
PEER = ((50, 5), (100, 10), (200, 10))


def draw(T: int, D: int, tail: bool = True) -> SegmentScores:
    rng = np.random.default_rng(0)
    steps = rng.normal(size=(L, L))
    return SegmentScores(
        rng.normal(size=(T, L)), steps, rng.normal(size=(D, L)), tail=rng.normal(size=L) - 2 if tail else None
    )


def marginals(scores: SegmentScores) -> Any:
    return SegmentMessages.of(scores).moments


def memory(T: int, D: int) -> float:
    """Return by how many MB the peak memory of a fresh process rises while it computes marginals."""
    marginals(draw(100, 3))
    scores = draw(T, D)
    before = common.peak_memory(reset=True)
    marginals(scores)
    return common.peak_memory() - before


def beside(T: int, D: int, rounds: int) -> dict[str, float]:
    """Return the seconds of both sides for the same scores, and the difference of their log-partitions."""
    import torch
    from torch_struct import SemiMarkovCRF

    torch.set_num_threads(1)
    scores = draw(T, D, tail=False)
    total, w, durations = scores.arrays[1], scores.steps, scores.durations
    # edge[n, k, to, from]: a segment of k tokens and label `to` starts at n, after a segment of label `from`. At n = 0,
    # one label stands for the beginning of the sequence.
    edge = np.full((T, D + 1, L, L), -1e9)
    for n in range(T):
        for k in range(1, min(D, T - n) + 1):
            own = total[n + k] - total[n] + durations[k - 1]
            edge[n, k] = own[:, None] + (w.T if n else -1e9 * (np.arange(L) > 0))
    potentials = torch.tensor(edge[None]).requires_grad_(True)

    def peer() -> Any:
        found = SemiMarkovCRF(potentials, lengths=torch.tensor([T + 1]))
        return found.marginals, found.partition

    difference = abs(float(peer()[1].detach()) - SegmentMessages.of(scores).log_partition[0])
    return common.side_by_side({"ours": lambda: marginals(scores), "peer": peer}, rounds) | {"difference": difference}


def measure(options: argparse.Namespace) -> dict[str, Any]:
    marginals(draw(100, 3))
    times = {f"{T} {D}": 0.0 for T in LENGTHS for D in LONGEST}
    for key in times:
        T, D = map(int, key.split())
        scores = draw(T, D)
        times[key] = common.side_by_side({"ours": lambda scores=scores: marginals(scores)}, options.rounds)["ours"]
        print(key, times[key], flush=True)
    found: dict[str, Any] = {"times": times, "memory": common.in_process(memory, LENGTHS[-1], LONGEST[-1])}
    try:
        found["peer"] = {f"{T} {D}": beside(T, D, options.rounds) for T, D in PEER}
    except ImportError:
        found["peer"] = (common.load("speed.segments") or {}).get("peer", {})
    return found


def table(results: dict[str, Any]) -> str:
    rows = [[f"{T:,}", *(f"{results['times'][f'{T} {D}']:.2f}" for D in LONGEST)] for T in LENGTHS]
    text = common.markdown(["tokens", *(f"D = {D}, s" for D in LONGEST)], rows)
    text += f"\n\nMarginals of 100,000 tokens with D = 200 take {results['memory']:.0f} MB.\n\n"
    peer = [
        [
            key.replace(" ", ", "),
            f"{1e3 * own['ours']:.2f}",
            f"{1e3 * own['peer']:.1f}",
            f"{own['peer'] / own['ours']:.0f}",
        ]
        for key, own in results["peer"].items()
    ]
    return text + common.markdown(["tokens, D", "ours, ms", "torch-struct, ms", "ratio"], peer)


OPTIONS: dict[str, Any] = {"rounds": 3}
