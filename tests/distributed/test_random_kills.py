"""Workers that are killed at random moments of many fits, and workers that are slow: run by `pytest -m slow`."""

import contextlib
import os
import random
import signal
import sys
import threading
import time

import numpy as np
import pytest

from clusters import LINEAR, RBF, same, two_workers
from kernelcrf import ChainCRF
from kernelcrf.distributed import RawSequences, SequenceSources

pytest.importorskip("distributed")
DaskEngine = pytest.importorskip("kernelcrf.distributed.dask").DaskEngine

pytestmark = [
    pytest.mark.slow,
    pytest.mark.filterwarnings("ignore::ResourceWarning", "ignore::DeprecationWarning"),
    pytest.mark.skipif(sys.platform == "win32", reason="a process is not killed by a signal there"),
]

N_KILLS = 20
TOKENS, PARTS = 20_000, 8


def large_source(seed):
    """A part of 10 MB, which a worker that takes it over must read again."""

    def read():
        rng = np.random.default_rng(seed)
        X = rng.normal(size=(TOKENS, 64))
        y = np.where(X[:, 0] + 0.5 * rng.normal(size=TOKENS) > 0, "up", "down")
        return RawSequences(X, y.tolist(), lengths=np.full(TOKENS // 20, 20))

    return read


def large_data():
    parts = [large_source(seed)() for seed in range(PARTS)]
    flat = np.concatenate([part.X for part in parts]), np.concatenate([part.y for part in parts])
    return [one.reshape(-1, 20, *one.shape[1:]) for one in flat]


def kill_at_random_moments(client, pause, ended, killed):
    """Kill a worker after a random time, again and again; others take their place."""
    draw = random.Random(0)
    while len(killed) < N_KILLS and not ended.wait(draw.expovariate(1 / pause)):
        # Dask starts a worker in place of one that was killed, but now and then it does not.
        with contextlib.suppress(Exception):
            if len(client.nthreads()) < 2:
                client.cluster.scale(len(client.cluster.worker_spec) + 1)
                continue
            pid = draw.choice(sorted(client.run(os.getpid, on_error="ignore").values()))
            os.kill(pid, signal.SIGKILL)
            killed.append(time.time())


@pytest.mark.parametrize("size", ["small", "large"])
def test_fits_survive_kills_at_random_moments(vectors, size, record_property):
    settings = {**RBF, "tol": 1e-6} if size == "small" else {**LINEAR, "C": 1e-3, "tol": 1e-6}
    data = vectors if size == "small" else large_data()
    here = ChainCRF(**settings).fit(*data)
    with two_workers(**{"distributed.scheduler.allowed-failures": 20}) as client:

        def fit():
            engine = DaskEngine(client, n_partitions=PARTS)
            sources = data if size == "small" else (SequenceSources([large_source(seed) for seed in range(PARTS)]),)
            start = time.time()
            same(ChainCRF(**settings, engine=engine).fit(*sources), here, data[0][:50])
            return start, time.time()

        fit()
        undisturbed = np.diff(fit())[0]
        ended, killed, spans = threading.Event(), [], []
        thread = threading.Thread(target=kill_at_random_moments, args=(client, undisturbed, ended, killed))
        thread.start()
        try:
            while len(killed) < N_KILLS:
                spans.append(fit())
        finally:
            ended.set()
            thread.join()
    counts = [sum(low < moment < high for moment in killed) for low, high in spans]
    by_kills = {n: np.diff([span for span, k in zip(spans, counts, strict=True) if k == n]) for n in set(counts)}
    figures = ", ".join(f"{n} kills: {len(t)} fits, {np.median(t):.1f} s" for n, t in sorted(by_kills.items()))
    print(f"\n{size}: undisturbed {undisturbed:.1f} s; {figures}")
    record_property("seconds", figures)
    assert len(killed) == N_KILLS


def test_a_slow_worker_costs_what_its_share_costs(record_property):
    """A worker that is stopped for nine tenths of the time makes a fit at most so many times slower."""
    settings = {**LINEAR, "C": 1e-3, "tol": 1e-6}
    with two_workers() as client:

        def fit():
            sources = SequenceSources([large_source(seed) for seed in range(PARTS)])
            start = time.time()
            crf = ChainCRF(**settings, engine=DaskEngine(client, n_partitions=PARTS)).fit(sources)
            return crf, time.time() - start

        fit()
        here, undisturbed = fit()
        pid = sorted(client.run(os.getpid).values())[0]
        ended = threading.Event()

        def hold_up():
            while not ended.is_set():
                os.kill(pid, signal.SIGSTOP)
                time.sleep(0.18)
                os.kill(pid, signal.SIGCONT)
                time.sleep(0.02)

        thread = threading.Thread(target=hold_up)
        thread.start()
        try:
            there, slow = fit()
        finally:
            ended.set()
            thread.join()
    print(f"\nundisturbed {undisturbed:.1f} s, with a worker at a tenth of its speed {slow:.1f} s")
    record_property("seconds", f"{undisturbed:.1f}, {slow:.1f}")
    np.testing.assert_array_equal(there.coef_, here.coef_)
    assert slow < 15 * undisturbed
