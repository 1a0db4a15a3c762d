"""The time to a first result: the README's installation and examples, to the letter, in a fresh environment.

The wheel of this tree is built beforehand. Then three steps are timed. A virtual environment is made. `pip install`
gets the wheel with all that it needs, nothing from pip's cache; its time depends on the connection and on the disk,
too. A new process runs all examples of the README line by line, and compares what they print. The first process finds
no compiled loops and compiles them; the second one finds them on disk.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from studies import common
from studies.common import ROOT

LINES = """
import doctest, json, sys, time
from pathlib import Path

examples = doctest.DocTestParser().get_examples(Path(sys.argv[1]).read_text(encoding="utf-8"))
names, seconds = {}, {}
for example in examples:
    test = doctest.DocTest([example], names, "README", None, 0, None)
    start = time.perf_counter()
    found = doctest.DocTestRunner(verbose=False).run(test, clear_globs=False)
    seconds[example.source.strip()] = time.perf_counter() - start
    names = test.globs
    assert found.failed == 0, example.source
print(json.dumps(seconds))
"""


def measure(options: argparse.Namespace) -> dict[str, Any]:
    with tempfile.TemporaryDirectory() as name:
        work, found = Path(name), {}
        pip("wheel", "--quiet", "--no-deps", "--wheel-dir", str(work), str(ROOT), python=sys.executable)
        wheel = next(work.glob("*.whl"))
        python = str(work / "env" / ("Scripts" if os.name == "nt" else "bin") / "python")
        found["environment made"] = common.seconds(lambda: subprocess.run([sys.executable, "-m", "venv", work / "env"]))
        found["installed"] = common.seconds(
            lambda: pip("install", "--quiet", "--no-cache-dir", str(wheel), python=python)
        )
        found["first"], found["second"] = lines(python, work), lines(python, work)
        freeze = subprocess.run([python, "-m", "pip", "list", "--format", "json"], capture_output=True, check=True)
        found["packages"] = len(json.loads(freeze.stdout))
        found["MB"] = sum(file.stat().st_size for file in (work / "env").rglob("*") if file.is_file()) / 1e6
    return found


def lines(python: str, work: Path) -> dict[str, float]:
    """Return the seconds of each line of the README in a new process."""
    command = [python, "-I", "-c", LINES, str(ROOT / "README.md")]
    return json.loads(subprocess.run(command, cwd=work, stdout=subprocess.PIPE, check=True).stdout)


def pip(*arguments: str, python: str) -> None:
    subprocess.run([python, "-m", "pip", *arguments], check=True, stderr=subprocess.DEVNULL)


def table(results: dict[str, Any]) -> str:
    first, second = results["first"], results["second"]

    def of(start: str) -> list[str]:
        return [f"{sum(s for line, s in side.items() if line.startswith(start)):.1f}" for side in (first, second)]

    rows = [
        ["a virtual environment", f"{results['environment made']:.1f}", ""],
        ["`pip install`", f"{results['installed']:.1f}", ""],
        ["the imports", *of("from kernelcrf")],
        ["the fit to numbers", *of("crf = ChainCRF")],
        ["the fit to text, which needs other loops", *of("tagger = ChainCRF")],
        ["all lines", f"{sum(first.values()):.1f}", f"{sum(second.values()):.1f}"],
    ]
    total = results["environment made"] + results["installed"] + sum(first.values())
    note = (
        f"It takes {total:.0f} s from nothing to the last line, and every line printed what the README says. The "
        f"environment has {results['packages']} packages and {results['MB']:,.0f} MB, with pip itself, bytecode and "
        "compiled loops."
    )
    return common.markdown(["seconds", "first process", "second process"], rows) + f"\n\n{note}"
