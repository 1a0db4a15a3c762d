"""Three lines in a shell, fit, tag and evaluate, beside the same model in Python.

CoNLL-2000 chunking and WNUT-17 entities, training and test files as they are, default templates, C = 1 and constraints
BIO. `shell` is the F1 of spans that `kernelcrf evaluate` prints, `tagged` that of the last column that `kernelcrf tag`
writes, `library` that of a ChainCRF fitted in Python to the features of `default_templates`.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import common

SETS = {"CoNLL-2000": "conll2000_chunking", "WNUT-17": "wnut17_ner"}


def command(*arguments: Any) -> str:
    line = [sys.executable, "-m", "kernelcrf", *map(str, arguments)]
    return subprocess.run(line, check=True, capture_output=True, text=True, encoding="utf-8").stdout


def measure(options: argparse.Namespace) -> dict[str, Any]:
    from kernelcrf import ChainCRF, metrics
    from kernelcrf.formats import default_templates, read

    results: dict[str, Any] = {}
    for name, folder in SETS.items():
        train, test = (common.data_folder(folder) / folder / f"{part}.txt.gz" for part in ("train", "test"))
        with tempfile.TemporaryDirectory() as temporary:
            model, took = Path(temporary) / "model.kcrf", time.perf_counter()
            command("fit", train, model, "--constraints", "BIO", "--tol", options.tol)
            took = time.perf_counter() - took
            tagged = command("tag", model, test)
            scores = json.loads(command("evaluate", model, test, "--json"))["scores"]
        learn, held = list(read(train)), list(read(test))
        templates = default_templates(len(learn[0].x[0]))
        crf = ChainCRF("linear", constraints="BIO", tol=options.tol, random_state=0)
        crf.fit(templates.features([one.x for one in learn]), [one.labels for one in learn])
        predicted = [labels.tolist() for labels in crf.predict(templates.features([one.x for one in held]))]
        y = [one.labels for one in held]
        shown = [[line[-1] for line in (row.split() for row in part.split("\n"))] for part in _parts(tagged)]
        results[name] = {
            "shell": scores["span_f1"],
            "tagged": metrics.span_f1(y, shown),
            "library": metrics.span_f1(y, predicted),
            "same_labels": shown == predicted,
            "fit_seconds": took,
            "features": crf.n_features_in_,
        }
    return results


def _parts(text: str) -> list[str]:
    return text.strip("\n").split("\n\n")


def table(results: dict[str, Any]) -> str:
    rows = [
        [
            name,
            f"{own['shell']['value']:.4f} ({own['shell']['low']:.4f} to {own['shell']['high']:.4f})",
            f"{own['tagged']:.4f}",
            f"{own['library']:.4f}",
            "yes" if own["same_labels"] else "no",
            f"{own['fit_seconds']:.0f}",
        ]
        for name, own in results.items()
        if name in SETS
    ]
    return common.markdown(["F1 of spans", "shell (95 %)", "tagged", "library", "same labels", "seconds of fit"], rows)


if __name__ == "__main__":
    common.run(__doc__, __file__, measure, table, tol=1e-4)
