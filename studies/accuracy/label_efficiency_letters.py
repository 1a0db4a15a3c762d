"""Letters against the number of labelled words: when a kernel CRF is worth it, and when it is not.

Data and models are those of `accuracy.letters`. Test: fold 0 (626 words). Training: 10 to 1,000 words drawn at random
from the other folds (DRAWS draws each, the same for all models). C and gamma are chosen in every draw on a third of its
words, held out, and fits have the landmarks and the tolerance of the small protocol. All 6,251 words: the error of the
first split of the large protocol that `accuracy.letters` has on file, for models that it measures there. To save time,
3,000 words were dropped, and the fits to all words are not made again; the other columns have all their draws.
"""

from __future__ import annotations

import argparse
import time
from typing import Any

import numpy as np

from studies import common
from studies.accuracy import letters

DRAWS = {10: 5, 30: 5, 100: 5, 300: 5, 1000: 2}
ALL = 6251
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


def rows_by_size(results: dict[str, Any], name: str) -> dict[int, list[dict[str, Any]]]:
    """Return the rows of a model by the number of words, with the fit to all words that `accuracy.letters` made."""
    large = (common.load("accuracy.letters") or {}).get("large", {}).get(name, [])
    found = {int(size): rows for size, rows in results["errors"][name].items()}
    return found | ({ALL: large[:1]} if large else {})


def curve(results: dict[str, Any], name: str) -> tuple[list[int], list[float], list[float]]:
    """Return numbers of words, mean errors in percent, and their standard errors over draws."""
    found = rows_by_size(results, name)
    pairs = [common.mean_and_error([100 * row["error"] for row in rows]) for rows in found.values()]
    return list(found), [mean for mean, _ in pairs], [spread for _, spread in pairs]


def section(results: dict[str, Any]) -> str:
    sizes = sorted({size for name in NAMES for size in rows_by_size(results, name)})
    draws = [len(rows) for rows in results["errors"][next(iter(NAMES))].values()]

    def cells(name: str) -> list[str]:
        known, means, spreads = curve(results, name)
        at = {n: f"{m:.1f}" + (f" +- {s:.1f}" if s == s else "") for n, m, s in zip(known, means, spreads, strict=True)}
        return [at.get(size, "") for size in sizes]

    table = common.markdown(
        ("error of letters, %, by training words", *(f"{size:,}" for size in sizes)),
        [(title, *cells(name)) for name, title in NAMES.items()],
    )
    gains = common.markdown(
        ("by training words", *(f"{size:,}" for size in sizes)),
        [(f"{NAMES[a]} against {NAMES[b]}", *lead(results, a, b, sizes)) for a, b in PAIRS],
    )
    return f"""## Letters: how many labelled words

The letters' fold 0 as test; mean and standard error over {min(draws)} to {max(draws)} draws of the
training words; the last column is one fit.

{table}

![Error of letters against training words](figures/label_efficiency_letters.png)

Reduction of the error by the first model against the second, in points, with p of paired t-tests over five draws:

{gains}

In practice: up to thirty labelled words an SVC per letter does as well as a chain with the same kernel. From a hundred
on the chain pulls ahead of it, to little more than half its error with all words. The kernel is ahead of the linear
chain from thirty words on, by a factor that grows with the labels, and a better input helps at every size.
"""


def lead(results: dict[str, Any], ours: str, theirs: str, sizes: list[int]) -> list[str]:
    """Return the reduction of the error by number of words, on the draws that both have."""
    cells = []
    for size in sizes:
        sides = [[100 * row["error"] for row in rows_by_size(results, name).get(size, [])] for name in (ours, theirs)]
        n = min(map(len, sides))
        p = f" (p {common.paired_p(sides[0][:n], sides[1][:n]):.1g})" if n >= 5 else ""
        cells.append(f"{np.mean(sides[1][:n]) - np.mean(sides[0][:n]):+.1f}{p}" if n else "")
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
