"""Conformal prediction of spans, such as entities or chunks."""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass
from itertools import pairwise
from typing import Annotated, Any

import numpy as np
from sklearn.pipeline import Pipeline

from kernelcrf.answers.conformal_thresholds import least_probability
from kernelcrf.answers.spans import SPAN_SCHEME, PredictedSpan
from kernelcrf.arrays import Flags, Floats, Ints, UserData
from kernelcrf.estimators.chain_over import ChainOver
from kernelcrf.estimators.conformal import Conformal, read_truth
from kernelcrf.estimators.sequences import SequenceEstimator
from kernelcrf.readers.missing_labels import UNKNOWN
from kernelcrf.readers.spans import scheme_of, spans
from kernelcrf.validation import SHARE, Constraint, either


def _has_spans(estimator: UserData) -> bool:
    return isinstance(estimator[-1] if isinstance(estimator, Pipeline) else estimator, SequenceEstimator | ChainOver)


ESTIMATOR_WITH_SPANS = either(
    Constraint("a fitted ChainCRF, SegmentCRF or ChainOver", _has_spans),
    advice="for TemperatureScaling, pass its estimator_",
)


@dataclass(eq=False, repr=False)
class ConformalSpans(Conformal):
    """Predict a set of spans per sequence, so that the sets miss at most a chosen share of the true spans.

    Spans are, for example, entities or chunks. The set has all spans whose probability is at least 1 - threshold_;
    spans of a set may overlap. If a new sequence has true spans, the expected share of these that its set misses is at
    most 1 - confidence_level.

    Parameters
    ----------
    estimator : ChainCRF, SegmentCRF, ChainOver or Pipeline
        A fitted estimator whose distribution has spans, or a Pipeline that ends with one.
    confidence_level : float, default=0.9
        Expected share of true spans that are found, between 0 and 1.
    scheme : None or str, default=None
        The tagging scheme of the labels, as in `ChainDistribution.spans`. SegmentCRF needs None.

    Attributes
    ----------
    threshold_ : a span is in a set if its probability is at least 1 - threshold_. It is infinite if there are too few
        calibration data for the level, and then sets have all spans that are possible.
    n_calibration_ : the number of sequences or groups that determined the threshold, without sequences that have a
        missing label or no true span.
    classes_ : the labels of tokens.

    Examples
    --------
    >>> from kernelcrf import ChainCRF, ConformalSpans
    >>> from kernelcrf.datasets import make_sequences
    >>> train, held_out, new = (make_sequences(n, random_state=seed) for seed, n in enumerate((60, 200, 200)))
    >>> crf = ChainCRF(C=1.0, n_components=100, random_state=0).fit(train.X, train.y)
    >>> sets = ConformalSpans(crf, confidence_level=0.8).conformalize(held_out.X, held_out.y)  # runs of equal labels
    >>> found = sets.predict_set(new.X)
    >>> [(span.start, span.end, span.label, round(span.probability, 2)) for span in found[0]]
    [(0, 3, 2, 0.85), (3, 5, 1, 0.57), (5, 8, 0, 0.3), (8, 9, 1, 0.5)]
    """

    estimator: Annotated[Any, ESTIMATOR_WITH_SPANS]
    _: KW_ONLY
    confidence_level: Annotated[float, SHARE] = 0.9
    scheme: Annotated[str | None, SPAN_SCHEME] = None

    control = "share"

    def predict_set(self, X: UserData) -> list[list[PredictedSpan]]:
        """Return one list per sequence: the spans of its set, with probabilities, as in `ChainDistribution.spans`."""
        self._validate_params("scheme")
        model, X, threshold = self._open_calibrated(X)
        spans: list[list[PredictedSpan]] = model.distribution(X).spans(
            threshold=least_probability(threshold), **self._options
        )
        return spans

    @property
    def _options(self) -> dict[str, str]:
        """Return the options for `spans`: a dict with the tagging scheme, or an empty dict if `scheme` is None."""
        return {} if self.scheme is None else {"scheme": self.scheme}

    def _scores(self, model: Any, X: UserData, y: UserData) -> tuple[Floats, Ints, Flags]:
        distribution = model.distribution(X)
        lengths = distribution.chains.lengths
        truth, samples = read_truth(model, y, lengths, is_flat=False)
        complete = np.bincount(samples[(truth == UNKNOWN).any(axis=1)], minlength=len(lengths)) == 0
        classes = distribution.classes
        labels, scheme = classes[truth.argmax(axis=1)].tolist(), scheme_of(classes.tolist(), self.scheme)
        ends = pairwise(distribution.chains.offsets.tolist())
        true = [
            spans(labels[a:b], scheme, name="y") if kept else [] for (a, b), kept in zip(ends, complete, strict=True)
        ]
        p = np.concatenate([np.empty(0), *distribution.span_marginals(true, **self._options)])
        counts = np.array([len(one) for one in true], int)
        return np.where(p > 0, 1 - p, np.inf), np.repeat(np.arange(len(true)), counts), complete & (counts > 0)
