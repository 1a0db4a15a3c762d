"""The cost of labels that are missing at random: CoNLL-2000 chunking, the first 2,000 sentences.

Half of the labels of 2,000 sentences are hidden. The table compares four fits: to all labels, to the half that is left,
to 1,000 sentences with all of their labels, and to the few sentences in which no label happens to be hidden. The 1,000
sentences have about as many labels as are left. The kernel is linear, C is 1, and the features are the words and tags
of a window. Accuracy is that of the tokens of the test set, and seconds are wall clock on two threads.
"""

from __future__ import annotations

import argparse
import time
from typing import Any

import numpy as np

from kernelcrf import ChainCRF
from studies import common
from studies.speed import chunking


def features(sentence: list[chunking.Token]) -> list[dict[str, Any]]:
    return [
        {
            f"{name}{offset}": sentence[t + offset][column]
            for offset in range(-2, 3)
            if 0 <= t + offset < len(sentence)
            for column, name in enumerate("wp")
        }
        for t in range(len(sentence))
    ]


def measure(options: argparse.Namespace) -> dict[str, Any]:
    train, test = chunking.sentences("train")[: options.sentences], chunking.sentences("test")
    X, y = [features(s) for s in train], [chunking.labels(s) for s in train]
    X_test, y_test = [features(s) for s in test], [chunking.labels(s) for s in test]
    rng = np.random.default_rng(0)
    hidden = [[None if rng.random() < 0.5 else label for label in labels] for labels in y]
    whole = [i for i, labels in enumerate(hidden) if None not in labels]
    runs = {
        f"all labels of {len(X):,} sentences": (X, y),
        f"half of the labels of {len(X):,} sentences": (X, hidden),
        f"all labels of {len(X) // 2:,} sentences": (X[: len(X) // 2], y[: len(X) // 2]),
        f"the {len(whole)} sentences with no label hidden": ([X[i] for i in whole], [y[i] for i in whole]),
    }
    rows: dict[str, Any] = {}
    for name, (inputs, labels) in runs.items():
        start = time.perf_counter()
        model = ChainCRF("linear", C=1.0, tol=1e-3, n_jobs=2).fit(inputs, labels)
        seconds, count = time.perf_counter() - start, sum(label is not None for one in labels for label in one)
        rows[name] = {"labels": count, "accuracy": model.score(X_test, y_test), "seconds": seconds}
    return {"rows": rows}


def table(results: dict[str, Any]) -> str:
    rows = [
        [name, f"{row['labels']:,}", f"{row['accuracy']:.4f}", f"{row['seconds']:.1f}"]
        for name, row in results["rows"].items()
    ]
    return common.markdown(["training on", "labels", "accuracy", "wall seconds"], rows)


OPTIONS = {"sentences": 2000}
