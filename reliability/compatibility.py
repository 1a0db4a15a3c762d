"""Compatibility: the oldest and the newest dependencies, and what is known against them.

`tools/check_release.py --tests all` builds the wheel of what is committed, installs it in environments of their own,
with every dependency at the lower bound that pyproject.toml declares and at its last release, and runs all tests there.
A failure is a test that fails. pip-audit then holds the packages of this environment against the advisories of PyPI; a
failure is an advisory. Models that were saved before are read by `reliability/files.py`.
"""

from __future__ import annotations

import argparse
import json
import re
import subprocess
import sys
from collections.abc import Iterator

import common
from common import Find, Trial

FINDS = (
    Find(
        "At the lowest versions eleven of all tests failed, though those marked `smoke` passed: the guide made sparse "
        "matrices by an argument that SciPy 1.13 does not know, tests asked scikit-learn 1.6 for what 1.7 has, and "
        "six of its own checks do something else there.",
        "the guide and the tests go with all versions.",
        "tests/docs/test_pages.py::test_the_examples_print_what_they_say",
    ),
)


def trials(options: argparse.Namespace) -> Iterator[Trial]:
    for resolution in ("lowest", "newest"):
        yield tested(resolution)
    yield audited()


def tested(resolution: str) -> Trial:
    """All tests with one choice of versions."""
    command = [sys.executable, "tools/check_release.py", "--tests", "all", "--resolution", resolution]
    done = subprocess.run(command, cwd=common.ROOT, capture_output=True, text=True)
    print(done.stdout[-3000:], flush=True)
    versions = re.search(rf"^{resolution}, (.*)$", done.stdout, re.MULTILINE)
    closing = done.stdout.rstrip().rpartition("\n")[2]
    counts = {word: int(number) for number, word in re.findall(r"(\d+) (passed|skipped)", closing)}
    if versions is None or "passed" not in counts:
        raise SystemExit(done.stdout + done.stderr)
    failures = re.findall(r"^(?:FAILED|ERROR) (.*)$", done.stdout, re.MULTILINE)
    skipped = f"; {counts['skipped']} skipped" if "skipped" in counts else ""
    return Trial(
        f"all tests, dependencies at their {resolution}",
        versions[1].replace("==", " ") + skipped,
        counts["passed"] + len(failures),
        failures,
    )


def audited() -> Trial:
    """Advisories against what is installed."""
    command = [sys.executable, "-m", "pip_audit", "--format", "json", "--progress-spinner", "off", "--skip-editable"]
    done = subprocess.run(command, capture_output=True, text=True)
    if "No module named" in done.stderr:
        raise SystemExit("pip-audit is missing: pip install 'kernelcrf[reliability]'")
    packages = json.loads(done.stdout)["dependencies"] if done.stdout.startswith("{") else []
    # What the service does not answer for is passed over, and must not count as clean.
    known = [package for package in packages if "skip_reason" not in package]
    trial = Trial("installed packages against the advisories of PyPI", "none is known")
    for package in known:
        advisories = [one["id"] for one in package["vulns"]]
        trial.check(not advisories, f"{package['name']}: {', '.join(advisories)}")
    if not known:
        trial.holds = "not tried: the service was not reached from the machine of these trials"
    return trial


if __name__ == "__main__":
    common.run(__doc__ or "", __file__, trials)
