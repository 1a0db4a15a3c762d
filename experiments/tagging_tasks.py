"""Three tagging tasks with sparse features: chunks (CoNLL-2000), emerging entities (WNUT-17), parts of speech (UD EWT).

chunking   train 8,936 sentences, test 2,012; settings chosen on the last tenth of train, then refitted on all of it
entities   train 3,394 posts; settings chosen on dev, then refitted on train and dev; test 1,287
pos        train 12,544 sentences; settings chosen on dev, then refitted on train alone; test 2,077

Models, with the penalty chosen on the same held-out part and by the same score (F1 of spans, or token accuracy for
parts of speech):

per token        multinomial logistic regression a token (scikit-learn, L-BFGS), no structure; linear, since a kernel on
                 hundreds of thousands of sparse columns, most of them rare, has nothing to add but products of columns,
                 for which there are templates
CRFsuite         a linear CRF, by L-BFGS until its own test of convergence or 400 iterations
kernelcrf        ChainCRF("linear"), the same features and labels: the same model, fitted by the dual solver to 0.1 %
kernelcrf, ...   what the speed is good for: richer templates, IOBES labels, products of CRFs (for each task, `OURS`)

The penalty is C = 1 / (2 c2) throughout. Each model has a search of its own over the same ladder of values, which
starts with three of them (`START`) and goes on while the best is at an end of what was tried. Scores: token accuracy,
F1 of spans as conlleval counts them (kernelcrf.metrics), log-loss and expected calibration error of token marginals (15
bins), CPU seconds of the final fit from sparse matrices, or from lists of names for CRFsuite, to weights, on one
thread. I-LST, which training never shows, is left out of log-loss and calibration (2 tokens of the test set). p-values:
bootstrap over sentences of the test set.

Every part is kept in the folder of KERNELCRF_CACHE (else the system's for temporary files), so that a run that was cut
short goes on; `--cached 1` reports what is there, and removing its subfolder tagging_tasks measures all anew.
"""

from __future__ import annotations

import argparse
import os
import pickle
import re
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
from scipy import sparse
from sklearn.linear_model import LogisticRegression

import common
from baselines import CRFsuite
from embeddings import minilm
from kernelcrf import ChainCRF
from kernelcrf.datasets import load_conll2000, load_ud_ewt, load_wnut17
from kernelcrf.estimators.constraints import legal_labelings
from kernelcrf.graphs.structure import Chains
from kernelcrf.inference import chain, decoding
from kernelcrf.metrics import expected_calibration_error, log_loss, span_f1, spans
from text_features import WindowFeatures, attributes, pairs

TOL = 1e-3
TEMPERATURES = (1.0, 1.2, 1.4, 1.6, 1.8, 2.0, 2.5, 3.0)
LAYERS = (1, 2, 3, 4)
SCALE = 0.1


@dataclass(frozen=True)
class Data:
    """Sentences: attributes by name, IOB2 tags or parts of speech, and MiniLM's vectors (T, 384) if they are read."""

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
    parts: Callable[[bool], tuple[Data, Data, Data, Data]]
    """To fit candidates, to choose among them, to fit the last model, to test it; with vectors or without."""
    published: str
    bar: float | None
    """The published F1 to pass, in per cent."""


@cache
def _chunking(vectors: bool) -> tuple[Data, Data, Data, Data]:
    train, test = (read(load_conll2000, subset, vectors) for subset in ("train", "test"))
    cut = len(train.y) - len(train.y) // 10
    return train.part(slice(cut)), train.part(slice(cut, None)), train, test


@cache
def _entities(vectors: bool) -> tuple[Data, Data, Data, Data]:
    train, dev, test = (read(load_wnut17, subset, vectors) for subset in ("train", "dev", "test"))
    return train, dev, train + dev, test


@cache
def _pos(vectors: bool) -> tuple[Data, Data, Data, Data]:
    train, dev, test = (read(load_ud_ewt, subset, vectors) for subset in ("train", "dev", "test"))
    return train, dev, train, test


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
QUADRATIC = [*RICH, *pairs([*window("w", *AROUND), *window("p", *AROUND)])]
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
TEMPLATES = {"usual": USUAL, "rich": RICH, "quadratic": QUADRATIC, "entities": ENTITIES, "pos": POS}


class Inputs:
    """The columns of templates by name; "name + vectors" joins MiniLM's vectors, standardised and times SCALE."""

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


# How each tag of IOBES is written by the others: all that they say is a function of it.
LETTERS = {
    "IOB2": {"B": "B", "I": "I", "E": "I", "S": "B", "O": "O"},
    "IOE2": {"B": "I", "I": "I", "E": "E", "S": "E", "O": "O"},
    "IOBES": {"B": "B", "I": "I", "E": "E", "S": "S", "O": "O"},
}


def iobes(tags: Sequence[str]) -> list[str]:
    """IOB2 to IOBES."""
    goes_on = [k + 1 < len(tags) and tags[k + 1] == "I" + tag[1:] for k, tag in enumerate(tags)]
    letters = {("B", True): "B", ("B", False): "S", ("I", True): "I", ("I", False): "E"}
    return [tag if tag == "O" else letters[tag[0], more] + tag[1:] for tag, more in zip(tags, goes_on, strict=True)]


def written(tags: Sequence[str], encoding: str) -> list[str]:
    """IOBES to another encoding."""
    return [LETTERS[encoding][tag[0]] + tag[1:] for tag in tags]


@dataclass(frozen=True)
class Member:
    """A CRF of a product: its templates, how spans are written, and C."""

    templates: str
    encoding: str
    C: float


@dataclass(frozen=True)
class Scored:
    """What a fitted member says of data: tags, scores (N, L) of tokens and (L, L) of steps; seconds of the fit."""

    classes: list[str]
    s: np.ndarray
    w: np.ndarray
    seconds: float


def scored(task: Task, member: Member, last: bool) -> Scored:
    """The member fitted to all of train, on the test set, if this is its last fit; else as candidates are."""

    def work() -> Scored:
        part, held_out, train, test = task.parts("vectors" in member.templates)
        known, asked = (train, test) if last else (part, held_out)
        inputs = Inputs(member.templates)
        X = inputs.fit_transform(known)
        y = [written(iobes(one), member.encoding) for one in known.y] if task.spans else known.y
        start = time.process_time()
        crf = ChainCRF("linear", C=member.C, tol=TOL).fit(X, np.concatenate(y), lengths=known.lengths)
        seconds = time.process_time() - start
        return Scored(crf.classes_.tolist(), inputs.transform(asked) @ crf.coef_, crf.transitions_, seconds)

    return cached(f"{task.name}/{member.templates}/{member.encoding}/{member.C}/{'test' if last else 'held out'}", work)


class Product:
    """Linear CRFs whose scores are averaged; one member is a plain CRF.

    Members may write spans in different ways. The states are then the tags of IOBES, each with the score that a member
    gives to its own tag for it, and only legal labelings have a probability.
    """

    def __init__(self, task: Task, members: Sequence[Member], last: bool) -> None:
        found = [scored(task, member, last) for member in members]
        self.seconds = sum(one.seconds for one in found)
        self._in_spans = any(member.encoding != "IOB2" for member in members)
        self._states = found[0].classes
        if self._in_spans:
            part, _, train, _ = task.parts(False)
            self._states = sorted({tag for one in (train if last else part).y for tag in iobes(one)})
        self._s, self._w = 0.0, 0.0
        for member, one in zip(members, found, strict=True):
            own = written(self._states, member.encoding) if self._in_spans else self._states
            place = [one.classes.index(tag) for tag in own]
            self._s = self._s + one.s[:, place] / len(members)
            self._w = self._w + one.w[np.ix_(place, place)] / len(members)

    def predict(self, data: Data, temperature: float = 1.0) -> tuple[list[list[str]], list[np.ndarray], list[str]]:
        """Tags by Viterbi, marginals (T, L) a sentence of the scores / temperature, and what their columns are."""
        chains = Chains.from_lengths(data.lengths)
        s, w, states = self._s / temperature, self._w / temperature, self._states
        if self._in_spans:
            s, w = legal_labelings("IOBES", states).impose(chains, s, w)
            states = written(states, "IOB2")
        best, P = decoding.viterbi(s, w, chains)[0], chain.moments(s, w, chains).nodes
        names = sorted(set(states))
        merged = np.zeros((len(P), len(names)))
        for k, tag in enumerate(states):
            merged[:, names.index(tag)] += P[:, k]
        at = chains.offsets[1:-1]
        return [[states[k] for k in one] for one in np.split(best, at)], np.split(merged, at), names


class Suite:
    """CRFsuite on the names of the columns."""

    def __init__(self, templates: str, C: float) -> None:
        self.templates, self.C = templates, C

    def fit(self, data: Data) -> Suite:
        self._features = Inputs(self.templates)
        X = self._names(self._features.fit_transform(data), data)
        start = time.process_time()
        self._model = CRFsuite(c2=1 / (2 * self.C), max_iterations=MAX_ITERATIONS).fit(X, data.y)
        self.seconds, self.n_iter = time.process_time() - start, self._model.n_iter_
        return self

    def predict(self, data: Data) -> tuple[list[list[str]], list[np.ndarray], list[str]]:
        X = self._names(self._features.transform(data), data)
        classes = self._model.classes_.tolist()
        return [one.tolist() for one in self._model.predict(X)], self._model.predict_proba(X), classes

    @staticmethod
    def _names(X: sparse.csr_array, data: Data) -> list[list[list[str]]]:
        rows = [[str(k) for k in one] for one in np.split(X.indices, X.indptr[1:-1])]
        ends = np.cumsum(data.lengths)
        return [rows[end - length : end] for end, length in zip(ends, data.lengths, strict=True)]


class PerToken:
    """Multinomial logistic regression a token."""

    def __init__(self, templates: str, C: float) -> None:
        self.templates, self.C = templates, C

    def fit(self, data: Data) -> PerToken:
        self._features = Inputs(self.templates)
        X = self._features.fit_transform(data)
        start = time.process_time()
        self._model = LogisticRegression(C=self.C, max_iter=1000).fit(X, np.concatenate(data.y))
        self.seconds, self.n_iter = time.process_time() - start, int(self._model.n_iter_[0])
        return self

    def predict(self, data: Data) -> tuple[list[list[str]], list[np.ndarray], list[str]]:
        P = self._model.predict_proba(self._features.transform(data))
        classes, at = self._model.classes_.tolist(), np.cumsum(data.lengths)[:-1]
        return [[classes[k] for k in one.argmax(axis=1)] for one in np.split(P, at)], np.split(P, at), classes


INTRODUCTION = """Linear CRFs on sparse features, where CRFsuite is at home: the same features and held-out data
for all models of a task, then what richer templates and vectors of a frozen language model (MiniLM, 384 numbers a word,
in the same sparse matrix) add. Differences are tested by a bootstrap over the sentences of the test set."""
TRIED = """What was tried, on held-out data alone. Chunking: of the gain over the usual templates the larger part is
that of the richer ones (affixes, shapes, words joined with parts of speech, n-grams of five), the smaller that of IOBES
labels, which do little for the usual templates; the gain is one of templates, which CRFsuite may be given as well.
Large C win where F1 of spans is the score, at the price of overconfident marginals, which a temperature mends.
Entities: full words in a window of five and pairs of words did worse than a small set of shapes, affixes and
lower-cased neighbours. CRFsuite and kernelcrf minimise the same objective but for pairs of feature and label that
training never shows, which CRFsuite leaves out; with the same templates and each at its own C the two are of one
kind: on chunks kernelcrf is ahead on the test set but CRFsuite on what was held out, on entities neither is beyond the
noise. One value of C was tried for the rich templates, whose fit was not timed, and for MiniLM. Kernels were not tried
on the sparse columns: of hundreds of thousands, most are seen a few times, and products of them are what templates
spell out. Single tokens take the largest C of the ladder on entities. On parts of speech kernelcrf tried C up
to 10, its best on what was held out, and no further, for the time that larger values take; CRFsuite's search went on to
100.
Not tried: MiniLM for chunks and parts of speech, products of CRFs with different encodings.

In practice: for sparse features take `ChainCRF("linear")` with IOBES labels and generous templates; divide by a
temperature where probabilities matter; and where a few names decide, vectors of a frozen language model as
extra columns are worth more than any template."""


TASKS = {
    task.name: task
    for task in (
        Task(
            "chunking",
            "Chunking, CoNLL-2000",
            True,
            _chunking,
            "SVM with a polynomial kernel 93.48, eight SVMs voting 93.91, regularised Winnow 94.13 (F1)",
            94.1,
        ),
        Task(
            "entities",
            "Emerging entities, WNUT-17",
            True,
            _entities,
            "shared task 26.30 to 41.86 (F1), with embeddings or gazetteers; the last fits here are to train and dev",
            41.86,
        ),
        Task("pos", "Parts of speech, UD English EWT 2.16", False, _pos, "none for this release", None),
    )
}
SAME = {"chunking": "usual", "entities": "entities", "pos": "pos"}
LADDER = (0.1, 0.3, 1.0, 3.0, 10.0, 30.0, 100.0)
START = {"chunking": (1.0, 3.0, 10.0), "entities": (3.0, 10.0, 30.0), "pos": (1.0, 3.0, 10.0)}
# Of these the starting values are all that kernelcrf tries, for the time that the next step up the ladder takes.
NO_FURTHER = ("pos",)
MAX_ITERATIONS = 400
# What is tried beyond the same features: templates, how spans are written, and the values of C that the search starts
# with; one value alone is taken as it is.
OURS: dict[str, dict[str, tuple[str, str, tuple[float, ...]]]] = {
    "chunking": {"rich templates, IOBES": ("rich", "IOBES", (2.0,))},
    "entities": {"MiniLM": ("entities + vectors", "IOB2", (1.0,))},
    "pos": {},
}


def held_out_score(task: Task, model: Any, data: Data) -> float:
    predicted = model.predict(data)[0]
    return span_f1(data.y, predicted) if task.spans else common.accuracy(common.right_tokens(predicted, data.y))


def tested(task: Task, model: Any, data: Data) -> dict[str, Any]:
    """Scores on the test set; counts a sentence for the bootstrap."""
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
    """Of 15 bins of confidence: tokens, mean confidence and accuracy."""
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


def searched(start: Sequence[float], score: Callable[[float], float]) -> dict[float, float]:
    """Scores of neighbours on the ladder, until the best is at neither end of them, or at one of the ladder's."""
    scores = {C: score(C) for C in start}
    while True:
        tried = [LADDER.index(C) for C in sorted(scores)]
        best = LADDER.index(max(scores, key=scores.__getitem__))
        further = best + 1 if best == tried[-1] else best - 1 if best == tried[0] else best
        if further in tried or not 0 <= further < len(LADDER):
            return dict(sorted(scores.items()))
        scores[LADDER[further]] = score(LADDER[further])


def chosen(
    task: Task, make: Callable[[Any, bool], Any], candidates: Sequence[Any], search: bool = True
) -> dict[str, Any]:
    """The candidate of the best held-out score, refitted and tested; make(candidate, last) fits it."""
    _, held_out, _, test = task.parts(False)

    def score(one: Any) -> float:
        return held_out_score(task, make(one, False), held_out)

    scores = searched(candidates, score) if search else {one: score(one) for one in candidates}
    best = max(scores, key=scores.__getitem__)
    model = make(best, True)
    result = tested(task, model, test)
    if isinstance(model, Product):
        result["tempered"] = tempered(make(best, False), held_out, model, test)
    return result | {"chosen": f"{best}", "held_out": {f"{one}": value for one, value in scores.items()}}


def tempered(candidate: Product, held_out: Data, model: Product, test: Data) -> dict[str, Any]:
    """Scores divided by the temperature of the least held-out log-loss; Viterbi's tags stay what they are."""

    def losses(product: Product, data: Data, temperature: float) -> dict[str, Any]:
        _, P, classes = product.predict(data, temperature)
        known = [[tag if tag in classes else None for tag in one] for one in data.y]
        return {
            "log_loss": log_loss(known, P, classes),
            "ece": expected_calibration_error(known, P, classes),
            "reliability": reliability(known, P, classes),
        }

    best = min(TEMPERATURES, key=lambda one: losses(candidate, held_out, one)["log_loss"])
    return {"temperature": best} | losses(model, test, best)


@dataclass(frozen=True)
class Told:
    """Predictions of a model that is no longer there."""

    predictions: tuple[list[list[str]], list[np.ndarray], list[str]]
    seconds: float
    n_iter: int

    def predict(self, data: Data) -> tuple[list[list[str]], list[np.ndarray], list[str]]:
        return self.predictions


def baseline(task: Task, name: str, model: Callable[[str, float], Any]) -> dict[str, Any]:
    def make(C: float, last: bool) -> Told:
        def work() -> Told:
            part, held_out, train, test = task.parts(False)
            fitted = model(SAME[task.name], C).fit(train if last else part)
            return Told(fitted.predict(test if last else held_out), fitted.seconds, fitted.n_iter)

        return cached(f"{task.name}/{name}/{C}/{'test' if last else 'held out'}", work)

    found = chosen(task, make, START[task.name])
    return found | {"n_iter": make(float(found["chosen"]), True).n_iter}


def same_features(task: Task) -> dict[str, Any]:
    name = SAME[task.name]
    search = task.name not in NO_FURTHER
    return chosen(task, lambda C, last: Product(task, [Member(name, "IOB2", C)], last), START[task.name], search)


def ours(task: Task, name: str) -> dict[str, Any]:
    templates, encoding, start = OURS[task.name][name]

    def make(C: float, last: bool) -> Product:
        return Product(task, [Member(templates, encoding, C)], last)

    return chosen(task, make, start, search=len(start) > 1)


def models(task: Task) -> dict[str, Callable[[], dict[str, Any]]]:
    found = {
        "per token": lambda: baseline(task, "per token", PerToken),
        "CRFsuite": lambda: baseline(task, "CRFsuite", Suite),
        "kernelcrf": lambda: same_features(task),
    }
    return found | {f"kernelcrf, {name}": lambda name=name: ours(task, name) for name in OURS[task.name]}


def cached(key: str, work: Callable[[], Any]) -> Any:
    """What `work` returned when it was last run."""
    path = _path(key)
    if not path.exists():
        path.write_bytes(pickle.dumps(work()))
    return pickle.loads(path.read_bytes())


def _path(key: str) -> Path:
    folder = Path(os.environ.get("KERNELCRF_CACHE", Path(tempfile.gettempdir()) / "kernelcrf_cache")) / "tagging_tasks"
    folder.mkdir(parents=True, exist_ok=True)
    return folder / f"{re.sub('[^A-Za-z0-9.]+', '_', key)}.pickle"


def f1_difference(ours: Any, theirs: Any, n_draws: int = 2000) -> tuple[float, float]:
    """Difference of two F1 (or accuracies) on one test set, and its two-sided p by resampling sentences."""
    a, b = np.asarray(ours, float), np.asarray(theirs, float)

    def f1(counts: np.ndarray) -> np.ndarray:
        return 2 * counts[..., 0] / (counts[..., 1] + counts[..., 2])

    rng = np.random.default_rng(0)
    draws = [f1(a[k].sum(axis=0)) - f1(b[k].sum(axis=0)) for k in rng.integers(len(a), size=(n_draws, len(a)))]
    tail = min(np.mean(np.array(draws) <= 0), np.mean(np.array(draws) >= 0))
    return float(f1(a.sum(axis=0)) - f1(b.sum(axis=0))), float(min(1.0, 2 * max(tail, 1 / n_draws)))


def measure(options: argparse.Namespace) -> dict[str, Any]:
    found: dict[str, Any] = {"tasks": {}}
    for task in TASKS.values():
        rows = {
            name: cached(f"{task.name}/{name}", work)
            for name, work in models(task).items()
            if not options.cached or _path(f"{task.name}/{name}").exists()
        }
        for name, row in rows.items():
            if "kernelcrf" in rows and name != "kernelcrf":
                row["difference"], row["p"] = f1_difference(row["counts"], rows["kernelcrf"]["counts"])
        found["tasks"][task.name] = {
            name: {key: value for key, value in row.items() if key != "counts"} for name, row in rows.items()
        }
    return found


def section(results: dict[str, Any]) -> str:
    parts = ["## Tagging text: chunks, entities, parts of speech", INTRODUCTION]
    for task in TASKS.values():
        rows = results["tasks"][task.name]
        if not rows:
            continue
        score = ["F1"] if task.spans else []
        lines = [
            [
                name,
                *([f"{100 * row['f1']:.2f}"] if task.spans else []),
                f"{100 * row['accuracy']:.2f}",
                f"{row['log_loss']:.4f}",
                f"{100 * row['ece']:.2f}",
                "not timed" if row["fit_seconds"] is None else f"{row['fit_seconds']:.0f} s",
                "" if "p" not in row else f"{100 * row['difference']:+.2f} ({_p(row['p'])})",
            ]
            for name, row in rows.items()
        ]
        header = [
            "model",
            *score,
            "accuracy",
            "log-loss",
            "ECE, %",
            "fit",
            f"{score[0] if score else 'accuracy'} - kernelcrf's",
        ]
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
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    drawn = [task for task in TASKS.values() if results["tasks"][task.name]]
    figure, axes = plt.subplots(1, len(drawn), figsize=(4 * len(drawn), 4.2), sharey=True, squeeze=False)
    for ax, task in zip(axes[0], drawn, strict=True):
        ax.plot([0, 1], [0, 1], color="0.6", linewidth=1, linestyle=":")
        rows = results["tasks"][task.name]
        for colour, marker, name in zip(common.COLOURS, "sovD^x", models(task), strict=False):
            if name not in rows:
                continue
            row = rows[name]
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
    figure.tight_layout()
    common.FIGURES.mkdir(exist_ok=True)
    figure.savefig(common.FIGURES / "reliability_tagging.png", dpi=130)
    plt.close(figure)


if __name__ == "__main__":
    common.run(__doc__, __file__, measure, section, figure, cached=0)
