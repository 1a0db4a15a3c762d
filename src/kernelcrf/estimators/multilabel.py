"""MultiLabelCRF: labels that depend on each other, in no order, as a scikit-learn classifier.

    p(y|x) = exp(sum_j f_j(x, y_j) + sum_(j,k) [w_jk(y_j, y_k) + f_jk(x, y_j, y_k)]) / Z(x)

with f_j in the RKHS of k_x, constants beside it, and interactions w on the pairs of a graph over the labels, which is
given or learned. Interactions have no main effects: those are the nodes'.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt
from sklearn.base import ClassifierMixin
from sklearn.utils import check_random_state
from sklearn.utils.multiclass import check_classification_targets, type_of_target
from sklearn.utils.validation import check_array

from kernelcrf.engines.local import LocalEngine
from kernelcrf.estimators.attempt import all_or_nothing
from kernelcrf.estimators.network import NetworkEstimator, is_learned
from kernelcrf.estimators.network_state import restore_multilabel, state_of_multilabel
from kernelcrf.estimators.parameter_constraints import OF_NETWORKS_WITH_INPUTS, STRUCTURE
from kernelcrf.estimators.rows import fit_rows, named_errors, read_rows, read_targets, row_accuracy
from kernelcrf.estimators.settings import input_kernel
from kernelcrf.estimators.weights import checked_weights
from kernelcrf.graphs.label_graphs import all_pairs, checked_pairs, chow_liu
from kernelcrf.graphs.structure import Graph
from kernelcrf.inference.clique_tree import Exact
from kernelcrf.inference.loss import clamped
from kernelcrf.kernels.inputs import Inputs, is_sparse
from kernelcrf.kernels.joint_labels import Contrasts, interactions
from kernelcrf.networks import CliqueInputs, Network, Potentials, Term
from kernelcrf.validation import SEED, SIZE, Parameter, either, one_of, shown, validated

Array = npt.NDArray[Any]
Floats = npt.NDArray[np.float64]

BLOCK_ENTRIES = 2**22
LOG_ODDS_RATIO = np.array([1, -1, -1, 1])


class MultiLabelCRF(ClassifierMixin, NetworkEstimator):  # type: ignore[misc]
    """Conditional random field on a set of labels, with kernels.

    y is scikit-learn's indicator matrix (m, n_labels), dense or sparse; -1 is a missing label. A y without zeros, such
    as one of -1 and 1, has its own two values in each column, and none is missing.

    Parameters
    ----------
    kernel, gamma, degree, coef0 : as in ChainCRF
        Of the inputs.
    C : float
        Prior variance of the kernel's weights.
    C_label : float
        Prior variance of what does not depend on inputs: the constants of labels and their interactions.
    structure : "auto", "full", "tree", "none" or pairs of label numbers
        The pairs of labels that interact: learned by structure search, all, those of a Chow-Liu tree, none, or the
        given ones.
    edge_kernel : None, str, callable or kernel of sklearn.gaussian_process
        Lets interactions depend on inputs; None keeps them constant.
    n_components, pivots : as in ChainCRF
        Landmarks of the kernel.
    decoding : "joint" or "marginal"
        What `predict` returns: the likeliest set of labels, best for the accuracy of whole sets, or each label that is
        likelier than not, best for Hamming loss.
    structure_tol, min_gain : float, float or None
        Of structure="auto": the search ends where all interactions that are left out could gain no more than
        `structure_tol` of the objective, or none is expected to gain `min_gain`; None is half the logarithm of the
        number of samples for each weight.
    laplace : bool
        Compute the evidence, for `log_marginal_likelihood`.
    solver, tol, max_iter : as in ChainCRF
    n_jobs, random_state, verbose : as in ChainCRF

    Attributes
    ----------
    classes_ : (n_labels,) numbers of the labels; the two values of the label where y is a single column.
    edges_ : (n_edges, 2) the pairs of labels that interact.
    interactions_ : (n_edges,) log odds ratios of each pair that do not depend on inputs.
    intercept_ : (n_labels,) log odds of each label that do not depend on inputs.
    landmarks_ : (n_landmarks, n_features), or None for the linear kernel.
    certificate_ : of the fit, within the pairs that interact.
    search_ : of structure="auto": its rounds, and the pairs left out with the bounds of their gains; else None.
    n_features_in_, n_iter_

    Examples
    --------
    >>> import numpy as np
    >>> from kernelcrf import MultiLabelCRF
    >>> rng = np.random.default_rng(0)
    >>> X = rng.normal(size=(300, 5))
    >>> Y = (X[:, :3] + rng.normal(size=(300, 3)) > 0).astype(int)
    >>> Y[:, 1] = np.where(rng.random(300) < 0.8, Y[:, 0], Y[:, 1])  # the second label follows the first
    >>> model = MultiLabelCRF("linear", laplace=True, random_state=0).fit(X, Y)
    >>> model.edges_.tolist(), model.interactions_.round(1)
    ([[0, 1]], array([4.]))
    >>> model.predict(X[:2]), model.predict_proba(X[:2]).round(2)
    (array([[0, 0, 1],
           [1, 1, 1]]), array([[0.48, 0.47, 0.73],
           [0.51, 0.54, 0.83]]))
    >>> [(labels.tolist(), round(log_p, 2)) for labels, log_p in model.decode(X[:1], n_best=2)[0]]
    [([0, 0, 1], -1.08), ([1, 1, 1], -1.2)]
    >>> model.log_prob(X[:2], Y[:2]).round(2), model.entropy(X[:2]).round(2)
    (array([-4.05, -2.54]), array([1.64, 1.51]))
    >>> round(model.score(X, Y), 2)  # whole sets
    0.52
    >>> model.save("model.kcrf")
    >>> model.sample(X[:2], 3, random_state=0).shape
    (3, 2, 3)
    >>> round(model.log_marginal_likelihood(), 1)
    -438.6
    >>> model.save("labels.kcrf")
    """

    _potentials: Potentials
    _exact: Exact

    _parameter_constraints: ClassVar[Mapping[str, Parameter]] = {
        **OF_NETWORKS_WITH_INPUTS,
        "structure": STRUCTURE,
        "decoding": either(one_of("joint", "marginal")),
    }

    def __init__(
        self,
        kernel: Any = "rbf",
        *,
        gamma: float | str = "scale",
        degree: int = 3,
        coef0: float = 1.0,
        C: float = 1.0,
        C_label: float = 1.0,
        structure: Any = "auto",
        edge_kernel: Any = None,
        n_components: int | None = 500,
        pivots: Any = "auto",
        decoding: str = "joint",
        structure_tol: float = 1e-3,
        min_gain: float | None = None,
        laplace: bool = False,
        solver: str = "auto",
        tol: float = 1e-4,
        max_iter: int = 1000,
        n_jobs: int | None = 1,
        random_state: Any = None,
        verbose: int = 0,
    ) -> None:
        self.kernel = kernel
        self.gamma = gamma
        self.degree = degree
        self.coef0 = coef0
        self.C = C
        self.C_label = C_label
        self.structure = structure
        self.edge_kernel = edge_kernel
        self.n_components = n_components
        self.pivots = pivots
        self.decoding = decoding
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
    def fit(self, X: Any, y: Any, sample_weight: npt.ArrayLike | None = None) -> MultiLabelCRF:
        """Fit to rows of X with label sets y; `sample_weight` (m,) says what each row counts for."""
        self._validate_params()
        X, y = fit_rows(self, X, y, multi_output=True, ensure_min_samples=1)
        self._one_column = y.ndim == 1
        values, labels = _encoded(_columns(y))
        weights = None if sample_weight is None else checked_weights(sample_weight, len(labels), "row")
        if weights is not None and not weights.all():
            X, labels, weights = X[weights > 0], labels[weights > 0], weights[weights > 0]
        engine = self._engine
        seed = check_random_state(self.random_state).randint(np.iinfo(np.int32).max)
        n_labels = labels.shape[1]
        inputs = self._inputs("kernel", X, weights, seed, engine)
        edge_inputs = None if self.edge_kernel is None else self._inputs("edge_kernel", X, weights, seed, engine)
        pairs = self._pairs(labels, weights)
        network = self._network(labels, weights, inputs, edge_inputs, pairs)
        nodes = [_node(j) for j in range(n_labels)]
        edges = [_edge(*pair) for pair in pairs]
        fitted = self._fit_network(network, nodes, edges, seed, learn=is_learned(self.structure))
        self._values = values
        self.edges_ = np.array([pair for pair in pairs if _edge(*pair) in fitted.templates], np.int64).reshape(-1, 2)
        self._take(Potentials.of(fitted), fitted.graph)
        return self

    def predict(self, X: Any) -> Array:
        """(m, n_labels) of the labels' values."""
        self._validate_params("decoding")
        blocks: list[Array] = []
        for tables in self._tables(X):
            if self.decoding == "joint":
                blocks.append(self._exact.best(tables, self._n_threads)[0])
            else:
                blocks.append(self._node_marginals(tables)[:, :, 1] > 0.5)
        return self._decoded(np.concatenate(blocks).astype(np.intp))

    def predict_proba(self, X: Any) -> Floats:
        """(m, n_labels): p(y_j = 1 | x); (m, 2) where y of the fit was a single column."""
        p = np.concatenate([self._node_marginals(tables) for tables in self._tables(X)])
        return np.asarray(p[:, 0] if self._one_column else p[:, :, 1])

    @validated(n_best=either(SIZE))
    def decode(self, X: Any, n_best: int = 1) -> list[list[tuple[Array, float]]]:
        """The `n_best` likeliest sets of labels of each row with their log-probabilities, best first."""
        found: list[list[tuple[Array, float]]] = []
        for tables in self._tables(X):
            log_z = self._exact.log_partition(tables, self._n_threads)[:, 0]
            for (labels, scores), z in zip(self._exact.k_best(tables, n_best), log_z, strict=True):
                decoded = self._decoded(labels.astype(np.intp))
                found.append([(y, float(score - z)) for y, score in zip(decoded, scores, strict=True)])
        return found

    def log_prob(self, X: Any, y: Any) -> Floats:
        """log p(y|x) of each row, (m,); of all sets that agree with y where labels are missing."""
        rows, labels = read_rows(self, X), self._indices(y)
        if rows.shape[0] != len(labels):
            raise ValueError(f"y has {len(labels)} rows and X has {rows.shape[0]}: expected the same")
        found, low = [], 0
        for tables in self._row_tables(rows):
            own = labels[low : low + len(tables)]
            low += len(tables)
            target = clamped(self._exact.graph, tables, own)
            difference = self._exact.log_partition(target, self._n_threads) - self._exact.log_partition(
                tables, self._n_threads
            )
            found.append(difference[:, 0])
        return np.concatenate(found)

    def entropy(self, X: Any) -> Floats:
        """-sum_y p(y|x) log p(y|x) of each row, (m,)."""
        return np.concatenate([self._exact.entropy(tables, self._n_threads)[:, 0] for tables in self._tables(X)])

    @validated(n_samples=either(SIZE), random_state=SEED)
    def sample(self, X: Any, n_samples: int = 1, random_state: Any = None) -> Array:
        """(n_samples, m, n_labels) sets of labels, drawn from p(y|x)."""
        rng = np.random.default_rng(check_random_state(random_state).randint(np.iinfo(np.int32).max))
        draws = [self._exact.calibrate(tables).sample(n_samples, rng) for tables in self._tables(X)]
        labels = np.concatenate(draws).astype(np.intp).transpose(1, 0, 2)
        return np.stack([self._decoded(one) for one in labels])

    def score(self, X: Any, y: Any, sample_weight: npt.ArrayLike | None = None) -> float:
        """Accuracy of whole label sets over the rows; `sample_weight` is that of rows."""
        return row_accuracy(y, self.predict(X), sample_weight)

    def _take(self, potentials: Potentials, graph: Graph) -> None:
        """Be the model of these potentials, which were fitted or loaded."""
        self._potentials, self._exact = potentials, Exact(graph)
        n_labels = len(self._values)
        self.classes_ = self._values[0] if self._one_column else np.arange(n_labels)
        self.landmarks_ = getattr(potentials.maps[_node(0)], "landmarks", None)
        tables = [potentials.potential(f"{_node(j)} constant") for j in range(n_labels)]
        self.intercept_ = np.array([table[1] - table[0] for table in tables])
        tables = [potentials.potential(f"{_edge(*pair)} constant") for pair in self.edges_.tolist()]
        self.interactions_ = np.array([table @ LOG_ODDS_RATIO for table in tables])

    def _graph(self) -> Graph:
        """The labels and the pairs that interact."""
        cliques = {_node(j): np.array([[j]]) for j in range(len(self._values))}
        cliques |= {_edge(*pair): np.array([pair]) for pair in self.edges_.tolist()}
        return Graph(np.full(len(self._values), 2), cliques)

    def _state(self) -> tuple[dict[str, Any], dict[str, Array]]:
        return state_of_multilabel(self)

    def _restore(self, config: Mapping[str, Any], arrays: Mapping[str, Array]) -> None:
        restore_multilabel(self, config, arrays)

    def _inputs(self, argument: str, X: Any, weights: Floats | None, seed: int, engine: LocalEngine) -> CliqueInputs:
        given = getattr(self, argument)
        chosen = input_kernel(given, X, self.gamma, self.degree, self.coef0, weights, argument)
        return CliqueInputs.of(chosen, X, self.n_components, self.pivots, seed, engine)

    def _pairs(self, labels: Array, weights: Floats | None) -> list[tuple[int, int]]:
        """The pairs that interact, or may."""
        n_labels = labels.shape[1]
        if not isinstance(self.structure, str):
            return checked_pairs(self.structure, n_labels, "structure")
        if self.structure == "tree":
            return chow_liu(labels, np.full(n_labels, 2), weights)
        return [] if self.structure == "none" else all_pairs(n_labels)

    def _network(
        self,
        labels: Array,
        weights: Floats | None,
        inputs: CliqueInputs,
        edge_inputs: CliqueInputs | None,
        pairs: list[tuple[int, int]],
    ) -> Network:
        terms, cliques = [], {}
        for j in range(labels.shape[1]):
            name = _node(j)
            cliques[name] = np.array([[j]])
            terms.append(Term(name, name, Contrasts(2), self.C, inputs))
            terms.append(Term(f"{name} constant", name, Contrasts(2), self.C_label))
        for pair in pairs:
            name = _edge(*pair)
            cliques[name] = np.array([pair])
            terms.append(Term(f"{name} constant", name, interactions(2, 2), self.C_label))
            if edge_inputs is not None:
                terms.append(Term(name, name, interactions(2, 2), self.C, edge_inputs))
        return Network(np.full(labels.shape[1], 2), cliques, terms, labels, weights=weights)

    def _tables(self, X: Any) -> Iterator[Floats]:
        """The tables of new rows, block by block."""
        return self._row_tables(read_rows(self, X))

    def _row_tables(self, X: Inputs) -> Iterator[Floats]:
        """The tables of rows that were read, block by block; of no rows, one block without any."""
        engine, rows = self._engine, max(BLOCK_ENTRIES // self._exact.program.n_values, 1)
        for low in range(0, max(X.shape[0], 1), rows):
            own = X[low : low + rows]
            inputs = dict.fromkeys(self._potentials.templates, own)
            yield self._potentials.tables(self._exact, own.shape[0], inputs, engine)

    def _node_marginals(self, tables: Floats) -> Floats:
        """(m, n_labels, 2)."""
        marginals, slices = self._exact.moments(tables, self._n_threads).cliques, self._exact.graph.slices
        return np.stack([marginals[:, slices[_node(j)]] for j in range(self._exact.graph.n_nodes)], axis=1)

    def _decoded(self, indices: Array) -> Array:
        columns = [values[indices[:, j]] for j, values in enumerate(self._values)]
        return columns[0] if self._one_column else np.column_stack(columns)

    def _indices(self, y: Any) -> Array:
        with named_errors("y"):
            y = check_array(read_targets(y), accept_sparse="csr", ensure_2d=False, dtype=None, ensure_min_samples=0)
        Y = _columns(y) if y.shape[0] else np.empty((0, len(self._values)))
        if Y.shape[1] != len(self._values):
            raise ValueError(f"y has {Y.shape[1]} columns: expected {len(self._values)}, one for each label")
        return np.column_stack([_column(Y[:, j], values, j) for j, values in enumerate(self._values)])

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        tags.classifier_tags.multi_class = False
        tags.classifier_tags.multi_label = True
        tags.target_tags.multi_output = True
        return tags


def _node(j: int) -> str:
    return f"label {j}"


def _edge(j: int, k: int) -> str:
    return f"edge {j} {k}"


def _columns(y: Any) -> Array:
    """y as a dense matrix, a column a label."""
    dense = np.asarray(y.toarray() if is_sparse(y) else y)
    return dense.reshape(len(dense), -1)


def _encoded(Y: Array) -> tuple[list[Array], npt.NDArray[np.int32]]:
    """The two values of each label, and Y as indices into them, -1 where missing."""
    classes: list[Array] = []
    zeros = bool((Y == 0).any())
    for j in range(Y.shape[1]):
        column = Y[:, j]
        known = column[column != -1] if zeros and _may_miss(column) else column
        if len(known):
            check_classification_targets(known)
        values = np.unique(known)
        if len(values) > 2:
            raise ValueError(
                f"Only binary classification is supported. The type of the target is {type_of_target(known)}: column "
                f"{j} of y has the values {shown(values[:5].tolist())}; expected an indicator matrix, "
                "two values per label"
            )
        if np.isin(values, (0, 1)).all():
            values = np.array([0, 1], values.dtype)
        elif len(values) < 2:
            values = np.concatenate((values, values))
        classes.append(values)
    return classes, np.column_stack([_column(Y[:, j], values, j) for j, values in enumerate(classes)])


def _may_miss(column: Array) -> bool:
    """Return whether -1 is a missing label of a column, if y has zeros and so is an indicator matrix."""
    return column.dtype.kind in "if" and bool(np.isin(column, (-1, 0, 1)).all())


def _column(column: Array, values: Array, j: int) -> npt.NDArray[np.int32]:
    index = np.where(column == values[1], 1, 0).astype(np.int32)
    unknown = ~np.isin(column, values)
    if column.dtype.kind in "if":
        index[unknown & (column == -1)] = -1
        unknown &= column != -1
    if unknown.any():
        raise ValueError(
            f"column {j} of y has the value {shown(column[unknown][0])}: expected {shown(values[0])} or "
            f"{shown(values[1])}"
        )
    return index
