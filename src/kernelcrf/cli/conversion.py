"""`kernelcrf convert`: write sequences in another format."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from itertools import chain

from kernelcrf.cli.files import check_apart, inputs, read_templates
from kernelcrf.formats import FormatError, Record, format_of, read_batches, write


def convert(
    source: str, target: str, from_format: str | None, to_format: str | None, templates: str | None, labels: bool
) -> None:
    """Write the sequences of a file in the format of another; text becomes features if the format needs them."""
    wanted = format_of(target, to_format)
    if templates is not None and wanted not in ("crfsuite", "jsonl", "parquet"):
        raise FormatError(f"{target}: {wanted} files hold no features, which --templates make: drop the option")
    check_apart(target, [source, templates])
    batches = read_batches(source, from_format, labels=labels)
    featured = templates is not None or wanted == "crfsuite"
    write(target, _featured(batches, templates) if featured else chain.from_iterable(batches), to_format)


def _featured(batches: Iterator[list[Record]], path: str | None) -> Iterator[Record]:
    """Yield the records with the features of templates in place of text."""
    first = next(batches)
    templates = read_templates(first[0], path)
    for batch in chain([first], batches):
        for record, x in zip(batch, inputs(batch, templates), strict=True):
            yield record if templates is None else replace(record, kind="features", x=x)
