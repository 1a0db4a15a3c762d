"""Workers that die, that run out of memory, or that are killed while they write."""

import os
import signal
import sys
import threading
import time
from functools import partial

import numpy as np
import pytest

from clusters import LINEAR, RBF, same, two_workers
from kernelcrf import ChainCRF
from kernelcrf.distributed import RawSequences, SequenceSources, read_parquet, tag_parquet
from kernelcrf.distributed.cluster import releasing
from kernelcrf.formats import FormatError

distributed = pytest.importorskip("distributed")
DaskEngine = pytest.importorskip("kernelcrf.distributed.dask").DaskEngine

pytestmark = [
    pytest.mark.filterwarnings("ignore::ResourceWarning", "ignore::DeprecationWarning"),
    pytest.mark.skipif(sys.platform == "win32", reason="a process is not killed by a signal there"),
]


@pytest.fixture(scope="module")
def cluster():
    with two_workers() as client:
        yield client


@pytest.fixture
def mortal(cluster):
    """The client of a cluster whose workers may be killed; others take their place."""
    while len(cluster.scheduler_info()["workers"]) < 2:
        try:
            cluster.wait_for_workers(2, timeout=20)
        except TimeoutError:
            add_worker(cluster)
    timer = threading.Timer(30, add_worker, (cluster,))
    timer.start()
    yield cluster
    timer.cancel()


def add_worker(client):
    """Dask starts a worker in place of one that was killed, but now and then it does not."""
    client.cluster.scale(len(client.cluster.worker_spec) + 1)


class Watched(DaskEngine):
    """Calls a function with the number of each sum before the sum is taken."""

    def __init__(self, client, told, **settings):
        super().__init__(client, **settings)
        self.told, self.n_sums = told, 0

    def sum(self, *arguments, **options):
        self.told(self.n_sums)
        self.n_sums += 1
        return super().sum(*arguments, **options)


def kill_workers(client, n, at, k):
    if k == at:
        for pid in list(client.run(os.getpid).values())[:n]:
            os.kill(pid, signal.SIGKILL)


@pytest.mark.parametrize(
    ("n", "at"),
    [(1, 0), pytest.param(1, 12, marks=pytest.mark.slow), (None, 12)],
    ids=["reading", "iterating", "all at once"],
)
def test_workers_that_die_take_nothing_with_them(mortal, vectors, n, at):
    engine = Watched(mortal, partial(kill_workers, mortal, n, at), n_partitions=4)
    there = ChainCRF(**RBF, engine=engine).fit(*vectors)
    assert engine.n_sums > 12
    same(there, ChainCRF(**RBF).fit(*vectors), vectors[0])


@pytest.mark.parametrize(
    "allowed_failures", [pytest.param(20, marks=pytest.mark.slow), 0], ids=["Dask tries again", "Dask gives up"]
)
def test_all_workers_may_die_while_they_read(mortal, vectors, tmp_path, monkeypatch, allowed_failures):
    monkeypatch.setattr(mortal.cluster.scheduler, "allowed_failures", allowed_failures)
    engine = DaskEngine(mortal, attempts=3)
    sources = [kill_once(part, tmp_path / str(k)) for k, part in enumerate(halves(*vectors))]
    same(ChainCRF(**RBF, engine=engine).fit(SequenceSources(sources)), ChainCRF(**RBF).fit(*vectors), vectors[0])
    if not allowed_failures:
        with releasing(), pytest.raises(distributed.KilledWorker):
            engine.fetch([engine.call(lambda: os.kill(os.getpid(), signal.SIGKILL))])


def halves(X, y):
    half = len(X) // 2
    return [RawSequences(X[:half], y[:half]), RawSequences(X[half:], y[half:])]


def kill_once(part, mark):
    """A read that kills its worker once, when the other worker is reading too."""

    def read():
        if not mark.exists():
            mark.touch()
            while len(list(mark.parent.iterdir())) < 2:
                time.sleep(0.01)
            os.kill(os.getpid(), signal.SIGKILL)
        return part

    return read


def dies_once_while_writing(crf, mark):
    """The model, whose first answer has its worker killed halfway through the Parquet file that it writes next."""

    class Deadly(type(crf)):
        def distribution(self, X, lengths=None, **options):
            import pyarrow.parquet

            def half(table, where, **options):
                with open(where, "wb") as file:
                    file.write(b"PAR1 half of a file")
                os.kill(os.getpid(), signal.SIGKILL)

            if not mark.exists():
                mark.touch()
                pyarrow.parquet.write_table = half
            return super().distribution(X, lengths, **options)

    deadly = Deadly()
    deadly.__dict__.update(crf.__dict__)
    return deadly


def test_a_worker_that_is_killed_while_it_writes_leaves_a_folder_that_can_be_read(mortal, tmp_path, monkeypatch):
    monkeypatch.setattr(mortal.cluster.scheduler, "allowed_failures", 0)
    pa, pq = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    words = [[["w=a"], ["w=b"]], [["w=b"]], [["w=b"], ["w=a"]]] * 2
    y = [[token[0][2:].upper() for token in x] for x in words]
    crf = ChainCRF("linear", C=10.0).fit(words, y)
    pq.write_table(pa.table({"features": words}), tmp_path / "data.parquet", row_group_size=1)
    source, out = tmp_path / "data.parquet", tmp_path / "out"
    with pytest.raises(distributed.KilledWorker):
        tag_parquet(dies_once_while_writing(crf, tmp_path / "mark"), source, out, engine=DaskEngine(mortal, attempts=1))
    assert len(list(out.glob(".*.partial"))) == 1
    # Complete files can be read, by Arrow and by the library.
    whole = sorted(out.glob("*.parquet"))
    if whole:
        assert pq.read_table(out).num_rows == len(read_parquet(out, labels=None)) == len(whole)
    other = ChainCRF("linear", C=1.0).fit(words, y)
    with pytest.raises(FormatError, match="differs in its model"):
        tag_parquet(other, source, out, engine=DaskEngine(mortal))
    report = tag_parquet(crf, source, out, engine=DaskEngine(mortal))
    assert report.sequences == len(words)
    assert pq.read_table(out).column("labels").to_pylist() == y
    assert sorted(path.name for path in out.iterdir()) == ["_run.json", *(f"part-{k:06d}.parquet" for k in range(6))]


def dense_source(seed):
    def read():
        rng = np.random.default_rng(seed)
        X = rng.normal(size=(800, 100))
        return RawSequences(X, np.where(X[:, 0] > 0, "up", "down").tolist(), lengths=np.full(40, 20))

    return read


def test_data_larger_than_memory_are_spilled():
    """Workers that may hold 2 MB each, and 6.4 MB of inputs."""
    sources = [dense_source(k) for k in range(10)]
    spilled = []
    with two_workers("1 GB", **{"distributed.worker.memory.target": 0.002}) as client:
        assert DaskEngine(client).parts_of(3 * 10**9, 10**6) == 96

        def told(k):
            if k < 8:
                spilled.append(sum(client.run(lambda dask_worker: dask_worker.data.spilled_total.disk).values()))

        engine = Watched(client, told, n_partitions=10)
        there = ChainCRF(**{**LINEAR, "C": 1e-3}, engine=engine).fit(SequenceSources(sources))
    assert max(spilled) > 3e6
    parts = [source() for source in sources]
    X = [x for part in parts for x in np.split(part.X, 40)]
    y = [part.y[low : low + 20] for part in parts for low in range(0, 800, 20)]
    same(there, ChainCRF(**{**LINEAR, "C": 1e-3}).fit(X, y), X[:200])
    assert repr(there.engine) == "DaskEngine()"
