"""KernelClassifier: Gaussian process classification, the special case of a conditional random field without edges.

The probability of the class y of an input x is

    p(y|x) = exp(f_y(x)) / sum_l exp(f_l(x)).

The latent functions f_l, one per class l, are independent Gaussian processes, whose covariance is C times the kernel.
This is the multinomial model of Williams and Barber (1998). Laplace's approximation is used for the posterior.

With two classes, only the difference f = f_1 - f_0 matters. Its prior covariance is 2 C times the kernel. If every
input is a landmark (n_components=None), and if there is no intercept (fit_intercept=False), KernelClassifier(kernel,
C=C) is therefore the same model as scikit-learn's

    GaussianProcessClassifier(2 * C * kernel, optimizer=None),

and the mode, the evidence, and the posterior mean and variance of f are the same.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Annotated, Any, ClassVar

import numpy as np
from sklearn.base import ClassifierMixin
from sklearn.utils.validation import check_consistent_length

from kernelcrf.answers.uncertainty import Uncertainty, average_draws
from kernelcrf.arrays import Array, Floats, UserData
from kernelcrf.decoding import VITERBI
from kernelcrf.distributed.cluster import ENGINE, releasing
from kernelcrf.distributed.sources import is_distributed
from kernelcrf.distributions.rows import RowDistribution
from kernelcrf.estimators.base import Fitted, FittedNames, fitted_model
from kernelcrf.estimators.kernel import KernelEstimator
from kernelcrf.estimators.parameters import CLASSES, LAPLACE, OF_POSTERIORS, POSTERIOR
from kernelcrf.estimators.prior import earlier_of
from kernelcrf.fitting.corpus import Corpus
from kernelcrf.fitting.earlier import Earlier
from kernelcrf.fitting.sequences import LabelledSequences
from kernelcrf.graphs.structure import Chains
from kernelcrf.kernels.gamma import gamma_by_scale
from kernelcrf.kernels.inputs import InputKernel
from kernelcrf.models.rows import RowModel
from kernelcrf.readers.base_scores import check_base_scores, read_row_scores
from kernelcrf.readers.missing_labels import UNKNOWN
from kernelcrf.readers.rows import RowReader, find_classes, more_classes, row_accuracy
from kernelcrf.readers.soft_labels import SoftLabels
from kernelcrf.readers.stored_values import object_array
from kernelcrf.readers.weights import only_weighted, read_weights, weigh_samples
from kernelcrf.score.cliques import TOKENS
from kernelcrf.validation import shown_list, validated


@dataclass(eq=False, repr=False, kw_only=True)
class KernelClassifier(ClassifierMixin, KernelEstimator[RowModel]):  # type: ignore[misc]
    """Gaussian process classifier with two or more classes, a low-rank kernel and a certified fit.

    X is a matrix with one row per sample or, with several `inputs`, a dict from names to such matrices. y has one label
    per row. Rows with the label None are left out. If all other labels are strings or non-negative integers, rows with
    the label -1 are left out too, except if the only other label is 1.

    Parameters
    ----------
    kernel : as in ChainCRF
        The kernel of rows, with the same meaning and the same default as in ChainCRF.
    gamma : "scale", "auto" or float, default="scale"
        Coefficient of the kernel, as in sklearn.svm.SVC. "scale" uses the variance of X, weighted by `sample_weight`
        and `class_weight`.
    C : float, "auto", "evidence" or a rule of kernelcrf.rules, default=1.0
        Each class has a latent function, whose value is the score of the class. The prior covariance of this function
        is C times the kernel. With two classes, the kernel k and fit_intercept=False, this is scikit-learn's
        GaussianProcessClassifier with the kernel 2 C k. "auto" chooses a power of 10 on held-out rows. "evidence"
        maximises the marginal likelihood: the probability of the training labels, averaged over the prior distribution.
    label_kernel : "delta", "centred" or (L, L) array, default="delta"
        How similar classes are, as in ChainCRF. A positive semi-definite matrix of similarities lets similar classes
        learn from each other.
    fit_intercept : "auto" or bool, default="auto"
        Whether to learn a constant score for each class, with the prior variance C. "auto" learns them for arrays and
        data frames with any kernel, and does not for sparse matrices.
    classes : None or labels, default=None
        All labels, if some of them may not occur in y, or if -1 is one of them.
    class_weight : None, "balanced" or dict, default=None
        Weights of the rows of each class. Rows of weight 0 are left out of the fit.
    inputs : None or dict from names to kernelcrf.Input, default=None
        Several inputs, each with its own kernel, landmarks and C, as in ChainCRF. X is a dict from names to tables with
        one row per sample (arrays, sparse matrices, data frames or lists of feature dicts), or one table of which
        inputs read some columns.
    laplace : bool or "diagonal", default=False
        Whether to compute the marginal likelihood and the posterior of the weights. `log_marginal_likelihood`,
        `uncertainty`, `latent_mean_and_variance` and `predict_proba(posterior="laplace")` need them. "diagonal" has the
        same meaning as in ChainCRF.
    warm_start : bool, default=False
        Start from the kernel, landmarks and weights of the previous fit, as in ChainCRF. The classes must be the same.
    prior : None, a fitted KernelClassifier, or the path of its file, default=None
        An earlier model that this fit updates with new data, without the earlier training data, as in ChainCRF.
    random_state : int, RandomState or None, default=None
        Seed for the choice of landmarks, and for random starting points of the search for a kernel.
    n_components, certify_full : as in ChainCRF
        With rows in place of tokens, these parameters have the same meaning and the same defaults as in ChainCRF.
    penalty, solver, tol, max_iter, checkpoint, engine, n_jobs, verbose : as in ChainCRF
        These parameters have the same meaning and the same defaults as in ChainCRF.

    Attributes
    ----------
    classes_ : (L,) labels, in the order of the columns of probabilities.
    coef_, intercept_, landmarks_, C_, kernel_, objective_curve_, certificate_ : as in ChainCRF
    log_marginal_likelihood_error_, input_variances_ : as in ChainCRF
    n_iter_ : the number of iterations of the solver; for the solver "dual", the number of evaluations of the objective.
    n_features_in_ : number of columns of X.
    feature_names_in_ : names of the columns of X, after a fit to a data frame.

    Examples
    --------
    >>> from sklearn.datasets import make_moons
    >>> from kernelcrf import Input, KernelClassifier
    >>> X, y = make_moons(200, noise=0.2, random_state=0)
    >>> model = KernelClassifier(C="evidence", n_components=50, laplace=True, random_state=0).fit(X, y)
    >>> round(model.score(X, y), 2), model.predict(X[:3]), model.predict_proba(X[:1]).round(2)
    (0.98, array([0, 1, 1]), array([[1., 0.]]))
    >>> model.distribution(X[:3]).entropy().shape  # answers all questions about p(y|x)
    (3,)
    >>> mean, variance = model.latent_mean_and_variance(X[:3])
    >>> model.decision_function(X[:3]).round(1), variance.shape, model.uncertainty(X[:3], n_samples=20).epistemic.shape
    (array([-6.2, 11.6,  3.6]), (3,), (3,))
    >>> round(model.C_), round(model.log_marginal_likelihood(), 1)
    (99, -32.5)
    >>> model.get_feature_names_out()[:1], model.top_features(2).columns.tolist()
    (array(['kernelclassifier0'], dtype=object), ['label', 'feature', 'weight'])
    >>> model.save("rows.kcrf")
    >>> several = KernelClassifier(inputs={"first": Input("rbf", columns=[0])})  # each input has its own kernel and C
    >>> several.set_params(inputs__first__C=2.0).get_params()["inputs__first__C"]
    2.0
    """

    laplace: Annotated[bool | str, LAPLACE] = False
    classes: Annotated[Any, CLASSES] = None
    engine: Annotated[Any, ENGINE] = None

    _has_edges: ClassVar[bool] = False
    _model_type = RowModel

    classes_ = Fitted[Array]("classes")
    feature_names_in_ = FittedNames("reader.column_names")

    @releasing()
    def fit(
        self, X: UserData, y: UserData = None, sample_weight: UserData = None, *, base_scores: UserData = None
    ) -> KernelClassifier:
        """Fit the model to a dense or sparse matrix X and to y, and return it.

        y has one label per row of X, and `sample_weight` has one weight per row. If several people have labelled the
        rows, y can also be an array or a data frame with the probability of each class, one row per row of X. The
        columns of an array have the order of `classes_`.

        On a cluster, X is also a dask.array or a dask.dataframe, and y one with as many partitions. If X is a
        dask.dataframe, y and `sample_weight` can be names of its columns. There, y has one label per row.

        base_scores : scores that are added to those of the model and not learned, with one row per row of X and one
            column per class, in the order of `classes_`. Pass scores of the same kind to `predict` and to the other
            methods that accept them.
        """
        self._validate_params()
        earlier, prior, given = self._find_start(), self._find_prior(), X
        if self.engine is not None or is_distributed(X):
            return self._fit_on_cluster(X, y, sample_weight, earlier, prior, base_scores)
        before = earlier or prior
        soft_labels, soft = SoftLabels.of_rows(y), None
        if soft_labels is not None:
            names = soft_labels.labels(self.classes if before is None else before.classes)
            y = np.zeros(len(soft_labels.p), np.int64)
        if prior is None:
            rows, X, y = RowReader.fit(type(self).__name__, X, y, sample_weight, chosen=self._chosen)
        if before is not None:
            rows, X = before.reader.extend(given, sample_weight)
        if soft_labels is not None:
            named = object_array(names)
            if prior is None:
                classes = find_classes(named, self.classes)[0]
            else:
                classes = more_classes(named, prior.classes, self.classes, len(names))[0]
            soft = soft_labels.columns(classes, self.classes)
            labels = np.asarray(soft.argmax(axis=1), np.int32)
            check_consistent_length(X, soft)
        elif prior is None:
            classes, labels = find_classes(y, self.classes)
        else:
            classes, labels = more_classes(y, prior.classes, self.classes, X.shape[0])
        if earlier is not None and not np.array_equal(classes, earlier.classes):
            raise ValueError(
                f"y has the classes {shown_list(classes.tolist())} and the previous fit had "
                f"{shown_list(earlier.classes.tolist())}: expected the same classes for a warm start; use "
                "the same labels, or set warm_start=False"
            )
        base = read_row_scores(base_scores, len(labels), len(classes))
        if before is not None:
            check_base_scores(before.base, base)
        offsets = None if base is None else base[TOKENS]
        weights = read_weights(sample_weight, len(labels), "row", part=prior is not None)
        known = labels != UNKNOWN
        if prior is not None and not (known if weights is None else known & (weights > 0)).any():
            self.model_ = prior
            return self
        if not known.all():
            X, labels, weights = X[known], labels[known], None if weights is None else weights[known]
            offsets = None if offsets is None else offsets[known]
            if weights is not None and not weights.any():
                raise ValueError("sample_weight is 0 for every row with a known label: expected a weight above 0")
        ones = np.ones_like(labels, np.int64)
        weights = weigh_samples(weights, self.class_weight, ones, labels, classes, "row", soft=soft)
        offsets = np.zeros((len(labels), 0)) if offsets is None else offsets
        q = np.zeros((len(labels), 0)) if soft is None else soft
        weights, X, labels, offsets, q = only_weighted(weights, X, labels, offsets, q)
        chains = Chains.from_lengths(np.ones_like(labels, np.int64))
        base = {TOKENS: offsets} if base is not None else None
        soft = None if soft is None else q
        data = LabelledSequences(X, chains, labels, len(classes), weights=weights, base=base, soft=soft)

        def by_scale(name: str) -> float:
            return gamma_by_scale(data.rows(name), weights, rows.names_of(name))

        update = None if prior is None else self._update_of(prior, classes, data)
        return self._fit_rows(data, rows, classes, earlier, update, by_scale, data.is_sparse)

    def _fit_on_cluster(
        self,
        X: UserData,
        y: UserData,
        sample_weight: UserData,
        earlier: RowModel | None,
        prior: RowModel | None,
        base_scores: UserData,
    ) -> KernelClassifier:
        from kernelcrf.distributed.gamma import gamma_by_scale as gamma_of_parts
        from kernelcrf.distributed.rows import RowPartReader, read_row_parts

        if base_scores is not None:
            raise ValueError(
                "base_scores cannot be combined with data on a cluster: pass rows in this process and engine=None, or "
                "base_scores=None"
            )
        for before in (earlier, prior):
            if before is not None:
                check_base_scores(before.base, None)
        parts = RowPartReader(
            owner=type(self).__name__,
            classes=self.classes,
            class_weight=self.class_weight,
            chosen=self._chosen,
            earlier=None if earlier is None else (earlier.reader, earlier.classes),
            prior=None if prior is None else (prior.reader, prior.classes),
        )
        read, data = read_row_parts(X, y, sample_weight, self.engine, parts, self._expected_features)
        rows, classes = read.readers
        if prior is not None and not data.n_tokens:
            self.model_ = prior
            return self

        def by_scale(name: str) -> float:
            return gamma_of_parts(data, [name], weighted=True)

        update = None if prior is None else self._update_of(prior, classes, data)
        return self._fit_rows(data, rows, classes, earlier, update, by_scale, read.is_sparse)

    def _update_of(self, prior: RowModel, classes: Array, data: Corpus) -> Earlier:
        """Return the prior of the weights for these classes and data."""
        positions = np.searchsorted(classes, prior.classes).astype(np.int32)
        return earlier_of(prior, positions, len(classes), data.n_columns)

    def _fit_rows(
        self,
        data: Corpus,
        rows: RowReader,
        classes: Array,
        earlier: RowModel | None,
        prior: Earlier | None,
        by_scale: Callable[[str], float],
        is_sparse: Callable[[str], bool],
    ) -> KernelClassifier:
        """Fit the model to rows, in this process or on a cluster.

        by_scale, is_sparse : functions of the name of an input; they return the value of gamma="scale", and whether the
            input is sparse.
        """

        def make() -> dict[str, InputKernel]:
            if rows.named is not None:
                return self._named_kernels(rows.named, by_scale)
            shape = rows.n_features, is_sparse(TOKENS), partial(by_scale, TOKENS)
            return {"kernel": self._make_kernel("kernel", *shape)}

        dense = [name for name in (self._named_inputs or [TOKENS]) if not is_sparse(name)]
        trained = self._train_chain(data, classes.tolist(), make, earlier, prior=prior, dense=dense)
        base = getattr(data, "base", None) or ()
        self.model_ = RowModel.of(trained, rows, classes, self._specification, base)
        return self

    def decision_function(self, X: UserData, *, base_scores: UserData = None) -> Array:
        """Return the values f_l(x) of the latent functions, with one row per row x of X and one column per class l.

        For two classes, return the difference f_1(x) - f_0(x), one number per row. Base scores are added.
        """
        scores = self._model.scores(X, self._engine, base_scores)
        return np.asarray(scores[:, 1] - scores[:, 0]) if scores.shape[1] == 2 else scores

    def distribution(self, X: UserData, *, base_scores: UserData = None) -> RowDistribution:
        """Return an object for the distribution p(y|x) of the classes of the rows of X.

        base_scores : scores of the same kind as those passed to `fit`, if any.
        """
        return self._distribution(self._model, X, base_scores)

    def _distribution(self, model: RowModel, X: UserData, base_scores: UserData = None) -> RowDistribution:
        return RowDistribution(rule=VITERBI, model=model, scores=model.scores(X, self._engine, base_scores))

    def predict(self, X: UserData, *, base_scores: UserData = None) -> Array:
        """Return the most probable class of each row of X.

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
    ) -> Array:
        """Return the probability of each class for each row; column j belongs to classes_[j].

        For a Dask collection X, the result is one too, as that of `predict`. The parameters are explained in
        `ChainCRF.predict_proba`.
        """
        draws = n_samples, variance_temperature, random_state
        if is_distributed(X):
            options = {"posterior": posterior, "base_scores": base_scores}
            names = ("n_samples", "variance_temperature", "random_state")
            answers: Array = self._answer_parts("predict_proba", X, **options, **dict(zip(names, draws, strict=True)))
            return answers
        model = self._model
        if posterior == "map":
            return self._distribution(model, X, base_scores).marginals()
        return average_draws(model.draw_probabilities(X, *draws, self._engine, base_scores))[0]

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
        """Return the epistemic and the aleatoric uncertainty of the label of each row, in nats.

        The parameters are explained in `ChainCRF.predict_proba`.
        """
        draws = n_samples, variance_temperature, random_state
        drawn = self._model.draw_probabilities(X, *draws, self._engine, base_scores)
        _, epistemic, aleatoric = average_draws(drawn)
        return Uncertainty(epistemic, aleatoric)

    def latent_mean_and_variance(self, X: UserData) -> tuple[Floats, Floats]:
        """Return the posterior mean and the posterior variance of the latent function of each class, at each row of X.

        For two classes, return the mean and the variance of f_1 - f_0 only, as GaussianProcessClassifier does.
        """
        return self._model.latent_mean_and_variance(X, self._engine)

    def score(
        self, X: UserData, y: UserData = None, sample_weight: UserData = None, *, base_scores: UserData = None
    ) -> float:
        """Return the fraction of labels that are predicted correctly; `sample_weight` has one weight per row.

        Rows in Dask collections are labelled where they are, and only counts are fetched. X, y and `sample_weight` have
        the forms that `fit` accepts.
        """
        if is_distributed(X):
            from kernelcrf.distributed.answers import ROWS, score_parts

            fitted_model(self)
            return score_parts(ROWS, self, X, y, sample_weight, base_scores=base_scores)
        distribution = self.distribution(X, base_scores=base_scores)
        return row_accuracy(y, distribution.decode(), distribution.classes, sample_weight)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        return tags
