"""Methods that only a fitted ChainCRF has: probabilities of transitions, F1 decoding and files of CRFsuite."""

from __future__ import annotations

import os
from dataclasses import dataclass, replace
from typing import Annotated, Self

from kernelcrf.answers.f1_decoding import f1_labels
from kernelcrf.arrays import Array, Floats, Labels, UserData
from kernelcrf.estimators.base import Fitted
from kernelcrf.estimators.inputs import InputsEstimator
from kernelcrf.estimators.parameters import STORED_DTYPE
from kernelcrf.models.chain import ChainModel
from kernelcrf.models.chain_distribution import ChainDistribution
from kernelcrf.models.crfsuite import read_crfsuite, to_crfsuite
from kernelcrf.persistence import PathLike
from kernelcrf.persistence.crfsuite.model_file import SUFFIX, write_model
from kernelcrf.readers.containers import Ragged
from kernelcrf.readers.schemes import are_spans, span_rules
from kernelcrf.validation import PATH, either, one_of, shown_list, validated


@dataclass(eq=False, repr=False, kw_only=True)
class ChainAnswers(InputsEstimator[ChainModel]):
    """Base class of ChainCRF, with methods that only chains have."""

    decoding: Annotated[str, either(one_of("viterbi", "marginal", "f1"))] = "viterbi"

    _model_type = ChainModel

    edge_coef_ = Fitted[Floats | None]("edge_coef")
    input_variances_ = Fitted[dict[str, float]]("variances")

    @validated(path=PATH, dtype=STORED_DTYPE)
    def save(self, path: PathLike, *, dtype: str | None = None) -> None:
        """Write the fitted model to a file that `kernelcrf.load` reads; the file contains no executable code.

        If the name ends with ".crfsuite", the file is a model of CRFsuite, which python-crfsuite opens too. It has the
        labels, the features and their weights, but not the parameters of the estimator, the certificate and
        `metadata_`. Such a file can only hold a model with string labels and the linear kernel on feature dicts,
        without `inputs`, `edge_kernel`, `constraints`, hashed features, intercepts and boundaries. For any other model,
        `save` raises ValueError.

        dtype : "float32" rounds the weights to single precision, so that the file is smaller; None keeps them as they
            are. CRFsuite's files have double precision.
        """
        if not os.fspath(path).endswith(SUFFIX):
            super().save(path, dtype=dtype)
        elif dtype == "float32":
            raise ValueError(f"dtype={dtype!r}: expected None for a file of CRFsuite, which has double precision")
        else:
            write_model(to_crfsuite(self._model), path)

    @classmethod
    def from_crfsuite(cls, source: PathLike | bytes) -> Self:
        """Return the ChainCRF of a model file of CRFsuite, or of its bytes; `kernelcrf.load` reads such files too."""
        crf = cls("linear")
        crf.model_ = replace(read_crfsuite(source), specification=crf._specification)
        return crf

    def edge_marginals(self, X: UserData, lengths: UserData = None) -> list[Array]:
        """Return one array per sequence: entry [t, i, j] is p(y_{t-1} = i, y_t = j | x), or 0 for the first token."""
        found = self._model.distribution(X, lengths, self._engine)
        return Ragged.cut(found.edge_marginals(), found.chains.offsets)

    def _best(self, model: ChainModel, found: ChainDistribution) -> Labels:
        """Return the labels that the decoding rule chooses, as integers, one per token."""
        self._validate_params("decoding")
        if self.decoding != "f1":
            return found.best(self.decoding)
        classes = model.labels.classes.tolist()
        if not are_spans(classes):
            raise ValueError(
                f"decoding='f1' with the labels {shown_list(classes)}: expected tags of spans, such as O, B-PER and "
                "I-PER. Use decoding='viterbi' or 'marginal' instead"
            )
        return f1_labels(found, span_rules(classes, "lenient"))
