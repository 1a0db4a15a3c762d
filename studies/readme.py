"""Write the tables and figures of README.md and of the page of findings from the results on file, between marks."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Callable, Mapping, Sequence
from statistics import fmean
from typing import Any

from studies import common

NONE = "–"
MADE_FOR_CHORDS = "segmental CRF made for chords (published)"


def results(name: str) -> Any:
    """Return the results that a study of accuracy has left on file."""
    found = common.load(f"accuracy.{name}")
    assert found is not None, f"no results of accuracy.{name} on file"
    return found


def quality() -> str:
    """Return a table of test scores of the same tasks by four kinds of model."""
    letters, proteins = results("letters")["small"], results("proteins")["ts115"]
    gpstruct, prosody = results("gpstruct"), results("prosody")
    chunking = results("tagging_tasks")["tasks"]["chunking"]
    words = {row["name"]: row["test"][0] for row in prosody["rows"]}
    parsers = results("parsers")["tasks"]["usaddress"]["rows"]
    addresses = [f"{parsers[name]['items']:.1f}" for name in ("ChainCRF, more signs, also of steps", "CRFsuite")]

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
        ["whole US addresses; the linear CRF has more signs: wrong, % (less is better)", NONE, *addresses, NONE],
        ["chunks, CoNLL-2000: F1 of spans, %", NONE, *spans, NONE],
    ]
    return common.markdown(["test data", "kernel CRF", "linear CRF", "CRFsuite", "kernel, each token alone"], rows)


def field() -> str:
    """Return a table of our figures beside the best other ones, on data of fields that have their own measures."""
    from studies.accuracy import chords, few_labels

    entities = fmean(few_labels.f1_of(results("few_labels"), few_labels.OTHERS, "f1"))
    events, segments = chords.shares(results("chords")["folds"], "runs")
    published = chords.PUBLISHED
    rows = [
        [
            "few labels: entities from 100 or 200 sentences, F1 of spans, %",
            f"{entities:.1f}",
            f"{few_labels.MEMORY[few_labels.WITH_SOURCE]:.1f}",
            f"fine-tuned BERT (from memory; {few_labels.MEMORY[few_labels.BERT]:.1f} without other data)",
        ],
        ["music: chords of chorales, events right, %", f"{events:.1f}", f"{published['events']:.1f}", MADE_FOR_CHORDS],
        [
            "music: chords of chorales, F1 of segments",
            f"{segments:.1f}",
            f"{published['segments']:.1f}",
            MADE_FOR_CHORDS,
        ],
    ]
    return common.markdown(["test data", "kernelcrf", "best other", "which"], rows, (0, 3))


def limits() -> str:
    """List the cases in which other libraries are the better choice, with figures."""
    prosody, few = results("prosody"), results("label_efficiency_letters")["errors"]
    best = next(row for row in prosody["rows"] if row["name"] == prosody["best_2"])["test"][0]
    qian = results("proteins")["qian_sejnowski"]

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


BLOCKS: dict[str, Callable[[], str]] = {"quality": quality, "field": field, "limits": limits}
PAGES = {
    common.ROOT / "README.md": ("quality", "field", "limits"),
    common.ROOT / "docs" / "results" / "index.md": ("quality",),
}


def write() -> None:
    """Write the blocks of all pages anew."""
    for page, names in PAGES.items():
        text = page.read_text(encoding="utf-8")
        for name in names:
            pattern = re.compile(
                rf"(<!-- {name}, by python -m studies pages -->\n).*?(<!-- end of {name} -->)", re.DOTALL
            )
            if len(pattern.findall(text)) != 1:
                raise SystemExit(f"{page}: expected one block {name!r} between its marks")
            made = BLOCKS[name]()
            text = pattern.sub(lambda match, made=made: f"{match[1]}\n{made}\n\n{match[2]}", text)
        page.write_text(text, encoding="utf-8", newline="\n")
