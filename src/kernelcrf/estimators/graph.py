"""GraphCRF: a scikit-learn estimator that labels the nodes of graphs.

The probability of the labels y of a graph with the inputs x is

    p(y|x) = exp(sum_i f(x_i, y_i) + sum_(i,j) [T(y_i, y_j) + f'(x_ij, y_i, y_j)] + ...) / Z(x).

The first sum is over nodes i with inputs x_i, and the second sum is over edges (i, j) with inputs x_ij. The dots stand
for optional sums: over pairs of nodes at distance two, over paths of three nodes, and over cliques that the user names.
All nodes of a type share the function f. All edges of a type share the matrix T and the function f'. Without types, all
nodes and all edges share them. A sequence is read as a graph whose nodes form a chain.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Annotated, Any, ClassVar

from kernelcrf.answers.uncertainty import Uncertainty, average_draws
from kernelcrf.arrays import Array, Floats, UserData, matrix_of
from kernelcrf.decoding import VITERBI
from kernelcrf.distributed.cluster import ENGINE, releasing
from kernelcrf.distributed.sources import is_distributed
from kernelcrf.distributions.graph import GraphDistribution, count_right_nodes
from kernelcrf.estimators.base import Fitted, FittedNames, fitted_model
from kernelcrf.estimators.network import InputNetworkEstimator, InputShape, refuse_base_scores
from kernelcrf.estimators.parameters import CLASS_WEIGHT, CLASSES, OF_POSTERIORS, POSTERIOR
from kernelcrf.estimators.prior import earlier_of
from kernelcrf.fitting.graphs import COVERS, LabelledGraphs, Networks
from kernelcrf.graphs.structure import Chains
from kernelcrf.kernels.joint_labels import Reversible
from kernelcrf.kernels.labels import LabelKernel, LabelMap
from kernelcrf.models.network import GraphModel, inference_named
from kernelcrf.readers.base_scores import check_base_scores, read_node_scores
from kernelcrf.readers.containers import Ragged
from kernelcrf.readers.graph_kinds import GraphKinds, Type
from kernelcrf.readers.graphs import GraphSamples, read_labelled_graphs
from kernelcrf.readers.inputs import InputsReader
from kernelcrf.readers.labels import LabelReader
from kernelcrf.score.cliques import EDGE_INPUTS, EDGES, NODES, PATHS, SKIPS
from kernelcrf.score.terms import Term, constant_term, named_term, node_terms
from kernelcrf.validation import FLAG, Constraint, either, one_of, shown_list, validated

CLIQUES = (EDGES, SKIPS, PATHS)


def _are_cliques(names: Any) -> bool:
    known = isinstance(names, list | tuple | set | frozenset) and set(names) <= set(CLIQUES)
    return known and len(set(names)) == len(names)


CLIQUES_PARAMETER = either(
    one_of("auto", *CLIQUES), Constraint(f"a tuple of {', '.join(map(repr, CLIQUES))}", _are_cliques)
)


@dataclass(eq=False, repr=False, kw_only=True)
class GraphCRF(InputNetworkEstimator[GraphModel]):
    """Conditional random field on graphs, with kernels.

    X is a list of graphs. Each graph is one of

    - a tuple (features, edges) or (features, edges, edge_features): `features` has one row per node, `edges` has one
      row per edge with the numbers of its two nodes, and `edge_features` has one row per edge;
    - a dict with the keys "nodes" (features) and "edges", and optionally "edge_features", "node_types", "edge_types"
      (one string or integer per node or edge) and "cliques" (a dict from names of your choice to arrays (n_cliques, k)
      of node numbers, k >= 2);
    - a networkx graph, with features of nodes and, optionally, of edges in the attribute "x", and types in "type";
    - a sequence: an array with one row per token; the tokens become a chain of nodes.

    A clique is a group of nodes whose labels are scored together. Nodes of the same type share their functions, and so
    do edges of the same type. Without types, all nodes share their functions, and so do all edges. Each name in
    "cliques" has a table with one score per joint label of k nodes. The order of the nodes in a row matters, even if
    directed=False.

    y is a list of arrays with one label per node. None stands for a label that is not known. If all other labels are
    strings or non-negative integers, -1 means the same, except if the only other label is 1.

    Parameters
    ----------
    kernel, gamma : as in ChainCRF
        The kernel of the node features. These parameters have the same meaning and the same defaults as in ChainCRF.
    inputs : None or dict from names to kernelcrf.Input, default=None
        Several inputs of nodes, each with its own kernel, landmarks and C, as in ChainCRF. The features of the nodes of
        a graph are a dict from names to tables with one row per node (arrays, sparse matrices, data frames or lists of
        feature dicts), or one table of which inputs read some columns. Edges have one input.
    C : float, "auto", "evidence" or a rule of kernelcrf.rules, default=1.0
        Prior variance of the weights of inputs. "auto" chooses a power of 10 on held-out graphs. "evidence" maximises
        the marginal likelihood: the probability of the training labels, averaged over the prior distribution.
    C_label : float, default=1.0
        Prior variance of scores that do not depend on inputs, such as `edge_potentials_` and `clique_potentials_`.
    edge_kernel : None, str, callable or kernel of sklearn.gaussian_process, default=None
        Kernel of the edge features or, if there are none, of the features of both nodes; None ignores inputs of edges.
    directed : bool, default=False
        Whether the score of the labels (a, b) of an edge (i, j) may differ from the score of the labels (b, a). The
        edges of sequences, and named cliques, always have a direction.
    cliques : "auto", "edges", "skips", "paths" or tuple of the last three, default=("edges",)
        Cliques with scores, besides nodes: edges, pairs of nodes at distance two ("skips"), and paths of three nodes.
        "auto" starts with edges. A structure search then adds the others, and `edge_kernel` if it is given, if they
        improve the fit. It is not available if X has types or named cliques.
    classes : None or labels, default=None
        All labels, if some of them may not occur in y, or if -1 is one of them.
    class_weight : None, "balanced" or dict, default=None
        Weights of labels. The weight of a graph is the mean of the weights of its known labels.
    inference : "exact", "loopy" or "gibbs", default="exact"
        "exact" computes probabilities on a tree of cliques, and refuses graphs for which this needs too much memory.
        "loopy" uses a convex upper bound on the logarithm of the normalising constant of p(y|x). "gibbs" fits by
        pseudo-likelihood, which uses the probability of each label given the labels of all other nodes, and predicts
        from samples. The marginal likelihood needs "exact". cliques="auto" and cliques of three or more nodes need
        "exact" or "gibbs".
    structure_tol : float, default=1e-3
        Tolerance of cliques="auto", as `structure_tol` of MultiLabelCRF.
    min_gain : float or None, default=None
        Smallest gain for which cliques="auto" adds cliques, as `min_gain` of MultiLabelCRF.
    laplace : bool, default=False
        Whether to compute the marginal likelihood and the posterior of the weights, which `log_marginal_likelihood`,
        `uncertainty` and `predict_proba(posterior="laplace")` need. It needs inference="exact".
    solver : str or a solver such as NewtonCG(), default="auto"
        One of the solvers of ChainCRF, except "dual", or `Restarts`. "auto" is "lbfgs".
    warm_start : bool, default=False
        Start from the kernels, landmarks and weights of the previous fit, as in ChainCRF.
    prior : None, a fitted GraphCRF, or the path of its file, default=None
        An earlier model that this fit updates with new data, without the earlier training data, as in ChainCRF. The
        graphs must have the types of nodes and edges, and the names of cliques, of the earlier ones. New labels need
        directed=True.
    random_state : int, RandomState or None, default=None
        Seed for the landmarks, for Gibbs sampling and, if labels are missing, for the starting point of the fit.
    n_components, certify_full : as in ChainCRF
        With nodes in place of tokens, these parameters have the same meaning and the same defaults as in ChainCRF.
    penalty, tol, max_iter, checkpoint, engine, n_jobs, verbose : as in ChainCRF
        These parameters have the same meaning and the same defaults as in ChainCRF.

    Attributes
    ----------
    classes_ : (L,) labels.
    cliques_ : the kinds of cliques that have scores, besides nodes. The names of the cliques in X are among them.
    edge_potentials_ : (L, L), the scores of edges that do not depend on inputs, [from, to]. If edges have types, it is
        a dict from types to such arrays. It is None if edges have no scores.
    clique_potentials_ : a dict from the names of the cliques in X to their scores, arrays of shape (L,) * k.
    certificate_ : certificate of the fit, for the objective that `covers_` names.
    covers_ : the name of the minimised objective: the negative log posterior, or its replacement in "loopy" or "gibbs".
    search_ : the rounds of the structure search, and the cliques that were not added, with bounds on their gains. It is
        None unless cliques="auto".
    landmarks_ : landmarks of the node features, or None for the linear kernel. If nodes have types, it is a dict from
        types to landmarks. With several `inputs`, it is a dict from the names of the inputs to such values.
    input_variances_ : the prior variance of each of several `inputs`, a dict.
    n_features_in_ : number of columns of the node features.
    feature_names_in_ : names of these columns, after a fit to data frames.
    n_iter_ : the number of iterations of the solver.

    Examples
    --------
    >>> import numpy as np
    >>> from kernelcrf import GraphCRF, Input
    >>> rng = np.random.default_rng(0)
    >>> ring = [[0, 1], [1, 2], [2, 3], [3, 0]]
    >>> y = [np.full(4, rng.integers(2)) for _ in range(40)]  # all nodes of a ring share their label
    >>> X = [(labels[:, None] + rng.normal(size=(4, 1)), ring) for labels in y]
    >>> crf = GraphCRF("linear", laplace=True).fit(X, y)
    >>> crf.edge_potentials_.round(1)
    array([[ 1.4, -1.3],
           [-1.3,  1.2]])
    >>> crf.predict(X[:1])[0], crf.predict_proba(X[:1])[0].shape
    (array([1, 1, 1, 1]), (4, 2))
    >>> distribution = crf.distribution(X[:1])  # answers all questions about p(y|x)
    >>> [round(log_p, 2) for labels, log_p in distribution.k_best(2)[0]], distribution.entropy().round(2)
    ([-0.11, -2.54], array([0.44]))
    >>> crf.log_prob(X[:1], y[:1]).round(2), distribution.sample(3, random_state=0)[0].shape
    (array([-0.11]), (3, 4))
    >>> crf.score(X, y), round(crf.log_marginal_likelihood(), 1)
    (0.775, -27.0)
    >>> crf.uncertainty(X[:1], n_samples=20).epistemic[0].shape  # how much more data would help
    (4,)
    >>> crf.save("graphs.kcrf")
    >>> several = GraphCRF(inputs={"first": Input("rbf", columns=[0])})  # each input has its own kernel and C
    >>> several.set_params(inputs__first__C=2.0).get_params()["inputs__first__C"]
    2.0
    """

    directed: Annotated[bool, FLAG] = False
    cliques: Annotated[Any, CLIQUES_PARAMETER] = ("edges",)
    classes: Annotated[Any, CLASSES] = None
    inference: Annotated[str, either(one_of(*COVERS))] = "exact"
    class_weight: Annotated[Any, CLASS_WEIGHT] = None
    engine: Annotated[Any, ENGINE] = None

    _model_type = GraphModel
    _structure: ClassVar[str] = "cliques"

    classes_ = Fitted[Array]("labels.classes")
    n_features_in_ = Fitted[int]("n_features")
    feature_names_in_ = FittedNames("columns.nodes")
    cliques_ = Fitted[tuple[str, ...]]("cliques")
    edge_potentials_ = Fitted[Floats | dict[Type, Floats] | None]("edge_potentials")
    clique_potentials_ = Fitted[dict[str, Floats]]("clique_potentials")
    covers_ = Fitted[str]("covers")

    @releasing()
    def fit(
        self, X: UserData, y: UserData = None, sample_weight: UserData = None, *, base_scores: UserData = None
    ) -> GraphCRF:
        """Fit the model to labelled graphs; `sample_weight` has one weight per graph.

        y : a list with the labels of the nodes of each graph. A graph can also have an array or a data frame with the
            probability of each label, one row per node, as in `ChainCRF.fit`; the labels of the nodes of a graph are
            then independent.
            On a cluster, X and y are also two dask.bag collections or lists of delayed lists, or X is a
            `SequenceSources` object whose functions return graphs in place of sequences. Labels have no probabilities.
        base_scores : scores that are added to those of the model and not learned: for each graph, an array with one row
            per node and one column per label. Pass scores of the same kind to `predict` and to the other methods that
            accept them.
        """
        self._validate_params()
        seed = self._seed()
        earlier, prior = self._find_start(), self._find_prior()
        if self.engine is not None or is_distributed(X):
            return self._fit_on_cluster(X, y, sample_weight, earlier, prior, seed, base_scores)
        before = earlier or prior
        like = None if before is None else before.empty_samples
        reader, graphs, labels, weights, kept, soft = read_labelled_graphs(
            X, y, sample_weight, directed=self.directed, classes=self.classes, class_weight=self.class_weight,
            like=like, chosen=self._chosen, learns_names=self._learns_names,
            known=None if prior is None else prior.labels,
        )  # fmt: skip
        if prior is not None and not graphs.n_samples:
            self.model_ = prior
            return self
        if soft is not None and self.inference == "gibbs":
            raise ValueError(
                "inference='gibbs' cannot be combined with probabilities in y, because the pseudo-likelihood of a node "
                "depends on the labels of its neighbours: expected labels, or inference='exact' or 'loopy'"
            )
        L = len(reader.classes)
        base = read_node_scores(base_scores, Chains(graphs.offsets), L, kept)
        if before is not None:
            check_base_scores(before.base, base)
        if prior is not None:
            graphs = prior.match(graphs)
        self._check_kinds(graphs.kinds, L)
        data = LabelledGraphs.of(
            graphs, labels, L, self._templates(graphs.kinds), weights, inference_named(self.inference, seed),
            of_edges=self.edge_kernel is not None, base=None if base is None else base[NODES], soft=soft,
        )  # fmt: skip

        def shape_of(name: str | None) -> InputShape:
            X = graphs.nodes if name is None else matrix_of(graphs.nodes, name)
            return InputShape.of(X, None, None if graphs.named is None or name is None else graphs.named.names_of(name))

        def shape_of_edges() -> InputShape:
            return InputShape.of(graphs.edge_inputs)

        return self._fit_graphs(data, graphs, reader, earlier, prior, seed, shape_of, shape_of_edges, base)

    def _fit_graphs(
        self,
        data: Networks,
        graphs: GraphSamples,
        reader: LabelReader,
        earlier: GraphModel | None,
        prior: GraphModel | None,
        seed: int,
        shape_of: Callable[[str | None], InputShape],
        shape_of_edges: Callable[[], InputShape],
        base: UserData,
    ) -> GraphCRF:
        """Fit the model to graphs, in this process or on a cluster.

        graphs : the graphs, or graphs without nodes that have the same columns and kinds of cliques.
        reader : the reader of labels.
        shape_of, shape_of_edges : functions that return the shape of an input of nodes, given its name or None, and of
            the inputs of edges.
        base : base scores, or None.
        """
        L = len(reader.classes)
        terms = self._terms(graphs.kinds, graphs.directed, graphs.named, L, earlier or prior, shape_of, shape_of_edges)
        grows = graphs.named is not None and self._learns_names
        update = None
        if prior is not None:
            update = earlier_of(prior, reader.positions_of(prior.labels), L, data.n_columns)
        present = [NODES, EDGES]
        self.model_ = GraphModel(
            **self._train_network(terms, data, present, seed, earlier, update, grows=grows),
            labels=reader,
            n_features=graphs.nodes.shape[1] if graphs.named is None else graphs.named.n_features,
            directed=graphs.directed,
            has_edge_features=graphs.edge_features is not None,
            seed=seed,
            covers=COVERS[self.inference],
            columns=graphs.columns,
            kinds=graphs.kinds,
            named=graphs.named,
            base=tuple(base or ()),
        )
        return self

    def _fit_on_cluster(
        self,
        X: UserData,
        y: UserData,
        sample_weight: UserData,
        earlier: GraphModel | None,
        prior: GraphModel | None,
        seed: int,
        base_scores: UserData,
    ) -> GraphCRF:
        from kernelcrf.distributed.gamma import gamma_by_scale
        from kernelcrf.distributed.graphs import GraphPartReader, read_graph_parts

        refuse_base_scores(base_scores, "graphs", [earlier, prior])
        before = earlier or prior
        parts = GraphPartReader(
            directed=self.directed, classes=self.classes, class_weight=self.class_weight, chosen=self._chosen,
            of_edges=self.edge_kernel is not None, inference=inference_named(self.inference, seed),
            templates=self._templates, check=self._check_kinds,
            named=None if before is None else before.named, learns_names=self._learns_names,
            match=None if prior is None else prior.match, known=None if prior is None else prior.labels,
        )  # fmt: skip
        read, data = read_graph_parts(X, y, sample_weight, self.engine, parts, self._expected_features)
        if prior is not None and not read.n_tokens:
            self.model_ = prior
            return self
        reader, form = read.readers

        def shape(matrices: list[str]) -> InputShape:
            by_scale = partial(gamma_by_scale, data, matrices)
            return InputShape(data.n_columns(matrices[0]), data.is_sparse(matrices[0]), by_scale)

        def shape_of(name: str | None) -> InputShape:
            kinds = form.kinds.nodes.values()
            return shape([kind if name is None else named_term(name, kind) for kind in kinds])

        def shape_of_edges() -> InputShape:
            return shape(list(form.kinds.edges.values()))

        return self._fit_graphs(data, form, reader, earlier, prior, seed, shape_of, shape_of_edges, None)

    def distribution(self, X: UserData, *, base_scores: UserData = None) -> GraphDistribution:
        """Return an object for the distribution p(y|x) of the labels of the graphs X.

        Its methods share one pass of inference: marginals of nodes and edges, entropies, samples, and the k likeliest
        labellings. The parameter `inference` says which of them are exact.

        base_scores : scores of the same kind as those passed to `fit`, if any.
        """
        self._validate_params("inference")
        model, engine = self._model, self._engine
        graphs = GraphSamples.read(X, directed=self.directed, like=model.empty_samples)
        field = model.field(graphs, self.inference, engine, base_scores)
        return GraphDistribution(
            rule=VITERBI, model=model, graphs=graphs, field=field, inference=self.inference, engine=engine
        )

    def predict(self, X: UserData, *, base_scores: UserData = None) -> list[Array]:
        """Return the predicted labels, one array per graph.

        If inference="exact", this is the likeliest labelling of the graph; otherwise, the likeliest label of each node.
        For a Dask collection, the result is a dask.bag with one array per graph, and for a list of delayed values a
        list of delayed values.
        """
        if is_distributed(X):
            answers: list[Array] = self._answer_parts("predict", X, base_scores=base_scores)
            return answers
        labels: list[Array] = self.distribution(X, base_scores=base_scores).decode()
        return labels

    def _answer_parts(self, method: str, X: UserData, **options: UserData) -> Any:
        from kernelcrf.distributed.answers import answer_sequences

        fitted_model(self)
        return answer_sequences(self, method, X, **options)

    @validated(posterior=POSTERIOR, **OF_POSTERIORS)
    def predict_proba(
        self,
        X: UserData,
        *,
        posterior: str = "map",
        n_samples: int | None = None,
        variance_temperature: float = 1.0,
        random_state: UserData = 0,
        base_scores: UserData = None,
    ) -> list[Array]:
        """Return the probabilities of the labels: one array per graph, with one row per node.

        Entry [v, j] of an array is p(y_v = classes_[j] | x); it is an approximation unless inference="exact". X has one
        of the forms that `predict` accepts. The parameters are explained in `ChainCRF.predict_proba`.
        """
        if is_distributed(X):
            options = {"posterior": posterior, "n_samples": n_samples, "variance_temperature": variance_temperature}
            others = {"random_state": random_state, "base_scores": base_scores}
            answers: list[Array] = self._answer_parts("predict_proba", X, **options, **others)
            return answers
        if posterior == "map":
            return self.distribution(X, base_scores=base_scores).marginals()
        return self._average(X, (n_samples, variance_temperature, random_state), base_scores)[0]

    @validated(**OF_POSTERIORS)
    def uncertainty(
        self,
        X: UserData,
        *,
        n_samples: int | None = None,
        variance_temperature: float = 1.0,
        random_state: UserData = 0,
        base_scores: UserData = None,
    ) -> Uncertainty:
        """Return the epistemic and aleatoric uncertainty in nats: one array per graph, with one number per node.

        The parameters are explained in `ChainCRF.predict_proba`.
        """
        draws = n_samples, variance_temperature, random_state
        return Uncertainty(*self._average(X, draws, base_scores)[1:])

    def _average(
        self, X: UserData, draws: tuple[int | None, float, UserData], base_scores: UserData
    ) -> list[list[Array]]:
        """Return three lists with one array per graph: mean marginals, epistemic and aleatoric uncertainty."""
        self._validate_params("inference")
        model = self._model
        graphs = GraphSamples.read(X, directed=self.directed, like=model.empty_samples)
        parts = average_draws(model.draw_marginals(graphs, self.inference, *draws, self._engine, base_scores))
        return [Ragged.cut(part, graphs.offsets) for part in parts]

    def log_prob(self, X: UserData, y: UserData, *, base_scores: UserData = None) -> Floats:
        """Return log p(y|x) of each graph; with inference="loopy", return a lower bound of log p(y|x).

        If labels are missing, this is the logarithm of the total probability of all labellings that agree with y. This
        method is not available with inference="gibbs".
        """
        return self.distribution(X, base_scores=base_scores).log_prob(y)

    def score(
        self, X: UserData, y: UserData = None, sample_weight: UserData = None, *, base_scores: UserData = None
    ) -> float:
        """Return the fraction of known labels that are predicted correctly, with one `sample_weight` per graph.

        Graphs in Dask collections are labelled where they are, and only counts are fetched.
        """
        if is_distributed(X):
            from kernelcrf.distributed.answers import GRAPHS, score_parts

            fitted_model(self)
            return score_parts(GRAPHS, self, X, y, sample_weight, base_scores=base_scores)
        right, total = count_right_nodes(self.distribution(X, base_scores=base_scores), y, sample_weight)
        return right / total

    def _check_combinations(self) -> None:
        super()._check_combinations()
        wanted = self._wanted()
        advice = "edge_kernel needs potentials of edges; add 'edges' to cliques, or set edge_kernel=None"
        self._exclude("edge_kernel", {"cliques": self.edge_kernel is not None and EDGES not in wanted}, advice)
        advice = "'loopy' cannot handle paths of three nodes, which 'auto' tries too; use 'exact' or 'gibbs'"
        self._exclude("inference", {"cliques": self.inference == "loopy" and PATHS in wanted}, advice)
        advice = f"the evidence needs {COVERS['exact']}, but this fit minimises {COVERS[self.inference]}; use 'exact'"
        by_evidence = {
            "laplace": bool(self.laplace),
            "C": self._uses_evidence,
        }
        if self.inference != "exact":
            self._exclude("inference", by_evidence, advice)

    def _wanted(self) -> tuple[str, ...]:
        """Return the kinds of cliques, other than nodes, that are in the model or that a search may add."""
        if self._is_learned:
            return CLIQUES
        wanted = (self.cliques,) if isinstance(self.cliques, str) else self.cliques
        return tuple(name for name in CLIQUES if name in wanted)

    def _check_kinds(self, kinds: GraphKinds, L: int) -> None:
        """Raise if the types or named cliques of X cannot be combined with the parameters."""
        if self._is_learned and kinds.has_ties:
            raise ValueError(
                "cliques='auto', but X has types or named cliques: a structure search needs graphs without them; pass "
                "the cliques, such as cliques=('edges',)"
            )
        wide = [name for name, k in kinds.named.items() if k > 2]
        if self.inference == "loopy" and wide:
            raise ValueError(
                f"inference='loopy', but X has cliques of three or more nodes, named {shown_list(wide)}: expected "
                "single nodes and pairs; use inference='exact' or 'gibbs'"
            )
        kinds.check_sizes(L)

    def _templates(self, kinds: GraphKinds) -> list[str]:
        """Return the kinds of cliques that have scores, or that a search may add."""
        names = list(kinds.nodes.values())
        for name in self._wanted():
            names += kinds.edges.values() if name == EDGES else [name]
        names += kinds.cliques.values()
        return [*names, EDGE_INPUTS] if self.edge_kernel is not None and self._is_learned else names

    def _terms(
        self,
        kinds: GraphKinds,
        directed: bool,
        named: InputsReader | None,
        L: int,
        earlier: GraphModel | None,
        shape_of: Callable[[str | None], InputShape],
        shape_of_edges: Callable[[], InputShape],
    ) -> list[Term]:
        """Return the terms of the score.

        kinds, directed, named : as in `GraphSamples`.
        shape_of, shape_of_edges : functions that return the shape of an input of nodes, given its name or None, and of
            the inputs of edges.
        """
        node, C = LabelKernel("delta", L), self._first_C(earlier)
        label_kernels: dict[str, LabelMap] = {
            name: LabelKernel("delta", L**k) if directed else Reversible(L, k)
            for name, k in {EDGES: 2, SKIPS: 2, PATHS: 3}.items()
        }
        inputs = self._inputs_of(shape_of, named, earlier, kinds.nodes.values(), C)
        terms: list[Term] = []
        for kind in kinds.nodes.values():
            terms += node_terms(kind, node, inputs, kind, kind)
            terms.append(Term(constant_term(kind), kind, node, self.C_label))
        for name in self._wanted():
            of_name = kinds.edges.values() if name == EDGES else [name]
            terms += [Term(constant_term(kind), kind, label_kernels[name], self.C_label) for kind in of_name]
        for name, kind in kinds.cliques.items():
            terms.append(Term(constant_term(kind), kind, LabelKernel("delta", L ** kinds.named[name]), self.C_label))
        if self.edge_kernel is not None:
            kernel = self._kernel_of("edge_kernel", earlier, kinds.edge_inputs.values(), shape_of_edges())
            for kind, name in zip(kinds.edges.values(), kinds.edge_inputs.values(), strict=True):
                template = EDGE_INPUTS if self._is_learned else kind
                terms.append(Term(name, template, label_kernels[EDGES], C, kernel, kind))
        return terms
