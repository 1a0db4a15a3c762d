"""Clients and schedulers that end in the middle of a fit."""

import contextlib

import pytest

from clusters import LINEAR, same
from kernelcrf import ChainCRF
from kernelcrf.datasets import make_sequences
from kernelcrf.fitting.checkpoints import Checkpoint

distributed = pytest.importorskip("distributed")
DaskEngine = pytest.importorskip("kernelcrf.distributed.dask").DaskEngine

# A fit that goes on from a checkpoint has other iterations, and meets the others at the optimum.
TIGHT = LINEAR | {"tol": 1e-9}

pytestmark = pytest.mark.filterwarnings("ignore::ResourceWarning", "ignore::DeprecationWarning")


@pytest.fixture
def cluster():
    """A scheduler and a worker in this process."""
    with distributed.LocalCluster(
        n_workers=1, threads_per_worker=1, processes=False, dashboard_address=":0", silence_logs=50
    ) as cluster:
        yield cluster


class Ending(DaskEngine):
    """Calls a function before its eighth sum."""

    def __init__(self, client, end):
        super().__init__(client, n_partitions=2)
        self.end, self.n_sums = end, 0

    def sum(self, *arguments, **options):
        self.n_sums += 1
        if self.n_sums == 8:
            self.end()
        return super().sum(*arguments, **options)


@pytest.mark.parametrize("lost", ["client", "current client", "cluster", "scheduler"])
def test_what_was_lost_is_named_and_a_checkpoint_goes_on(cluster, tmp_path, lost):
    said = "the Dask client was closed, or lost its scheduler"
    data = make_sequences(20, random_state=0)
    settings = {**TIGHT, "checkpoint": Checkpoint(tmp_path / "fit.ckpt", every=1)}
    # A client that knows only the address does not know that its cluster was closed, and looks for the scheduler.
    client = distributed.Client(cluster.scheduler_address if lost == "scheduler" else cluster, timeout=1)
    end = client.close if lost.endswith("client") else cluster.close
    with contextlib.closing(client), client.as_current():
        engine = Ending(None if lost == "current client" else client, end)
        with pytest.raises(ConnectionError, match=rf"not finished, because {said}: .*repeat the call.*checkpoint="):
            ChainCRF(**settings, engine=engine).fit(data.X, data.y)
    here = ChainCRF(**TIGHT).fit(data.X, data.y)
    same(ChainCRF(**settings).fit(data.X, data.y), here, data.X)
