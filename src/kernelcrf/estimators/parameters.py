"""Declare the parameters of estimators once, with constraints and default; check them, and store them in model files.

tol: Annotated[float, POSITIVE] = 1e-4
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from typing import Annotated, get_origin, get_type_hints

from sklearn.base import BaseEstimator

from kernelcrf.arrays import Config
from kernelcrf.kernels.inputs import KERNEL, InputKernel
from kernelcrf.models.stored_parts import plain
from kernelcrf.persistence import ModelFileError
from kernelcrf.readers.labels import label_from_json, label_to_json
from kernelcrf.validation import (
    Constraint,
    Parameter,
    ParameterError,
    check_parameters,
    either,
    is_listed,
    nothing,
    one_of,
    shown,
)

OF_THE_RUN = ("engine", "checkpoint")


@cache
def declared_parameters(estimator: type) -> dict[str, Parameter]:
    """Return a dict from the names of the parameters of an estimator class to their constraints."""
    hints = get_type_hints(estimator, include_extras=True)
    return {name: hint.__metadata__[0] for name, hint in hints.items() if get_origin(hint) is Annotated}


class ValidatedEstimator(BaseEstimator):  # type: ignore[misc]
    """An estimator that checks the values of its parameters, and which of them cannot be combined."""

    def _validate_params(self, *names: str) -> None:
        """Raise a ParameterError if a parameter is wrong; check combinations too, unless only some names are given."""
        declared = declared_parameters(type(self))  # type: ignore[arg-type]
        check_parameters({name: getattr(self, name) for name in names or declared}, declared)
        if not names:
            self._check_combinations()

    def _check_combinations(self) -> None:
        """Raise if the values of two parameters are valid but cannot be combined."""

    def _exclude(self, name: str, others: Mapping[str, bool], advice: str) -> None:
        """Raise if the value of parameter `name` cannot be combined with one of `others`, whose flag is then True."""
        for other, excluded in others.items():
            if excluded:
                raise ParameterError(
                    f"{name}={shown(getattr(self, name))} cannot be combined with {other}="
                    f"{shown(getattr(self, other))}: {advice}"
                )


CLASSES = either(
    nothing,
    Constraint("a list of labels", lambda values: is_listed(values) and len({*values}) >= 1),
    advice="None uses the labels of y",
)
OPTIONAL_KERNEL = Parameter((*KERNEL.constraints, nothing), KERNEL.advice)
STRUCTURE = either(one_of("auto", "full", "tree", "none"), Constraint("a list of pairs of numbers", is_listed))


def plain_parameters(model: BaseEstimator) -> Config:
    """Return the parameters of an estimator as JSON-able values, without `engine` and `checkpoint`.

    A kernel that is not a name becomes None, because the model itself stores it.
    """
    parameters = {name: value for name, value in model.get_params(deep=False).items() if name not in OF_THE_RUN}
    for name in {"kernel", "edge_kernel"} & set(parameters):
        if not isinstance(parameters[name], str):
            parameters[name] = None
    weights = parameters.get("class_weight")
    if isinstance(weights, dict):
        parameters["class_weight"] = [[label_to_json(label), weight] for label, weight in weights.items()]
    return {name: plain(value, name) for name, value in parameters.items()}


def set_parameters(model: BaseEstimator, parameters: Config, kernels: Mapping[str, InputKernel]) -> None:
    """Set the parameters of a new estimator from a model file; missing ones keep their defaults.

    kernels : the stored kernel of each parameter, used if the file does not name a kernel.
    """
    parameters = parameters | {name: own.kernel for name, own in kernels.items() if parameters.get(name) is None}
    if forbidden := [name for name in OF_THE_RUN if name in parameters]:
        raise ModelFileError(
            f"the file sets {' and '.join(forbidden)}, which a model file must not do: expected a file written by "
            "save, which omits them; set them with set_params after loading"
        )
    defaults = model.get_params(deep=False)
    if unknown := set(parameters) - set(defaults):
        raise ModelFileError(f"{type(model).__name__} has no parameters {sorted(unknown)}: upgrade kernelcrf")
    # JSON has no tuples: they were stored as lists.
    for name, value in parameters.items():
        if isinstance(value, list) and isinstance(defaults[name], tuple):
            parameters[name] = tuple(value)
    if isinstance(parameters.get("class_weight"), list):
        parameters["class_weight"] = {label_from_json(label): weight for label, weight in parameters["class_weight"]}
    model.set_params(**parameters)
