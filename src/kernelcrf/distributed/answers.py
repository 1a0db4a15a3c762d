"""Answers about Dask collections: each partition is labelled where it is, and the answers are a Dask collection too.

Nothing is computed before the user asks for it, for example with `compute` or `to_parquet`. A collection of sequences
becomes a dask.bag with one entry per sequence, and rows become a dask.array. A list of delayed values becomes a list
of delayed values, and so do the functions of `SequenceSources`. Only scores are numbers, and computed at once: each
partition counts its right labels, and the counts are added up.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping, Sequence
from copy import copy
from dataclasses import dataclass
from functools import partial
from typing import Any, cast

import dask
import numpy as np

from kernelcrf.arrays import UserData
from kernelcrf.decoding import find_rule
from kernelcrf.distributed.cluster import Cluster
from kernelcrf.distributed.sources import (
    RawSequences,
    SequenceSources,
    list_delayed,
    load_graphs,
    load_rows,
    load_sequences,
    read_frame_inputs,
)
from kernelcrf.distributions.graph import count_right_nodes
from kernelcrf.distributions.sequences import count_right
from kernelcrf.readers.rows import count_right_rows, count_right_sets
from kernelcrf.validation import shown


def answer_sequences(crf: Any, method: str, X: UserData, **options: UserData) -> Any:
    """Return the answers of `method` about the sequences or graphs of a Dask collection.

    crf : a fitted estimator of sequences or graphs.
    options : arguments of the method; base scores and lengths must be None.
    """
    if method == "predict" and hasattr(crf, "decoding"):
        _refuse_pooling(crf.decoding)
    return _bag_of(X, _delay(_answer_sequences, crf, method, X, options))


@dataclass(frozen=True, eq=False)
class DistributionOfParts:
    """The distributions p(y|x) of the sequences of a Dask collection; the methods give lazy collections.

    crf : a fitted estimator of sequences.
    X : the collection.

    Examples
    --------
    >>> import dask.bag
    >>> from kernelcrf import ChainCRF
    >>> X, y = [[["w=a"], ["w=b"]], [["w=b"]]] * 5, [["A", "B"], ["B"]] * 5
    >>> crf = ChainCRF("linear", C=10.0).fit(X, y)
    >>> distribution = crf.distribution(dask.bag.from_sequence(X, npartitions=2))
    >>> distribution.spans(scheme="runs").map(len).compute(scheduler="threads")[:2]
    [2, 1]
    """

    crf: Any
    X: UserData

    def decode(self, rule: UserData = None) -> Any:
        """Return the labels, as `predict` does; `rule` may be another decoding rule."""
        _refuse_pooling(self.crf.decoding if rule is None else rule)
        return self._ask("decode", rule=rule)

    def marginals(self) -> Any:
        """Return the probabilities of labels, as `predict_proba` does."""
        return self._ask("marginals")

    def labelled_marginals(self) -> Any:
        """Return a list with a dict from labels to probabilities per token, for each sequence."""
        return self._ask("labelled_marginals")

    def entropy(self) -> Any:
        """Return the entropy of p(y|x), one number per sequence."""
        return self._ask("entropy")

    def k_best(self, k: int = 1) -> Any:
        """Return the k likeliest labellings of each sequence with their log-probabilities, best first."""
        return self._ask("k_best", k=k)

    def spans(self, **options: UserData) -> Any:
        """Return spans with their probabilities, one list per sequence.

        options : the options of the method `spans` for sequences in this process, such as threshold=0.5.
        """
        if not {"threshold", "n_best"} & options.keys():
            _refuse_pooling(options.get("rule") or self.crf.decoding)
        return self._ask("spans", **options)

    def _ask(self, method: str, **options: UserData) -> Any:
        return _bag_of(self.X, _delay(_ask_distribution, self.crf, method, self.X, options))


@dataclass(frozen=True, eq=False)
class ScoreOfParts:
    """The two functions that scoring a kind of samples in parts needs.

    load : a function of X, y, sample weights and a cluster that returns one handle per part, to `RawSequences`.
    count : a picklable function of a fitted estimator and one part; it returns how many known labels are right, and how
        many there are, as two sums of weights.
    """

    load: Callable[..., Sequence[Any]]
    count: Callable[[Any, RawSequences], tuple[float, float]]


def score_parts(
    kind: ScoreOfParts, estimator: Any, X: UserData, y: UserData, sample_weight: UserData, **others: UserData
) -> float:
    """Return the fraction of known labels of a Dask collection that are predicted right.

    kind : one of SEQUENCES, ROWS, LABEL_SETS and GRAPHS.
    y : the labels, in one of the forms that `fit` accepts on a cluster.
    sample_weight : for rows, a Dask collection or the name of a column. For sequences, it must be None: weights are a
        column of a data frame, or part of `RawSequences`.
    others : arguments that must be None.
    """
    refuse_on_parts(others)
    if getattr(estimator, "decoding", None) is not None:
        _refuse_pooling(estimator.decoding)
    # Data that are on a cluster already are loaded by the two methods that LazyParts has.
    raw = kind.load(X, y, sample_weight, cast(Cluster, LazyParts()))
    model = dask.delayed(copy(estimator), traverse=False, pure=False)
    counts = dask.compute(*(dask.delayed(kind.count, pure=False)(model, part) for part in raw))
    right, total = np.sum([(0.0, 0.0), *counts], axis=0)
    if not total:
        raise ValueError("y has no known label with a weight above 0: expected at least one label to score")
    return float(right / total)


class LazyParts:
    """The methods of a cluster that loading data needs; they return delayed values, which Dask computes later."""

    def load(self, sources: Sequence[Any]) -> list[Any]:
        """Return one delayed value per source."""
        return [
            source if dask.is_dask_collection(source) else dask.delayed(operator.call, pure=False)(source)
            for source in sources
        ]

    def each(self, function: Any, *parts: Sequence[Any], shared: tuple[Any, ...] = ()) -> list[Any]:
        """Return one delayed call of `function` per part."""
        call = dask.delayed(function, pure=False)
        return [call(*arguments, *shared) for arguments in zip(*parts, strict=True)]


def _refuse_pooling(rule: UserData) -> None:
    """Raise if a decoding rule compares the spans of all sequences."""
    if find_rule(rule).pools_samples:
        raise ValueError(
            f"decoding={shown(rule)} compares the spans of all sequences, but each partition of X is labelled "
            "alone: call set_params(decoding='viterbi'), or pass sequences in this process"
        )


def _bag_of(X: UserData, answers: list[Any]) -> Any:
    """Return delayed lists of answers in the form that suits X: as they are, or as a dask.bag."""
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
    refuse_on_parts({name: options.get(name) for name in ("base_scores", "lengths")})
    # If the original is fitted again, the copy keeps its model.
    model = dask.delayed(copy(estimator), traverse=False, pure=False)
    if isinstance(X, SequenceSources):
        parts = [dask.delayed(operator.call, pure=False)(source) for source in X.sources]
    else:
        parts = list_delayed(X)
    return [dask.delayed(answer, pure=False)(model, method, part, dict(options)) for part in parts]


def refuse_on_parts(others: Mapping[str, UserData]) -> None:
    """Raise if an argument of a method is not None and cannot be combined with data on a cluster."""
    for name, value in others.items():
        if value is not None:
            raise ValueError(
                f"{name} cannot be combined with data on a cluster: pass X in this process, or {name}=None"
            )


# A worker calls the functions below with one partition.


def _sequences_of(part: UserData) -> tuple[Any, Any]:
    """Return the sequences of a partition, and their lengths if the sequences are one after the other, else None."""
    if isinstance(part, RawSequences):
        return part.X, part.lengths
    return (read_frame_inputs(part) if hasattr(part, "columns") else list(part)), None


def _answer_sequences(crf: Any, method: str, part: UserData, options: dict[str, UserData]) -> list[Any]:
    X, lengths = _sequences_of(part)
    return list(getattr(crf, method)(X, **options if lengths is None else options | {"lengths": lengths}))


def _ask_distribution(crf: Any, method: str, part: UserData, options: dict[str, UserData]) -> list[Any]:
    return list(getattr(crf.distribution(*_sequences_of(part)), method)(**options))


def _count_tokens(estimator: Any, part: RawSequences) -> tuple[float, float]:
    return count_right(estimator.distribution(part.X, part.lengths), part.y, part.weights, part=True)


def _count_rows(estimator: Any, part: RawSequences) -> tuple[float, float]:
    return count_right_rows(part.y, estimator.predict(part.X), estimator.classes_, part.weights)


def _count_sets(estimator: Any, part: RawSequences) -> tuple[float, float]:
    distribution = estimator.distribution(part.X)
    true, predicted = distribution.model.sets.read(part.y), distribution.decode_indices()
    return count_right_sets(true, predicted, part.weights, part=True)


def _count_nodes(estimator: Any, part: RawSequences) -> tuple[float, float]:
    return count_right_nodes(estimator.distribution(part.X), part.y, part.weights, part=True)


def _answer_rows(estimator: Any, method: str, part: UserData, options: dict[str, UserData]) -> Any:
    return getattr(estimator, method)(part.X if isinstance(part, RawSequences) else part, **options)


SEQUENCES, ROWS = ScoreOfParts(load_sequences, _count_tokens), ScoreOfParts(load_rows, _count_rows)
LABEL_SETS = ScoreOfParts(partial(load_rows, multi_output=True), _count_sets)
GRAPHS = ScoreOfParts(load_graphs, _count_nodes)
