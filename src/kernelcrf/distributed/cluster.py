"""The methods that an engine needs to compute on a cluster, whose workers store parts of the data.

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
    """Release all handles that are created inside the `with` block when the block ends, also if it ends by an error."""
    handles: WeakSet[Handle] = WeakSet()
    token = _HANDLES.set(handles)
    try:
        yield
    finally:
        _HANDLES.reset(token)
        for handle in list(handles):
            handle.release()


def register(handles: Iterable[Handle]) -> None:
    """Let the surrounding `with releasing():` block release these handles at its end.

    An engine calls this function for each handle that it creates.
    """
    own = _HANDLES.get()
    if own is not None:
        own.update(handles)


class Cluster(Protocol):
    """The methods of an engine whose workers store parts of the data."""

    def each(self, function: Function, *parts: Sequence[Value], shared: tuple[Value, ...] = ()) -> list[Handle]:
        """Call `function(*entries, *shared)` for each `entries` in zip(*parts), and return the handles of the results.

        Entries and shared arguments may be handles or values.
        """

    def call(self, function: Function, *arguments: Value, place: float | None = None) -> Handle:
        """Call a function on a worker and return a handle of the result.

        Arguments may be values, handles, or lists of handles.

        place : the position of the result in the data, 0 <= place < 1; results at close positions share a worker.
        """

    def sum(self, handles: Sequence[Handle]) -> Value:
        """Return the sum of the values of handles, added in an order that does not depend on the workers."""

    def load(self, sources: Sequence[Value]) -> list[Handle]:
        """Load each source of data on a worker, and return one handle per source.

        A source is a function without arguments, or a lazy value that the engine can compute, such as one made by
        dask.delayed.
        """

    def parts_of(self, n_bytes: int, most: int) -> int:
        """Return the number of parts into which to divide data of `n_bytes` bytes; it is at most `most`."""

    def fetch(self, handles: Sequence[Handle]) -> list[Value]:
        """Fetch the values of the handles from the workers."""

    def status(self) -> str:
        """Return a short description of the workers for progress messages, such as "3 workers"."""


METHODS = ("each", "call", "sum", "load", "parts_of", "fetch", "status")
ENGINE = either(nothing, has_methods(*METHODS, text="a kernelcrf.distributed.DaskEngine"))
