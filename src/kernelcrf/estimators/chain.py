"""ChainCRF: a conditional random field on sequences, as a scikit-learn estimator.

    p(y|x) = exp(sum_t f(x_t, y_t) + sum_{t>1} T[y_{t-1}, y_t]) / Z(x),      f in the RKHS of k_x k_y, T free,

fitted by minimising the negative log posterior (15) to a certified gap. What users hand in is read by `sequences` and
`labels`; the work is done by `fitting` and `inference`.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any

from kernelcrf.arrays import Floats, Places, UserData
from kernelcrf.distributed.cluster import releasing
from kernelcrf.distributed.sources import is_distributed
from kernelcrf.estimators.base import Fitted
from kernelcrf.estimators.parameters import CLASSES, OPTIONAL_KERNEL, is_collection
from kernelcrf.estimators.sequence_labeller import SequenceLabeller
from kernelcrf.fitting.fit import Start
from kernelcrf.fitting.sequences import LabelledSequences
from kernelcrf.kernels.gamma import make_kernel_for
from kernelcrf.kernels.inputs import InputKernel
from kernelcrf.models.chain import ChainModel
from kernelcrf.readers.constraints import ALIASES, ALPHABETS
from kernelcrf.readers.feature_dicts import HASH_FEATURES
from kernelcrf.readers.training import TrainingSequences, read_training
from kernelcrf.validation import Constraint, either, has_methods, nothing, one_of

if TYPE_CHECKING:
    from kernelcrf.distributed.training_data import TrainingData

CONSTRAINTS = either(
    nothing,
    one_of(*ALPHABETS, *ALIASES),
    Constraint("a list of the pairs of labels (from, to) that are legal", is_collection),
)
CLUSTER_METHODS = ("each", "call", "sum", "load", "parts_of", "fetch", "status")
ENGINE = either(nothing, has_methods(*CLUSTER_METHODS, text="a kernelcrf.distributed.DaskEngine"))


@dataclass(eq=False, repr=False, kw_only=True)
class ChainCRF(SequenceLabeller):
    """Conditional random field on sequences, with kernels.

    X is a list of sequences: (T_i, d) arrays, sparse matrices or lists of feature dicts. With `lengths`, X holds the
    tokens of all sequences one after the other. y is a list of label sequences. A label None is missing, and so is -1
    if the other labels are not negative; a set of labels stands for one of them.

    Parameters
    ----------
    kernel : str, callable or kernel of sklearn.gaussian_process
        "linear" is fitted in input space, dense or sparse, and needs no landmarks. All others, such as "rbf", "poly",
        "laplacian", "cosine" and "chi2", use `n_components` landmarks.
    gamma : "scale", "auto" or float
        As in sklearn.svm.SVC: 1 / (n_features * X.var()), 1 / n_features, or the number.
    degree, coef0 : int, float
        Degree and constant of the polynomial kernel.
    C : float or "evidence"
        Prior variance of all weights, transitions included. CRFsuite's c2 is 1 / (2 C). "evidence" finds the C under
        which the labels are most probable.
    optimize_kernel : bool
        Maximise the evidence over the kernel's hyperparameters, starting from those given: within the bounds of a
        kernel of sklearn.gaussian_process, or gamma of a named kernel within a factor of 1,000.
    n_restarts_optimizer : int
        Number of further searches from hyperparameters drawn at random within their bounds.
    n_components : int, None or "auto"
        Number of landmarks. None uses every distinct input, "auto" as many as `tol` needs in the kernel's whole space.
    pivots : str or rule of kernelcrf.basis
        Rule that chooses the landmarks.
    label_kernel : "delta", "centred" or (L, L) array
        Kernel on labels. With a positive semi-definite matrix, similar labels share strength.
    edge_kernel : None, str, callable or kernel of sklearn.gaussian_process
        Kernel of steps (x_t, y_{t-1}, y_t), which then depend on the input beside the constant transitions.
    constraints : None, "BIO", "IOB1", "BIOUL", "BMES" or pairs of labels
        Labels that may follow each other; a labelling that breaks the constraints has probability 0.
    classes : None or labels
        All labels, if y may lack some of them.
    class_weight : None, "balanced" or dict
        Weights of labels. A sequence has the mean weight of its observed labels and is left out if it is 0.
    laplace : bool
        Keep the evidence and the posterior of the weights, for `log_marginal_likelihood`, `uncertainty` and
        `predict_proba(posterior="laplace")`.
    decoding : "viterbi" or "marginal"
        Whether `predict` returns the likeliest labelling, or the likeliest label of each token.
    hash_features : int or None
        Number of columns, a power of 2, into which feature dicts are hashed; None keeps a vocabulary.
    solver : "auto", "lbfgs", "dual", "newton-cg", "newton", "block-jacobi", "subspace" or a solver such as NewtonCG()
        "auto" is "dual" for the linear kernel on sparse inputs with all labels observed, else "lbfgs".
    tol, max_iter : float, int
        The fit ends at the relative certified gap `tol`, or after `max_iter` iterations.
    certify_full : bool
        Compute `certificate_.gap_full`, the distance to the optimum in the kernel's whole space, at any n_components.
    warm_start : bool
        Start from kernels, landmarks, labels and weights of the previous fit. C, class weights, constraints and the
        solver may change between fits.
    n_jobs : int or None
        Number of threads; -1 uses all cores. Results do not depend on it.
    engine : None or kernelcrf.distributed.DaskEngine
        Cluster on which the fit runs; None is this process. Partitioned Dask data use the current client by themselves.
    checkpoint : None, str or kernelcrf.fitting.checkpoints.Checkpoint
        File or URL that the fit writes while it runs, and from which a fit of the same problem resumes.
    random_state : int, RandomState or None
        Seed for the choice of landmarks and, if labels are missing, for the point where the fit starts.
    verbose : int
        1 shows the objective and its certified gap while the fit runs.

    Attributes
    ----------
    classes_ : (L,) labels; columns of probabilities are in their order.
    coef_ : (n_features, L) weights of the linear kernel; (n_landmarks, L), in the whitened basis, of others.
    transitions_ : (L, L), [from, to].
    edge_coef_ : (n_edge_features, L, L) weights of `edge_kernel`, or None without one.
    landmarks_ : (n_landmarks, n_features), or None for the linear kernel.
    landmark_positions_ : (n_landmarks, 2), the sequence and token in X of each landmark or of the input nearest to it;
        None for the linear kernel.
    C_, kernel_ : the prior variance and the input kernel of the fit.
    log_marginal_likelihood_error_ : standard error of `log_marginal_likelihood()`, 0 up to 5,000 weights.
    certificate_ : objective, lower_bound, gap_in_span, gap_full and status of the fit. With missing labels the status
        is "stationary" and the lower bound -inf.
    objective_curve_ : (n_iter_ + 1,) the objective at each iteration.
    gap_curve_ : (n_iter_ + 1, 3) relative certified gap, passes over the data and seconds at each iteration.
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

    edge_kernel: Annotated[Any, OPTIONAL_KERNEL] = None
    constraints: Annotated[Any, CONSTRAINTS] = None
    classes: Annotated[Any, CLASSES] = None
    hash_features: Annotated[int | None, HASH_FEATURES] = None
    engine: Annotated[Any, ENGINE] = None

    _model_type = ChainModel

    transitions_ = Fitted[Floats]("transitions")
    edge_coef_ = Fitted[Floats | None]("edge_coef")
    landmark_positions_ = Fitted[Places | None]("landmark_positions")
    gap_curve_ = Fitted[Floats]("gap_curve")

    @property
    def metadata_(self) -> dict[str, Any]:
        """Return the plain values that `save` keeps with the model."""
        return self._model.metadata

    @metadata_.setter
    def metadata_(self, metadata: dict[str, Any]) -> None:
        self.model_ = replace(self._model, metadata=metadata)

    @releasing()
    def fit(
        self, X: UserData, y: UserData = None, sample_weight: UserData = None, lengths: UserData = None
    ) -> ChainCRF:
        """Fit to labelled sequences; `sample_weight` (m,) weighs sequences.

        A sequence of weight 0 does not change the fit, but it is checked and its labels are among the classes.
        """
        self._validate_params()
        earlier = self._earlier
        read = self._read(X, y, sample_weight, lengths, earlier)
        data = LabelledSequences.of(read) if isinstance(read, TrainingSequences) else read.data
        if earlier is None:
            make = partial(make_kernel_for, read.reader.n_features, lambda: read.gamma)
            numbers = self.gamma, self.degree, self.coef0
            kernel = make(self.kernel, *numbers)
            edge_kernel = None if self.edge_kernel is None else make(self.edge_kernel, *numbers, "edge_kernel")
            start, metadata = None, {}
        else:
            kernel, edge_kernel, metadata = earlier.kernel, earlier.edge_kernel, earlier.metadata
            start = Start(earlier.maps, earlier.layout.split(earlier.theta))
        found = self._train_chain(data, len(read.labels.classes), kernel, edge_kernel, start)
        self.model_ = ChainModel.of(found, (read.reader, read.labels, read.legal), self._engine, metadata)
        return self

    def _read(
        self, X: UserData, y: UserData, sample_weight: UserData, lengths: UserData, earlier: ChainModel | None
    ) -> TrainingSequences | TrainingData:
        """Read training data here or on a cluster, with the readers of the previous fit if this one continues it."""
        settings: UserData = {
            "hash_features": self.hash_features,
            "classes": self.classes,
            "class_weight": self.class_weight,
            "constraints": self.constraints,
            "earlier": None if earlier is None else (earlier.reader, earlier.labels),
        }
        if self.engine is None and not is_distributed(X):
            return read_training(X, y, sample_weight, lengths, **settings)
        from kernelcrf.distributed.training_data import current_cluster, read_training_data

        if lengths is not None:
            raise ValueError("lengths was passed with data on a cluster: expected a list of sequences, and no lengths")
        kernels = [InputKernel(kernel) for kernel in (self.kernel, self.edge_kernel) if kernel is not None]
        settings["moments"] = self.gamma == "scale" and any(kernel.reads_gamma for kernel in kernels)
        n_expected = 500 if self.n_components is None or isinstance(self.n_components, str) else int(self.n_components)
        settings["n_components"] = 0 if kernels[0].is_linear else n_expected
        cluster = current_cluster() if self.engine is None else self.engine
        return read_training_data(X, y, sample_weight, cluster, **settings)
