"""The stream of a ChainCRF: labels and probabilities while the tokens of one sequence arrive."""

from __future__ import annotations

from kernelcrf.arrays import Array, UserData
from kernelcrf.engines.local import LocalEngine
from kernelcrf.models.chain import ChainModel
from kernelcrf.readers.inputs import InputsReader
from kernelcrf.readers.sequences import SequenceReader
from kernelcrf.streams.chain_filter import ChainFilter
from kernelcrf.streams.compiled_loops import CompiledLoops
from kernelcrf.streams.stream import LabelStream, one_row_of_each
from kernelcrf.streams.token_filter import IndexAnswer


class ChainStream(LabelStream):
    """The labels of one sequence while its tokens arrive, as `ChainCRF.stream` returns it.

    Each token takes the same time, and memory does not grow with the number of tokens. A push that raises an error
    leaves the stream as it was. Only one thread at a time may push to a stream.

    Examples
    --------
    >>> import numpy as np
    >>> from kernelcrf import ChainCRF
    >>> from kernelcrf.datasets import make_sequences
    >>> data, new = make_sequences(60, random_state=0), make_sequences(60, random_state=1)
    >>> crf = ChainCRF(C=10.0, n_components=100, random_state=0).fit(data.X, data.y)
    >>> x = new.X[0]  # 9 tokens
    >>> live = crf.stream(lag=2, max_delay=5)
    >>> answer = live.push(x[0])  # one token
    >>> answer.newest.labels, answer.newest.probabilities.round(2), len(answer.lagged.labels)
    (array([2]), array([[0.  , 0.21, 0.79]]), 0)
    >>> answer = live.extend(x[1:])  # all others
    >>> answer.lagged.start, answer.lagged.labels, answer.decided.labels
    (0, array([2, 2, 1, 1, 1, 1, 1]), array([2, 2, 1, 1, 1, 1, 1, 1]))
    >>> rest = live.finish()
    >>> rest.lagged.start, rest.lagged.labels, rest.decided.labels
    (7, array([1, 1]), array([1]))
    >>> bool(np.allclose(rest.lagged.probabilities, crf.predict_proba([x])[0][7:]))
    True
    """

    def __init__(
        self, model: ChainModel, engine: LocalEngine, lag: int, max_delay: int | None, state: UserData = None
    ) -> None:
        self._model, self._engine, self._kinds = model, engine, kinds_of(model.reader)
        L = len(model.labels.classes)
        allowed = None if model.legal is None else model.legal.steps
        super().__init__(ChainFilter(CompiledLoops(), L, lag, max_delay, model.open_steps, allowed), state)

    def _add(self, tokens: UserData, base_scores: UserData) -> IndexAnswer:
        begins = self.n_tokens == 0
        s, w, end = self._model.open_scores(tokens, self._engine, begins=begins, base_scores=base_scores)
        answer: IndexAnswer = self._filter.push(s, w, end)
        return answer

    def _as_sequence(self, token: UserData) -> UserData:
        return one_row_of_each(token, self._kinds)

    def _labels(self, indices: Array) -> Array:
        return self._model.labels.classes[indices]


def kinds_of(reader: SequenceReader | InputsReader) -> dict[str | None, str]:
    """Return a dict from the entries of sequences to their kinds; the only key is None without entries."""
    if isinstance(reader, SequenceReader):
        return {None: reader.kind}
    return {entry: one.kind for entry, one in reader.entries.items()}


__all__ = ["ChainStream"]
