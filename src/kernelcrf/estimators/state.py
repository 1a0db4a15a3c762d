"""What a fitted ChainCRF or KernelClassifier is made of, as plain values and arrays, and back."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy.typing as npt

from kernelcrf.basis.features import WhitenedMap
from kernelcrf.estimators import state_parts as parts
from kernelcrf.estimators.labels import LabelReader
from kernelcrf.estimators.sequences import SequenceReader
from kernelcrf.estimators.stored_values import count, number, text
from kernelcrf.graphs.structure import Legal
from kernelcrf.kernels.inputs import InputKernel
from kernelcrf.parameters import Layout
from kernelcrf.persistence import ModelFileError
from kernelcrf.stored_maps import checked, feature_map
from kernelcrf.validation import shown

if TYPE_CHECKING:
    from kernelcrf.estimators.base import KernelEstimator
    from kernelcrf.estimators.chain import ChainCRF
    from kernelcrf.estimators.classifier import KernelClassifier
    from kernelcrf.estimators.saved import SavedEstimator

Array = npt.NDArray[Any]

# How many labels the cliques of a template have.
NODES = {"node": 1, "edge": 2, "steps": 2}


def restore(model: SavedEstimator, config: Mapping[str, Any], arrays: Mapping[str, Array]) -> None:
    """Make a new estimator the fitted one that its `_state` described."""
    try:
        model._restore(config, arrays)
    except ModelFileError:
        raise
    except (ValueError, TypeError, LookupError, AttributeError, ArithmeticError, RecursionError) as error:
        raise ModelFileError(f"the parts of the model do not hold together ({error})") from None


def state_of_chain(model: ChainCRF) -> tuple[dict[str, Any], dict[str, Array]]:
    """A JSON-able config and arrays by name, from which `restore_chain` makes an equal model."""
    config, arrays = _state(model)
    arrays |= {"transitions": model.transitions_, "gap_curve": model.gap_curve_}
    edge_config = None
    if model._edge_map is not None and model.edge_coef_ is not None:
        edge_config, of_map = model._edge_map.to_arrays()
        arrays |= {f"edge_map.{name}": array for name, array in of_map.items()}
        arrays["edge_coef"] = model.edge_coef_
    if model.landmark_positions_ is not None:
        arrays["landmark_positions"] = model.landmark_positions_
    if model._legal is not None:
        for name in ("steps", "first", "last"):
            arrays[f"legal.{name}"] = getattr(model._legal, name)
    config |= {
        "estimator": "ChainCRF",
        "inputs": model._reader.to_config(),
        "labels": model._labels.to_config(),
        "edge_kernel": None if model._edge_kernel is None else model._edge_kernel.to_config(),
        "edge_map": edge_config,
        "metadata": parts.METADATA.check("metadata_", model.metadata_),
    }
    return config, arrays


def restore_chain(model: ChainCRF, config: Mapping[str, Any], arrays: Mapping[str, Array]) -> None:
    """Make a new estimator the fitted one that `state_of_chain` described."""
    edge_kernel = None if config["edge_kernel"] is None else InputKernel.from_config(config["edge_kernel"])
    model._reader = SequenceReader.from_config(config["inputs"])
    model._labels = LabelReader.from_config(config["labels"])
    model.classes_, model.n_features_in_ = model._labels.classes, model._reader.n_features
    L = len(model.classes_)
    _restore(model, config, arrays, L, {} if edge_kernel is None else {"edge_kernel": edge_kernel})
    model._edge_kernel = edge_kernel
    model._legal = None
    if "legal.steps" in arrays:
        model._legal = Legal(
            checked(arrays, "legal.steps", (L, L), "b"),
            checked(arrays, "legal.first", (L,), "b"),
            checked(arrays, "legal.last", (L,), "b"),
        )
    if edge_kernel is not None:
        model._edge_map = feature_map(config["edge_map"], arrays, "edge_map.", model.n_features_in_)
        model.edge_coef_ = checked(arrays, "edge_coef", (model._edge_map.n, L, L), "f")
    else:
        model.edge_coef_ = None
    positions = None if model.landmarks_ is None else checked(arrays, "landmark_positions", (model._map.n, 2), "i")
    model.landmark_positions_ = positions
    model.transitions_ = checked(arrays, "transitions", (L, L), "f")
    model.gap_curve_ = checked(arrays, "gap_curve", (model.n_iter_ + 1, 3), "f")
    if not isinstance(config["metadata"], dict):
        raise ModelFileError(f"metadata is {shown(config['metadata'])}: expected an object")
    model.metadata_ = config["metadata"]
    model._fold_weights()


def state_of_classifier(model: KernelClassifier) -> tuple[dict[str, Any], dict[str, Array]]:
    """A JSON-able config and arrays by name, from which `restore_classifier` makes an equal model."""
    config, arrays = _state(model)
    config |= {
        "estimator": "KernelClassifier",
        "classes": parts.values_config(model.classes_),
        "n_features": int(model.n_features_in_),
        "feature_names": parts.names_config(model),
    }
    return config, arrays


def restore_classifier(model: KernelClassifier, config: Mapping[str, Any], arrays: Mapping[str, Array]) -> None:
    """Make a new estimator the fitted one that `state_of_classifier` described."""
    model.classes_ = parts.values_from_config(config["classes"])
    model.n_features_in_ = count(config, "n_features", 1)
    parts.restore_names(model, config["feature_names"])
    _restore(model, config, arrays, len(model.classes_), {})
    model._fold_weights()


def _state(model: KernelEstimator) -> tuple[dict[str, Any], dict[str, Array]]:
    """What both have."""
    map_config, of_map = model._map.to_arrays()
    arrays: dict[str, Array] = {f"map.{name}": array for name, array in of_map.items()}
    arrays |= {"theta": model._theta, "coef": model.coef_, "objective_curve": model.objective_curve_}
    if model._laplace is not None and model._laplace.posterior is not None:
        arrays |= parts.posterior_arrays(model._laplace.posterior)
    config = {
        "parameters": parts.plain_parameters(model),
        "kernel": model._kernel.to_config(),
        "map": map_config,
        "certificate": parts.certificate_config(model.certificate_),
        "n_iter": model.n_iter_,
        "C": float(model.C_),
        "layout": model._layout.to_config(),
        "laplace": parts.laplace_config(model._laplace),
    }
    return config, arrays


def _restore(
    model: KernelEstimator,
    config: Mapping[str, Any],
    arrays: Mapping[str, Array],
    L: int,
    kernels: Mapping[str, InputKernel],
) -> None:
    """What both have; `kernels` are those of other parameters than `kernel`."""
    kernel, parameters = InputKernel.from_config(config["kernel"]), dict(config["parameters"])
    for name, own in {"kernel": kernel, **kernels}.items():
        if parameters.get(name) is None:
            parameters[name] = own.kernel
    parts.set_parameters(model, parameters)
    model._kernel, model._edge_kernel, model._edge_map = kernel, None, None
    model._map = feature_map(config["map"], arrays, "map.", model.n_features_in_)
    model.landmarks_ = model._map.landmarks if isinstance(model._map, WhitenedMap) else None
    model.coef_ = checked(arrays, "coef", (model._map.n, L), "f")
    if any(one["label_kernel"]["L"] != L or not 0 < one["n"] <= len(arrays["theta"]) for one in config["layout"]):
        raise ModelFileError("the templates are not those of the labels and weights")
    model._layout = Layout.from_config(config["layout"])
    if any(NODES.get(text(one, "name")) != count(one, "nodes") for one in config["layout"]):
        raise ModelFileError(f"the templates are {shown(list(model._layout.slices))}: expected {', '.join(NODES)}")
    model._theta = checked(arrays, "theta", (model._layout.size,), "f")
    model._laplace = parts.restored_laplace(config["laplace"], arrays, model._theta)
    model.n_iter_ = count(config, "n_iter")
    model.objective_curve_ = checked(arrays, "objective_curve", (model.n_iter_ + 1,), "f")
    model.certificate_ = parts.certificate_from_config(config["certificate"])
    model.C_ = number(config, "C")
    if model.C_ <= 0:
        raise ModelFileError(f"C is {model.C_:g}: expected a number above 0")
    # Parameters may have been set after the fit: what they exclude is for the next fit to say.
    model._validate_params(*model._parameter_constraints)
