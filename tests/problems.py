"""Random chain problems for property tests, and their enumeration."""

from dataclasses import dataclass

import numpy as np
from hypothesis import strategies as st

from kernelcrf.graphs.structure import EDGE, NODE, Chains
from kernelcrf.inference.enumerate import enumerate_labelings, factors


@dataclass(frozen=True)
class Problem:
    scores: np.ndarray
    transitions: np.ndarray
    chains: Chains

    @property
    def arguments(self):
        return self.scores, self.transitions, self.chains

    @property
    def tied(self):
        return self.transitions.ndim == 2

    def rows(self, sample):
        return slice(*self.chains.offsets[sample : sample + 2])

    def tables(self, scores, transitions):
        return {NODE: scores, EDGE: transitions if self.tied else transitions[self.chains.cliques(EDGE)[:, 1]]}

    def enumerations(self):
        """(sample, its rows, its enumeration) of every sequence."""
        tables = self.tables(self.scores, self.transitions)
        for sample, length in enumerate(self.chains.lengths):
            sample_factors = factors(self.chains, sample, tables)
            yield sample, self.rows(sample), enumerate_labelings(length, self.scores.shape[1], sample_factors)


def random_problem(rng, n_labels, lengths, *, tied=True, scale=1.0, forbid=0.0, gauge=0.0):
    """Scores of a given scale; some labels and steps forbidden, but never all labelings of a sequence.

    A gauge moves a potential phi_j from the nodes into the edges, s_t(j) - phi_j and w_t(i, j) + phi_j, which leaves
    the distribution as it is: a large one is beyond what scaled messages can represent.
    """
    chains = Chains.from_lengths(lengths)
    n_nodes = chains.n_nodes
    scores = scale * rng.normal(size=(n_nodes, n_labels))
    transitions = scale * rng.normal(size=(n_labels, n_labels) if tied else (n_nodes, n_labels, n_labels))
    scores[rng.random(scores.shape) < forbid] = -np.inf
    transitions[rng.random(transitions.shape) < forbid] = -np.inf
    allowed = rng.integers(n_labels, size=n_nodes)
    scores[np.arange(n_nodes), allowed] = scale * rng.normal(size=n_nodes)
    for before, node in chains.cliques(EDGE):
        place = (allowed[before], allowed[node])
        transitions[place if tied else (node, *place)] = scale * rng.normal()
    if gauge:
        phi = gauge * rng.uniform(-1, 1, size=n_labels)
        inner = np.setdiff1d(np.arange(n_nodes), chains.first_nodes)
        scores[inner] -= phi
        transitions += phi
    return Problem(scores, transitions, chains)


@st.composite
def chain_problems(draw, max_labels=5, max_length=7, max_sequences=4):
    return random_problem(
        np.random.default_rng(draw(st.integers(0, 2**32 - 1))),
        draw(st.integers(1, max_labels)),
        draw(st.lists(st.integers(0, max_length), min_size=1, max_size=max_sequences)),
        tied=draw(st.booleans()),
        scale=draw(st.sampled_from([0.3, 1.0, 4.0])),
        forbid=draw(st.sampled_from([0.0, 0.3, 0.7])),
        gauge=draw(st.sampled_from([0.0, 0.0, 600.0])),
    )
