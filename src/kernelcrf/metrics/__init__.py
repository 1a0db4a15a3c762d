"""How good predicted label sequences and their probabilities are, and scorers for scikit-learn's searches."""

from kernelcrf.metrics.labels import flat_accuracy, flat_classification_report, flat_f1, sequence_accuracy
from kernelcrf.metrics.probabilities import brier, expected_calibration_error, log_loss
from kernelcrf.metrics.schemes import Span, spans
from kernelcrf.metrics.scorers import SCORERS, get_scorer
from kernelcrf.metrics.span_scores import span_classification_report, span_f1, span_precision, span_recall

__all__ = [
    "SCORERS",
    "Span",
    "brier",
    "expected_calibration_error",
    "flat_accuracy",
    "flat_classification_report",
    "flat_f1",
    "get_scorer",
    "log_loss",
    "sequence_accuracy",
    "span_classification_report",
    "span_f1",
    "span_precision",
    "span_recall",
    "spans",
]
