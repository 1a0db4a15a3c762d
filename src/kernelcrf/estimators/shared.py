"""Training data in parts on a cluster: surveyed by sums, then read by the workers.

A survey of each part says what its kind, width, labels and names are; the sum of surveys is what one reader of all data
needs. Neighbouring parts are then joined into as many as the engine asks for.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Mapping
from dataclasses import dataclass
from functools import partial
from itertools import chain
from typing import Any

import numpy as np
import numpy.typing as npt

from kernelcrf.basis.factor import stack
from kernelcrf.corpora.sequences import LabelledSequences
from kernelcrf.corpora.shards import SharedSequences
from kernelcrf.engines.cluster import Cluster
from kernelcrf.estimators.constraints import check_legal
from kernelcrf.estimators.labels import LabelReader, flat_labels
from kernelcrf.estimators.parts import Sequences, raw_parts, runs_of
from kernelcrf.estimators.sequences import SequenceReader
from kernelcrf.estimators.survey import Survey
from kernelcrf.estimators.weights import checked_weights, sequence_weights
from kernelcrf.graphs.structure import Chains, Legal


@dataclass(frozen=True, eq=False)
class Training:
    """What a fit reads on a cluster: the readers of inputs and labels, what is legal, the data, and their survey."""

    reader: SequenceReader
    labels: LabelReader
    legal: Legal | None
    data: SharedSequences
    survey: Survey

    @property
    def gamma(self) -> float:
        """1 / (d variance of all entries); 1 where they have none, or where the survey did not ask for it."""
        if self.survey.moments is None:
            return 1.0
        d = self.reader.n_features
        with np.errstate(over="ignore", divide="ignore", invalid="ignore"):
            variance = self.survey.moments.variance(sum(self.survey.tokens) * d)
            gamma = float(1.0 / np.float64(d * variance)) if variance > 0 else 1.0
        if not (np.isfinite(variance) and np.finfo(np.float64).tiny <= gamma < np.inf):
            raise ValueError(
                f"X has entries of variance {variance:.3g}, and gamma='scale' would be {gamma:g}: scale X, or give "
                "gamma as a number"
            )
        return gamma


def current_cluster() -> Cluster:
    """The workers of the current Dask client."""
    try:
        from kernelcrf.engines.dask import DaskEngine
    except ImportError:
        raise ImportError("data in parts need Dask, which is not installed: pip install 'kernelcrf[dask]'") from None
    engine = DaskEngine()
    try:
        _ = engine.client
    except ValueError:
        raise ValueError(
            "data in parts need a Dask client, and there is none: start one, client = distributed.Client(), or pass "
            "engine=DaskEngine(client)"
        ) from None
    return engine


def read_training(
    X: Any,
    y: Any,
    sample_weight: Any,
    cluster: Cluster,
    *,
    hash_features: int | None,
    moments: bool,
    n_components: int,
    classes: Iterable[Hashable] | None,
    class_weight: Any,
    legal_of: Callable[[npt.NDArray[Any]], Legal | None],
    earlier: tuple[SequenceReader, LabelReader] | None = None,
) -> Training:
    """Survey the parts, make one reader of them, join them and have them read where they are.

    moments : whether the variance of the inputs is needed.
    legal_of : what labelings may be, given the classes.
    earlier : the readers of an earlier fit, to be taken up.
    """
    raw = raw_parts(X, y, sample_weight, cluster)
    survey: Survey = cluster.sum(cluster.each(Survey.of, raw, shared=(hash_features, moments)))
    if any(survey.failed):
        failed = survey.failed.index(True)
        cluster.fetch(
            [cluster.call(Survey.check_part, raw[failed], hash_features, moments, int(survey.firsts[failed]))]
        )
    if survey.counted == 0 and any(survey.sequences):
        raise ValueError("sample_weight is zero for every sequence: expected at least one above zero")
    if earlier is None:
        reader, labels = survey.reader(hash_features), LabelReader.of(list(survey.shown), classes)
    else:
        reader, labels = earlier
    legal = legal_of(labels.classes)
    if class_weight == "balanced":
        known = {label: count for label, count in survey.counts.items() if label in labels.classes.tolist()}
        class_weight = {label: sum(known.values()) / (len(known) * count) for label, count in known.items()}
    if isinstance(class_weight, Mapping) and all(class_weight.get(label, 1) == 0 for label in survey.counts):
        raise ValueError("class_weight leaves no sequence with a weight above zero: expected at least one")
    filled = np.flatnonzero(survey.tokens)
    runs = runs_of(np.array(survey.tokens)[filled], cluster.parts_of(survey.n_bytes(n_components), len(filled)))
    read = partial(_read, reader, labels, legal, class_weight)
    parts = [
        cluster.call(read, survey.firsts[own].tolist(), [raw[k] for k in own], place=at / len(runs))
        for at, own in enumerate(filled[run] for run in runs)
    ]
    size = survey.counted, sum(survey.tokens)
    data = SharedSequences(cluster, parts, len(labels.classes), reader.n_features, survey.is_sparse, size)
    return Training(reader, labels, legal, data, survey)


def _read(
    reader: SequenceReader,
    labels: LabelReader,
    legal: Legal | None,
    class_weight: Any,
    firsts: list[int],
    parts: list[Sequences],
) -> LabelledSequences:
    """Read parts with at least one token as one, on a worker; `firsts` are the numbers of their first sequences."""
    read = [reader.read(part.X, part.lengths, first) for part, first in zip(parts, firsts, strict=True)]
    flat = stack([one for one, _ in read])
    numbers = [first + np.arange(own.n_samples) for (_, own), first in zip(read, firsts, strict=True)]
    lengths = Chains.from_lengths(np.concatenate([own.lengths for _, own in read]))
    chains = Chains(lengths.offsets, np.concatenate(numbers))
    flat_y = [
        flat_labels(part.y, own, flat=part.lengths is not None) for part, (_, own) in zip(parts, read, strict=True)
    ]
    indices, allowed = labels.encode(list(chain.from_iterable(flat_y)), chains, flat=True)
    if legal is not None:
        check_legal(legal, chains, indices, labels)
    given = [
        np.ones(len(part)) if part.weights is None else checked_weights(part.weights, len(part), "sequence", part=True)
        for part in parts
    ]
    weights = None if all(part.weights is None for part in parts) else np.concatenate(given)
    by_label = sequence_weights(weights, class_weight, chains, indices, labels.classes, part=True)
    data = LabelledSequences(flat, chains, indices, len(labels.classes), allowed, by_label, legal)
    return data if weights is None else data.only(weights > 0)
