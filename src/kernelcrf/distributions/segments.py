"""The distribution p(y|x) that a SegmentCRF predicts for segmentations; `inference.segments` has the formula."""

from __future__ import annotations

from dataclasses import dataclass

from kernelcrf.answers.segment_probabilities import predicted_segments, segment_probabilities
from kernelcrf.answers.spans import N_BEST, THRESHOLD, PredictedSpan
from kernelcrf.arrays import Floats, UserData
from kernelcrf.distributions.sequences import SequenceDistribution
from kernelcrf.models.segments import SegmentField
from kernelcrf.validation import validated


@dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class SegmentDistribution(SequenceDistribution):
    """The distribution p(y|x) of the segmentations of sequences, as `SegmentCRF.distribution` returns it.

    The label of a token depends on its whole segment. This class therefore has probabilities of segments, but no
    probabilities of pairs of neighbouring tokens.

    Examples
    --------
    >>> import numpy as np
    >>> from kernelcrf import SegmentCRF
    >>> rng = np.random.default_rng(0)
    >>> y = [np.repeat([0, 1] * 3, rng.integers(4, 7, 6)) for _ in range(30)]  # segments of 4 to 6 tokens
    >>> X = [labels[:, None] + rng.normal(size=(len(labels), 1)) for labels in y]
    >>> crf = SegmentCRF("linear", C=10.0, ends=False, tol=1e-8).fit(X, y)
    >>> distribution = crf.distribution(X[:1])
    >>> [(s.start, s.end, s.label, round(s.probability, 1)) for s in distribution.spans()[0]][:3]
    [(0, 6, 0, 0.7), (6, 10, 1, 0.4), (10, 16, 0, 0.4)]
    >>> distribution.span_marginals([[(0, 6, 0)]])[0].round(1), distribution.span_table(threshold=0.3).shape
    (array([0.7]), (6, 6))
    >>> [round(log_p, 1) for labels, log_p in distribution.k_best(2)[0]], distribution.entropy().round(1)
    ([-1.3, -2.0], array([3.3]))
    >>> segments = [(0, 6, 0), (6, 10, 1), (10, 16, 0), (16, 20, 1), (20, 24, 0), (24, 28, 1)]
    >>> distribution.log_prob([segments]).round(1), distribution.sample(5, random_state=0)[0].shape
    (array([-1.3]), (5, 28))
    """

    field: SegmentField

    @validated(threshold=THRESHOLD, n_best=N_BEST)
    def spans(self, *, threshold: float | None = None, n_best: int | None = None) -> list[list[PredictedSpan]]:
        """Return segments with their probabilities: one list per sequence, from left to right.

        A segment has the attributes start, end (the index of the token after the last), label and probability: how
        probable it is that the sequence has exactly this segment. By default these are the segments of the likeliest
        segmentation. Segments with the label O of IOB2 tags are left out.

        threshold : return instead all segments whose probability is at least this number. Below 0.5, segments may
            overlap.
        n_best : return instead the most probable segments of each sequence, at most this many, sorted by probability
            and not from left to right. If `threshold` is passed too, segments with a smaller probability are left out.
        """
        return predicted_segments(self.field, threshold, n_best)

    def span_marginals(self, spans: UserData) -> list[Floats]:
        """Return the probabilities of the given segments, one array per sequence.

        spans : for each sequence, a list of tuples (start, end, label), such as (3, 5, "PER").
        """
        return segment_probabilities(self.field, spans)
