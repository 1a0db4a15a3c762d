"""Every default: `ChainCRF()` beside its own grid, and beside one line of scikit-learn or CRFsuite.

occupancy        train -> test1 and test2, by day
activity S2      batteryless sensors: the first 30 trials in room S1 -> room S2; all columns but time
letters          first fold -> the other nine; pixels
proteins         the first 40 chains of CB513's training part, in the first of five folds -> its test part, scored where
                 the mask is true, and TS115; windows of residues as vectors
prosody          the first 1,500 sentences of dev -> test of the final release, two classes, labelled words; default
                 templates of the command line
WNUT-17          the first 1,500 posts of train -> test, F1 of spans; default templates
CoNLL-2000       the first 1,000 sentences of train -> test, F1 of spans; default templates for words and their tags
EWT              the first 1,000 sentences of train -> test, parts of speech; default templates
addresses        the first of five folds of the training data of usaddress; default templates
segmentation     the five splits of GPstruct; the authors' features

To save time, there are fewer training data than earlier, one test fold of addresses, and one fit for both data sets of
proteins. The test data are those of earlier runs, so that their noise is the same; with one of five folds of addresses,
it is 2.2 times as large. The five folds of room S1 are in `accuracy.activity` alone.

The score is accuracy of tokens unless the list says F1; macro F1 of labels is on file, too. The first four tasks are
arrays, whose columns are standardised: *ChainCRF()* is `make_pipeline(PerToken(StandardScaler()), ChainCRF())`. *One
fit* is a ChainCRF with the kernel, gamma and C that `ChainCRF()` chose, which is the same model; only its seconds are
new. *Grid* is the ChainCRF with the best score on held-out sequences, refitted to all sequences, unless it is that of
`ChainCRF()`. Its C is 0.1, 1, 10 or 100. For arrays, its kernel is linear, or rbf with gamma="scale" or a quarter of
it, and it has an intercept. (Four times this gamma, which was tried earlier, was never chosen.) Every fifth sequence is
held out; with fewer than 50 sequences, each of them is held out once. Fits of the grid use whole sequences with about
10,000 tokens for all folds together, and end at a gap of 1 % or after 100 iterations.

The other rows are libraries with their defaults: LogisticRegression, RandomForestClassifier,
HistGradientBoostingClassifier and SVC on single tokens of arrays, and CRFsuite on text and on the sparse features of
segmentation. The SVC is fitted to at most 10,000 tokens, drawn at random. CRFsuite cannot leave out a label, so it
takes unlabelled words of prosody as a third class. Log-loss is that of single tokens, with probabilities of at least
1e-12. Seconds are CPU time of all fits of a row, on one thread.
"""

from __future__ import annotations

import argparse
import sys
import time
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from itertools import product
from typing import Any

import numpy as np
from sklearn.ensemble import HistGradientBoostingClassifier, RandomForestClassifier
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import f1_score
from sklearn.model_selection import KFold
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.svm import SVC

from kernelcrf import ChainCRF, datasets
from kernelcrf.formats import default_templates
from kernelcrf.metrics import span_f1
from kernelcrf.preprocessing import PerToken
from studies import common
from studies.accuracy import baselines, proteins
from studies.datasets import load_batteryless, load_gpstruct, load_letters, load_occupancy, load_ts115, load_ud_ewt

CS = (0.1, 1.0, 10.0, 100.0)
GAMMAS = (0.25, 1.0)
GRID_TOKENS = 10_000
SVC_TOKENS = 10_000
LEAST = 1e-12
MISSING = -1
DEFAULTS, ONE_FIT, BEST = "ChainCRF()", "ChainCRF, one fit", "ChainCRF, grid"


@dataclass
class Sequences:
    """Hold sequences with their labels, and flags of the tokens that are scored; None scores all of them."""

    X: list[Any]
    y: list[np.ndarray]
    mask: list[np.ndarray] | None = None

    def take(self, rows: Any) -> Sequences:
        mask = None if self.mask is None else [self.mask[i] for i in rows]
        return Sequences([self.X[i] for i in rows], [self.y[i] for i in rows], mask)

    @property
    def n_tokens(self) -> int:
        return sum(map(len, self.y))


# A fold has training data, and test data by name.
Fold = tuple[Sequences, dict[str, Sequences]]


def occupancy() -> Iterator[Fold]:
    train, *test = (load_occupancy(part, by_day=True) for part in ("train", "test1", "test2"))
    yield Sequences(train.X, train.y), {f"test{k}": Sequences(part.X, part.y) for k, part in enumerate(test, 1)}


def rooms() -> list[Sequences]:
    data = load_batteryless()
    every = Sequences([x[:, 1:] for x in data.X], data.y)
    return [every.take(np.flatnonzero(data.groups == room)) for room in ("S1", "S2")]


def batteryless_S2() -> Iterator[Fold]:
    first, second = rooms()
    yield first.take(range(30)), {"": second}


def letters() -> Iterator[Fold]:
    data = load_letters()
    train, test = (Sequences(data.X, data.y).take(rows) for rows in data.splits[0])
    yield train, {"": test}


def windows(chains: list[np.ndarray], y: list[np.ndarray], mask: list[np.ndarray] | None = None) -> Sequences:
    return Sequences([proteins.substitution(one) for one in chains], y, mask)


def residues() -> Iterator[Fold]:
    every, other = windows(*proteins.merged()), load_ts115()
    train, test = next(KFold(5, shuffle=True, random_state=0).split(every.y))
    ts115 = windows([proteins.codes(x) for x in other.X], other.y)
    yield every.take(train[:40]), {"CB513": every.take(test), "TS115": ts115}


def words(data: Any, *columns: str, most: int | None = None) -> Sequences:
    cells = [[[token[name] for name in columns] for token in one] for one in data.X[:most]]
    return Sequences(list(default_templates(len(columns)).features(cells)), list(data.y[:most]))


def text(load: Callable[..., Any], *columns: str, most: int | None = None, train: str = "train") -> Iterator[Fold]:
    yield words(load(train), *columns, most=most), {"": words(load("test"), *columns)}


def addresses() -> Iterator[Fold]:
    every = words(datasets.load_us_addresses("train"), "word")
    train, test = next(KFold(5, shuffle=True, random_state=0).split(every.y))
    yield every.take(train), {"": every.take(test)}


def segmentation() -> Iterator[Fold]:
    data = load_gpstruct("segmentation")
    every = Sequences(data.X, data.y)
    for train, test in data.splits:
        yield every.take(train), {"": every.take(test)}


TASKS: dict[str, Callable[[], Iterator[Fold]]] = {
    "occupancy": occupancy,
    "batteryless S2": batteryless_S2,
    "letters": letters,
    "proteins": residues,
    "prosody": lambda: text(lambda part: datasets.load_prosody(part, n_classes=2), "word", most=1500, train="dev"),
    "WNUT-17": lambda: text(datasets.load_wnut17, "word", most=1500),
    "CoNLL-2000": lambda: text(datasets.load_conll2000, "word", "pos", most=1000),
    "EWT": lambda: text(load_ud_ewt, "word", most=1000),
    "addresses": addresses,
    "segmentation": segmentation,
}
SPANS = ("WNUT-17", "CoNLL-2000")
ARRAYS = tuple(TASKS)[:4]


def few_tokens(classifier: Any) -> Any:
    """Return a classifier of single tokens that is fitted to SVC_TOKENS tokens at most."""

    class Few(baselines.PerToken):
        def fit(self, X: Any, y: Any) -> Any:
            rows, labels = np.concatenate(X), np.concatenate(y)
            drawn = np.random.default_rng(0).permutation(len(rows))[:SVC_TOKENS]
            return super().fit([rows[drawn]], [labels[drawn]])

    return Few(classifier)


OF_ARRAYS: dict[str, Callable[[], Any]] = {
    "LogisticRegression": lambda: baselines.PerToken(LogisticRegression()),
    "RandomForest": lambda: baselines.PerToken(RandomForestClassifier(random_state=0)),
    "HistGradientBoosting": lambda: baselines.PerToken(HistGradientBoostingClassifier(random_state=0)),
    "SVC": lambda: few_tokens(SVC()),
}
OF_TEXT: dict[str, Callable[[], Any]] = {"CRFsuite": lambda: baselines.CRFsuite(max_iterations=100_000)}


def crf(task: str, **parameters: Any) -> Any:
    model = ChainCRF(random_state=0, **parameters)
    return make_pipeline(PerToken(StandardScaler()), model) if task in ARRAYS else model


def score(task: str, truth: list[np.ndarray], predicted: list[np.ndarray]) -> float:
    if task in SPANS:
        return float(span_f1(truth, predicted))
    return float(np.mean(np.concatenate(truth) == np.concatenate(predicted)))


def known(part: Sequences) -> list[np.ndarray]:
    """Return flags of the tokens that have a label and are scored."""
    flags = [one != MISSING if one.dtype.kind == "i" else np.ones(len(one), bool) for one in part.y]
    return flags if part.mask is None else [a & np.asarray(b, bool) for a, b in zip(flags, part.mask, strict=True)]


def predictions(model: Any, part: Sequences, *, with_proba: bool = True) -> dict[str, list[Any]]:
    """Return true labels, predicted labels and the log-losses of the tokens that are scored."""
    flags = known(part)
    found = {"truth": [np.asarray(y)[own] for y, own in zip(part.y, flags, strict=True)]}
    found["predicted"] = [np.asarray(z)[own] for z, own in zip(model.predict(part.X), flags, strict=True)]
    if not with_proba:
        return found
    if isinstance(getattr(model, "classifier", None), SVC):
        return found | {"losses": []}
    classes = np.asarray(model.classes_)
    column = {label: k for k, label in enumerate(classes.tolist())}
    kept, losses = classes != MISSING if classes.dtype.kind == "i" else np.ones(len(classes), bool), []
    for P, y, own in zip(model.predict_proba(part.X), found["truth"], flags, strict=True):
        rows = np.asarray(P)[own]
        # A label that training does not show has no column.
        p = np.array(
            [row[column[label]] if label in column else 0.0 for row, label in zip(rows, y.tolist(), strict=True)]
        )
        losses.append(-np.log(np.maximum(p / np.maximum(rows[:, kept].sum(axis=1), LEAST), LEAST)))
    return found | {"losses": losses}


def inner_folds(train: Sequences) -> list[tuple[Sequences, Sequences]]:
    """Return folds of whole sequences for the grid, with about GRID_TOKENS tokens in all folds together."""
    n_folds = 5 if len(train.y) < 50 else 1
    order = np.random.default_rng(0).permutation(len(train.y))
    lengths = np.cumsum([len(train.y[i]) for i in order])
    n = max(10, int(np.searchsorted(lengths, GRID_TOKENS)) + 1)
    chosen = np.sort(order[:n])
    places = np.arange(len(chosen)) % 5
    return [(train.take(chosen[places != k]), train.take(chosen[places == k])) for k in range(5 - n_folds, 5)]


def best_of_grid(task: str, train: Sequences) -> dict[str, Any]:
    """Return the parameters with the best mean score on held-out sequences."""
    candidates: list[dict[str, Any]] = [{"C": C} for C in CS]
    if task in ARRAYS:
        rows = StandardScaler().fit_transform(np.concatenate(train.X))
        scale = 1.0 / (rows.shape[1] * rows.var())
        kernels = [{"kernel": "linear"}] + [{"kernel": "rbf", "gamma": float(scale * factor)} for factor in GAMMAS]
        candidates = [{**own, "C": C, "fit_intercept": True} for own, C in product(kernels, CS)]
    folds = inner_folds(train)

    def mean_score(parameters: dict[str, Any]) -> float:
        found = []
        for own, out in folds:
            model = crf(task, **parameters, tol=1e-2, max_iter=100).fit(own.X, own.y)
            told = predictions(model, out, with_proba=False)
            found.append(score(task, told["truth"], told["predicted"]))
        return float(np.mean(found))

    return max(candidates, key=mean_score)


def chosen_by(model: Any) -> dict[str, Any]:
    """Return the parameters that a fitted ChainCRF has chosen."""
    last = model[-1] if hasattr(model, "steps") else model
    kernel = last.kernel_
    found = {"kernel": kernel.kernel, "C": float(last.C_)}
    return found | ({} if kernel.is_linear else {"gamma": float(kernel.gamma)})


def run(task: str) -> dict[str, Any]:
    """Return the results of all rows of a task."""
    folds, found = list(TASKS[task]()), dict[str, Any]()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        crf(task, max_iter=2).fit(folds[0][0].X[:6], folds[0][0].y[:6])  # loads compiled code
        for name in (DEFAULTS, ONE_FIT, BEST, *(OF_ARRAYS if task in ARRAYS else OF_TEXT)):
            found[name] = one_row(task, name, folds, found)
            print(task, name, found[name], file=sys.stderr, flush=True)
    return found


def one_row(task: str, row: str, folds: list[Fold], rows: dict[str, Any]) -> dict[str, Any]:
    """Fit one row to all folds of a task; `rows` has the results of other rows."""
    told: dict[str, dict[str, list[Any]]] = {}
    seconds, used = 0.0, list[dict[str, Any]]()
    for number, (train, tests) in enumerate(folds):
        start = time.process_time()
        if row in OF_ARRAYS:
            scaler = StandardScaler().fit(np.concatenate(train.X))
            model = OF_ARRAYS[row]()
            model.fit([scaler.transform(x) for x in train.X], train.y)
            tests = {
                name: Sequences([scaler.transform(x) for x in own.X], own.y, own.mask) for name, own in tests.items()
            }
        elif row in OF_TEXT:
            model = OF_TEXT[row]().fit(train.X, train.y)
        elif row == BEST:
            used.append(best_of_grid(task, train))
            if len(folds) == 1 and task not in ARRAYS and used[0]["C"] == rows[DEFAULTS]["used"][0]["C"]:
                searched = time.process_time() - start
                return rows[DEFAULTS] | {"seconds": searched + rows[ONE_FIT]["seconds"], "used": used}
            model = crf(task, **used[-1]).fit(train.X, train.y)
        elif row == ONE_FIT:
            model = crf(task, **rows[DEFAULTS]["used"][number]).fit(train.X, train.y)
        else:
            model = crf(task).fit(train.X, train.y)
        seconds += time.process_time() - start
        if row == ONE_FIT:  # the model of `DEFAULTS`, whose scores are known
            continue
        if row == DEFAULTS:
            used.append(chosen_by(model))
        for name, part in tests.items():
            own = told.setdefault(name, {"truth": [], "predicted": [], "losses": []})
            for key, values in predictions(model, part).items():
                own[key] += values
    if row == ONE_FIT:
        return rows[DEFAULTS] | {"seconds": seconds, "used": []}
    found: dict[str, Any] = {"seconds": seconds, "used": used, "scores": {}, "macro_f1": {}, "log_loss": {}}
    for name, own in told.items():
        found["scores"][name] = score(task, own["truth"], own["predicted"])
        flat = [np.concatenate(own[key]) for key in ("truth", "predicted")]
        found["macro_f1"][name] = float(f1_score(*flat, average="macro", zero_division=0))
        found["log_loss"][name] = float(np.mean(np.concatenate(own["losses"]))) if own["losses"] else None
    return found


def measure(options: argparse.Namespace) -> dict[str, Any]:
    one_thread = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "NUMBA_NUM_THREADS"), "1")
    return {
        "tasks": {
            task: common.kept(f"defaults {task}", partial(common.in_process, run, task, **one_thread)) for task in TASKS
        }
    }


def section(results: dict[str, Any]) -> str:
    tasks = results["tasks"]
    short, below, behind, slow, worst = list[Any](), list[str](), list[str](), list[str](), (0.0, "")
    for task, rows in tasks.items():
        others = [row for row in (*OF_ARRAYS, *OF_TEXT) if row in rows]
        fits = rows[DEFAULTS]["seconds"] / rows[ONE_FIT]["seconds"]
        if fits > 4:
            slow.append(f"{title(task)} ({fits:.1f} times)")
        for name in rows[DEFAULTS]["scores"]:
            scores = {row: round(100 * rows[row]["scores"][name], 2) for row in (DEFAULTS, *others, BEST)}
            best, ours, data = max(others, key=lambda row, of=scores: of[row]), scores[DEFAULTS], data_name(task, name)
            lead, grid = round(ours - scores[best], 2), round(scores[BEST] - ours, 2)
            cells = [f"{ours:.2f}", f"{scores[best]:.2f}", best, f"{lead:+.2f}", f"{grid:+.2f}", f"{fits:.1f}"]
            short.append((lead, [data, *cells]))
            worst = min(worst, (grid, f"{data}: {scores[BEST]:.2f} % with the grid, {ours:.2f} % with `ChainCRF()`"))
            below += [f"{data} ({-lead:.2f} points)"] if lead < -0.5 else []
            behind += [f"{data} ({grid:.2f} points)"] if grid > 1 else []
    header = ["test set", "ChainCRF()", "best other", "which", "difference", "grid, difference", "time, in fits"]
    lost = sum(lead < 0 for lead, _ in short)
    warning = f" The worst case is {worst[1]}." if worst[0] < -1 else ""
    lines = [
        [
            title(task) + (f" ({', '.join(own['scores'])})" if len(own["scores"]) > 1 else ""),
            row,
            ", ".join(f"{100 * value:.2f}" for value in own["scores"].values()),
            ", ".join(f"{value:.3f}" for value in own["log_loss"].values() if value is not None),
            f"{own['seconds']:.1f}",
        ]
        for task, rows in tasks.items()
        for row, own in ((row, rows[row]) for row in (DEFAULTS, BEST, *OF_ARRAYS, *OF_TEXT) if row in rows)
    ]
    return f"""## Every default

How far is `ChainCRF()`, with all defaults, from the best of other models with their defaults? On arrays, these are
LogisticRegression, RandomForest, HistGradientBoosting and SVC, which label each token alone. On text and segmentation,
it is CRFsuite. Arrays are standardised. To save time, training sets are small: 30 trials of activity, 40 chains of
proteins, 1,000 sentences of CoNLL-2000 and EWT, 1,500 of prosody and WNUT-17. Other pages therefore have other figures
for the same test sets. Scores are in per cent: F1 of spans on WNUT-17 and CoNLL-2000, accuracy of tokens on the other
data. In the column *difference*, negative numbers mean that `ChainCRF()` is behind, which is so on {lost} of
{len(short)} test sets. The largest miss comes first.

{common.markdown(header, [line for _, line in sorted(short)], (0, 3))}

Each row is one [test set](datasets.md). *Occupancy* is about whether an office is occupied, in two test periods.
*Activity S2* is fitted to the sensors of one room, S1, and tested in another, S2. *CB513* and *TS115* are predicted by
one model of proteins. *Prosody* is about prominent words, *WNUT-17* about entities, *CoNLL-2000* about chunks, and
*EWT* about parts of speech.

*Grid*: we tried a grid of kernels and C, and kept the ChainCRF with the best score on held-out sequences. *Grid,
difference* is its score minus that of `ChainCRF()`: here, negative numbers mean that the grid is behind. This can
happen, because what is best on held-out sequences of the training data can be bad elsewhere, such as in a new
room.{warning}

*Time, in fits* divides the CPU seconds of `ChainCRF()` by those of one fit with the kernel, gamma and C that it chose.

We have three aims for `ChainCRF()`:

- at most 0.5 points below the best other model; missed on {", ".join(below) or "no test set"}
- at most 1 point below its grid; missed on {", ".join(behind) or "no test set"}
- at most four times the time of one fit; missed on {", ".join(slow) or "no data set"}

We looked at test scores of some of these data when we chose the rules of `kernel="auto"` and `C="auto"`. So
`ChainCRF()` may look too good here.

All models, with the log-loss of tokens. Two numbers in a cell are two test sets. An SVC, which is fitted to at most
{SVC_TOKENS:,} tokens, has no probabilities.

{common.markdown(["data", "model", "score", "log-loss", "CPU seconds"], lines, (0, 1))}
"""


def title(task: str) -> str:
    """Return the name of a task as on the page on signals, where the data are named after what they are about."""
    return task.replace("batteryless", "activity")


def data_name(task: str, name: str) -> str:
    """Return the name of a test set of a task."""
    return name if task == "proteins" else f"{title(task)} {name}".strip()
