"""Fuzz one target, or reproduce a find.

python -m studies reliability.fuzz jsonl --runs 100000         guided by coverage, by atheris (`pip install atheris`)
python -m studies reliability.fuzz jsonl --plain --runs 2000   random mutations of the corpus, without atheris
python -m studies reliability.fuzz jsonl --reproduce FILE      one execution, with its traceback
python -m studies reliability.fuzz --write-models              write the models of corpus/models again

`fuzz_targets` lists the targets. A find is an error other than the library's, an execution of more than SECONDS, or
more than MEGABYTES of memory. Atheris leaves the bytes of a find in the folder `--finds`, and what it learned in
`--learned`, from where a later run goes on.
"""

from __future__ import annotations

import argparse
import importlib
import os
import random
import resource
import signal
import sys
import tempfile
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

TARGETS = "studies.reliability.fuzz_targets"
SECONDS = 10
MEGABYTES = 2048
LONGEST = 8192
# Numba cannot compile what atheris has rewritten.
LOOPS = ("scaled", "logspace", "tangents", "decoding", "clique_tree", "loopy", "gibbs", "fused", "compiled")
COMPILED = [
    *(f"kernelcrf.inference.loops.{name}" for name in LOOPS),
    *("kernelcrf.basis.distinct_inputs", "kernelcrf.basis.sparse_entries", "kernelcrf.solvers.ascent_loops"),
]


def main(arguments: list[str]) -> None:
    """Run the command."""
    parser = argparse.ArgumentParser(
        "python -m studies reliability.fuzz", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("target", nargs="?")
    parser.add_argument("--write-models", action="store_true")
    parser.add_argument("--runs", type=int, default=10_000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--plain", action="store_true")
    parser.add_argument("--reproduce", type=Path)
    parser.add_argument("--finds", type=Path, default=Path(tempfile.gettempdir()) / "kernelcrf-finds")
    parser.add_argument("--learned", type=Path)
    options = parser.parse_args(arguments)
    if options.write_models:
        importlib.import_module("studies.reliability.fuzz_loaded").write_models()
    elif options.reproduce:
        importlib.import_module(TARGETS).TARGETS[options.target](options.reproduce.read_bytes())
        print("no find")
    elif options.plain:
        found = plain(options.target, options.runs, options.seed)
        for error in found[:10]:
            print("find:", " ".join(f"{type(error).__name__}: {error}".split())[:300])
        print(f"Done {options.runs} runs, {len(found)} finds")
        raise SystemExit(bool(found))
    else:
        guided(options)


def guided(options: argparse.Namespace) -> None:
    """Fuzz by atheris, which ends the process itself."""
    import atheris

    with atheris.instrument_imports(include=["kernelcrf"], exclude=COMPILED, enable_loader_override=False):
        targets = importlib.import_module(TARGETS)
    options.finds.mkdir(parents=True, exist_ok=True)
    learned = options.learned or Path(tempfile.mkdtemp(prefix="kernelcrf-learned-"))
    learned.mkdir(parents=True, exist_ok=True)
    seeds = Path(tempfile.mkdtemp(prefix="kernelcrf-seeds-"))
    for i, seed in enumerate(targets.corpus(options.target)):
        (seeds / str(i)).write_bytes(seed)
    arguments = [
        *(sys.argv[0], f"-runs={options.runs}", f"-seed={options.seed}", f"-max_len={LONGEST}", f"-timeout={SECONDS}"),
        *(f"-rss_limit_mb={MEGABYTES}", f"-artifact_prefix={options.finds}/{options.target}-", "-print_final_stats=1"),
        *(str(learned), str(seeds)),
    ]
    atheris.Setup(arguments, targets.TARGETS[options.target])
    atheris.Fuzz()


def plain(target: str, runs: int, seed: int) -> list[BaseException]:
    """Return the finds of executions of mutated seeds, each with its bytes in a note."""
    targets: Any = importlib.import_module(TARGETS)
    function: Callable[[bytes], None] = targets.TARGETS[target]
    seeds, rng, found = targets.corpus(target), random.Random(seed), list[BaseException]()
    limits, handler = resource.getrlimit(resource.RLIMIT_AS), signal.signal(signal.SIGALRM, _late)
    # Loops are compiled before the clock runs.
    for one in [*targets.warm_up(target), *seeds]:
        with suppress(Exception):
            function(one)
    resource.setrlimit(resource.RLIMIT_AS, (_address_space() + (MEGABYTES << 20), limits[1]))
    try:
        for _ in range(runs):
            data = mutate(seeds, rng)
            signal.alarm(SECONDS)
            try:
                function(data)
            except Exception as error:
                error.add_note(f"the bytes of the find: {data!r}")
                found.append(error)
            finally:
                signal.alarm(0)
    finally:
        resource.setrlimit(resource.RLIMIT_AS, limits)
        signal.signal(signal.SIGALRM, handler)
    return found


def mutate(seeds: list[bytes], rng: random.Random) -> bytes:
    """Return a seed with a few places flipped, cut, doubled, overwritten, or taken from another seed."""
    data = bytearray(rng.choice(seeds))
    for _ in range(rng.randint(1, 6)):
        place, length = rng.randint(0, len(data)), rng.randint(1, 1 << rng.randint(0, 6))
        kind = rng.randrange(7)
        if kind == 0 and data:
            data[place % len(data)] ^= 1 << rng.randrange(8)
        elif kind == 1:
            del data[place : place + length]
        elif kind == 2:
            data[place:place] = data[place : place + length]
        elif kind == 3:
            data[place : place + length] = rng.randbytes(length)
        elif kind == 4:
            other = rng.choice(seeds)
            start = rng.randint(0, len(other))
            data[place:place] = other[start : start + length]
        elif kind == 5:
            data[place:place] = rng.choice(WORDS)
        else:
            data[place : place + 1] = bytes([rng.choice(b'0123456789"[]{}:,\\ \t\n\r@%#.eE-+U\0\xff')])
    return bytes(data[:LONGEST])


WORDS = (
    *(b"null", b"true", b"9" * 30, b"9" * 5000, b"[" * 3000, b'{"a":' * 2000, b"\xed\xa0\x80", b"\xef\xbb\xbf"),
    *(b"\x1f\x8b\x08\x00", b"\r\n\r\n", b"\n\n", b'%m[0,0,"', *b"1e400 -1e-400 NaN Infinity \\ud800 @weight:".split()),
    *b"nan inf %x[0,0] (?P<a> {1,99999999999} (((( \\1 %t[-1,1, tokens features".split(),
)


def _address_space() -> int:
    with open("/proc/self/statm") as file:
        return int(file.read().split()[0]) * os.sysconf("SC_PAGESIZE")


def _late(number: int, frame: Any) -> None:
    raise TimeoutError(f"an execution of more than {SECONDS} seconds")
