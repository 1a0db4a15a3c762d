"""Three tagging tasks with sparse features: chunks (CoNLL-2000), emerging entities (WNUT-17), parts of speech (UD EWT).

chunking   train 8,936 sentences, test 2,012; settings chosen on the last tenth of train, then refitted on all of it
entities   train 3,394 posts; settings chosen on dev, then refitted on train and dev; test 1,287
pos        train 12,544 sentences; settings chosen on dev, then refitted on train alone; test 2,077

Settings are chosen among fits to the first 3,000 sentences that are not held out.

Models, with the penalty chosen on the same held-out part and by the same score (F1 of spans, or token accuracy for
parts of speech):

per token        logistic regression per token (scikit-learn, L-BFGS), no structure; linear, since a kernel on
                 hundreds of thousands of sparse columns, most of them rare, adds only products of columns, for
                 which there are templates
CRFsuite         a linear CRF, by L-BFGS until its own test of convergence or 400 iterations
kernelcrf        ChainCRF("linear"), the same features and labels: the same model, fitted by the dual solver to 0.1 %
kernelcrf, ...   what the speed is good for: richer templates, IOBES labels, vectors (for each task, `OURS`)

The penalty is C = 1 / (2 c2) throughout, the best of three values (`VALUES`) for each model. Scores are token accuracy,
F1 of spans as conlleval counts them (kernelcrf.metrics), and log-loss and expected calibration error of token marginals
(15 bins). Seconds are CPU time of the final fit on one thread, from sparse matrices, or from lists of names for
CRFsuite, to weights. I-LST, which training never shows, is left out of log-loss and calibration (2 tokens of the test
set). p-values: bootstrap over sentences of the test set.

For its time, a run takes the held-out scores on file (`--choose 1` measures them again), and measures the rows of
MEASURED. The others stay on file, with the commit that they are of; `--every 1` measures all. An earlier run went on
up a ladder of values to C = 100. The test sets are whole, so that standard errors stay the same.
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
from kernelcrf.readers.constraints import legal_labelings
from studies import common
from studies.accuracy.baselines import CRFsuite
from studies.accuracy.embeddings import minilm
from studies.accuracy.text_features import WindowFeatures, attributes
from studies.datasets import load_ud_ewt

TOL = 1e-3
SEARCH_SENTENCES = 3000
TEMPERATURES = (1.0, 1.2, 1.4, 1.6, 1.8, 2.0, 2.5, 3.0)
LAYERS = (1, 2, 3, 4)
SCALE = 0.1


@dataclass(frozen=True)
class Data:
    """Hold sentences: attributes by name, IOB2 tags or parts of speech, and MiniLM's vectors (T, 384) if read."""

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
    name: str
    title: str
    spans: bool
    load: Callable[..., Any]
    published: str
    bar: float | None
    """The published F1 to pass, in per cent."""


@cache
def parts_of(task: Task, vectors: bool) -> tuple[Data, Data, Data, Data]:
    """Return data to fit candidates, to choose among them, to fit the last model, and to test it."""
    train, test = (read(task.load, subset, vectors) for subset in ("train", "test"))
    if task.name == "chunking":
        cut = len(train.y) - len(train.y) // 10
        return train.part(slice(cut)), train.part(slice(cut, None)), train, test
    dev = read(task.load, "dev", vectors)
    return train, dev, train + dev if task.name == "entities" else train, test


def window(name: str, *at: int) -> list[str]:
    return [f"{name}[{k}]" for k in at]


AROUND = (-2, -1, 0, 1, 2)
AFFIXES = [f"{side}{n}[0]" for side in "az" for n in (1, 2, 3, 4)]
# The template of CRFsuite's and crfsgd's chunking examples.
USUAL = [
    *window("w", *AROUND),
    *window("p", *AROUND),
    *("w[-1]|w[0]", "w[0]|w[1]"),
    *("p[-2]|p[-1]", "p[-1]|p[0]", "p[0]|p[1]", "p[1]|p[2]"),
    *("p[-2]|p[-1]|p[0]", "p[-1]|p[0]|p[1]", "p[0]|p[1]|p[2]"),
]
RICH = [
    *USUAL,
    *("w[-3]", "w[3]", "p[-3]", "p[3]", "l[0]", "l[-1]", "l[1]", "s[0]", "k[-1]", "k[1]", "k[0]|p[0]|k[1]"),
    *AFFIXES,
    *("z2[-1]", "z2[1]", "z3[-1]", "z3[1]"),
    *(f"w[0]|p[{k}]" for k in AROUND),
    *("w[-1]|p[0]", "w[1]|p[0]", "w[-2]|w[-1]", "w[1]|w[2]", "w[-1]|w[1]", "p[-1]|p[1]"),
    *("w[-1]|w[0]|w[1]", "w[-1]|p[0]|w[1]", "p[-1]|w[0]|p[1]", "w[-1]|w[0]|p[1]", "p[-1]|w[0]|w[1]"),
    *("p[-3]|p[-2]|p[-1]", "p[1]|p[2]|p[3]", "p[-2]|p[-1]|p[0]|p[1]", "p[-1]|p[0]|p[1]|p[2]"),
    "p[-2]|p[-1]|p[0]|p[1]|p[2]",
]
ENTITIES = [
    *window("l", -1, 0, 1),
    *window("s", -1, 0, 1),
    *window("k", *AROUND),
    *(f"{side}{n}[0]" for side in "az" for n in (2, 3, 4)),
    *("k[-1]|k[0]|k[1]", "l[-1]|k[0]", "k[0]|l[1]"),
]
POS = [
    "w[0]",
    *window("l", *AROUND),
    *window("s", -1, 0, 1),
    *window("k", -1, 0, 1),
    *AFFIXES,
    *("l[-1]|l[0]", "l[0]|l[1]", "l[-1]|l[1]", "z2[-1]", "z2[1]", "z3[-1]", "z3[1]"),
    *("z2[-1]|z2[0]", "z2[0]|z2[1]", "z3[-1]|z3[0]", "z3[0]|z3[1]", "k[0]|z3[0]", "l[-1]|z3[0]", "z3[0]|l[1]"),
]
TEMPLATES = {"usual": USUAL, "rich": RICH, "entities": ENTITIES, "pos": POS}


class Inputs:
    """Make the columns of templates; "name + vectors" joins MiniLM's vectors, standardised and times SCALE."""

    def __init__(self, name: str) -> None:
        self._templates, _, self._more = name.partition(" + ")

    def fit_transform(self, data: Data) -> sparse.csr_array:
        self._window = WindowFeatures(TEMPLATES[self._templates])
        X = self._window.fit_transform(data.columns)
        if self._more:
            V = np.concatenate(data.vectors)
            self._mean, self._scale = V.mean(axis=0), SCALE / V.std(axis=0)
        return self._joined(X, data)

    def transform(self, data: Data) -> sparse.csr_array:
        return self._joined(self._window.transform(data.columns), data)

    def _joined(self, X: sparse.csr_array, data: Data) -> sparse.csr_array:
        if not self._more:
            return X
        V = (np.concatenate(data.vectors) - self._mean) * self._scale
        return sparse.csr_array(sparse.hstack([X, sparse.csr_array(V.astype(np.float64))]))


# How each tag of IOBES is written in IOB2.
LETTERS = {"B": "B", "I": "I", "E": "I", "S": "B", "O": "O"}


def iobes(tags: Sequence[str]) -> list[str]:
    """Return tags of IOB2 in IOBES."""
    goes_on = [k + 1 < len(tags) and tags[k + 1] == "I" + tag[1:] for k, tag in enumerate(tags)]
    letters = {("B", True): "B", ("B", False): "S", ("I", True): "I", ("I", False): "E"}
    return [tag if tag == "O" else letters[tag[0], more] + tag[1:] for tag, more in zip(tags, goes_on, strict=True)]


Predicted = tuple[list[list[str]], list[np.ndarray], list[str]]


@dataclass(frozen=True)
class Scored:
    """Hold scores of a fitted ChainCRF on data: tags, scores (N, L) of tokens and (L, L) of steps."""

    classes: list[str]
    s: np.ndarray
    w: np.ndarray
    in_spans: bool
    seconds: float
    n_iter: int

    def predict(self, data: Data, temperature: float = 1.0) -> Predicted:
        """Return tags by Viterbi, marginals (T, L) per sentence of the scores / temperature, and their columns."""
        chains, states = Chains.from_lengths(data.lengths), self.classes
        s, w = self.s / temperature, self.w / temperature
        if self.in_spans:
            s, w = legal_labelings("IOBES", states).impose(chains, s, w)
            states = [LETTERS[tag[0]] + tag[1:] for tag in states]
        best, P = decoding.viterbi(s, w, chains)[0], chain.moments(s, w, chains).nodes
        names = sorted(set(states))
        merged = np.zeros((len(P), len(names)))
        for k, tag in enumerate(states):
            merged[:, names.index(tag)] += P[:, k]
        at = chains.offsets[1:-1]
        return [[states[k] for k in one] for one in np.split(best, at)], np.split(merged, at), names


@dataclass(frozen=True)
class Told:
    """Hold predictions of a model that is no longer there."""

    predictions: Predicted
    seconds: float
    n_iter: int

    def predict(self, data: Data) -> Predicted:
        return self.predictions


def fit_chain(known: Data, asked: Data, templates: str, C: float, encoding: str = "IOB2") -> Scored:
    inputs, in_spans = Inputs(templates), encoding == "IOBES"
    X = inputs.fit_transform(known)
    y = [iobes(one) if in_spans else one for one in known.y]
    start = time.process_time()
    crf = ChainCRF("linear", C=C, tol=TOL).fit(X, np.concatenate(y), lengths=known.lengths)
    seconds, scores = time.process_time() - start, inputs.transform(asked) @ crf.coef_
    return Scored(crf.classes_.tolist(), scores, crf.transitions_, in_spans, seconds, crf.n_iter_)


def fit_crfsuite(known: Data, asked: Data, templates: str, C: float) -> Told:
    inputs = Inputs(templates)
    X, Z = (rows_of(X, data) for X, data in ((inputs.fit_transform(known), known), (inputs.transform(asked), asked)))
    start = time.process_time()
    model = CRFsuite(c2=1 / (2 * C), max_iterations=MAX_ITERATIONS).fit(X, known.y)
    seconds = time.process_time() - start
    tags = [one.tolist() for one in model.predict(Z)]
    return Told((tags, model.predict_proba(Z), model.classes_.tolist()), seconds, model.n_iter_)


def fit_per_token(known: Data, asked: Data, templates: str, C: float) -> Told:
    inputs = Inputs(templates)
    X = inputs.fit_transform(known)
    start = time.process_time()
    model = LogisticRegression(C=C, max_iter=1000).fit(X, np.concatenate(known.y))
    seconds, classes = time.process_time() - start, model.classes_.tolist()
    P = np.split(model.predict_proba(inputs.transform(asked)), np.cumsum(asked.lengths)[:-1])
    return Told(([[classes[k] for k in one.argmax(axis=1)] for one in P], P, classes), seconds, int(model.n_iter_[0]))


def rows_of(X: sparse.csr_array, data: Data) -> list[sparse.csr_array]:
    ends = np.cumsum(data.lengths)
    return [X[end - length : end] for end, length in zip(ends, data.lengths, strict=True)]


INTRODUCTION = """Linear CRFs on sparse features are the strength of CRFsuite. All models of a task have the same
features and held-out data. Further rows show what richer templates and vectors of a frozen language model (MiniLM, 384
numbers each, in the same sparse matrix) add. Differences are tested by a bootstrap over the sentences of the test
set. A commit marks rows of an earlier run."""
TRIED = """What was tried, on held-out data alone. Chunking: the larger part of the gain over the usual
templates comes from the richer ones (affixes, shapes, words joined with parts of speech, n-grams of five). The smaller
part comes from IOBES labels, which do little for the usual templates. CRFsuite may be given these templates as well.
Large C win where F1 of spans is the score, at the price of overconfident marginals, which a temperature mends.
Entities: full words in a window of five and pairs of words did worse than a small set of shapes, affixes and
lower-cased neighbours. CRFsuite and kernelcrf minimise the same objective but for pairs of feature and label that
training never shows, which CRFsuite leaves out. With the same templates and each at its own C, neither is clearly
better. One value of C was tried for the rich templates and for MiniLM. Kernels were not tried on the sparse columns: of
hundreds of thousands, most are seen a few times, and products of them are what templates spell out. The rows of an
earlier run, which have a commit, went on from three values of C to 100 where the best was at an end. On parts of speech
kernelcrf stopped at 10, for the time that larger values take, and CRFsuite went on to 100. Not tried: MiniLM for chunks
and parts of speech.

In practice: for sparse features take `ChainCRF("linear")` with IOBES labels and generous templates, and divide by a
temperature if probabilities matter. If a few names decide, vectors of a frozen language model as extra columns are
worth more than any template."""


TASKS = {
    task.name: task
    for task in (
        Task(
            "chunking",
            "Chunking, CoNLL-2000",
            True,
            load_conll2000,
            "SVM with a polynomial kernel 93.48, eight SVMs voting 93.91, regularised Winnow 94.13 (F1)",
            94.1,
        ),
        Task(
            "entities",
            "Emerging entities, WNUT-17",
            True,
            load_wnut17,
            "shared task 26.30 to 41.86 (F1), with embeddings or gazetteers; the last fits here are to train and dev",
            41.86,
        ),
        Task("pos", "Parts of speech, UD English EWT 2.16", False, load_ud_ewt, "none for this release", None),
    )
}
SAME = {"chunking": "usual", "entities": "entities", "pos": "pos"}
VALUES = {"chunking": (1.0, 3.0, 10.0), "entities": (3.0, 10.0, 30.0), "pos": (1.0, 3.0, 10.0)}
MEASURED = {"chunking": ("CRFsuite", "kernelcrf"), "entities": ("per token", "CRFsuite", "kernelcrf"), "pos": ()}
MAX_ITERATIONS = 400
# What is tried beyond the same features: templates, how spans are written, and the values of C.
OURS: dict[str, dict[str, tuple[str, str, tuple[float, ...]]]] = {
    "chunking": {"rich templates, IOBES": ("rich", "IOBES", (2.0,))},
    "entities": {"MiniLM": ("entities + vectors", "IOB2", (1.0,))},
    "pos": {},
}


def held_out_score(task: Task, model: Any, data: Data) -> float:
    predicted = model.predict(data)[0]
    return span_f1(data.y, predicted) if task.spans else common.accuracy(common.right_tokens(predicted, data.y))


def tested(task: Task, model: Any, data: Data) -> dict[str, Any]:
    """Return scores on the test set, and counts per sentence for the bootstrap."""
    predicted, P, classes = model.predict(data)
    right = common.right_tokens(predicted, data.y)
    known = [[tag if tag in classes else None for tag in one] for one in data.y]
    found: dict[str, Any] = {
        "accuracy": common.accuracy(right),
        "log_loss": log_loss(known, P, classes),
        "ece": expected_calibration_error(known, P, classes),
        "fit_seconds": model.seconds,
        "reliability": reliability(known, P, classes),
    }
    counts = [(int(one.sum()), len(one), len(one)) for one in right]
    if task.spans:
        found["f1"] = span_f1(data.y, predicted)
        both = [(set(spans(a)), set(spans(b))) for a, b in zip(data.y, predicted, strict=True)]
        counts = [(len(a & b), len(a), len(b)) for a, b in both]
    return found | {"counts": counts}


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


def choose(
    task: Task, make: Callable[[Any, bool], Any], candidates: Sequence[float], known: dict[str, Any]
) -> dict[str, Any]:
    """Refit and test the candidate with the best held-out score; make(candidate, last) fits it.

    known : the row on file, whose held-out scores and temperature are taken.
    """
    _, held_out, _, test = parts_of(task, False)
    on_file = {float(C): score for C, score in known.get("held_out", {}).items()}
    scores = {
        C: on_file[C] if C in on_file else held_out_score(task, make(C, False), held_out)
        for C in candidates
        if len(candidates) > 1 or C in on_file
    }
    best = max(scores, key=scores.__getitem__, default=candidates[0])
    model = make(best, True)
    result = tested(task, model, test)
    if isinstance(model, Scored):
        same = known.get("chosen") == f"{best}"
        temperature = known["tempered"]["temperature"] if same else temperature_of(make(best, False), held_out)
        result["tempered"] = losses(model, test, temperature) | {"temperature": temperature}
    return result | {
        "n_iter": model.n_iter,
        "chosen": f"{best}",
        "held_out": {f"{one}": value for one, value in scores.items()},
    }


def losses(product: Scored, data: Data, temperature: float) -> dict[str, Any]:
    """Return what depends on the temperature that divides the scores."""
    _, P, classes = product.predict(data, temperature)
    known = [[tag if tag in classes else None for tag in one] for one in data.y]
    return {
        "log_loss": log_loss(known, P, classes),
        "ece": expected_calibration_error(known, P, classes),
        "reliability": reliability(known, P, classes),
    }


def temperature_of(candidate: Scored, held_out: Data) -> float:
    """Return the temperature of the least held-out log-loss."""
    return min(TEMPERATURES, key=lambda one: losses(candidate, held_out, one)["log_loss"])


def temper(candidate: Scored, held_out: Data, model: Scored, test: Data) -> dict[str, Any]:
    """Divide scores by the temperature of the least held-out log-loss; Viterbi's tags stay the same."""
    best = temperature_of(candidate, held_out)
    return {"temperature": best} | losses(model, test, best)


def search_and_test(
    task: Task, name: str, fit: Callable[..., Any], values: Sequence[float], known: dict[str, Any], *settings: str
) -> dict[str, Any]:
    """Choose C on the held-out part, fit once more and test."""
    templates = settings[0] if settings else SAME[task.name]

    def make(C: float, last: bool) -> Any:
        def work() -> Any:
            part, held_out, train, test = parts_of(task, "vectors" in templates)
            known, asked = (train, test) if last else (part.part(slice(SEARCH_SENTENCES)), held_out)
            return fit(known, asked, templates, C, *settings[1:])

        return common.kept(f"tagging {task.name} {name} {C} {'test' if last else 'held out'}", work)

    return choose(task, make, values, known)


def models(task: Task) -> dict[str, Callable[[dict[str, Any]], dict[str, Any]]]:
    """Return for each row of a task the function that measures it, given the row on file."""
    fits = {"per token": fit_per_token, "CRFsuite": fit_crfsuite, "kernelcrf": fit_chain}
    found: dict[str, Callable[[dict[str, Any]], dict[str, Any]]] = {
        name: lambda known, n=name, f=fit: search_and_test(task, n, f, VALUES[task.name], known)
        for name, fit in fits.items()
    }
    for name, (templates, encoding, values) in OURS[task.name].items():
        found[f"kernelcrf, {name}"] = lambda known, n=name, t=templates, e=encoding, v=values: search_and_test(
            task, n, fit_chain, v, known, t, e
        )
    return found


def f1_difference(ours: Any, theirs: Any, n_draws: int = 2000) -> tuple[float, float]:
    """Return the difference of two F1 (or accuracies) on one test set, and its p by resampling sentences."""
    a, b = np.asarray(ours, float), np.asarray(theirs, float)

    def f1(counts: np.ndarray) -> np.ndarray:
        return 2 * counts[..., 0] / (counts[..., 1] + counts[..., 2])

    draws = np.random.default_rng(0).integers(len(a), size=(n_draws, len(a)))
    differences = np.array([f1(a[k].sum(axis=0)) - f1(b[k].sum(axis=0)) for k in draws])
    return float(f1(a.sum(axis=0)) - f1(b.sum(axis=0))), common.tail_p(differences)


def measure(options: argparse.Namespace) -> dict[str, Any]:
    known = common.load("accuracy.tagging_tasks") or {"tasks": {}}
    found: dict[str, Any] = {}
    for task in TASKS.values():
        on_file, rows = known["tasks"].get(task.name, {}), {}
        for name, work in models(task).items():
            if options.only in task.name and (options.every or name in MEASURED[task.name]):
                rows[name] = work({} if options.choose else on_file.get(name, {}))
                print(task.name, name, rows[name].get("f1"), rows[name]["fit_seconds"], flush=True)
            elif name in on_file:
                rows[name] = common.carried(on_file[name], known)
        ours = rows.get("kernelcrf", {})
        for name, row in rows.items():
            if name != "kernelcrf" and "counts" in row and "counts" in ours:
                row["difference"], row["p"] = f1_difference(row["counts"], ours["counts"])
        found[task.name] = {
            name: {key: value for key, value in row.items() if key != "counts"} for name, row in rows.items()
        }
    return {"tasks": found}


def section(results: dict[str, Any]) -> str:
    parts = ["## Tagging text: chunks, entities, parts of speech", INTRODUCTION]
    for task in TASKS.values():
        rows = results["tasks"][task.name]
        if not rows:
            continue
        score = ["F1"] if task.spans else []
        lines = [
            [
                common.marked(name, row),
                *([f"{100 * row['f1']:.2f}"] if task.spans else []),
                f"{100 * row['accuracy']:.2f}",
                f"{row['log_loss']:.4f}",
                f"{100 * row['ece']:.2f}",
                "not timed" if row["fit_seconds"] is None else f"{row['fit_seconds']:.0f} s",
                "" if "p" not in row else f"{100 * row['difference']:+.2f} ({_p(row['p'])})",
            ]
            for name, row in rows.items()
        ]
        header = ["model", *score, "accuracy", "log-loss", "ECE, %", "fit"]
        header.append(f"{score[0] if score else 'accuracy'} - kernelcrf's")
        tried = [
            [
                name,
                f"{float(row['chosen']):g}" + (f", {row['n_iter']} iterations" if name == "CRFsuite" else ""),
                "; ".join(f"{float(key):g}: {100 * value:.2f}" for key, value in row["held_out"].items()),
            ]
            for name, row in rows.items()
        ]
        parts += [
            f"### {task.title}",
            common.markdown(header, lines),
            f"Published: {task.published}. {_verdict(task, rows)}",
            "Scores divided by a temperature that the held-out log-loss chose, which leaves the tags as they are: "
            + "; ".join(
                f"{name}, {row['tempered']['temperature']:g}: log-loss {row['tempered']['log_loss']:.4f}, "
                f"ECE {100 * row['tempered']['ece']:.2f} %"
                for name, row in rows.items()
                if "tempered" in row
            )
            + ".",
            "Values of C with their held-out scores:",
            common.markdown(["model", "chosen", "held out"], tried),
        ]
    parts += ["![Reliability of token marginals](figures/reliability_tagging.png)", TRIED]
    return "\n\n".join(parts)


def _verdict(task: Task, rows: dict[str, Any]) -> str:
    if task.bar is None:
        return ""
    passed = [f"{name} ({100 * row['f1']:.2f})" for name, row in rows.items() if 100 * row["f1"] > task.bar]
    return f"Above {task.bar}: {', '.join(passed) if passed else 'none of these'}."


def _p(value: float) -> str:
    return "p < 0.002" if value < 0.002 else f"p = {value:.3f}"


def figure(results: dict[str, Any]) -> None:
    drawn = [task for task in TASKS.values() if results["tasks"][task.name]]
    size = (4 * len(drawn), 4.2)
    with common.picture("reliability_tagging", 1, len(drawn), dpi=130, figsize=size, sharey=True, squeeze=False) as (
        _,
        axes,
    ):
        for ax, task in zip(axes[0], drawn, strict=True):
            ax.plot([0, 1], [0, 1], color="0.6", linewidth=1, linestyle=":")
            rows = results["tasks"][task.name]
            for colour, marker, (name, row) in zip(common.COLOURS, "sovD^x", rows.items(), strict=False):
                shown = [(row["reliability"], "-", name)]
                if name == list(rows)[-1] and row.get("tempered", {}).get("temperature", 1) != 1:
                    shown.append((row["tempered"]["reliability"], "--", "the same, tempered"))
                for bins, style, label in shown:
                    enough = np.asarray(bins["tokens"]) >= 20
                    x, y = np.asarray(bins["confidence"])[enough], np.asarray(bins["accuracy"])[enough]
                    ax.plot(x, y, style, color=colour, marker=marker, markersize=4, linewidth=1.2, label=label)
            ax.set(xlabel="confidence", title=task.title)
            ax.legend(frameon=False, fontsize=8, loc="upper left")
        axes[0][0].set_ylabel("accuracy")


OPTIONS = {"only": ""}
