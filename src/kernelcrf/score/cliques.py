"""Kinds of cliques: the nodes of a clique, and the array of scores to which a term on such cliques is added.

The scores of the samples are a few arrays with names, each with one row per clique and one column per joint labelling.
A kind of cliques has the name of one of these arrays, and knows the rows of its cliques. Terms of different kinds may
share an array: biases of all tokens, and scores of the first token of each sequence, are both added to the scores of
tokens. Other modules read the properties of a kind. A new kind is therefore defined only here, and in the inference
that reads its array.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from kernelcrf.arrays import Array, Flags, Ints
from kernelcrf.graphs.structure import Chains
from kernelcrf.inference.segments import Observed
from kernelcrf.score.chain_names import ENDS as ENDS
from kernelcrf.score.chain_names import STARTS as STARTS
from kernelcrf.score.chain_names import STEPS as STEPS
from kernelcrf.score.chain_names import TOKENS as TOKENS

# Further kinds of segmentations: the first and the last token of each segment, its duration, its tokens beyond the
# longest duration, and the segment as a whole.
FIRSTS, LASTS, DURATIONS, TAILS, SEGMENTS = "firsts", "lasts", "durations", "tails", "segments"
# Kinds of graphs. Graphs with types, and cliques that users name, have further kinds.
NODES, EDGES, EDGE_INPUTS, SKIPS, PATHS = "nodes", "edges", "edge inputs", "skips", "paths"


class Nodes(Protocol):
    """Protocol of objects that know the rows of the tokens of sequences, such as `Chains`."""

    @property
    def all_nodes(self) -> slice:
        """Return the rows of all tokens."""

    @property
    def first_nodes(self) -> Ints | slice:
        """Return the row of the first token of each sequence."""

    @property
    def last_nodes(self) -> Ints | slice:
        """Return the row of the last token of each sequence."""


@dataclass(frozen=True)
class Clique:
    """A kind of cliques.

    name : the name of the kind, also in model files.
    array : the name of the array of scores to which terms on these cliques add. By default, it is the name of the kind.
    nodes : the attribute of `Chains` that has the rows of these cliques in the array.
    input : the name to use for an input of these cliques if the user gave the input no name.
    is_step : whether a clique is a pair of neighbours in a sequence.
    is_summed : whether inference computes only the sum of the probabilities of these cliques over all samples.
    """

    name: str
    array: str = ""
    nodes: str = "all_nodes"
    input: str = TOKENS
    is_step: bool = False
    is_summed: bool = False

    def __post_init__(self) -> None:
        object.__setattr__(self, "array", self.array or self.name)

    @property
    def is_token(self) -> bool:
        """Return whether each token of a sequence is a clique of this kind."""
        return self.array == TOKENS and self.nodes == "all_nodes"

    @property
    def is_last(self) -> bool:
        """Return whether only the last token of a sequence is a clique of this kind."""
        return self.nodes == "last_nodes"

    @property
    def is_single(self) -> bool:
        """Return whether each clique of this kind is a single token of a sequence."""
        return self.array == TOKENS

    @property
    def has_token_inputs(self) -> bool:
        """Return whether a clique may read the input of a token; for a step, this is its second token."""
        return self.array in (TOKENS, STEPS)

    @property
    def is_segment(self) -> bool:
        """Return whether a clique is a whole segment; inputs then have one row per candidate segment."""
        return self.input == SEGMENTS

    def rows(self, chains: Nodes) -> Ints | slice:
        """Return the rows of these cliques in the array of scores."""
        rows: Ints | slice = getattr(chains, self.nodes)
        return rows

    def covers(self, chains: Chains) -> Flags:
        """Return, for each token, whether a clique of this kind ends at the token."""
        covered = np.zeros(chains.n_nodes, bool)
        covered[self.rows(chains)] = True
        if self.is_step:
            covered[chains.first_nodes] = False
        return covered

    def segment_rows(self, segments: Observed, candidates: Ints) -> Ints:
        """Return, for each observed segment, the row of the input that a term on these cliques reads.

        candidates : the result of `inference.segments.candidate_rows`.
        """
        if self.is_segment:
            longest = np.diff(candidates)[segments.starts]
            return np.asarray(candidates[segments.starts] + np.minimum(segments.durations, longest) - 1)
        return segments.starts if self.name == FIRSTS else segments.ends - 1

    def add(self, arrays: Mapping[str, Array], scores: Array, chains: Nodes) -> None:
        """Add scores to the array of this kind.

        The scores have one row per clique, one row per row of the array, or a single row for all cliques. The array may
        have several axes in the place of its rows.
        """
        target, rows = arrays[self.array], self.rows(chains)
        if len(scores) == len(target) != 1:
            scores = scores[rows]
        target[rows] += scores.reshape(target.shape) if len(scores) != 1 and target.ndim > 2 else scores

    def take_all(self, arrays: Mapping[str, Array], chains: Nodes) -> Array:
        """Return all rows of the array of this kind, with 0 in rows that do not belong to these cliques."""
        rows = self.rows(chains)
        if isinstance(rows, slice):
            return self.take(arrays, chains)
        whole = np.zeros_like(arrays[self.array])
        whole[rows] = arrays[self.array][rows]
        return whole

    def take(self, arrays: Mapping[str, Array], chains: Nodes) -> Array:
        """Return the rows of the array of this kind that belong to these cliques, one row per clique."""
        rows = arrays[self.array][self.rows(chains)]
        return rows if rows.ndim == 2 else rows.reshape(-1, rows.shape[-1])


NO_CHAINS = Chains.from_lengths([])
"""No sequences, for terms of rows and of graphs, all of whose cliques have a row in the array of scores."""

KINDS = {
    kind.name: kind
    for kind in (
        Clique(TOKENS),
        Clique(STEPS, is_step=True, is_summed=True),
        Clique(STARTS, TOKENS, "first_nodes"),
        Clique(ENDS, TOKENS, "last_nodes"),
        Clique(FIRSTS),
        Clique(LASTS),
        Clique(DURATIONS, is_summed=True),
        Clique(TAILS, is_summed=True),
        Clique(SEGMENTS, input=SEGMENTS),
    )
}
"""The kinds of cliques of sequences and segmentations, by name."""

OF_INPUTS = tuple(name for name, kind in KINDS.items() if kind.has_token_inputs)
"""The names of the kinds of cliques that inputs of a user may score."""
OF_SINGLE_LABELS = tuple(name for name in OF_INPUTS if KINDS[name].is_single)
"""The names of those kinds that have the label of one token."""


def kind_of(name: str) -> Clique:
    """Return the kind of cliques called `name`; a name that is not in `KINDS` is a template of graphs."""
    return KINDS.get(name) or Clique(name)


def arrays_of(kinds: Iterable[Clique]) -> set[str]:
    """Return the names of the arrays to which the given kinds add."""
    return {kind.array for kind in kinds}
