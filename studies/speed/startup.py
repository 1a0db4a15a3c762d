"""Waiting in a fresh process: imports, the first fit after installation, the first fit of every later process.

An import is the wall time of a whole interpreter that does nothing else. Files are in the page cache, and bytecode is
written. The table also has the packages that every estimator of this kind needs, and CRFsuite's. *Without pandas* hides
pandas from the same interpreter: scikit-learn loads it wherever it finds it.

The fits are of 60 sequences of 10 tokens with five labels. The first process after installation finds no compiled loops
and compiles them; later processes load them from disk. The last column says how long this loading takes: it is the time
of the first fit of a process, minus that of a second, identical fit.
"""

from __future__ import annotations

import argparse
import importlib.util
import os
import subprocess
import sys
import tempfile
from typing import Any

import numpy as np

from kernelcrf import ChainCRF
from studies import common

IMPORTS = {
    "nothing": "pass",
    "kernelcrf": "import kernelcrf",
    "ChainCRF": "from kernelcrf import ChainCRF",
    "NumPy and SciPy": "import numpy, scipy.sparse",
    "Numba": "import numba",
    "scikit-learn": "import sklearn.base",
    "CRFsuite": "import sklearn_crfsuite",
}
HIDDEN = "import sys; sys.modules['pandas'] = None; "
FITS = ("rbf", "linear", "dicts")


def run_code(code: str) -> None:
    """Run code in a fresh interpreter that may write bytecode."""
    inherited = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    subprocess.run([sys.executable, "-c", code], cwd=common.ROOT, env=inherited, check=True)


def import_times(rounds: int) -> dict[str, dict[str, float]]:
    """Return the median seconds of each import, with everything that is installed and without pandas."""
    there = {
        name: code
        for name, code in IMPORTS.items()
        if name != "CRFsuite" or importlib.util.find_spec("sklearn_crfsuite") is not None
    }
    sides = {(name, hidden): hidden + code for name, code in there.items() for hidden in ("", HIDDEN)}
    for code in sides.values():
        run_code(code)
    found = common.side_by_side({key: lambda code=code: run_code(code) for key, code in sides.items()}, rounds)
    return {name: {"all": found[name, ""], "without pandas": found[name, HIDDEN]} for name in there}


def fit_twice(kind: str) -> list[float]:
    """Return the seconds of a first and of a second fit."""
    rng = np.random.default_rng(0)
    y = [rng.integers(0, 5, 10) for _ in range(60)]
    X: list[Any] = [np.eye(5)[labels] + 0.5 * rng.normal(size=(10, 5)) for labels in y]
    if kind == "dicts":
        X = [[{"word": f"w{rng.integers(50)}", "hint": str(label)} for label in labels] for labels in y]
    crf = ChainCRF("rbf" if kind == "rbf" else "linear", n_components=100, random_state=0, C=1.0)
    return [common.seconds(lambda: crf.fit(X, y)) for _ in range(2)]


def fit_times(kind: str, rounds: int) -> dict[str, float]:
    """Return the seconds of the first fit with no loops compiled, once, and medians over later processes."""
    with tempfile.TemporaryDirectory() as cache:
        cold, *warm = (common.in_process(fit_twice, kind, NUMBA_CACHE_DIR=cache) for _ in range(1 + rounds))
    first, second = np.median(warm, axis=0)
    return {"compiling": cold[0], "first": first, "second": second, "overhead": first - second}


def measure(options: argparse.Namespace) -> dict[str, Any]:
    return {
        "rounds": options.rounds,
        "imports": import_times(options.rounds),
        "fits": {kind: fit_times(kind, options.rounds) for kind in FITS},
    }


def table(results: dict[str, Any]) -> str:
    imports = [
        [f"`{IMPORTS[name]}`", f"{row['all']:.2f}", f"{row['without pandas']:.2f}"]
        for name, row in results["imports"].items()
    ]
    fits = [
        [kind, f"{row['compiling']:.1f}", *(f"{row[name]:.2f}" for name in ("first", "second", "overhead"))]
        for kind, row in results["fits"].items()
    ]
    return "\n".join(
        [
            common.markdown(["a fresh interpreter, s", "all installed", "without pandas"], imports),
            "",
            common.markdown(["a fit, s", "compiling", "first in a later process", "second", "loading of loops"], fits),
            "",
            f"Compiling is measured once; everything else is a median of {results['rounds']} rounds.",
        ]
    )


OPTIONS = {"rounds": 5}
