"""Is an office occupied? Climate sensors a minute, without the light sensor: accuracy and honest probabilities.

Protocol. Train on the authors' training week, test on their two test sets, which come from other weeks; Light is
left out, for it nearly decides (Candanedo and Feldheim 2016). Sequences are days. Four sets of features:

    sensors   Temperature, Humidity, CO2, HumidityRatio: what the published figures without Light used
    climate   the sensors, and for each, over windows of 5, 15, 30 and 60 minutes, how much the mean of the window after
              a minute differs from the mean of the window before it (a smoothed slope; both inside the recording)
    time      climate, and sine and cosine of the hour (daily and half-daily) and whether it is a weekend
    relative  time, with each sensor less its mean over 24 hours around the minute: the weather of a week drops out

Slopes and means look ahead: this labels a recording, it is no alarm. Columns are standardised on the training week, or
turned into their ranks in it, whichever is better in cross-validation; CRFsuite gets each column cut into ten
quantile bins. Hyperparameters are chosen in the training week alone, by the log-loss (SVC: accuracy) over three folds
of whole days: 4-5, 6-7 and 8-10 February. Labels are decoded by the marginals, for token accuracy is the score.

python experiments/occupancy.py [--parts FOLDER]     (FOLDER keeps what is done, to go on later)
"""

from __future__ import annotations

import argparse
import itertools
import time
import warnings
from collections.abc import Sequence
from typing import Any

import numpy as np
from sklearn.discriminant_analysis import LinearDiscriminantAnalysis
from sklearn.linear_model import LogisticRegression

import common
from baselines import CRFsuite, PerToken, nystroem, svc
from kernelcrf import ChainCRF
from kernelcrf.datasets import load_occupancy
from kernelcrf.metrics import expected_calibration_error, log_loss
from parts import kept

SETS = ("sensors", "climate", "time", "relative")
TESTS = ("test1", "test2")
WINDOWS = (5, 15, 30, 60)
FOLDS = (("2015-02-04", "2015-02-05"), ("2015-02-06", "2015-02-07"), ("2015-02-08", "2015-02-09", "2015-02-10"))
PUBLISHED = {"LDA": (85.33, 73.77), "CART": (84.65, 78.96), "GBM": (69.53, 38.81), "random forest": (68.63, 32.68)}


class Binned:
    """CRFsuite on columns cut at quantiles of the training data."""

    def __init__(self, c2: float) -> None:
        self.model = CRFsuite(c2=c2)

    def fit(self, X: list[np.ndarray], y: list[np.ndarray]) -> Binned:
        self.edges = np.unique(np.quantile(np.concatenate(X), np.arange(1, 10) / 10, axis=0), axis=0)
        self.model.fit(self._names(X), y)
        self.classes_ = self.model.classes_
        return self

    def predict_proba(self, X: list[np.ndarray]) -> list[np.ndarray]:
        return self.model.predict_proba(self._names(X))

    def _names(self, X: list[np.ndarray]) -> list[list[list[str]]]:
        codes = [(x[:, None, :] > self.edges).sum(axis=1) for x in X]
        return [[[f"{j}={code}" for j, code in enumerate(row)] for row in rows.tolist()] for rows in codes]


def crf(**params: Any) -> ChainCRF:
    return ChainCRF(n_components=300, decoding="marginal", random_state=0, **params)


class Scaled:
    """A model with the gamma of an rbf kernel in units of 1 / n_features, on standardised columns or on their ranks.

    Ranks are those among the training data, from -sqrt(3) to sqrt(3): what is beyond the training data stays there.
    """

    def __init__(self, make: Any, ranks: bool, **params: float) -> None:
        self.make, self.ranks, self.params = make, ranks, params

    def fit(self, X: list[np.ndarray], y: list[np.ndarray]) -> Scaled:
        params = dict(self.params)
        if "scale" in params:
            params["gamma"] = params.pop("scale") / X[0].shape[1]
        self.sorted = np.sort(np.concatenate(X), axis=0)
        self.model = self.make(**params).fit(self._inputs(X), y)
        self.classes_ = self.model.classes_
        return self

    def predict(self, X: list[np.ndarray]) -> list[np.ndarray]:
        return self.model.predict(self._inputs(X))

    def predict_proba(self, X: list[np.ndarray]) -> list[np.ndarray]:
        return self.model.predict_proba(self._inputs(X))

    def _inputs(self, X: list[np.ndarray]) -> list[np.ndarray]:
        return [self._ranked(x) for x in X] if self.ranks else X

    def _ranked(self, x: np.ndarray) -> np.ndarray:
        sides = [
            [np.searchsorted(c, v, side) for c, v in zip(self.sorted.T, x.T, strict=True)] for side in ("left", "right")
        ]
        return np.sqrt(12) * (np.mean(sides, axis=0).T / len(self.sorted) - 0.5)


def scaled(make: Any, **values: Sequence[float]) -> tuple[Any, list[dict[str, Any]]]:
    """A maker and its grid: every combination of the values, on standardised columns and on ranks."""
    grid = [dict(zip(values, row, strict=True)) for row in itertools.product(*values.values())]
    return lambda **params: Scaled(make, **params), [{"ranks": r} | one for r in (False, True) for one in grid]


Cs, SCALES = (1e-3, 1e-2, 1e-1, 1.0), (0.03, 0.1, 0.3)
MODELS: dict[str, tuple[Any, list[dict[str, Any]]]] = {
    "LDA": scaled(lambda: PerToken(LinearDiscriminantAnalysis())),
    "logistic regression": scaled(lambda C: PerToken(LogisticRegression(C=C, max_iter=500)), C=Cs),
    "SVC (rbf)": scaled(svc, C=(0.1, 1.0, 10.0), scale=(0.03, 0.3)),
    "Nystroem + logistic regression": scaled(lambda C, gamma: nystroem(C, gamma, 300), C=Cs, scale=SCALES),
    "CRFsuite (binned)": (Binned, [{"c2": c2} for c2 in (1.0, 10.0, 30.0, 100.0, 300.0, 1000.0)]),
    "kernelcrf linear": scaled(lambda C: crf(kernel="linear", C=C), C=Cs),
    "kernelcrf rbf": scaled(lambda C, gamma: crf(kernel="rbf", C=C, gamma=gamma), C=Cs, scale=SCALES),
}
OURS = ("kernelcrf linear", "kernelcrf rbf")
BEST = "relative"


def features(data: Any, name: str) -> list[np.ndarray]:
    """Of one whole recording, cut into its days afterwards."""
    sensors = [data.feature_names.index(column) for column in ("Temperature", "Humidity", "CO2", "HumidityRatio")]
    X, when = np.concatenate(data.X)[:, sensors], np.concatenate(data.extras["date"])
    columns = [X - _centred_mean(X, 720) if name == "relative" else X]
    if name != "sensors":
        columns += [_slope(X, width) for width in WINDOWS]
    if name in ("time", "relative"):
        day = when.astype("datetime64[D]")
        angle = 2 * np.pi * (when - day).astype(float) / 86400
        weekend = (day.astype(int) + 3) % 7 >= 5
        columns.append(np.column_stack([f(k * angle) for f in (np.sin, np.cos) for k in (1, 2)] + [weekend]))
    return np.split(np.column_stack(columns), np.cumsum(data.lengths)[:-1])


def _slope(X: np.ndarray, width: int) -> np.ndarray:
    """Mean of the `width` rows from t on, less the mean of those up to t, cut at the ends of the recording."""
    sums = np.concatenate([np.zeros((1, X.shape[1])), np.cumsum(X, axis=0)])
    t = np.arange(len(X))
    low, high = np.maximum(t + 1 - width, 0), np.minimum(t + width, len(X))
    after = (sums[high] - sums[t]) / (high - t)[:, None]
    before = (sums[t + 1] - sums[low]) / (t + 1 - low)[:, None]
    return after - before


def _centred_mean(X: np.ndarray, half: int) -> np.ndarray:
    sums = np.concatenate([np.zeros((1, X.shape[1])), np.cumsum(X, axis=0)])
    t = np.arange(len(X))
    low, high = np.maximum(t - half, 0), np.minimum(t + half + 1, len(X))
    return (sums[high] - sums[low]) / (high - low)[:, None]


def choose(name: str, X: list[np.ndarray], y: list[np.ndarray], days: np.ndarray) -> dict[str, Any]:
    make, grid = MODELS[name]
    if len(grid) == 1:
        return grid[0]
    losses = []
    for params in grid:
        loss = 0.0
        for fold in FOLDS:
            held = np.isin(days, fold)
            model = make(**params).fit(_take(X, ~held), _take(y, ~held))
            truth = np.concatenate(_take(y, held))
            if hasattr(model, "predict_proba") and "SVC" not in name:
                P = np.concatenate(list(model.predict_proba(_take(X, held))))
                loss -= np.log(np.maximum(P[np.arange(len(P)), truth], 1e-12)).sum()
            else:
                loss += (np.concatenate(model.predict(_take(X, held))) != truth).sum()
        losses.append(loss)
    return grid[int(np.argmin(losses))]


def _take(items: list[np.ndarray], keep: np.ndarray) -> list[np.ndarray]:
    return [item for item, kept in zip(items, keep, strict=True) if kept]


def measure(options: argparse.Namespace) -> dict[str, Any]:
    warnings.simplefilter("ignore")
    train = load_occupancy("train", by_day=True)
    tests = {name: load_occupancy(name, by_day=True) for name in TESTS}
    found: dict[str, Any] = {}
    for kind in SETS:
        X = features(train, kind)
        mean, scale = np.concatenate(X).mean(axis=0), np.concatenate(X).std(axis=0)
        X = [(x - mean) / scale for x in X]
        Z = {name: [(x - mean) / scale for x in features(data, kind)] for name, data in tests.items()}
        for name in MODELS:
            work = lambda n=name, x=X, z=Z: assess(n, x, train, z, tests)  # noqa: E731
            found[f"{kind}/{name}"] = row = kept(options.parts, f"{kind} {name}", work)
            shown = ", ".join(f"{100 * row[t]['accuracy']:.2f} ({row[t].get('log_loss', np.nan):.3f})" for t in TESTS)
            print(f"{kind:8} {name:32} {shown}  {row['params']}  {row['search']:.0f} + {row['fit']:.1f} s", flush=True)
    return {"models": found}


def assess(name: str, X: list[np.ndarray], train: Any, Z: dict[str, Any], tests: dict[str, Any]) -> dict[str, Any]:
    """Choose, fit and score one model."""
    start = time.perf_counter()
    params = choose(name, X, train.y, train.ids)
    search = time.perf_counter() - start
    start = time.perf_counter()
    model = MODELS[name][0](**params).fit(X, train.y)
    row: dict[str, Any] = {"params": params, "search": search, "fit": time.perf_counter() - start}
    for test, data in tests.items():
        row[test] = {}
        if "SVC" in name:
            predicted = model.predict(Z[test])
        else:
            P = list(model.predict_proba(Z[test]))
            predicted = [model.classes_[p.argmax(axis=1)] for p in P]
            row[test] = {
                "log_loss": log_loss(data.y, P, [0, 1]),
                "ece": expected_calibration_error(data.y, P, [0, 1]),
                "reliability": reliability(data.y, P),
            }
        hits = common.right_tokens(predicted, data.y)
        row[test]["accuracy"] = common.accuracy(hits)
        blocks = [block for day in hits for block in np.array_split(day, max(1, len(day) // 360))]
        row[test]["right"] = [[int(block.sum()), len(block)] for block in blocks]
    return row


def compare(ours: dict[str, Any], other: dict[str, Any]) -> tuple[float, float]:
    """Gain in accuracy and its p by resampling blocks of six hours: minutes are no independent draws."""
    hits = [[np.arange(n) < k for k, n in row["right"]] for row in (ours, other)]
    return common.bootstrap_p(*hits)


def reliability(y: list[np.ndarray], P: list[np.ndarray], n_bins: int = 10) -> list[list[float]]:
    """For each bin of p(occupied): mean probability, share occupied, number of minutes."""
    p, truth = np.concatenate(P)[:, 1], np.concatenate(y)
    bins = np.minimum((p * n_bins).astype(int), n_bins - 1)
    return [[p[bins == b].mean(), truth[bins == b].mean(), (bins == b).sum()] for b in np.unique(bins)]


def section(results: dict[str, Any]) -> str:
    rows = []
    for key, row in results["models"].items():
        kind, name = key.split("/")
        cells = [f"{100 * row[t]['accuracy']:.2f}" for t in TESTS]
        for measure_name in ("log_loss", "ece"):
            cells += [f"{row[t][measure_name]:.3f}" if measure_name in row[t] else "" for t in TESTS]
        rows.append([f"{name}, {kind}", *cells, f"{row['fit']:.1f}"])
    head = ["model, features", "accuracy 1", "2", "log-loss 1", "2", "calibration error 1", "2", "fit, s"]
    published = "; ".join(f"{name} {a} / {b}" for name, (a, b) in PUBLISHED.items())
    ours = [results["models"]["sensors/kernelcrf rbf"][test]["accuracy"] * 100 for test in TESTS]
    verdicts = ["met" if own >= bar else "missed" for own, bar in zip(ours, PUBLISHED["LDA"], strict=True)]
    tests = []
    for kind in SETS:
        for name in MODELS:
            if name not in OURS:
                pairs = [[results["models"][f"{kind}/{m}"][t] for m in ("kernelcrf rbf", name)] for t in TESTS]
                cells = [f"{100 * gain:+.2f} (p {p:.2g})" for gain, p in (compare(*pair) for pair in pairs)]
                tests.append([f"{name}, {kind}", *cells])
    return TEXT.format(
        table=common.markdown(head, rows),
        published=published,
        ours=" / ".join(f"{own:.2f}" for own in ours),
        verdicts=" / ".join(verdicts),
        tests=common.markdown(["kernelcrf rbf against", "test 1", "test 2"], tests),
    )


TEXT = """## Occupancy of an office, without the light sensor

Trained on one week, tested on two others; accuracy in percent.

{table}

Published on the four sensors, accuracy on test 1 / test 2: {published}. The bar is LDA. kernelcrf rbf on
the same four sensors: {ours}, {verdicts}; CART's figure on test 2 is above it.

Differences in accuracy, with p by resampling blocks of six hours:

{tests}

![Reliability of the probability of being occupied](figures/reliability_occupancy.png)

How far to trust it. Ranks in place of standardised values and the relative features were added after a first run had
shown both tests: read the figures of test 2 on them as partly seen. All four sets of features are shown, none was
picked.

What was tried. The week of test 2 has another climate than the training week, and absolute levels mislead every model
there; more features of the same kind (climate) lift test 1 by eight points and test 2 not at all. The hour of the day
helps, and taking the drift out of the features (relative) helps all models most. Ranks in place of standardised
columns hold what lies beyond the training data, but cross-validation inside one week cannot see a drift that this week
does not have, and so chooses between them by chance; the quantile bins of CRFsuite have that protection always, and
show it on test 2. On test 1 no model has a lower log-loss than kernelcrf rbf with any set of features; on test 2 this
holds for the set time only, and with the others it is surer of itself than it should be. With six hours as the unit of
chance, most differences between models on the same features are within it.

For use: remove slow drift from sensors before anything else. A chain with an rbf kernel then labels as well as the best
of the others, with the lowest log-loss where the new week resembles the training week; under drift, check its
probabilities on a few labelled hours before trusting them.
"""
SHOWN = ("kernelcrf rbf", "kernelcrf linear", "Nystroem + logistic regression", "LDA")


def figure(results: dict[str, Any]) -> None:
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    fig, axes = plt.subplots(1, 2, figsize=(8.4, 3.9), layout="constrained", sharey=True)
    for ax, test in zip(axes, TESTS, strict=True):
        ax.plot([0, 1], [0, 1], color="0.6", lw=1, zorder=0)
        for colour, name in zip(common.COLOURS, SHOWN, strict=False):
            p, share, count = np.array(results["models"][f"{BEST}/{name}"][test]["reliability"]).T
            keep = count >= 20
            ax.plot(p[keep], share[keep], "o-", ms=4, color=colour, label=name)
        ax.set(xlabel="probability of being occupied", title=f"{test}, features: {BEST}")
        ax.spines[["top", "right"]].set_visible(False)
    axes[0].set_ylabel("share of minutes occupied")
    axes[0].legend(frameon=False, fontsize=8)
    common.FIGURES.mkdir(exist_ok=True, parents=True)
    fig.savefig(common.FIGURES / "reliability_occupancy.png", dpi=150)
    plt.close(fig)


if __name__ == "__main__":
    common.run(__doc__, __file__, measure, section, figure, parts="")
