"""GraphCRF: labels of the nodes of graphs, as a scikit-learn estimator.

    p(y|x) = exp(sum_i f(x_i, y_i) + sum_(i,j) [T(y_i, y_j) + f'(x_ij, y_i, y_j)] + ...) / Z(x)

with potentials tied over nodes, over edges, and where they are asked for over pairs at distance two and over paths of
three nodes. Sequences are graphs too: chains.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_is_fitted

from kernelcrf.engines.local import LocalEngine
from kernelcrf.estimators.attempt import all_or_nothing
from kernelcrf.estimators.graph_samples import GraphSamples, read_graphs
from kernelcrf.estimators.labels import LabelReader
from kernelcrf.estimators.network import COVERS, NetworkEstimator, is_learned
from kernelcrf.estimators.network_state import restore_graph, state_of_graph
from kernelcrf.estimators.parameter_constraints import OF_NETWORKS_WITH_INPUTS
from kernelcrf.estimators.ragged import Ragged
from kernelcrf.estimators.settings import input_kernel
from kernelcrf.estimators.weights import checked_weights, score_weights
from kernelcrf.graphs.structure import Chains, Graph
from kernelcrf.inference.clique_tree import Exact
from kernelcrf.inference.gibbs import Gibbs
from kernelcrf.inference.loopy import Loopy
from kernelcrf.inference.loss import clamped, labelling_scores
from kernelcrf.inference.mean_field import mean_field
from kernelcrf.kernels.cliques import LabelKernel, LabelMap
from kernelcrf.kernels.inputs import Inputs
from kernelcrf.kernels.joint_labels import Reversible
from kernelcrf.networks import CliqueInputs, Network, Potentials, Term
from kernelcrf.validation import FLAG, SEED, SIZE, Constraint, Parameter, either, one_of, validated

Array = npt.NDArray[Any]
Floats = npt.NDArray[np.float64]

CLIQUES = ("edges", "skips", "paths")


def _are_cliques(names: Any) -> bool:
    known = isinstance(names, list | tuple | set | frozenset) and set(names) <= set(CLIQUES)
    return known and len(set(names)) == len(names)


class GraphCRF(NetworkEstimator):
    """Conditional random field on graphs, with kernels.

    X is a list of graphs: tuples (features, edges) or (features, edges, edge_features) with arrays (V_i, d), (E_i, 2)
    and (E_i, k); or networkx graphs whose nodes, and edges where they have features, carry them in the attribute "x";
    or sequences (T_i, d), which are chains. y is a list of label arrays (V_i,); None, or -1 among other labels, is a
    missing label.

    Parameters
    ----------
    kernel, gamma, degree, coef0 : as in ChainCRF
        Of the nodes' features.
    C, C_label : float
        Prior variances: of weights on inputs, and of what does not depend on inputs.
    edge_kernel : None, str, callable or kernel of sklearn.gaussian_process
        Of the edges' features, or of both ends' where edges have none; None keeps potentials of edges constant.
    directed : bool
        Whether T(a, b) of an edge (i, j) differs from T(b, a); sequences are directed always.
    cliques : tuple of "edges", "skips" and "paths", or "auto"
        What has a potential beside nodes: edges, pairs at distance two, paths of three nodes. "auto" starts from edges
        and lets the others, and `edge_kernel` where it is given, join if they matter (structure search).
    inference : "exact", "loopy" or "gibbs"
        Exact by clique trees, which refuses graphs that are too wide; "loopy" fits and labels by a convex upper bound
        on the log-partition; "gibbs" fits by the pseudo-likelihood and labels by samples. `laplace` goes with "exact",
        and cliques="auto" with all but "loopy".
    structure_tol, min_gain, laplace : as in MultiLabelCRF
    n_components, pivots, solver, tol, max_iter, n_jobs, random_state, verbose : as in ChainCRF

    Attributes
    ----------
    classes_ : (L,) labels.
    cliques_ : what has a potential beside nodes.
    edge_potentials_ : (L, L), T, [from, to]; None without edges.
    certificate_ : of the fit. With inference="loopy" it speaks of the bound, with "gibbs" of the pseudo-likelihood:
        `covers_` says so.
    covers_ : what the certificate's objective is made of.
    search_ : of cliques="auto": its rounds, and what was left out with bounds of the gains; else None.
    landmarks_, n_features_in_, n_iter_

    Examples
    --------
    >>> import numpy as np
    >>> from kernelcrf import GraphCRF
    >>> rng = np.random.default_rng(0)
    >>> ring = [[0, 1], [1, 2], [2, 3], [3, 0]]
    >>> y = [np.full(4, rng.integers(2)) for _ in range(40)]  # all nodes of a ring share their label
    >>> X = [(own[:, None] + rng.normal(size=(4, 1)), ring) for own in y]
    >>> crf = GraphCRF("linear", laplace=True).fit(X, y)
    >>> crf.edge_potentials_.round(1)
    array([[ 1.4, -1.3],
           [-1.3,  1.2]])
    >>> crf.predict(X[:1])[0], crf.predict_proba(X[:1])[0].shape
    (array([1, 1, 1, 1]), (4, 2))
    >>> [round(log_p, 2) for labels, log_p in crf.decode(X[:1], n_best=2)[0]]
    [-0.11, -2.54]
    >>> crf.log_prob(X[:1], y[:1]).round(2), crf.entropy(X[:1]).round(2)
    (array([-0.11]), array([0.44]))
    >>> crf.save("model.kcrf")
    >>> crf.sample(X[:1], 3, random_state=0)[0].shape
    (3, 4)
    >>> crf.score(X, y), round(crf.log_marginal_likelihood(), 1)
    (0.775, -27.0)
    >>> crf.save("graphs.kcrf")
    """

    _labels: LabelReader
    _potentials: Potentials

    _parameter_constraints: ClassVar[Mapping[str, Parameter]] = {
        **OF_NETWORKS_WITH_INPUTS,
        "directed": FLAG,
        "cliques": either(
            one_of("auto", *CLIQUES), Constraint(f"a tuple of {', '.join(map(repr, CLIQUES))}", _are_cliques)
        ),
        "inference": either(one_of(*COVERS)),
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
        edge_kernel: Any = None,
        directed: bool = False,
        cliques: Any = ("edges",),
        inference: str = "exact",
        structure_tol: float = 1e-3,
        min_gain: float | None = None,
        laplace: bool = False,
        n_components: int | None = 500,
        pivots: Any = "auto",
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
        self.edge_kernel = edge_kernel
        self.directed = directed
        self.cliques = cliques
        self.inference = inference
        self.structure_tol = structure_tol
        self.min_gain = min_gain
        self.laplace = laplace
        self.n_components = n_components
        self.pivots = pivots
        self.solver = solver
        self.tol = tol
        self.max_iter = max_iter
        self.n_jobs = n_jobs
        self.random_state = random_state
        self.verbose = verbose

    @all_or_nothing
    def fit(self, X: Any, y: Any, sample_weight: npt.ArrayLike | None = None) -> GraphCRF:
        """Fit to labelled graphs; `sample_weight` (m,) says what each graph counts for."""
        self._validate_params()
        self._seed = check_random_state(self.random_state).randint(np.iinfo(np.int32).max)
        make = self._inference
        graphs = GraphSamples.read(X, directed=self.directed)
        order = Chains(graphs.offsets)
        reader = LabelReader.fit(y, order, None, flat=False)
        labels = _known(*reader.encode(y, order, flat=False))
        weights = None if sample_weight is None else checked_weights(sample_weight, graphs.n_samples, "graph")
        if weights is not None and not weights.all():
            # A graph that counts for nothing is not there: neither as landmarks nor in gamma.
            labels, graphs = labels[weights[graphs.samples] > 0], graphs.only(weights > 0)
            weights = weights[weights > 0]
        engine, L = self._engine, len(reader.classes)
        terms = self._terms(graphs, L, engine)
        cliques = self._members(graphs)
        m = _rows(graphs)
        network = Network(
            np.full(len(labels) // m, L),
            {name: nodes[: len(nodes) // m] for name, nodes in cliques.items()},
            terms,
            labels.reshape(m, -1),
            graphs.samples if m < graphs.n_samples else None,
            # A union ends with the last graph that has a node.
            None if weights is None else weights[: int(graphs.samples.max(initial=-1)) + 1],
            make,
        )
        learn = is_learned(self.cliques)
        present = [name for name in cliques if not learn or name in ("nodes", "edges")]
        others = [name for name in cliques if name not in present]
        fitted = self._fit_network(network, present, others, self._seed, learn=learn)
        self._labels, self._directed = reader, graphs.directed
        self._has_edge_features = graphs.edge_features is not None
        self.n_features_in_ = graphs.nodes.shape[1]
        self._take(Potentials.of(fitted), COVERS[self.inference])
        return self

    def predict(self, X: Any) -> list[Array]:
        """A label array for each graph: the likeliest labelling; that of the likeliest single labels unless exact."""
        if self._is_empty(X):
            return Ragged()
        graphs, inference, tables = self._tables(X)
        labels, _ = inference.best(tables, self._n_threads)
        return Ragged(self._labels.decode(labels[0], Chains(graphs.offsets)))

    def predict_proba(self, X: Any) -> list[Array]:
        """Return (V_i, L) for each graph, p(y_v = classes_[j] | x); approximations of it unless inference="exact"."""
        if self._is_empty(X):
            return Ragged()
        graphs, inference, tables = self._tables(X)
        nodes = inference.moments(tables, self._n_threads).cliques[0, inference.graph.slices["nodes"]]
        return Ragged(np.split(nodes.reshape(-1, len(self.classes_)), graphs.offsets[1:-1]))

    @validated(n_best=either(SIZE))
    def decode(self, X: Any, n_best: int = 1) -> list[list[tuple[Array, float]]]:
        """The `n_best` likeliest labelings of each graph with their log-probabilities, best first; exact alone."""
        if self.inference != "exact":
            raise ValueError(f"decode ranks labelings by exact inference: inference={self.inference!r} cannot")
        found = []
        for x in read_graphs(X):
            _, inference, tables = self._tables([x])
            ((labels, scores),) = inference.k_best(tables, n_best)
            log_z = inference.log_partition(tables)[0, 0]
            found.append([(self.classes_[y], float(s - log_z)) for y, s in zip(labels, scores, strict=True)])
        return found

    def log_prob(self, X: Any, y: Any) -> Floats:
        """Return log p(y|x) of each graph, (m,), or a lower bound on it if inference="loopy".

        Where labels are missing, p is the probability of all labellings that agree with y.
        """
        if self.inference == "gibbs":
            raise ValueError(
                "log_prob is not available with inference='gibbs': expected 'exact', or 'loopy' for a lower bound"
            )
        if self._is_empty(X):
            self._labels.encode(y, Chains.from_lengths([]))
            return np.empty(0)
        graphs, inference, tables = self._tables(X)
        labels = _known(*self._labels.encode(y, Chains(graphs.offsets), flat=False))[None]
        log_z = inference.log_partition(tables, self._n_threads)
        if (labels >= 0).all():
            return _of_all(graphs, (labelling_scores(inference.graph, tables, labels) - log_z)[0])
        target = clamped(inference.graph, tables, labels)
        if isinstance(inference, Loopy):
            # A difference of two upper bounds would bound nothing.
            agreeing = mean_field(inference.cover, target).log_partition
        else:
            agreeing = inference.log_partition(target, self._n_threads)
        return _of_all(graphs, (agreeing - log_z)[0])

    def entropy(self, X: Any) -> Floats:
        """Return -sum_y p(y|x) log p(y|x) of each graph, (m,); if inference="loopy", an approximation of it."""
        if self._is_empty(X):
            return np.empty(0)
        graphs, inference, tables = self._tables(X)
        return _of_all(graphs, inference.entropy(tables, self._n_threads)[0])

    @validated(n_samples=either(SIZE), random_state=SEED)
    def sample(self, X: Any, n_samples: int = 1, random_state: Any = None) -> list[Array]:
        """(n_samples, V_i) labels for each graph, drawn from p(y|x): exactly, or by Gibbs sampling unless exact."""
        rng = np.random.default_rng(check_random_state(random_state).randint(np.iinfo(np.int32).max))
        if self._is_empty(X):
            return Ragged()
        graphs, inference, tables = self._tables(X)
        if isinstance(inference, Exact):
            draws = inference.calibrate(tables).sample(n_samples, rng)[0]
        else:
            draws = Gibbs(inference.graph).sample(tables, n_samples, rng)[0]
        return Ragged(np.split(self.classes_[draws], graphs.offsets[1:-1], axis=1))

    def score(self, X: Any, y: Any, sample_weight: npt.ArrayLike | None = None) -> float:
        """Accuracy over the nodes whose label is known; `sample_weight` is that of graphs."""
        graphs, inference, tables = self._tables(X)
        order = Chains(graphs.offsets)
        indices, _ = inference.best(tables, self._n_threads)
        right, known = self._labels.compare(indices[0], y, order, flat=False)
        weights = score_weights(sample_weight, order.lengths, known, "node")
        return float(np.average(right[known], weights=weights))

    def _take(self, potentials: Potentials, covers: str) -> None:
        """Become the model of these potentials, which were fitted or loaded; `covers` is what was minimised."""
        self._potentials, self.classes_, self.covers_ = potentials, self._labels.classes, covers
        L = len(self.classes_)
        self.landmarks_ = getattr(potentials.maps["nodes"], "landmarks", None)
        self.cliques_ = tuple(name for name in potentials.templates if name != "nodes")
        self.edge_potentials_ = None
        if "edges" in potentials.templates:
            self.edge_potentials_ = potentials.potential("edges constant").reshape(L, L)

    def _state(self) -> tuple[dict[str, Any], dict[str, Array]]:
        return state_of_graph(self)

    def _restore(self, config: Mapping[str, Any], arrays: Mapping[str, Array]) -> None:
        restore_graph(self, config, arrays)

    @property
    def _inference(self) -> Any:
        """What makes inference of a graph."""
        return {"exact": Exact, "loopy": Loopy, "gibbs": partial(Gibbs, seed=self._seed)}[self.inference]

    def _check_combinations(self) -> None:
        wanted = self._wanted()
        advice = "edges have inputs where they have a potential; add 'edges' to cliques, or drop edge_kernel"
        self._exclude("edge_kernel", {"cliques": self.edge_kernel is not None and "edges" not in wanted}, advice)
        advice = "the bound takes pairs, not paths of three nodes, which a search asks for too; use 'exact' or 'gibbs'"
        self._exclude("inference", {"cliques": self.inference == "loopy" and "paths" in wanted}, advice)
        advice = f"the evidence is that of {COVERS['exact']}, and this fit is by {COVERS[self.inference]}"
        self._exclude("inference", {"laplace": bool(self.laplace) and self.inference != "exact"}, advice)

    def _wanted(self) -> tuple[str, ...]:
        """Cliques beside nodes that are in the model, or may be."""
        if is_learned(self.cliques):
            return CLIQUES
        wanted = (self.cliques,) if isinstance(self.cliques, str) else self.cliques
        return tuple(name for name in CLIQUES if name in wanted)

    def _members(self, graphs: GraphSamples) -> dict[str, Array]:
        """The cliques of each template."""
        cliques = {"nodes": np.arange(graphs.nodes.shape[0])[:, None]}
        for name in self._wanted():
            cliques[name] = getattr(graphs, name)
        if self.edge_kernel is not None and is_learned(self.cliques):
            cliques["edge inputs"] = graphs.edges
        return cliques

    def _terms(self, graphs: GraphSamples, L: int, engine: LocalEngine) -> list[Term]:
        node = LabelKernel("delta", L)
        nodes = {"edges": 2, "skips": 2, "paths": 3}
        label_kernels: dict[str, LabelMap] = {
            name: LabelKernel("delta", L**k) if graphs.directed else Reversible(L, k) for name, k in nodes.items()
        }
        terms = [
            Term("nodes", "nodes", node, self.C, self._inputs("kernel", graphs.nodes, engine)),
            Term("nodes constant", "nodes", node, self.C_label),
        ]
        terms += [Term(f"{name} constant", name, label_kernels[name], self.C_label) for name in self._wanted()]
        if self.edge_kernel is not None:
            template = "edge inputs" if is_learned(self.cliques) else "edges"
            inputs = self._inputs("edge_kernel", graphs.edge_inputs, engine)
            terms.append(Term("edge inputs", template, label_kernels["edges"], self.C, inputs))
        return terms

    def _inputs(self, argument: str, X: Inputs, engine: LocalEngine) -> CliqueInputs:
        given = getattr(self, argument)
        chosen = input_kernel(given, X, self.gamma, self.degree, self.coef0, argument=argument)
        return CliqueInputs.of(chosen, X, self.n_components, self.pivots, self._seed, engine)

    def _is_empty(self, X: Any) -> bool:
        """Whether there is nothing to label."""
        check_is_fitted(self)
        return not read_graphs(X)

    def _tables(self, X: Any) -> tuple[GraphSamples, Any, Floats]:
        """The graphs of X as one, how to infer on them, and their tables."""
        check_is_fitted(self)
        graphs = GraphSamples.read(X, directed=self.directed)
        if graphs.nodes.shape[1] != self.n_features_in_:
            raise ValueError(
                f"X has {graphs.nodes.shape[1]} node features: expected {self.n_features_in_}, as in training"
            )
        if graphs.directed != self._directed or (len(graphs.edges) and self._needs_edge_features(graphs)):
            raise ValueError("X has graphs of another kind than training: sequences, or edge features in one alone")
        engine, L = self._engine, len(self.classes_)
        present, members = self._potentials.templates, self._members(graphs)
        samples = graphs.samples if graphs.n_samples > 1 else None
        graph = Graph(np.full(graphs.nodes.shape[0], L), {name: members[name] for name in present}, samples)
        inference, inputs = self._inference(graph), {"nodes": graphs.nodes}
        if any(name != "nodes" for name in self._potentials.maps):
            inputs["edges"] = inputs["edge inputs"] = graphs.edge_inputs
        tables = self._potentials.tables(inference, 1, inputs, engine)
        return graphs, inference, tables

    def _needs_edge_features(self, graphs: GraphSamples) -> bool:
        return (graphs.edge_features is not None) != self._has_edge_features


def _known(labels: npt.NDArray[np.int32], allowed: Array | None) -> npt.NDArray[np.int32]:
    """Labels with -1 where there is none."""
    if allowed is None:
        return labels
    counts = allowed.sum(axis=1)
    if ((counts > 1) & (counts < allowed.shape[1])).any():
        raise ValueError("y has sets of labels: expected one label a node, or None where it is not known")
    return np.where(counts > 1, np.int32(-1), labels)


def _of_all(graphs: GraphSamples, values: Floats) -> Floats:
    """Values of graphs, with those of the last ones that have no nodes, and so one labelling: 0."""
    return np.concatenate((values, np.zeros(graphs.n_samples - len(values))))


def _rows(graphs: GraphSamples) -> int:
    """m where all samples have one and the same graph, and so one row each in a network; else 1, a row for all."""
    m, sizes = graphs.n_samples, np.diff(graphs.offsets)
    if (sizes != sizes[0]).any() or sizes[0] == 0 or len(graphs.edges) % m:
        return 1
    edges = graphs.edges.reshape(m, -1, 2) - sizes[0] * np.arange(m)[:, None, None]
    alike = (edges == edges[0]).all() and edges.min(initial=0) >= 0 and edges.max(initial=0) < sizes[0]
    return m if alike else 1
