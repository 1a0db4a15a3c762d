"""Compute labels, probabilities and spans of sequences from a model file, with NumPy and safetensors alone."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import pairwise
from typing import Any, NamedTuple, Self

import numpy as np

from ..answers.expected_costs import costs_of_labels, least_cost_labels, least_cost_spans
from ..answers.f1_spans import f1_labels, f1_runs
from ..answers.span_probabilities import SpanTable, span_probabilities
from ..arrays import Floats, UserData
from ..persistence import ModelFileError, PathLike
from ..readers.schemes import SCHEMES
from ..readers.spans import RUNS, SpanRules, are_spans, scheme_of, span_rules, spans
from ..validation import LAG, POSITIVE, either, nothing, shown, shown_list
from .chain import log_probability, marginals, viterbi
from .field import TaggedField
from .model import StoredModel, open_model
from .stream import TaggerStream


class TaggedSpan(NamedTuple):
    """A span of the tokens from `start` to `end` - 1, its label, and the probability that it is a span."""

    start: int
    end: int
    label: Any
    probability: float


class Tagger:
    """A ChainCRF, or a pipeline that ends with one, read from a file that `kernelcrf.save` wrote.

    A sequence is one entry of the list that `ChainCRF.predict` takes: a list of feature dicts or of lists of feature
    names, an array with one row per token or, for a model with several inputs, a dict of these. All numbers are
    float64. A tagger never changes, so several threads can use the same one.

    Examples
    --------
    >>> import numpy as np
    >>> from kernelcrf import ChainCRF
    >>> from kernelcrf.tagger.tagger import Tagger  # in kernelcrf-tagger: from kernelcrf_tagger import Tagger
    >>> sentences = [["the", "dog", "of", "Ann"], ["Bob", "and", "Ann", "Lee"]]
    >>> X = [[{"word": word, "upper": word[0].isupper()} for word in sentence] for sentence in sentences]
    >>> crf = ChainCRF(C=10.0).fit(X, [["O", "O", "O", "B-PER"], ["B-PER", "O", "B-PER", "I-PER"]])
    >>> crf.save("names.kcrf")
    >>> tagger = Tagger.open("names.kcrf")
    >>> tagger.tag(X[1])
    ['B-PER', 'O', 'B-PER', 'I-PER']
    >>> tagger.classes, tagger.probabilities(X[1]).shape
    (['B-PER', 'I-PER', 'O'], (4, 3))
    >>> bool(np.isclose(tagger.log_prob(X[1], tagger.tag(X[1])), crf.log_prob([X[1]], [tagger.tag(X[1])])[0]))
    True
    >>> [(span.start, span.end, span.label) for span in tagger.spans(X[1])]
    [(0, 1, 'PER'), (2, 4, 'PER')]
    >>> live = tagger.stream(lag=1)
    >>> [live.push(token).lagged.labels for token in X[1]], live.finish().lagged.labels
    ([[], ['B-PER'], ['O'], ['B-PER']], ['I-PER'])
    >>> tagger.tag_all(X) == [labels.tolist() for labels in crf.predict(X)]
    True
    """

    def __init__(self, model: StoredModel) -> None:
        self._model = model
        rule = model.decoding["name"]
        if rule not in RULES:
            raise ModelFileError(
                f"the model has decoding={shown(rule)}, which kernelcrf-tagger does not know: expected one of "
                f"{', '.join(RULES)}. Open the file with kernelcrf.load"
            )
        self._rule = RULES[rule]

    @classmethod
    def open(cls, path: PathLike) -> Self:
        """Return the tagger of a model file.

        It is safe to open a file from an unknown source. Raise ModelFileError if the file is damaged, or needs too much
        memory for its size. Raise the same error if the model has a part that the tagger does not know.
        """
        return cls(open_model(path))

    @property
    def classes(self) -> list[Any]:
        """Return the labels, in the order of the columns of probabilities."""
        return list(self._model.classes)

    @property
    def metadata(self) -> Mapping[str, Any]:
        """Return the plain values that were saved with the model as `metadata_`."""
        return self._model.metadata

    def tag(self, tokens: UserData) -> list[Any]:
        """Return the labels of one sequence, by the decoding rule of the model."""
        return self.tag_all([tokens])[0]

    def tag_all(self, sequences: Iterable[UserData]) -> list[list[Any]]:
        """Return the labels of each sequence.

        With decoding="f1", the labels of a sequence depend on the others: pass a whole test set.
        """
        return self._labels(map(self._model.scores, sequences))

    def _labels(self, scores: Iterable[Scores]) -> list[list[Any]]:
        classes = self._model.classes
        return [[classes[label] for label in labels] for labels in self._rule(self._model, scores)]

    def probabilities(self, tokens: UserData) -> Floats:
        """Return one row per token of one sequence: entry [t, j] is the probability of the label classes[j]."""
        return marginals(*self._model.scores(tokens))[0]

    def probabilities_all(self, sequences: Iterable[UserData]) -> list[Floats]:
        """Return the probabilities of the labels of each sequence."""
        return [self.probabilities(tokens) for tokens in sequences]

    def log_prob(self, tokens: UserData, labels: Sequence[object]) -> float:
        """Return the logarithm of the probability of all labels of one sequence together.

        A sequence whose labels from `tag` are improbable is likely to have a wrong label, so that a person should check
        it first.
        """
        s, w = self._model.scores(tokens)
        place = {label: j for j, label in enumerate(self._model.classes)}
        if len(labels) != len(s) or not set(labels) <= set(place):
            raise ValueError(
                f"labels={shown(labels)}: expected one label for each of the {len(s)} tokens of the sequence, out of "
                f"{shown_list(self._model.classes)}"
            )
        return log_probability(s, w, [place[label] for label in labels])

    def stream(self, *, lag: int = 0, max_delay: int | None = None, state: UserData = None) -> TaggerStream:
        """Return an object that takes the tokens of one sequence as they arrive, and answers after each of them.

        Its methods `push`, `extend`, `finish` and `state` are those of `ChainCRF.stream`.

        lag : the number of later tokens that the probabilities of a token wait for.
        max_delay : the number of later tokens after which a label of the likeliest path is decided at the latest. None
            means that no path is followed.
        state : the result of the method `state` of an earlier stream of this model with the same `lag` and `max_delay`,
            which the new stream continues.
        """
        delay = either(*LAG.constraints, nothing).check("max_delay", max_delay)
        return TaggerStream(self._model, LAG.check("lag", lag), delay, state)

    def spans(self, tokens: UserData, *, scheme: str | None = None) -> list[TaggedSpan]:
        """Return the spans of the labels of one sequence, such as entities, with their probabilities.

        scheme : the tagging scheme of the labels, such as "IOB2", "IOBES" or "BMES". "lenient" reads tags of all
            schemes as conlleval does, and "runs" makes each run of equal labels a span. None means "lenient" if the
            labels look like tags, and "runs" otherwise.
        """
        return self.spans_all([tokens], scheme=scheme)[0]

    def spans_all(self, sequences: Iterable[UserData], *, scheme: str | None = None) -> list[list[TaggedSpan]]:
        """Return the spans of the labels of each sequence, with their probabilities; `spans` explains `scheme`."""
        classes, scores = self._model.classes, [self._model.scores(tokens) for tokens in sequences]
        if not scores:
            return []
        scheme = scheme_of(classes, scheme)
        of_sequences = [spans(labels, scheme) for labels in self._labels(scores)]
        rules = span_rules(classes, scheme)
        number = {label: k for k, label in enumerate(rules.types)}
        rows = [(i, start, end, number[label]) for i, row in enumerate(of_sequences) for start, end, label in row]
        field = TaggedField.of(scores)
        p = span_probabilities(field, rules, SpanTable(*np.array(rows, np.intp).reshape(-1, 4).T)).tolist()
        after = iter(p)
        return [[TaggedSpan(*span, next(after)) for span in row] for row in of_sequences]


Scores = tuple[Floats, Floats]
Rule = Callable[[StoredModel, Iterable[Scores]], list[list[int]]]


def _viterbi(model: StoredModel, scores: Iterable[Scores]) -> list[list[int]]:
    return [viterbi(s, w) for s, w in scores]


def _marginal(model: StoredModel, scores: Iterable[Scores]) -> list[list[int]]:
    return [marginals(s, w)[0].argmax(axis=1).tolist() for s, w in scores]


def _auto(model: StoredModel, scores: Iterable[Scores]) -> list[list[int]]:
    return (_marginal if model.scores_tokens_alone else _viterbi)(model, scores)


def _f1(model: StoredModel, scores: Iterable[Scores]) -> list[list[int]]:
    every, of_runs = list(scores), model.decoding.get("scheme") == RUNS
    rules = span_rules(model.classes, RUNS) if of_runs else _span_rules(model)
    if not every:
        return []
    field = TaggedField.of(every)
    labels = (f1_runs if of_runs else f1_labels)(field, rules).tolist()
    return [labels[low:high] for low, high in pairwise(field.chains.offsets.tolist())]


def _cost(model: StoredModel, scores: Iterable[Scores]) -> list[list[int]]:
    costs = costs_of_labels(model.decoding.get("costs"), _labels_of_costs(model), model.classes)
    return [least_cost_labels(TaggedField.of([one]), marginals(*one)[0] @ costs).tolist() for one in scores]


def _labels_of_costs(model: StoredModel) -> list[Any] | None:
    """Return the labels in the order of the stored costs, or None if this is the order of the model."""
    labels = model.decoding.get("classes")
    return None if labels is None else [tuple(one) if isinstance(one, list) else one for one in labels]


def _span_cost(model: StoredModel, scores: Iterable[Scores]) -> list[list[int]]:
    rules, given = _span_rules(model), (model.decoding.get("missed", 1.0), model.decoding.get("false", 1.0))
    missed, false = (POSITIVE.check("the cost of a span", cost) for cost in given)
    return [least_cost_spans(TaggedField.of([one]), rules, missed, false).tolist() for one in scores]


def _span_rules(model: StoredModel) -> SpanRules:
    """Return the rules of the tags of a model; raise if its labels or its scheme are none."""
    name, scheme = model.decoding["name"], model.decoding.get("scheme", "lenient")
    if scheme not in SCHEMES or not are_spans(model.classes):
        raise ModelFileError(
            f"the model has decoding={shown(name)} with scheme={shown(scheme)} and the labels "
            f"{shown_list(model.classes)}: expected tags such as B-PER, and one of {', '.join(SCHEMES)}"
        )
    return span_rules(model.classes, scheme)


RULES: Mapping[str, Rule] = {
    "viterbi": _viterbi,
    "marginal": _marginal,
    "f1": _f1,
    "cost": _cost,
    "span_cost": _span_cost,
    "auto": _auto,
}
"""The decoding rules by name, as `kernelcrf.decoding.RULES`."""
