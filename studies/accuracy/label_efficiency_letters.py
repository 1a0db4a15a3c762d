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

ENOUGH = 5  # draws for a p-value
DRAWS = {10: 5, 30: 5, 100: 5, 300: 5, 1000: 2}
NAMES = {
    "linear, pixels": "linear CRF, pixels",
    "rbf, pixels": "kernel CRF, pixels",
    "rbf, shapes": "kernel CRF, shapes",
    "SVC, pixels": "SVC per letter, pixels",
}
PHRASES = {
    "linear, pixels": "a linear CRF on pixels",
    "rbf, pixels": "a kernel CRF on pixels",
    "rbf, shapes": "a kernel CRF on shapes",
    "SVC, pixels": "an SVC per letter",
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
        [*((title, *cells(name)) for name, title in NAMES.items()), ("number of draws", *map(str, draws))],
    )
    gains = common.markdown(
        ("by training words", *(f"{size:,}" for size in sizes)),
        [(f"{NAMES[a]} against {NAMES[b]}", *lead(errors[a], errors[b])) for a, b in PAIRS],
    )
    fewer = (common.of_all(n, max(draws), f"draws of {size:,} words") for size, n in zip(sizes, draws, strict=True))
    return f"""## Letters: how many labelled words

Training words are drawn at random from nine folds, and the tenth is the test set. Cells have the mean and the standard
error over draws.{"".join(fewer)} Kernel CRFs and the SVC have an rbf kernel; inputs are pixels, or shapes as in the
first section.

{table}

![Error of letters against training words](figures/label_efficiency_letters.png)

The next table says by how many points the first model has a lower error than the second, with p of a paired t-test over
draws. Columns with fewer than {ENOUGH} draws have no p.

{gains}

In short:

{chr(10).join(in_words(a, b, errors) for a, b in PAIRS)}
"""


def in_words(ours: str, theirs: str, errors: dict[str, Any]) -> str:
    """Return sentences on the numbers of words at which either model is ahead beyond chance."""
    found: dict[str, list[str]] = {"fewer": [], "more": [], "as many": []}
    ratios = []
    for size, rows in errors[ours].items():
        a, b = [row["error"] for row in rows], [row["error"] for row in errors[theirs][size]]
        ratios.append(float(np.mean(a) / np.mean(b)))
        if len(a) >= ENOUGH:
            sure = common.paired_p(a, b) < 0.05
            found["as many" if not sure else "fewer" if ratios[-1] < 1 else "more"].append(f"{int(size):,}")
    one, other = PHRASES[ours], PHRASES[theirs]
    parts = [
        f"{one} has {what} errors than {other} with {listed(sizes)} words (p < 0.05)"
        for what, sizes in found.items()
        if sizes and what != "as many"
    ]
    if same := listed(found["as many"]):
        between = "the difference" if parts else f"the difference between {one} and {other}"
        parts.append(f"with {same} words, {between} is within chance")
    text = ". ".join(part[0].upper() + part[1:] for part in parts)
    return f"- {text}. With {int(max(errors[ours], key=int)):,} words, the ratio of the errors is {ratios[-1]:.2f}."


def listed(words: list[str]) -> str:
    """Return words as a list in a sentence."""
    return " or ".join([", ".join(words[:-1]), words[-1]] if len(words) > 1 else words)


def lead(ours: dict[str, Any], theirs: dict[str, Any]) -> list[str]:
    """Return the reduction of the error by number of words."""
    cells = []
    for size in ours:
        a, b = ([100 * row["error"] for row in rows[size]] for rows in (ours, theirs))
        p = f" (p {common.paired_p(a, b):.1g})" if len(a) >= ENOUGH else ""
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
