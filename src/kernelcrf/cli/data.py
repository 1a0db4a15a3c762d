"""What a command hands to a model: inputs and labels of the records of a file."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import kernelcrf
from kernelcrf import ChainCRF
from kernelcrf.formats import FormatError, Record, Templates, format_of, read_batches
from kernelcrf.formats.streams import display_name
from kernelcrf.formats.template_columns import TemplateColumns


@dataclass(frozen=True, eq=False)
class Model:
    """A model file: the estimator, and the templates by which it reads text, where it does."""

    crf: ChainCRF
    templates: Templates | None

    @classmethod
    def load(cls, path: str) -> Model:
        """The model of a file."""
        crf = kernelcrf.load(path)
        if not isinstance(crf, ChainCRF):
            raise kernelcrf.ModelFileError(
                f"{path}: a {type(crf).__name__}: expected a ChainCRF, the model of sequences that the commands use"
            )
        return cls(crf, Templates.of(crf))

    def inputs(self, records: Sequence[Record]) -> list[Any]:
        """X of the records."""
        return inputs(records, self.templates)

    def flat_inputs(self, records: Sequence[Record]) -> tuple[Any, list[int] | None]:
        """X of the records with their lengths where it is flat, the quickest way to predict."""
        if self._columns is None or records[0].kind != "text":
            return self.inputs(records), None
        return self._columns.entries(text_rows(records, self.templates)), list(map(len, records))

    @cached_property
    def _columns(self) -> TemplateColumns | None:
        vocabulary = self.crf._reader.vocabulary
        return None if self.templates is None or vocabulary is None else TemplateColumns(self.templates, vocabulary)

    def labels(self, record: Record) -> list[Any]:
        """The labels of a record, as the classes of the model where they have the same text."""
        if record.labels is None:
            raise FormatError(f"{record.place}: expected labels to compare with, and there are none")
        classes = self.crf.classes_.tolist()
        if all(isinstance(label, str) for label in classes):
            return list(record.labels)
        by_text = {str(label): label for label in classes}
        return [by_text.get(label, label) if isinstance(label, str) else label for label in record.labels]


@dataclass(frozen=True, eq=False)
class Labelled:
    """A file of labelled sequences, read whole."""

    records: list[Record]
    X: list[Any]
    y: list[list[Any]]

    @property
    def n_tokens(self) -> int:
        """N."""
        return sum(map(len, self.records))


def labelled(path: str, model: Model, format: str | None) -> Labelled:
    """The sequences of a file for a model to be compared with."""
    batches = read_batches(path, format, n_columns=text_columns(path, format, model.templates))
    records = [record for batch in batches for record in batch]
    return Labelled(records, model.inputs(records), [model.labels(record) for record in records])


def text_columns(path: str, format: str | None, templates: Templates | None) -> int | None:
    """How many cells of a column file describe a token, as the templates say."""
    if format_of(path, format) != "columns":
        return None
    if templates is None:
        raise FormatError(
            f"{display_name(path)}: column files hold text, and the model was fitted to features or vectors made "
            "elsewhere: hand in .jsonl or .crfsuite with the same features"
        )
    return templates.n_columns


def inputs(records: Sequence[Record], templates: Templates | None) -> list[Any]:
    """X of the records: text by templates, features and vectors as they are."""
    if not records or records[0].kind != "text":
        return [record.x for record in records]
    rows = text_rows(records, templates)
    return [] if templates is None else templates.features(rows)


def text_rows(records: Sequence[Record], templates: Templates | None) -> list[Any]:
    """The cells of records of text, once the templates can read them."""
    if templates is None:
        raise FormatError(
            f"{records[0].place}: text, and the model was fitted to features or vectors made elsewhere: hand in those"
        )
    if len(records[0].x[0]) != templates.n_columns:
        raise FormatError(
            f"{records[0].place}: tokens of {len(records[0].x[0])} cells: expected {templates.n_columns}, which the "
            "templates read"
        )
    return [record.x for record in records]
