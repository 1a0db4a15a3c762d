"""Certified labels: which predictions are provably those of the exact optimum, as the tolerance of the fit falls.

Letters, one fold to train and nine to test, pixels, rbf kernel with gamma = 0.03, 500 landmarks, C = 10. Fits with
`solver="newton-cg"` end at relative certified gaps from 1e-2 to 1e-8. `certify` is asked for the labels of the test
words, and each certified label is compared with the label of a fit to a gap of 1e-11, whose own labels are the same at
1e-10. `score_bounds` bounds the log-loss per letter and the accuracy of the optimum.

The second table asks whether bounds can end a search for C early: fits for C = 1, 3, 10 and 30 to 1e-2 to 1e-6, and the
bounds of the log-loss per letter. A search may drop a C if its bounds are above those of another.

Times are medians of five calls in turn, on one thread, for these letters and for a linear model of chunks (CoNLL-2000,
usual templates, C = 1, gap 1e-3) on CSR matrices.
"""

from __future__ import annotations

import argparse
import time
from typing import Any

import numpy as np

from kernelcrf import ChainCRF
from studies import common
from studies.accuracy.tagging_tasks import TASKS, TEMPLATES, parts_of
from studies.accuracy.text_features import WindowFeatures
from studies.datasets import load_letters

TOLS = tuple(10.0**-k for k in range(2, 9))
SEARCH_TOLS, SEARCH_CS = (1e-2, 1e-4, 1e-6), (1.0, 3.0, 10.0, 30.0)
EXACT = 1e-11


def fit(X: Any, y: Any, C: float, tol: float) -> tuple[ChainCRF, float]:
    settings: dict[str, Any] = {"gamma": 0.03, "n_components": 500, "solver": "newton-cg", "random_state": 0}
    # Certified labels are those of the likeliest labelling, which is not the default for arrays.
    crf = ChainCRF("rbf", C=C, tol=tol, max_iter=200, decoding="viterbi", **settings)
    start = time.process_time()
    crf.fit(X, y)
    return crf, time.process_time() - start


def letters() -> tuple[Any, Any]:
    data = load_letters("small")
    return tuple(data.take(part) for part in data.splits[0])


def chunking_times(rounds: int) -> dict[str, float]:
    part, _, _, test = parts_of(TASKS["chunking"], vectors=False)
    window = WindowFeatures(TEMPLATES["usual"])
    X, Z = window.fit_transform(part.columns), window.transform(test.columns)
    crf = ChainCRF("linear", C=1.0, tol=1e-3).fit(X, np.concatenate(part.y), lengths=part.lengths)
    sides = {
        "predict": lambda: crf.predict(Z, test.lengths),
        "certify": lambda: crf.distribution(Z, test.lengths).certify(),
    }
    return common.side_by_side(sides, rounds)


def measure(options: argparse.Namespace) -> dict[str, Any]:
    train, test = letters()
    exact, seconds = fit(train.X, train.y, 10.0, EXACT)
    truth = exact.predict(test.X)
    again = fit(train.X, train.y, 10.0, 10 * EXACT)[0].predict(test.X)
    rows, n_tokens = {}, sum(map(len, test.y))
    for tol in TOLS:
        crf, spent = fit(train.X, train.y, 10.0, tol)
        found, bounds = crf.distribution(test.X).certify(), crf.distribution(test.X).score_bounds(test.y)
        wrong = [(a != b) & sure for a, b, sure in zip(found.labels, truth, found.tokens, strict=True)]
        same = [a == b for a, b in zip(found.labels, truth, strict=True)]
        rows[f"{tol:g}"] = {
            "gap": crf.certificate_.relative_gap,
            "tokens": float(np.concatenate(found.tokens).mean()),
            "sequences": float(found.sequences.mean()),
            "wrong": int(np.concatenate(wrong).sum()),
            "same": float(np.concatenate(same).mean()),
            "accuracy": bounds.accuracy,
            "log_loss": bounds.log_loss,
            "seconds": spent,
        }
        print(tol, rows[f"{tol:g}"], flush=True)
    search: dict[str, dict[str, tuple[float, float]]] = {f"{C:g}": {} for C in SEARCH_CS}
    for C in SEARCH_CS:
        for tol in SEARCH_TOLS:
            crf, _ = fit(train.X, train.y, C, tol)
            search[f"{C:g}"][f"{tol:g}"] = crf.distribution(test.X).score_bounds(test.y).log_loss
    sides = {"predict": lambda: exact.predict(test.X), "certify": lambda: exact.distribution(test.X).certify()}
    return {
        "tokens": n_tokens,
        "exact": {
            "gap": exact.certificate_.relative_gap,
            "seconds": seconds,
            "accuracy": exact.score(test.X, test.y),
            "log_loss": float(-exact.log_prob(test.X, test.y).sum() / n_tokens),
            "moved": int(sum((a != b).sum() for a, b in zip(again, truth, strict=True))),
        },
        "rows": rows,
        "search": search,
        "times": {"letters": common.side_by_side(sides, options.rounds), "chunks": chunking_times(options.rounds)},
    }


def section(results: dict[str, Any]) -> str:
    exact = results["exact"]
    lines = [
        [
            tol,
            f"{100 * row['tokens']:.2f} %",
            f"{100 * row['sequences']:.2f} %",
            f"{row['wrong']}",
            f"{100 * row['accuracy'][0]:.2f} to {100 * row['accuracy'][1]:.2f}",
            f"{row['log_loss'][0]:.3f} to {row['log_loss'][1]:.3f}",
            f"{row['seconds']:.0f}",
        ]
        for tol, row in results["rows"].items()
    ]
    header = [
        "tol",
        "letters certified",
        "words certified",
        "certified wrongly",
        "accuracy, %",
        "log-loss",
        "CPU seconds of fit",
    ]
    search = [[C, *(f"{low:.3f} to {high:.3f}" for low, high in row.values())] for C, row in results["search"].items()]
    ratios = {name: own["certify"] / own["predict"] for name, own in results["times"].items()}
    default, fine = results["rows"]["0.0001"], results["rows"]["1e-06"]
    wrong = sum(row["wrong"] for row in results["rows"].values())
    ends = "; ".join(
        f"{', '.join(_dropped(results['search'], f'{tol:g}')) or 'none'} at tol = {tol:g}" for tol in SEARCH_TOLS
    )
    return f"""## Certified labels

Certified labels are predicted labels that would stay the same if the fit were exact; `certify` says which ones are.
These are the labels of {results["tokens"]:,} letters of test words. `score_bounds` says what is certain about the
accuracy and the log-loss per letter of the exact fit, which has {100 * exact["accuracy"]:.2f} % and
{exact["log_loss"]:.3f}.

The default, `tol=1e-4`, certifies only {100 * default["tokens"]:.2f} % of the letters. `tol=1e-6` certifies
{100 * fine["tokens"]:.2f} %, for {fine["seconds"] / default["seconds"]:.1f} times the time of the fit.

{common.markdown(header, lines)}

Certified letters that differ from those of a fit to a gap of {exact["gap"]:.0e}: {wrong or "none"}. `certify` takes
{ratios["letters"]:.2f} times as long as `predict` on letters, and {ratios["chunks"]:.2f} times as long on chunks with
sparse features.

![Letters and words whose labels are certified, against the tolerance of the fit](figures/certified.png)

Can bounds on the log-loss end a search for C early? A C can be dropped if its lower bound is above the upper bound of
another C. The bounds would drop: {ends}.
At 1e-2 and 1e-4, as in a search, they are much wider than the differences between neighbouring values of C, so the
library has no such search.

{common.markdown(["C", *(f"tol = {tol:g}" for tol in SEARCH_TOLS)], search)}
"""


def _dropped(search: dict[str, Any], tol: str) -> list[str]:
    """Return the values of C whose lower bound of the log-loss is above the upper bound of another value."""
    least = min(bounds[tol][1] for bounds in search.values())
    return [f"C = {C}" for C, bounds in search.items() if bounds[tol][0] > least]


def figure(results: dict[str, Any]) -> None:
    with common.picture("certified", figsize=(5.5, 3.4)) as (_, ax):
        tols = [float(tol) for tol in results["rows"]]
        for key, label, colour in (("tokens", "letters", 0), ("sequences", "words", 1)):
            shares = [100 * row[key] for row in results["rows"].values()]
            ax.plot(tols, shares, "o-", color=common.COLOURS[colour], label=label)
        ax.set(xscale="log", xlabel="tolerance of the fit", ylabel="certified, %", ylim=(0, 102))
        ax.invert_xaxis()
        ax.legend(frameon=False)


OPTIONS: dict[str, Any] = {"rounds": 5}
