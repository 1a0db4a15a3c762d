"""Workers of a Dask cluster: parts of the data as futures whose lineage goes back to their source.

Every call is a task. Its arguments, those of a broadcast too, are part of its description, which the scheduler keeps:
a part that was lost with its worker is computed anew by Dask itself, from whatever it was made of. What is left to
this module is to ask again where Dask gave up on a task because too many workers died while they had it.

Sums run up a tree of `fan_in` neighbours, in the order of the parts, so that they do not depend on where parts are nor
on which worker was first. Inside a task BLAS and Numba have one thread: a worker has as many at work as it was given.
"""

from __future__ import annotations

import contextlib
import functools
import operator
import pickle
import warnings
import weakref
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, fields
from types import FunctionType, NoneType
from typing import Any

import numpy as np

from kernelcrf.engines.cluster import Handle, Resident, register
from kernelcrf.engines.local import single_threaded_blas
from kernelcrf.validation import COUNT, check_parameters, either, instance_of, nothing, whole

try:
    import cloudpickle
    import dask
    from dask.sizeof import sizeof
    from distributed import Client, Future, KilledWorker, get_client, wait
    from distributed.client import FutureCancelledError
    from distributed.diagnostics.plugin import SchedulerPlugin
except ModuleNotFoundError as error:
    raise ModuleNotFoundError(
        f"DaskEngine needs {error.name}, which is not installed: pip install 'kernelcrf[dask]'", name=error.name
    ) from None

__all__ = ["DaskEngine"]

SMALL = 2**16
PARTS_A_MEMORY = 32
PATIENCE = 60.0

PARAMETERS = {
    "client": either(instance_of(Client, text="a distributed.Client"), nothing, advice="None is the current client"),
    "n_partitions": either(whole(least=1), nothing, advice="None goes by the workers' threads and memory"),
    "fan_in": either(whole(least=2)),
    "attempts": COUNT,
}


class DaskEngine:
    """An engine for `ChainCRF(engine=...)` on the workers of a Dask cluster.

    Parameters
    ----------
    client : distributed.Client or None
        None takes the client that is current when there is work.
    n_partitions : int or None
        Into how many parts data are cut; None takes one for each thread of the workers, more where a part would take
        more than 1/32 of a worker's memory: a worker has several at hand, as they came and as they are used.
    fan_in : int
        How many neighbours a step of a sum takes.
    attempts : int
        How often a task is asked for whose workers died; also how often a failing read is tried.

    Examples
    --------
    >>> from distributed import Client
    >>> from kernelcrf import ChainCRF
    >>> from kernelcrf.datasets import make_sequences
    >>> from kernelcrf.engines.dask import DaskEngine
    >>> data = make_sequences(20, random_state=0)
    >>> with Client(processes=False, dashboard_address=":0") as client:
    ...     crf = ChainCRF("linear", engine=DaskEngine(client, n_partitions=2)).fit(data.X, data.y)
    >>> crf.certificate_.status
    'optimal'
    """

    def __init__(
        self, client: Client | None = None, *, n_partitions: int | None = None, fan_in: int = 8, attempts: int = 5
    ) -> None:
        given = {"client": client, "n_partitions": n_partitions, "fan_in": fan_in, "attempts": attempts}
        check_parameters(given, PARAMETERS)
        self._client, self.n_partitions, self.fan_in, self.attempts = client, n_partitions, fan_in, attempts
        self._live: weakref.WeakSet[Future] = weakref.WeakSet()
        self._spent: list[Handle] = []
        self._lenient: weakref.WeakSet[Client] = weakref.WeakSet()

    def __repr__(self) -> str:
        scheduler = None if self._client is None else self._client.scheduler
        return f"DaskEngine({'' if scheduler is None else scheduler.address})"

    def __deepcopy__(self, memo: dict[int, Any]) -> DaskEngine:
        """The same engine: a connection has no copies. scikit-learn's clone copies what parameters hold."""
        return self

    def __reduce__(self) -> tuple[Any, ...]:
        """Elsewhere, the client that is current there."""
        return _remade, (self.n_partitions, self.fan_in, self.attempts)

    @property
    def client(self) -> Client:
        """The client given, or the current one."""
        return get_client() if self._client is None else self._client

    @property
    def n_threads(self) -> int:
        """Threads of all workers."""
        return sum(self.client.nthreads().values())

    @property
    def memory(self) -> int | None:
        """The least memory limit of a worker in bytes, None where there is none."""
        workers = self.client.scheduler_info(n_workers=-1)["workers"].values()
        return min((worker["memory_limit"] for worker in workers if worker["memory_limit"]), default=None)

    def parts_of(self, n_bytes: int, most: int) -> int:
        """Into how many parts to cut data of which `n_bytes` will be resident; at most `most`."""
        if self.n_partitions is not None:
            return min(self.n_partitions, most)
        limit = self.memory
        by_memory = 1 if limit is None else -(-PARTS_A_MEMORY * n_bytes // limit)
        return max(1, min(most, max(self.n_threads, by_memory)))

    def load(self, sources: Sequence[Any]) -> list[Handle]:
        """Handles of what calls without arguments return, or Dask's delayed values; each is tried `attempts` times."""
        delayed = [source for source in sources if dask.is_dask_collection(source)]
        computed = iter(self._kept(self.client.compute(delayed, retries=self.attempts, sync=False)) if delayed else [])
        workers = self._workers()
        return [
            next(computed)
            if dask.is_dask_collection(source)
            else self._submit(_called, source, retries=self.attempts, **_preferring(workers, k / len(sources)))
            for k, source in enumerate(sources)
        ]

    def each(self, function: Callable[..., Any], *parts: Sequence[Any], shared: tuple[Any, ...] = ()) -> list[Handle]:
        """Handles of `function(*own, *shared)` for the own entries of each part."""
        everywhere = [self._broadcast(value) for value in shared]
        return self._map(function, *parts, *([value] * len(parts[0]) for value in everywhere))

    def call(self, function: Callable[..., Any], *arguments: Any, place: float | None = None) -> Handle:
        """A handle of one call; by its place, on one of the workers that are there now, unless that one is lost."""
        return self._submit(function, *arguments, **({} if place is None else _preferring(self._workers(), place)))

    def sum(self, handles: Sequence[Handle]) -> Any:
        """The sum of what handles name, in their order by a tree of fixed shape."""
        level = list(handles)
        if not level:
            raise ValueError("handles is empty: expected at least one, there is nothing to sum")
        # The last two come here at once: a task for their sum would cost a message more than it saves.
        while len(level) > 2:
            level = [self._submit(_added, level[low : low + self.fan_in]) for low in range(0, len(level), self.fan_in)]
        total = _added(self.fetch(level))
        self._spent = [*handles, *level]
        return total

    def fetch(self, handles: Sequence[Handle]) -> list[Any]:
        """What handles name."""
        for attempt in range(self.attempts):
            try:
                self._wait(handles)
                return list(self.client.gather(list(handles)))
            except (KilledWorker, FutureCancelledError):
                if attempt + 1 == self.attempts:
                    raise
                self._retry()
        raise AssertionError("unreachable")

    def status(self) -> str:
        """How many workers there are."""
        count = len(self.client.nthreads())
        return f"{count} worker{'' if count == 1 else 's'}"

    def _workers(self) -> list[str]:
        """Those that tasks may prefer: what they hold is made elsewhere when they are gone."""
        client = self.client
        if client not in self._lenient:
            client.register_plugin(_Elsewhere())
            self._lenient.add(client)
        return sorted(client.nthreads())

    def _wait(self, handles: Sequence[Handle]) -> None:
        """Until all are there or have failed; workers that have no memory left to go on with are named."""
        while True:
            try:
                # wait() asks the client that is current, which need not be the one given.
                with self.client.as_current():
                    wait(list(handles), timeout=PATIENCE)
                return
            except TimeoutError:
                workers = self.client.scheduler_info(n_workers=-1)["workers"].values()
                if workers and all(worker["status"] == "paused" for worker in workers):
                    limits = ", ".join(f"{worker['memory_limit'] / 2**20:.0f} MiB" for worker in workers)
                    warnings.warn(
                        f"all workers are paused, for they are near their memory limits ({limits}): give them more "
                        "memory, or smaller parts by n_partitions of DaskEngine",
                        RuntimeWarning,
                        stacklevel=2,
                    )

    def _retry(self) -> None:
        """As Client.retry, which stumbles over tasks that nobody holds and that are there because others need them."""
        client = self.client
        # The scheduler has forgotten what was released, even if an error still holds its future.
        failed = [future.key for future in self._live if future.status == "error" and future.key in client.futures]

        async def again() -> None:
            for key in await client.scheduler.retry(keys=failed, client=client.id):
                if key in client.futures:
                    client.futures[key].retry()

        client.sync(again)

    def _map(self, function: Callable[..., Any], *columns: Sequence[Any]) -> list[Handle]:
        """A task for each row, all of them in one message to the scheduler."""
        sealed = _Seals()
        packed = [[sealed(value) for value in column] for column in columns]
        with _large_arguments():
            futures = self.client.map(functools.partial(_alone, sealed(function)), *packed, pure=False)
        # A client waits 10 ms between two messages: what was summed is let go after the next pass was sent, not before.
        self._spent = []
        return self._kept(futures)

    def _submit(self, function: Callable[..., Any], *arguments: Any, **options: Any) -> Handle:
        sealed = _Seals()
        packed = [sealed(value) for value in (function, *arguments)]
        with _large_arguments():
            future = self.client.submit(_alone, *packed, pure=False, **options)
        return self._kept([future])[0]

    def _broadcast(self, value: Any) -> Any:
        """A value that every task takes: by a task of its own where it is large, so that it is described once."""
        packed = _Seals()(value)
        size = len(packed.data) if isinstance(packed, Sealed) else getattr(packed, "nbytes", 0)
        return self._submit(_itself, packed) if size > SMALL else packed

    def _kept(self, futures: Sequence[Future]) -> list[Future]:
        self._live.update(futures)
        register(futures)
        return list(futures)


def _remade(n_partitions: int | None, fan_in: int, attempts: int) -> DaskEngine:
    return DaskEngine(n_partitions=n_partitions, fan_in=fan_in, attempts=attempts)


def _size_of(record: Any) -> int:
    """Of all fields: Dask knows the size of arrays and samples that of lists, but takes an object for its header."""
    return sum(sizeof(getattr(record, field.name)) for field in fields(record))


sizeof.register(Resident, _size_of)


@dataclass(frozen=True)
class Sealed:
    """An object as bytes, which the task that needs it opens.

    Dask opens what a task carries before there is a task to fail: an object of a module that the worker cannot import
    would take the connection down with it, again and again. Opened inside, it is an error like any other.
    """

    data: bytes

    def open(self) -> Any:
        """The object."""
        return pickle.loads(self.data)


PLAIN = (Future, int, float, str, NoneType, np.ndarray, np.generic, list, Sealed)


class _Seals:
    """Seals what is not plain, each object once."""

    def __init__(self) -> None:
        self._known: dict[int, tuple[Any, Sealed]] = {}

    def __call__(self, value: Any) -> Any:
        if isinstance(value, PLAIN) or (isinstance(value, FunctionType) and value.__module__.startswith("kernelcrf.")):
            return value
        if id(value) not in self._known:
            self._known[id(value)] = value, Sealed(cloudpickle.dumps(value))
        return self._known[id(value)][1]


def _alone(function: Any, *arguments: Any) -> Any:
    function, *opened = (value.open() if isinstance(value, Sealed) else value for value in (function, *arguments))
    with single_threaded_blas():
        return function(*opened)


class _Elsewhere(SchedulerPlugin):  # type: ignore[misc]
    """A task that no worker could take has no preference any more.

    Dask would have it wait for the worker that it preferred, which may never come back, though any other will do.
    """

    name = "kernelcrf-elsewhere"
    idempotent = True

    async def start(self, scheduler: Any) -> None:
        """Called by the scheduler."""
        self._tasks = scheduler.tasks

    def transition(self, key: Any, start: str, finish: str, *args: Any, **kwargs: Any) -> None:
        """Called when a task has come from one state into another."""
        if finish == "no-worker" and self._tasks[key].loose_restrictions:
            self._tasks[key].worker_restrictions = None


def _preferring(workers: Sequence[str], place: float) -> dict[str, Any]:
    """What tells Dask to take one of the workers that are there now, unless that one is lost."""
    return {"workers": [workers[int(place * len(workers))]], "allow_other_workers": True} if workers else {}


def _called(source: Callable[[], Any]) -> Any:
    return source()


def _itself(value: Any) -> Any:
    return value


def _added(values: list[Any]) -> Any:
    return functools.reduce(operator.add, values)


@contextlib.contextmanager
def _large_arguments() -> Iterator[None]:
    """Dask advises against large arguments, which would be lost with a worker if they were scattered instead."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Sending large graph")
        yield
