"""An engine that runs on the workers of a Dask cluster. Its handles are Dask futures.

Every function call is a Dask task. The scheduler stores the arguments of all tasks, so that Dask itself recomputes a
value that was lost with its worker. Dask gives up a task after several workers died while running it; only such tasks
are retried by this module.

A sum adds `fan_in` neighbouring values at a time, in the order of the parts of the data. Its result therefore does not
depend on which worker has a part, or which worker is faster. Inside a task, BLAS and Numba use one thread, because a
worker runs as many tasks at a time as it has threads.
"""

from __future__ import annotations

import contextlib
import functools
import operator
import pickle
import warnings
import weakref
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from types import FunctionType, NoneType
from typing import Any

import numpy as np

from kernelcrf.distributed.cluster import Cluster, Function, Handle, Value, register
from kernelcrf.engines.local import single_threaded_blas
from kernelcrf.validation import COUNT, check_parameters, either, instance_of, nothing, stacklevel_of_user, whole

try:
    import cloudpickle
    import dask
    from dask.sizeof import sizeof, sizeof_default
    from distributed import Client, Future, KilledWorker, get_client, wait
    from distributed.client import CancelledError, FutureCancelledError
    from distributed.comm import CommClosedError
    from distributed.diagnostics.plugin import SchedulerPlugin
except ModuleNotFoundError as error:
    raise ModuleNotFoundError(
        f"DaskEngine needs {error.name}, which is not installed: run pip install 'kernelcrf[dask]'", name=error.name
    ) from None

__all__ = ["DaskEngine"]

_add: Function = functools.partial(functools.reduce, operator.add)

SMALL = 2**16
PARTS_PER_MEMORY = 32
PATIENCE = 60.0

# By the status of a client, why its tasks are lost.
LOSSES = {
    None: "there is no Dask client; it was closed, or never started",
    "closed": "the Dask client or its cluster was closed",
    "connecting": "the Dask client lost the connection to its scheduler",
    "running": "the Dask scheduler was lost or restarted, or tasks were cancelled",
}

PARAMETERS = {
    "client": either(instance_of(Client, text="a distributed.Client"), nothing, advice="None uses the current client"),
    "n_partitions": either(whole(least=1), nothing, advice="None chooses it from the workers' threads and memory"),
    "fan_in": either(whole(least=2)),
    "attempts": COUNT,
}


class DaskEngine(Cluster):
    """Run `ChainCRF(engine=...)` on the workers of a Dask cluster.

    Parameters
    ----------
    client : distributed.Client or None
        The client of the cluster; None uses the client that is current at the time of a fit or prediction.
    n_partitions : int or None
        The number of parts into which the data are divided. None uses one part for each thread of the workers, or more
        parts if a part would need more than 1/32 of a worker's memory.
    fan_in : int
        How many neighbouring values each step of a sum adds up.
    attempts : int
        How often a task is tried if its workers die, and how often a part of the data is loaded if loading fails.

    Examples
    --------
    >>> from distributed import Client
    >>> from kernelcrf import ChainCRF
    >>> from kernelcrf.datasets import make_sequences
    >>> from kernelcrf.distributed import DaskEngine
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
        self._prepared: weakref.WeakSet[Client] = weakref.WeakSet()

    def __repr__(self) -> str:
        scheduler = None if self._client is None else self._client.scheduler
        return f"DaskEngine({'' if scheduler is None else scheduler.address})"

    def __deepcopy__(self, memo: dict[int, object]) -> DaskEngine:
        """Return the engine itself: scikit-learn's clone copies parameters, but a connection cannot be copied."""
        return self

    def __reduce__(self) -> tuple[object, ...]:
        """Pickle only the settings; in another process, the engine uses the current client of that process."""
        kept, fan_in, attempts = self.n_partitions, self.fan_in, self.attempts
        return functools.partial(DaskEngine, n_partitions=kept, fan_in=fan_in, attempts=attempts), ()

    @property
    def client(self) -> Client:
        """Return the client that was passed, or the current client if none was passed."""
        return get_client() if self._client is None else self._client

    def parts_of(self, n_bytes: int, most: int) -> int:
        if self.n_partitions is not None:
            return min(self.n_partitions, most)
        with self._connection() as client:
            workers = client.scheduler_info(n_workers=-1)["workers"].values()
        limits = [worker["memory_limit"] for worker in workers if worker["memory_limit"]]
        by_memory = -(-PARTS_PER_MEMORY * n_bytes // min(limits)) if limits else 1
        n_threads = sum(int(worker["nthreads"]) for worker in workers)
        return max(1, min(most, max(n_threads, int(by_memory))))

    def load(self, sources: Sequence[Value]) -> list[Handle]:
        delayed = [source for source in sources if dask.is_dask_collection(source)]
        with self._connection() as client:
            computed = iter(self._keep(client.compute(delayed, retries=self.attempts, sync=False)) if delayed else [])
        workers = self._workers()
        return [
            next(computed)
            if dask.is_dask_collection(source)
            else self._submit(operator.call, source, retries=self.attempts, **_prefer(workers, k / len(sources)))
            for k, source in enumerate(sources)
        ]

    def each(self, function: Function, *parts: Sequence[Value], shared: tuple[Value, ...] = ()) -> list[Handle]:
        everywhere = [[self._broadcast(value)] * len(parts[0]) for value in shared]
        arguments = [[_seal(value) for value in column] for column in parts]
        run = functools.partial(_run_alone, _seal(function))
        with self._connection() as client, _large_arguments():
            futures = client.map(run, *arguments, *everywhere, pure=False)
        # Handles of the last sum are dropped only now, because a client waits 10 ms between two messages.
        self._spent = []
        return self._keep(futures)

    def call(self, function: Function, *arguments: Value, place: float | None = None) -> Handle:
        return self._submit(function, *arguments, **({} if place is None else _prefer(self._workers(), place)))

    def sum(self, handles: Sequence[Handle]) -> Value:
        level = list(handles)
        if not level:
            raise ValueError("handles is empty: pass at least one handle to the method sum")
        # The last two values are added in this process: a task would need one more message to the scheduler.
        while len(level) > 2:
            level = [self._submit(_add, level[low : low + self.fan_in]) for low in range(0, len(level), self.fan_in)]
        total = _add(self.fetch(level))
        self._spent = [*handles, *level]
        return total

    def fetch(self, handles: Sequence[Handle]) -> list[Value]:
        with self._connection(handles) as client:
            for attempt in range(self.attempts):
                try:
                    self._wait(client, handles)
                    return list(client.gather(list(handles)))
                except (KilledWorker, FutureCancelledError):
                    if attempt + 1 == self.attempts:
                        raise
                    self._retry(client)
        raise AssertionError("unreachable")

    def status(self) -> str:
        count = len(self._workers())
        return f"{count} worker{'' if count == 1 else 's'}"

    @contextlib.contextmanager
    def _connection(self, handles: Sequence[Handle] = ()) -> Iterator[Client]:
        """Return a context manager for calls of the client; it raises ConnectionError if the cluster is lost.

        If there are handles, the client is the one that created them: another client may have become the current one.
        """
        client = None
        try:
            client = handles[0].client if handles else self.client
            yield client
        except Exception as error:
            status = None if client is None else client.status
            if status == "running" and not isinstance(error, CancelledError | CommClosedError):
                raise
            raise ConnectionError(
                f"the work on the cluster was not finished, because {LOSSES.get(status, LOSSES['closed'])}: start the "
                "cluster again if it has ended, and repeat the call. If ChainCRF has checkpoint=, its fit continues "
                "from the checkpoint"
            ) from error

    def _workers(self) -> list[str]:
        with self._connection() as client:
            if client not in self._prepared:
                client.register_plugin(_AnyWorker())
                self._prepared.add(client)
            return sorted(client.nthreads())

    def _wait(self, client: Client, handles: Sequence[Handle]) -> None:
        """Wait until all tasks are done or have failed; warn if all workers are paused because of their memory."""
        while True:
            try:
                # wait() uses the current client, which may differ from the one that was passed.
                with client.as_current():
                    wait(list(handles), timeout=PATIENCE)
                return
            except TimeoutError:
                workers = client.scheduler_info(n_workers=-1)["workers"].values()
                if workers and all(worker["status"] == "paused" for worker in workers):
                    limits = ", ".join(f"{worker['memory_limit'] / 2**20:.0f} MiB" for worker in workers)
                    warnings.warn(
                        f"all workers are paused because they are near their memory limits ({limits}): give them more "
                        "memory, or pass a larger n_partitions to DaskEngine, so that each part of the data is smaller",
                        RuntimeWarning,
                        stacklevel=stacklevel_of_user(),
                    )

    def _retry(self, client: Client) -> None:
        """Retry all failed tasks.

        Dask's own Client.retry is not used, because it fails if the client has no future for one of the tasks.
        """
        # The scheduler does not know released tasks any more, even if an error still refers to their futures.
        failed = [future.key for future in self._live if future.status == "error" and future.key in client.futures]

        async def again() -> None:
            for key in await client.scheduler.retry(keys=failed, client=client.id):
                if key in client.futures:
                    client.futures[key].retry()

        client.sync(again)

    def _submit(self, function: Function, *arguments: Value, **options: Any) -> Handle:
        with self._connection() as client, _large_arguments():
            future = client.submit(_run_alone, *map(_seal, (function, *arguments)), pure=False, **options)
        return self._keep([future])[0]

    def _broadcast(self, value: Value) -> Value:
        """Return a small value itself; send a large value to a worker only once, and return a handle to it."""
        packed = _seal(value)
        size = len(packed.data) if isinstance(packed, Sealed) else getattr(packed, "nbytes", 0)
        return self._submit(_identity, packed) if size > SMALL else packed

    def _keep(self, futures: Sequence[Future]) -> list[Future]:
        self._live.update(futures)
        register(futures)
        return list(futures)


def _size_of(value: object) -> int:
    """Return the size of a value in bytes, including its attributes.

    Dask itself does not count attributes: it takes some large objects for small ones, and never moves them to disk.
    """
    attributes = getattr(value, "__dict__", {}) if type(value).__module__.startswith("kernelcrf.") else {}
    return int(sizeof_default(value) + sum(map(sizeof, attributes.values())))


sizeof.register(object, _size_of)


@dataclass(frozen=True)
class Sealed:
    """A pickled object, which is unpickled inside the task that uses it.

    Dask unpickles the arguments of a task before the task runs. A worker that cannot import the module of an argument
    then loses its connection again and again. If the import fails inside the task, the task fails with an ordinary
    error.
    """

    data: bytes

    def open(self) -> Value:
        """Unpickle the object and return it."""
        return pickle.loads(self.data)


PLAIN = (Future, int, float, str, NoneType, np.ndarray, np.generic, list, Sealed)


def _seal(value: Value) -> Value:
    """Return the value unchanged if Dask can send it safely, and wrapped in `Sealed` otherwise."""
    if isinstance(value, PLAIN) or (isinstance(value, FunctionType) and value.__module__.startswith("kernelcrf.")):
        return value
    return Sealed(cloudpickle.dumps(value))


def _run_alone(function: Value, *arguments: Value) -> Value:
    function, *opened = (value.open() if isinstance(value, Sealed) else value for value in (function, *arguments))
    with single_threaded_blas():
        return function(*opened)


class _AnyWorker(SchedulerPlugin):  # type: ignore[misc]
    """Scheduler plugin that lets a task run on any worker if its preferred worker is lost.

    Without it, Dask would wait for the preferred worker forever.
    """

    name = "kernelcrf-any-worker"
    idempotent = True

    async def start(self, scheduler: Any) -> None:
        """Store the tasks of the scheduler; the scheduler calls this method."""
        self._tasks = scheduler.tasks

    def transition(self, key: str, start: str, finish: str, *args: object, **kwargs: object) -> None:
        """Remove the preferred worker of a task if no worker could run it; the scheduler calls this method."""
        if finish == "no-worker" and self._tasks[key].loose_restrictions:
            self._tasks[key].worker_restrictions = None


def _prefer(workers: Sequence[str], place: float) -> dict[str, object]:
    """Return options that tell Dask which worker should run a task, if it is available.

    place : a number from 0 to below 1; 0 means the first worker, and numbers just below 1 mean the last.
    """
    return {"workers": [workers[int(place * len(workers))]], "allow_other_workers": True} if workers else {}


def _identity(value: Value) -> Value:
    return value


@contextlib.contextmanager
def _large_arguments() -> Iterator[None]:
    """Ignore Dask's warning that large arguments should be scattered.

    Arguments are not scattered, because scattered values are lost if a worker dies.
    """
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Sending large graph")
        yield
