"""Compatibility: the oldest and the newest dependencies, and the advisories against them.

`tools/check_release.py --tests all` builds the wheel of what is committed, and installs it in two fresh environments.
One has every dependency at the lower bound that pyproject.toml declares, and the other has its last release. All tests
run there, and a failure is a test that fails. The bounds are those of the commit that the last lines of this page name.
pip-audit then compares the installed packages with the advisories of PyPI, and a failure is an advisory.
"""

from __future__ import annotations

import argparse
import json
import re
import subprocess
import sys
from collections.abc import Iterator

from studies import common
from studies.common import Trial


def trials(options: argparse.Namespace) -> Iterator[Trial]:
    for resolution in ("lowest", "newest"):
        yield run_tests(resolution)
    yield audit()


def run_tests(resolution: str) -> Trial:
    """Run all tests with one choice of versions."""
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
    holds = versions[1].replace("==", " ") + skipped
    return Trial(f"all tests, dependencies at their {resolution}", holds, counts["passed"] + len(failures), failures)


def audit() -> Trial:
    """Look for advisories against the installed packages."""
    command = [sys.executable, "-m", "pip_audit", "--format", "json", "--progress-spinner", "off", "--skip-editable"]
    done = subprocess.run(command, capture_output=True, text=True)
    if "No module named" in done.stderr:
        raise SystemExit("pip-audit is missing: pip install 'kernelcrf[studies]'")
    packages = json.loads(done.stdout)["dependencies"] if done.stdout.startswith("{") else []
    # Packages that the service does not know must not count as clean.
    known = [package for package in packages if "skip_reason" not in package]
    trial = Trial("installed packages against the advisories of PyPI", "none is known")
    for package in known:
        advisories = [one["id"] for one in package["vulns"]]
        trial.check(not advisories, f"{package['name']}: {', '.join(advisories)}")
    if not known:
        trial.holds = "not tried: the service was not reached from the machine of these trials"
    return trial
