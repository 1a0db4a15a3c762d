"""Faults of a cluster in the middle of a fit.

Fits run on two worker processes of one machine, and Dask replaces a worker that is killed. Small data have about 270
tokens, and an rbf kernel. Large data have 160,000 tokens with 64 numbers each, and a linear kernel; a worker that takes
over a part must read it again. Failures are a fit whose objective differs from that of a fit in one process by more
than a relative 1e-9, and an error other than the documented one. Seconds are those of the fits that were disturbed,
beside those of an undisturbed fit before them on the same cluster.
"""

import argparse
import contextlib
import os
import random
import signal
import tempfile
import threading
import time
from pathlib import Path

import numpy as np

from clusters import LINEAR, RBF, fast_starts, two_workers
from kernelcrf import ChainCRF
from kernelcrf.distributed import RawSequences, SequenceSources
from kernelcrf.fitting.checkpoints import Checkpoint
from studies.common import Trial

OPTIONS = {"kills": 8, "rounds": 1}
TOKENS, PARTS, LENGTH = 20_000, 8, 20
OF_LARGE = {**LINEAR, "C": 1e-3, "tol": 1e-6}
OF_SMALL = {**RBF, "tol": 1e-6}
# Dask counts a worker as lost if it has said nothing for so many seconds; its default is five minutes.
SILENCE = 10


def small_data():
    """Return sequences of vectors and their labels."""
    rng = np.random.default_rng(1)
    X = [rng.normal(size=(rng.integers(1, 9), 3)) for _ in range(60)]
    return X, [np.where(np.sin(2 * x[:, 0]) > 0, "up", "down").tolist() for x in X]


def large_source(seed):
    """Return a function that reads a part of 10 MB."""

    def read():
        rng = np.random.default_rng(seed)
        X = rng.normal(size=(TOKENS, 64))
        y = np.where(X[:, 0] + 0.5 * rng.normal(size=TOKENS) > 0, "up", "down")
        return RawSequences(X, y.tolist(), lengths=np.full(TOKENS // LENGTH, LENGTH))

    return read


def large_data():
    """Return the large data as lists in this process."""
    parts = [large_source(seed)() for seed in range(PARTS)]
    flat = np.concatenate([part.X for part in parts]), np.concatenate([part.y for part in parts])
    return [one.reshape(-1, LENGTH, *one.shape[1:]) for one in flat]


class Faults:
    """Fits on a cluster beside the fit of one process, with their times."""

    def __init__(self, client, size):
        self.client, self.size = client, size
        self.settings = OF_SMALL if size == "small" else OF_LARGE
        self.data = small_data() if size == "small" else large_data()
        self.objective = ChainCRF(**self.settings).fit(*self.data).certificate_.objective

    def fit(self, engine=None, **settings):
        """Fit on the cluster; return whether the objective is that of one process, and the times of start and end."""
        from kernelcrf.distributed import DaskEngine

        engine = DaskEngine(self.client, n_partitions=PARTS) if engine is None else engine
        sources = self.data
        if self.size == "large":
            sources = (SequenceSources([large_source(seed) for seed in range(PARTS)]),)
        start = time.time()
        crf = ChainCRF(**self.settings, **settings, engine=engine).fit(*sources)
        fine = abs(crf.certificate_.objective - self.objective) <= 1e-9 * abs(self.objective)
        return fine, start, time.time()

    def undisturbed(self):
        """Return the seconds of a fit without faults, after a first fit that warms up the workers."""
        self.fit()
        _, start, end = self.fit()
        return end - start

    def pids(self):
        """Return the ids of the processes of the workers."""
        return sorted(self.client.run(os.getpid, on_error="ignore").values())


def seconds(times):
    """Return the range of some times as a text."""
    return f"{min(times):.1f} to {max(times):.1f} s" if len(times) > 1 else f"{times[0]:.1f} s"


def kills(size, n_kills):
    """Kill a worker after a random time, again and again, during as many fits as this takes."""
    trial = Trial(f"fits while random workers get SIGKILL at random moments, {n_kills} in all, {size} data", "")
    with two_workers(**{"distributed.scheduler.allowed-failures": 20}) as client:
        faults, ended, killed, spans = Faults(client, size), threading.Event(), [], []
        usual, draw = faults.undisturbed(), random.Random(0)

        def kill():
            while len(killed) < n_kills and not ended.wait(draw.expovariate(1 / usual)):
                # Dask starts a worker in place of one that was killed, but now and then it does not.
                with contextlib.suppress(Exception):
                    if len(client.nthreads()) < 2:
                        client.cluster.scale(len(client.cluster.worker_spec) + 1)
                        continue
                    os.kill(draw.choice(faults.pids()), signal.SIGKILL)
                    killed.append(time.time())

        thread = threading.Thread(target=kill)
        thread.start()
        try:
            while len(killed) < n_kills:
                fine, start, end = faults.fit()
                trial.check(fine, f"another objective in a fit of {end - start:.1f} s")
                spans.append((start, end))
        finally:
            ended.set()
            thread.join()
    hit = [end - start for start, end in spans if any(start < moment < end for moment in killed)]
    trial.holds = f"the same optimum; {seconds(hit or [0.0])}, undisturbed {usual:.1f} s"
    return trial


def stopped(rounds):
    """Stop a worker in the middle of a fit, and let it go on when the fit has ended."""
    trial = Trial(f"SIGSTOP to a worker that never goes on, counted as lost after {SILENCE} s of silence", "")
    times = []
    for _ in range(rounds):
        with two_workers(**{"distributed.scheduler.worker-ttl": f"{SILENCE}s"}) as client:
            faults = Faults(client, "large")
            usual, pid = faults.undisturbed(), faults.pids()[0]
            timer = threading.Timer(usual / 2, os.kill, (pid, signal.SIGSTOP))
            timer.start()
            try:
                fine, start, end = faults.fit()
            finally:
                timer.cancel()
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGCONT)
            trial.check(fine, f"another objective in a fit of {end - start:.1f} s")
            times.append(end - start)
    trial.holds = f"the same optimum; {seconds(times)}, undisturbed {usual:.1f} s"
    return trial


def slow(rounds):
    """Stop a worker for nine tenths of the time."""
    trial, times = Trial("a worker at a tenth of its speed", ""), []
    with two_workers() as client:
        faults = Faults(client, "large")
        usual, pid = faults.undisturbed(), faults.pids()[0]
        for _ in range(rounds):
            ended = threading.Event()

            def hold_up(ended=ended):
                while not ended.is_set():
                    os.kill(pid, signal.SIGSTOP)
                    time.sleep(0.18)
                    os.kill(pid, signal.SIGCONT)
                    time.sleep(0.02)

            thread = threading.Thread(target=hold_up)
            thread.start()
            try:
                fine, start, end = faults.fit()
            finally:
                ended.set()
                thread.join()
            trial.check(fine and end - start < 15 * usual, f"{end - start:.1f} s, another objective or too slow")
            times.append(end - start)
    trial.holds = f"the same optimum; {seconds(times)}, undisturbed {usual:.1f} s: a pass waits for the slow share"
    return trial


def lost(what, rounds):
    """End the client or the whole cluster in the middle of a fit, and repeat the fit with its checkpoint."""
    from kernelcrf.distributed import DaskEngine

    class Ending(DaskEngine):
        """Calls a function before its eighth sum."""

        n_sums, end = 0, None

        def sum(self, *arguments, **options):
            self.n_sums += 1
            if self.n_sums == 8:
                self.end()
            return super().sum(*arguments, **options)

    name = "the client is closed" if what == "client" else "the scheduler ends with all workers"
    trial, times = Trial(f"{name} in mid-fit; the fit is repeated on a new cluster, with its checkpoint", ""), []
    for _ in range(rounds):
        with tempfile.TemporaryDirectory() as folder:
            checkpoint = Checkpoint(Path(folder) / "fit.ckpt", every=1)
            with two_workers() as client:
                faults = Faults(client, "small")
                usual, engine = faults.undisturbed(), Ending(client, n_partitions=PARTS)
                engine.end = client.close if what == "client" else client.cluster.close
                said = "no error"
                try:
                    faults.fit(engine, checkpoint=checkpoint)
                except ConnectionError as error:
                    said = str(error)
            with two_workers() as client:
                faults.client = client
                fine, start, end = faults.fit(checkpoint=checkpoint)
            trial.check(fine and "checkpoint=" in said, f"another objective, or {said}")
            times.append(end - start)
    trial.holds = (
        f"one ConnectionError that names checkpoint=; then the same optimum after {seconds(times)}, undisturbed "
    )
    trial.holds += f"{usual:.1f} s"
    return trial


def scaling(rounds):
    """Change the number of workers in the middle of a fit."""
    import distributed

    from kernelcrf.distributed import DaskEngine

    class Changing(DaskEngine):
        """Changes the number of workers at some of its sums, and does not wait for them."""

        n_sums, changes = 0, {5: 4, 12: 1, 20: 3}

        def sum(self, *arguments, **options):
            self.n_sums += 1
            if self.n_sums in self.changes:
                self.client.cluster.scale(self.changes[self.n_sums])
            return super().sum(*arguments, **options)

    trial, times = Trial("the cluster goes from 2 to 4, 1 and 3 workers in mid-fit", ""), []
    with two_workers() as client:
        faults = Faults(client, "large")
        usual = faults.undisturbed()
        for _ in range(rounds):
            fine, start, end = faults.fit(Changing(client, n_partitions=PARTS))
            trial.check(fine, f"another objective in a fit of {end - start:.1f} s")
            times.append(end - start)
            client.cluster.scale(2)
    trial.holds = f"the same optimum; {seconds(times)}, undisturbed {usual:.1f} s"
    with (
        fast_starts(),
        distributed.LocalCluster(n_workers=1, threads_per_worker=1, dashboard_address=":0", silence_logs=50) as cluster,
        distributed.Client(cluster) as client,
    ):
        cluster.adapt(minimum=1, maximum=3, interval="200ms")
        faults.client = client
        adaptive = [faults.fit() for _ in range(rounds)]
    for fine, _, _ in adaptive:
        trial.check(fine, "another objective with an adaptive cluster")
    trial.holds += f"; with cluster.adapt(1, 3) {seconds([end - start for _, start, end in adaptive])}"
    return trial


def trials(options: argparse.Namespace):
    yield kills("small", options.kills)
    yield kills("large", options.kills)
    yield stopped(options.rounds)
    yield slow(options.rounds)
    yield lost("client", options.rounds)
    yield lost("scheduler", options.rounds)
    yield scaling(options.rounds)
