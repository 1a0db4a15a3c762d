"""A partition of sequences in this process: it computes scores from the parameters theta, and runs inference on them.

The parameters theta are the weights of all terms of the score. Each term has weights W, a factor A of its label kernel,
and features F_t of token t, which are 1 if the term has no inputs. Some terms score the label of a token, or of the
first or last token only; the others score the transition between the labels of two neighbouring tokens. The scores s_t
of the labels at token t, and w_t of the transitions from token t - 1 to token t, are

    s_t = sum over terms of tokens of A (W' F_t),     w_t = sum over terms of transitions of A (W' F_t).

`score.Score` is this linear map and its transpose, which maps the gradient with respect to the scores to the gradient
with respect to the weights.

If features are dense and inputs are distinct, the data are divided into several partitions for threads.

Features that are not stored are F_t = R^-1 k_t, where k_t are the kernel values of token t with the landmarks, and R is
the factor of `basis.recomputed_features`. The kernel values of a block of sequences are computed once per pass: the
block is a partition with the features k_t and the weights R^-T W, whose gradient is multiplied by R^-1 in the end.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property

import numpy as np

from kernelcrf.arrays import Array, Flags, Floats, Ints, Labels, Places
from kernelcrf.basis.recomputed_features import RecomputedFeatures, rows_of_block
from kernelcrf.graphs.structure import EDGE, Chains, Legal
from kernelcrf.inference.batch import Batch
from kernelcrf.inference.chain import edge_marginals, entropy, labelling_scores, log_partition
from kernelcrf.inference.decoding import viterbi
from kernelcrf.inference.feasibility import InfeasibleSequenceError
from kernelcrf.inference.tangents import Linearisation
from kernelcrf.partitions.expected_labels import ExpectedLabels
from kernelcrf.partitions.fused_chains import MOST_INPUTS, ChainResiduals, FusedChains, FusedMessages
from kernelcrf.partitions.partition import PartitionState, RowPartition, Sums
from kernelcrf.partitions.softmax import Softmax
from kernelcrf.score.cliques import STEPS
from kernelcrf.score.features import RecomputedTokenFeatures, TokenFeatures
from kernelcrf.score.layout import Layout
from kernelcrf.score.score import Score, add_base
from kernelcrf.score.tables import ChainScores, Steps
from kernelcrf.score.terms import Term

# Smaller partitions take longer per token, because the gradient of each is as large as that of all data.
MOST_PARTITIONS, LEAST_NODES, LEAST_PRODUCTS = 64, 2048, 2**20
BLOCK_BYTES, LEAST_BLOCK_NODES = 2**19, 64
# `measure` divides the tokens into this number of blocks, unless they are smaller than LEAST_MEASURED tokens.
MOST_BLOCKS, LEAST_MEASURED = 64, 2048


@dataclass(frozen=True, eq=False)
class ChainPartition(RowPartition):
    """Some sequences with their features and labels: m sequences with N tokens in total, and L labels.

    features : a dict from names of terms to their features, for terms that have inputs.
    labels : (N,), one label index per token; not used if `allowed` or `soft` is given.
    allowed : (N, L) booleans, the labels that each token may have, or None if all labels are observed.
    weights : (m,), the weight of each sequence, or None if all weights are 1.
    legal : the labellings that constraints permit, or None if there are no constraints.
    base : a dict from names of arrays, as in `score.cliques`, to scores that are added and not learned, or None.
    soft : (N, L), soft labels in place of `labels`, as `ExpectedLabels` defines them; None if labels are observed.
    given : (N,), flags of tokens whose labels are conditions: p(y|x) is then the distribution of the other labels,
        given these; None if there are no such tokens. If such a token may have several labels, the condition is that it
        has one of them.
    """

    chains: Chains
    n_labels: int
    labels: Labels
    features: Mapping[str, TokenFeatures] = field(default_factory=dict)
    allowed: Flags | None = None
    weights: Floats | None = None
    legal: Legal | None = None
    base: Mapping[str, Array] | None = None
    soft: Floats | None = None
    given: Flags | None = None

    @property
    def n_nodes(self) -> int:
        return self.chains.n_nodes

    @property
    def is_convex(self) -> bool:
        return self.allowed is None

    @property
    def counts_each_label(self) -> bool:
        """Return whether each token has one label, and all labels count with the weight of their sequence."""
        return self.allowed is None and self.soft is None and self.given is None

    @property
    def scored(self) -> Flags:
        """Return, for each token, whether its label is known and not a condition."""
        known = self.labels >= 0
        return known if self.given is None else known & ~self.given

    def apply_weights(self, rows: Array) -> Array:
        """Multiply the row of each token by the weight of the token's sequence; `rows` has one row per token."""
        if self.weights is None:
            return rows
        weights = np.repeat(self.weights, self.chains.lengths)
        return np.asarray(rows * weights.reshape(-1, *(1,) * (rows.ndim - 1)), rows.dtype)

    def has_edges(self, layout: Layout) -> bool:
        """Return whether inference must consider pairs of neighbouring tokens.

        This is the case if a term scores transitions, if labels are constrained, or if some labels are missing.
        """
        templates = any(term.kind.is_step for term in layout.terms) or self._has_base_steps
        return templates or self.legal is not None or self.allowed is not None

    @property
    def _has_base_steps(self) -> bool:
        return self.base is not None and STEPS in self.base

    def scores(self, layout: Layout, theta: Floats, n_jobs: int = 1) -> tuple[Array, Array]:
        """Return the token scores and the transition scores for the parameters theta, without base scores.

        With N tokens and L labels, token scores have the shape (N, L). Transition scores are one matrix of shape (L, L)
        for all tokens, or have the shape (N, L, L) if they depend on inputs.
        """
        steps: Steps = "tied" if self.has_edges(layout) else "none"
        of_inputs = any(term.kind.is_step and term.name in self.features for term in layout.terms)
        if of_inputs or self._has_base_steps:
            steps = "own"
        scores = ChainScores.zeros(self.n_nodes, self.n_labels, steps, self.dtype)
        self._score(layout).add(scores.arrays, theta, n_jobs)
        return scores.s, scores.w

    def _score(self, layout: Layout) -> Score:
        return Score(layout, self.features, self.chains)

    def pull_back(self, layout: Layout, r: Array, q: Array, n_jobs: int = 1) -> Floats:
        """Return the gradient with respect to the parameters theta, given the gradients with respect to the scores.

        r : the gradient with respect to the token scores, one row per token and one column per label.
        q : the gradient with respect to the transition scores, in the shape of these scores.
        """
        return self._score(layout).adjoint(ChainScores(r, q).arrays, n_jobs)

    def with_columns(self, term: Term, columns: Places) -> ChainPartition:
        return replace(self, features={**self.features, term.name: self.features[term.name].columns(columns)})

    def _fused(self, layout: Layout) -> FusedChains | None:
        """Return an object that computes scores, inference and gradient in one pass over dense features.

        Return None if this pass is not possible, for example because features are sparse or labels are missing.
        """
        terms = tuple(term for term in layout.terms if term.name in self.features)
        features = [self.features[term.name] for term in terms]
        if not 1 <= len(terms) <= MOST_INPUTS or not all(term.kind.is_token for term in terms):
            return None
        if not all(columns.is_stored and not columns.is_sparse and columns.index is None for columns in features):
            return None
        if not all(columns.views == 1 and columns.F.flags.c_contiguous for columns in features):
            return None
        if self.n_nodes == 0 or self.base is not None or len({columns.F.dtype for columns in features}) > 1:
            return None
        if not self.counts_each_label or not self.has_edges(layout):
            return None
        Fs, counts, cuts = tuple(columns.F for columns in features), self.observed_steps, self.block_cuts
        return FusedChains(
            layout, terms, Fs, self.chains, self.labels, self.weights, self.legal, counts, cuts, self.dtype
        )

    def evaluate(self, layout: Layout, theta: Floats, n_jobs: int, *, curvature: bool) -> tuple[Sums, PartitionState]:
        if self._is_recomputed and not curvature:
            return self._evaluate_blocks(layout, theta)
        fused = self._fused(layout)
        result = fused.evaluate(theta, "messages" if curvature else "residuals") if fused else None
        if result is not None:
            return result
        return self.evaluate_at(layout, self._all_scores(layout, theta, n_jobs), n_jobs, curvature=curvature)

    @property
    def _is_recomputed(self) -> bool:
        """Return whether some features are not stored, and each token has a row of them of its own."""
        computed = [features for features in self.features.values() if not features.is_stored]
        return self.n_nodes > 0 and len(computed) > 0 and all(features.index is None for features in computed)

    def _evaluate_blocks(self, layout: Layout, theta: Floats) -> tuple[Sums, PartitionState]:
        """Return the result of `evaluate` for features that are not stored, of which one block is in memory at a time.

        The kernel values of a block are computed once, for both scores and gradient.
        """
        computed = {name: one.F for name, one in self.features.items() if isinstance(one.F, RecomputedFeatures)}
        weights = layout.split(theta)
        folded = layout.join(weights | {name: F.fold(weights[name]) for name, F in computed.items()})
        runs = list(self.chains.runs(rows_of_block(max(F.shape[1] for F in computed.values()))))
        longest = max(int(self.chains.offsets[high] - self.chains.offsets[low]) for low, high in runs)
        # Terms that share features share their rows.
        shared = {id(one.F): one for one in self.features.values() if isinstance(one, RecomputedTokenFeatures)}
        fills = {
            key: (one.F.computed_rows(), np.empty((longest * one.views, one.F.shape[1]))) for key, one in shared.items()
        }
        others = replace(self, features={name: one for name, one in self.features.items() if name not in computed})
        total, states = None, list[PartitionState]()
        for low, high in runs:
            nodes = slice(*self.chains.offsets[[low, high]].tolist())
            rows = {key: shared[key].computed(nodes, *fills[key]) for key in shared}
            block = others.part(low, high)
            features = {
                name: rows[id(computed[name])] if name in computed else block.features[name] for name in self.features
            }
            sums, state = replace(block, features=features).evaluate(layout, folded, 1, curvature=False)
            total = sums if total is None else total + sums
            states.append(state)
        assert total is not None
        gradients = layout.split(total.gradient)
        gradient = layout.join(gradients | {name: F.unfold(gradients[name]) for name, F in computed.items()})
        return Sums(total.loss, gradient), _join_states(states)

    def _all_scores(self, layout: Layout, theta: Floats, n_jobs: int) -> ChainScores:
        """Return the scores for the parameters theta, with base scores and constraints."""
        s, w = self.scores(layout, theta, n_jobs)
        add_base(ChainScores(s, w).arrays, self.base)
        free = s
        if self.legal is not None:
            s, w = self.legal.impose(self.chains, s, w)
        if self.given is not None:
            # A part of a sequence may start and end with a label that a whole sequence may not.
            s = np.where(self.given[:, None], np.where(self._conditions, free, -np.inf), s).astype(s.dtype, copy=False)
        return ChainScores(s, w)

    @cached_property
    def _conditions(self) -> Flags:
        """Return which labels each token may have if its label is a condition; one row per token."""
        return np.eye(self.n_labels, dtype=bool)[self.labels] if self.allowed is None else self.allowed

    def likeliest(
        self,
        layout: Layout,
        theta: Floats,
        n_jobs: int,
        decode: Callable[[Array, Array, Chains], Labels] | None = None,
    ) -> Labels:
        """Return the indices of the likeliest labels of all sequences, one per token.

        decode : a function of the scores of labels, the scores of steps and the sequences, which chooses other labels.
        """
        scores = self._all_scores(layout, theta, n_jobs)
        if decode is not None:
            L = scores.s.shape[1]
            return decode(scores.s, scores.w if scores.w.size else np.zeros((L, L)), self.chains)
        if not scores.w.size:
            return np.asarray(scores.s.argmax(axis=1), np.int32)
        return viterbi(scores.s, scores.w, self.chains, n_threads=n_jobs)[0]

    def sums(self, layout: Layout, theta: Floats, n_jobs: int) -> Sums:
        """Return loss and gradient for the parameters theta; scores and results of inference are not kept."""
        fused = self._fused(layout)
        result = fused.evaluate(theta, "nothing") if fused else None
        return (result or self.evaluate(layout, theta, n_jobs, curvature=False))[0]

    def measure(self, layout: Layout, theta: Floats, n_jobs: int) -> tuple[Sums, PartitionState]:
        """Return the loss and its gradient for theta; scores are computed for one block of sequences at a time."""
        loss, gradient, sizes = 0.0, np.zeros(layout.size), list[Floats]()
        for block in self._blocks():
            sums, state = block.evaluate(layout, theta, n_jobs, curvature=False)
            sizes.append(block.score_sizes(layout, state))
            loss += sums.loss
            gradient += sums.gradient
        return Sums(loss, gradient), PartitionState(None, None, np.concatenate(sizes))

    def _blocks(self) -> Iterator[ChainPartition]:
        """Yield partitions that contain all sequences, at most MOST_BLOCKS if no sequence is long."""
        indexed = any(features.index is not None for features in self.features.values())
        n_nodes = self.n_nodes if indexed else max(-(-self.n_nodes // MOST_BLOCKS), LEAST_MEASURED)
        if n_nodes >= self.n_nodes:
            yield self
            return
        for low, high in self.chains.runs(n_nodes):
            yield self.part(low, high)

    def evaluate_at(
        self, layout: Layout, scores: ChainScores, n_jobs: int, *, curvature: bool
    ) -> tuple[Sums, PartitionState]:
        result = self.residuals(scores, n_jobs, curvature=curvature)
        gradient = self.pull_back(layout, result.r, result.q, n_jobs)
        return Sums(result.loss, gradient), PartitionState(scores, result)

    def direction(self, layout: Layout, v: Floats, n_jobs: int) -> ChainScores:
        return ChainScores(*self.scores(layout, v, n_jobs))

    def along(self, scores: ChainScores, direction: ChainScores, n_jobs: int) -> tuple[float, float]:
        result = self.residuals(scores, n_jobs, curvature=False)
        return result.loss, float(np.vdot(result.r, direction.s)) + float(np.vdot(result.q, direction.w))

    def residuals(self, scores: ChainScores, n_jobs: int = 1, *, curvature: bool) -> ChainResiduals:
        """Return the loss and its gradient with respect to the scores.

        curvature : whether the result must also have the arrays that products with the Hessian need.
        """
        try:
            return self._residuals(scores, n_jobs, curvature)
        except InfeasibleSequenceError as error:
            raise InfeasibleSequenceError(self.chains.number(error.sample), error.token) from None

    def losses(self, scores: ChainScores, n_jobs: int = 1) -> Floats:
        s, w = scores.s, scores.w
        if not w.size:
            of_tokens = Softmax.of(s).log_partition
            if self.soft is None:
                of_tokens = of_tokens - s[np.arange(self.n_nodes), self.labels]
            samples = np.repeat(np.arange(self.chains.n_samples), self.chains.lengths)
            losses = np.bincount(samples, of_tokens, minlength=self.chains.n_samples)
            return self.weighted(losses if self.soft is None else losses - self._expected.scores(s, w))
        try:
            free = log_partition(s, w, self.chains, n_threads=n_jobs)
            if self.soft is not None:
                return self.weighted(free - self._expected.scores(s, w))
            if self.allowed is None:
                return self.weighted(free - labelling_scores(s, w, self.chains, self.labels))
            clamped = np.where(self.allowed, s, s.dtype.type(-np.inf))
            return self.weighted(free - log_partition(clamped, w, self.chains, n_threads=n_jobs))
        except InfeasibleSequenceError as error:
            raise InfeasibleSequenceError(self.chains.number(error.sample), error.token) from None

    def _independent_residuals(self, s: Array, w: Array, curvature: bool) -> ChainResiduals:
        model = Softmax.of(s)
        tokens = np.arange(self.chains.n_nodes)
        r = model.p.copy()
        if self.soft is None:
            losses = model.log_partition - s[tokens, self.labels]
            r[tokens, self.labels] -= 1
        else:
            losses = model.log_partition - np.einsum("tj,tj->t", self.soft, s)
            r -= self.soft.astype(r.dtype, copy=False)
        loss = float(self.apply_weights(losses).sum())
        return ChainResiduals(loss, self.apply_weights(r), np.zeros_like(w), model.p, model if curvature else None)

    def _residuals(self, scores: ChainScores, n_jobs: int, curvature: bool) -> ChainResiduals:
        if not scores.w.size:
            return self._independent_residuals(scores.s, scores.w, curvature)
        batch = Batch(scores.s, np.ascontiguousarray(scores.w), self.chains, self.weights)
        linearisation = Linearisation.of(batch, n_jobs, keep=curvature)
        model = linearisation.moments
        r, q = model.nodes.copy(), model.edges.copy()
        if self.soft is not None:
            expected = self._expected
            loss = self.weighted_sum(model.log_partition) - expected.total(scores.s, scores.w)
            r -= expected.nodes.astype(r.dtype, copy=False)
            q -= (expected.steps if batch.tied else expected.edges).astype(q.dtype, copy=False)
        elif self.allowed is None:
            tokens, y = np.arange(self.chains.n_nodes), self.labels
            target = labelling_scores(scores.s, scores.w, self.chains, y)
            r[tokens, y] -= 1
            if batch.tied:
                q -= self.observed_steps
            else:
                before, into = self.chains.cliques(EDGE).T
                q[into, y[before], y[into]] -= 1
            loss = self.weighted_sum(model.log_partition - target)
        else:
            nothing = scores.s.dtype.type(-np.inf)
            clamped = replace(batch, scores=np.where(self.allowed, scores.s, nothing))
            moments = Linearisation.of(clamped, n_jobs, keep=False).moments
            r -= moments.nodes
            q -= moments.edges
            loss = self.weighted_sum(model.log_partition - moments.log_partition)
        q = q if batch.tied else self.apply_weights(q)
        return ChainResiduals(loss, self.apply_weights(r), q, model.nodes, linearisation if curvature else None)

    def hessian_product(self, layout: Layout, at: PartitionState, v: Floats, n_jobs: int) -> Floats:
        curvature = self.curvature(at)
        if isinstance(curvature, FusedMessages):
            fused = self._fused(layout)
            assert fused is not None
            return fused.hessian_product(curvature, v)
        tangents = curvature.tangents(*self.scores(layout, v, n_jobs))
        dq = tangents.edges if tangents.edges.ndim == 2 else self.apply_weights(tangents.edges)
        return self.pull_back(layout, self.apply_weights(tangents.nodes), dq, n_jobs)

    def block_product(self, layout: Layout, at: PartitionState, v: Floats, n_jobs: int) -> Floats:
        p = at.residuals.nodes
        du, dw = self.scores(layout, v, n_jobs)
        dp = p * (du - np.einsum("tj,tj->t", p, du)[:, None])
        return self.pull_back(layout, self.apply_weights(dp), self._edge_block(at, dw), n_jobs)

    def _edge_block(self, at: PartitionState, dw: Array) -> Array:
        """Return an approximate derivative of the transition probabilities along a direction `dw` of their scores.

        The effect of `dw` on the probabilities at other tokens is ignored. With the probabilities q_t of the
        transitions to token t, the result for t is the elementwise product q_t * (dw - <q_t, dw>), times the weight of
        the sequence. If `dw` is one matrix for all tokens, the result is summed over tokens.
        """
        if not dw.size:
            return dw
        q = edge_marginals(at.scores.s, at.scores.w, self.chains)
        means = np.einsum("tij,ij->t" if dw.ndim == 2 else "tij,tij->t", q, dw)
        if dw.ndim == 3:
            return self.apply_weights(q * (dw - means[:, None, None]))
        weighted = self.apply_weights(q)
        return np.asarray(weighted.sum(axis=0) * dw - np.einsum("t,tij->ij", means, weighted))

    def entropy(self, at: PartitionState, n_jobs: int) -> float:
        if not at.scores.w.size:
            return float(self.apply_weights(Softmax.of(at.scores.s).entropy).sum())
        return self.weighted_sum(entropy(at.scores.s, at.scores.w, self.chains, n_threads=n_jobs))

    def residual(self, term: Term, at: PartitionState) -> Array:
        residual = term.kind.take_all(ChainScores(at.residuals.r, at.residuals.q).arrays, self.chains)
        return term.k_y.adjoint(residual.astype(np.float64))

    def spread(self, term: Term, at: PartitionState) -> Array:
        p = at.residuals.nodes
        # Rounding lets p exceed 1, and a large weight makes a negative variance greater than lam.
        spread = self.apply_weights(np.maximum(p * (1 - p), 0))
        return spread if term.kind.is_token else spread * term.kind.covers(self.chains)[:, None]

    def mass(self, term: Term) -> float:
        return self.weighted_sum(self.chains.lengths)

    def score_sizes(self, layout: Layout, at: PartitionState) -> Floats:
        if at.sizes is not None:
            return at.sizes
        # A token counts with its largest token score plus its largest transition score.
        sizes = _largest(at.scores.s, (1,)) + _largest(at.scores.w, (-2, -1))
        return self.apply_weights(sizes.astype(np.float64))

    def clique_weights(self, term: Term) -> Floats:
        return self.apply_weights(term.kind.covers(self.chains).astype(np.float64))

    @cached_property
    def _expected(self) -> ExpectedLabels:
        """Return the probabilities of labels and steps under the soft labels."""
        assert self.soft is not None
        return ExpectedLabels(self.chains, self.soft, self.legal, self.weights)

    @cached_property
    def observed_steps(self) -> Floats:
        """Return a matrix whose entry [a, b] is the number of times that label b follows label a.

        Each of these pairs counts with the weight of its sequence.
        """
        before, into = self.chains.cliques(EDGE).T
        steps = np.zeros((self.n_labels, self.n_labels))
        weights = 1.0 if self.weights is None else np.repeat(self.weights, self.chains.lengths)[into]
        np.add.at(steps, (self.labels[before], self.labels[into]), weights)
        return steps

    @cached_property
    def block_cuts(self) -> Ints:
        """Divide the sequences into blocks whose features fit into the CPU cache.

        Return the index of the first sequence of each block, and at the end the number of all sequences.
        """
        row_bytes = sum(features.F.shape[1] * features.F.dtype.itemsize for features in self.features.values())
        runs = self.chains.runs(max(BLOCK_BYTES // max(row_bytes, 1), LEAST_BLOCK_NODES))
        return np.array([low for low, _ in runs] + [self.chains.n_samples])

    def part(self, low: int, high: int) -> ChainPartition:
        """Return a partition with the sequences from `low` to `high` - 1."""
        offsets = self.chains.offsets
        nodes = slice(int(offsets[low]), int(offsets[high]))
        return replace(
            self,
            chains=self.chains.part(low, high),
            labels=self.labels[nodes],
            features={name: features.part(nodes) for name, features in self.features.items()},
            allowed=None if self.allowed is None else self.allowed[nodes],
            weights=None if self.weights is None else self.weights[low:high],
            base=None if self.base is None else {name: rows[nodes] for name, rows in self.base.items()},
            soft=None if self.soft is None else self.soft[nodes],
            given=None if self.given is None else self.given[nodes],
        )

    def cut(self) -> list[ChainPartition]:
        """Divide the sequences into partitions, so that threads can process them at the same time.

        If features are sparse, or stored only once for tokens with equal inputs, return one partition with all
        sequences. A partition is so large that its scores need at least about LEAST_PRODUCTS multiplications. In
        smaller partitions, function calls would take longer than these multiplications.
        """
        if not self.features or any(f.index is not None or f.is_sparse for f in self.features.values()):
            return [self]
        width = sum(features.F.shape[1] for features in self.features.values())
        enough = LEAST_PRODUCTS // (width * self.n_labels)
        n_nodes = max(-(-self.chains.n_nodes // MOST_PARTITIONS), LEAST_NODES, enough)
        return [self.part(low, high) for low, high in self.chains.runs(n_nodes)]


def _join_states(states: Sequence[PartitionState]) -> PartitionState:
    """Return the state of a partition, given the states of blocks of its sequences."""
    scores, residuals = [state.scores for state in states], [state.residuals for state in states]
    tied = scores[0].w.ndim == 2
    w = scores[0].w if tied else np.concatenate([one.w for one in scores])
    q = sum(one.q for one in residuals) if tied else np.concatenate([one.q for one in residuals])
    r, nodes = (np.concatenate([getattr(one, name) for one in residuals]) for name in ("r", "nodes"))
    loss = sum(one.loss for one in residuals)
    s = np.concatenate([one.s for one in scores])
    return PartitionState(ChainScores(s, w), ChainResiduals(loss, r, np.asarray(q), nodes, None))


def _largest(scores: Array, axis: tuple[int, ...]) -> Array:
    """Return the largest absolute value along some axes; infinite scores are ignored, and no copy is made."""
    finite = np.isfinite(scores)
    top, bottom = scores.max(axis=axis, initial=0.0, where=finite), scores.min(axis=axis, initial=0.0, where=finite)
    return np.asarray(np.maximum(top, -bottom))
