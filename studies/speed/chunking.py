"""CoNLL-2000 chunking: its sentences, and the usual window of words and parts of speech as features.

A token at place 0 has 19 features. Seven are the words at -2, ..., 2 and the pairs (-1, 0) and (0, 1). Twelve are the
parts of speech at -2, ..., 2, their pairs from (-2, -1) to (1, 2) and their triples from (-2, -1, 0) to (0, 1, 2).
Places beyond the ends of a sentence hold `<s>` and `</s>`.
"""

from __future__ import annotations

import gzip
from typing import TypeAlias

from studies import common

Token: TypeAlias = tuple[str, str, str]

FOLDER = "conll2000_chunking"
SPLITS = ("train", "test")
WINDOW = range(-2, 3)
WORD_RUNS = [range(i, i + n) for n, starts in ((1, WINDOW), (2, (-1, 0))) for i in starts]
POS_RUNS = [range(i, i + n) for n in (1, 2, 3) for i in WINDOW if i + n - 1 in WINDOW]


def sentences(split: str) -> list[list[Token]]:
    """Return the sentences of "train" or "test", each a list of (word, part of speech, chunk tag)."""
    if split not in SPLITS:
        raise ValueError(f"split={split!r}: expected one of {', '.join(SPLITS)}")
    with gzip.open(common.data_folder(FOLDER) / f"{split}.txt.gz", "rt", encoding="utf-8") as file:
        blocks = file.read().split("\n\n")
    rows = ([line.split() for line in block.splitlines()] for block in blocks)
    return [[(word, pos, chunk) for word, pos, chunk in block] for block in rows if block]


def features(sentence: list[Token]) -> list[list[str]]:
    """Return the 19 features of each token."""
    ends = [("<s>", "<s>", "")] * 2, [("</s>", "</s>", "")] * 2
    words, tags, _ = zip(*ends[0], *sentence, *ends[1], strict=True)
    names = [
        (f"{letter}[{','.join(map(str, run))}]=", column, run)
        for letter, column, runs in (("w", words, WORD_RUNS), ("p", tags, POS_RUNS))
        for run in runs
    ]
    return [
        [name + "|".join([column[t + i] for i in run]) for name, column, run in names]
        for t in range(2, len(sentence) + 2)
    ]


def labels(sentence: list[Token]) -> list[str]:
    """Return the chunk tag of each token."""
    return [chunk for _, _, chunk in sentence]
