"""Concurrency: many threads, many processes, long runs.

These count as failures: an answer that differs, in any bit, from that of one thread, a hang, a crash, and more threads
than were allowed. Other failures are a limit on the threads of BLAS that is not restored, and memory that grows with
the number of fits and predictions.
"""

from __future__ import annotations

import argparse
import gc
import os
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from functools import cache
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp
from threadpoolctl import ThreadpoolController, threadpool_limits

from kernelcrf import ChainCRF, GraphCRF, KernelClassifier, MarkovNetwork, MultiLabelCRF
from studies import common
from studies.common import Trial
from trials import cases
from trials.blas import blas_threads

PLACES = (str(common.ROOT), str(common.ROOT / "tests"))
FIT = """
import sys
import numpy as np
from trials import cases
from kernelcrf import ChainCRF
X, y = cases.plain(m=20)
model = ChainCRF(n_components=10, random_state=0, C=1.0).fit(X, y)
sys.stdout.write(np.concatenate(model.predict_proba(X)).tobytes().hex())
"""


@cache
def models() -> dict[str, tuple[Any, Any]]:
    """Return fitted models, each with inputs for it."""
    case = cases.plain(m=25, longest=16, d=6)
    X, y = case
    sparse, dicts = [sp.csr_array(x) for x in X], [[{f"f{j}": v for j, v in enumerate(row)} for row in x] for x in X]
    return {
        "ChainCRF, landmarks": (ChainCRF(n_components=60, random_state=0, C=1.0).fit(X, y), X),
        "ChainCRF, n_jobs=2": (ChainCRF(n_components=60, random_state=0, n_jobs=2, C=1.0).fit(X, y), X),
        "ChainCRF, float32": (
            ChainCRF(n_components=60, random_state=0, C=1.0).fit([x.astype(np.float32) for x in X], y),
            [x.astype(np.float32) for x in X],
        ),
        "ChainCRF, sparse": (ChainCRF("linear", C=1.0).fit(sparse, y), sparse),
        "ChainCRF, dicts": (ChainCRF("linear", C=1.0).fit(dicts, y), dicts),
        "KernelClassifier": (
            KernelClassifier(n_components=60, random_state=0).fit(*cases.rows(case)),
            np.concatenate(X),
        ),
        "MultiLabelCRF": (MultiLabelCRF(random_state=0).fit(*cases.labelled_sets(case)), np.concatenate(X)),
        "GraphCRF": (GraphCRF(n_components=60, random_state=0).fit(*cases.graphs(case)), cases.graphs(case)[0]),
        "MarkovNetwork": (MarkovNetwork(structure="tree").fit(cases.table(case)), cases.table(case)),
    }


def bits(model: Any, X: Any) -> bytes:
    """Return the bits of the probabilities of X, and of the best labels if there are some."""
    parts = [np.ascontiguousarray(p).tobytes() for p in model.predict_proba(X)]
    if hasattr(model, "predict"):
        parts += [np.ascontiguousarray(labels).tobytes() for labels in model.predict(X)]
    return b"".join(parts)


def in_threads(n: int, work: Callable[[int], Any]) -> list[Any]:
    """Return the results of `work` in n threads that start together, or the exceptions that it raises."""
    barrier, found = threading.Barrier(n), [None] * n

    def run(k: int) -> None:
        barrier.wait()
        try:
            found[k] = work(k)
        except Exception as error:
            found[k] = error  # type: ignore[call-overload]

    threads = [threading.Thread(target=run, args=(k,)) for k in range(n)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return found


def predictions(n_threads: int, rounds: int) -> Trial:
    """Ask every model from many threads at once."""
    trial = Trial(
        f"predictions of one fitted model from {n_threads} threads at once, each estimator",
        "the bits of one thread; limits of BLAS as before",
    )
    before = blas_threads()
    for name, (model, X) in models().items():
        expected = bits(model, X)

        def ask(_: int, model: Any = model, X: Any = X, expected: bytes = expected) -> list[bool]:
            return [bits(model, X) == expected for _ in range(rounds)]

        for found in in_threads(n_threads, ask):
            for fine in found if isinstance(found, list) else [False] * rounds:
                trial.check(fine, f"{name}: {found!r}"[:200])
        trial.check(blas_threads() == before, f"{name}: BLAS has {blas_threads()} threads, and had {before}")
    return trial


def fits(n_threads: int, rounds: int) -> Trial:
    """Fit one estimator in each of many threads at once."""
    trial = Trial(f"fits in {n_threads} threads at once", "the bits of one thread; limits of BLAS as before")
    X, y = cases.plain(m=20)
    before = blas_threads()

    def fit(k: int) -> bytes:
        kernel, n_jobs = ("linear", "rbf")[k % 2], 1 + k // 2 % 2
        return bits(ChainCRF(kernel, n_components=10, random_state=0, n_jobs=n_jobs, C=1.0).fit(X, y), X)

    expected = [fit(k) for k in range(n_threads)]
    for _ in range(rounds):
        for found, one in zip(in_threads(n_threads, fit), expected, strict=True):
            trial.check(found == one, repr(found)[:200])
        trial.check(blas_threads() == before, f"BLAS has {blas_threads()} threads, and had {before}")
    return trial


def environment(**others: str) -> dict[str, str]:
    """Return the environment of a process that compiles its own code."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("NUMBA", "XDG", "PYTHONDONT"))}
    path = os.pathsep.join(filter(None, [others.pop("PYTHONPATH", os.environ.get("PYTHONPATH")), *PLACES]))
    return kept | {"PYTHONDONTWRITEBYTECODE": "1", "PYTHONPATH": path} | others


def started(bound: tuple[str, ...] = (), **others: str) -> subprocess.Popen[str]:
    """Start a process that fits and prints the bits of its probabilities."""
    command = [*bound, sys.executable, "-c", FIT]
    return subprocess.Popen(
        command, env=environment(**others), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )


def processes(folder: Path, n: int, rounds: int) -> Iterator[Trial]:
    """Start processes that compile at the same time into one cache."""
    X, y = cases.plain(m=20)
    expected = (
        np.concatenate(ChainCRF(n_components=10, random_state=0, C=1.0).fit(X, y).predict_proba(X)).tobytes().hex()
    )
    shared = Trial(
        f"fits in {n} processes at once, which compile into one empty cache of Numba's, and {n} more on the full one",
        "the same bits from all, no error",
    )
    for k in range(rounds):
        for _ in range(2):
            running = [started(NUMBA_CACHE_DIR=str(folder / f"cache {k}")) for _ in range(n)]
            for process in running:
                out, err = process.communicate()
                shared.check(process.returncode == 0 and out == expected, err[-300:])
    yield shared
    readonly = Trial(
        "import and fit where installation and home are read-only; with the disk of the cache full",
        "the same bits; compiled anew by each process",
    )
    package, home = folder / "package", folder / "home"
    shutil.copytree(common.source(), package / "kernelcrf", ignore=shutil.ignore_patterns("__pycache__"))
    home.mkdir()
    for place in (*package.rglob("*"), package, home):
        if place.is_dir():
            place.chmod(0o555)
    # Root may write anywhere, unless it gives that up.
    bound = ("setpriv", "--bounding-set=-dac_override,-dac_read_search") if os.geteuid() == 0 else ()
    places = {"HOME": str(home), "XDG_CACHE_HOME": str(home / "cache"), "PYTHONPATH": str(package)}
    for _ in range(rounds):
        process = started(bound, **places)
        out, err = process.communicate()
        readonly.check(process.returncode == 0 and out == expected, err[-300:])
    # Files of no byte at all: what a full disk leaves.
    full = ("bash", "-c", 'ulimit -f 0; exec "$@"', "bash")
    for k in range(rounds):
        process = started(full, NUMBA_CACHE_DIR=str(folder / f"full {k}"))
        out, err = process.communicate()
        readonly.check(process.returncode == 0 and out == expected, err[-300:])
    for place in (*package.rglob("*"), package, home):
        if place.is_dir():
            place.chmod(0o755)
    yield readonly


def forked(rounds: int) -> Trial:
    """Fork a process that has fitted; its children do not have its threads."""
    trial = Trial(
        "fork after a fit with n_jobs=2: predictions and fits in the children, several at once",
        "the bits of the parent, no hang",
    )
    X, y = cases.plain(m=20)
    model = ChainCRF(n_components=10, random_state=0, n_jobs=2, C=1.0).fit(X, y)
    expected = bits(model, X)
    context = get_context("fork")

    def child(answers: Any) -> None:
        again = ChainCRF(n_components=10, random_state=0, n_jobs=2, C=1.0).fit(X, y)
        answers.put((bits(model, X), bits(again, X)))

    for _ in range(rounds):
        answers = context.Queue()
        children = [context.Process(target=child, args=(answers,)) for _ in range(3)]
        for one in children:
            one.start()
        for _ in children:
            try:
                found = answers.get(timeout=120)
            except Exception as error:
                found = (type(error).__name__,)
            trial.check(found == (expected, expected), str(found)[:100])
        for one in children:
            one.join(timeout=10)
            one.kill()
    return trial


class Watch:
    """Record the most threads that this process had while a block ran."""

    def __init__(self) -> None:
        self.threads, self.ended = 0, False
        self.controller = ThreadpoolController()

    def __enter__(self) -> Watch:
        self.base = len(os.listdir("/proc/self/task")) + 1
        self.thread = threading.Thread(target=self._look)
        self.thread.start()
        return self

    def _look(self) -> None:
        while not self.ended:
            self.threads = max(self.threads, len(os.listdir("/proc/self/task")) - self.base)
            time.sleep(0.0005)

    def __exit__(self, *_: Any) -> None:
        self.ended = True
        self.thread.join()


def limits(
    jobs: tuple[int, ...] = (1, 2, 4), of_blas: tuple[str, ...] = ("1", "2"), given: tuple[int, ...] = (0, 1)
) -> Trial:
    """Try n_jobs and the limits that users set, each in a fresh process."""
    trial = Trial(
        "n_jobs of 1, 2 and 4 under NUMBA_NUM_THREADS=1, OPENBLAS_NUM_THREADS of 1 and 2, and threadpoolctl's limits",
        "n_jobs - 1 threads are added and no more; limits of BLAS are as before and never exceeded",
    )
    for n_jobs in jobs:
        for blas in of_blas:
            for limit in given:
                others = {"OPENBLAS_NUM_THREADS": blas, "NUMBA_NUM_THREADS": "1", "OMP_NUM_THREADS": "1"}
                code = f"from trials import concurrency; print(concurrency.added_threads({n_jobs}, {limit}))"
                others["PYTHONPATH"] = os.pathsep.join(filter(None, [os.environ.get("PYTHONPATH"), *PLACES]))
                command = [sys.executable, "-c", code]
                done = subprocess.run(command, env=os.environ | others, capture_output=True, text=True)
                trial.check(
                    done.stdout.strip() == f"{n_jobs - 1} True",
                    f"n_jobs={n_jobs}, BLAS {blas}, limit {limit}: {done.stdout.strip()} {done.stderr[-200:]}",
                )
    return trial


def added_threads(n_jobs: int, limit: int) -> str:
    """Return how many threads a fit adds, and whether BLAS has as many after it as before."""
    # Enough tokens for a part of the data per thread.
    X, y = cases.plain(m=600, longest=40, d=8)
    ChainCRF(n_components=50, random_state=0, C=1.0).fit(X, y)
    with threadpool_limits(limit or None):
        before = blas_threads()
        with Watch() as watch:
            ChainCRF(n_components=200, random_state=0, n_jobs=n_jobs, C=1.0).fit(X, y).predict(X)
        return f"{watch.threads} {blas_threads() == before}"


def resident() -> float:
    """Return the megabytes of memory that this process holds."""
    gc.collect()
    line = next(line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith("VmRSS"))
    return float(line.split()[1]) / 1024


def memory(n_fits: int, n_predictions: int, most: float = 5.0) -> Iterator[Trial]:
    """Measure memory over many fits and predictions, after the first tenth of them."""
    X, y = cases.plain(m=10)
    estimators: dict[str, Callable[[], Any]] = {
        "ChainCRF": lambda: ChainCRF(n_components=10, random_state=0, C=1.0).fit(X, y),
        "ChainCRF, linear, n_jobs=2": lambda: ChainCRF("linear", n_jobs=2, C=1.0).fit(X, y),
        "KernelClassifier": lambda: KernelClassifier(n_components=10, random_state=0).fit(*cases.rows((X, y))),
        "GraphCRF": lambda: GraphCRF(n_components=10, random_state=0).fit(*cases.graphs((X, y))),
        "MarkovNetwork": lambda: MarkovNetwork(structure="tree").fit(cases.table((X, y))),
    }
    growth, fitting = {}, Trial(f"many fits, by turns of {len(estimators)} estimators", "")
    for k in range(n_fits):
        if k == n_fits // 10:
            start = resident()
        list(estimators.values())[k % len(estimators)]()
        fitting.times += 1
    growth["fits"] = resident() - start
    if growth["fits"] > most:
        fitting.failures.append(f"{growth['fits']:.1f} MB more after the last nine tenths")
    fitting.holds = f"memory flat: {growth['fits']:+.1f} MB over the last nine tenths (a failure is over {most:g} MB)"
    yield fitting
    asking = Trial("many predictions, by turns of models and methods", "")
    asked = [
        ask
        for model, own in models().values()
        for ask in (
            (lambda model=model, own=own: model.predict_proba(own[:1])),
            (
                lambda model=model, own=own: (model.impute if isinstance(model, MarkovNetwork) else model.predict)(
                    own[:1]
                )
            ),
        )
    ]
    for k in range(n_predictions):
        if k == n_predictions // 10:
            start = resident()
        asked[k % len(asked)]()
        asking.times += 1
    grown = resident() - start
    if grown > most:
        asking.failures.append(f"{grown:.1f} MB more after the last nine tenths")
    asking.holds = f"memory flat: {grown:+.1f} MB over the last nine tenths (a failure is over {most:g} MB)"
    yield asking


def trials(options: argparse.Namespace) -> Iterator[Trial]:
    yield forked(options.rounds)
    yield predictions(options.threads, options.rounds)
    yield fits(8, options.rounds)
    with tempfile.TemporaryDirectory() as folder:
        yield from processes(Path(folder), options.processes, 1)
    yield limits()
    yield from memory(options.fits, options.predictions)


OPTIONS = {"threads": 32, "rounds": 3, "processes": 4, "fits": 500, "predictions": 30_000}
