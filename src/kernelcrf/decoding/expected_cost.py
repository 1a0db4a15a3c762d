"""Choose the labels with the smallest expected cost of tokens; `answers.expected_costs` has the formulas."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from kernelcrf.answers.expected_costs import costs_of_labels, read_costs
from kernelcrf.arrays import Array, Floats, UserData
from kernelcrf.decoding.rule import DecodingRule
from kernelcrf.readers.labels import plain


@dataclass(frozen=True)
class ExpectedCost(DecodingRule):
    """Choose the labels with the smallest expected cost, if some mistakes cost more than others.

    The cost of a labelling is a sum over its tokens, nodes or rows. If a ChainCRF has constraints, the rule chooses
    among the labellings that they allow. The model stays the same, so you can try several costs without a new fit.

    Parameters
    ----------
    costs : None or (L, L) array, default=None
        The cost of each mistake: one row per true label and one column per predicted label. None means that every wrong
        label costs 1 and every right label 0. For label sets, the rows and columns are 0 (absent) and 1 (present).
    classes : None or labels, default=None
        The labels in the order of the rows and columns of `costs`. None is the order of `classes_`.

    Examples
    --------
    >>> from kernelcrf import ChainCRF
    >>> from kernelcrf.datasets import make_sequences
    >>> from kernelcrf.decoding import ExpectedCost
    >>> data, new = make_sequences(30, random_state=0), make_sequences(30, random_state=1)
    >>> crf = ChainCRF(C=10.0, n_components=50, random_state=0).fit(data.X, data.y)
    >>> costs = [[0, 1, 1], [1, 0, 1], [5, 5, 0]]  # it costs 5 to miss the label 2
    >>> sum(labels.tolist().count(2) for labels in crf.predict(new.X))
    111
    >>> sum(labels.tolist().count(2) for labels in crf.set_params(decoding=ExpectedCost(costs)).predict(new.X))
    126
    """

    costs: UserData = None
    classes: UserData = None

    name: ClassVar[str] = "cost"
    needs: ClassVar[tuple[str, ...]] = ("probabilities", "cheapest")

    def __post_init__(self) -> None:
        # Tuples can be compared, and model files store them.
        if self.costs is not None:
            object.__setattr__(self, "costs", tuple(map(tuple, read_costs(self.costs).tolist())))
        if self.classes is not None:
            labels = (tuple(label) if isinstance(label, list) else plain(label) for label in self.classes)
            object.__setattr__(self, "classes", tuple(labels))

    def decode(self, distribution: Any) -> Array:
        """Return the labels with the smallest expected cost, as indices of labels."""
        if isinstance(distribution.classes, list):
            raise ValueError(
                "decoding='cost' with the values of a table: expected labels that all variables share, but each "
                "variable has its own values. Use decoding='marginal' instead"
            )
        is_set = len(distribution.shape) == 3
        classes = [0, 1] if is_set else distribution.classes.tolist()
        p: Floats = np.asarray(distribution.probabilities, np.float64)
        return np.asarray(distribution.cheapest(p @ costs_of_labels(self.costs, self.classes, classes)))
