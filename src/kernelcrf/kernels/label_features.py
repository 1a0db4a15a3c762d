"""LabelFeatures: labels that have features of their own, and share weights through them.

With features psi(y) of the labels, the kernel of labels is

    k_y(y, y') = psi(y).psi(y') + own [y = y'].

The score of a label is then f(x, y) = sum_a psi_a(y) f_a(x) + f_y(x), with a function f_a for each feature of labels,
which all labels share, and a function f_y for each label. Steps have the kernel k_y(a, a') k_y(b, b').
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from kernelcrf.arrays import Config, Floats, UserData
from kernelcrf.kernels.chain_labels import LabelStructure, SharedLabels
from kernelcrf.kernels.labels import LabelKernel
from kernelcrf.validation import check_parameters, either, real, shown, shown_list

OWN = either(real(least=0), advice="0 gives labels no weights of their own")


@dataclass(frozen=True, eq=False)
class LabelFeatures(LabelStructure):
    """Features of labels through which labels share weights, for the parameter `label_kernel` of ChainCRF.

    Use it if labels have parts or properties in common: positions and types of tags, groups of products, embeddings of
    their names. Rare labels then learn from labels with the same features, and labels without any training token can be
    predicted. The kernel of two labels is the product of their features, plus `own` if the labels are equal. Scores of
    steps, biases and first and last labels are shared in the same way.

    Parameters
    ----------
    features : dict from labels to features
        The features of each label that the model can predict, as a list of names, a dict from names to numbers, or a
        vector. All labels have features of the same form.
    own : float, default=1.0
        The prior variance of a function that each label has of its own, relative to that of a feature; 0 means none.

    Examples
    --------
    >>> from kernelcrf import ChainCRF, LabelFeatures
    >>> from kernelcrf.datasets import make_sequences
    >>> data, new = make_sequences(60, random_state=0), make_sequences(60, random_state=1)
    >>> alike = LabelFeatures({0: ["quiet"], 1: ["loud"], 2: ["loud"]})
    >>> crf = ChainCRF("rbf", C=1.0, label_kernel=alike, random_state=0).fit(data.X, data.y)
    >>> round(crf.score(new.X, new.y), 1)
    0.9
    """

    features: Mapping[Any, Any]
    own: float = 1.0

    def __post_init__(self) -> None:
        checked = check_parameters({"own": self.own}, {"own": OWN})
        object.__setattr__(self, "own", float(checked["own"]))
        object.__setattr__(self, "features", _read_features(self.features))
        if self.own == 0 and not any(vector.any() for vector in self.features.values()):
            raise ValueError("all features of labels are 0, and own=0: expected features, or own above 0")

    def __repr__(self) -> str:
        return f"LabelFeatures(<features of {len(self.features)} labels>, own={self.own:g})"

    def closure(self, labels: Sequence[UserData]) -> list[UserData]:
        """Return all labels that have features; raise if one of the given labels has none."""
        for label in labels:
            if label not in self.features:
                raise ValueError(
                    f"y has the label {shown(label)}, which has no features in LabelFeatures: expected one of "
                    f"{shown_list(self.features)}; add the features of the label"
                )
        return list(self.features)

    def label_maps(self, classes: Sequence[UserData]) -> SharedLabels:
        """Return the label kernels of all terms of a chain with these classes."""
        psi = np.array([self.features[label] for label in classes])
        matrix = psi @ psi.T + self.own * np.eye(len(psi))
        return SharedLabels(LabelKernel.of(matrix, len(psi)))

    def to_config(self) -> Config:
        """Return the features as a dict for JSON, except that labels stay as they are."""
        return {"labels": [[label] for label in self.features], "own": self.own} | {
            "features": [vector.tolist() for vector in self.features.values()]
        }


def _read_features(features: UserData) -> dict[UserData, Floats]:
    """Return the features of all labels as vectors of one length."""
    if not isinstance(features, Mapping) or not features:
        raise ValueError(f"features={shown(features)}: expected a dict from each label to its features")
    named: dict[UserData, dict[str, float]] = {}
    for label, given in features.items():
        if isinstance(given, Mapping):
            named[label] = dict(given)
        elif not isinstance(given, str) and all(isinstance(name, str) for name in given):
            named[label] = dict.fromkeys(given, 1.0)
    names = {name: i for i, name in enumerate(dict.fromkeys(name for one in named.values() for name in one))}
    if named and len(named) == len(features):
        rows = [[one.get(name, 0.0) for name in names] for one in named.values()]
    else:
        rows = list(features.values())
    try:
        matrix = np.array(rows, np.float64)
    except (ValueError, TypeError):
        matrix = np.empty(0)
    if matrix.ndim != 2 or not np.isfinite(matrix).all():
        raise ValueError(
            f"features={shown(features)}: expected for each label a list of names, a dict from names to finite "
            "numbers, or a vector; all labels need features of the same form, and vectors of the same length"
        )
    return dict(zip(features, matrix, strict=True))
