"""Explain the label of a token: compute how much each landmark or feature contributes to its score.

The score s_t(j) of label j at token t is a sum over the landmarks b,

    s_t(j) = sum_b k(x_t, b) a_b(j),  a = R^-T coef_,

where R R' is the kernel matrix of the landmarks. For the linear kernel it is a sum over the features f of the token,

    s_t(j) = sum_f x_tf coef_fj.

Only differences between labels matter, so a label is compared with the mean over labels. Landmark b contributes

    k(x_t, b) (a_b(label) - mean_j a_b(j)),

and feature f contributes x_tf (coef_f(label) - mean_j coef_fj). The contributions sum to
score = s_t(label) - mean_j s_t(j). The rest of the sequence (transitions, other tokens, constraints) changes the
log-probability of the label by

    neighbours = log p(y_t = label | x) - log softmax(s_t)_label.

If landmarks are close to each other under the kernel, their weights a_b are large with alternating signs, and their
contributions cancel: the sum is accurate, but the single contributions are not. A larger gamma or fewer landmarks help.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from scipy.special import log_softmax

from kernelcrf.answers.weights import data_frame
from kernelcrf.arrays import Floats, Places, UserData, is_sparse
from kernelcrf.basis.features import WhitenedMap
from kernelcrf.engines.local import LocalEngine
from kernelcrf.inference.feasibility import InfeasibleSequenceError
from kernelcrf.models.chain import ChainModel
from kernelcrf.terminal import printable
from kernelcrf.validation import is_whole, shown


@dataclass(frozen=True, eq=False)
class Explanation:
    """The terms (landmarks or features) that contribute most to the score of a label, largest first.

    `str` formats the terms as a table.

    terms : the names of the features, or "landmark b" for row b of `landmarks_`.
    positions : the sequence and the token of each landmark, as in `landmark_positions_`; None for the linear kernel.
    values : the kernel of the token and each landmark, or the token's value of each feature.
    weights : the weight of the label in each term, minus the mean weight of all labels.
    contributions : values times weights.
    n_rest, rest : the number of terms that are not listed, and the sum of their contributions.
    score : the score of the label minus the mean score of all labels; this is the sum of all contributions.
    p_alone : the probability of the label, given only the scores of this token.
    p : the probability of the label, given the whole sequence.
    neighbours : log p - log p_alone; -inf if constraints forbid the label.

    Examples
    --------
    >>> from kernelcrf import ChainCRF
    >>> X = [[{"word": "the"}, {"word": "dog"}], [{"word": "a"}, {"word": "cat"}]]
    >>> crf = ChainCRF("linear", C=10.0).fit(X, [["DET", "NOUN"], ["DET", "NOUN"]])
    >>> why = crf.explain(X[0], 1)
    >>> why.label, why.terms, bool(why.p > why.p_alone)  # "dog" itself, and its place after "the"
    ('NOUN', ('word=dog',), True)
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

    def to_dict(self) -> dict[str, list[Any]]:
        """Return a dict of columns, which have one entry per term.

        If some terms are not listed, a last entry has the sum of their contributions. Its sequence and token are -1,
        and its value and weight are NaN.
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
        columns = {name: [name, *map(printable, map(_cell, column))] for name, column in self.to_dict().items()}
        widths = {name: max(map(len, column)) for name, column in columns.items()}
        # Names are aligned left, numbers right.
        aligned = [
            [cell.ljust(widths[name]) if name == "term" else cell.rjust(widths[name]) for cell in column]
            for name, column in columns.items()
        ]
        return "\n".join(
            [
                f"label {self.label!r} at token {self.t}: p = {self.p:.4g}, and {self.p_alone:.4g} without neighbours",
                f"score above mean label {self.score:+.4g}; neighbours change log p by {self.neighbours:+.4g}",
                *("  ".join(row) for row in zip(*aligned, strict=True)),
            ]
        )


def explain(
    model: ChainModel, x: UserData, t: int, label: UserData, n_terms: int, rule: str, engine: LocalEngine
) -> Explanation:
    """Explain the score of a label at token t of the sequence x.

    label : the label to explain; None means the predicted label.
    n_terms : the number of terms to list.
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

    terms, values, weights = _terms(model, x, t)
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
        positions=None if model.landmark_positions is None else model.landmark_positions[most],
        values=values[most],
        weights=weight[most],
        contributions=contributions[most],
        n_rest=len(others),
        rest=float(contributions[others].sum()),
        score=float(scores[j] - scores.mean()),
        p_alone=float(np.exp(log_alone)),
        p=float(np.exp(min(log_p, 0.0))),
        neighbours=log_p - log_alone,
    )


def _terms(model: ChainModel, x: UserData, t: int) -> tuple[list[str], Floats, Floats]:
    """Return the names, the values and the weights of the terms in the scores of token t; skip features that are 0.

    The weights have one row per term and one column per label; the scores are values @ weights.
    """
    row = model.reader.read([x])[0][[t]].astype(np.float64)
    if isinstance(model.map, WhitenedMap):
        B = model.map.landmarks.astype(np.float64)
        return model.term_names, model.map.kernel.gram(row, B)[0], model.dual_coef
    dense = row.toarray()[0] if is_sparse(row) else row[0]
    present = np.flatnonzero(dense)
    names = model.term_names
    terms = [names[f] for f in present.tolist()]
    return terms, dense[present], model.coef[present].astype(np.float64)


def _index(label: UserData, classes: list[UserData]) -> int:
    try:
        return {known: j for j, known in enumerate(classes)}[label]
    except Exception:  # A label that cannot be hashed or compared is not a class.
        listing = ", ".join(map(shown, classes[:10])) + (", ..." if len(classes) > 10 else "")
        raise ValueError(
            f"label={shown(label)}: expected one of the classes {listing}, or None for the predicted label"
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
