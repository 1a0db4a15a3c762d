"""Define `LabelledSequences`, which all loaders of labelled sequences return.

The class is a frozen dataclass instead of scikit-learn's Bunch. All data sets have the same fields, their lengths are
checked once, and a type checker finds misspelt names.
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
    """The labelled sequences of a public data set, ready for `ChainCRF.fit(data.X, data.y)`.

    X : one input per sequence: a dense or CSR array with one row per token, or a list with one dict per token.
    y : one array of labels per sequence: strings, or integers in which -1 is a missing label.
    description, licence, citation : what the data are, the terms of use, and the paper to cite.
    ids : the name of each sequence.
    groups : the group of each sequence, such as its speaker; cross-validation should not split groups.
    folds : the published fold of each sequence.
    splits : the published pairs of training and test indices, which scikit-learn accepts as `cv`.
    eval_mask : one boolean array per sequence, true for the tokens that count in published scores.
    feature_names : the names of the columns of X.
    extras : a dict from names to columns that are not part of X, because some of them reveal the label. A column has
        one array per sequence, with one entry per token.

    Fields that a data set does not have are None, except `extras`, which is then empty.

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
                    f"{name} and X differ in the number or the lengths of their sequences: expected one entry of "
                    f"{name} per token of X"
                )
        for name in ("ids", "groups", "folds"):
            array = getattr(self, name)
            if array is not None and array.shape != (len(lengths),):
                raise ValueError(
                    f"{name} has shape {array.shape}, but X has {len(lengths)} sequences: expected one entry per "
                    "sequence"
                )

    def __repr__(self) -> str:
        return f"LabelledSequences({len(self.y)} sequences, {self.lengths.sum()} tokens: {self.description})"

    @property
    def lengths(self) -> npt.NDArray[np.int64]:
        """Return the number of tokens of each sequence."""
        return np.fromiter(map(len, self.y), np.int64, len(self.y))

    def take(self, indices: npt.ArrayLike) -> LabelledSequences:
        """Return a data set with the selected sequences; `indices` may be a boolean mask. `splits` becomes None."""
        chosen = np.asarray(indices)
        rows = np.arange(len(self.y))[chosen if chosen.size else chosen.astype(np.intp)]
        changed: dict[str, Any] = {"splits": None}
        for name in ("X", "y", "eval_mask", "ids", "groups", "folds"):
            if (values := getattr(self, name)) is not None:
                changed[name] = [values[row] for row in rows] if isinstance(values, list) else values[rows]
        extras = {name: [arrays[row] for row in rows] for name, arrays in self.extras.items()}
        return replace(self, **changed, extras=extras)
