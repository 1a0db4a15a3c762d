"""Compare the speed of two checkouts of kernelcrf, side by side in one run.

Each checkout has its own process, with one thread. The processes take turns: a task runs once in the one, then once in
the other, so that a disturbance hits both. The table has the medians of the CPU time, and the median and the
quartiles of its ratio. The last row has the peak memory of the two processes after all tasks.

    python -m studies speed.commits /path/to/older/checkout --rounds 7
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import subprocess
import sys
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

HERE = Path(__file__).resolve().parents[2]
# Older checkouts fit arrays without an intercept by default.
PLAIN = {"fit_intercept": False}
MEMORY = "memory"
ONE_THREAD = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "NUMBA_NUM_THREADS"), "1")


def main(arguments: list[str]) -> None:
    """Run the command."""
    parser = argparse.ArgumentParser(
        "python -m studies speed.commits", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("before", type=Path, help="the checkout to compare with")
    parser.add_argument("after", type=Path, nargs="?", default=HERE, help="default: this checkout")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--task", action="append", choices=TASKS, help="default: all tasks")
    parser.add_argument("--worker", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args(arguments)
    if options.worker:
        work()
        return
    workers = [start_worker(checkout) for checkout in (options.before, options.after)]
    print("| task | before | after | ratio | quartiles |\n|---|---|---|---|---|")
    for task in options.task or TASKS:
        # The first turn of each compiles, reads data and fits the model that is timed.
        times = np.array([[ask(worker, task) for worker in workers] for _ in range(options.rounds + 1)])[1:]
        before, after = np.median(times, axis=0)
        low, ratio, high = np.quantile(times[:, 1] / times[:, 0], (0.25, 0.5, 0.75))
        row = f"{before * 1e3:.4g} ms | {after * 1e3:.4g} ms | {ratio:.3f} | {low:.3f} to {high:.3f}"
        print(f"| {task} | {row} |", flush=True)
    before, after = (ask(worker, MEMORY) for worker in workers)
    print(f"| peak memory | {before:.0f} MB | {after:.0f} MB | {after / before:.3f} | |")
    for worker in workers:
        worker.stdin.close()
        worker.wait()


def start_worker(checkout: Path) -> Any:
    environment = os.environ | ONE_THREAD | {"PYTHONPATH": f"{checkout.resolve() / 'src'}{os.pathsep}{HERE}"}
    command = [sys.executable, __file__, "--worker", str(checkout)]
    return subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment)


def ask(worker: Any, task: str) -> float:
    worker.stdin.write(f"{task}\n")
    worker.stdin.flush()
    answer = worker.stdout.readline()
    if not answer:
        sys.exit(f"the process of {worker.args[-1]} ended in task {task!r}")
    return float(json.loads(answer))


def work() -> None:
    warnings.simplefilter("ignore")
    prepared: dict[str, Callable[[], float]] = {}
    for line in sys.stdin:
        task = line.strip()
        if task not in prepared:
            prepared[task] = peak_memory if task == MEMORY else TASKS[task]()
        print(json.dumps(prepared[task]()), flush=True)


def peak_memory() -> float:
    """Return the peak memory of this process in MB."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def seconds(function: Callable[[], Any]) -> Callable[[], float]:
    """Return a function that returns the seconds of CPU time that a call takes."""

    def timed() -> float:
        start = time.process_time()
        function()
        return time.process_time() - start

    return timed


def evaluation(n_labels: int, dtype: str) -> Callable[[], float]:
    """Return seconds per pass over 20,000 tokens with 512 landmarks: the difference of a long and a short fit."""
    from kernelcrf import ChainCRF

    rng = np.random.default_rng(0)
    X = [rng.normal(size=(20, 32)).astype(dtype) for _ in range(1000)]
    y = [rng.integers(n_labels, size=20) for _ in X]
    model = ChainCRF("rbf", gamma=0.02, n_components=512, solver="lbfgs", tol=1e-12, random_state=0, C=1.0, **PLAIN)

    def per_pass() -> float:
        ends = []
        for max_iter in (2, 12):
            start = time.process_time()
            curve = model.set_params(max_iter=max_iter).fit(X, y).gap_curve_
            ends.append((curve[-1, 1], time.process_time() - start))
        (few, short), (many, long) = ends
        return float((long - short) / (many - few))

    return per_pass


def chunking(part: str) -> tuple[list[list[dict[str, str]]], list[Any]]:
    from kernelcrf.datasets import load_conll2000

    data = load_conll2000(part)
    X = []
    for sentence in data.X:
        rows = [tuple(token) if not isinstance(token, dict) else tuple(token.values()) for token in sentence]
        padded = [("", "")] * 2 + rows + [("", "")] * 2
        X.append(
            [
                {f"{name}{k - 2}": padded[t + k][i] for k in range(5) for i, name in enumerate(("w", "p"))}
                for t in range(len(rows))
            ]
        )
    return X, data.y


def training() -> Callable[[], float]:
    from kernelcrf import ChainCRF

    X, y = chunking("train")
    return seconds(lambda: ChainCRF("linear", C=1.0, tol=1e-3, random_state=0).fit(X[:4000], y[:4000]))


def two_inputs(load: str, C: float, most: int | None = None) -> Callable[[], float]:
    """Return the seconds of a fit to windows of words beside MiniLM's vectors, both with linear kernels."""
    from sklearn.feature_extraction import DictVectorizer

    from kernelcrf import ChainCRF, Input, datasets
    from studies.accuracy.embeddings import minilm

    data = getattr(datasets, load)("train")
    sentences = [[token["word"] if isinstance(token, dict) else token[0] for token in one] for one in data.X]
    windows = []
    for words in sentences:
        padded = ["", "", *words, "", ""]
        windows += [
            {f"w{k - 2}": padded[t + k] for k in range(5)} | {"low": word.lower(), "end": word[-3:], "start": word[:2]}
            for t, word in enumerate(words)
        ]
    V = np.asarray(minilm(sentences), np.float64).mean(axis=1)
    V = (V - V.mean(axis=0)) / V.std(axis=0)
    X = {"words": DictVectorizer().fit_transform(windows).tocsr(), "vectors": V}
    y = [np.asarray(one) for one in data.y][:most]
    lengths = [len(one) for one in y]
    X = {name: rows[: sum(lengths)] for name, rows in X.items()}
    inputs = {"words": Input("linear", C=1.0), "vectors": Input("linear", C=C)}
    return seconds(
        lambda: ChainCRF(inputs=inputs, C=1.0, tol=1e-3, random_state=0).fit(X, np.concatenate(y), lengths=lengths)
    )


def hidden_labels() -> Callable[[], float]:
    """Return the seconds of a fit to 2,000 sentences of which half of the labels are hidden."""
    from kernelcrf import ChainCRF

    X, y = chunking("train")
    rng = np.random.default_rng(0)
    hidden = [[None if rng.random() < 0.5 else label for label in labels] for labels in y[:2000]]
    return seconds(lambda: ChainCRF("linear", C=1.0, tol=1e-3, random_state=0).fit(X[:2000], hidden))


def tree() -> Callable[[], float]:
    """Return the seconds that it takes to make the clique tree of a random tree of 100,000 nodes."""
    from kernelcrf.graphs.structure import Graph
    from kernelcrf.inference.clique_tree import Exact

    rng, n = np.random.default_rng(0), 100_000
    edges = np.column_stack(((rng.random(n - 1) * np.arange(1, n)).astype(int), np.arange(1, n)))
    return seconds(lambda: Exact(Graph(np.full(n, 3), {"node": np.arange(n)[:, None], "edge": edges})).program)


def tagging(one_by_one: bool) -> Callable[[], float]:
    from kernelcrf import ChainCRF

    X, y = chunking("train")
    model = ChainCRF("linear", C=1.0, tol=1e-2, random_state=0).fit(X[:2000], y[:2000])
    new = chunking("test")[0]
    if one_by_one:
        return seconds(lambda: [model.predict([x]) for x in new[:1000]])
    return seconds(lambda: model.predict(new))


def letters(predict: bool) -> Callable[[], float]:
    from kernelcrf import ChainCRF

    # The reader of this checkout needs the library of this checkout.
    with np.load(Path(os.environ["KERNELCRF_DATA"], "letters_ocr", "letters.npz")) as file:
        starts = np.flatnonzero(np.diff(file["word_id"]))[:2999] + 1
        pixels = np.unpackbits(file["pixels_packed"], axis=1).astype(np.float64)
        words = list(zip(np.split(pixels, starts), np.split(file["label"], starts), strict=True))[:3000]
    X, y = map(list, zip(*words[:800], strict=True))
    model = ChainCRF("rbf", gamma=0.05, C=10.0, n_components=400, tol=1e-3, random_state=0, **PLAIN)
    if not predict:
        return seconds(lambda: model.fit(X, y))
    model.fit(X, y)
    return seconds(lambda: model.predict([x for x, _ in words]))


TASKS: dict[str, Callable[[], Callable[[], float]]] = {
    "evaluation, 2 labels": lambda: evaluation(2, "float64"),
    "evaluation, 9 labels": lambda: evaluation(9, "float64"),
    "evaluation, 23 labels": lambda: evaluation(23, "float64"),
    "evaluation, 9 labels, float32": lambda: evaluation(9, "float32"),
    "training, CoNLL-2000": training,
    "training, WNUT-17 with vectors": lambda: two_inputs("load_wnut17", 0.01),
    "training, 2,000 sentences of CoNLL-2000 with vectors": lambda: two_inputs("load_conll2000", 0.01, 2000),
    "training, half of the labels": hidden_labels,
    "a tree of 100,000 nodes": tree,
    "tagging, one call": lambda: tagging(one_by_one=False),
    "tagging, one sentence at a time": lambda: tagging(one_by_one=True),
    "training, letters": lambda: letters(predict=False),
    "labelling, letters": lambda: letters(predict=True),
}


if __name__ == "__main__":
    main(sys.argv[1:])
