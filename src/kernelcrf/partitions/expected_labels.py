"""The expected features of soft labels, which take the place of observed labels in the loss of a chain.

A soft label is a distribution q_t of the label of token t. The tokens of a sequence are independent under q, given that
the labelling keeps the constraints:

    q(y) proportional to prod_t q_t(y_t) [y is allowed].

Let Phi(y) be the joint features of a labelling, so that its score is <Phi(y), theta>, and log Z the log-partition of
the scores. The loss of a sequence is the cross-entropy of q and p,

    -sum_y q(y) log p(y|x) = log Z - <E_q Phi, theta> = log Z - sum_t <n_t, s_t> - sum_{t>1} <e_t, w_t>,

where s_t and w_t are the scores of labels and steps, n_t are the probabilities of labels under q, and e_t those of
steps. Without constraints, n_t = q_t and e_t(i, j) = q_{t-1}(i) q_t(j). With constraints, one forward-backward pass
with the scores log q_t gives both.

The loss is log Z minus a linear function, as for observed labels, so that it is convex, and its Hessian is the same.
Its gradient is E_p Phi - E_q Phi. Fenchel's inequality for log Z gives the same lower bound on the objective as for
observed labels (the module `certificate` has it), with E_q Phi in place of the features of the observed labelling.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from kernelcrf.arrays import Array, Floats
from kernelcrf.graphs.structure import EDGE, Chains, Legal
from kernelcrf.inference.batch import Batch
from kernelcrf.inference.tangents import Linearisation


@dataclass(frozen=True, eq=False)
class ExpectedLabels:
    """The probabilities of labels and steps under soft labels; N tokens and L labels.

    q : (N, L), the soft label of each token.
    legal : the labellings that constraints permit, or None if there are no constraints.
    weights : the weight of each sequence, or None if all weights are 1.
    """

    chains: Chains
    q: Floats
    legal: Legal | None = None
    weights: Floats | None = None

    @cached_property
    def nodes(self) -> Floats:
        """Return the probability of each label of each token, (N, L)."""
        return self.q if self.legal is None else np.asarray(self._constrained.moments.nodes)

    @cached_property
    def steps(self) -> Floats:
        """Return the expected number of each step [from, to], (L, L); sequences count with their weights."""
        if self.legal is not None:
            return self._constrained.moments.edges
        before, into = self.chains.cliques(EDGE).T
        weights = np.ones(len(into)) if self.weights is None else np.repeat(self.weights, self.chains.lengths)[into]
        return np.asarray((self.q[before] * weights[:, None]).T @ self.q[into])

    @cached_property
    def edges(self) -> Floats:
        """Return the probability of each step to each token, (N, L, L); it is 0 for the first token of a sequence."""
        if self.legal is not None:
            return np.asarray(Linearisation.of(self._constrained.batch, 1, keep=False, summed=False).moments.edges)
        before, into = self.chains.cliques(EDGE).T
        edges = np.zeros((*self.q.shape, self.q.shape[1]))
        edges[into] = self.q[before][:, :, None] * self.q[into][:, None, :]
        return edges

    def total(self, s: Array, w: Array) -> float:
        """Return the sum of the expected scores of all sequences, each times the weight of the sequence.

        s, w : the scores of labels and of steps; -inf for labels and steps that constraints forbid. If w is empty,
            there are no scores of steps.
        """
        if w.ndim == 3:
            scores = self.scores(s, w)
            return float(scores.sum() if self.weights is None else np.dot(self.weights, scores))
        of_tokens = np.einsum("tj,tj->t", self.nodes, _finite(s))
        weights = 1.0 if self.weights is None else np.repeat(self.weights, self.chains.lengths)
        return float((weights * of_tokens).sum()) + (float(np.vdot(self.steps, _finite(w))) if w.size else 0.0)

    def scores(self, s: Array, w: Array) -> Floats:
        """Return the expected score of each sequence; `total` explains s and w."""
        of_tokens = np.einsum("tj,tj->t", self.nodes, _finite(s))
        if w.ndim == 2 and w.size and self.legal is None:
            before, into = self.chains.cliques(EDGE).T
            of_tokens[into] += np.einsum("tj,tj->t", self.q[before] @ _finite(w), self.q[into])
        elif w.size:
            of_tokens += np.einsum("tij,ij->t" if w.ndim == 2 else "tij,tij->t", self.edges, _finite(w))
        samples = np.repeat(np.arange(self.chains.n_samples), self.chains.lengths)
        return np.bincount(samples, of_tokens, minlength=self.chains.n_samples).astype(np.float64)

    @cached_property
    def _constrained(self) -> Linearisation:
        """Return the probabilities of labels and steps under the constraints.

        Raise InfeasibleSequenceError if the constraints forbid all labellings that have a positive probability.
        """
        assert self.legal is not None
        with np.errstate(divide="ignore"):
            s, w = self.legal.impose(self.chains, np.log(self.q), np.zeros((self.q.shape[1],) * 2))
        return Linearisation.of(Batch(s, w, self.chains, self.weights), 1, keep=False)


def _finite(scores: Array) -> Floats:
    """Return scores in float64, with 0 in place of -inf: labels and steps that are forbidden have the probability 0."""
    return np.where(np.isfinite(scores), scores, 0.0).astype(np.float64, copy=False)
