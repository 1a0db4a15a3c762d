"""Answers about Dask collections: each partition is labelled where it is, and the answers are a Dask collection too.

Nothing is computed before the user asks for it, for example with `compute` or `to_parquet`. A collection of sequences
becomes a dask.bag with one entry per sequence, and rows become a dask.array. A list of delayed values becomes a list
of delayed values, and so do the functions of `SequenceSources`.
"""

from __future__ import annotations

import operator
from collections.abc import Mapping
from copy import copy
from typing import Any

import dask
import numpy as np

from kernelcrf.arrays import UserData
from kernelcrf.decoding import find_rule
from kernelcrf.distributed.sources import RawSequences, SequenceSources, list_delayed, read_frame_inputs
from kernelcrf.validation import shown


def answer_sequences(crf: Any, method: str, X: UserData, **options: UserData) -> Any:
    """Return the answers of `method` about the sequences of a Dask collection.

    crf : a fitted estimator of sequences.
    options : arguments of the method; base scores and lengths must be None.
    """
    if method == "predict" and find_rule(crf.decoding).pools_samples:
        raise ValueError(
            f"decoding={shown(crf.decoding)} compares the spans of all sequences, but each partition of X is labelled "
            "alone: call set_params(decoding='viterbi'), or pass sequences in this process"
        )
    answers = _delay(_answer_sequences, crf, method, X, options)
    if isinstance(X, SequenceSources | list | tuple):
        return answers
    import dask.bag

    return dask.bag.from_delayed(answers)


def answer_rows(estimator: Any, method: str, X: UserData, **options: UserData) -> Any:
    """Return the answers of `method` about the rows of a Dask collection.

    estimator : a fitted estimator of rows.
    options : arguments of the method; base scores must be None.
    """
    answers = _delay(_answer_rows, estimator, method, X, options)
    if isinstance(X, SequenceSources | list | tuple):
        return answers
    import dask.array

    # An answer about no rows has the type and the columns of all answers.
    empty = getattr(estimator, method)([], **options)
    counts = X.chunks[0] if hasattr(X, "chunks") else [np.nan] * len(answers)
    blocks = [
        dask.array.from_delayed(answer, (count, *empty.shape[1:]), empty.dtype)
        for answer, count in zip(answers, counts, strict=True)
    ]
    return dask.array.concatenate(blocks, allow_unknown_chunksizes=True)


def _delay(answer: Any, estimator: Any, method: str, X: UserData, options: Mapping[str, UserData]) -> list[Any]:
    """Return one delayed answer per partition of X."""
    for name in ("base_scores", "lengths"):
        if options.get(name) is not None:
            raise ValueError(
                f"{name} cannot be combined with data on a cluster: pass X in this process, or {name}=None"
            )
    # If the original is fitted again, the copy keeps its model.
    model = dask.delayed(copy(estimator), traverse=False, pure=False)
    if isinstance(X, SequenceSources):
        parts = [dask.delayed(operator.call, pure=False)(source) for source in X.sources]
    else:
        parts = list_delayed(X)
    return [dask.delayed(answer, pure=False)(model, method, part, dict(options)) for part in parts]


# A worker calls the functions below with one partition.


def _answer_sequences(crf: Any, method: str, part: UserData, options: dict[str, UserData]) -> list[Any]:
    if isinstance(part, RawSequences):
        X, options = part.X, options | {"lengths": part.lengths}
    else:
        X = read_frame_inputs(part) if hasattr(part, "columns") else list(part)
    return list(getattr(crf, method)(X, **options))


def _answer_rows(estimator: Any, method: str, part: UserData, options: dict[str, UserData]) -> Any:
    return getattr(estimator, method)(part.X if isinstance(part, RawSequences) else part, **options)
