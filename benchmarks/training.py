"""Training a linear model on CoNLL-2000 chunking from feature lists, beside CRFsuite's L-BFGS with c2 = 1.

Both start from the same Python lists of 19 feature strings a token; reading them in is part of the time. CRFsuite's
clock stops at the first iteration within 0.1 % of its final objective, ours when the fit ends with a certified gap of
0.1 %: no more than 0.1 % above our own optimum, which a second run certifies to 1e-5. CRFsuite has the weights of
(feature, label) pairs that occur, and of the steps between labels that occur; ours has those of all. C = 1 / (2 c2).
Each side runs in processes of its own, in turn.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np

import chunking
import common

C2 = 1.0
WITHIN = 1e-3


def data(split: str) -> tuple[list[list[list[str]]], list[list[str]]]:
    sentences = chunking.sentences(split)
    return [chunking.features(one) for one in sentences], [chunking.labels(one) for one in sentences]


def accuracy(predicted: Any, y: list[list[str]]) -> float:
    return float(np.mean(np.concatenate([np.asarray(a) == np.asarray(b) for a, b in zip(predicted, y, strict=True)])))


def crfsuite() -> dict[str, Any]:
    import pycrfsuite

    X, y = data("train")
    before, values = common.peak_anew(), []

    class Trainer(pycrfsuite.Trainer):
        def message(self, message: str) -> None:
            if message.startswith("Loss:"):
                values.append((float(message.split()[1]), time.perf_counter() - start))
            elif message.startswith("Number of features:"):
                found["weights"] = int(message.split()[-1])

    start, found = time.perf_counter(), {}
    trainer = Trainer(algorithm="lbfgs", params={"c2": C2}, verbose=True)
    for one, labels in zip(X, y, strict=True):
        trainer.append(one, labels)
    appended = time.perf_counter() - start
    with tempfile.TemporaryDirectory() as folder:
        path = str(Path(folder) / "model")
        trainer.train(path)
        total = time.perf_counter() - start
        after = common.peak()
        tagger = pycrfsuite.Tagger()
        tagger.open(path)
        X_test, y_test = data("test")
        right = accuracy([tagger.tag(one) for one in X_test], y_test)
    reached = next((k, t) for k, (value, t) in enumerate(values, 1) if value <= (1 + WITHIN) * values[-1][0])
    return found | {
        "objective": values[-1][0],
        "iterations": len(values),
        "iterations to 0.1 %": reached[0],
        "seconds to 0.1 %": reached[1],
        "seconds": total,
        "seconds of reading": appended,
        "accuracy": right,
        "MB before": before,
        "MB": after,
    }


def ours(n_jobs: int, tol: float) -> dict[str, Any]:
    from kernelcrf import ChainCRF

    small = chunking.sentences("train")[:20]
    ChainCRF("linear", tol=0.1).fit([chunking.features(one) for one in small], [chunking.labels(one) for one in small])
    X, y = data("train")
    before, start = common.peak_anew(), time.perf_counter()
    model = ChainCRF("linear", C=1 / (2 * C2), tol=tol, n_jobs=n_jobs).fit(X, y)
    total, after = time.perf_counter() - start, common.peak()
    X_test, y_test = data("test")
    return {
        "objective": model.certificate_.objective,
        "lower bound": model.certificate_.lower_bound,
        "seconds": total,
        "weights": int(model.coef_.size + model.transitions_.size),
        "accuracy": model.score(X_test, y_test),
        "MB before": before,
        "MB": after,
    }


def in_its_own_process(side: str) -> dict[str, Any]:
    command = [sys.executable, __file__, "--side", side]
    lines = subprocess.run(command, check=True, capture_output=True, text=True).stdout.splitlines()
    return json.loads(lines[-1])


def measure(options: argparse.Namespace) -> dict[str, Any]:
    sides = ["ours, 1 thread", "crfsuite", "ours, 2 threads"]
    found: dict[str, Any] = {side: in_its_own_process(side) for side in sides}
    found["optimum"] = in_its_own_process("optimum")
    return found


SIDES = {
    "crfsuite": crfsuite,
    "ours, 1 thread": lambda: ours(1, WITHIN),
    "ours, 2 threads": lambda: ours(2, WITHIN),
    "optimum": lambda: ours(2, 1e-5),
}


def table(results: dict[str, Any]) -> str:
    theirs = results["crfsuite"]
    rows = []
    for side, row in results.items():
        if side in ("environment", "optimum"):
            continue
        seconds = row["seconds to 0.1 %"] if side == "crfsuite" else row["seconds"]
        cells = [f"{seconds:.1f}", f"{theirs['seconds to 0.1 %'] / seconds:.1f}x", f"{row['objective']:,.1f}"]
        memory = [f"{row['MB']:,.0f}", f"{row['MB before']:,.0f}"]
        rows.append([side, *cells, f"{row['weights']:,}", f"{row['accuracy']:.4f}", *memory])
    header = ["", "seconds to 0.1 %", "", "objective", "weights", "accuracy", "peak MB", "of which data"]
    optimum = results["optimum"]
    over = max(results[side]["objective"] / optimum["lower bound"] - 1 for side in SIDES if side.startswith("ours"))
    return common.markdown(header, rows) + (
        f"\n\nOur optimum is between {optimum['lower bound']:,.2f} and {optimum['objective']:,.2f}; the fits above end "
        f"at most {100 * over:.3f} % above. CRFsuite ended after {theirs['iterations']} iterations and "
        f"{theirs['seconds']:.0f} s, {theirs['seconds of reading']:.1f} s of them reading; it was within 0.1 % after "
        f"{theirs['iterations to 0.1 %']}. CRFsuite has the weights of pairs that occur, ours of all."
    )


if __name__ == "__main__":
    if "--side" in sys.argv:
        print(json.dumps(SIDES[sys.argv[sys.argv.index("--side") + 1]]()))
    else:
        common.run(__doc__, __file__, measure, table)
