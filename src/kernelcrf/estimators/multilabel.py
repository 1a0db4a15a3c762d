"""MultiLabelCRF: a scikit-learn classifier that predicts several labels per row, which may depend on each other.

The probability of the labels y of a row x is

    p(y|x) = exp(sum_j f_j(x, y_j) + sum_(j,k) [w_jk(y_j, y_k) + f_jk(x, y_j, y_k)]) / Z(x).

The first sum is over labels j. The function f_j is a constant plus a function in the RKHS of the kernel. The second sum
is over the pairs of labels that interact; the pairs are given or learned. The interactions w_jk and f_jk contain no
main effects, which are part of f_j and f_k.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import Annotated, Any

import numpy as np
from sklearn.base import ClassifierMixin

from kernelcrf.answers.uncertainty import Uncertainty, average_draws
from kernelcrf.arrays import Array, Floats, Places, UserData
from kernelcrf.decoding import DecodingRule, rules_for
from kernelcrf.distributed.cluster import ENGINE, releasing
from kernelcrf.distributed.sources import is_distributed
from kernelcrf.distributions.label_sets import LabelSetDistribution
from kernelcrf.estimators.base import Fitted, FittedNames, fitted_model
from kernelcrf.estimators.network import InputNetworkEstimator, InputShape, interacting_pairs, refuse_base_scores
from kernelcrf.estimators.parameters import OF_POSTERIORS, POSTERIOR, STRUCTURE
from kernelcrf.estimators.prior import earlier_of
from kernelcrf.fitting.graphs import LabelledGraphs, Networks
from kernelcrf.graphs.label_graphs import count_pairs
from kernelcrf.kernels.joint_labels import Contrasts, interactions
from kernelcrf.models.label_sets import (
    ROWS,
    LabelSetModel,
    inputs_of_rows,
    label_name,
    pair_graph,
    pair_name,
    scores_of_labels,
)
from kernelcrf.readers.base_scores import check_base_scores, read_row_scores
from kernelcrf.readers.rows import LabelSetReader, RowReader, count_right_sets, read_probabilities
from kernelcrf.readers.weights import only_weighted, read_weights
from kernelcrf.score.cliques import TOKENS
from kernelcrf.score.terms import Term, constant_term, named_term, node_terms
from kernelcrf.validation import validated


@dataclass(eq=False, repr=False, kw_only=True)
class MultiLabelCRF(ClassifierMixin, InputNetworkEstimator[LabelSetModel]):  # type: ignore[misc]
    """Conditional random field on a set of labels, with kernels.

    X is a matrix with one row per sample or, with several `inputs`, a dict from names to such matrices. y is an
    indicator matrix as in scikit-learn, dense or sparse, with one column per label: 1 means that the row has the label,
    and 0 that it does not. -1 is a missing label. If y contains no zeros, no value means a missing label, and
    each column may contain any two values, such as -1 and 1.

    Parameters
    ----------
    kernel : as in ChainCRF
        The kernel of rows, with the same meaning and the same default as in ChainCRF.
    gamma : "scale", "auto" or float, default="scale"
        Coefficient of the kernel, as in sklearn.svm.SVC. "scale" uses the variance of X, weighted by `sample_weight`.
    C : float, "auto", "evidence" or a rule of kernelcrf.rules, default=1.0
        Prior variance of the weights of inputs. "auto" chooses a power of 10 on held-out rows. "evidence" maximises the
        marginal likelihood: the probability of the training labels, averaged over the prior distribution.
    inputs : None or dict from names to kernelcrf.Input, default=None
        Several inputs, each with its own kernel, landmarks and C, as in KernelClassifier. `edge_kernel` compares all
        their columns, side by side.
    C_label : float, default=1.0
        Prior variance of the scores that do not depend on inputs: those of single labels, and of pairs of labels.
    structure : "auto", "full", "tree", "none" or pairs of label numbers, default="auto"
        Pairs of labels that interact. "auto" learns them by a structure search. It starts without pairs, adds the pairs
        that are expected to lower the objective most, and fits the model again, until `structure_tol` or `min_gain`
        stops it. "full" uses all pairs, and "none" uses no pair. "tree" uses the pairs of a Chow-Liu tree: the tree
        with the largest total mutual information between neighbouring labels. You can also pass a list of pairs.
    edge_kernel : None, str, callable or kernel of sklearn.gaussian_process, default=None
        Kernel for interactions that depend on the inputs; None keeps interactions constant.
    decoding : "viterbi", "marginal" or a rule of kernelcrf.decoding, default="viterbi"
        Whether `predict` returns the likeliest set of labels, which is best for the accuracy of whole sets, or all
        labels of probability above 1/2, which is best for Hamming loss. `kernelcrf.decoding.ExpectedCost(costs)`, with
        a (2, 2) array of costs, returns all labels whose probability is above the threshold that the costs imply.
    penalty : None or a penalty of kernelcrf.penalties, default=None
        A penalty that is added to that of `C`, and makes weights zero, as in ChainCRF.
    structure_tol : float, default=1e-3
        structure="auto" stops if all other interactions together could lower the objective P by at most
        structure_tol |P|.
    min_gain : float or None, default=None
        structure="auto" also stops if no interaction is expected to lower the objective by more than `min_gain`. None
        means log(n_samples) / 2 per weight of the interaction.
    laplace : bool, default=False
        Whether to compute the marginal likelihood and the posterior of the weights, which `log_marginal_likelihood`,
        `uncertainty` and `predict_proba(posterior="laplace")` need.
    solver : str or a solver such as NewtonCG(), default="auto"
        One of the solvers of ChainCRF, except "dual", or `Restarts`. "auto" is "lbfgs".
    warm_start : bool, default=False
        Start from the kernels, landmarks and weights of the previous fit, as in ChainCRF.
    prior : None, a fitted MultiLabelCRF, or the path of its file, default=None
        An earlier model that this fit updates with new data, without the earlier training data, as in ChainCRF. The
        pairs of labels that interact in the earlier model stay; structure="auto" may add others.
    n_components, certify_full : as in ChainCRF
        With rows in place of tokens, these parameters have the same meaning and the same defaults as in ChainCRF.
    tol, max_iter, checkpoint, engine, n_jobs, random_state, verbose : as in ChainCRF
        These parameters have the same meaning and the same defaults as in ChainCRF.

    Attributes
    ----------
    classes_ : (n_labels,), the numbers of the labels; if y is one-dimensional, its two values.
    edges_ : (n_edges, 2), the pairs of labels that interact.
    interactions_ : (n_edges,), the log odds ratio of each pair, without the part that depends on inputs.
    intercept_ : (n_labels,), the log odds of each label, without the part that depends on inputs.
    landmarks_ : (n_landmarks, n_features), or None for the linear kernel; a dict of them if there are several `inputs`.
    input_variances_ : the prior variance of each of several `inputs`, a dict.
    certificate_ : certificate of the fit, for the model with the pairs `edges_`.
    search_ : the rounds of the structure search, and the pairs that were not added, with bounds on their gains. It is
        None unless structure="auto".
    n_features_in_ : number of columns of X.
    n_iter_ : the number of iterations of the solver.

    Examples
    --------
    >>> import numpy as np
    >>> from kernelcrf import Input, MultiLabelCRF
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
    >>> distribution = model.distribution(X[:2])  # answers all questions about p(y|x)
    >>> [(labels.tolist(), round(log_p, 2)) for labels, log_p in distribution.k_best(2)[0]]
    [([0, 0, 1], -1.08), ([1, 1, 1], -1.2)]
    >>> model.log_prob(X[:2], Y[:2]).round(1), distribution.entropy().round(1)
    (array([-4.1, -2.5]), array([1.6, 1.5]))
    >>> round(model.score(X, Y), 2), round(model.log_marginal_likelihood(), 1)
    (0.52, -438.6)
    >>> distribution.sample(3, random_state=0).shape
    (3, 2, 3)
    >>> model.uncertainty(X[:2], n_samples=20).epistemic.shape  # how much more data would help
    (2, 3)
    >>> model.save("labels.kcrf")
    >>> several = MultiLabelCRF(inputs={"first": Input("rbf", columns=[0])})  # each input has its own kernel and C
    >>> several.set_params(inputs__first__C=2.0).get_params()["inputs__first__C"]
    2.0
    """

    structure: Annotated[Any, STRUCTURE] = "auto"
    decoding: Annotated[str | DecodingRule, rules_for(LabelSetDistribution)] = "viterbi"
    engine: Annotated[Any, ENGINE] = None

    _model_type = LabelSetModel

    edges_ = Fitted[Places]("edges")
    interactions_ = Fitted[Floats]("interactions")
    intercept_ = Fitted[Floats]("intercept")
    classes_ = Fitted[Array]("sets.classes")
    n_features_in_ = Fitted[int]("rows.n_features")
    feature_names_in_ = FittedNames("rows.column_names")

    @releasing()
    def fit(
        self, X: UserData, y: UserData = None, sample_weight: UserData = None, *, base_scores: UserData = None
    ) -> MultiLabelCRF:
        """Fit the model to a dense or sparse matrix X and to the label sets y of its rows, and return it.

        `sample_weight` has one weight per row. y can also have the probability of each label, as numbers from 0 to 1;
        the labels of a row are then independent, and structure="tree" is chosen for the likeliest labels.

        On a cluster, X is also a dask.array or a dask.dataframe, and y one with as many partitions, which has labels
        and no probabilities. If X is a dask.dataframe, y and `sample_weight` can be names of its columns.

        base_scores : log odds of the labels, which are added to the log odds of the model and not learned, with one row
            per row of X and one column per label. Pass scores of the same kind to `predict` and to the other methods
            that accept them.
        """
        self._validate_params()
        earlier, prior, given = self._find_start(), self._find_prior(), X
        if self.engine is not None or is_distributed(X):
            return self._fit_on_cluster(X, y, sample_weight, earlier, prior, base_scores)
        before = earlier or prior
        if prior is None:
            owner, chosen = type(self).__name__, self._chosen
            rows, X, y = RowReader.fit(owner, X, y, sample_weight, multi_output=True, chosen=chosen)
        if before is not None:
            rows = before.rows
            rows, X = rows.extend(given, sample_weight) if self._learns_names else (rows, rows.read(given))
        p, soft = read_probabilities(y), None
        if p is not None:
            soft, y = np.stack((1 - p, p), axis=-1), (p > 1 / 2).astype(np.int64)
        sets, labels = LabelSetReader.fit(y) if prior is None else (prior.sets, prior.sets.read(y))
        if len(labels) != X.shape[0]:
            raise ValueError(f"X has {X.shape[0]} rows and y has {len(labels)}: expected the same number")
        base = read_row_scores(base_scores, *labels.shape)
        if before is not None:
            check_base_scores(before.base, base)
        given = read_weights(sample_weight, len(labels), "row", part=prior is not None)
        of_labels = None if base is None else scores_of_labels(only_weighted(given, base[TOKENS])[1])
        q = np.zeros((len(labels), 0)) if soft is None else soft
        weights, X, labels, q = only_weighted(given, X, labels, q)
        if prior is not None and not len(labels):
            self.model_ = prior
            return self
        cards = np.full(labels.shape[1], 2)
        known = None if prior is None else prior.edges
        pairs = interacting_pairs(self.structure, len(cards), partial(count_pairs, labels, cards, weights), known)
        cliques = pair_graph(cards, pairs, label_name).cliques
        inputs = inputs_of_rows(X, self._sources)
        data = LabelledGraphs(cards, cliques, labels, inputs, weights=weights, base=of_labels)
        data = data if soft is None else replace(data, soft=q)

        def shape_of(name: str | None) -> InputShape:
            names = None if name is None else rows.names_of(name)
            return InputShape.of(inputs[ROWS if name is None else named_term(name)], weights, names)

        return self._fit_sets(data, rows, sets, pairs, shape_of, earlier, prior, base)

    @property
    def _sources(self) -> set[str]:
        """Return the inputs that terms read: "rows" has the columns of all inputs side by side."""
        return {ROWS} if self.inputs is None or self.edge_kernel is not None else set()

    def _fit_sets(
        self,
        data: Networks,
        rows: RowReader,
        sets: LabelSetReader,
        pairs: list[tuple[int, int]],
        shape_of: Callable[[str | None], InputShape],
        earlier: LabelSetModel | None,
        prior: LabelSetModel | None,
        base: UserData,
    ) -> MultiLabelCRF:
        """Fit the model to label sets, in this process or on a cluster.

        pairs : the pairs of labels that interact or may interact.
        shape_of : a function that returns the shape of an input, given its name, or None for all columns.
        base : base scores, or None.
        """
        singles = [label_name(j) for j in range(len(sets.values))]
        terms = self._terms(singles, [pair_name(*pair) for pair in pairs], shape_of, rows, earlier or prior)
        grows = rows.named is not None and self._learns_names
        update = None if prior is None else earlier_of(prior, np.arange(2, dtype=np.int32), 2, data.n_columns)
        shared = self._train_network(terms, data, singles, self._seed(), earlier, update, grows=grows)
        edges = [pair for pair in pairs if pair_name(*pair) in shared["layout"].cliques]
        self.model_ = LabelSetModel(
            **shared,
            rows=rows,
            sets=sets,
            edges=np.array(edges, np.int64).reshape(-1, 2),
            base=tuple(base or ()),
        )
        return self

    def _fit_on_cluster(
        self,
        X: UserData,
        y: UserData,
        sample_weight: UserData,
        earlier: LabelSetModel | None,
        prior: LabelSetModel | None,
        base_scores: UserData,
    ) -> MultiLabelCRF:
        from kernelcrf.distributed.gamma import gamma_by_scale
        from kernelcrf.distributed.label_sets import (
            LabelSetPartReader,
            count_pairs_of_parts,
            read_label_set_parts,
            with_interactions,
        )

        refuse_base_scores(base_scores, "rows", [earlier, prior])
        parts = LabelSetPartReader(
            owner=type(self).__name__,
            sources=self._sources,
            chosen=self._chosen,
            earlier=None if earlier is None else (earlier.rows, earlier.sets),
            prior=None if prior is None else (prior.rows, prior.sets),
            learns_names=self._learns_names,
        )
        read, data = read_label_set_parts(X, y, sample_weight, self.engine, parts, self._expected_features)
        if prior is not None and not read.n_tokens:
            self.model_ = prior
            return self
        rows, sets = read.readers
        known = None if prior is None else prior.edges
        pairs = interacting_pairs(self.structure, len(sets.values), partial(count_pairs_of_parts, data), known)
        networks = with_interactions(data, pairs)

        def shape_of(name: str | None) -> InputShape:
            matrix = ROWS if name is None else named_term(name)
            by_scale = partial(gamma_by_scale, networks, [matrix], weighted=True)
            return InputShape(networks.n_columns(matrix), networks.is_sparse(matrix), by_scale)

        return self._fit_sets(networks, rows, sets, pairs, shape_of, earlier, prior, None)

    def distribution(self, X: UserData, *, base_scores: UserData = None) -> LabelSetDistribution:
        """Return an object for the distribution p(y|x) of the label sets of the rows of X.

        Its methods share one pass of inference: marginals of labels and of pairs, entropies, samples, and the k
        likeliest label sets.

        base_scores : scores of the same kind as those passed to `fit`, if any.
        """
        self._validate_params("decoding")
        model = self._model
        rows = model.rows.read(X)
        base = model.read_base(base_scores, rows.shape[0])
        return LabelSetDistribution(rule=self.decoding, model=model, rows=rows, engine=self._engine, base=base)

    def predict(self, X: UserData, *, base_scores: UserData = None) -> Array:
        """Return the predicted label sets in the format of the y passed to `fit`.

        For a dask.array or dask.dataframe X, the result is a dask.array, and for a list of delayed values a list of
        delayed values.
        """
        if is_distributed(X):
            answers: Array = self._answer_parts("predict", X, base_scores=base_scores)
            return answers
        labels: Array = self.distribution(X, base_scores=base_scores).decode()
        return labels

    def _answer_parts(self, method: str, X: UserData, **options: UserData) -> Any:
        from kernelcrf.distributed.answers import answer_rows

        fitted_model(self)
        return answer_rows(self, method, X, **options)

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
    ) -> Floats:
        """Return the probability that each row has each label, with one row per row of X and one column per label.

        If the y passed to `fit` was one-dimensional, the result has one column for each of its two values. For a Dask
        collection X, the result is one too, as that of `predict`. The parameters are explained in
        `ChainCRF.predict_proba`.
        """
        if is_distributed(X):
            options = {"posterior": posterior, "n_samples": n_samples, "variance_temperature": variance_temperature}
            others = {"random_state": random_state, "base_scores": base_scores}
            answers: Floats = self._answer_parts("predict_proba", X, **options, **others)
            return answers
        if posterior == "map":
            return self.distribution(X, base_scores=base_scores).marginals()
        model = self._model
        p = self._average(model, X, (n_samples, variance_temperature, random_state), base_scores)[0]
        return p[:, 0] if model.sets.one_column else p[:, :, 1]

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
        """Return the epistemic and aleatoric uncertainty in nats, with one row per row of X and one column per label.

        The parameters are explained in `ChainCRF.predict_proba`.
        """
        draws = n_samples, variance_temperature, random_state
        return Uncertainty(*self._average(self._model, X, draws, base_scores)[1:])

    def _average(
        self, model: LabelSetModel, X: UserData, draws: tuple[int | None, float, UserData], base_scores: UserData
    ) -> list[Floats]:
        """Return three arrays [row, label, ...]: mean probabilities, epistemic and aleatoric uncertainty."""
        rows = model.rows.read(X)
        drawn = model.draw_marginals(rows, *draws, self._engine, model.read_base(base_scores, rows.shape[0]))
        parts = zip(*(average_draws(block) for block in drawn), strict=True)
        joined = (np.concatenate(part) for part in parts)
        return [part.reshape(-1, len(model.sets.values), *part.shape[1:]) for part in joined]

    def log_prob(self, X: UserData, y: UserData, *, base_scores: UserData = None) -> Floats:
        """Return log p(y|x) of each row.

        If labels are missing, this is the log-probability of the known labels.
        """
        return self.distribution(X, base_scores=base_scores).log_prob(y)

    def score(
        self, X: UserData, y: UserData = None, sample_weight: UserData = None, *, base_scores: UserData = None
    ) -> float:
        """Return the fraction of rows in which all known labels are predicted correctly, weighted by `sample_weight`.

        Rows without a known label are left out. Rows in Dask collections are labelled where they are, and only counts
        are fetched.
        """
        if is_distributed(X):
            from kernelcrf.distributed.answers import LABEL_SETS, score_parts

            fitted_model(self)
            return score_parts(LABEL_SETS, self, X, y, sample_weight, base_scores=base_scores)
        distribution = self.distribution(X, base_scores=base_scores)
        true = distribution.model.sets.read(y)
        right, total = count_right_sets(true, distribution.decode_indices(), sample_weight)
        return right / total

    def _terms(
        self,
        singles: list[str],
        pairs: list[str],
        shape_of: Callable[[str | None], InputShape],
        rows: RowReader,
        earlier: LabelSetModel | None,
    ) -> list[Term]:
        C, edge_kernel = self._first_C(earlier), None
        inputs = self._inputs_of(shape_of, rows.named, earlier, singles[:1], C)
        if self.edge_kernel is not None:
            edge_kernel = self._kernel_of("edge_kernel", earlier, pairs, shape_of(None))
        terms = []
        for name in singles:
            terms += node_terms(name, Contrasts(2), inputs, ROWS, "")
            terms.append(Term(constant_term(name), name, Contrasts(2), self.C_label))
        for name in pairs:
            terms.append(Term(constant_term(name), name, interactions(2, 2), self.C_label))
            if edge_kernel is not None:
                terms.append(Term(name, name, interactions(2, 2), C, edge_kernel, ROWS))
        return terms

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        tags.classifier_tags.multi_class = False
        tags.classifier_tags.multi_label = True
        tags.target_tags.multi_output = True
        return tags
