"""Runs the trials, each in a process of its own, and writes docs/reliability.md from their results.

python reliability/run.py [name ...]      all of them, or those named
python reliability/run.py --tables        the page alone, from the results on file
"""

from __future__ import annotations

import os
import subprocess
import sys
from importlib import import_module
from pathlib import Path

import common

PARTS = (
    "findings",
    "numerics",
    "concurrency",
    "interruption",
    "files",
    "compatibility",
    "mutation",
    "branches",
)
HEAD = """# Reliability

What was tried to break kernelcrf, how many times, what failed before, and what holds now. Each table is written by
`python reliability/run.py` from the results that the part's own script left in `reliability/results/`; quick versions
of the trials run with the tests. *Failed before* counts the same trials on the commit named below the table, before the
faults that they brought to light were mended; each of those has a test that failed then.
"""


def main() -> None:
    folder, asked = Path(__file__).parent, [name for name in sys.argv[1:] if not name.startswith("-")]
    failed = []
    if "--tables" not in sys.argv:
        one_thread = os.environ | {"OPENBLAS_NUM_THREADS": "1", "NUMBA_NUM_THREADS": "1", "OMP_NUM_THREADS": "1"}
        for name in asked or PARTS:
            if subprocess.run([sys.executable, str(folder / f"{name}.py")], env=one_thread).returncode:
                failed.append(name)
    (common.ROOT / "docs" / "reliability.md").write_text("\n".join(page()))
    if failed:
        raise SystemExit(f"failures in {', '.join(failed)}: docs/reliability.md counts them")


def page() -> list[str]:
    """The sections of the page."""
    parts = [HEAD]
    for name in PARTS:
        results, earlier = common.load(name), common.load(name, before=True)
        if results is None:
            continue
        module = import_module(name)
        title, _, text = (module.__doc__ or "").strip().partition("\n\n")
        parts.append(f"## {title.rstrip('.')}\n\n{text}\n\n{common.table(name)}\n")
        if found := getattr(module, "FINDS", ()):
            parts.append(f"What was found, and mended:\n\n{common.finds(found)}\n")
        facts = ", ".join(f"{package} {value}" for package, value in results["environment"].items())
        before = f"; before: {earlier['commit']}" if earlier else ""
        run = f"`python reliability/{name}.py`, {results['seconds'] / 60:.0f} min, commit {results['commit']}{before}"
        parts.append(f"*{run}; {facts}.*\n")
    return parts


if __name__ == "__main__":
    main()
