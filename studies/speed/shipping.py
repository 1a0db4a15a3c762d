"""Shipping a model: the tagger of NumPy alone beside the library and CRFsuite.

`kernelcrf-tagger` opens the files of the library. Models are fitted by a few iterations, and saved with weights of 64,
32 and 16 bits. The first table counts test tokens whose label differs between the tagger and the library, and tokens
whose label changes if weights are rounded. CoNLL-2000 has lists of 19 feature names per token, or dicts of 19 strings.
WNUT-17 has dicts of strings, constraints="BIO" and decoding="f1". The addresses are the nested dicts of the package
usaddress, which must be installed. Letters are 128 pixels with 500 landmarks. Occupancy is a pipeline of
StandardScaler, PCA and a chain with 100 landmarks. *Several inputs* is a model of the same data with two inputs: the
readings, and dicts with the hour.

The second table has the CPU time of labelling one item per call. The item is made before the clock starts. Sides take
turns, and the median of the rounds counts. CRFsuite has the same weights. It copies the strings of an item to C++
first; in the column *features copied before*, this is not part of the time.

The third table has the CPU time and the peak memory of a fresh process from its start to the first label. The time is
that beyond an empty Python process; files are in the page cache, and loops were compiled before. The size is that of
all installed files with the dependencies, without pip. The wheel of the tagger is built from the checkout, and its
process finds neither the library nor SciPy.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import subprocess
import sys
import tempfile
import time
import warnings
import zipfile
from collections.abc import Callable, Iterator
from importlib.metadata import distribution
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from sklearn.decomposition import PCA
from sklearn.exceptions import ConvergenceWarning
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from kernelcrf import ChainCRF, Input, save
from kernelcrf.datasets import load_us_addresses, load_wnut17
from kernelcrf.preprocessing import PerToken
from kernelcrf.tagger.tagger import Tagger
from studies import common
from studies.datasets import load_letters, load_occupancy
from studies.speed import chunking
from studies.speed.tagging import as_dicts

BITS = {"float64": None, "float32": "float32", "float16": "float16"}
PACKAGES = {
    "tagger": ("numpy", "safetensors"),
    "library": (
        *("numpy", "scipy", "scikit-learn", "joblib", "numba", "llvmlite", "safetensors", "threadpoolctl", "tqdm"),
    ),
    "CRFsuite": ("python-crfsuite",),
}
START = "import json, sys; x = json.loads(sys.stdin.read()); "
FIRST_LABEL = {
    "Python": START + "len(x)",
    "NumPy": START + "import numpy",
    "tagger": START
    + "sys.modules.update(dict.fromkeys(('kernelcrf', 'scipy', 'sklearn', 'numba'))); "
    + "sys.path.insert(0, {wheel!r}); from kernelcrf_tagger import Tagger; Tagger.open({path!r}).tag(x)",
    "library": START + "from kernelcrf import load; load({path!r}).predict([x])",
    "CRFsuite": START + "import pycrfsuite; tagger = pycrfsuite.Tagger(); tagger.open({crfsuite!r}); "
    "tagger.tag(pycrfsuite.ItemSequence(x))",
}
MEMORY = "; print(*(line for line in open('/proc/self/status') if line.startswith('VmHWM')))"


class Task(NamedTuple):
    """A fitted model, and a function that makes the sequences of its test data anew."""

    model: Any
    fresh: Callable[[], list[Any]]


def conll(iterations: int) -> Task:
    train, test = (chunking.sentences(split) for split in ("train", "test"))
    X, y = [chunking.features(one) for one in train], [chunking.labels(one) for one in train]
    model = ChainCRF("linear", C=1.0, max_iter=iterations).fit(X, y)
    return Task(model, lambda: [chunking.features(one) for one in test])


def conll_dicts(iterations: int) -> Task:
    train, test = (chunking.sentences(split) for split in ("train", "test"))
    X, y = [as_dicts(chunking.features(one)) for one in train], [chunking.labels(one) for one in train]
    model = ChainCRF("linear", C=1.0, max_iter=iterations).fit(X, y)
    return Task(model, lambda: [as_dicts(chunking.features(one)) for one in test])


def words(sentence: Any) -> list[dict[str, str]]:
    """Return a few features of the words of a sentence."""
    texts = ["<s>", *(token["word"] for token in sentence), "</s>"]
    return [
        {
            "word": texts[t].lower(),
            "before": texts[t - 1].lower(),
            "after": texts[t + 1].lower(),
            "shape": re.sub("[a-z]+", "a", re.sub("[A-Z]+", "A", re.sub("[0-9]+", "0", texts[t]))),
            "begins": texts[t][:3],
            "ends": texts[t][-3:],
        }
        for t in range(1, len(texts) - 1)
    ]


def wnut(iterations: int) -> Task:
    train, test = load_wnut17("train"), load_wnut17("test")
    options = {"constraints": "BIO", "decoding": "f1", "C": 1.0, "max_iter": iterations}
    model = ChainCRF("linear", **options).fit([words(one) for one in train.X], train.y)
    return Task(model, lambda: [words(one) for one in test.X])


def addresses(iterations: int) -> Task:
    import usaddress

    data = load_us_addresses("train")

    def fresh() -> list[Any]:
        return [usaddress.tokens2features([token["word"] for token in one]) for one in data.X]

    model = ChainCRF("linear", C=5.0, max_iter=iterations).fit(fresh(), [one.tolist() for one in data.y])
    return Task(model, fresh)


def letters(iterations: int) -> Task:
    data = load_letters()
    test = data.folds == 0
    train_X, train_y = ([one for one, out in zip(part, test, strict=True) if not out] for part in (data.X, data.y))
    new = [np.asarray(x, np.float64) for x, out in zip(data.X, test, strict=True) if out]
    options = {"gamma": 0.02, "n_components": 500, "C": 10.0, "max_iter": iterations, "random_state": 0}
    model = ChainCRF("rbf", **options).fit([np.asarray(x, np.float64) for x in train_X[:2000]], train_y[:2000])
    return Task(model, lambda: [x.copy() for x in new])


def occupancy(iterations: int) -> Task:
    train, test = load_occupancy("train", by_day=True), load_occupancy("test1", by_day=True)
    crf = ChainCRF("rbf", n_components=100, C=1.0, max_iter=iterations, random_state=0)
    model = make_pipeline(PerToken(make_pipeline(StandardScaler(), PCA(4))), crf).fit(train.X, train.y)
    return Task(model, lambda: [x.copy() for x in test.X])


def several(iterations: int) -> Task:
    train, test = load_occupancy("train", by_day=True), load_occupancy("test1", by_day=True)

    def entries(data: Any) -> list[Any]:
        hours = [[{"hour": str(one)[11:13]} for one in dates] for dates in data.extras["date"]]
        return [{"air": x / [1, 10, 100, 100, 0.001], "time": hour} for x, hour in zip(data.X, hours, strict=True)]

    inputs = {"air": Input("rbf", n_components=100), "time": Input("linear")}
    model = ChainCRF(inputs=inputs, C=1.0, max_iter=iterations, random_state=0).fit(entries(train), train.y)
    return Task(model, lambda: entries(test))


TASKS: dict[str, Callable[[int], Task]] = {
    "CoNLL-2000": conll,
    "CoNLL-2000, dicts": conll_dicts,
    "WNUT-17": wnut,
    "addresses": addresses,
    "letters, rbf": letters,
    "occupancy, pipeline": occupancy,
    "several inputs": several,
}
ONE_AT_A_TIME = ("addresses", "CoNLL-2000", "CoNLL-2000, dicts")


def flat(labels: list[Any]) -> np.ndarray:
    return np.concatenate([np.asarray(one) for one in labels])


def compare(task: Task, folder: Path) -> dict[str, Any]:
    """Return how the answers of the tagger differ from those of the library, and the sizes of the files."""
    X, found = task.fresh(), {}
    known = flat(task.model.predict(X))
    for bits, dtype in BITS.items():
        path = folder / f"{bits}.kcrf"
        save(task.model, path, dtype=dtype)
        labels = flat(Tagger.open(path).tag_all(X))
        found[bits] = {"kB": path.stat().st_size / 1e3, "changed": int((labels != known).sum())}
    ours, theirs = Tagger.open(folder / "float64.kcrf").probabilities_all(X), task.model.predict_proba(X)
    error = max(float(np.abs(p - q).max()) for p, q in zip(ours, theirs, strict=True) if len(p))
    return {"tokens": len(known), "sequences": len(X), "error": error, "bits": found}


def cpu(call: Callable[[Any], Any], inputs: list[Any]) -> float:
    """Return the CPU seconds of a call per input."""
    start = time.process_time()
    for one in inputs:
        call(one)
    return (time.process_time() - start) / len(inputs)


def latencies(task: Task, folder: Path, rounds: int, items: int) -> dict[str, float]:
    """Return the median CPU seconds of one item at a time, for each side."""
    import pycrfsuite

    save(task.model, folder / "model.crfsuite")
    peer, tagger, model = pycrfsuite.Tagger(), Tagger.open(folder / "float64.kcrf"), task.model
    peer.open(str(folder / "model.crfsuite"))
    sides: dict[str, tuple[Callable[[Any], Any], Callable[[Any], Any]]] = {
        "CRFsuite": (lambda x: x, lambda x: peer.tag(pycrfsuite.ItemSequence(x))),
        "CRFsuite, converted": (pycrfsuite.ItemSequence, peer.tag),
        "tagger": (lambda x: x, tagger.tag),
        "tagger, probabilities": (lambda x: x, tagger.probabilities),
        "library": (lambda x: x, lambda x: model.predict([x])),
        "library, probabilities": (lambda x: x, lambda x: model.predict_proba([x])),
    }
    times: dict[str, list[float]] = {name: [] for name in sides}
    for _ in range(rounds):
        for name, (convert, call) in sides.items():
            times[name].append(cpu(call, [convert(x) for x in task.fresh()[:items]]))
    return {name: float(np.median(seconds)) for name, seconds in times.items()}


def wheel(folder: Path) -> Path:
    """Build the wheel of the tagger, and return the folder with its files."""
    build = "import sys; from hatchling import build; build.build_wheel(sys.argv[1])"
    command = [sys.executable, "-c", build, str(folder)]
    subprocess.run(command, cwd=common.ROOT / "tagger", check=True, stdout=subprocess.DEVNULL)
    (path,) = folder.glob("*.whl")
    with zipfile.ZipFile(path) as file:
        file.extractall(folder / "wheel")
    return folder / "wheel"


def starts(folder: Path, unpacked: Path, x: Any, rounds: int) -> dict[str, dict[str, float]]:
    """Return the CPU seconds and the peak megabytes of fresh processes, from their start to the first label."""
    import resource

    names = {"wheel": str(unpacked), "path": str(folder / "float64.kcrf"), "crfsuite": str(folder / "model.crfsuite")}
    found: dict[str, list[tuple[float, float]]] = {name: [] for name in FIRST_LABEL}
    environment = os.environ | {"OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1"}
    environment.pop("PYTHONDONTWRITEBYTECODE", None)
    for _ in range(rounds + 1):
        for name, code in FIRST_LABEL.items():
            before = resource.getrusage(resource.RUSAGE_CHILDREN)
            command = [sys.executable, "-W", "ignore", "-c", code.format(**names) + MEMORY]
            done = subprocess.run(
                command, input=json.dumps(x), env=environment, stdout=subprocess.PIPE, text=True, check=True
            )
            after = resource.getrusage(resource.RUSAGE_CHILDREN)
            spent = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
            found[name].append((spent, float(done.stdout.split()[-2]) / 1e3))
    # The first round writes bytecode, and fills the page cache.
    medians = {name: np.median(values[1:], axis=0) for name, values in found.items()}
    return {name: {"seconds": both[0] - medians["Python"][0], "MB": both[1]} for name, both in medians.items()}


def installed(unpacked: Path) -> dict[str, float]:
    """Return the megabytes of the installed files of each side, with its dependencies."""

    def files(name: str) -> Iterator[Path]:
        for file in distribution(name).files or ():
            path = Path(str(file.locate()))
            if path.is_file():
                yield path

    own = {"tagger": unpacked, "library": common.source()}
    sizes = {}
    for side, names in PACKAGES.items():
        paths = [path for name in names for path in files(name)]
        paths += own[side].rglob("*.py") if side in own else ()
        sizes[side] = sum(path.stat().st_size for path in paths) / 1e6
    return sizes


def measure(options: argparse.Namespace) -> dict[str, Any]:
    found: dict[str, Any] = {"rounds": options.rounds, "tasks": {}, "latencies": {}, "starts": {}}
    with tempfile.TemporaryDirectory() as name, warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        folder = Path(name)
        unpacked = wheel(folder)
        for task_name, make in TASKS.items():
            task = make(options.iterations)
            found["tasks"][task_name] = compare(task, folder)
            if task_name in ONE_AT_A_TIME:
                found["latencies"][task_name] = latencies(task, folder, options.rounds, options.items)
                found["starts"][task_name] = starts(folder, unpacked, task.fresh()[0], options.rounds)
            print(task_name, json.dumps(found["tasks"][task_name]), flush=True)
        found["MB"] = installed(unpacked)
    return found


def table(results: dict[str, Any]) -> str:
    rows = []
    for name, row in results["tasks"].items():
        bits = row["bits"]
        cells = [f"{row['tokens']:,}", f"{bits['float64']['changed']:,}", f"{row['error']:.0e}"]
        cells += [f"{bits[one]['kB']:,.0f}" for one in BITS]
        rows.append([name, *cells, *(f"{bits[one]['changed']:,}" for one in ("float32", "float16"))])
    sizes = [f"kB, {bits} bits" for bits in (64, 32, 16)]
    changes = [f"labels changed by {bits} bits" for bits in (32, 16)]
    differences = ["other labels", "largest difference of a probability"]
    answers = common.markdown(["data", "tokens", *differences, *sizes, *changes], rows)
    sides = list(next(iter(results["latencies"].values())))
    titles = [side.replace("converted", "features copied before") for side in sides]
    rows = [
        [name, *(f"{1e6 * row[side]:.0f} ({row[side] / row['CRFsuite']:.1f})" for side in sides)]
        for name, row in results["latencies"].items()
    ]
    alone = common.markdown(["one item, µs (divided by CRFsuite)", *titles], rows)
    shown = [side for side in FIRST_LABEL if side not in ("Python", "NumPy")]
    rows = [
        [
            side,
            f"{results['MB'][side]:.0f}",
            *(f"{row[side]['seconds']:.2f} s, {row[side]['MB']:.0f} MB" for row in results["starts"].values()),
        ]
        for side in shown
    ]
    fresh = common.markdown(["", "installed, MB", *(f"first label, {name}" for name in results["starts"])], rows)
    return f"{answers}\n\n{alone}\n\n{fresh}\n\nTimes are medians of {results['rounds']} rounds."


OPTIONS = {"rounds": 5, "iterations": 12, "items": 700}
