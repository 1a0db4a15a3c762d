"""Check the files of all commands, read models, sequences and templates, and run `kernelcrf convert`.

A record is one sequence that was read from a file: its inputs, and its labels and words if the file has them.
"""

from __future__ import annotations

import os
import stat
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from io import UnsupportedOperation
from itertools import chain
from pathlib import Path
from typing import Any, TextIO

import numpy as np

import kernelcrf
from kernelcrf import ChainCRF
from kernelcrf.arrays import is_sparse
from kernelcrf.basis.sparse_entries import Entries
from kernelcrf.formats import FORMATS, FormatError, Record, Templates, default_templates, format_of, read_batches, write
from kernelcrf.formats.streams import STDIN, display_name
from kernelcrf.formats.templates import TemplateColumns
from kernelcrf.formats.token_lines import TokenLines
from kernelcrf.persistence import begins_like_model, check_target, named_errors
from kernelcrf.persistence.crfsuite.model_file import OTHER_PROGRAMS, begins_like_crfsuite
from kernelcrf.persistence.wapiti import begins_like_wapiti
from kernelcrf.preprocessing.files import split_pipeline, transform_inputs

# The entry of metadata_ in which `kernelcrf fit` stores the separator of the cells of the training data.
SEPARATOR = "separator"
MODEL_SUFFIXES = (".kcrf", *OTHER_PROGRAMS)


@dataclass(frozen=True, eq=False)
class Model:
    """A model that was loaded from a file.

    estimator : a ChainCRF, or a Pipeline that ends with one.
    crf : the ChainCRF.
    templates : templates for text, or None if the file has no templates.
    """

    estimator: Any
    crf: ChainCRF
    templates: Templates | None

    @classmethod
    def load(cls, path: str) -> Model:
        """Load a model file; raise unless the model is a ChainCRF, or a Pipeline that ends with a ChainCRF."""
        if Path(path).is_file() and not is_model(path):
            raise kernelcrf.ModelFileError(
                f"{path}: this is not a kernelcrf model: expected a file written by fit, or a model of CRFsuite; check "
                "that model and data are not swapped"
            )
        estimator = kernelcrf.load(path)
        crf = split_pipeline(estimator)[1]
        if not isinstance(crf, ChainCRF):
            raise kernelcrf.ModelFileError(
                f"{path}: the model is a {type(crf).__name__}: expected a ChainCRF. "
                "Use kernelcrf.load in Python for other models"
            )
        classes = crf.classes_.tolist()
        if len(set(map(str, classes))) < len(classes):
            raise kernelcrf.ModelFileError(
                f"{path}: some labels of the model have the same text, such as 1 and '1': expected distinct texts. Use "
                "kernelcrf.load in Python for this model"
            )
        return cls(estimator, crf, Templates.of(crf))

    def flat_inputs(self, records: Sequence[Record]) -> tuple[list[Any] | Entries, list[int] | None]:
        """Return the inputs of the records for `crf`, and the number of tokens of each record.

        If the records are text, the inputs of all records are stacked in one sparse matrix with one row per token,
        which makes predictions faster. Otherwise, return a list with the input of each record, and None instead of the
        numbers of tokens.
        """
        if self._columns is None or records[0].kind != "text":
            return transform_inputs(self.estimator, self._inputs(records))[1], None
        _check_text(records[0], self.templates)
        return self._columns.entries([record.x for record in records]), list(map(len, records))

    @property
    def separator(self) -> str:
        """Return the separator of cells in the training data, or a tab if it is not known."""
        return " " if self.crf.metadata_.get(SEPARATOR) == " " else "\t"

    @cached_property
    def _columns(self) -> TemplateColumns | None:
        vocabulary = self.crf.model_.reader.vocabulary
        return None if self.templates is None or vocabulary is None else TemplateColumns(self.templates, vocabulary)

    def batches(self, path: str, format: str | None) -> Iterable[list[Record]]:
        """Read the records of a file in batches; raise for a column file if the model has no templates."""
        n_columns = None
        if FORMATS[format_of(path, format)].kind == "text":
            if self.templates is None:
                data = "a .jsonl or .items file with the features"
                if self.crf.model_.reader.vectorizer is None:
                    data = "an .npz or .jsonl file with the vectors"
                raise FormatError(
                    f"{display_name(path)}: the file has text, but the model has no templates for text: pass "
                    f"{data}, as in training"
                )
            n_columns = self.templates.n_columns
        return read_batches(path, format, n_columns=n_columns)

    def read_labelled(self, path: str, format: str | None) -> tuple[list[Record], list[Any], list[list[object]]]:
        """Return the records of a file, their inputs for `estimator`, and their labels; raise if labels are absent.

        Labels that are text are converted to the type of the model's classes, for example to integers.
        """
        records = [record for batch in self.batches(path, format) for record in batch]
        classes = {str(label): label for label in self.crf.classes_.tolist()}
        y = [
            [classes.get(label, label) if isinstance(label, str) else label for label in labels]
            for labels in labels_of(records, "the true labels")
        ]
        return records, self._inputs(records), y

    def _inputs(self, records: Sequence[Record]) -> list[Any]:
        # The steps of a pipeline may fill in missing values.
        return inputs(records, self.templates, finite=self.estimator is self.crf)


def is_model(path: str) -> bool:
    """Return whether the first bytes of a file are those of a model of this library, of CRFsuite or of Wapiti."""
    return begins_like_model(path) or begins_like_crfsuite(path) or begins_like_wapiti(path)


def labels_of(records: Sequence[Record], expected: str) -> list[Sequence[object]]:
    """Return the labels of each record; raise if a record has no labels.

    expected : text for the error message that names the labels, such as "the true labels".
    """
    y = []
    for record in records:
        if record.labels is None:
            raise FormatError(f"{record.place}: the sequence has no labels: expected {expected}")
        y.append(record.labels)
    return y


def place_of(record: Record, t: int, format: str) -> str:
    """Return the file and line of token t, or the place of the whole record if its format has no line per token."""
    start, line, number = record.place.rpartition(", line ")
    if isinstance(record.raw, TokenLines):
        t = record.raw.line_of(t)
    elif not FORMATS[format].has_token_lines:
        return record.place
    return f"{start}{line}{int(number) + t}"


def read_templates(record: Record, path: str | None) -> Templates | None:
    """Return the templates in the file `path`, or default templates if `path` is None.

    The templates are for text that has as many cells per token as `record`. Return None if the record is not text.
    """
    if record.kind != "text":
        if path is not None:
            raise FormatError(
                f"{record.place}: the input is {record.kind}, but --templates needs text: omit --templates"
            )
        return None
    if path is None:
        return default_templates(record.width)
    try:
        with named_errors(path):
            return Templates(Path(path).read_text(encoding="utf-8"), record.width, path)
    except UnicodeDecodeError as error:
        raise FormatError(f"{path}: expected templates as UTF-8 text ({error})") from None


def inputs(records: Sequence[Record], templates: Templates | None, *, finite: bool = True) -> list[Any]:
    """Return one input per record; templates turn text into features, other inputs are returned unchanged.

    finite : whether to raise if a vector has NaN or infinity, so that the error names the file and the sequence.
    """
    rows = [record.x for record in records]
    if records and records[0].kind == "text":
        return _check_text(records[0], templates).features(rows)
    for record in records if finite else ():
        if record.kind == "vectors" and not np.isfinite(record.x.data if is_sparse(record.x) else record.x).all():
            X = record.x.toarray() if is_sparse(record.x) else record.x
            t, j = np.argwhere(~np.isfinite(X))[0]
            remedy = "fill in missing values" if np.isnan(X[t, j]) else "remove or clip infinite values"
            raise FormatError(
                f"{record.place}, token {t}: the vector has the value {X[t, j]} in column {j}: expected finite "
                f"numbers; {remedy} before you write the file"
            )
    return rows


def _check_text(record: Record, templates: Templates | None) -> Templates:
    """Return the templates; raise if they are None, or if the record has the wrong number of cells per token."""
    if templates is None:
        raise FormatError(
            f"{record.place}: the input is text, but the model has no templates for text: pass features or vectors"
        )
    if record.width != templates.n_columns:
        raise FormatError(
            f"{record.place}: tokens have {record.width} cells: expected {templates.n_columns}, as in the training data"
        )
    return templates


def check_apart(target: str, sources: Iterable[str | None]) -> None:
    """Raise if the output file `target` cannot be written, or is the same file as an input, even under another name.

    "-" means standard output for the target and standard input for a source; the shell may redirect both to files.
    """
    if target != STDIN:
        check_target(target)
    target_status = _status(target, sys.stdout)
    for name in sources:
        other = None if name is None else _status(name, sys.stdin)
        if target_status is not None and other is not None and os.path.samestat(target_status, other):
            where = "standard output" if target == STDIN else target
            raise FormatError(
                f"{where}: this is the same file as the input {display_name(name or '')}, which would be overwritten: "
                "pass another file name for the output"
            )


def check_overwrite(target: str, is_replaceable: Callable[[str], bool] | None = None, kind: str = "") -> None:
    """Raise if the output file `target` exists, has content, and is not a file that the command may replace.

    is_replaceable : a function that returns whether the command may replace a file; None if it replaces no file.
    kind : text for the error message that names the files that may be replaced, such as "a kernelcrf model".
    """
    if target == STDIN or not Path(target).is_file() or not Path(target).stat().st_size:
        return
    if is_replaceable is None or not is_replaceable(target):
        raise FormatError(
            f"{target}: this file exists{f' and is not {kind}' if kind else ''}, so it is not overwritten: pass "
            "another name for the output, or remove the file"
        )


def _status(name: str, stream: TextIO) -> os.stat_result | None:
    """Return the result of `os.stat` for the file `name`, or for `stream` if the name is "-".

    Return None if there is no such file, or if it is not a regular file.
    """
    try:
        status = os.fstat(stream.fileno()) if name == STDIN else os.stat(name)
    except (OSError, ValueError, UnsupportedOperation):
        return None
    return status if stat.S_ISREG(status.st_mode) else None


def convert(
    source: str, target: str, from_format: str | None, to_format: str | None, templates: str | None, no_labels: bool
) -> None:
    """Convert a file of sequences to another format, or a model to a model of another program.

    Text is turned into features if `templates` is not None, or if the new format stores only features.
    """
    if target.endswith(MODEL_SUFFIXES):
        if from_format is not None or to_format is not None or templates is not None or no_labels:
            raise FormatError(
                f"{target}: models have no options --from, --to, --templates and --no-labels: omit them, or write a "
                "file of sequences, such as .jsonl"
            )
        check_apart(target, [source])
        check_overwrite(target, is_model, "a model")
        Model.load(source).estimator.save(target)
        return
    wanted = format_of(target, to_format)
    kind = FORMATS[wanted].kind
    if templates is not None and kind not in (None, "features"):
        raise FormatError(
            f"{target}: {wanted} files cannot store features, but --templates makes features: omit --templates, or "
            "write a .jsonl file"
        )
    check_apart(target, [source, templates])
    check_overwrite(target)
    batches = read_batches(source, from_format, labels=not no_labels)
    featured = templates is not None or kind == "features"
    write(target, _replace_text(batches, templates) if featured else chain.from_iterable(batches), to_format)


def _replace_text(batches: Iterator[list[Record]], path: str | None) -> Iterator[Record]:
    """Yield the records with features instead of text; the templates are read from the file `path`."""
    first = next(batches)
    templates = read_templates(first[0], path)
    if templates is not None and templates.have_steps:
        raise FormatError(
            f"{path}: the templates give features of steps, but files of features have features of tokens only: pass "
            "the text and the templates to kernelcrf fit, or templates that begin with U"
        )
    for batch in chain([first], batches):
        for record, x in zip(batch, inputs(batch, templates), strict=True):
            yield record if templates is None else replace(record, kind="features", x=x)
