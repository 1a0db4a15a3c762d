"""Load annotated text from files with one token per line and columns separated by a tab or a blank.

An empty line ends a sentence; in the Helsinki Prosody Corpus, a line `<file> name` begins a sentence instead. Only
newlines end a line, because text from social media contains other characters that Unicode counts as line ends.
"""

from __future__ import annotations

from pathlib import Path
from typing import Literal, TypeAlias

import numpy as np

from kernelcrf.arrays import Array, Places
from kernelcrf.datasets.labelled_sequences import LabelledSequences
from kernelcrf.datasets.source import (
    SOURCES,
    Folder,
    Source,
    check_choice,
    cut,
    read_lines,
    read_numbers,
    read_sentences,
    split_lines,
)

Part: TypeAlias = Literal["train", "dev", "test"]
NA = "NA"
MARK = "<file>\t"


def load_conll2000(subset: Literal["train", "test"] = "train", *, folder: Folder = None) -> LabelledSequences:
    """Load CoNLL-2000: sentences of the Wall Street Journal with phrase chunks, tagged in IOB2.

    X has one dict per token with its `word` and `pos` (part of speech), and y has tags such as "B-NP". There is no
    development set. The tag I-LST occurs only in the test set. The usual score is the F1 of spans over all types.

    folder : the folder with all data sets; None means the environment variable KERNELCRF_DATA.

    Examples
    --------
    >>> from kernelcrf.datasets import load_conll2000
    >>> data = load_conll2000("test")
    >>> data.X[0][0], data.y[0][:2].tolist()
    ({'word': 'Rockwell', 'pos': 'NNP'}, ['B-NP', 'I-NP'])
    """
    check_choice("subset", subset, ("train", "test"))
    return load_tagged(SOURCES["conll2000"], subset, folder, ("word", "pos"), " ")


def load_wnut17(subset: Part = "train", *, folder: Folder = None) -> LabelledSequences:
    """Load WNUT-17: text from social media with rare and new named entities, tagged in IOB2.

    X has one dict per token with its `word`, and y has tags of six types: person, location, corporation, group, product
    and creative-work. The three subsets come from different sites. The usual score is the F1 of spans.

    folder : the folder with all data sets; None means the environment variable KERNELCRF_DATA.

    Examples
    --------
    >>> from kernelcrf.datasets import load_wnut17
    >>> data = load_wnut17("dev")
    >>> len(data.y), data.X[0][0]
    (1009, {'word': 'Stabilized'})
    """
    check_choice("subset", subset, ("train", "dev", "test"))
    return load_tagged(SOURCES["wnut17"], subset, folder, ("word",), "\t")


def load_prosody(
    subset: Literal["train_100", "dev", "test"] = "dev",
    *,
    n_classes: Literal[2, 3] = 3,
    release: Literal["final", "early"] = "final",
    folder: Folder = None,
) -> LabelledSequences:
    """Load sentences that were read aloud, with the prominence of each word (Helsinki Prosody Corpus).

    X has one dict per token with its `word`. y is 0 (not prominent), 1 or 2 (very prominent), computed from the audio,
    or -1 for tokens without a label, mostly punctuation. The usual score is the accuracy on labelled tokens, for which
    `eval_mask` is true. `groups` are speakers, and `ids` are the names of the utterances.

    The field `extras` of the result has `boundary`, the strength of the boundary after the word, from 0 to 2, or -1 if
    missing. In the final release, `extras` also has the real numbers `prominence_value` and `boundary_value`, which are
    NaN if missing.

    n_classes : 3, or 2 to merge the labels 1 and 2. Then pass classes=[0, 1] to an estimator, because labels that are
        -1, 0 and 1 could be three classes.
    release : "final" is the release of published scores, with the subsets dev and test. "early" also has the subset
        train_100. Its annotation is older: with n_classes=3, a quarter of the labels differ from the final release.
    folder : the folder with all data sets; None means the environment variable KERNELCRF_DATA.

    Examples
    --------
    >>> from kernelcrf.datasets import load_prosody
    >>> data = load_prosody("dev", n_classes=2)
    >>> data.X[0][:2], data.y[0][:2].tolist()
    ([{'word': 'A'}, {'word': "'JOLLY'"}], [0, 1])
    """
    check_choice("release", release, ("final", "early"))
    check_choice("n_classes", n_classes, (2, 3))
    final = release == "final"
    check_choice(f"release={release!r}, subset", subset, ("dev", "test") if final else ("train_100", "dev", "test"))
    path = SOURCES["prosody"].path(folder, f"{subset}.txt.gz" if final else f"early_2019-05/{subset}.txt.gz")

    lines = read_lines(path) or [""]
    heads = [number for number, line in enumerate(lines) if line.startswith(MARK)]
    if not heads or heads[0] != 0:
        raise ValueError(f"{path}, line 1: expected {MARK!r} and the name of the first sentence, got {lines[0]!r}")
    tokens = {number: line for number, line in enumerate(lines, 1) if line and not line.startswith(MARK)}
    columns = split_lines(path, tokens, "\t", 5 if final else 3)
    starts = np.searchsorted(list(tokens), heads, side="right")
    names = np.array([lines[head].removeprefix(MARK) for head in heads], dtype=np.str_)
    y = np.minimum(_grades(path, "prominence", columns[1]), n_classes - 1)
    extras = {"boundary": _grades(path, "boundary", columns[2])}
    if final:
        for name, cells in zip(("prominence_value", "boundary_value"), columns[3:], strict=True):
            extras[name] = read_numbers(path, name, ["nan" if cell == NA else cell for cell in cells])
    return LabelledSequences(
        X=_dicts(("word",), columns[:1], starts),
        y=cut(y, starts),
        ids=names,
        groups=np.array([name.split("_")[0] for name in names], dtype=np.str_),
        eval_mask=cut(y >= 0, starts),
        extras={name: cut(column, starts) for name, column in extras.items()},
        **SOURCES["prosody"].about(f"Part {subset!r} of the {release} release, {n_classes} classes."),
    )


def load_tagged(
    source: Source, subset: str, folder: Folder, names: tuple[str, ...], separator: str
) -> LabelledSequences:
    """Load a file with one token per line; the columns are the inputs, called `names`, and then the label."""
    path = source.path(folder, f"{subset}.txt.gz")
    (*inputs, labels), starts = read_sentences(path, separator, len(names) + 1)
    y = cut(np.array(labels, dtype=np.str_), starts)
    return LabelledSequences(_dicts(names, inputs, starts), y, **source.about(f"Part {subset!r}."))


def _dicts(names: tuple[str, ...], columns: list[list[str]], starts: Places) -> list[list[dict[str, str]]]:
    """Return a list of tokens per sentence; a token is a dict from column names to cells."""
    tokens = [dict(zip(names, cells, strict=True)) for cells in zip(*columns, strict=True)]
    ends = [*starts[1:].tolist(), len(tokens)]
    return [tokens[start:end] for start, end in zip(starts.tolist(), ends, strict=True)]


def _grades(path: Path, name: str, cells: list[str]) -> Array:
    """Convert a column of grades to integers, with -1 for NA; raise if a cell is not 0, 1, 2 or NA."""
    codes = {"0": 0, "1": 1, "2": 2, NA: -1}
    if unknown := set(cells) - set(codes):
        raise ValueError(f"{path}, column {name}: expected 0, 1, 2 or {NA}, got {sorted(unknown)[:5]}")
    return np.fromiter(map(codes.__getitem__, cells), np.int64, len(cells))
