"""The stream of a SegmentCRF: labels, probabilities and open segments while the tokens of one sequence arrive."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from kernelcrf.arrays import Array, UserData
from kernelcrf.engines.local import LocalEngine
from kernelcrf.models.segments import SegmentModel
from kernelcrf.streams.chain import kinds_of
from kernelcrf.streams.segment_filter import OpenSegmentScores, SegmentFilter
from kernelcrf.streams.stream import LabelStream, one_row_of_each
from kernelcrf.streams.token_filter import IndexAnswer
from kernelcrf.validation import either, real, validated

LEAST = either(real(least=0, most=1))


class OpenSegment(NamedTuple):
    """A segment to which the newest token of a stream may belong.

    start : the index of its first token in the stream; None stands for all segments of `max_duration` tokens or more.
    label : the label of the segment.
    probability : how probable it is that the newest token belongs to this segment, given the tokens so far.

    Examples
    --------
    >>> import numpy as np
    >>> from kernelcrf import SegmentCRF
    >>> from kernelcrf.streams.segments import OpenSegment
    >>> rng = np.random.default_rng(0)
    >>> y = [np.repeat([0, 1] * 3, rng.integers(4, 7, 6)) for _ in range(30)]
    >>> X = [labels[:, None] + rng.normal(size=(len(labels), 1)) for labels in y]
    >>> live = SegmentCRF("linear", C=10.0, ends=False).fit(X, y).stream()
    >>> answer = live.extend(X[0][:3])
    >>> segment = live.open_segments()[0]
    >>> isinstance(segment, OpenSegment), segment.start, segment.label
    (True, 0, 1)
    """

    start: int | None
    label: Any
    probability: float


class SegmentStream(LabelStream):
    """The segments of one sequence while its tokens arrive, as `SegmentCRF.stream` returns it.

    It has the methods of `ChainStream`, and `open_segments`.

    Examples
    --------
    >>> import numpy as np
    >>> from kernelcrf import SegmentCRF
    >>> rng = np.random.default_rng(0)
    >>> y = [np.repeat([0, 1] * 3, rng.integers(4, 7, 6)) for _ in range(30)]  # segments of 4 to 6 tokens
    >>> X = [labels[:, None] + rng.normal(size=(len(labels), 1)) for labels in y]
    >>> crf = SegmentCRF("linear", C=10.0, ends=False, tol=1e-8).fit(X, y)
    >>> live = crf.stream(lag=4)
    >>> answer = live.extend(X[0][:9])
    >>> answer.lagged.labels
    array([1, 1, 0, 0, 0])
    >>> [(s.start, s.label, round(s.probability, 1)) for s in live.open_segments()][:2]
    [(5, 1, 0.7), (4, 1, 0.3)]
    """

    def __init__(
        self, model: SegmentModel, engine: LocalEngine, lag: int, max_delay: int | None, state: UserData = None
    ) -> None:
        self._model, self._engine, self._kinds = model, engine, kinds_of(model.reader)
        w = model.open_steps
        assert w is not None
        state_filter = SegmentFilter(model.spec, w, model.duration_scores, model.tail_scores, lag, max_delay)
        super().__init__(state_filter, state)

    @validated(least=LEAST)
    def open_segments(self, least: float = 0.01) -> list[OpenSegment]:
        """Return the segments to which the newest token may belong, the most probable first.

        least : segments whose probability is smaller are left out.
        """
        if not self.n_tokens:
            return []
        p, types = self._filter.open_segments(), self._model.spec.types
        rows = [(float(p[d, a]), d, a) for d, a in np.argwhere(p >= least).tolist()]
        last = len(p) - 1
        return [
            OpenSegment(None if d == last else self.n_tokens - 1 - d, types[a], q)
            for q, d, a in sorted(rows, key=lambda row: -row[0])
        ]

    def _add(self, tokens: UserData, base_scores: UserData) -> IndexAnswer:
        begins = self.n_tokens == 0
        scores = self._model.open_scores(tokens, self._engine, begins=begins, base_scores=base_scores)
        answer: IndexAnswer = self._filter.push(OpenSegmentScores(*scores))
        return answer

    def _as_sequence(self, token: UserData) -> UserData:
        return one_row_of_each(token, self._kinds)

    def _labels(self, indices: Array) -> Array:
        return self._model.labels.classes[indices]


__all__ = ["OpenSegment", "SegmentStream"]
