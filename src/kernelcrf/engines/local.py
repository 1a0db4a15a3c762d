"""Threads of this process: an ordered map.

Results come back in the order of the items, so that a sum taken over them does not depend on the number of
threads. While a map runs, BLAS keeps to one thread: the parallelism is over items, and a product gives the
same bits whatever `n_jobs` is. The limit is one of the process: the first map that begins sets it, and the last of
those that run at the same time takes it back.

The threads of a pool are kept between maps; the caller's own thread works too. A map inside a map runs in the
thread it is called from.
"""

from __future__ import annotations

import os
import threading
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import contextmanager
from contextvars import copy_context
from dataclasses import dataclass
from functools import cache
from typing import Any, Protocol, TypeVar
from weakref import WeakSet, ref

import scipy.linalg  # noqa: F401  -- loads SciPy's BLAS, so that the controller below sees it
from threadpoolctl import OpenBLASController, ThreadpoolController

from kernelcrf.validation import N_JOBS

Item = TypeVar("Item")
Result = TypeVar("Result")
Kept = TypeVar("Kept")
Total = TypeVar("Total", bound="Addable")

MOST_RUNS = 64
PATIENCE = 1.0


class Addable(Protocol):
    """What can be summed."""

    def __add__(self, other: Any, /) -> Any:
        """The sum."""
        ...


@cache
def _blas() -> ThreadpoolController:
    return ThreadpoolController().select(user_api="blas")


def _let_others_set_limits() -> None:
    """The thread that sets a limit may be another one than that which takes it back: threadpoolctl 3.8 knows owners."""
    clear = getattr(OpenBLASController, "clear_controlling_thread", None)
    if clear is not None:
        clear()


class _Holder:
    """What a running call holds of a state. It goes with the call, even where that is interrupted in its last lines."""


class _OneThread:
    """The limit of BLAS to one thread, while anybody holds it. An interruption may come at any line."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._holders = WeakSet[_Holder]()
        self._limit: Any = None

    def take(self, holder: _Holder) -> None:
        """Set the limit where nobody has."""
        self._alone(self._take, holder)

    def leave(self, holder: _Holder) -> None:
        """Take the limit back where nobody else holds it."""
        self._alone(self._leave, holder)

    def _take(self, holder: _Holder) -> None:
        self._holders.add(holder)
        if self._limit is None:
            self._limit = _blas().limit(limits=1)
            _let_others_set_limits()

    def _leave(self, holder: _Holder) -> None:
        self._holders.discard(holder)
        if not self._holders and self._limit is not None:
            self._limit.restore_original_limits()
            self._limit = None
            _let_others_set_limits()

    def _alone(self, change: Callable[[_Holder], None], holder: _Holder) -> None:
        lock = self._lock
        if not lock.acquire(timeout=PATIENCE):
            # An interruption came between the change and the release: whoever had the lock is gone.
            self._lock = lock = threading.Lock()
            lock.acquire()
        try:
            change(holder)
        finally:
            lock.release()


_one_thread = _OneThread()


@contextmanager
def single_threaded_blas() -> Iterator[None]:
    """BLAS keeps to one thread inside: for maps, and for vectors too short to share between threads."""
    if _thread.single() is not None:
        yield
        return
    limit, holder = _one_thread, _Holder()
    try:
        try:
            _thread.single = ref(holder)
            limit.take(holder)
            yield
        finally:
            _thread.single = _NOBODY
            limit.leave(holder)
    finally:
        # Once more: an interruption may have come in the lines above.
        _thread.single = _NOBODY
        limit.leave(holder)


@cache
def _pool(n_threads: int) -> ThreadPoolExecutor:
    return ThreadPoolExecutor(n_threads, thread_name_prefix="kernelcrf")


def _begin_anew() -> None:
    """A forked child has none of the threads that its parent's pools and limits speak of."""
    global _one_thread
    _pool.cache_clear()
    _one_thread = _OneThread()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_begin_anew)


_NOBODY = ref(_Holder())


class _Thread(threading.local):
    in_map = _NOBODY
    single = _NOBODY


_thread = _Thread()


def _available_cores() -> int:
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


@dataclass(frozen=True)
class LocalEngine:
    """Maps over items in `n_jobs` threads; -1 takes one for each core that this process may use, None is 1."""

    n_jobs: int = 1

    def __post_init__(self) -> None:
        given: Any = self.n_jobs
        N_JOBS.check("n_jobs", given)
        object.__setattr__(self, "n_jobs", 1 if given is None else int(given))

    @property
    def n_threads(self) -> int:
        """The number of threads that a map runs in."""
        return _available_cores() if self.n_jobs == -1 else self.n_jobs

    def map(
        self,
        function: Callable[[Item], Result],
        items: Sequence[Item],
        costs: Sequence[float] | None = None,
    ) -> list[Result]:
        """`[function(item) for item in items]`; the items of the greatest cost start first."""
        n_threads = 1 if _thread.in_map() is not None else min(self.n_threads, len(items))
        with single_threaded_blas():
            if n_threads <= 1:
                return [function(item) for item in items]
            order = range(len(items)) if costs is None else sorted(range(len(items)), key=lambda k: -costs[k])
            waiting = deque(order)
            results: dict[int, Result] = {}

            def drain() -> None:
                holder, before = _Holder(), _thread.single
                _thread.in_map = _thread.single = ref(holder)
                try:
                    while waiting:
                        try:
                            k = waiting.popleft()
                        except IndexError:
                            return
                        results[k] = function(items[k])
                except BaseException:
                    waiting.clear()
                    raise
                finally:
                    _thread.in_map, _thread.single = _NOBODY, before

            # How NumPy treats overflow belongs to the context of a thread.
            pool = _pool(self.n_threads - 1)
            helpers = [pool.submit(copy_context().run, drain) for _ in range(n_threads - 1)]
            try:
                drain()
            finally:
                wait(helpers)
            for helper in helpers:
                helper.result()
            return [results[k] for k in range(len(items))]

    def reduce(
        self,
        function: Callable[[Item], tuple[Total, Kept]],
        items: Sequence[Item],
        costs: Sequence[float] | None = None,
    ) -> tuple[Total, list[Kept]]:
        """The sum of the first results and a list of the second, both in the order of the items.

        Sums are taken within runs of neighbours, then over the runs, which depend on the number of items alone.
        """
        if not items:
            raise ValueError("items is empty: expected at least one, there is nothing to sum")

        def run(indices: range) -> tuple[Total, list[Kept]]:
            total, first = function(items[indices[0]])
            kept = [first]
            for k in indices[1:]:
                term, other = function(items[k])
                total = total + term
                kept.append(other)
            return total, kept

        length = -(-len(items) // MOST_RUNS)
        runs = [range(low, min(low + length, len(items))) for low in range(0, len(items), length)]
        weights = None if costs is None else [sum(costs[k] for k in indices) for indices in runs]
        results = self.map(run, runs, weights)
        total = results[0][0]
        for term, _ in results[1:]:
            total = total + term
        return total, [item for _, kept in results for item in kept]
