"""Branch coverage: lines and branches of src that no test goes through.

The tests run under coverage, branches counted, child processes too; those of the compiled loops run once more without
the compiler (NUMBA_DISABLE_JIT=1), for Numba's machine code cannot be watched. A failure is less than 95 % of all lines
and branches together. `--quick 1` measures the loops alone; `--data FILE` reports what runs in slices have collected.

What is not gone through was looked at: refusals of arguments that the estimators have refused before, of model files
that only a forger makes, and of packages that are not installed; systems without fork or signals; branches of loops
that end early by rounding alone; and what workers of a cluster do before they are killed, which nobody can count.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import common
from common import Trial

LEAST = 95.0
# Problems that are small enough for loops in plain Python.
LOOPS = [
    *(
        f"tests/inference/test_{name}.py"
        for name in ("chain", "clique_tree", "decoding", "feasibility", "gibbs", "loopy")
    ),
    *("tests/inference/test_tangents.py", "tests/partitions/test_fused.py", "tests/solvers/test_dual.py"),
    *("tests/basis/test_distinct.py", "tests/basis/test_entries.py", "tests/basis/test_folded.py"),
]


def trials(options: argparse.Namespace) -> Iterator[Trial]:
    with tempfile.TemporaryDirectory() as folder:
        found = report(Path(options.data)) if options.data else measured(Path(folder), quick=bool(options.quick))
    totals = found["totals"]
    trial = Trial("lines and branches of src", "")
    trial.times = totals["num_statements"] + totals["num_branches"]
    share = totals["percent_covered"]
    lines = 100 * totals["covered_lines"] / totals["num_statements"]
    branches = 100 * totals["covered_branches"] / totals["num_branches"]
    trial.holds = f"{share:.1f} % of both; lines {lines:.1f} %, branches {branches:.1f} %"
    if share < LEAST:
        trial.failures.append(f"{share:.1f} %: expected {LEAST:g} %")
    yield trial
    files = {name: file["summary"] for name, file in found["files"].items()}
    low = {name: one["percent_covered"] for name, one in files.items() if one["percent_covered"] < LEAST}
    shown = "; ".join(
        f"{Path(name).name} {share:.0f} %" for name, share in sorted(low.items(), key=lambda item: item[1])
    )
    yield Trial(f"files of src below {LEAST:g} %", shown or "none", times=len(files))


def measured(folder: Path, *, quick: bool) -> dict[str, dict]:
    """The report of coverage over both runs."""
    environment = os.environ | {"COVERAGE_FILE": str(folder / "data"), "OPENBLAS_NUM_THREADS": "1"}
    run = [sys.executable, "-m", "coverage", "run", "-m", "pytest", "-q", "-p", "no:cacheprovider"]
    # Speed is none of the promises that are kept under a tracer, nor in plain Python.
    run += ["--ignore", "tests/test_speed.py", "-n", "2", "--dist", "loadfile"]
    if not quick:
        subprocess.run(run, cwd=common.ROOT, env=environment, check=False)
    plain = environment | {"NUMBA_DISABLE_JIT": "1"}
    quiet = ["-W", "ignore::RuntimeWarning", "-k", "not memory and not bits and not threads"]
    subprocess.run([*run, *LOOPS, *quiet], cwd=common.ROOT, env=plain, check=False)
    subprocess.run([sys.executable, "-m", "coverage", "combine", "-q"], cwd=common.ROOT, env=environment, check=True)
    return report(folder / "data")


def report(data: Path) -> dict[str, dict]:
    """What a file of coverage says."""
    environment = os.environ | {"COVERAGE_FILE": str(data)}
    command = [sys.executable, "-m", "coverage", "json", "-q", "-o", "-"]
    done = subprocess.run(command, cwd=common.ROOT, env=environment, check=True, capture_output=True, text=True)
    return json.loads(done.stdout)


if __name__ == "__main__":
    common.run(__doc__ or "", __file__, trials, quick=0, data="")
