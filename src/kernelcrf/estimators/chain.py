"""ChainCRF: a conditional random field on sequences, as a scikit-learn estimator.

    p(y|x) = exp(sum_t f(x_t, y_t) + sum_{t>1} T[y_{t-1}, y_t]) / Z(x),      f in the RKHS of k_x k_y, T free,

fitted by minimising the negative log posterior (15) to a certified gap. What users hand in is read by `sequences` and
`labels`; the work is done by `fitting` and `inference`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any, ClassVar, TypeAlias

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_is_fitted

from kernelcrf.basis.folded import Weights, fold
from kernelcrf.checkpoints import Checkpoint
from kernelcrf.corpora.corpus import Data
from kernelcrf.corpora.sequences import LabelledSequences
from kernelcrf.engines.cluster import releasing
from kernelcrf.estimators.attempt import all_or_nothing
from kernelcrf.estimators.base import OF_POSTERIORS, POSTERIOR, KernelEstimator
from kernelcrf.estimators.constraints import check_legal, legal_labelings
from kernelcrf.estimators.explanation import Explanation, explain
from kernelcrf.estimators.facts import facts_html
from kernelcrf.estimators.labels import LabelReader
from kernelcrf.estimators.parameter_constraints import OF_CHAINS
from kernelcrf.estimators.parts import is_shared
from kernelcrf.estimators.ragged import Ragged
from kernelcrf.estimators.selection import COST, STRATEGY, draw_batch
from kernelcrf.estimators.sequences import SequenceReader
from kernelcrf.estimators.settings import gamma_by_scale, kernel_on
from kernelcrf.estimators.shared import current_cluster, read_training
from kernelcrf.estimators.state import restore_chain, state_of_chain
from kernelcrf.estimators.uncertainty import Uncertainty, averaged
from kernelcrf.estimators.weights import checked_weights, score_weights, sequence_weights
from kernelcrf.fitting import Start
from kernelcrf.graphs.structure import Chains, Legal
from kernelcrf.inference import chain, decoding
from kernelcrf.validation import COUNT, SEED, SIZE, Parameter, either, shown, validated

Array = npt.NDArray[Any]
Floats = npt.NDArray[np.float64]

_Training: TypeAlias = tuple[SequenceReader, LabelReader, Legal | None, Data, Callable[[], float]]


class ChainCRF(KernelEstimator):
    """Conditional random field on sequences, with kernels.

    X is a list of (T_i, d) arrays, of sparse matrices, or of lists of feature dicts; or all tokens in one, with
    `lengths`. Any container with a length and an order will do, and is read by position.
    y is a list of label sequences; None, or -1 among other labels, is a missing label, a set an ambiguous one.

    Parameters
    ----------
    kernel : str, callable or kernel of sklearn.gaussian_process
        "linear" is fitted in input space, dense or sparse, and needs no landmarks. "rbf", "poly", "laplacian",
        "cosine", "chi2" and all others go through `n_components` landmarks.
    gamma : "scale", "auto" or float
        As in sklearn.svm.SVC: 1 / (n_features * X.var()), 1 / n_features, or the number.
    degree, coef0 : int, float
        Of the polynomial kernel.
    C : float or "evidence"
        Prior variance of all weights, transitions included. CRFsuite's c2 is 1 / (2 C). "evidence" finds the C under
        which the labels are most probable.
    optimize_kernel : bool
        Maximise the evidence over the kernel's hyperparameters, from those given: within the bounds of a kernel of
        sklearn.gaussian_process; gamma of a kernel by name, within a factor of 1,000. With C="evidence" over C too.
    n_restarts_optimizer : int
        Searches beyond the first, from hyperparameters drawn at random within their bounds.
    n_components : int, None or "auto"
        Number of landmarks. None takes every distinct input; "auto" as many as `tol` needs in the kernel's whole space.
    pivots : str or rule of kernelcrf.basis
        How landmarks are chosen.
    label_kernel : "delta", "centred" or (L, L) array
        By a positive semi-definite matrix, similar labels share strength.
    edge_kernel : None, str, callable or kernel of sklearn.gaussian_process
        Of cliques (x_t, y_{t-1}, y_t), beside the constant transitions: steps that depend on the input. A name takes
        `gamma`, `degree` and `coef0` as `kernel` does.
    constraints : None, "BIO", "IOB1", "BIOUL", "BMES" or pairs of labels
        What may follow what; no labelling that breaks it has a probability.
    classes : None or labels
        Labels to know beyond those that y shows; None takes those that it shows.
    class_weight : None, "balanced" or dict
        A sequence counts for the mean, over its observed tokens, of their labels' weights.
    laplace : bool
        Keep the evidence and the posterior of the weights: for `log_marginal_likelihood`, `uncertainty` and
        `predict_proba(posterior="laplace")`. A choice by the evidence keeps the evidence alone.
    decoding : "viterbi" or "marginal"
        What `predict` returns: the likeliest labelling, or the likeliest label of each token.
    hash_features : int or None
        2**k columns for feature dicts, instead of a vocabulary.
    solver : "auto", "lbfgs", "dual", "newton-cg", "newton", "block-jacobi" or "subspace"
        "auto" is "dual" where it serves, which is the linear kernel on sparse inputs with all labels observed: few
        passes, one thread; else "lbfgs".
    tol, max_iter : float, int
        `tol` is the relative certified gap at which the fit ends.
    warm_start : bool
        Take up kernels, landmarks, labels and weights of the previous fit, whatever their parameters are now; C, class
        weights, constraints and the solver may change between fits.
    n_jobs : int or None
        Threads; -1 takes all cores, None is 1. Results do not depend on it.
    engine : None or kernelcrf.engines.dask.DaskEngine
        Where the fit runs: None is this process, in `n_jobs` threads; an engine is the workers of its cluster. X in
        parts of Dask goes to the cluster of the current client by itself.
    checkpoint : None, str or kernelcrf.checkpoints.Checkpoint
        A file, or the URL of one, that is written as the fit goes and from which a fit of the same problem goes on.
    random_state : int, RandomState or None
        Seed for the choice of landmarks and, if labels are missing, for the point where the fit starts.
    verbose : int
        1 shows the objective and its certified gap as the fit goes.

    Attributes
    ----------
    classes_ : (L,) labels; columns of probabilities are in their order.
    coef_ : (n_features, L) node weights of the linear kernel; (n_landmarks, L), in the whitened basis, of others.
    transitions_ : (L, L), [from, to].
    edge_coef_ : (n_edge_features, L, L) weights of `edge_kernel`, or None without one.
    landmarks_ : (n_landmarks, n_features), or None for the linear kernel.
    landmark_positions_ : (n_landmarks, 2), the sequence and token of each landmark in X, or of the input nearest to a
        landmark that is none; None for the linear kernel.
    C_, kernel_ : the prior variance and the input kernel of the fit, found or given.
    log_marginal_likelihood_error_ : the standard error of `log_marginal_likelihood()`, 0 up to 5,000 weights.
    certificate_ : objective, lower_bound, gap_in_span, gap_full and status of the fit. With missing labels the status
        is "stationary" and the lower bound -inf.
    objective_curve_ : (n_iter_ + 1,) the objective as the fit went.
    gap_curve_ : (n_iter_ + 1, 3) the relative certified gap, and passes over the data and seconds until then.
    metadata_ : a dict of plain values that `save` keeps with the model, such as how its features were made.
    n_features_in_ : number of columns of the inputs.

    Examples
    --------
    >>> from kernelcrf import ChainCRF
    >>> from kernelcrf.datasets import make_sequences
    >>> data = make_sequences(60, random_state=0)  # lists of (T_i, 2) arrays and of (T_i,) labels
    >>> crf = ChainCRF(C=10.0, n_components=100, laplace=True, random_state=0).fit(data.X, data.y)
    >>> crf.certificate_.status, bool(crf.certificate_.relative_gap <= crf.tol)
    ('optimal', True)
    >>> new = make_sequences(60, random_state=1)
    >>> round(crf.score(new.X, new.y), 1)
    0.9
    >>> x = new.X[:1]
    >>> crf.predict(x)[0][:6], crf.predict_proba(x)[0].shape
    (array([2, 2, 1, 1, 1, 1]), (9, 3))
    >>> {label: round(p, 1) for label, p in crf.predict_marginals(x)[0][0].items()}
    {0: 0.0, 1: 0.0, 2: 1.0}
    >>> crf.edge_marginals(x)[0].shape, crf.sample(x, 5, random_state=0)[0].shape
    ((9, 3, 3), (5, 9))
    >>> [round(log_p, 1) for labels, log_p in crf.decode(x, n_best=2)[0]]
    [-0.4, -1.7]
    >>> crf.log_prob(x, new.y[:1]).round(1), crf.entropy(x).round(1)
    (array([-0.4]), array([1.]))
    >>> crf.explain(x[0], 4, n_terms=1).label
    1
    >>> parts = crf.uncertainty(x, n_samples=20)
    >>> parts.epistemic[0].shape == parts.aleatoric[0].shape == (len(x[0]),)
    True
    >>> crf.select_for_labelling(new.X, 3, random_state=0).shape
    (3,)
    >>> round(crf.log_marginal_likelihood())
    -122
    >>> crf.save("model.kcrf")
    """

    _reader: SequenceReader
    _labels: LabelReader
    _node_weights: Weights
    _edge_weights: Weights | None
    _legal: Legal | None

    _parameter_constraints: ClassVar[Mapping[str, Parameter]] = OF_CHAINS

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
        edge_kernel: Any = None,
        constraints: Any = None,
        classes: Any = None,
        class_weight: Any = None,
        laplace: bool = False,
        decoding: str = "viterbi",
        hash_features: int | None = None,
        solver: str = "auto",
        tol: float = 1e-4,
        max_iter: int = 1000,
        warm_start: bool = False,
        n_jobs: int | None = 1,
        engine: Any = None,
        checkpoint: Any = None,
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
        self.edge_kernel = edge_kernel
        self.constraints = constraints
        self.classes = classes
        self.class_weight = class_weight
        self.laplace = laplace
        self.decoding = decoding
        self.hash_features = hash_features
        self.solver = solver
        self.tol = tol
        self.max_iter = max_iter
        self.warm_start = warm_start
        self.n_jobs = n_jobs
        self.engine = engine
        self.checkpoint = checkpoint
        self.random_state = random_state
        self.verbose = verbose

    @all_or_nothing
    @releasing()
    def fit(self, X: Any, y: Any = None, sample_weight: npt.ArrayLike | None = None, lengths: Any = None) -> ChainCRF:
        """Fit to labelled sequences; `sample_weight` (m,) says what each sequence counts for.

        A sequence of weight 0 is not there, except that it is checked and that its labels are among the classes.
        """
        self._validate_params()
        start = Start(self._map, self._edge_map, self._theta) if self.warm_start and hasattr(self, "_map") else None
        read = self._read_here if self.engine is None and not is_shared(X) else self._read_on_cluster
        reader, labels, legal, data, by_scale = read(X, y, sample_weight, lengths, start is not None)
        if start is None:
            known = reader.n_features, by_scale, self.gamma, self.degree, self.coef0
            kernel = kernel_on(self.kernel, *known)
            edge_kernel = None if self.edge_kernel is None else kernel_on(self.edge_kernel, *known, "edge_kernel")
        else:
            kernel, edge_kernel = self._kernel, self._edge_kernel
        fitted = self._fitted(data, kernel, edge_kernel, start, Checkpoint.of(self.checkpoint), legal)
        self._reader, self._labels, self._legal = reader, labels, legal
        self.classes_ = labels.classes
        self.n_features_in_ = reader.n_features
        self.transitions_ = fitted.weights["edge"][0]
        self.edge_coef_ = fitted.weights.get("steps")
        self.landmark_positions_ = fitted.corpus.positions(fitted.features, self._kernel, self._engine)
        history = fitted.solution.history
        self.gap_curve_ = np.array([(record.relative_gap, record.passes, record.seconds) for record in history])
        self.metadata_: dict[str, Any] = {} if start is None else self.metadata_
        self._fold_weights()
        return self

    def _read_here(self, X: Any, y: Any, sample_weight: Any, lengths: Any, again: bool) -> _Training:
        """Training data in this process; by the readers of the previous fit where it goes on from there."""
        flat_y = lengths is not None
        if again:
            reader, labels = self._reader, self._labels
            flat, chains = reader.read(X, lengths)
        else:
            reader, flat, chains = SequenceReader.fit(X, lengths, self.hash_features, sample_weight)
            labels = LabelReader.fit(y, chains, self.classes, flat=flat_y)
        indices, allowed = labels.encode(y, chains, flat=flat_y)
        legal = self._legal_of(labels.classes)
        if legal is not None:
            check_legal(legal, chains, indices, labels)
        given = None if sample_weight is None else checked_weights(sample_weight, chains.n_samples, "sequence")
        weights = sequence_weights(given, self.class_weight, chains, indices, labels.classes)
        data = LabelledSequences(flat, chains, indices, len(labels.classes), allowed, weights, legal)
        if given is not None:
            # A sequence that counts for nothing is not there: neither in gamma nor as a landmark.
            data = data.only(given > 0)
            if not data.chains.n_nodes:
                raise ValueError("sample_weight is zero for every sequence that has a token: expected one above zero")
        return reader, labels, legal, data, lambda: gamma_by_scale(data.X)

    def _read_on_cluster(self, X: Any, y: Any, sample_weight: Any, lengths: Any, again: bool) -> _Training:
        """Training data on the workers of a cluster."""
        if lengths is not None:
            raise ValueError("lengths= goes with data in this process: on a cluster expected a list of sequences")
        if self.laplace or self._by_evidence or self.optimize_kernel:
            raise ValueError(
                "laplace, C='evidence' and optimize_kernel are for one machine: expected none of them with data on a "
                "cluster; choose C and the kernel on a sample that fits here"
            )
        found = read_training(
            X,
            y,
            sample_weight,
            current_cluster() if self.engine is None else self.engine,
            hash_features=self.hash_features,
            moments=self.gamma == "scale" and (self.kernel != "linear" or self.edge_kernel not in (None, "linear")),
            n_components=0 if self.kernel == "linear" else self._atoms_expected,
            classes=self.classes,
            class_weight=self.class_weight,
            legal_of=self._legal_of,
            earlier=(self._reader, self._labels) if again else None,
        )
        return found.reader, found.labels, found.legal, found.data, lambda: found.gamma

    @property
    def _atoms_expected(self) -> int:
        given = self._n_components
        return given if isinstance(given, int) else 500

    def _check_combinations(self) -> None:
        grows = isinstance(self.n_components, str)
        advice = "only the basis of nodes can grow; give n_components as a number, or drop edge_kernel"
        self._exclude("n_components", {"edge_kernel": grows and self.edge_kernel is not None}, advice)
        if self.checkpoint is not None:
            several = {"n_components": grows, "C": self._by_evidence, "optimize_kernel": bool(self.optimize_kernel)}
            self._exclude("checkpoint", several, "a checkpoint keeps one fit, and this search makes several")

    def _legal_of(self, classes: Array) -> Legal | None:
        return None if self.constraints is None else legal_labelings(self.constraints, classes)

    def predict(self, X: Any, lengths: Any = None) -> list[Array]:
        """A label array for each sequence."""
        indices, chains = self._predicted(X, lengths)
        return Ragged(self._labels.decode(indices, chains))

    @validated(posterior=POSTERIOR, **OF_POSTERIORS)
    def predict_proba(
        self,
        X: Any,
        lengths: Any = None,
        *,
        posterior: str = "map",
        n_samples: int | None = None,
        variance_temperature: float = 1.0,
        random_state: Any = 0,
    ) -> list[Array]:
        """(T_i, L) for each sequence: p(y_t = classes_[j] | x).

        posterior : "map" takes the mode of the posterior of the weights, "laplace" the mean over draws from it.
        n_samples : draws; None is 100, or as many as the fit kept where it has more than 5,000 weights.
        variance_temperature : what the posterior's covariance is multiplied by.
        random_state : of the draws.
        """
        if posterior == "laplace":
            flat, chains = self._read(X, lengths)
            p = averaged(self._drawn(flat, chains, n_samples, variance_temperature, random_state))[0]
        else:
            s, w, chains = self._scores(X, lengths)
            p = chain.moments(s, w, chains, n_threads=self._n_threads).nodes
        return Ragged.cut(p, chains.offsets)

    @validated(**OF_POSTERIORS)
    def uncertainty(
        self,
        X: Any,
        lengths: Any = None,
        *,
        n_samples: int | None = None,
        variance_temperature: float = 1.0,
        random_state: Any = 0,
    ) -> Uncertainty:
        """Epistemic and aleatoric parts of the entropy of averaged marginals, (T_i,) for each sequence, in nats."""
        flat, chains = self._read(X, lengths)
        draws = self._drawn(flat, chains, n_samples, variance_temperature, random_state)
        _, epistemic, aleatoric = averaged(draws)
        return Uncertainty(*(Ragged.cut(part, chains.offsets) for part in (epistemic, aleatoric)))

    @validated(k=either(SIZE), strategy=STRATEGY, cost=COST, random_state=SEED)
    def select_for_labelling(
        self,
        X_pool: Any,
        k: int,
        strategy: str = "entropy",
        *,
        cost: str = "token",
        random_state: Any = None,
        lengths: Any = None,
    ) -> npt.NDArray[np.intp]:
        """The places (k,) of sequences of a pool to label next: drawn by what the model does not know, and diverse.

        strategy : "entropy" of whole labelings, "margin" between the best two, or "information" about the weights,
            for which the fit needs laplace=True.
        cost : "token" where labels are paid by the token, so that scores are too; "sequence" where by the sequence.
        random_state : of the draws; over rounds, one RandomState for all of them, or None. The same number in every
            round would draw from the same corner of the pool.
        """
        flat, chains = self._read(X_pool, lengths)
        if k > chains.n_samples:
            raise ValueError(f"k={shown(k)}: expected at most the {chains.n_samples} sequences of the pool")
        if strategy == "entropy":
            scores = self.entropy(X_pool, lengths)
        elif strategy == "margin":
            ranked = self.decode(X_pool, 2, lengths)
            scores = np.array([np.exp(best[1][1] - best[0][1]) if len(best) > 1 else 0.0 for best in ranked])
        else:
            scores = np.array([part.sum() for part in self.uncertainty(X_pool, lengths).epistemic])
        tokens = np.maximum(chains.lengths, 1)
        samples = np.repeat(np.arange(chains.n_samples), chains.lengths)
        shape = chains.n_samples, chains.n_nodes
        mean = sp.csr_array((1 / tokens[samples], (samples, np.arange(chains.n_nodes))), shape=shape)
        phi = mean @ self._map.transform(flat, self._engine)
        rng = np.random.default_rng(check_random_state(random_state).randint(np.iinfo(np.int32).max))
        return draw_batch(scores / tokens if cost == "token" else scores, phi, k, rng)

    def predict_marginals(self, X: Any, lengths: Any = None) -> list[list[dict[Any, float]]]:
        """The same as a dict of label to probability for each token, as CRFsuite returns them."""
        classes = self.classes_.tolist()
        proba = self.predict_proba(X, lengths)
        return Ragged([dict(zip(classes, row, strict=True)) for row in p.tolist()] for p in proba)

    def edge_marginals(self, X: Any, lengths: Any = None) -> list[Array]:
        """(T_i, L, L) for each sequence: p(y_{t-1} = i, y_t = j | x), zero at first tokens."""
        s, w, chains = self._scores(X, lengths)
        return Ragged.cut(chain.edge_marginals(s, w, chains, n_threads=self._n_threads), chains.offsets)

    @validated(n_best=either(SIZE))
    def decode(self, X: Any, n_best: int = 1, lengths: Any = None) -> list[list[tuple[Array, float]]]:
        """The `n_best` likeliest labelings of each sequence with their log-probabilities, best first."""
        s, w, chains = self._scores(X, lengths)
        ranked = decoding.k_best(s, w, chains, n_best, n_threads=self._n_threads)
        log_z = chain.log_partition(s, w, chains, n_threads=self._n_threads)
        return Ragged(
            [(self.classes_[y], float(score - z)) for y, score in zip(item.labelings, item.scores, strict=True)]
            for item, z in zip(ranked, log_z, strict=True)
        )

    def log_prob(self, X: Any, y: Any, lengths: Any = None) -> Floats:
        """log p(y|x) of each sequence, (m,); of all labelings that agree with y where labels are missing."""
        s, w, chains = self._scores(X, lengths)
        indices, allowed = self._labels.encode(y, chains, flat=lengths is not None)
        if allowed is None:
            return chain.log_prob(s, w, chains, indices, n_threads=self._n_threads)
        clamped = np.where(allowed, s, s.dtype.type(-np.inf))
        log_z = chain.log_partition(s, w, chains, n_threads=self._n_threads)
        return chain.log_partition(clamped, w, chains, n_threads=self._n_threads) - log_z

    def entropy(self, X: Any, lengths: Any = None) -> Floats:
        """-sum_y p(y|x) log p(y|x) of each sequence, (m,)."""
        s, w, chains = self._scores(X, lengths)
        return chain.entropy(s, w, chains, n_threads=self._n_threads)

    @validated(n_samples=either(SIZE), random_state=SEED)
    def sample(self, X: Any, n_samples: int = 1, random_state: Any = None, lengths: Any = None) -> list[Array]:
        """(n_samples, T_i) labels for each sequence, drawn from p(y|x)."""
        s, w, chains = self._scores(X, lengths)
        rng = np.random.default_rng(check_random_state(random_state).randint(np.iinfo(np.int32).max))
        draws = decoding.sample(s, w, chains, n_samples, rng, n_threads=self._n_threads)
        return Ragged.cut(self.classes_[draws], chains.offsets, axis=1)

    def score(self, X: Any, y: Any, sample_weight: npt.ArrayLike | None = None, lengths: Any = None) -> float:
        """Token accuracy over the tokens whose label is known; `sample_weight` is that of sequences."""
        indices, chains = self._predicted(X, lengths)
        right, known = self._labels.compare(indices, y, chains, flat=lengths is not None)
        weights = score_weights(sample_weight, chains.lengths, known, "token")
        return float(np.average(right[known], weights=weights))

    @validated(n_terms=COUNT)
    def explain(self, x: Any, t: int, label: Any = None, n_terms: int = 10) -> Explanation:
        """Why token t of one sequence x gets its label, or would get another: the `n_terms` that contribute most.

        Terms are landmarks, with their places in the training data, or features for the linear kernel; the record
        prints as a table, and `to_frame()` makes a DataFrame of it. Contributions of landmarks close to each other
        under the kernel may be large and cancel.
        """
        return explain(self, x, t, label, n_terms)

    def _repr_html_inner(self) -> str:
        """scikit-learn's diagram, and below it what the fit has found."""
        html: str = super()._repr_html_inner()
        return html + facts_html(self) if hasattr(self, "certificate_") else html

    def _repr_mimebundle_(self, **kwargs: Any) -> dict[str, str]:
        bundle: dict[str, str] = super()._repr_mimebundle_(**kwargs)
        return bundle | {"text/html": self._repr_html_inner()} if "text/html" in bundle else bundle

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        # No estimator_type: for a "classifier", cv=3 would stratify by y, one label a sample, and refuse sequences.
        tags.target_tags.required = True
        tags.input_tags.sparse = True
        tags.input_tags.dict = True
        return tags

    def _state(self) -> tuple[dict[str, Any], dict[str, Array]]:
        return state_of_chain(self)

    def _restore(self, config: Mapping[str, Any], arrays: Mapping[str, Array]) -> None:
        restore_chain(self, config, arrays)

    def _predicted(self, X: Any, lengths: Any) -> tuple[Array, Chains]:
        """Label indices (N,) by the chosen decoding."""
        self._validate_params("decoding")
        s, w, chains = self._scores(X, lengths)
        if self.decoding == "marginal":
            return chain.moments(s, w, chains, n_threads=self._n_threads).nodes.argmax(axis=1), chains
        return decoding.viterbi(s, w, chains, n_threads=self._n_threads)[0], chains

    @property
    def _n_threads(self) -> int:
        return self._engine.n_threads

    def _read(self, X: Any, lengths: Any) -> tuple[Any, Chains]:
        check_is_fitted(self)
        return self._reader.read(X, lengths)

    def _drawn(
        self, flat: Any, chains: Chains, n_samples: int | None, temperature: float, random_state: Any
    ) -> Iterator[Array]:
        """Marginals (N, L) under draws from the posterior."""
        for s, w in self._drawn_scores(flat, n_samples, temperature, random_state):
            if self._legal is not None:
                s, w = self._legal.impose(chains, s, w)
            yield chain.moments(s, w, chains, n_threads=self._n_threads).nodes

    def _tempered(self, temperature: float) -> ChainCRF:
        model = super()._tempered(temperature)
        model.transitions_ = self.transitions_ / temperature
        model.edge_coef_ = None if self.edge_coef_ is None else self.edge_coef_ / temperature
        model._fold_weights()
        return model

    def _log_likelihood(self, X: Any, y: Any) -> float:
        return float(self.log_prob(X, y).mean())

    def _mean_log_probability(self, X: Any, y: Any, proba: list[Array]) -> float:
        """The mean log-probability of the known labels of tokens, under given marginals."""
        p = np.concatenate(proba)
        indices, _ = self._labels.encode(y, Chains.from_lengths([len(rows) for rows in proba]))
        known = np.flatnonzero(indices >= 0)
        return float(np.log(np.maximum(p[known, indices[known]], np.finfo(np.float64).tiny)).mean())

    def _fold_weights(self) -> None:
        """What prediction reads: the weights as functions of inputs, once they are fitted or loaded."""
        self._node_weights, self._edge_weights = fold(self._map, self.coef_), None
        if self._edge_map is not None and self.edge_coef_ is not None:
            self._edge_weights = fold(self._edge_map, self.edge_coef_.reshape(self._edge_map.n, -1))

    def _scores(self, X: Any, lengths: Any) -> tuple[Array, Array, Chains]:
        """Node scores (N, L) and edge scores of sequences, with what is illegal at -inf.

        Edge scores are (L, L), or (N, L, L) where edges have inputs.
        """
        if not hasattr(self, "_node_weights"):
            check_is_fitted(self)
        flat, chains = self._reader.read_entries(X, lengths)
        engine, L = self._engine, len(self.classes_)
        s = self._node_weights.scores(flat, engine)
        w = self.transitions_.astype(s.dtype)
        if self._edge_weights is not None:
            w = w + self._edge_weights.scores(flat, engine).reshape(-1, L, L)
        if self._legal is not None:
            s, w = self._legal.impose(chains, s, w)
        return s, w, chains
