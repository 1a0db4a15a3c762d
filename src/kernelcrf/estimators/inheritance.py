"""Check whether a fit can take over parts of an earlier model, for a warm start or as a prior.

A fitted model keeps the specification of its fit: the values of all parameters that determine its kernels, landmarks,
labels and readers. A later fit takes over kernels, landmarks, labels and readers only if its specification has the same
values.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from kernelcrf.arrays import Config
from kernelcrf.basis.features import PrimalMap
from kernelcrf.estimators.input import Input
from kernelcrf.fitting.specification import differences, plain_values, told
from kernelcrf.models.base import FittedModel
from kernelcrf.models.kernel import kernel_parameter
from kernelcrf.readers.labels import plain
from kernelcrf.rules import find_C_rule
from kernelcrf.score.terms import BETWEEN, OF_INPUT
from kernelcrf.validation import ParameterError

# Parameters that may have other values in a later fit. They change the objective, the solver or the answers, but
# nothing that is taken over.
FREE = frozenset(
    (
        "C",
        "C_label",
        "penalty",
        "class_weight",
        "constraints",
        "fit_intercept",
        "weights",
        "cliques",
        "structure",
        "structure_tol",
        "min_gain",
        "inference",
        "laplace",
        "solver",
        "tol",
        "max_iter",
        "certify_full",
        "decoding",
        "warm_start",
        "checkpoint",
        "engine",
        "n_jobs",
        "verbose",
    )
)
# With a prior, the landmarks and the labels of the earlier model are kept and others may be added.
FREE_WITH_PRIOR = FREE | {
    "n_components",
    "random_state",
    "optimize_kernel",
    "classes",
    "label_kernel",
    "prior",
}
# With a prior, these values mean what the prior has.
AS_IN_PRIOR = {
    "kernel": ("auto",),
    "gamma": ("scale", "auto"),
    "hash_features": (None,),
    "max_duration": (None,),
    "categories": ("auto",),
}
# Parameters without effect on linear kernels, which have no landmarks.
OF_LANDMARKS = (
    "gamma",
    "n_components",
    "random_state",
    "optimize_kernel",
)


def specify(parameters: Mapping[str, Any]) -> Config:
    """Return the values of all parameters except those in FREE, as plain values.

    parameters : a dict from names of parameters to their values. The parameters of several inputs get names such as
        `inputs__words__kernel`.
    """
    values = {name: value for name, value in parameters.items() if name not in FREE}
    rule = find_C_rule(parameters["C"])
    # A fit that optimizes its kernel does not take over the kernel of a fit that does not.
    values["optimize_kernel"] = rule is not None and rule.optimize_kernel
    if isinstance(values.get("inputs"), Mapping):
        inputs = {name: Input.of_kernel(one) for name, one in values["inputs"].items()}
        values["inputs"] = sorted(inputs)
        for name, one in inputs.items():
            of_input = {key: value for key, value in one.get_params(deep=False).items() if key not in FREE}
            of_input["of"] = name if of_input["of"] is None else of_input["of"]
            values |= {f"{OF_INPUT}{name}{BETWEEN}{key}": value for key, value in of_input.items()}
    if values.get("classes") is not None:
        labels = map(plain, values["classes"])
        values["classes"] = [label if isinstance(label, str | int | float) else repr(label) for label in labels]
    return plain_values(values)


def check_warm_start(asked: Config, model: FittedModel) -> None:
    """Raise if a setting of a fit differs from that of the model from which the fit would start."""
    remedy = "warm_start=True keeps kernels, landmarks and labels. Pass the earlier value, or warm_start=False"
    _check(asked, model, lambda name, value: name in FREE, "the previous fit had", remedy)


def check_prior(asked: Config, model: FittedModel) -> None:
    """Raise if a setting of a fit differs from that of the model that is the prior of the fit."""

    def is_free(name: str, value: Any) -> bool:
        return name in FREE_WITH_PRIOR or (name in AS_IN_PRIOR and value in AS_IN_PRIOR[name])

    remedy = "the weights of the prior belong to its kernels and inputs. Pass the value of the prior, or prior=None"
    _check(asked, model, is_free, "the prior was fitted with", remedy)


def _check(asked: Config, model: FittedModel, is_free: Callable[[str, Any], bool], had: str, remedy: str) -> None:
    earlier, idle = model.specification, _without_effect(model)
    free = {name for name, value in asked.items() if is_free(name.rpartition(BETWEEN)[2], value) or name in idle}
    for name in differences(asked, earlier, free | (asked.keys() - earlier.keys())):
        raise ParameterError(
            f"{name}={told(asked[name])}, but {had} {name}={told(earlier[name])}: expected the same, because {remedy}"
        )


def _without_effect(model: FittedModel) -> set[str]:
    """Return the names of parameters that have no effect on a model, because a kernel is linear."""
    prefixes = {kernel_parameter(name).removesuffix("kernel"): feature_map for name, feature_map in model.maps.items()}
    linear = {prefix for prefix, feature_map in prefixes.items() if isinstance(feature_map, PrimalMap)}
    names = {prefix + name for prefix in linear if prefix.startswith(OF_INPUT) for name in OF_LANDMARKS}
    return names | set(OF_LANDMARKS) if len(linear) == len(prefixes) else names
