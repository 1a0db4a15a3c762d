"""Apply a function to items in threads of this process.

Results have the order of the items, so that their sum does not depend on the number of threads. While `LocalEngine.map`
runs, BLAS is limited to one thread. Items are processed in parallel instead, and a matrix product gives the same bits
for any `n_jobs`. The limit applies to the whole process. If several calls of `map` run at the same time, the first one
sets the limit, and the last one removes it.

Threads are reused from one call of `map` to the next, and the calling thread works too. If `map` is called inside
another `map`, the inner call uses only the thread that it is called from.
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
    """Allow every thread to change the BLAS limit; by default, threadpoolctl 3.8 allows only the thread that set it."""
    clear = getattr(OpenBLASController, "clear_controlling_thread", None)
    if clear is not None:
        clear()


class _Holder:
    """Mark a running call that needs the BLAS limit.

    Only the call itself refers to this object. The object is therefore deleted when the call ends, even if Ctrl-C
    interrupts the call.
    """


class _OneThread:
    """Limit BLAS to one thread while at least one call needs the limit.

    This object stays usable if Ctrl-C interrupts it at any line.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._holders = WeakSet[_Holder]()
        self._limit: Any = None

    def change(self, holder: _Holder, *, holds: bool) -> None:
        """Record whether the call that `holder` marks needs the limit from now on.

        The limit is set for the first call that needs it, and removed when no call needs it any more.
        """
        lock = self._lock
        if not lock.acquire(timeout=PATIENCE):
            # An interruption came before the lock was released, and its owner is gone.
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
    """Limit BLAS to one thread in a `with` block.

    Use it for parallel work, or for vectors that are too short to gain from several threads.
    """
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
        # Repeated, in case an interruption came during the lines above.
        _thread.single = _NOBODY
        limit.change(holder, holds=False)


@cache
def _pool(n_threads: int) -> ThreadPoolExecutor:
    return ThreadPoolExecutor(n_threads, thread_name_prefix="kernelcrf")


def _reset_after_fork() -> None:
    """Discard thread pools and limits in a forked process, because the parent's threads do not exist there."""
    global _one_thread
    _pool.cache_clear()
    _one_thread = _OneThread()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_reset_after_fork)


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
    """Apply functions to items in `n_jobs` threads; -1 means one thread per available core, None means one thread."""

    n_jobs: int = 1

    def __post_init__(self) -> None:
        if type(self.n_jobs) is int and self.n_jobs >= 1:
            # Every prediction makes an engine, and a check would take as long as a tenth of the arithmetic.
            return
        N_JOBS.check("n_jobs", self.n_jobs)
        object.__setattr__(self, "n_jobs", 1 if self.n_jobs is None else int(self.n_jobs))

    @property
    def n_threads(self) -> int:
        """Return the largest number of threads that `map` uses."""
        return _available_cores() if self.n_jobs == -1 else self.n_jobs

    def map(
        self, function: Callable[[Item], Result], items: Sequence[Item], costs: Sequence[float] | None = None
    ) -> list[Result]:
        """Return `[function(item) for item in items]`, computed in threads; items with large costs start first."""
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

            # Each thread gets a copy of the context, which holds NumPy's settings for overflow.
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
        """Call `function`, which returns a pair, for all items.

        Return the sum of the first parts of the pairs, and a list of their second parts.

        Consecutive items are summed in groups, then the sums of the groups are added. The groups depend only on the
        number of items, so that the sum does not depend on the number of threads.
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
