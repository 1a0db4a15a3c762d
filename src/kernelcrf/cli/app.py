"""Declare the subcommands of `kernelcrf` and their options.

The argument of the decorator `run_by` is the module of `kernelcrf.cli` that contains the code of the subcommand.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from contextlib import suppress
from typing import Annotated

import typer

from kernelcrf.cli.outcome import run_by
from kernelcrf.formats.registry import FORMATS
from kernelcrf.readers.schemes import SCHEMES, STRICT_SCHEMES

app = typer.Typer(
    name="kernelcrf",
    no_args_is_help=True,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 80},
)
KERNELS = ("linear", "rbf", "poly", "laplacian", "cosine", "chi2")
WRITTEN_FORMATS = tuple(name for name, format in FORMATS.items() if format.is_written)
FILES = ", ".join(f"{format.title} ({format.extensions[0]})" for format in FORMATS.values())


def _one_of(*words: str, remedy: str = "") -> Callable[[str], str]:
    """Return a parser of option values that accepts only these words, in upper or lower case.

    remedy : the end of the error message for all other values.
    """
    known = {word.lower(): word for word in words}

    def parse(value: str) -> str:
        if value.lower() in known:
            return known[value.lower()]
        raise typer.BadParameter(f"{value}: expected {', '.join(words[:-1])} or {words[-1]}{remedy}")

    return parse


def _format_option(*names: str, formats: tuple[str, ...] = tuple(FORMATS)) -> typer.models.OptionInfo:
    """Return an option with the given names; its value is one of the given file formats."""
    option: typer.models.OptionInfo = typer.Option(
        *names,
        metavar="NAME",
        help=f"{', '.join(formats)}.",
        show_default="by extension",
        parser=_one_of(*formats, remedy="; omit the option to choose the format by the extension of the file"),
        autocompletion=lambda: [*formats],
    )
    return option


ModelFile = Annotated[str, typer.Argument(metavar="MODEL", help="Model file, written by fit.", show_default=False)]
DataFile = Annotated[str, typer.Argument(metavar="DATA", help="Labelled sequences; - is stdin.", show_default=False)]
FormatOption = Annotated[str | None, _format_option("--format", "-f")]
JsonOption = Annotated[bool, typer.Option("--json", help="Print JSON, for scripts.")]


def _positive(*words: str, below: float = math.inf) -> Callable[[str | float], str | float]:
    """Return a parser of option values that accepts these words, and numbers above 0 and below a limit."""
    limit = "" if below == math.inf else f" and below {below:g}"
    others = f", {' or '.join(words)}" if words else ""

    def parse(value: str | float) -> str | float:
        if value in words:
            return value
        with suppress(ValueError):
            if 0 < float(value) < below:
                return float(value)
        raise typer.BadParameter(f"{value}: expected a number above 0{limit}{others}")

    return parse


def _threads(value: int) -> int:
    if value == -1 or value >= 1:
        return value
    raise typer.BadParameter(f"{value}: expected a number of threads, at least 1, or -1 for all cores")


def _version(asked: bool) -> None:
    if asked:
        from kernelcrf import __version__

        typer.echo(f"kernelcrf {__version__}")
        raise typer.Exit


@app.callback(
    help=f"""Label sequences with conditional random fields and kernels.

    Files are chosen by their extension: {FILES}. Text may be gzipped (.txt.gz). A dash (-) means standard input.
    """
)
def about(
    version: Annotated[bool, typer.Option("--version", help="Print the version.", callback=_version)] = False,
) -> None:
    """Declare the options of `kernelcrf` that need no subcommand."""


@app.command()
@run_by("training")
def fit(
    data: DataFile,
    model: Annotated[
        str, typer.Argument(metavar="MODEL", help="File to write, .kcrf, .crfsuite, .wapiti.", show_default=False)
    ],
    format: FormatOption = None,
    templates: Annotated[str | None, typer.Option(metavar="FILE", help="Templates for text, as in CRF++.")] = None,
    kernel: Annotated[
        str,
        typer.Option(
            metavar="NAME",
            help=f"{', '.join(KERNELS)}; auto: rbf for vectors, else linear.",
            parser=_one_of("auto", *KERNELS),
            autocompletion=lambda: ["auto", *KERNELS],
        ),
    ] = "auto",
    C: Annotated[
        str,
        typer.Option(
            "--C",
            "-C",
            metavar="X",
            help="Prior variance: number, auto, evidence.",
            parser=_positive("auto", "evidence"),
        ),
    ] = "auto",
    dev: Annotated[str | None, typer.Option(metavar="FILE", help="Held-out data, used to choose C.")] = None,
    prior: Annotated[
        str | None, typer.Option(metavar="FILE", help="Model to update with DATA, written by fit.")
    ] = None,
    gamma: Annotated[
        str,
        typer.Option(metavar="X", help="gamma of kernels: number, scale, auto.", parser=_positive("scale", "auto")),
    ] = "scale",
    n_components: Annotated[int, typer.Option(metavar="N", min=1, help="Number of landmarks.")] = 500,
    constraints: Annotated[
        str | None,
        typer.Option(
            metavar="NAME",
            help=f"{', '.join(STRICT_SCHEMES)}.",
            show_default="none",
            parser=_one_of(*STRICT_SCHEMES),
            autocompletion=lambda: [*STRICT_SCHEMES],
        ),
    ] = None,
    tol: Annotated[
        float, typer.Option(metavar="X", help="Relative certified gap to reach.", parser=_positive(below=1))
    ] = 1e-4,
    max_iter: Annotated[int, typer.Option(metavar="N", min=1, help="Largest number of iterations.")] = 1000,
    n_jobs: Annotated[int, typer.Option(metavar="N", help="Threads; -1 for all cores.", callback=_threads)] = 1,
    random_state: Annotated[
        int, typer.Option("--seed", metavar="N", min=0, max=2**32 - 1, help="Seed for the landmarks.")
    ] = 0,
    settings: Annotated[
        list[str] | None, typer.Option("--set", metavar="NAME=VALUE", help="Any parameter of ChainCRF.")
    ] = None,
) -> None:
    """Fit a model to labelled sequences.

    Example: kernelcrf fit train.txt chunks.kcrf --constraints BIO
    """


@app.command()
@run_by("tagging")
def tag(
    model: ModelFile,
    data: Annotated[
        list[str] | None, typer.Argument(metavar="DATA", help="Files of sequences; - is stdin.", show_default=False)
    ] = None,
    format: FormatOption = None,
    output: Annotated[
        str | None, typer.Option("--output", "-o", metavar="DIR", help="Write one file per file of DATA to DIR.")
    ] = None,
    marginals: Annotated[bool, typer.Option("--marginals", help="Add a column label:probability per label.")] = False,
    n_best: Annotated[int, typer.Option(metavar="K", min=1, help="Add the next best labellings.")] = 1,
    spans: Annotated[
        bool, typer.Option("--spans", help="Add the spans with their probabilities; writes JSON lines.")
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Write JSON lines for any input.")] = False,
) -> None:
    """Write the input with the predicted label as a new last column.

    Without -o, the output of all files goes to standard output. With -o DIR, each
    file is written to DIR under the same name. Input from a pipe is tagged as soon
    as a sentence is complete.

    Example: kernelcrf tag chunks.kcrf test.txt > tagged.txt
    """


@app.command()
@run_by("evaluation")
def evaluate(
    model: ModelFile,
    data: DataFile,
    format: FormatOption = None,
    scheme: Annotated[
        str | None,
        typer.Option(
            metavar="NAME",
            help=f"{', '.join(SCHEMES)}.",
            show_default="lenient for labels like B-x",
            parser=_one_of(*SCHEMES),
            autocompletion=lambda: [*SCHEMES],
        ),
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Score a model on labelled sequences, with 95 % intervals.

    Example: kernelcrf evaluate chunks.kcrf test.txt
    """


@app.command()
@run_by("inspection")
def inspect(
    model: ModelFile,
    n_terms: Annotated[
        int, typer.Option("-n", metavar="N", min=1, help="Number of transitions, and of terms per label.")
    ] = 5,
    as_json: JsonOption = False,
) -> None:
    """Describe a model: labels, transitions, features or landmarks, certificate.

    Example: kernelcrf inspect chunks.kcrf -n 3
    """


@app.command()
@run_by("evaluation")
def report(
    model: ModelFile,
    data: DataFile,
    target: Annotated[str, typer.Argument(metavar="HTML", help="File to write.", show_default=False)],
    format: FormatOption = None,
    train: Annotated[
        str | None, typer.Option(metavar="FILE", help="Training data, to show the words of landmarks.")
    ] = None,
    explain: Annotated[
        list[str] | None, typer.Option(metavar="SEQUENCE:TOKEN", help="Token to explain; repeatable.")
    ] = None,
    n_hardest: Annotated[int, typer.Option("-n", metavar="N", min=1, help="Number of hardest sequences to show.")] = 10,
) -> None:
    """Write an HTML report about a model and its predictions.

    Example: kernelcrf report chunks.kcrf test.txt report.html
    """


@app.command("compile")
@run_by("compilation")
def compile_loops(
    folder: Annotated[
        str | None,
        typer.Argument(
            metavar="FOLDER",
            help="Where to store the code; later programs find it if NUMBA_CACHE_DIR names this folder.",
            show_default="beside the package",
        ),
    ] = None,
) -> None:
    """Compile all loops now, and store the compiled code, for a container image or a server.

    Example: kernelcrf compile
    """


@app.command()
@run_by("files")
def convert(
    source: Annotated[str, typer.Argument(metavar="SOURCE", help="File to read; - is stdin.", show_default=False)],
    target: Annotated[str, typer.Argument(metavar="TARGET", help="File to write; - is stdout.", show_default=False)],
    from_format: Annotated[str | None, _format_option("--from")] = None,
    to_format: Annotated[str | None, _format_option("--to", formats=WRITTEN_FORMATS)] = None,
    templates: Annotated[str | None, typer.Option(metavar="FILE", help="Templates for text, as in CRF++.")] = None,
    no_labels: Annotated[bool, typer.Option("--no-labels", help="The last column is not a label.")] = False,
) -> None:
    """Convert sequences to another format, or models to another program's.

    The new format is the value of --to, or else follows from the extension of
    TARGET. Text is turned into features by templates if --templates is given or
    if the new format is CRFsuite's. If TARGET ends with .kcrf, .crfsuite or
    .wapiti, SOURCE is a model file.

    Example: kernelcrf convert train.txt train.items
    """
