"""Do prediction sets contain the truth as often as promised? Conformal sets beside plain thresholds.

Each model is fitted once, on training data, to a gap of 0.1 %. C was chosen on training data: by the likelihood of
held-out sequences, and for scene by cross-validation in accuracy.multilabel. The test data of each model are divided at
random into calibration data and new data, one half each, `--splits` times, by sequences:

    letters      one fold -> 2,012 words of the other nine; rbf kernel on pixels, C = 100
    CoNLL-2000   3,000 sentences of train -> 1,000 test sentences; default templates, C = 1
    WNUT-17      1,500 posts of train -> the 1,287 test posts; default templates, C = 1
    scene        train -> the 1,196 test images; MultiLabelCRF with all pairs, rbf kernel, C = 10, 500 landmarks

Labels that only test data have are passed as `classes`. Each kind of set is calibrated for 80, 90 and 95 %. *p >= 1 -
level* and *p sums to level* (labels from the likeliest on, until their probabilities sum to the level) need no
calibration. *On tokens* takes each token as a sequence, as MAPIE does (SplitConformalClassifier, LAC).

*Covered* counts what is promised: sequences with all true labels in their sets, tokens (mean share per sequence),
labellings, or spans (mean share per sequence that has spans). Sets of labellings are cut at 1,000: a true labelling
counts as covered if it belongs to the whole set, and as *all right* only if it is among those that were returned. A
split is *in band* if its coverage lies in the central 95 % of its law. For sequences and labellings, the law over
random splits is exact, for any model. Of m new units, BetaBinomial(m, k, n + 1 - k) are covered, with n units for
calibration and k = ceil((n + 1) level). This law has the noise of both halves. For shares, it is the normal law with
the standard deviation s sqrt(1/n + 1/m), where s is that of the shares of new units. The law on tokens is BetaBinomial
too, with tokens as units. The mean over splits has the same law with its standard deviation divided by sqrt(splits).

To save time, there are five splits, not twenty as earlier, so that the law of a mean is twice as wide. The linear
models have fewer training data, and chunks half of the test sentences.
"""

from __future__ import annotations

import argparse
import math
import time
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy import stats
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.preprocessing import StandardScaler

from kernelcrf import ChainCRF, ConformalLabellings, ConformalLabels, ConformalSpans, MultiLabelCRF, datasets
from kernelcrf.metrics import spans
from studies import common
from studies.accuracy.defaults import TASKS, text
from studies.common import kept
from studies.datasets import load_multilabel

LEVELS = (0.8, 0.9, 0.95)
TESTED = {"letters": 2012, "CoNLL-2000": 1000}  # drawn from the test sequences
N_CHUNKS = 3000  # training sentences of CoNLL-2000
CHAINS = {"letters": 100.0, "CoNLL-2000": 1.0, "WNUT-17": 1.0}
TOKENS = "ConformalLabels on tokens"
# What each kind of set promises to cover.
PROMISES = {
    "ConformalLabels": "sequences",
    "ConformalLabels, share": "tokens",
    "ConformalLabellings": "labellings",
    "ConformalSpans": "spans",
    TOKENS: "tokens",
    "p >= 1 - level": "tokens",
    "p sums to level": "tokens",
}


class Stored(ClassifierMixin, BaseEstimator):
    """Answer about sequences by their numbers, from answers of a ChainCRF that are computed once for all splits."""

    def __init__(self, crf: ChainCRF, X: list[Any], y: list[Any]) -> None:
        self.crf, self.X = crf, X
        self.classes_ = np.arange(len(crf.classes_))
        self.y = [np.searchsorted(crf.classes_, labels) for labels in y]
        self.p, self.log_p = crf.predict_proba(X), crf.log_prob(X, y)
        self.ranked: list[tuple[np.ndarray, np.ndarray, int]] = [(np.empty((0, 0)), np.empty(0), 0)] * len(X)

    def fit(self, X: Any, y: Any) -> Stored:
        return self

    def predict_proba(self, X: Any) -> list[np.ndarray]:
        return [self.p[i] for i in X]

    def log_prob(self, X: Any, y: Any) -> np.ndarray:
        return self.log_p[X]

    def distribution(self, X: Any) -> StoredDistribution:
        return StoredDistribution(self, X)

    def k_best(self, X: Any, n_best: int) -> list[list[tuple[np.ndarray, float]]]:
        missing = [i for i in X if self.ranked[i][2] < n_best]
        for i, found in zip(missing, self.crf.distribution([self.X[i] for i in missing]).k_best(n_best), strict=True):
            codes = np.array([np.searchsorted(self.crf.classes_, labels) for labels, _ in found], np.uint8)
            self.ranked[i] = codes, np.array([log_p for _, log_p in found]), n_best
        return [[*zip(self.ranked[i][0][:n_best], self.ranked[i][1][:n_best], strict=True)] for i in X]


@dataclass(frozen=True)
class StoredDistribution:
    """The stored answers about some sequences."""

    stored: Stored
    X: Any

    def log_prob(self, y: Any) -> np.ndarray:
        return self.stored.log_prob(self.X, y)

    def k_best(self, k: int = 1) -> list[list[tuple[np.ndarray, float]]]:
        return self.stored.k_best(self.X, k)


class Given(ClassifierMixin, BaseEstimator):
    """Take rows of probabilities as inputs, and return them."""

    def __init__(self, n_classes: int) -> None:
        self.n_classes, self.classes_ = n_classes, np.arange(n_classes)

    def fit(self, X: Any, y: Any) -> Given:
        return self

    def predict_proba(self, X: np.ndarray) -> np.ndarray:
        return X

    def predict(self, X: np.ndarray) -> np.ndarray:
        return X.argmax(axis=1)


def fitted_chain(name: str) -> tuple[float, ChainCRF, list[Any], list[Any]]:
    """Return the CPU seconds of reading and fitting, the model, and the test data."""
    start = time.process_time()
    folds = text(datasets.load_conll2000, "word", "pos", most=N_CHUNKS) if name == "CoNLL-2000" else TASKS[name]()
    train, tests = next(folds)
    (X, y), (X_test, y_test) = (train.X, train.y), (tests[""].X, tests[""].y)
    if name in TESTED:
        chosen = np.random.default_rng(0).permutation(len(X_test))[: TESTED[name]]
        X_test, y_test = ([part[i] for i in chosen] for part in (X_test, y_test))
    classes = sorted({label for labels in (*y, *y_test) for label in labels})
    crf = ChainCRF(C=CHAINS[name], classes=classes, tol=1e-3, random_state=0).fit(X, y)
    return time.process_time() - start, crf, X_test, y_test


def fitted_sets() -> tuple[float, MultiLabelCRF, np.ndarray, np.ndarray]:
    start = time.process_time()
    data = load_multilabel("scene")
    scaler = StandardScaler().fit(data.X_train)
    model = MultiLabelCRF(C=10.0, gamma=1 / 294, structure="full", n_components=500, tol=1e-3, random_state=0)
    model.fit(scaler.transform(data.X_train), data.Y_train)
    return time.process_time() - start, model, scaler.transform(data.X_test), data.Y_test


# Bands


def exact_band(n: int, m: int, level: float) -> tuple[float, float, float, float]:
    """Return the band of the coverage of one split, and the mean and standard deviation of the coverage."""
    k = math.ceil(round((n + 1) * level, 9))
    law = stats.betabinom(m, k, n + 1 - k)
    return law.ppf(0.025) / m, law.ppf(0.975) / m, law.mean() / m, law.std() / m


def share_band(shares: np.ndarray, n: int, level: float) -> tuple[float, float, float, float]:
    """Return the same for the mean share of what is covered."""
    mean = 1 - ((1 - level) * (n + 1) - 1) / n
    std = float(np.std(shares)) * math.sqrt(1 / n + 1 / len(shares))
    return mean - 1.96 * std, mean + 1.96 * std, mean, std


# One split: for each kind of set, the share that is covered per unit, the share of sequences with all true labels in
# their sets, and the mean size of a set.


def covered_labels(sets: list[np.ndarray], y: list[np.ndarray]) -> list[np.ndarray]:
    return [one[np.arange(len(labels)), labels] for one, labels in zip(sets, y, strict=True)]


def chain_split(stored: Stored, held: np.ndarray, new: np.ndarray, level: float) -> dict[str, Any]:
    y_held, y_new = ([stored.y[i] for i in part] for part in (held, new))
    found = {}

    def add(method: str, sets: list[np.ndarray], band: Callable[[np.ndarray], Any] | None) -> None:
        inside = covered_labels(sets, y_new)
        whole, shares = (np.array([function(one) for one in inside], float) for function in (np.all, np.mean))
        if method == TOKENS:  # it counts tokens, not sequences
            shares = np.concatenate(inside).astype(float)
        own = whole if PROMISES[method] == "sequences" else shares
        size = np.concatenate(sets).sum(axis=1).mean()
        found[method] = {"covered": own.mean(), "whole": whole.mean(), "size": size, "band": band and band(own)}

    for method, control in (("ConformalLabels", "all"), ("ConformalLabels, share", "share")):
        sets = ConformalLabels(stored, confidence_level=level, control=control).conformalize(held, y_held)
        law = exact_band(len(held), len(new), level)
        band = (lambda own, law=law: law) if control == "all" else (lambda own: share_band(own, len(held), level))
        add(method, sets.predict_set(new), band)
    conformal = ConformalLabellings(stored, confidence_level=level).conformalize(held, y_held)
    labellings = conformal.predict_set(new)
    cut = np.array([not one.is_complete for one in labellings])
    inside = [any((own == truth).all() for own, _ in one) for one, truth in zip(labellings, y_new, strict=True)]
    found["ConformalLabellings"] = {
        "covered": (-stored.log_p[new] <= conformal.threshold_).mean(), "whole": np.mean(inside), "cut": cut.mean(),
        "size": np.mean([*map(len, labellings)]), "band": exact_band(len(held), len(new), level),
    }  # fmt: skip
    if str(stored.crf.classes_[-1]) == "O":
        found["ConformalSpans"] = span_split(stored, held, new, level)
    p = stored.predict_proba(new)
    add("p >= 1 - level", [one >= 1 - level for one in p], None)
    add("p sums to level", [until(one, level) for one in p], None)
    rows, labels = np.concatenate(stored.predict_proba(held)), np.concatenate(y_held)
    tokens = ConformalLabels(Given(rows.shape[1]), confidence_level=level).conformalize(rows, labels)
    at = np.cumsum([len(one) for one in p])[:-1]
    add(
        TOKENS,
        np.split(tokens.predict_set(np.concatenate(p)), at),
        lambda own: exact_band(len(labels), len(own), level),
    )
    return found


def span_split(stored: Stored, held: np.ndarray, new: np.ndarray, level: float) -> dict[str, Any]:
    X_held, X_new = ([stored.X[i] for i in part] for part in (held, new))
    y_held, y_new = ([stored.crf.classes_[stored.y[i]].tolist() for i in part] for part in (held, new))
    found = ConformalSpans(stored.crf, confidence_level=level).conformalize(X_held, y_held).predict_set(X_new)
    shares = []
    for own, labels in zip(found, y_new, strict=True):
        true, known = spans(labels), {tuple(span[:3]) for span in own}
        if true:
            shares.append(np.mean([span in known for span in true]))
    n_held = sum(bool(spans(labels)) for labels in y_held)
    return {
        "covered": np.mean(shares), "whole": np.mean(np.array(shares) == 1), "size": np.mean([*map(len, found)]),
        "band": share_band(np.array(shares), n_held, level),
    }  # fmt: skip


def until(p: np.ndarray, level: float) -> np.ndarray:
    """Return the likeliest labels of each token, until their probabilities sum to the level."""
    order = np.argsort(-p, axis=1)
    before = np.cumsum(np.take_along_axis(p, order, axis=1), axis=1) - np.take_along_axis(p, order, axis=1)
    sets = np.zeros(p.shape, bool)
    np.put_along_axis(sets, order, before < level, axis=1)
    return sets


def rows_split(model: MultiLabelCRF, X: np.ndarray, Y: np.ndarray, new: np.ndarray, level: float) -> dict[str, Any]:
    held = ~new
    found, n, m = {}, int(held.sum()), int(new.sum())

    def add(method: str, sets: np.ndarray) -> None:
        missed = (Y[new] == 1) & ~sets
        shares, whole = 1 - missed.sum(axis=1) / Y[new].sum(axis=1).clip(1), ~missed.any(axis=1)
        own = whole if method == "ConformalLabels" else shares
        found[method] = {"covered": own.mean(), "whole": whole.mean(), "size": sets.sum(axis=1).mean(), "band": None}
        if method == "ConformalLabels":
            found[method]["band"] = exact_band(n, m, level)
        elif method == "ConformalLabels, share":
            found[method]["band"] = share_band(shares, n, level)

    for method, control in (("ConformalLabels", "all"), ("ConformalLabels, share", "share")):
        sets = ConformalLabels(model, confidence_level=level, control=control).conformalize(X[held], Y[held])
        add(method, sets.predict_set(X[new]))
    labellings = ConformalLabellings(model, confidence_level=level).conformalize(X[held], Y[held]).predict_set(X[new])
    inside = [any((own == truth).all() for own, _ in one) for one, truth in zip(labellings, Y[new], strict=True)]
    found["ConformalLabellings"] = {
        "covered": np.mean(inside), "whole": np.mean(inside), "size": np.mean([*map(len, labellings)]), "cut": 0.0,
        "band": exact_band(n, m, level),
    }  # fmt: skip
    add("p >= 1 - level", model.predict_proba(X[new]) >= 1 - level)
    return found


def measure(options: argparse.Namespace) -> dict[str, Any]:
    warnings.simplefilter("ignore")
    total, results = 0.0, {}
    for name in options.data.split(","):
        rng = np.random.default_rng(0)
        if name == "scene":
            seconds, model, X, Y = kept("conformal scene", fitted_sets)
            start, size = time.process_time(), len(X)
        else:
            seconds, *fitted = kept(f"conformal {name}", lambda name=name: fitted_chain(name))
            start, stored = time.process_time(), Stored(*fitted)
            size = len(stored.X)
        runs: dict[str, dict[str, list[Any]]] = {}
        for _ in range(options.splits):
            order = rng.permutation(size)
            held, new = np.sort(order[: size // 2]), np.sort(order[size // 2 :])
            for level in LEVELS:
                if name == "scene":
                    found = rows_split(model, X, Y, np.isin(np.arange(size), new), level)
                else:
                    found = chain_split(stored, held, new, level)
                for method, one in found.items():
                    runs.setdefault(method, {}).setdefault(str(level), []).append(one)
        results[name] = {
            method: {level: summarise(rows) for level, rows in runs[method].items()}
            for method in PROMISES
            if method in runs
        }
        total += seconds + time.process_time() - start
        print(f"{name}: {total:.0f} s", flush=True)
    return {"data": results, "splits": options.splits, "seconds": total}


def summarise(rows: list[dict[str, Any]]) -> dict[str, Any]:
    """Return the coverage of each split, how many are in band, whether the mean is in its band, and other means."""
    covered = [row["covered"] for row in rows]
    found = {key: float(np.mean([row[key] for row in rows])) for key in ("whole", "size", "cut") if key in rows[0]}
    found["covered"] = np.round(covered, 5).tolist()
    if rows[0]["band"]:
        low, high, mean, std = np.mean([row["band"] for row in rows], axis=0)
        found["band"] = [low, high]
        found["in_band"] = sum(row["band"][0] - 1e-9 <= row["covered"] <= row["band"][1] + 1e-9 for row in rows)
        found["mean_in_band"] = bool(abs(np.mean(covered) - mean) <= 1.96 * std / math.sqrt(len(rows)))
    return found


def n_runs(rows: list[dict[str, Any]]) -> int:
    """Return in how many splits, of all levels together, sets were calibrated."""
    return sum(len(row["covered"]) for row in rows)


def section(results: dict[str, Any]) -> str:
    lines = []
    for name, methods in results["data"].items():
        for method, levels in methods.items():
            own = [levels[str(level)] for level in LEVELS]
            promise = PROMISES[method] if name != "scene" else PROMISES[method].replace("tokens", "labels")
            covered, sizes = ([100 * np.mean(one["covered"]) for one in own], [one["size"] for one in own])
            lines.append([
                name, method, promise, " / ".join(f"{value:.1f}" for value in covered),
                f"{sum(one['in_band'] for one in own)} of {n_runs(own)}" if "band" in own[0] else "",
                f"{sum(one['mean_in_band'] for one in own)} of 3" if "band" in own[0] else "",
                f"{100 * own[1]['whole']:.1f}", " / ".join(f"{value:.2f}" for value in sizes),
            ])  # fmt: skip
    header = ["data", "sets", "promise", "covered at 80 / 90 / 95 %", "splits in band", "means in band",
              "all right at 90 %", "size at 80 / 90 / 95 %"]  # fmt: skip
    data, n_splits = results["data"], results["splits"]
    kinds = [
        (method, one) for methods in data.values() for method, levels in methods.items() for one in levels.values()
    ]
    ours = [one for method, one in kinds if method.startswith("Conformal") and method != TOKENS]
    tokens = [one for method, one in kinds if method == TOKENS]

    def per_cent(name: str, method: str, key: str, level: str = "0.9") -> str:
        return f"{100 * data[name][method][level][key]:.0f} %"

    plain = ", ".join(f"{per_cent(name, 'p >= 1 - level', 'whole')} on {name}" for name in data)
    ours_whole = [100 * methods["ConformalLabels"]["0.9"]["whole"] for methods in data.values()]
    cut = " and ".join(per_cent("WNUT-17", "ConformalLabellings", "cut", level) for level in ("0.9", "0.95"))
    wider = math.sqrt(20 / n_splits)
    fewer = (
        f" To save time, there are {n_splits} splits, not 20, so that it is {wider:.1f} times as wide."
        if wider > 1
        else ""
    )
    return f"""## Prediction sets

Do sets of labels contain the truth as often as promised? Test data are divided at random, {n_splits} times, into
calibration data and new data. *Promise* says what sets should cover, at levels of 80, 90 and 95 %, and *covered* how
much of it they do cover, in per cent.

- *ConformalLabels*: a set of labels for each token; all true labels of a sequence are in their sets
- *ConformalLabels, share* (`control="share"`): the true labels of this share of tokens are in their sets
- *ConformalLabellings*: a set of labellings of the whole sequence
- *ConformalSpans*: a set of spans; only sequences that have spans count
- *ConformalLabels on tokens*: the same as ConformalLabels, with each token as a sequence, as MAPIE does
- *p >= 1 - level*: all labels that are at least as probable as 1 minus the level, without calibration
- *p sums to level*: the likeliest labels until their probabilities sum to the level, without calibration

*All right* are the sequences whose sets contain every true label or span. Sizes are labels per token (per image for
scene), labellings per sequence, or spans per sequence. Sets of labellings are cut at 1,000. If the true labelling
belongs to a set but is not among its first 1,000, it counts as covered, but not as all right.

By chance, the coverage of one split is not exactly 90 %. A split is *in band* if its coverage is inside the range that
chance allows in 95 % of cases. For the mean over splits, this range is narrower.{fewer}

{common.markdown(header, lines, (0, 1, 2))}

In the rows of conformal sets, except those on tokens, {sum(one["in_band"] for one in ours)} of {n_runs(ours)} splits
are in band (95 % should be), and {sum(one["mean_in_band"] for one in ours)} of {len(ours)} means.

Sets of all labels with p >= 0.1 are not calibrated. The share of sequences with all true labels in these sets is
{plain}. With `ConformalLabels` at 90 %, it is {min(ours_whole):.1f} to {max(ours_whole):.1f} %.

If each token is taken as a sequence, {sum(one["mean_in_band"] for one in tokens)} of {len(tokens)} means are in band,
and {sum(one["in_band"] for one in tokens)} of {n_runs(tokens)} splits. The range takes tokens as independent, but
tokens of a sequence depend on each other. On CoNLL-2000, {per_cent("CoNLL-2000", TOKENS, "whole")} of the sentences are
all right at 90 %.

With `control="share"`, unsure tokens get empty sets if the level is below the accuracy of the model; choose a higher
level. Sets of labellings are for models that are sure. On WNUT-17, {cut} of the sets at 90 and 95 % have more than
1,000 labellings.
"""


OPTIONS = {"splits": 5, "data": ",".join([*CHAINS, "scene"])}
