"""Labelled and weighted sequences in this process.

The position of a landmark b is the first token whose input is b. If b is not an input, its position is the first token
with the nearest input x. The distance is measured in the space of the kernel:

    |k_b - k_x|^2 = k(b, b) - 2 k(b, x) + k(x, x).

For rbf and other kernels with k(x, x) = 1, the nearest input is the input with the largest k(b, x).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Self

import numpy as np
import numpy.typing as npt

from kernelcrf.arrays import Array, Flags, Floats, Inputs, Ints, Labels, Places, is_sparse, matrix_of
from kernelcrf.basis.factor import row_blocks
from kernelcrf.basis.features import Features
from kernelcrf.basis.pairs import Pairs, frequencies
from kernelcrf.engines.local import LocalEngine
from kernelcrf.fitting.corpus import (
    FEW,
    HELD_OUT,
    LocalCorpus,
    can_omit_pairs,
    folds,
    input_of,
    observed_pairs,
    rows_of,
)
from kernelcrf.fitting.digest import Words, digest_array, digest_texts, digest_words
from kernelcrf.fitting.token_weights import Pieces, layers
from kernelcrf.graphs.structure import EDGE, Chains, Legal
from kernelcrf.kernels.inputs import InputKernel
from kernelcrf.partitions.chains import ChainPartition
from kernelcrf.score.features import TokenFeatures
from kernelcrf.score.terms import Term

PIECE = 100
MOST_BLOCKS = 20
GOLDEN, STRIDE = np.uint64(0x9E3779B97F4A7C15), np.uint64(0x9E3779B9)


@dataclass(frozen=True, eq=False)
class LabelledSequences(LocalCorpus):
    """Labelled sequences: the inputs X of all tokens, one per row, and their labels from 0 to n_labels - 1.

    X : a matrix, or several matrices as `NamedInputs`.
    allowed : flags with one row per token and one column per label, True if the token may have the label; None if all
        labels are known.
    weights : the weight of each sequence, or None if all are 1.
    legal : constraints on labellings, or None.
    base : a dict from kinds of cliques, as in `score.cliques`, to base scores with one row per token; None if there are
        none.
    groups : the number of the group of each sequence; the sequences of a group are held out together. None if each
        sequence is a group.
    soft : soft labels, the probability of each label of each token, one row per token; None if labels are observed.
        `labels` then has the likeliest label of each token.
    pieces : if tokens have weights, what the sequences are pieces of; `token_weights` explains pieces. Else None.
    """

    X: Any
    chains: Chains
    labels: Labels
    n_labels: int
    allowed: Flags | None = None
    weights: Floats | None = None
    legal: Legal | None = None
    base: Mapping[str, Array] | None = None
    groups: Ints | None = field(default=None, kw_only=True)
    soft: Floats | None = field(default=None, kw_only=True)
    pieces: Pieces | None = field(default=None, kw_only=True)

    @property
    def piece(self) -> int:
        """Return the largest number of tokens of a piece, for the choice of C on held-out pieces of sequences."""
        return PIECE

    def only_weighted(self) -> Self:
        """Return the data without sequences of weight 0; the other sequences keep their original numbers."""
        return self if self.weights is None or self.weights.all() else self.only(self.weights > 0)

    def only(self, kept: Flags) -> Self:
        """Return the sequences for which `kept` is True, with their original numbers."""
        return self.take(np.flatnonzero(np.repeat(kept, self.chains.lengths)), self.chains.only(kept), kept)

    def take(self, nodes: Places, chains: Chains, samples: Array) -> Self:
        """Return other sequences, which consist of the given tokens.

        chains : the new sequences.
        samples : for each new sequence, the index of the sequence that its tokens come from. Flags that select these
            sequences can be passed instead.
        """
        labels = self.labels[nodes]
        return replace(
            self,
            X=self.X[nodes],
            chains=chains,
            labels=labels,
            allowed=None if self.allowed is None or (labels >= 0).all() else self.allowed[nodes],
            weights=None if self.weights is None else self.weights[samples],
            base=None if self.base is None else {name: rows[nodes] for name, rows in self.base.items()},
            groups=None if self.groups is None else self.groups[samples],
            soft=None if self.soft is None else self.soft[nodes],
            pieces=None if self.pieces is None else self.pieces.take(nodes, samples),
        )

    def with_token_weights(self, weights: Floats) -> Self:
        """Return the data with weights of tokens, by which the weights of sequences are multiplied.

        weights : one weight per token.
        """
        parts = layers(self.chains, weights, self.allowed)
        factors = 1.0 if self.weights is None else self.weights[parts.samples]
        pieces = self.take(parts.nodes, parts.chains, parts.samples)
        # If all tokens of each sequence have the same weight, the pieces are whole sequences.
        of_tokens = parts.pieces if parts.pieces.given.any() else None
        return replace(pieces, weights=factors * parts.weights, pieces=of_tokens)

    def draw(self, n_tokens: int) -> tuple[Self, Array, Ints]:
        """Draw pieces of sequences that are spread evenly over the data, with about `n_tokens` tokens in total.

        A piece has at most `piece` tokens, and may start and end with any label. Return the pieces, the key of each
        piece, and in which fifth of its sequence it starts, from 0 to 4. The key is a number that depends only on the
        number of the sequence and the place of the piece in it. Pieces with small keys are drawn first.
        """
        offsets, numbers = self.chains.offsets, self.chains.numbers
        counts = -(-self.chains.lengths // self.piece)
        sequence = np.repeat(np.arange(len(counts)), counts)
        place = np.arange(len(sequence)) - np.repeat(np.cumsum(counts) - counts, counts)
        start = offsets[sequence] + self.piece * place
        lengths = np.minimum(start + self.piece, offsets[sequence + 1]) - start
        number = sequence if numbers is None else numbers[sequence]
        # Multiples of the golden ratio are spread evenly, modulo 1.
        keys = (number.astype(np.uint64) + STRIDE * place.astype(np.uint64)) * GOLDEN
        drawn = _smallest(keys, lengths, n_tokens)
        chains = replace(Chains.from_lengths(lengths[drawn]), numbers=number[drawn])
        nodes = np.arange(chains.n_nodes) + np.repeat(start[drawn] - chains.offsets[:-1], lengths[drawn])
        pieces = self.take(nodes, chains, sequence[drawn])
        fifths = (HELD_OUT * place // counts[sequence])[drawn]
        if self.pieces is not None:
            first = self.pieces.starts[sequence] + self.piece * place
            fifths = (HELD_OUT * first // self.pieces.lengths[sequence])[drawn]
        return replace(pieces, legal=None if self.legal is None else self.legal.anywhere()), keys[drawn], fifths

    def hold_out(self, n_tokens: int, n_few: int) -> Sequence[tuple[LabelledSequences, LabelledSequences]]:
        """Draw about `n_tokens` tokens for all folds together; `Corpus.hold_out` explains the folds.

        Either all pieces of a group are held out, or none. If there are no groups and fewer than five sequences, each
        fifth of a sequence is a group.
        """
        return divide(*self.draw(n_tokens), n_tokens, n_few)

    def blocks(self) -> Places:
        """Return the number of the block of each sequence.

        The number is below MOST_BLOCKS. All sequences of a group are in one block.
        """
        return self.group_indices()[0] % MOST_BLOCKS

    @property
    def n_groups(self) -> int:
        return self.group_indices()[1]

    @property
    def n_tokens(self) -> int:
        return self.chains.n_nodes

    def group_indices(self) -> tuple[Places, int]:
        """Return the index of the group of each sequence, counted from 0, and the number of groups."""
        numbers = self.chains.numbers if self.groups is None else self.groups
        if numbers is None:
            numbers = np.arange(self.chains.n_samples)
        different, indices = np.unique(numbers, return_inverse=True)
        return indices, len(different)

    def rows(self, name: str) -> Inputs:
        return matrix_of(self.X, name)

    def digest_words(self) -> Words:
        """Return digests of inputs, labels, weights and all three together.

        The digests of a dataset are the sums of the digests of its parts.
        """
        given = None if self.pieces is None else self.pieces.given
        return digest_words(self.X, self.chains.offsets, self.labels, self.allowed, self.weights, (self.soft, given))

    def observed(self, term: Term, least: float) -> Pairs | None:
        sparse = term.input is not None and is_sparse(self.rows(term.input))
        return observed_pairs(self.frequencies(term), least) if can_omit_pairs(term, sparse) else None

    def frequencies(self, term: Term) -> Array:
        """Return how often each feature of a term occurs with each label, in an array with one row per feature.

        A token without a known label counts for every label that it may have. If the term scores transitions, the array
        has a single row, with one number for each pair of labels.
        """
        if self.pieces is not None:
            # Each token counts once, and not if its label is only a condition.
            first, scored = self.pieces.layers == 0, ~self.pieces.given[:, None]
            allowed = self.allowed_labels & (scored | term.kind.is_step)
            return replace(self, allowed=allowed, pieces=None).only(first).frequencies(term)
        allowed = self.allowed_labels
        if not term.kind.is_step:
            rows = term.kind.rows(self.chains)
            return frequencies(self.rows(input_of(term)[0])[rows], allowed[rows])
        before, into = self.chains.cliques(EDGE).T
        return np.asarray(allowed[before].T.astype(np.float32) @ allowed[into]).reshape(1, -1)

    @property
    def allowed_labels(self) -> Flags:
        """Return which labels each token may have, one row per token."""
        if self.soft is not None:
            return self.soft > 0
        return np.eye(self.n_labels, dtype=bool)[self.labels] if self.allowed is None else self.allowed

    def partition(self, terms: Sequence[Term], rows: Mapping[str, TokenFeatures]) -> ChainPartition:
        named = {term.name: term for term in terms}
        tokens = {
            name: of_term.with_pairs(named[name].pairs).with_views(named[name].k_y.views)
            for name, of_term in rows.items()
        }
        return ChainPartition(
            self.chains, self.n_labels, self.labels, tokens, self.allowed, self.weights, self.legal, self.base,
            self.soft, None if self.pieces is None else self.pieces.given,
        )  # fmt: skip

    def places(self, nodes: Places) -> Places:
        """Return the number of the sequence of each token in `nodes`, and the position of the token in the sequence."""
        sequences = np.searchsorted(self.chains.offsets, nodes, side="right") - 1
        numbers = sequences if self.chains.numbers is None else self.chains.numbers[sequences]
        first = 0 if self.pieces is None else self.pieces.starts[sequences]
        places = np.column_stack((numbers, nodes - self.chains.offsets[sequences] + first))
        return np.asarray(places, np.intp)

    def digest(self) -> dict[str, Any]:
        base = None if self.base is None else {name: digest_array(rows) for name, rows in self.base.items()}
        return digest_texts(self.digest_words(), self.legal) | ({} if base is None else {"base_scores": base})

    def partitions(self, terms: Sequence[Term], features: Mapping[str, Features]) -> Sequence[ChainPartition]:
        return self.partition(terms, rows_of(features)).cut()

    def positions(self, term: Term, features: Features, engine: LocalEngine) -> Places | None:
        if features.basis is None:
            return None
        distinct_rows, indices = self.distinct_rows(term), features.basis.indices
        if indices is None:
            indices = nearest(input_of(term)[1], features.basis.landmarks, distinct_rows.inputs, engine)[0]
        return self.places(distinct_rows.first[indices] // term.k_y.views)


def divide(
    pieces: LabelledSequences, keys: Array, fifths: Ints, n_tokens: int, n_few: int
) -> Sequence[tuple[LabelledSequences, LabelledSequences]]:
    """Divide pieces of sequences into folds for `LabelledSequences.hold_out`, and return the folds.

    All folds together have about `n_tokens` tokens, from the pieces with the smallest keys. If there are few groups,
    the folds have about `n_few` tokens: one piece of each group is taken, then a second piece of each, and so on, so
    that a long sequence does not displace the others.

    pieces, keys, fifths : the pieces, their keys and their fifths, as `LabelledSequences.draw` returns them.
    """
    is_cut = pieces.groups is None and pieces.n_groups < HELD_OUT
    if is_cut:
        # Neighbouring tokens depend on each other, so that a fifth of a sequence is held out as a whole.
        pieces = replace(pieces, groups=HELD_OUT * np.asarray(pieces.chains.numbers) + fifths)
    kept = _smallest(keys, pieces.chains.lengths, n_tokens)
    pieces, keys = pieces.only(kept), keys[kept]
    groups, n_groups = pieces.group_indices()
    if n_groups < FEW:
        order = np.lexsort((keys, groups))
        turn = np.argsort(order) - np.searchsorted(groups[order], groups)
        kept = _smallest(np.argsort(np.lexsort((keys, turn))), pieces.chains.lengths, min(n_tokens, n_few))
        pieces = pieces.only(kept)
        groups, n_groups = pieces.group_indices()
    least = HELD_OUT if is_cut or pieces.groups is None else 2
    return [(pieces.only(~mask[groups]), pieces.only(mask[groups])) for mask in folds(n_groups, least)]


def _smallest(keys: Array, lengths: Ints, n_tokens: int) -> Flags:
    """Return flags that select the pieces with the smallest keys, with about `n_tokens` tokens in total."""
    order = np.argsort(keys, kind="stable")
    kept = np.zeros(len(keys), bool)
    kept[order[: 1 + np.searchsorted(np.cumsum(lengths[order]), n_tokens)]] = True
    return kept


def nearest(
    kernel: InputKernel, landmarks: Inputs, X: Inputs, engine: LocalEngine
) -> tuple[Places, npt.NDArray[np.floating]]:
    """Return, for each landmark b, the index of the nearest row x of X, and k(x, x) - 2 k(b, x) for this row.

    If several rows are equally near, the first of them is returned.
    """

    def nearest_of(rows: slice) -> tuple[Places, npt.NDArray[np.floating]]:
        D = kernel.gram(X[rows], landmarks)
        D *= -2
        D += kernel.diagonal(X[rows])[:, None]
        best = D.argmin(axis=0)
        return rows.start + best, D[best, np.arange(D.shape[1])]

    parts_of_blocks = engine.map(nearest_of, row_blocks(X.shape[0]))
    rows, distances = (np.stack(parts) for parts in zip(*parts_of_blocks, strict=True))
    term, every = distances.argmin(axis=0), np.arange(distances.shape[1])
    return rows[term, every], distances[term, every]
