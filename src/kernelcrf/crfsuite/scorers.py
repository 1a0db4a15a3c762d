"""Scorers for searches such as GridSearchCV, with the same names as in sklearn-crfsuite."""

from __future__ import annotations

from sklearn.metrics import make_scorer

from kernelcrf.crfsuite.metrics import flat_accuracy_score, sequence_accuracy_score

flat_accuracy = make_scorer(flat_accuracy_score)
sequence_accuracy = make_scorer(sequence_accuracy_score)
