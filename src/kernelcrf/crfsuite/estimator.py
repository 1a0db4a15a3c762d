"""Define `CRF`, which has the parameters of the class CRF of sklearn-crfsuite, and fits a ChainCRF.

CRFsuite gives weights w to pairs of an attribute and a label, and to pairs of labels. It minimises

    - sum over sequences of log p(y|x) + c1 |w|_1 + c2 |w|^2,

which is the objective of ChainCRF with an elastic net, l1 = c1, and C = 1 / (2 c2).
"""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Self

from kernelcrf.answers.spans import PredictedSpan
from kernelcrf.arrays import UserData
from kernelcrf.certificate import Certificate
from kernelcrf.crfsuite.tagger import Tagger, TrainingLog, held_out_scores, plain_tokens
from kernelcrf.estimators.chain import ChainCRF
from kernelcrf.estimators.parameters import ValidatedEstimator, declared_parameters, weights_of_crfsuite
from kernelcrf.models.crfsuite import to_crfsuite
from kernelcrf.penalties import ElasticNet
from kernelcrf.persistence import PathLike, check_target
from kernelcrf.persistence.crfsuite.model_file import write_model
from kernelcrf.readers.containers import Ragged
from kernelcrf.validation import (
    FLAG,
    PATH,
    Constraint,
    either,
    nothing,
    one_of,
    real,
    stacklevel_of_user,
    whole,
)

# The defaults of CRFsuite, for parameters that are None.
C2, EPSILON, DELTA = 1.0, 1e-5, 1e-5
MAX_ITERATIONS = 1000
# ChainCRF computes certificates to this precision, and its tolerance is below 1.
LEAST_TOL, LARGEST_TOL = 1e-9, 0.5

ALGORITHM = either(
    one_of("lbfgs", "l2sgd"),
    nothing,
    advice="both minimise the same objective, which 'ap', 'pa' and 'arow' do not",
)
FLAG_OR_NONE = either(*FLAG.constraints, Constraint("0 or 1", lambda value: value in (0, 1)), nothing)
PENALTY, THRESHOLD = either(real(least=0), nothing), either(real(least=0), nothing)
L2 = either(real(above=0), nothing, advice="the certificate needs an L2 penalty; pass a small number such as 1e-3")
ITERATIONS = either(whole(least=1), nothing, advice="None means 1,000")
IGNORED = either(Constraint("any value", lambda value: True))


@dataclass(eq=False, repr=False)
class CRF(ValidatedEstimator):
    """Conditional random field with the interface of sklearn-crfsuite's CRF.

    A script that uses sklearn-crfsuite runs if `import sklearn_crfsuite` is replaced by `import kernelcrf.crfsuite as
    sklearn_crfsuite`. X is a list of sequences of feature dicts or of lists of feature names, and y is a list of lists
    of labels. The fit is that of a linear `ChainCRF`: it ends with a certificate of its distance to the optimum, and
    does not depend on the parameter `algorithm`. If a parameter is None, it has CRFsuite's default. Parameters marked
    as ignored have no effect, and `fit` warns if one of them is not None.

    Parameters
    ----------
    algorithm : None, "lbfgs" or "l2sgd", default=None
        All of these lead to the same optimum here. "ap", "pa" and "arow" have other objectives, and are refused.
    min_freq : float or None, default=None
        How often a pair of a feature and a label, or of two labels, must occur to have a weight. None means 0.
    all_possible_states : bool or None, default=None
        Whether pairs of a feature and a label have a weight even if they do not occur together in the training data.
        None means False.
    all_possible_transitions : bool or None, default=None
        Whether pairs of neighbouring labels have a weight even if they do not occur in the training data. None means
        False.
    c1 : float or None, default=None
        Factor of the L1 penalty. None means 0.
    c2 : float or None, default=None
        Factor of the L2 penalty, which must be above 0. None means 1.
    max_iterations : int or None, default=None
        Largest number of passes over the data. None means 1,000.
    num_memories : ignored, default=None
        Setting of CRFsuite's L-BFGS, without effect here.
    epsilon : float or None, default=None
        The fit ends if the objective is certified to be within max(epsilon, delta) of the optimum, relative to the
        objective. None means 1e-5, and numbers below 1e-9 count as 1e-9. CRFsuite also ends if one of its two criteria
        is met, but they do not bound the distance to the optimum.
    period : ignored, default=None
        Setting of CRFsuite's L-BFGS, without effect here.
    delta : float or None, default=None
        See `epsilon`. None means 1e-5.
    linesearch : ignored, default=None
        Setting of CRFsuite's L-BFGS, without effect here.
    max_linesearch : ignored, default=None
        Setting of CRFsuite's L-BFGS, without effect here.
    calibration_eta : ignored, default=None
        Setting of "l2sgd", without effect here.
    calibration_rate : ignored, default=None
        Setting of "l2sgd", without effect here.
    calibration_samples : ignored, default=None
        Setting of "l2sgd", without effect here.
    calibration_candidates : ignored, default=None
        Setting of "l2sgd", without effect here.
    calibration_max_trials : ignored, default=None
        Setting of "l2sgd", without effect here.
    pa_type : ignored, default=None
        Setting of "pa", without effect here.
    c : ignored, default=None
        Setting of "pa", without effect here.
    error_sensitive : ignored, default=None
        Setting of "pa", without effect here.
    averaging : ignored, default=None
        Setting of "pa", without effect here.
    variance : ignored, default=None
        Setting of "arow", without effect here.
    gamma : ignored, default=None
        Setting of "arow", without effect here.
    verbose : bool, default=False
        Whether to show a progress bar.
    model_filename : str, path or None, default=None
        A file to which `fit` writes the model, in CRFsuite's format. If the file exists, the estimator can predict with
        it before a fit.
    keep_tempfiles : bool, default=False
        Without effect, because there are no temporary files.
    trainer_cls : ignored, default=None
        The class of CRFsuite's trainer, without effect here.

    Attributes
    ----------
    certificate_ : objective, lower bound and status of the fit.
    crf_ : the fitted ChainCRF, which has more methods, such as `distribution` and `explain`.
    classes_ : list of all labels.
    attributes_ : list of all attributes that have a weight; attributes are CRFsuite's word for feature names.
    state_features_ : dict from pairs (attribute, label) to weights; weights that are zero are left out.
    transition_features_ : dict from pairs (label, next label) to weights.
    size_ : the size of the model file in bytes.
    num_attributes_ : the number of attributes that have a weight.
    tagger_ : tags single sequences, with the methods of python-crfsuite's Tagger that do not open files.
    training_log_ : log of the fit; `training_log_.last_iteration` has "num", "loss", "active_features" and more.

    Examples
    --------
    >>> from kernelcrf.crfsuite import CRF
    >>> X = [[{"word": "the"}, {"word": "dog"}], [{"word": "a"}, {"word": "cat"}], [{"word": "the"}, {"word": "cat"}]]
    >>> y = [["D", "N"], ["D", "N"], ["D", "N"]]
    >>> crf = CRF(c1=0.1, c2=0.1, all_possible_transitions=True).fit(X, y)
    >>> crf.predict(X)[0], crf.predict_single([{"word": "a"}, {"word": "dog"}]), crf.score(X, y)
    (['D', 'N'], ['D', 'N'], 1.0)
    >>> {label: round(p, 2) for label, p in crf.predict_marginals_single(X[1])[0].items()}
    {'D': 0.88, 'N': 0.12}
    >>> crf.predict_spans(X[:1], scheme="runs")[0][0]._replace(probability=None)
    PredictedSpan(start=0, end=1, label='D', probability=None, certified=None)
    >>> len(crf.predict_marginals(X)), crf.certificate_.status, crf.training_log_.last_iteration["active_features"]
    (3, 'optimal', 8)
    >>> max(crf.state_features_, key=crf.state_features_.get), round(crf.transition_features_["D", "N"], 2)
    (('word:the', 'D'), 1.96)
    >>> crf.save("words.crfsuite")
    """

    algorithm: Annotated[str | None, ALGORITHM] = None
    min_freq: Annotated[float | None, THRESHOLD] = None
    all_possible_states: Annotated[bool | None, FLAG_OR_NONE] = None
    all_possible_transitions: Annotated[bool | None, FLAG_OR_NONE] = None
    c1: Annotated[float | None, PENALTY] = None
    c2: Annotated[float | None, L2] = None
    max_iterations: Annotated[int | None, ITERATIONS] = None
    num_memories: Annotated[Any, IGNORED] = None
    epsilon: Annotated[float | None, THRESHOLD] = None
    period: Annotated[Any, IGNORED] = None
    delta: Annotated[float | None, THRESHOLD] = None
    linesearch: Annotated[Any, IGNORED] = None
    max_linesearch: Annotated[Any, IGNORED] = None
    calibration_eta: Annotated[Any, IGNORED] = None
    calibration_rate: Annotated[Any, IGNORED] = None
    calibration_samples: Annotated[Any, IGNORED] = None
    calibration_candidates: Annotated[Any, IGNORED] = None
    calibration_max_trials: Annotated[Any, IGNORED] = None
    pa_type: Annotated[Any, IGNORED] = None
    c: Annotated[Any, IGNORED] = None
    error_sensitive: Annotated[Any, IGNORED] = None
    averaging: Annotated[Any, IGNORED] = None
    variance: Annotated[Any, IGNORED] = None
    gamma: Annotated[Any, IGNORED] = None
    verbose: Annotated[bool, FLAG_OR_NONE] = False
    model_filename: Annotated[PathLike | None, either(*PATH.constraints, nothing)] = None
    keep_tempfiles: Annotated[bool, FLAG_OR_NONE] = False
    trainer_cls: Annotated[Any, IGNORED] = None

    def fit(self, X: UserData, y: UserData, X_dev: UserData = None, y_dev: UserData = None) -> Self:
        """Fit the model to labelled sequences.

        X_dev, y_dev : held-out sequences and labels; their scores are in `training_log_.last_iteration`.
        """
        self._validate_params()
        if (X_dev is None) != (y_dev is None):
            missing = "y_dev" if y_dev is None else "X_dev"
            raise ValueError(f"{missing} is None: expected X_dev and y_dev together, or neither")
        if self.model_filename is not None:
            check_target(self.model_filename)
        self._warn_of_ignored()
        crf = self._chain_crf().fit(_plain(X), y)
        scores = {} if X_dev is None else held_out_scores(crf, _plain(X_dev), y_dev)
        if self.model_filename is not None:
            write_model(to_crfsuite(crf.model_), self.model_filename)
        self.__dict__.pop("_read_from", None)
        self.__dict__.update(_tagger=Tagger(crf), training_log_=TrainingLog.of(crf, scores))
        return self

    def predict(self, X: UserData) -> list[list[Any]]:
        """Return the labels of each sequence."""
        return Ragged(labels.tolist() for labels in self.crf_.predict(_plain(X)))

    def predict_single(self, xseq: UserData) -> list[Any]:
        """Return the labels of one sequence."""
        return self.predict([xseq])[0]

    def predict_marginals(self, X: UserData) -> list[list[dict[Any, float]]]:
        """Return one list per sequence, with one dict from labels to probabilities per token."""
        return self.crf_.predict_marginals(_plain(X))

    def predict_marginals_single(self, xseq: UserData) -> list[dict[Any, float]]:
        """Return one dict from labels to probabilities per token of one sequence."""
        return self.predict_marginals([xseq])[0]

    def predict_spans(
        self,
        X: UserData,
        *,
        scheme: str | None = None,
        threshold: float | None = None,
        n_best: int | None = None,
        certify: bool = False,
    ) -> list[list[PredictedSpan]]:
        """Return spans with their probabilities, such as entities or chunks: one list per sequence.

        The options are those of `ChainDistribution.spans`.
        """
        distribution = self.crf_.distribution(_plain(X))
        return distribution.spans(scheme=scheme, threshold=threshold, n_best=n_best, certify=certify)

    def score(self, X: UserData, y: UserData) -> float:
        """Return the fraction of labels that are predicted correctly."""
        return float(self.crf_.score(_plain(X), y))

    def save(self, path: PathLike) -> None:
        """Write the model to a file, in CRFsuite's format if the name ends with ".crfsuite"; see `ChainCRF.save`."""
        self.crf_.save(path)

    @property
    def tagger_(self) -> Tagger:
        """Return the tagger of the fitted model, or of the file `model_filename` if `fit` was not called."""
        if vars(self).get("_read_from", self.model_filename) != self.model_filename or "_tagger" not in vars(self):
            if self.model_filename is None or not Path(self.model_filename).is_file():
                raise AttributeError("this CRF is not fitted: call fit, or pass the file of a model as model_filename")
            self._tagger, self._read_from = Tagger(ChainCRF.from_crfsuite(self.model_filename)), self.model_filename
        return self._tagger

    @property
    def crf_(self) -> ChainCRF:
        """Return the fitted ChainCRF."""
        return self.tagger_.crf

    @property
    def certificate_(self) -> Certificate:
        """Return the certificate of the fit."""
        return self.crf_.certificate_

    @property
    def classes_(self) -> list[Any]:
        """Return all labels."""
        return self.tagger_.labels()

    @property
    def attributes_(self) -> list[str]:
        """Return the names of all attributes that have a weight."""
        return list(self.tagger_.info().attributes)

    @property
    def state_features_(self) -> dict[tuple[str, str], float]:
        """Return a dict from pairs (attribute, label) to weights."""
        return self.tagger_.info().state_features

    @property
    def transition_features_(self) -> dict[tuple[str, str], float]:
        """Return a dict from pairs (label, next label) to weights."""
        return self.tagger_.info().transitions

    @property
    def size_(self) -> int:
        """Return the size of the model file in bytes."""
        return int(self.tagger_.info().header["size"])

    @property
    def num_attributes_(self) -> int:
        """Return the number of attributes that have a weight."""
        return int(self.tagger_.info().header["num_attrs"])

    def _chain_crf(self) -> ChainCRF:
        """Return an unfitted ChainCRF with the same objective."""
        tol = max(EPSILON if self.epsilon is None else self.epsilon, DELTA if self.delta is None else self.delta)
        return ChainCRF(
            "linear",
            C=1 / (2 * (C2 if self.c2 is None else self.c2)),
            penalty=ElasticNet(self.c1) if self.c1 else None,
            weights=weights_of_crfsuite(
                bool(self.all_possible_states), bool(self.all_possible_transitions), self.min_freq or 0.0
            ),
            tol=min(max(tol, LEAST_TOL), LARGEST_TOL),
            max_iter=self.max_iterations or MAX_ITERATIONS,
            verbose=int(bool(self.verbose)),
        )

    def _warn_of_ignored(self) -> None:
        declared = declared_parameters(type(self))  # type: ignore[arg-type]
        ignored = [name for name, rule in declared.items() if rule is IGNORED and getattr(self, name) is not None]
        if ignored:
            warnings.warn(
                f"{', '.join(ignored)} {'has' if len(ignored) == 1 else 'have'} no effect on kernelcrf.crfsuite.CRF, "
                "whose fit is certified to be close to the optimum: omit them",
                stacklevel=stacklevel_of_user(),
            )

    def __sklearn_is_fitted__(self) -> bool:
        return hasattr(self, "tagger_")

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        # No estimator_type: for a "classifier", cv=3 would stratify by y, which fails for sequences of labels.
        tags.target_tags.required = True
        tags.input_tags.dict = True
        return tags


def _plain(X: UserData) -> Sequence[Any]:
    return [plain_tokens(x) for x in X]
