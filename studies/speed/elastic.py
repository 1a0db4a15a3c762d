"""The elastic net at the penalties that parsers of text use, beside CRFsuite.

The data are bibliographic references (AnyStyle), US addresses with the features of usaddress, and sentences of
CoNLL-2000 with 19 feature names per token. Both sides minimise the same function, with the penalties c1 |theta|_1 + c2
|theta|^2, so that C = 1 / (2 c2). Seconds are CPU time on one thread, from Python lists to weights, each side in a
process of its own. One fit of ours ends at a certified gap of 1 %, and another at 0.1 %; the numbers in brackets say
how many times as long CRFsuite takes. CRFsuite makes 300 iterations. The last column says by how much its objective
then exceeds the lower bound of our second fit.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from pathlib import Path
from typing import Any

from sklearn.base import clone

from kernelcrf.datasets import load_us_addresses
from studies import common
from studies.datasets import load_references, reference_features
from studies.speed.training import data as chunks


def references() -> tuple[list[Any], list[list[str]]]:
    found = load_references()
    return [reference_features([token["word"] for token in one]) for one in found.X], [one.tolist() for one in found.y]


def addresses() -> tuple[list[Any], list[list[str]]]:
    import usaddress

    found = load_us_addresses("train")
    words = [[token["word"] for token in one] for one in found.X]
    return [usaddress.tokens2features(one) for one in words], [one.tolist() for one in found.y]


def sentences() -> tuple[list[Any], list[list[str]]]:
    X, y = chunks("train")
    return X[:3000], y[:3000]


ELASTIC = {"references": references, "US addresses": addresses, "CoNLL-2000; 3000 sentences": sentences}
PENALTIES = ((0.1, 0.01), (1.0, 0.1))
TOLERANCES = (1e-2, 1e-3)
ITERATIONS = 300


def ours(name: str, c1: float, c2: float) -> dict[str, dict[str, float]]:
    """Return what fits to each of TOLERANCES took and reached."""
    from kernelcrf import ChainCRF
    from kernelcrf.penalties import ElasticNet

    X, y = ELASTIC[name]()
    model = ChainCRF("linear", C=1 / (2 * c2), penalty=ElasticNet(c1), weights=("observed", "observed"))
    clone(model).set_params(tol=0.5).fit(X[:50], y[:50])
    fits = {}
    for tol in TOLERANCES:
        start = time.process_time()
        found = clone(model).set_params(tol=tol).fit(X, y).certificate_
        fits[f"{tol:g}"] = {
            "seconds": time.process_time() - start,
            "objective": found.objective,
            "bound": found.lower_bound,
            "gap": found.relative_gap,
        }
    return fits


def crfsuite(name: str, c1: float, c2: float) -> dict[str, float]:
    import pycrfsuite

    X, y = ELASTIC[name]()
    start = time.process_time()
    trainer = pycrfsuite.Trainer(verbose=False, params={"c1": c1, "c2": c2, "max_iterations": ITERATIONS})
    for one, labels in zip(X, y, strict=True):
        trainer.append(pycrfsuite.ItemSequence(one), labels)
    with tempfile.TemporaryDirectory() as folder:
        trainer.train(str(Path(folder) / "model"))
    last = trainer.logparser.last_iteration
    return {"seconds": time.process_time() - start, "objective": last["loss"], "iterations": last["num"]}


def fits(name: str, c1: float, c2: float) -> dict[str, Any]:
    """Return a row of the table."""
    start, one_thread = time.perf_counter(), dict.fromkeys(("OMP_NUM_THREADS", "NUMBA_NUM_THREADS"), "1")
    row = {"data": name, "c1": c1, "c2": c2, "ours": common.in_process(ours, name, c1, c2, **one_thread)}
    row["crfsuite"] = common.in_process(crfsuite, name, c1, c2, **one_thread)
    return row | {"seconds": time.perf_counter() - start}


def measure(options: argparse.Namespace) -> dict[str, Any]:
    rows = []
    for name in options.data.split(","):
        for c1, c2 in PENALTIES:
            rows.append(
                common.kept(f"elastic net {name} {c1} {c2}", lambda name=name, c1=c1, c2=c2: fits(name, c1, c2))
            )
            print(table({"rows": rows[-1:]}).splitlines()[-1], flush=True)
    return {"seconds": sum(row["seconds"] for row in rows), "rows": rows}


def table(results: dict[str, Any]) -> str:
    rows = []
    for row in results["rows"]:
        (one, tenth), theirs = row["ours"].values(), row["crfsuite"]
        ratios = [f"{fit['seconds']:.1f} ({theirs['seconds'] / fit['seconds']:.1f}x)" for fit in (one, tenth)]
        above = f"{100 * (theirs['objective'] / tenth['bound'] - 1):.1f} %"
        values = f"{tenth['objective']:,.1f}", f"{theirs['seconds']:.1f}", f"{theirs['objective']:,.1f}", above
        rows.append([row["data"], f"{row['c1']:g}, {row['c2']:g}", *ratios, *values])
    ours, theirs = ["our CPU seconds to 1 %", "to 0.1 %", "objective"], ["CRFsuite's CPU seconds", "its objective"]
    return common.markdown(["data", "c1, c2", *ours, *theirs, "above the bound by"], rows)


OPTIONS = {"data": ",".join(ELASTIC)}
