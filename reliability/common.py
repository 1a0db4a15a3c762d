"""What the trials share: counts of what was tried and what failed, the versions that ran, one JSON file each.

A part is a script with `trials(options) -> Iterator[Trial]` and a docstring whose first line is its title and whose
rest says what is tried and what counts as a failure; `FINDS`, where it has some, lists the faults that it brought to
light and the tests that hold them down. `run` makes a command of it: it tries, prints the table and writes
`results/<name>.json`, from which `reliability/run.py` writes docs/reliability.md.

What failed before is measured too where that can be: `--before` writes `results/before/<name>.json`, and is meant for
a run of the same trials on the source of an earlier commit (PYTHONPATH=<checkout>/src). Where it cannot be, a trial
says so in its own words (`before`).
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import subprocess
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, field
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parent.parent
RESULTS = Path(__file__).parent / "results"
PACKAGES = ("kernelcrf", "numpy", "scipy", "scikit-learn", "numba", "safetensors")
SHOWN = 20


@dataclass
class Trial:
    """One row of the table.

    tried : what was done.
    holds : what holds now, in words; with figures where there are some.
    times : how often it was done.
    failures : a line for each time that it went wrong.
    before : what failed before, in words, where `--before` cannot measure it.
    """

    tried: str
    holds: str
    times: int = 0
    failures: list[str] = field(default_factory=list)
    before: str = ""

    def check(self, fine: bool, otherwise: str) -> None:
        """Count one time, and what went wrong with it."""
        self.times += 1
        if not fine:
            self.failures.append(otherwise)


@dataclass(frozen=True)
class Find:
    """A fault that the trials brought to light: what happened, what happens now, the test that failed before.

    now : empty where the test's own name says it.
    """

    was: str
    now: str
    test: str


def source() -> Path:
    """Where the library under trial is."""
    import kernelcrf

    return Path(kernelcrf.__file__).parent


def commit() -> str:
    """The commit of the library under trial, with a mark where its source differs from it."""

    def git(*arguments: str) -> str:
        return subprocess.run(["git", *arguments], cwd=source(), capture_output=True, text=True).stdout.strip()

    return git("rev-parse", "--short", "HEAD") + ("+" if git("status", "--porcelain", ".") else "")


def environment() -> dict[str, str]:
    """Versions and cores."""
    found = {"python": platform.python_version()}
    for package in PACKAGES:
        try:
            found[package] = version(package)
        except PackageNotFoundError:
            continue
    found["cores"] = str(len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count())
    return found


def load(name: str, *, before: bool = False) -> dict[str, Any] | None:
    """The results of a part on file."""
    path = (RESULTS / "before" if before else RESULTS) / f"{name}.json"
    return json.loads(path.read_text()) if path.exists() else None


def save(name: str, trials: Sequence[Trial], seconds: float, *, before: bool = False) -> None:
    """Write the results of a part; of many failures, the first are kept in words."""
    folder = RESULTS / "before" if before else RESULTS
    folder.mkdir(exist_ok=True, parents=True)
    rows = []
    for trial in trials:
        row = asdict(trial)
        row["failed"], row["failures"] = len(trial.failures), trial.failures[:SHOWN]
        rows.append(row)
    text = json.dumps(
        {"commit": commit(), "environment": environment(), "seconds": round(seconds, 1), "trials": rows}, indent=1
    )
    (folder / f"{name}.json").write_text(text + "\n")


def table(name: str) -> str:
    """The trials of a part as Markdown: what was tried, how many times, what failed before, what holds now."""
    results, earlier = load(name), load(name, before=True)
    if results is None:
        return ""
    then = {row["tried"]: row for row in (earlier or {"trials": []})["trials"]}
    rows = [
        ("what was tried", "times", "failed before", "fails now", "what holds now"),
        ("---", "---:", "---", "---:", "---"),
    ]
    for row in results["trials"]:
        was = row["before"]
        if row["tried"] in then:
            old = then[row["tried"]]
            was = f"{old['failed']:,} of {old['times']:,}" + (f"; {was}" if was else "")
        rows.append((row["tried"], f"{row['times']:,}", was or "not measured", f"{row['failed']:,}", row["holds"]))
    return "\n".join("| " + " | ".join(cell.replace("|", "\\|") for cell in row) + " |" for row in rows)


def finds(items: Iterable[Find]) -> str:
    """Faults and their tests as a list in Markdown."""
    lines = (["-", one.was, f"**Now:** {one.now}" if one.now else "", f"`{one.test}`"] for one in items)
    return "\n".join(" ".join(filter(None, words)) for words in lines)


def run(doc: str, file: str, trials: Callable[[argparse.Namespace], Iterator[Trial]], **defaults: Any) -> None:
    """The command of a part: its options are the defaults, `--fits 1000` and the like."""
    name = Path(file).stem
    parser = argparse.ArgumentParser(description=doc.splitlines()[0])
    parser.add_argument("--before", action="store_true", help="file the results as those of an earlier state")
    for option, default in defaults.items():
        parser.add_argument(f"--{option.replace('_', '-')}", type=type(default), default=default)
    options = parser.parse_args()
    started, done = time.perf_counter(), []
    print(f"{name}: {source()} at {commit()}", flush=True)
    for trial in trials(options):
        done.append(trial)
        print(f"{trial.tried}: {trial.times:,} times, {len(trial.failures):,} failed", flush=True)
        for line in trial.failures[:SHOWN]:
            print(f"    {line}", flush=True)
        save(name, done, time.perf_counter() - started, before=options.before)
    if not options.before and any(trial.failures for trial in done):
        raise SystemExit(f"{name}: {sum(bool(trial.failures) for trial in done)} of {len(done)} trials failed")
