"""The tagger of a fitted CRF and the log of its fit; their methods and attributes have the names of python-crfsuite."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np

from kernelcrf.arrays import UserData
from kernelcrf.estimators.chain import ChainCRF
from kernelcrf.metrics.pairs import pair
from kernelcrf.models.crfsuite import to_crfsuite
from kernelcrf.persistence.crfsuite.model_file import MARK, model_bytes
from kernelcrf.validation import shown, shown_list


class LabelScore(NamedTuple):
    """The score of one label on held-out data.

    match : the number of tokens for which the label is predicted and true.
    model, ref : the numbers of tokens for which the label is predicted, and for which it is true.
    """

    match: int
    model: int
    ref: int
    precision: float
    recall: float
    f1: float


@dataclass(frozen=True)
class TrainingLog:
    """The log of a fit.

    iterations : one dict per evaluation of the objective. It has `num`, `loss` (the objective), `time` (seconds since
        the previous evaluation) and `relative_gap` (the certified gap). The last dict also has `active_features` (the
        number of weights that are not zero) and `feature_norm`, and the scores on the data of `X_dev` if it was passed.
    featgen_num_features : the number of weights.
    """

    iterations: list[dict[str, Any]]
    featgen_num_features: int

    @property
    def last_iteration(self) -> dict[str, Any]:
        """Return the last entry of `iterations`, which describes the fitted model."""
        return self.iterations[-1]

    @classmethod
    def of(cls, crf: ChainCRF, scores: Mapping[str, Any]) -> TrainingLog:
        """Return the log of a fitted ChainCRF; `scores` are added to the last iteration."""
        gaps, _, seconds = crf.gap_curve_.T
        values = zip(crf.objective_curve_.tolist(), np.diff(seconds, prepend=0).tolist(), gaps.tolist(), strict=True)
        iterations = [
            {"num": number, "loss": loss, "time": time, "relative_gap": gap, "scores": {}}
            for number, (loss, time, gap) in enumerate(values)
        ]
        theta = crf.model_.theta
        iterations[-1] |= {
            "loss": crf.certificate_.objective,
            "relative_gap": crf.certificate_.relative_gap,
            "feature_norm": float(np.linalg.norm(theta)),
            "active_features": int(np.count_nonzero(theta)),
            **scores,
        }
        return cls(iterations, len(theta))


@dataclass(frozen=True)
class ModelInfo:
    """The content of a model.

    header : the size of the model file in bytes, and the numbers of labels and attributes.
    labels, attributes : a dict from each name to its number in the file.
    transitions : a dict from pairs of labels to weights.
    state_features : a dict from pairs of an attribute and a label to weights.
    """

    header: dict[str, Any]
    labels: dict[str, int]
    attributes: dict[str, int]
    transitions: dict[tuple[str, str], float]
    state_features: dict[tuple[str, str], float]

    @classmethod
    def of(cls, crf: ChainCRF) -> ModelInfo:
        """Return the content of a fitted ChainCRF; weights that are zero are left out."""
        model = to_crfsuite(crf.model_)
        labels, names = model.labels, model.attributes
        header = {
            "magic": MARK.decode(),
            "size": len(model_bytes(model)),
            "num_labels": len(labels),
            "num_attrs": len(names),
        }
        transitions, state = (
            zip(*(array.tolist() for array in weights), strict=True) for weights in (model.transitions, model.state)
        )
        return cls(
            header,
            {label: number for number, label in enumerate(labels)},
            {name: number for number, name in enumerate(names)},
            {(labels[i], labels[j]): weight for i, j, weight in transitions},
            {(names[i], labels[j]): weight for i, j, weight in state},
        )


@dataclass(eq=False)
class Tagger:
    """A tagger of one sequence at a time, with the methods of python-crfsuite's tagger.

    crf : the fitted ChainCRF that tags.
    """

    crf: ChainCRF
    _x: Sequence[UserData] = field(default=(), init=False, repr=False)

    def set(self, x: UserData) -> None:
        """Set the sequence for later calls of `tag`, `probability` and `marginal`."""
        self._x = plain_tokens(x)

    def tag(self, x: UserData = None) -> list[Any]:
        """Return the labels of a sequence, which is a list of feature dicts or of lists of feature names.

        x : the sequence; None means the sequence that was last passed to `set` or `tag`.
        """
        if x is not None:
            self.set(x)
        labels: list[Any] = self.crf.predict([self._x])[0].tolist()
        return labels

    def labels(self) -> list[Any]:
        """Return all labels."""
        labels: list[Any] = self.crf.classes_.tolist()
        return labels

    def probability(self, y: Sequence[object]) -> float:
        """Return the probability of the labels y of the sequence that was last passed to `set` or `tag`."""
        return float(np.exp(self.crf.log_prob([self._x], [y])[0]))

    def marginal(self, y: object, t: int) -> float:
        """Return the probability of the label y at token t of the sequence that was last passed to `set` or `tag`."""
        labels, n_tokens = self.labels(), len(self._x)
        if y not in labels or not 0 <= t < n_tokens:
            raise ValueError(
                f"y={shown(y)}, t={shown(t)}: expected one of the labels {shown_list(labels)}, and the index of a "
                f"token, from 0 to {n_tokens - 1}"
            )
        return float(self.crf.predict_proba([self._x])[0][t, labels.index(y)])

    def info(self) -> ModelInfo:
        """Return the labels, attributes and weights of the model."""
        return self._info

    @cached_property
    def _info(self) -> ModelInfo:
        return ModelInfo.of(self.crf)


def plain_tokens(x: UserData) -> Any:
    """Return a sequence as a list of tokens, also if it is an `ItemSequence` of python-crfsuite."""
    return x.items() if callable(getattr(x, "items", None)) and not isinstance(x, Mapping) else x


def held_out_scores(crf: ChainCRF, X: UserData, y: UserData) -> dict[str, Any]:
    """Return the scores that CRFsuite computes on held-out data: scores of each label, their means, and accuracies."""
    known = pair(y, [labels.tolist() for labels in crf.predict(X)], None, classes=crf.classes_.tolist())
    both = list(zip(known.true, known.pred, strict=True))
    pairs = [labels for true, predicted in both for labels in zip(true, predicted, strict=True)]
    scores = {}
    for label in crf.classes_.tolist():
        match = sum(a == b == label for a, b in pairs)
        model, ref = sum(b == label for _, b in pairs), sum(a == label for a, _ in pairs)
        rates = (match / model if model else 0.0), (match / ref if ref else 0.0)
        scores[label] = LabelScore(match, model, ref, *rates, 2 * match / (model + ref) if match else 0.0)
    items = Fraction(sum(a == b for a, b in pairs), max(len(pairs), 1))
    whole = [all(a == b for a, b in zip(true, predicted, strict=True)) for true, predicted in both]
    instances = Fraction(sum(whole), max(len(whole), 1))
    means = np.mean([score[3:] for score in scores.values()], axis=0).tolist()
    return {
        "scores": scores,
        **dict(zip(("avg_precision", "avg_recall", "avg_f1"), means, strict=True)),
        "item_accuracy": items,
        "item_accuracy_float": float(items),
        "instance_accuracy": instances,
        "instance_accuracy_float": float(instances),
    }
