"""`kernelcrf convert`: the same sequences in another format."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from kernelcrf.cli.data import inputs
from kernelcrf.cli.targets import check_apart
from kernelcrf.formats import FormatError, Record, Templates, default_templates, format_of, read_batches, write


def convert(
    source: str, target: str, from_format: str | None, to_format: str | None, templates: str | None, labels: bool
) -> None:
    """Write the sequences of a file in the format of another; text becomes features by templates where it must."""
    wanted = format_of(target, to_format)
    if templates is not None and wanted not in ("crfsuite", "jsonl", "parquet"):
        raise FormatError(f"{target}: {wanted} files hold no features, and --templates make them: drop the option")
    check_apart(target, [source, templates])
    batches = read_batches(source, from_format, labels=labels)
    write(target, _converted(batches, templates, wanted == "crfsuite"), to_format)


def _converted(batches: Iterator[list[Record]], path: str | None, featured: bool) -> Iterator[Record]:
    templates = None
    for batch in batches:
        if batch[0].kind != "text" or not (featured or path):
            if path is not None:
                raise FormatError(f"{batch[0].place}: {batch[0].kind}, and --templates go with text: drop the option")
            yield from batch
            continue
        if templates is None:
            n_columns = len(batch[0].x[0])
            text = None if path is None else Path(path).read_text(encoding="utf-8")
            templates = default_templates(n_columns) if text is None else Templates(text, n_columns, str(path))
        for record, x in zip(batch, inputs(batch, templates), strict=True):
            yield replace(record, kind="features", x=x)
