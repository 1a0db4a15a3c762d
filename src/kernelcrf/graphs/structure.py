"""The cliques of samples, and the templates that they belong to (25)-(27).

A batch of samples stores its nodes one after the other: arrays of nodes have N rows, and sample i has the rows
`offsets[i]:offsets[i+1]`. The score of a labelling is a sum over cliques (8), and cliques of one template share one
potential (27).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from kernelcrf.arrays import Array, Flags, Ints
from kernelcrf.validation import shown


@dataclass(frozen=True)
class Template:
    """A family of cliques with `arity` label nodes each that share one potential."""

    name: str
    arity: int


NODE = Template("node", 1)
EDGE = Template("edge", 2)


@dataclass(frozen=True)
class Chains:
    """A ragged batch of m chains: node cliques (t,) and edge cliques (t-1, t) as in (25).

    numbers : (m,), the index of each sequence in the user's data, for error messages; None means 0 .. m - 1.
    """

    offsets: Ints
    numbers: Ints | None = None

    def __post_init__(self) -> None:
        offsets = np.ascontiguousarray(self.offsets, dtype=np.int64)
        if offsets.ndim != 1 or offsets.size == 0 or offsets[0] != 0 or (offsets[1:] < offsets[:-1]).any():
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
        """Return the sequences low .. high - 1, with their numbers in the user's data."""
        numbers = np.arange(low, high) if self.numbers is None else self.numbers[low:high]
        return Chains(self.offsets[low : high + 1] - self.offsets[low], numbers)

    def only(self, kept: Flags) -> Chains:
        """Return the sequences where `kept` (m,) is true, with their numbers in the user's data."""
        numbers = np.flatnonzero(kept) if self.numbers is None else self.numbers[kept]
        return replace(Chains.from_lengths(self.lengths[kept]), numbers=numbers)

    def number(self, sample: int) -> int:
        """Return the index of a sequence in the user's data."""
        return int(sample if self.numbers is None else self.numbers[sample])

    def place(self, node: int) -> str:
        """Return a text for messages that says to which sequence and token a node belongs."""
        sample = int(np.searchsorted(self.offsets, node, side="right")) - 1
        return f"sequence {self.number(sample)}, token {node - self.offsets[sample]}"

    @property
    def n_samples(self) -> int:
        """Return m, the number of sequences."""
        return self.offsets.size - 1

    @property
    def n_nodes(self) -> int:
        """Return N, the number of tokens."""
        return int(self.offsets[-1])

    @property
    def lengths(self) -> Ints:
        """Return the number of tokens of each sequence, (m,)."""
        return np.diff(self.offsets)

    def cliques(self, template: Template) -> Ints:
        """Return the nodes of each clique: tokens (N, 1), or pairs of neighbours, (N - m, 2) if no chain is empty."""
        if template == NODE:
            return np.arange(self.n_nodes)[:, None]
        if template == EDGE:
            inner = np.ones(self.n_nodes, dtype=bool)
            inner[self.first_nodes] = False
            into = np.flatnonzero(inner)
            return np.column_stack((into - 1, into))
        raise ValueError(f"template={template!r}: expected {NODE} or {EDGE}, the templates of chains")

    @property
    def first_nodes(self) -> Ints:
        """Return the first token of each sequence that is not empty."""
        return self.offsets[:-1][self.lengths > 0]

    @property
    def last_nodes(self) -> Ints:
        """Return the last token of each sequence that is not empty."""
        return self.offsets[1:][self.lengths > 0] - 1

    def runs(self, n_nodes: int, low: int = 0, high: int | None = None) -> Iterator[tuple[int, int]]:
        """Split sequences into runs of at most `n_nodes` tokens in total and yield (first, end) of each run.

        A sequence with more tokens is a run of its own.
        """
        high = self.n_samples if high is None else high
        while low < high:
            end = int(np.searchsorted(self.offsets, self.offsets[low] + n_nodes, side="right")) - 1
            end = min(max(end, low + 1), high)
            yield low, end
            low = end


@dataclass(frozen=True, eq=False)
class Legal:
    """The legal labelings of chains: steps (L, L) [from, to], first labels (L,) and last labels (L,)."""

    steps: Flags
    first: Flags
    last: Flags

    def impose(self, chains: Chains, s: Array, w: Array) -> tuple[Array, Array]:
        """Return node scores (N, L) and edge scores, with -inf for labels and steps that are not legal."""
        s = s.copy()
        s[chains.first_nodes] = np.where(self.first, s[chains.first_nodes], -np.inf)
        s[chains.last_nodes] = np.where(self.last, s[chains.last_nodes], -np.inf)
        return s, np.where(self.steps, w, w.dtype.type(-np.inf))

    def allows(self, chains: Chains, labels: Array) -> Flags:
        """Return whether the labelling of each sequence is legal, (m,); a missing label (-1) is always legal."""
        y = np.asarray(labels, np.intp)
        broken = np.zeros(chains.n_nodes, bool)
        broken[chains.first_nodes] |= ~self.first[y[chains.first_nodes]] & (y[chains.first_nodes] >= 0)
        broken[chains.last_nodes] |= ~self.last[y[chains.last_nodes]] & (y[chains.last_nodes] >= 0)
        before, into = chains.cliques(EDGE).T
        broken[into] |= ~self.steps[y[before], y[into]] & (y[before] >= 0) & (y[into] >= 0)
        samples = np.repeat(np.arange(chains.n_samples), chains.lengths)
        return np.asarray(np.bincount(samples[broken], minlength=chains.n_samples) == 0)


@dataclass(frozen=True, eq=False)
class Graph:
    """A graph of label nodes: node v has cards[v] labels, and `cliques` maps each template to its cliques (K, arity).

    All cliques of a template have the same numbers of labels, so that their tables have one shape. The tables of all
    cliques are stored one after the other, template by template: `n_entries` numbers, in which the label of a clique's
    last node varies fastest. If the graph is a union, `samples` (V,) gives the sample of each node.
    """

    cards: Ints
    cliques: Mapping[str, Ints]
    samples: Ints | None = None

    def __post_init__(self) -> None:
        cards = np.asarray(self.cards, np.int64)
        if cards.ndim != 1 or (cards < 1).any():
            raise ValueError(f"cards={shown(self.cards)}: expected the number of labels of each node, at least 1")
        object.__setattr__(self, "cards", cards)
        members = {name: np.atleast_2d(np.asarray(nodes, np.int64)) for name, nodes in self.cliques.items()}
        object.__setattr__(self, "cliques", members)
        for name, nodes in members.items():
            self._check(name, nodes)

    def _check(self, name: str, nodes: Ints) -> None:
        if nodes.size and not (nodes.min() >= 0 and nodes.max() < len(self.cards)):
            raise ValueError(
                f"cliques of template {name!r} have nodes from {nodes.min()} to {nodes.max()}: "
                f"expected 0 to {len(self.cards) - 1}"
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
                f"cliques of template {name!r} differ in their numbers of labels: expected tables of the same shape; "
                "use one template for each shape"
            )

    @property
    def n_nodes(self) -> int:
        """Return V, the number of label nodes."""
        return len(self.cards)

    @cached_property
    def n_samples(self) -> int:
        """Return the number of samples in a union; 1 if the graph is not a union."""
        return 1 if self.samples is None else int(self.samples.max(initial=-1)) + 1

    @cached_property
    def node_samples(self) -> Ints:
        """Return the sample of each node, (V,)."""
        return np.zeros(self.n_nodes, np.int64) if self.samples is None else self.samples

    @cached_property
    def node_starts(self) -> Ints:
        """Return the offset of each node's labels in an array of the labels of all nodes, and its length, (V + 1,)."""
        return np.concatenate(([0], np.cumsum(self.cards)))

    def shape(self, name: str) -> tuple[int, ...]:
        """Return the shape of a template's tables: the number of labels of each node of a clique."""
        nodes = self.cliques[name]
        return tuple(self.cards[nodes[0]].tolist()) if len(nodes) else (1,) * nodes.shape[1]

    @cached_property
    def slices(self) -> dict[str, slice]:
        """Return the range of entries that the tables of each template occupy."""
        low, found = 0, {}
        for name, nodes in self.cliques.items():
            high = low + len(nodes) * int(np.prod(self.shape(name)))
            found[name] = slice(low, high)
            low = high
        return found

    @property
    def n_entries(self) -> int:
        """Return the number of entries of the tables of all cliques."""
        return max((part.stop for part in self.slices.values()), default=0)

    def chosen(self, labels: Array) -> Ints:
        """Return the entry of each clique's table that labelings (m, V) select, (m, n_cliques)."""
        columns = [np.empty((len(labels), 0), np.int64)]
        for name, nodes in self.cliques.items():
            shape = self.shape(name)
            strides = np.append(np.cumprod(np.array(shape[:0:-1], np.int64))[::-1], 1)[-len(shape) :]
            starts = self.slices[name].start + int(np.prod(shape)) * np.arange(len(nodes))
            columns.append(starts + labels[:, nodes].astype(np.int64) @ strides)
        return np.concatenate(columns, axis=1)

    @cached_property
    def clique_samples(self) -> Ints:
        """Return the sample of each clique, (n_cliques,), in the order of `chosen`."""
        own = [self.node_samples[nodes[:, 0]] for nodes in self.cliques.values()]
        return np.concatenate([np.empty(0, np.int64), *own])
