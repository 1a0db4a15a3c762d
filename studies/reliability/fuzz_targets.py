"""Define the targets of fuzzing: functions of bytes that return, or raise the library's own error.

model_file      the bytes of a model file, through `kernelcrf.load`
model_header    the JSON of a model file beside tensors that are whole
model_state     edits of the JSON and of the tensors of a whole model, as the bytes choose them
checkpoint      edits of the JSON and of the tensors of the checkpoint of a fit, from which the fit then goes on
loaded          such edits of a file of any estimator, and everything that may be called on it (see `fuzz_loaded`)
columns, jsonl, crfsuite, npz, parquet    a file of that format; what is read is written and read again, and must be
                                          the same; Parquet also as the workers of a cluster read it
parquet_table   the same of a well-formed Parquet file whose columns, types and values the bytes choose
templates       a template file (after a byte that says how many columns) and the features of a sentence

A model that is read must predict: rows of finite probabilities that sum to one, or a ValueError.
"""

from __future__ import annotations

import copy
import io
import json
import random
import sys
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp
from sklearn.pipeline import Pipeline

from kernelcrf import ChainCRF, ModelFileError, load
from kernelcrf.distributed import read_parquet
from kernelcrf.formats import FormatError, Record, TemplateError, Templates, columns, crfsuite, read
from kernelcrf.formats import jsonl as json_lines
from kernelcrf.formats import write as write_records
from kernelcrf.formats.round_trip import feature_counts
from kernelcrf.persistence import Budget
from kernelcrf.readers.sequences import SequenceReader
from kernelcrf.score.chain_names import STEPS, TOKENS
from studies.reliability import fuzz_loaded
from studies.reliability.fuzz_checkpoints import KINDS, goes_on, interrupted
from studies.reliability.fuzz_edits import edit_tensor, edit_value, parts, scratch
from studies.reliability.parquet_tables import odd_parquet

CORPUS = Path(__file__).parent / "corpus"
SENTENCE = [["Wort", "NN"], ["42", "CD"], ["x-y", "SYM"], ["éa", "FW"]]


def model_file(data: bytes) -> None:
    path = scratch()
    with open(path, "wb") as file:
        file.write(data)
    try:
        model = load(path)
    except ModelFileError:
        return
    if isinstance(model, ChainCRF | Pipeline):
        predicts(model)
    else:
        calls = dict(fuzz_loaded.CALLS[type(model)](model, f"{path}.again"))
        for name in {"predict", "impute"} & set(calls):
            fuzz_loaded.check_call(name, calls[name])


def model_header(data: bytes) -> None:
    restored(json_value(data), parts(seeds()[0])[1])


def model_state(data: bytes) -> None:
    left = iter(data)
    config, arrays = copy.deepcopy(parts(seeds()[next(left, 0) % len(seeds())]))
    for _ in range(1 + next(left, 0) % 4):
        if next(left, 0) % 4:
            edit_value(config, left)
        else:
            edit_tensor(arrays, left)
    restored(config, arrays)


def checkpoint(data: bytes) -> None:
    left = iter(data)
    own = interrupted()[next(left, 0) % len(KINDS)]
    config, arrays = copy.deepcopy((own.config, own.arrays))
    for _ in range(1 + next(left, 0) % 2):
        if next(left, 0) % 4 == 0:
            edit_value(config, left)
        else:
            edit_tensor(arrays, left)
    crf = goes_on(own, config, arrays, scratch())
    if crf is not None:
        predicts(crf)


def columns_(data: bytes) -> None:
    read_twice(data, "columns", columns.write)


def jsonl(data: bytes) -> None:
    read_twice(data, "jsonl", json_lines.write)


def crfsuite_(data: bytes) -> None:
    read_twice(data, "crfsuite", crfsuite.write)


def npz(data: bytes) -> None:
    read_file_twice(data, "npz")


def parquet(data: bytes) -> None:
    read_file_twice(data, "parquet")
    with open(scratch(), "wb") as file:
        file.write(data)
    for options in ({}, {"labels": None}, {"labels": "labels", "sequence": "weight"}):
        try:
            parts = read_parquet(scratch(), **options).sources
        except FormatError:
            return
        for part in parts:
            with suppress(FormatError):
                part()


def parquet_table(data: bytes) -> None:
    made = odd_parquet(data)
    if made is not None:
        parquet(made)


def templates(data: bytes) -> None:
    try:
        made = Templates(data[1:].decode("utf-8", "replace"), 1 + data[0] % 2 if data else 1)
    except TemplateError:
        return
    # The cells are short: how long a regular expression takes on long ones is its author's affair.
    sequences = [[row[: made.n_columns] for row in SENTENCE], [["a"] * made.n_columns]]
    found = made.features(sequences)
    counts = {TOKENS: len(made.of_tokens), STEPS: len(made.of_steps)}
    for name, count in counts.items() if made.have_steps else [(TOKENS, len(made.compiled))]:
        part = [one[name] if isinstance(one, dict) else one for one in found]
        assert [len(sequence) for sequence in part] == [len(SENTENCE), 1], "a token is lost"
        assert {len(token) for sequence in part for token in sequence} == {count}, "a feature is lost"


TARGETS: dict[str, Callable[[bytes], None]] = {
    "model_file": model_file,
    "model_header": model_header,
    "model_state": model_state,
    "checkpoint": checkpoint,
    "loaded": fuzz_loaded.loaded,
    "columns": columns_,
    "jsonl": jsonl,
    "crfsuite": crfsuite_,
    "npz": npz,
    "parquet": parquet,
    "parquet_table": parquet_table,
    "templates": templates,
}


def corpus(target: str) -> list[bytes]:
    """Return the seeds of a target."""
    found = [path.read_bytes() for path in sorted((CORPUS / target).glob("*"))]
    if target == "loaded":
        found += [bytes([i]) + random.Random(i).randbytes(40) for i in range(len(fuzz_loaded.seeds()))]
    if target == "model_file":
        found += [path.read_bytes() for path in seeds()]
    if target == "model_header":
        found += [json.dumps(parts(path)[0]).encode() for path in seeds()]
    return found


def warm_up(target: str) -> list[bytes]:
    """Return inputs that compile the loops of a target: for loaded models, every call on each unedited model."""
    return [bytes([i]) + bytes(64) for i in range(len(fuzz_loaded.seeds()))] if target == "loaded" else []


def restored(config: Any, arrays: dict[str, Any]) -> None:
    """Restore a model as `load` does, without a file."""
    if not isinstance(config, dict):
        return
    try:
        model = ChainCRF.from_arrays(config, arrays, Budget(0))
    except ModelFileError:
        return
    predicts(model)


def predicts(model: ChainCRF) -> None:
    """Predict two tokens of the kind that the model takes."""
    if model.n_features_in_ > fuzz_loaded.MOST_FEATURES:
        return
    x = fuzz_loaded.two_tokens(model)
    try:
        proba = model.predict_proba([x])[0]
        model.predict([x])
    except ValueError:
        return
    assert np.isfinite(proba).all(), "probabilities that are not finite"
    np.testing.assert_allclose(proba.sum(axis=1), 1.0, atol=1e-4)


def read_file_twice(data: bytes, format: str) -> None:
    """Read a file of a binary format, write it, and read it again."""
    path = scratch()
    with open(path, "wb") as file:
        file.write(data)
    try:
        records = list(read(path, format))
        write_records(path, records, format)
    except FormatError:
        return
    again = list(read(path, format))
    if format == "parquet" and records[0].kind == "features":
        # A map has values of one type: words become part of the name of a feature, as models read them.
        records, again = (
            [replace(one, x=[feature_counts(token, "") for token in one.x]) for one in part]
            for part in (records, again)
        )
    compare(records, again)


def read_twice(data: bytes, format: str, write: Callable[[Any, list[Record]], None]) -> None:
    """Read, write, and read again; features go through the reader of a model too."""
    try:
        records = list(read_from_memory(data, format))
        text = io.StringIO(newline="")
        write(text, records)
        again = text.getvalue().encode()
    except FormatError:
        return
    compare(records, list(read_from_memory(again, format)))
    if records and records[0].kind == "features":
        try:
            SequenceReader.fit([record.x for record in records])
        except (ValueError, TypeError):
            return


def read_from_memory(data: bytes, format: str) -> Iterator[Record]:
    """Yield the records of bytes that come by standard input."""
    kept, sys.stdin = sys.stdin, io.TextIOWrapper(io.BufferedReader(io.BytesIO(data)))  # type: ignore[arg-type]
    try:
        yield from read("-", format)
    finally:
        sys.stdin = kept


def compare(records: list[Record], again: list[Record]) -> None:
    assert len(records) == len(again), f"{len(records)} sequences, and {len(again)} read again"
    for a, b in zip(records, again, strict=True):
        assert canonical(a) == canonical(b), a.place


def canonical(record: Record) -> str:
    """Return the record as text, without byte order marks and with lists of names as dicts."""
    x: Any = record.x
    if record.kind == "vectors":
        x = x.toarray().tolist() if sp.issparse(x) else x.tolist()
    elif record.kind == "features":
        x = [dict.fromkeys(map(str, token), 1.0) if isinstance(token, list) else token for token in x]
    labels = [sorted(map(repr, one)) if isinstance(one, set) else one for one in record.labels or ()]
    return repr((record.kind, x, labels, record.weight)).replace("\\ufeff", "")


def json_value(data: bytes) -> Any:
    try:
        return json.loads(data.decode("utf-8", "replace"))
    except (ValueError, RecursionError):
        return None


@cache
def seeds() -> list[Path]:
    return sorted(fuzz_loaded.GOLDEN.glob("v*/*.kcrf"))
