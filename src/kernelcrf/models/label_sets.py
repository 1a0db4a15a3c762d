"""Fitted models of variables that interact in pairs: `LabelSetModel` for label sets, `TableModel` for table rows."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Self

import numpy as np

from kernelcrf.arrays import (
    Array,
    Arrays,
    Config,
    Floats,
    Inputs,
    Labels,
    NamedInputs,
    Places,
    UserData,
    join_columns,
)
from kernelcrf.engines.local import LocalEngine
from kernelcrf.graphs.structure import Graph
from kernelcrf.inference.clique_tree import Exact
from kernelcrf.inference.loss import clamp_labels, labelling_scores
from kernelcrf.models.network import NetworkField, NetworkModel
from kernelcrf.persistence import ModelFileError
from kernelcrf.persistence.checks import read_array
from kernelcrf.readers.base_scores import check_base_scores, read_row_scores
from kernelcrf.readers.rows import LabelSetReader, RowReader
from kernelcrf.readers.tables import TableReader
from kernelcrf.score.cliques import TOKENS
from kernelcrf.score.terms import constant_term, named_term
from kernelcrf.validation import shown_list

# The name of the input of all terms of label sets.
ROWS = "rows"
BLOCK_ENTRIES = 2**22
LOG_ODDS_RATIO = np.array([1, -1, -1, 1])
# The bytes that exact inference takes per labelling of a clique of the tree.
LABELLING_BYTES = 100


# The names of cliques, also in model files: one label, one variable, and a pair of labels or of variables.
label_name = "label {}".format
variable_name = "variable {}".format
pair_name = "edge {} {}".format


def pair_graph(cards: Sequence[int] | Array, edges: Iterable[Sequence[int]], name: Callable[[int], str]) -> Graph:
    """Return a graph whose node v can have `cards[v]` values, and whose cliques are single nodes and the pairs `edges`.

    name : a function that returns the name of the clique of node v alone.
    """
    cliques = {name(v): np.array([[v]]) for v in range(len(cards))}
    return Graph(np.array(cards), cliques | {pair_name(*pair): np.array([pair]) for pair in edges})


def _sizes(graph: Graph) -> dict[str, int]:
    """Return a dict from the name of each clique of a graph to its number of labellings."""
    return {name: math.prod(graph.shape(name)) for name in graph.cliques}


def scores_of_labels(log_odds: Floats) -> dict[str, Floats]:
    """Return a dict from names of labels to two columns of base scores: 0 for absence, log odds for presence.

    log_odds : the base scores of the labels, with one row per row of X and one column per label.
    """
    zeros = np.zeros(len(log_odds))
    return {label_name(j): np.column_stack((zeros, scores)) for j, scores in enumerate(log_odds.T)}


def inputs_of_rows(X: Inputs | NamedInputs, sources: Collection[str | None]) -> dict[str, Inputs]:
    """Return a dict from names to the inputs that the terms of a model of rows use.

    If X has named inputs, the dict contains them. If "rows" is in `sources`, the names that the terms use, the dict
    also has the entry "rows": the columns of all inputs of X side by side.
    """
    named = {named_term(name): matrix for name, matrix in X.matrices.items()} if isinstance(X, NamedInputs) else {}
    return named | ({ROWS: join_columns(X)} if ROWS in sources else {})


def _take(base: Mapping[str, Array] | None, rows: slice) -> dict[str, Array] | None:
    """Return the base scores of some rows."""
    return None if base is None else {name: scores[rows] for name, scores in base.items()}


@dataclass(frozen=True, eq=False, kw_only=True)
class LabelSetModel(NetworkModel):
    """A fitted conditional random field that predicts a set of labels for each row of the inputs.

    edges : the indices of pairs of labels that interact, one pair per row.
    """

    rows: RowReader
    sets: LabelSetReader
    edges: Places

    @cached_property
    def exact(self) -> Exact:
        """Return an object that computes exact probabilities on the graph of the labels."""
        return Exact(pair_graph([2] * len(self.sets.values), self.edges.tolist(), label_name))

    @property
    def answer_bytes(self) -> int:
        return super().answer_bytes + LABELLING_BYTES * self.exact.n_labellings

    @property
    def landmarks(self) -> Inputs | dict[str, Inputs | None] | None:
        """Return the landmarks, one per row, or None for the linear kernel; a dict of them if inputs have names."""
        first = label_name(0)
        if self.rows.named is None:
            return self.landmarks_of(first)
        return {name: self.landmarks_of(named_term(name, first)) for name in self.rows.named.sources}

    def _inputs(self, X: Inputs | NamedInputs) -> dict[str, Inputs]:
        return inputs_of_rows(X, {term.input for term in self.layout.terms})

    @cached_property
    def intercept(self) -> Floats:
        """Return, for each label, the part of its log odds that does not depend on inputs."""
        tables = [self.potential(constant_term(label_name(j))) for j in range(len(self.sets.values))]
        return np.array([table[1] - table[0] for table in tables])

    @cached_property
    def interactions(self) -> Floats:
        """Return, for each pair of labels in `edges`, the part of its log odds ratio that does not depend on inputs."""
        tables = [self.potential(constant_term(pair_name(*pair))) for pair in self.edges.tolist()]
        return np.array([table @ LOG_ODDS_RATIO for table in tables])

    @property
    def block_size(self) -> int:
        """Return the number of rows per block; the random field of a block of this size takes little memory."""
        return max(BLOCK_ENTRIES // self.exact.program.n_values, 1)

    def fields(
        self, X: Inputs | NamedInputs, engine: LocalEngine, base: Mapping[str, Array] | None = None
    ) -> Iterator[NetworkField]:
        """Yield the random fields of the labels, one per block of rows of X.

        If X has no rows, yield one field for an empty block.
        """
        for block in self._blocks(X):
            rows = X[block]
            tables = self.tables(self.exact, rows.shape[0], self._inputs(rows), engine, _take(base, block))
            yield NetworkField(self.exact, tables, len(tables), engine.n_threads)

    def _blocks(self, X: Inputs | NamedInputs) -> Iterator[slice]:
        return (slice(low, low + self.block_size) for low in range(0, max(X.shape[0], 1), self.block_size))

    def read_base(self, base_scores: UserData, n_rows: int) -> dict[str, Floats] | None:
        """Read base scores; raise if they are not of the same kinds as in the fit."""
        base = read_row_scores(base_scores, n_rows, len(self.sets.values))
        check_base_scores(self.base, base)
        return None if base is None else scores_of_labels(base[TOKENS])

    def draw_marginals(
        self,
        X: Inputs | NamedInputs,
        n_samples: int | None,
        temperature: float,
        random_state: UserData,
        engine: LocalEngine,
        base: Mapping[str, Array] | None = None,
    ) -> Iterator[Iterator[Array]]:
        """Yield one iterator per block of rows of X. Each iterator yields one array per draw from the posterior.

        An array has one row for each pair of a row of X and a label; the pairs of the first row of X come first. It has
        two columns: the probability that the row does not have the label, and the probability that it has the label.
        """
        for block in self._blocks(X):
            rows, taken = X[block], _take(base, block)
            m, draws = rows.shape[0], (n_samples, temperature, random_state)
            drawn = self.draw_tables(self.exact, m, self._inputs(rows), *draws, engine, taken)
            fields = (NetworkField(self.exact, tables, m, engine.n_threads) for tables in drawn)
            yield (self.marginals(field).reshape(-1, 2) for field in fields)

    def marginals(self, field: NetworkField) -> Floats:
        """Return an array whose entry [i, j, 1] is the probability that row i has label j.

        The entry [i, j, 0] is the probability that row i does not have label j.
        """
        return np.stack([field.marginals(label_name(j)) for j in range(len(self.sets.values))], axis=1)

    def to_arrays(self) -> tuple[Config, Arrays]:
        """Return the model as two dicts: values that JSON can store, and named arrays."""
        config, arrays = super().to_arrays()
        return config | self.sets.to_config() | self.rows.to_config(), arrays | {"edges": self.edges}

    @classmethod
    def from_arrays(cls, config: Config, arrays: Arrays) -> Self:
        """Return the model, given the two dicts that `to_arrays` returned; raise an error if they are inconsistent."""
        rows, sets = RowReader.from_config(config), LabelSetReader.from_config(config)
        edges = read_array(arrays, "edges", (len(arrays["edges"]), 2), "i")
        sizes = _sizes(pair_graph([2] * len(sets.values), edges, label_name))
        widths = {ROWS: rows.n_features}
        if rows.named is not None:
            named = {named_term(name): width for name, width in rows.named.widths.items()}
            widths = named | {ROWS: sum(named.values())}
        shared = cls._read_network(config, arrays, sizes, widths)
        model = cls(**shared, rows=rows, sets=sets, edges=edges)
        # This raises if the potentials that these attributes need are not in the file.
        _ = model.landmarks, model.intercept, model.interactions
        return model


@dataclass(frozen=True, eq=False, kw_only=True)
class TableModel(NetworkModel):
    """A fitted probability distribution of the rows of a table, whose columns are variables.

    edges : the indices of pairs of variables that interact, one pair per row.
    """

    reader: TableReader
    edges: Places

    @cached_property
    def exact(self) -> Exact:
        """Return an object that computes exact probabilities on the graph of the variables."""
        return Exact(pair_graph([len(values) for values in self.reader.categories], self.edges.tolist(), variable_name))

    @property
    def answer_bytes(self) -> int:
        return LABELLING_BYTES * self.exact.n_labellings

    @property
    def categories(self) -> list[Array]:
        """Return, for each variable, an array of the values that it can have."""
        return list(self.reader.categories)

    @property
    def n_features(self) -> int:
        """Return the number of variables, which are the columns of the table."""
        return len(self.reader.categories)

    @cached_property
    def scores(self) -> Floats:
        """Return an array of one row: the scores of all values of each variable, then of all values of each pair."""
        return self.tables(self.exact, 1, {}, LocalEngine())

    @cached_property
    def potentials(self) -> list[Floats]:
        """Return, for each pair of variables in `edges`, its scores as an array [value of first, value of second]."""
        cards, slices = self.exact.graph.cards, self.exact.graph.slices
        return [self.scores[0, slices[pair_name(u, v)]].reshape(cards[u], cards[v]) for u, v in self.edges.tolist()]

    def log_prob(self, labels: Labels, engine: LocalEngine) -> Floats:
        """Return the log-probability of each row of `labels`; unknown values (-1) are summed over."""
        log_z = float(self.exact.log_partition(self.scores)[0, 0])
        if (labels >= 0).all():
            return np.asarray(labelling_scores(self.exact.graph, self.scores, labels)[:, 0] - log_z)
        agreeing = self.exact.log_partition(self.field(labels, engine).tables, engine.n_threads)
        return np.asarray(agreeing[:, 0] - log_z)

    def sample(self, n_samples: int, rng: np.random.Generator) -> Labels:
        """Return `n_samples` rows drawn from the distribution, with one column per variable."""
        return np.asarray(self.exact.calibrate(self.scores).sample(n_samples, rng)[0])

    def field(self, labels: Labels, engine: LocalEngine) -> NetworkField:
        """Return, for each row of `labels`, the random field of its unknown values given its known values.

        Unknown values are -1.
        """
        return self._clamped(self.scores, labels, engine)

    def _clamped(self, scores: Floats, labels: Labels, engine: LocalEngine) -> NetworkField:
        tables = clamp_labels(self.exact.graph, np.repeat(scores, len(labels), axis=0), labels)
        return NetworkField(self.exact, tables, len(labels), engine.n_threads)

    def marginals(self, field: NetworkField) -> Floats:
        """Return the probabilities of values as an array [row, variable, value].

        If a variable has fewer values than another one, its last entries are 0.
        """
        p = np.zeros((field.n_samples, self.n_features, max(map(len, self.categories))))
        for v, values in enumerate(self.categories):
            p[:, v, : len(values)] = field.marginals(variable_name(v))
        return p

    def draw_marginals(
        self, labels: Labels, n_samples: int | None, temperature: float, random_state: UserData, engine: LocalEngine
    ) -> Iterator[Array]:
        """Yield, for each draw from the posterior, the probabilities of values given the known values in `labels`.

        Each array has one row per cell of the table, beginning with the first row of the table, and one column per
        value.
        """
        for scores in self.draw_tables(self.exact, 1, {}, n_samples, temperature, random_state, engine):
            p = self.marginals(self._clamped(scores, labels, engine))
            yield p.reshape(-1, p.shape[-1])

    def to_arrays(self) -> tuple[Config, Arrays]:
        """Return the model as two dicts: values that JSON can store, and named arrays."""
        config, arrays = super().to_arrays()
        config |= self.reader.to_config()
        return config, arrays | {"edges": self.edges}

    @classmethod
    def from_arrays(cls, config: Config, arrays: Arrays) -> Self:
        """Return the model, given the two dicts that `to_arrays` returned; raise an error if they are inconsistent."""
        reader, edges = TableReader.from_config(config), read_array(arrays, "edges", (len(arrays["edges"]), 2), "i")
        sizes = _sizes(pair_graph([len(values) for values in reader.categories], edges, variable_name))
        shared = cls._read_network(config, arrays, sizes, {})
        if set(shared["layout"].slices) != set(sizes):
            raise ModelFileError(
                f"the model file has the terms {shown_list(shared['layout'].slices)}: expected one term for each "
                "variable and each pair. The file may be damaged: use another copy of it"
            )
        return cls(**shared, reader=reader, edges=edges)
