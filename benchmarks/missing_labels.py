"""What labels that are missing at random cost: CoNLL-2000 chunking, the first 2,000 sentences.

Half of their labels are hidden. Beside training on what is left: training on all labels, on 1,000 sentences with all of
theirs (as many labels), and on the sentences of which no label happens to be hidden. Linear kernel, C = 1, word and tag
features of a window; token accuracy on the test set.

    KERNELCRF_DATA=... python benchmarks/missing_labels.py
"""

from __future__ import annotations

import gzip
import os
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np

from kernelcrf import ChainCRF

Sentence = list[list[str]]


def sentences(path: Path) -> list[Sentence]:
    with gzip.open(path, "rt", encoding="utf8") as file:
        return [[line.split() for line in block.splitlines()] for block in file.read().strip().split("\n\n")]


def features(sentence: Sentence) -> list[dict[str, Any]]:
    tokens = []
    for t in range(len(sentence)):
        token: dict[str, Any] = {}
        for offset in (-2, -1, 0, 1, 2):
            if 0 <= t + offset < len(sentence):
                token[f"w{offset}"], token[f"p{offset}"] = sentence[t + offset][:2]
        tokens.append(token)
    return tokens


def main() -> None:
    folder = os.environ.get("KERNELCRF_DATA")
    if not folder:
        sys.exit("KERNELCRF_DATA is not set: expected the folder that holds conll2000_chunking")
    train = sentences(Path(folder) / "conll2000_chunking" / "train.txt.gz")[:2000]
    test = sentences(Path(folder) / "conll2000_chunking" / "test.txt.gz")
    X, y = [features(s) for s in train], [[token[2] for token in s] for s in train]
    X_test, y_test = [features(s) for s in test], [[token[2] for token in s] for s in test]
    rng = np.random.default_rng(0)
    hidden = [[None if rng.random() < 0.5 else label for label in labels] for labels in y]
    whole = [i for i, labels in enumerate(hidden) if None not in labels]
    runs = {
        "all labels of 2,000 sentences": (X, y),
        "half of the labels of 2,000 sentences": (X, hidden),
        "all labels of 1,000 sentences": (X[:1000], y[:1000]),
        f"the {len(whole)} sentences with no label hidden": ([X[i] for i in whole], [y[i] for i in whole]),
    }
    print(f"{'training on':<50}{'labels':>8}{'accuracy':>10}{'seconds':>9}")
    for name, (inputs, labels) in runs.items():
        start = time.perf_counter()
        model = ChainCRF("linear", C=1.0, tol=1e-3, n_jobs=2).fit(inputs, labels)
        seconds, count = time.perf_counter() - start, sum(label is not None for one in labels for label in one)
        print(f"{name:<50}{count:>8}{model.score(X_test, y_test):>10.4f}{seconds:>9.1f}", flush=True)


if __name__ == "__main__":
    main()
