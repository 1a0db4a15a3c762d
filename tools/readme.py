"""Writes the tables and figures of README.md from the results on file, between its marks.

python tools/readme.py            write them
python tools/readme.py --check    exit with 1 where the README says something else
"""

from __future__ import annotations

import argparse
import json
import re
import sys
import textwrap
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from statistics import fmean
from typing import Any

ROOT = Path(__file__).parent.parent
NONE = "–"


def results(folder: str, name: str) -> Any:
    """Return the results that a study has left on file."""
    return json.loads((ROOT / "studies" / folder / "results" / f"{name}.json").read_text(encoding="utf-8"))


def table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Return a table in Markdown with numbers to the right."""
    lines = [head, ["---", *["---:"] * (len(head) - 1)], *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def quality() -> str:
    """Return a table of test scores of the same tasks by four kinds of model."""
    letters, proteins = results("accuracy", "letters")["small"], results("accuracy", "proteins")["ts115"]
    gpstruct, prosody = results("accuracy", "gpstruct"), results("accuracy", "prosody")
    chunking = results("accuracy", "tagging_tasks")["tasks"]["chunking"]
    words = {row["name"]: row["test"][0] for row in prosody["rows"]}

    def wrong(runs: Mapping[str, Sequence[Mapping[str, float]]], *names: str) -> list[str]:
        return [f"{100 * fmean(run['error'] for run in runs[name]):.1f}" for name in names]

    of_gpstruct = ("kernelcrf rbf", "kernelcrf linear", "CRFsuite", "SVC (rbf), single tokens")
    right = [
        f"{100 * proteins[name]['accuracy']:.1f}" for name in ("kernelcrf rbf", "kernelcrf linear", "CRFsuite", "SVC")
    ]
    prominent = [
        f"{words[name]:.1f}"
        for name in (
            "rbf, 2 labels",
            "linear, 2 labels",
            "CRFsuite, dicts + rates, 2 labels",
            "Nystroem + LR, 2 labels",
        )
    ]
    spans = [f"{100 * chunking[name]['f1']:.1f}" for name in ("kernelcrf", "CRFsuite")]
    rows = [
        [
            "handwritten letters, pixels: wrong, % (less is better)",
            *wrong(letters, "rbf, pixels", "linear with intercept, pixels", "CRFsuite, pixels", "SVC, pixels"),
        ],
        ["word segmentation: wrong, % (less is better)", *wrong(gpstruct["segmentation"], *of_gpstruct)],
        ["named entities, Japanese: wrong, % (less is better)", *wrong(gpstruct["japanesene"], *of_gpstruct)],
        ["secondary structure of proteins: right, %", *right],
        ["prominent words of speech, from text: right, %", *prominent],
        ["chunks, CoNLL-2000: F1 of spans, %", NONE, *spans, NONE],
    ]
    return table(["test data", "kernel CRF", "linear CRF", "CRFsuite", "kernel, each token alone"], rows)


def limits() -> str:
    """List the cases in which other libraries are the better choice, with figures."""
    prosody, few = results("accuracy", "prosody"), results("accuracy", "label_efficiency_letters")["errors"]
    best = next(row for row in prosody["rows"] if row["name"] == prosody["best_2"])["test"][0]
    qian = results("accuracy", "proteins")["qian_sejnowski"]

    def with_ten(model: str) -> str:
        return f"{100 * fmean(row['error'] for row in few[model]['10']):.0f} %"

    return "\n".join(
        filled(text, item=True)
        for text in (
            "**Millions of labelled words and a GPU.** Fine-tune a network. On prosody, a published BERT that was "
            f"tuned on twenty times the words reaches 83.2 %, and our best chain {best:.1f} %.",
            '**Hundreds of thousands of sparse features.** Use `kernel="linear"`: on such text, no other kernel was '
            "better. CRFsuite fits the same model with less memory.",
            "**Labels that say little about each other.** Use a classifier of single tokens, such as "
            "`KernelClassifier`. On the proteins of Qian and Sejnowski, an SVC reaches "
            f"{100 * qian['SVC']['accuracy']:.1f} %, and the best chain "
            f"{100 * qian['kernelcrf rbf, segments']['accuracy']:.1f} %.",
            f"**A handful of labelled sequences.** With ten labelled words of handwriting, a kernel CRF gets "
            f"{with_ten('rbf, pixels')} of the letters wrong, a linear CRF {with_ten('linear, pixels')}, and an SVC of "
            f"single letters {with_ten('SVC, pixels')}.",
        )
    )


def filled(text: str, item: bool = False) -> str:
    """Return text in lines of the README's length."""
    return textwrap.fill(text, 120, initial_indent="- " if item else "", subsequent_indent="  " if item else "")


BLOCKS: dict[str, Callable[[], str]] = {"quality": quality, "limits": limits}


def written(text: str) -> str:
    """Return the README with its blocks written anew."""
    for name, block in BLOCKS.items():
        pattern = re.compile(rf"(<!-- {name}, by tools/readme.py -->\n).*?(<!-- end of {name} -->)", re.DOTALL)
        if len(pattern.findall(text)) != 1:
            raise SystemExit(f"README.md: expected one block {name!r} between its marks")
        made = block()
        text = pattern.sub(lambda match, made=made: f"{match[1]}\n{made}\n\n{match[2]}", text)
    return text


def main() -> None:
    """Write the README, or check that it is up to date."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true", help="write nothing")
    options, path = parser.parse_args(), ROOT / "README.md"
    before = path.read_text(encoding="utf-8")
    after = written(before)
    if options.check and after != before:
        sys.exit("README.md does not say what the results on file say: run python tools/readme.py")
    if not options.check:
        path.write_text(after, encoding="utf-8", newline="\n")


if __name__ == "__main__":
    main()
