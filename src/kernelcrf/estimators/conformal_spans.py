"""Conformal prediction of spans, such as entities or chunks."""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass
from itertools import pairwise
from typing import Annotated, Any

import numpy as np

from kernelcrf.answers.conformal import least_probability
from kernelcrf.answers.spans import SPAN_SCHEME, PredictedSpan
from kernelcrf.arrays import Flags, Floats, Ints, UserData
from kernelcrf.estimators.conformal import Conformal, estimator_with, read_truth
from kernelcrf.readers.missing_labels import UNKNOWN
from kernelcrf.readers.spans import scheme_of, spans
from kernelcrf.validation import SHARE


@dataclass(eq=False, repr=False)
class ConformalSpans(Conformal):
    """Predict a set of spans per sequence, such as entities or chunks, that misses at most a chosen share of the truth.

    The set has all spans whose probability is at least 1 - threshold_; they may overlap. If a new sequence has true
    spans, the expected share of them that are missing from its set is at most 1 - confidence_level.

    Parameters
    ----------
    estimator : estimator with the methods predict_spans and span_marginals
        A fitted ChainCRF or SegmentCRF, or a Pipeline that ends with one.
    confidence_level : float, default=0.9
        Expected share of true spans that are found, between 0 and 1.
    scheme : None or str, default=None
        The tagging scheme of the labels, as in `ChainCRF.predict_spans`. SegmentCRF needs None.

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

    estimator: Annotated[
        Any,
        estimator_with(
            "predict_spans",
            "span_marginals",
            advice="such as ChainCRF or SegmentCRF; for TemperatureScaling, pass its estimator_",
        ),
    ]
    _: KW_ONLY
    confidence_level: Annotated[float, SHARE] = 0.9
    scheme: Annotated[str | None, SPAN_SCHEME] = None

    control = "share"

    def predict_set(self, X: UserData) -> list[list[PredictedSpan]]:
        """Return one list of spans with their probabilities per sequence, as `ChainCRF.predict_spans` does."""
        self._validate_params("scheme")
        model, X, threshold = self._open_calibrated(X)
        least = least_probability(threshold)
        found: list[list[PredictedSpan]] = model.predict_spans(X, threshold=least, **self._options)
        return found

    @property
    def _options(self) -> dict[str, str]:
        """Return the scheme as an option, if it is given; SegmentCRF, which has segments, takes no scheme."""
        return {} if self.scheme is None else {"scheme": self.scheme}

    def _scores(self, model: Any, X: UserData, y: UserData) -> tuple[Floats, Ints, Flags]:
        lengths = [len(one) for one in model.predict_proba(X)]
        truth, samples = read_truth(model, y, lengths, is_flat=False)
        complete = np.bincount(samples[(truth == UNKNOWN).any(axis=1)], minlength=len(lengths)) == 0
        classes = np.asarray(model.classes_)
        labels, scheme = classes[truth.argmax(axis=1)].tolist(), scheme_of(classes.tolist(), self.scheme)
        ends = pairwise(np.cumsum([0, *lengths]).tolist())
        own = [
            spans(labels[a:b], scheme, name="y") if kept else [] for (a, b), kept in zip(ends, complete, strict=True)
        ]
        p = np.concatenate([np.empty(0), *model.span_marginals(X, own, **self._options)])
        counts = np.array([len(one) for one in own], int)
        return np.where(p > 0, 1 - p, np.inf), np.repeat(np.arange(len(own)), counts), complete & (counts > 0)
