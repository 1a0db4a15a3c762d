"""Parsing of US addresses, with the features of the package usaddress.

Five folds of the training data of usaddress, by address. The features are those of `usaddress.tokens2features`, so this
package must be installed. usaddress trains CRFsuite with c1 = 0.1 and c2 = 0.01; `crfsuite.CRF` has the same parameters
and ends at a certified gap of 0.1 %. *All pairs* means weights also for features and labels, and for neighbouring
labels, that do not occur together (`all_possible_states=True`, `all_possible_transitions=True`); there, the gap of
`crfsuite.CRF` is 1 %. ChainCRF has no L1 penalty; its transitions always have all weights. `--only` measures the rows
whose name contains a text, and keeps the others. Scores are the percentages of tokens and of whole addresses with the
right labels. Seconds are the CPU time of the five fits, on one thread; the size is that of the model of the first fold
as a file of CRFsuite.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.model_selection import KFold

from kernelcrf import ChainCRF
from kernelcrf.crfsuite import CRF
from kernelcrf.datasets import load_us_addresses
from studies import common

PENALTIES = {"c1": 0.1, "c2": 0.01}
ALL = {"all_possible_states": True, "all_possible_transitions": True}
MODELS: dict[str, Callable[[], Any]] = {
    "CRFsuite, c1 = 0.1, c2 = 0.01": lambda: Peer(**PENALTIES),
    "crfsuite.CRF, c1 = 0.1, c2 = 0.01": lambda: CRF(epsilon=1e-3, **PENALTIES),
    "the same, all pairs": lambda: CRF(epsilon=1e-2, **ALL, **PENALTIES),
    "ChainCRF, C = 5, all pairs": lambda: ChainCRF("linear", C=5.0, tol=1e-3, weights="all"),
    "ChainCRF()": lambda: ChainCRF(random_state=0),
}


class Peer:
    """CRFsuite as parsers train it, from feature dicts, which may be nested, or from lists of feature names."""

    def __init__(self, **parameters: float) -> None:
        self.parameters = parameters

    def fit(self, X: list[Any], y: list[Any]) -> Peer:
        import pycrfsuite

        trainer = pycrfsuite.Trainer(verbose=False, params=self.parameters)
        for one, labels in zip(X, y, strict=True):
            trainer.append(pycrfsuite.ItemSequence(one), labels)
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "model"
            trainer.train(str(path))
            self.model = path.read_bytes()
        self.tagger = pycrfsuite.Tagger()
        self.tagger.open_inmemory(self.model)
        return self

    def predict(self, X: list[Any]) -> list[Any]:
        import pycrfsuite

        return [self.tagger.tag(pycrfsuite.ItemSequence(one)) for one in X]

    def save(self, path: Path) -> None:
        path.write_bytes(self.model)


def whole(right: list[np.ndarray]) -> float:
    """Return the share of addresses whose tokens are all right."""
    return float(np.mean([one.all() for one in right]))


def run(name: str, folds: int) -> dict[str, Any]:
    """Fit one model to each fold; return scores, CPU seconds and the size of a model."""
    import usaddress

    data = load_us_addresses("train")
    X = [usaddress.tokens2features([token["word"] for token in one]) for one in data.X]
    y = [one.tolist() for one in data.y]
    MODELS[name]().fit(X[:20], y[:20])
    right: list[np.ndarray] = []
    found: dict[str, Any] = {"seconds": 0.0, "folds": []}
    for train, test in list(KFold(5, shuffle=True, random_state=0).split(X))[:folds]:
        start = time.process_time()
        model = MODELS[name]().fit([X[i] for i in train], [y[i] for i in train])
        found["seconds"] += time.process_time() - start
        own = common.right_tokens(model.predict([X[i] for i in test]), [y[i] for i in test])
        found["folds"].append([common.accuracy(own), whole(own)])
        right += own
        if len(found["folds"]) == 1:
            with tempfile.TemporaryDirectory() as folder:
                path = Path(folder) / "model.crfsuite"
                (model.crf_ if isinstance(model, CRF) else model).save(path)
                found["kB"] = path.stat().st_size / 1e3
    return found | {"tokens": common.accuracy(right), "addresses": whole(right)}


def measure(options: argparse.Namespace) -> dict[str, Any]:
    one_thread = dict.fromkeys(("OMP_NUM_THREADS", "NUMBA_NUM_THREADS"), "1")
    known = (common.load("accuracy.addresses") or {}).get("rows", {}) if options.only else {}
    found = {name: known[name] for name in MODELS if name in known}
    for name in [name for name in MODELS if options.only in name]:
        found[name] = common.in_process(run, name, options.folds, **one_thread)
        print(name, found[name], flush=True)
    return {"rows": found}


def section(results: dict[str, Any]) -> str:
    rows = [
        [
            name,
            *(f"{100 * row[key]:.2f}" for key in ("tokens", "addresses")),
            f"{row['seconds']:.0f}",
            f"{row['kB']:.0f}",
        ]
        for name, row in results["rows"].items()
    ]
    table = common.markdown(["model", "tokens", "addresses", "CPU seconds", "model, kB"], rows)
    return f"""## US addresses

1,513 addresses, 29 labels, five folds; per cent of tokens, and of whole addresses, with the right labels, CPU seconds
of the five fits, and the size of a model as a file of CRFsuite. The features and penalties are those of the package
usaddress, which ships a model of CRFsuite.

{table}

With the same weights, `crfsuite.CRF` and CRFsuite make the same labels but for a few. *All pairs*, which also have
weights for features and labels, and for neighbouring labels, that do not occur together, are a little better here; an
L1 penalty then keeps the model small.
"""


OPTIONS = {"folds": 5, "only": ""}
