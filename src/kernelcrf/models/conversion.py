"""Convert the content of model files of versions 1 and 2 to the current form, so that one reader reads all files.

The current form has a list `terms`, a list `label_kernels`, a list `maps` of feature maps, whose arrays have names such
as "map 0.R", and the weights of all terms as one array `theta`. Files of versions 1 and 2 have one of three other
forms:

- Sequences and rows have a list `layout` of terms. A term has a number of nodes instead of a kind of cliques. Its label
  kernel is for single labels, even if the term scores transitions. Each feature map has an entry of its own, such as
  `map` or `edge_map`.
- Graphs and label sets have `potentials`, whose weights are multiplied by the factor of the label kernel.
- Tables have the scores of all values as an array `tables`.

In files of version 0.1, ChainCRF has a parameter `edge_kernel`, which sets the kernel of the term `steps`. In the
current form, this kernel belongs to an input.

Old files may lack values that all files have today. This module does not check content; the reader checks the result.
If content is not valid, the functions here may raise any of `CONTENT_ERRORS`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import asdict
from typing import Any

import numpy as np

from kernelcrf.arrays import Arrays, Config
from kernelcrf.basis.landmarks import AUTO, Landmarks
from kernelcrf.certificate import ROUNDING
from kernelcrf.fitting.graphs import COVERS
from kernelcrf.kernels.inputs import InputKernel, polynomial_of_0_1
from kernelcrf.kernels.labels import LabelKernel
from kernelcrf.kernels.polynomial import Polynomial
from kernelcrf.penalties import ElasticNet, Gaussian
from kernelcrf.persistence import ModelFileError
from kernelcrf.persistence.checks import read_array, read_count, read_text
from kernelcrf.readers.stored_inputs import SEVERAL
from kernelcrf.score.cliques import EDGE_INPUTS, EDGES, STEPS, TOKENS, kind_of
from kernelcrf.score.terms import BETWEEN, CHAIN_CLIQUES, OF_INPUT, SEGMENT_CLIQUES, TOKEN_TERM
from kernelcrf.solvers.loop import OPTIMAL, STATIONARY
from kernelcrf.validation import shown

# The term of transitions that depend on inputs, in files that have a parameter `edge_kernel`.
STEP_TERM = "steps"
# The parameters that belong to each input.
OF_ONE_INPUT = ("gamma", "n_components")
# The parameters that set kernels, to which `degree` and `coef0` belonged.
KERNELS = ("kernel", "edge_kernel", "segment_kernel")
# The entry of the feature map of a term in files of versions 1 and 2; other terms have the entry "<term>__map".
MAPS = {TOKEN_TERM: "map", STEP_TERM: "edge_map"}
# The input of the potentials of label sets; those of graphs have the input of their cliques.
ROWS = "rows"


def convert_content(config: Config, arrays: Arrays) -> tuple[Config, Arrays]:
    """Return the content of a model file in the current form; content that already has this form does not change.

    config, arrays : the JSON object and the arrays of one estimator, which may be the last step of a pipeline.
    """
    is_chain = "layout" in config
    config, arrays = _convert_form(config, arrays)
    config = {**config, "parameters": _convert_parameters(config["parameters"], asdict)}
    if is_chain:
        # Files of the first versions do not say that there is no intercept, which was the default.
        config["parameters"].setdefault("fit_intercept", False)
    if isinstance(config.get("specification"), dict):
        config["specification"] = _convert_parameters(config["specification"], repr)
    if config["estimator"] == "ChainCRF":
        config, arrays = _convert_steps(config, arrays)
    return config, arrays


def _convert_form(config: Config, arrays: Arrays) -> tuple[Config, Arrays]:
    """Return the content of an older model file, with terms, maps and weights in the current form."""
    if "terms" in config:
        return config, arrays
    config = dict(config)
    if "potentials" in config:
        config, arrays = _convert_potentials(config, arrays)
    elif "tables" in arrays:
        config, arrays = _convert_tables(config, arrays)
    else:
        config, arrays = _convert_layout(config, arrays)
    config["label_kernels"] = [one["label_kernel"] for one in config["terms"]]
    config["terms"] = [{**one, "label_kernel": place} for place, one in enumerate(config["terms"])]
    config["certificate"] = _convert_certificate(config["certificate"])
    if "C" not in config:
        config["C"] = config["parameters"]["C"]
    return config, arrays


def _convert_certificate(config: Config) -> Config:
    """Return a certificate with all fields.

    In old files, fits with missing labels also have the status "optimal", although they have no lower bound. This
    status becomes "stationary".
    """
    config = {"gap_full": None, "rounding": ROUNDING[np.dtype(np.float64)], **config}
    if config["status"] == OPTIMAL and not math.isfinite(config["lower_bound"]):
        config["status"] = STATIONARY
    return config


def _convert_layout(config: Config, arrays: Arrays) -> tuple[Config, Arrays]:
    """Return the content of the file of a model of sequences or of rows."""
    terms, places, maps = [], dict[str, int](), list[Any]()
    arrays = dict(arrays)
    for one in config.pop("layout"):
        name, n_nodes = read_text(one, "name"), read_count(one, "nodes")
        if name.startswith(OF_INPUT):
            cliques = {1: TOKENS, 2: STEPS}[n_nodes]
        else:
            cliques = (CHAIN_CLIQUES | SEGMENT_CLIQUES | {STEP_TERM: STEPS})[name]
        kind, place, source = kind_of(cliques), None, None
        if n_nodes != (2 if kind.is_step else 1):
            raise ModelFileError(
                f"the term {shown(name)} has nodes={n_nodes}: expected 2 for a term of transitions, and 1 for all "
                "others. The file may be damaged: use another copy of it"
            )
        if one["kernel"] is not None:
            source = name.removeprefix(OF_INPUT) if name.startswith(OF_INPUT) else kind.input
            entry = MAPS.get(name, f"{name}__map")
            # Terms that share a map store it once, and the others name its entry.
            stored = config[entry] if isinstance(config[entry], str) else entry
            if stored not in places:
                places[stored] = len(maps)
                maps.append(config[stored])
                arrays = _rename(arrays, f"{stored}.", f"map {places[stored]}.")
            place = places[stored]
        converted = {
            "cliques": cliques,
            "label_kernel": _convert_label_kernel(one["label_kernel"], is_step=kind.is_step),
            "input": source,
            "map": place,
        }
        if "penalty" not in one:
            l1 = float(one.get("l1", 0.0))
            converted["penalty"] = (ElasticNet(l1) if l1 else Gaussian()).to_config()
        terms.append({**one, **converted})
    return {**config, "terms": terms, "maps": maps}, arrays


def _convert_steps(config: Config, arrays: Arrays) -> tuple[Config, Arrays]:
    """Return the content with an input for the kernel of transitions, instead of the parameter `edge_kernel`."""
    names = {TOKEN_TERM: TOKENS, STEP_TERM: STEPS}
    has_steps = any(one["name"] == STEP_TERM for one in config["terms"])
    config = {**config, "parameters": _convert_edge_kernel(config["parameters"], has_steps=has_steps)}
    if not has_steps:
        return config, arrays
    config["terms"] = [
        {**one, "name": OF_INPUT + names[one["name"]], "input": names[one["name"]]} if one["name"] in names else one
        for one in config["terms"]
    ]
    sources = [[name, None, None] for name in names.values()]
    config["inputs"] = {"kind": SEVERAL, "entries": [[None, config["inputs"]]], "sources": sources}
    if isinstance(config.get("specification"), dict):
        asked = _convert_edge_kernel(config["specification"], has_steps=True)
        inputs = asked.pop("inputs")
        of_inputs = {
            f"{OF_INPUT}{name}{BETWEEN}{key}": name if key == "of" else value
            for name, one in inputs.items()
            for key, value in one.items()
        }
        config["specification"] = {**asked, **of_inputs, "inputs": sorted(inputs)}
    return config, _rename(arrays, f"pairs.{TOKEN_TERM}.", f"pairs.{OF_INPUT}{TOKENS}.")


def _convert_edge_kernel(values: Config, *, has_steps: bool) -> Config:
    """Return the parameters with two inputs instead of `kernel` and `edge_kernel`.

    has_steps : whether the model has a kernel of transitions. If not, only leave out `edge_kernel`, and add no inputs.
    """
    values = dict(values)
    of_steps = values.pop("edge_kernel", None)
    if has_steps:
        shared = {name: values.pop(name) for name in OF_ONE_INPUT if name in values}
        shared |= {"C": None, "of": None, "columns": None}
        values["inputs"] = {
            TOKENS: {"kernel": values.pop("kernel"), **shared, "scores": TOKENS},
            STEPS: {"kernel": of_steps, **shared, "scores": STEPS},
        }
    return values


def _convert_parameters(values: Config, stored_as: Callable[[Polynomial | Landmarks], Any]) -> Config:
    """Replace parameters that no longer exist, such as `pivots`, by current ones; return all parameters.

    stored_as : a function that converts an object to a value that a file can store: a dict of its fields if `values`
        are parameters, a text if they are a specification.
    """
    values = dict(values)
    prefixes = {"", *(name.removesuffix("kernel") for name in values if name.startswith(OF_INPUT))}
    for prefix in prefixes:
        form = {name: values.pop(prefix + name) for name in ("degree", "coef0") if prefix + name in values}
        for name in (prefix + name for name in KERNELS):
            if isinstance(kernel := values.get(name), str):
                kernel = polynomial_of_0_1(kernel, form)
                values[name] = stored_as(kernel) if isinstance(kernel, Polynomial) else kernel
        if (pivots := values.pop(f"{prefix}pivots", AUTO)) != AUTO:
            values[f"{prefix}n_components"] = stored_as(Landmarks(values.get(f"{prefix}n_components", 500), pivots))
    if values.pop("boundaries", False):
        values["fit_intercept"] = "boundaries"
    if isinstance(inputs := values.get("inputs"), dict):
        values["inputs"] = {name: _convert_parameters(one, stored_as) for name, one in inputs.items()}
    return values


def _convert_label_kernel(config: Config, *, is_step: bool) -> Config:
    """Return the label kernel of a term.

    If the term scores transitions, the stored kernel is for single labels, and the result is for pairs of labels.
    """
    if is_step:
        if config["kind"] != "delta":
            raise ModelFileError(
                f"a term of transitions has the label kernel {shown(config['kind'])}: expected 'delta'. The file may "
                "be damaged: use another copy of it"
            )
        return {**config, "L": read_count(config, "L") ** 2}
    if config["kind"] == "matrix" and config.get("factor") is None:
        return LabelKernel("matrix", config["L"], np.array(config["matrix"])).to_config()
    return config


def _convert_potentials(config: Config, arrays: Arrays) -> tuple[Config, Arrays]:
    """Convert the content of an older model file for graphs or label sets to the current form.

    In these older files, each weight is the score of a labelling of a clique. The label kernel is therefore the
    identity. The files do not have the prior variances, but only a posterior would depend on them, and they have no
    posterior.
    """
    potentials, terms = config.pop("potentials"), []
    for one in potentials["terms"]:
        n, size = one["shape"]
        template, kernel, source = read_text(one, "template"), None, None
        if one["map"] is not None:
            source = EDGES if template == EDGE_INPUTS else template if "labels" in config else ROWS
            feature_map = potentials["maps"][read_count(one, "map")]
            kernel = feature_map.get("kernel", InputKernel("linear").to_config())
        terms.append(_plain_term(one["name"], template, size) | {"n": n, "input": source, "kernel": kernel})
        terms[-1]["map"] = one["map"]
    config |= {"terms": terms, "maps": potentials["maps"]}
    # Files of the first versions do not name the objective; it follows from their inference.
    if "labels" in config and "covers" not in config:
        config["covers"] = COVERS[config["parameters"].get("inference", "exact")]
    return config, _rename(arrays, "weights", "theta")


def _convert_tables(config: Config, arrays: Arrays) -> tuple[Config, Arrays]:
    """Convert the content of a file of a model of tables; the result has one term per variable and per pair."""
    cards = [len(one["values"]) for one in config["categories"]]
    terms = [_plain_term(f"variable {v}", f"variable {v}", L) for v, L in enumerate(cards)]
    for u, v in read_array(arrays, "edges", (len(arrays["edges"]), 2), "i").tolist():
        if not 0 <= min(u, v) <= max(u, v) < len(cards):
            raise ModelFileError(
                f"the model file has the pair ({u}, {v}): expected indices of variables, from 0 to {len(cards) - 1}. "
                "The file may be damaged: use another copy of it"
            )
        terms.append(_plain_term(f"edge {u} {v}", f"edge {u} {v}", cards[u] * cards[v]))
    tables = read_array(arrays, "tables", (1, sum(one["label_kernel"]["L"] for one in terms)), "f")
    others = {name: array for name, array in arrays.items() if name != "tables"}
    return {**config, "terms": terms, "maps": []}, {**others, "theta": tables[0]}


def _plain_term(name: str, cliques: str, size: int) -> Config:
    """Return a term without inputs, whose weights are the scores of the labellings of its cliques."""
    return {
        "name": name,
        "cliques": cliques,
        "label_kernel": {"kind": "delta", "L": size},
        "kernel": None,
        "input": None,
        "n": 1,
        "C": 1.0,
        "penalty": Gaussian().to_config(),
        "map": None,
    }


def _rename(arrays: Mapping[str, Any], prefix: str, new: str) -> Arrays:
    """Return the arrays under other names: `new` replaces `prefix` in names that begin with `prefix`."""
    return {
        new + name.removeprefix(prefix) if name.startswith(prefix) else name: array for name, array in arrays.items()
    }
