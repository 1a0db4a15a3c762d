"""Branch coverage: lines and branches of src that no test executes.

The tests run under coverage of lines and branches, child processes too. The tests of the compiled loops run once more
without the compiler, because coverage cannot watch machine code. A failure is less than 95 % of all lines and branches
together.

The lines that no test executes were read. Some refuse arguments that the estimators have refused before, model files
that only a forger makes, or packages that are not installed. Others serve systems without fork or signals, end loops
early by rounding alone, or run in workers of a cluster that are then killed.
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

from studies import common
from studies.common import Trial

LEAST = 95.0
# Tests whose problems are small enough for loops in plain Python.
LOOPS = [
    *(
        f"tests/inference/test_{one}.py"
        for one in ["chain", "clique_tree", "decoding", "feasibility", "gibbs", "loopy", "tangents"]
    ),
    *("tests/partitions/test_fused_chains.py", "tests/solvers/test_dual.py"),
    *(f"tests/basis/test_{one}.py" for one in ("distinct_inputs", "sparse_entries", "kernel_weights")),
]
# `quick` 1 measures the loops alone; `data` names a file that earlier runs have collected.
OPTIONS = {"quick": 0, "data": ""}


def trials(options: argparse.Namespace) -> Iterator[Trial]:
    with tempfile.TemporaryDirectory() as folder:
        data = Path(options.data) if options.data else collect(Path(folder), quick=bool(options.quick))
        command = [sys.executable, "-m", "coverage", "json", "-q", "-o", "-"]
        environment = os.environ | {"COVERAGE_FILE": str(data)}
        done = subprocess.run(command, cwd=common.ROOT, env=environment, check=True, capture_output=True, text=True)
    found = json.loads(done.stdout)
    totals, share = found["totals"], found["totals"]["percent_covered"]
    lines = 100 * totals["covered_lines"] / totals["num_statements"]
    branches = 100 * totals["covered_branches"] / totals["num_branches"]
    trial = Trial(
        "lines and branches of src",
        f"{share:.1f} % of both; lines {lines:.1f} %, branches {branches:.1f} %",
        totals["num_statements"] + totals["num_branches"],
    )
    if share < LEAST:
        trial.failures.append(f"{share:.1f} %: expected {LEAST:g} %")
    yield trial
    shares = {Path(name).name: file["summary"]["percent_covered"] for name, file in found["files"].items()}
    low = sorted((share, name) for name, share in shares.items() if share < LEAST)
    shown = "; ".join(f"{name} {share:.0f} %" for share, name in low)
    yield Trial(f"files of src below {LEAST:g} %", shown or "none", times=len(found["files"]))


def collect(folder: Path, *, quick: bool) -> Path:
    """Run the tests under coverage, with the compiler and without it, and return the file of coverage."""
    environment = os.environ | {"COVERAGE_FILE": str(folder / "data"), "OPENBLAS_NUM_THREADS": "1"}
    run = [sys.executable, "-m", "coverage", "run", "-m", "pytest", "-q", "-p", "no:cacheprovider"]
    # Promises of speed do not hold under a tracer.
    run += ["--ignore", "tests/test_speed.py", "-n", "2", "--dist", "loadfile"]
    if not quick:
        subprocess.run(run, cwd=common.ROOT, env=environment, check=False)
    plain = environment | {"NUMBA_DISABLE_JIT": "1"}
    quiet = ["-W", "ignore::RuntimeWarning", "-k", "not memory and not bits and not threads"]
    subprocess.run([*run, *LOOPS, *quiet], cwd=common.ROOT, env=plain, check=False)
    subprocess.run([sys.executable, "-m", "coverage", "combine", "-q"], cwd=common.ROOT, env=environment, check=True)
    return folder / "data"
