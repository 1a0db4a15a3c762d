"""Bibliographic references of AnyStyle, with features of single tokens and of steps between tokens.

`INTRODUCTION` has the protocol, which the page of results repeats. For its time, a run takes the C on file;
`--choose 1` chooses it again. The test set is whole, so that standard errors stay the same.
"""

from __future__ import annotations

import argparse
import re
import time
from collections.abc import Sequence
from functools import partial
from typing import Any

import numpy as np

from kernelcrf import ChainCRF, Input
from studies import common
from studies.accuracy.baselines import CRFsuite
from studies.datasets import load_references, reference_features

PENALTIES = {"c1": 0.1, "c2": 0.01, "max_iterations": 300}
CHOICES = (1.0, 3.0, 10.0, 30.0)
CRFSUITE, PLAIN, STEPS = "CRFsuite, c1 = 0.1, c2 = 0.01", "ChainCRF", "ChainCRF, signs of steps"
NAMES = {STEPS: "ChainCRF, features of steps"}
OPTIONS = {"choose": 0}
INTRODUCTION = """\
The data are AnyStyle's: *core* is the training set, and the references of *gold* that are not in core are the test set.
All rows have the features of `studies.datasets.reference_features`. They also have the first character, the case, the
kind of number and the final character of the token and of the token before. AnyStyle's own templates, for the CRF
program Wapiti, give these features weights for pairs of neighbouring labels, too. We call them *features of steps*;
CRFsuite does not have them. AnyStyle's dictionaries are left out.

CRFsuite has the penalties of parserator and 300 iterations; the other fits end at a certified gap of 1 %. C is the
value with the most right references on the last fifth of core. Seconds are the CPU time of the last fit on one thread.
p-values compare the wrong references of a row with those of CRFsuite, by bootstrap; 0.001 is the least.
"""


def case(word: str) -> str:
    if not word[:1].isupper():
        return "other"
    return "single" if len(word) == 1 else "all" if word.isupper() else "first"


def number(word: str) -> str:
    core = re.sub(r"\W", "", word)
    if re.fullmatch(r"(1[5-9]|20)\d\d[a-z]?", core):
        return "year"
    if core.isdigit():
        return f"{min(len(core), 5)} digits"
    return "some digits" if any(character.isdigit() for character in core) else "none"


def final(word: str) -> str:
    return "letter" if word[-1:].isalnum() else word[-1:]


def signs(words: Sequence[str]) -> list[list[str]]:
    """Return the signs of each token and of the token before."""
    found = []
    for before, word in zip(["", *words], words, strict=False):
        names = [f"first={word[:1]}", f"last before={before[-1:]}"]
        for sign in (case, number, final):
            names += [f"{sign.__name__}={sign(word)}", f"{sign.__name__} before={sign(before)}"]
        found.append(names)
    return found


def tokens(words: Sequence[str]) -> list[list[str]]:
    return [[*some, *more] for some, more in zip(reference_features(words), signs(words), strict=True)]


def data() -> tuple[list[list[str]], list[list[str]], list[list[str]], list[list[str]]]:
    """Return the words and the labels of core, and of the references of gold that are not in core."""
    core, gold = load_references("core"), load_references("gold")
    words, test_words = ([[token["word"] for token in one] for one in part.X] for part in (core, gold))
    known = {tuple(one) for one in words}
    new = [i for i, one in enumerate(test_words) if tuple(one) not in known]
    labels = [one.tolist() for one in core.y]
    return words, labels, [test_words[i] for i in new], [gold.y[i].tolist() for i in new]


def inputs(name: str, words: Sequence[Sequence[str]]) -> list[Any]:
    if name != STEPS:
        return [tokens(one) for one in words]
    return [{"tokens": tokens(one), "steps": signs(one)} for one in words]


def fit(name: str, C: float | None, words: Sequence[Sequence[str]], y: Sequence[Any]) -> Any:
    if name == CRFSUITE:
        return CRFsuite(**PENALTIES).fit(inputs(name, words), y)
    kernel = Input("linear"), Input("linear", scores="steps")
    given = {"inputs": dict(zip(("tokens", "steps"), kernel, strict=True))} if name == STEPS else {"kernel": "linear"}
    crf = ChainCRF(**given, C=C, tol=1e-2, weights=("observed", "observed"), random_state=0)
    return crf.fit(inputs(name, words), y)


def right(crf: Any, name: str, words: Sequence[Sequence[str]], y: Sequence[Any]) -> list[np.ndarray]:
    return common.right_tokens(crf.predict(inputs(name, words)), y)


def run(name: str, C: float | None) -> dict[str, Any]:
    """Fit a model to core; return what is right in the test set, and the seconds of the fit."""
    words, y, test_words, test_y = data()
    fit(name, 1.0 if C else None, words[:20], y[:20])
    start = time.process_time()
    crf = fit(name, C, words, y)
    seconds = time.process_time() - start
    found = right(crf, name, test_words, test_y)
    weights = None if C is None else crf.model_.layout.size
    return {"C": C, "seconds": seconds, "weights": weights, "right": [one.astype(int).tolist() for one in found]}


def choose(name: str) -> float:
    """Return the C with the most right references on the last fifth of core."""
    words, y, _, _ = data()
    cut = 4 * len(words) // 5
    scores = {}
    for C in CHOICES:
        crf = fit(name, C, words[:cut], y[:cut])
        scores[C] = np.mean([one.all() for one in right(crf, name, words[cut:], y[cut:])])
    return max(scores, key=lambda C: (scores[C], -C))


def measure(options: argparse.Namespace) -> dict[str, Any]:
    rows, known = {}, {} if options.choose else (common.load("accuracy.references") or {}).get("rows", {})
    for name in (CRFSUITE, PLAIN, STEPS):
        C = known.get(name, {}).get("C")
        if C is None and name != CRFSUITE:
            C = common.kept(f"references C {name}", partial(choose, name))
        rows[name] = common.kept(f"references {name} {C}", partial(run, name, C))
    theirs = [all(one) for one in rows[CRFSUITE]["right"]]
    for row in rows.values():
        whole = [all(one) for one in row["right"]]
        row["p"] = common.bootstrap_p([[one] for one in whole], [[one] for one in theirs])[1]
        row["tokens"] = 100 * (1 - np.mean(np.concatenate([np.asarray(one) for one in row.pop("right")])))
        row["references"] = 100 * (1 - np.mean(whole))
    return {"rows": rows}


def section(results: dict[str, Any]) -> str:
    rows = []
    for name, row in results["rows"].items():
        cells = [f"{row['tokens']:.2f}", f"{row['references']:.2f}", "" if name == CRFSUITE else f"{row['p']:.3f}"]
        C, weights = ("", "") if row["C"] is None else (f"{row['C']:g}", f"{row['weights']:,}")
        rows.append([NAMES.get(name, name), C, weights, *cells, f"{row['seconds']:.0f}"])
    header = ["", "C", "weights", "tokens wrong, %", "references wrong, %", "p", "CPU seconds"]
    return f"## Bibliographic references, with features of steps\n\n{INTRODUCTION}\n{common.markdown(header, rows)}"
