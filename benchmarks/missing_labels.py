"""What labels that are missing at random cost: CoNLL-2000 chunking, the first 2,000 sentences.

Half of their labels are hidden. Beside training on what is left: training on all labels, on 1,000 sentences with all of
theirs (as many labels), and on the sentences of which no label happens to be hidden. Linear kernel, C = 1, word and tag
features of a window; token accuracy on the test set.
"""

from __future__ import annotations

import argparse
import time
from typing import Any

import numpy as np

import chunking
import common
from kernelcrf import ChainCRF


def features(sentence: list[chunking.Token]) -> list[dict[str, Any]]:
    tokens = []
    for t in range(len(sentence)):
        token: dict[str, Any] = {}
        for offset in (-2, -1, 0, 1, 2):
            if 0 <= t + offset < len(sentence):
                token[f"w{offset}"], token[f"p{offset}"] = sentence[t + offset][:2]
        tokens.append(token)
    return tokens


def measure(options: argparse.Namespace) -> dict[str, Any]:
    train, test = chunking.sentences("train")[:2000], chunking.sentences("test")
    X, y = [features(s) for s in train], [chunking.labels(s) for s in train]
    X_test, y_test = [features(s) for s in test], [chunking.labels(s) for s in test]
    rng = np.random.default_rng(0)
    hidden = [[None if rng.random() < 0.5 else label for label in labels] for labels in y]
    whole = [i for i, labels in enumerate(hidden) if None not in labels]
    runs = {
        "all labels of 2,000 sentences": (X, y),
        "half of the labels of 2,000 sentences": (X, hidden),
        "all labels of 1,000 sentences": (X[:1000], y[:1000]),
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
    return common.markdown(["training on", "labels", "accuracy", "seconds"], rows)


if __name__ == "__main__":
    common.run(__doc__, __file__, measure, table)
