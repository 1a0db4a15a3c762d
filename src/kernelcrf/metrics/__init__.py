"""Compute metrics of predicted label sequences and probabilities, with scorers for scikit-learn's GridSearchCV."""

from kernelcrf.metrics.bootstrap import Score, bootstrap
from kernelcrf.metrics.labels import (
    flat_accuracy,
    flat_classification_report,
    flat_confusion,
    flat_f1,
    sequence_accuracy,
    span_classification_report,
    span_f1,
    span_precision,
    span_recall,
)
from kernelcrf.metrics.probabilities import (
    Reliability,
    brier,
    expected_calibration_error,
    log_loss,
    reliability,
    span_reliability,
)
from kernelcrf.metrics.scorers import SCORERS, LaggedScorer, get_scorer
from kernelcrf.readers.spans import Span, are_spans, spans

__all__ = [
    "SCORERS",
    "LaggedScorer",
    "Reliability",
    "Score",
    "Span",
    "are_spans",
    "bootstrap",
    "brier",
    "expected_calibration_error",
    "flat_accuracy",
    "flat_classification_report",
    "flat_confusion",
    "flat_f1",
    "get_scorer",
    "log_loss",
    "reliability",
    "sequence_accuracy",
    "span_classification_report",
    "span_f1",
    "span_precision",
    "span_recall",
    "span_reliability",
    "spans",
]
