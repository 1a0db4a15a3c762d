"""Parameters of estimators as the plain values of a model file, and back."""

from __future__ import annotations

from collections.abc import Mapping

from sklearn.base import BaseEstimator

from kernelcrf.arrays import Config
from kernelcrf.kernels.inputs import InputKernel
from kernelcrf.models.stored_parts import plain
from kernelcrf.persistence import ModelFileError
from kernelcrf.readers.stored_labels import label_from_json, label_to_json

OF_THE_RUN = ("engine", "checkpoint")


def plain_parameters(model: BaseEstimator) -> Config:
    """Return the parameters of an estimator as JSON-able values, without those that say where a fit runs.

    A kernel that is not a name is None here: the model has it.
    """
    parameters = {name: value for name, value in model.get_params(deep=False).items() if name not in OF_THE_RUN}
    for name in ("kernel", "edge_kernel"):
        if name in parameters:
            parameters[name] = parameters[name] if isinstance(parameters[name], str) else None
    weights = parameters.get("class_weight")
    if isinstance(weights, dict):
        parameters["class_weight"] = [[label_to_json(label), weight] for label, weight in weights.items()]
    return {name: plain(value, name) for name, value in parameters.items()}


def set_parameters(model: BaseEstimator, parameters: Config, kernels: Mapping[str, InputKernel]) -> None:
    """Give a new estimator the parameters of the saved one; those that the file does not have keep their defaults.

    kernels : by parameter; they are used for parameters that are not the names of kernels.
    """
    missing = {name: own.kernel for name, own in kernels.items() if parameters.get(name) is None}
    parameters = {**parameters, **missing}
    if forbidden := [name for name in OF_THE_RUN if name in parameters]:
        raise ModelFileError(
            f"the file sets {' and '.join(forbidden)}, which no model file may: expected a file written by save, "
            "which leaves them out; set them by set_params after loading"
        )
    defaults = model.get_params(deep=False)
    if unknown := set(parameters) - set(defaults):
        raise ModelFileError(f"parameters {sorted(unknown)} are none of {type(model).__name__}'s: upgrade kernelcrf")
    for name, value in parameters.items():
        # JSON has lists only.
        is_tuple = isinstance(value, list) and isinstance(defaults[name], tuple)
        model.set_params(**{name: tuple(value) if is_tuple else value})
    if isinstance(parameters.get("class_weight"), list):
        model.set_params(class_weight={label_from_json(label): w for label, w in parameters["class_weight"]})
