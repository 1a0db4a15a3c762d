"""What a fresh process waits for: imports, the first fit after installation, the first fit of every later process.

An import is the wall time of a whole interpreter that does nothing else, files in the page cache, bytecode written;
beside it stand the packages without which no estimator of this kind can be loaded, and CRFsuite's. `without pandas`
hides pandas from the same interpreter: scikit-learn loads it wherever it finds it.

The fits are of 60 sequences of 10 tokens, L = 5. The first process finds no compiled loops and compiles them; the later
ones find them on disk. What they spend beyond a second, identical fit is the loading of those.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np

import common
from kernelcrf import ChainCRF

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
BAR = 1.0


def child(code: str, **variables: str) -> str:
    """What a fresh interpreter prints."""
    inherited = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    command = [sys.executable, "-c", code]
    here = Path(__file__).parent
    return subprocess.run(
        command, cwd=here, env=inherited | variables, stdout=subprocess.PIPE, text=True, check=True
    ).stdout


def import_times(rounds: int) -> dict[str, dict[str, float]]:
    """Median seconds of each import, with everything that is installed and without pandas."""
    there = {
        name: code
        for name, code in IMPORTS.items()
        if name != "CRFsuite" or importlib.util.find_spec("sklearn_crfsuite") is not None
    }
    sides = {(name, hidden): hidden + code for name, code in there.items() for hidden in ("", HIDDEN)}
    for code in sides.values():
        child(code)
    found = common.turns({key: lambda code=code: child(code) for key, code in sides.items()}, rounds)
    return {name: {"all": found[name, ""], "without pandas": found[name, HIDDEN]} for name in there}


def fit_twice(kind: str) -> None:
    """Run in a fresh process: print the seconds of a first and of a second fit."""
    rng = np.random.default_rng(0)
    y = [rng.integers(0, 5, 10) for _ in range(60)]
    X: list[Any] = [np.eye(5)[labels] + 0.5 * rng.normal(size=(10, 5)) for labels in y]
    if kind == "dicts":
        X = [[{"word": f"w{rng.integers(50)}", "hint": str(label)} for label in labels] for labels in y]
    crf = ChainCRF("rbf" if kind == "rbf" else "linear", n_components=100, random_state=0)
    print(json.dumps([common.seconds(lambda: crf.fit(X, y)) for _ in range(2)]))


def fit_times(kind: str, rounds: int) -> dict[str, float]:
    """Seconds of the first fit with no loops compiled, once; medians over later processes."""
    with tempfile.TemporaryDirectory() as cache:
        cold, *warm = (
            json.loads(child(f"import startup; startup.fit_twice({kind!r})", NUMBA_CACHE_DIR=cache))
            for _ in range(1 + rounds)
        )
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
        [f"`{IMPORTS[name]}`", f"{row['all']:.2f}", f"{row['without pandas']:.2f}", f"{BAR}" * (name == "kernelcrf")]
        for name, row in results["imports"].items()
    ]
    fits = [
        [kind, f"{row['compiling']:.1f}", *(f"{row[name]:.2f}" for name in ("first", "second", "overhead")), f"{BAR}"]
        for kind, row in results["fits"].items()
    ]
    return "\n".join(
        [
            common.markdown(["a fresh interpreter, s", "all installed", "without pandas", "bar"], imports),
            "",
            common.markdown(
                ["a fit, s", "compiling", "first of a process", "second", "first less second", "bar"], fits
            ),
            "",
            f"Compiling is measured once, all else is a median of {results['rounds']} rounds.",
        ]
    )


if __name__ == "__main__":
    common.run(__doc__, __file__, measure, table, rounds=5)
