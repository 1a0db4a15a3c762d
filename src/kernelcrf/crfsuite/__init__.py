"""Read and write the binary model files of CRFsuite, without CRFsuite."""

from kernelcrf.persistence.crfsuite.model_file import (
    CRFsuiteModel,
    StateWeights,
    TransitionWeights,
    read_model,
    write_model,
)

__all__ = ["CRFsuiteModel", "StateWeights", "TransitionWeights", "read_model", "write_model"]
