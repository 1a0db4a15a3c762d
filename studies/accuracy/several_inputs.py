"""Words and vectors in one model: sparse features of words beside MiniLM's vectors, for entities.

Emerging entities, WNUT-17. Models are fitted to train for the choice of C on dev, then to train and dev; scores are
those of the test set. Features of words are the templates for entities of `accuracy.tagging_tasks`, about 93,000
columns; the vectors, 384 numbers per word from a frozen MiniLM, are standardised. The kernel on vectors is rbf with
gamma = 1 / (4 * 384) and 1,000 landmarks. The C of words, and of all weights without inputs, is 1. The C of vectors is
the one with the best F1 on dev, of 10, 100 and 1,000 for rbf, and of 0.001, 0.01 and 0.1 for the linear kernel. These
fits end at a certified gap of 1 %, and the last ones at 0.1 %. F1 is that of spans, as conlleval counts them; log-loss
is per token. p-values are those of differences in F1 to words and vectors by linear kernels, by bootstrap over
sentences. Seconds are CPU time of the last fit, on one thread.

For its time, a run takes the C on file, and `--choose 1` chooses them again.
"""

from __future__ import annotations

import argparse
import time
from typing import Any

import numpy as np

from kernelcrf import ChainCRF, Input
from kernelcrf.metrics import log_loss, span_f1, spans
from studies import common
from studies.accuracy.tagging_tasks import TASKS, TEMPLATES, TOL, Data, f1_difference, parts_of
from studies.accuracy.text_features import WindowFeatures

WORDS, LINEAR = {"words": Input("linear")}, Input("linear")
KERNEL = Input("rbf", gamma=1 / (4 * 384), n_components=1000)
MODELS: dict[str, tuple[dict[str, Input], tuple[float, ...]]] = {
    "words": (WORDS, (1.0,)),
    "vectors, rbf": ({"vectors": KERNEL}, (10.0, 100.0, 1000.0)),
    "words and vectors, linear": (WORDS | {"vectors": LINEAR}, (0.001, 0.01, 0.1)),
    "words, linear, and vectors, rbf": (WORDS | {"vectors": KERNEL}, (10.0, 100.0, 1000.0)),
}
REFERENCE = "words and vectors, linear"
SEARCH_TOL = 1e-2


def inputs_of(known: Data, asked: Data) -> list[dict[str, Any]]:
    """Return the inputs of all tokens for training and for prediction."""
    window = WindowFeatures(TEMPLATES["entities"])
    words = window.fit_transform(known.columns), window.transform(asked.columns)
    V, U = (np.concatenate(data.vectors).astype(np.float64) for data in (known, asked))
    mean, scale = V.mean(axis=0), V.std(axis=0)
    return [{"words": own, "vectors": (rows - mean) / scale} for own, rows in zip(words, (V, U), strict=True)]


def run(name: str, C: float, last: bool) -> dict[str, Any]:
    """Fit a model; return its scores on dev, or on test if it is the last fit."""
    part, held_out, train, test = parts_of(TASKS["entities"], vectors=True)
    known, asked = (train, test) if last else (part, held_out)
    X, Z = inputs_of(known, asked)
    inputs = {key: Input(**own.get_params(deep=False)) for key, own in MODELS[name][0].items()}
    inputs[next(reversed(inputs))].set_params(C=C)
    start = time.process_time()
    crf = ChainCRF(inputs=inputs, C=1.0, tol=TOL if last else SEARCH_TOL, random_state=0)
    crf.fit(X, np.concatenate(known.y), lengths=known.lengths)
    seconds = time.process_time() - start
    tags = [labels.tolist() for labels in crf.predict(Z, lengths=asked.lengths)]
    both = [(set(spans(a)), set(spans(b))) for a, b in zip(asked.y, tags, strict=True)]
    P = crf.predict_proba(Z, lengths=asked.lengths)
    return {
        "f1": span_f1(asked.y, tags),
        "log_loss": log_loss(asked.y, P, crf.classes_.tolist()),
        "seconds": seconds,
        "counts": [(len(a & b), len(a), len(b)) for a, b in both],
    }


def measure(options: argparse.Namespace) -> dict[str, Any]:
    known = {} if options.choose else (common.load("accuracy.several_inputs") or {}).get("rows", {})
    one_thread = dict.fromkeys(("OMP_NUM_THREADS", "NUMBA_NUM_THREADS"), "1")

    def fitted(name: str, C: float, last: bool) -> dict[str, Any]:
        key = f"several inputs {name} {C} {last}"
        return common.kept(key, lambda: common.in_process(run, name, C, last, **one_thread))

    rows: dict[str, Any] = {}
    for name, (_, values) in MODELS.items():
        if name in known:
            C, dev = known[name]["C"], known[name]["dev"]
        else:
            scores = {C: fitted(name, C, False)["f1"] for C in values} if len(values) > 1 else {}
            C, dev = max(values, key=lambda C: scores.get(C, 0.0)), {f"{k:g}": value for k, value in scores.items()}
        rows[name] = fitted(name, C, True) | {"C": C, "dev": dev}
        print(name, C, rows[name]["f1"], rows[name]["log_loss"], flush=True)
    for row in rows.values():
        row["difference"], row["p"] = f1_difference(row["counts"], rows[REFERENCE]["counts"])
    return {"rows": {name: {k: v for k, v in row.items() if k != "counts"} for name, row in rows.items()}}


def section(results: dict[str, Any]) -> str:
    lines = [
        [
            name,
            f"{100 * row['f1']:.2f}",
            f"{row['log_loss']:.4f}",
            f"{row['C']:g}",
            "" if name == REFERENCE else f"{100 * row['difference']:+.2f} ({row['p']:.3f})",
            f"{row['seconds']:.0f}",
        ]
        for name, row in results["rows"].items()
    ]
    header = ["inputs", "F1", "log-loss", "C of the last input", f"F1 beside *{REFERENCE}* (p)", "CPU seconds"]
    return f"""## Words and vectors in one model

Entities of WNUT-17: F1 of spans and log-loss per token on the test set, for chains with one or two inputs, whose
weights are fitted together. *Words* are the features of [the first section](#tagging-text-chunks-and-entities);
*vectors* are those of a frozen MiniLM.

{common.markdown(header, lines)}

The C of words is 1 and not tuned, so that the F1 of words alone is not that of the first section. The C of vectors is
the value with the best F1 on dev; `TemperatureScaling` helps if it makes probabilities too sure. The last fits are to
train and dev, the labels are the likeliest labelling, and p-values are those of a bootstrap over sentences.
"""


OPTIONS = {"choose": 0}
