"""Two tagging tasks with sparse features: chunks (CoNLL-2000) and emerging entities (WNUT-17).

chunking   train 8,936 sentences, test 2,012; C chosen on the last tenth of train, then refitted on all of it
entities   train 3,394 posts; C chosen on dev, then refitted on train and dev; test 1,287

C is chosen among fits to the first 3,000 sentences that are not held out. Models, with the penalty chosen on the same
held-out part and by the same score (F1 of spans):

per token        logistic regression per token (scikit-learn, L-BFGS), no structure; linear, since a kernel on
                 hundreds of thousands of sparse columns, most of them rare, adds only products of columns, for
                 which there are templates; on entities alone
CRFsuite         a linear CRF, by L-BFGS until its own test of convergence or 400 iterations
kernelcrf        ChainCRF("linear"), the same features and labels: the same model, fitted by the dual solver to 0.1 %

The penalty is C = 1 / (2 c2) throughout, the best of three values for each model. Scores are token accuracy, F1 of
spans as conlleval counts them (kernelcrf.metrics), and log-loss and expected calibration error of token marginals
(15 bins). Seconds are CPU time of the final fit on one thread, from sparse matrices, or from lists of names for
CRFsuite, to weights. I-LST, which training never shows, is left out of log-loss and calibration (2 tokens of the test
set). p-values: bootstrap over sentences of the test set.

For its time, a run takes C and the temperature on file, and `--choose 1` chooses them again.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
from scipy import sparse
from sklearn.linear_model import LogisticRegression

from kernelcrf import ChainCRF
from kernelcrf.datasets import load_conll2000, load_wnut17
from kernelcrf.graphs.structure import Chains
from kernelcrf.inference import chain, decoding
from kernelcrf.metrics import expected_calibration_error, log_loss, span_f1, spans
from studies import common
from studies.accuracy.baselines import CRFsuite
from studies.accuracy.embeddings import minilm
from studies.accuracy.text_features import WindowFeatures, attributes

TOL = 1e-3
SEARCH_SENTENCES = 3000
TEMPERATURES = (1.0, 1.2, 1.4, 1.6, 1.8, 2.0, 2.5, 3.0)
LAYERS = (1, 2, 3, 4)


@dataclass(frozen=True)
class Data:
    """Hold sentences: attributes by name, IOB2 tags, and MiniLM's vectors (T, 384) if read."""

    columns: dict[str, list[list[str]]]
    y: list[list[str]]
    vectors: list[np.ndarray]

    @property
    def lengths(self) -> list[int]:
        return [len(one) for one in self.y]

    def part(self, chosen: slice) -> Data:
        columns = {name: values[chosen] for name, values in self.columns.items()}
        return Data(columns, self.y[chosen], self.vectors[chosen])

    def __add__(self, other: Data) -> Data:
        columns = {name: self.columns[name] + other.columns[name] for name in self.columns}
        return Data(columns, self.y + other.y, self.vectors + other.vectors)


def read(load: Callable[..., Any], subset: str, vectors: bool) -> Data:
    found = load(subset)
    columns = attributes([[token["word"] for token in one] for one in found.X])
    if "pos" in found.X[0][0]:
        columns["p"] = [[token["pos"] for token in one] for one in found.X]
    y = [np.asarray(one).tolist() for one in found.y]
    if not vectors:
        return Data(columns, y, [])
    rows = np.asarray(minilm(columns["w"], layers=LAYERS), np.float32).mean(axis=1)
    return Data(columns, y, np.split(rows, np.cumsum([len(one) for one in y])[:-1]))


@dataclass(frozen=True)
class Task:
    """Hold one task: its templates, the values of C that are tried, and the models that are fitted."""

    name: str
    title: str
    load: Callable[..., Any]
    templates: str
    values: tuple[float, ...]
    models: tuple[str, ...]
    published: str


@cache
def parts_of(task: Task, vectors: bool) -> tuple[Data, Data, Data, Data]:
    """Return data to fit candidates, to choose among them, to fit the last model, and to test it."""
    train, test = (read(task.load, subset, vectors) for subset in ("train", "test"))
    if task.name == "chunking":
        cut = len(train.y) - len(train.y) // 10
        return train.part(slice(cut)), train.part(slice(cut, None)), train, test
    dev = read(task.load, "dev", vectors)
    return train, dev, train + dev, test


def window(name: str, *at: int) -> list[str]:
    return [f"{name}[{k}]" for k in at]


AROUND = (-2, -1, 0, 1, 2)
# The template of CRFsuite's and crfsgd's chunking examples.
USUAL = [
    *window("w", *AROUND),
    *window("p", *AROUND),
    *("w[-1]|w[0]", "w[0]|w[1]"),
    *("p[-2]|p[-1]", "p[-1]|p[0]", "p[0]|p[1]", "p[1]|p[2]"),
    *("p[-2]|p[-1]|p[0]", "p[-1]|p[0]|p[1]", "p[0]|p[1]|p[2]"),
]
ENTITIES = [
    *window("l", -1, 0, 1),
    *window("s", -1, 0, 1),
    *window("k", *AROUND),
    *(f"{side}{n}[0]" for side in "az" for n in (2, 3, 4)),
    *("k[-1]|k[0]|k[1]", "l[-1]|k[0]", "k[0]|l[1]"),
]
TEMPLATES = {"usual": USUAL, "entities": ENTITIES}


Predicted = tuple[list[list[str]], list[np.ndarray], list[str]]


@dataclass(frozen=True)
class Scored:
    """Hold scores of a fitted ChainCRF on data: tags, scores (N, L) of tokens and (L, L) of steps."""

    classes: list[str]
    s: np.ndarray
    w: np.ndarray
    seconds: float
    n_iter: int

    def predict(self, data: Data, temperature: float = 1.0) -> Predicted:
        """Return tags by Viterbi, marginals (T, L) per sentence of the scores / temperature, and their columns."""
        chains, s, w = Chains.from_lengths(data.lengths), self.s / temperature, self.w / temperature
        best, P, at = decoding.viterbi(s, w, chains)[0], chain.moments(s, w, chains).nodes, chains.offsets[1:-1]
        tags = [[self.classes[k] for k in one] for one in np.split(best, at)]
        return tags, np.split(P, at), self.classes


@dataclass(frozen=True)
class Told:
    """Hold predictions of a model that is no longer there."""

    predictions: Predicted
    seconds: float
    n_iter: int

    def predict(self, data: Data) -> Predicted:
        return self.predictions


def fit_chain(known: Data, asked: Data, templates: str, C: float) -> Scored:
    window = WindowFeatures(TEMPLATES[templates])
    X = window.fit_transform(known.columns)
    start = time.process_time()
    crf = ChainCRF("linear", C=C, tol=TOL).fit(X, np.concatenate(known.y), lengths=known.lengths)
    seconds, scores = time.process_time() - start, window.transform(asked.columns) @ crf.coef_
    return Scored(crf.classes_.tolist(), scores, crf.transitions_, seconds, crf.n_iter_)


def fit_crfsuite(known: Data, asked: Data, templates: str, C: float) -> Told:
    window = WindowFeatures(TEMPLATES[templates])
    X, Z = rows_of(window.fit_transform(known.columns), known), rows_of(window.transform(asked.columns), asked)
    start = time.process_time()
    model = CRFsuite(c2=1 / (2 * C), max_iterations=MAX_ITERATIONS).fit(X, known.y)
    seconds = time.process_time() - start
    tags = [one.tolist() for one in model.predict(Z)]
    return Told((tags, model.predict_proba(Z), model.classes_.tolist()), seconds, model.n_iter_)


def fit_per_token(known: Data, asked: Data, templates: str, C: float) -> Told:
    window = WindowFeatures(TEMPLATES[templates])
    X = window.fit_transform(known.columns)
    start = time.process_time()
    model = LogisticRegression(C=C, max_iter=1000).fit(X, np.concatenate(known.y))
    seconds, classes = time.process_time() - start, model.classes_.tolist()
    P = np.split(model.predict_proba(window.transform(asked.columns)), np.cumsum(asked.lengths)[:-1])
    return Told(([[classes[k] for k in one.argmax(axis=1)] for one in P], P, classes), seconds, int(model.n_iter_[0]))


def rows_of(X: sparse.csr_array, data: Data) -> list[sparse.csr_array]:
    ends = np.cumsum(data.lengths)
    return [X[end - length : end] for end, length in zip(ends, data.lengths, strict=True)]


FITS: dict[str, Callable[..., Any]] = {"per token": fit_per_token, "CRFsuite": fit_crfsuite, "kernelcrf": fit_chain}
MAX_ITERATIONS = 400
GPSTRUCT = ("basenp", "chunking", "segmentation", "japanesene")
INTRODUCTION = f"""Linear CRFs on sparse features are the strength of CRFsuite. All models of a task have the same
features. C is the value with the best F1 of spans on held-out data: the last tenth of the training sentences of
CoNLL-2000, and the dev set of WNUT-17. The last fits are to all training sentences, for WNUT-17 also to dev.

- *per token*: logistic regression of single tokens.
- *CRFsuite*: fitted until its own test of convergence, or for {MAX_ITERATIONS} iterations.
- *kernelcrf*: `ChainCRF("linear")`, fitted to a certified gap of 0.1 %. The tags are the likeliest labelling.
- *kernelcrf, tempered*: the same fit, with its scores divided by a temperature that has the best held-out log-loss.

The last column has the F1 of a row minus that of kernelcrf. Its p-values are those of a bootstrap over test sentences,
of which 0.001 is the least."""
PRACTICE = """\
In practice: for sparse features use `ChainCRF("linear")`, and `TemperatureScaling` if probabilities matter. [Vectors of
a frozen language model](#words-and-vectors-in-one-model) beside the words can raise the F1 of entities further."""
TASKS = {
    task.name: task
    for task in (
        Task(
            "chunking",
            "Chunking, CoNLL-2000",
            load_conll2000,
            "usual",
            (1.0, 3.0, 10.0),
            ("CRFsuite", "kernelcrf"),
            "SVM with a polynomial kernel 93.48, eight SVMs voting 93.91, regularised Winnow 94.13 (F1)",
        ),
        Task(
            "entities",
            "Emerging entities, WNUT-17",
            load_wnut17,
            "entities",
            (3.0, 10.0, 30.0),
            ("per token", "CRFsuite", "kernelcrf"),
            "shared task 26.30 to 41.86 (F1), with embeddings or lists of names",
        ),
    )
}


def tested(model: Any, data: Data) -> dict[str, Any]:
    """Return scores on the test set, and counts per sentence for the bootstrap."""
    predicted, P, classes = model.predict(data)
    both = [(set(spans(a)), set(spans(b))) for a, b in zip(data.y, predicted, strict=True)]
    return {
        "accuracy": common.accuracy(common.right_tokens(predicted, data.y)),
        **losses(data, P, classes),
        "fit_seconds": model.seconds,
        "f1": span_f1(data.y, predicted),
        "counts": [(len(a & b), len(a), len(b)) for a, b in both],
    }


def losses(data: Data, P: list[np.ndarray], classes: list[str]) -> dict[str, Any]:
    """Return log-loss, calibration error and reliability of marginals."""
    known = [[tag if tag in classes else None for tag in one] for one in data.y]
    return {
        "log_loss": log_loss(known, P, classes),
        "ece": expected_calibration_error(known, P, classes),
        "reliability": reliability(known, P, classes),
    }


def reliability(y: Sequence[Sequence[Any]], P: Sequence[np.ndarray], classes: Sequence[str]) -> dict[str, Any]:
    """Return tokens, mean confidence and accuracy of 15 bins of confidence."""
    flat = np.concatenate(P)
    labels = np.array([classes.index(tag) if tag in classes else -1 for one in y for tag in one])
    confidence, hit = flat.max(axis=1), flat.argmax(axis=1) == labels
    bins = np.minimum((confidence * 15).astype(int), 14)
    tokens = np.bincount(bins, minlength=15)
    used = np.maximum(tokens, 1)
    return {
        "tokens": tokens,
        "confidence": np.bincount(bins, confidence, 15) / used,
        "accuracy": np.bincount(bins, hit, 15) / used,
    }


def search_and_test(task: Task, name: str, known: dict[str, Any]) -> dict[str, Any]:
    """Choose C on the held-out part, fit once more and test.

    known : the row on file, whose held-out scores and temperature are taken.
    """
    part, held_out, train, test = parts_of(task, False)

    def fitted(C: float, last: bool) -> Any:
        sides = (train, test) if last else (part.part(slice(SEARCH_SENTENCES)), held_out)
        work = lambda: FITS[name](*sides, task.templates, C)  # noqa: E731
        return common.kept(f"tagging {task.name} {name} {C} {'test' if last else 'held out'}", work)

    def score(C: float) -> float:
        on_file = known.get("held_out", {}).get(f"{C}")
        return span_f1(held_out.y, fitted(C, False).predict(held_out)[0]) if on_file is None else on_file

    scores = {C: score(C) for C in task.values}
    best = max(scores, key=scores.__getitem__)
    model = fitted(best, True)
    result = tested(model, test)
    if isinstance(model, Scored):
        same = known.get("chosen") == f"{best}"
        temperature = known["tempered"]["temperature"] if same else temperature_of(fitted(best, False), held_out)
        _, P, classes = model.predict(test, temperature)
        result["tempered"] = losses(test, P, classes) | {"temperature": temperature}
    return result | {
        "n_iter": model.n_iter,
        "chosen": f"{best}",
        "held_out": {f"{C}": value for C, value in scores.items()},
    }


def temperature_of(model: Scored, held_out: Data) -> float:
    """Return the temperature of the least held-out log-loss; Viterbi's tags stay the same."""

    def loss(temperature: float) -> float:
        _, P, classes = model.predict(held_out, temperature)
        return float(losses(held_out, P, classes)["log_loss"])

    return min(TEMPERATURES, key=loss)


def f1_difference(ours: Any, theirs: Any, n_draws: int = 2000) -> tuple[float, float]:
    """Return the difference of two F1 (or accuracies) on one test set, and its p by resampling sentences."""
    a, b = np.asarray(ours, float), np.asarray(theirs, float)

    def f1(counts: np.ndarray) -> np.ndarray:
        return 2 * counts[..., 0] / (counts[..., 1] + counts[..., 2])

    draws = np.random.default_rng(0).integers(len(a), size=(n_draws, len(a)))
    differences = np.array([f1(a[k].sum(axis=0)) - f1(b[k].sum(axis=0)) for k in draws])
    return float(f1(a.sum(axis=0)) - f1(b.sum(axis=0))), common.tail_p(differences)


def measure(options: argparse.Namespace) -> dict[str, Any]:
    known = {} if options.choose else (common.load("accuracy.tagging_tasks") or {}).get("tasks", {})
    found: dict[str, Any] = {}
    for task in TASKS.values():
        rows: dict[str, Any] = {}
        for name in task.models:
            rows[name] = search_and_test(task, name, known.get(task.name, {}).get(name, {}))
            print(task.name, name, rows[name]["f1"], rows[name]["fit_seconds"], flush=True)
        for name, row in rows.items():
            if name != "kernelcrf":
                row["difference"], row["p"] = f1_difference(row["counts"], rows["kernelcrf"]["counts"])
        found[task.name] = {
            name: {key: value for key, value in row.items() if key != "counts"} for name, row in rows.items()
        }
    return {"tasks": found}


def section(results: dict[str, Any]) -> str:
    parts = ["## Tagging text: chunks and entities", INTRODUCTION]
    header = ["model", "F1", "accuracy", "log-loss", "ECE, %", "C", "fit, CPU s", "F1 beside kernelcrf (p)"]
    for task in TASKS.values():
        rows = results["tasks"][task.name]
        lines = [
            [
                name,
                f"{100 * row['f1']:.2f}",
                f"{100 * row['accuracy']:.2f}",
                f"{row['log_loss']:.4f}",
                f"{100 * row['ece']:.2f}",
                f"{float(row['chosen']):g}",
                f"{row['fit_seconds']:.0f}",
                "" if "p" not in row else f"{100 * row['difference']:+.2f} ({row['p']:.3f})",
            ]
            for name, row in rows.items()
        ]
        tempered, same = rows["kernelcrf"]["tempered"], lines[list(rows).index("kernelcrf")]
        scores = [f"{tempered['log_loss']:.4f}", f"{100 * tempered['ece']:.2f}"]
        lines.append([f"kernelcrf, tempered by {tempered['temperature']:g}", *same[1:3], *scores, same[5], "", ""])
        parts += [
            f"### {task.title}",
            common.markdown(header, lines),
            f"Published: {task.published}. CRFsuite ended after {rows['CRFsuite']['n_iter']} iterations.",
        ]
    parts += ["![Reliability of token marginals](figures/reliability_tagging.png)", finding(results["tasks"]), PRACTICE]
    return "\n\n".join(parts)


def finding(tasks: dict[str, Any]) -> str:
    """Return what the two tasks show, in words."""
    pairs = [(tasks[name]["kernelcrf"], tasks[name]["CRFsuite"]) for name in TASKS]
    beyond = sum(theirs["p"] < 0.05 for _, theirs in pairs)
    share = 100 * sum(ours["fit_seconds"] for ours, _ in pairs) / sum(theirs["fit_seconds"] for _, theirs in pairs)
    too_sure = sum(ours["tempered"]["temperature"] > 1 for ours, _ in pairs)
    return f"""\
CRFsuite and kernelcrf minimise nearly the same objective. Both have a weight for each pair of a feature and a label
that occurs in training. CRFsuite has weights for the transitions that occur, kernelcrf for all transitions. The
difference in F1 is beyond chance (p < 0.05) on {beyond or "none"} of {len(pairs)} tasks; the fits of kernelcrf take
{share:.0f} % of CRFsuite's CPU time.

C is chosen for the F1 of spans, not for probabilities. These are too sure on {too_sure or "none"} of {len(pairs)}
tasks: the best temperature is above 1. Dividing the scores by it does not change the tags.

{on_kernels()}"""


def on_kernels() -> str:
    """Return a note on kernels for sparse features, with the result of another study."""
    note = "Kernels were not tried on these two data sets."
    found = common.load("accuracy.gpstruct")
    if found is None:
        return note
    errors = [
        [np.mean([run["error"] for run in found[task][row]]) for row in ("kernelcrf rbf", "kernelcrf linear")]
        for task in GPSTRUCT
    ]
    better = sum(rbf < linear for rbf, linear in errors)
    return f"""{note} On the sparse features of
[GPstruct's tasks](results/gpstruct.md#the-four-tasks-of-gpstruct), an rbf kernel has fewer wrong labels than a linear
one on {better or "none"} of {len(errors)}."""


def figure(results: dict[str, Any]) -> None:
    with common.picture("reliability_tagging", 1, len(TASKS), dpi=130, figsize=(8, 4.2), sharey=True) as (_, axes):
        for ax, task in zip(axes, TASKS.values(), strict=True):
            ax.plot([0, 1], [0, 1], color="0.6", linewidth=1, linestyle=":")
            rows = results["tasks"][task.name]
            for colour, marker, (name, row) in zip(common.COLOURS, "sov", rows.items(), strict=False):
                shown = [(row["reliability"], "-", name)]
                if "tempered" in row:
                    shown.append((row["tempered"]["reliability"], "--", "the same, tempered"))
                for bins, style, label in shown:
                    enough = np.asarray(bins["tokens"]) >= 20
                    x, y = np.asarray(bins["confidence"])[enough], np.asarray(bins["accuracy"])[enough]
                    ax.plot(x, y, style, color=colour, marker=marker, markersize=4, linewidth=1.2, label=label)
            ax.set(xlabel="confidence", title=task.title)
            ax.legend(frameon=False, fontsize=8, loc="upper left")
        axes[0].set_ylabel("accuracy")


OPTIONS = {"choose": 0}
