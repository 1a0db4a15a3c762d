"""The common form of the labelled sequences of public data sets.

It is a frozen dataclass instead of scikit-learn's Bunch: all data sets have the same fields, which are checked once,
and the type checker finds misspelt names.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from kernelcrf.arrays import Array, Flags, Places


@dataclass(frozen=True, eq=False, repr=False)
class LabelledSequences:
    """m labelled sequences of a public data set, ready for `ChainCRF.fit(data.X, data.y)`.

    X : m inputs: (T_i, d) arrays, (T_i, d) CSR arrays, or lists of T_i dicts of strings, one per token.
    y : m arrays (T_i,) of strings, or of integers >= 0, with -1 for a missing label.
    description, licence, citation : what the data are, the terms of use, and the paper to cite.
    ids : (m,) names of the sequences.
    groups : (m,) groups, such as speakers, that cross-validation should not split.
    folds : (m,) the fold of each sequence, as published.
    splits : pairs (training, test) of indices, as published, one per repetition; pass them to scikit-learn as `cv`.
    eval_mask : m boolean arrays (T_i,), true for the tokens that count in published scores.
    feature_names : the d names of the columns of X.
    extras : further columns by name, each m arrays (T_i,). Some reveal the label, so they are not part of X.

    Fields that a data set does not have are None; `extras` is empty instead.

    Examples
    --------
    >>> import numpy as np
    >>> from kernelcrf.datasets import LabelledSequences
    >>> X, y = [np.zeros((3, 2)), np.ones((1, 2))], [np.array([0, 1, -1]), np.array([1])]
    >>> data = LabelledSequences(X, y, description="Two sequences.", licence="CC0", citation="")
    >>> data
    LabelledSequences(2 sequences, 4 tokens: Two sequences.)
    >>> data.lengths, data.take([1]).y
    (array([3, 1]), [array([1])])
    """

    X: list[Any]
    y: list[Array]
    description: str
    licence: str
    citation: str
    ids: Array | None = None
    groups: Array | None = None
    folds: Array | None = None
    splits: tuple[tuple[Places, Places], ...] | None = None
    eval_mask: list[Flags] | None = None
    feature_names: tuple[str, ...] | None = None
    extras: Mapping[str, list[Array]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        # A sparse array has no len().
        lengths = [x.shape[0] if hasattr(x, "shape") else len(x) for x in self.X]
        for name, arrays in [("y", self.y), ("eval_mask", self.eval_mask), *self.extras.items()]:
            if arrays is not None and [len(array) for array in arrays] != lengths:
                raise ValueError(
                    f"the sequences of {name} and X differ in number or length: expected one entry per token"
                )
        for name in ("ids", "groups", "folds"):
            array = getattr(self, name)
            if array is not None and array.shape != (len(lengths),):
                raise ValueError(
                    f"{name} has shape {array.shape} and X has {len(lengths)} sequences: expected one entry each"
                )

    def __repr__(self) -> str:
        return f"LabelledSequences({len(self.y)} sequences, {self.lengths.sum()} tokens: {self.description})"

    @property
    def lengths(self) -> npt.NDArray[np.int64]:
        """The number of tokens T_i of each sequence, (m,)."""
        return np.fromiter(map(len, self.y), np.int64, len(self.y))

    def take(self, indices: npt.ArrayLike) -> LabelledSequences:
        """Return the sequences with the given indices, or where a mask (m,) is true; `splits` becomes None."""
        rows = np.arange(len(self.y))[np.asarray(indices)]
        changed: dict[str, Any] = {"splits": None}
        for name in ("X", "y", "eval_mask", "ids", "groups", "folds"):
            if (values := getattr(self, name)) is not None:
                changed[name] = [values[row] for row in rows] if isinstance(values, list) else values[rows]
        extras = {name: [arrays[row] for row in rows] for name, arrays in self.extras.items()}
        return replace(self, **changed, extras=extras)
