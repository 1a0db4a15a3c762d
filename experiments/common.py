"""What the studies share: their results on file, scores with their errors, and the baselines.

A study is a script with `measure(options) -> dict` of JSON-able results and `section(results) -> str`, its part of
docs/results.md in Markdown, and `figure(results)` where it has a picture. `run` makes a command of it: it measures,
writes `results/<name>.json` with the commit and the versions, draws, and prints the section; `--show` draws and prints
from the file alone. `experiments/report.py` joins the sections into docs/results.md.

Hyperparameters are chosen without test labels, for baselines as for ours: by cross-validation within the training data,
or on a part of it that is held out.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import subprocess
import time
from collections.abc import Callable, Iterable, Sequence
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import numpy as np
from scipy import stats

ROOT = Path(__file__).parent.parent
RESULTS = Path(__file__).parent / "results"
FIGURES = ROOT / "docs" / "figures"
PACKAGES = ("kernelcrf", "numpy", "scipy", "scikit-learn", "numba", "python-crfsuite")
# Blue, vermilion, green, purple, orange, sky: told apart by colour-blind readers too (Okabe and Ito).
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9")


def commit() -> str:
    """The commit of the working tree, with a mark where something in src differs from it."""

    def git(*arguments: str) -> str:
        return subprocess.run(["git", *arguments], cwd=ROOT, capture_output=True, text=True).stdout.strip()

    return git("rev-parse", "--short", "HEAD") + ("+" if git("status", "--porcelain", "src") else "")


def environment() -> dict[str, str]:
    found = {"python": platform.python_version()}
    for package in PACKAGES:
        try:
            found[package] = version(package)
        except PackageNotFoundError:
            continue
    found["cores"] = str(len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count())
    return found


def load(name: str) -> dict[str, Any] | None:
    path = RESULTS / f"{name}.json"
    return json.loads(path.read_text()) if path.exists() else None


def save(name: str, results: dict[str, Any]) -> None:
    """Write the results of a study; numbers of NumPy are written as Python's."""
    RESULTS.mkdir(exist_ok=True)
    text = json.dumps({"commit": commit(), "environment": environment(), **results}, indent=1, default=_plain)
    (RESULTS / f"{name}.json").write_text(text + "\n")


def _plain(value: Any) -> Any:
    return value.tolist() if isinstance(value, np.ndarray | np.generic) else str(value)


def run(
    doc: str,
    file: str,
    measure: Callable[[argparse.Namespace], dict[str, Any]],
    section: Callable[[dict[str, Any]], str],
    figure: Callable[[dict[str, Any]], None] | None = None,
    **defaults: Any,
) -> None:
    """The command of a study: its options are the defaults."""
    name = Path(file).stem
    parser = argparse.ArgumentParser(description=doc.splitlines()[0])
    parser.add_argument("--show", action="store_true", help="draw and print from the results on file")
    for option, default in defaults.items():
        parser.add_argument(f"--{option.replace('_', '-')}", type=type(default), default=default)
    options = parser.parse_args()
    if not options.show:
        start = time.perf_counter()
        found = measure(options)
        # A study that keeps parts between runs states the seconds of all of them itself.
        save(name, {"seconds": time.perf_counter() - start, **found})
    results = load(name)
    if results is None:
        raise SystemExit(f"no results of {name} on file: run it without --show")
    if figure is not None:
        figure(results)
    print(section(results))


def markdown(header: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A table: the first column to the left, the others to the right."""
    marks = ["---", *["---:"] * (len(header) - 1)]
    return "\n".join("| " + " | ".join(row) + " |" for row in (header, marks, *rows))


def mean_and_error(values: Sequence[float]) -> tuple[float, float]:
    """The mean over folds and its standard error."""
    x = np.asarray(values, float)
    return float(x.mean()), float(x.std(ddof=1) / np.sqrt(len(x))) if len(x) > 1 else float("nan")


def paired_p(ours: Sequence[float], theirs: Sequence[float]) -> float:
    """Two-sided p-value of a paired t-test over folds."""
    if np.allclose(ours, theirs):
        return 1.0
    return float(stats.ttest_rel(ours, theirs).pvalue)


def bootstrap_p(
    right: Sequence[Any], other: Sequence[Any], n_draws: int = 2000, random_state: int = 0
) -> tuple[float, float]:
    """Difference in token accuracy of two models on one test set, and its two-sided p by resampling sequences.

    right, other : for each sequence, whether each token is right.
    """
    rng = np.random.default_rng(random_state)
    gain = np.array([float(np.sum(a)) - float(np.sum(b)) for a, b in zip(right, other, strict=True)])
    lengths = np.array([len(a) for a in right], float)
    difference = gain.sum() / lengths.sum()
    draws = rng.integers(len(gain), size=(n_draws, len(gain)))
    resampled = gain[draws].sum(axis=1) / lengths[draws].sum(axis=1)
    tail = min(np.mean(resampled <= 0), np.mean(resampled >= 0))
    return float(difference), float(min(1.0, 2 * max(tail, 1 / n_draws)))


def right_tokens(predicted: Sequence[Any], y: Sequence[Any], mask: Sequence[Any] | None = None) -> list[np.ndarray]:
    """For each sequence, whether each scored token is right."""
    found = [np.asarray(a) == np.asarray(b) for a, b in zip(predicted, y, strict=True)]
    return found if mask is None else [one[np.asarray(keep, bool)] for one, keep in zip(found, mask, strict=True)]


def accuracy(right: Sequence[np.ndarray]) -> float:
    return float(np.concatenate(right).mean())
