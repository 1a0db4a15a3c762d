"""`kernelcrf tag` on a stream of a million lines, beside python-crfsuite fed the same features.

Both sides are processes that read column text (word, part of speech) from standard input and write it with a label to
standard output. `kernelcrf tag` is the command. The other side uses the same reader and the same default templates (34
features per token), and calls python-crfsuite's tagger for each sentence. Both models are fitted to the sentences of
CoNLL-2000 chunking by a few iterations, since the time of tagging does not depend on the fit. The stream repeats the
test sentences. Every tenth word is new each time, so that a cache of words would grow without a limit. Time includes
the start of the process, and memory is its greatest resident size.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from studies import common

FOLDER = "conll2000_chunking"
SIDES = ("kernelcrf", "CRFsuite")
CRFSUITE = "import sys; from studies.speed.streaming import tag_by_crfsuite; tag_by_crfsuite(sys.argv[1])"
OPTIONS = {"lines": 1_000_000, "rounds": 1, "iterations": 3}


def write_stream(path: Path, lines: int) -> int:
    """Write a stream of that many lines or a few more; return the number of tokens."""
    from kernelcrf.formats import read

    test = [record.x for record in read(common.data_folder(FOLDER) / "test.txt.gz")]
    written = tokens = turn = 0
    with path.open("w", encoding="utf-8") as file:
        while written < lines:
            for rows in test:
                for word, pos in rows:
                    tokens += 1
                    file.write(f"{word}{turn}x{tokens} {pos}\n" if turn and tokens % 10 == 0 else f"{word} {pos}\n")
                file.write("\n")
                written += len(rows) + 1
                if written >= lines:
                    break
            turn += 1
    return tokens


def fit_both(folder: Path, iterations: int) -> None:
    """Fit model.kcrf and model.crfsuite to the same features."""
    import pycrfsuite

    from kernelcrf.formats import default_templates, read

    train = common.data_folder(FOLDER) / "train.txt.gz"
    options = ["--max-iter", str(iterations), "--set", "solver=lbfgs"]
    command = [sys.executable, "-m", "kernelcrf", "fit", str(train), str(folder / "model.kcrf"), *options]
    subprocess.run(command, check=True, stderr=subprocess.DEVNULL, stdout=subprocess.DEVNULL)
    trainer = pycrfsuite.Trainer(verbose=False)
    templates = default_templates(2)
    for record in read(train):
        trainer.append(templates.features([record.x])[0], record.labels)
    trainer.set_params({"c1": 0.0, "c2": 0.5, "max_iterations": iterations})
    trainer.train(str(folder / "model.crfsuite"))


def tag_by_crfsuite(model: str) -> None:
    """Tag standard input by CRFsuite and write to standard output."""
    import pycrfsuite

    from kernelcrf.formats import default_templates, read_batches
    from kernelcrf.formats.columns import lines_of

    tagger, templates = pycrfsuite.Tagger(), default_templates(2)
    tagger.open(model)
    for batch in read_batches("-", n_columns=2):
        features = templates.features([record.x for record in batch])
        for record, x in zip(batch, features, strict=True):
            sys.stdout.write("\n".join(lines_of(record, [tagger.tag(x)])) + "\n\n")
        sys.stdout.flush()


def timed(side: str, folder: Path, data: Path) -> tuple[float, float]:
    """Return the seconds and the peak megabytes of one process."""
    command = {
        "kernelcrf": [sys.executable, "-m", "kernelcrf", "tag", str(folder / "model.kcrf")],
        "CRFsuite": [sys.executable, "-c", CRFSUITE, str(folder / "model.crfsuite")],
    }[side]
    with data.open("rb") as source, (folder / f"{side}.txt").open("wb") as target:
        start = time.perf_counter()
        process = subprocess.Popen(command, cwd=common.ROOT, stdin=source, stdout=target)
        _, status, usage = os.wait4(process.pid, 0)
        took = time.perf_counter() - start
    if status:
        raise subprocess.CalledProcessError(status, command)
    return took, usage.ru_maxrss / 1e3


def prepare(folder: str, iterations: int, lines: int) -> dict[int, int]:
    """Write the models, a stream of `lines` and one of a tenth of them; return the number of tokens of both."""
    fit_both(Path(folder), iterations)
    return {n: write_stream(Path(folder) / f"{n}.txt", n) for n in (lines // 10, lines)}


def measure(options: argparse.Namespace) -> dict[str, Any]:
    results: dict[str, Any] = {"rounds": options.rounds, "streams": {}}
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        # In a fresh process: children inherit the peak memory of the one that starts them.
        for lines, tokens in common.in_process(prepare, name, options.iterations, options.lines).items():
            data = folder / f"{lines}.txt"
            rounds = [{side: timed(side, folder, data) for side in SIDES} for _ in range(options.rounds)]
            middle = len(rounds) // 2
            results["streams"][lines] = {"tokens": tokens} | {
                side: {
                    "seconds": sorted(one[side][0] for one in rounds)[middle],
                    "megabytes": max(one[side][1] for one in rounds),
                }
                for side in SIDES
            }
            written = (folder / "kernelcrf.txt").read_bytes().count(b"\n")
            results["streams"][lines]["lines_out"] = written
    return results


def table(results: dict[str, Any]) -> str:
    rows = []
    for lines, own in results["streams"].items():
        for side in SIDES:
            took, most = own[side]["seconds"], own[side]["megabytes"]
            rows.append(
                [f"{int(lines):,} lines, {side}", f"{took:.1f}", f"{own['tokens'] / took:,.0f}", f"{most:,.0f} MB"]
            )
    rounds = results["rounds"]
    said = "One round." if rounds == 1 else f"Times are medians of {rounds} rounds; memory is the largest of them."
    ratios = [own["CRFsuite"]["seconds"] / own["kernelcrf"]["seconds"] for own in results["streams"].values()]
    short, long = (own["kernelcrf"]["megabytes"] for own in results["streams"].values())
    return common.markdown(["", "seconds", "tokens per second", "peak memory"], rows) + (
        f"\n\nkernelcrf labels {ratios[0]:.2f} and {ratios[1]:.2f} times as many tokens per second as CRFsuite. On a "
        f"stream ten times as long, it takes {abs(long - short):.0f} MB {'more' if long >= short else 'less'}. {said}"
    )
