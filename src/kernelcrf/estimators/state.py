"""What a fitted ChainCRF is made of, as plain values and arrays, and back."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from kernelcrf.basis.features import FeatureMap, WhitenedMap, from_arrays
from kernelcrf.certificate import Certificate
from kernelcrf.engines.local import LocalEngine
from kernelcrf.estimators.labels import LabelReader
from kernelcrf.estimators.sequences import SequenceReader
from kernelcrf.graphs.structure import Legal
from kernelcrf.kernels.inputs import InputKernel, is_sparse
from kernelcrf.laplace import FactoredPosterior, Laplace, PartialPosterior, SampledPosterior
from kernelcrf.parameters import Layout
from kernelcrf.persistence import ModelFileError

if TYPE_CHECKING:
    from kernelcrf.estimators.chain import ChainCRF

Array = npt.NDArray[Any]


def state_of(model: ChainCRF) -> tuple[dict[str, Any], dict[str, Array]]:
    """A JSON-able config and arrays by name, from which `restore` makes an equal model."""
    map_config, of_map = model._map.to_arrays()
    arrays: dict[str, Array] = {f"map.{name}": array for name, array in of_map.items()}
    arrays |= {"theta": model._theta, "coef": model.coef_, "transitions": model.transitions_}
    arrays |= {"objective_curve": model.objective_curve_, "gap_curve": model.gap_curve_}
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
    certificate, laplace = model.certificate_, model._laplace
    if laplace is not None and laplace.posterior is not None:
        arrays |= _posterior_arrays(laplace.posterior)
    config = {
        "estimator": "ChainCRF",
        "parameters": _plain_parameters(model),
        "inputs": model._reader.to_config(),
        "labels": model._labels.to_config(),
        "kernel": model._kernel.to_config(),
        "map": map_config,
        "edge_kernel": None if model._edge_kernel is None else model._edge_kernel.to_config(),
        "edge_map": edge_config,
        "certificate": {
            "objective": certificate.objective,
            "lower_bound": certificate.lower_bound,
            "status": certificate.status,
            "gap_full": certificate.gap_full,
            "rounding": certificate.rounding,
        },
        "n_iter": model.n_iter_,
        "C": float(model.C_),
        "layout": model._layout.to_config(),
        "laplace": None
        if laplace is None
        else {
            "log_evidence": laplace.log_evidence,
            "error": laplace.error,
            "n_effective": laplace.n_effective,
        },
        "metadata": _plain(model.metadata_, "metadata_"),
    }
    return config, arrays


def restore(model: ChainCRF, config: Mapping[str, Any], arrays: Mapping[str, Array]) -> None:
    """Make a new estimator the fitted one that `state_of` described."""
    try:
        _restore(model, config, arrays)
    except ModelFileError:
        raise
    except (ValueError, TypeError, LookupError, AttributeError, ArithmeticError, RecursionError) as error:
        raise ModelFileError(f"the parts of the model do not hold together ({error})") from None


def _plain_parameters(model: ChainCRF) -> dict[str, Any]:
    """The estimator's parameters as JSON-able values; what the fit has resolved is left to its own place."""
    parameters = model.get_params(deep=False)
    for name in ("kernel", "edge_kernel"):
        parameters[name] = parameters[name] if isinstance(parameters[name], str) else None
    for name in ("label_kernel", "constraints", "classes", "class_weight", "pivots", "random_state"):
        value = parameters[name]
        parameters[name] = _plain(value.tolist() if isinstance(value, np.ndarray) else value, name)
    return dict(parameters)


def _plain(value: Any, name: str) -> Any:
    """The value, once JSON can hold it."""
    try:
        json.dumps(value)
    except TypeError:
        raise TypeError(
            f"{name}={value!r} cannot be written to a file: expected plain values; joblib.dump keeps any object"
        ) from None
    return value


def _restore(model: ChainCRF, config: Mapping[str, Any], arrays: Mapping[str, Array]) -> None:
    kernel = InputKernel.from_config(config["kernel"])
    known = model.get_params(deep=False)
    if unknown := set(config["parameters"]) - set(known):
        raise ModelFileError(f"parameters {sorted(unknown)} are none of ChainCRF's: upgrade kernelcrf")
    # A file from before a parameter was there takes its default.
    parameters = known | dict(config["parameters"])
    if parameters["kernel"] is None:
        parameters["kernel"] = kernel.kernel
    edge_kernel = None if config["edge_kernel"] is None else InputKernel.from_config(config["edge_kernel"])
    if parameters["edge_kernel"] is None and edge_kernel is not None:
        parameters["edge_kernel"] = edge_kernel.kernel
    model.set_params(**parameters)
    model._kernel, model._edge_kernel = kernel, edge_kernel
    model._reader = SequenceReader.from_config(config["inputs"])
    model._labels = LabelReader.from_config(config["labels"])
    model.classes_, model.n_features_in_ = model._labels.classes, model._reader.n_features
    L = len(model.classes_)
    model._legal = None
    if "legal.steps" in arrays:
        model._legal = Legal(
            _array(arrays, "legal.steps", (L, L), "b"),
            _array(arrays, "legal.first", (L,), "b"),
            _array(arrays, "legal.last", (L,), "b"),
        )
    model._map = _feature_map(config["map"], arrays, "map.", model.n_features_in_)
    model.landmarks_ = model._map.landmarks if isinstance(model._map, WhitenedMap) else None
    model._edge_map, model.edge_coef_ = None, None
    if edge_kernel is not None:
        model._edge_map = _feature_map(config["edge_map"], arrays, "edge_map.", model.n_features_in_)
        model.edge_coef_ = _array(arrays, "edge_coef", (model._edge_map.n, L, L), "f")
    n = model._map.n
    positions = None if model.landmarks_ is None else _array(arrays, "landmark_positions", (n, 2), "i")
    model.landmark_positions_ = positions
    model.coef_ = _array(arrays, "coef", (n, L), "f")
    model.transitions_ = _array(arrays, "transitions", (L, L), "f")
    if any(one["label_kernel"]["L"] != L or not 0 < one["n"] <= len(arrays["theta"]) for one in config["layout"]):
        raise ModelFileError("the templates are not those of the labels and weights")
    model._layout = Layout.from_config(config["layout"])
    model._theta = _array(arrays, "theta", (model._layout.size,), "f")
    model._laplace = _laplace(config["laplace"], arrays, model._theta)
    model.n_iter_ = int(config["n_iter"])
    model.objective_curve_ = _array(arrays, "objective_curve", (model.n_iter_ + 1,), "f")
    model.gap_curve_ = _array(arrays, "gap_curve", (model.n_iter_ + 1, 3), "f")
    model.metadata_ = dict(config["metadata"])
    model.certificate_ = Certificate(**config["certificate"])
    model.C_ = float(config["C"])
    model._fold_weights()
    model._check_decoding()
    LocalEngine(model.n_jobs)


def _posterior_arrays(posterior: FactoredPosterior | SampledPosterior | PartialPosterior) -> dict[str, Array]:
    """What a posterior has beside its mode."""
    if isinstance(posterior, PartialPosterior):
        own = {"partial.scale": posterior.scale, "partial.kept": posterior.kept.astype(np.int64)}
        return own | _posterior_arrays(posterior.inner)
    if isinstance(posterior, FactoredPosterior):
        return {"posterior.scale": posterior.scale, "posterior.G": posterior.G}
    return {"posterior.drawn": posterior.drawn}


def _laplace(config: Mapping[str, float] | None, arrays: Mapping[str, Array], theta: Array) -> Laplace | None:
    if config is None:
        return None
    evidence = Laplace(config["log_evidence"], config["error"], config["n_effective"], None)
    if "partial.kept" not in arrays:
        return replace(evidence, posterior=_posterior(arrays, theta))
    kept = _array(arrays, "partial.kept", (arrays["partial.kept"].size,), "i")
    if len(kept) and not (kept.min() >= 0 and kept.max() < len(theta)):
        raise ModelFileError("tensor 'partial.kept' names weights that are not there")
    inner = _posterior(arrays, theta[kept])
    if inner is None:
        raise ModelFileError("a posterior of some weights is not there")
    return replace(
        evidence,
        posterior=PartialPosterior(theta, _array(arrays, "partial.scale", theta.shape, "f"), kept, inner),
    )


def _posterior(arrays: Mapping[str, Array], mode: Array) -> FactoredPosterior | SampledPosterior | None:
    if "posterior.G" in arrays:
        scale = _array(arrays, "posterior.scale", mode.shape, "f")
        return FactoredPosterior(mode, scale, _array(arrays, "posterior.G", mode.shape * 2, "f"))
    if "posterior.drawn" in arrays:
        drawn = arrays["posterior.drawn"]
        return SampledPosterior(mode, _array(arrays, "posterior.drawn", (len(drawn), len(mode)), "f"))
    return None


def _feature_map(config: Mapping[str, Any], arrays: Mapping[str, Array], prefix: str, n_features: int) -> FeatureMap:
    own = {name.removeprefix(prefix): array for name, array in arrays.items() if name.startswith(prefix)}
    result = from_arrays(config, own)
    fits = result.n == n_features
    if isinstance(result, WhitenedMap):
        R, B = _array(own, "R", (result.n, result.n), "f"), result.landmarks
        fits = len(R) > 0 and B.shape == (len(R), n_features) and B.dtype.kind == "f"
        if is_sparse(B):
            # Compiled products of SciPy look indices up without asking.
            B.check_format(full_check=True)
    if not fits:
        raise ModelFileError("landmarks, their factor and the inputs do not fit together")
    if isinstance(result, WhitenedMap):
        with np.errstate(all="ignore"):
            finite = np.isfinite(B.data if is_sparse(B) else B).all() and np.isfinite(result.kernel.gram(B[:1])).all()
        if not finite:
            raise ModelFileError("landmarks, or the kernel between them, are not finite")
    return result


def _array(arrays: Mapping[str, Array], name: str, shape: tuple[int, ...] | None, kind: str) -> Array:
    array = arrays[name]
    if array.dtype.kind != kind or (shape is not None and array.shape != shape) or not np.isfinite(array).all():
        raise ModelFileError(
            f"tensor {name!r} has type {array.dtype} and shape {array.shape}: expected {shape}, finite"
        )
    return array
