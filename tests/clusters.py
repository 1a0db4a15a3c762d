"""Clusters for tests: real worker processes, and one in this process whose workers forget everything."""

import contextlib
import functools
import multiprocessing
import operator
import pickle

import numpy as np
import pytest

from kernelcrf.distributed.cluster import first, second

LINEAR = {"kernel": "linear", "C": 1.0, "solver": "lbfgs", "tol": 1e-5}
RBF = {"kernel": "rbf", "C": 1.0, "n_components": 25, "random_state": 0, "tol": 1e-9}


def same(there, here, X):
    """Assert that two models have one objective and one prediction."""
    assert there.certificate_.objective == pytest.approx(here.certificate_.objective, rel=1e-9)
    assert all(map(np.array_equal, there.predict(X), here.predict(X)))


@contextlib.contextmanager
def fast_starts(**settings):
    """Set Dask so that its workers are copies of one process that has imported the library.

    Otherwise, each worker imports it for seconds.
    """
    import dask
    import distributed

    # A machine with other work to do may take long to start a process.
    patient = {"distributed.scheduler.allowed-failures": 20, "distributed.comm.timeouts.connect": "180s"}
    if "forkserver" in multiprocessing.get_all_start_methods():
        patient["distributed.worker.multiprocessing-method"] = "forkserver"
    with dask.config.set(patient | settings):
        if "forkserver" in multiprocessing.get_all_start_methods():
            context = distributed.utils.get_mp_context()
            context.set_forkserver_preload(["distributed", "kernelcrf.estimators", "kernelcrf.distributed.dask"])
        yield


@contextlib.contextmanager
def two_workers(memory_limit="auto", **settings):
    """The client of a real cluster of two worker processes."""
    import distributed

    with (
        fast_starts(**settings),
        distributed.LocalCluster(
            n_workers=2, threads_per_worker=1, memory_limit=memory_limit, dashboard_address=":0", silence_logs=50
        ) as cluster,
        distributed.Client(cluster) as client,
    ):
        yield client


class Inline:
    """Handles are calls that are made anew whenever they are asked for, as if their workers had died."""

    def __init__(self, n_partitions=3, forgetful=True):
        self.n_partitions, self.forgetful = n_partitions, forgetful

    def each(self, function, *parts, shared=()):
        return [self.call(function, *own, *shared) for own in zip(*parts, strict=True)]

    def call(self, function, *arguments, place=None):
        assert place is None or 0 <= place < 1
        # What travels must be picklable, and must not be shared between calls.
        function = pickle.loads(pickle.dumps(function))
        handle = Call(function, arguments)
        return handle if self.forgetful else Known(handle())

    def load(self, sources):
        return [self.call(source) for source in sources]

    def sum(self, function, *parts, shared=()):
        return functools.reduce(operator.add, self.fetch(self.each(function, *parts, shared=shared)))

    def reduce(self, function, *parts, shared=()):
        pairs = self.each(function, *parts, shared=shared)
        return self.sum(first, pairs), self.each(second, pairs)

    def bundle(self, handles, n_bytes):
        return handles

    def fetch(self, handles):
        return [handle() for handle in handles]

    def parts_of(self, n_bytes, most):
        return min(self.n_partitions, most)

    def fits(self, n_bytes):
        return True

    def status(self):
        return "no workers"


class Call:
    def __init__(self, function, arguments):
        self.function, self.arguments = function, arguments

    def __call__(self):
        return self.function(*map(value, self.arguments))


class Known:
    def __init__(self, found):
        self.found = found

    def __call__(self):
        return self.found


def value(argument):
    if isinstance(argument, list):
        return [value(one) for one in argument]
    return argument() if isinstance(argument, Call | Known) else argument
