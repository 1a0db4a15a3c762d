"""Fitted models with pairwise interactions: sets of labels given inputs, and tables of variables without inputs."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Self

import numpy as np

from kernelcrf.arrays import Array, Arrays, Config, Floats, Inputs, Labels, Places
from kernelcrf.engines.local import LocalEngine
from kernelcrf.graphs.structure import Graph
from kernelcrf.inference.clique_tree import Exact
from kernelcrf.inference.loss import clamped, labelling_scores
from kernelcrf.models.network import NetworkDistribution, NetworkModel
from kernelcrf.models.potentials import Potentials
from kernelcrf.persistence.checks import read_array
from kernelcrf.readers.rows import LabelSetReader, RowReader
from kernelcrf.readers.tables import TableReader
from kernelcrf.terms import constant_term

BLOCK_ENTRIES = 2**22
LOG_ODDS_RATIO = np.array([1, -1, -1, 1])


def label_name(j: int) -> str:
    """Return the name of the clique of one label."""
    return f"label {j}"


def variable_name(v: int) -> str:
    """Return the name of the clique of one variable."""
    return f"variable {v}"


def pair_name(u: int, v: int) -> str:
    """Return the name of the clique of two labels or variables."""
    return f"edge {u} {v}"


def pair_graph(cards: Sequence[int] | Array, edges: Iterable[Sequence[int]], name: Callable[[int], str]) -> Graph:
    """Return the graph of labels or variables with `cards` values each; `edges` are the pairs that interact."""
    cliques = {name(v): np.array([[v]]) for v in range(len(cards))}
    return Graph(np.array(cards), cliques | {pair_name(*pair): np.array([pair]) for pair in edges})


@dataclass(frozen=True, eq=False, kw_only=True)
class LabelSetModel(NetworkModel):
    """A fitted conditional random field on sets of labels; `edges` (n_edges, 2) are the pairs that interact."""

    rows: RowReader
    sets: LabelSetReader
    edges: Places
    potentials: Potentials

    @cached_property
    def exact(self) -> Exact:
        """Return exact inference on the graph of the labels."""
        return Exact(pair_graph([2] * len(self.sets.values), self.edges.tolist(), label_name))

    @property
    def landmarks(self) -> Inputs | None:
        """Return the landmarks, or None for the linear kernel."""
        return self.potentials.landmarks(label_name(0))

    @cached_property
    def intercept(self) -> Floats:
        """Return the part of each label's log odds that does not depend on inputs, (n_labels,)."""
        tables = [self.potentials.potential(constant_term(label_name(j))) for j in range(len(self.sets.values))]
        return np.array([table[1] - table[0] for table in tables])

    @cached_property
    def interactions(self) -> Floats:
        """Return the part of each pair's log odds ratio that does not depend on inputs, (n_edges,)."""
        tables = [self.potentials.potential(constant_term(pair_name(*pair))) for pair in self.edges.tolist()]
        return np.array([table @ LOG_ODDS_RATIO for table in tables])

    def distributions(self, X: Inputs, engine: LocalEngine) -> Iterator[NetworkDistribution]:
        """Yield the distribution p(y|x) of the rows X in blocks; if there are no rows, yield one empty block."""
        size = max(BLOCK_ENTRIES // self.exact.program.n_values, 1)
        for low in range(0, max(X.shape[0], 1), size):
            own = X[low : low + size]
            inputs = dict.fromkeys(self.potentials.layout.cliques, own)
            tables = self.potentials.tables(self.exact, own.shape[0], inputs, engine)
            yield NetworkDistribution(self.exact, tables, len(tables), engine.n_threads)

    def marginals(self, found: NetworkDistribution) -> Floats:
        """Return p(y_j = value | x), (m, n_labels, 2)."""
        return np.stack([found.marginals(label_name(j)) for j in range(len(self.sets.values))], axis=1)

    def to_arrays(self) -> tuple[Config, Arrays]:
        """Return a JSON-able config and named arrays, from which `from_arrays` makes an equal model."""
        config, _ = super().to_arrays()
        potentials, arrays = self.potentials.to_arrays()
        config |= {"estimator": "MultiLabelCRF", "potentials": potentials}
        return config | self.sets.to_config() | self.rows.to_config(), arrays | {"edges": self.edges}

    @classmethod
    def from_arrays(cls, config: Config, arrays: Arrays) -> Self:
        """Return the model that `to_arrays` wrote; raise if its parts do not fit together."""
        rows, sets = RowReader.from_config("MultiLabelCRF", config), LabelSetReader.from_config(config)
        edges = read_array(arrays, "edges", (len(arrays["edges"]), 2), "i")
        graph = pair_graph([2] * len(sets.values), edges, label_name)
        sizes = {name: int(np.prod(graph.shape(name))) for name in graph.cliques}
        columns = dict.fromkeys(sizes, rows.n_features)
        potentials = Potentials.from_arrays(config["potentials"], arrays, sizes, columns)
        model = cls(**cls._read_fields(config), rows=rows, sets=sets, edges=edges, potentials=potentials)
        # This raises if the potentials that these attributes need are not in the file.
        _ = model.landmarks, model.intercept, model.interactions
        return model


@dataclass(frozen=True, eq=False, kw_only=True)
class TableModel(NetworkModel):
    """A fitted probability distribution of the rows of a table.

    edges : (n_edges, 2), the pairs of variables that interact.
    tables : (1, n_entries), the potentials of all cliques, one after the other.
    """

    reader: TableReader
    edges: Places
    tables: Floats

    @cached_property
    def exact(self) -> Exact:
        """Return exact inference on the graph of the variables."""
        return Exact(pair_graph([len(values) for values in self.reader.categories], self.edges.tolist(), variable_name))

    @property
    def categories(self) -> list[Array]:
        """Return the values of each variable."""
        return list(self.reader.categories)

    @property
    def n_features(self) -> int:
        """Return the number of variables."""
        return len(self.reader.categories)

    @property
    def as_potentials(self) -> Potentials:
        """Return the tables as potentials, one term per clique."""
        return Potentials.of_tables({name: self.tables[:, own] for name, own in self.exact.graph.slices.items()})

    @cached_property
    def potentials(self) -> list[Floats]:
        """Return the potential of each pair that interacts, one row per value of its first variable."""
        cards, slices = self.exact.graph.cards, self.exact.graph.slices
        return [self.tables[0, slices[pair_name(u, v)]].reshape(cards[u], cards[v]) for u, v in self.edges.tolist()]

    def log_prob(self, labels: Labels, engine: LocalEngine) -> Floats:
        """Return log p(z) of rows z (m, n_variables), (m,); values of -1 are unknown, and are summed over."""
        log_z = float(self.exact.log_partition(self.tables)[0, 0])
        tables = np.repeat(self.tables, len(labels), axis=0)
        if (labels >= 0).all():
            return np.asarray(labelling_scores(self.exact.graph, tables, labels)[:, 0] - log_z)
        agreeing = self.exact.log_partition(clamped(self.exact.graph, tables, labels), engine.n_threads)
        return np.asarray(agreeing[:, 0] - log_z)

    def sample(self, n_samples: int, rng: np.random.Generator) -> Labels:
        """Return rows drawn from p(z), (n_samples, n_variables)."""
        return np.asarray(self.exact.calibrate(self.tables).sample(n_samples, rng)[0])

    def distribution(self, labels: Labels, engine: LocalEngine) -> NetworkDistribution:
        """Return the distribution of the unknown values (-1) of rows (m, n_variables), given their known values."""
        tables = clamped(self.exact.graph, np.repeat(self.tables, len(labels), axis=0), labels)
        return NetworkDistribution(self.exact, tables, len(labels), engine.n_threads)

    def to_arrays(self) -> tuple[Config, Arrays]:
        """Return a JSON-able config and named arrays, from which `from_arrays` makes an equal model."""
        config, _ = super().to_arrays()
        return config | {"estimator": "MarkovNetwork"} | self.reader.to_config(), {
            "edges": self.edges,
            "tables": self.tables,
        }

    @classmethod
    def from_arrays(cls, config: Config, arrays: Arrays) -> Self:
        """Return the model that `to_arrays` wrote; raise if its parts do not fit together."""
        model = cls(
            **cls._read_fields(config),
            reader=TableReader.from_config(config),
            edges=read_array(arrays, "edges", (len(arrays["edges"]), 2), "i"),
            tables=arrays["tables"],
        )
        read_array(arrays, "tables", (1, model.exact.graph.n_entries), "f")
        return model
