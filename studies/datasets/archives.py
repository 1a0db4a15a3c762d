"""Load data sets that are stored in .npz files: labelled sequences, and tables with several labels per row."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, TypeAlias

import numpy as np
import numpy.typing as npt
from scipy.sparse import csr_array

from kernelcrf.arrays import Array, Floats, Places
from kernelcrf.datasets.labelled_sequences import LabelledSequences
from kernelcrf.datasets.source import Folder, check_choice, cut, read_sentences
from kernelcrf.formats.npz import load_arrays
from studies.datasets.sources import SOURCES

Task: TypeAlias = Literal["basenp", "chunking", "segmentation", "japanesene"]

# The tags in the order of the authors' label numbers.
TAGS: dict[Task, tuple[str, ...]] = {
    "basenp": ("B", "O", "I"),
    "chunking": (
        *("B-NP", "B-PP", "I-NP", "B-VP", "I-VP", "B-SBAR", "O"),
        *("B-ADJP", "B-ADVP", "I-ADVP", "I-ADJP", "I-SBAR", "I-PP", "B-PRT"),
    ),
    "japanesene": (
        *("O", "B-LOCATION", "B-MONEY", "I-MONEY", "B-DATE", "I-DATE", "B-PERCENT", "I-PERCENT", "B-ARTIFACT"),
        *("I-ARTIFACT", "B-PERSON", "I-PERSON", "I-LOCATION", "B-ORGANIZATION", "I-ORGANIZATION"),
        *("B-OPTIONAL", "I-OPTIONAL"),
    ),
}


def read_arrays(path: Path, names: Sequence[str]) -> dict[str, Array]:
    """Return the arrays of an .npz file that `names` lists, without unpickling; raise if an array is missing."""
    try:
        arrays = load_arrays(path)
        if missing := [name for name in names if name not in arrays]:
            raise ValueError(f"arrays are missing: {', '.join(missing)}")
        return {name: arrays[name] for name in names}
    except ValueError as error:
        raise ValueError(f"{path}: expected an .npz file with the arrays {', '.join(names)} ({error})") from error


def load_letters(protocol: Literal["small", "large"] = "small", *, folder: Folder = None) -> LabelledSequences:
    """Load handwritten words, with 16 x 8 binary pixels per letter.

    X has one array per word, with one row of 128 pixels (0 or 1) per letter, and y has the letters "a" to "z". Only 55
    of the 6,877 words are distinct. The usual score is the percentage of wrong letters, averaged over the ten splits.

    protocol : "small" trains on one fold and tests on the other nine, as Taskar et al. (2003) and most papers on
        kernels do; "large" trains on nine folds and tests on one. The field `splits` has one split per fold.
    folder : the folder with all data sets; None means the environment variable KERNELCRF_DATA.

    Examples
    --------
    >>> from studies.datasets import load_letters
    >>> data = load_letters()
    >>> data.X[0].shape, "".join(data.y[0])
    ((9, 128), 'ommanding')
    >>> train, test = data.splits[0]
    >>> len(train), len(test)
    (626, 6251)
    """
    check_choice("protocol", protocol, ("small", "large"))
    path = SOURCES["letters"].path(folder, "letters.npz")
    arrays = read_arrays(path, ("pixels_packed", "label", "word_id", "fold"))
    n_letters = len(arrays["label"])
    shapes = {name: array.shape for name, array in arrays.items()}
    if shapes.pop("pixels_packed") != (n_letters, 16) or set(shapes.values()) != {(n_letters,)}:
        raise ValueError(
            f"the arrays in {path} have different lengths: expected one entry per letter in label, word_id and fold, "
            "and 16 entries per letter in pixels_packed. Use the original file"
        )
    words, fold = arrays["word_id"].astype(np.int64), arrays["fold"].astype(np.int64)
    new = np.diff(words, prepend=words[:1] - 1)
    if (new < 0).any() or (np.diff(fold, prepend=-1)[new == 0] != 0).any() or (arrays["label"] >= 26).any():
        raise ValueError(
            f"the arrays in {path} are inconsistent: expected a word_id that never decreases, the same fold for all "
            "letters of a word, and labels from 0 to 25. Use the original file"
        )
    starts = np.flatnonzero(new)
    pixels = np.unpackbits(arrays["pixels_packed"].astype(np.uint8), axis=1).astype(np.float64)
    folds = fold[starts]
    lone = [(np.flatnonzero(folds == f), np.flatnonzero(folds != f)) for f in np.unique(folds)]
    return LabelledSequences(
        X=cut(pixels, starts),
        y=cut(np.array(list("abcdefghijklmnopqrstuvwxyz"))[arrays["label"]], starts),
        folds=folds,
        splits=tuple(lone if protocol == "small" else [(rest, one) for one, rest in lone]),
        **SOURCES["letters"].about(f"Splits of the {protocol} protocol."),
    )


def load_gpstruct(task: Task, *, folder: Folder = None) -> LabelledSequences:
    """Load a text task of the GPstruct paper (Bratieres et al., 2015), with the authors' features and five splits.

    X has one CSR array of 0 and 1 per sequence, with one row per token. y has tags, or the numbers 0 and 1 for
    segmentation. The usual score is the percentage of wrong tokens, averaged over the five splits. The field `extras`
    of the result has the `word`, the part of speech `pos` and the original `tag` of each token. For japanesene it also
    has `characters`, the kinds of characters in the word. It is empty for segmentation.

    In chunking, the tags of 19 tokens are not in the authors' list of tags; in japanesene, the tags of 3 tokens. These
    tokens get the first tag of the list, as in the authors' program.

    task : "basenp" (noun phrases), "chunking", "segmentation" or "japanesene" (named entities).
    folder : the folder with all data sets; None means the environment variable KERNELCRF_DATA.

    Examples
    --------
    >>> from studies.datasets import load_gpstruct
    >>> data = load_gpstruct("segmentation")
    >>> data.X[0].shape, len(data.splits)
    ((57, 1386), 5)
    """
    check_choice("task", task, ("basenp", "chunking", "segmentation", "japanesene"))
    path = SOURCES["gpstruct"].path(folder, f"{task}.npz")
    arrays = read_arrays(path, ("indices", "indptr", "n_features", "label", "lengths", "splits", "n_train"))
    lengths, label = arrays["lengths"].astype(np.intp), arrays["label"].astype(np.int64)
    n_tags = len(TAGS.get(task, (0, 1)))
    if lengths.sum() != len(label) or len(arrays["indptr"]) != len(label) + 1:
        raise ValueError(
            f"{path}: label has {len(label)} entries, lengths has the sum {lengths.sum()}, and indptr has "
            f"{len(arrays['indptr'])} entries: expected lengths with the sum {len(label)}, and one more entry in "
            "indptr than in label"
        )
    if label.min() < -1 or label.max() >= n_tags:
        raise ValueError(
            f"{path}: label has values from {label.min()} to {label.max()}: expected values from 0 to {n_tags - 1}, or "
            "-1 for unknown tags"
        )
    label = np.maximum(label, 0)
    ends = np.cumsum(lengths)
    starts, binary = ends - lengths, (np.ones(len(arrays["indices"])), arrays["indices"], arrays["indptr"])
    rows = csr_array(binary, shape=(len(label), int(arrays["n_features"])))
    return LabelledSequences(
        X=[rows[start:end] for start, end in zip(starts.tolist(), ends.tolist(), strict=True)],
        y=cut(np.array(TAGS[task])[label] if task in TAGS else label, starts),
        splits=_permutations(path, arrays["splits"].astype(np.intp), int(arrays["n_train"]), len(lengths)),
        extras=_raw(task, folder, starts, len(label)) if task in TAGS else {},
        **SOURCES["gpstruct"].about(f"Task {task!r}."),
    )


@dataclass(frozen=True)
class MultilabelData:
    """A data set with several labels per row, split into training and test data.

    X_train, X_test : the features, one row per example and one column per feature.
    Y_train, Y_test : one column per label, with 1 in the rows that have the label and 0 in the other rows.
    label_names, feature_names : the names of the columns of Y_train and X_train.
    description, licence, citation : what the data are, the terms of use, and the paper to cite.

    Examples
    --------
    >>> from studies.datasets import load_multilabel
    >>> data = load_multilabel("emotions")  # from the folder KERNELCRF_DATA
    >>> type(data).__name__, data.Y_train.shape, len(data.label_names)
    ('MultilabelData', (391, 6), 6)
    """

    X_train: Floats
    Y_train: npt.NDArray[np.int64]
    X_test: Floats
    Y_test: npt.NDArray[np.int64]
    label_names: tuple[str, ...]
    feature_names: tuple[str, ...]
    description: str
    licence: str
    citation: str


def load_multilabel(name: Literal["scene", "yeast", "emotions"], *, folder: Folder = None) -> MultilabelData:
    """Load a benchmark of multi-label classification, with the official training and test data of the Mulan library.

    Features are not scaled; in "emotions" their scales differ greatly. The usual scores are Hamming loss, F1, and the
    percentage of rows with all labels correct.

    name : "scene" (kinds of landscape in photographs), "yeast" (functions of genes) or "emotions" (moods of music).
    folder : the folder with all data sets; None means the environment variable KERNELCRF_DATA.

    Examples
    --------
    >>> from studies.datasets import load_multilabel
    >>> data = load_multilabel("scene")
    >>> data.X_train.shape, data.Y_train.shape
    ((1211, 294), (1211, 6))
    """
    check_choice("name", name, ("scene", "yeast", "emotions"))
    path = SOURCES[name].path(folder, f"{name}.npz")
    arrays = read_arrays(path, ("X_train", "Y_train", "X_test", "Y_test", "label_names", "feature_names"))
    labels, features = (tuple(arrays[key].astype(np.str_).tolist()) for key in ("label_names", "feature_names"))
    data: dict[str, Any] = {}
    for part in ("train", "test"):
        X, Y = arrays[f"X_{part}"], arrays[f"Y_{part}"]
        if X.shape != (len(Y), len(features)) or Y.shape != (len(X), len(labels)):
            raise ValueError(
                f"{path}: X_{part} has shape {X.shape} and Y_{part} has shape {Y.shape}: expected equally many rows, "
                f"{len(features)} columns (feature_names) in X_{part} and {len(labels)} (label_names) in Y_{part}"
            )
        if not np.isin(Y, (0, 1)).all():
            raise ValueError(
                f"{path}: Y_{part} has other values than 0 and 1: expected 1 for labels of the row, else 0"
            )
        data |= {f"X_{part}": X.astype(np.float64), f"Y_{part}": Y.astype(np.int64)}
    about = SOURCES[name].about(f"Set {name!r}.")
    return MultilabelData(**data, label_names=labels, feature_names=features, **about)


def _permutations(path: Path, splits: Places, n_train: int, n_sequences: int) -> tuple[tuple[Places, Places], ...]:
    if not 0 < n_train < splits.shape[1]:
        raise ValueError(
            f"{path}: n_train is {n_train}: expected a number above 0 and below {splits.shape[1]}, the number of "
            "columns of splits"
        )
    if splits.min() < 0 or splits.max() >= n_sequences or any(len(set(row)) < len(row) for row in splits.tolist()):
        raise ValueError(f"{path}: a row of splits is wrong: expected distinct indices from 0 to {n_sequences - 1}")
    return tuple((row[:n_train], row[n_train:]) for row in splits)


def _raw(task: Task, folder: Folder, starts: Places, n_tokens: int) -> dict[str, list[Array]]:
    path = SOURCES["gpstruct"].path(folder, f"{task}_raw.txt.gz")
    names = ("word", "characters", "pos", "tag") if task == "japanesene" else ("word", "pos", "tag")
    columns, sentence_starts = read_sentences(path, "\t", len(names))
    if len(columns[0]) != n_tokens or not np.array_equal(sentence_starts, starts):
        raise ValueError(
            f"{path} has {len(sentence_starts)} sentences and {len(columns[0])} tokens: expected the same "
            f"{len(starts)} sentences and {n_tokens} tokens as in {task}.npz, in sentences of the same lengths"
        )
    return {name: cut(np.array(cells, np.str_), starts) for name, cells in zip(names, columns, strict=True)}
