"""Runs the benchmarks, each in a process of its own, and writes benchmarks/README.md from their results.

KERNELCRF_DATA=... python benchmarks/run.py [name ...]      all of them, or those named
python benchmarks/run.py --tables                           the README alone, from the results on file
"""

from __future__ import annotations

import os
import subprocess
import sys
from importlib import import_module
from pathlib import Path

import common

NAMES = (
    "training",
    "tagging",
    "streaming",
    "shell",
    "evaluation",
    "letters",
    "classifier",
    "growth",
    "graphs",
    "startup",
    "getting_started",
    "chain_inference",
    "missing_labels",
)
HEAD = """# Benchmarks

Each table is printed by the script that it names, which runs both sides in turn, in one process or in alternating ones.
Times are wall clock on a machine that others may use too: read the ratios. `python benchmarks/run.py` makes all of this
anew; `solvers.py` and `basis.py` have their tables in `docs/optimisation.md` and `docs/basis.md`.
"""


def main() -> None:
    folder, asked = Path(__file__).parent, [name for name in sys.argv[1:] if not name.startswith("-")]
    if "--tables" not in sys.argv:
        one_thread = os.environ | {"OPENBLAS_NUM_THREADS": "1", "NUMBA_NUM_THREADS": "1", "OMP_NUM_THREADS": "1"}
        for name in asked or NAMES:
            subprocess.run([sys.executable, str(folder / f"{name}.py")], check=True, env=one_thread)
    parts = [HEAD]
    for name in NAMES:
        results = common.load(name)
        if results is None:
            continue
        module = import_module(name)
        title, _, text = (module.__doc__ or "").strip().partition("\n\n")
        facts = ", ".join(f"{package} {value}" for package, value in results["environment"].items())
        parts.append(f"## {title.rstrip('.')}\n\n`{name}.py`. {text}\n\n{module.table(results)}\n\n*{facts}*\n")
    (folder / "README.md").write_text("\n".join(parts))


if __name__ == "__main__":
    main()
