"""A partition of sequences that are divided into segments, in this process.

The parameters theta are the weights of all terms of the score. Each term has weights W, a factor A of its label kernel,
and features F, which are 1 if the term has no inputs. The scores of the term are A (W' F). A term scores labels at
tokens, labels at the first or the last token of a segment, steps between segments, durations, tokens beyond the longest
duration, or candidate segments. `inference.segments` explains these scores and their sums over segmentations.

`score.Score` is this linear map and its transpose, which maps the gradient with respect to the scores to the gradient
with respect to the weights.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property

import numpy as np

from kernelcrf.arrays import Array, Flags, Floats, Ints, Places
from kernelcrf.graphs.structure import Chains, Legal
from kernelcrf.inference.feasibility import InfeasibleSequenceError
from kernelcrf.inference.segments import Observed, SegmentMessages, SegmentMoments, SegmentScores, candidate_rows
from kernelcrf.partitions.partition import PartitionState, RowPartition, Sums
from kernelcrf.score.cliques import FIRSTS, LASTS, SEGMENTS, TOKENS
from kernelcrf.score.features import TokenFeatures
from kernelcrf.score.layout import Layout
from kernelcrf.score.score import Score, add_base
from kernelcrf.score.tables import arrays_of_moments, arrays_of_scores
from kernelcrf.score.terms import Term

# The moments that are sums over sequences.
SUMS = "steps", "lengths", "more"


@dataclass(frozen=True, eq=False)
class SegmentRules:
    """The rules that say which segmentations are possible, for L labels.

    longest : the number D; each duration from 1 to D tokens has a separate score.
    tail : whether segments may be longer than D.
    repeats : (L,), whether two neighbouring segments may both have this label.
    legal : which labels may start a sequence, follow each other, and end a sequence; None if all may.
    """

    longest: int
    tail: bool
    repeats: Flags
    legal: Legal | None = None

    def zeros(self, terms: Iterable[Term], chains: Chains, base: Mapping[str, Array] | None = None) -> SegmentScores:
        """Return the arrays to which the scores of terms and the base scores are added; all their entries are 0."""
        N, L, D = chains.n_nodes, len(self.repeats), self.longest
        needed = {term.kind.array for term in terms} | set(base or ())
        first, last = (np.zeros((N, L)) if name in needed else None for name in (FIRSTS, LASTS))
        g = np.zeros((candidate_rows(chains, D)[-1], L)) if SEGMENTS in needed else None
        tail = np.zeros(L) if self.tail else None
        return SegmentScores(np.zeros((N, L)), np.zeros((L, L)), np.zeros((D, L)), first, last, tail, g, chains=chains)

    def impose(
        self, scores: SegmentScores, opens: Flags | None = None, continues: Flags | None = None
    ) -> SegmentScores:
        """Return the scores with -inf for everything that the rules forbid.

        opens : (N, L), whether each token may be the first token of a segment with each label; None if all may.
        continues : (N, L), whether each token may be a later token of a segment with each label; None if all may.
        """
        n_tokens, L = scores.tokens.shape
        steps = np.where(~self.repeats & np.eye(L, dtype=bool), -np.inf, scores.steps)
        first, last = scores.first, scores.last
        if opens is not None:
            first = np.where(opens, 0.0 if first is None else first, -np.inf)
        if self.legal is not None:
            steps = np.where(self.legal.steps, steps, -np.inf)
            chains = scores.order
            first, last = (np.zeros((n_tokens, L)) if x is None else x.copy() for x in (first, last))
            first[chains.first_nodes] = np.where(self.legal.first, first[chains.first_nodes], -np.inf)
            last[chains.last_nodes] = np.where(self.legal.last, last[chains.last_nodes], -np.inf)
        return replace(scores, steps=steps, first=first, last=last, continues=continues)


@dataclass(frozen=True, eq=False)
class SegmentResiduals:
    """The loss of a partition, and its gradient with respect to the scores.

    loss : the loss, summed over sequences with their weights.
    gradient : the marginals, minus the marginals given the known labels.
    marginals : the marginals of p(segmentation | x).
    curvature : the messages that products with the Hessian need, or None if they are not kept.
    """

    loss: float
    gradient: SegmentMoments
    marginals: SegmentMoments
    curvature: SegmentMessages | None


@dataclass(frozen=True, eq=False)
class SegmentPartition(RowPartition):
    """Sequences with their features, and with segments that are observed or partly known.

    observed : all segments, or None if some labels or ends of segments are missing.
    opens, continues : (N, L), whether the known labels allow each token to be the first (`opens`) or a later token
        (`continues`) of a segment with each label; None if all segments are observed.
    features : a dict from names of terms to their features, for terms that have inputs. Features have one row per
        token, or per candidate segment for terms of whole segments.
    weights : the weight of each sequence, or None if all weights are 1.
    base : a dict from names of arrays, as in `score.cliques`, to scores that are added and not learned, or None.
    """

    chains: Chains
    n_labels: int
    rules: SegmentRules
    observed: Observed | None
    opens: Flags | None = None
    continues: Flags | None = None
    features: Mapping[str, TokenFeatures] = field(default_factory=dict)
    weights: Floats | None = None
    base: Mapping[str, Array] | None = None

    @property
    def n_nodes(self) -> int:
        return self.chains.n_nodes

    @property
    def is_convex(self) -> bool:
        return self.observed is not None

    @cached_property
    def candidates(self) -> Ints:
        """Return the row of the first candidate segment at each token; the last entry is the number of candidates."""
        return candidate_rows(self.chains, self.rules.longest)

    def scores(self, layout: Layout, theta: Floats, n_jobs: int = 1) -> SegmentScores:
        """Return the scores for the parameters theta, without base scores and without -inf for forbidden segments."""
        scores = self.rules.zeros(layout.terms, self.chains, self.base)
        Score(layout, self.features, self.chains).add(arrays_of_scores(scores), theta, n_jobs)
        return scores

    def pull_back(self, layout: Layout, gradient: SegmentMoments, n_jobs: int = 1) -> Floats:
        """Return the gradient with respect to theta, given the gradient with respect to the scores.

        In `gradient`, rows of tokens and of candidate segments do not contain the weights of sequences: this method
        multiplies each row by the weight of its sequence. Sums over sequences contain the weights already.
        """
        return Score(layout, self.features, self.chains).adjoint(self._weighted(gradient), n_jobs)

    def _weighted(self, moments: SegmentMoments) -> dict[str, Array]:
        """Return the moments as arrays, with each row multiplied by the weight of its sequence.

        The moments of steps, durations and tails are sums over sequences, which contain the weights already.
        """
        arrays = arrays_of_moments(moments)
        if self._token_weights is not None:
            arrays |= {name: arrays[name] * self._token_weights[:, None] for name in (TOKENS, FIRSTS, LASTS)}
            if self._segment_weights is not None and len(moments.segments):
                arrays[SEGMENTS] = arrays[SEGMENTS] * self._segment_weights[:, None]
        return arrays

    def _rows(self, term: Term, moments: SegmentMoments) -> Array:
        """Return the weighted moments of a term, one row per clique.

        Terms whose moments are sums over sequences have a single row.
        """
        return term.kind.take_all(self._weighted(moments), self.chains)

    @cached_property
    def _token_weights(self) -> Floats | None:
        return None if self.weights is None else np.repeat(self.weights, self.chains.lengths)

    @cached_property
    def _segment_weights(self) -> Floats | None:
        return None if self._token_weights is None else np.repeat(self._token_weights, np.diff(self.candidates))

    @staticmethod
    def _apply_weights(rows: Array, weights: Floats | None) -> Array:
        return rows if weights is None else rows * weights[:, None]

    def with_columns(self, term: Term, columns: Places) -> SegmentPartition:
        return replace(self, features={**self.features, term.name: self.features[term.name].columns(columns)})

    def evaluate(self, layout: Layout, theta: Floats, n_jobs: int, *, curvature: bool) -> tuple[Sums, PartitionState]:
        scores = self.scores(layout, theta, n_jobs)
        add_base(arrays_of_scores(scores), self.base)
        return self.evaluate_at(layout, scores, n_jobs, curvature=curvature)

    def evaluate_at(
        self, layout: Layout, scores: SegmentScores, n_jobs: int, *, curvature: bool
    ) -> tuple[Sums, PartitionState]:
        residuals = self.residuals(scores, n_jobs, curvature=curvature)
        sums = Sums(residuals.loss, self.pull_back(layout, residuals.gradient, n_jobs))
        return sums, PartitionState(scores, residuals)

    def residuals(self, scores: SegmentScores, n_jobs: int = 1, *, curvature: bool) -> SegmentResiduals:
        """Return the loss and its gradient with respect to the scores.

        curvature : whether to keep the messages that products with the Hessian need.
        """
        free, known = self._messages(scores, n_jobs)
        moments = free.moments
        names = "nodes", "starts", "ends", "steps", "lengths", "more", "segments"
        gradient = {name: getattr(moments, name) - getattr(known, name) for name in names}
        loss = self.weighted_sum(moments.log_partition - known.log_partition)
        return SegmentResiduals(loss, replace(moments, **gradient), moments, free if curvature else None)

    def losses(self, scores: SegmentScores, n_jobs: int = 1) -> Floats:
        free, known = self._messages(scores, n_jobs)
        return self.weighted(free.log_partition - known.log_partition)

    def _messages(self, scores: SegmentScores, n_jobs: int) -> tuple[SegmentMessages, SegmentMoments]:
        """Return a pair: the messages of all segmentations, and the moments of those that agree with known labels."""
        try:
            free = SegmentMessages.of(self.rules.impose(scores), self.weights, n_jobs)
            if self.observed is not None:
                return free, self.observed.moments(free.scores, self.weights)
            allowed = self.rules.impose(scores, self.opens, self.continues)
            return free, SegmentMessages.of(allowed, self.weights, n_jobs).moments
        except InfeasibleSequenceError as error:
            raise InfeasibleSequenceError(self.chains.number(error.sample), error.token) from None

    def direction(self, layout: Layout, v: Floats, n_jobs: int) -> SegmentScores:
        return self.scores(layout, v, n_jobs)

    def along(self, scores: SegmentScores, direction: SegmentScores, n_jobs: int) -> tuple[float, float]:
        residuals = self.residuals(scores, n_jobs, curvature=False)
        g, tokens, whole = residuals.gradient, self._token_weights, self._segment_weights
        rows = [(g.nodes, direction.tokens), (g.starts, direction.first), (g.ends, direction.last)]
        sums = [(g.steps, direction.steps), (g.lengths, direction.durations), (g.more, direction.tail)]
        pairs = [*sums, *((self._apply_weights(slope, tokens), dx) for slope, dx in rows)]
        pairs.append((self._apply_weights(g.segments, whole) if len(g.segments) else g.segments, direction.segments))
        return residuals.loss, float(sum(np.vdot(slope, dx) for slope, dx in pairs if dx is not None))

    def hessian_product(self, layout: Layout, at: PartitionState, v: Floats, n_jobs: int) -> Floats:
        messages: SegmentMessages = self.curvature(at)
        return self.pull_back(layout, messages.tangent(self.scores(layout, v, n_jobs)), n_jobs)

    def block_product(self, layout: Layout, at: PartitionState, v: Floats, n_jobs: int) -> Floats:
        p, dx = at.residuals.marginals, self.scores(layout, v, n_jobs)

        def product(probabilities: Array, direction: Array | None) -> Array:
            """Return, for each clique, the product of the covariance matrix of its labels and the direction."""
            if direction is None or not len(probabilities):
                return probabilities
            return np.asarray(probabilities * (direction - np.einsum("tj,tj->t", probabilities, direction)[:, None]))

        # Durations, steps and tails of different segments are treated as independent.
        products = replace(
            p, nodes=product(p.nodes, dx.tokens), starts=product(p.starts, dx.first), ends=product(p.ends, dx.last),
            segments=product(p.segments, dx.segments), steps=p.steps * dx.steps, lengths=p.lengths * dx.durations,
            more=p.more if dx.tail is None else p.more * dx.tail,
        )  # fmt: skip
        return self.pull_back(layout, products, n_jobs)

    def entropy(self, at: PartitionState, n_jobs: int) -> float:
        return self.weighted_sum(SegmentMessages.of(self.rules.impose(at.scores)).entropy())

    def residual(self, term: Term, at: PartitionState) -> Array:
        return term.k_y.adjoint(self._rows(term, at.residuals.gradient))

    def spread(self, term: Term, at: PartitionState) -> Array:
        p = at.residuals.marginals
        if term.kind.is_summed:
            return self._rows(term, p if self._observed_spread is None else _largest_of(p, self._observed_spread))
        return self._rows(term, replace(p, **{name: _variance(x) for name, x in vars(p).items()}))

    @cached_property
    def _observed_spread(self) -> SegmentMoments | None:
        """Return estimates of the variances of durations and tails in a fitted model, from the observed segments.

        Preconditioners are computed at theta = 0, where segments are shorter than in a fitted model, so that variances
        are too small there. The number of tokens in a tail is almost geometrically distributed, so that the variance of
        this number is about the mean of its square.
        """
        if self.observed is None:
            return None
        seen, D, L = self.observed, self.rules.longest, self.n_labels
        weights = np.ones(len(seen.labels))
        if self._token_weights is not None:
            weights = self._token_weights[seen.starts]
        lengths, nothing = np.zeros((D, L)), np.zeros((0, L))
        np.add.at(lengths, (np.minimum(seen.durations, D) - 1, seen.labels), weights)
        squares = np.square(np.maximum(seen.durations - D, 0.0))
        more = np.bincount(seen.labels, weights * squares, L).astype(np.float64)
        return SegmentMoments(np.zeros(0), nothing, nothing, nothing, np.zeros((L, L)), lengths, more, nothing)

    def mass(self, term: Term) -> float:
        return self.weighted_sum(self.chains.lengths)

    def score_sizes(self, layout: Layout, at: PartitionState) -> Floats:
        # A token counts with its largest scores of each kind: a segment may start and end at every token.
        x = at.scores
        of_tokens = sum(_largest(rows) for rows in (x.tokens, x.first, x.last) if rows is not None)
        of_all = sum(
            float(_largest(scores.reshape(1, -1))[0]) for scores in (x.steps, x.durations, x.tail) if scores is not None
        )
        sizes = of_tokens + of_all
        if x.segments is not None and len(x.segments):
            sizes = sizes + np.maximum.reduceat(_largest(x.segments), self.candidates[:-1])
        return np.asarray(sizes if self._token_weights is None else sizes * self._token_weights)

    def clique_weights(self, term: Term) -> Floats:
        weights, rows = self._token_weights, self.n_nodes
        if term.kind.is_segment:
            weights, rows = self._segment_weights, int(self.candidates[-1])
        return np.ones(rows) if weights is None else weights


def _largest_of(one: SegmentMoments, other: SegmentMoments) -> SegmentMoments:
    """Return a copy of `one` in which each sum over sequences is the larger of the sums in `one` and `other`."""
    return replace(one, **{name: np.maximum(getattr(one, name), getattr(other, name)) for name in SUMS})


def _largest(scores: Array) -> Floats:
    """Return the largest absolute value of each row; infinite scores are ignored."""
    return np.asarray(np.abs(scores).max(axis=1, initial=0.0, where=np.isfinite(scores)))


def _variance(p: Array) -> Array:
    # Rounding lets p exceed 1, and a large weight makes a negative variance greater than lam.
    return np.asarray(np.maximum(p * (1 - p), 0))
