"""Provide the class and the scores of sklearn-crfsuite, and the model files of CRFsuite, without either library."""

from kernelcrf.crfsuite import metrics as metrics
from kernelcrf.crfsuite import scorers as scorers
from kernelcrf.crfsuite.estimator import CRF
from kernelcrf.persistence.crfsuite.model_file import (
    CRFsuiteModel,
    StateWeights,
    TransitionWeights,
    read_model,
    write_model,
)

__all__ = ["CRF", "CRFsuiteModel", "StateWeights", "TransitionWeights", "read_model", "write_model"]
