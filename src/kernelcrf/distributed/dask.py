"""An engine that runs on the workers of a Dask cluster. Its handles are Dask futures, or parts of bundles.

The scheduler of Dask needs one to four milliseconds for each task, whatever the task does. A worker therefore stores
its parts of the data as one Dask value, a *bundle*, and runs one task per function call and bundle. This task processes
the parts in as many threads as the worker has; each of them uses one thread for BLAS and Numba. If the data are larger
than the memory, a worker has several smaller bundles, which Dask moves to disk and back one by one.

The scheduler stores the arguments of all tasks, so that Dask itself recomputes a value that was lost with its worker.
Dask gives up a task after several workers died while running it; only such tasks are retried by this module. If a
worker was lost or has joined, the next task gives parts of lost and of overloaded workers to others.

The module `bundles` says how sums are added up, and why they do not depend on the workers.
"""

from __future__ import annotations

import contextlib
import functools
import math
import operator
import pickle
import shutil
import time
import warnings
import weakref
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from types import FunctionType, NoneType
from typing import Any

import numpy as np

from kernelcrf.distributed.bundled_parts import Bundle, BundledParts, Group, Part
from kernelcrf.distributed.bundles import Subtree, add_along, rebalance, subtrees, sum_subtree
from kernelcrf.distributed.cluster import Cluster, Function, Handle, Value, first, register, second
from kernelcrf.engines.local import LocalEngine, single_threaded_blas
from kernelcrf.validation import COUNT, check_parameters, either, instance_of, nothing, stacklevel_of_user, whole

try:
    import cloudpickle
    import dask
    from dask.sizeof import sizeof, sizeof_default
    from distributed import Client, Future, KilledWorker, get_client, get_worker, wait
    from distributed.client import CancelledError, FutureCancelledError
    from distributed.comm import CommClosedError
    from distributed.diagnostics.plugin import SchedulerPlugin
except ModuleNotFoundError as error:
    raise ModuleNotFoundError(
        f"DaskEngine needs {error.name}, which is not installed: run pip install 'kernelcrf[dask]'", name=error.name
    ) from None

__all__ = ["DaskEngine"]

SMALL = 2**16
PARTS_PER_MEMORY = 32
# Dask moves values to disk when they take 60 % of the memory, and a pass needs room beside the data.
MOST_MEMORY = 0.4
BUNDLES_PER_MEMORY = 8
LEAST_DISK = 2**27
PATIENCE = 60.0
SECONDS_BETWEEN_CHECKS = 1.0
# Several per thread, so that all threads of a worker end at about the same time.
SUBTREES_PER_THREAD = 4
NOWHERE = ""

# By the status of a client, why its tasks are lost.
LOSSES = {
    None: "there is no Dask client; it was closed, or never started",
    "closed": "the Dask client was closed, or lost its scheduler",
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
        parts if a part would need more than 1/32 of a worker's memory per thread. If the number is given, a fit has the
        same bits for any number of workers.
    fan_in : int
        How many values are added up in one task.
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
        self._members: list[str] = []
        self._next_check = 0.0
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
        workers = self._resources()
        memory = [limit // n_threads for n_threads, limit in workers if limit]
        by_memory = -(-PARTS_PER_MEMORY * n_bytes // min(memory)) if memory else 1
        return max(1, min(most, max(sum(n_threads for n_threads, _ in workers), by_memory)))

    def fits(self, n_bytes: int) -> bool:
        return self._shares_of_memory(n_bytes) <= MOST_MEMORY

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

    def bundle(self, handles: Sequence[Handle], n_bytes: int) -> Sequence[Handle]:
        workers, n = self._workers() or [NOWHERE], len(handles)
        n_bundles = len(workers) * self._bundles_per_worker(n_bytes)
        bundles = []
        for k in range(n_bundles):
            # These are the parts that `call` has computed on this worker.
            places = tuple(range(-(-k * n // n_bundles), -(-(k + 1) * n // n_bundles)))
            if places:
                worker = workers[k * len(workers) // n_bundles]
                future = self._submit(_identity, [self._single(handles[place]) for place in places], **_on(worker))
                bundles.append(Bundle(future, places, worker))
        return BundledParts(bundles, workers)

    def each(self, function: Function, *parts: Sequence[Value], shared: tuple[Value, ...] = ()) -> Sequence[Handle]:
        groups = self._groups(parts)
        if groups:
            return self._bundled(groups, self._map_groups(_run_group, function, groups, parts, shared))
        columns = [[_seal(value) for value in column] for column in parts]
        everywhere = [[self._broadcast(value)] * len(parts[0]) for value in shared]
        return self._map(_run_alone, function, *columns, *everywhere)

    def call(self, function: Function, *arguments: Value, place: float | None = None) -> Handle:
        single = [
            [self._single(one) for one in value] if isinstance(value, list) else self._single(value)
            for value in arguments
        ]
        return self._submit(function, *single, **({} if place is None else _prefer(self._workers(), place)))

    def sum(self, function: Function, *parts: Sequence[Value], shared: tuple[Value, ...] = ()) -> Value:
        n = len(parts[0])
        if not n:
            raise ValueError("there are no parts: pass at least one part to the method sum")
        groups = self._groups(parts)
        if groups:
            return self._add(n, self._map_groups(_sum_group, function, groups, parts, shared))
        handles = self.each(function, *parts, shared=shared)
        lows = range(0, n, self.fan_in)
        sums = [self._submit(_add_neighbours, n, low, list(handles[low : low + self.fan_in])) for low in lows]
        return self._add(n, sums, handles)

    def reduce(
        self, function: Function, *parts: Sequence[Value], shared: tuple[Value, ...] = ()
    ) -> tuple[Value, Sequence[Handle]]:
        groups = self._groups(parts)
        if not groups:
            pairs = self.each(function, *parts, shared=shared)
            return self.sum(first, pairs), self.each(second, pairs)
        pairs = self._map_groups(_reduce_group, function, groups, parts, shared)
        kept = self._bundled(groups, self._map(_run_alone, second, pairs))
        return self._add(len(parts[0]), self._map(_run_alone, first, pairs), pairs), kept

    def fetch(self, handles: Sequence[Handle]) -> list[Value]:
        if isinstance(handles, BundledParts):
            values = self._gather([bundle.future for bundle in handles.bundles])
            by_place = {
                place: value
                for bundle, values_of_bundle in zip(handles.bundles, values, strict=True)
                for place, value in zip(bundle.places, values_of_bundle, strict=True)
            }
            return [by_place[place] for place in range(len(handles))]
        return self._gather([self._single(handle) for handle in handles])

    def _gather(self, futures: Sequence[Future]) -> list[Value]:
        with self._connection(futures) as client:
            for attempt in range(self.attempts):
                try:
                    self._wait(client, futures)
                    return list(client.gather(list(futures)))
                except (KilledWorker, FutureCancelledError) as error:
                    if attempt + 1 == self.attempts:
                        if advice := _describe_full_disks(client):
                            error.add_note(advice)
                        raise
                    self._retry(client)
        raise AssertionError("unreachable")

    def _add(self, n: int, sums: Sequence[Future], others: Sequence[Future] = ()) -> Value:
        """Return the sum of n parts, given dicts with sums of subtrees.

        others : futures that are not needed after the sum.
        """
        spent, level = [*sums, *others], list(sums)
        # The last two are added in this process: a task would need one more message to the scheduler.
        while len(level) > 2:
            runs = [level[low : low + self.fan_in] for low in range(0, len(level), self.fan_in)]
            level = [self._submit(add_along, n, run) for run in runs]
            spent += level
        total = add_along(n, self._gather(level))[0, n]
        # They are released with the next task, because a client waits 10 ms between two messages.
        self._spent = spent
        return total

    def _groups(self, parts: Sequence[Sequence[Value]]) -> list[Group]:
        """Return groups of parts that are processed in one task each; an empty list if the parts are in no bundles.

        parts : the arguments of a function, as those of `each`. The bundles of the first argument that has bundles are
            processed where they are, and other arguments are brought to them.
        """
        lead = next((column for column in parts if len(column) and isinstance(column[0], Part)), None)
        if lead is None:
            return []
        if isinstance(lead, BundledParts):
            self._settle(lead)
            return [Group(bundle.places, bundle.worker) for bundle in lead.bundles]
        places: dict[Bundle, list[int]] = {}
        for at, part in enumerate(lead):
            places.setdefault(part.find()[0], []).append(at)
        return [Group(tuple(own), bundle.worker) for bundle, own in places.items()]

    def _map_groups(
        self,
        run: Function,
        function: Function,
        groups: Sequence[Group],
        parts: Sequence[Sequence[Value]],
        shared: tuple[Value, ...],
    ) -> list[Future]:
        """Process each group of parts in one task; return the futures of these tasks."""
        columns = [self._divide(column, groups) for column in parts]
        everywhere = [[self._broadcast(value)] * len(groups) for value in shared]
        facts = [[len(parts[0]), len(parts), list(group.places)] for group in groups]
        return self._map(run, function, facts, *columns, *everywhere)

    def _divide(self, column: Sequence[Value], groups: Sequence[Group]) -> list[Value]:
        """Return one argument per group: a list with the values of its parts, or a future of such a list."""
        if not isinstance(column[0], Part):
            return [[_seal(column[place]) for place in group.places] for group in groups]
        if isinstance(column, BundledParts) and [bundle.places for bundle in column.bundles] == [
            group.places for group in groups
        ]:
            return [bundle.future for bundle in column.bundles]
        futures = [self._join([column[place] for place in group.places], group.worker) for group in groups]
        if isinstance(column, BundledParts):
            # An iteration may ask for the same values again.
            column.bundles = [Bundle(future, *group) for future, group in zip(futures, groups, strict=True)]
        return futures

    def _join(self, parts: Sequence[Part], worker: str) -> Future:
        """Return a future that refers to a list with the values of some parts, which are brought to a worker."""
        found = [part.find() for part in parts]
        sources: dict[Bundle, list[int]] = {}
        for at, (bundle, _) in enumerate(found):
            sources.setdefault(bundle, []).append(at)
        pieces = [self._submit(_take, bundle.future, [found[at][1] for at in own]) for bundle, own in sources.items()]
        if len(pieces) == 1:
            return pieces[0]
        return self._submit(_merge, pieces, list(sources.values()), **_on(worker))

    def _bundled(self, groups: Sequence[Group], futures: Sequence[Future]) -> BundledParts:
        bundles = [Bundle(future, *group) for future, group in zip(futures, groups, strict=True)]
        return BundledParts(bundles, self._members)

    def _settle(self, parts: BundledParts) -> None:
        """Give the parts of lost and of overloaded workers to others."""
        if time.monotonic() >= self._next_check:
            self._members = self._workers()
            self._next_check = time.monotonic() + SECONDS_BETWEEN_CHECKS
        if parts.workers == self._members or not self._members:
            return
        parts.workers = self._members
        moves = rebalance([(bundle.worker, bundle.places) for bundle in parts.bundles], self._members)
        bundles = []
        for source, places, worker in moves:
            bundle = parts.bundles[source]
            if places != bundle.places:
                future = self._submit(_take, bundle.future, [bundle.index(place) for place in places])
                bundle = Bundle(future, places, bundle.worker)
            if worker != bundle.worker:
                bundle = Bundle(self._submit(_identity, bundle.future, **_on(worker)), places, worker)
            bundles.append(bundle)
        parts.bundles = bundles

    def _single(self, handle: Handle) -> Handle:
        """Return a future for a part of a bundle; a handle or value of another kind is returned as it is."""
        if not isinstance(handle, Part):
            return handle
        bundle, index = handle.find()
        return self._submit(operator.getitem, bundle.future, index)

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

    def _resources(self) -> list[tuple[int, int]]:
        """Return the number of threads and the memory limit of each worker; a limit of 0 means that there is none."""
        with self._connection() as client:
            workers = client.scheduler_info(n_workers=-1)["workers"].values()
        return [(int(worker["nthreads"]), int(worker["memory_limit"] or 0)) for worker in workers]

    def _shares_of_memory(self, n_bytes: int) -> float:
        """Return which share of its memory the smallest worker needs for its part of `n_bytes`; 0 without limits."""
        limits = [limit for _, limit in self._resources() if limit]
        return n_bytes / len(limits) / min(limits) if limits else 0.0

    def _bundles_per_worker(self, n_bytes: int) -> int:
        """Return 1 if the data fit into memory; otherwise, all bundles that are in use at a time take 1/8 of it."""
        if self.fits(n_bytes):
            return 1
        n_threads = max(n_threads for n_threads, limit in self._resources() if limit)
        return math.ceil(BUNDLES_PER_MEMORY * n_threads * self._shares_of_memory(n_bytes))

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
                    said = (
                        f"all workers are paused because they are near their memory limits ({limits}): give them more "
                        "memory, or pass a larger n_partitions to DaskEngine, so that each part of the data is smaller"
                    )
                    advice = _describe_full_disks(client)
                    warnings.warn(
                        f"{said}. {advice}" if advice else said, RuntimeWarning, stacklevel=stacklevel_of_user()
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

    def _submit(self, function: Function, *arguments: Value, **options: Any) -> Future:
        with self._connection() as client, _large_arguments():
            future = client.submit(_run_alone, *map(_seal, (function, *arguments)), pure=False, **options)
        return self._keep([future])[0]

    def _map(self, run: Function, function: Function, *columns: Sequence[Value]) -> list[Future]:
        """Return one future per row of `columns`, which refers to run(function, *row)."""
        with self._connection() as client, _large_arguments():
            futures = client.map(functools.partial(run, _seal(function)), *columns, pure=False)
        # Handles of the last sum are released only now, because a client waits 10 ms between two messages.
        self._spent = []
        return self._keep(futures)

    def _broadcast(self, value: Value) -> Value:
        """Return a small value itself; send a large value to a worker only once, and return a handle to it."""
        packed = _seal(self._single(value))
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


def _open(value: Value) -> Value:
    return value.open() if isinstance(value, Sealed) else value


def _run_alone(function: Value, *arguments: Value) -> Value:
    function, *opened = map(_open, (function, *arguments))
    with single_threaded_blas():
        return function(*opened)


def _n_threads() -> int:
    """Return the number of threads of the worker that calls this function."""
    return int(get_worker().state.nthreads)


def _values(function: Function, n_columns: int, arguments: Sequence[Value]) -> Callable[[int], Value]:
    """Return a function that returns the result for a part of a group, given the index of the part in the group.

    arguments : `n_columns` lists with one value per part, then values for all parts.
    """
    function, *shared = (_open(value) for value in (function, *arguments[n_columns:]))
    columns = arguments[:n_columns]
    return lambda at: function(*(_open(column[at]) for column in columns), *shared)


def _run_group(function: Value, facts: list[Any], *arguments: Value) -> list[Value]:
    """Call a function for each part of a group; return the list of results.

    facts : the number of all parts, the number of arguments that differ between parts, and the parts of the group.
    """
    _, n_columns, places = facts
    return LocalEngine(_n_threads()).map(_values(function, n_columns, arguments), range(len(places)))


def _sum_group(function: Value, facts: list[Any], *arguments: Value) -> dict[Subtree, Value]:
    """Call a function for each part of a group; return sums of the results over subtrees."""
    n, n_columns, places = facts
    value_of, n_threads = _values(function, n_columns, arguments), _n_threads()
    return _sum_subtrees(n, places, value_of, n_threads)


def _reduce_group(function: Value, facts: list[Any], *arguments: Value) -> tuple[dict[Subtree, Value], list[Value]]:
    """Call a function that returns pairs for each part of a group.

    Return sums of the first values of the pairs over subtrees, and the list of the second values.
    """
    n, n_columns, places = facts
    pair_of, kept = _values(function, n_columns, arguments), [None] * len(places)

    def value_of(at: int) -> Value:
        value, kept[at] = pair_of(at)
        return value

    return _sum_subtrees(n, places, value_of, _n_threads()), kept


def _sum_subtrees(
    n: int, places: Sequence[int], value_of: Callable[[int], Value], n_threads: int
) -> dict[Subtree, Value]:
    indices = {place: index for index, place in enumerate(places)}
    trees = subtrees(n, places, SUBTREES_PER_THREAD * n_threads if n_threads > 1 else 1)
    totals = LocalEngine(n_threads).map(
        lambda tree: sum_subtree(tree, lambda place: value_of(indices[place])),
        trees,
        [high - low for low, high in trees],
    )
    return add_along(n, [dict(zip(trees, totals, strict=True))])


def _add_neighbours(n: int, low: int, values: list[Value]) -> dict[Subtree, Value]:
    """Return sums over subtrees of neighbouring parts, of which `low` is the first."""
    return add_along(n, [{(low + k, low + k + 1): value for k, value in enumerate(values)}])


def _take(values: list[Value], indices: list[int]) -> list[Value]:
    return [values[index] for index in indices]


def _merge(pieces: list[list[Value]], indices: list[list[int]]) -> list[Value]:
    """Return the values of all pieces in one list; `indices` says where the values of each piece are in this list."""
    by_index = {
        index: value
        for own, piece in zip(indices, pieces, strict=True)
        for index, value in zip(own, piece, strict=True)
    }
    return [by_index[index] for index in range(len(by_index))]


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
    return _on(workers[int(place * len(workers))]) if workers else {}


def _on(worker: str) -> dict[str, object]:
    """Return options that tell Dask to run a task on this worker, if it is available."""
    return {} if worker == NOWHERE else {"workers": [worker], "allow_other_workers": True}


def _describe_full_disks(client: Client) -> str:
    """Return a text that names the folders on full disks to which workers move data; "" if there are none."""
    disks = client.run(_find_disk, on_error="ignore")
    full = sorted(f"{folder} of {worker}" for worker, (folder, free) in disks.items() if free < LEAST_DISK)
    if not full:
        return ""
    return (
        f"No space is left on the disk of {', '.join(full)}, where Dask stores data that do not fit into memory: free "
        "some space, or start the workers with a local_directory on another disk"
    )


def _find_disk(dask_worker: Any) -> tuple[str, int]:
    folder = str(dask_worker.local_directory)
    return folder, shutil.disk_usage(folder).free


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
