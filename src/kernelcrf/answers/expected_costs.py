"""Find the labels with the smallest expected cost, for costs of single tokens and for costs of spans.

If the true label i is predicted as j, this costs c[i, j]. The expected cost of the labels j_1, ..., j_T of a sequence
is a sum over its tokens,

    sum_t r_t(j_t),    r_t(j) = sum_i p(y_t = i | x) c[i, j],

so that each token has its own best label. If constraints forbid labels or steps, Viterbi's algorithm with the scores
-r_t finds the labelling with the smallest expected cost among those that are allowed.

If a true span that is not predicted costs m, and a predicted span that is not true costs f, the expected cost of a set
S' of predicted spans is

    sum over all spans of m p  -  sum_{S'} [m p - f (1 - p)],

where p is the probability of a span. So the best S' maximises sum_{S'} (p - f / (m + f)), over all sets of spans that
do not overlap. This is a shortest path in each sequence, as in `f1_spans`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ..arrays import Floats, Labels, UserData
from ..readers.spans import SpanRules
from ..validation import ParameterError, shown, shown_list
from .f1_spans import best_spans, labels_of_spans
from .span_probabilities import Field, probable_spans


def read_costs(costs: UserData) -> Floats:
    """Return the costs of mistakes as a square matrix; raise a ParameterError if they are not finite numbers."""
    try:
        matrix = np.array(costs, np.float64)
    except (TypeError, ValueError):
        matrix = np.empty(0)
    if matrix.ndim != 2 or not matrix.size or matrix.shape[0] != matrix.shape[1] or not np.isfinite(matrix).all():
        raise ParameterError(
            f"costs={shown(costs)}: expected a square matrix of finite numbers, one row per true label and one column "
            "per predicted label"
        )
    return matrix


def costs_of_labels(costs: UserData, named: Sequence[Any] | None, classes: list[Any]) -> Floats:
    """Return the costs of mistakes as a matrix in the order of `classes`.

    costs : a matrix; None means that every wrong label costs 1.
    named : the labels in the order of the matrix; None is the order of `classes`.
    """
    if costs is None:
        return 1.0 - np.eye(len(classes))
    matrix = read_costs(costs)
    if len(matrix) != len(classes):
        raise ValueError(
            f"costs has {len(matrix)} rows and the model has {len(classes)} labels ({shown_list(classes)}): expected "
            "one row and one column per label"
        )
    if named is None:
        return matrix
    places = {label: k for k, label in enumerate(named)}
    if len(named) != len(classes) or places.keys() != set(classes):
        raise ValueError(
            f"the costs have the classes {shown_list(named)}: expected each label of the model once, in any order: "
            f"{shown_list(classes)}"
        )
    order = [places[label] for label in classes]
    return np.asarray(matrix[np.ix_(order, order)])


def least_cost_labels(field: Field, risks: Floats) -> Labels:
    """Return the labels with the smallest expected cost, one per token, among the labellings that are allowed.

    risks : the expected cost r_t(j) of each label, one row per token and one column per label.
    """
    allowed, steps = field.s > -np.inf, field.w > -np.inf
    if allowed.all() and steps.all():
        return np.asarray(risks.argmin(axis=1), np.int32)
    return field.replaced(np.where(allowed, -risks, -np.inf), np.where(steps, 0.0, -np.inf)).best()


def least_cost_spans(field: Field, rules: SpanRules, missed: float, false: float) -> Labels:
    """Return labels, one per token, whose spans have the smallest expected cost.

    For each sequence, return the likeliest of the labellings that have these spans and no others. If the constraints
    forbid all of these labellings, return the likeliest labelling that is allowed.

    missed, false : the cost of a true span that is not predicted, and of a predicted span that is not true.
    """
    limit = 1 / (1 + missed / false)
    table, p = probable_spans(field, rules, limit, None)
    return labels_of_spans(field, rules, table.take(best_spans(table, p, limit)))
