"""Parts of the data in bundles, on clusters whose workers are threads of this process."""

import contextlib
import operator

import numpy as np
import pytest
from sklearn.base import clone

from clusters import LINEAR, RBF, same
from kernelcrf import ChainCRF, GraphCRF, Input, KernelClassifier, MultiLabelCRF, SegmentCRF
from kernelcrf.basis import Landmarks
from kernelcrf.distributed.cluster import releasing
from kernelcrf.solvers import LBFGS

distributed = pytest.importorskip("distributed")
dask_engine = pytest.importorskip("kernelcrf.distributed.dask")
DaskEngine = dask_engine.DaskEngine

pytestmark = pytest.mark.filterwarnings("ignore::ResourceWarning", "ignore::DeprecationWarning")


@contextlib.contextmanager
def in_process(n_workers, threads=1):
    with (
        distributed.LocalCluster(
            n_workers=n_workers, threads_per_worker=threads, processes=False, dashboard_address=":0", silence_logs=50
        ) as cluster,
        distributed.Client(cluster) as client,
    ):
        yield client


@pytest.fixture(scope="module")
def cluster():
    with in_process(2, threads=2) as client:
        yield client


@pytest.fixture
def engine(cluster, monkeypatch):
    monkeypatch.setattr(dask_engine, "SECONDS_BETWEEN_CHECKS", 0.0)
    with releasing():
        yield DaskEngine(cluster)


def numbered(engine, n):
    return engine.bundle(engine.each(float, list(range(n))), 0)


def divmod_and_sum(x, y, z):
    return np.array([x, y]), x + y + z


def test_a_worker_has_one_bundle_if_the_data_fit(engine, monkeypatch):
    parts = numbered(engine, 11)
    assert [bundle.places for bundle in parts.bundles] == [tuple(range(6)), tuple(range(6, 11))]
    monkeypatch.setattr(engine, "_resources", lambda: [(2, 10**9), (2, 10**9)])
    assert len(engine.bundle(parts[:], 7 * 10**8).bundles) == 2
    assert (engine.fits(7 * 10**8), engine.fits(10**9)) == (True, False)
    # Otherwise, two threads of a worker have bundles of an eighth of its memory.
    assert len(engine.bundle(parts[:], 10**9).bundles) == 11
    assert len(engine.bundle(engine.each(float, list(range(100))), 10**9).bundles) == 16


def test_functions_of_parts_in_bundles(engine):
    parts = numbered(engine, 11)
    assert engine.fetch(engine.each(operator.add, parts, range(11), shared=())) == [2.0 * k for k in range(11)]
    assert engine.sum(operator.mul, parts, parts) == sum(k * k for k in range(11))
    total, kept = engine.reduce(divmod_and_sum, parts, [1.0] * 11, shared=(0.5,))
    np.testing.assert_array_equal(total, [55.0, 11.0])
    assert engine.fetch(kept) == [k + 1.5 for k in range(11)]
    # Some of the parts, one part alone, and a part as an argument of a function of all parts.
    some = [parts[k] for k in (1, 7, 8)]
    assert engine.fetch(engine.each(operator.sub, some, [1.0, 1.0, 1.0], shared=())) == [0.0, 6.0, 7.0]
    assert engine.fetch([engine.call(sum, some), parts[10]]) == [16.0, 10.0]
    assert engine.sum(operator.add, parts, shared=(parts[3],)) == 55.0 + 33.0


def test_arguments_in_other_bundles_are_brought_to_the_first(engine):
    parts, others = numbered(engine, 11), numbered(engine, 11)
    others.bundles = engine.bundle(others[:], 0).bundles[::-1]
    before = [bundle.places for bundle in others.bundles]
    assert engine.fetch(engine.each(operator.sub, parts, others)) == [0.0] * 11
    assert [bundle.places for bundle in others.bundles] == [bundle.places for bundle in parts.bundles] != before
    assert engine.fetch(engine.each(operator.add, parts[2:9], others[4:])) == [2.0 * k + 2 for k in range(2, 9)]


def test_parts_go_to_workers_that_join_and_come_back_from_workers_that_leave(engine, cluster):
    parts = numbered(engine, 12)
    cluster.cluster.scale(4)
    cluster.wait_for_workers(4)
    try:
        assert engine.sum(abs, parts) == 66.0
        assert sorted(len(bundle.places) for bundle in parts.bundles) == [3, 3, 3, 3]
        assert len({bundle.worker for bundle in parts.bundles}) == 4
    finally:
        cluster.cluster.scale(2)
    while len(cluster.nthreads()) > 2:
        pass
    assert engine.fetch(engine.each(abs, parts)) == list(range(12))
    assert {bundle.worker for bundle in parts.bundles} == set(cluster.nthreads())


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
def test_a_fit_has_the_same_bits_for_any_number_of_workers_and_threads(vectors):
    """Fits have the same bits after a few iterations as after many; `test_dask.py` goes on to the optimum."""
    X, y = vectors
    prior = ChainCRF("linear", C=1.0, laplace=True).fit(X[:15], y[:15])
    few, recomputed = ({**RBF, "n_components": n} for n in (8, Landmarks(8, features="recomputed")))
    tokens, labels = np.vstack(X), np.concatenate(y)
    sets = np.column_stack((labels == "up", tokens[:, 1] > 0.3)).astype(int)
    entries = {"a": Input("rbf", of="x", n_components=6), "b": Input("linear", of="x", columns=[1])}
    cases = [
        *((ChainCRF(**settings), X, y) for settings in (LINEAR, few, recomputed)),
        (ChainCRF("linear", prior=prior, tol=1e-9), X, y),
        (ChainCRF(inputs=entries, C=1.0, tol=1e-9, random_state=0), [{"x": x} for x in X], y),
        (SegmentCRF("linear", C=1.0, tol=1e-9, segment_kernel="linear"), X, y),
        (GraphCRF("linear", tol=1e-9), [(x, [[k, k + 1] for k in range(len(x) - 1)]) for x in X if len(x) > 1],
         [row for row in y if len(row) > 1]),
        (MultiLabelCRF("linear", structure="full", tol=1e-9), tokens, sets),
        (KernelClassifier(**few), tokens, labels),
    ]  # fmt: skip
    for model, *_ in cases:
        # For segments, a cluster has another preconditioner than one machine.
        model.set_params(solver=LBFGS(precondition=not isinstance(model, SegmentCRF)), max_iter=6)
    weights: list[list[np.ndarray]] = []
    for n_workers, threads in ((1, 1), (3, 2)):
        with in_process(n_workers, threads) as client:
            engine = DaskEngine(client, n_partitions=7)
            fits = [clone(model).set_params(engine=engine).fit(X, y) for model, X, y in cases]
        weights.append([fit.model_.theta for fit in fits])
    for fit, (model, X, y) in zip(fits, cases, strict=True):
        same(fit, model.fit(X, y), X)
    for other in weights[1:]:
        for one, two in zip(other, weights[0], strict=True):
            np.testing.assert_array_equal(one, two)


class Changing(DaskEngine):
    """Changes the number of workers at some of its sums."""

    n_sums, changes = 0, {5: 4, 12: 1, 20: 3}

    def sum(self, *arguments, **options):
        self.n_sums += 1
        if self.n_sums in self.changes:
            self.client.cluster.scale(self.changes[self.n_sums])
            if self.changes[self.n_sums] > 1:
                self.client.wait_for_workers(self.changes[self.n_sums])
        return super().sum(*arguments, **options)


@pytest.mark.slow
def test_a_fit_goes_on_when_workers_join_and_leave(vectors, monkeypatch):
    monkeypatch.setattr(dask_engine, "SECONDS_BETWEEN_CHECKS", 0.0)
    settings = {**RBF, "solver": "newton-cg"}
    with in_process(2) as client:
        engine = Changing(client, n_partitions=9)
        there = ChainCRF(**settings, engine=engine).fit(*vectors)
    assert engine.n_sums > 20
    same(there, ChainCRF(**settings).fit(*vectors), vectors[0])
