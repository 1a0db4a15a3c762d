"""Provide what the studies share: results on file, tables, pictures, timing side by side, fresh processes.

A study is a module of `studies/accuracy`, `studies/speed` or `studies/reliability`. Its docstring starts with a title;
the rest states the protocol. `OPTIONS` holds the options of its command with their defaults. It has either

    measure(options) -> dict      the results, as JSON values or NumPy numbers
    section(results) -> str       its section of docs/results, or
    table(results) -> str         its table in docs/benchmarks, below the text of the docstring
    figure(results)               a picture, if it has one

or `trials(options)`, which yields a `Trial` for each row of a table in docs/reliability, or `main(arguments)`.
"""

from __future__ import annotations

import ast
import contextlib
import functools
import hashlib
import json
import os
import platform
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, field
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import joblib
import numpy as np
from scipy import stats
from threadpoolctl import threadpool_info

ROOT = Path(__file__).parents[1]
FIGURES = ROOT / "docs" / "figures"
PACKAGES = ("kernelcrf", "numpy", "scipy", "scikit-learn", "numba", "safetensors", "python-crfsuite")
# Blue, vermilion, green, purple, orange, sky: distinct for colour-blind readers too (Okabe and Ito).
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9")
LADDER = (0.1, 0.3, 1.0, 3.0, 10.0, 30.0, 100.0)  # values of C
SHOWN_FAILURES = 20
STARTED = time.time()
SECONDS_KEPT: list[float] = []  # of parts that earlier runs left in the cache


# Results on file


def source() -> Path:
    """Return the folder of the library under study."""
    import kernelcrf

    return Path(kernelcrf.__file__).parent


def commit() -> str:
    """Return the commit of the library under study, with a plus if its source differs from that commit."""

    def git(*arguments: str) -> str:
        return subprocess.run(["git", *arguments], cwd=source(), capture_output=True, text=True).stdout.strip()

    return git("rev-parse", "--short", "HEAD") + ("+" if git("status", "--porcelain", ".") else "")


@functools.cache
def code() -> str:
    """Return a digest of the library's code without its docstrings and comments."""
    found = hashlib.sha256()
    for path in sorted(source().rglob("*.py")):
        tree = ast.parse(path.read_text(encoding="utf-8"))
        for node in ast.walk(tree):
            if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef) and ast.get_docstring(node) is not None:
                del node.body[0]
        found.update(f"{path.relative_to(source()).as_posix()} {ast.dump(tree)}".encode())
    return found.hexdigest()[:12]


def environment() -> dict[str, str]:
    """Return the versions of Python, of the packages and of BLAS, and the number of cores."""
    found = {"python": platform.python_version()}
    for package in PACKAGES:
        with contextlib.suppress(PackageNotFoundError):
            found[package] = version(package)
    blas = {f"{one['internal_api']} {one['version']}" for one in threadpool_info() if one["user_api"] == "blas"}
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    return found | {"blas": ", ".join(sorted(blas)), "cores": str(cores)}


def load(name: str) -> dict[str, Any] | None:
    """Return the results of a study such as "speed.letters", or None if there are none on file."""
    path = _path(name)
    return json.loads(path.read_text(encoding="utf-8")) if path.exists() else None


def complete(results: dict[str, Any]) -> dict[str, Any]:
    """Return results as JSON values, with the code, the commit and the versions that gave them."""
    found = {"commit": commit(), "code": code(), "environment": environment(), **results}
    return json.loads(json.dumps(found, default=lambda x: x.tolist() if hasattr(x, "tolist") else str(x)))


def save(name: str, results: dict[str, Any]) -> None:
    """Write the results of a study."""
    path = _path(name)
    path.parent.mkdir(exist_ok=True, parents=True)
    path.write_text(json.dumps(results, indent=1) + "\n", encoding="utf-8")


def _path(name: str) -> Path:
    group, _, study = name.partition(".")
    return ROOT / "studies" / group / "results" / f"{study}.json"


def cache(version: str) -> Path:
    """Return the folder for parts of long studies: in KERNELCRF_CACHE, or among the temporary files."""
    place = Path(os.environ.get("KERNELCRF_CACHE", Path(tempfile.gettempdir()) / "kernelcrf_cache")) / version
    place.mkdir(parents=True, exist_ok=True)
    return place


def kept(key: str, work: Callable[[], Any], *, by_library: bool = True) -> Any:
    """Return `work()`, from the cache if an earlier run of a study left it there, so that long runs can be resumed.

    by_library : whether the library computes it, so that it is computed again when the library's code changes.
    """
    path = cache(code() if by_library else "others") / f"{re.sub(r'[^A-Za-z0-9.=,-]+', '_', key)}.joblib"
    if path.exists():
        found, spent = joblib.load(path)
        if path.stat().st_mtime < STARTED:
            SECONDS_KEPT.append(spent)
        return found
    start = time.perf_counter()
    found = work()
    joblib.dump((found, time.perf_counter() - start), path)
    return found


def searched(start: Sequence[float], score: Callable[[float], float]) -> dict[float, float]:
    """Score values of the ladder until the best is at neither end of those tried, or at an end of the ladder."""
    scores = {C: score(C) for C in start}
    while True:
        tried = [LADDER.index(C) for C in sorted(scores)]
        best = LADDER.index(max(scores, key=scores.__getitem__))
        further = best + 1 if best == tried[-1] else best - 1 if best == tried[0] else best
        if further in tried or not 0 <= further < len(LADDER):
            return dict(sorted(scores.items()))
        scores[LADDER[further]] = score(LADDER[further])


# Text and pictures


def of_all(measured: int, of: int, what: str) -> str:
    """Return a sentence, after a space, on how much a part of the splits enlarges standard errors, or nothing."""
    if measured >= of:
        return ""
    times = np.sqrt(of / measured)
    return (
        f" To save time, {measured} of the {of} {what} are run; standard errors are {times:.1f} times as large as with "
        "all of them."
    )


def markdown(header: Sequence[str], rows: Iterable[Sequence[str]], words: Sequence[int] = (0,)) -> str:
    """Return a table in Markdown; columns of words are aligned to the left, the others to the right."""
    marks = ["---" if k in words else "---:" for k in range(len(header))]
    return "\n".join("| " + " | ".join(row) + " |" for row in (header, marks, *rows))


@contextlib.contextmanager
def picture(name: str, *shape: int, dpi: int = 150, **options: Any) -> Iterator[tuple[Any, Any]]:
    """Yield a figure of Matplotlib and its axes, and write them to docs/figures at the end."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(*shape, **({"layout": "constrained"} | options))
    yield figure, axes
    FIGURES.mkdir(exist_ok=True)
    figure.savefig(FIGURES / f"{name}.png", dpi=dpi)
    plt.close(figure)


# Statistics


def mean_and_error(values: Sequence[float]) -> tuple[float, float]:
    """Return the mean over folds and its standard error."""
    x = np.asarray(values, float)
    return float(x.mean()), float(x.std(ddof=1) / np.sqrt(len(x))) if len(x) > 1 else float("nan")


def plus_minus(values: Sequence[float], digits: int = 2) -> str:
    """Return the mean over folds and its standard error as text."""
    mean, error = mean_and_error(values)
    return f"{mean:.{digits}f}" + (f" ± {error:.{digits}f}" if error == error else "")


def paired_p(ours: Sequence[float], theirs: Sequence[float]) -> float:
    """Return the two-sided p-value of a paired t-test over folds."""
    return 1.0 if np.allclose(ours, theirs) else float(stats.ttest_rel(ours, theirs).pvalue)


def bootstrap_p(right: Sequence[Any], other: Sequence[Any], n_draws: int = 2000) -> tuple[float, float]:
    """Return the difference in token accuracy of two models on one test set, and its two-sided p-value.

    right, other : for each sequence, whether each token is right; sequences are resampled.
    """
    gain = np.array([float(np.sum(a)) - float(np.sum(b)) for a, b in zip(right, other, strict=True)])
    lengths = np.array([len(a) for a in right], float)
    draws = np.random.default_rng(0).integers(len(gain), size=(n_draws, len(gain)))
    return float(gain.sum() / lengths.sum()), tail_p(gain[draws].sum(axis=1) / lengths[draws].sum(axis=1))


def tail_p(draws: np.ndarray) -> float:
    """Return the two-sided p-value of a difference, from draws of it."""
    tail = min(np.mean(draws <= 0), np.mean(draws >= 0))
    return float(min(1.0, 2 * max(tail, 1 / len(draws))))


def right_tokens(predicted: Sequence[Any], y: Sequence[Any], mask: Sequence[Any] | None = None) -> list[np.ndarray]:
    """Return, for each sequence, whether each scored token is right."""
    found = [np.asarray(a) == np.asarray(b) for a, b in zip(predicted, y, strict=True)]
    return found if mask is None else [one[np.asarray(keep, bool)] for one, keep in zip(found, mask, strict=True)]


def accuracy(right: Sequence[np.ndarray]) -> float:
    """Return the share of tokens that are right."""
    return float(np.concatenate(right).mean())


def growth_exponent(sizes: Iterable[Any], values: Iterable[float], least: float = 1e-9) -> float:
    """Return the slope of the logarithms over the upper half of the range of sizes."""
    x, found = np.array([float(size) for size in sizes]), np.array(list(values))
    upper = x >= np.sqrt(x[0] * x[-1])
    return float(np.polyfit(np.log(x[upper]), np.log(np.maximum(found[upper], least)), 1)[0])


# Time, memory and processes


def data_folder(needed: str) -> Path:
    """Return the folder of a data set, or exit and say which one is missing."""
    folder = os.environ.get("KERNELCRF_DATA")
    if not folder or not (Path(folder) / needed).exists():
        sys.exit(f"KERNELCRF_DATA={folder!r}: expected the folder that holds {needed}")
    return Path(folder) / needed


def seconds(function: Callable[[], Any]) -> float:
    """Return how long a call takes."""
    start = time.perf_counter()
    function()
    return time.perf_counter() - start


def side_by_side(sides: dict[Any, Callable[[], Any]], rounds: int) -> dict[Any, float]:
    """Return the median seconds of each side; the sides take turns, so that a disturbance hits all of them."""
    times: dict[Any, list[float]] = {name: [] for name in sides}
    for _ in range(rounds):
        for name, function in sides.items():
            times[name].append(seconds(function))
    return {name: float(np.median(values)) for name, values in times.items()}


def peak_memory(*, reset: bool = False) -> float:
    """Return the peak memory of this process in MB; with reset=True, forget earlier peaks if the system allows it."""
    if reset:
        with contextlib.suppress(OSError):
            Path("/proc/self/clear_refs").write_text("5")
    status = Path("/proc/self/status")
    if status.exists():
        line = next(line for line in status.read_text().splitlines() if line.startswith("VmHWM"))
        return float(line.split()[1]) / 1e3
    import resource  # not on Windows

    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / (1e6 if sys.platform == "darwin" else 1e3)


def in_process(function: Callable[..., Any], *arguments: Any, **variables: str) -> Any:
    """Return the result of a function of a study in a fresh process; arguments and result are JSON values.

    variables : environment variables of that process.
    """
    code = (
        "import importlib, json, sys; module, name, arguments = json.loads(sys.argv[1]); "
        "print('\\n' + json.dumps(getattr(importlib.import_module(module), name)(*arguments)))"
    )
    call = json.dumps([function.__module__, function.__name__, arguments])
    command = [sys.executable, "-c", code, call]
    done = subprocess.run(command, cwd=ROOT, env=os.environ | variables, stdout=subprocess.PIPE, text=True, check=True)
    return json.loads(done.stdout.splitlines()[-1])


# Trials of reliability


@dataclass
class Trial:
    """Hold one row of a table of docs/reliability.

    tried : what was done.
    holds : what holds now, in words; with figures if there are some.
    times : how often it was done.
    failures : a line for each time that it went wrong.
    """

    tried: str
    holds: str
    times: int = 0
    failures: list[str] = field(default_factory=list)

    def check(self, fine: bool, otherwise: str) -> None:
        """Count one attempt, and describe its failure."""
        self.times += 1
        if not fine:
            self.failures.append(otherwise)


def save_trials(name: str, trials: Sequence[Trial], seconds: float) -> None:
    """Write trials as results; of many failures the first are kept in words."""
    rows = [
        asdict(trial) | {"failed": len(trial.failures), "failures": trial.failures[:SHOWN_FAILURES]} for trial in trials
    ]
    save(name, complete({"seconds": round(seconds, 1), "trials": rows}))


def known_trials(name: str) -> dict[str, dict[str, Any]]:
    """Return the rows on file, by what was tried."""
    return {row["tried"]: row for row in (load(name) or {"trials": []})["trials"]}
