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

from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeAlias

import numpy as np
import scipy.sparse as sp
from scipy.special import log_softmax

from kernelcrf.answers.explanation import ColumnEffect, Explanation, NearToken
from kernelcrf.arrays import Floats, Inputs, Places, UserData, is_sparse, matrix_of
from kernelcrf.inference.feasibility import InfeasibleSequenceError
from kernelcrf.models.chain import ChainModel
from kernelcrf.models.kernel import TokenInput
from kernelcrf.validation import is_whole, shown, shown_list

Distribute: TypeAlias = Callable[[list[UserData]], Any]

BLOCK = 256  # columns whose effects are computed at once


def explain(
    model: ChainModel, x: UserData, t: int, label: UserData, n_terms: int, distribute: Distribute
) -> Explanation:
    """Explain the score of a label at token t of the sequence x.

    label : the label to explain; None means the predicted label.
    n_terms : the number of landmarks or features to list.
    distribute : the function that returns the distribution of the labels of a list of sequences.
    """
    model.refuse_moved_inputs("explain")
    if _is_batch(x):
        raise ValueError(f"x is a batch of {len(x)} sequences: expected one sequence, such as x[0]")
    distribution = distribute([x])
    field = distribution.field
    chains = field.chains
    if not is_whole(t) or not 0 <= t < chains.n_nodes:
        raise ValueError(
            f"t={shown(t)}: expected an integer, 0 <= t < {chains.n_nodes}, because x has {chains.n_nodes} token(s); "
            "the last token is t=len(x) - 1"
        )
    classes = model.labels.classes.tolist()
    index = int(distribution.decode_indices()[t]) if label is None else _index(label, classes)
    j = model.column(index)

    rows = model.reader.read([x])[0][[t]]
    here = [token_input for token_input in model.label_inputs if token_input.kind.covers(chains)[t]]
    inputs = [(token_input, matrix_of(rows, token_input.name).astype(np.float64)) for token_input in here]
    with_landmarks = [(token_input, row) for token_input, row in inputs if token_input.landmarks is not None]
    terms, values, weights = _terms(model, inputs, t == 0, t == chains.n_nodes - 1)
    scores = values @ weights
    log_alone = float(log_softmax(scores)[j])
    allowed = np.ones((chains.n_nodes, len(classes)), bool)
    allowed[t] = np.arange(len(classes)) == index
    try:
        log_p = float(field.log_prob(np.zeros(chains.n_nodes, np.int32), allowed)[0])
    except InfeasibleSequenceError:
        log_p = -np.inf

    effects = [one for token_input, row in with_landmarks for one in _column_effects(token_input, row, j, n_terms)]
    weight = weights[:, j] - weights.mean(axis=1)
    contributions = values * weight
    order = np.argsort(-np.abs(contributions), kind="stable")
    most, others = order[:n_terms], order[n_terms:]
    return Explanation(
        t=int(t),
        label=classes[index],
        terms=tuple(terms[b] for b in most.tolist()),
        positions=_positions(model, inputs, len(terms), most),
        values=values[most],
        weights=weight[most],
        contributions=contributions[most],
        n_rest=len(others),
        rest=float(contributions[others].sum()),
        score=float(scores[j] - scores.mean()),
        p_alone=float(np.exp(log_alone)),
        p=float(np.exp(min(log_p, 0.0))),
        neighbours=log_p - log_alone,
        columns=tuple(sorted(effects, key=lambda one: -abs(one.effect))[:n_terms]),
        nearest=_nearest(model, [one for one in with_landmarks if one[0].kind.is_token], n_terms),
    )


def _present(token_input: TokenInput, row: Inputs) -> Places:
    """Return the indices of all landmarks or, for the linear kernel, of the features whose value is not 0.

    row : the input of the token, as a matrix with one row.
    """
    if token_input.landmarks is not None:
        return np.arange(token_input.map.n)
    return np.flatnonzero(row.toarray()[0] if is_sparse(row) else row[0])


def _terms(
    model: ChainModel, inputs: Sequence[tuple[TokenInput, Inputs]], is_first: bool, is_last: bool
) -> tuple[list[str], Floats, Floats]:
    """Return the names, the values and the weights of everything that determines the scores of a token.

    The landmarks come first, or the features whose value is not 0. The intercept and the scores of first and last
    labels follow, if the model has them, with the value 1. The weights have one column per label. The scores of the
    token are values @ weights.

    inputs : pairs of an input of the model, and a matrix with one row: the values of this input at the token.
    is_first, is_last : whether the token is the first, and the last, of its sequence.
    """
    names, all_values, all_weights = list[str](), list[Floats](), list[Floats]()
    for token_input, row in inputs:
        present, columns = _present(token_input, row), token_input.term_names
        dense = row.toarray() if is_sparse(row) else row
        dense = dense[0] if token_input.landmarks is None else _gram(token_input, row)[0]
        names += [columns[f] for f in present.tolist()]
        all_values.append(dense[present])
        all_weights.append(token_input.dual_coef[present].astype(np.float64))
    values, weights = np.concatenate(all_values), np.vstack(all_weights)
    ends = {"first token": (is_first, model.start_scores), "last token": (is_last, model.end_scores)}
    constants = {"intercept": model.intercept} | {name: scores for name, (here, scores) in ends.items() if here}
    constants = {name: scores for name, scores in constants.items() if scores.any()}
    values = np.append(values, np.ones(len(constants)))
    return [*names, *constants], values, np.vstack([weights, *constants.values()])


def _positions(model: ChainModel, inputs: Sequence[tuple[TokenInput, Inputs]], n: int, listed: Places) -> Places | None:
    """Return the positions in the training data of the listed landmarks; other terms have the position (-1, -1).

    Return None if the model has no positions of landmarks.

    n : the number of all terms.
    listed : the indices of the listed terms.
    """
    if model.term_positions is None:
        return None
    inputs = [one for one in inputs if one[0].kind.is_token]
    firsts = np.cumsum([0, *(token_input.map.n for token_input, _ in inputs)])
    rows = np.concatenate([first + _present(*one) for first, one in zip(firsts[:-1], inputs, strict=True)])
    positions = np.full((n, 2), -1)
    positions[: len(rows)] = model.term_positions[rows]
    return positions[listed]


def _gram(token_input: TokenInput, rows: Inputs) -> Floats:
    """Return the kernel between the inputs `rows` and the landmarks: one row per input, one column per landmark."""
    return np.asarray(token_input.kernel.gram(rows, token_input.landmarks.astype(np.float64)))


def _column_effects(token_input: TokenInput, row: Inputs, j: int, n: int) -> tuple[ColumnEffect, ...]:
    """Return the n columns with the largest effects on the score of label j; `row` is the input of the token."""

    def score(rows: Inputs) -> Floats:
        scores = _gram(token_input, rows) @ token_input.dual_coef
        return np.asarray(scores[:, j] - scores.mean(axis=1))

    sparse, names = is_sparse(row), token_input.feature_names
    columns, values = (row.indices, row.data) if sparse else (np.arange(row.shape[1]), row[0])
    references = np.zeros(len(columns)) if sparse else token_input.landmarks.mean(axis=0)
    changed = []
    for start in range(0, len(columns), BLOCK):
        block = np.arange(start, min(start + BLOCK, len(columns)))
        table = np.tile(values, (len(block), 1))
        table[block - start, block] = references[block]
        parts = table.ravel(), np.tile(columns, len(block)), np.arange(0, table.size + 1, len(columns))
        changed.append(score(sp.csr_array(parts, shape=(len(block), row.shape[1])) if sparse else table))
    effects = score(row)[0] - np.concatenate([np.empty(0), *changed])
    return tuple(
        ColumnEffect(names[columns[c]], float(values[c]), float(references[c]), float(effects[c]))
        for c in np.argsort(-np.abs(effects), kind="stable")[:n].tolist()
    )


def _nearest(model: ChainModel, inputs: Sequence[tuple[TokenInput, Inputs]], n: int) -> tuple[NearToken, ...]:
    """Return the n landmarks that are most similar to a token.

    inputs : pairs of an input that has landmarks, and a matrix with one row: the values of this input at the token.
    """
    positions, neighbours = model.landmark_positions, list[NearToken]()
    if positions is None:
        return ()
    for token_input, row in inputs:
        B = token_input.landmarks.astype(np.float64)
        here, positions = positions[: token_input.map.n], positions[token_input.map.n :]
        # The product of the diagonals may overflow, that of their roots does not.
        norms = np.sqrt(token_input.kernel.diagonal(B)) * np.sqrt(token_input.kernel.diagonal(row)[0])
        similarity = _gram(token_input, row)[0] / np.maximum(norms, np.finfo(np.float64).tiny)
        most = np.argsort(-similarity, kind="stable")[:n]
        scores = _gram(token_input, B[most]) @ token_input.dual_coef + model.intercept
        labels = [model.column_labels[k] for k in scores.argmax(axis=1).tolist()]
        alike = zip(here[most].tolist(), similarity[most].tolist(), labels, strict=True)
        neighbours += [NearToken(sequence, token, near, label) for (sequence, token), near, label in alike]
    return tuple(sorted(neighbours, key=lambda one: -one.similarity)[:n])


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
