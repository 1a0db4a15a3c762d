"""The base class of the states of sequences of which some tokens have arrived."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, ClassVar, NamedTuple

import numpy as np

from ..arrays import Array, Arrays, Flags, Floats
from ..validation import shown

PATHS = ("delta", "back", "root", "counts")


@dataclass
class Paths:
    """The best path into each of K states of the newest token, as far as its labels are undecided.

    delta : (K,), the scores of the paths, relative to the best.
    back : for each undecided token, the state of the token before on the path into each state.
    root : (K,), the label of the first undecided token on each path.
    counts : the first undecided token, the number of tokens, the number of forced decisions, and the label of the last
        token that is decided, or -1.
    allowed : whether a label may follow another, [from, to].
    """

    delta: Floats
    back: Array
    root: Array
    counts: Array
    allowed: Flags

    @classmethod
    def empty(cls, n_states: int, max_delay: int, allowed: Flags) -> Paths:
        """Return the paths before the first token."""
        back = np.zeros((max_delay + 2, n_states), np.int64)
        counts = np.array([0, 0, 0, -1])
        return cls(np.zeros(n_states), back, np.zeros(n_states, np.int64), counts, allowed)

    @property
    def max_delay(self) -> int:
        """Return how many tokens after a token its label is decided at the latest."""
        return len(self.back) - 2

    def arrays(self) -> Arrays:
        """Return copies of the arrays that change."""
        return {name: getattr(self, name).copy() for name in PATHS}


class IndexAnswer(NamedTuple):
    """The answer to new tokens, with labels as indices: filtered and lagged probabilities, and decided labels."""

    newest: Floats
    first_lagged: int
    lagged: Floats
    first_decided: int
    decided: Array


class TokenFilter:
    """Base class of the states of sequences of which some tokens have arrived.

    n_labels, lag : the number of labels, and the number of later tokens that the probabilities of a token wait for.
    paths : the best paths, or None if no labels are decided.
    """

    # The names of the arrays of a state. The array called name is the attribute _name.
    _arrays: ClassVar[tuple[str, ...]]

    def __init__(self, n_labels: int, lag: int, paths: Paths | None) -> None:
        self._n_labels, self._lag, self._paths = n_labels, lag, paths
        self.n_tokens = 0

    @property
    def n_forced(self) -> int:
        """Return the number of forced decisions."""
        return 0 if self._paths is None else int(self._paths.counts[2])

    def _nothing(self) -> IndexAnswer:
        none = np.empty((0, self._n_labels))
        first = 0 if self._paths is None else int(self._paths.counts[0])
        return IndexAnswer(none, max(0, self.n_tokens - self._lag), none, first, np.empty(0, np.int64))

    def _shapes(self, m: int) -> dict[str, tuple[int, ...]]:
        """Return the shapes of arrays whose window has m tokens now."""
        raise NotImplementedError

    def state(self) -> Arrays:
        """Return everything that the answers to later tokens depend on, besides the model, as arrays."""
        sizes = self.n_tokens, self._lag, -1 if self._paths is None else self._paths.max_delay
        arrays = {"sizes": np.array(sizes, np.int64)}
        arrays |= {name: getattr(self, f"_{name}").copy() for name in self._arrays}
        if self._paths is not None:
            arrays |= self._paths.arrays()
        return arrays

    def restore(self, state: Mapping[str, Any]) -> None:
        """Continue from a state that `state` has returned; raise ValueError if it does not fit this stream."""
        known = self.state()
        arrays = {name: np.asarray(state[name]) for name in known if name in state}
        sizes, expected_sizes = arrays.get("sizes"), known["sizes"][1:].tolist()
        if sizes is None or sizes.shape != (3,) or sizes[1:].tolist() != expected_sizes or not sizes[0] >= 0:
            raise ValueError(
                f"state['sizes'] is {shown(None if sizes is None else sizes.tolist())}: expected three integers: the "
                f"number of tokens, and {expected_sizes}, the lag and the max_delay (-1 for None) of this stream. "
                "Make the stream with the parameters of the one that was saved"
            )
        n_tokens = int(sizes[0])
        shapes = self._shapes(min(n_tokens, self._lag + 1))
        for name, expected in known.items():
            shape, found = shapes.get(name, expected.shape), arrays.get(name)
            fits = found is not None and found.shape == shape and found.dtype == expected.dtype
            if found is None or not fits or not (found < np.inf).all():
                what = "missing" if found is None else f"an array of {found.dtype} and shape {found.shape}"
                raise ValueError(
                    f"state[{name!r}] is {what}: expected {expected.dtype} of shape {shape}, without NaN. Pass what "
                    "`state` of a stream of the same model has returned"
                )
        if self._paths is not None:
            counts, back, root = (arrays[name] for name in ("counts", "back", "root"))
            first, n_seen, n_forced, last = counts.tolist()
            in_range = all(((x >= 0) & (x < known["delta"].size)).all() for x in (back, root))
            in_range &= -1 <= last < len(self._paths.allowed) and 0 <= n_seen - first <= len(back) - 1
            if not (in_range and n_seen == n_tokens and n_forced >= 0):
                raise ValueError(
                    f"state['counts'] is {shown(counts.tolist())}, and the largest state of 'back' is {back.max()}: "
                    "expected numbers of this stream. Pass what `state` has returned, unchanged"
                )
            self._paths = replace(self._paths, **{name: arrays[name].copy() for name in PATHS})
        self.n_tokens = n_tokens
        for name in self._arrays:
            setattr(self, f"_{name}", arrays[name].copy())
