"""Define the cliques of a sample (nodes that are scored together) and templates (cliques that share a potential).

The nodes of all samples are stored one after the other: arrays have one row per node, and sample i has the rows
`offsets[i]:offsets[i+1]`. The score of a labelling is a sum over cliques (equation 8 of the paper). All cliques of a
template share one potential, which is a function that scores the labels of a clique (equations 25 to 27).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from ..arrays import Array, Flags, Ints
from ..validation import shown


@dataclass(frozen=True)
class Template:
    """A family of cliques whose labels are scored by the same function; each clique has `arity` nodes."""

    name: str
    arity: int


NODE = Template("node", 1)
EDGE = Template("edge", 2)


def _never_decreases(offsets: Ints) -> bool:
    # A single sequence is common if a model tags one sentence at a time, and needs no vectors.
    return bool(offsets[0] <= offsets[1] if offsets.size == 2 else (offsets[1:] >= offsets[:-1]).all())


@dataclass(frozen=True)
class Chains:
    """A batch of m sequences, stored one after the other. Its cliques are the tokens and pairs of neighbouring tokens.

    offsets : (m + 1,), the row of the first token of each sequence, followed by the total number of tokens.
    numbers : (m,), the index of each sequence in the user's data, for error messages; None means 0 to m - 1.
    """

    offsets: Ints
    numbers: Ints | None = None

    def __post_init__(self) -> None:
        offsets = np.ascontiguousarray(self.offsets, dtype=np.int64)
        if offsets.ndim != 1 or offsets.size == 0 or offsets[0] != 0 or not _never_decreases(offsets):
            raise ValueError(
                f"offsets={shown(self.offsets)}: expected a 1-D array that starts at 0 and never decreases, with "
                "one entry more than there are sequences; to make it from lengths, use Chains.from_lengths"
            )
        object.__setattr__(self, "offsets", offsets)

    @classmethod
    def from_lengths(cls, lengths: Sequence[int] | Array) -> Chains:
        """Return chains with the given numbers of tokens; a length of 0 is an empty sequence."""
        offsets = np.zeros(len(lengths) + 1, np.int64)
        np.asarray(lengths, np.int64).cumsum(out=offsets[1:])
        return cls(offsets)

    def part(self, low: int, high: int) -> Chains:
        """Return the sequences from `low` to `high` - 1; errors still name them by their index in the user's data."""
        numbers = np.arange(low, high) if self.numbers is None else self.numbers[low:high]
        return Chains(self.offsets[low : high + 1] - self.offsets[low], numbers)

    def only(self, kept: Flags) -> Chains:
        """Return the sequences for which `kept` is True; errors still name them by their index in the user's data."""
        numbers = np.flatnonzero(kept) if self.numbers is None else self.numbers[kept]
        return replace(Chains.from_lengths(self.lengths[kept]), numbers=numbers)

    def number(self, sample: int) -> int:
        """Return the index of a sequence in the user's data."""
        return int(sample if self.numbers is None else self.numbers[sample])

    def place(self, node: int) -> str:
        """Return the text "sequence i, token t" for a row of the batch, for error messages."""
        sample = int(np.searchsorted(self.offsets, node, side="right")) - 1
        return f"sequence {self.number(sample)}, token {node - self.offsets[sample]}"

    @property
    def n_samples(self) -> int:
        """Return the number of sequences."""
        return self.offsets.size - 1

    @property
    def n_nodes(self) -> int:
        """Return the number of tokens of all sequences."""
        return int(self.offsets[-1])

    @property
    def lengths(self) -> Ints:
        """Return the number of tokens of each sequence."""
        return np.diff(self.offsets)

    def cliques(self, template: Template) -> Ints:
        """Return the cliques of a template, one row per clique: single tokens, or pairs of neighbouring tokens."""
        if template == NODE:
            return np.arange(self.n_nodes)[:, None]
        if template == EDGE:
            inner = np.ones(self.n_nodes, dtype=bool)
            inner[self.first_nodes] = False
            into = np.flatnonzero(inner)
            return np.column_stack((into - 1, into))
        raise ValueError(f"template={template!r}: expected {NODE} or {EDGE}, the templates of chains")

    @property
    def all_nodes(self) -> slice:
        """Return the rows of all tokens."""
        return slice(None)

    @property
    def first_nodes(self) -> Ints:
        """Return the row of the first token of each sequence that is not empty."""
        return self.offsets[:-1][self.lengths > 0]

    @property
    def last_nodes(self) -> Ints:
        """Return the row of the last token of each sequence that is not empty."""
        return self.offsets[1:][self.lengths > 0] - 1

    def runs(self, n_nodes: int, low: int = 0, high: int | None = None) -> Iterator[tuple[int, int]]:
        """Split the sequences `low` to `high` - 1 into groups of consecutive sequences.

        Yield a pair for each group: the index of its first sequence, and the index after its last sequence. A group
        has at most `n_nodes` tokens, unless it is a single longer sequence.
        """
        high = self.n_samples if high is None else high
        while low < high:
            end = int(np.searchsorted(self.offsets, self.offsets[low] + n_nodes, side="right")) - 1
            end = min(max(end, low + 1), high)
            yield low, end
            low = end


@dataclass(frozen=True)
class OpenChain:
    """Some tokens of a sequence that goes on: none of them is known to be its last token.

    begins : whether the first of these tokens is the first token of the sequence.
    """

    n_nodes: int
    begins: bool

    @property
    def lengths(self) -> Ints:
        """Return the number of tokens, as an array with one entry."""
        return np.array([self.n_nodes])

    @property
    def all_nodes(self) -> slice:
        """Return the rows of all tokens."""
        return slice(None)

    @property
    def first_nodes(self) -> Ints:
        """Return the row of the first token of the sequence, if it is one of these tokens."""
        return np.zeros(int(self.begins and self.n_nodes > 0), np.int64)

    @property
    def last_nodes(self) -> Ints:
        """Return no row."""
        return np.empty(0, np.int64)


@dataclass(frozen=True, eq=False)
class Legal:
    """Constraints on the labels of sequences, as boolean arrays; L is the number of labels.

    steps : (L, L), indexed [from, to], whether one label may directly follow another.
    first, last : (L,), whether a sequence may start with each label, and whether it may end with each label.
    """

    steps: Flags
    first: Flags
    last: Flags

    def impose(self, chains: Chains, s: Array, w: Array) -> tuple[Array, Array]:
        """Return copies of the label scores s and the step scores w, with -inf for illegal labels and steps."""
        s = s.copy()
        s[chains.first_nodes] = np.where(self.first, s[chains.first_nodes], -np.inf)
        s[chains.last_nodes] = np.where(self.last, s[chains.last_nodes], -np.inf)
        return s, np.where(self.steps, w, w.dtype.type(-np.inf))

    def anywhere(self) -> Legal:
        """Return constraints for parts of sequences: the same steps are legal, and any label may be first or last."""
        every = np.ones_like(self.first)
        return Legal(self.steps, every, every)

    def allows(self, chains: Chains, labels: Array) -> Flags:
        """Return for each token whether its label is legal at its place; missing labels (-1) are always legal."""
        y = np.asarray(labels, np.intp)
        broken = np.zeros(chains.n_nodes, bool)
        broken[chains.first_nodes] |= ~self.first[y[chains.first_nodes]] & (y[chains.first_nodes] >= 0)
        broken[chains.last_nodes] |= ~self.last[y[chains.last_nodes]] & (y[chains.last_nodes] >= 0)
        before, into = chains.cliques(EDGE).T
        broken[into] |= ~self.steps[y[before], y[into]] & (y[before] >= 0) & (y[into] >= 0)
        return ~broken


@dataclass(frozen=True, eq=False)
class Graph:
    """A graph whose nodes have labels. Each clique has a table with one score per joint labelling of its nodes.

    cards : the number of labels of each node.
    cliques : a mapping from the name of each template to its cliques, an array with one row of node indices per clique.
        All cliques of a template must have tables of the same shape.
    samples : the index of the sample that each node belongs to, if the graph contains several samples, otherwise None.

    The tables of all cliques are stored one after the other, template by template, in arrays with `n_entries` columns.
    Within a table, the label of the clique's last node varies fastest.
    """

    cards: Ints
    cliques: Mapping[str, Ints]
    samples: Ints | None = None

    def __post_init__(self) -> None:
        cards = np.asarray(self.cards, np.int64)
        if cards.ndim != 1 or (cards < 1).any():
            raise ValueError(
                f"cards={shown(self.cards)}: expected a 1-D array with the number of labels of each node, at least 1"
            )
        object.__setattr__(self, "cards", cards)
        members = {name: np.atleast_2d(np.asarray(nodes, np.int64)) for name, nodes in self.cliques.items()}
        object.__setattr__(self, "cliques", members)
        for name, nodes in members.items():
            self._check(name, nodes)

    def _check(self, name: str, nodes: Ints) -> None:
        if nodes.size and not (nodes.min() >= 0 and nodes.max() < len(self.cards)):
            raise ValueError(
                f"cliques of template {name!r} contain nodes from {nodes.min()} to {nodes.max()}: "
                f"expected node indices from 0 to {len(self.cards) - 1}"
            )
        ranked = np.sort(nodes, axis=1)
        twice = np.flatnonzero((ranked[:, 1:] == ranked[:, :-1]).any(axis=1))
        if twice.size:
            raise ValueError(
                f"clique {tuple(nodes[twice[0]].tolist())} of template {name!r} has a node twice: "
                "expected different nodes"
            )
        if (self.cards[nodes] != self.cards[nodes[:1]]).any():
            raise ValueError(
                f"cliques of template {name!r} differ in the numbers of labels of their nodes: expected tables of the "
                "same shape for all cliques of a template; use a separate template for each shape"
            )

    @property
    def n_nodes(self) -> int:
        """Return the number of nodes."""
        return len(self.cards)

    @cached_property
    def n_samples(self) -> int:
        """Return the number of samples that the graph contains."""
        return 1 if self.samples is None else int(self.samples.max(initial=-1)) + 1

    @cached_property
    def node_samples(self) -> Ints:
        """Return the index of the sample that each node belongs to."""
        return np.zeros(self.n_nodes, np.int64) if self.samples is None else self.samples

    @cached_property
    def node_starts(self) -> Ints:
        """Return the position of each node's first label if the labels of all nodes are written as one list.

        The last entry of the result is the length of this list.
        """
        return np.concatenate(([0], np.cumsum(self.cards)))

    def shape(self, name: str) -> tuple[int, ...]:
        """Return the shape of a template's tables: the number of labels of each node of a clique."""
        nodes = self.cliques[name]
        return tuple(self.cards[nodes[0]].tolist()) if len(nodes) else (1,) * nodes.shape[1]

    @cached_property
    def slices(self) -> dict[str, slice]:
        """Return a dict from the name of each template to the slice of columns that contains its tables."""
        low, slices = 0, {}
        for name, nodes in self.cliques.items():
            high = low + len(nodes) * int(np.prod(self.shape(name)))
            slices[name] = slice(low, high)
            low = high
        return slices

    @property
    def n_entries(self) -> int:
        """Return the total number of entries in the tables of all cliques."""
        return max((part.stop for part in self.slices.values()), default=0)

    def chosen(self, labels: Array) -> Ints:
        """Return, for each clique, the index of the table entry that the given labels select.

        The index counts the entries of all tables, which are stored one after the other.

        labels : one row per labelling and one column per node.

        The result has one row per labelling and one column per clique.
        """
        columns = [np.empty((len(labels), 0), np.int64)]
        for name, nodes in self.cliques.items():
            shape = self.shape(name)
            strides = np.append(np.cumprod(np.array(shape[:0:-1], np.int64))[::-1], 1)[-len(shape) :]
            starts = self.slices[name].start + int(np.prod(shape)) * np.arange(len(nodes))
            columns.append(starts + labels[:, nodes].astype(np.int64) @ strides)
        return np.concatenate(columns, axis=1)

    @cached_property
    def clique_samples(self) -> Ints:
        """Return the index of the sample that each clique belongs to, in the order of the columns of `chosen`."""
        samples = [self.node_samples[nodes[:, 0]] for nodes in self.cliques.values()]
        return np.concatenate([np.empty(0, np.int64), *samples])
