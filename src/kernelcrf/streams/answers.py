"""The records that a stream returns after each push."""

from __future__ import annotations

from typing import Any, NamedTuple

from ..arrays import Floats


class StreamedLabels(NamedTuple):
    """The labels of neighbouring tokens of a stream.

    start : the index of the first of these tokens in the stream.
    labels : one label per token.
    probabilities : one row per token and one column per label; None for labels of the likeliest path.

    Examples
    --------
    >>> from kernelcrf import ChainCRF
    >>> from kernelcrf.datasets import make_sequences
    >>> from kernelcrf.streams.answers import StreamedLabels
    >>> data = make_sequences(60, random_state=0)
    >>> live = ChainCRF(C=10.0, n_components=100, random_state=0).fit(data.X, data.y).stream()
    >>> newest = live.push(data.X[0][0]).newest
    >>> isinstance(newest, StreamedLabels), newest.start, newest.labels, newest.probabilities.shape
    (True, 0, array([2]), (1, 3))
    """

    start: int
    labels: Any
    probabilities: Floats | None


class StreamAnswer(NamedTuple):
    """The answer of a stream after a push.

    newest : the tokens that were pushed; the probabilities of token t are p(y_t | x_1..x_t).
    lagged : the tokens whose probabilities are final now, p(y_t | x_1..x_{t + lag}).
    decided : the tokens whose labels on the likeliest path are decided now; none if the stream has no `max_delay`.

    Examples
    --------
    >>> from kernelcrf import ChainCRF
    >>> from kernelcrf.datasets import make_sequences
    >>> from kernelcrf.streams.answers import StreamAnswer
    >>> data = make_sequences(60, random_state=0)
    >>> live = ChainCRF(C=10.0, n_components=100, random_state=0).fit(data.X, data.y).stream(lag=2)
    >>> answer = live.extend(data.X[0][:5])
    >>> isinstance(answer, StreamAnswer), len(answer.newest.labels), len(answer.lagged.labels)
    (True, 5, 3)
    """

    newest: StreamedLabels
    lagged: StreamedLabels
    decided: StreamedLabels


__all__ = ["StreamAnswer", "StreamedLabels"]
