"""The protocol of a cluster whose workers hold the data: calls for each part, and sums in a fixed order.

A handle refers to a value on a worker. A function with handles as arguments is called on a worker, with the values of
the handles. It must be picklable, must not change its arguments, and must return the same result when it is called
again, because values that are lost with a worker are computed again.

Work on a cluster runs inside `releasing`. When the block ends, even by an error or an interruption, the workers delete
all values that were created in it. Garbage collection would be too late: an error refers to the frames that it passed
through, and so to their handles, as long as the error exists.
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

# Weak references let workers delete values that are no longer needed before the block ends.
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
    """Let the enclosing `releasing` block call the method `release` of these handles at its end; engines call this."""
    own = _HANDLES.get()
    if own is not None:
        own.update(handles)


class Cluster(Protocol):
    """The methods of an engine whose workers hold parts of the data."""

    def each(self, function: Function, *parts: Sequence[Value], shared: tuple[Value, ...] = ()) -> list[Handle]:
        """Call `function(*entries, *shared)` for the entries (handles or values) of zip(*parts); return handles."""
        ...

    def call(self, function: Function, *arguments: Value, place: float | None = None) -> Handle:
        """Call a function on a worker and return a handle of the result; arguments may be handles or lists of them.

        place : the position of the result in the data, 0 <= place < 1. Neighbours are placed on the same worker.
        """
        ...

    def sum(self, handles: Sequence[Handle]) -> Value:
        """Return the sum of the values of handles, added in an order that does not depend on the workers."""
        ...

    def load(self, sources: Sequence[Value]) -> list[Handle]:
        """Call each source without arguments, or let the engine compute it; return handles of the results."""
        ...

    def parts_of(self, n_bytes: int, most: int) -> int:
        """Return into how many parts, at most `most`, to divide data that take `n_bytes` of memory."""
        ...

    def fetch(self, handles: Sequence[Handle]) -> list[Value]:
        """Return the values of handles."""
        ...

    def status(self) -> str:
        """Return a short description of the workers for progress messages."""
        ...


METHODS = ("each", "call", "sum", "load", "parts_of", "fetch", "status")
ENGINE = either(nothing, has_methods(*METHODS, text="a kernelcrf.distributed.DaskEngine"))
