"""Tables whose rows have several labels at once, which depend on each other and have no order."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, TypeAlias

import numpy as np
import numpy.typing as npt

from kernelcrf.arrays import Floats
from kernelcrf.datasets.source import SOURCES, Folder, check_choice, read_arrays

Name: TypeAlias = Literal["scene", "yeast", "emotions"]

CITATIONS: dict[Name, str] = {
    "scene": (
        "M. R. Boutell, J. Luo, X. Shen and C. M. Brown, Learning multi-label scene classification, "
        "Pattern Recognition 37, 2004"
    ),
    "yeast": "A. Elisseeff and J. Weston, A kernel method for multi-labelled classification, NIPS 2001",
    "emotions": (
        "K. Trohidis, G. Tsoumakas, G. Kalliris and I. Vlahavas, Multi-label classification of music into emotions, "
        "ISMIR 2008"
    ),
}


@dataclass(frozen=True)
class MultilabelData:
    """n rows with d features and L labels, split for training and testing.

    X_train, X_test : (n, d).
    Y_train, Y_test : (n, L) of 0 and 1, as scikit-learn's multi-label indicators.
    label_names, feature_names : L and d names.
    description, licence, citation : the content, the terms, and the paper to cite.

    Examples
    --------
    >>> from kernelcrf.datasets import load_multilabel
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


def load_multilabel(name: Name, *, folder: Folder = None) -> MultilabelData:
    """Load a benchmark of multi-label classification, with the official split of Mulan.

        name          what                                  train    test     features    labels
        "scene"       kinds of landscape in photographs     1,211    1,196    294         6
        "yeast"       functions of genes                    1,500    917      103         14
        "emotions"    moods of pieces of music              391      202      72          6

    Features are as published; those of emotions have very different scales. Usual scores are Hamming loss, accuracy of
    whole label sets, and F1.

    folder : the folder of all data sets; None takes KERNELCRF_DATA.

    Examples
    --------
    >>> from kernelcrf.datasets import load_multilabel
    >>> data = load_multilabel("scene")
    >>> data.X_train.shape, data.Y_train.shape
    ((1211, 294), (1211, 6))
    """
    check_choice("name", name, CITATIONS)
    path = SOURCES["multilabel"].path(folder, f"{name}.npz")
    arrays = read_arrays(path, ("X_train", "Y_train", "X_test", "Y_test", "label_names", "feature_names"))
    names = {key: tuple(arrays[key].astype(np.str_).tolist()) for key in ("label_names", "feature_names")}
    for part in ("train", "test"):
        X, Y = arrays[f"X_{part}"], arrays[f"Y_{part}"]
        if X.shape != (len(Y), len(names["feature_names"])) or Y.shape != (len(X), len(names["label_names"])):
            raise ValueError(
                f"{path}: X_{part} has shape {X.shape} and Y_{part} {Y.shape}: expected (n, d) and (n, L) with "
                f"d={len(names['feature_names'])} and L={len(names['label_names'])} names"
            )
    if not all(np.isin(arrays[key], (0, 1)).all() for key in ("Y_train", "Y_test")):
        raise ValueError(f"{path}: expected 0 and 1 in Y_train and Y_test")
    return MultilabelData(
        X_train=arrays["X_train"].astype(np.float64),
        Y_train=arrays["Y_train"].astype(np.int64),
        X_test=arrays["X_test"].astype(np.float64),
        Y_test=arrays["Y_test"].astype(np.int64),
        label_names=names["label_names"],
        feature_names=names["feature_names"],
        **{**SOURCES["multilabel"].about(f"Set {name!r}."), "citation": CITATIONS[name]},
    )
