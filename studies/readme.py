"""Write the tables of README.md and of the first pages of results and of reliability, between marks."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from statistics import fmean
from typing import Any

from studies import common

NONE = "–"
# Each threat has the trials of one study, the heading of their table, and what a user has to do.
THREATS = (
    (
        "certificates that are wrong",
        "certificates",
        "random problems of all estimators, beside optima that SciPy finds on plain versions of the same problems",
        "trials.md#certificates-random-problems-whose-optima-another-program-knows",
        "Read `certificate_.status`. A certificate bounds the error of the fit, and not of the model.",
    ),
    (
        "killed or frozen workers of a cluster",
        "cluster_faults",
        "SIGKILL, SIGSTOP, a lost client or scheduler, workers that come and go during a fit",
        "trials.md#faults-of-a-cluster-in-the-middle-of-a-fit",
        "Nothing if only workers are lost. Pass `checkpoint=`, and fit again if the client or the scheduler is lost.",
    ),
    (
        "files that are damaged or forged",
        "files",
        "fuzzing of all formats and of model files, and small files that unpack to much",
        "files.md#files-hostile-and-damaged-ones",
        "Catch `ModelFileError` for models and `FormatError` for data. A stranger's valid model can still be wrong.",
    ),
    (
        "threads and processes",
        "concurrency",
        "fits and predictions at once, forks, limits of threads, memory over many calls",
        "trials.md#concurrency-many-threads-many-processes-long-runs",
        "Nothing. `n_jobs` says how many threads an estimator may use.",
    ),
    (
        "interrupted fits and saves",
        "interruption",
        "Ctrl-C at any line, signals, `kill -9`, full disks, read-only folders",
        "trials.md#interruption-signals-full-disks-read-only-folders",
        "Nothing for saves. Pass `checkpoint=` to go on with a fit whose process was killed.",
    ),
    (
        "numerical extremes",
        "numerics",
        "features up to 1e300, constant columns, any C, functions that are not kernels, long sequences",
        "trials.md#numerics-extreme-scales-degenerate-data-functions-that-are-not-kernels",
        "Read `certificate_.status`. Scale the features if an error asks for it.",
    ),
)
MADE_FOR_CHORDS = "segmental CRF made for chords (published)"


def results(name: str) -> Any:
    """Return the results that a study of accuracy has left on file."""
    found = common.load(f"accuracy.{name}")
    assert found is not None, f"no results of accuracy.{name} on file"
    return found


def quality() -> str:
    """Return a table of test scores of the same tasks by four kinds of model."""
    from studies.accuracy import parser_tasks

    letters, proteins = results("letters")["small"], results("proteins")["ts115"]
    gpstruct, prosody = results("gpstruct"), results("prosody")
    chunking = results("tagging_tasks")["tasks"]["chunking"]
    words = {row["name"]: row["test"][0] for row in prosody["rows"]}
    parsers = results("parsers")["tasks"]["usaddress"]["rows"]
    addresses = [f"{parsers[name]['items']:.1f}" for name in (parser_tasks.CHOSEN, "CRFsuite")]

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
        [
            "parsers: whole US addresses: wrong, % (less is better)",
            NONE,
            *addresses,
            NONE,
        ],
        ["chunks, CoNLL-2000: F1 of spans, %", NONE, *spans, NONE],
    ]
    return common.markdown(["test data", "kernel CRF", "linear CRF", "CRFsuite", "kernel, each token alone"], rows)


def field() -> str:
    """Return a table of our figures beside the best other ones, on data of fields that have their own measures."""
    from studies.accuracy import chords, few_labels

    entities = fmean(few_labels.f1_of(results("few_labels"), few_labels.OTHERS, "f1"))
    events, segments = chords.shares(results("chords")["folds"], "chosen")
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


def threats() -> str:
    """Return a table of what was tried to break the library, how often it failed, and what is left to the user."""
    rows = []
    for threat, study, tried, page, duty in THREATS:
        trials = common.known_trials(f"reliability.{study}").values()
        if not trials:
            continue
        failed, times = (sum(trial[count] for trial in trials) for count in ("failed", "times"))
        rows.append([f"[{threat}]({page})", tried, f"{failed:,} of {times:,}", duty])
    return common.markdown(["threat", "what was tried", "failed now", "what you must do"], rows, (0, 1, 3))


BLOCKS: dict[str, Callable[[], str]] = {"quality": quality, "field": field, "threats": threats}
PAGES = {
    common.ROOT / "README.md": ("quality", "field"),
    common.ROOT / "docs" / "results" / "index.md": ("quality",),
    common.ROOT / "docs" / "reliability" / "index.md": ("threats",),
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
