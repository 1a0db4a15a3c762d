"""Findings: faults that were reported, and the tests that hold them down.

Each line of `reliability/findings.tsv` names a subject, a fault that a user could meet, and a test that fails while the
fault is there. `python reliability/findings.py` runs the tests. With `--before` and `PYTHONPATH=<checkout>/src` it
copies them into the checkout of an earlier commit and counts which of them fail there: a test that passes on the
earlier commit proves nothing, and is printed. `--only WORDS` runs the subjects with those words, and keeps the others.
"""

from __future__ import annotations

import argparse
import csv
import shutil
import subprocess
import sys
from collections import defaultdict
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import common
from common import Find, Trial

LIST = Path(__file__).parent / "findings.tsv"
WORKERS, SECONDS = 2, 240


def findings() -> list[tuple[str, str, str]]:
    """(subject, fault, test) for each line of the list."""
    with LIST.open(newline="", encoding="utf-8") as file:
        return [(row[0], row[1], row[2]) for row in csv.reader(file, delimiter="\t", quoting=csv.QUOTE_NONE)]


FINDS = tuple(Find(fault, "", test) for _, fault, test in findings())


def trials(options: argparse.Namespace) -> Iterator[Trial]:
    by_subject = defaultdict[str, list[str]](list)
    for subject, _, test in findings():
        by_subject[subject].append(test)
    known = {row["tried"]: row for row in (common.load("findings", before=options.before) or {"trials": []})["trials"]}
    if options.before:
        shutil.copytree(common.ROOT / "tests", checkout() / "tests", dirs_exist_ok=True)
    for subject, tests in by_subject.items():
        trial = Trial(subject, "every test passes")
        if options.only not in subject and (row := known.get(subject)):
            # Of many failures only the first are on file in words.
            trial.times, trial.failures = row["times"], row["failures"] + [""] * (row["failed"] - len(row["failures"]))
            yield trial
            continue
        failed = failures(sorted(set(tests)))
        for test in tests:
            trial.check(test not in failed, f"{test} fails")
            if options.before and test not in failed:
                print(f"    {test} passes on the earlier commit")
        yield trial


def checkout() -> Path:
    """The folder whose `src` is under trial."""
    return common.source().parents[1]


def failures(tests: list[str]) -> set[str]:
    """The tests that do not pass; if any does not, each is run in a process of its own, which a fault may end."""
    if passes(*tests):
        return set()
    with ThreadPoolExecutor(WORKERS) as pool:
        return {test for test, fine in zip(tests, pool.map(passes, tests), strict=True) if not fine}


def passes(*tests: str) -> bool:
    """Whether tests, in all of their cases, pass within SECONDS each."""
    command = [sys.executable, "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider", "-m", "", *tests]
    try:
        done = subprocess.run(command, cwd=checkout(), capture_output=True, timeout=SECONDS * len(tests))
    except subprocess.TimeoutExpired:
        return False
    return done.returncode == 0


if __name__ == "__main__":
    common.run(__doc__ or "", __file__, trials, only="")
