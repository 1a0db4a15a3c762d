"""What the benchmarks share: turns of timing, the versions that ran, one JSON file each.

A benchmark is a script with `measure(options) -> dict`, `table(results) -> str` in Markdown, and a docstring whose
first paragraph says what is compared. `run` makes a command of it: it measures, prints the table and writes
`results/<name>.json`, from which `benchmarks/run.py` writes the README.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import platform
import sys
import time
from collections.abc import Callable, Sequence
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import numpy as np
from threadpoolctl import threadpool_info

RESULTS = Path(__file__).parent / "results"
FIGURES = Path(__file__).parent.parent / "docs" / "figures"
PACKAGES = ("kernelcrf", "numpy", "scipy", "scikit-learn", "numba", "python-crfsuite")


def data_folder(needed: str) -> Path:
    """The folder of the data sets, or an exit that says which one is missing."""
    folder = os.environ.get("KERNELCRF_DATA")
    if not folder or not (Path(folder) / needed).exists():
        sys.exit(f"KERNELCRF_DATA={folder!r}: expected the folder that holds {needed}")
    return Path(folder)


def seconds(function: Callable[[], Any]) -> float:
    start = time.perf_counter()
    function()
    return time.perf_counter() - start


def turns(sides: dict[str, Callable[[], Any]], rounds: int) -> dict[str, float]:
    """Median seconds of each side; the sides take turns, so that what disturbs one disturbs all."""
    times: dict[str, list[float]] = {name: [] for name in sides}
    for _ in range(rounds):
        for name, function in sides.items():
            times[name].append(seconds(function))
    return {name: float(np.median(values)) for name, values in times.items()}


def peak() -> float:
    """The most memory that this process has had, in MB, or has had since `peak_anew` where the system can tell."""
    status = Path("/proc/self/status")
    if status.exists():
        return (
            float(next(line.split()[1] for line in status.read_text().splitlines() if line.startswith("VmHWM"))) / 1e3
        )
    import resource  # not on Windows

    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / (1e6 if sys.platform == "darwin" else 1e3)


def peak_anew() -> float:
    """Forget the peak so far; returns the memory at hand."""
    with contextlib.suppress(OSError):
        Path("/proc/self/clear_refs").write_text("5")
    return peak()


def environment() -> dict[str, str]:
    """Versions, BLAS and processor."""
    found = {"python": platform.python_version()}
    for package in PACKAGES:
        try:
            found[package] = version(package)
        except PackageNotFoundError:
            continue
    found["blas"] = ", ".join(
        sorted({f"{one['internal_api']} {one['version']}" for one in threadpool_info() if one["user_api"] == "blas"})
    )
    found["cores"] = str(len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count())
    return found


def markdown(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A table: the first column to the left, numbers to the right."""
    marks = ["---", *["---:"] * (len(header) - 1)]
    return "\n".join("| " + " | ".join(row) + " |" for row in (header, marks, *rows))


def load(name: str) -> dict[str, Any] | None:
    path = RESULTS / f"{name}.json"
    return json.loads(path.read_text()) if path.exists() else None


def save(name: str, results: dict[str, Any]) -> None:
    RESULTS.mkdir(exist_ok=True)
    (RESULTS / f"{name}.json").write_text(json.dumps({"environment": environment(), **results}, indent=1) + "\n")


def run(
    doc: str,
    file: str,
    measure: Callable[[argparse.Namespace], dict[str, Any]],
    table: Callable[[dict[str, Any]], str],
    **defaults: Any,
) -> None:
    """The command of a benchmark: its options are the defaults, `--rounds 9` and the like."""
    parser = argparse.ArgumentParser(description=doc.splitlines()[0])
    for option, default in defaults.items():
        parser.add_argument(f"--{option.replace('_', '-')}", type=type(default), default=default)
    results = measure(parser.parse_args())
    save(Path(file).stem, results)
    print(", ".join(f"{name} {value}" for name, value in environment().items()) + "\n")
    print(table(results))
