"""The distribution of the labels of sequences that a chain predicts; `models.chain` has the formula of p(y|x)."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np

from kernelcrf.arrays import Array, Flags, Floats, Labels
from kernelcrf.graphs.structure import Chains
from kernelcrf.inference import chain, decoding
from kernelcrf.inference.feasibility import InfeasibleSequenceError

MOST_EDGE_MARGINALS = 2**22


@dataclass(frozen=True, eq=False)
class ChainDistribution:
    """The distribution p(y|x) of the labels y of a batch of sequences x with N tokens in total.

    Labels are integers from 0 to L - 1.

    s : token scores of shape (N, L); -inf forbids a label.
    w : transition scores of shape (L, L), or (N, L, L) if they depend on inputs; -inf forbids a transition.
    """

    s: Array
    w: Array
    chains: Chains
    n_threads: int = 1

    def part(self, low: int, high: int) -> ChainDistribution:
        """Return the distribution of the sequences from `low` to `high` - 1."""
        rows = slice(*self.chains.offsets[[low, high]])
        w = self.w if self.w.ndim == 2 else self.w[rows]
        return replace(self, s=self.s[rows], w=w, chains=self.chains.part(low, high))

    def batches(self) -> Iterator[tuple[int, int, ChainDistribution]]:
        """Yield the distribution of a few sequences at a time, from `low` to `high` - 1, with few edge marginals."""
        offsets, low = self.chains.offsets, 0
        most = max(1, MOST_EDGE_MARGINALS // self.s.shape[1] ** 2)
        while low < self.chains.n_samples:
            high = max(low + 1, int(np.searchsorted(offsets, offsets[low] + most, side="right")) - 1)
            yield low, high, self.part(low, high)
            low = high

    def marginals(self) -> Array:
        """Return the probabilities p(y_t = j | x), with one row per token t and one column per label j."""
        return chain.moments(self.s, self.w, self.chains, n_threads=self.n_threads).nodes

    def edge_marginals(self) -> Array:
        """Return p(y_{t-1} = i, y_t = j | x) as an array [t, i, j]; it is 0 if t is the first token of a sequence."""
        return chain.edge_marginals(self.s, self.w, self.chains, n_threads=self.n_threads)

    def best(self, rule: str = "viterbi") -> Array:
        """Return the likeliest labelling of each sequence; for rule="marginal", the likeliest label of each token."""
        if rule == "marginal":
            return np.asarray(self.marginals().argmax(axis=1))
        return decoding.viterbi(self.s, self.w, self.chains, n_threads=self.n_threads)[0]

    def k_best(self, k: int) -> Iterator[list[tuple[Labels, float]]]:
        """Yield the k likeliest labellings of each sequence with their log-probabilities, best first."""
        ranked = decoding.k_best(self.s, self.w, self.chains, k, n_threads=self.n_threads)
        for item, log_z in zip(ranked, self.log_partition(), strict=True):
            yield [(y, float(score - log_z)) for y, score in zip(item.labelings, item.scores, strict=True)]

    def log_partition(self) -> Floats:
        """Return log Z(x), the logarithm of the normalising constant of p(y|x), for each sequence."""
        return chain.log_partition(self.s, self.w, self.chains, n_threads=self.n_threads)

    def log_prob(self, labels: Labels, allowed: Flags | None = None) -> Floats:
        """Return the log-probability of the labels of each sequence.

        If `allowed` is given, return instead the log-probability that all labels of the sequence are allowed. `allowed`
        is a boolean array with one row per token and one column per label; `labels` is then ignored.
        """
        if allowed is None:
            return chain.log_prob(self.s, self.w, self.chains, labels, n_threads=self.n_threads)
        clamped = replace(self, s=np.where(allowed, self.s, self.s.dtype.type(-np.inf)))
        try:
            log_z = clamped.log_partition()
        except InfeasibleSequenceError:
            log_z = np.array([_log_partition(clamped.part(i, i + 1)) for i in range(self.chains.n_samples)])
        return np.asarray(log_z - self.log_partition())

    def entropy(self) -> Floats:
        """Return the entropy of p(y|x) for each sequence, in nats."""
        return chain.entropy(self.s, self.w, self.chains, n_threads=self.n_threads)

    def sample(self, n_samples: int, rng: np.random.Generator) -> Array:
        """Return labels drawn from p(y|x), one row per draw and one column per token."""
        return decoding.sample(self.s, self.w, self.chains, n_samples, rng, n_threads=self.n_threads)


def _log_partition(one: ChainDistribution) -> float:
    """Return the log-partition of one sequence, which is -inf if all its labellings are forbidden."""
    try:
        return float(one.log_partition()[0])
    except InfeasibleSequenceError:
        return -np.inf
