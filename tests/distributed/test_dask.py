"""A real cluster of two worker processes; `test_lost_workers` kills workers."""

import copy
import pickle
import re
import runpy
import subprocess
import sys
import textwrap
import threading
import time
import types
from functools import partial
from pathlib import Path

import numpy as np
import pytest

import kernelcrf
from bases import Farthest
from clusters import LINEAR, RBF, fast_starts, same
from kernelcrf import ChainCRF, Input
from kernelcrf.basis import Landmarks
from kernelcrf.datasets import make_sequences
from kernelcrf.distributed import read_parquet, tag_parquet
from kernelcrf.distributed.cluster import releasing
from kernelcrf.distributed.sources import RawSequences, SequenceSources

distributed = pytest.importorskip("distributed")
dask = pytest.importorskip("dask")
dask_engine = pytest.importorskip("kernelcrf.distributed.dask")
DaskEngine = dask_engine.DaskEngine

pytestmark = pytest.mark.filterwarnings("ignore::ResourceWarning", "ignore::DeprecationWarning")


@pytest.fixture
def engine(client):
    with releasing():
        yield DaskEngine(client, n_partitions=4)


@pytest.fixture(scope="module")
def words():
    rng = np.random.default_rng(2)
    names = [f"w={k}" for k in range(12)]
    X = [[[names[k], f"odd={k % 2}"] for k in rng.integers(12, size=rng.integers(1, 9))] for _ in range(60)]
    y = [["AB"[int(token[0][2:]) % 3 > 0] if rng.random() > 0.1 else "C" for token in x] for x in X]
    return X, y


def test_sums_are_in_order_and_arguments_travel(engine):
    values = [0.1, 0.2, 0.3, 1e17, -1e17]
    expected = ((np.full(3, 0.1) + 0.2) + 0.3) + (1e17 + -1e17)
    np.testing.assert_array_equal(engine.sum(np.full, [3] * 5, values), expected)
    large = np.arange(50_000.0)
    np.testing.assert_array_equal(engine.fetch(engine.each(np.multiply, [2.0, 3.0], shared=(large,)))[1], 3 * large)
    few = DaskEngine(engine.client, fan_in=2)
    assert few.sum(float, [1, 2, 3, 4, 5]) == 15.0
    with pytest.raises(ValueError, match="there are no parts"):
        few.sum(float, [])
    assert engine.status() == "2 workers"


def test_what_a_worker_cannot_import_is_an_error_and_no_hang(engine, monkeypatch):
    module = types.ModuleType("nowhere")
    exec("class Source:\n    def __call__(self):\n        return 3\n", module.__dict__)
    module.Source.__module__ = "nowhere"
    monkeypatch.setitem(sys.modules, "nowhere", module)
    with pytest.raises(ModuleNotFoundError, match="nowhere"):
        engine.fetch(engine.load([module.Source()]))
    assert engine.fetch(engine.load([lambda: 4])) == [4]


def test_an_engine_is_one_connection(engine):
    assert copy.deepcopy(engine) is engine
    assert "tcp://" in repr(engine)
    again = pickle.loads(pickle.dumps(engine))
    assert (again.n_partitions, again.fan_in) == (4, 8)
    for wrong in ({"n_partitions": 0}, {"fan_in": 1}, {"attempts": 0}):
        with pytest.raises(ValueError, match=rf"{next(iter(wrong))}="):
            DaskEngine(engine.client, **wrong)


def test_a_missing_client_is_named_and_the_client_given_need_not_be_the_current_one():
    """In a process of its own: in this one, another test's client may be the current one."""
    code = textwrap.dedent("""
        from functools import partial

        from distributed import Client
        from kernelcrf import ChainCRF
        from kernelcrf.datasets import make_sequences
        from kernelcrf.distributed import DaskEngine, RawSequences, SequenceSources

        try:
            ChainCRF("linear").fit(SequenceSources([partial(RawSequences, [[{"w": "a"}]], [["A"]])]))
        except ValueError as error:
            print(error)
        data = make_sequences(20, random_state=0)
        try:
            ChainCRF("linear", engine=DaskEngine()).fit(data.X, data.y)
        except ConnectionError as error:
            print(error)
        with Client(processes=False, dashboard_address=":0", set_as_default=False) as client:
            print(ChainCRF("linear", engine=DaskEngine(client)).fit(data.X, data.y).certificate_.status)
    """)
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    missing, no_client, status = done.stdout.splitlines()
    assert missing.startswith("the data have to be loaded on a cluster, but there is no Dask client")
    assert "because there is no Dask client; it was closed, or never started: start the cluster" in no_client
    assert status == "optimal"


def test_without_dask_it_is_said_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "distributed", None)
    said = r"DaskEngine needs distributed, which is not installed: run pip install 'kernelcrf\[dask\]'"
    with pytest.raises(ModuleNotFoundError, match=said):
        runpy.run_path(dask_engine.__file__)


@pytest.mark.parametrize(
    "settings",
    [
        LINEAR,
        RBF,
        {**RBF, "n_components": Landmarks(10, "random"), "solver": "newton-cg"},
        {**RBF, "n_components": Landmarks(10, Farthest()), "laplace": True},
        {**RBF, "n_components": Landmarks(25, features="recomputed")},
    ],
)
def test_a_fit_is_that_of_one_machine(engine, vectors, settings):
    same(ChainCRF(**settings, engine=engine).fit(*vectors), ChainCRF(**settings).fit(*vectors), vectors[0])


def test_scores_of_first_and_last_labels_are_those_of_one_machine(engine):
    data = make_sequences(40, random_state=0)
    crf = ChainCRF("linear", C=2.0, tol=1e-9, fit_intercept="boundaries")
    here, there = (copy.copy(crf).set_params(engine=one).fit(data.X, data.y) for one in (None, engine))
    assert there.certificate_.objective == pytest.approx(here.certificate_.objective, rel=1e-9)
    np.testing.assert_allclose(there.start_scores_, here.start_scores_, atol=1e-4)


def test_pairs_of_features_and_labels_are_found_in_all_parts(engine, words):
    crf = ChainCRF("linear", C=1.0, tol=1e-8, solver="lbfgs", weights=("observed", "observed"))
    here, there = (copy.copy(crf).set_params(engine=one).fit(*words) for one in (None, engine))
    assert (here.coef_ == 0).any()
    np.testing.assert_array_equal(there.coef_ != 0, here.coef_ != 0)
    np.testing.assert_allclose(there.coef_, here.coef_, atol=1e-3)
    assert there.certificate_.objective == pytest.approx(here.certificate_.objective, rel=1e-7)


def test_inputs_in_parts_of_dask_need_no_engine(engine, words):
    from dask import bag

    X, y = words
    here = ChainCRF(**LINEAR).fit(X, y)
    bags = (bag.from_sequence(part, npartitions=3) for part in (X, y))
    same(ChainCRF(**LINEAR).fit(*bags), here, X)
    cuts = [slice(0, 25), slice(25, 60)]
    delayed = ([dask.delayed(part[cut]) for cut in cuts] for part in (X, y))
    same(ChainCRF(**LINEAR).fit(*delayed), here, X)
    with pytest.raises(TypeError, match="expected a Dask collection with as many partitions as X"):
        ChainCRF(**LINEAR).fit(bag.from_sequence(X, npartitions=3), y)


def test_a_frame_has_columns_by_name(engine, words):
    pd = pytest.importorskip("pandas")
    dd = pytest.importorskip("dask.dataframe")
    X, y = words
    here = ChainCRF(**LINEAR).fit(X, y, sample_weight=np.linspace(1, 2, len(X)))
    with dask.config.set({"dataframe.convert-string": False}):
        frame = dd.from_pandas(
            pd.DataFrame({"features": X, "labels": y, "weight": np.linspace(1, 2, len(X))}), npartitions=3
        )
        same(ChainCRF(**LINEAR).fit(frame), here, X)
        with pytest.raises(ValueError, match="expected a column 'tags'"):
            ChainCRF(**LINEAR).fit(frame, "tags")


@pytest.mark.parametrize("layout", ["sequences", "tokens"])
def test_parquet_is_read_and_written_by_the_workers(engine, words, layout, tmp_path):
    pa, pq = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    X, y = words
    (tmp_path / "data").mkdir()
    names = [f"s{i}" for i in range(len(X))]
    for k, own in enumerate((range(0, 35), range(35, 60))):
        if layout == "sequences":
            table = pa.table(
                {"id": [names[i] for i in own], "features": [X[i] for i in own], "labels": [y[i] for i in own]}
            )
        else:
            rows = [(names[i], token, label) for i in own for token, label in zip(X[i], y[i], strict=True)]
            table = pa.table(dict(zip(("id", "features", "labels"), map(list, zip(*rows, strict=True)), strict=True)))
        pq.write_table(table, tmp_path / "data" / f"{k}.parquet", row_group_size=12 if layout == "sequences" else 10**6)
    sequence = "id" if layout == "tokens" else None
    data = read_parquet(tmp_path / "data", sequence=sequence)
    assert len(data) == (6 if layout == "sequences" else 2)
    crf = ChainCRF(**LINEAR, engine=engine).fit(data)
    here = ChainCRF(**LINEAR).fit(X, y)
    same(crf, here, X)
    for _ in range(2):
        told = tag_parquet(
            crf, tmp_path / "data", tmp_path / "out", sequence=sequence, keep=["id"], probabilities=True, engine=engine
        )
        assert (told.sequences, told.tokens) == (60, sum(map(len, X)))
    found = pq.read_table(tmp_path / "out")
    expected = [row.tolist() for row in here.predict(X)]
    labels = found.column("labels").to_pylist()
    assert labels == (expected if layout == "sequences" else [label for row in expected for label in row])
    p = [row[np.arange(len(row)), row.argmax(axis=1)] for row in here.predict_proba(X)]
    flat = np.array(
        found.column("probabilities").combine_chunks().flatten()
        if layout == "sequences"
        else found.column("probabilities")
    )
    assert flat.max() <= 1
    assert flat.mean() == pytest.approx(np.concatenate(p).mean(), abs=0.05)
    assert not list((tmp_path / "out").glob("*.partial"))


def test_dask_knows_the_size_of_what_workers_hold():
    part = RawSequences(np.zeros((2_000, 100)), lengths=np.full(100, 20))
    assert dask.sizeof.sizeof(part) > part.X.nbytes
    words = [[["w=1", "odd=1"]] * 20] * 100
    assert dask.sizeof.sizeof(RawSequences(words, [["A"] * 20] * 100)) > 10_000


def test_workers_without_memory_to_go_on_are_named(engine, client, monkeypatch):
    monkeypatch.setattr(dask_engine, "PATIENCE", 0.5)
    monkeypatch.setattr(dask_engine, "LEAST_DISK", 2**80)
    folder = next(iter(client.run(lambda dask_worker: dask_worker.local_directory).values()))

    def pause_from(fraction):
        client.run(lambda dask_worker: setattr(dask_worker.memory_manager, "memory_pause_fraction", fraction))

    pause_from(1e-6)
    while {one["status"] for one in client.scheduler_info()["workers"].values()} != {"paused"}:
        time.sleep(0.05)
    threading.Timer(2.0, pause_from, (0.8,)).start()
    said = f"all workers are paused.*n_partitions.*No space is left on the disk of .*{re.escape(folder)}"
    with pytest.warns(RuntimeWarning, match=said):
        assert engine.sum(abs, [-1, 2]) == 3


def test_a_full_disk_is_named_when_workers_were_killed(engine, monkeypatch):
    def kill(client, handles):
        raise distributed.KilledWorker("a task", types.SimpleNamespace(address="tcp://lost"), 3)

    monkeypatch.setattr(engine, "_wait", kill)
    monkeypatch.setattr(dask_engine, "LEAST_DISK", 2**80)
    with pytest.raises(distributed.KilledWorker, match=r"No space is left on the disk of .*local_directory"):
        engine.fetch(engine.each(abs, [-1]))
    monkeypatch.setattr(dask_engine, "LEAST_DISK", 0)
    with pytest.raises(distributed.KilledWorker) as caught:
        engine.fetch(engine.each(abs, [-1]))
    assert not hasattr(caught.value, "__notes__")


def flaky(part, marks, failures):
    """A source whose first reads fail."""

    def read():
        tried = len(list(marks.glob("*")))
        if tried < failures:
            (marks / str(tried)).touch()
            raise OSError("the disk is away")
        return part

    return read


def test_a_read_that_fails_is_tried_again(engine, vectors, tmp_path):
    X, y = vectors
    parts = [flaky(RawSequences(X[:30], y[:30]), tmp_path, 2), partial(RawSequences, X[30:], y[30:])]
    same(ChainCRF(**RBF, engine=engine).fit(SequenceSources(parts)), ChainCRF(**RBF).fit(X, y), X)
    (tmp_path / "more").mkdir()
    with pytest.raises(OSError, match="the disk is away"):
        ChainCRF(**RBF, engine=engine).fit(SequenceSources([flaky(RawSequences(X, y), tmp_path / "more", 100)]))


def test_errors_of_workers_are_those_of_the_library(engine, vectors):
    X, y = vectors
    with pytest.raises(ValueError, match=r"y\[0\] has 1 labels and X\[0\] has 3 tokens"):
        ChainCRF(**RBF, engine=engine).fit([X[0][:1].repeat(3, axis=0), *X[1:]], [["up"], *y[1:]])


def test_a_model_fitted_on_a_cluster_is_saved_without_it(engine, vectors, tmp_path):
    crf = ChainCRF(**RBF, engine=engine).fit(*vectors)
    crf.save(tmp_path / "model")
    loaded = kernelcrf.load(tmp_path / "model")
    assert loaded.engine is None
    same(loaded, crf, vectors[0])


def test_sequences_of_many_shapes_agree(engine):
    data = make_sequences(40, random_state=3)
    inputs = {"tokens": Input("rbf", n_components=10), "steps": Input("linear", scores="steps")}
    settings = {"inputs": inputs, "C": 1.0, "random_state": 0, "tol": 1e-9}
    same(ChainCRF(**settings, engine=engine).fit(data.X, data.y), ChainCRF(**settings).fit(data.X, data.y), data.X)


def test_the_first_program_of_the_guide_runs(capsys):
    page = (Path(__file__).parents[2] / "docs" / "scaling.md").read_text(encoding="utf-8")
    with fast_starts():
        exec(page.split("```python\n")[1].split("```")[0], {})
    assert capsys.readouterr().out == "optimal\n"
