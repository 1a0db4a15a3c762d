"""Interruption: signals, full disks, read-only folders.

These count as failures: a file that is neither the old model nor the new one, or that does not load, and an estimator
that is neither as it was nor fitted. Other failures are an exit code or a message that differs from the documented one,
and a Python traceback. A partial file that is left behind is a failure, too. Exceptions are kill -9, and an
interruption of the removal of this file.

*At every line* and *at random lines* mean that a trace function interrupts just before that line of the library runs,
so that no moment is too short to be hit. Signals are sent at a random moment while the process runs.
"""

from __future__ import annotations

import argparse
import os
import random
import resource
import signal
import subprocess
import sys
import tempfile
import time
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

import kernelcrf
from kernelcrf import ChainCRF, GraphCRF, KernelClassifier, MarkovNetwork, MultiLabelCRF, persistence
from kernelcrf.engines import local
from kernelcrf.formats import Record, read, write
from kernelcrf.report import write_report
from studies.common import Trial
from trials import cases
from trials.blas import blas_threads

COMMAND = "from kernelcrf.cli import main; import os, sys; os.write(3, b'.'); main()"
ESTIMATORS: dict[str, tuple[Callable[[], Any], Callable[[cases.Case], tuple[Any, Any]]]] = {
    "ChainCRF": (lambda: ChainCRF(n_components=8, random_state=0, C=1.0), lambda case: case),
    "ChainCRF linear": (lambda: ChainCRF("linear", n_jobs=2, C=1.0), lambda case: case),
    "ChainCRF evidence": (lambda: ChainCRF(C="evidence", n_components=8, random_state=0), lambda case: case),
    "KernelClassifier": (lambda: KernelClassifier(laplace=True, random_state=0), cases.rows),
    "MultiLabelCRF": (lambda: MultiLabelCRF(random_state=0), cases.labelled_sets),
    "GraphCRF": (lambda: GraphCRF(random_state=0), cases.graphs),
    "MarkovNetwork": (lambda: MarkovNetwork(), lambda case: (cases.table(case), None)),
}


class At:
    """Raise `error` before the k-th line of the library that runs; with k=None, only count lines."""

    def __init__(self, k: int | None, error: type[BaseException], files: str = "/kernelcrf/") -> None:
        self.k, self.error, self.files, self.lines = k, error, files, 0

    def __enter__(self) -> At:
        self._before = sys.gettrace()
        sys.settrace(self._call)
        return self

    def __exit__(self, *_: Any) -> None:
        sys.settrace(self._before)

    def _call(self, frame: Any, event: str, _: Any) -> Any:
        return self._line if self.files in frame.f_code.co_filename else None

    def _line(self, frame: Any, event: str, _: Any) -> Any:
        if event == "line":
            self.lines += 1
            if self.lines == self.k:
                sys.settrace(None)
                frame.f_trace = None
                raise self.error
        return self._line


def quiet_fit(model: Any, X: Any, y: Any) -> None:
    """Fit without warnings."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model.fit(X) if isinstance(model, MarkovNetwork) else model.fit(X, y)


def answers(model: Any, X: Any) -> list[np.ndarray]:
    """Return the probabilities of any estimator."""
    return [np.asarray(p) for p in model.predict_proba(X)]


def same(a: list[np.ndarray], b: list[np.ndarray]) -> bool:
    """Return whether two answers are equal bit by bit."""
    return len(a) == len(b) and all(np.array_equal(one, other) for one, other in zip(a, b, strict=True))


def as_before(model: Any, X: Any, expected: list[np.ndarray]) -> bool:
    """Return whether the model answers as it did before."""
    try:
        return same(answers(model, X), expected)
    except Exception:
        return False


def idle() -> bool:
    """Return whether the engine knows of no map and no limit in this thread."""
    states = (local._thread.in_map, local._thread.single)
    return not any(state() is not None if callable(state) else state for state in states)


def fits_interrupted(n: int, seed: int = 0, names: tuple[str, ...] = tuple(ESTIMATORS)) -> Trial:
    """Interrupt the second fit of an estimator at random lines."""
    trial = Trial(
        "KeyboardInterrupt and SystemExit at random lines of a second fit, each estimator",
        "the estimator is fitted (its status says interrupted) or answers as before, bit by bit; threads of BLAS and "
        "the engine are as they were",
    )
    rng, threads = random.Random(seed), blas_threads()
    for name in names:
        make, data = ESTIMATORS[name]
        old, new = data(cases.plain(0)), data(cases.plain(1))
        model = make()
        quiet_fit(model, *old)
        expected = answers(model, old[0])
        with At(None, KeyboardInterrupt) as counted:
            quiet_fit(make(), *new)
        for _ in range(n):
            k, error = rng.randrange(1, counted.lines + 1), rng.choice((KeyboardInterrupt, SystemExit))
            quiet_fit(model, *old)
            try:
                with At(k, error):
                    quiet_fit(model, *new)
                fine = all(np.isfinite(p).all() for p in answers(model, new[0]))
            except (KeyboardInterrupt, SystemExit):
                fine = as_before(model, old[0], expected)
            except Exception as wrong:
                fine, k = False, f"{k}: {type(wrong).__name__}: {wrong}"
            fine = fine and blas_threads() == threads and idle()
            trial.check(fine, f"{name}, {error.__name__} at line {k} of {counted.lines}")
    return trial


def saves_interrupted(folder: Path, every: int = 1) -> Trial:
    """Interrupt a save over an old model at one line in `every`, and at each of the last ten."""
    trial = Trial(
        "KeyboardInterrupt and SystemExit at every line of `save` over an old model",
        "the old model or the new one, whole; a partial file stays only where the removal itself is interrupted",
    )
    X, y = cases.plain()
    old, new = ChainCRF("linear", C=1.0).fit(X, y), ChainCRF("linear", C=10.0).fit(X, y)
    path = folder / "model"
    new.save(path)
    after = path.read_bytes()
    old.save(path)
    before = path.read_bytes()
    with At(None, KeyboardInterrupt) as counted:
        old.save(path)
    for error in (KeyboardInterrupt, SystemExit):
        last = range(max(1, counted.lines - 9), counted.lines + 1)
        for k in sorted({*range(1, counted.lines + 1, every), *last}):
            path.write_bytes(before)
            try:
                with At(k, error):
                    new.save(path)
            except error:
                pass
            whole = path.read_bytes() in (before, after)
            left = [name for name in os.listdir(folder) if name != "model"]
            for name in left:
                (folder / name).unlink()
            cleaning = len(left) == 1 and k > counted.lines - 6
            trial.check(whole and (not left or cleaning), f"{error.__name__} at line {k} of {counted.lines}: {left}")
    return trial


def sentences(n: int) -> str:
    """Return the text of a column file."""
    lines = ("\n".join(f"w{(i * t) % 50} P{t % 3} {'BIO'[t % 3]}" for t in range(9)) for i in range(n))
    return "\n\n".join(lines) + "\n"


def full_disk(folder: Path, n: int) -> Trial:
    """Give every writer room for a part of what it writes (RLIMIT_FSIZE)."""
    trial = Trial(
        "a disk that is full after k bytes: models, reports, JSON lines, CRFsuite's text, column files, .npz, Parquet",
        "the old file as it was, no partial one, an OSError that names the file",
    )
    X, y = cases.plain(m=40)
    model = ChainCRF("linear", C=1.0).fit(X, y)
    vectors, words = folder / "vectors.jsonl", folder / "words.txt"
    write(str(vectors), (Record("vectors", x, own.tolist(), None, "here") for x, own in zip(X, y, strict=True)))
    words.write_text(sentences(40))
    writers: dict[str, Callable[[Path], None]] = {
        "model": model.save,
        "report.html": lambda path: write_report(path, kernelcrf.make_report(model, X, y)),
        "data.npz": lambda path: write(str(path), read(str(vectors))),
        "data.parquet": lambda path: write(str(path), read(str(vectors))),
        "data.jsonl": lambda path: write(str(path), read(str(words))),
        "data.jsonl.gz": lambda path: write(str(path), read(str(words))),
        "data.txt": lambda path: write(str(path), read(str(words))),
    }
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    target = folder / "out"
    target.mkdir()
    for name, save in writers.items():
        path = target / name
        save(path)
        size = path.stat().st_size
        path.write_bytes(b"old")
        for room in sorted({int(share * size) for share in np.linspace(0, 0.999, n)}):
            said = ""
            resource.setrlimit(resource.RLIMIT_FSIZE, (room, hard))
            try:
                save(path)
            except OSError as error:
                said = f"{error.filename}: {error.strerror}"
            except Exception as error:
                said = f"{type(error).__name__}: {error}"
            finally:
                resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
            fine = said == f"{path}: File too large"
            fine = fine and path.read_bytes() == b"old" and os.listdir(target) == [name]
            trial.check(fine, f"{name}, room for {room} of {size} bytes: {said or 'no error'}; {os.listdir(target)}")
        path.unlink()
    target.rmdir()
    return trial


def shell(*arguments: Any, bound: tuple[str, ...] = (), **options: Any) -> subprocess.CompletedProcess[bytes]:
    """Run the command to its end."""
    command = [*bound, sys.executable, "-m", "kernelcrf", *map(str, arguments)]
    return subprocess.run(command, capture_output="stdout" not in options, stdin=subprocess.DEVNULL, **options)


def shell_writes(folder: Path) -> Iterator[Trial]:
    """Run the command with outputs that cannot be written."""
    words, model = folder / "train.txt", folder / "words.kcrf"
    words.write_text(sentences(200))
    assert shell("fit", words, model).returncode == 0
    full = Trial(
        "standard output on a full disk (/dev/full): tag, evaluate, inspect, convert",
        "one line, `error: standard output: No space left on device`, exit code 1",
    )
    for arguments in (
        ("tag", model, words), ("tag", model, words, "--json"), ("evaluate", model, words), ("inspect", model),
        ("convert", words, "-", "--to", "jsonl"),
    ):  # fmt: skip
        with open("/dev/full", "wb") as nowhere:
            done = shell(*arguments, stdout=nowhere, stderr=subprocess.PIPE)
        fine = (done.returncode, done.stderr) == (1, b"error: standard output: No space left on device\n")
        full.check(fine, f"{arguments[0]}: {done.returncode}, {done.stderr.decode()[-200:]}")
    yield full
    closed = Trial(
        "a read-only folder, a pipe or a folder in the place of a file: fit, convert, report",
        "one line that names the file, before the fit, exit code 1; what was there is there",
    )
    readonly = folder / "readonly"
    readonly.mkdir()
    (readonly / "m.kcrf").write_bytes(model.read_bytes())
    readonly.chmod(0o555)
    pipe = folder / "pipe"
    os.mkfifo(pipe)
    # Root may write anywhere, unless it gives that up.
    bound = ("setpriv", "--bounding-set=-dac_override,-dac_read_search") if os.geteuid() == 0 else ()
    for arguments, target in (
        (("fit", words, readonly / "m.kcrf"), readonly / "m.kcrf"),
        (("fit", words, readonly / "new.kcrf"), readonly / "new.kcrf"),
        (("convert", words, readonly / "m.jsonl"), readonly / "m.jsonl"),
        (("report", model, words, readonly / "m.html"), readonly / "m.html"),
        (("fit", words, pipe), pipe),
        (("convert", words, pipe, "--to", "jsonl"), pipe),
        (("fit", words, folder), folder),
    ):
        done = shell(*arguments, bound=bound)
        lines = done.stderr.decode().splitlines()
        fine = done.returncode == 1 and len(lines) == 1 and lines[0].startswith(f"error: {target}: ")
        fine = fine and (readonly / "m.kcrf").read_bytes() == model.read_bytes() and pipe.is_fifo()
        closed.check(fine, f"{arguments[0]} {target}: {done.returncode}, {done.stderr.decode()[-300:]}")
    yield closed


def started(*arguments: Any, **options: Any) -> subprocess.Popen[bytes]:
    """Start the command, and return once it runs."""
    heard, told = os.pipe()

    def hand_over() -> None:
        os.dup2(told, 3)

    command = [sys.executable, "-c", COMMAND, *map(str, arguments)]
    process = subprocess.Popen(command, stderr=subprocess.PIPE, preexec_fn=hand_over, pass_fds=(3,), **options)
    os.close(told)
    os.read(heard, 1)
    os.close(heard)
    return process


def signals(folder: Path, n: int, seed: int = 0) -> Iterator[Trial]:
    """Send SIGINT and SIGTERM to the command at random times."""
    words, model = folder / "train.txt", folder / "words.kcrf"
    target = folder / "signals"
    target.mkdir()
    path, rng, before = target / "m.kcrf", random.Random(seed), model.read_bytes()
    fit = Trial(
        "SIGINT or SIGTERM to `kernelcrf fit` over an old model, at random times",
        "the old model or the new one, no partial file, at most one line, exit code 130 or 143",
    )
    begun = time.perf_counter()
    assert started("fit", words, path).wait() == 0
    seconds = time.perf_counter() - begun
    for _ in range(n):
        path.write_bytes(before)
        number, delay = rng.choice((signal.SIGINT, signal.SIGTERM)), rng.uniform(0, seconds)
        with started("fit", words, path, "--C", "3", stdout=subprocess.DEVNULL) as process:
            time.sleep(delay)
            process.send_signal(number)
            _, said = process.communicate()
        whole = path.read_bytes() == before or kernelcrf.load(path).C == 3.0
        fine = whole and os.listdir(target) == ["m.kcrf"] and process.returncode in (0, 128 + number)
        fine = fine and said in (b"", b"error: interrupted\n")
        fit.check(fine, f"{number.name} after {delay:.2f} s: {process.returncode}, {said.decode()[-300:]}")
    yield fit
    tag = Trial(
        "SIGINT or SIGTERM to `kernelcrf tag` with its output in a file, at random times",
        "the file is a beginning of the whole output that ends with a whole sentence",
    )
    large, out = target / "large.txt", target / "tagged.txt"
    large.write_text((words.read_text() + "\n") * 40)
    begun = time.perf_counter()
    with open(out, "wb") as file:
        assert started("tag", model, large, stdout=file).wait() == 0
    seconds, complete = time.perf_counter() - begun, out.read_bytes()
    for _ in range(n):
        number, delay = rng.choice((signal.SIGINT, signal.SIGTERM)), rng.uniform(0, seconds)
        with open(out, "wb") as file, started("tag", model, large, stdout=file) as process:
            time.sleep(delay)
            process.send_signal(number)
            _, said = process.communicate()
        found = out.read_bytes()
        fine = complete.startswith(found) and (not found or found.endswith(b"\n\n") or found == complete)
        fine = fine and process.returncode in (0, 128 + number) and said in (b"", b"error: interrupted\n")
        tag.check(fine, f"{number.name} after {delay:.2f} s: {process.returncode}, {said.decode()[-300:]}")
    yield tag


WRITER = """
import sys
import kernelcrf
one, other = (kernelcrf.load(path) for path in sys.argv[1:3])
print(flush=True)
while True:
    one.save(sys.argv[3])
    other.save(sys.argv[3])
"""


def killed(folder: Path, n: int, loads: int, seed: int = 0) -> Iterator[Trial]:
    """Kill writers, and load models while others save them."""
    X, y = cases.plain(m=200, longest=20)
    paths = folder / "one", folder / "other"
    for path, C in zip(paths, (1.0, 10.0), strict=True):
        ChainCRF(C=C, n_components=300, random_state=0).fit(X, y).save(path)
    target = folder / "killed"
    target.mkdir()
    path, rng = target / "model", random.Random(seed)
    states = [one.read_bytes() for one in paths]
    kill = Trial(
        "kill -9 to a process that saves without pause, at random times",
        "the old model or the new one, whole; the next save removes what the killed ones left",
    )
    command = [sys.executable, "-c", WRITER, *map(str, paths), str(path)]
    for _ in range(n):
        path.write_bytes(states[0])
        with subprocess.Popen(command, stdout=subprocess.PIPE) as process:
            assert process.stdout is not None
            process.stdout.readline()
            time.sleep(rng.uniform(0, 0.3))
            process.kill()
        kill.check(path.read_bytes() in states, f"{path.stat().st_size} bytes of {list(map(len, states))}")
    kernelcrf.load(path).save(path)
    kill.check(os.listdir(target) == ["model"], f"after another save: {os.listdir(target)}")
    yield kill
    beside = Trial("loads beside two processes that save to one name without pause", "each is one of the two models")
    with subprocess.Popen(command, stdout=subprocess.PIPE) as a, subprocess.Popen(command, stdout=subprocess.PIPE) as b:
        for process in (a, b):
            assert process.stdout is not None
            process.stdout.readline()
        for _ in range(loads):
            try:
                beside.check(kernelcrf.load(path).C in (1.0, 10.0), "another model")
            except persistence.ModelFileError as error:
                beside.check(False, str(error))
        a.kill()
        b.kill()
    yield beside


def trials(options: argparse.Namespace) -> Iterator[Trial]:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        yield fits_interrupted(options.fits)
        (folder / "saves").mkdir()
        yield saves_interrupted(folder / "saves")
        (folder / "full").mkdir()
        yield full_disk(folder / "full", options.rooms)
        yield from shell_writes(folder)
        yield from signals(folder, options.signals)
        yield from killed(folder, options.kills, options.loads)


OPTIONS = {"fits": 20, "rooms": 10, "signals": 15, "kills": 10, "loads": 250}
