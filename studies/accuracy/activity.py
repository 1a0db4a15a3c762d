"""Labels of sensor data: classifiers, hidden Markov models and chains, on the same columns.

Activities of people who wear a sensor without battery: the first three of five folds by trial in room S1, and S1 -> S2.
Occupancy of an office: train -> test1 and test2, by day. Columns are scaled by the training data; the time of a reading
is left out. A forest has 100 trees with two tokens per leaf or more; boosting is HistGradientBoostingClassifier().
*With HMM* smooths their probabilities by forward-backward: transitions and first labels are counted in training data
(plus one), and likelihoods are p(y|x) / p(y). CRFsuite reads ten bins of each column with the same number of tokens.
ChainCRF() and ChainOver have all their defaults.

Scores are macro F1, accuracy and log-loss of tokens, over all test tokens. Labels of HMM, CRFsuite and chains are the
likeliest ones of each token, or of the whole sequence for F1 and accuracy of chains and CRFsuite. p-values are those of
differences to the reference, by bootstrap over sequences. Seconds are CPU time of all fits, on one thread.

To save time, two of five folds in S1 are left out, so that errors there are 1.3 times as wide. Forests had 300 trees
earlier, in all rows that have one. Rows of ChainOver on boosting, and with an rbf kernel on the columns as a second
input, took two thirds of the time, and were dropped. In S1 and on occupancy they were no better than the reference, and
in S2 as poor as all rows with trees.
"""

from __future__ import annotations

import argparse
import time
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
from sklearn.ensemble import HistGradientBoostingClassifier, RandomForestClassifier
from sklearn.metrics import confusion_matrix
from sklearn.preprocessing import KBinsDiscretizer, StandardScaler

from kernelcrf import ChainCRF, ChainOver, Input
from kernelcrf.graphs.structure import Chains
from kernelcrf.models.chain_field import ChainField
from studies import common
from studies.accuracy import baselines
from studies.datasets import load_batteryless, load_occupancy

REFERENCE = "ChainOver, forest"
LEAST = 1e-12
N_FOLDS = 3  # of five


def forest() -> Any:
    return RandomForestClassifier(100, min_samples_leaf=2, random_state=0)


def boosting() -> Any:
    return HistGradientBoostingClassifier(random_state=0)


def over(classifier: Any) -> Any:
    chain = ChainCRF(inputs={"classifier": Input("linear")}, fit_intercept=True, random_state=0)
    return ChainOver(classifier, chain=chain)


class HMM:
    """Smooth the probabilities of a classifier by a hidden Markov model."""

    def __init__(self, classifier: Any) -> None:
        self.tokens = baselines.PerToken(classifier)

    def fit(self, X: list[Any], y: list[Any]) -> HMM:
        return self.count(self.tokens.fit(X, y), y)

    def count(self, tokens: baselines.PerToken, y: list[Any]) -> HMM:
        """Count transitions and first labels, given the fitted classifier."""
        self.tokens, self.classes_ = tokens, tokens.classes_
        steps, starts = np.ones(2 * (len(self.classes_),)), np.ones(len(self.classes_))
        codes = [np.searchsorted(self.classes_, one) for one in y]
        for one in codes:
            np.add.at(steps, (one[:-1], one[1:]), 1)
            starts[one[0]] += 1
        self.prior = np.log(np.bincount(np.concatenate(codes)) / sum(map(len, codes)))
        self.steps, self.starts = np.log(steps / steps.sum(axis=1, keepdims=True)), np.log(starts / starts.sum())
        return self

    def predict_proba(self, X: list[Any]) -> list[np.ndarray]:
        chains = Chains.from_lengths([len(x) for x in X])
        s = np.log(np.maximum(np.concatenate(self.tokens.predict_proba(X)), LEAST)) - self.prior
        s[chains.first_nodes] += self.starts
        return np.split(ChainField(s, self.steps, chains).marginals(), chains.offsets[1:-1])

    def predict(self, X: list[Any]) -> list[np.ndarray]:
        return [self.classes_[p.argmax(axis=1)] for p in self.predict_proba(X)]


class Binned(baselines.CRFsuite):
    """CRFsuite on bins of each column."""

    def fit(self, X: list[Any], y: list[Any]) -> Binned:
        self.bins = KBinsDiscretizer(10, encode="ordinal", strategy="quantile", subsample=None).fit(np.concatenate(X))
        super().fit(self._names_of(X), y)
        return self

    def _names_of(self, X: list[Any]) -> list[Any]:
        return [[[f"{c}:{b:g}" for c, b in enumerate(row)] for row in self.bins.transform(x)] for x in X]

    def predict(self, X: list[Any]) -> list[np.ndarray]:
        return super().predict(self._names_of(X))

    def predict_proba(self, X: list[Any]) -> list[np.ndarray]:
        return super().predict_proba(self._names_of(X))


MODELS: dict[str, Callable[[], Any]] = {
    "forest": lambda: baselines.PerToken(forest()),
    "boosting": lambda: baselines.PerToken(boosting()),
    "CRFsuite, bins": Binned,
    "ChainCRF()": lambda: ChainCRF(random_state=0),
    "ChainOver, forest": lambda: over(forest()),
}
SMOOTHED = {"forest": "forest with HMM", "boosting": "boosting with HMM"}


def batteryless(room: str) -> list[Any]:
    """Return pairs of training and test data: folds of room S1, or S1 -> S2."""
    data = load_batteryless()
    own, other = (
        [(x[:, 1:], y) for x, y, g in zip(data.X, data.y, data.groups, strict=True) if g == r] for r in ("S1", "S2")
    )
    if room == "S2":
        return [(own, other)]
    return [([p for i, p in enumerate(own) if i % 5 != k], own[k::5]) for k in range(N_FOLDS)]


def occupancy() -> list[Any]:
    train, *test = (load_occupancy(part, by_day=True) for part in ("train", "test1", "test2"))
    return [tuple([(x, y) for part in parts for x, y in zip(part.X, part.y, strict=True)] for parts in ([train], test))]


DATA: dict[str, Callable[[], list[Any]]] = {
    "activity, S1, three of five folds": lambda: batteryless("S1"),
    "activity, S1 to S2": lambda: batteryless("S2"),
    "occupancy": occupancy,
}


def run(data: str) -> dict[str, Any]:
    """Fit all models to each fold; return, for each test sequence, confusion matrices and sums of log-losses."""
    rows: dict[str, Any] = {}
    for train, test in DATA[data]():
        scaler = StandardScaler().fit(np.concatenate([x for x, _ in train]))
        (X, y), (Z, z) = (
            ([scaler.transform(x) for x, _ in part], [np.asarray(y) for _, y in part]) for part in (train, test)
        )
        for name, make in MODELS.items():
            start, model = time.process_time(), make()
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                model.fit(X, y)
            seconds = time.process_time() - start
            add(rows, name, seconds, model, Z, z)
            if name in SMOOTHED:  # the classifier is fitted already
                start, hmm = time.process_time(), HMM(model.classifier).count(model, y)
                add(rows, SMOOTHED[name], seconds + time.process_time() - start, hmm, Z, z)
    return rows


def add(rows: dict[str, Any], name: str, seconds: float, model: Any, Z: list[Any], z: list[Any]) -> None:
    """Add the scores of a model on the test data of one fold."""
    row = rows.setdefault(name, {"counts": [], "losses": [], "seconds": 0.0})
    row["seconds"] += seconds
    classes = np.asarray(model.classes_)
    for p, labels, truth in zip(model.predict_proba(Z), model.predict(Z), z, strict=True):
        row["counts"].append(confusion_matrix(truth, labels, labels=classes).tolist())
        own = p[np.arange(len(truth)), np.searchsorted(classes, truth)]
        row["losses"].append(float(-np.log(np.maximum(own, LEAST)).sum()))


def scores(counts: np.ndarray, losses: np.ndarray) -> np.ndarray:
    """Return macro F1, accuracy and log-loss, given sums of confusion matrices and log-losses."""
    right, total = np.diagonal(counts, axis1=-2, axis2=-1), counts.sum(axis=(-2, -1))
    f1 = 2 * right / np.maximum(counts.sum(axis=-1) + counts.sum(axis=-2), 1)
    return np.stack([f1.mean(axis=-1), right.sum(axis=-1) / total, losses / total], axis=-1)


def measure(options: argparse.Namespace) -> dict[str, Any]:
    one_thread = dict.fromkeys(("OMP_NUM_THREADS", "NUMBA_NUM_THREADS"), "1")
    found: dict[str, Any] = {}
    for data in options.data.split(";"):
        rows = common.kept(f"activity {data}", lambda data=data: common.in_process(run, data, **one_thread))
        parts = {model: {name: np.asarray(value) for name, value in row.items()} for model, row in rows.items()}
        for model, one in parts.items():
            print(data, model, scores(one["counts"].sum(axis=0), one["losses"].sum()), flush=True)
        draws = np.random.default_rng(0).integers(
            len(parts[REFERENCE]["losses"]), size=(2000, len(parts[REFERENCE]["losses"]))
        )
        drawn = {
            name: scores(one["counts"][draws].sum(axis=1), one["losses"][draws].sum(axis=1))
            for name, one in parts.items()
        }
        found[data] = {
            name: {
                "scores": scores(one["counts"].sum(axis=0), one["losses"].sum()),
                "p": [common.tail_p((drawn[REFERENCE] - drawn[name])[:, k]) for k in range(3)],
                "seconds": one["seconds"],
            }
            for name, one in parts.items()
        }
    return {"data": found}


def section(results: dict[str, Any]) -> str:
    tables = []
    for data, rows in results["data"].items():
        lines = []
        for name, row in rows.items():
            f1, accuracy, loss = row["scores"]
            ps = ["" if name == REFERENCE else f"{p:.3f}" for p in (row["p"][0], row["p"][2])]
            lines.append(
                [name, f"{100 * f1:.2f}", f"{100 * accuracy:.2f}", f"{loss:.4f}", *ps, f"{row['seconds']:.0f}"]
            )
        header = ["model", "macro F1", "accuracy", "log-loss", "p of F1", "p of log-loss", "CPU seconds"]
        tables.append(f"**{data[0].upper()}{data[1:]}**\n\n{common.markdown(header, lines)}")
    joined = "\n\n".join(tables)
    return f"""## Activities and occupancy from sensors

The tokens are readings of sensors: of people who wear one in a room (*activity*), and of an office (*occupancy*). S1
and S2 are two rooms. In the task *S1*, models train and test in room S1; in *S1 to S2*, they train in room S1 and test
in room S2.{common.of_all(N_FOLDS, 5, "folds of S1")}

- *forest*, *boosting*: classifiers of single tokens, a random forest and HistGradientBoostingClassifier.
- *with HMM*: a hidden Markov model smooths the probabilities of the classifier.
- *CRFsuite, bins*: each column is cut into ten ranges, and CRFsuite gets the names of the ranges.
- *ChainCRF()*: the scaled columns, with all defaults.
- *ChainOver, forest*: a chain reads the probabilities of the forest.

p-values are those of differences to *{REFERENCE}*, by bootstrap over sequences; 0.001 is the least.

{joined}

{finding(results["data"])}
"""


def finding(data: dict[str, dict[str, Any]]) -> str:
    """Return what chains and hidden Markov models change, in words."""
    pairs = [(rows[smoothed], rows[name]) for rows in data.values() for name, smoothed in SMOOTHED.items()]
    worse = sum(hmm["scores"][2] > alone["scores"][2] for hmm, alone in pairs)
    over = []
    for name, rows in data.items():
        gain = 100 * (rows[REFERENCE]["scores"][0] - rows["forest"]["scores"][0])
        side = "higher" if gain > 0 else "lower"
        over.append(f"- {name}: {abs(gain):.2f} points {side} (p = {rows['forest']['p'][0]:.3f}).")
    joined = "\n".join(over)
    other_room = data["activity, S1 to S2"]
    best = max(other_room, key=lambda name: other_room[name]["scores"][0])
    return f"""\
The macro F1 of a chain over the forest, beside that of the forest alone:

{joined}

`ChainOver` learns from training data how far to trust the classifier. It cannot mend a classifier that fails on other
data: in room S2, which has other antennas, the same values can mean something else.

From S1 to S2, *{best}* has the highest macro F1, {100 * other_room[best]["scores"][0]:.2f} %; the forest has
{100 * other_room["forest"]["scores"][0]:.2f} %, and the chain over it
{100 * other_room[REFERENCE]["scores"][0]:.2f} %.

Smoothing by a hidden Markov model makes the log-loss worse in {worse or "none"} of {len(pairs)} cases: it counts
dependent readings as independent evidence, so that its probabilities are too sure."""


OPTIONS = {"data": ";".join(DATA)}
