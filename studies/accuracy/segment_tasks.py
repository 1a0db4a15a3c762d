"""Define the tasks of `accuracy.segments`: data, models, and how predictions are counted and scored.

Every task counts per test sequence, so that scores are functions of sums of counts, and sequences can be resampled.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache, partial
from typing import Any

import numpy as np
from sklearn.model_selection import KFold

from kernelcrf import ChainCRF, SegmentCRF
from kernelcrf.datasets import load_us_addresses
from kernelcrf.inference.segments import SegmentMessages, SegmentScores
from studies import common
from studies.accuracy import proteins
from studies.datasets import load_ts115

LEAST = 1e-12
LABELS = 3
STOP = 0.1  # the probability that a synthetic sequence ends after a segment
NOISE = 1.5
FEW = 20  # training sequences, to which more models are fitted


@dataclass(frozen=True)
class Split:
    """Hold training and test data."""

    X: list[Any]
    y: list[Any]
    Z: list[Any]
    z: list[Any]


@dataclass(frozen=True)
class Model:
    """Hold how a model is made, and which values of its parameters are tried."""

    make: Callable[..., Any]
    grid: Mapping[str, tuple[float, ...]] = field(default_factory=dict)


@dataclass(frozen=True)
class Task:
    """Hold one task.

    n_splits : how many splits, folds or draws, are measured.
    split : make a split, given its number below n_splits.
    count : (model, inputs, labels) -> (n_sequences, k), sums per test sequence.
    scores : (..., k) -> (..., m), functions of sums of them.
    columns : the name of each score, the factor and the digits with which it is shown.
    choice : the data on which parameters are chosen, or None if no model has a grid.
    criterion : the index of the score that chooses parameters, and 1 if a high one is good, or -1.
    sizes : parameters of all models in the "choice" of parameters and in the last "fit".
    """

    title: str
    n_splits: int
    split: Callable[[int], Split]
    models: Mapping[str, Model]
    count: Callable[[Any, list[Any], list[Any]], np.ndarray]
    scores: Callable[[np.ndarray], np.ndarray]
    columns: tuple[tuple[str, float, int], ...]
    choice: Callable[[], Split] | None = None
    criterion: tuple[int, int] = (0, 1)
    sizes: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)


# How predictions are counted


def _loss(P: np.ndarray, classes: np.ndarray, truth: np.ndarray) -> float:
    own = P[np.arange(len(truth)), np.searchsorted(classes, truth)]
    return float(-np.log(np.maximum(own, LEAST)).sum())


def count_tokens(model: Any, Z: list[Any], z: list[Any]) -> np.ndarray:
    """Return right tokens by the marginals, the sum of log-losses and the number of tokens whose label is not ""."""
    classes, found = np.asarray(model.classes_), []
    for P, truth in zip(model.predict_proba(Z), map(np.asarray, z), strict=True):
        scored = np.array([label != "" for label in truth.tolist()])
        own, labels = P[scored], truth[scored]
        found.append([(classes[own.argmax(axis=1)] == labels).sum(), _loss(own, classes, labels), len(labels)])
    return np.array(found, float)


def count_whole(model: Any, Z: list[Any], z: list[Any]) -> np.ndarray:
    """Return whether the whole sequence is right, 1, the number of right tokens and that of all tokens."""
    right = common.right_tokens(model.predict(Z), z)
    return np.array([(one.all(), 1, one.sum(), len(one)) for one in right], float)


def token_scores(sums: np.ndarray) -> np.ndarray:
    return sums[..., :2] / sums[..., 2:]


def whole_scores(sums: np.ndarray) -> np.ndarray:
    return sums[..., [0, 2]] / sums[..., [1, 3]]


TOKEN_COLUMNS = (("accuracy, %", 100, 2), ("log-loss", 1, 4))


# Synthetic sequences, whose law is known


def normal_durations() -> tuple[np.ndarray, np.ndarray | None]:
    """Return logarithms of probabilities of durations (D, L): about 8, 10 and 12 tokens, standard deviation 1."""
    log_p = -((np.arange(1, 26)[:, None] - [8.0, 10.0, 12.0]) ** 2) / 2
    return log_p - np.log(np.exp(log_p).sum(axis=0)), None


def geometric_durations() -> tuple[np.ndarray, np.ndarray | None]:
    """Return the same for geometric durations with a mean of 10 tokens, and the score of each token beyond D."""
    goes_on = np.log(0.9)
    log_p = np.arange(25) * goes_on + np.log(0.1)
    return np.tile(log_p[:, None], (1, LABELS)), np.full(LABELS, goes_on)


LAWS = {"normal": normal_durations, "geometric": geometric_durations}
MEANS = np.array([[0.0, 1.0], [np.sqrt(0.75), -0.5], [-np.sqrt(0.75), -0.5]])


def draw(law: str, n: int, seed: int) -> tuple[list[np.ndarray], list[np.ndarray]]:
    """Draw sequences: each segment has another label than the one before; two noisy numbers per token."""
    durations, tail = LAWS[law]()
    rng = np.random.default_rng(seed)
    X, y = [], []
    for _ in range(n):
        labels, a = list[int](), int(rng.integers(LABELS))
        while not labels or rng.random() >= STOP:
            d = int(rng.geometric(0.1)) if tail is not None else 1 + int(rng.choice(25, p=np.exp(durations[:, a])))
            labels += [a] * d
            a = (a + int(rng.integers(1, LABELS))) % LABELS
        y.append(np.array(labels))
        X.append(MEANS[y[-1]] + NOISE * rng.normal(size=(len(labels), 2)))
    return X, y


class Truth:
    """Predict by the law that drew the sequences; nothing is fitted."""

    classes_ = np.arange(LABELS)

    def __init__(self, law: str) -> None:
        self.durations, self.tail = LAWS[law]()
        steps = np.full((LABELS, LABELS), np.log((1 - STOP) / (LABELS - 1)))
        np.fill_diagonal(steps, -np.inf)
        self.steps = steps

    def fit(self, X: list[Any], y: list[Any]) -> Truth:
        return self

    def predict_proba(self, X: list[np.ndarray]) -> list[np.ndarray]:
        found = []
        for x in X:
            s = -((x[:, None] - MEANS) ** 2).sum(axis=-1) / (2 * NOISE**2)
            scores = SegmentScores(s, self.steps, self.durations, tail=self.tail)
            found.append(SegmentMessages.of(scores).moments.nodes)
        return found


class HandMade:
    """Fit a ChainCRF with states for the first, inner and last token of a run; labels may be numbers."""

    def __init__(self, **params: Any) -> None:
        self.model = proteins.Segments(random_state=0, **params)

    def fit(self, X: list[Any], y: list[Any]) -> HandMade:
        self.model.fit(X, [np.asarray(one).astype(str) for one in y])
        self.classes_ = self.model.classes_.astype(np.asarray(y[0]).dtype)
        return self

    def predict_proba(self, X: list[Any]) -> list[np.ndarray]:
        return self.model.predict_proba(X)


def synthetic_split(law: str, n: int, seed: int) -> Split:
    (X, y), (Z, z) = draw(law, n, 2 * seed), draw(law, 100, 2 * seed + 1)
    return Split(X, y, Z, z)


def synthetic(law: str, n: int, title: str) -> Task:
    fixed = {"kernel": "linear", "fit_intercept": True}
    models = {
        "ChainCRF": Model(partial(ChainCRF, **fixed)),
        "hand-made states": Model(partial(HandMade, **fixed)),
        "SegmentCRF": Model(partial(SegmentCRF, ends=False, **fixed)),
        "SegmentCRF, free durations": Model(partial(SegmentCRF, ends=False, durations="free", **fixed)),
        "the law itself": Model(partial(Truth, law)),
    }
    if n > FEW:
        del models["SegmentCRF, free durations"]
    return Task(
        f"{title}, {n} training sequences",
        1,
        partial(synthetic_split, law, n),
        models,
        count_tokens,
        token_scores,
        TOKEN_COLUMNS,
    )


# Proteins


@cache
def chains() -> tuple[list[Any], list[Any], list[Any], list[Any], list[Any]]:
    """Return inputs, labels and scored labels of CB513, and inputs and labels of TS115."""
    codes, y, masks = proteins.merged()
    newer = load_ts115()
    scored = [np.where(mask, one, "") for one, mask in zip(y, masks, strict=True)]
    X, Z = ([proteins.substitution(a) for a in side] for side in (codes, [proteins.codes(x) for x in newer.X]))
    return X, y, scored, Z, newer.y


def take(items: Sequence[Any], rows: Iterable[int]) -> list[Any]:
    return [items[row] for row in rows]


def ts115_split(fold: int) -> Split:
    X, y, _, Z, z = chains()
    return Split(X, y, Z, z)


def protein_choice() -> Split:
    """Return 60 chains to fit and 30 others to choose by, in the training part of the first fold."""
    X, y, scored, *_ = chains()
    train = next(iter(KFold(5, shuffle=True, random_state=0).split(y)))[0]
    order = train[np.random.default_rng(0).permutation(len(train))]
    held, fitted = order[:30], order[30:90]
    return Split(take(X, fitted), take(y, fitted), take(X, held), take(scored, held))


def rbf(kind: Any, tol: float = 1e-3, **fixed: Any) -> Model:
    return Model(partial(kind, kernel="rbf", tol=tol, **fixed), grid=proteins.GRID)


def protein_task() -> Task:
    return Task(
        "CB513 to TS115",
        1,
        ts115_split,
        {
            "ChainCRF": rbf(ChainCRF, random_state=0),
            "hand-made states": rbf(HandMade),
            "SegmentCRF": rbf(SegmentCRF, 1e-2, random_state=0, max_duration=200),
        },
        count_tokens,
        token_scores,
        (("Q3, %", 100, 2), ("log-loss", 1, 4)),
        choice=protein_choice,
        criterion=(1, -1),
        sizes={use: {"n_components": proteins.N_LANDMARKS["choice"]} for use in ("choice", "fit")},
    )


# Addresses


@cache
def addresses() -> tuple[list[Any], list[Any]]:
    import usaddress

    data = load_us_addresses("train")
    return [usaddress.tokens2features([token["word"] for token in one]) for one in data.X], data.y


def address_split(fold: int) -> Split:
    X, y = addresses()
    train, test = list(KFold(5, shuffle=True, random_state=0).split(X))[fold]
    return Split(take(X, train), take(y, train), take(X, test), take(y, test))


def address_choice() -> Split:
    """Return four fifths of the training part of the first fold to fit, and one fifth to choose by."""
    first = address_split(0)
    fitted, held = next(iter(KFold(5, shuffle=True, random_state=1).split(first.y)))
    X, y = first.X, first.y
    return Split(take(X, fitted), take(y, fitted), take(X, held), take(y, held))


def address_features(x: list[dict[str, Any]], start: int, end: int) -> dict[str, str]:
    """Return the words, how they are written and the length of a candidate part of an address."""
    tokens = x[start:end]
    length, first, last = str(end - start), x[start], x[end - 1]
    before, after = first.get("previous", {}), last.get("next", {})
    return {
        "length": length,
        "words": " ".join(str(token["word"] or token["length"]) for token in tokens),
        "digits": " ".join(token["digits"] for token in tokens),
        "ends": f"{first['word']} {last['word']}",
        "before": f"{length} {before.get('word')} {before.get('digits')}",
        "after": f"{length} {after.get('word')} {after.get('digits')}",
        "commas": " ".join(str(token["endsinpunc"]) for token in tokens),
        "place": f"{'previous' in first} {'next' in last} {length}",
    }


def address_task() -> Task:
    linear = partial(Model, grid={"C": (1.0, 3.0, 10.0)})
    segments = partial(SegmentCRF, "linear", tol=1e-2, max_duration=6)
    features = {"segment_kernel": "linear", "pooling": address_features}
    return Task(
        "US addresses",
        2,
        address_split,
        {
            "ChainCRF": linear(partial(ChainCRF, "linear", tol=1e-3, weights="all")),
            "SegmentCRF": linear(partial(segments, weights="all")),
            "SegmentCRF, segment features": linear(partial(segments, **features)),
        },
        count_whole,
        whole_scores,
        (("addresses, %", 100, 2), ("tokens, %", 100, 2)),
        choice=address_choice,
    )


def all_tasks() -> dict[str, Task]:
    return {
        "normal 20": synthetic("normal", 20, "Normal durations"),
        "normal 200": synthetic("normal", 200, "Normal durations"),
        "geometric 200": synthetic("geometric", 200, "Geometric durations"),
        "addresses": address_task(),
        "ts115": protein_task(),
    }
