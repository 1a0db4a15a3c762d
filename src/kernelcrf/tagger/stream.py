"""The stream of a tagger: labels and probabilities while the tokens of one sequence arrive."""

from __future__ import annotations

from typing import Any

from ..arrays import Array, UserData
from ..streams.chain_filter import ChainFilter
from ..streams.stream import LabelStream, one_row_of_each
from ..streams.token_filter import IndexAnswer
from .model import StoredModel
from .rows import DenseReader, SparseReader
from .stream_loops import NumpyLoops


class TaggerStream(LabelStream):
    """The labels of one sequence while its tokens arrive, as `Tagger.stream` returns it.

    It has the methods of `kernelcrf.ChainCRF.stream`, and its labels are lists. The state of a stream of the library
    can be continued by one of the tagger, and the other way round.
    """

    def __init__(self, model: StoredModel, lag: int, max_delay: int | None, state: UserData) -> None:
        self._model = model
        self._kinds = {entry: _kind_of(reader) for entry, reader in model.readers.items()}
        w = None if model.by_token else model.w
        allowed = None if model.legal is None else model.legal.steps
        super().__init__(ChainFilter(NumpyLoops(), len(model.classes), lag, max_delay, w, allowed), state)

    def _add(self, tokens: UserData, base_scores: UserData) -> IndexAnswer:
        if base_scores is not None:
            raise ValueError("base_scores cannot be combined with kernelcrf-tagger: pass base_scores=None")
        s, w, end = self._model.open_scores(tokens, begins=self.n_tokens == 0)
        answer: IndexAnswer = self._filter.push(s, w if self._model.by_token else None, end)
        return answer

    def _as_sequence(self, token: UserData) -> UserData:
        return one_row_of_each(token, self._kinds)

    def _labels(self, indices: Array) -> list[Any]:
        return [self._model.classes[index] for index in indices.tolist()]


def _kind_of(reader: Any) -> str:
    """Return the kind of the sequences that a reader reads."""
    if isinstance(reader, DenseReader):
        return "dense"
    return "sparse" if isinstance(reader, SparseReader) else "dicts"
