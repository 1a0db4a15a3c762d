"""What fitted estimators on networks are made of, as plain values and arrays, and back.

A MultiLabelCRF and a GraphCRF are the potentials of their terms; a MarkovNetwork, which has no inputs, is the tables of
its cliques.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from kernelcrf.estimators import state_parts as parts
from kernelcrf.estimators.labels import LabelReader
from kernelcrf.estimators.network import COVERS
from kernelcrf.estimators.stored_values import count, flag
from kernelcrf.kernels.inputs import InputKernel
from kernelcrf.networks import Potentials
from kernelcrf.persistence import ModelFileError
from kernelcrf.stored_maps import check_map, checked

if TYPE_CHECKING:
    from kernelcrf.estimators.graph import GraphCRF
    from kernelcrf.estimators.markov_network import MarkovNetwork
    from kernelcrf.estimators.multilabel import MultiLabelCRF
    from kernelcrf.estimators.network import NetworkEstimator

Array = npt.NDArray[Any]


def state_of_multilabel(model: MultiLabelCRF) -> tuple[dict[str, Any], dict[str, Array]]:
    """A JSON-able config and arrays by name, from which `restore_multilabel` makes an equal model."""
    potentials, arrays = model._potentials.to_arrays()
    config = _state(model) | {
        "estimator": "MultiLabelCRF",
        "kernels": _kernels(model),
        "potentials": potentials,
        "values": [parts.values_config(values) for values in model._values],
        "one_column": model._one_column,
        "n_features": int(model.n_features_in_),
        "feature_names": parts.names_config(model),
    }
    return config, arrays | {"edges": model.edges_}


def restore_multilabel(model: MultiLabelCRF, config: Mapping[str, Any], arrays: Mapping[str, Array]) -> None:
    """Make a new estimator the fitted one that `state_of_multilabel` described."""
    _restore(model, config, config["kernels"])
    model._values = [parts.values_from_config(values) for values in config["values"]]
    if any(values.shape != (2,) for values in model._values):
        raise ModelFileError("expected two values of each label")
    model._one_column = flag(config, "one_column")
    if model._one_column and len(model._values) != 1:
        raise ModelFileError(f"{len(model._values)} labels in one column: expected 1")
    model.n_features_in_ = count(config, "n_features", 1)
    parts.restore_names(model, config["feature_names"])
    model.edges_ = checked(arrays, "edges", (len(arrays["edges"]), 2), "i")
    potentials = Potentials.from_arrays(config["potentials"], arrays)
    for own in potentials.maps.values():
        check_map(own, model.n_features_in_)
    graph = model._graph()
    model._take(_checked(potentials, {name: int(np.prod(graph.shape(name))) for name in graph.cliques}), graph)


def state_of_graph(model: GraphCRF) -> tuple[dict[str, Any], dict[str, Array]]:
    """A JSON-able config and arrays by name, from which `restore_graph` makes an equal model."""
    potentials, arrays = model._potentials.to_arrays()
    config = _state(model) | {
        "estimator": "GraphCRF",
        "kernels": _kernels(model),
        "potentials": potentials,
        "labels": model._labels.to_config(),
        "directed": bool(model._directed),
        "has_edge_features": model._has_edge_features,
        "seed": int(model._seed),
        "n_features": int(model.n_features_in_),
        "covers": model.covers_,
    }
    return config, arrays


def restore_graph(model: GraphCRF, config: Mapping[str, Any], arrays: Mapping[str, Array]) -> None:
    """Make a new estimator the fitted one that `state_of_graph` described."""
    _restore(model, config, config["kernels"])
    if isinstance(model.cliques, list):
        model.set_params(cliques=tuple(model.cliques))
    model._labels = LabelReader.from_config(config["labels"])
    model._directed, model._has_edge_features = flag(config, "directed"), flag(config, "has_edge_features")
    model._seed, model.n_features_in_ = count(config, "seed"), count(config, "n_features", 1)
    potentials = Potentials.from_arrays(config["potentials"], arrays)
    L = len(model._labels.classes)
    sizes = {"nodes": L, "edges": L**2, "edge inputs": L**2, "skips": L**2, "paths": L**3}
    known = set(model._wanted()) | {"nodes"} | ({"edge inputs"} if model.edge_kernel is not None else set())
    if not {"nodes"} <= set(potentials.templates) <= known or "nodes" not in potentials.maps:
        raise ModelFileError(f"cliques {potentials.templates} do not go with the parameters of the model")
    check_map(potentials.maps["nodes"], model.n_features_in_)
    for name in potentials.maps.keys() - {"nodes"}:
        check_map(potentials.maps[name], None)
    # Models of earlier versions do not say what was minimised: it goes by their inference.
    covers = config.get("covers", COVERS[model.inference])
    if covers not in COVERS.values():
        raise ModelFileError(f"covers={str(covers)[:80]!r}: expected one of {', '.join(COVERS.values())}")
    if covers != COVERS["exact"]:
        model._laplace = None
    model._take(_checked(potentials, {name: sizes[name] for name in potentials.templates}), covers)


def state_of_markov_network(model: MarkovNetwork) -> tuple[dict[str, Any], dict[str, Array]]:
    """A JSON-able config and arrays by name, from which `restore_markov_network` makes an equal model."""
    config = _state(model) | {
        "estimator": "MarkovNetwork",
        "categories": [parts.values_config(values) for values in model.categories_],
    }
    return config, {"edges": model.edges_, "tables": model._tables}


def restore_markov_network(model: MarkovNetwork, config: Mapping[str, Any], arrays: Mapping[str, Array]) -> None:
    """Make a new estimator the fitted one that `state_of_markov_network` described."""
    _restore(model, config, {})
    model.categories_ = [parts.values_from_config(values) for values in config["categories"]]
    model.n_features_in_ = len(model.categories_)
    model.edges_ = checked(arrays, "edges", (len(arrays["edges"]), 2), "i")
    graph = model._graph()
    model._take(checked(arrays, "tables", (1, graph.n_entries), "f"), graph)


def _state(model: NetworkEstimator) -> dict[str, Any]:
    """What all have."""
    return {
        "parameters": parts.plain_parameters(model),
        "certificate": parts.certificate_config(model.certificate_),
        "n_iter": model.n_iter_,
        "search": parts.search_config(model.search_),
        "laplace": parts.laplace_config(model._laplace),
    }


def _restore(model: NetworkEstimator, config: Mapping[str, Any], kernels: Mapping[str, Any]) -> None:
    """What all have."""
    parameters = dict(config["parameters"])
    for name, own in kernels.items():
        parameters[name] = InputKernel.from_config(own).kernel
    parts.set_parameters(model, parameters)
    model.certificate_ = parts.certificate_from_config(config["certificate"])
    model.n_iter_ = count(config, "n_iter")
    model.search_ = parts.search_from_config(config["search"])
    model._laplace = parts.restored_laplace(config["laplace"], {}, np.empty(0))
    # Parameters may have been set after the fit: what they exclude is for the next fit to say.
    model._validate_params(*model._parameter_constraints)


def _kernels(model: MultiLabelCRF | GraphCRF) -> dict[str, Any]:
    """The kernels of parameters that are no names."""
    given = {"kernel": model.kernel, "edge_kernel": model.edge_kernel}
    return {
        name: InputKernel(kernel).to_config()
        for name, kernel in given.items()
        if not (kernel is None or isinstance(kernel, str))
    }


def _checked(potentials: Potentials, sizes: Mapping[str, int]) -> Potentials:
    """Potentials, once their templates and the joint labels of their terms are those of a model."""
    if set(potentials.templates) != set(sizes) or not set(potentials.of_term.values()) <= set(sizes):
        raise ModelFileError(f"cliques {potentials.templates[:8]} are not those of the model: {list(sizes)[:8]}")
    for name, template in potentials.of_term.items():
        S = potentials.weights[name].shape[1]
        if sizes[template] != S:
            raise ModelFileError(f"term {name!r} has {S} labels: expected {sizes[template]}")
    return potentials
