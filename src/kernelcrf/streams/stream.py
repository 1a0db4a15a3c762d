"""The base class of streams, which take the tokens of one sequence as they arrive."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from ..arrays import Array, Arrays, Floats, UserData
from ..validation import shown
from .answers import StreamAnswer, StreamedLabels
from .token_filter import IndexAnswer


class LabelStream:
    """Base class of streams, which answer while the tokens of one sequence arrive.

    state_filter : the object that computes the answers, such as a `ChainFilter`.
    state : the state of an earlier stream, which this one continues; None begins a sequence.
    """

    def __init__(self, state_filter: Any, state: UserData) -> None:
        self._filter, self._is_finished = state_filter, False
        if state is not None:
            if not isinstance(state, Mapping):
                raise TypeError(f"state={shown(state)}: expected a dict of arrays, as the method `state` returns it")
            self._filter.restore(state)

    def __repr__(self) -> str:
        return f"{type(self).__name__}(n_tokens={self.n_tokens})"

    @property
    def n_tokens(self) -> int:
        """Return the number of tokens so far."""
        return int(self._filter.n_tokens)

    @property
    def n_forced(self) -> int:
        """Return how many labels of the likeliest path had to be decided because `max_delay` tokens had passed.

        If it is 0, the decided labels are those of the likeliest labelling of the whole sequence.
        """
        return int(self._filter.n_forced)

    def push(self, token: UserData, *, base_scores: UserData = None) -> StreamAnswer:
        """Add one token, and return what is known now.

        token : a row of numbers, a sparse matrix with one row, a feature dict or a list of feature names; or, if
            sequences are dicts, a dict with the token of each entry.
        base_scores : the base scores of the token, if the model was fitted with base scores: one per label, or a dict
            with the entries "tokens" and "steps".
        """
        base = base_scores
        if base is not None:
            base = {name: [one] for name, one in base.items()} if isinstance(base, Mapping) else [base]
        return self.extend(self._as_sequence(token), base_scores=base)

    def extend(self, tokens: UserData, *, base_scores: UserData = None) -> StreamAnswer:
        """Add several tokens, as one entry of the list X of `predict`, and return what is known now.

        base_scores : the base scores of the tokens, with one row per token.
        """
        if self._is_finished:
            raise ValueError("the stream has been finished: expected no further tokens. Make a new stream")
        answer = self._add(tokens, base_scores)
        return self._name(answer)

    def finish(self) -> StreamAnswer:
        """End the sequence, and return the remaining answers, which are those of the model for the whole sequence.

        `newest` has the last token again, now with the scores and constraints of last labels.
        """
        if self._is_finished:
            raise ValueError("the stream has been finished already: expected one call of finish. Make a new stream")
        answer = self._filter.finish()
        self._is_finished = True
        return self._name(answer)

    def state(self) -> Arrays:
        """Return the state of the stream as a dict of arrays, which `numpy.savez` or safetensors can store.

        Pass it as `state` to continue with the same model and the same parameters.
        """
        if self._is_finished:
            raise ValueError("the stream has been finished: expected a stream that goes on. Make a new stream")
        state: Arrays = self._filter.state()
        return state

    def _add(self, tokens: UserData, base_scores: UserData) -> IndexAnswer:
        """Read tokens, add them, and return the answer."""
        raise NotImplementedError

    def _as_sequence(self, token: UserData) -> UserData:
        """Return a sequence that consists of one token."""
        raise NotImplementedError

    def _labels(self, indices: Array) -> Any:
        """Return the labels with these indices."""
        raise NotImplementedError

    def _name(self, answer: IndexAnswer) -> StreamAnswer:
        def likeliest(start: int, p: Floats) -> StreamedLabels:
            return StreamedLabels(start, self._labels(p.argmax(axis=1)), p)

        newest = likeliest(self.n_tokens - len(answer.newest), answer.newest)
        lagged = newest if answer.lagged is answer.newest else likeliest(answer.first_lagged, answer.lagged)
        return StreamAnswer(newest, lagged, StreamedLabels(answer.first_decided, self._labels(answer.decided), None))


def one_row(token: UserData, kind: str) -> UserData:
    """Return a sequence with one token, given the kind of the sequences: "dense", "sparse" or "dicts"."""
    if kind == "dicts":
        return [token]
    if hasattr(token, "to_frame"):
        return token.to_frame().T.infer_objects()
    if hasattr(token, "tocsr"):
        rows = token.reshape(1, -1) if token.ndim == 1 else token
    else:
        row = np.asarray(token)
        rows = row[None] if row.ndim == 1 else row
    if rows.ndim != 2 or rows.shape[0] != 1:
        raise ValueError(
            f"the token has shape {rows.shape}: expected the numbers of one token. Use extend for several tokens"
        )
    return rows


def one_row_of_each(token: UserData, kinds: Mapping[str | None, str]) -> UserData:
    """Return a sequence with one token, given the kind of each entry; the only key is None without entries."""
    if None in kinds:
        return one_row(token, kinds[None])
    if not isinstance(token, Mapping):
        raise TypeError(
            f"the token {shown(token)} is of type {type(token).__name__}: expected a dict with the token of each entry "
            "that the inputs read"
        )
    return {name: one_row(part, kinds[name]) if name in kinds else part for name, part in token.items()}
