"""Findings: faults that were reported, and the tests that guard against them.

Each fault in the list below has a test that fails while the fault is there, and the study runs these tests. The tests
are named in `studies/reliability/findings.tsv`. The subjects from *Extreme numbers and kernels* to *Old versions of
dependencies* were found by the trials on the other pages.

All faults are repaired, except where a test fails now. If the list says nothing else, the answer is now right, or an
error says what is wrong.
"""

from __future__ import annotations

import argparse
import csv
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
# `only` runs the subjects with those words and keeps the others.
OPTIONS = {"only": ""}


def findings() -> list[tuple[str, str, str, str]]:
    """Return (subject, fault, test, what happens now if this needs words) for each line of the list."""
    with LIST.open(newline="", encoding="utf-8") as file:
        rows = csv.reader(file, delimiter="\t", quoting=csv.QUOTE_NONE)
        return [(row[0], row[1], row[2], row[3] if len(row) > 3 else "") for row in rows]


def faults() -> str:
    """Return the faults in Markdown: one list per subject, which is shown when the reader opens it."""
    lists = defaultdict[str, list[str]](list)
    for subject, fault, _, now in findings():
        lists[subject].append(f"- {fault}" + (f" **Now:** {now}" if now else ""))
    tested = sum(row["times"] for row in common.known_trials("reliability.findings").values())
    added = sum(map(len, lists.values())) - tested
    later = f" {added} of them were added after this run and are not in the table." if added else ""
    return "\n\n".join(
        [
            f"These are the faults, by subject.{later}",
            *(
                f"<details><summary>{subject}: {len(lines)}</summary>\n\n" + "\n".join(lines) + "\n\n</details>"
                for subject, lines in lists.items()
            ),
        ]
    )


def trials(options: argparse.Namespace) -> Iterator[Trial]:
    by_subject = defaultdict[str, list[str]](list)
    for subject, _, test, _ in findings():
        by_subject[subject].append(test)
    known = common.known_trials("reliability.findings")
    for subject, tests in by_subject.items():
        trial = Trial(subject, "every test passes")
        if options.only not in subject:
            if (row := known.get(subject)) is not None:
                # Of many failures only the first are on file in words.
                others = [""] * (row["failed"] - len(row["failures"]))
                trial.times, trial.failures = row["times"], row["failures"] + others
                yield trial
            continue
        failed = failing(sorted(set(tests)))
        for test in tests:
            trial.check(test not in failed, f"{test} fails")
        if trial.failures:
            trial.holds = f"all tests pass but {' and '.join(sorted(failed))}"
        yield trial


def failing(tests: list[str]) -> set[str]:
    """Return the tests that fail; if any does, each runs in a separate process, which a fault may end."""

    def passes(*some: str) -> bool:
        command = [sys.executable, "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider", "-m", "", *some]
        try:
            done = subprocess.run(command, cwd=common.ROOT, capture_output=True, timeout=SECONDS * len(some))
        except subprocess.TimeoutExpired:
            return False
        return done.returncode == 0

    if passes(*tests):
        return set()
    with ThreadPoolExecutor(WORKERS) as pool:
        return {test for test, fine in zip(tests, pool.map(passes, tests), strict=True) if not fine}
