"""Store the parameters of estimators in model files, and restore them."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from sklearn.base import BaseEstimator
from sklearn.utils.validation import check_is_fitted

from kernelcrf.arrays import Array, Arrays, Config, Floats
from kernelcrf.basis.landmarks import landmarks_from_config, landmarks_to_config
from kernelcrf.decoding import rule_from_config, rule_to_config
from kernelcrf.estimators.input import Input
from kernelcrf.estimators.parameters import weights_of_crfsuite
from kernelcrf.kernels.chain_labels import LabelStructure
from kernelcrf.kernels.inputs import InputKernel
from kernelcrf.kernels.label_features import LabelFeatures
from kernelcrf.kernels.polynomial import Polynomial
from kernelcrf.kernels.symmetry import Symmetry
from kernelcrf.models.kernel import kernel_parameter
from kernelcrf.models.stored_parts import plain
from kernelcrf.penalties import ElasticNet, penalty_from_config
from kernelcrf.persistence import ModelFileError
from kernelcrf.persistence.model_file import WEIGHTS
from kernelcrf.readers.labels import label_to_json
from kernelcrf.readers.stored_values import label_from_json
from kernelcrf.rules import C_from_config, C_to_config, Evidence
from kernelcrf.score.cliques import STEPS, TOKENS
from kernelcrf.score.terms import OF_INPUT
from kernelcrf.solvers.restarts import solver_from_config, solver_to_config
from kernelcrf.solvers.stopping import StoppingRule, stopping_from_config

# Parameters that belong to a run of `fit`, and not to the model.
OF_THE_RUN = ("engine", "checkpoint", "prior")
# Parameters that belong to the machine: files do not have them, and those of files of earlier versions are ignored.
OF_THE_MACHINE = ("n_jobs",)
# Parameters that set kernels. A kernel object is part of the model, and files of version 0.1 have polynomials as dicts.
KERNELS = {"kernel", "edge_kernel", "segment_kernel"}


def to_stored(estimator: BaseEstimator, dtype: str | None) -> tuple[Config, Arrays]:
    """Return the content of a model file for a fitted estimator: a dict that JSON can store, and a dict of arrays.

    dtype : the type in which weights are stored; None means float64.

    If a user derived the estimator's class from a class of this library, the file names the class of this library.
    The parameters `engine`, `checkpoint`, `prior` and `n_jobs` are left out. If the parameter `kernel` is not a string,
    None is stored, because the fitted model contains the kernel.
    """
    check_is_fitted(estimator, "model_")
    left_out = OF_THE_RUN + OF_THE_MACHINE
    parameters = {name: value for name, value in estimator.get_params(deep=False).items() if name not in left_out}
    for name in KERNELS & set(parameters):
        if not isinstance(parameters[name], str):
            parameters[name] = None
    if parameters.get("inputs") is not None:
        inputs = parameters["inputs"].items()
        parameters["inputs"] = {name: Input.of_kernel(one).to_config() for name, one in inputs}
    if parameters.get("penalty") is not None:
        parameters["penalty"] = parameters["penalty"].to_config()
    if "decoding" in parameters:
        parameters["decoding"] = rule_to_config(parameters["decoding"])
    if isinstance(parameters.get("label_kernel"), LabelStructure):
        parameters["label_kernel"] = _structure_to_config(parameters["label_kernel"])
    if isinstance(parameters["max_iter"], StoppingRule):
        parameters["max_iter"] = parameters["max_iter"].to_config()
    parameters["C"] = C_to_config(parameters["C"])
    parameters["solver"] = solver_to_config(parameters["solver"])
    if "n_components" in parameters:
        parameters["n_components"] = landmarks_to_config(parameters["n_components"])
    weights = parameters.get("class_weight")
    if isinstance(weights, dict):
        parameters["class_weight"] = [[label_to_json(label), weight] for label, weight in weights.items()]
    config, arrays = estimator.model_.to_arrays()
    if dtype is not None:
        arrays[WEIGHTS] = _rounded(arrays[WEIGHTS], dtype)
    kind = next(cls.__name__ for cls in type(estimator).__mro__ if cls.__module__.startswith("kernelcrf."))
    stored = {name: plain(value, name) for name, value in parameters.items()}
    return {"estimator": kind, "parameters": stored, **config}, arrays


def _rounded(theta: Floats, dtype: str) -> Array:
    """Return the weights in another type; raise if a weight is too large for it."""
    largest, most = float(np.abs(theta).max(initial=0.0)), float(np.finfo(dtype).max)
    if largest > most:
        raise ValueError(
            f"dtype={dtype!r}: the largest weight is {largest:.3g}, and numbers of this type go up to {most:.3g}. "
            "Pass dtype='float32' or None, or fit with a smaller C"
        )
    return theta.astype(dtype)


def _structure_to_config(structure: LabelStructure) -> Config:
    """Return what labels have in common as a dict for JSON."""
    config = structure.to_config()
    return config | {"labels": [[label_to_json(label) for label in labels] for labels in config["labels"]]}


def _structure_from_config(config: Config) -> LabelStructure:
    """Return the object that `_structure_to_config` converted to `config`."""
    labels = [[label_from_json(label) for label in labels] for labels in config["labels"]]
    if "features" in config:
        names = [label for label, *_ in labels]
        return LabelFeatures(dict(zip(names, config["features"], strict=True)), config["own"])
    return Symmetry({images[0]: images for images in labels}, config["columns"])


RENAMED_RULES = {"joint": "viterbi"}


def parameters_of_0_1(parameters: Config) -> Config:
    """Return the parameters of a model file under the names that they have now; version 0.1 had other names."""
    parameters = dict(parameters)
    if "l1" in parameters:
        l1 = float(parameters.pop("l1"))
        parameters["penalty"] = ElasticNet(l1).to_config() if l1 else None
    if isinstance(rule := parameters.get("decoding"), str):
        parameters["decoding"] = RENAMED_RULES.get(rule, rule)
    if "all_possible_states" in parameters:
        defaults = {"all_possible_states": False, "all_possible_transitions": True, "min_freq": 0.0}
        parameters["weights"] = weights_of_crfsuite(*(parameters.pop(name, value) for name, value in defaults.items()))
    if "optimize_kernel" in parameters:
        optimize_kernel, n_restarts = parameters.pop("optimize_kernel"), parameters.pop("n_restarts_optimizer", 0)
        if optimize_kernel:
            rule = Evidence(parameters.get("C", 1.0), optimize_kernel=True, n_restarts=n_restarts)
            parameters["C"] = C_to_config(rule)
    if parameters.get("inputs") is not None:
        parameters["inputs"] = {name: _input_of_0_1(one) for name, one in parameters["inputs"].items()}
    if n := parameters.pop("n_restarts", 0):
        parameters["solver"] = {"n": n, "solver": parameters.get("solver", "auto")}
    return parameters


def _input_of_0_1(config: Config) -> Config:
    """Return the parameters of an input under the names that they have now."""
    if "steps" not in config:
        return config
    return {"scores": STEPS if config["steps"] else TOKENS} | {k: v for k, v in config.items() if k != "steps"}


def set_parameters(model: BaseEstimator, parameters: Config, kernels: Mapping[str, InputKernel]) -> None:
    """Set the parameters of a new estimator from a model file; parameters that are not in the file keep their defaults.

    `n_jobs` keeps its default too, because a file must not choose the number of threads.

    kernels : a dict from names of parameters to stored kernels, which replace parameters that are None in the file.
    """
    parameters = parameters_of_0_1(parameters)
    missing = [name for name in kernels if not name.startswith(OF_INPUT) and parameters.get(name) is None]
    parameters = parameters | {name: kernels[name].kernel for name in missing}
    for name in KERNELS & set(parameters):
        if isinstance(parameters[name], dict):
            parameters[name] = Polynomial(**parameters[name])
    if parameters.get("kernel", "") is None:
        # The parameter was changed after the fit, to a kernel that is not that of the model.
        parameters = {name: value for name, value in parameters.items() if name != "kernel"}
    if forbidden := [name for name in OF_THE_RUN if name in parameters]:
        raise ModelFileError(
            f"the file sets {' and '.join(forbidden)}, which a model file must not do: expected a file written by "
            f"save; set {' and '.join(forbidden)} with set_params after loading"
        )
    parameters = {name: value for name, value in parameters.items() if name not in OF_THE_MACHINE}
    defaults = model.get_params(deep=False)
    if parameters.get("penalty") is not None:
        parameters["penalty"] = penalty_from_config(parameters)
    if unknown := set(parameters) - set(defaults):
        raise ModelFileError(
            f"the file sets the parameters {sorted(unknown)}, which {type(model).__name__} does not have in this "
            "version: upgrade kernelcrf"
        )
    # JSON has no tuples: they were stored as lists.
    for name, value in parameters.items():
        if isinstance(value, list) and isinstance(defaults[name], tuple):
            parameters[name] = tuple(value)
    if parameters.get("inputs") is not None:
        parameters["inputs"] = {
            name: Input.from_config(one, kernels[kernel_parameter(OF_INPUT + name)])
            for name, one in parameters["inputs"].items()
        }
    if "C" in parameters:
        parameters["C"] = C_from_config(parameters["C"])
    if "n_components" in parameters:
        parameters["n_components"] = landmarks_from_config(parameters["n_components"])
    if "solver" in parameters:
        parameters["solver"] = solver_from_config(parameters["solver"])
    if "decoding" in parameters:
        parameters["decoding"] = rule_from_config(parameters["decoding"])
    if isinstance(parameters.get("label_kernel"), dict):
        parameters["label_kernel"] = _structure_from_config(parameters["label_kernel"])
    if isinstance(parameters.get("max_iter"), dict):
        parameters["max_iter"] = stopping_from_config(parameters["max_iter"])
    if isinstance(parameters.get("class_weight"), list):
        parameters["class_weight"] = {label_from_json(label): weight for label, weight in parameters["class_weight"]}
    model.set_params(**parameters)
