"""The parameter `prior` of ChainCRF: a fitted model, or its file, whose posterior is the prior of a new fit."""

from __future__ import annotations

import os
from typing import Any

from kernelcrf.fitting.earlier import Earlier
from kernelcrf.models.chain import ChainModel
from kernelcrf.models.crfsuite import from_crfsuite
from kernelcrf.models.kernel import kernel_parameter
from kernelcrf.persistence import ModelFileError, read
from kernelcrf.persistence.crfsuite.model_file import SUFFIX, read_model
from kernelcrf.readers.inputs import InputsReader
from kernelcrf.readers.labels import LabelReader
from kernelcrf.readers.sequences import SequenceReader
from kernelcrf.terms import OF_INPUT
from kernelcrf.validation import Constraint, ParameterError, either, nothing, one_line, path, shown

AUTO = "auto"


def _is_chain(value: Any) -> bool:
    return isinstance(getattr(value, "model_", value), ChainModel)


PRIOR = either(
    nothing,
    Constraint("a fitted ChainCRF", _is_chain),
    path,
    advice="fit the model first, or pass the file to which it was saved",
)


def model_of(prior: Any) -> ChainModel | None:
    """Return the model of the parameter `prior`: a fitted ChainCRF, or the path of a model file; None for None."""
    if prior is None:
        return prior
    model = getattr(prior, "model_", prior)
    if type(model) is ChainModel:
        return model
    if isinstance(model, ChainModel):
        raise ParameterError(f"prior={shown(prior)}: expected a fitted ChainCRF, or the path of its file")
    try:
        if os.fspath(prior).endswith(SUFFIX):
            return from_crfsuite(read_model(prior))
        config, arrays = read(prior)
        if config.get("estimator") != "ChainCRF":
            raise ModelFileError(f"it has a model of type {shown(config.get('estimator'))}")
        return ChainModel.from_arrays(config, arrays)
    except (OSError, ValueError, TypeError, LookupError, AttributeError, ArithmeticError, RecursionError) as error:
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


def check_prior(crf: Any, model: ChainModel) -> None:
    """Raise if parameters of a ChainCRF ask for another kind of model than the model that is its prior."""
    names = [term.name.removeprefix(OF_INPUT) for term in model.layout.terms if term.name.startswith(OF_INPUT)]
    if sorted(crf.inputs or {}) != sorted(names):
        raise ParameterError(
            f"inputs={shown(crf.inputs)}, but the prior was fitted with the inputs {shown(names)}: expected the same "
            "inputs. Pass the inputs of the prior, or prior=None"
        )
    asked = {kernel_parameter(OF_INPUT + name): one.kernel for name, one in (crf.inputs or {}).items()}
    asked |= {name: getattr(crf, name) for name in ("kernel", "edge_kernel")}
    for name, kernel in asked.items():
        own = model.kernels.get(name)
        if own is not None and isinstance(kernel, str) and kernel not in (AUTO, own.kernel):
            raise ParameterError(
                f"{name}={kernel!r}, but the prior was fitted with {own.described}: expected the same kernel, since "
                f"its weights belong to it. Pass {name}={shown(own.kernel)}, or prior=None"
            )
    hashed = getattr(model.reader, "n_features", None) if getattr(model.reader, "vocabulary", None) is None else None
    if crf.hash_features is not None and crf.hash_features != hashed:
        raise ParameterError(
            f"hash_features={shown(crf.hash_features)}, but the prior was fitted with other columns: expected the "
            "value of the fit of the prior, or None"
        )
    if crf.constraints is None and model.legal is not None:
        raise ParameterError(
            "constraints=None, but the prior was fitted with constraints: expected constraints, since its weights are "
            "those of legal labels alone. Pass the constraints of the prior, or prior=None"
        )
