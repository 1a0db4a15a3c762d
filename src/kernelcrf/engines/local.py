"""Threads of this process: an ordered map.

Results come back in the order of the items, so that a sum taken over them does not depend on the number of
threads. While a map runs, BLAS keeps to one thread: the parallelism is over items, and a product gives the
same bits whatever `n_jobs` is. The limit belongs to the process: the first map that begins sets it, and the last of
those that run at the same time lifts it.

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
from operator import add
from typing import Any, TypeVar
from weakref import WeakSet, ref

import scipy.linalg  # noqa: F401  -- loads SciPy's BLAS, so that the controller below sees it
from threadpoolctl import OpenBLASController, ThreadpoolController

from kernelcrf.validation import N_JOBS

Item = TypeVar("Item")
Result = TypeVar("Result")
Kept = TypeVar("Kept")
Total = TypeVar("Total")

MOST_RUNS = 64
PATIENCE = 1.0


@cache
def _blas() -> ThreadpoolController:
    return ThreadpoolController().select(user_api="blas")


def _let_others_set_limits() -> None:
    """Let any thread lift a limit that another one set: threadpoolctl 3.8 remembers which thread set it."""
    clear = getattr(OpenBLASController, "clear_controlling_thread", None)
    if clear is not None:
        clear()


class _Holder:
    """A token that a running call holds; it disappears with the call, even if that is interrupted in its last lines."""


class _OneThread:
    """The limit of BLAS to one thread while any call holds it. An interruption may come at any line."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._holders = WeakSet[_Holder]()
        self._limit: Any = None

    def change(self, holder: _Holder, *, holds: bool) -> None:
        """Set the limit for a call that holds it from now on, or lift it if no other call does."""
        lock = self._lock
        if not lock.acquire(timeout=PATIENCE):
            # An interruption came between the change and the release, so that the lock has no owner.
            self._lock = lock = threading.Lock()
            lock.acquire()
        try:
            if holds:
                self._holders.add(holder)
                if self._limit is None:
                    self._limit = _blas().limit(limits=1)
                    _let_others_set_limits()
            else:
                self._holders.discard(holder)
                if not self._holders and self._limit is not None:
                    self._limit.restore_original_limits()
                    self._limit = None
                    _let_others_set_limits()
        finally:
            lock.release()


_one_thread = _OneThread()


@contextmanager
def single_threaded_blas() -> Iterator[None]:
    """Limit BLAS to one thread: for maps, and for vectors too short to share between threads."""
    if _thread.single() is not None:
        yield
        return
    limit, holder = _one_thread, _Holder()
    try:
        try:
            _thread.single = ref(holder)
            limit.change(holder, holds=True)
            yield
        finally:
            _thread.single = _NOBODY
            limit.change(holder, holds=False)
    finally:
        # Done again in case an interruption came in the lines above.
        _thread.single = _NOBODY
        limit.change(holder, holds=False)


@cache
def _pool(n_threads: int) -> ThreadPoolExecutor:
    return ThreadPoolExecutor(n_threads, thread_name_prefix="kernelcrf")


def _begin_anew() -> None:
    """Forget pools and limits in a forked child, which has none of its parent's threads."""
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
    """Map over items in `n_jobs` threads; -1 uses one per core that this process may use, None is 1."""

    n_jobs: int = 1

    def __post_init__(self) -> None:
        N_JOBS.check("n_jobs", self.n_jobs)
        object.__setattr__(self, "n_jobs", 1 if self.n_jobs is None else int(self.n_jobs))

    @property
    def n_threads(self) -> int:
        """Return the number of threads that a map runs in."""
        return _available_cores() if self.n_jobs == -1 else self.n_jobs

    def map(
        self,
        function: Callable[[Item], Result],
        items: Sequence[Item],
        costs: Sequence[float] | None = None,
    ) -> list[Result]:
        """Return `[function(item) for item in items]`; the items of the greatest cost start first."""
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

            # NumPy's handling of overflow belongs to the context of a thread.
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
        """Return the sum of the first results and a list of the second, both in the order of the items.

        Sums are taken within runs of neighbours, then over the runs, which depend on the number of items alone.
        """
        if not items:
            raise ValueError("items is empty: expected at least one item to sum")

        def run(indices: range) -> tuple[Total, list[Kept]]:
            total, first = function(items[indices[0]])
            kept = [first]
            for k in indices[1:]:
                term, other = function(items[k])
                total = add(total, term)
                kept.append(other)
            return total, kept

        length = -(-len(items) // MOST_RUNS)
        runs = [range(low, min(low + length, len(items))) for low in range(0, len(items), length)]
        weights = None if costs is None else [sum(costs[k] for k in indices) for indices in runs]
        results = self.map(run, runs, weights)
        total = results[0][0]
        for term, _ in results[1:]:
            total = add(total, term)
        return total, [item for _, kept in results for item in kept]
