"""Run `kernelcrf tag`, which predicts the labels of a file, or of a stream of any length.

The labels of a batch are written before the next batch is read, so that only one batch is in memory. A batch has
the text that has arrived through a pipe so far, or about 64 kilobytes of a file.
"""

from __future__ import annotations

import gc
import os
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from itertools import chain
from pathlib import Path, PurePath
from typing import TypeAlias

from kernelcrf.answers.spans import PredictedSpan
from kernelcrf.arrays import Array
from kernelcrf.cli.files import Model, check_apart, check_overwrite
from kernelcrf.cli.outcome import echo
from kernelcrf.decoding import find_rule
from kernelcrf.formats import FORMATS, FormatError, Record, format_of
from kernelcrf.formats.columns import lines_of
from kernelcrf.formats.records import object_of, plain_label
from kernelcrf.formats.streams import STDIN, display_name
from kernelcrf.formats.token_lines import NOTHING
from kernelcrf.persistence import whole_file
from kernelcrf.terminal import printable, printable_json

# Per token, a dict from labels to probabilities; the likeliest labellings with their log-probabilities; and the spans.
Marginals: TypeAlias = Sequence[Mapping[object, float]]
Best: TypeAlias = Sequence[tuple[Array, float]]
Spans: TypeAlias = Sequence[PredictedSpan]


def tag(
    model: str,
    data: list[str] | None,
    format: str | None,
    output: str | None,
    marginals: bool,
    n_best: int,
    spans: bool,
    as_json: bool,
) -> None:
    """Write the sequences of files or streams, with their predicted labels, to standard output or to a folder.

    output : the folder, which gets one file per file of `data`; None means standard output.
    """
    loaded, data = Model.load(model), data or [STDIN]
    for name in data:
        if name != STDIN:
            os.stat(name)  # raises if there is no such file
    forms = ["jsonl" if as_json or spans else FORMATS[format_of(name, format)].tagged_as for name in data]
    targets = _targets(data, forms, output)
    for target in targets:
        check_apart(target, [model, *data])
        check_overwrite(target)
    for source, form, target in zip(data, forms, targets, strict=True):
        line_of = _object if form == "jsonl" else partial(_columns, separator=loaded.separator)
        n_sequences = 0
        with _no_garbage_collection(), _writer(target) as write:
            batches = loaded.batches(source, format)
            if find_rule(loaded.crf.decoding).pools_samples:
                batches = iter([list(chain.from_iterable(batches))])
            for number, batch in enumerate(batches, 1):
                answers = _predict(loaded, batch, marginals, n_best, spans)
                write("".join(line_of(*one, n_best) for one in zip(batch, *answers, strict=True)))
                n_sequences += len(batch)
                if number % 100 == 0:
                    gc.collect()
        if target != STDIN:
            echo(f"{target}: {n_sequences:,} sequences")


def _targets(data: list[str], forms: list[str], output: str | None) -> list[str]:
    """Return the path of the output file for each file of `data`; if `output` is None, each path is "-".

    An output file has the name of its input file, with an extension of its format. Output files are not compressed.

    forms : the format of the output for each file of `data`.
    """
    if output is None:
        if len(set(forms)) > 1:
            raise FormatError(
                f"{' '.join(map(display_name, data))}: the output would mix JSON lines and columns: pass --json to "
                "write JSON lines only, or -o DIR to write each file of DATA to a separate file"
            )
        return [STDIN] * len(data)
    if STDIN in data:
        raise FormatError(f"-o {output}: standard input has no name for an output file: pass file names, or omit -o")
    targets = []
    for path, form in zip(data, forms, strict=True):
        name, extensions = PurePath(path.removesuffix(".gz")), FORMATS[form].extensions
        targets.append(name.name if name.suffix.lower() in extensions else name.with_suffix(extensions[0]).name)
    if len(set(targets)) < len(targets):
        raise FormatError(
            f"-o {output}: two files of DATA would be written to the same output file: rename one of them"
        )
    if Path(output).is_file():
        raise FormatError(f"-o {output}: this is a file: pass a folder, which is created if it does not exist")
    Path(output).mkdir(parents=True, exist_ok=True)
    return [str(Path(output, name)) for name in targets]


@contextmanager
def _writer(target: str) -> Iterator[Callable[[str], object]]:
    """Yield a function that writes text to the file `target`; if it is "-", write to standard output without delay."""
    if target != STDIN:
        with whole_file(target) as file:
            yield lambda text: file.write(text.encode())
        return

    def show(text: str) -> None:
        sys.stdout.write(printable(text, keep="\t\n") if sys.stdout.isatty() else text)
        sys.stdout.flush()

    yield show


@contextmanager
def _no_garbage_collection() -> Iterator[None]:
    """Disable the garbage collector inside a `with` block, because it takes a third of the time of the command."""
    gc.freeze()
    gc.disable()
    try:
        yield
    finally:
        gc.enable()
        gc.unfreeze()


def _predict(
    model: Model, batch: list[Record], marginals: bool, n_best: int, spans: bool
) -> tuple[Sequence[Array], Sequence[Marginals | None], Sequence[Best | None], Sequence[Spans | None]]:
    """Return lists with the labels, the marginals, the best labellings and the spans of each record.

    If marginals, best labellings or spans are not requested, the entries of their list are None.
    """
    try:
        X, lengths = model.flat_inputs(batch)
        none = [None] * len(batch)
        distribution = model.crf.distribution(X, lengths)
        probabilities = distribution.labelled_marginals() if marginals else none
        best = distribution.k_best(n_best) if n_best > 1 else none
        return distribution.decode(), probabilities, best, distribution.spans() if spans else none
    except FormatError:
        raise
    except (TypeError, ValueError) as error:
        place = batch[0].place if len(batch) == 1 else f"a sequence from {batch[0].place} to {batch[-1].place}"
        raise FormatError(f"{place}: {error}") from None


def _columns(
    record: Record,
    labels: Array,
    marginals: Marginals | None,
    best: Best | None,
    spans: Spans | None,
    n_best: int,
    *,
    separator: str,
) -> str:
    """Return the input lines of a record with cells added at the end of each line.

    The cells are the predicted label, the labels of the next best labellings, and one cell label:probability per label.

    separator : the separator to use if the input lines have only one cell.
    """
    extra: list[Sequence[object]] = [labels.tolist()]
    if best is not None:
        extra += [other.tolist() for other, _ in best[1:]]
        extra += [[NOTHING] * len(record)] * (n_best - len(best))
    if marginals is not None:
        extra += zip(*([f"{label}:{p:.4f}" for label, p in token.items()] for token in marginals), strict=True)
    return "\n".join(lines_of(record, extra, separator)) + "\n\n"


def _object(
    record: Record, labels: Array, marginals: Marginals | None, best: Best | None, spans: Spans | None, n_best: int
) -> str:
    """Return a line of JSON: the input object with the keys "predicted", "marginals", "n_best" and "spans" added.

    Except for "predicted", a key is added only if it was requested.
    """
    entries = dict(record.raw) if isinstance(record.raw, dict) else object_of(record)
    entries["predicted"] = list(map(plain_label, labels.tolist()))
    if marginals is not None:
        entries["marginals"] = [{str(label): round(p, 6) for label, p in token.items()} for token in marginals]
    if best is not None:
        entries["n_best"] = [{"labels": other.tolist(), "log_prob": log_p} for other, log_p in best]
    if spans is not None:
        entries["spans"] = [
            {"start": s.start, "end": s.end, "label": plain_label(s.label), "probability": round(s.probability, 6)}
            for s in spans
        ]
    return printable_json(entries) + "\n"
