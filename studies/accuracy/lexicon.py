"""Words of a lexicon as candidates: handwritten sentences beside a plain chain over letters.

Sentences of CoNLL-2000, lower case and words of letters a to z alone, are written with images of single letters: for
each letter an image of this letter is drawn from the words of `letters`. Images of folds 0 to 2 are for training, and
those of the others for the test. The plain chain is a ChainCRF (rbf, 300 landmarks, C=10) over the letters of a word,
fitted to 1,000 written words. Its answers are the letters of each word.

The lexicon has the words of the first 6,000 training sentences, with counts of words and of pairs of neighbours. The
candidates of a written word are the eight words of its length whose letters have the largest product of the chain's
probabilities, and what the chain has read. CandidateCRF chooses among them by five features. They are the logarithm
of this product, the log-probability of the whole word under the chain, the logarithm of the count, and whether the word
is in the lexicon, or is what the chain has read. A step has the logarithm of how much more often the two words are
neighbours than their counts say (with a prior of five neighbours), and whether they are neighbours at all. It is fitted
to further training sentences, whose right words are added to their candidates, with C="auto". Test words that are
neither in the lexicon nor read rightly by the chain count as errors.
"""

from __future__ import annotations

import argparse
from collections import Counter
from collections.abc import Sequence
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np

from kernelcrf import CandidateCRF, ChainCRF, Input
from kernelcrf.arrays import Array
from kernelcrf.datasets import load_conll2000
from studies import common
from studies.datasets import load_letters

LETTERS = {letter: i for i, letter in enumerate("abcdefghijklmnopqrstuvwxyz")}
FOR_TRAINING, N_LEXICON, N_CANDIDATES, PRIOR, UNSEEN = 3, 6000, 8, 5.0, 0.1
MODELS = ("nearest", "candidates", "steps", "rbf")


class Lexicon(NamedTuple):
    """The words of a text by length, and how often words and pairs of words occur."""

    by_length: dict[int, tuple[list[str], Array]]
    words: Counter[str]
    pairs: Counter[tuple[str, str]]
    total: int

    @classmethod
    def of(cls, sentences: Sequence[list[str]]) -> Lexicon:
        words = Counter(word for one in sentences for word in one)
        pairs = Counter(pair for one in sentences for pair in pairwise(one))
        by_length: dict[int, list[str]] = {}
        for word in words:
            by_length.setdefault(len(word), []).append(word)
        tables = {T: (some, np.array([[LETTERS[c] for c in word] for word in some])) for T, some in by_length.items()}
        return cls(tables, words, pairs, words.total())

    def share(self, word: str) -> float:
        return max(self.words[word], UNSEEN) / self.total

    def step(self, a: str, b: str) -> tuple[float, float]:
        """Return how much more often b follows a than b occurs, as a logarithm, and whether it does at all."""
        follows = (self.pairs[a, b] + PRIOR * self.share(b)) / (self.words[a] + PRIOR)
        return float(np.log(follows / self.share(b))), float(self.pairs[a, b] > 0)


def sentences(subset: str) -> list[list[str]]:
    texts = [[token["word"].lower() for token in x] for x in load_conll2000(subset).X]
    kept = [[word for word in one if word.isascii() and word.isalpha()] for one in texts]
    return [one for one in kept if len(one) >= 3]


def images(first: int, last: int) -> dict[str, Array]:
    """Return the images of each letter in the folds from `first` to `last` - 1."""
    data = load_letters()
    chosen = [i for i, fold in enumerate(data.folds) if first <= fold < last]
    rows, labels = np.concatenate([data.X[i] for i in chosen]), np.concatenate([data.y[i] for i in chosen])
    return {letter: rows[labels == letter] for letter in LETTERS}


def write(words: Sequence[str], drawn: dict[str, Array], rng: np.random.Generator) -> list[Array]:
    """Return each word as one image per letter."""
    return [np.array([drawn[c][rng.integers(len(drawn[c]))] for c in word]) for word in words]


def candidates(
    chain: ChainCRF, written: list[Array], lexicon: Lexicon, right: Sequence[str] | None
) -> tuple[list[list[str]], list[Array]]:
    """Return the candidates of each written word, the chain's own reading first, and their features.

    right : the right words, which are added if they are not among the candidates; None adds none.
    """
    read = ["".join(letters) for letters in chain.predict(written)]
    words, features = [], []
    for i, p in enumerate(chain.predict_proba(written)):
        log_p, found = np.log(np.maximum(p, 1e-12)), {read[i]: None}
        if (known := lexicon.by_length.get(len(p))) is not None:
            fits = log_p[np.arange(len(p)), known[1]].sum(axis=1)
            found |= dict.fromkeys(known[0][k] for k in np.argsort(-fits, kind="stable")[:N_CANDIDATES])
        if right is not None:
            found.setdefault(right[i])
        some = list(found)
        letters = np.array([[LETTERS[c] for c in word] for word in some])
        whole = chain.distribution([written[i]] * len(some)).log_prob([list(word) for word in some])
        counts = [np.log(lexicon.share(word)) for word in some]
        flags = [[word in lexicon.words, word == read[i]] for word in some]
        fits = log_p[np.arange(len(p)), letters].sum(axis=1)
        words.append(some)
        features.append(np.column_stack([fits, whole, counts, np.array(flags, float)]))
    return words, features


def sequences(
    texts: Sequence[list[str]], chain: ChainCRF, drawn: dict[str, Array], lexicon: Lexicon, seed: int, training: bool
) -> tuple[list[dict[str, Any]], list[list[list[str]]]]:
    """Return the inputs of CandidateCRF, and the candidates of all words."""
    rng, X, lists = np.random.default_rng(seed), [], []
    for text in texts:
        some, features = candidates(chain, write(text, drawn, rng), lexicon, text if training else None)
        steps = [np.array([[lexicon.step(a, b) for b in after] for a in before]) for before, after in pairwise(some)]
        X.append({"words": features, "steps": steps})
        lists.append(some)
    return X, lists


def measure(options: argparse.Namespace) -> dict[str, Any]:
    text, rng = sentences("train"), np.random.default_rng(0)
    lexicon, others, test = Lexicon.of(text[:N_LEXICON]), text[N_LEXICON:], sentences("test")[: options.tested]
    first, last = images(0, FOR_TRAINING), images(FOR_TRAINING, 10)
    words = [word for one in text[:N_LEXICON] for word in one]
    drawn = [words[i] for i in rng.permutation(len(words))[: options.words]]
    chain = ChainCRF("rbf", C=10.0, n_components=300, tol=1e-3, random_state=0)
    chain.fit(write(drawn, first, rng), [list(word) for word in drawn])
    X, lists = sequences(others[: options.sentences], chain, first, lexicon, 1, True)
    y = [
        [some.index(word) for some, word in zip(one, text_of, strict=True)]
        for one, text_of in zip(lists, others[: options.sentences], strict=True)
    ]
    Z, tested = sequences(test, chain, last, lexicon, 2, False)
    rows = np.concatenate([one for x in X for one in x["words"]])
    mean, scale = rows.mean(axis=0), rows.std(axis=0)
    for x in [*X, *Z]:
        x["words"] = [(one - mean) / scale for one in x["words"]]

    answers = {"chain": [[some[0] for some in one] for one in tested], "nearest": []}
    for x, one in zip(Z, tested, strict=True):
        best = []
        for some, features in zip(one, x["words"], strict=True):
            inside = [k for k, word in enumerate(some) if word in lexicon.words] or [0]
            best.append(some[inside[int(features[inside, 0].argmax())]])
        answers["nearest"].append(best)
    steps = Input("linear", scores="steps")
    inputs: dict[str, dict[str, Any]] = {
        "candidates": {"words": "linear"},
        "steps": {"words": "linear", "steps": steps},
        "rbf": {"words": Input("rbf", n_components=200), "steps": steps},
    }
    certificates = {}
    for name, given in inputs.items():
        crf = CandidateCRF(inputs=given, tol=1e-3, random_state=0).fit(X, y)
        certificates[name] = crf.certificate_.status
        answers[name] = [
            [some[k] for some, k in zip(one, labels, strict=True)]
            for one, labels in zip(tested, crf.predict(Z), strict=True)
        ]
    present = [
        word in some for one, text_of in zip(tested, test, strict=True) for some, word in zip(one, text_of, strict=True)
    ]
    return {
        "sentences": len(X), "tested": len(test), "tokens": sum(map(len, test)), "lexicon": len(lexicon.words),
        "present": float(np.mean(present)), "status": certificates,
        "right": {
            name: ["".join("01"[a == b] for a, b in zip(one, true, strict=True))
                   for one, true in zip(found, test, strict=True)]
            for name, found in answers.items()
        },
        "letters": {
            name: float(np.mean([a == b for one, true in zip(found, test, strict=True)
                                 for word, other in zip(one, true, strict=True)
                                 for a, b in zip(word, other, strict=True)]))
            for name, found in answers.items()
        },
    }  # fmt: skip


def section(results: dict[str, Any]) -> str:
    names = {
        "chain": "plain chain over letters",
        "nearest": "nearest word of the lexicon",
        "candidates": "CandidateCRF, linear, words alone",
        "steps": "CandidateCRF, linear, words and steps",
        "rbf": "CandidateCRF, rbf on words, linear on steps",
    }
    right = {name: [np.array(list(one), float) for one in results["right"][name]] for name in names}
    lines = []
    for name, text in names.items():
        gain, p = common.bootstrap_p(right[name], right["chain"])
        beside = "" if name == "chain" else f"{100 * gain:+.2f} ({p:.3f})"
        words = 100 * common.accuracy(right[name])
        lines.append([text, f"{words:.2f}", beside, f"{100 * results['letters'][name]:.2f}"])
    head = ["reader", "words right, %", "beside the plain chain (p)", "letters right, %"]
    return f"""## Words of a lexicon as candidates

The test is to read {results["tested"]} handwritten sentences with {results["tokens"]:,} words. Each word has several
*candidates*: likely words of a lexicon of {results["lexicon"]:,} words, and the letters that a chain reads.
CandidateCRF chooses among the candidates of all words of a sentence. The true word is a candidate in
{100 * results["present"]:.1f} % of the cases; for the others, every choice is wrong.

- *plain chain over letters*: a ChainCRF reads each letter; its letters are the word.
- *nearest word*: the word of the lexicon whose letters have the largest product of the chain's probabilities.
- *words*: features of a candidate: how well it fits the letters, how frequent it is, and whether the lexicon has it.
- *steps*: features of two candidates in a row: how often they are neighbours in the text of the lexicon.

CandidateCRF is fitted to {results["sentences"]} other sentences. p-values are those of a paired bootstrap over
sentences.

{common.markdown(head, lines)}
"""


OPTIONS: dict[str, Any] = {"words": 1000, "sentences": 150, "tested": 150}
