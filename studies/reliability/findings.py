"""Findings: faults that were reported, and the tests that guard against them.

Each line of `studies/reliability/findings.tsv` names a subject, a fault that a user could meet, a test that fails while
the fault is there, and what happens now if the test does not say it. The study runs the tests. With `--before` and
`PYTHONPATH=<checkout>/src` it copies them into the checkout of an earlier commit and counts which of them fail there.
Tests that also pass on the earlier commit are listed, since they show nothing. `--only WORDS` runs the subjects with
those words and keeps the others. Subjects from *Extreme numbers and kernels* on were found by the other trials.
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

from studies import common
from studies.common import Trial

LIST = Path(__file__).parent / "findings.tsv"
WORKERS, SECONDS = 2, 240
OPTIONS = {"only": ""}


def findings() -> list[tuple[str, str, str, str]]:
    """Return (subject, fault, test, what happens now) for each line of the list."""
    with LIST.open(newline="", encoding="utf-8") as file:
        rows = csv.reader(file, delimiter="\t", quoting=csv.QUOTE_NONE)
        return [(row[0], row[1], row[2], row[3] if len(row) > 3 else "") for row in rows]


def faults() -> str:
    """Return the faults in Markdown: one list per subject, which is shown when the reader opens it."""
    lists = defaultdict[str, list[str]](list)
    for subject, fault, test, now in findings():
        lists[subject].append(f"- {fault}" + (f" **Now:** {now}" if now else "") + f" `{test}`")
    return "\n\n".join(
        f"<details><summary>{subject}: {len(lines)}</summary>\n\n" + "\n".join(lines) + "\n\n</details>"
        for subject, lines in lists.items()
    )


def trials(options: argparse.Namespace) -> Iterator[Trial]:
    by_subject = defaultdict[str, list[str]](list)
    for subject, _, test, _ in findings():
        by_subject[subject].append(test)
    known = common.known_trials("reliability.findings", before=options.before)
    checkout = common.source().parents[1]
    if options.before:
        shutil.copytree(common.ROOT / "tests", checkout / "tests", dirs_exist_ok=True)
    for subject, tests in by_subject.items():
        trial = Trial(subject, "every test passes")
        if options.only not in subject:
            if (row := known.get(subject)) is not None:
                # Of many failures only the first are on file in words.
                others = [""] * (row["failed"] - len(row["failures"]))
                trial.times, trial.failures = row["times"], row["failures"] + others
                yield trial
            continue
        failed = failing(sorted(set(tests)), checkout)
        for test in tests:
            trial.check(test not in failed, f"{test} fails")
            if options.before and test not in failed:
                print(f"    {test} passes on the earlier commit")
        yield trial


def failing(tests: list[str], checkout: Path) -> set[str]:
    """Return the tests that fail; if any does, each runs in a separate process, which a fault may end."""

    def passes(*some: str) -> bool:
        command = [sys.executable, "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider", "-m", "", *some]
        try:
            done = subprocess.run(command, cwd=checkout, capture_output=True, timeout=SECONDS * len(some))
        except subprocess.TimeoutExpired:
            return False
        return done.returncode == 0

    if passes(*tests):
        return set()
    with ThreadPoolExecutor(WORKERS) as pool:
        return {test for test, fine in zip(tests, pool.map(passes, tests), strict=True) if not fine}
