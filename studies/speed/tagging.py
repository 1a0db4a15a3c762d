"""Prediction: from feature lists to labels beside CRFsuite's tagger, from arrays to labels beside a bare Gram block.

Lists: the test sentences of CoNLL-2000 chunking have 19 feature names per token. *Dicts* are dicts of 19 strings. They
are labelled in one call with all sentences, and in one call per sentence; CRFsuite always has one call per sentence.
The strings are made anew before the clock starts, as they would come from a template. For the latency, the features of
a sentence are made just before its call. Both models are fitted to the same sentences by a few iterations, since the
time of tagging does not depend on the fit. *Vectorising* is what `fit` spends on reading the feature names of the
training sentences.

Arrays: inputs are 64 numbers per token in float32, in sequences of 20, and the rbf kernel has 500 landmarks. *Bare* is
the Gram block of all inputs alone, on one thread: `X @ B.T` for the landmarks B, squared distances in place, and an
exponential in place. *Bare in blocks* does the same for 1,024 tokens at a time, which stay in the cache.
"""

from __future__ import annotations

import argparse
import sys
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
from sklearn.exceptions import ConvergenceWarning
from threadpoolctl import threadpool_limits

from kernelcrf import ChainCRF
from kernelcrf.readers.sequences import SequenceReader
from studies import common
from studies.accuracy.baselines import CRFsuite
from studies.speed import chunking

LABELS = (2, 9, 23)
GAMMA = 1 / 64
FITTED = 100


def quiet_fit(model: ChainCRF, X: list[Any], y: list[Any]) -> ChainCRF:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        return model.fit(X, y)


def as_dicts(sentence: list[list[str]]) -> list[dict[str, str]]:
    """Return the features as dicts, whose keys are the template's own strings."""
    parts = [[feature.split("=", 1) for feature in token] for token in sentence]
    return [{sys.intern(name): value for name, value in token} for token in parts]


def from_lists(options: argparse.Namespace) -> dict[str, Any]:
    train, test = (chunking.sentences(split)[: options.sentences or None] for split in ("train", "test"))
    X, y = [chunking.features(one) for one in train], [chunking.labels(one) for one in train]
    reading = np.median([common.seconds(lambda: SequenceReader.fit(X)) for _ in range(3)])
    # Weights to tag by: as many features as all sentences have, from fewer iterations than a good model takes.
    model = quiet_fit(ChainCRF("linear", max_iter=options.iterations, C=1.0), X, y)
    tagger = CRFsuite(c2=1.0, max_iterations=options.iterations).fit(X, y).tagger

    def fresh() -> list[list[list[str]]]:
        return [chunking.features(one) for one in test]

    def dicts() -> list[list[dict[str, str]]]:
        return [as_dicts(one) for one in fresh()]

    def one_by_one(inputs: list[Any]) -> None:
        for one in inputs:
            model.predict([one])

    def crfsuite(inputs: list[Any]) -> None:
        for one in inputs:
            tagger.tag(one)

    def single_latencies(call: Callable[[Any], Any]) -> float:
        made = (chunking.features(one) for one in test)
        return float(np.median([common.seconds(lambda one=one: call(one)) for one in made]))

    one_by_one(fresh()[:10])
    times: dict[str, list[float]] = {}
    for _ in range(options.rounds):
        for form, make in (("lists", fresh), ("dicts", dicts)):
            for side, call in (("batch", model.predict), ("one by one", one_by_one), ("crfsuite", crfsuite)):
                inputs = make()
                times.setdefault(f"{form}, {side}", []).append(common.seconds(lambda c=call, i=inputs: c(i)))
        times.setdefault("median sentence", []).append(single_latencies(lambda one: model.predict([one])))
        times.setdefault("median sentence, crfsuite", []).append(single_latencies(tagger.tag))
    return {
        "tokens": sum(map(len, test)),
        "sentences": len(test),
        "columns": model.n_features_in_,
        "train_tokens": sum(map(len, train)),
        "vectorising, s": float(reading),
        "seconds": {name: float(np.median(values)) for name, values in times.items()},
    }


def bare(X: np.ndarray, B: np.ndarray) -> np.ndarray:
    K = X @ B.T
    K *= np.float32(2 * GAMMA)
    K -= np.float32(GAMMA) * np.einsum("ij,ij->i", X, X)[:, None]
    K -= np.float32(GAMMA) * np.einsum("ij,ij->i", B, B)
    return np.exp(K, out=K)


def from_arrays(options: argparse.Namespace) -> dict[str, Any]:
    rng = np.random.default_rng(0)
    X = rng.normal(size=(options.tokens, 64)).astype(np.float32)
    sequences = np.split(X, range(20, len(X), 20))
    result: dict[str, Any] = {"tokens": options.tokens}
    for L in LABELS:
        # What the labels are does not matter to the time; all of them occur in the first two sequences.
        y = [(np.arange(20) + 20 * i) % L for i in range(FITTED)]
        model = ChainCRF("rbf", gamma=GAMMA, n_components=500, max_iter=5, random_state=0, C=1.0)
        B = quiet_fit(model, sequences[:FITTED], y).landmarks_
        sides = {
            "bare": lambda B=B: bare(X, B),
            "bare in blocks": lambda B=B: [bare(X[i : i + 1024], B).shape for i in range(0, len(X), 1024)],
            "predict": lambda m=model: m.set_params(n_jobs=1).predict(sequences),
            "predict, 2 threads": lambda m=model: m.set_params(n_jobs=2).predict(sequences),
        }
        with threadpool_limits(1, user_api="blas"):
            for side in sides.values():
                side()
            result[str(L)] = common.side_by_side(sides, options.rounds)
    return result


def measure(options: argparse.Namespace) -> dict[str, Any]:
    return {"rounds": options.rounds, "lists": from_lists(options), "arrays": from_arrays(options)}


def table(results: dict[str, Any]) -> str:
    lists, arrays = results["lists"], results["arrays"]
    took, tokens = lists["seconds"], lists["tokens"]
    rows = []
    for form in ("lists", "dicts"):
        theirs = took[f"{form}, crfsuite"]
        for side in ("batch", "one by one"):
            ours = took[f"{form}, {side}"]
            rows.append([f"{form}, {side}", f"{tokens / ours:,.0f}", f"{tokens / theirs:,.0f}", f"{theirs / ours:.2f}"])
    ours, theirs = took["median sentence"], took["median sentence, crfsuite"]
    text = common.markdown(["tokens per second", "kernelcrf", "CRFsuite", "ratio"], rows) + (
        f"\n\n{lists['sentences']:,} sentences, {tokens:,} tokens of 19 features, {lists['columns']:,} columns. The "
        f"median latency of a sentence is {1e6 * ours:.0f} µs, and {1e6 * theirs:.0f} µs for CRFsuite. Vectorising "
        f"{lists['train_tokens']:,} training tokens takes {lists['vectorising, s']:.2f} s.\n\n"
    )
    rows = []
    for L in map(str, LABELS):
        row, floor = arrays[L], arrays[L]["bare"]
        cells = [f"{row[name] / floor:.2f}" for name in ("bare in blocks", "predict", "predict, 2 threads")]
        rows.append([f"L = {L}", f"{1e3 * floor:.0f}", *cells])
    header = ["arrays", "bare, ms", "bare in blocks", "predict", "predict, 2 threads"]
    return f"{text}{common.markdown(header, rows)}" + (
        f"\n\nAll columns after *bare* are divided by it. There are L labels and {arrays['tokens']:,} tokens, and "
        f"times are medians of {results['rounds']} rounds in turn."
    )


OPTIONS = {"sentences": 0, "tokens": 100_000, "rounds": 5, "iterations": 3}
