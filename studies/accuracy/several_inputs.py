"""Words and vectors in one model: sparse features of words beside MiniLM's vectors, for entities and for chunks.

Emerging entities, WNUT-17. Models are fitted to train for the choice of C on dev, then to train and dev; scores are
those of the test set. Features of words are the templates for entities of `accuracy.tagging_tasks`, about 93,000
columns; the vectors, 384 numbers per word from a frozen MiniLM, are standardised. The kernel on vectors is rbf with
gamma = 1 / (4 * 384) and 1,000 landmarks. The C of words, and of all weights without inputs, is 1. The C of vectors is
the one with the best F1 on dev, of 10, 100 and 1,000 for rbf, and of 0.001, 0.01 and 0.1 for the linear kernel. These
fits end at a certified gap of 1 %, and the last ones at 0.1 %. F1 is that of spans, as conlleval counts them; log-loss
is per token. p-values are those of differences in F1 to words and vectors by linear kernels, by bootstrap over
sentences. Seconds are CPU time of the last fit, on one thread.

Chunks, CoNLL-2000. Words are the rich templates of `accuracy.tagging_tasks`, with IOBES labels and C = 2, as in the
best row of that study; the vectors are standardised as above, and have a linear kernel. They are passed as a sparse
matrix, so that the dual solver can fit both inputs. The C of vectors is the one of 0.001, 0.01 and 0.1 with the best F1
on the last fifth of train, for models that are fitted to the first 3,000 sentences until the certified gap is 1 %. The
last model is fitted to train until the gap is 0.1 %. The temperature that divides scores is the one with the least
log-loss on the same fifth; it leaves the tags as they are. p-values are those of differences in F1 to words alone.

For its time, a run takes the C on file (`--choose 1` chooses them again), and keeps chunks on file, with the commit
that they are of; `--tasks rows,chunks` measures both. The test set is whole, so that standard errors stay the same.
"""

from __future__ import annotations

import argparse
import time
from typing import Any

import numpy as np
from scipy import sparse

from kernelcrf import ChainCRF, Input
from kernelcrf.metrics import log_loss, span_f1, spans
from studies import common
from studies.accuracy.tagging_tasks import (
    SEARCH_SENTENCES,
    TASKS,
    TEMPLATES,
    TOL,
    Data,
    Scored,
    f1_difference,
    iobes,
    parts_of,
    temper,
    tested,
)
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
CHUNKS: dict[str, tuple[float | None, ...]] = {"words": (None,), "words and vectors": (0.001, 0.01, 0.1)}
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


def chunk_parts() -> tuple[Data, Data, Data, Data]:
    """Return data to choose C, data to score the choice, and data to fit and to test the last model."""
    *_, train, test = parts_of(TASKS["chunking"], vectors=True)
    held_out = train.part(slice(len(train.y) - len(train.y) // 5, None))
    return train.part(slice(SEARCH_SENTENCES)), held_out, train, test


def fit_chunks(C: float | None, last: bool) -> Scored:
    """Fit words, and vectors unless C is None, and score the tokens of the held-out fifth, or of test if it is last."""
    part, held_out, train, test = chunk_parts()
    known, asked = (train, test) if last else (part, held_out)
    window = WindowFeatures(TEMPLATES["rich"])
    X, Z = {"words": window.fit_transform(known.columns)}, {"words": window.transform(asked.columns)}
    inputs = {"words": Input("linear")}
    if C is not None:
        V, U = (np.concatenate(data.vectors).astype(np.float64) for data in (known, asked))
        mean, scale = V.mean(axis=0), V.std(axis=0)
        X["vectors"], Z["vectors"] = (sparse.csr_array((rows - mean) / scale) for rows in (V, U))
        inputs["vectors"] = Input("linear", C=C)
    y = np.concatenate([iobes(tags) for tags in known.y])
    start = time.process_time()
    crf = ChainCRF(inputs=inputs, C=2.0, tol=TOL if last else SEARCH_TOL, random_state=0)
    crf.fit(X, y, lengths=known.lengths)
    seconds = time.process_time() - start
    print("chunks", C, last, X["words"].shape, f"{seconds:.0f} s", crf.n_iter_, crf.certificate_, flush=True)
    scores = sparse.csr_array(sparse.hstack(list(Z.values()))) @ crf.coef_
    return Scored(crf.classes_.tolist(), scores, crf.transitions_, True, seconds, crf.n_iter_)


def measure_chunks() -> dict[str, Any]:
    _, held_out, _, test = chunk_parts()

    def fitted(C: float | None, last: bool) -> Scored:
        return common.kept(f"several inputs chunks {C} {last}", lambda: fit_chunks(C, last))

    rows: dict[str, Any] = {}
    for name, values in CHUNKS.items():
        scores = {C: span_f1(held_out.y, fitted(C, False).predict(held_out)[0]) for C in values}
        print(name, scores, flush=True)
        C = max(scores, key=scores.__getitem__)
        model = fitted(C, True)
        rows[name] = tested(TASKS["chunking"], model, test) | {
            "tempered": temper(fitted(C, False), held_out, model, test),
            "C": C,
            "held_out": {f"{value}": score for value, score in scores.items()},
        }
        print(name, C, rows[name]["f1"], rows[name]["log_loss"], flush=True)
    for row in rows.values():
        row["difference"], row["p"] = f1_difference(row["counts"], rows["words"]["counts"])
        for one in (row, row["tempered"]):
            del one["reliability"]
    for row in rows.values():
        del row["counts"]
    return rows


def measure(options: argparse.Namespace) -> dict[str, Any]:
    """Measure the tasks that the options name; the others keep their results on file."""
    known = common.load("accuracy.several_inputs") or {}
    asked = options.tasks.split(",")
    found = {"rows": known.get("rows", {}), "chunks": known.get("chunks", {}), "commits": {}}
    if "rows" in asked:
        found["rows"] = measure_entities({} if options.choose else found["rows"])
    if "chunks" in asked:
        found["chunks"] = measure_chunks()
    for task in {"rows", "chunks"} - set(asked):
        found["commits"][task] = known.get("commits", {}).get(task, known.get("commit"))
    return found


def measure_entities(known: dict[str, Any]) -> dict[str, Any]:
    """Return the rows of the first table; those on file have the C of each."""
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
    return {name: {k: v for k, v in row.items() if k != "counts"} for name, row in rows.items()}


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
    header = ["inputs", "F1", "log-loss", "C of the last input", "difference in F1 (p)", "CPU seconds"]
    chunks = {"commit": commit} if (commit := results.get("commits", {}).get("chunks")) else {}
    return f"""## Words and vectors in one model

Emerging entities, WNUT-17: F1 of spans and log-loss per token on the test set, for models of one or two inputs. All
weights are fitted together.

{common.markdown(header, lines)}

C is chosen by F1 on dev, and a large C makes probabilities too sure: `TemperatureScaling` mends the log-loss.
{chunks_section(results["chunks"], common.marked("Chunks, CoNLL-2000", chunks)) if results.get("chunks") else ""}"""


def chunks_section(rows: dict[str, Any], title: str) -> str:
    lines = [
        [
            name,
            f"{100 * row['f1']:.2f}",
            f"{100 * row['accuracy']:.2f}",
            f"{row['log_loss']:.4f}",
            f"{row['tempered']['log_loss']:.4f}",
            "" if name == "words" else f"{row['C']:g}",
            "" if name == "words" else f"{100 * row['difference']:+.2f} ({row['p']:.3f})",
            f"{row['fit_seconds']:.0f}",
        ]
        for name, row in rows.items()
    ]
    header = ["inputs", "F1", "accuracy", "log-loss", "with temperature", "C of vectors", "difference in F1 (p)"]
    tried = "; ".join(f"{float(C):g}: {100 * f1:.2f}" for C, f1 in rows["words and vectors"]["held_out"].items())
    words = 100 * rows["words"]["held_out"]["None"]
    return f"""
{title}: rich templates and IOBES labels. Both inputs are sparse matrices for the dual solver.

{common.markdown([*header, "CPU seconds"], lines)}

F1 on the held-out fifth, by the C of vectors: {tried}; words alone: {words:.2f}.
"""


OPTIONS = {"tasks": "rows", "choose": 0}
