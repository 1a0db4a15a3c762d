"""Cost, memory and throughput of a Dask cluster of two worker processes on one machine.

`cost`: a pass over 8 parts of 20,000 x 512 numbers with 10 labels on two workers of one thread, beside half the time
of a bare loop of the same matrix products on one thread. `parts`: the time of a pass with nothing to compute, by the
number of parts, and the CPU time that the scheduler, a process of its own, spends on it. This code takes turns with an
older commit (`--before`). `memory`: a linear fit of dense inputs more than twice as large as the workers' memory.
`tokens`: `--tokens` tokens, written to Parquet, read and hashed, fitted with C = 0.02 to a certified gap of 1 % and
labelled back to Parquet. `pairs`: passes over CoNLL-2000 with the feature lists of `speed.training`, in one
process and on the two workers, with weights for observed pairs and for all pairs of a feature and a label. `sizes`:
the same, and on one worker of two threads, for a tenth of the tokens and for all, with six of 150,557 columns each,
drawn like those of `tokens`, and weights for observed pairs. `threads`: a pass over 8 parts in one bundle, on a worker
of one thread and on a worker of two. They take turns, and the fastest pass of each counts, because other work only
adds to the time. Bytes are those that the loopback device sends, from the client, the scheduler and the workers.
`--only cost` measures one of them and keeps the others. docs/scaling.md shows the results.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import shutil
import subprocess
import sys
import tempfile
import threading
import time
import warnings
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import dask
import numpy as np
import psutil
import pyarrow as pa
import pyarrow.parquet as pq
from distributed import Client, LocalCluster
from scipy import sparse
from scipy.optimize import minimize

from kernelcrf import ChainCRF
from kernelcrf.distributed import DaskEngine, read_parquet, tag_parquet
from kernelcrf.distributed.cluster import releasing
from kernelcrf.distributed.partition import DistributedPartition
from kernelcrf.distributed.sources import RawSequences, SequenceSources
from kernelcrf.engines.local import LocalEngine
from kernelcrf.graphs.structure import Chains
from kernelcrf.objective import Objective
from kernelcrf.partitions.chains import ChainPartition
from kernelcrf.score.features import TokenFeatures
from kernelcrf.score.terms import TOKEN_TERM
from kernelcrf.solvers import Progress
from studies import common
from studies.speed.evaluation import make_layout
from studies.speed.training import data as training_data


@contextlib.contextmanager
def workers(n: int = 2, memory: str | None = None, threads: int = 1) -> Iterator[Client]:
    patient = {"distributed.scheduler.allowed-failures": 100, "distributed.comm.timeouts.connect": "180s"}
    limit = {} if memory is None else {"memory_limit": memory}
    with (
        dask.config.set(patient),
        LocalCluster(
            n_workers=n, threads_per_worker=threads, dashboard_address=":0", silence_logs=50, **limit
        ) as cluster,
        Client(cluster) as client,
    ):
        yield client


N_LABELS, N_FEATURES, ROWS = 10, 512, 20_000


def make_part(seeds: list[int], rows: int) -> ChainPartition:
    """Return a partition with so many rows for each seed."""
    F = np.vstack([np.random.default_rng(seed).normal(size=(rows, N_FEATURES)) for seed in seeds])
    n = len(F)
    chains = Chains.from_lengths(np.full(n // 20, 20) if n >= 20 else [n])
    labels = np.random.default_rng(seeds[0]).integers(N_LABELS, size=n).astype(np.int32)
    return ChainPartition(chains, N_LABELS, labels, {TOKEN_TERM: TokenFeatures(F)})


def bare(blocks: list[np.ndarray], W: np.ndarray, R: np.ndarray) -> None:
    """Compute the matrix products of a pass and nothing else."""
    total = np.zeros((N_LABELS, N_FEATURES))
    for F in blocks:
        (W.T @ F.T).sum()
        total += R.T @ F


def cost(options: argparse.Namespace) -> dict[str, Any]:
    blocks = [make_part([k], ROWS).features[TOKEN_TERM].F for k in range(8)]
    rng = np.random.default_rng(0)
    W, R = 0.01 * rng.normal(size=(N_FEATURES, N_LABELS)), rng.normal(size=(ROWS, N_LABELS))

    layout = make_layout(N_FEATURES, N_LABELS)
    with workers() as own, releasing():
        engine = DaskEngine(own)

        def objective(parts: int, rows: int, joined: int = 1) -> Objective:
            """Return an objective over parts of so many rows, each of `joined` neighbours."""
            seeds = [list(range(k, k + joined)) for k in range(0, parts, joined)]
            handles = [engine.call(make_part, own, rows, place=k / len(seeds)) for k, own in enumerate(seeds)]
            return Objective(layout, [DistributedPartition(engine, engine.bundle(handles, 0))], LocalEngine(1))

        theta = 0.01 * rng.normal(size=layout.size)
        joined, divided = objective(8, ROWS, 4), objective(8, ROWS)
        local = Objective(layout, [make_part([k], ROWS) for k in range(8)], LocalEngine(1))
        sides = {
            "bare loop, one process": partial(bare, blocks, W, R),
            "objective, one process": lambda: local.evaluate(theta),
            "two workers, the 8 joined into 2 (default)": lambda: joined.evaluate(theta),
            "two workers, 8 parts": lambda: divided.evaluate(theta),
        }
        for side in sides.values():
            side()
        times = common.side_by_side(sides, options.rounds)
        payload = sent(engine)
    return {"seconds": times, "payload": payload, "driver": driven()}


@contextlib.contextmanager
def apart() -> Iterator[tuple[Client, psutil.Process]]:
    """Yield the client of two workers of one thread, and the process of their scheduler."""
    with tempfile.TemporaryDirectory() as folder:
        file = f"{folder}/scheduler.json"
        options = ["--scheduler-file", file, "--no-dashboard"]
        scheduler = "distributed.cli.dask_scheduler", "--port", "0"
        worker = "distributed.cli.dask_worker", "--nthreads", "1", "--nworkers", "2", "--local-directory", folder
        processes = [
            subprocess.Popen([sys.executable, "-m", *command, *options], stderr=subprocess.DEVNULL)
            for command in (scheduler, worker)
        ]
        try:
            while not Path(file).exists():
                time.sleep(0.1)
            with Client(scheduler_file=file, timeout=180) as client:
                client.wait_for_workers(2)
                yield client, psutil.Process(processes[0].pid)
        finally:
            for process in reversed(processes):
                process.terminate()
                process.wait()


def idle_passes(cases: list[tuple[int, int]]) -> dict[str, dict[str, float]]:
    """Return the seconds of a pass with nothing to compute, and of the scheduler's CPU time in it.

    cases : the numbers of parts, and of the bundles of a worker.
    """
    layout, found = make_layout(N_FEATURES, N_LABELS), {}
    with apart() as (client, scheduler):
        memory = sum(worker["memory_limit"] for worker in client.scheduler_info()["workers"].values())
        for parts, bundles in cases:
            with releasing():
                engine = DaskEngine(client)
                handles = [engine.call(make_part, [k], 10, place=k / parts) for k in range(parts)]
                if hasattr(engine, "bundle"):  # older commits have none
                    handles = engine.bundle(handles, 0 if bundles == 1 else memory * bundles // 8)
                objective = Objective(layout, [DistributedPartition(engine, handles)], LocalEngine(1))
                rng = np.random.default_rng(0)
                objective.evaluate(0.01 * rng.normal(size=layout.size))
                wall, spent = [], []
                for _ in range(9 if parts < 100 else 3):
                    theta = 0.01 * rng.normal(size=layout.size)
                    before, start = sum(scheduler.cpu_times()[:2]), time.perf_counter()
                    objective.evaluate(theta)
                    wall.append(time.perf_counter() - start)
                    spent.append(sum(scheduler.cpu_times()[:2]) - before)
                # The clock of a process has steps of 10 ms, so that a median of short times would say little.
                found[f"{parts} {bundles}"] = {"wall": float(np.median(wall)), "scheduler": float(np.mean(spent))}
    return found


def parts(options: argparse.Namespace) -> dict[str, Any]:
    with tempfile.TemporaryDirectory() as folder:
        archive = subprocess.run(["git", "archive", options.before, "src"], cwd=common.ROOT, capture_output=True)
        subprocess.run(["tar", "-x", "-C", folder], input=archive.stdout, check=True)
        sides = {"before": Path(folder) / "src", "now": common.source().parent}
        found: dict[str, Any] = {side: {} for side in sides}
        for count in (8, 64, 512):
            for side, path in sides.items():
                environment = {"PYTHONPATH": f"{path}{os.pathsep}{common.ROOT}"}
                (found[side][str(count)],) = common.in_process(idle_passes, [(count, 1)], **environment).values()
    cases = [(512, bundles) for bundles in (1, 8, 64, 256)]
    by_bundles = dict(zip((2, 16, 128, 512), common.in_process(idle_passes, cases).values(), strict=True))
    return {"commit before": options.before, "passes": found, "bundles": by_bundles}


def sent(engine: DaskEngine, weights: int = 2**21, parts: int = 4) -> dict[str, Any]:
    """Time a pass that moves weights and does nothing with them, beside one that moves none."""
    handles = engine.bundle([engine.call(int, k, place=k / parts) for k in range(parts)], 0)
    sides = {
        name: lambda theta=theta: engine.sum(_weights, handles, shared=(theta,))
        for name, theta in (("weights", np.zeros(weights)), ("none", np.zeros(1)))
    }
    for side in sides.values():
        side()
    times = common.side_by_side(sides, 7)
    return {"parts": parts, "weights": weights, "seconds": times["weights"], "seconds of none": times["none"]}


def _weights(place: int, theta: np.ndarray) -> np.ndarray:
    return theta


def driven(weights: int = 2**21, n_iter: int = 30) -> dict[str, Any]:
    """Time an iteration of L-BFGS with 20 pairs on a quadratic form that costs next to nothing."""
    d = np.linspace(1, 100, weights)
    moments: list[float] = []

    def value(x: np.ndarray) -> tuple[float, np.ndarray]:
        moments.append(time.perf_counter())
        return float(0.5 * np.dot(d * x, x)), d * x

    options = {"maxcor": 20, "maxiter": n_iter, "ftol": 0, "gtol": 0}
    minimize(value, np.ones(weights), jac=True, method="L-BFGS-B", options=options)
    return {"weights": weights, "seconds": float(np.median(np.diff(moments[len(moments) // 2 :])))}


def dense_part(seed: int, tokens: int, d: int) -> RawSequences:
    """Return sequences of 50 tokens whose labels follow a linear rule."""
    rng = np.random.default_rng(seed)
    rule = np.random.default_rng(0).normal(size=(d, 4))
    X = rng.normal(size=(tokens, d))
    y = (X @ rule + rng.gumbel(size=(tokens, 4))).argmax(axis=1)
    return RawSequences(X, y.tolist(), lengths=np.full(tokens // 50, 50))


def memory(options: argparse.Namespace) -> dict[str, Any]:
    limit, parts, tokens, d = 1000, options.parts, 16_000, 256
    common.peak_memory(reset=True)
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
        data = SequenceSources([partial(dense_part, k, tokens, d) for k in range(parts)])
        crf = ChainCRF("linear", C=0.1, tol=options.tol, engine=DaskEngine(client)).fit(data)
        seconds = time.perf_counter() - start
        ended.set()
    return {
        "data": parts * tokens * d * 8 / 1e6,
        "limits": 2 * limit,
        "peaks": sorted((peak / 1e6 for peak in peaks.values()), reverse=True)[:2],
        "client": common.peak_memory(),
        "seconds": seconds,
        "iterations": crf.n_iter_,
        "gap": crf.certificate_.relative_gap,
        "tol": options.tol,
        "status": crf.certificate_.status,
    }


def write_data(folder: Path, n_tokens: int, files: int) -> None:
    """Write sequences of 25 tokens with six names each; labels depend on words and their neighbours."""
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
            {"features": pa.ListArray.from_arrays(cuts, tokens), "labels": pa.ListArray.from_arrays(cuts, tags)}
        )
        pq.write_table(table, folder / f"{k:04d}.parquet", row_group_size=n)


def tokens(options: argparse.Namespace) -> dict[str, Any]:
    stages: dict[str, float] = {}
    folder = Path(tempfile.mkdtemp())
    try:
        (folder / "data").mkdir()
        start = time.perf_counter()
        write_data(folder / "data", options.tokens, 40)
        stages["written"] = time.perf_counter() - start
        size = sum(file.stat().st_size for file in (folder / "data").iterdir())
        with workers() as client:
            engine = DaskEngine(client)
            crf = ChainCRF("linear", C=0.02, hash_features=2**18, tol=1e-2, engine=engine)
            took = common.seconds(lambda: crf.fit(read_parquet(folder / "data")))
            stages["trained"] = float(crf.gap_curve_[-1, 2])
            stages["read and hashed"] = took - stages["trained"]
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


@dataclass(frozen=True)
class Passes:
    """A solver that evaluates the objective several times, and keeps seconds and bytes of each pass in `found`."""

    rounds: int
    found: dict[str, Any] = field(default_factory=dict)

    def check(self, objective: Objective) -> None:
        return

    def solve(self, start: np.ndarray, progress: Progress) -> str:
        def bytes_sent() -> int:
            return psutil.net_io_counters(pernic=True)["lo"].bytes_sent

        seconds, sent, rng = [], [], np.random.default_rng(0)
        for _ in range(self.rounds + 1):
            # Equal numbers would be compressed on their way.
            theta = 0.01 * rng.normal(size=len(start))
            before, begun = bytes_sent(), time.perf_counter()
            at = progress.objective.evaluate(theta)
            seconds.append(time.perf_counter() - begun)
            sent.append(bytes_sent() - before)
        progress.observe(at, 0.0)
        self.found.update(
            fastest=min(seconds[1:]), seconds=np.median(seconds[1:]), bytes=np.median(sent[1:]), weights=len(start)
        )
        return "max_iter"


def pairs(options: argparse.Namespace) -> dict[str, Any]:
    X, y = training_data("train")
    found: dict[str, Any] = {}
    with workers() as client:
        for every, name in ((False, "observed pairs"), (True, "all pairs")):
            for engine, place in ((None, "one process"), (DaskEngine(client), "two workers")):
                solver = Passes(options.rounds)
                ChainCRF(
                    "linear", C=1.0, weights="all" if every else "observed", solver=solver, engine=engine, n_jobs=1
                ).fit(X, y)
                found[f"{name}, {place}"] = solver.found
    return found


VOCABULARY, CLASSES = 50_000, (50, 500, 7)


def sparse_part(seed: int, tokens: int) -> RawSequences:
    """Return sequences of 25 tokens with six columns each: the word, its neighbours and three classes of words."""
    rng = np.random.default_rng(seed)
    own = np.random.default_rng(0).integers(8, size=VOCABULARY)
    ids = np.minimum(rng.zipf(1.2, size=tokens) - 1, VOCABULARY - 1)
    y = np.where(rng.random(tokens) < 0.8, own[ids], (own[np.roll(ids, 1)] + 1) % 8)
    around = [np.roll(ids, by) + k * VOCABULARY for k, by in enumerate((0, 1, -1))]
    starts = 3 * VOCABULARY + np.append(0, np.cumsum(CLASSES))
    columns = np.column_stack([*around, *(ids % m + start for m, start in zip(CLASSES, starts, strict=False))])
    rows = np.arange(0, 6 * tokens + 1, 6)
    X = sparse.csr_array((np.ones(6 * tokens), columns.ravel(), rows), shape=(tokens, int(starts[-1])))
    return RawSequences(X, y.tolist(), lengths=np.full(tokens // 25, 25))


def sizes(options: argparse.Namespace) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for total in (options.tokens // 10, options.tokens):
        sources = [partial(sparse_part, seed, total // 8) for seed in range(1, 9)]
        for n, threads, name in ((2, 1, "two workers"), (1, 2, "one worker of two threads")):
            with workers(n, threads=threads) as client:
                solver = Passes(options.rounds)
                ChainCRF("linear", C=1.0, solver=solver, engine=DaskEngine(client)).fit(SequenceSources(sources))
                found[f"{total:,} tokens, {name}"] = solver.found | {"tokens": total}
        parts = [source() for source in sources]
        X, y = sparse.vstack([part.X for part in parts], format="csr"), np.concatenate([part.y for part in parts])
        lengths = np.concatenate([part.lengths for part in parts])
        del parts
        for threads in (1, 2):
            solver = Passes(options.rounds)
            ChainCRF("linear", C=1.0, solver=solver, n_jobs=threads).fit(X, y, lengths=lengths)
            name = "one thread" if threads == 1 else "two threads"
            found[f"{total:,} tokens, one process, {name}"] = solver.found | {"tokens": total}
    return found


def threads(options: argparse.Namespace) -> dict[str, float]:
    """Return the seconds of the fastest pass over 8 parts in one bundle, by the number of threads of the worker."""
    layout, rng = make_layout(N_FEATURES, N_LABELS), np.random.default_rng(0)
    theta = 0.01 * rng.normal(size=layout.size)
    fastest = {"1": np.inf, "2": np.inf}
    with workers(1) as one, workers(1, threads=2) as two, releasing():
        objectives = {}
        for client, name in ((one, "1"), (two, "2")):
            engine = DaskEngine(client)
            parts = engine.bundle([engine.call(make_part, [k], ROWS // 4) for k in range(8)], 0)
            objectives[name] = Objective(layout, [DistributedPartition(engine, parts)], LocalEngine(1))
        for _ in range(20 * options.rounds):
            for name, objective in objectives.items():
                begun = time.perf_counter()
                objective.evaluate(theta)
                fastest[name] = min(fastest[name], time.perf_counter() - begun)
    return fastest


PARTS = {
    "cost": cost,
    "parts": parts,
    "memory": memory,
    "tokens": tokens,
    "pairs": pairs,
    "sizes": sizes,
    "threads": threads,
}
OPTIONS = {"only": "", "rounds": 3, "tokens": 2_000_000, "parts": 130, "tol": 0.1, "before": "1b64f61e"}


def measure(options: argparse.Namespace) -> dict[str, Any]:
    before = common.load("speed.cluster") or {}
    found = {name: part for name, part in before.items() if name in PARTS}
    chosen = [name for name in PARTS if options.only in ("", name)]
    commits = {name: before.get("commits", {}).get(name, before.get("commit")) for name in found}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        found |= {name: PARTS[name](options) for name in chosen}
    return found | {"commits": commits | dict.fromkeys(chosen, common.commit())}


def table(results: dict[str, Any]) -> str:
    parts = []
    if "cost" in results:
        seconds = results["cost"]["seconds"]
        half = seconds["bare loop, one process"] / 2
        rows = [[name, f"{1e3 * value:.0f} ms", f"{value / half:.2f}"] for name, value in seconds.items()]
        parts.append(
            common.markdown(["a pass, 8 x 20,000 tokens, 512 features", "time", "divided by half the bare loop"], rows)
        )
        payload, driver = results["cost"]["payload"], results["cost"]["driver"]
        parts.append(
            f"Sending {payload['weights']:,} weights to four parts and adding up what comes back takes "
            f"{1e3 * payload['seconds']:.0f} ms, and {1e3 * payload['seconds of none']:.0f} ms without weights. An "
            f"iteration of L-BFGS on as many weights takes {1e3 * driver['seconds']:.0f} ms."
        )
    if "parts" in results:
        now, before = (results["parts"]["passes"][side] for side in ("now", "before"))
        names = ("scheduler", "wall")
        rows = [
            [f"{int(n):,}", *(f"{1e3 * side[n][name]:,.0f} ms" for name in names for side in (before, now))]
            for n in now
        ]
        older = results["parts"]["commit before"]
        header = [f"{title}, {code}" for title in ("scheduler's CPU", "time") for code in (older, "now")]
        parts.append(common.markdown(["parts, a pass with nothing to compute", *header], rows))
        rows = [
            [n, *(f"{1e3 * one[name]:,.0f} ms" for name in names)] for n, one in results["parts"]["bundles"].items()
        ]
        header = ["bundles, 512 parts with nothing to compute", "scheduler's CPU", "time"]
        parts.append(common.markdown(header, rows))
    if "memory" in results:
        one = results["memory"]
        parts.append(
            f"Memory: the inputs take {one['data']:,.0f} MB, {one['data'] / one['limits']:.1f} times the memory limits "
            f"of both workers together. A fit with tol={one.get('tol', 0.03):g} ended as {one['status']!r} after "
            f"{one['iterations']} iterations and {one['seconds']:.0f} s. The peaks of the workers were "
            f"{' and '.join(f'{peak:,.0f}' for peak in one['peaks'])} MB, that of the client {one['client']:,.0f} MB."
        )
    if "tokens" in results:
        one = results["tokens"]
        stages = {name: one["seconds"][name] for name in ("written", "read and hashed", "trained", "labelled")}
        rows = [[name, f"{s:.0f} s", f"{one['tokens'] / s:,.0f}"] for name, s in stages.items()]
        parts.append(
            f"{one['tokens']:,} tokens, {one['bytes'] / 1e6:,.0f} MB of Parquet; {one['passes']:.0f} passes to a gap "
            f"of {one['gap']:.1e}; accuracy {one['accuracy']:.3f}.\n\n"
            + common.markdown(["stage", "seconds", "tokens per second"], rows)
        )
    if "pairs" in results:
        rows = [
            [name, f"{one['weights']:,}", f"{1e3 * one['seconds']:.0f} ms", f"{one['bytes'] / 1e6:.1f} MB"]
            for name, one in results["pairs"].items()
        ]
        parts.append(common.markdown(["a pass over CoNLL-2000", "weights", "time", "sent"], rows))
    if "sizes" in results:
        rows = []
        for name, one in results["sizes"].items():
            alone = results["sizes"][f"{one['tokens']:,} tokens, one process, one thread"]
            ratio = f"{alone['seconds'] / one['seconds']:.2f}x"
            rows.append([name, f"{one['weights']:,}", f"{one['seconds']:.2f} s", ratio, f"{one['bytes'] / 1e6:.1f} MB"])
        header = ["a pass, observed pairs", "weights", "time", "as fast as one thread", "sent"]
        parts.append(common.markdown(header, rows))
    if "threads" in results:
        one, two = (results["threads"][name] for name in ("1", "2"))
        parts.append(
            f"A pass over one bundle of 8 parts of {ROWS // 4:,} tokens takes {1e3 * one:.0f} ms on a worker of one "
            f"thread and {1e3 * two:.0f} ms on a worker of two, {one / two:.2f} times as fast."
        )
    return "\n\n".join(parts)
