"""Methods of ChainCRF for spans, such as entities or chunks."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from kernelcrf.answers.certified import certify as certified_labels
from kernelcrf.answers.spans import (
    N_BEST,
    SPAN_SCHEME,
    THRESHOLD,
    PredictedSpan,
    labelled_spans,
    mark_certified,
    predicted_spans,
    probable_spans,
    read_spans,
    span_probabilities,
)
from kernelcrf.answers.weights import data_frame
from kernelcrf.arrays import Floats, UserData
from kernelcrf.estimators.leave_one_out_answers import LeaveOneOutAnswers
from kernelcrf.readers.containers import Ragged
from kernelcrf.readers.schemes import scheme_of, span_rules
from kernelcrf.validation import FLAG, validated


@dataclass(eq=False, repr=False, kw_only=True)
class SpanAnswers(LeaveOneOutAnswers):
    """Base class of ChainCRF, with methods for spans."""

    @validated(scheme=SPAN_SCHEME, threshold=THRESHOLD, n_best=N_BEST, certify=FLAG)
    def predict_spans(
        self,
        X: UserData,
        lengths: UserData = None,
        *,
        scheme: str | None = None,
        threshold: float | None = None,
        n_best: int | None = None,
        certify: bool = False,
    ) -> list[list[PredictedSpan]]:
        """Return spans with their probabilities, such as entities or chunks: one list per sequence, from left to right.

        A span has the attributes start, end (the index of the token after the last), label and probability: how
        probable it is that the sequence has exactly this span. By default these are the spans of the labels that
        `predict` returns.

        scheme : the tagging scheme of the labels, such as "IOB2", "IOBES" or "BMES". "lenient" reads tags of all
            schemes as conlleval does, and "runs" makes each run of equal labels a span. None means "lenient" if the
            labels look like tags, and "runs" otherwise.
        threshold : return instead all spans whose probability is at least this number. Below 0.5, spans may overlap.
        n_best : return instead the most probable spans of each sequence, at most this many, sorted by probability and
            not from left to right. They may overlap. If `threshold` is passed too, spans with a smaller
            probability are left out.
        certify : set the attribute `certified` of each span. The fit stops close to the minimum of the objective, not
            exactly at it. `certified` is True if it is proved that a model exactly at the minimum would have this span
            in its likeliest labelling, too (see the method `certify`).
        """
        model = self._model
        found, classes = model.distribution(X, lengths, self._engine), model.labels.classes
        scheme = scheme_of(classes.tolist(), scheme)
        rules = span_rules(classes.tolist(), scheme)
        if threshold is None and n_best is None:
            table = labelled_spans(found, rules, classes[self._best(model, found)], scheme)
            p = span_probabilities(found, rules, table)
        else:
            table, p = probable_spans(found, rules, threshold or 0.0, n_best)
        result = predicted_spans(table, p, rules, found.chains.n_samples)
        if not certify:
            return result
        return mark_certified(result, certified_labels(model, X, lengths, False, self._engine), scheme)

    @validated(scheme=SPAN_SCHEME)
    def span_marginals(
        self, X: UserData, spans: UserData, lengths: UserData = None, *, scheme: str | None = None
    ) -> list[Floats]:
        """Return the probabilities of the given spans, one array per sequence.

        spans : for each sequence, a list of tuples (start, end, label), such as (3, 5, "PER").
        scheme : the tagging scheme of the labels, as in `predict_spans`.
        """
        model = self._model
        found, classes = model.distribution(X, lengths, self._engine), model.labels.classes.tolist()
        rules = span_rules(classes, scheme_of(classes, scheme))
        table = read_spans(found, rules, spans)
        ends = np.searchsorted(table.sequence, np.arange(found.chains.n_samples + 1))
        return Ragged.cut(span_probabilities(found, rules, table), ends)

    def span_table(self, X: UserData, lengths: UserData = None, **options: Any) -> Any:
        """Return the spans of `predict_spans` as a pandas.DataFrame, one row per span.

        The columns are sequence (the index of the sequence in X), start, end, label, probability and certified, which
        is None without certify=True.

        options : the options of `predict_spans`, such as threshold=0.5.
        """
        found = self.predict_spans(X, lengths, **options)
        columns = ["sequence", *PredictedSpan._fields]
        rows = [(i, *span) for i, spans in enumerate(found) for span in spans]
        return data_frame("span_table", "predict_spans", rows, columns=columns)
