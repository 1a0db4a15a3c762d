"""Prove which labels of the likeliest labelling that of the exact optimum has, too, from the certified gap of a fit.

The objective P is strongly convex in the norm |theta|_P^2 = sum_k |theta_k|^2 / C_k over the terms k. If P(theta) is at
most `gap` above its minimum, the optimum theta* is therefore close to the fitted weights theta,

    |theta* - theta|_P <= r,    r = (2 gap)^1/2.

Let Phi(y) be the joint features of a labelling y, so that its score is <Phi(y), theta>, and |.|_D the dual norm, with
|Phi|_D^2 = sum_k C_k |Phi_k|^2. The optimum predicts a label y_t of the predicted labelling y if no labelling z with
another label at t has

    score(z) - score(y) + r |Phi(z) - Phi(y)|_D >= 0.

The norm of Phi(z) - Phi(y) is at most the sum of the norms of Phi_t(z) - Phi_t(y), its parts at the positions t at
which y and z differ. The features of different terms are orthogonal. The input kernel k and the label kernel k_y give

    |Phi_t(z) - Phi_t(y)|_D^2 = sum_k C_k k(x_t, x_t) |A(z) - A(y)|^2    (A(y) is the row of y in the factor of k_y).

The maximum over z is found by Viterbi's algorithm with these extra scores (`inference.decoding.rivals`). If `gap` is
gap_full, the statement is about the optimum in the whole function space of the kernel.

The loss f = -log p(y|x) of given labels y is convex, and its curvature in a direction is the variance of the score. Let
D be at least |Phi(z) - Phi(y)|_D for every labelling z, and let G be at least |gradient of f|_D. The optimum then has a
loss f* with

    f - r G <= f* <= f + min(r D, r G + r^2 D^2 / 2).

A bound on the rounding errors of scores is added to the left side of the first inequality, and widens the bounds on f*.
For sums of n products, it is about eps n |features| |weights|.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import scipy.sparse as sp

from kernelcrf.arrays import Array, Flags, Floats, Inputs, Labels, UserData, is_sparse, matrix_of
from kernelcrf.basis.features import WhitenedMap
from kernelcrf.basis.kernel_weights import DualWeights, PrimalWeights, Weights
from kernelcrf.basis.sparse_entries import Entries
from kernelcrf.certificate import ROUNDED, TEMPERED, Certificate
from kernelcrf.graphs.structure import Chains
from kernelcrf.inference import decoding
from kernelcrf.models.chain import ChainModel
from kernelcrf.models.chain_field import ChainField
from kernelcrf.readers.containers import Ragged
from kernelcrf.score.terms import Term
from kernelcrf.validation import is_real

# Norms and margins are computed with a few roundings; this relative error covers them.
CLOSE = 1e-6
FEW = 16


@dataclass(frozen=True, eq=False)
class CertifiedLabels:
    """The likeliest labelling, and which of its labels the likeliest labelling of the exact optimum provably has, too.

    labels : one array of labels per sequence, the likeliest labelling: what `predict` returns with decoding="viterbi".
    tokens : one array of booleans per sequence; True if the labelling of the optimum provably has the label there, too.
    sequences : whether all labels of a sequence are certified, one boolean per sequence.
    margins : one array per sequence. Take the score of `labels` at the optimum, and subtract the best score of a
        labelling with another label at the token. The margin is a lower bound on this difference. A label with a
        positive margin is certified.
    radius : the largest possible distance of the fitted weights from the optimum, in units of the prior's standard
        deviation.

    Examples
    --------
    >>> from kernelcrf import ChainCRF
    >>> from kernelcrf.datasets import make_sequences
    >>> data = make_sequences(30, random_state=0)
    >>> crf = ChainCRF(C=10.0, n_components=50, tol=1e-6, random_state=0).fit(data.X, data.y)
    >>> certified = crf.distribution(data.X).certify()
    >>> certified.tokens[0].shape == certified.labels[0].shape, bool(certified.sequences.mean() > 0.8)
    (True, True)
    """

    labels: list[Array]
    tokens: list[Flags]
    sequences: Flags
    margins: list[Floats]
    radius: float


class ScoreBounds(NamedTuple):
    """Bounds on two scores of the exact optimum on given data; each bound is a pair (low, high).

    accuracy : the fraction of tokens whose label is right in the likeliest labelling.
    log_loss : -log p(y|x) of all sequences, divided by the number of tokens.

    Examples
    --------
    >>> from kernelcrf import ChainCRF
    >>> from kernelcrf.datasets import make_sequences
    >>> data = make_sequences(30, random_state=0)
    >>> crf = ChainCRF(C=10.0, n_components=50, tol=1e-6, random_state=0, decoding="viterbi").fit(data.X, data.y)
    >>> low, high = crf.distribution(data.X).score_bounds(data.y).accuracy
    >>> low <= crf.score(data.X, data.y) <= high
    True
    """

    accuracy: tuple[float, float]
    log_loss: tuple[float, float]


def certify(model: ChainModel, inputs: Inputs | Entries, field: ChainField, full: bool) -> CertifiedLabels:
    """Return the likeliest labels of the distribution `field`, and which of them are certified.

    inputs : the inputs of all tokens, as the model's reader converts them.
    full : whether to compare with the optimum in the whole function space of the kernels.
    """
    near = _Neighbourhood.of(model, inputs, field, full)
    y, margins = near.margins()
    tokens, offsets = margins > 0, near.chains.offsets
    bad = np.concatenate([[0], np.cumsum(~tokens)])[offsets]
    return CertifiedLabels(
        model.labels.decode(y, near.chains),
        Ragged.cut(tokens, offsets),
        np.diff(bad) == 0,
        Ragged.cut(margins, offsets),
        near.radius,
    )


def score_bounds(
    model: ChainModel, inputs: Inputs | Entries, field: ChainField, tokens: Sequence[UserData], full: bool
) -> ScoreBounds:
    """Return bounds on the accuracy and the log-loss of the optimum; `tokens` are the true labels of all tokens."""
    near = _Neighbourhood.of(model, inputs, field, full)
    truth, allowed = model.labels.encode(tokens, near.chains)
    if allowed is not None or (truth < 0).any():
        raise ValueError(
            "y has missing labels: expected a label for every token. Leave out sequences with missing labels"
        )
    best, margins = near.margins()
    right, sure, n = best == truth, margins > 0, max(len(truth), 1)
    low, high = near.losses(truth)
    return ScoreBounds(
        (float((right & sure).sum() / n), float(1 - (~right & sure).sum() / n)), (float(low / n), float(high / n))
    )


@dataclass(frozen=True, eq=False)
class _Neighbourhood:
    """The predicted distribution of labels, and bounds on how far its scores are from the scores of the optimum.

    radius : the bound r on the distance of the weights from the optimum.
    squares : for each term, C k(x_t, x_t) at each token t; 0 at tokens to which the term adds no score.
    errors : (N,), a bound on the rounding errors of the scores of a token.
    """

    field: ChainField
    terms: tuple[Term, ...]
    radius: float
    squares: dict[str, Floats]
    errors: Floats

    @classmethod
    def of(cls, model: ChainModel, inputs: Inputs | Entries, field: ChainField, full: bool) -> _Neighbourhood:
        model.refuse_shared_steps("a certificate of labels")
        radius, chains = _radius(model, full), field.chains
        squares, errors = dict[str, Floats](), np.zeros(chains.n_nodes)
        for term in model.layout.terms:
            diagonal = np.ones(chains.n_nodes)
            if term.kernel is not None:
                rows = matrix_of(inputs, str(term.input))
                rows = rows.to_csr() if isinstance(rows, Entries) else rows
                diagonal = np.maximum(term.kernel.diagonal(rows), 0).astype(np.float64)
                errors += _rounding(model.folded[term.name], rows, diagonal)
            squares[term.name] = diagonal * term.kind.covers(chains) * (term.C * (1 + CLOSE))
        return cls(field, model.layout.terms, radius, squares, errors)

    @property
    def chains(self) -> Chains:
        return self.field.chains

    def distances(self, y: Labels) -> tuple[Floats, Floats]:
        """Return two parts of |Phi_t(z) - Phi_t(y)|_D^2, the squared distance between features of labellings z and y.

        Entry [t, j] of the first array, of shape (N, L), is the part for the label z_t = j. Entry [t] of the second
        array is added if the pair (z_{t-1}, z_t) differs from (y_{t-1}, y_t).
        """
        tokens = np.zeros(self.field.s.shape)
        steps = np.zeros(len(tokens))
        for term in self.terms:
            square = self.squares[term.name]
            if term.kind.is_step:
                steps += 2 * square  # the label kernel of steps is the identity
            else:
                tokens += square[:, None] * _label_distances(term)[y]
        return tokens, steps

    def margins(self) -> tuple[Labels, Floats]:
        """Return the likeliest labels and their margins; the optimum predicts all labels with positive margins."""
        field, y = self.field, self.field.best()
        tokens, steps = self.distances(y)
        extra = self.radius * np.sqrt(tokens + steps[:, None])
        extra[np.arange(len(y)), y] = 0.0
        rival = decoding.rivals(field.s, field.w, self.chains, y, extra, self.radius * np.sqrt(steps))
        return y, np.asarray(-rival - np.repeat(self.slack(), self.chains.lengths))

    def slack(self) -> Floats:
        """Return, for each sequence, a bound on the rounding error of a difference between scores of two labellings."""
        field, lengths = self.field, self.chains.lengths
        largest = np.where(np.isfinite(field.s), np.abs(field.s), 0).max(axis=1, initial=0.0).astype(np.float64)
        largest += np.where(np.isfinite(field.w), np.abs(field.w), 0).max(initial=0.0)
        # Scores are rounded to the precision of the inputs, and sums of scores are float64.
        eps = 4 * lengths * np.finfo(np.float64).eps + FEW * np.finfo(field.s.dtype).eps
        sums = [np.append(0.0, np.cumsum(part))[self.chains.offsets] for part in (self.errors, largest)]
        return np.asarray(2 * np.diff(sums[0]) + eps * np.diff(sums[1]))

    def losses(self, truth: Labels) -> tuple[float, float]:
        """Return bounds on the sum of -log p(y|x) over all sequences at the optimum; `truth` has the labels y."""
        r, rows = self.radius, np.arange(len(truth))
        tokens, steps = self.distances(truth)
        widest = np.sqrt(tokens.max(axis=1, initial=0.0) + steps)
        gradients = np.empty(len(truth))
        loss = -self.field.log_prob(truth)
        for low, high, part in self.field.batches():
            rows_here = slice(*self.chains.offsets[[low, high]])
            p, q = part.marginals().astype(np.float64), part.edge_marginals()
            y = truth[rows_here]
            missed = 1 - q[rows[: len(y)], np.append(0, y[:-1]), y]
            mean = np.zeros(len(y))
            for term in self.terms:
                if not term.kind.is_step:
                    mean += (
                        self.squares[term.name][rows_here] * (p * np.sqrt(_label_distances(term)[y])).sum(axis=1) ** 2
                    )
            gradients[rows_here] = np.sqrt(mean + steps[rows_here] * np.maximum(missed, 0) ** 2)
        G, D = (np.diff(np.append(0.0, np.cumsum(part))[self.chains.offsets]) for part in (gradients, widest))
        # The loss of a labelling that constraints forbid is infinite, and so are its bounds.
        slack = self.slack() + np.spacing(np.where(np.isinf(loss), 0.0, np.abs(loss))) * FEW
        low = np.maximum(loss - r * G - slack, 0.0)
        return float(low.sum()), float((loss + np.minimum(r * D, r * G + r**2 * D**2 / 2) + slack).sum())


def _label_distances(term: Term) -> Floats:
    """Return |A(i) - A(j)|^2 for all labels i and j, where the term has the label kernel k_y(i, j) = A(i).A(j)."""
    gram = term.k_y.gram
    squares = np.diagonal(gram)
    return np.asarray(np.maximum(squares[:, None] + squares[None] - 2 * gram, 0.0))


def _radius(model: ChainModel, full: bool) -> float:
    certificate, exact = (
        model.certificate,
        not any(isinstance(feature_map, WhitenedMap) for feature_map in model.maps.values()),
    )
    if certificate.status == TEMPERED:
        raise ValueError(
            "the weights were divided by a temperature, so they are not an optimum, and no label can be certified: "
            "certify the model before scaling"
        )
    if certificate.status == ROUNDED:
        raise ValueError(
            "the weights were rounded to single precision when the model was saved, so no label can be certified: save "
            "the fitted model again, without dtype='float32'"
        )
    if not certificate.is_certified:
        raise ValueError(
            f"the certificate has the status {certificate.status!r} and no lower bound, so no label can be certified: "
            "expected a model that this library fitted to data in which all labels are known"
        )
    if not np.isfinite(certificate.rounding):
        raise ValueError(
            "sample weights are so small that derivatives may be 0 in single precision, so no label can be certified: "
            "fit with inputs in float64"
        )
    if not full or exact:
        return _radius_of(certificate, certificate.gap_in_span)
    if certificate.gap_full is None:
        raise ValueError("full=True needs the gap in the whole function space: fit with certify_full=True")
    return _radius_of(certificate, certificate.gap_full)


def _radius_of(certificate: Certificate, gap: float) -> float:
    rounding = certificate.rounding * max(1.0, abs(certificate.objective))
    return float(np.sqrt(2 * (max(gap, 0.0) + rounding)) * (1 + CLOSE))


def _rounding(weights: Weights, rows: Inputs, diagonal: Floats) -> Floats:
    """Return a bound on the rounding error of the scores of each row x of `rows`.

    The scores are k(x, B) A with landmarks B and coefficients A, or x W with the weights W of features.

    diagonal : k(x, x) for each row x.
    """
    eps = float(np.finfo(rows.dtype).eps)
    if not isinstance(weights, DualWeights):
        n = np.diff(sp.csr_array(rows).indptr) if is_sparse(rows) else rows.shape[1]
        W = weights.W if isinstance(weights, PrimalWeights) else weights.weights
        return np.asarray(eps * (n + FEW) * np.sqrt(diagonal) * np.linalg.norm(W))
    n, d = weights.landmarks.shape
    eps, kernel = max(eps, float(np.finfo(weights.A.dtype).eps)), weights.kernel
    landmarks = np.maximum(kernel.diagonal(weights.landmarks), 0).astype(np.float64)
    # A kernel value may be computed from a difference of squares, such as gamma |x - b|^2 of rbf.
    gamma = kernel.gamma if is_real(kernel.gamma) else 1.0
    exponent = 1 + gamma * (_squares(rows) + _squares(weights.landmarks).max(initial=0.0))
    size = np.sqrt(diagonal * landmarks.sum()) * np.linalg.norm(weights.A.astype(np.float64))
    return np.asarray(eps * (n + (d + FEW) * exponent) * size)


def _squares(rows: Inputs) -> Floats:
    squares = rows.multiply(rows).sum(axis=1) if is_sparse(rows) else np.square(rows, dtype=np.float64).sum(axis=1)
    return np.asarray(squares, np.float64).ravel()
