"""Methods of ChainCRF that say which predictions are those of the exact optimum."""

from __future__ import annotations

from dataclasses import dataclass

from kernelcrf.answers.certified import CertifiedLabels, ScoreBounds, certify, score_bounds
from kernelcrf.arrays import UserData
from kernelcrf.estimators.chain_answers import ChainAnswers
from kernelcrf.validation import FLAG, validated


@dataclass(eq=False, repr=False, kw_only=True)
class CertifiedAnswers(ChainAnswers):
    """Base class of ChainCRF, with methods that compare its predictions with those of the exact optimum."""

    @validated(full=FLAG)
    def certify(self, X: UserData, lengths: UserData = None, *, full: bool = False) -> CertifiedLabels:
        """Return the likeliest labels, and which of them the exact optimum of the objective provably predicts too.

        A solver stops when the certified gap is small, and not at the optimum itself. A certified label would be the
        same after a fit with tol=0. A smaller `tol` certifies more labels.

        full : whether to compare with the optimum in the whole function space of the kernel, whatever the landmarks;
            this needs a fit with certify_full=True. Otherwise compare with the optimum in the span of the landmarks.
            For the linear kernel both are the same.
        """
        return certify(self._model, X, lengths, full, self._engine)

    @validated(full=FLAG)
    def score_bounds(self, X: UserData, y: UserData, lengths: UserData = None, *, full: bool = False) -> ScoreBounds:
        """Return bounds on the accuracy and the log-loss of the exact optimum for the true labels y.

        The accuracy is that of the likeliest labelling (decoding="viterbi"). The log-loss is -log p(y|x), summed over
        all sequences and divided by the number of tokens.

        full : as in `certify`.
        """
        return score_bounds(self._model, X, y, lengths, full, self._engine)
