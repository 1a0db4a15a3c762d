"""Workers of a real cluster hold nothing after work that ended, failed or was interrupted."""

import gc
import os
import signal
import sys
import threading
import time

import numpy as np
import pytest

from kernelcrf import ChainCRF
from kernelcrf.distributed import RawSequences, SequenceSources, tag_parquet
from kernelcrf.distributed.cluster import releasing
from kernelcrf.formats import FormatError

pytest.importorskip("distributed")
DaskEngine = pytest.importorskip("kernelcrf.distributed.dask").DaskEngine

pytestmark = pytest.mark.filterwarnings("ignore::ResourceWarning", "ignore::DeprecationWarning")


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
    """The results that the workers hold, and the tasks that the scheduler knows, once both are at rest."""
    for _ in range(100):
        results = client.run(lambda dask_worker: list(dask_worker.data))
        left = [key for keys in results.values() for key in keys] + list(client.cluster.scheduler.tasks.values())
        if not left:
            break
        time.sleep(0.05)
    return left


class Failing(DaskEngine):
    """Fails at its tenth sum."""

    n_sums = 0

    def sum(self, *arguments, **options):
        self.n_sums += 1
        if self.n_sums == 10:
            raise RuntimeError("the sum failed")
        return super().sum(*arguments, **options)


@pytest.mark.usefixtures("no_garbage_collection")
@pytest.mark.parametrize("moment", ["reading", "iterating"])
def test_workers_hold_nothing_after_fits_that_failed(client, data, moment):
    X, y = data
    errors = []
    if moment == "reading":
        engine, y, said = DaskEngine, [y[0], ["up"], *y[2:]], r"y\[1\] has 1 labels"
    else:
        engine, said = Failing, "the sum failed"
    for _ in range(2):
        crf = ChainCRF(n_components=10, engine=engine(client, n_partitions=4), random_state=0, C=1.0)
        with pytest.raises((ValueError, RuntimeError), match=said) as caught:
            crf.fit(X, y)
        errors.append(caught.value)
        # The caller still has the error, and with it the frames that it came through.
        assert held(client) == []
    assert len(errors) == 2


@pytest.mark.usefixtures("no_garbage_collection")
def test_workers_hold_nothing_after_labelling_failed(client, tmp_path):
    pa, pq = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    crf = ChainCRF("linear", C=1.0).fit([[["w=a"]], [["w=b"]]], [["A"], ["B"]])
    pq.write_table(pa.table({"features": [["w=a"]]}), tmp_path / "data.parquet")
    with pytest.raises(FormatError, match="'of'") as caught:
        tag_parquet(crf, tmp_path / "data.parquet", tmp_path / "out", sequence="of", engine=DaskEngine(client))
    assert held(client) == []
    assert caught.value.__traceback__ is not None


@pytest.mark.usefixtures("no_garbage_collection")
def test_work_is_refused_where_nothing_would_release_it(client):
    engine = DaskEngine(client)
    with pytest.raises(RuntimeError, match=r"outside of a block `with kernelcrf\.distributed\.cluster\.releasing\(\):"):
        engine.call(abs, -1)
    with releasing(), pytest.raises(ZeroDivisionError) as caught:
        engine.fetch(engine.each(divmod, [1, 2], [0, 1]))
    assert held(client) == []
    assert caught.value.__traceback__ is not None


@pytest.mark.usefixtures("no_garbage_collection")
def test_workers_hold_nothing_after_a_fit(client, data):
    crf = ChainCRF(n_components=10, random_state=0, engine=DaskEngine(client, n_partitions=4), C=1.0).fit(*data)
    assert held(client) == []
    assert crf.certificate_.status == "optimal"


@pytest.mark.skipif(sys.platform == "win32", reason="signals are sent to the process itself")
@pytest.mark.usefixtures("no_garbage_collection", "interruptible")
def test_workers_hold_nothing_after_a_fit_that_was_interrupted(client, data, tmp_path):
    started, end = tmp_path / "started", tmp_path / "end"

    def slow():
        started.touch()
        while not end.exists():
            time.sleep(0.01)
        return RawSequences(*data)

    def interrupt():
        while not started.exists():
            time.sleep(0.01)
        os.kill(os.getpid(), signal.SIGINT)

    thread = threading.Thread(target=interrupt)
    thread.start()
    with pytest.raises(KeyboardInterrupt):
        ChainCRF("linear", engine=DaskEngine(client), C=1.0).fit(SequenceSources([slow, lambda: RawSequences(*data)]))
    thread.join()
    end.touch()
    assert held(client) == []
