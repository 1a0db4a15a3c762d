"""Conformal prediction of labels: one set per token, which contains the true label with a chosen probability.

The estimator is already fitted. Calibration data, which are new to the estimator, determine a threshold. The score of a
value, such as a label, says how improbable the value is. A prediction set has all values whose score is at most the
threshold; `kernelcrf.answers.conformal_thresholds` has the formulas. The guarantees need no assumption on the model.
They hold on average over calibration data and new data, if both are exchangeable: sequences that are drawn from the
same law or, with `groups`, groups of sequences. Tokens of one sequence may depend on each other in any way.
"""

from __future__ import annotations

import math
import warnings
from copy import copy
from dataclasses import KW_ONLY, dataclass
from typing import Annotated, Any, Self

import numpy as np
from sklearn.base import MetaEstimatorMixin
from sklearn.exceptions import NotFittedError
from sklearn.pipeline import Pipeline
from sklearn.utils.validation import check_is_fitted

from kernelcrf.answers.conformal_thresholds import ROUNDING, least_probability, quantile_threshold, risk_threshold
from kernelcrf.arrays import Array, Flags, Floats, Ints, UserData
from kernelcrf.estimators.multilabel import MultiLabelCRF
from kernelcrf.estimators.parameters import ValidatedEstimator
from kernelcrf.graphs.structure import Chains
from kernelcrf.readers.containers import Ragged, read_groups
from kernelcrf.readers.labels import LabelReader, flat_labels
from kernelcrf.readers.missing_labels import UNKNOWN
from kernelcrf.validation import SHARE, Constraint, Parameter, either, one_of, stacklevel_of_user


def estimator_with(*methods: str, advice: str) -> Parameter:
    """Return the constraint that a parameter is an estimator with these methods, or a pipeline that ends with one."""
    text = f"a fitted estimator with the method{'s' * (len(methods) > 1)} {' and '.join(methods)}"

    def test(value: UserData) -> bool:
        last = value[-1] if isinstance(value, Pipeline) else value
        return not isinstance(last, type) and all(callable(getattr(last, name, None)) for name in methods)

    return either(Constraint(text, test), advice=advice)


@dataclass(frozen=True, eq=False)
class Calibration:
    """The threshold for prediction sets of one model, and the number of sequences or groups used to choose it."""

    threshold: float
    n_units: int
    model: Any


def _model_of(estimator: Any) -> Any:
    """Return the fitted model of the estimator, or None if it has none; each fit of the estimator makes a new model."""
    names = "model_", "calibrated_"
    return next((vars(estimator)[name] for name in names if name in vars(estimator)), None)


class Conformal(MetaEstimatorMixin, ValidatedEstimator):  # type: ignore[misc]
    """Base class of wrappers that calibrate the threshold of prediction sets."""

    estimator: Any
    confidence_level: float
    control: str

    def __getattr__(self, name: str) -> Any:
        """Raise AttributeError; for `fit` and `predict`, the error says what to call instead."""
        wrapper = type(self).__name__
        if name in ("predict", "predict_proba"):
            raise AttributeError(
                f"{wrapper} has no {name}: call predict_set(X) for sets of labels, or {name}(X) of the estimator inside"
            )
        if name == "fit":
            raise AttributeError(
                f"{wrapper} has no fit: fit the estimator that it wraps, and then call conformalize(X, y) of {wrapper} "
                "with other sequences"
            )
        # A property may have raised NotFittedError, which is an AttributeError: raise it again.
        return self.__getattribute__(name)

    def conformalize(self, X: UserData, y: UserData, groups: UserData = None) -> Self:
        """Choose the threshold from sequences X that are new to the estimator, and their true labels y; return self.

        groups : one value per sequence, such as a person or a document. Sequences of one group may depend on each
            other; the guarantee is then for a whole new group. None puts each sequence into a group of its own.
        """
        self._validate_params()
        check_is_fitted(self.estimator)
        model, X = self._open(X)
        scores, samples, counted = self._scores(model, X, y)
        groups = read_groups(groups, len(counted))
        kept = np.unique(groups[counted])
        if not len(kept):
            raise ValueError(
                "y has no sequence that calibration can use: expected at least one sequence with known labels, and "
                "with a span if the sets are sets of spans"
            )
        units = np.searchsorted(kept, groups[samples])
        threshold = self._threshold(scores, units, len(kept))
        self.calibration_ = Calibration(threshold, len(kept), _model_of(model))
        return self

    @property
    def _calibration(self) -> Calibration:
        calibration: Calibration | None = vars(self).get("calibration_")
        if calibration is None:
            raise NotFittedError(
                f"this {type(self).__name__} has no threshold yet: call conformalize(X, y) before predict_set(X)"
            )
        return calibration

    @property
    def threshold_(self) -> float:
        """Return the threshold: a set has all values whose score is at most this number."""
        return self._calibration.threshold

    @property
    def n_calibration_(self) -> int:
        """Return the number of sequences or groups that determined the threshold."""
        return self._calibration.n_units

    def _threshold(self, scores: Floats, units: Ints, n: int) -> float:
        if self.control == "share":
            threshold = risk_threshold(scores, units, n, self.confidence_level)
        else:
            worst = np.zeros(n)
            np.maximum.at(worst, units, scores)
            threshold = quantile_threshold(worst, self.confidence_level)
        if math.isinf(threshold) and (n + 1) * self.confidence_level <= n + ROUNDING:
            raise ValueError(
                f"y has {int(np.isinf(scores).sum())} labellings or spans of probability 0, because the estimator's "
                "constraints forbid them. No sets of permitted ones reach "
                f"confidence_level={self.confidence_level:g}: correct these labels, lower confidence_level, or fit "
                "without constraints"
            )
        if math.isinf(threshold):
            least = math.ceil(self.confidence_level / (1 - self.confidence_level) - ROUNDING)
            warnings.warn(
                f"{n} sequences or groups are too few for confidence_level={self.confidence_level:g}, so each set has "
                f"all values: expected at least {least}. Pass more sequences, or lower confidence_level",
                UserWarning,
                stacklevel=stacklevel_of_user(),
            )
        return threshold

    def _scores(self, model: Any, X: UserData, y: UserData) -> tuple[Floats, Ints, Flags]:
        """Return the scores of true values, the index of the sample of each score, and flags of the samples to use."""
        raise NotImplementedError

    def _open(self, X: UserData) -> tuple[Any, UserData]:
        """Return a pair: a copy of the estimator with the same model, and X.

        For a pipeline, the pair is a copy of its last step, and X as the other steps transform it.
        """
        model = self.estimator
        if not isinstance(model, Pipeline):
            return copy(model), X
        return copy(model[-1]), model[:-1].transform(X) if len(model) > 1 else X

    def _open_calibrated(self, X: UserData) -> tuple[Any, UserData, float]:
        """Return both results of `_open`, and the threshold; raise if the estimator was fitted after calibration."""
        calibration, (model, X) = self._calibration, self._open(X)
        if _model_of(model) is not calibration.model:
            raise ValueError(
                "the estimator was fitted again after conformalize, so that the threshold is that of another model: "
                "call conformalize(X, y) again"
            )
        return model, X, calibration.threshold

    @property
    def classes_(self) -> Array:
        """Return the classes of the estimator, in the order of the columns of its probabilities."""
        return np.asarray(self.estimator.classes_)


@dataclass(eq=False, repr=False)
class ConformalLabels(Conformal):
    """Predict a set of labels per token, so that the sets contain the true labels with a chosen probability.

    The set of a token has all labels whose probability is at least 1 - threshold_; it may be empty.

    Parameters
    ----------
    estimator : estimator with the method predict_proba
        A fitted ChainCRF, SegmentCRF, ChainOver, KernelClassifier, GraphCRF, MultiLabelCRF or TemperatureScaling, or a
        Pipeline that ends with one of them.
    confidence_level : float, default=0.9
        Probability or share that `control` refers to, between 0 and 1.
    control : "all" or "share", default="all"
        "all" means that, with probability `confidence_level`, the sets of a new sequence contain *all* of its true
        labels. With "share", a part of the true labels of a new sequence may be missing from its sets. The expected
        share of missing labels is at most 1 - confidence_level, and sets are smaller. For MultiLabelCRF, a row takes
        the place of a sequence.

    Attributes
    ----------
    threshold_ : a label is in a set if its probability is at least 1 - threshold_. It is infinite if there are too few
        calibration data for the level, and then sets have all labels.
    n_calibration_ : the number of sequences or groups that determined the threshold, without sequences that have no
        known label. With control="all", sequences in which a label is missing are left out, too.
    classes_ : the labels, in the order of the columns of the sets.

    Examples
    --------
    >>> import numpy as np
    >>> from kernelcrf import ChainCRF, ConformalLabels
    >>> from kernelcrf.datasets import make_sequences
    >>> train, held_out, new = (make_sequences(n, random_state=seed) for seed, n in enumerate((60, 200, 200)))
    >>> crf = ChainCRF(C=1.0, n_components=100, random_state=0).fit(train.X, train.y)
    >>> sets = ConformalLabels(crf, confidence_level=0.8).conformalize(held_out.X, held_out.y)
    >>> round(sets.threshold_, 2), sets.n_calibration_
    (0.81, 200)
    >>> found = sets.predict_set(new.X)
    >>> found[0][:2]  # one row per token, one column per label
    array([[False, False,  True],
           [False, False,  True]])
    >>> round(float(sum(map(np.sum, found)) / sum(map(len, found))), 2)  # labels per token
    1.21
    >>> sum(bool(one[range(len(y)), y].all()) for one, y in zip(found, new.y))  # sequences with all true labels
    161
    """

    estimator: Annotated[Any, estimator_with("predict_proba", advice="such as ChainCRF or TemperatureScaling")]
    _: KW_ONLY
    confidence_level: Annotated[float, SHARE] = 0.9
    control: Annotated[str, either(one_of("all", "share"))] = "all"

    def predict_set(self, X: UserData) -> Any:
        """Return one boolean array per sequence: entry [t, j] says whether classes_[j] is in the set of token t.

        If the samples are rows and not sequences, return one boolean array with one row per row of X. It has one column
        per class or, for MultiLabelCRF, one column per label.
        """
        model, X, threshold = self._open_calibrated(X)
        p, least = model.predict_proba(X), least_probability(threshold)
        # Single precision would round the bound.
        least = np.float64(least)
        return Ragged(one >= least for one in p) if isinstance(p, list) else p >= least

    def _scores(self, model: Any, X: UserData, y: UserData) -> tuple[Floats, Ints, Flags]:
        p = model.predict_proba(X)
        n, is_flat = len(p), not isinstance(p, list)
        truth, samples = read_truth(model, y, np.ones(n, int) if is_flat else [len(one) for one in p], is_flat)
        rows, columns = np.nonzero(truth == 1)
        p = np.asarray(p if is_flat else np.concatenate([np.empty((0, truth.shape[1])), *p]), np.float64)
        counted = np.bincount(samples[(truth != UNKNOWN).any(axis=1)], minlength=n) > 0
        if self.control == "all":
            counted &= np.bincount(samples[(truth == UNKNOWN).any(axis=1)], minlength=n) == 0
            rows, columns = rows[counted[samples[rows]]], columns[counted[samples[rows]]]
        return 1 - p[rows, columns], samples[rows], counted


def read_truth(model: Any, y: UserData, lengths: list[int] | Ints, is_flat: bool) -> tuple[Array, Ints]:
    """Return a pair: an array that says which labels are true, and the index of the sample of each row.

    The array has one row per token and one column per label. Entries are 1 for a true label, 0 for any other label, and
    -1 in all columns of a token without a known label. For MultiLabelCRF, there is one row per row of y, and the
    entries are those of y.

    lengths, is_flat : the number of tokens of each sequence, and whether y is one list of the labels of all tokens.
    """
    n = len(lengths)
    if isinstance(model, MultiLabelCRF) and not model.model_.sets.one_column:
        truth = model.model_.sets.read(y)
        if len(truth) != n:
            raise ValueError(f"y has {len(truth)} rows and X has {n}: expected one row of y per row of X")
        return truth, np.arange(n)
    chains, reader = Chains.from_lengths(lengths), LabelReader(np.asarray(model.classes_))
    labels = reader.encode_single(flat_labels(y, chains, flat=is_flat), chains)
    truth = (labels[:, None] == np.arange(len(reader.classes))).astype(np.int8)
    truth[labels == UNKNOWN] = UNKNOWN
    return truth, np.repeat(np.arange(n), chains.lengths)
