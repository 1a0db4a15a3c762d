"""A Dask cluster of two worker processes on one machine: what it returns, what it survives, what it costs.

`equality`: a fit on the cluster beside one in this process, CoNLL-2000 (linear, names of features) and handwritten
letters (rbf). `faults`: a fit of letters while workers are killed (kill -9) at random iterations, all of them in turn
and at once, one is stopped for 30 s, a read fails twice, and the client itself is killed and its run taken up from a
checkpoint; the seconds are those beyond an undisturbed fit. `cost`: a pass over 8 parts of 20,000 x
512 numbers with 10 labels on two workers of one thread, beside half the time of a bare loop of the same matrix products
on one thread; and what a pass costs where there is nothing to compute, by the number of parts. `memory`: a linear fit
of dense inputs more than three times as large as the memory limits of the workers. `tokens`: ten million tokens,
written to Parquet, read and hashed, fitted with C = 0.02 to a certified gap of 1 % and labelled back to Parquet.

python benchmarks/cluster.py --only cost        one of them; the others stay as they are on file
"""

from __future__ import annotations

import argparse
import contextlib
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
import warnings
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import dask
import numpy as np
import psutil
import pyarrow as pa
import pyarrow.parquet as pq
from distributed import Client, LocalCluster
from scipy.optimize import minimize

import common
from kernelcrf import ChainCRF
from kernelcrf.checkpoints import Checkpoint
from kernelcrf.datasets import load_conll2000, load_letters
from kernelcrf.engines.dask import DaskEngine
from kernelcrf.engines.local import LocalEngine
from kernelcrf.estimators.parts import Partitions, Sequences
from kernelcrf.formats.partitioned import read_parquet, tag_parquet
from kernelcrf.graphs.structure import Chains
from kernelcrf.kernels.cliques import CliqueKernel, LabelKernel
from kernelcrf.kernels.inputs import InputKernel
from kernelcrf.objective import Objective
from kernelcrf.parameters import Layout, TemplateBlock
from kernelcrf.partitions.chains import ChainPartition
from kernelcrf.partitions.features import TokenFeatures
from kernelcrf.partitions.shards import Shards

TRIALS = 20


@contextlib.contextmanager
def workers(n: int = 2, memory: str | None = None) -> Iterator[Client]:
    patient = {"distributed.scheduler.allowed-failures": 100, "distributed.comm.timeouts.connect": "180s"}
    limit = {} if memory is None else {"memory_limit": memory}
    with (
        dask.config.set(patient),
        LocalCluster(n_workers=n, threads_per_worker=1, dashboard_address=":0", silence_logs=50, **limit) as cluster,
        Client(cluster) as client,
    ):
        yield client


# equality


def words_of(data: Any) -> list[list[dict[str, str]]]:
    """Words and parts of speech in a window of three."""
    found = []
    for sentence in data.X:
        padded = [{"word": "", "pos": ""}, *sentence, {"word": "", "pos": ""}]
        found.append(
            [
                {f"{key}{k}": padded[t + 1 + k][key] for key in ("word", "pos") for k in (-1, 0, 1)}
                for t in range(len(sentence))
            ]
        )
    return found


def equality(options: argparse.Namespace) -> dict[str, Any]:
    train, test = load_conll2000("train"), load_conll2000("test")
    letters = load_letters("large")
    small = letters.folds == 0
    cases = {
        "CoNLL-2000, linear": (
            {"kernel": "linear", "C": 0.1, "solver": "lbfgs", "tol": 1e-9},
            (words_of(train), train.y),
            words_of(test),
        ),
        "letters, rbf": (
            {"kernel": "rbf", "n_components": 500, "C": 10.0, "tol": 1e-10, "random_state": 0},
            tuple([one for one, own in zip(part, small, strict=True) if own] for part in (letters.X, letters.y)),
            [x for x, own in zip(letters.X, small, strict=True) if not own],
        ),
    }
    found = {}
    with workers() as client:
        for name, (settings, (X, y), others) in cases.items():
            start = time.perf_counter()
            here = ChainCRF(**settings).fit(X, list(y))
            middle = time.perf_counter()
            there = ChainCRF(**settings, engine=DaskEngine(client)).fit(X, list(y))
            end = time.perf_counter()
            pairs = zip(here.predict(others), there.predict(others), strict=True)
            found[name] = {
                "objective": here.certificate_.objective,
                "difference": abs(there.certificate_.objective / here.certificate_.objective - 1),
                "tokens that differ": int(sum((a != b).sum() for a, b in pairs)),
                "tokens": int(sum(len(x) for x in others)),
                "iterations": [here.n_iter_, there.n_iter_],
                "seconds": [middle - start, end - middle],
            }
    return found


# faults


class Watched(ChainCRF):
    """Tells of every iteration."""

    told: Callable[[int], None] | None = None

    def _progress(self, data: Any) -> Any:
        count = iter(range(10**9))
        return contextlib.nullcontext(lambda record: self.told and self.told(next(count)))


def letters_words(n: int = 400) -> tuple[list[np.ndarray], list[np.ndarray]]:
    data = load_letters("small")
    return list(data.X[:n]), list(data.y[:n])


FAULT_SETTINGS = {"kernel": "rbf", "n_components": 200, "C": 10.0, "tol": 1e-11, "random_state": 0}


class Steady:
    """Clusters of two workers: where one does not come back by itself within a minute, another cluster."""

    def __init__(self) -> None:
        self._stack = contextlib.ExitStack()
        self.client: Client = self._stack.enter_context(workers())
        self.renewed = 0

    def ready(self) -> Client:
        """A client with two workers."""
        try:
            self.client.wait_for_workers(2, timeout=60)
        except TimeoutError:
            self.close()
            self.client = self._stack.enter_context(workers())
            self.renewed += 1
        return self.client

    def close(self) -> None:
        """End the cluster."""
        self._stack.close()


def faults(options: argparse.Namespace) -> dict[str, Any]:
    X, y = letters_words()
    rng = np.random.default_rng(0)
    found: dict[str, Any] = {}
    steady = Steady()

    def fitted(told: Callable[[Client, int], None] | None = None, data: Any = None) -> tuple[float, float, int]:
        client = steady.ready()
        model = Watched(**FAULT_SETTINGS, engine=DaskEngine(client, n_partitions=4))
        model.told = None if told is None else partial(told, client)
        start = time.perf_counter()
        model.fit(*((X, y) if data is None else (data, None)))
        return model.certificate_.objective, time.perf_counter() - start, model.n_iter_

    fitted()
    plain = [fitted() for _ in range(3)]
    objective, seconds, n_iter = plain[0][0], float(np.median([one[1] for one in plain])), plain[0][2]
    found["undisturbed"] = {"objective": objective, "seconds": seconds, "iterations": n_iter}

    def tried(name: str, runs: list[tuple[float, float, int]]) -> None:
        found[name] = {
            "trials": len(runs),
            "worst difference": max(abs(value / objective - 1) for value, _, _ in runs),
            "seconds beyond": [took - seconds for _, took, _ in runs],
        }

    one = [{int(rng.integers(1, n_iter)): [int(rng.integers(2))]} for _ in range(options.trials)]
    tried("one worker killed at a random iteration", [fitted(partial(killed, moments)) for moments in one])
    third = n_iter // 3
    tried("both workers killed, one after the other", [fitted(partial(killed, {third: [0], 2 * third: [1]}))])
    tried("both workers killed at once", [fitted(partial(killed, {third: [0, 1]}))])
    tried("a worker stopped for 30 s", [fitted(partial(stopped, third))])
    with tempfile.TemporaryDirectory() as folder:
        half = len(X) // 2
        parts = [partial(flaky, folder, X[:half], y[:half]), partial(Sequences, X[half:], y[half:])]
        tried("a read that fails twice", [fitted(data=Partitions(parts))])
    found["undisturbed"]["clusters renewed"] = steady.renewed
    steady.close()
    tried("the client killed, its run taken up again", [client_killed(int(k)) for k in rng.integers(5, n_iter, size=3)])
    return found


def killed(moments: dict[int, list[int]], client: Client, k: int) -> None:
    """At iteration k the workers of places moments[k] are killed."""
    if k in moments:
        pids = list(client.run(os.getpid).values())
        for place in moments[k]:
            os.kill(pids[place % len(pids)], signal.SIGKILL)


def stopped(moment: int, client: Client, k: int) -> None:
    """A worker is stopped for 30 s."""
    if k == moment:
        pid = next(iter(client.run(os.getpid).values()))
        os.kill(pid, signal.SIGSTOP)
        threading.Timer(30, os.kill, (pid, signal.SIGCONT)).start()


def flaky(folder: str, X: list[Any], y: list[Any]) -> Sequences:
    tried = len(list(Path(folder).iterdir()))
    if tried < 2:
        (Path(folder) / str(tried)).touch()
        raise OSError("the disk is away")
    return Sequences(X, y)


def client_killed(k: int) -> tuple[float, float, int]:
    """A process with its own cluster, killed at iteration k; then another one that goes on."""
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, __file__, "--client", str(Path(folder) / "run")]
        start = time.perf_counter()
        first = subprocess.Popen([*command, str(k)], stdout=subprocess.PIPE, text=True)
        first.communicate()
        second = subprocess.run([*command, "-1"], stdout=subprocess.PIPE, text=True, check=True)
        objective, n_iter = second.stdout.split()
        return float(objective), time.perf_counter() - start, int(n_iter)


def client(path: str, last: int) -> None:
    """Fit with a checkpoint; kill this process at iteration `last`."""
    with workers() as own:
        model = Watched(**FAULT_SETTINGS, engine=DaskEngine(own, n_partitions=4), checkpoint=Checkpoint(path, every=5))
        model.told = lambda k: os.kill(os.getpid(), signal.SIGKILL) if k == last else None
        model.fit(*letters_words())
        print(repr(model.certificate_.objective), model.n_iter_)


# cost


N_LABELS, N_FEATURES, ROWS = 10, 512, 20_000
AT_ONCE = "two bare loops at once, half each, the later one"


def made(seeds: list[int], rows: int) -> ChainPartition:
    """Blocks of so many rows, one for each seed."""
    F = np.vstack([np.random.default_rng(seed).normal(size=(rows, N_FEATURES)) for seed in seeds])
    n = len(F)
    chains = Chains.from_lengths(np.full(n // 20, 20) if n >= 20 else [n])
    labels = np.random.default_rng(seeds[0]).integers(N_LABELS, size=n).astype(np.int32)
    return ChainPartition(chains, N_LABELS, labels, {"node": TokenFeatures(F)})


def layout() -> Layout:
    delta = LabelKernel("delta", N_LABELS)
    node = CliqueKernel("node", 1, delta, InputKernel("linear"))
    return Layout((TemplateBlock(node, N_FEATURES, 1.0), TemplateBlock(CliqueKernel("edge", 2, delta, None), 1, 1.0)))


def bare(blocks: list[np.ndarray], W: np.ndarray, R: np.ndarray) -> None:
    """The matrix products of a pass and nothing else."""
    total = np.zeros((N_LABELS, N_FEATURES))
    for F in blocks:
        (W.T @ F.T).sum()
        total += R.T @ F


def bare_seconds(part: ChainPartition, W: np.ndarray, R: np.ndarray, moment: float) -> float:
    """What the bare loop over a worker's part takes there from a moment on."""
    F = part.features["node"].F
    blocks = [F[low : low + ROWS] for low in range(0, len(F), ROWS)]
    time.sleep(max(moment - time.time(), 0))
    return common.seconds(partial(bare, blocks, W, R))


def cost(options: argparse.Namespace) -> dict[str, Any]:
    blocks = [made([k], ROWS).features["node"].F for k in range(8)]
    rng = np.random.default_rng(0)
    W, R = 0.01 * rng.normal(size=(N_FEATURES, N_LABELS)), rng.normal(size=(ROWS, N_LABELS))

    with workers() as own:
        engine = DaskEngine(own)

        def objective(parts: int, rows: int, joined: int = 1) -> Objective:
            """Parts of so many rows, each of `joined` neighbours."""
            seeds = [list(range(k, k + joined)) for k in range(0, parts, joined)]
            handles = [engine.call(made, own, rows, place=k / len(seeds)) for k, own in enumerate(seeds)]
            return Objective(layout(), [Shards(engine, handles)], LocalEngine(1))

        theta = 0.01 * rng.normal(size=layout().size)
        joined, apart = objective(8, ROWS, 4), objective(8, ROWS)
        local = Objective(layout(), [made([k], ROWS) for k in range(8)], LocalEngine(1))
        later: list[float] = []

        def at_once() -> None:
            halves = engine.each(bare_seconds, joined.partitions[0].parts, shared=(W, R, time.time() + 0.05))
            later.append(max(engine.fetch(halves)))

        sides = {
            "bare loop, one process": partial(bare, blocks, W, R),
            AT_ONCE: at_once,
            "objective, one process": lambda: local.evaluate(theta),
            "two workers, the 8 joined into 2 (default)": lambda: joined.evaluate(theta),
            "two workers, 8 parts": lambda: apart.evaluate(theta),
        }
        for side in sides.values():
            side()
        times = common.turns(sides, options.rounds)
        times[AT_ONCE] = float(np.median(later))
        overhead = {}
        for parts in (8, 64, 512):
            small = objective(parts, 10)
            small.evaluate(theta)
            rounds = 5 if parts > 100 else 15
            overhead[str(parts)] = common.turns({"pass": partial(small.evaluate, theta)}, rounds)["pass"]
        payload = sent(engine)
    return {"seconds": times, "overhead": overhead, "payload": payload, "driver": driven()}


def sent(engine: DaskEngine, weights: int = 2**21, parts: int = 4) -> dict[str, Any]:
    """A pass that moves weights and does nothing with them, beside one that moves none."""
    places = list(range(parts))
    sides = {
        name: lambda theta=theta: engine.sum(engine.each(_weights, places, shared=(theta,)))
        for name, theta in (("weights", np.zeros(weights)), ("none", np.zeros(1)))
    }
    for side in sides.values():
        side()
    times = common.turns(sides, 7)
    return {"parts": parts, "weights": weights, "seconds": times["weights"], "seconds of none": times["none"]}


def _weights(place: int, theta: np.ndarray) -> np.ndarray:
    return theta


def driven(weights: int = 2**21, n_iter: int = 30) -> dict[str, Any]:
    """An iteration of L-BFGS with 20 pairs on a quadratic form that costs next to nothing."""
    d = np.linspace(1, 100, weights)
    moments: list[float] = []

    def value(x: np.ndarray) -> tuple[float, np.ndarray]:
        moments.append(time.perf_counter())
        return float(0.5 * np.dot(d * x, x)), d * x

    options = {"maxcor": 20, "maxiter": n_iter, "ftol": 0, "gtol": 0}
    minimize(value, np.ones(weights), jac=True, method="L-BFGS-B", options=options)
    return {"weights": weights, "seconds": float(np.median(np.diff(moments[len(moments) // 2 :])))}


# memory


def dense_part(seed: int, tokens: int, d: int) -> Sequences:
    """Sequences of 50 tokens whose labels follow a linear rule."""
    rng = np.random.default_rng(seed)
    rule = np.random.default_rng(0).normal(size=(d, 4))
    X = rng.normal(size=(tokens, d))
    y = (X @ rule + rng.gumbel(size=(tokens, 4))).argmax(axis=1)
    return Sequences(X, y.tolist(), lengths=np.full(tokens // 50, 50))


def memory(options: argparse.Namespace) -> dict[str, Any]:
    limit, parts, tokens, d = 1000, 196, 16_000, 256
    peaks: dict[int, int] = {}
    ended = threading.Event()

    def watch(client: Client) -> None:
        own = psutil.Process()
        while not ended.wait(0.2):
            with contextlib.suppress(psutil.Error):
                for child in own.children(recursive=True):
                    peaks[child.pid] = max(peaks.get(child.pid, 0), child.memory_info().rss)

    with workers(memory=f"{limit}MB") as client:
        threading.Thread(target=watch, args=(client,), daemon=True).start()
        start = time.perf_counter()
        data = Partitions([partial(dense_part, k, tokens, d) for k in range(parts)])
        crf = ChainCRF("linear", C=0.1, tol=3e-2, engine=DaskEngine(client)).fit(data)
        seconds = time.perf_counter() - start
        ended.set()
    return {
        "data": parts * tokens * d * 8 / 1e6,
        "limits": 2 * limit,
        "peaks": sorted((peak / 1e6 for peak in peaks.values()), reverse=True)[:2],
        "client": common.peak(),
        "seconds": seconds,
        "iterations": crf.n_iter_,
        "gap": crf.certificate_.relative_gap,
        "status": crf.certificate_.status,
    }


# tokens


def written(folder: Path, n_tokens: int, files: int) -> None:
    """Sequences of 25 tokens with six names each; labels of a chain that words and their neighbours tell of."""
    rng = np.random.default_rng(0)
    vocabulary, n_labels = 100_000, 8
    words = pa.array([f"{k:x}" for k in range(vocabulary)])
    own = rng.integers(n_labels, size=vocabulary)
    for k in range(files):
        n = n_tokens // files
        ids = np.minimum(rng.zipf(1.2, size=n) - 1, vocabulary - 1)
        label = np.where(rng.random(n) < 0.8, own[ids], (own[np.roll(ids, 1)] + 1) % n_labels)
        columns = [
            pa.array(np.char.add(prefix, words.take(pa.array(values)).to_numpy(zero_copy_only=False).astype(str)))
            for prefix, values in (("w=", ids), ("p=", np.roll(ids, 1)), ("n=", np.roll(ids, -1)))
        ]
        columns += [pa.array(np.char.add(f"{c}=", (ids % m).astype(str))) for c, m in (("s", 50), ("t", 500), ("u", 7))]
        names = pa.concat_arrays(columns).take(pa.array(np.arange(6 * n).reshape(6, n).T.ravel()))
        tokens = pa.ListArray.from_arrays(pa.array(np.arange(0, 6 * n + 1, 6, dtype=np.int32)), names)
        cuts = pa.array(np.arange(0, n + 1, 25, dtype=np.int32))
        tags = pa.array(np.char.add("L", label.astype(str)))
        table = pa.table(
            {
                "features": pa.ListArray.from_arrays(cuts, tokens),
                "labels": pa.ListArray.from_arrays(cuts, tags),
            }
        )
        pq.write_table(table, folder / f"{k:04d}.parquet", row_group_size=n)


def tokens(options: argparse.Namespace) -> dict[str, Any]:
    stages: dict[str, float] = {}
    folder = Path(tempfile.mkdtemp())
    try:
        (folder / "data").mkdir()
        start = time.perf_counter()
        written(folder / "data", options.tokens, 40)
        stages["written"] = time.perf_counter() - start
        size = sum(file.stat().st_size for file in (folder / "data").iterdir())
        with workers() as client:
            engine = DaskEngine(client)
            crf = Timed("linear", C=0.02, hash_features=2**18, tol=1e-2, engine=engine)
            start = time.perf_counter()
            crf.fit(read_parquet(folder / "data"))
            stages["read and hashed"] = crf.begun - start
            stages["trained"] = time.perf_counter() - crf.begun
            told = tag_parquet(crf, folder / "data", folder / "out", engine=engine)
            stages["labelled"] = told.seconds
        truth, found = (pq.read_table(folder / name, columns=["labels"]).column("labels") for name in ("data", "out"))
        flat = [column.combine_chunks().flatten() for column in (truth, found)]
        right = pa.compute.sum(pa.compute.equal(*flat)).as_py() / len(flat[0])
        return {
            "tokens": len(flat[0]),
            "bytes": size,
            "seconds": stages,
            "iterations": crf.n_iter_,
            "passes": float(crf.gap_curve_[-1, 1]),
            "gap": crf.certificate_.relative_gap,
            "accuracy": right,
        }
    finally:
        shutil.rmtree(folder)


class Timed(ChainCRF):
    """Knows when its data were read."""

    begun = 0.0

    def _progress(self, data: Any) -> Any:
        type(self).begun = 0.0

        def told(record: Any) -> None:
            if not self.begun:
                self.begun = time.perf_counter()

        return contextlib.nullcontext(told)


PARTS = {"equality": equality, "faults": faults, "cost": cost, "memory": memory, "tokens": tokens}


def measure(options: argparse.Namespace) -> dict[str, Any]:
    found = {name: part for name, part in (common.load("cluster") or {}).items() if name in PARTS}
    for name, part in PARTS.items():
        if options.only in ("", name):
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                found[name] = part(options)
            common.save("cluster", found)
    return found


def table(results: dict[str, Any]) -> str:
    parts = []
    if "equality" in results:
        rows = [
            [
                name,
                f"{one['objective']:.6f}",
                f"{one['difference']:.1e}",
                f"{one['tokens that differ']} of {one['tokens']:,}",
                " / ".join(map(str, one["iterations"])),
                " / ".join(f"{s:.0f}" for s in one["seconds"]),
            ]
            for name, one in results["equality"].items()
        ]
        header = ["", "objective", "relative difference", "labels that differ", "iterations", "seconds"]
        parts.append(common.markdown(header, rows) + "\n\nIterations and seconds: one process / two workers.")
    if "faults" in results:
        found = results["faults"]
        plain = found["undisturbed"]
        rows = [
            [
                name,
                str(one["trials"]),
                f"{one['worst difference']:.1e}",
                f"{np.median(one['seconds beyond']):.1f}",
                f"{max(one['seconds beyond']):.1f}",
            ]
            for name, one in found.items()
            if name != "undisturbed"
        ]
        header = ["what happens", "trials", "worst difference of the objective", "seconds beyond, median", "most"]
        undisturbed = f"Undisturbed: {plain['seconds']:.1f} s, {plain['iterations']} iterations. All trials ended."
        parts.append(common.markdown(header, rows) + "\n\n" + undisturbed)
    if "cost" in results:
        seconds, overhead = results["cost"]["seconds"], results["cost"]["overhead"]
        half = seconds["bare loop, one process"] / 2
        rows = [[name, f"{1e3 * value:.0f} ms", f"{value / half:.2f}"] for name, value in seconds.items()]
        parts.append(common.markdown(["a pass, 8 x 20,000 x 512", "time", "of half the bare loop"], rows))
        rows = [[parts_, f"{1e3 * value:.0f} ms"] for parts_, value in overhead.items()]
        payload, driver = results["cost"]["payload"], results["cost"]["driver"]
        parts.append(
            common.markdown(["parts", "a pass with nothing to compute"], rows)
            + f"\n\n{payload['weights']:,} weights to four parts and back: {1e3 * payload['seconds']:.0f} ms "
            f"({1e3 * payload['seconds of none']:.0f} ms with none); an iteration of L-BFGS on as many: "
            f"{1e3 * driver['seconds']:.0f} ms."
        )
    if "memory" in results:
        one = results["memory"]
        parts.append(
            f"Memory: {one['data']:,.0f} MB of inputs, limits of {one['limits']:,} MB together "
            f"({one['data'] / one['limits']:.1f}x): {one['status']} at a gap of {one['gap']:.1e} after "
            f"{one['iterations']} iterations and {one['seconds']:.0f} s; peaks of the workers "
            f"{' and '.join(f'{peak:,.0f}' for peak in one['peaks'])} MB, of the client {one['client']:,.0f} MB."
        )
    if "tokens" in results:
        one = results["tokens"]
        rows = [[name, f"{s:.0f} s", f"{one['tokens'] / s:,.0f}"] for name, s in one["seconds"].items()]
        parts.append(
            f"{one['tokens']:,} tokens, {one['bytes'] / 1e6:,.0f} MB of Parquet; {one['passes']:.0f} passes to a gap "
            f"of {one['gap']:.1e}; accuracy {one['accuracy']:.3f}.\n\n"
            + common.markdown(["stage", "seconds", "tokens a second"], rows)
        )
    return "\n\n".join(parts)


if __name__ == "__main__":
    if "--client" in sys.argv:
        place = sys.argv.index("--client")
        client(sys.argv[place + 1], int(sys.argv[place + 2]))
    else:
        common.run(__doc__, __file__, measure, table, only="", rounds=7, trials=TRIALS, tokens=10_000_000)
