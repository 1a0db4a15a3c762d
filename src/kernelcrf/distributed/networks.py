"""Labelled samples on graphs, on the workers of a cluster."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from operator import attrgetter

import numpy as np

from kernelcrf.arrays import Config
from kernelcrf.basis.factor import stack
from kernelcrf.distributed.cluster import method
from kernelcrf.distributed.corpus import DistributedCorpus
from kernelcrf.fitting.digest import digest_value
from kernelcrf.fitting.graphs import LabelledGraphs, Networks

# A search for C on held-out samples needs no more samples than this.
MOST_FETCHED = 20_000


@dataclass(frozen=True, eq=False)
class DistributedNetworks(DistributedCorpus, Networks):
    """Labelled samples on graphs that are divided among the workers of a cluster.

    parts : for each part of the data, a handle that refers to `LabelledGraphs` on a worker.
    """

    def digest(self) -> Config:
        return {"parts": digest_value(self.cluster.fetch(self.cluster.each(method("digest"), self.parts)))}

    @cached_property
    def _example(self) -> LabelledGraphs:
        """Return the cliques of the first part, without inputs."""
        graphs: LabelledGraphs = self.cluster.fetch(self.cluster.each(_without_inputs, self.parts[:1]))[0]
        return graphs

    @property
    def templates(self) -> Sequence[str]:
        return self._example.templates

    @cached_property
    def mass(self) -> float:
        return float(self.cluster.sum(attrgetter("mass"), self.parts))

    def entries(self, templates: Collection[str]) -> int:
        # Parts are alike: whether they have equal or similar graphs, the first of them shows what is cheap.
        return self._example.entries(templates)

    def share_nodes(self, one: str, other: str) -> bool:
        if self._example.share_nodes(one, other) or self._example.samples is None:
            return self._example.share_nodes(one, other)
        return any(self.cluster.fetch(self.cluster.each(method("share_nodes"), self.parts, shared=(one, other))))

    def hold_out(self, n_tokens: int, n_few: int) -> Sequence[tuple[LabelledGraphs, LabelledGraphs]]:
        """Fetch parts that are spread evenly over the data, until they have MOST_FETCHED samples; return their folds.

        The folds are those of data in one process if there are no more samples.
        """
        counts = np.array(self.cluster.fetch(self.cluster.each(attrgetter("n_samples"), self.parts)))
        n = min(len(counts), -(-MOST_FETCHED * len(counts) // max(int(counts.sum()), 1)))
        chosen = np.unique(np.linspace(0, len(counts) - 1, n).astype(int)).tolist()
        fetched: list[LabelledGraphs] = self.cluster.fetch([self.parts[k] for k in chosen])
        return join_networks(fetched).hold_out(n_tokens, n_few)


def join_networks(parts: Sequence[LabelledGraphs]) -> LabelledGraphs:
    """Join the samples of all parts, in the order of the parts."""
    first = parts[0]
    if not all(_share_graph(first, part) for part in parts):
        parts = [_united(part) for part in parts]
        n_nodes, n_samples = ([getattr(part, name) for part in parts] for name in ("n_tokens", "n_samples"))
        shifts, numbers = (np.cumsum([0, *counts[:-1]]) for counts in (n_nodes, n_samples))
        cliques = {
            name: np.concatenate([part.cliques[name] + by for part, by in zip(parts, shifts, strict=True)])
            for name in first.cliques
        }
        samples = np.concatenate([np.asarray(part.samples) + by for part, by in zip(parts, numbers, strict=True)])
        first = replace(first, cards=np.concatenate([part.cards for part in parts]), cliques=cliques, samples=samples)
    axis = 0 if first.samples is None else 1
    weights = [np.ones(part.n_samples) if part.weights is None else part.weights for part in parts]
    return replace(
        first,
        labels=np.concatenate([part.labels for part in parts], axis=axis),
        inputs={name: stack([part.inputs[name] for part in parts]) for name in first.inputs},
        weights=None if all(part.weights is None for part in parts) else np.concatenate(weights),
    )


def _share_graph(one: LabelledGraphs, other: LabelledGraphs) -> bool:
    """Return whether all samples of two parts have the same graph."""
    if one.samples is not None or other.samples is not None or not np.array_equal(one.cards, other.cards):
        return False
    return all(np.array_equal(one.cliques[name], other.cliques[name]) for name in one.cliques)


def _united(part: LabelledGraphs) -> LabelledGraphs:
    """Return the samples of a part as one graph that joins them."""
    if part.samples is not None:
        return part
    m, n = part.labels.shape
    shifts = n * np.arange(m)[:, None, None]
    return replace(
        part,
        cards=np.tile(part.cards, m),
        cliques={name: (nodes + shifts).reshape(-1, nodes.shape[1]) for name, nodes in part.cliques.items()},
        labels=part.labels.reshape(1, -1),
        samples=np.repeat(np.arange(m), n),
    )


def _without_inputs(part: LabelledGraphs) -> LabelledGraphs:
    return replace(part, inputs={}, weights=None)
