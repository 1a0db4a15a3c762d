"""Predict the labels of each training sequence with weights that are fitted to all other sequences."""

from __future__ import annotations

import numpy as np

from kernelcrf.arrays import UserData
from kernelcrf.certificate import NOT_FITTED
from kernelcrf.engines.local import LocalEngine
from kernelcrf.fitting.corpus import Problem
from kernelcrf.fitting.fit import Settings, Start, choose_features
from kernelcrf.fitting.leave_one_out import LeaveOneOut, leave_one_out
from kernelcrf.fitting.sequences import LabelledSequences
from kernelcrf.models.chain import ChainModel
from kernelcrf.objective import Objective
from kernelcrf.readers.weights import read_weights, weigh_samples

# How much two evaluations of the same objective may differ, relative to its value, if features are computed again.
SAME = 1e-6


def predict_left_out(
    model: ChainModel,
    X: UserData,
    y: UserData,
    sample_weight: UserData,
    lengths: UserData,
    class_weight: UserData,
    refit: bool,
    tol: float,
    engine: LocalEngine,
    base_scores: UserData = None,
) -> LeaveOneOut:
    """Return log p(y|x) of each training sequence under weights fitted to all other sequences.

    X, y, sample_weight, lengths, class_weight, base_scores : the data and the class weights of the fit; other data
        raise an error.
    refit : one Newton step estimates the weights without a sequence. If True, and the bound on the error of this
        estimate is above `tol`, fit the model again without the sequence.
    """
    model.refuse_shared_steps("loo_log_prob")
    certificate = model.certificate
    if certificate.status in NOT_FITTED:
        raise ValueError(
            f"the certificate has the status {certificate.status!r}, so the weights of the model are not the "
            "result of a fit: expected a model that was fitted by this library, and not saved with "
            "dtype='float32'. Fit it again"
        )
    if not np.isfinite(certificate.rounding):
        raise ValueError(
            "sample weights are so small that derivatives may be 0 in single precision: fit with inputs in float64"
        )
    if model.has_prior and all(term.mean is None for term in model.layout.terms):
        raise ValueError(
            "the model was fitted with a prior, which model files do not store: expected a model that was not read "
            "from a file. Call loo_log_prob before save, or fit again"
        )
    rows, chains = model.reader.read(X, lengths)
    indices, allowed = model.labels.encode(model.read_tokens(y, chains, flat=lengths is not None), chains)
    given, classes = read_weights(sample_weight, chains.n_samples, "sequence"), model.labels.classes
    weights = weigh_samples(given, class_weight, chains.lengths, indices, classes, "sequence")
    base = model.read_base(base_scores, chains, flat=lengths is not None)
    data = LabelledSequences(rows, chains, indices, len(classes), allowed, weights, model.legal, base)
    terms = model.layout.terms
    features = choose_features(Problem(terms, data), Settings(engine=engine), Start(model.maps))
    objective = Objective(model.layout, data.partitions(terms, features), engine)
    value, expected = objective.evaluate(model.theta).value, certificate.objective
    if not abs(value - expected) <= max(certificate.rounding, SAME) * max(1.0, abs(expected)):
        raise ValueError(
            f"the objective of the model on X and y is {value:.6g}: expected {expected:.6g}, as in the fit. Pass "
            "the X, y, sample_weight and lengths of the fit"
        )
    return leave_one_out(objective, model.theta, refit=refit, tol=tol)
