"""A method of ChainCRF that predicts each training sequence as if the model had not been fitted to it."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from kernelcrf.arrays import UserData
from kernelcrf.certificate import NOT_FITTED
from kernelcrf.distributed.sources import is_distributed
from kernelcrf.estimators.certified_answers import CertifiedAnswers
from kernelcrf.fitting.corpus import Problem
from kernelcrf.fitting.fit import Start, choose_features
from kernelcrf.fitting.leave_one_out import LeaveOneOut, leave_one_out
from kernelcrf.fitting.sequences import LabelledSequences
from kernelcrf.objective import Objective
from kernelcrf.readers.labels import flat_labels
from kernelcrf.readers.weights import read_weights, weigh_samples
from kernelcrf.validation import FLAG, POSITIVE, validated

# How much two evaluations of the same objective may differ, relative to its value, if features are computed again.
SAME = 1e-6


@dataclass(eq=False, repr=False, kw_only=True)
class LeaveOneOutAnswers(CertifiedAnswers):
    """Base class of ChainCRF, with predictions of training sequences by a model that was fitted without them."""

    @validated(refit=FLAG, tol=POSITIVE)
    def loo_log_prob(
        self,
        X: UserData,
        y: UserData,
        sample_weight: UserData = None,
        lengths: UserData = None,
        *,
        refit: bool = True,
        tol: float = 0.01,
    ) -> LeaveOneOut:
        """Return log p(y|x) of each training sequence under weights fitted to all other sequences.

        The sum over all sequences estimates how well the model predicts new sequences, and needs no held-out data. The
        weights without a sequence are found by one Newton step, and by a fit if the error may exceed `tol`. The
        features, the landmarks, the kernel and C stay those of the fit, even if the left-out sequence helped to choose
        them.

        X, y, sample_weight, lengths : the data of the fit; other data are refused.
        refit : whether to fit again without a sequence, starting from the Newton step, if the bound is above `tol`.
        tol : the largest error of a log-probability, in nats.
        """
        model, certificate, engine = self._model, self._model.certificate, self._engine
        if is_distributed(X):
            raise ValueError("X is data on a cluster: expected sequences in this process, such as a part of the data")
        if certificate.status in NOT_FITTED:
            raise ValueError(
                f"the certificate has the status {certificate.status!r}, so that the weights are not those of a fit: "
                "expected a model that was fitted by this library, and not saved with dtype='float32'"
            )
        if not np.isfinite(certificate.rounding):
            raise ValueError(
                "sample weights are so small that derivatives may be 0 in single precision: fit with inputs in float64"
            )
        if model.has_prior and all(term.prior is None for term in model.layout.terms):
            raise ValueError(
                "the model was fitted with a prior, which model files do not store: expected a model that was not read "
                "from a file. Call loo_log_prob before save, or fit again"
            )
        rows, chains = model.reader.read(X, lengths)
        indices, allowed = model.labels.encode(flat_labels(y, chains, flat=lengths is not None), chains)
        given, classes = read_weights(sample_weight, chains.n_samples, "sequence"), model.labels.classes
        weights = weigh_samples(given, self.class_weight, chains.lengths, indices, classes, "sequence")
        data = LabelledSequences(rows, chains, indices, len(classes), allowed, weights, model.legal)
        terms = model.layout.terms
        features = choose_features(Problem(terms, data), replace(self._settings(0), engine=engine), Start(model.maps))
        objective = Objective(model.layout, data.partitions(terms, features), engine)
        value, expected = objective.evaluate(model.theta).value, certificate.objective
        if not abs(value - expected) <= max(certificate.rounding, SAME) * max(1.0, abs(expected)):
            raise ValueError(
                f"the objective of the model on X and y is {value:.6g}: expected {expected:.6g}, as in the fit. Pass "
                "the X, y, sample_weight and lengths of the fit"
            )
        return leave_one_out(objective, model.theta, refit=bool(refit), tol=float(tol))
