"""Active learning: choose the sequences of a pool to label next, so that they are uncertain and diverse.

Each sequence i has a score q_i, which says how uncertain its labels are:

    entropy       the entropy of p(y|x), over all labellings y
    margin        p(second best labelling) / p(best labelling)
    information   the epistemic uncertainty, summed over tokens: the information about the weights that the labels give

The score is divided by the number of tokens if the cost of labelling is per token.

Let phi_i be the mean feature vector of the tokens of sequence i, scaled to length one. Sequences are drawn one after
the other. The probability of drawing sequence i is proportional to q_i^2 times the squared distance of phi_i from the
span of the vectors of the sequences that are already drawn. This is the pivot rule of randomly pivoted Cholesky for the
matrix with the entries q_i q_j <phi_i, phi_j>; `basis.pivots` draws landmarks in the same way. Always choosing the
largest score would select outliers.
"""

from __future__ import annotations

import numpy as np
import scipy.sparse as sp

from kernelcrf.answers.uncertainty import average_draws
from kernelcrf.arrays import Floats, Inputs, Places, UserData, is_sparse, matrix_of
from kernelcrf.engines.local import LocalEngine
from kernelcrf.models.chain import ChainModel
from kernelcrf.readers.containers import Ragged
from kernelcrf.validation import either, one_of, shown

STRATEGY = either(one_of("entropy", "margin", "information"))
COST = either(one_of("token", "sequence"))
FLOOR = 1e-12


def select_sequences(
    model: ChainModel,
    X: UserData,
    lengths: UserData,
    k: int,
    strategy: str,
    per_token: bool,
    rng: np.random.Generator,
    engine: LocalEngine,
) -> Places:
    """Return the indices of the k sequences of the pool X to label next.

    strategy : the score that says how uncertain the labels of a sequence are: "entropy", "margin" or "information".
    per_token : whether to divide the score by the number of tokens.
    """
    flat, chains = model.reader.read(X, lengths)
    if k > chains.n_samples:
        raise ValueError(f"k={shown(k)}: expected at most {chains.n_samples}, the number of sequences in the pool")
    if strategy == "entropy":
        scores = model.field(X, lengths, engine).entropy()
    elif strategy == "margin":
        ranked = model.field(X, lengths, engine).k_best(2)
        scores = np.array([np.exp(best[1][1] - best[0][1]) if len(best) > 1 else 0.0 for best in ranked])
    else:
        _, epistemic, _ = average_draws(model.draw_marginals(X, lengths, None, 1.0, 0, engine))
        scores = np.array([part.sum() for part in Ragged.cut(epistemic, chains.offsets)])
    tokens = np.maximum(chains.lengths, 1)
    samples = np.repeat(np.arange(chains.n_samples), chains.lengths)
    shape = chains.n_samples, chains.n_nodes
    mean = sp.csr_array((1 / tokens[samples], (samples, np.arange(chains.n_nodes))), shape=shape)
    parts: list[Inputs] = [
        mean @ token_input.map.transform(matrix_of(flat, token_input.name), engine)
        for token_input in model.token_inputs
    ]
    all_sparse = all(map(is_sparse, parts))
    phi = sp.hstack(parts, "csr") if all_sparse else np.hstack([p.toarray() if is_sparse(p) else p for p in parts])
    return draw_batch(scores / tokens if per_token else scores, phi, k, rng)


def draw_batch(scores: Floats, phi: Inputs, k: int, rng: np.random.Generator) -> Places:
    """Draw k sequences at random, and return their indices in the order of the draws.

    A sequence is more probable if its score is high and its vector differs from the vectors of sequences already drawn.

    scores : one score per sequence, which says how uncertain its labels are.
    phi : the mean feature vectors, one row per sequence, dense or CSR.
    """
    squares = np.asarray(phi.multiply(phi).sum(axis=1) if is_sparse(phi) else np.square(phi).sum(axis=1), np.float64)
    norms = np.sqrt(np.maximum(squares.ravel(), np.finfo(np.float64).tiny))
    q = np.maximum(scores, 0.0)
    # Squares of tiny scores would vanish.
    q = q / max(float(q.max(initial=0.0)), np.finfo(np.float64).tiny)
    least = FLOOR * float(np.square(q).max())
    left, free = np.square(q), np.ones(len(q), bool)
    columns, drawn = np.zeros((len(q), k)), np.empty(k, np.intp)
    for step in range(k):
        weights = np.where(free & (left > least), left, 0.0)
        if not weights.any():
            # The span contains all sequences left, such as duplicates: draw by score, or uniformly if all are zero.
            weights = np.where(free, np.square(q), 0.0) if np.square(q[free]).any() else free.astype(np.float64)
        place = int(rng.choice(len(q), p=weights / weights.sum()))
        if left[place] > least:
            row = phi[[place]].toarray().ravel() if is_sparse(phi) else phi[place]
            column = q * q[place] * np.asarray(phi @ row, np.float64) / (norms * norms[place])
            column -= columns[:, :step] @ columns[place, :step]
            columns[:, step] = column / np.sqrt(left[place])
            left = np.maximum(left - np.square(columns[:, step]), 0.0)
        drawn[step], free[place], left[place] = place, False, 0.0
    return drawn
