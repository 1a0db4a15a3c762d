"""Compute how prominent words were in training data: rates by word and by word in context, out of fold.

    e_parent = rate of the suffix and class, e_word shrinks to e_parent, e_context to e_word:
    e = (sum of targets + a e_parent) / (count + a)

of four targets: grade 1 or 2, grade 2, real-valued prominence (cut at 3), a boundary after the word. For training
tokens the sums leave out the speakers of their own fold, so that a rate never contains the label that it helps to
predict.
"""

from __future__ import annotations

import numpy as np
from sklearn.model_selection import GroupKFold

from studies.accuracy.prosody_text import Sentences, of_word, plain

STRENGTH = 4.0


def keys(data: Sentences) -> list[tuple[str, ...]]:
    """Return for each word: suffix and class; itself; and itself with what stands beside it."""
    found = []
    for i, words in enumerate(data.words):
        low = ["<", *[plain(word) for word in words], ">"]
        kinds = ["<", *[of_word(word)[1] or "content" for word in words], ">"]
        for t, (before, after) in enumerate(zip(data.before[i], data.after[i], strict=True), 1):
            word = low[t]
            found.append(
                (
                    f"{word[-3:]} {kinds[t]}",
                    word,
                    f"{word} {low[t - 1]}",
                    f"{word} {low[t + 1]}",
                    f"{word} {before[:1]} {after[:1]}",
                    f"{word} {kinds[t - 1]} {kinds[t + 1]}",
                )
            )
    return found


def targets(data: Sentences) -> np.ndarray:
    """Return the four targets, (N, 4), NaN if an annotation is missing."""
    y, boundary = np.concatenate(data.y), np.concatenate(data.boundary)
    value = np.clip(np.nan_to_num(np.concatenate(data.value)), 0, 3)
    found = np.stack([y >= 1, y >= 2, value, boundary >= 1], axis=1).astype(float)
    found[(y < 0) | (boundary < 0)] = np.nan
    return found


def rates(train: Sentences, test: Sentences, n_folds: int = 10) -> tuple[np.ndarray, np.ndarray]:
    """Return features of the words of both, float32: rates by six keys of four targets, and the word's count."""
    n = int(train.lengths.sum())
    codes, T = _codes(train, test), targets(train)
    known = ~np.isnan(T).any(axis=1)
    speakers = np.repeat(train.groups, train.lengths)
    found = np.empty((n, 6 * T.shape[1] + 2), np.float32)
    for rest, fold in GroupKFold(n_folds).split(T, groups=speakers):
        seen = rest[known[rest]]
        found[fold] = _encode(codes[seen], T[seen], codes[fold])
    return found, _encode(codes[:n][known], T[known], codes[n:])


def _codes(train: Sentences, test: Sentences) -> np.ndarray:
    """Return the keys of the words of both as numbers, (N, 6)."""
    columns = zip(*keys(train), *keys(test), strict=True)
    return np.stack([np.unique(np.array(column), return_inverse=True)[1] for column in columns], axis=1)


def _encode(seen: np.ndarray, T: np.ndarray, wanted: np.ndarray) -> np.ndarray:
    size = int(max(seen.max(), wanted.max())) + 1
    parents = np.broadcast_to(T.mean(axis=0), (len(wanted), T.shape[1]))
    found, counts = [], np.zeros(len(wanted))
    for j in range(seen.shape[1]):
        count = np.bincount(seen[:, j], minlength=size)[wanted[:, j]]
        sums = [np.bincount(seen[:, j], weights=t, minlength=size)[wanted[:, j]] for t in T.T]
        rate = (np.stack(sums, axis=1) + STRENGTH * parents) / (count[:, None] + STRENGTH)
        found.append(rate)
        if j <= 1:
            parents, counts = rate, count
    return np.hstack([*found, np.log1p(counts)[:, None] / 4, (counts == 0)[:, None]]).astype(np.float32)
