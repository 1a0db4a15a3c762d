"""What the mathematics may ask of an engine whose workers hold the data: maps and ordered sums over resident parts.

A handle names something that a worker holds. Functions are called where their handles are, on what these name; they
must be importable or picklable, must leave their arguments as they are, and must give the same again when they are
called again, for that is how what a lost worker held is made anew.

Work on a cluster runs inside `releasing`: when it ends, by an error or an interruption too, the workers drop what was
made for it. Garbage collection would come too late for that: an error holds the frames that it passed through, and so
their handles, for as long as somebody holds the error.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, Protocol, TypeAlias
from weakref import WeakSet

Handle: TypeAlias = Any

# Weak, so that workers can drop what nobody needs any more while the work still goes on.
_HANDLES: ContextVar[WeakSet[Any] | None] = ContextVar("handles of the work that is going on", default=None)


@contextmanager
def releasing() -> Iterator[None]:
    """Release all handles that are made inside, however the block ends; also usable as a decorator."""
    handles: WeakSet[Any] = WeakSet()
    token = _HANDLES.set(handles)
    try:
        yield
    finally:
        _HANDLES.reset(token)
        for handle in list(handles):
            handle.release()


def register(handles: Iterable[Handle]) -> None:
    """Have `releasing` release these handles, which must have a method `release`; engines call it."""
    own = _HANDLES.get()
    if own is not None:
        own.update(handles)


class Cluster(Protocol):
    """Workers that hold parts of the data."""

    def each(self, function: Callable[..., Any], *parts: Sequence[Any], shared: tuple[Any, ...] = ()) -> list[Handle]:
        """Handles of `function(*own, *shared)` for the own entries of each part; entries may be handles or values."""
        ...

    def call(self, function: Callable[..., Any], *arguments: Any, place: float | None = None) -> Handle:
        """A handle of one call, whose arguments may be handles, lists of handles or values.

        place : how far through the data the result belongs, 0 <= place < 1: neighbours go to the same worker. What is
            made of it afterwards stays there.
        """
        ...

    def sum(self, handles: Sequence[Handle]) -> Any:
        """The sum of what handles name, in their order by a tree of fixed shape."""
        ...

    def load(self, sources: Sequence[Any]) -> list[Handle]:
        """Handles of what calls without arguments return, or values that the engine can compute itself."""
        ...

    def parts_of(self, n_bytes: int, most: int) -> int:
        """Into how many parts to cut data of which `n_bytes` will be resident; at most `most`."""
        ...

    def fetch(self, handles: Sequence[Handle]) -> list[Any]:
        """What handles name."""
        ...

    def status(self) -> str:
        """A few words on the workers, for a line of progress."""
        ...


class Resident:
    """A dataclass that workers hold: its size is that of its fields, so that an engine knows what memory it takes."""


def first(pair: tuple[Any, Any]) -> Any:
    """The first of two."""
    return pair[0]


def second(pair: tuple[Any, Any]) -> Any:
    """The second of two."""
    return pair[1]
