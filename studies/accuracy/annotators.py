"""Annotators who disagree: soft labels beside a majority vote.

Chunking (CoNLL-2000): three simulated annotators label the first sentences of train. Each of them gives a token its
true label with the probability .95, .75 or .55, and otherwise a label that is drawn by how often labels occur. A linear
ChainCRF on the usual template (`accuracy.tagging_tasks`), C = 1, with weights for all pairs of a feature and a label,
is fitted to these labels in several ways, and compared with the true labels of the test set:

- the label of most annotators; if all three differ, that of one of them, drawn at random
- each annotator's labels as a copy of the sentences, with weight 1/3
- soft labels: the share of the annotators who gave each label
- weighted labels and weighted soft labels: the probabilities of labels if annotators err independently, each at a rate
  that is estimated from the three sets of labels alone (the one-parameter model of Dawid and Skene, by EM). The fit
  gets the likeliest label, or soft labels without probabilities below .001.

Scores are means over random draws of the annotators, with the standard error. The fit to the true labels is the same
for all draws. The log-loss is that of single tokens. To save time, there are three draws, not four as earlier: standard
errors are 1.15 times as wide.
"""

from __future__ import annotations

import argparse
from itertools import pairwise
from typing import Any

import numpy as np

from kernelcrf import ChainCRF
from kernelcrf.metrics import span_f1
from studies import common
from studies.accuracy.spans import rows_of
from studies.accuracy.tagging_tasks import TASKS, TEMPLATES, TOL, parts_of
from studies.accuracy.text_features import WindowFeatures

RATES, LEAST, N_STEPS = (0.95, 0.75, 0.55), 1e-3, 30
WAYS = ("true labels", "best annotator", "majority", "copies", "soft", "weighted", "weighted soft")


def annotate(y: np.ndarray, n_labels: int, rng: np.random.Generator) -> np.ndarray:
    """Return the labels of all annotators, one row per annotator."""
    shares = np.bincount(y, minlength=n_labels) / len(y)
    drawn = rng.choice(n_labels, size=(len(RATES), len(y)), p=shares)
    return np.where(rng.random(drawn.shape) < np.array(RATES)[:, None], y, drawn)


def probabilities(votes: np.ndarray, n_labels: int) -> tuple[np.ndarray, np.ndarray]:
    """Return the probabilities of labels, and the estimated rate of right labels of each annotator.

    An annotator gives the true label with the rate r, and otherwise a label by the shares of all labels.
    """
    onehot = np.eye(n_labels)[votes]
    q, rates = onehot.mean(axis=0), np.full(len(votes), 0.7)
    for _ in range(N_STEPS):
        shares = q.mean(axis=0)
        noise = (1 - rates)[:, None] * shares[votes]
        likelihood = noise[:, :, None] + rates[:, None, None] * onehot
        q = shares * likelihood.prod(axis=0)
        q /= q.sum(axis=1, keepdims=True)
        agrees = np.take_along_axis(np.broadcast_to(q, (len(votes), *q.shape)), votes[:, :, None], axis=2)[:, :, 0]
        rates = (agrees * rates[:, None] / (rates[:, None] + noise)).mean(axis=1)
    return q, rates


def scores(crf: ChainCRF, Z: list[Any], y: list[list[str]]) -> dict[str, float]:
    predicted, p = crf.predict(Z), np.concatenate(crf.predict_proba(Z))
    place, true = {label: k for k, label in enumerate(crf.classes_.tolist())}, np.concatenate(y)
    known = np.array([label in place for label in true])
    of_true = p[known][np.arange(known.sum()), [place[label] for label in true[known]]]
    return {
        "f1": span_f1(y, [labels.tolist() for labels in predicted]),
        "accuracy": float(np.mean(np.concatenate(predicted) == true)),
        "log_loss": float(-np.log(of_true).mean()),
    }


def trial(
    X: Any, y: list[list[str]], Z: list[Any], true: list[list[str]], seed: int, known: dict[str, Any]
) -> dict[str, Any]:
    """Return the scores of all ways to use the labels of one draw of the annotators; those of `known` are known."""
    rng, lengths = np.random.default_rng(seed), [len(one) for one in y]
    classes, labels = np.unique(np.concatenate(y), return_inverse=True)
    L, ends = len(classes), np.append(0, np.cumsum(lengths))
    votes = annotate(labels, L, rng)
    counts = np.eye(L)[votes].sum(axis=0)
    winner = (counts + 1e-3 * rng.random(counts.shape)).argmax(axis=1)
    q, rates = probabilities(votes, L)
    kept = np.where(q >= LEAST, q, 0.0)
    sequences = [X[low:high] for low, high in pairwise(ends)]

    def cut(rows: np.ndarray) -> list[np.ndarray]:
        return np.split(rows, ends[1:-1])

    targets: dict[str, tuple[Any, Any]] = {
        "true labels": (cut(classes[labels]), None),
        "best annotator": (cut(classes[votes[0]]), None),
        "majority": (cut(classes[winner]), None),
        "copies": ([one for row in votes for one in cut(classes[row])], np.full(len(RATES) * len(y), 1 / len(RATES))),
        "soft": (cut(counts / len(RATES)), None),
        "weighted": (cut(classes[q.argmax(axis=1)]), None),
        "weighted soft": (cut(kept / kept.sum(axis=1, keepdims=True)), None),
    }
    found: dict[str, Any] = {"rates": rates.tolist(), **known}
    for way in [way for way in WAYS if way not in known]:
        targets_of_way, weights = targets[way]
        rows = sequences * len(RATES) if way == "copies" else sequences
        # Soft labels show more pairs of a feature and a label than labels do: all pairs have a weight in every way.
        crf = ChainCRF("linear", C=1.0, tol=TOL, weights="all", classes=classes.tolist())
        crf.fit(rows, targets_of_way, weights)
        found[way] = scores(crf, Z, true)
    wrong = {"majority": winner != labels, "weighted": q.argmax(axis=1) != labels}
    return found | {"wrong": {way: float(flags.mean()) for way, flags in wrong.items()}}


def measure(options: argparse.Namespace) -> dict[str, Any]:
    part, _, _, test = parts_of(TASKS["chunking"], vectors=False)
    part, test = part.part(slice(options.sentences)), test.part(slice(options.tested))
    window = WindowFeatures(TEMPLATES["usual"])
    X = window.fit_transform(part.columns)
    Z = rows_of(window, test)
    trials: list[dict[str, Any]] = []
    for seed in range(options.draws):
        known = {way: trials[0][way] for way in WAYS[:1] if trials}  # true labels do not depend on the draw
        trials.append(trial(X, part.y, Z, test.y, seed, known))
    return {"sentences": options.sentences, "tested": options.tested, "trials": trials}


def section(results: dict[str, Any]) -> str:
    trials, digits = results["trials"], {"f1": 2, "accuracy": 2, "log_loss": 3}

    def cell(way: str, key: str) -> str:
        factor = 1.0 if key == "log_loss" else 100.0
        return common.plus_minus([factor * one[way][key] for one in trials], digits[key])

    names = {
        "true labels": "the true labels",
        "best annotator": "the best annotator alone",
        "majority": "majority vote",
        "copies": "one copy per annotator, weight 1/3",
        "soft": "soft labels: shares of votes",
        "weighted": "likeliest label, annotators weighted",
        "weighted soft": "soft labels, annotators weighted",
    }
    lines = [[name, *(cell(way, key) for key in digits)] for way, name in names.items()]
    rates = ", ".join(f"{rate:.2f}" for rate in np.mean([one["rates"] for one in trials], axis=0))
    wrong = {way: 100 * np.mean([one["wrong"][way] for one in trials]) for way in ("majority", "weighted")}
    change, error = common.mean_and_error(
        [100 * (one["weighted soft"]["f1"] - one["true labels"]["f1"]) for one in trials]
    )
    chance = ", which is within two standard errors" if abs(change) <= 2 * error else ""
    fewer = (
        f" instead of 4, so that standard errors are {np.sqrt(4 / len(trials)):.2f} times as large"
        if len(trials) < 4
        else ""
    )
    return f"""## Annotators who disagree

What should a model be fitted to if annotators disagree? Three simulated annotators label {results["sentences"]}
training sentences of CoNLL-2000. Tests are on {results["tested"]:,} sentences with true labels. Numbers are means and
standard errors over {len(trials)} draws of the annotators{fewer}.

A majority vote has {wrong["majority"]:.1f} % wrong labels. With annotators weighted by their estimated reliability, it
is {wrong["weighted"]:.1f} %. The annotators give the true label with probabilities of {", ".join(map(str, RATES))}, and
otherwise a random label. Estimates of these probabilities from the labels alone are {rates}.

{common.markdown(["fitted to", "F1", "accuracy", "log-loss"], lines)}

*Soft labels* are probabilities of labels. With weighted annotators, a fit to soft labels differs in F1 from a fit to
the true labels by {change:+.2f} ± {error:.2f} points{chance}.
"""


OPTIONS: dict[str, Any] = {"sentences": 200, "tested": 1000, "draws": 3}
