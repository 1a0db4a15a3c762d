"""Prominence of words from text, at the size of a small corpus: train on dev, test on test of Helsinki Prosody.

Final labels; 5,727 sentences of 40 speakers to train, 4,822 of 39 others to test; accuracy over all labelled tokens,
of 2 grades (prominent or not) and of 3. Punctuation is no token but a feature of its neighbours (prosody_text).

Features, each group standardised on the training data and scaled to a mean square norm of one, then weighted:
    lexical   69 binary and real features of a word, of a window of five words (prosody_text)
    rates     how prominent the word was in training, alone and in context, out of fold by speaker (prosody_rates);
              a window of three words
    vectors   hidden states of MiniLM, frozen, layers 2, 4 and 6, to 200 principal components (embeddings)

Concatenating groups adds their linear kernels, and multiplies their Gaussian ones.

Labels. The corpus also grades the boundary after each word. "joint" trains on pairs of prominence and boundary (9
labels) and sums the marginals over the boundary, which is never seen at test time: the chain then knows of phrases.

Choices (kernel, labels, weights of the groups, gamma, C; c2 and C of the baselines) are made on one of five folds of
dev, speakers kept apart; the test set is labelled by what was chosen. For their time, the choices on file are taken;
`--choose 1` makes them again.
"""

from __future__ import annotations

import argparse
import hashlib
import time
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from sklearn.exceptions import ConvergenceWarning
from sklearn.model_selection import GroupKFold

from kernelcrf import ChainCRF
from studies import common
from studies.accuracy import baselines
from studies.accuracy.embeddings import minilm
from studies.accuracy.prosody_rates import rates
from studies.accuracy.prosody_text import Sentences, dicts, lexical, sentences, window

LAYERS = (2, 4, 6)


def rows_of(data: Sentences) -> np.ndarray:
    """Return the vectors of the words of the chains, (N, layers x 384)."""
    rows = minilm(data.tokens, LAYERS)
    starts = np.cumsum([0, *[len(one) for one in data.tokens]])[:-1]
    at = np.concatenate([a + place for a, place in zip(starts, data.place, strict=True)])
    return np.asarray(rows[at]).reshape(len(at), -1)


def cut(rows: np.ndarray, data: Sentences) -> list[np.ndarray]:
    return np.split(rows, np.cumsum(data.lengths)[:-1])


def beside(rows: np.ndarray, data: Sentences, reach: int) -> np.ndarray:
    return np.concatenate(window(cut(rows, data), reach))


def scaled(train: np.ndarray, test: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Standardise, clip rare values, and scale to a mean square norm of one on the training data; float32."""
    mean, sd = train.mean(axis=0, dtype=np.float64), train.std(axis=0, dtype=np.float64) + 1e-6
    width = np.float32(np.sqrt(train.shape[1]))
    A, B = (np.clip((rows - mean) / sd, -5, 5).astype(np.float32) / width for rows in (train, test))
    return A, B


def components(train: np.ndarray, test: np.ndarray, n: int) -> tuple[np.ndarray, np.ndarray]:
    """Return principal components, not whitened, of mean square norm one."""
    mean, sd = train.mean(axis=0, dtype=np.float32), train.std(axis=0, dtype=np.float32) + 1e-6
    A, B = (train - mean) / sd, (test - mean) / sd
    V = np.linalg.eigh(A.T @ A)[1][:, ::-1][:, :n]
    A, B = A @ V, B @ V
    norm = np.sqrt((A**2).sum(axis=1).mean())
    return A / norm, B / norm


@dataclass(frozen=True)
class Pair:
    """Hold training and test sentences with the features of both; `name` is that of the split."""

    name: str
    train: Sentences
    test: Sentences
    groups: dict[str, tuple[np.ndarray, np.ndarray]]

    def inputs(self, weights: dict[str, float]) -> tuple[list[np.ndarray], list[np.ndarray]]:
        train, test = (
            np.hstack([np.float32(w) * self.groups[group][side] for group, w in weights.items()]) for side in (0, 1)
        )
        return cut(train, self.train), cut(test, self.test)


def make_pair(name: str, train: Sentences, test: Sentences, vectors: tuple[np.ndarray, np.ndarray]) -> Pair:
    lex = [beside(np.concatenate(lexical(data)), data, 2) for data in (train, test)]
    rate = [beside(rows, data, 1) for rows, data in zip(rates(train, test), (train, test), strict=True)]
    V = components(*[rows.astype(np.float32) for rows in vectors], 200)
    return Pair(name, train, test, {"lexical": scaled(*lex), "rates": scaled(*rate), "vectors": V})


def validation_pair(dev: Sentences, vectors: np.ndarray) -> Pair:
    """Return the first of five folds of dev, speakers kept apart."""
    train, held = next(iter(GroupKFold(5).split(dev.words, groups=dev.groups)))
    sentence = np.repeat(np.arange(len(dev)), dev.lengths)
    parts = vectors[np.isin(sentence, train)], vectors[np.isin(sentence, held)]
    return make_pair("validation 0", dev.take(train), dev.take(held), parts)


def labels_of(data: Sentences, labels: str) -> list[np.ndarray]:
    if labels == "2":
        return [np.minimum(one, 1) for one in data.y]
    if labels == "3":
        return data.y
    joined = zip(data.y, data.boundary, strict=True)
    return [np.where((grade < 0) | (boundary < 0), -1, 3 * grade + boundary) for grade, boundary in joined]


def chain(pair: Pair, spec: dict[str, Any]) -> np.ndarray:
    """Return marginals of the test tokens by ChainCRF, (N, grades)."""
    X, X_test = pair.inputs(spec["weights"])
    rest = {key: spec[key] for key in ("kernel", "gamma", "C", "n_components") if key in spec}
    crf = ChainCRF(**rest, tol=3e-3, random_state=0)
    crf.fit(X, labels_of(pair.train, spec["labels"]))
    P = np.concatenate(crf.predict_proba(X_test))
    if spec["labels"] != "joint":
        return P
    return np.stack([P[:, crf.classes_ // 3 == grade].sum(axis=1) for grade in range(3)], axis=1)


def crfsuite(pair: Pair, spec: dict[str, Any]) -> np.ndarray:
    """Return the same by CRFsuite on feature dicts and rates; sentences with a missing label are left out."""
    X, X_test = dicts(pair.train), dicts(pair.test)
    for sequences, rows in ((X, pair.groups["rates"][0]), (X_test, pair.groups["rates"][1])):
        tokens = [token for sequence in sequences for token in sequence]
        for token, row in zip(tokens, rows.astype(float) * np.sqrt(rows.shape[1]), strict=True):
            token.update({f"r{j}": value for j, value in enumerate(row.tolist())})
    y = labels_of(pair.train, spec["labels"])
    whole = [i for i, one in enumerate(y) if (one >= 0).all()]
    model = baselines.CRFsuite(c2=spec["c2"], max_iterations=100).fit([X[i] for i in whole], [y[i] for i in whole])
    return np.concatenate(model.predict_proba(X_test))


def per_token(pair: Pair, spec: dict[str, Any]) -> np.ndarray:
    """Return the same by a classifier of single tokens: Nystroem features and logistic regression."""
    X, X_test = pair.inputs(spec["weights"])
    y = np.concatenate(labels_of(pair.train, spec["labels"]))
    A = np.concatenate(X)[y >= 0]
    y = y[y >= 0]
    model = baselines.nystroem(spec["C"], spec["gamma"], spec["n_components"]).fit(A, y)
    return model.predict_proba(np.concatenate(X_test))


KINDS: dict[str, Callable[[Pair, dict[str, Any]], np.ndarray]] = {
    "chain": chain,
    "crfsuite": crfsuite,
    "nystroem": per_token,
}


def predict(pair: Pair, spec: dict[str, Any]) -> tuple[np.ndarray, float]:
    """Return marginals of the grades of all test tokens, and the seconds that fit and prediction took."""

    def work() -> tuple[np.ndarray, float]:
        start = time.perf_counter()
        P = KINDS[spec["kind"]](pair, spec)
        return P.astype(np.float32), time.perf_counter() - start

    return common.kept(f"prosody {hashlib.sha256(f'{pair.name} {spec}'.encode()).hexdigest()[:20]}", work)


def scores(P: np.ndarray, data: Sentences) -> tuple[float, float]:
    """Return accuracy of 2 and of 3 grades, per cent; NaN for 3 if the model knows only 2."""
    y = np.concatenate(data.y)
    known = y >= 0
    two = 100 * np.mean((P[:, 0] < 0.5)[known] == (y > 0)[known])
    three = 100 * np.mean(P.argmax(axis=1)[known] == y[known]) if P.shape[1] == 3 else np.nan
    return float(two), float(three)


L, T, V = "lexical", "rates", "vectors"
ALL = {L: 1.0, T: 1.0, V: 1.0}
MOST = {L: 0.7, T: 1.0, V: 0.5}


def grid() -> dict[str, list[dict[str, Any]]]:
    """Return the settings among which the validation fold chooses, for each row of the table."""

    def linear(labels: str, weights: dict[str, float], *Cs: float) -> list[dict[str, Any]]:
        base = {"kind": "chain", "kernel": "linear", "labels": labels, "weights": weights}
        return [{**base, "C": C} for C in Cs]

    two = {"labels": "2", "weights": MOST, "n_components": 1000, "gamma": 0.2}
    Cs = (3.0, 10.0, 30.0)
    return {
        "linear, joint labels": linear("joint", ALL, 1.0, 3.0, 10.0),
        "rbf, 2 labels": [{"kind": "chain", "kernel": "rbf", **two, "C": C} for C in Cs],
        "linear, 2 labels": linear("2", ALL, *Cs),
        "linear, joint labels, lexical": linear("joint", {L: 1.0}, 3.0),
        "linear, joint labels, lexical + rates": linear("joint", {L: 1.0, T: 1.0}, 3.0),
        "Nystroem + LR, 2 labels": [{"kind": "nystroem", **two, "C": C} for C in Cs],
        "CRFsuite, dicts + rates, 2 labels": [{"kind": "crfsuite", "labels": "2", "c2": 10.0}],
    }


BEST, JOINT, BASELINES = "rbf, 2 labels", "linear, joint labels", ("CRFsuite", "Nystroem")
PAIRS = (
    ("the chain", BEST, "Nystroem + LR, 2 labels"),
    ("the joint labels", JOINT, "linear, 2 labels"),
    ("the vectors", JOINT, "linear, joint labels, lexical + rates"),
    ("the rates", "linear, joint labels, lexical + rates", "linear, joint labels, lexical"),
)
PUBLISHED = (
    ("BERT-base, fine-tuned", 83.2, 68.6),
    ("3-layer BiLSTM", 82.1, 66.4),
    ("CRF (MarMoT)", 81.8, 66.4),
    ("SVM + GloVe", 80.8, 65.4),
    ("majority class of the word", 80.2, 62.4),
)


def measure(options: argparse.Namespace) -> dict[str, Any]:
    warnings.simplefilter("ignore", ConvergenceWarning)
    on_file = (
        {}
        if options.choose
        else {row["name"]: row for row in (common.load("accuracy.prosody") or {"rows": []})["rows"]}
    )
    dev, test = sentences("dev", 3), sentences("test", 3)
    vectors = rows_of(dev), rows_of(test)
    validation = validation_pair(dev, vectors[0]) if set(grid()) - set(on_file) else None
    last = make_pair("test", dev, test, vectors)
    rows, right = [], {}
    for name, settings in grid().items():
        if validation is not None:
            held = [scores(predict(validation, one)[0], validation.test)[0] for one in settings]
            spec = settings[int(np.argmax(held))]
        else:
            spec = on_file[name]["spec"]
        P, seconds = predict(last, spec)
        right[name] = is_right(P, test)
        rows.append({"name": name, "test": scores(P, test), "seconds": seconds, "spec": spec})
        print(rows[-1], flush=True)
    return {
        "rows": rows,
        "words": [int(dev.lengths.sum()), int(test.lengths.sum())],
        "against": {n: common.bootstrap_p(right[BEST], right[n]) for n in right if n.startswith(BASELINES)},
        "pairs": [(what, a, b, *common.bootstrap_p(right[a], right[b])) for what, a, b in PAIRS],
    }


def is_right(P: np.ndarray, data: Sentences) -> list[np.ndarray]:
    """Return, for each sentence, whether each labelled word is right, for 2 grades."""
    y = [np.minimum(one, 1) for one in data.y]
    return common.right_tokens(cut((P[:, 0] < 0.5).astype(int), data), y, [one >= 0 for one in y])


def section(results: dict[str, Any]) -> str:
    def number(value: float) -> str:
        return "-" if value is None or np.isnan(value) else f"{value:.2f}"

    def p_value(p: float) -> str:
        return "p < 0.002" if p < 0.002 else f"p = {p:.3f}"

    at = {row["name"]: row for row in results["rows"]}
    rows = [(name, *map(number, row["test"]), f"{row['seconds']:.0f}") for name, row in at.items()]
    rows += [(f"{name}, published", f"{two}", f"{three}", "-") for name, two, three in PUBLISHED]
    gains = "".join(
        f"\n  - {100 * gain:+.2f} points over {name} ({p_value(p)})" for name, (gain, p) in results["against"].items()
    )
    parts = "".join(f"\n  - {what} {100 * gain:+.2f} ({p_value(p)})" for what, _, _, gain, p in results["pairs"])
    train, test = results["words"]
    two, three = at[BEST]["test"][0], at[JOINT]["test"][1]
    error = np.sqrt(two * (100 - two) / test)
    bars = " and ".join(
        f"{'as good as' if abs(two - bar) < 2 * error else 'above' if two > bar else 'below'} {what} ({bar})"
        for bar, what in ((82.1, "the published BiLSTM"), (83.2, "the fine-tuned BERT"))
    )
    simple = at["linear, joint labels, lexical + rates"]
    vectors = next(gain for what, _, _, gain, _ in results["pairs"] if what == "the vectors")
    kernel = two - at["linear, 2 labels"]["test"][0]
    return f"""## Prosody from text

Which words of a sentence does a reader stress? {train:,} words of 40 speakers to train, {test:,} words of 39 others to
test. A word has one of three grades of prominence: none, some or much; with two grades, it is prominent or not.

- *lexical*: features of a word and of its neighbours, such as frequency, syllables and punctuation.
- *rates*: how often the word was prominent in training, alone and in context, counted on other speakers.
- *vectors*: the states of MiniLM, a language model that is not trained further. Rows of kernelcrf and Nystroem have all
  three inputs, unless they name some.
- *2 labels*: trained on two grades. *Joint labels*: trained on the grade together with the strength of the boundary
  after the word; their probabilities are summed over boundaries.
- *Nystroem + LR*: a logistic regression that labels each word alone, with the inputs of "{BEST}".
- *dicts + rates*: lexical features and rates.

The table has accuracy in percent, and seconds for the fit and the test labels. Settings were chosen on a fifth of the
training data, with other speakers than the rest; "{BEST}" was the best row there for 2 grades.

{common.markdown(("model", "2 grades", "3 grades", "seconds"), rows)}

- Two grades: **{two:.2f}**, with a standard error of {error:.2f} if words are independent. This is {bars}; both were
  trained on twenty times the words. Three grades: **{three:.2f}**, by "{JOINT}".
- Against the baselines, 2 grades, by resampling sentences:{gains}
- The gain of each part on the test set, with all else unchanged:{parts}
- An rbf kernel in place of the linear one, with 2 labels, changes the accuracy by {kernel:+.2f} points.

Other weights of the inputs, gamma and C close to the chosen ones changed the held-out accuracy by no more than chance.

In practice: with a hundred thousand words to train, a linear ChainCRF on rates and lexical features has
{simple["test"][0]:.2f} % in {simple["seconds"]:.0f} seconds. The vectors change this by {100 * vectors:+.2f} points.
"""


OPTIONS = {"choose": 0}
