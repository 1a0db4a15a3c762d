"""Files: hostile, damaged and old ones.

The targets of `reliability/fuzz_targets.py` are fuzzed, guided by coverage, from the corpus in `reliability/corpus` and
the golden models; a failure is an error other than the library's own, an execution of more than 10 s or a process of
more than 2 GiB. *Failed before* are mutations of the corpus at random, which need no atheris. A find is reproduced by
`python reliability/fuzz.py TARGET --reproduce FILE`. Bombs, small files that unpack to much, must be refused within the
documented limits; models that were saved before must be read and predict what they did.

`--only WORDS` tries again the rows with those words, and keeps the others: each row names the commit that it was run
on, and the minutes below are those of the last run alone. At commit 6b13f62 the million ended early, with a find in the
bytes of a model file after 1,629 executions (probabilities that do not sum to one); that row was run anew after it was
mended. The rows of a model at 6b13f62 asked for sums of one only where weights are below 1e9; later ones always do.
"""

from __future__ import annotations

import argparse
import gzip
import json
import re
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import common
from common import Find, Trial

SHARES = {
    "columns": 250,
    "jsonl": 250,
    "crfsuite": 200,
    "templates": 150,
    "npz": 50,
    "parquet": 50,
    "parquet_table": 50,
    "model_header": 50,
    "model_state": 30,
    "checkpoint": 20,
    "loaded": 20,
    "model_file": 20,
}
WORDS = {
    "columns": "column files",
    "jsonl": "JSON lines",
    "crfsuite": "CRFsuite's text",
    "templates": "template files",
    "npz": ".npz files",
    "parquet": "Parquet files",
    "parquet_table": "Parquet files of odd columns",
    "model_header": "JSON of a model file",
    "model_state": "JSON and tensors of a model, edited",
    "checkpoint": "JSON and tensors of a checkpoint, edited",
    "loaded": "everything that may be called on a loaded model of any estimator",
    "model_file": "bytes of a model file",
}
BOMBS = "bombs: gzipped text, packed arrays, a line and a sequence without end"
GOLDEN = "golden models: read and asked for their predictions"
GIGABYTE = 1 << 30
MOST_MEGABYTES = 1024

FINDS = (
    Find(
        "Column indices of sparse landmarks beyond the columns were taken from a model file as they were, and compiled "
        "products read memory there.",
        "such a model is refused.",
        "test_models_that_would_do_harm_when_they_predict_are_refused",
    ),
    Find(
        "A model file could ask for a label kernel of terabytes, a polynomial of degree 10^15, kernels with words for "
        "parameters, threads that are no number: memory, time or a stray error when it predicted.",
        "refused as it is read.",
        "test_models_that_would_do_harm_when_they_predict_are_refused",
    ),
    Find(
        "Gzipped text and packed arrays were unpacked to any size.",
        "at most 256 MiB, or a hundred times the packed size where that is more.",
        "test_a_gzip_bomb_is_refused_before_it_is_in_memory",
    ),
    Find(
        "A line, or a sequence, without an end was kept until memory ran out.",
        "at most 512 MiB.",
        "test_a_gzip_bomb_is_refused_before_it_is_in_memory",
    ),
    Find(
        "JSON lines: RecursionError of deep nesting, OverflowError of numbers of 400 digits, TypeError of lists within "
        "lists of labels, half a surrogate pair that could be read but not written.",
        "each is named with its line.",
        "test_json_that_was_made_to_do_harm_is_named",
    ),
    Find(
        ".npz: OSError, AttributeError and others of damaged archives; arrays that claim more than their file holds; "
        "lengths whose sum runs over; weights that are words, negative or no numbers.",
        "each is named.",
        "test_what_an_archive_may_not_hold_is_named",
    ),
    Find(
        "CRFsuite's text took nan, inf and negative weights; a token of a blank label was written as the end of its "
        "sequence, and a carriage return at the end of a cell was lost.",
        "refused.",
        "test_what_would_be_read_back_as_something_else_is_not_written",
    ),
    Find(
        "Templates: ValueError of a NUL or of 5,000 digits, OverflowError and RecursionError of regular expressions.",
        "TemplateError, with its line.",
        "test_templates_that_were_made_to_do_harm_are_named",
    ),
    Find(
        "A model file with weights beyond 1e18 gave probabilities that do not sum to one.",
        "they do.",
        "test_marginals_at_scores_of_1e30",
    ),
    Find(
        "Damaged Parquet ended in an OSError without a name, and features that are numbers in a TypeError.",
        "each is named with its file and row.",
        "test_damaged_parquet_is_named",
    ),
    Find(
        "The facts, the HTML and the report of a model whose kernel has parts, such as a product, ended in a KeyError.",
        "they are shown.",
        "test_facts_of_a_model_with_a_kernel_of_several_parts",
    ),
    Find(
        "A model file could have words, objects or NaN for the status and the numbers of its certificate, evidence, "
        "search and C, and maps, templates and terms of no known kind.",
        "refused as it is read.",
        "test_values_that_no_model_has_are_refused",
    ),
    Find(
        "NaN in the features of networkx graphs went unnoticed.",
        "refused, as in other graphs.",
        "test_what_is_no_graph_is_named",
    ),
    Find(
        "Checkpoints were not checked: column indices of sparse landmarks ended the process by a segmentation fault, "
        "other edits in a KeyError, an IndexError or a LinAlgError.",
        "they are checked as models are, and refused.",
        "test_a_forged_checkpoint_is_refused",
    ),
    Find(
        "A lower bound written in a checkpoint was believed, whatever the data.",
        "bounds are computed anew, on the data of the fit.",
        "test_a_bound_that_a_file_claims_is_not_believed",
    ),
    Find(
        "A model saved before a parameter of ChainCRF was added would have been refused.",
        "the parameter takes its default.",
        "test_a_file_from_before_a_parameter_was_there_takes_its_default",
    ),
)


def trials(options: argparse.Namespace) -> Iterator[Trial]:
    learned = Path(options.learned or tempfile.mkdtemp(prefix="kernelcrf-learned-"))
    runs = {target: max(1, options.runs * share // sum(SHARES.values())) for target, share in SHARES.items()}
    parts: dict[str, Callable[[], Trial]] = {
        f"fuzzing: {WORDS[target]}": partial(fuzzed, target, count, learned / target, plain=options.before)
        for target, count in runs.items()
    }
    parts |= {BOMBS: bombs, GOLDEN: golden}
    known = {row["tried"]: row for row in (common.load("files") or {"trials": []})["trials"]}
    for tried, part in parts.items():
        if options.only in tried or tried not in known:
            trial = part()
            # Rows that are kept may be of another commit than those that are tried again.
            trial.holds += f"; commit {common.commit()}"
            yield trial
        else:
            row = known[tried]
            yield Trial(tried, row["holds"], row["times"], row["failures"], row["before"])


def fuzzed(target: str, count: int, learned: Path, plain: bool) -> Trial:
    """Executions in a process of their own, so that a crash ends nothing else."""
    command = [sys.executable, "-W", "ignore", str(Path(__file__).parent / "fuzz.py"), target]
    command += ["--plain", "--runs", "2000"] if plain else ["--runs", str(count), "--learned", str(learned)]
    done = subprocess.run(command, capture_output=True, text=True, errors="replace")
    said = done.stdout + done.stderr
    peak = re.search(r"stat::peak_rss_mb:\s+(\d+)", said)
    trial = Trial(f"fuzzing: {WORDS[target]}", f"at most {peak[1]} MB" if peak else "")
    executed = re.search(r"Done (\d+) runs", said) or re.search(r"stat::number_of_executed_units: (\d+)", said)
    trial.times = int(executed[1]) if executed else 0
    finds = re.search(r"(\d+) finds", said)
    shown = [line for line in said.splitlines() if re.match(r"find:|==\d+== ERROR|\w+(Error|Exception)\b", line)]
    if finds:
        trial.failures = (shown + ["a further find"] * int(finds[1]))[: int(finds[1])]
    elif done.returncode:
        trial.failures = shown[:3] or [f"ended with code {done.returncode}: {said[-300:]}"]
    return trial


def bombs() -> Trial:
    """Each is read in a process of its own, whose memory is measured."""
    trial, peaks = Trial(BOMBS, ""), list[float]()
    with tempfile.TemporaryDirectory() as folder:
        for name in ("lines.txt.gz", "line.txt.gz", "sequence.crfsuite.gz", "lines.jsonl.gz", "zeros.npz"):
            path = Path(folder) / name
            make_bomb(path)
            code = (
                "import resource, sys; from kernelcrf.formats import FormatError, read\n"
                "try:\n    records = list(read(sys.argv[1]))\nexcept FormatError:\n    print('refused')\n"
                "print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024)"
            )
            limit = f"ulimit -v {6 * MOST_MEGABYTES * 1024}; exec"
            run = f'{limit} "$0" -c "$1" "$2"'
            done = subprocess.run(
                ["bash", "-c", run, sys.executable, code, str(path)], capture_output=True, text=True, timeout=600
            )
            *refused, peak = done.stdout.split() or ["0"]
            peaks.append(float(peak))
            trial.check(
                refused == ["refused"] and peaks[-1] < MOST_MEGABYTES,
                f"{name}: {' '.join(refused)} {peak} MB {done.stderr[-200:]}",
            )
    trial.holds = f"refused; at most {max(peaks):,.0f} MB"
    return trial


def make_bomb(path: Path) -> None:
    """Four gigabytes in a few megabytes; what gzip packs is the same megabyte again and again."""
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
        "sequence.crfsuite.gz": b"L\t" + b"w" * 1021 + b"\n",
        "lines.jsonl.gz": b'{"tokens": ["' + b"w" * 1008 + b'"]}\n',
    }[path.name]
    member = gzip.compress(line * 1024)
    with path.open("wb") as file:
        for _ in range(4096):
            file.write(member)


def golden() -> Trial:
    """The models of `tests/golden`, by the code of the tests."""
    sys.path.insert(0, str(common.ROOT / "tests"))
    import numpy as np

    import kernelcrf
    from golden_models import FOLDER, inputs

    trial = Trial(GOLDEN, "every kind and kernel, to 1e-9 (float32 1e-4)")
    for path in sorted(FOLDER.glob("v*/*.kcrf")):
        expected = json.loads((path.parent / "predictions.json").read_text(encoding="utf-8"))[path.stem]["proba"]
        found = kernelcrf.load(path).predict_proba(inputs(path.stem))
        apart = max(float(np.abs(a - np.array(b)).max()) for a, b in zip(found, expected, strict=True))
        trial.check(apart < (1e-4 if path.stem == "single-precision" else 1e-9), f"{path.stem}: {apart:.1e} apart")
    trial.before = "none were kept"
    return trial


if __name__ == "__main__":
    common.run(__doc__ or "", __file__, trials, runs=1_000_000, learned="", only="")
