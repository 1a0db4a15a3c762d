"""Small models: how far the elastic net shrinks a model of chunks, beside CRFsuite.

The first 1,500 training sentences of CoNLL-2000 with the default templates of the command line, C = 1, and `l1` of
ChainCRF beside c1 of CRFsuite (with c2 = 1 / (2 C)): both minimise the same objective. Ours ends at a certified gap of
0.1 %, CRFsuite by its own rule, without a limit of iterations. F1 of chunks is that of the whole test set; p-values are
those of differences to `l1=0` of the same library, by bootstrap over sentences. Weights are those that are not zero, a
file is what `save`, or CRFsuite, writes. Seconds are CPU time of the fit from lists of names, on one thread. To save
time, there are 1,500 sentences, not 3,000 as earlier, without l1 = 0.1 and 3. The test set is the same, so that
p-values are as sharp.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np

from kernelcrf import ChainCRF, datasets
from kernelcrf.metrics import span_f1, spans
from kernelcrf.penalties import ElasticNet
from studies import common
from studies.accuracy.baselines import CRFsuite
from studies.accuracy.defaults import text
from studies.accuracy.tagging_tasks import f1_difference

L1 = (0.0, 0.3, 1.0)
OPTIONS = {"sentences": 1500}


def ours(X: list[Any], y: list[Any], l1: float) -> tuple[Any, dict[str, Any]]:
    """Return a fitted ChainCRF, with its seconds, its weights that are not zero, and the size of its file."""
    start = time.process_time()
    crf = ChainCRF("linear", C=1.0, penalty=ElasticNet(l1), tol=1e-3).fit(X, y)
    seconds = time.process_time() - start
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "model.safetensors"
        crf.save(path)
        size = path.stat().st_size
    weights = np.count_nonzero(crf.coef_) + np.count_nonzero(crf.transitions_)
    return crf, {"seconds": seconds, "weights": weights, "bytes": size, "gap": crf.certificate_.relative_gap}


def crfsuite(X: list[Any], y: list[Any], c1: float) -> tuple[Any, dict[str, Any]]:
    """Return the same for CRFsuite."""
    start = time.process_time()
    model = CRFsuite(c1=c1, c2=0.5, max_iterations=2**31 - 1).fit(X, y)
    seconds = time.process_time() - start
    info = model.tagger.info()
    weights = len(info.state_features) + len(info.transitions)
    return model, {"seconds": seconds, "weights": weights, "bytes": model.path.stat().st_size}


SIDES = {"kernelcrf": ours, "CRFsuite": crfsuite}


def measure(options: argparse.Namespace) -> dict[str, Any]:
    train, tests = next(text(datasets.load_conll2000, "word", "pos"))
    (X, y), (Z, z) = (train.X, train.y), (tests[""].X, tests[""].y)
    truth, n = [one.tolist() for one in z], options.sentences
    found: dict[str, Any] = {}
    for side, fit in SIDES.items():
        counts: dict[float, Any] = {}
        for l1 in L1:
            model, row = fit(X[:n], y[:n], l1)
            tags = [np.asarray(one).tolist() for one in model.predict(Z)]
            both = [(set(spans(a)), set(spans(b))) for a, b in zip(truth, tags, strict=True)]
            counts[l1] = [(len(a & b), len(a), len(b)) for a, b in both]
            row["f1"] = span_f1(truth, tags)
            row["p"] = f1_difference(counts[l1], counts[L1[0]])[1] if l1 else None
            found.setdefault(side, {})[f"{l1:g}"] = row
            print(side, l1, row, flush=True)
    return {"rows": found, "sentences": n}


def section(results: dict[str, Any]) -> str:
    lines = [
        [
            f"{side}, {'l1' if side == 'kernelcrf' else 'c1'} = {l1}",
            f"{100 * row['f1']:.2f}",
            "" if row["p"] is None else f"{row['p']:.3f}",
            f"{row['weights']:,}",
            f"{row['bytes'] / 1e6:.1f}",
            f"{row['seconds']:.0f}",
            f"{row['gap']:.1e}" if "gap" in row else "",
        ]
        for side, rows in results["rows"].items()
        for l1, row in rows.items()
    ]
    header = ["model", "F1", "p of F1 against no l1", "weights not 0", "file, MB", "CPU seconds", "certified gap"]
    ours, theirs = results["rows"]["kernelcrf"], results["rows"]["CRFsuite"]
    apart = max(abs(100 * (ours[l1]["f1"] - theirs[l1]["f1"])) for l1 in ours)
    share = 100 * sum(row["seconds"] for row in ours.values()) / sum(row["seconds"] for row in theirs.values())
    smallest = [min(row["bytes"] for row in rows.values()) / 1e6 for rows in (ours, theirs)]
    return f"""## Small models by the elastic net

`l1`, in CRFsuite `c1`, makes weights zero, so that a model needs a smaller file. To save time, the fits are to the
first {results["sentences"]:,} training sentences of CoNLL-2000; the test set is whole. F1 is that of chunks, and
p-values are those of a bootstrap over sentences.

{common.markdown(header, lines)}

With the same penalty, the F1 of the two libraries differs by at most {apart:.2f} points; the fits of kernelcrf take
{share:.0f} % of CRFsuite's CPU time. The smallest file has {smallest[0]:.1f} MB, and CRFsuite's {smallest[1]:.1f} MB:
files of kernelcrf keep the names of all features, also of those whose weights are all zero.
"""
