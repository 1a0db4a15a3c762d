"""Chords by events and by segments, beside a segmental CRF that was made for them.

The ten published folds of Bach's chorales, with the inputs and the symmetry of `accuracy.chorales`: ChainCRF, rbf
kernel, tol=1e-2. All that is chosen is chosen again in each fold, on the same fifth of its training chorales, after
fits to the other four fifths. C and gamma are those that `accuracy.chorales` chose there by events right. The number of
landmarks, 250 or 500, and the rule that chooses labels are the pair with the highest F1 of segments there; of equal
pairs, the first one counts, in the order of the table. A fit to all training chorales of the fold with this pair labels
its test chorales. Beside it stand the three rules with 500 landmarks in every fold.

A segment is a run of events with one chord. The published figures are those of Masada and Bunescu (2017), recomputed
from their output files: 83.60 % of the events and a segment F1 of 77.5. Their figures of single folds are not at hand,
so that the test compares our ten folds with these two constants (t-test of one sample). Seconds are CPU time of the
fits, in one process.
"""

from __future__ import annotations

import argparse
import time
from functools import partial
from typing import Any

import numpy as np
from scipy import stats

from kernelcrf import ChainCRF
from kernelcrf.arrays import Array
from kernelcrf.decoding import ExpectedF1
from studies import common
from studies.accuracy.chorales import HELD_OUT, describe, scores, transposition
from studies.datasets import load_chorales

RULES: dict[str, Any] = {"marginal": "marginal", "viterbi": "viterbi", "runs": ExpectedF1("runs")}
NAMES = {
    "chosen": "chosen in each fold",
    "marginal": "500 landmarks, the likeliest chord of each event",
    "viterbi": "500 landmarks, the likeliest labelling",
    "runs": "500 landmarks, runs",
}
PUBLISHED = {"events": 83.60, "segments": 77.5}
LANDMARKS, MOST = (250, 500), 500


def scored(train: Array, test: Array, n: int, gamma: float, C: float) -> dict[str, Any]:
    """Return the scores of each rule on some chorales, after a fit with n landmarks to others."""
    data = load_chorales()
    X = [describe(x) for x in data.X]
    start = time.process_time()
    crf = ChainCRF(
        "rbf", gamma=gamma, C=C, n_components=n, label_kernel=transposition(np.concatenate(data.y)),
        fit_intercept=False, tol=1e-2, random_state=0,
    ).fit([X[i] for i in train], [data.y[i] for i in train])  # fmt: skip
    seconds = time.process_time() - start
    distribution, y = crf.distribution([X[i] for i in test]), [data.y[i] for i in test]
    found = {name: scores(distribution.decode(rule), y) for name, rule in RULES.items()}
    return found | {"seconds": seconds, "status": crf.certificate_.status}


def fold(k: int, gamma: float, C: float) -> dict[str, Any]:
    """Return the scores of one fold: those of each pair on held-out chorales, and those on its test chorales."""
    data = load_chorales()
    assert data.splits is not None
    train, test = data.splits[k]

    def part(what: str, fitted: Array, asked: Array, n: int) -> dict[str, Any]:
        work = partial(scored, fitted, asked, n, gamma, C)
        return common.kept(f"chords {k} {what} {n} {gamma} {C}", work)

    inner = np.arange(len(train)) % HELD_OUT > 0
    held_out = {n: part("held out", train[inner], train[~inner], n) for n in LANDMARKS}
    n, rule = max(((n, rule) for n in LANDMARKS for rule in RULES), key=lambda pair: f1(held_out[pair[0]][pair[1]]))
    of_most = part("test", train, test, MOST)
    of_chosen = of_most if n == MOST else part("test", train, test, n)
    return {
        "gamma": gamma,
        "C": C,
        "held out": held_out,
        "landmarks": n,
        "rule": rule,
        "chosen": of_chosen[rule],
        **{name: of_most[name] for name in RULES},
        "status": sorted({one["status"] for one in (of_most, of_chosen)}),
        "seconds": of_chosen["seconds"] + sum(one["seconds"] for one in held_out.values()),
    }


def measure(options: argparse.Namespace) -> dict[str, Any]:
    earlier = common.load("accuracy.chorales")
    assert earlier is not None, "run accuracy.chorales first, which chooses C and gamma"
    folds = []
    for k, one in enumerate(earlier["folds"]):
        folds.append(fold(k, one["gamma"], one["C"]))
        print(k, folds[-1]["landmarks"], folds[-1]["rule"], shares(folds[-1:], "chosen"), flush=True)
    return {"folds": folds}


def events(one: dict[str, int]) -> float:
    """Return the share of right events in per cent."""
    return 100 * one["right"] / one["events"]


def f1(one: dict[str, int]) -> float:
    """Return the F1 of segments in per cent."""
    return 200 * one["both"] / (one["found"] + one["true"])


def shares(folds: list[dict[str, Any]], row: str) -> tuple[float, float]:
    """Return the share of right events and the F1 of segments of a row, over all folds together."""
    total = {key: sum(one[row][key] for one in folds) for key in folds[0][row]}
    return events(total), f1(total)


def choice(folds: list[dict[str, Any]]) -> str:
    """Return how often runs and 500 landmarks were chosen, in words."""
    runs, most = (sum(one[key] == value for one in folds) for key, value in (("rule", "runs"), ("landmarks", MOST)))
    return f"{runs} of {len(folds)} folds chose runs, and {most} chose {MOST} landmarks."


def section(results: dict[str, Any]) -> str:
    folds = results["folds"]

    def p_value(row: str, score: Any, constant: float) -> float:
        return float(stats.ttest_1samp([score(one[row]) for one in folds], constant).pvalue)

    def p(row: str, score: Any, constant: float) -> str:
        return f"{p_value(row, score, constant):.3f}"

    lines = [
        [
            name,
            f"{shares(folds, row)[0]:.2f}",
            p(row, events, PUBLISHED["events"]),
            f"{shares(folds, row)[1]:.1f}",
            p(row, f1, PUBLISHED["segments"]),
        ]
        for row, name in NAMES.items()
    ]
    lines.append(["segmental CRF made for chords, published", "83.60", "", "77.5", ""])
    right, of_segments = shares(folds, "chosen")
    tests = [p_value("chosen", events, PUBLISHED["events"]), p_value("chosen", f1, PUBLISHED["segments"])]
    apart = [
        f"{abs(gap):.{digits}f} points {'ahead' if gap > 0 else 'behind'} in {what} (p = {p:.2g})"
        for gap, digits, what, p in (
            (right - PUBLISHED["events"], 2, "events", tests[0]),
            (of_segments - PUBLISHED["segments"], 1, "segments", tests[1]),
        )
    ]
    sure = ("Neither is", "One of the two is", "Both are")[sum(one < 0.05 for one in tests)]
    gain = common.paired_p([f1(one["runs"]) for one in folds], [f1(one["marginal"]) for one in folds])
    return f"""## Chords by events and by segments

A segmental CRF with features that were made for chords is published by Masada and Bunescu (2017). Beside it is a
ChainCRF with the symmetry of the last section, on the same ten folds. *Runs* are `decoding=ExpectedF1("runs")`: the
labels whose runs of equal chords have the highest expected F1. In the first row, each fold chooses landmarks and the
rule for labels on a fifth of its training chorales. The next three rows have the same settings in all folds.

{common.markdown(["labels", "events right, %", "p", "F1 of segments", "p"], lines)}

p compares our {len(folds)} folds with the published means, which are taken as constants, since the figures of
single folds are not at hand.

With what each fold chooses, {right:.2f} % of the events are right, and the F1 of segments is {of_segments:.1f}. Beside
the published model, this is {apart[0]}, and {apart[1]}. {sure} beyond
chance. {choice(folds)}

With 500 landmarks in all folds, runs change the F1 of segments by
{shares(folds, "runs")[1] - shares(folds, "marginal")[1]:+.1f} points beside the likeliest chord of each event (paired
t-test over folds, p = {gain:.2g}). The fits take {sum(one["seconds"] for one in folds):.0f} CPU seconds.

In each fold, choices were made without its test chorales. Other inputs were tried, but none was kept, so the result
does not depend on them. SegmentCRF has no `Symmetry` and is too slow with 90 chords.
"""


OPTIONS: dict[str, Any] = {}
