"""Run many studies in one go, show the progress, and go on after an interruption.

A result on file is current if it was measured with the default options by the same code of the library: `common.code`
ignores docstrings and comments. Several studies run at a time, except those of speed that measure wall clock: they run
one at a time, when everything else has ended. The log of all runs is studies/run.log.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from studies import common
from studies.catalogue import CPU_TIME
from studies.common import ROOT

LOG = ROOT / "studies" / "run.log"


def is_current(name: str) -> bool:
    """Return whether the results on file are those of this code."""
    found = common.load(name)
    return found is not None and found.get("code") == common.code()


def minutes(name: str) -> float:
    """Return how long the run of the results on file took, or 5 minutes if that is not known."""
    return float((common.load(name) or {}).get("seconds", 300.0)) / 60


def runs_alone(name: str) -> bool:
    """Return whether a study shares the machine with no other."""
    return name.startswith("speed.") and name not in CPU_TIME


def tell(line: str) -> None:
    """Print a line with the time of day, and add it to the log."""
    stamped = f"{time.strftime('%H:%M:%S')} {line}"
    print(stamped, flush=True)
    with LOG.open("a", encoding="utf-8") as log:
        log.write(f"{stamped}\n")


def run_all(names: Sequence[str], processes: int) -> list[str]:
    """Run the studies that are not current, the longest first; return the names of those that failed."""
    waiting = sorted(
        (name for name in names if not is_current(name)), key=lambda name: (runs_alone(name), -minutes(name))
    )
    tell(f"commit {common.commit()}: {len(waiting)} studies to run, {len(names) - len(waiting)} are current")
    running: dict[str, tuple[subprocess.Popen[Any], float]] = {}
    failed = []
    while waiting or running:
        while waiting and len(running) < (1 if runs_alone(waiting[0]) else processes):
            name = waiting.pop(0)
            running[name] = start(name), time.perf_counter()
            tell(f"{name} started; {minutes(name):.0f} min last time")
        time.sleep(1)
        for name, (process, started) in list(running.items()):
            if process.poll() is None:
                continue
            del running[name]
            spent = (time.perf_counter() - started) / 60
            tell(f"{name} {'FAILED' if process.returncode else 'done'} in {spent:.1f} min; {len(waiting)} are waiting")
            failed += [name] if process.returncode else []
    return failed


def start(name: str) -> subprocess.Popen[Any]:
    """Start a study on one thread; what it prints goes to a file of its own in the cache."""
    one_thread = os.environ | {"OPENBLAS_NUM_THREADS": "1", "NUMBA_NUM_THREADS": "1", "OMP_NUM_THREADS": "1"}
    with Path(common.cache(common.code()) / f"{name}.txt").open("w", encoding="utf-8") as out:
        command = [sys.executable, "-m", "studies", name]
        return subprocess.Popen(command, cwd=ROOT, env=one_thread, stdout=out, stderr=subprocess.STDOUT)
