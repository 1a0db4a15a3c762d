"""The random field of the labels of sequences, given their scores; `models.chain` has the formula of p(y|x)."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from kernelcrf.arrays import Array, Flags, Floats, Labels
from kernelcrf.graphs.structure import Chains
from kernelcrf.inference import chain, decoding
from kernelcrf.inference.chain_messages import ChainMessages
from kernelcrf.inference.feasibility import InfeasibleSequenceError

MOST_EDGE_MARGINALS = 2**22


@dataclass(frozen=True, eq=False)
class ChainField:
    """The random field p(y|x) of the labels y of a batch of sequences x, given their scores.

    The sequences have N tokens in total, and labels are integers from 0 to L - 1. One forward-backward pass serves all
    methods, except `best`, `k_best`, and `log_prob` if `allowed` is given.

    s : token scores of shape (N, L); -inf forbids a label.
    w : transition scores of shape (L, L), or (N, L, L) if they depend on inputs; -inf forbids a transition.
    """

    s: Array
    w: Array
    chains: Chains
    n_threads: int = 1

    @cached_property
    def messages(self) -> ChainMessages:
        """Return the results of the forward-backward algorithm, which runs only once."""
        return ChainMessages.of(self.s, self.w, self.chains, n_threads=self.n_threads)

    def part(self, low: int, high: int) -> ChainField:
        """Return the field of the sequences from `low` to `high` - 1."""
        if (low, high) == (0, self.chains.n_samples):
            return self
        rows = slice(*self.chains.offsets[[low, high]])
        w = self.w if self.w.ndim == 2 else self.w[rows]
        return replace(self, s=self.s[rows], w=w, chains=self.chains.part(low, high))

    def batches(self) -> Iterator[tuple[int, int, ChainField]]:
        """Yield tuples of `low`, `high`, and the field of the sequences from `low` to `high` - 1.

        Each field has so few sequences that its edge marginals take little memory.
        """
        offsets, low = self.chains.offsets, 0
        most = max(1, MOST_EDGE_MARGINALS // self.s.shape[1] ** 2)
        while low < self.chains.n_samples:
            high = max(low + 1, int(np.searchsorted(offsets, offsets[low] + most, side="right")) - 1)
            yield low, high, self.part(low, high)
            low = high

    def replaced(self, s: Array, w: Array) -> ChainField:
        """Return the field of the same sequences with other scores."""
        return replace(self, s=s, w=w)

    def in_float64(self) -> ChainField:
        """Return the field with its scores in float64."""
        if self.s.dtype == self.w.dtype == np.float64:
            return self
        return replace(self, s=self.s.astype(np.float64), w=self.w.astype(np.float64))

    def marginals(self) -> Array:
        """Return the probabilities p(y_t = j | x), with one row per token t and one column per label j."""
        return self.messages.nodes

    def edge_marginals(self) -> Array:
        """Return p(y_{t-1} = i, y_t = j | x) as an array [t, i, j]; it is 0 if t is the first token of a sequence."""
        return self.messages.edge_marginals()

    def best(self) -> Labels:
        """Return the likeliest labelling of each sequence."""
        return decoding.viterbi(self.s, self.w, self.chains, n_threads=self.n_threads)[0]

    def k_best(self, k: int) -> Iterator[list[tuple[Labels, float]]]:
        """Yield the k likeliest labellings of each sequence with their log-probabilities, best first."""
        ranked = decoding.k_best(self.s, self.w, self.chains, k, n_threads=self.n_threads)
        for item, log_z in zip(ranked, self.log_partition(), strict=True):
            yield [(y, float(score - log_z)) for y, score in zip(item.labelings, item.scores, strict=True)]

    def log_partition(self) -> Floats:
        """Return log Z(x), the logarithm of the normalising constant of p(y|x), for each sequence."""
        return self.messages.log_partition

    def log_prob(self, labels: Labels, allowed: Flags | None = None) -> Floats:
        """Return the log-probability of the labels of each sequence.

        If `allowed` is given, return instead the log-probability that all labels of the sequence are allowed. `allowed`
        is a boolean array with one row per token and one column per label; `labels` is then ignored.
        """
        if allowed is None:
            return chain.labelling_scores(self.s, self.w, self.chains, labels) - self.log_partition()
        clamped = replace(self, s=np.where(allowed, self.s, self.s.dtype.type(-np.inf)))
        try:
            log_z = clamped.log_partition()
        except InfeasibleSequenceError:
            log_z = np.array([_log_partition(clamped.part(i, i + 1)) for i in range(self.chains.n_samples)])
        return np.asarray(log_z - self.log_partition())

    def entropy(self) -> Floats:
        """Return the entropy of p(y|x) for each sequence, in nats."""
        return self.messages.entropy()

    def sample(self, n_samples: int, rng: np.random.Generator) -> Labels:
        """Return labels drawn from p(y|x), one row per draw and one column per token."""
        return self.messages.sample(n_samples, rng)


def _log_partition(one: ChainField) -> float:
    """Return the log-partition of one sequence; it is -inf if all labellings are forbidden."""
    try:
        return float(one.log_partition()[0])
    except InfeasibleSequenceError:
        return -np.inf
