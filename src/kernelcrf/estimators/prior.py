"""The parameter `prior` of ChainCRF: a fitted model, or its file, whose posterior is the prior of a new fit."""

from __future__ import annotations

import os
from typing import Any, cast

from kernelcrf.estimators.parameters import BOUNDARIES
from kernelcrf.fitting.earlier import Earlier
from kernelcrf.models.chain import ChainModel
from kernelcrf.persistence import ModelFileError, read
from kernelcrf.persistence.crfsuite.model_file import SUFFIX
from kernelcrf.persistence.error import CONTENT_ERRORS
from kernelcrf.readers.inputs import InputsReader
from kernelcrf.readers.labels import LabelReader
from kernelcrf.readers.sequences import SequenceReader
from kernelcrf.score.terms import BIAS_TERM, END_TERM, START_TERM
from kernelcrf.validation import Constraint, ParameterError, either, nothing, one_line, path, shown


def _is_chain(value: Any) -> bool:
    return isinstance(getattr(value, "model_", value), ChainModel)


PRIOR = either(
    nothing,
    Constraint("a fitted ChainCRF", _is_chain),
    path,
    advice="fit the model first, or pass the file to which it was saved",
)


def model_of(prior: Any, estimator: Any) -> ChainModel | None:
    """Return the model of the parameter `prior`: a fitted ChainCRF, or the path of a model file; None for None.

    estimator : the class of ChainCRF, which reads files.
    """
    if prior is None:
        return prior
    model = getattr(prior, "model_", prior)
    if type(model) is ChainModel:
        return model
    if isinstance(model, ChainModel):
        raise ParameterError(f"prior={shown(prior)}: expected a fitted ChainCRF, or the path of its file")
    try:
        if os.fspath(prior).endswith(SUFFIX):
            return cast(ChainModel, estimator.from_crfsuite(prior).model_)
        content = read(prior)
        if content.config.get("estimator") != "ChainCRF":
            raise ModelFileError(f"it has a model of type {shown(content.config.get('estimator'))}")
        return cast(ChainModel, estimator.from_arrays(*content).model_)
    except (OSError, *CONTENT_ERRORS) as error:
        raise ParameterError(
            f"prior={shown(prior)} cannot be read ({one_line(error, 120)}): expected a file that ChainCRF.save wrote"
        ) from None


def earlier_of(model: ChainModel, reader: SequenceReader | InputsReader, labels: LabelReader) -> Earlier:
    """Return a model as the prior of a fit to data that `reader` and `labels` have read."""
    inputs = {str(term.input) for term in model.layout.terms if term.input is not None}
    return Earlier(
        model.layout,
        model.theta,
        None if model.laplace is None else model.laplace.posterior,
        model.maps,
        model.kernels,
        labels.positions_of(model.labels),
        {name: reader.width(name) for name in inputs},
    )


def check_terms(crf: Any, model: ChainModel) -> None:
    """Raise if a fit lacks an intercept, scores of boundaries or constraints that the model which is its prior has."""
    known, given = {term.name for term in model.layout.terms}, crf.fit_intercept
    lacks_ends = bool(known & {START_TERM, END_TERM}) and not isinstance(given, str)
    lacks = {
        "fit_intercept": lacks_ends or (BIAS_TERM in known and not given),
        "constraints": model.legal is not None and not crf.constraints,
    }
    for name, is_lacking in lacks.items():
        if is_lacking:
            had = f"{name}={BOUNDARIES!r}" if name == "fit_intercept" and lacks_ends else name
            raise ParameterError(
                f"{name}={getattr(crf, name)}, but the prior was fitted with {had}: expected it here too, because "
                f"other weights of the prior depend on it. Set {name} as in the fit of the prior, or prior=None"
            )
