"""Linear models at small and large C, beside CRFsuite, and the search for C.

The features of the first training sentences of WNUT-17 and of CoNLL-2000 are made by the default templates of the
command line. Each fit goes from lists of feature names to weights, on one thread, in a process of its own. Seconds are
CPU time, which other work on the machine disturbs less. Our fit ends at a certified gap of 0.1 %. CRFsuite has c2 = 1 /
(2 C), no limit of iterations, and ends by its own rule.

*auto* is the fit with C="auto", which first tries powers of 10 on held-out sequences. In rows with *auto*, the last
column is another ratio: the time with the search for C, divided by the time of another fit with the found C alone.
"""

from __future__ import annotations

import argparse
import subprocess
import time
from typing import Any

from kernelcrf.datasets import load_conll2000, load_wnut17
from kernelcrf.formats import default_templates
from studies import common

DATA = {"WNUT-17": (load_wnut17, ("word",)), "CoNLL-2000": (load_conll2000, ("word", "pos"))}
CS = (0.1, 1.0, 10.0, 100.0)
MOST = 5


def data(name: str, most: int | None) -> tuple[list[Any], list[list[str]]]:
    load, columns = DATA[name]
    found = load("train")
    cells = [[[token[column] for column in columns] for token in one] for one in found.X[:most]]
    return default_templates(len(columns)).features(cells), [one.tolist() for one in found.y[:most]]


def ours(name: str, C: float | str, most: int | None) -> dict[str, float]:
    from kernelcrf import ChainCRF

    X, y = data(name, most)
    for tol in (0.1, 1e-6):  # loads the loops for single and for double precision
        ChainCRF("linear", C="auto", tol=tol).fit(X[:50], y[:50])
    start = time.process_time()
    model = ChainCRF("linear", C=C, tol=1e-3, random_state=0).fit(X, y)
    return {"seconds": time.process_time() - start, "gap": model.certificate_.relative_gap, "C": model.C_}


def crfsuite(name: str, C: float, most: int | None, limit: float) -> dict[str, float]:
    import resource

    from studies.accuracy.baselines import CRFsuite

    X, y = data(name, most)
    start = time.process_time()
    resource.setrlimit(resource.RLIMIT_CPU, (int(start + limit) + 1, resource.RLIM_INFINITY))
    model = CRFsuite(c2=1 / (2 * C), max_iterations=2**31 - 1).fit(X, y)
    return {"seconds": time.process_time() - start, "iterations": model.n_iter_}


def fits(name: str, C: float | str, most: int | None) -> dict[str, Any]:
    """Return a row of the table: our fit, and CRFsuite's or one fit with the C that was found."""
    start, one_thread = time.perf_counter(), dict.fromkeys(("OMP_NUM_THREADS", "NUMBA_NUM_THREADS"), "1")
    row = {"data": name, "C": C, "ours": common.in_process(ours, name, C, most, **one_thread)}
    if C == "auto":
        row["one fit"] = common.in_process(ours, name, row["ours"]["C"], most, **one_thread)
    else:
        limit = MOST * row["ours"]["seconds"]
        try:
            row["crfsuite"] = common.in_process(crfsuite, name, C, most, limit, **one_thread)
        except subprocess.CalledProcessError:
            row["crfsuite"] = {"seconds": limit, "iterations": None}
    return row | {"seconds": time.perf_counter() - start}


def measure(options: argparse.Namespace) -> dict[str, Any]:
    most, rows = options.sentences or None, []
    for name in options.data.split(","):
        for C in (*CS, "auto"):
            key = f"penalties {name} {C} {options.sentences}"
            rows.append(common.kept(key, lambda name=name, C=C: fits(name, C, most)))
            print(table({"rows": rows[-1:]}).splitlines()[-1], flush=True)
    return {"sentences": options.sentences, "rows": rows}


def table(results: dict[str, Any]) -> str:
    rows = []
    for row in results["rows"]:
        seconds, other = row["ours"]["seconds"], row.get("crfsuite", row.get("one fit"))
        name = f"auto: {row['ours']['C']:g}" if row["C"] == "auto" else f"{row['C']:g}"
        stopped = "> " if other.get("iterations", 0) is None else ""
        theirs = f"{stopped}{other['seconds']:.1f}" if "crfsuite" in row else ""
        ratio = other["seconds"] / seconds if "crfsuite" in row else seconds / other["seconds"]
        gap, ratio = f"{row['ours']['gap']:.1e}", f"{stopped}{ratio:.1f}x"
        rows.append([row["data"], name, f"{seconds:.1f}", gap, theirs, ratio])
    header = ["data", "C", "our CPU seconds", "certified gap", "CRFsuite's CPU seconds", "ratio"]
    text = f"{results.get('sentences', 3000):,} sentences of each."
    if any(">" in row[-1] for row in rows):
        text += f' A ">" marks fits of CRFsuite that were stopped after {MOST} times our seconds.'
    return f"{text}\n\n{common.markdown(header, rows)}"


OPTIONS = {"sentences": 1000, "data": ",".join(DATA)}
