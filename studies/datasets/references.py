"""Load bibliographic references, and describe their tokens by features as parsers of references do."""

from __future__ import annotations

import gzip
import re
from collections.abc import Sequence
from typing import Literal
from xml.etree import ElementTree

import numpy as np

from kernelcrf.datasets.labelled_sequences import LabelledSequences
from kernelcrf.datasets.source import Folder, check_choice
from studies.accuracy.text_features import shape
from studies.datasets.sources import SOURCES

AFFIXES, NEIGHBOURS, TENTHS = (1, 2, 3, 4), (-2, -1, 1, 2), 10


def load_references(subset: Literal["core", "gold"] = "core", *, folder: Folder = None) -> LabelledSequences:
    """Load the references of AnyStyle's training data, one sequence per reference.

    X has one dict per token, with the token as `word`, and y has the fields: "author", "title", "date" and 20 more.
    AnyStyle trains on the subset "core". Some references of "gold" are also in "core".

    folder : the folder with all data sets; None means the environment variable KERNELCRF_DATA.

    Examples
    --------
    >>> from studies.datasets import load_references
    >>> len(load_references().X)
    1514
    """
    check_choice("subset", subset, ("core", "gold"))
    path = SOURCES["anystyle"].path(folder, f"{subset}.xml.gz")
    with gzip.open(path) if path.suffix == ".gz" else path.open("rb") as file:
        root = ElementTree.parse(file).getroot()
    sequences = [[(word, field.tag) for field in one for word in (field.text or "").split()] for one in root]
    sequences = [one for one in sequences if one]
    return LabelledSequences(
        X=[[{"word": word} for word, _ in one] for one in sequences],
        y=[np.array([label for _, label in one]) for one in sequences],
        **SOURCES["anystyle"].about(f"Part {subset!r}."),
    )


def reference_features(words: Sequence[str]) -> list[list[str]]:
    """Return one list of feature names per token of a reference.

    The features are the token, its letters alone, prefixes and suffixes, its shape, its last character, its place in
    the reference, and the letters, first character, last character and shape of its neighbours.
    """
    n, own = len(words), []
    for word in words:
        lower = word.lower()
        names = [f"word={lower}", "letters=" + re.sub(r"[^\w]", "", lower), f"shape={shape(word)}"]
        names += [f"first {k}={lower[:k]}" for k in AFFIXES] + [f"last {k}={lower[-k:]}" for k in AFFIXES]
        own.append(names)
    features = []
    for t, names in enumerate(own):
        here = [*names, f"case={words[t][:1].isupper()}", f"place={TENTHS * t // n}"]
        here += ["at the start"] * (t == 0) + ["at the end"] * (t == n - 1)
        for step in NEIGHBOURS:
            if 0 <= t + step < n:
                here += [f"{step:+} {own[t + step][k]}" for k in (1, 2, 3, 7)]
        features.append(here)
    return features
