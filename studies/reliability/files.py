"""Files: hostile and damaged ones.

A tool changes valid files at random and keeps the changes that reach new lines of the library (fuzzing guided by
coverage). It starts from the corpus in `studies/reliability/corpus`, and from model files that earlier versions wrote.
A failure is an error other than the library's own, an execution of more than 10 s, or a process of more than 2 GiB.
Bombs are small files that unpack to very large ones. They must be refused within the documented limits.

Each row names the commit that it was run on. To reproduce a failure, run `python -m studies reliability.fuzz TARGET
--reproduce FILE`.
"""

from __future__ import annotations

import argparse
import gzip
import re
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

from studies import common
from studies.common import Trial

# The share of the executions and the words in the table.
TARGETS = {
    "columns": (250, "column files"),
    "jsonl": (250, "JSON lines"),
    "crfsuite": (200, "CRFsuite's text"),
    "templates": (150, "template files"),
    "npz": (50, ".npz files"),
    "parquet": (50, "Parquet files"),
    "parquet_table": (50, "Parquet files of odd columns"),
    "model_header": (50, "JSON of a model file"),
    "model_state": (30, "JSON and tensors of a model, edited"),
    "checkpoint": (20, "JSON and tensors of a checkpoint, edited"),
    "loaded": (20, "everything that may be called on a loaded model of any estimator"),
    "model_file": (20, "bytes of a model file"),
}
BOMBS = "bombs: gzipped text, packed arrays, a line and a sequence without end"
GIGABYTE = 1 << 30
MOST_MEGABYTES = 1024
# `only` tries the rows with those words again and keeps the others.
OPTIONS = {"runs": 400_000, "learned": "", "only": ""}


def trials(options: argparse.Namespace) -> Iterator[Trial]:
    learned = Path(options.learned or tempfile.mkdtemp(prefix="kernelcrf-learned-"))
    total = sum(share for share, _ in TARGETS.values())
    parts: dict[str, Callable[[], Trial]] = {
        f"fuzzing: {words}": partial(fuzz, target, max(1, options.runs * share // total), learned / target)
        for target, (share, words) in TARGETS.items()
    }
    known = common.known_trials("reliability.files")
    for tried, part in (parts | {BOMBS: read_bombs}).items():
        if options.only in tried or tried not in known:
            trial = part()
            # Rows that are kept may be of another commit than those that are tried again.
            trial.holds += f"; commit {common.commit()}"
            yield trial
        else:
            row = known[tried]
            yield Trial(tried, row["holds"], row["times"], row["failures"])


def fuzz(target: str, count: int, learned: Path) -> Trial:
    """Fuzz a target in a separate process, so that a crash ends nothing else."""
    command = [sys.executable, "-W", "ignore", "-m", "studies", "reliability.fuzz", target]
    command += ["--runs", str(count), "--learned", str(learned)]
    done = subprocess.run(command, cwd=common.ROOT, capture_output=True, text=True, errors="replace")
    said = done.stdout + done.stderr
    peak = re.search(r"stat::peak_rss_mb:\s+(\d+)", said)
    trial = Trial(f"fuzzing: {TARGETS[target][1]}", f"at most {peak[1]} MB" if peak else "")
    executed = re.search(r"Done (\d+) runs", said) or re.search(r"stat::number_of_executed_units: (\d+)", said)
    trial.times = int(executed[1]) if executed else 0
    finds = re.search(r"(\d+) finds", said)
    shown = [line for line in said.splitlines() if re.match(r"find:|==\d+== ERROR|\w+(Error|Exception)\b", line)]
    if finds:
        trial.failures = (shown + ["a further find"] * int(finds[1]))[: int(finds[1])]
    elif done.returncode:
        trial.failures = shown[:3] or [f"ended with code {done.returncode}: {said[-300:]}"]
    return trial


def read_bombs() -> Trial:
    """Read each bomb in a separate process and measure its memory."""
    trial, peaks = Trial(BOMBS, ""), list[float]()
    with tempfile.TemporaryDirectory() as folder:
        for name in ("lines.txt.gz", "line.txt.gz", "sequence.items.gz", "lines.jsonl.gz", "zeros.npz"):
            path = Path(folder) / name
            make_bomb(path)
            code = (
                "import resource, sys; from kernelcrf.formats import FormatError, read\n"
                "try:\n    records = list(read(sys.argv[1]))\nexcept FormatError:\n    print('refused')\n"
                "print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024)"
            )
            run = f'ulimit -v {6 * MOST_MEGABYTES * 1024}; exec "$0" -c "$1" "$2"'
            command = ["bash", "-c", run, sys.executable, code, str(path)]
            done = subprocess.run(command, capture_output=True, text=True, timeout=600)
            *refused, peak = done.stdout.split() or ["0"]
            peaks.append(float(peak))
            fine = refused == ["refused"] and peaks[-1] < MOST_MEGABYTES
            trial.check(fine, f"{name}: {' '.join(refused)} {peak} MB {done.stderr[-200:]}")
    trial.holds = f"refused; at most {max(peaks):,.0f} MB"
    return trial


def make_bomb(path: Path) -> None:
    """Write four gigabytes in a few megabytes: gzip packs the same megabyte again and again."""
    if path.suffix == ".npz":
        head = (
            f"{{'descr': '<f8', 'fortran_order': False, 'shape': ({GIGABYTE // 8}, 1), }}".ljust(117).encode() + b"\n"
        )
        with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive, archive.open("X.npy", "w") as member:
            member.write(b"\x93NUMPY\x01\x00" + len(head).to_bytes(2, "little") + head)
            for _ in range(GIGABYTE >> 20):
                member.write(bytes(1 << 20))
        return
    line = {
        "lines.txt.gz": b"w" * 1020 + b" L\n\n",
        "line.txt.gz": b"w" * 1024,
        "sequence.items.gz": b"L\t" + b"w" * 1021 + b"\n",
        "lines.jsonl.gz": b'{"tokens": ["' + b"w" * 1008 + b'"]}\n',
    }[path.name]
    member = gzip.compress(line * 1024)
    with path.open("wb") as file:
        for _ in range(4096):
            file.write(member)
