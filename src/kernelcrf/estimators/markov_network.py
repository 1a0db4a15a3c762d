"""MarkovNetwork: a density on discrete variables that depend on each other, without inputs (section 7 of the paper).

    p(z) = exp(sum_v f_v(z_v) + sum_(u,v) f_uv(z_u, z_v)) / Z

with f_v and f_uv in the RKHS of kernels on the values: by "delta" each value, and each pair of values, is for itself;
by a kernel of numbers, such as "rbf", close values share strength. Pairs hold interactions alone, without main effects.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt
from sklearn.base import DensityMixin
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_is_fitted

from kernelcrf.estimators.attempt import all_or_nothing
from kernelcrf.estimators.containers import is_missing_value, read_table
from kernelcrf.estimators.network import NetworkEstimator, is_learned
from kernelcrf.estimators.network_state import restore_markov_network, state_of_markov_network
from kernelcrf.estimators.parameter_constraints import OF_NETWORKS, STRUCTURE
from kernelcrf.estimators.weights import checked_weights
from kernelcrf.graphs.label_graphs import all_pairs, checked_pairs, chow_liu
from kernelcrf.graphs.structure import Graph
from kernelcrf.inference.clique_tree import Exact
from kernelcrf.inference.loss import clamped, labelling_scores
from kernelcrf.kernels.cliques import LabelKernel, LabelMap
from kernelcrf.kernels.inputs import NAMES, InputKernel
from kernelcrf.kernels.joint_labels import Contrasts, Product
from kernelcrf.networks import Network, Potentials, Term
from kernelcrf.validation import SEED, SIZE, Parameter, either, nothing, one_of, positive, shown, shown_list, validated

Array = npt.NDArray[Any]
Floats = npt.NDArray[np.float64]

SAME = 1e-12
FEW_VALUES, ROWS_PER_VALUE = 20, 5


class MarkovNetwork(DensityMixin, NetworkEstimator):  # type: ignore[misc]
    """Markov random field on the columns of a table of discrete values, with kernels on cliques.

    X is (m, n_variables) of any values: numbers, strings, a data frame; None and NaN are missing. A column of
    fractional numbers with more than 20 different values, each seen fewer than five times on average, is continuous
    and refused: cut it into intervals with scikit-learn's KBinsDiscretizer. Each pair of variables that interact has
    a table of all pairs of their values.

    Parameters
    ----------
    kernel : "delta", or the name of a kernel as in ChainCRF
        On the values of a variable: "delta" tells them apart, others need numbers.
    gamma : float or None
        Of kernels that have one.
    C : float
        Prior variance of all potentials.
    structure : "auto", "full", "tree", "none" or pairs of column numbers
        The pairs of variables that interact: learned by structure search, all, those of a Chow-Liu tree, none, or the
        given ones.
    structure_tol, min_gain, laplace, solver, tol, max_iter : as in MultiLabelCRF
    n_jobs, verbose : as in ChainCRF
    random_state : int, RandomState or None
        Seed for the point where a fit with missing values starts.

    Attributes
    ----------
    categories_ : list of arrays, the values of each variable.
    edges_ : (n_edges, 2), the pairs of variables that interact.
    potentials_ : list of the tables of these pairs, (n_values, n_values) each.
    certificate_ : of the fit, within the pairs that interact.
    search_ : of structure="auto": its rounds, and the pairs left out with the bounds of their gains; else None.
    n_features_in_, n_iter_

    Examples
    --------
    >>> import numpy as np
    >>> from kernelcrf import MarkovNetwork
    >>> rng = np.random.default_rng(0)
    >>> a = rng.integers(3, size=500)
    >>> table = np.column_stack((a, (a + rng.integers(2, size=500)) % 3, rng.integers(2, size=500)))
    >>> model = MarkovNetwork(laplace=True).fit(table)
    >>> model.edges_.tolist()  # columns 0 and 1 depend on each other
    [[0, 1]]
    >>> model.save("model.kcrf")
    >>> model.sample(2, random_state=0).shape
    (2, 3)
    >>> model.score_samples(table[:2]).round(2), round(model.score(table), 1)
    (array([-2.44, -2.59]), -1247.0)
    >>> model.impute([[2, None, 0]]).tolist(), model.predict_proba([[2, None, 0]])[1].round(2)
    ([[2, 0, 0]], array([[0.52, 0.01, 0.47]]))
    >>> round(model.log_marginal_likelihood(), 1)
    -1277.3
    >>> model.save("table.kcrf")
    """

    _exact: Exact
    _tables: Floats

    _parameter_constraints: ClassVar[Mapping[str, Parameter]] = {
        **OF_NETWORKS,
        "kernel": either(one_of("delta", *NAMES)),
        "gamma": either(positive, nothing, advice="None is scikit-learn's default"),
        "structure": STRUCTURE,
    }

    def __init__(
        self,
        kernel: str = "delta",
        *,
        gamma: float | None = None,
        C: float = 1.0,
        structure: Any = "auto",
        structure_tol: float = 1e-3,
        min_gain: float | None = None,
        laplace: bool = False,
        solver: str = "auto",
        tol: float = 1e-6,
        max_iter: int = 1000,
        n_jobs: int | None = 1,
        random_state: Any = None,
        verbose: int = 0,
    ) -> None:
        self.kernel = kernel
        self.gamma = gamma
        self.C = C
        self.structure = structure
        self.structure_tol = structure_tol
        self.min_gain = min_gain
        self.laplace = laplace
        self.solver = solver
        self.tol = tol
        self.max_iter = max_iter
        self.n_jobs = n_jobs
        self.random_state = random_state
        self.verbose = verbose

    @all_or_nothing
    def fit(self, X: Any, y: Any = None, sample_weight: npt.ArrayLike | None = None) -> MarkovNetwork:
        """Fit to the rows of X; `sample_weight` (m,) says what each row counts for. y is ignored."""
        self._validate_params()
        table = _table(X)
        self.categories_ = [_values(table[:, v], v) for v in range(table.shape[1])]
        self.n_features_in_ = table.shape[1]
        labels = self._encoded(table)
        weights = None if sample_weight is None else checked_weights(sample_weight, len(labels), "row")
        if weights is not None and not weights.all():
            # A row that counts for nothing is not there, but for its values, which are among the categories.
            labels, weights = labels[weights > 0], weights[weights > 0]
        cards = np.array([len(values) for values in self.categories_])
        pairs = self._pairs(labels, cards, weights)
        network = self._network(labels, cards, weights, pairs)
        seed = check_random_state(self.random_state).randint(np.iinfo(np.int32).max)
        nodes = [_node(v) for v in range(len(cards))]
        edges = [_edge(*pair) for pair in pairs]
        fitted = self._fit_network(network, nodes, edges, seed, learn=is_learned(self.structure))
        self.edges_ = np.array([pair for pair in pairs if _edge(*pair) in fitted.templates], np.int64).reshape(-1, 2)
        self._take(Potentials.of(fitted).tables(Exact(fitted.graph), 1, {}, self._engine), fitted.graph)
        return self

    def score_samples(self, X: Any) -> Floats:
        """log p(z) of each row, (m,); of all rows that agree with it where values are missing."""
        labels = self._read(X)
        log_z = float(self._exact.log_partition(self._tables)[0, 0])
        tables = np.repeat(self._tables, len(labels), axis=0)
        if (labels >= 0).all():
            return np.asarray(labelling_scores(self._exact.graph, tables, labels)[:, 0] - log_z)
        agreeing = self._exact.log_partition(clamped(self._exact.graph, tables, labels), self._n_threads)
        return np.asarray(agreeing[:, 0] - log_z)

    def score(self, X: Any, y: Any = None) -> float:
        """The sum of log p(z) over the rows."""
        return float(self.score_samples(X).sum())

    @validated(n_samples=either(SIZE), random_state=SEED)
    def sample(self, n_samples: int = 1, random_state: Any = None) -> Array:
        """(n_samples, n_variables) rows, drawn exactly."""
        check_is_fitted(self)
        rng = np.random.default_rng(check_random_state(random_state).randint(np.iinfo(np.int32).max))
        return self._decoded(self._exact.calibrate(self._tables).sample(n_samples, rng)[0])

    def impute(self, X: Any) -> Array:
        """X with its missing values filled in by the likeliest ones together, given the others."""
        labels = self._read(X)
        tables = clamped(self._exact.graph, np.repeat(self._tables, len(labels), axis=0), labels)
        return self._decoded(self._exact.best(tables, self._n_threads)[0])

    def predict_proba(self, X: Any) -> list[Floats]:
        """For each variable (m, n_values): the probabilities of its values given the others that X shows in a row.

        A value that X shows has probability 1: hide it to have it predicted.
        """
        labels = self._read(X)
        tables = clamped(self._exact.graph, np.repeat(self._tables, len(labels), axis=0), labels)
        marginals, slices = self._exact.moments(tables, self._n_threads).cliques, self._exact.graph.slices
        return [marginals[:, slices[_node(v)]] for v in range(self.n_features_in_)]

    def _take(self, tables: Floats, graph: Graph) -> None:
        """Be the model of these tables, which were fitted or loaded."""
        self._exact, self._tables = Exact(graph), tables
        cards, slices = graph.cards, graph.slices
        self.potentials_ = [tables[0, slices[_edge(u, v)]].reshape(cards[u], cards[v]) for u, v in self.edges_.tolist()]

    def _graph(self) -> Graph:
        """The variables and the pairs that interact."""
        cliques = {_node(v): np.array([[v]]) for v in range(len(self.categories_))}
        cliques |= {_edge(*pair): np.array([pair]) for pair in self.edges_.tolist()}
        return Graph(np.array([len(values) for values in self.categories_]), cliques)

    def _state(self) -> tuple[dict[str, Any], dict[str, Array]]:
        return state_of_markov_network(self)

    def _restore(self, config: Mapping[str, Any], arrays: Mapping[str, Array]) -> None:
        restore_markov_network(self, config, arrays)

    def _network(
        self, labels: Array, cards: Array, weights: Floats | None, pairs: Iterable[tuple[int, int]]
    ) -> Network:
        kernels = [self._label_kernel(v) for v in range(len(cards))]
        terms, cliques = [], {}
        for v, k_y in enumerate(kernels):
            cliques[_node(v)] = np.array([[v]])
            terms.append(Term(_node(v), _node(v), k_y, self.C))
        for u, v in pairs:
            cliques[_edge(u, v)] = np.array([[u, v]])
            terms.append(Term(_edge(u, v), _edge(u, v), Product((kernels[u], kernels[v])), self.C))
        pooled = bool((labels >= 0).all())
        return Network(cards, cliques, terms, labels, weights=weights, pooled=pooled)

    def _label_kernel(self, v: int) -> LabelMap:
        """Return the kernel on the values of a variable, without what is common to all of them (Lemma 13)."""
        values = self.categories_[v]
        if self.kernel == "delta" or len(values) == 1:
            return Contrasts(len(values))
        try:
            numbers = values.astype(np.float64)[:, None]
        except ValueError:
            raise ValueError(
                f"kernel={self.kernel!r} compares numbers, and variable {v} has the values {values[:3].tolist()}: "
                "expected numbers, or kernel='delta'"
            ) from None
        # Centring takes a common offset out of the linear kernel: best before its digits are lost.
        offset = numbers.mean() if self.kernel == "linear" else 0.0
        gram = np.asarray(InputKernel(self.kernel, self.gamma).gram(numbers - offset), np.float64)
        # Potentials of two variables go by the product of their kernels.
        if not np.abs(gram).max() <= np.sqrt(np.finfo(np.float64).max) / len(gram):
            raise ValueError(
                f"kernel={self.kernel!r} overflows on the values of variable {v}, which go up to "
                f"{np.abs(numbers).max():.3g}: scale them, or use kernel='delta'"
            )
        centred = gram - gram.mean(axis=0) - gram.mean(axis=1)[:, None] + gram.mean()
        if np.abs(centred).max() <= SAME * np.abs(gram).max():
            raise ValueError(
                f"kernel={self.kernel!r} does not tell the values of variable {v} apart, {values[:3].tolist()} and "
                "others: expected a kernel that does, such as 'rbf' or 'delta'"
            )
        return LabelKernel.of(0.5 * (centred + centred.T), len(centred))

    def _pairs(self, labels: Array, cards: Array, weights: Floats | None) -> list[tuple[int, int]]:
        if not isinstance(self.structure, str):
            return checked_pairs(self.structure, len(cards), "structure")
        if self.structure == "tree":
            return chow_liu(labels, cards, weights)
        return [] if self.structure == "none" else all_pairs(len(cards))

    def _read(self, X: Any) -> npt.NDArray[np.int32]:
        check_is_fitted(self)
        table = read_table(X, "X")
        if table.ndim and not len(table):
            return np.empty((0, self.n_features_in_), np.int32)
        table = _table(table)
        if table.shape[1] != self.n_features_in_:
            raise ValueError(f"X has {table.shape[1]} columns: expected {self.n_features_in_}, as in training")
        return self._encoded(table)

    def _encoded(self, table: Array) -> npt.NDArray[np.int32]:
        labels = np.full(table.shape, -1, np.int32)
        for v, values in enumerate(self.categories_):
            places = {value: k for k, value in enumerate(values.tolist())}
            for i, value in enumerate(table[:, v].tolist()):
                if not _is_missing(value):
                    if not isinstance(value, Hashable) or value not in places:
                        raise ValueError(
                            f"X[{i}, {v}] is {shown(value)}: expected one of {shown_list(places)}, or None"
                        )
                    labels[i, v] = places[value]
        return labels

    def _decoded(self, labels: Array) -> Array:
        columns = [values[labels[:, v]] for v, values in enumerate(self.categories_)]
        return np.column_stack(columns) if len({c.dtype.kind for c in columns}) == 1 else _objects(columns)


def _node(v: int) -> str:
    return f"variable {v}"


def _edge(u: int, v: int) -> str:
    return f"edge {u} {v}"


def _table(X: Any) -> Array:
    table = read_table(X, "X")
    if table.ndim != 2 or table.shape[1] == 0:
        raise ValueError(f"X has shape {table.shape}: expected (m, n_variables), at least one of each")
    return table


def _is_missing(value: Any) -> bool:
    return is_missing_value(value) or (isinstance(value, float) and value != value)


def _values(column: Array, v: int) -> Array:
    try:
        seen = {value for value in column.tolist() if not _is_missing(value)}
    except TypeError:
        raise TypeError(f"X has values in column {v} that cannot be hashed: expected numbers or strings") from None
    if not seen:
        raise ValueError(f"variable {v} of X has no value that is not missing: expected at least one")
    try:
        values = np.array(sorted(seen))
    except TypeError:
        raise ValueError(
            f"variable {v} of X has values of different types: expected all numbers or all strings"
        ) from None
    n_rows = sum(not _is_missing(value) for value in column.tolist())
    many = len(values) > FEW_VALUES and n_rows < ROWS_PER_VALUE * len(values)
    if many and values.dtype.kind == "f" and (values != np.round(values)).any():
        raise ValueError(
            f"variable {v} of X is continuous, with {len(values)} different values in {n_rows} rows: expected discrete "
            "values; cut it into intervals first, by scikit-learn's KBinsDiscretizer(encode='ordinal')"
        )
    return values


def _objects(columns: list[Array]) -> Array:
    table = np.empty((len(columns[0]), len(columns)), object)
    for v, column in enumerate(columns):
        table[:, v] = column.tolist()
    return table
