"""The interface between a fit and a cluster, whose workers store parts of the data.

A handle refers to a value on a worker. If a function is called with handles, a worker calls it with the values of these
handles. The function must be picklable, must not change its arguments, and must always return the same result for the
same arguments: if a worker is lost, its values are computed again.

Work on a cluster runs inside `with releasing():`. When this block ends, also by an error or an interruption, the
workers delete all values that were created in it. Garbage collection would be too late: an exception keeps its stack
frames alive, and with them their handles, and a Dask client keeps the exception of each failed task whose handle is
alive. Outside of such a block, no handle can be created.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from functools import partial
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


def method(name: str, **options: Value) -> Function:
    """Return a picklable function that calls the named method of its first argument.

    The other arguments, and `options`, are passed to the method. So each part of the data decides by its own class.
    """
    return partial(_call_method, name, options)


def _call_method(name: str, options: dict[str, Value], part: Value, *arguments: Value) -> Value:
    return getattr(part, name)(*arguments, **options)


# Weak references let workers delete values that are no longer needed before the block ends.
_HANDLES: ContextVar[WeakSet[Handle] | None] = ContextVar("handles of the current work", default=None)


@contextmanager
def releasing() -> Iterator[None]:
    """Return a context manager; at the end of its `with` block, the workers delete the values of all new handles.

    The new handles are those that were created inside the block. Their values are also deleted after an error.
    """
    handles: WeakSet[Handle] = WeakSet()
    token = _HANDLES.set(handles)
    try:
        yield
    finally:
        _HANDLES.reset(token)
        for handle in list(handles):
            handle.release()


def register(handles: Iterable[Handle]) -> None:
    """Register handles, so that they are released when the surrounding block `with releasing():` ends.

    At this end, the workers delete the values to which the handles refer. An engine registers each handle that it
    creates. Raise an error outside of such a block.
    """
    block = _HANDLES.get()
    if block is None:
        for handle in handles:
            handle.release()
        raise RuntimeError(
            "a function was called on a cluster outside of a block `with "
            "kernelcrf.distributed.cluster.releasing():`. At the end of this block, the workers delete all results. "
            "Put the calls of the engine inside such a block"
        )
    block.update(handles)


class Cluster(Protocol):
    """Protocol of engines that call functions on the workers of a cluster.

    Results stay on the workers. A method that calls functions returns handles, which refer to these results.
    """

    def each(self, function: Function, *parts: Sequence[Value], shared: tuple[Value, ...] = ()) -> Sequence[Handle]:
        """Call a function once for each part of the data, and return one handle per result.

        For part i, a worker computes function(parts[0][i], parts[1][i], ..., *shared). All arguments may be handles or
        values.
        """

    def call(self, function: Function, *arguments: Value, place: float | None = None) -> Handle:
        """Call a function on a worker and return a handle to the result.

        Arguments may be values, handles, or lists of handles.

        place : a number from 0 to below 1 that says where in the data the result belongs, or None to use any worker.
            Results with similar numbers are computed on the same worker if possible.
        """

    def sum(self, function: Function, *parts: Sequence[Value], shared: tuple[Value, ...] = ()) -> Value:
        """Call a function once for each part of the data, as `each`, and return the sum of all results.

        The order of addition does not depend on the workers.
        """

    def reduce(
        self, function: Function, *parts: Sequence[Value], shared: tuple[Value, ...] = ()
    ) -> tuple[Value, Sequence[Handle]]:
        """Call a function that returns a pair once for each part of the data, as `each`.

        Return the sum of the first values of the pairs, and one handle per second value.
        """

    def bundle(self, handles: Sequence[Handle], n_bytes: int) -> Sequence[Handle]:
        """Return handles to the same values, which a worker may from now on store and process together.

        handles : one handle per part of the data.
        n_bytes : the size of all values, and of the features that are computed from them.
        """

    def load(self, sources: Sequence[Value]) -> list[Handle]:
        """Load each source of data on a worker, and return one handle per source.

        A source is a function without arguments, or a lazy value that the engine can compute, such as one made by
        dask.delayed.
        """

    def parts_of(self, n_bytes: int, most: int) -> int:
        """Return the number of parts, at most `most`, into which data of `n_bytes` bytes should be divided."""

    def fits(self, n_bytes: int) -> bool:
        """Return whether values of `n_bytes` bytes in total fit into the memory of the workers."""

    def fetch(self, handles: Sequence[Handle]) -> list[Value]:
        """Fetch the values of the handles from the workers, and return them as a list."""

    def status(self) -> str:
        """Return a short description of the workers for progress messages, such as "3 workers"."""


METHODS = ("each", "call", "sum", "reduce", "bundle", "load", "parts_of", "fits", "fetch", "status")
ENGINE = either(nothing, has_methods(*METHODS, text="a kernelcrf.distributed.DaskEngine"))
