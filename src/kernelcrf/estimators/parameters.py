"""Check the parameters of estimators, and store them in model files.

An estimator declares each parameter with its type, constraint and default as a field of its class, for example

    tol: Annotated[float, SHARE] = 1e-4
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from typing import Annotated, get_origin, get_type_hints

from sklearn.base import BaseEstimator
from sklearn.utils.validation import check_is_fitted

from kernelcrf.arrays import Arrays, Config
from kernelcrf.kernels.inputs import KERNEL, InputKernel
from kernelcrf.models.stored_parts import plain
from kernelcrf.persistence import ModelFileError
from kernelcrf.readers.labels import label_from_json, label_to_json
from kernelcrf.terms import PRIOR_VARIANCE
from kernelcrf.validation import (
    SEED,
    SIZE,
    Constraint,
    Parameter,
    ParameterError,
    either,
    instance_of,
    is_listed,
    nothing,
    one_of,
    real,
    shown,
)

OF_THE_RUN = ("engine", "checkpoint")


@cache
def declared_parameters(estimator: type) -> dict[str, Parameter]:
    """Return a dict that maps each parameter name of an estimator class to the constraint on its value."""
    hints = get_type_hints(estimator, include_extras=True)
    return {name: hint.__metadata__[0] for name, hint in hints.items() if get_origin(hint) is Annotated}


class ValidatedEstimator(BaseEstimator):  # type: ignore[misc]
    """Base class of estimators that check the values of their parameters and the combinations of these values."""

    def _validate_params(self, *names: str) -> None:
        """Raise if one of the named parameters is wrong; without names, check all parameters and their combinations."""
        declared = declared_parameters(type(self))  # type: ignore[arg-type]
        for name in names or declared:
            declared[name].check(name, getattr(self, name))
        if not names:
            self._check_combinations()

    def _check_combinations(self) -> None:
        """Raise if the values of two parameters are valid but cannot be combined."""

    def _exclude(self, name: str, others: Mapping[str, bool], advice: str) -> None:
        """Raise if the parameter `name` cannot be combined with another parameter.

        others : a dict from names of parameters to flags, True if the parameter cannot be combined with `name`.
        advice : the end of the error message.
        """
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
PRIOR_VARIANCE_OR_RULE = either(*PRIOR_VARIANCE.constraints, one_of("auto", "evidence"))
CLASS_WEIGHT = either(nothing, one_of("balanced"), instance_of(Mapping, text="a dict from labels to weights"))
# Whether weights are stored in single or double precision, and their names in model files.
STORED_DTYPE = either(one_of("float32", "float64"), nothing)
WEIGHTS = ("theta", "weights")
POSTERIOR = either(one_of("map", "laplace"))
DRAWS = {"n_samples": either(SIZE, nothing), "random_state": SEED}
OF_POSTERIORS = {**DRAWS, "variance_temperature": either(real(least=0, most=1e12), advice="0 uses the mode only")}
STRUCTURE = either(one_of("auto", "full", "tree", "none"), Constraint("a list of pairs of numbers", is_listed))


def to_stored(estimator: BaseEstimator, dtype: str | None) -> tuple[Config, Arrays]:
    """Return the content of a model file for a fitted estimator: a dict that JSON can store, and a dict of arrays.

    dtype : the type in which weights are stored; None means float64.
    The parameters `engine` and `checkpoint` are left out. If the parameter `kernel` is not a string, None is stored,
    because the fitted model contains the kernel.
    """
    check_is_fitted(estimator, "model_")
    parameters = {name: value for name, value in estimator.get_params(deep=False).items() if name not in OF_THE_RUN}
    for name in {"kernel", "edge_kernel"} & set(parameters):
        if not isinstance(parameters[name], str):
            parameters[name] = None
    weights = parameters.get("class_weight")
    if isinstance(weights, dict):
        parameters["class_weight"] = [[label_to_json(label), weight] for label, weight in weights.items()]
    config, arrays = estimator.model_.to_arrays()
    if dtype is not None:
        arrays |= {name: arrays[name].astype(dtype) for name in WEIGHTS if name in arrays}
    return {"parameters": {name: plain(value, name) for name, value in parameters.items()}, **config}, arrays


def set_parameters(model: BaseEstimator, parameters: Config, kernels: Mapping[str, InputKernel]) -> None:
    """Set the parameters of a new estimator from a model file; parameters that are not in the file keep their defaults.

    kernels : a dict from names of parameters to stored kernels, which replace parameters that are None in the file.
    """
    parameters = parameters | {name: own.kernel for name, own in kernels.items() if parameters.get(name) is None}
    if forbidden := [name for name in OF_THE_RUN if name in parameters]:
        raise ModelFileError(
            f"the file sets {' and '.join(forbidden)}, which a model file must not do: expected a file written by "
            f"save; set {' and '.join(forbidden)} with set_params after loading"
        )
    defaults = model.get_params(deep=False)
    if unknown := set(parameters) - set(defaults):
        raise ModelFileError(
            f"{type(model).__name__} has no parameters {sorted(unknown)}, which the file sets: upgrade kernelcrf"
        )
    # JSON has no tuples: they were stored as lists.
    for name, value in parameters.items():
        if isinstance(value, list) and isinstance(defaults[name], tuple):
            parameters[name] = tuple(value)
    if isinstance(parameters.get("class_weight"), list):
        parameters["class_weight"] = {label_from_json(label): weight for label, weight in parameters["class_weight"]}
    model.set_params(**parameters)
