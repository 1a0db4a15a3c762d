"""Explain the label of a token: compute how much each landmark or feature contributes to its score.

Let x_t be the input of token t, and k the kernel. The score s_t(j) of label j at token t is a sum over the landmarks b,

    s_t(j) = sum_b k(x_t, b) a_b(j),  a = R^-T coef_,

where coef_ are the fitted weights and R R' is the kernel matrix of the landmarks. For the linear kernel, the score is a
sum over the features f of the token,

    s_t(j) = sum_f x_tf coef_fj.

Only differences between labels matter, so a label is compared with the mean over all labels. Landmark b contributes

    k(x_t, b) (a_b(label) - mean_j a_b(j)),

and feature f contributes x_tf (coef_f(label) - mean_j coef_fj). The intercept and the scores of first and last labels,
if the model has them, contribute as features with the value 1. The contributions sum to
score = s_t(label) - mean_j s_t(j). The rest of the sequence (transitions, other tokens, constraints) changes the
log-probability of the label by

    neighbours = log p(y_t = label | x) - log softmax(s_t)_label.

If landmarks are close to each other under the kernel, their weights a_b are large with alternating signs, and their
contributions cancel: the sum is accurate, but the single contributions are not. A larger gamma or fewer landmarks help.

An explanation therefore also lists column effects and nearest landmarks, which do not cancel. The effect of column c
is the change of the score if only the value x_tc changes,

    score(x_t) - score(x_t with x_tc = r_c),

where the reference r_c is the mean of column c over the landmarks, or 0 for sparse inputs. Effects do not sum to the
score. The nearest landmarks b have the largest similarity k(x_t, b) / sqrt(k(x_t, x_t) k(b, b)).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp
from scipy.special import log_softmax

from kernelcrf.answers.weights import data_frame
from kernelcrf.arrays import Floats, Inputs, Places, UserData, is_sparse
from kernelcrf.basis.features import WhitenedMap
from kernelcrf.engines.local import LocalEngine
from kernelcrf.inference.feasibility import InfeasibleSequenceError
from kernelcrf.models.chain import ChainModel
from kernelcrf.terminal import printable
from kernelcrf.validation import is_whole, shown, shown_list

BLOCK = 256  # columns whose effects are computed at once
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


def explain(
    model: ChainModel, x: UserData, t: int, label: UserData, n_terms: int, rule: str, engine: LocalEngine
) -> Explanation:
    """Explain the score of a label at token t of the sequence x.

    label : the label to explain; None means the predicted label.
    n_terms : the number of landmarks or features to list.
    rule : how labels are predicted, "viterbi" or "marginal".
    """
    if _is_batch(x):
        raise ValueError(f"x is a batch of {len(x)} sequences: expected one sequence, such as x[0]")
    found = model.distribution([x], None, engine)
    s, chains = found.s, found.chains
    if not is_whole(t) or not 0 <= t < chains.n_nodes:
        raise ValueError(
            f"t={shown(t)}: expected an integer, 0 <= t < {chains.n_nodes}, because x has {chains.n_nodes} token(s); "
            "the last token is t=len(x) - 1"
        )
    classes = model.labels.classes.tolist()
    j = int(found.best(rule)[t]) if label is None else _index(label, classes)

    row, has_landmarks = model.reader.read([x])[0][[t]].astype(np.float64), isinstance(model.map, WhitenedMap)
    terms, values, weights = _terms(model, row, t == 0, t == chains.n_nodes - 1)
    scores = values @ weights
    log_alone = float(log_softmax(scores)[j])
    clamped = s.copy()
    clamped[t, np.arange(len(classes)) != j] = -np.inf
    try:
        log_p = float((replace(found, s=clamped).log_partition() - found.log_partition())[0])
    except InfeasibleSequenceError:
        log_p = -np.inf

    weight = weights[:, j] - weights.mean(axis=1)
    contributions = values * weight
    order = np.argsort(-np.abs(contributions), kind="stable")
    most, others = order[:n_terms], order[n_terms:]
    return Explanation(
        t=int(t),
        label=classes[j],
        terms=tuple(terms[b] for b in most.tolist()),
        positions=None if model.landmark_positions is None else _positions(model, len(terms))[most],
        values=values[most],
        weights=weight[most],
        contributions=contributions[most],
        n_rest=len(others),
        rest=float(contributions[others].sum()),
        score=float(scores[j] - scores.mean()),
        p_alone=float(np.exp(log_alone)),
        p=float(np.exp(min(log_p, 0.0))),
        neighbours=log_p - log_alone,
        columns=_column_effects(model, row, j, n_terms) if has_landmarks else (),
        nearest=_nearest(model, row, values[: model.map.n], n_terms) if has_landmarks else (),
    )


def _terms(model: ChainModel, row: Inputs, is_first: bool, is_last: bool) -> tuple[list[str], Floats, Floats]:
    """Return the names, the values and the weights of everything that determines the scores of a token.

    These are the landmarks, or the features whose value is not 0, then the intercept and the scores of first and last
    labels, if the model has them, with the value 1. The weights have one column per label. The scores are
    values @ weights.

    is_first, is_last : whether the token is the first, and the last, of its sequence.
    """
    if isinstance(model.map, WhitenedMap):
        names, values, weights = model.term_names, _gram(model, row)[0], model.dual_coef
    else:
        dense, columns = row.toarray()[0] if is_sparse(row) else row[0], model.term_names
        present = np.flatnonzero(dense)
        names = [columns[f] for f in present.tolist()]
        values, weights = dense[present], model.coef[present].astype(np.float64)
    ends = {"first token": (is_first, model.start_scores), "last token": (is_last, model.end_scores)}
    constants = {"intercept": model.intercept} | {name: scores for name, (here, scores) in ends.items() if here}
    constants = {name: scores for name, scores in constants.items() if scores.any()}
    values = np.append(values, np.ones(len(constants)))
    return [*names, *constants], values, np.vstack([weights, *constants.values()])


def _positions(model: ChainModel, n: int) -> Places:
    """Return the positions of the landmarks, and -1 for each of the other terms; `n` is the number of all terms."""
    found = np.full((n, 2), -1)
    found[: model.map.n] = model.landmark_positions
    return found


def _gram(model: ChainModel, rows: Inputs) -> Floats:
    """Return the kernel matrix between the rows and the landmarks: one row per input, one column per landmark."""
    landmarks = model.landmarks
    return np.asarray(model.kernel.gram(rows, None if landmarks is None else landmarks.astype(np.float64)))


def _column_effects(model: ChainModel, row: Inputs, j: int, n: int) -> tuple[ColumnEffect, ...]:
    """Return the n columns with the largest effects on the score of label j; `row` is the input of the token."""

    def score(rows: Inputs) -> Floats:
        scores = _gram(model, rows) @ model.dual_coef
        return np.asarray(scores[:, j] - scores.mean(axis=1))

    sparse, names = is_sparse(row), model.feature_names
    columns, values = (row.indices, row.data) if sparse else (np.arange(row.shape[1]), row[0])
    references = np.zeros(len(columns)) if sparse or model.landmarks is None else model.landmarks.mean(axis=0)
    changed = []
    for start in range(0, len(columns), BLOCK):
        own = np.arange(start, min(start + BLOCK, len(columns)))
        table = np.tile(values, (len(own), 1))
        table[own - start, own] = references[own]
        parts = table.ravel(), np.tile(columns, len(own)), np.arange(0, table.size + 1, len(columns))
        changed.append(score(sp.csr_array(parts, shape=(len(own), row.shape[1])) if sparse else table))
    effects = score(row)[0] - np.concatenate([np.empty(0), *changed])
    return tuple(
        ColumnEffect(names[columns[c]], float(values[c]), float(references[c]), float(effects[c]))
        for c in np.argsort(-np.abs(effects), kind="stable")[:n].tolist()
    )


def _nearest(model: ChainModel, row: Inputs, values: Floats, n: int) -> tuple[NearToken, ...]:
    """Return the n landmarks that are most similar to a token.

    row : the input of the token.
    values : the kernel between the token and each landmark.
    """
    B, positions = model.landmarks, model.landmark_positions
    if B is None or positions is None:
        return ()
    norms = np.sqrt(model.kernel.diagonal(B.astype(np.float64)) * model.kernel.diagonal(row)[0])
    similarity = values / np.maximum(norms, np.finfo(np.float64).tiny)
    most = np.argsort(-similarity, kind="stable")[:n]
    scores = _gram(model, B[most].astype(np.float64)) @ model.dual_coef + model.intercept
    labels = model.labels.classes[scores.argmax(axis=1)].tolist()
    found = zip(positions[most].tolist(), similarity[most].tolist(), labels, strict=True)
    return tuple(NearToken(sequence, token, alike, label) for (sequence, token), alike, label in found)


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


def _index(label: UserData, classes: list[UserData]) -> int:
    try:
        return {known: j for j, known in enumerate(classes)}[label]
    except Exception:  # A label that cannot be hashed or compared is not a class.
        known = shown_list(classes)
        raise ValueError(
            f"label={shown(label)}: expected one of the classes {known}, or None for the predicted label"
        ) from None


def _is_batch(x: UserData) -> bool:
    """Return whether the items of x are whole sequences rather than tokens."""
    if is_sparse(x) or not hasattr(x, "__iter__"):
        return False
    if isinstance(x, np.ndarray) and x.dtype != object:
        return x.ndim > 2
    item = next((item for item in x if is_sparse(item) or (hasattr(item, "__len__") and len(item))), None)
    if item is None or isinstance(item, str | Mapping):
        return False
    return is_sparse(item) or (hasattr(first := next(iter(item)), "__len__") and not isinstance(first, str))


def _cell(value: object) -> str:
    if isinstance(value, float):
        return "" if np.isnan(value) else f"{value:.4g}"
    return "" if value == -1 else str(value)
