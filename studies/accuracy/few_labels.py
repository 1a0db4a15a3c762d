"""Named entities from 100 or 200 sentences: CrossNER, five domains.

Fitted to train, chosen by the F1 of spans on dev, tested on test; the score is the mean F1 of spans over the five
domains. No network is fitted, and nothing needs a GPU.

    words     lower-cased word, shape, kind, affixes of 2 to 4 letters, and the same of the words beside it, without
              affixes; kinds in a window of five. Sparse, linear kernel
    vectors   layers 2, 4 and 6 of a frozen MiniLM side by side, standardised on train, and, as another input with its
              own C, those of the words before and after; linear kernel
    others    probabilities of the labels that models of other data give: one model for each of the other four domains
              (train), and one of WNUT-17 (the first 2,000 posts of train). They read words and vectors

Models, each with its own grid, chosen on dev:

    CRFsuite             words; L-BFGS until its own test of convergence or 200 iterations
    LogisticRegression   vectors, each word by itself; scikit-learn
    ChainCRF             words, vectors, both, or both and others; each input has its own C
    prior=               words; the weights of a chain that was fitted to WNUT-17, or to train of the other four domains
                         together, are the prior means. Labels and words that it does not know have the mean 0
    decoding="f1"        the last model of these, chosen by the same F1 on dev

p-values: bootstrap over the sentences of each test set. The figures of a BiLSTM-CRF and of a BERT that is fine-tuned
are from memory of the paper (Liu et al., AAAI 2021).
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache, partial
from typing import Any

import numpy as np
from sklearn.linear_model import LogisticRegression

from kernelcrf import ChainCRF, Input
from kernelcrf.datasets import load_wnut17
from kernelcrf.metrics import span_f1, spans
from studies import common
from studies.accuracy.baselines import CRFsuite
from studies.accuracy.embeddings import WIDTH, minilm
from studies.accuracy.text_features import kind, shape
from studies.datasets import load_crossner
from studies.datasets.tables import CROSSNER

LAYERS = (2, 4, 6)
N_POSTS = 2000


@dataclass(frozen=True)
class Sentences:
    """Hold sentences: words, tags, and one vector per word."""

    words: list[list[str]]
    y: list[list[str]]
    vectors: list[np.ndarray]


def read(data: Any, n: int | None = None) -> Sentences:
    """Return the first n sentences of a data set; None means all."""
    words = [[token["word"] for token in one] for one in data.X[:n]]
    rows = np.asarray(minilm(words, layers=LAYERS), np.float32).reshape(-1, len(LAYERS) * WIDTH)
    at = np.cumsum([len(one) for one in words])[:-1]
    return Sentences(words, [np.asarray(one).tolist() for one in data.y[:n]], np.split(rows, at))


@cache
def part(domain: str, subset: Any) -> Sentences:
    return read(load_crossner(domain, subset))


def features(words: Sequence[str]) -> list[list[str]]:
    """Return the names of the features of each word of a sentence."""
    n, lower = len(words), [word.lower() for word in words]
    kinds = [kind(word) for word in words]

    def at(values: Sequence[str], t: int) -> str:
        return values[t] if 0 <= t < n else "-"

    found = []
    for t, word in enumerate(words):
        names = [f"l={lower[t]}", f"s={shape(word)}", f"k={kinds[t]}"]
        names += [f"z{m}={lower[t][-m:]}" for m in AFFIXES] + [f"a{m}={lower[t][:m]}" for m in AFFIXES]
        names += [f"k[{step}]={at(kinds, t + step)}" for step in (-2, -1, 1, 2)]
        names += [f"l[{step}]={at(lower, t + step)}" for step in (-1, 1)]
        names += [f"s[{step}]={shape(words[t + step])}" for step in (-1, 1) if 0 <= t + step < n]
        found.append([*names, f"kk={at(kinds, t - 1)}|{kinds[t]}|{at(kinds, t + 1)}"])
    return found


@dataclass(frozen=True)
class Scale:
    """Standardise vectors by the words of one set of sentences; `near` are those of the words before and after."""

    mean: np.ndarray
    factor: np.ndarray

    @classmethod
    def of(cls, data: Sentences) -> Scale:
        rows = np.concatenate(data.vectors)
        return cls(rows.mean(axis=0), 1 / (np.sqrt(rows.shape[1]) * (rows.std(axis=0) + 1e-6)))

    def inputs(self, data: Sentences) -> list[dict[str, Any]]:
        """Return the inputs of each sentence."""
        found = []
        for words, rows in zip(data.words, data.vectors, strict=True):
            v = (rows - self.mean) * self.factor
            empty = np.zeros_like(v[:1])
            near = np.hstack([np.vstack([empty, v[:-1]]), np.vstack([v[1:], empty])])
            one = [["one"]] * len(words)  # sparse: with it, the dual solver fits dense vectors too, in a few passes
            found.append({"words": features(words), "vectors": v, "near": near, "one": one})
        return found


def fit(C: dict[str, float], X: list[dict[str, Any]], y: Sequence[Any], **settings: Any) -> ChainCRF:
    """Return a model with an input for each entry of C, which has their prior variances; "steps" has that of steps."""
    inputs = {name: Input("linear", C=value) for name, value in C.items() if name != "steps"}
    crf = ChainCRF(inputs=inputs, C=C["steps"], constraints="BIO", fit_intercept=True, tol=TOL, **settings)
    return crf.fit(X, y)


def posts() -> Sentences:
    return read(load_wnut17("train"), N_POSTS)


@cache
def other(name: str) -> tuple[Scale, ChainCRF]:
    """Return the model of one domain, or of WNUT-17, and the scale of its vectors."""
    known = posts() if name == "wnut17" else part(name, "train")
    scale = Scale.of(known)
    return scale, fit(OF_OTHERS, scale.inputs(known), known.y)


def probabilities(name: str, asked: str) -> dict[str, list[np.ndarray]]:
    """Return the probabilities of labels by the model of one domain, or of WNUT-17, for the subsets of a domain."""

    def compute() -> dict[str, list[np.ndarray]]:
        scale, model = other(name)
        return {s: [p.astype(np.float32) for p in model.predict_proba(scale.inputs(part(asked, s)))] for s in SUBSETS}

    return common.kept(f"few labels {name} on {asked}", compute)


@cache
def inputs_of(domain: str) -> dict[str, list[dict[str, Any]]]:
    """Return all inputs of the sentences of a domain, by subset."""
    scale = Scale.of(part(domain, "train"))
    found = {subset: scale.inputs(part(domain, subset)) for subset in SUBSETS}
    others = [probabilities(name, domain) for name in (*CROSSNER, "wnut17") if name != domain]
    for subset, sentences in found.items():
        for i, one in enumerate(sentences):
            one["others"] = np.hstack([p[subset][i] for p in others])
    return found


Tags = list[list[str]]
Model = Callable[[list[dict[str, Any]], str], Tags]
"""A function of the inputs of sentences and of a decoding rule, which returns tags."""


def chain(domain: str, C: dict[str, float], **settings: Any) -> Model:
    model = fit(C, inputs_of(domain)["train"], part(domain, "train").y, **settings)
    return lambda X, rule: [one.tolist() for one in model.distribution(X).decode(rule)]


def crfsuite(domain: str, C: float) -> Model:
    X, y = inputs_of(domain)["train"], part(domain, "train").y
    model = CRFsuite(c2=1 / (2 * C)).fit([one["words"] for one in X], y)
    return lambda Z, rule: [one.tolist() for one in model.predict([z["words"] for z in Z])]


def token_by_token(domain: str, C: float) -> Model:
    """Fit a classifier of single words to the vectors of a word and of its neighbours."""

    def rows(X: list[dict[str, Any]]) -> np.ndarray:
        return np.concatenate([np.hstack([one["vectors"], one["near"]]) for one in X])

    labels = np.concatenate([np.asarray(one) for one in part(domain, "train").y])
    model = LogisticRegression(C=C, max_iter=1000).fit(rows(inputs_of(domain)["train"]), labels)

    def tags(X: list[dict[str, Any]], rule: str) -> Tags:
        ends = np.cumsum([len(one["vectors"]) for one in X])[:-1]
        return [one.tolist() for one in np.split(model.predict(rows(X)), ends)]

    return tags


@cache
def words_of(names: tuple[str, ...]) -> ChainCRF:
    """Return a chain on words that was fitted to train of some domains together, or of WNUT-17."""
    known = [posts() if name == "wnut17" else part(name, "train") for name in names]
    X = [{"words": features(words)} for data in known for words in data.words]
    return fit(OF_WORDS, X, [tags for data in known for tags in data.y])


def chain_after(domain: str, source: str) -> Model:
    names = tuple(name for name in CROSSNER if name != domain) if source == "domains" else (source,)
    return chain(domain, OF_WORDS, prior=words_of(names))


def counts(y: Sequence[Sequence[str]], predicted: Sequence[Sequence[str]]) -> list[tuple[int, int, int]]:
    """Return per sentence the spans that are right, true and predicted."""
    pairs = [(set(spans(a)), set(spans(b))) for a, b in zip(y, predicted, strict=True)]
    return [(len(a & b), len(a), len(b)) for a, b in pairs]


def one(domain: str, row: str) -> dict[str, Any]:
    """Return the scores on dev of the grid of a row, and the counts on test of the best of them."""
    make, grid = ROWS[row]
    X, dev, test = inputs_of(domain), part(domain, "dev"), part(domain, "test")
    start = time.process_time()
    models = [make(domain, setting) for setting in grid]
    held_out = [span_f1(dev.y, model(X["dev"], "viterbi")) for model in models]
    best = int(np.argmax(held_out))
    rules = ("viterbi", "f1") if row == OTHERS else ("viterbi",)
    return {
        "dev": held_out,
        "best": best,
        "test": {rule: counts(test.y, models[best](X["test"], rule)) for rule in rules},
        "seconds": time.process_time() - start,
    }


def written(rows: Sequence[tuple[int, int, int]]) -> str:
    """Return counts as text, since JSON has a line for each number of a list."""
    return " ".join(",".join(map(str, row)) for row in rows)


def read_counts(text: str) -> np.ndarray:
    """Return the counts that `written` has written, (N, 3)."""
    return np.array([row.split(",") for row in text.split()], float)


def measure(options: argparse.Namespace) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for domain in CROSSNER:
        for row in ROWS:
            part_of = common.kept(f"few labels {domain} {row}", partial(one, domain, row))
            part_of["test"] = {rule: written(counted) for rule, counted in part_of["test"].items()}
            found.setdefault(row, {})[domain] = part_of
            print(domain, row, found[row][domain]["dev"], found[row][domain]["seconds"], flush=True)
        inputs_of.cache_clear()
    return {"rows": found, "grids": {row: [str(setting) for setting in grid] for row, (_, grid) in ROWS.items()}}


def f1(rows: np.ndarray) -> Any:
    """Return F1 in per cent from counts (..., 3)."""
    return 200 * rows[..., 0] / (rows[..., 1] + rows[..., 2])


def f1_of(results: dict[str, Any], row: str, rule: str = "viterbi") -> list[float]:
    """Return the F1 of each domain."""
    return [float(f1(read_counts(results["rows"][row][domain]["test"][rule]).sum(axis=0))) for domain in CROSSNER]


def difference(results: dict[str, Any], ours: tuple[str, str], theirs: tuple[str, str]) -> tuple[float, float]:
    """Return the difference of mean F1, and its p-value."""
    rng, draws = np.random.default_rng(0), np.zeros(2000)
    for domain in CROSSNER:
        a, b = (read_counts(results["rows"][row][domain]["test"][rule]) for row, rule in (ours, theirs))
        weights = rng.multinomial(len(a), np.full(len(a), 1 / len(a)), size=len(draws))
        draws += (f1(weights @ a) - f1(weights @ b)) / len(CROSSNER)
    return float(np.mean(f1_of(results, *ours)) - np.mean(f1_of(results, *theirs))), common.tail_p(draws)


def section(results: dict[str, Any]) -> str:
    shown = [(row, "viterbi") for row in ROWS] + [(OTHERS, "f1")]
    names = {(OTHERS, "f1"): 'the same, `decoding="f1"`'}
    lines = []
    for row, rule in shown:
        values = f1_of(results, row, rule)
        seconds = sum(results["rows"][row][domain]["seconds"] for domain in CROSSNER)
        lines.append(
            [
                names.get((row, rule), row),
                *(f"{value:.1f}" for value in values),
                f"**{np.mean(values):.1f}**",
                f"{seconds:.0f}" if rule == "viterbi" else "",
            ]
        )
    lines += [[name, *[""] * 5, f"{value:.1f}", ""] for name, value in MEMORY.items()]
    pairs = [
        ("ChainCRF: vectors instead of words", (VECTORS, "viterbi"), (WORDS, "viterbi")),
        ("vectors: ChainCRF instead of LogisticRegression", (VECTORS, "viterbi"), (TOKENS, "viterbi")),
        ("words: `prior=` added", (PRIOR, "viterbi"), (WORDS, "viterbi")),
        ("words added to vectors", (BOTH, "viterbi"), (VECTORS, "viterbi")),
        ("others added to both", (OTHERS, "viterbi"), (BOTH, "viterbi")),
        ('`decoding="f1"` instead of the likeliest labelling', (OTHERS, "f1"), (OTHERS, "viterbi")),
        ("words: ChainCRF instead of CRFsuite", (WORDS, "viterbi"), (CRFSUITE, "viterbi")),
    ]
    tests = []
    for name, ours, theirs in pairs:
        gain, p = difference(results, ours, theirs)
        tests.append([name, f"{gain:+.1f}", f"{p:.3f}"])
    of_dev = {row: np.mean([max(results["rows"][row][domain]["dev"]) for domain in CROSSNER]) for row in ROWS}
    sources = [results["grids"][PRIOR][results["rows"][PRIOR][domain]["best"]] for domain in CROSSNER]
    tried = [len(grid) for grid in results["grids"].values()]
    alone = float(np.mean(f1_of(results, BOTH)))
    best = float(np.mean(f1_of(results, OTHERS, "f1")))
    return f"""## Few labels: entities of five domains

Each domain of CrossNER has 100 or 200 labelled training sentences. ChainCRF on words and on frozen vectors has a mean
F1 of spans of {alone:.1f} %. With probabilities of models of other data as another input, and `decoding="f1"`, it has
{best:.1f} %.

Rows with a star are figures of the paper (Liu and others, CrossNER, 2021), from memory, not checked. For a BERT that is
fine-tuned to the domain alone, the paper has {MEMORY[BERT]} %. ChainCRF with other data is {beside(best, BERT)} that,
and without other data {beside(alone, BERT)}. A BERT that is fine-tuned to other data first has {MEMORY[WITH_SOURCE]} %;
ChainCRF with other data is {beside(best, WITH_SOURCE)} that.

{common.markdown(["model", *CROSSNER, "mean", "CPU s"], lines)}

- *words*: sparse features of the spelling of words in a window.
- *vectors*: layers 2, 4 and 6 of a frozen MiniLM, of the word and, as another input, of its two neighbours.
  LogisticRegression labels each word by itself, from the same vectors.
- *both*: words and vectors, each with its own C.
- *others*: the probabilities of labels by models of the other four domains and of WNUT-17.
- *`prior=`*: the prior means are the weights of a chain that was fitted to WNUT-17 or to the other four domains. The
  dev data chose the four domains in {sources.count("domains")} of {len(CROSSNER)} cases.
- *CPU s*: all fits of a row, and the labels of dev and test. The chains for `prior=` are included; vectors and models
  of other data are not.

All models are fitted to train. Dev chooses among {min(tried)} to {max(tried)} settings per row; the mean F1 on dev is
highest for *{max(of_dev, key=of_dev.get)}*. Labels are the likeliest labelling unless a row says otherwise.

{common.markdown(["difference of mean F1", "points", "p"], tests)}

The p-values are those of a bootstrap over sentences, of which 0.001 is the least.
"""


def beside(value: float, name: str) -> str:
    """Return how far a mean F1 is above or below a published one, in words."""
    gap = value - MEMORY[name]
    return f"{abs(gap):.1f} points {'above' if gap > 0 else 'below'}"


AFFIXES, SUBSETS, TOL = (2, 3, 4), ("train", "dev", "test"), 1e-2
OF_OTHERS = {"words": 0.3, "vectors": 30.0, "steps": 3.0}
OF_WORDS = {"words": 3.0, "steps": 3.0}
CRFSUITE = "CRFsuite, words"
TOKENS = "LogisticRegression, vectors"
WORDS, VECTORS, BOTH = "ChainCRF, words", "ChainCRF, vectors", "ChainCRF, both"
PRIOR = "ChainCRF, words, `prior=`"
OTHERS = "ChainCRF, both and others"
LSTM, BERT = "BiLSTM-CRF, with CoNLL-2003 as other data\\*", "BERT, fine-tuned to the domain\\*"
WITH_SOURCE = "BERT, fine-tuned to other data and then to the domain\\*"
MEMORY = {LSTM: 47.6, BERT: 61.4, WITH_SOURCE: 64.9}
ROWS: dict[str, tuple[Callable[..., Model], Sequence[Any]]] = {
    CRFSUITE: (crfsuite, (3.0, 10.0)),
    WORDS: (chain, [{"words": C, "steps": 3.0} for C in (1.0, 3.0)]),
    PRIOR: (chain_after, ("wnut17", "domains")),
    TOKENS: (token_by_token, (3.0, 10.0, 30.0)),
    VECTORS: (chain, [{"vectors": C, "near": 10.0, "one": 3.0, "steps": 3.0} for C in (30.0,)]),
    BOTH: (chain, [{"words": C, "vectors": 30.0, "near": 10.0, "steps": 3.0} for C in (0.3, 1.0)]),
    OTHERS: (
        chain,
        [{"words": 0.3, "vectors": 30.0, "near": near, "others": 10.0, "steps": 3.0} for near in (10.0, 30.0)],
    ),
}
OPTIONS: dict[str, Any] = {}
