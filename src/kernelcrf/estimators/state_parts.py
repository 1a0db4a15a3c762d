"""The parts that fitted estimators have in common, as plain values and arrays, and back.

What comes back is checked as it is read: types, shapes and finite numbers of arrays, and that parts fit together.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import asdict, replace
from typing import Any

import numpy as np
import numpy.typing as npt
from sklearn.base import BaseEstimator

from kernelcrf.certificate import ROUNDING, TEMPERED, Certificate
from kernelcrf.estimators.labels import label_from_json, label_to_json
from kernelcrf.estimators.stored_values import number, text
from kernelcrf.laplace import FactoredPosterior, Laplace, PartialPosterior, SampledPosterior
from kernelcrf.persistence import ModelFileError
from kernelcrf.solvers.loop import (
    INTERRUPTED,
    OPTIMAL,
    OUT_OF_COMPONENTS,
    OUT_OF_ITERATIONS,
    STALLED,
    STATIONARY,
)
from kernelcrf.stored_maps import checked
from kernelcrf.structure_search import Candidate, Round, Search
from kernelcrf.validation import Constraint, either, shown

Array = npt.NDArray[Any]

OF_THE_RUN = ("engine", "checkpoint")
STATUSES = (OPTIMAL, STATIONARY, OUT_OF_ITERATIONS, OUT_OF_COMPONENTS, STALLED, INTERRUPTED, TEMPERED)
NUMBERS = ("bool", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64", "float32", "float64")


def plain_parameters(model: BaseEstimator) -> dict[str, Any]:
    """The estimator's parameters as JSON-able values; a kernel that is no name is left to what the fit made of it.

    Where a fit ran, and where it was kept meanwhile, is no part of the model.
    """
    parameters = {name: value for name, value in model.get_params(deep=False).items() if name not in OF_THE_RUN}
    for name in ("kernel", "edge_kernel"):
        if name in parameters:
            parameters[name] = parameters[name] if isinstance(parameters[name], str) else None
    weights = parameters.get("class_weight")
    if isinstance(weights, dict):
        parameters["class_weight"] = [[label_to_json(label), weight] for label, weight in weights.items()]
    return {name: plain(value, name) for name, value in parameters.items()}


def plain(value: Any, name: str) -> Any:
    """The value, once JSON can hold it."""
    value = value.tolist() if isinstance(value, np.ndarray | np.generic) else value
    try:
        json.dumps(value)
    except (TypeError, ValueError, RecursionError):
        raise TypeError(
            f"{name}={shown(value)} cannot be written to a file: expected plain values; joblib.dump keeps any object"
        ) from None
    return value


def _is_plain(value: Any, deepest: int = 100) -> bool:
    """Return whether JSON gives the value back as it is, but for tuples."""
    if value is None or isinstance(value, str | bool | int | float):
        return True
    if isinstance(value, dict):
        return deepest > 0 and all(isinstance(k, str) and _is_plain(v, deepest - 1) for k, v in value.items())
    return deepest > 0 and isinstance(value, list | tuple) and all(_is_plain(one, deepest - 1) for one in value)


METADATA = either(
    Constraint(
        "a dict from names to plain values",
        lambda value: isinstance(value, dict) and _is_plain(value) and bool(json.dumps(value)),
    ),
    advice="text, numbers, True, False, None, and lists and dicts of these can be written to a file",
)


def set_parameters(model: BaseEstimator, parameters: Mapping[str, Any]) -> None:
    """Give a new estimator the parameters of the saved one; those that came after the file have their defaults.

    A file does not say where a later fit runs, nor where that fit writes its checkpoints.
    """
    if forbidden := [name for name in OF_THE_RUN if name in parameters]:
        raise ModelFileError(
            f"the file sets {' and '.join(forbidden)}, which no model file may: expected a file written by save, "
            "which leaves them out; set them by set_params after loading"
        )
    if unknown := set(parameters) - set(model.get_params(deep=False)):
        raise ModelFileError(f"parameters {sorted(unknown)} are none of {type(model).__name__}'s: upgrade kernelcrf")
    model.set_params(**parameters)
    if isinstance(parameters.get("class_weight"), list):
        model.set_params(class_weight={label_from_json(label): w for label, w in parameters["class_weight"]})


def certificate_config(certificate: Certificate) -> dict[str, Any]:
    """What `Certificate(**config)` takes."""
    return {name: plain(value, name) for name, value in asdict(certificate).items()}


def certificate_from_config(config: Mapping[str, Any]) -> Certificate:
    """Return the certificate that `certificate_config` described."""
    # Files of 0.1.0.dev0 may come without these two.
    config = {"gap_full": None, "rounding": ROUNDING[np.dtype(np.float64)], **config}
    if config["status"] not in STATUSES:
        raise ModelFileError(f"status is {shown(config['status'])}: expected one of {', '.join(STATUSES)}")
    certificate = Certificate(
        objective=number(config, "objective", finite=config["status"] != TEMPERED),
        lower_bound=number(config, "lower_bound", finite=False),
        status=config["status"],
        gap_full=None if config["gap_full"] is None else number(config, "gap_full"),
        rounding=number(config, "rounding", least=0.0),
    )
    if math.isnan(certificate.lower_bound):
        raise ModelFileError("lower_bound is nan: expected a number, or -Infinity")
    if certificate.status == OPTIMAL and not certificate.is_certified:
        # Files of earlier versions call a fit with missing labels optimal.
        return replace(certificate, status=STATIONARY)
    return certificate


def search_config(search: Search | None) -> dict[str, Any] | None:
    """The rounds of a structure search, and what stayed out."""
    return None if search is None else asdict(search)


def search_from_config(config: Mapping[str, Any] | None) -> Search | None:
    """The search that `search_config` described."""
    if config is None:
        return None
    rounds = tuple(
        Round(
            number(one, "objective", finite=False),
            number(one, "gap", finite=False),
            number(one, "left_out", finite=False),
            _candidates(one, "joined"),
        )
        for one in _listed(config, "rounds")
    )
    return Search(rounds, _candidates(config, "absent"), number(config, "lower_bound", finite=False))


def _candidates(config: Mapping[str, Any], name: str) -> tuple[Candidate, ...]:
    return tuple(
        Candidate(text(one, "template"), number(one, "bound", finite=False), number(one, "expected_gain", finite=False))
        for one in _listed(config, name)
    )


def _listed(config: Mapping[str, Any], name: str) -> list[Any]:
    values = config[name]
    if not isinstance(values, list):
        raise ModelFileError(f"{name} is {shown(values)}: expected a list")
    return values


def values_config(values: Array) -> dict[str, Any]:
    """Values of labels or variables, with their type: the name of a type of numbers, "str" or "object"."""
    name = values.dtype.name
    kind = name if name in NUMBERS else "str" if values.dtype.kind == "U" else "object"
    return {"type": kind, "values": [label_to_json(value) for value in values.tolist()]}


def values_from_config(config: Mapping[str, Any]) -> Array:
    """The values that `values_config` described."""
    kind, values = config["type"], [label_from_json(value) for value in config["values"]]
    if any(value != value for value in values) or len(set(values)) != len(values):
        raise ModelFileError(f"values are {shown(values)}: expected different ones")
    types = str if kind == "str" else bool if kind == "bool" else int | float if kind in NUMBERS else object
    if not all(isinstance(value, types) for value in values):
        raise ModelFileError(f"values are {shown(values)}: expected the type {kind!r}")
    if kind in NUMBERS:
        return np.array(values, kind).reshape(len(values))
    if kind == "str":
        return np.array(values, dtype=np.str_)
    if kind != "object":
        raise ModelFileError(f"values have the type {kind!r}: expected one of {', '.join(NUMBERS)}, str or object")
    found = np.empty(len(values), object)
    found[:] = values
    return found


def names_config(model: BaseEstimator) -> list[str] | None:
    """The names of the columns of a data frame, where the estimator was fitted to one."""
    return [str(name) for name in model.feature_names_in_] if hasattr(model, "feature_names_in_") else None


def restore_names(model: BaseEstimator, config: Any) -> None:
    """Give back the names that `names_config` listed."""
    if config is None:
        return
    strings = isinstance(config, list) and all(isinstance(name, str) for name in config)
    if not strings or len(config) != model.n_features_in_:
        raise ModelFileError(f"feature_names is {shown(config)}: expected {model.n_features_in_} names of columns")
    model.feature_names_in_ = np.array(config, object)


def laplace_config(laplace: Laplace | None) -> dict[str, float] | None:
    """The evidence, where it is known."""
    if laplace is None:
        return None
    return {"log_evidence": laplace.log_evidence, "error": laplace.error, "n_effective": laplace.n_effective}


def posterior_arrays(posterior: FactoredPosterior | SampledPosterior | PartialPosterior) -> dict[str, Array]:
    """What a posterior has beside its mode."""
    if isinstance(posterior, PartialPosterior):
        own = {"partial.scale": posterior.scale, "partial.kept": posterior.kept.astype(np.int64)}
        return own | posterior_arrays(posterior.inner)
    if isinstance(posterior, FactoredPosterior):
        return {"posterior.scale": posterior.scale, "posterior.G": posterior.G}
    return {"posterior.drawn": posterior.drawn}


def restored_laplace(config: Mapping[str, float] | None, arrays: Mapping[str, Array], theta: Array) -> Laplace | None:
    """Evidence and posterior around theta."""
    if config is None:
        return None
    error, n_effective = (number(config, name, finite=False) for name in ("error", "n_effective"))
    evidence = Laplace(number(config, "log_evidence"), error, n_effective, None)
    if "partial.kept" not in arrays:
        return replace(evidence, posterior=_posterior(arrays, theta))
    kept = checked(arrays, "partial.kept", (arrays["partial.kept"].size,), "i")
    if len(kept) and not (kept.min() >= 0 and kept.max() < len(theta)):
        raise ModelFileError("tensor 'partial.kept' names weights that are not there")
    inner = _posterior(arrays, theta[kept])
    if inner is None:
        raise ModelFileError("a posterior of some weights is not there")
    return replace(
        evidence,
        posterior=PartialPosterior(theta, checked(arrays, "partial.scale", theta.shape, "f"), kept, inner),
    )


def _posterior(arrays: Mapping[str, Array], mode: Array) -> FactoredPosterior | SampledPosterior | None:
    if "posterior.G" in arrays:
        scale = checked(arrays, "posterior.scale", mode.shape, "f")
        return FactoredPosterior(mode, scale, checked(arrays, "posterior.G", mode.shape * 2, "f"))
    if "posterior.drawn" in arrays:
        drawn = arrays["posterior.drawn"]
        return SampledPosterior(mode, checked(arrays, "posterior.drawn", (len(drawn), len(mode)), "f"))
    return None
