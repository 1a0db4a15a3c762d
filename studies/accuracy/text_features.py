"""Make sparse features of text: attributes of words, and templates that join attributes of a window.

A template is written as CRF++ and crfsgd write theirs: `w[0]` is the word, `p[-1]|w[0]` the part of speech before it
together with the word. Every combination of values that the training data show is a column; what they do not
show has none. An attribute beyond the ends of the sentence has its own value.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from itertools import chain

import numpy as np
from scipy import sparse

Sentences = Sequence[Sequence[str]]
UNSEEN, BEYOND = 0, 1
PART = re.compile(r"(\w+)\[([+-]?\d+)\]")


def shape(word: str) -> str:
    """Return the classes of characters without repeats: Xxxx-00 as Xx-0."""
    letters = (
        "X" if c.isupper() else "x" if c.islower() else "x" if c.isalpha() else "0" if c.isdigit() else c for c in word
    )
    return re.sub(r"(.)\1+", r"\1", "".join(letters))


def kind(word: str) -> str:
    """Return how a word is written, as one of a few classes."""
    if word.isdigit():
        return "digits"
    if any(c.isdigit() for c in word):
        return "with-digit"
    if not any(c.isalpha() for c in word):
        return "no-letter"
    if word.isupper():
        return "upper" if len(word) > 1 else "initial"
    if word[:1].isupper():
        return "title"
    return "hyphen" if "-" in word else "mixed" if not word.islower() else "lower"


def attributes(words: Sentences, affixes: int = 4) -> dict[str, list[list[str]]]:
    """Return w word, l lower-cased with digits as 0, s shape, k kind, a1.. prefixes and z1.. suffixes of l."""
    lower = [[re.sub(r"\d", "0", word.lower()) for word in one] for one in words]
    found = {
        "w": [list(one) for one in words],
        "l": lower,
        "s": [[shape(word) for word in one] for one in words],
        "k": [[kind(word) for word in one] for one in words],
    }
    for n in range(1, affixes + 1):
        found[f"a{n}"] = [[word[:n] for word in one] for one in lower]
        found[f"z{n}"] = [[word[-n:] for word in one] for one in lower]
    return found


class WindowFeatures:
    """Turn templates into columns: `fit_transform` on training sentences, `transform` on others."""

    def __init__(self, templates: Sequence[str]) -> None:
        self.templates = list(dict.fromkeys(templates))

    def fit_transform(self, columns: Mapping[str, Sentences]) -> sparse.csr_array:
        self._parts = [[(name, int(at)) for name, at in PART.findall(one)] for one in self.templates]
        used = sorted({name for parts in self._parts for name, _ in parts})
        self._values = {}
        for name in used:
            counts = Counter(chain.from_iterable(columns[name]))
            self._values[name] = {value: k for k, value in enumerate(sorted(counts), BEYOND + 1)}
        self._keys: list[np.ndarray] = []
        for key in self._joined(columns):
            values = np.unique(key)
            self._keys.append(values[values >= 0])
        self.n_features = sum(map(len, self._keys))
        return self.transform(columns)

    def transform(self, columns: Mapping[str, Sentences]) -> sparse.csr_array:
        """Return the features of all tokens one after the other, (N, n_features)."""
        found, start = [], 0
        for key, known in zip(self._joined(columns), self._keys, strict=True):
            place = np.minimum(np.searchsorted(known, key), max(len(known) - 1, 0))
            hit = known[place] == key if len(known) else np.zeros(len(key), bool)
            found.append(np.where(hit, place + start, -1).astype(np.int32))
            start += len(known)
        table = np.stack(found, axis=1)
        present = table >= 0
        pointers = np.concatenate([[0], np.cumsum(present.sum(axis=1))]).astype(np.int32)
        indices = table[present]
        return sparse.csr_array((np.ones(len(indices)), indices, pointers), shape=(len(table), self.n_features))

    def _joined(self, columns: Mapping[str, Sentences]) -> Iterable[np.ndarray]:
        """Yield for each template a number per token (N,), equal for equal values and -1 if one of them is unseen."""
        offsets = np.concatenate([[0], np.cumsum([len(one) for one in next(iter(columns.values()))])])
        codes = {
            name: np.array([values.get(value, UNSEEN) for one in columns[name] for value in one])
            for name, values in self._values.items()
        }
        N = offsets[-1]
        first, last = np.repeat(offsets[:-1], np.diff(offsets)), np.repeat(offsets[1:], np.diff(offsets))
        windows: dict[tuple[str, int], np.ndarray] = {}
        for parts in self._parts:
            key, unseen = np.zeros(N, np.int64), np.zeros(N, bool)
            for name, at in parts:
                if (name, at) not in windows:
                    place = np.arange(N) + at
                    inside = (place >= first) & (place < last)
                    windows[name, at] = np.where(inside, codes[name][np.where(inside, place, 0)], BEYOND)
                value = windows[name, at]
                key = key * (len(self._values[name]) + BEYOND + 1) + value
                unseen |= value == UNSEEN
            yield np.where(unseen, -1, key)
