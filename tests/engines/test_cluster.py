"""What work that failed leaves behind, on the workers of a real cluster and in the folder that they write to."""

import contextlib
import gc
import os
import signal
import sys
import threading
import time

import numpy as np
import pytest

from clusters import two_workers
from kernelcrf import ChainCRF
from kernelcrf.estimators.parts import Partitions, Sequences
from kernelcrf.formats import FormatError
from kernelcrf.formats.partitioned import read_parquet, tag_parquet

pytest.importorskip("distributed")
DaskEngine = pytest.importorskip("kernelcrf.engines.dask").DaskEngine

pytestmark = pytest.mark.filterwarnings("ignore::ResourceWarning", "ignore::DeprecationWarning")


@pytest.fixture(scope="module")
def client():
    with two_workers() as client:
        yield client


@pytest.fixture(scope="module")
def data():
    rng = np.random.default_rng(0)
    X = [rng.normal(size=(20, 3)) for _ in range(40)]
    return X, [np.where(x[:, 0] > 0, "up", "down").tolist() for x in X]


@pytest.fixture
def no_garbage_collection():
    """Objects in a cycle stay, as they do in a program that does little: nothing may depend on their collection."""
    gc.collect()
    gc.disable()
    yield
    gc.enable()


def held(client):
    """How many results the workers hold, and how many tasks the scheduler knows, once both are at rest."""
    for _ in range(100):
        left = sum(client.run(lambda dask_worker: len(dask_worker.data)).values()), len(client.cluster.scheduler.tasks)
        if left == (0, 0):
            break
        time.sleep(0.05)
    return left


class Failing(ChainCRF):
    """Fails when it hears of an iteration."""

    def _progress(self, data):
        def fail(record):
            raise RuntimeError("the callback failed")

        return contextlib.nullcontext(fail)


@pytest.mark.usefixtures("no_garbage_collection")
@pytest.mark.parametrize("moment", ["reading", "iterating"])
def test_workers_hold_nothing_after_fits_that_failed(client, data, moment):
    X, y = data
    engine, errors = DaskEngine(client, n_partitions=4), []
    if moment == "reading":
        crf, y, said = ChainCRF("linear", engine=engine), [y[0], ["up"], *y[2:]], r"y\[1\] has 1 labels"
    else:
        crf, said = Failing(n_components=10, engine=engine, random_state=0), "the callback failed"
    for _ in range(3):
        with pytest.raises((ValueError, RuntimeError), match=said) as caught:
            crf.fit(X, y)
        errors.append(caught.value)
        # The caller still has the error, and with it the frames that it came through.
        assert held(client) == (0, 0)
    assert len(errors) == 3


@pytest.mark.usefixtures("no_garbage_collection")
def test_workers_hold_nothing_after_a_fit(client, data):
    crf = ChainCRF(n_components=10, random_state=0, engine=DaskEngine(client, n_partitions=4)).fit(*data)
    assert held(client) == (0, 0)
    assert crf.certificate_.status == "optimal"


@pytest.mark.skipif(sys.platform == "win32", reason="signals are sent to the process itself")
@pytest.mark.usefixtures("no_garbage_collection")
def test_workers_hold_nothing_after_a_fit_that_was_interrupted(client, data, tmp_path):
    started, end = tmp_path / "started", tmp_path / "end"

    def slow():
        started.touch()
        while not end.exists():
            time.sleep(0.01)
        return Sequences(*data)

    def interrupt():
        while not started.exists():
            time.sleep(0.01)
        os.kill(os.getpid(), signal.SIGINT)

    thread = threading.Thread(target=interrupt)
    thread.start()
    with pytest.raises(KeyboardInterrupt):
        ChainCRF("linear", engine=DaskEngine(client)).fit(Partitions([slow, lambda: Sequences(*data)]))
    thread.join()
    end.touch()
    assert held(client) == (0, 0)


def dies_once_while_writing(crf, mark):
    """The model, whose first prediction has its worker killed halfway through the Parquet file that it writes next."""

    class Deadly(type(crf)):
        def predict(self, X, lengths=None):
            import pyarrow.parquet

            def half(table, where, **options):
                with open(where, "wb") as file:
                    file.write(b"PAR1 half of a file")
                os.kill(os.getpid(), signal.SIGKILL)

            if not mark.exists():
                mark.touch()
                pyarrow.parquet.write_table = half
            return super().predict(X, lengths)

    deadly = Deadly()
    deadly.__dict__.update(crf.__dict__)
    return deadly


@pytest.mark.skipif(sys.platform == "win32", reason="a process is not killed by a signal there")
def test_a_worker_that_is_killed_while_it_writes_leaves_a_folder_that_can_be_read(tmp_path):
    pa, pq = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    words = [[["w=a"], ["w=b"]], [["w=b"]], [["w=b"], ["w=a"]]] * 2
    y = [[token[0][2:].upper() for token in x] for x in words]
    crf = ChainCRF("linear", C=10.0).fit(words, y)
    pq.write_table(pa.table({"features": words}), tmp_path / "data.parquet", row_group_size=1)
    source, out = tmp_path / "data.parquet", tmp_path / "out"
    with two_workers(**{"distributed.scheduler.allowed-failures": 0}) as client:
        with pytest.raises(Exception, match="_alone"):
            tag_parquet(
                dies_once_while_writing(crf, tmp_path / "mark"), source, out, engine=DaskEngine(client, attempts=1)
            )
        assert len(list(out.glob(".*.partial"))) == 1
        # What is whole can be read, by Arrow and by the library.
        whole = sorted(out.glob("*.parquet"))
        if whole:
            assert pq.read_table(out).num_rows == len(read_parquet(out, labels=None)) == len(whole)
        other = ChainCRF("linear", C=1.0).fit(words, y)
        with pytest.raises(FormatError, match="differs in its model"):
            tag_parquet(other, source, out, engine=DaskEngine(client))
        told = tag_parquet(crf, source, out, engine=DaskEngine(client))
    assert told.sequences == len(words)
    assert pq.read_table(out).column("labels").to_pylist() == y
    assert sorted(path.name for path in out.iterdir()) == ["_run.json", *(f"part-{k:06d}.parquet" for k in range(6))]
