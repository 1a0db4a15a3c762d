"""Tables whose rows have several labels at once: binary variables that depend on each other, in no order."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, TypeAlias

import numpy as np
import numpy.typing as npt

from kernelcrf.datasets.source import Folder, Source, choice, read_arrays

Name: TypeAlias = Literal["scene", "yeast", "emotions"]

MULAN = Source(
    folder="multilabel",
    layout=(
        "multilabel/{scene,yeast,emotions}.npz with X_train, X_test (n, d), Y_train, Y_test (n, L) of 0 and 1, "
        "label_names (L,) and feature_names (d,); from <name>-train.arff and <name>-test.arff."
    ),
    origin="data/multi-label of https://github.com/tsoumakas/mulan",
    description="Rows with several labels at once, with Mulan's split.",
    licence="none stated for the data; Mulan is GPL",
    citation="",
)
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
    description, licence, citation : what is loaded, on what terms, and what to cite.

    Examples
    --------
    >>> from kernelcrf.datasets import load_multilabel
    >>> data = load_multilabel("emotions")  # from the folder KERNELCRF_DATA
    >>> type(data).__name__, data.Y_train.shape, len(data.label_names)
    ('MultilabelData', (391, 6), 6)
    """

    X_train: npt.NDArray[np.float64]
    Y_train: npt.NDArray[np.int64]
    X_test: npt.NDArray[np.float64]
    Y_test: npt.NDArray[np.int64]
    label_names: tuple[str, ...]
    feature_names: tuple[str, ...]
    description: str
    licence: str
    citation: str


def load_multilabel(name: Name, *, folder: Folder = None) -> MultilabelData:
    """Benchmarks of multi-label classification, with the official splits of Mulan.

        name          what                                  train    test     features    labels
        "scene"       kinds of landscape in photographs     1,211    1,196    294         6
        "yeast"       functions of genes                    1,500    917      103         14
        "emotions"    moods of pieces of music              391      202      72          6

    Features are as published; those of emotions are of very different scales. Scored by Hamming loss, accuracy of
    whole label sets, and F1.

    Licence: none stated for the data. Source: github.com/tsoumakas/mulan.
    `folder` : the folder of all data sets, else KERNELCRF_DATA.

    Examples
    --------
    >>> from kernelcrf.datasets import load_multilabel
    >>> data = load_multilabel("scene")
    >>> data.X_train.shape, data.Y_train.shape
    ((1211, 294), (1211, 6))
    """
    choice("name", name, CITATIONS)
    path = MULAN.path(folder, f"{name}.npz")
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
        description=f"{MULAN.description} Set {name!r}.",
        licence=MULAN.licence,
        citation=CITATIONS[name],
    )
