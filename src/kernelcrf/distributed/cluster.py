"""The protocol of a cluster whose workers hold the data: maps and ordered sums over parts.

A handle names a value that a worker holds. A function is called where its handles are, on the values that they name. It
must be picklable, must not change its arguments, and must return the same result when it is called again: this is how
values that were lost with a worker are computed anew.

Work on a cluster runs inside `releasing`. When the block ends, even by an error or an interruption, the workers drop
everything that was made in it. Garbage collection would be too late: an error keeps the frames that it passed through,
and so their handles, as long as somebody keeps the error.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from operator import itemgetter
from typing import Any, Protocol, TypeAlias
from weakref import WeakSet

from kernelcrf.validation import either, has_methods, nothing

Handle: TypeAlias = Any
Value: TypeAlias = Any
"""Anything that can be sent to a worker."""
Function: TypeAlias = Callable[..., Value]

first: Function = itemgetter(0)
second: Function = itemgetter(1)

# Weak references let workers drop values that nobody needs any more while the work still goes on.
_HANDLES: ContextVar[WeakSet[Handle] | None] = ContextVar("handles of the current work", default=None)


@contextmanager
def releasing() -> Iterator[None]:
    """Release all handles that are made inside the block, however it ends."""
    handles: WeakSet[Handle] = WeakSet()
    token = _HANDLES.set(handles)
    try:
        yield
    finally:
        _HANDLES.reset(token)
        for handle in list(handles):
            handle.release()


def register(handles: Iterable[Handle]) -> None:
    """Let the enclosing `releasing` block release these handles by their method `release`; engines call this."""
    own = _HANDLES.get()
    if own is not None:
        own.update(handles)


class Cluster(Protocol):
    """Workers that hold parts of the data."""

    def each(self, function: Function, *parts: Sequence[Value], shared: tuple[Value, ...] = ()) -> list[Handle]:
        """Return handles of `function(*own, *shared)` for the entries of each part, which may be handles or values."""
        ...

    def call(self, function: Function, *arguments: Value, place: float | None = None) -> Handle:
        """Return a handle of one call, whose arguments may be handles, lists of handles or values.

        place : the position of the result in the data, 0 <= place < 1. Neighbours go to the same worker, and what is
            computed from them stays there.
        """
        ...

    def sum(self, handles: Sequence[Handle]) -> Value:
        """Return the sum of the values that handles name, in their order by a tree of fixed shape."""
        ...

    def load(self, sources: Sequence[Value]) -> list[Handle]:
        """Return handles of the results of calls without arguments, or of values that the engine itself computes."""
        ...

    def parts_of(self, n_bytes: int, most: int) -> int:
        """Return the number of parts, at most `most`, for data that take `n_bytes` of the workers' memory."""
        ...

    def fetch(self, handles: Sequence[Handle]) -> list[Value]:
        """Return the values that handles name."""
        ...

    def status(self) -> str:
        """Return a few words on the workers for a line of progress."""
        ...


METHODS = ("each", "call", "sum", "load", "parts_of", "fetch", "status")
ENGINE = either(nothing, has_methods(*METHODS, text="a kernelcrf.distributed.DaskEngine"))
