"""Letters against the number of labelled words: when a kernel CRF is worth it, and when it is not.

Data and models are those of `accuracy.letters`. Test: fold 0 (626 words). Training: 10 to 1,000 words drawn at random
from the other folds (DRAWS draws each, the same for all models). C and gamma are chosen in every draw on a third of its
words, held out, and fits have the landmarks and the tolerance of the small protocol.
"""

from __future__ import annotations

import argparse
import time
from typing import Any

import numpy as np

from studies import common
from studies.accuracy import letters

DRAWS = {10: 5, 30: 5, 100: 5, 300: 5, 1000: 2}
NAMES = {
    "linear, pixels": "linear CRF, pixels",
    "rbf, pixels": "kernel CRF, pixels",
    "rbf, shapes": "kernel CRF, shapes",
    "SVC, pixels": "SVC per letter, pixels",
}


PAIRS = (("rbf, pixels", "linear, pixels"), ("rbf, pixels", "SVC, pixels"), ("rbf, shapes", "rbf, pixels"))


def one(words: letters.Words, name: str, size: int, draw: int) -> dict[str, Any]:
    test, rest = np.flatnonzero(words.folds == 0), np.flatnonzero(words.folds != 0)
    train = np.sort(np.random.default_rng([size, draw]).permutation(rest)[:size])
    start = time.perf_counter()
    found = letters.choose(letters.MODELS[name], words, train)
    predicted = letters.MODELS[name].predict(words, train, test, "small", **found["choice"])
    return {**found, "error": letters.error(predicted, words, test), "seconds": time.perf_counter() - start}


def measure(options: argparse.Namespace) -> dict[str, Any]:
    words = letters.read()
    found: dict[str, Any] = {}
    for name in NAMES:
        found[name] = {
            str(size): [
                common.kept(
                    f"label_efficiency {name}, {size}, {draw}", lambda n=name, s=size, d=draw: one(words, n, s, d)
                )
                for draw in range(DRAWS[size])
            ]
            for size in DRAWS
            if size <= options.most
        }
    return {"errors": found}


def curve(results: dict[str, Any], name: str) -> tuple[list[int], list[float], list[float]]:
    """Return numbers of words, mean errors in percent, and their standard errors over draws."""
    found = results["errors"][name]
    pairs = [common.mean_and_error([100 * row["error"] for row in rows]) for rows in found.values()]
    return [int(size) for size in found], [mean for mean, _ in pairs], [spread for _, spread in pairs]


def section(results: dict[str, Any]) -> str:
    errors = results["errors"]
    sizes = [int(size) for size in errors[next(iter(NAMES))]]
    draws = [len(rows) for rows in errors[next(iter(NAMES))].values()]

    def cells(name: str) -> list[str]:
        _, means, spreads = curve(results, name)
        return [f"{mean:.1f} +- {spread:.1f}" for mean, spread in zip(means, spreads, strict=True)]

    table = common.markdown(
        ("error of letters, %, by training words", *(f"{size:,}" for size in sizes)),
        [(title, *cells(name)) for name, title in NAMES.items()],
    )
    gains = common.markdown(
        ("by training words", *(f"{size:,}" for size in sizes)),
        [(f"{NAMES[a]} against {NAMES[b]}", *lead(errors[a], errors[b])) for a, b in PAIRS],
    )
    return f"""## Letters: how many labelled words

The letters' fold 0 as test; mean and standard error over {min(draws)} to {max(draws)} draws of the
training words.

{table}

![Error of letters against training words](figures/label_efficiency_letters.png)

Reduction of the error by the first model against the second, in points, with p of paired t-tests over five draws:

{gains}

In practice: up to thirty labelled words an SVC per letter does as well as a chain with the same kernel. From a hundred
on the chain pulls ahead of it, to about two thirds of its error with a thousand. The kernel is ahead of the linear
chain from thirty words on, by a factor that grows with the labels, and a better input helps at every size.
"""


def lead(ours: dict[str, Any], theirs: dict[str, Any]) -> list[str]:
    """Return the reduction of the error by number of words."""
    cells = []
    for size in ours:
        a, b = ([100 * row["error"] for row in rows[size]] for rows in (ours, theirs))
        p = f" (p {common.paired_p(a, b):.1g})" if len(a) >= 5 else ""
        cells.append(f"{np.mean(b) - np.mean(a):+.1f}{p}")
    return cells


def figure(results: dict[str, Any]) -> None:
    styles = (
        (common.COLOURS[1], "s-"),
        (common.COLOURS[5], "o-"),
        (common.COLOURS[0], "o-"),
        (common.COLOURS[4], "^--"),
    )
    with common.picture("label_efficiency_letters", figsize=(7.5, 4.6)) as (_, axis):
        for (name, title), (colour, style) in zip(NAMES.items(), styles, strict=True):
            sizes, means, spreads = curve(results, name)
            errors = np.nan_to_num(spreads)
            axis.errorbar(sizes, means, errors, fmt=style, color=colour, label=title, markersize=5, lw=1.4)
        axis.set(xscale="log", yscale="log", xlabel="labelled words for training (7.6 letters each)")
        axis.set_ylabel("wrong letters, %")
        axis.set_xticks(sizes, [f"{size:,}" for size in sizes])
        axis.set_yticks([3, 10, 20, 30, 60], ["3", "10", "20", "30", "60"])
        axis.minorticks_off()
        axis.grid(alpha=0.3)
        axis.legend(fontsize=8, loc="lower left")


OPTIONS = {"most": max(DRAWS)}
