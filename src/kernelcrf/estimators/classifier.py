"""KernelClassifier: a conditional random field without edges, which is Gaussian process classification (Remark 7).

    p(y|x) = exp(f_y(x)) / sum_l exp(f_l(x)),      f_l independent Gaussian processes with covariance C k_x (14), (16)

the multinomial model of Williams and Barber (1998), binary or not, at the mode of its posterior and, by Laplace's
approximation, around it. Of two classes only f = f_1 - f_0 matters, whose prior covariance is 2 C k_x: so

    KernelClassifier(kernel, C=C)   is   GaussianProcessClassifier(2 * C * kernel, optimizer=None)

for two classes, in mode, evidence and predictive moments of f, where every input is a landmark (n_components=None).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt
from scipy.special import softmax
from sklearn.base import ClassifierMixin

from kernelcrf.basis.folded import Weights, fold
from kernelcrf.corpora.sequences import LabelledSequences
from kernelcrf.estimators.attempt import all_or_nothing
from kernelcrf.estimators.base import OF_POSTERIORS, POSTERIOR, KernelEstimator
from kernelcrf.estimators.parameter_constraints import OF_KERNEL_ESTIMATORS
from kernelcrf.estimators.rows import fit_rows, read_classes, read_rows, read_targets, row_accuracy
from kernelcrf.estimators.state import restore_classifier, state_of_classifier
from kernelcrf.estimators.uncertainty import Uncertainty, averaged
from kernelcrf.estimators.weights import row_weights
from kernelcrf.fitting import Start
from kernelcrf.graphs.structure import Chains
from kernelcrf.validation import Parameter, shown, shown_list, validated

Array = npt.NDArray[Any]
Floats = npt.NDArray[np.float64]

TINY = np.finfo(np.float64).tiny


class KernelClassifier(ClassifierMixin, KernelEstimator):  # type: ignore[misc]
    """Gaussian process classification of rows, binary or multinomial, low-rank and certified.

    Parameters
    ----------
    kernel : str, callable or kernel of sklearn.gaussian_process
        Of rows. "linear" is fitted in input space and needs no landmarks; all others go through `n_components` of them.
    gamma : "scale", "auto" or float
        As in sklearn.svm.SVC; "scale" takes the variance of X by `sample_weight`.
    degree, coef0 : int, float
        Of the polynomial kernel.
    C : float or "evidence"
        Prior variance of the latent function of each class, times the kernel. GaussianProcessClassifier with the kernel
        2 C k is this model of two classes. "evidence" finds the C under which the labels are most probable.
    optimize_kernel : bool
        Maximise the evidence over the kernel's hyperparameters, from those given: within the bounds of a kernel of
        sklearn.gaussian_process; gamma of a kernel by name, within a factor of 1,000. With C="evidence" over C too.
    n_restarts_optimizer : int
        Searches beyond the first, from hyperparameters drawn at random within their bounds.
    n_components : int, None or "auto"
        Number of landmarks. None takes every distinct row; "auto" as many as `tol` needs in the kernel's whole space.
    pivots : str or rule of kernelcrf.basis
        How landmarks are chosen.
    label_kernel : "delta", "centred" or (L, L) array
        By a positive semi-definite matrix, similar classes share strength.
    class_weight : None, "balanced" or dict
        What rows of each class count for.
    laplace : bool
        Keep the evidence and the posterior of the weights: for `log_marginal_likelihood`, `latent_mean_and_variance`,
        `uncertainty` and `predict_proba(posterior="laplace")`. A choice by the evidence keeps the evidence alone.
    solver : "auto", "lbfgs", "dual", "newton-cg", "newton", "block-jacobi" or "subspace"
        "auto" is "dual" for the linear kernel on sparse rows, else "lbfgs".
    tol, max_iter : float, int
        `tol` is the relative certified gap at which the fit ends.
    warm_start : bool
        Take up kernel, landmarks and weights of the previous fit on the same classes.
    n_jobs : int or None
        Threads; -1 takes all cores, None is 1. Results do not depend on it.
    random_state : int, RandomState or None
        Seed for the choice of landmarks.
    verbose : int
        1 shows the objective and its certified gap as the fit goes.

    Attributes
    ----------
    classes_ : (L,) labels; columns of probabilities are in their order.
    coef_ : (n_features, L) weights of the linear kernel; (n_landmarks, L), in the whitened basis, of others.
    landmarks_ : (n_landmarks, n_features), or None for the linear kernel.
    C_, kernel_ : the prior variance and the input kernel of the fit, found or given.
    log_marginal_likelihood_error_ : the standard error of `log_marginal_likelihood()`, 0 up to 5,000 weights.
    certificate_ : objective, lower_bound, gap_in_span, gap_full and status of the fit.
    objective_curve_ : (n_iter_ + 1,) the objective as the fit went.
    n_features_in_, feature_names_in_ : the columns of X.

    Examples
    --------
    >>> from sklearn.datasets import make_moons
    >>> from kernelcrf import KernelClassifier
    >>> X, y = make_moons(200, noise=0.2, random_state=0)
    >>> model = KernelClassifier(C="evidence", n_components=50, laplace=True, random_state=0).fit(X, y)
    >>> round(model.score(X, y), 2), model.predict(X[:3]), model.predict_proba(X[:1]).round(2)
    (0.98, array([0, 1, 1]), array([[1., 0.]]))
    >>> model.decision_function(X[:3]).round(1)
    array([-6.2, 11.1,  3.5])
    >>> model.save("model.kcrf")
    >>> mean, variance = model.latent_mean_and_variance(X[:3])
    >>> mean.shape, variance.shape
    ((3,), (3,))
    >>> model.uncertainty(X[:3], n_samples=20).epistemic.shape
    (3,)
    >>> round(model.C_), round(model.log_marginal_likelihood(), 1)
    (98, -31.7)
    >>> model.save("rows.kcrf")
    """

    classes_: Array
    _weights: Weights
    _has_edges = False

    _parameter_constraints: ClassVar[Mapping[str, Parameter]] = OF_KERNEL_ESTIMATORS

    def __init__(
        self,
        kernel: Any = "rbf",
        *,
        gamma: float | str = "scale",
        degree: int = 3,
        coef0: float = 1.0,
        C: float | str = 1.0,
        optimize_kernel: bool = False,
        n_restarts_optimizer: int = 0,
        n_components: int | str | None = 500,
        pivots: Any = "auto",
        label_kernel: Any = "delta",
        class_weight: Any = None,
        laplace: bool = False,
        solver: str = "auto",
        tol: float = 1e-4,
        max_iter: int = 1000,
        warm_start: bool = False,
        n_jobs: int | None = 1,
        random_state: Any = None,
        verbose: int = 0,
    ) -> None:
        self.kernel = kernel
        self.gamma = gamma
        self.degree = degree
        self.coef0 = coef0
        self.C = C
        self.optimize_kernel = optimize_kernel
        self.n_restarts_optimizer = n_restarts_optimizer
        self.n_components = n_components
        self.pivots = pivots
        self.label_kernel = label_kernel
        self.class_weight = class_weight
        self.laplace = laplace
        self.solver = solver
        self.tol = tol
        self.max_iter = max_iter
        self.warm_start = warm_start
        self.n_jobs = n_jobs
        self.random_state = random_state
        self.verbose = verbose

    @all_or_nothing
    def fit(self, X: Any, y: Any, sample_weight: npt.ArrayLike | None = None) -> KernelClassifier:
        """Fit to rows X (N, d), dense or sparse, and their labels y (N,)."""
        self._validate_params()
        X, y = fit_rows(self, X, y)
        classes, labels = read_classes(y)
        if len(classes) < 2:
            raise ValueError(f"y has one class, {shown(classes[0])}: a classifier needs samples of at least 2 classes")
        start = None
        if self.warm_start and hasattr(self, "_map"):
            if not np.array_equal(classes, self.classes_):
                raise ValueError(
                    f"y has the classes {shown_list(classes.tolist())} and the previous fit had "
                    f"{shown_list(self.classes_.tolist())}: expected the same for a warm start; set warm_start=False"
                )
            # Models of earlier versions have weights of steps too.
            start = Start(self._map, None, self._layout.split(self._theta)["node"].ravel())
        weights = row_weights(sample_weight, self.class_weight, labels, classes)
        if weights is not None and not weights.all():
            # A row that counts for nothing is not there: neither as a landmark nor in gamma.
            X, labels, weights = X[weights > 0], labels[weights > 0], weights[weights > 0]
        data = LabelledSequences(
            X,
            Chains.from_lengths(np.ones(X.shape[0], np.int64)),
            labels.astype(np.int32),
            len(classes),
            weights=weights,
        )
        kernel = self._kernel if start is not None else self._input_kernel(self.kernel, X, weights)
        self._fitted(data, kernel, None, start)
        self.classes_ = classes
        self._fold_weights()
        return self

    def decision_function(self, X: Any) -> Array:
        """(N,) f = f_1 - f_0 of two classes; (N, L) f_l of more."""
        scores = self._scores(X)
        return np.asarray(scores[:, 1] - scores[:, 0]) if len(self.classes_) == 2 else scores

    def predict(self, X: Any) -> Array:
        """The likeliest class of each row."""
        best = self._scores(X).argmax(axis=1)
        return np.asarray(self.classes_[best])

    @validated(posterior=POSTERIOR, **OF_POSTERIORS)
    def predict_proba(
        self,
        X: Any,
        *,
        posterior: str = "map",
        n_samples: int | None = None,
        variance_temperature: float = 1.0,
        random_state: Any = 0,
    ) -> Array:
        """(N, L): p(y = classes_[j] | x).

        posterior : "map" takes the mode of the posterior, "laplace" the mean over draws from it.
        n_samples : draws; None is 100, or as many as the fit kept where it has more than 5,000 weights.
        variance_temperature : what the posterior's covariance is multiplied by.
        random_state : of the draws.
        """
        if posterior == "map":
            return np.asarray(softmax(self._scores(X), axis=1))
        return averaged(self._drawn(X, n_samples, variance_temperature, random_state))[0]

    @validated(**OF_POSTERIORS)
    def uncertainty(
        self, X: Any, *, n_samples: int | None = None, variance_temperature: float = 1.0, random_state: Any = 0
    ) -> Uncertainty:
        """Epistemic and aleatoric parts of the entropy of the averaged probabilities, (N,) each, in nats."""
        _, epistemic, aleatoric = averaged(self._drawn(X, n_samples, variance_temperature, random_state))
        return Uncertainty(epistemic, aleatoric)

    def latent_mean_and_variance(self, X: Any) -> tuple[Floats, Floats]:
        """Mean and variance of the latent functions at rows of X, under the posterior.

        Each is (N,), of f = f_1 - f_0, for two classes as in GaussianProcessClassifier; (N, L), of f_l, for more.
        """
        X = read_rows(self, X)
        contrasts = np.array([[-1.0, 1.0]]) if len(self.classes_) == 2 else np.eye(len(self.classes_))
        means = np.asarray(self._weights.scores(X, self._engine) @ contrasts.T, np.float64)
        variances = self._score_posterior.node_variances(X, contrasts, self._engine)
        return (means[:, 0], variances[:, 0]) if len(self.classes_) == 2 else (means, variances)

    def score(self, X: Any, y: Any, sample_weight: npt.ArrayLike | None = None) -> float:
        """Accuracy over the rows; `sample_weight` is that of rows."""
        return row_accuracy(y, self.predict(X), sample_weight)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        return tags

    def _state(self) -> tuple[dict[str, Any], dict[str, Array]]:
        return state_of_classifier(self)

    def _restore(self, config: Mapping[str, Any], arrays: Mapping[str, Array]) -> None:
        restore_classifier(self, config, arrays)

    def _fold_weights(self) -> None:
        """What prediction reads: the weights as functions of inputs, once they are fitted or loaded."""
        self._weights = fold(self._map, self.coef_)

    def _scores(self, X: Any) -> Array:
        rows = read_rows(self, X)
        return self._weights.scores(rows, self._engine)

    def _drawn(self, X: Any, n_samples: int | None, temperature: float, random_state: Any) -> Iterator[Array]:
        """Probabilities (N, L) under draws from the posterior."""
        for scores, _ in self._drawn_scores(read_rows(self, X), n_samples, temperature, random_state):
            yield softmax(scores, axis=1)

    def _tempered(self, temperature: float) -> KernelClassifier:
        model = super()._tempered(temperature)
        model._fold_weights()
        return model

    def _log_likelihood(self, X: Any, y: Any) -> float:
        return self._mean_log_probability(X, y, self.predict_proba(X))

    def _mean_log_probability(self, X: Any, y: Any, proba: Array) -> float:
        """The mean log-probability of labels y (N,)."""
        labels = np.asarray(read_targets(y))
        if labels.shape != (len(proba),):
            raise ValueError(f"y has shape {labels.shape}: expected ({len(proba)},), one label per row of X")
        columns = np.searchsorted(self.classes_, labels)
        if not np.array_equal(self.classes_[np.minimum(columns, len(self.classes_) - 1)], labels):
            raise ValueError(f"y has labels that are not among the classes {shown_list(self.classes_.tolist())}")
        return float(np.log(np.maximum(proba[np.arange(len(labels)), columns], TINY)).mean())
