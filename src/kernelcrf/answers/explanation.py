"""The explanation of a label: a table of the features or landmarks that contribute to its score."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from kernelcrf.answers.weights import data_frame
from kernelcrf.arrays import Floats, Places
from kernelcrf.terminal import printable

UNLIKE = 1e-3


class ColumnEffect(NamedTuple):
    """The effect of one column of the input on the score of a label.

    column, value : the name of the column, and its value at the explained token.
    reference : the value that replaces `value` for comparison.
    effect : the score of the label minus its score after the replacement.
    """

    column: str
    value: float
    reference: float
    effect: float


class NearToken(NamedTuple):
    """A landmark that is similar to the explained token.

    sequence, token : the position of the landmark in the training data: the index of its sequence, and of its token.
    similarity : the kernel between the landmark and the explained token, scaled such that equal inputs have 1.
    label : the label with the highest score at the landmark.
    """

    sequence: int
    token: int
    similarity: float
    label: Any


@dataclass(frozen=True, eq=False)
class Explanation:
    """The terms (landmarks or features) that contribute most to the score of a label, largest first.

    `str` formats an explanation as a table of its terms. If the kernel has landmarks, tables of `columns` and `nearest`
    come first.

    t, label : the index of the explained token, and the label whose score is explained.
    terms : the names of the features, or "landmark b" for row b of `landmarks_`; also "intercept", "first token" and
        "last token", if the model has these scores.
    positions : the sequence and the token of each landmark, as in `landmark_positions_`, and -1 for other terms; None
        for the linear kernel.
    values : the kernel between the token and each landmark, or the value of each feature at the token.
    weights : the weight of each term for the label, minus the mean weight of the term over all labels.
    contributions : values times weights.
    n_rest, rest : the number of terms that are not listed, and the sum of their contributions.
    score : the score of the label minus the mean score of all labels; this is the sum of all contributions.
    p_alone : the probability of the label, given only the scores of this token.
    p : the probability of the label, given the whole sequence.
    neighbours : log p - log p_alone; -inf if constraints forbid the label.
    columns : the columns of the input with the largest effects on the score; empty for the linear kernel.
    nearest : the landmarks most similar to the token, with their likeliest labels; empty for the linear kernel.

    Examples
    --------
    >>> from kernelcrf import ChainCRF
    >>> X = [[{"word": "the"}, {"word": "dog"}], [{"word": "a"}, {"word": "cat"}]]
    >>> crf = ChainCRF("linear", C=10.0).fit(X, [["DET", "NOUN"], ["DET", "NOUN"]])
    >>> why = crf.explain(X[0], 1)
    >>> why.label, why.terms, bool(why.p > why.p_alone)  # "dog" itself, and its place after "the"
    ('NOUN', ('word:dog',), True)
    """

    t: int
    label: Any
    terms: tuple[str, ...]
    positions: Places | None
    values: Floats
    weights: Floats
    contributions: Floats
    n_rest: int
    rest: float
    score: float
    p_alone: float
    p: float
    neighbours: float
    columns: tuple[ColumnEffect, ...] = ()
    nearest: tuple[NearToken, ...] = ()

    def to_dict(self) -> dict[str, list[Any]]:
        """Return the listed terms as a dict that maps column names to lists, with one entry per term.

        If some terms are not listed, each list has a last entry for all of them together: the sum of their
        contributions, -1 as their sequence and token, and NaN as their value and weight.
        """
        columns: dict[str, list[Any]] = {"term": list(self.terms)}
        if self.positions is not None:
            columns["sequence"], columns["token"] = self.positions.T.tolist()
        for name in ("value", "weight", "contribution"):
            columns[name] = getattr(self, name + "s").tolist()
        if self.n_rest:
            rest = {"term": f"{self.n_rest} others", "contribution": self.rest, "sequence": -1, "token": -1}
            for name, column in columns.items():
                column.append(rest.get(name, np.nan))
        return columns

    def to_frame(self) -> Any:
        """Return the columns of `to_dict` as a pandas.DataFrame."""
        return data_frame("to_frame", "to_dict()", self.to_dict())

    def __str__(self) -> str:
        lines = [
            f"label {self.label!r} at token {self.t}: p = {self.p:.4g}, and {self.p_alone:.4g} without neighbours",
            f"score above mean label {self.score:+.4g}; neighbours change log p by {self.neighbours:+.4g}",
        ]
        if self.nearest and self.nearest[0].similarity < UNLIKE:
            lines.append("no landmark is similar to this token; scale its features as those of the training data")
        if self.columns:
            lines += ["", "columns, by their effect on the score, compared with the reference"]
            lines += _table(_transpose(self.columns))
        if self.nearest:
            lines += ["", "nearest landmarks, as tokens of the training data", *_table(_transpose(self.nearest))]
            lines += ["", "contributions of landmarks, which may cancel"]
        return "\n".join([*lines, *_table(self.to_dict())])


def _transpose(records: Sequence[NamedTuple]) -> dict[str, list[Any]]:
    """Convert named tuples to a dict that maps each field name to the list of its values; labels become strings."""
    columns = dict(zip(records[0]._fields, map(list, zip(*records, strict=True)), strict=True))
    # A label may be -1, which is not printed in other columns.
    return columns | ({"label": list(map(str, columns["label"]))} if "label" in columns else {})


def _table(columns: Mapping[str, list[Any]]) -> list[str]:
    """Format columns as the lines of a table, in which names are aligned left and other cells right."""
    texts = {name: [name, *map(printable, map(_cell, column))] for name, column in columns.items()}
    widths = {name: max(map(len, column)) for name, column in texts.items()}
    aligned = [
        [cell.ljust(widths[name]) if name in ("term", "column") else cell.rjust(widths[name]) for cell in column]
        for name, column in texts.items()
    ]
    return ["  ".join(row) for row in zip(*aligned, strict=True)]


def _cell(value: object) -> str:
    if isinstance(value, float):
        return "" if np.isnan(value) else f"{value:.4g}"
    return "" if value == -1 else str(value)
